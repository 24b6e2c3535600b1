# SPDX-License-Identifier: MIT
"""The documentation's site as it is read: it builds, and has contents."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.helpers.built_once import built_once

pytestmark = pytest.mark.deep


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site."""
    for name in ("mkdocs", "material", "mkdocstrings"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"skipped, because {name} is not installed: `make docs` installs it")
    if not Path(sys.prefix, "ford/bin/python").is_file():
        pytest.skip("skipped, because FORD is not installed: `make docs` installs it")

    def build(folder: Path) -> None:
        done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--site-dir", folder], cwd=ROOT,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "WARNING -" not in done.stderr

    return built_once(tmp_path_factory, "site", build)


def test_it_builds_without_a_warning(site: Path) -> None:
    for name in ("index.html", "story.html", "samples/wrong.html", "mistakes/saved.html",
                 "fortran-reference/module/cnn.html", "reference/network.html"):
        assert (site / name).is_file(), name


def test_the_fortran_reference_has_contents(site: Path) -> None:
    """Each procedure that is bound to a network, by its name; and what is public is not called private."""
    text = (site / "fortran-reference/type/network_type.html").read_text("utf-8")
    contents = text.partition('class="md-nav md-nav--secondary"')[2].partition("</nav>\n                  </div>")[0]
    bound = set(re.findall(r'<h3 id="boundprocedure-([^"~]+)', text))
    assert {"add", "build", "load", "save", "forward", "step", "pull_back", "get", "set"} <= bound
    assert bound == set(re.findall(r'href="#boundprocedure-([^"~]+)', contents))
    for path in (site / "fortran-reference").rglob("*.html"):
        assert not re.search(r"<h\d[^>]*>\s*private\b", path.read_text("utf-8")), path
