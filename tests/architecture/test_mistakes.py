# SPDX-License-Identifier: MIT
"""The page of mistakes: its programs compile, are named as it says, and repaired are right."""

from __future__ import annotations

import doctest
import importlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bridge.judge.diagnosis.catalogue import KINDS
from bridge.judge.measure.outcome import Outcome
from docs.tools import drawing
from docs.tools.mistakes import page, runs, sources
from docs.tools.mistakes.catalogue import MISTAKES
from docs.tools.mistakes.runs import Found, UnexpectedError, found
from tests.helpers.tiers import few

BY_NAME = {mistake.name: mistake for mistake in MISTAKES}
pytestmark = pytest.mark.skipif(shutil.which("gfortran") is None,
                                reason="skipped, because gfortran is not on the search path")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mistakes")


@pytest.fixture(scope="module")
def saved(folder: Path) -> Iterator[Found]:
    """The one that is not there in the first step."""
    yield found(BY_NAME["saved"], folder)


def test_the_page_has_every_mistake(root: Path) -> None:
    """A part and an anchor for each, in the order of the table, and no others; sources that nobody shows are none."""
    text = (root / "docs/mistakes.md").read_text(encoding="utf-8")
    names = [mistake.name for mistake in MISTAKES]
    assert re.findall(r'^--8<-- "mistakes/(\w+)\.txt"$', text, re.MULTILINE) == ["table", *names]
    assert re.findall(r"^## .* \{ #(\w+) \}$", text, re.MULTILINE) == names
    assert sorted(path.name for path in sources.FOLDER.iterdir()) == sorted(f"{name}.f90.in" for name in names)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_program_and_its_repair_differ_as_shown(name: str) -> None:
    """Some lines have a mark, and none of it is left in what is compiled."""
    wrong, right = (sources.program(name, flag).splitlines() for flag in (True, False))
    shown = sources.difference(name).splitlines()
    assert [line[1:] for line in shown if line[:1] != "+"] == wrong[1:]
    assert [line[1:] for line in shown if line[:1] != "-"] == right[1:]
    assert wrong != right and not re.search("!(wrong|right)", "".join(shown))
    assert max(map(len, shown)) <= 100


def test_the_compiler_is_strict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That it says nothing of the mistakes is something to say: a variable that nobody uses is an error."""
    text = "subroutine idle() bind(C)\n   implicit none\n   integer :: i\nend subroutine\n"
    (tmp_path / "idle.f90.in").write_text(text, encoding="utf-8")
    monkeypatch.setattr(sources, "FOLDER", tmp_path)
    with pytest.raises(subprocess.CalledProcessError) as failed:
        sources.compiled("idle", True, tmp_path)
    assert "-Werror=unused-variable" in failed.value.stderr


@pytest.mark.parametrize("name", few(BY_NAME, "saved".__eq__))
def test_a_mistake_is_named_and_its_repair_is_right(name: str, folder: Path, saved: Found) -> None:
    """By the first finding of the verdict that is shown, with four pictures of a tensor that is wrong."""
    one = saved if name == "saved" else found(BY_NAME[name], folder)
    assert one.mistake.is_named(one.judgement.verdict) and one.repaired.startswith("RIGHT")
    assert one.said.startswith("LOWER PRECISION" if name == "tf32" else "BUG")
    assert one.map.right.shape == one.map.found.shape and one.map.ratio.max() > 1
    assert len(page.panels(one.map)) == 4 and one.report.startswith("<!")


def test_a_buffer_that_is_not_emptied_is_not_seen_in_the_first_step(saved: Found) -> None:
    assert all(judged.passed for judged in saved.judgement.comparison.judged if judged.step == 0)
    assert {judged.step for judged in saved.judgement.comparison.failures} == {1}
    assert max(saved.losses) < 1e-6 and saved.alarms[0] == 0


def test_another_name_or_outcome_is_seen(saved: Found) -> None:
    verdict = saved.judgement.verdict
    assert saved.mistake.is_named(verdict)
    assert not replace(saved.mistake, named="kernel_flipped").is_named(verdict)
    assert not replace(saved.mistake, outcome=Outcome.PRECISION).is_named(verdict)
    assert not saved.mistake.is_named(replace(verdict, diagnosis=None))
    assert {mistake.named for mistake in MISTAKES if mistake.outcome is Outcome.BUG} <= {kind.key for kind in KINDS}


@pytest.mark.deep
def test_another_name_or_a_repair_that_is_none_ends_the_build(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnexpectedError, match=r"saved: BUG: .*repaired: RIGHT"):
        found(replace(BY_NAME["saved"], named="kernel_flipped"), folder)
    monkeypatch.setattr(runs, "compiled", lambda name, wrong, folder: sources.compiled(name, True, folder))
    with pytest.raises(UnexpectedError, match="repaired: BUG"):
        found(BY_NAME["column_major"], folder)


def test_what_the_page_shows_of_a_mistake(saved: Found) -> None:
    """The verdict as it was printed, and pictures and report where they are written."""
    text = page.part(saved)
    assert saved.said.splitlines()[0] in text and saved.repaired in text
    assert "-   real(c_float) :: beta = 0\n+   real(c_float) :: beta\n" in text
    assert 'href="mistakes/saved.html"' in text and 'src="mistakes/saved-wide-dark.png#only-dark"' in text
    row = page.table([saved]).splitlines()[-1]
    assert row.startswith("| [a buffer that is not emptied](#saved) | ") and ": added to old contents in conv3 |" in row


def test_pictures_are_drawn_for_both_pages(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="skipped, because matplotlib is not installed")
    image = np.linspace(-1.0, 1.0, 12).reshape(3, 4)
    drawing.draw([drawing.numbers("a", image, -1, 1), drawing.error_map(10 * abs(image))], tmp_path / "p", 3, 1)
    light, dark = ((tmp_path / f"p-{theme}.png").read_bytes() for theme in ("light", "dark"))
    assert light.startswith(b"\x89PNG") and dark.startswith(b"\x89PNG") and light != dark


@pytest.mark.parametrize("name", ["drawing", "mistakes.sources"])
def test_docstrings(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"docs.tools.{name}")).failed == 0
