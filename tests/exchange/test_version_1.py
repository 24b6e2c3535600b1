# SPDX-License-Identifier: MIT
"""Files of version 1 are read by Python, and written anew as version 2 for who reads no JSON."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bridge
from bridge.engine.library import extension
from bridge.exchange import upgrade
from tests.helpers.candidates import ask
from tests.helpers.files.version_1 import as_version_1


def test_fixtures_and_results_are_judged(small_fixture: Path, small_result: Path, tmp_path: Path) -> None:
    fixture = as_version_1(small_fixture, tmp_path / "fixture.h5")
    for result in (small_result, as_version_1(small_result, tmp_path / "result.h5")):
        assert ask(fixture, result).code == 0


def test_cnn_step_says_what_reads_them(small_fixture: Path, tmp_path: Path) -> None:
    fixture = as_version_1(small_fixture, tmp_path / "fixture.h5")
    with pytest.raises(bridge.EngineError, match=r"format_version is 1, .*\(python -m bridge\.exchange\.upgrade"):
        extension.run_file(fixture, tmp_path / "result.h5")
    assert upgrade.main([str(fixture), str(tmp_path / "new.h5")]) == 0
    extension.run_file(tmp_path / "new.h5", tmp_path / "result.h5")
    assert ask(small_fixture, tmp_path / "result.h5").code == 0


def test_a_saved_training_goes_on(tmp_path: Path) -> None:
    """With its momenta, from version 1 and from what is made of it."""
    net = bridge.Network(bridge.Model((bridge.Conv2d("a", 1, 1, (3, 3)),)))
    for array in net.parameters.values():
        array[...] = 0.5
    x, target = np.ones((1, 1, 4, 4), np.float32), np.zeros((1, 1, 2, 2), np.float32)
    net.step(x, target, lr=0.1, momentum=0.5)
    net.save(tmp_path / "saved.h5")
    old = as_version_1(tmp_path / "saved.h5", tmp_path / "old.h5")
    assert upgrade.main([str(old), str(tmp_path / "new.h5")]) == 0
    expected = net.step(x, target, lr=0.1, momentum=0.5), net.step(x, target, lr=0.1, momentum=0.5)
    for path in (old, tmp_path / "new.h5"):
        again = bridge.Network.from_file(path)
        assert (again.step(x, target, lr=0.1, momentum=0.5), again.step(x, target, lr=0.1, momentum=0.5)) == expected
        assert again.steps == 3


def test_what_is_no_file_of_version_1_is_refused(small_fixture: Path, tmp_path: Path,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    assert upgrade.main([str(small_fixture), str(tmp_path / "new.h5")]) == 2
    assert "no file of version 1 with a model" in capsys.readouterr().err and not list(tmp_path.iterdir())
    assert upgrade.main([str(small_fixture), str(small_fixture)]) == 2
