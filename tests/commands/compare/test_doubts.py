# SPDX-License-Identifier: MIT
"""`python -m bridge.compare`: small learning rates, files that do not belong together, numbers out of range."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from bridge.common.errors import FileError
from bridge.engine.library import extension
from bridge.judge.judge import judge
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.candidates import Operations, ask, keep, plant, train
from tests.helpers.judged.compared import is_weight


def test_momentum_needs_every_step(tmp_path: Path) -> None:
    """After a missing step the buffers are unknown; per parameter, after a missing gradient."""
    fixture = export(tmp_path / "fixture.h5", ExportSettings(height=9, width=12, batch=2, momentum=0.9, threads=1)).path
    extension.run_file(fixture, tmp_path / "result.h5")
    gap = keep(tmp_path / "result.h5", tmp_path / "gap.h5", lambda name: name != "steps/0/grads/conv2/weight")
    comparison, verdict = judge(fixture, gap, diagnosing=False)
    judged = {(one.name, one.step) for one in comparison.judged}
    assert verdict.exit_code == 0
    assert ("optimizer/conv1/weight", 1) in judged and ("optimizer/conv2/weight", 1) not in judged
    gap = keep(tmp_path / "result.h5", tmp_path / "gap.h5", lambda name: not name.startswith("steps/1/"))
    comparison, verdict = judge(fixture, gap, diagnosing=False)
    # The weights before and after step 2 are there, and nothing shows whether they are right
    assert verdict.exit_code == 4 and {one.step for one in comparison.computed} == {0, 2}
    assert not any(one.step == 2 and one.name.startswith(("update", "optimizer")) for one in comparison.judged)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A learning rate that hides the gradients."""
    fixture = export(
        tmp_path_factory.mktemp("slow") / "fixture.h5",
        ExportSettings(height=12, width=15, batch=2, steps=1, lr=2.0**-14, threads=1),
    ).path
    extension.run_file(fixture, fixture.with_name("result.h5"))
    return fixture, fixture.with_name("result.h5")


def test_a_small_lr_hides_the_gradient(slow: tuple[Path, Path], tmp_path: Path) -> None:
    """With the gradients in the file all is right; without them nobody can tell, and the lr that would do is told."""
    comparison, verdict = judge(*slow, diagnosing=False)
    refused = {one.name: one for one in comparison.not_judged}
    assert verdict.exit_code == 0 and "update/conv2/weight" in refused
    assert not refused["update/conv2/weight"].hidden
    answer = ask(slow[0], keep(slow[1], tmp_path / "weights.h5", is_weight))
    assert answer.code == 4 and "CANNOT TELL" in answer.words and "lr = 6.10352e-05 is too small" in answer.words


def test_the_lr_that_would_do_does(slow: tuple[Path, Path], tmp_path: Path) -> None:
    comparison, _ = judge(slow[0], keep(slow[1], tmp_path / "weights.h5", is_weight), diagnosing=False)
    reason = next(one.reason for one in comparison.not_judged if one.name == "update/conv2/weight")
    lr = float(reason.split("; lr = ")[1].split(" ")[0])
    fixture = export(
        tmp_path / "fixture.h5", ExportSettings(height=12, width=15, batch=2, steps=1, lr=lr, threads=1)
    ).path
    extension.run_file(fixture, tmp_path / "result.h5")
    again, verdict = judge(fixture, keep(tmp_path / "result.h5", tmp_path / "weights.h5", is_weight), diagnosing=False)
    assert "update/conv2/weight" in {one.name for one in again.judged} and verdict.exit_code in (0, 4)


def test_a_gross_fault_shows_at_a_small_lr_too(slow: tuple[Path, Path], tmp_path: Path) -> None:
    """Agreement proves nothing there, but disagreement does."""
    with h5py.File(slow[0]) as file:
        start = file["steps/0/weights/conv2/weight"][()]
    path = plant(slow[1], tmp_path / "wrong.h5", {"steps/1/weights/conv2/weight": lambda w: 2 * start - w})
    answer = ask(slow[0], keep(path, tmp_path / "weights.h5", is_weight))
    assert answer.code == 1 and "BUG: update/conv2/weight of step 0" in answer.words


