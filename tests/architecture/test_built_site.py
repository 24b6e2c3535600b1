# SPDX-License-Identifier: MIT
"""The documentation's site as it is read: it builds, is searched without a server, fits a phone, and has contents."""

from __future__ import annotations

import html
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.helpers.built_once import built_once

pytestmark = [pytest.mark.deep, pytest.mark.together]

#: Of a phone, in pixels
PHONE = 390
#: What is searched, the page that answers, and what it says of it
SEARCHES = [
    ("licence", "start.html", "Licence and citation"),
    ("license", "start.html", "Licence and citation"),
    ("citation", "start.html", "Licence and citation"),
    ("LSTM", "not-here.html", "no recurrent layers"),
    ("several inputs", "not-here.html", "Networks of several inputs or several outputs are refused"),
    ("tomogram", "not-here.html", "Tomograms and other volumes are read as stacks of images"),
    ("EER", "not-here.html", "EER movies are not read"),
    ("LD_LIBRARY_PATH", "fortran.html", "a program finds the library where it was, without LD_LIBRARY_PATH"),
]
#: Says of each page what is wider than a phone, which words of tables are broken, and which code is cut
MEASURE = r"""<!doctype html><meta charset="utf-8"><pre id="found"></pre><script>
async function measured(page, width) {
  const found = [], frame = document.createElement("iframe")
  Object.assign(frame.style, { border: 0, width: `${width}px`, height: "800px" })
  frame.src = page
  document.body.append(frame)
  await new Promise(loaded => frame.onload = loaded)
  const inside = frame.contentDocument, wide = inside.documentElement.scrollWidth
  if (wide > width) found.push(`${page} is ${wide} pixels wide`)
  for (const cell of inside.querySelectorAll("td, th")) {
    const texts = inside.createTreeWalker(cell, NodeFilter.SHOW_TEXT), range = inside.createRange()
    while (texts.nextNode())
      for (const word of texts.currentNode.data.matchAll(/[\p{L}\p{N}_]+/gu)) {
        range.setStart(texts.currentNode, word.index)
        range.setEnd(texts.currentNode, word.index + word[0].length)
        const lines = new Set([...range.getClientRects()].map(one => one.top))
        if (lines.size > 1) found.push(`${page} breaks the word ${word[0]}`)
      }
  }
  for (const code of inside.querySelectorAll("pre > code")) {
    const scrolls = ["auto", "scroll"].includes(frame.contentWindow.getComputedStyle(code).overflowX)
    if (code.scrollWidth > code.clientWidth && !scrolls) found.push(`${page} cuts ${code.textContent.slice(0, 40)}`)
  }
  frame.remove()
  return found
}
(async () => {
  const found = []
  for (const page of PAGES) found.push(...await measured(page, WIDTH))
  document.getElementById("found").textContent = JSON.stringify(found)
})()
</script>"""


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


def shown(address: str, profile: Path, *options: str) -> str:
    """The page of an address as Chromium has it in the end; the test is skipped where there is none."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("skipped, because there is no Chromium")
    return subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
                           *options, "--virtual-time-budget=600000", "--dump-dom", address],
                          capture_output=True, text=True, check=True, timeout=600).stdout


def test_it_builds_without_a_warning(site: Path) -> None:
    for name in ("index.html", "story.html", "samples/wrong.html", "mistakes/saved.html",
                 "fortran-reference/module/cnn.html", "reference/network.html"):
        assert (site / name).is_file(), name


@pytest.mark.parametrize(("query", "page", "said"), SEARCHES)
def test_a_search_without_a_server_is_answered(query: str, page: str, said: str, site: Path, tmp_path: Path) -> None:
    """The first result is the page that answers, with what it says."""
    there = shown(f"{(site / 'index.html').as_uri()}?q={query.replace(' ', '%20')}", tmp_path)
    results = there.partition('<ol class="md-search-result__list"')[2].partition("</ol>")[0]
    first = results.partition("</li>")[0]
    assert f"/{page}?h=" in first, results
    assert said in " ".join(re.sub("<[^>]*>", "", html.unescape(first)).split())


def test_pages_fit_a_phone(site: Path, tmp_path: Path) -> None:
    """No page is wider, no table breaks a word, and long lines of code scroll."""
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if path.name != "404.html")
    assert len(pages) > 100
    addresses = [(site / page).as_uri() for page in pages]
    page = tmp_path / "measure.html"
    page.write_text(MEASURE.replace("PAGES", json.dumps(addresses)).replace("WIDTH", str(PHONE)), "utf-8")
    there = shown(page.as_uri(), tmp_path / "profile", "--allow-file-access-from-files", "--window-size=1280,900")
    assert html.unescape(there.partition('<pre id="found">')[2].partition("</pre>")[0]) == "[]"


def test_the_fortran_reference_has_contents(site: Path) -> None:
    """Each procedure that is bound to a network, by its name; and what is public is not called private."""
    text = (site / "fortran-reference/type/network_type.html").read_text("utf-8")
    contents = text.partition('class="md-nav md-nav--secondary"')[2].partition("</nav>\n                  </div>")[0]
    bound = set(re.findall(r'<h3 id="boundprocedure-([^"~]+)', text))
    assert {"add", "build", "load", "save", "forward", "step", "pull_back", "get", "set"} <= bound
    assert bound == set(re.findall(r'href="#boundprocedure-([^"~]+)', contents))
    for path in (site / "fortran-reference").rglob("*.html"):
        assert not re.search(r"<h\d[^>]*>\s*private\b", path.read_text("utf-8")), path
