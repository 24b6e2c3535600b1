# SPDX-License-Identifier: MIT
"""Every exchange file is opened once for all that a command does with it."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from bridge import compare
from bridge.exchange.file import ExchangeFile
from bridge.judge.diagnosis import background
from bridge.validate import __main__ as validate
from bridge.validate.self_test.edits import plant
from tests.helpers.judged import wrong
from tests.helpers.tiers import few_rows


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often this process has opened an exchange file of a name."""
    found: Counter[str] = Counter()
    real = ExchangeFile.__init__

    def counted(self: ExchangeFile, path: str | os.PathLike[str]) -> None:
        found[Path(path).name] += 1
        real(self, path)

    monkeypatch.setattr(ExchangeFile, "__init__", counted)
    return found


def outputs(folder: Path) -> list[str]:
    return [text for kind in ("json", "report", "junit") for text in (f"--{kind}", str(folder / f"out.{kind}"))]


@pytest.mark.parametrize(("options", "names"), few_rows([
    ([], ["fixture.h5", "result.h5"]),
    (["--precision", "float64"], ["fixture.h5", "result.h5", "result-float32.h5"]),
    (["--probe"], ["fixture-probe1.h5", "result-probe1.h5"]),
], 1))
def test_a_validation_opens_each_file_once(options: list[str], names: list[str], opened: Counter[str],
                                           tmp_path: Path) -> None:
    given = [*options, "--size", "8x16", "--batch", "4", "--steps", "1", *outputs(tmp_path)]
    assert validate.main(given) == 0
    assert opened == Counter(names)


def test_a_comparison_opens_each_file_once(small_fixture: Path, small_result: Path, opened: Counter[str],
                                           tmp_path: Path) -> None:
    """With a fault to be found, a second run and every report."""
    bad = plant(small_result, tmp_path / "bad.h5", {"steps/0/forward/conv2": wrong.element(1e3)})
    second = tmp_path / "second.h5"
    second.write_bytes(bad.read_bytes())
    assert compare.main([str(small_fixture), str(bad), "--again", str(second), *outputs(tmp_path)]) == 1
    assert opened == Counter([small_fixture.name, "bad.h5", "second.h5"])


def test_a_child_is_given_data_and_no_files(small_fixture: Path, small_result: Path,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """What computes beside the comparison need not read what this process has open."""
    commands: list[list[str]] = []
    real = subprocess.Popen

    def start(command: list[str], **given: object) -> subprocess.Popen[bytes]:
        commands.append(command)
        return real(command, **given)  # type: ignore[call-overload]

    monkeypatch.setattr(background, "LARGE", 0)
    monkeypatch.setattr(background.subprocess, "Popen", start)
    assert compare.main([str(small_fixture), str(small_result)]) == 0
    assert [command[1:] for command in commands] == [["-m", "bridge.judge.diagnosis.background"]]