def test_lr_zero(tmp_path: Path) -> None:
    fixture = export(tmp_path / "fixture.h5", ExportSettings(height=9, width=8, steps=1, lr=0.0, threads=1)).path
    extension.run_file(fixture, tmp_path / "result.h5")
    assert ask(fixture, tmp_path / "result.h5").code == 0
    path = plant(
        tmp_path / "result.h5",
        tmp_path / "moved.h5",
        {"steps/1/weights/conv1/bias": lambda w: np.nextafter(w, np.float32(9))},
    )
    assert ask(fixture, path).code == 1


@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_a_loss_may_be_an_array_of_one_element(pair: tuple[Path, Path], shape: tuple[int, ...], tmp_path: Path) -> None:
    def reshaped(loss: np.ndarray) -> np.ndarray:
        return np.reshape(loss, shape)

    assert ask(pair[0], plant(pair[1], tmp_path / "result.h5", {"steps/0/loss": reshaped})).code == 0
    path = plant(pair[1], tmp_path / "result.h5", {"steps/0/loss": lambda loss: 2 * reshaped(loss)})
    assert ask(pair[0], path).code == 1
    path = plant(pair[1], tmp_path / "result.h5", {"steps/0/loss": lambda loss: np.zeros((*shape, 2), np.float32)})
    assert ask(pair[0], path).code == 2


def test_the_fixture_is_not_a_result(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """Nor a link to it, nor a copy; nor the two in the wrong order."""
    (tmp_path / "link.h5").symlink_to(pair[0])
    copy = plant(pair[0], tmp_path / "copy.h5", {})
    for first, second, words in (
        (pair[0], pair[0], "is the fixture itself"),
        (pair[0], tmp_path / "link.h5", "itself"),
        (pair[0], copy, "its role is 'reference'"),
        (pair[1], pair[0], "comes first"),
    ):
        answer = ask(first, second)
        assert answer.code == 2 and words in answer.errors


def test_other_models_and_optimizers_are_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    path = plant(pair[1], tmp_path / "result.h5", {})
    with h5py.File(path, "r+") as file:
        file["model/loss"].attrs["reduction"] = "sum"
    assert "/model is not that of" in ask(pair[0], path).errors
    path = plant(pair[1], tmp_path / "result.h5", {})
    with h5py.File(path, "r+") as file:
        file["optimizer"].attrs["lr"] = np.float32(0.0625 * (1 + 2.0**-24))
    assert ask(pair[0], path).code == 0
    with h5py.File(path, "r+") as file:
        file["optimizer"].attrs["lr"] = 0.1
    assert "/optimizer" in ask(pair[0], path).errors


def test_wrong_first_weights(pair: tuple[Path, Path], tmp_path: Path) -> None:
    class Started(Operations):
        """Another seed."""

        def conv(self, layer, x, w, b):
            return super().conv(layer, x, w + (1e-3 if layer.name == "conv1" else 0), b)

    path = train(pair[0], tmp_path / "result.h5", Started)
    path = plant(path, tmp_path / "bad.h5", {"steps/0/weights/conv1/weight": lambda w: w + np.float32(1e-3)})
    answer = ask(pair[0], path)
    assert answer.code == 1 and "BUG: weights/conv1/weight of step 0" in answer.words
    assert "the file's first ones are not the fixture's" in answer.words


def test_values_beyond_the_range_are_judged(tmp_path: Path) -> None:
    """Overflow makes infinities, which fail, without a warning or a traceback."""

    def huge() -> nn.Module:
        layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 1, 3))
        with torch.no_grad():
            for parameter in layers.parameters():
                parameter *= 1e3
        return layers

    fixture = export(
        tmp_path / "fixture.h5", ExportSettings(height=9, width=8, steps=1, lr=0.0, model=huge, threads=1)
    ).path
    extension.run_file(fixture, tmp_path / "result.h5")
    path = plant(tmp_path / "result.h5", tmp_path / "bad.h5", {"steps/0/forward/1": lambda z: np.full_like(z, np.inf)})
    answer = ask(fixture, path)
    assert answer.code == 1 and "NaN or infinite" in answer.words


def test_judge_raises_file_errors(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such file"):
        judge(pair[0], tmp_path / "none.h5", diagnosing=False)
