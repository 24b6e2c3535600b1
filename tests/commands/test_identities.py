# SPDX-License-Identifier: MIT
"""Checks without a reference: each holds for right programs, and finds what it is made for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from bridge.common.errors import FileError
from bridge.engine.library import extension
from bridge.identities import __main__ as identities
from bridge.identities import self_checks
from bridge.identities.adjoint import MADE_BY
from bridge.identities.adjoint_check import adjoint_identities, conclusion
from bridge.judge.measure.outcome import Outcome, worst
from bridge.validate.self_test.graph_candidate import train_graph
from reference.export import export
from reference.model import VariedCNN
from reference.settings import ExportSettings
from tests.helpers.candidates import LowOperands, Operations, keep, plant, train
from tests.helpers.judged import wrong
from tests.helpers.judged.opened import runs_of

Array = np.ndarray


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of the default net."""
    path = tmp_path_factory.mktemp("identities") / "fixture.h5"
    return export(path, ExportSettings(height=20, width=24, batch=2, steps=2)).path


@pytest.fixture(scope="module")
def result(fixture: Path) -> Path:
    """Our own, right result."""
    path = fixture.with_name("result.h5")
    extension.run_file(fixture, path)
    return path


def tiny() -> nn.Module:
    """Its last weights are a few times the smallest float32."""
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1, bias=False))
    with torch.no_grad():
        net[2].weight.mul_(2.0**-143)
    return net


def test_products_that_are_subnormal_are_right(tmp_path: Path) -> None:
    """Each is rounded to a whole multiple of the smallest number; what is eight times as large is outside."""
    fixture, result = tmp_path / "fixture.h5", tmp_path / "result.h5"
    export(fixture, ExportSettings(model=tiny, height=9, width=8, batch=2, steps=1))
    extension.run_file(fixture, result)
    assert max(one.largest for one in adjoint_identities(fixture, result)) <= 1
    with h5py.File(result, "r+") as file:
        file["steps/0/forward/2"][...] *= 8
    assert max(one.largest for one in adjoint_identities(fixture, result)) > 1


def outcome(fixture: Path, result: Path) -> Outcome:
    return worst(one.outcome for one in adjoint_identities(fixture, result))


@pytest.mark.parametrize("given", [{}, {"model": VariedCNN}, {"reduction": "sum", "momentum": 0.9}], ids=str)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_right_tensors_are_consistent(given: dict[str, Any], precision: str, tmp_path: Path) -> None:
    """With room to spare."""
    path = export(tmp_path / "f.h5", ExportSettings(height=20, width=24, batch=3, steps=2, **given)).path
    extension.run_file(path, tmp_path / "r.h5", precision=precision)
    found = adjoint_identities(path, tmp_path / "r.h5")
    assert len(found) == 6
    assert max(one.largest for one in found) < 0.1
    assert all(len(one.sides) == 3 and not one.implicated for one in found)


@pytest.mark.parametrize(("name", "edit", "layer", "side"), [
    ("grads/conv2/weight", lambda g: g[..., ::-1, ::-1], "conv2", "<w, dw>"),
    ("grads/conv2/weight", lambda g: g.swapaxes(0, 1), "conv2", "<w, dw>"),
    ("grads/conv2/weight", lambda g: g.ravel().reshape(g.shape, order="F"), "conv2", "<w, dw>"),
    ("grads/conv1/weight", lambda g: g[..., ::-1, ::-1], "conv1", "<w, dw>"),
    ("forward/conv1", lambda z: z[..., ::-1, :], "conv1", "<dz, z - b>"),
    ("forward/conv3", lambda z: z[..., ::-1], "conv3", "<dz, z - b>"),
    ("grads/input", lambda g: np.roll(g, 1, axis=3), "conv1", "<x, dx>"),
    ("grads/relu1/output", np.zeros_like, "conv2", "<x, dx>"),
])
def test_the_odd_one_of_three_is_named(fixture: Path, result: Path, name: str, edit: Callable, layer: str, side: str,
                                       tmp_path: Path) -> None:
    found = adjoint_identities(fixture, plant(result, tmp_path / "wrong.h5", {f"steps/1/{name}": edit}))
    (bad,) = (one for one in found if one.outcome is not Outcome.ROUNDING)
    assert (bad.layer, bad.step, bad.outcome) == (layer, 1, Outcome.BUG)
    assert bad.implicated == f"{MADE_BY[side]} of {layer}: the other two agree"
    assert conclusion(found).startswith("BUG: the adjoint identity fails in step 1")


class Enlarged(nn.Module):
    """Transposed convolutions with stride, groups and output padding, and a linear layer over the rows of images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.up = nn.ConvTranspose2d(6, 4, (3, 2), stride=(2, 1), padding=1, output_padding=(1, 0), groups=2)
        self.last = nn.ConvTranspose2d(4, 2, 2, bias=False)
        self.rows = nn.Linear(10, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rows(self.last(torch.relu(self.up(self.conv(x)))))


@pytest.fixture(scope="module")
def enlarged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    path = tmp_path_factory.mktemp("enlarged") / "fixture.h5"
    export(path, ExportSettings(model=Enlarged, height=9, width=12, batch=2, steps=2, threads=1))
    return path, train_graph(path, path.with_name("result.h5"))


def test_transposed_convolutions_and_linear_layers_are_consistent(enlarged: tuple[Path, Path]) -> None:
    found = adjoint_identities(*enlarged)
    assert [one.layer for one in found] == 2 * ["conv", "up", "last", "rows"]
    assert all(len(one.sides) == 3 and one.largest < 0.1 for one in found)


@pytest.mark.parametrize(("name", "edit", "layer", "side"), [
    ("grads/up/weight", lambda g: g[..., ::-1, :], "up", "<w, dw>"),
    ("forward/up", lambda z: np.roll(z, 1, 2), "up", "<dz, z - b>"),
    ("grads/conv/output", lambda g: g[..., ::-1], "up", "<x, dx>"),
    ("grads/rows/weight", lambda g: g[::-1], "rows", "<w, dw>"),
    ("grads/last/output", lambda g: g[..., ::-1], "rows", "<x, dx>"),
])
def test_the_odd_one_of_other_layers(enlarged: tuple[Path, Path], name: str, edit: Callable, layer: str, side: str,
                                     tmp_path: Path) -> None:
    found = adjoint_identities(enlarged[0], plant(enlarged[1], tmp_path / "wrong.h5", {f"steps/1/{name}": edit}))
    said = {one.layer: one.implicated for one in found if one.outcome is Outcome.BUG}
    assert said[layer] == f"{MADE_BY[side]} of {layer}: the other two agree"


class Shared(nn.Module):
    """An output that a convolution, a pooling with equal numbers in its windows, and a sum take."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.larger, self.pool = nn.Conv2d(1, 4, 3), nn.Upsample(scale_factor=2), nn.MaxPool2d(2)
        self.inner, self.again = nn.Conv2d(4, 4, 3, padding=1), nn.Upsample(scale_factor=2)
        self.last = nn.Conv2d(4, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.larger(self.first(x))
        return self.last(self.inner(y) + y + self.again(self.pool(y)))


def test_a_gradient_that_others_have_a_part_in(tmp_path: Path) -> None:
    """What the others send back is taken off."""
    settings = ExportSettings(model=Shared, height=7, width=8, batch=2, steps=1, threads=1)
    fixture = export(tmp_path / "f.h5", settings).path
    right = train_graph(fixture, tmp_path / "right.h5")
    found = {one.layer: one for one in adjoint_identities(fixture, right)}
    assert len(found["inner"].sides) == 3 and found["inner"].largest < 0.2
    with h5py.File(right) as file:
        old, whole = (file[f"steps/0/grads/{name}/output"][()] for name in ("inner", "larger"))
        w = file["steps/0/weights/inner/weight"][()]
    part, flipped = (torch.nn.grad.conv2d_input(whole.shape, torch.from_numpy(one.copy()), torch.from_numpy(old),
                                                padding=1).numpy() for one in (w, w[..., ::-1]))
    planted = plant(right, tmp_path / "wrong.h5", {"steps/0/grads/larger/output": lambda g: g - part + flipped})
    bad = next(one for one in adjoint_identities(fixture, planted) if one.layer == "inner")
    assert bad.outcome is Outcome.BUG
    assert bad.implicated == "the data gradient of inner or add or pool: the other two agree", bad.implicated


def test_nan_is_a_bug(fixture: Path, result: Path, tmp_path: Path) -> None:
    for name in ("grads/conv2/weight", "forward/conv2", "grads/relu1/output", "grads/conv2/output"):
        planted = plant(result, tmp_path / "nan.h5", {f"steps/0/{name}": wrong.element(np.nan)})
        assert outcome(fixture, planted) is Outcome.BUG


def test_with_two_of_three_either_is_implicated(fixture: Path, result: Path, tmp_path: Path) -> None:
    without = keep(result, tmp_path / "part.h5", lambda name: not name.startswith("steps/0/forward/conv2"))
    planted = plant(without, tmp_path / "wrong.h5", {"steps/0/grads/conv2/weight": lambda g: g[..., ::-1]})
    (bad,) = (one for one in adjoint_identities(fixture, planted) if one.implicated)
    assert bad.implicated == "the filter gradient of conv2 or the data gradient of conv2"


def test_a_symmetric_kernel_hides_a_flip(fixture: Path, result: Path, tmp_path: Path) -> None:
    """One projection is seen, and not the tensor: this is what the check cannot do."""
    symmetric = plant(fixture, tmp_path / "f.h5", {
        "steps/0/weights/conv1/weight": lambda w: (w + w[..., ::-1, ::-1]) / 2})
    extension.run_file(symmetric, tmp_path / "r.h5")
    planted = plant(tmp_path / "r.h5", tmp_path / "w.h5", {
        "steps/0/grads/conv1/weight": lambda g: g[..., ::-1, ::-1]})
    assert outcome(symmetric, planted) is Outcome.ROUNDING


@pytest.mark.parametrize("bits", [7, 10])
def test_a_lower_precision_is_no_bug(fixture: Path, bits: int, tmp_path: Path) -> None:
    """Bfloat16 and TF32 operands."""
    kind = type("Low", (LowOperands,), {"bits": bits})
    found = adjoint_identities(fixture, train(fixture, tmp_path / "r.h5", kind))
    assert worst(one.outcome for one in found) is Outcome.CANNOT_TELL
    assert "A lower precision than declared can do this, too" in conclusion(found)


def test_the_command(fixture: Path, result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert identities.main([str(fixture), str(result)]) == 0
    assert "CONSISTENT: the adjoint identity holds in all 6 layers" in capsys.readouterr().out
    planted = plant(result, tmp_path / "w.h5", {"steps/0/grads/conv2/weight": np.negative})
    assert identities.main([str(fixture), str(planted)]) == 1
    assert "implicated is the filter gradient of conv2" in " ".join(capsys.readouterr().out.split())
    assert identities.main([str(fixture), str(tmp_path / "none.h5")]) == 2
    poor = keep(result, tmp_path / "poor.h5", lambda name: "forward" in name)
    assert identities.main([str(fixture), str(poor)]) == 2
    assert "the adjoint identity needs" in capsys.readouterr().err


def test_two_right_runs_are_equal(fixture: Path, result: Path, tmp_path: Path) -> None:
    extension.run_file(fixture, tmp_path / "again.h5")
    runs = runs_of(fixture, result, tmp_path / "again.h5")
    assert (runs.outcome, runs.equal, runs.changed, runs.left_out) == (Outcome.ROUNDING, 36, [], 0)
    assert "agree to the bit in all 36 tensors" in runs.words


class Flipped(Operations):
    """Wrong, but the same in every run."""

    def filter_gradient(self, layer: Any, dz: Any, x: Any, w: Any) -> Any:
        return super().filter_gradient(layer, dz, x, w).flip(2, 3)


@pytest.mark.parametrize("kind", [Operations, Flipped])
def test_another_order_of_sums_is_rounding(fixture: Path, kind: type[Operations], tmp_path: Path) -> None:
    """Torch's batch split in two stands for atomic additions; a bug that is the same in both runs is not repeated."""

    def halves(self: Operations, layer: Any, dz: Any, x: Any, w: Any) -> Any:
        return sum(kind.filter_gradient(self, layer, dz[i : i + 1], x[i : i + 1], w) for i in range(2))

    other = type("Halves", (kind,), {"filter_gradient": halves})
    one, two = train(fixture, tmp_path / "1.h5", kind), train(fixture, tmp_path / "2.h5", other)
    runs = runs_of(fixture, one, two)
    assert runs.changed
    assert (runs.outcome, runs.left_out) == (Outcome.ROUNDING, 1)
    assert "within rounding" in runs.words


@pytest.mark.parametrize(("name", "edit"), [
    ("grads/conv2/weight", lambda g: g * np.float32(1.001)),
    ("forward/conv3", wrong.element(np.nan)),
    ("loss", lambda loss: loss * np.float32(1.001)),
])
def test_a_race_is_a_bug(fixture: Path, result: Path, name: str, edit: Callable, tmp_path: Path) -> None:
    runs = runs_of(fixture, result, plant(result, tmp_path / "race.h5", {f"steps/0/{name}": edit}))
    assert runs.outcome is Outcome.BUG
    assert f"differ in {name} of step 0 by more than rounding" in runs.words
    assert [one["name"] for one in json.loads(json.dumps(runs.to_dict(), allow_nan=False))["changed"]] == [name]


def test_runs_that_cannot_be_compared(fixture: Path, result: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="the second result is the first one itself"):
        runs_of(fixture, result, result)
    empty = keep(result, tmp_path / "empty.h5", lambda name: False)
    with pytest.raises(FileError, match="nothing was compared"):
        runs_of(fixture, result, empty)
    extension.run_file(fixture, tmp_path / "double.h5", precision="float64")
    with pytest.raises(FileError, match="its precision is float64"):
        runs_of(fixture, result, tmp_path / "double.h5")


@pytest.mark.parametrize("device", ["cpu", "naive"])
def test_our_convolutions_pass(device: str) -> None:
    found = list(self_checks.self_checks(device))
    assert len(found) == 22
    assert all(check.passed for check in found), [check for check in found if not check.passed]


def spoil(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable) -> set[str]:
    """What fails when a function's result is changed."""
    right = getattr(self_checks, name)
    monkeypatch.setattr(self_checks, name,
                        lambda *arguments, **given: change(right(*arguments, **given), arguments, given))
    return {check.name.rpartition(": ")[2] for check in self_checks.self_checks() if not check.passed}


def test_accumulation_into_old_memory_fails_homogeneity(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = spoil(monkeypatch, "conv2d_backward", lambda g, *_: tuple(one + 1 for one in g))
    assert "dy * 2^k scales the gradients" in failed


def test_flush_to_zero_fails_homogeneity(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = spoil(monkeypatch, "conv2d_backward",
                   lambda g, *_: tuple(np.where(abs(one) < 1e-10, 0 * one, one) for one in g))
    assert failed == {"dy * 2^k scales the gradients"}


def test_a_race_fails_the_second_run(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    failed = spoil(monkeypatch, "conv2d", lambda y, *_: y * (1 + 1e-6 * rng.random()))
    assert "run again" in failed


def test_an_unwritten_output_fails_the_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    def hole(y: Array, _: tuple, given: dict[str, Any]) -> Array:
        if given.get("out") is not None:
            y[0, 0, 0, 0] = np.nan
        return y

    assert spoil(monkeypatch, "conv2d", hole) == {"written over NaN"}


@pytest.mark.parametrize(("number", "name", "change"), [
    (0, "x", lambda g: g[..., ::-1]), (1, "w", lambda g: g[..., ::-1, ::-1]), (2, "b", lambda g: g[::-1])])
def test_a_wrong_gradient_fails_its_difference(monkeypatch: pytest.MonkeyPatch, number: int, name: str,
                                               change: Callable) -> None:
    def flip(g: tuple[Array, ...], *_: Any) -> tuple[Array, ...]:
        return tuple(change(one) if i == number else one for i, one in enumerate(g))

    assert spoil(monkeypatch, "conv2d_backward", flip) == {f"difference in {name} with step 1"}


def test_a_buffer_that_remembers_fails_the_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    right = self_checks.Network.backward

    def remembering(self: Any) -> Array:
        before = [array.copy() for array in self.gradients.values()]
        dx = right(self)
        for array, old in zip(self.gradients.values(), before, strict=True):
            array += 1e-3 * old
        return dx

    monkeypatch.setattr(self_checks.Network, "backward", remembering)
    failed = {check.name for check in self_checks.self_checks() if not check.passed}
    assert "network, float32: after NaN in every buffer" in failed


def test_the_batches_of_the_fixture_are_the_first_input(fixture: Path, result: Path, tmp_path: Path) -> None:
    """Another image in the fixture is noticed: the first convolution's input is taken from there."""
    changed = plant(fixture, tmp_path / "f.h5", {"batches/0/input": lambda x: x[..., ::-1]})
    found = adjoint_identities(changed, result)
    assert [one.layer for one in found if one.outcome is not Outcome.ROUNDING] == ["conv1"]
    with h5py.File(changed) as file:
        assert file["batches/0/input"].shape == (2, 1, 20, 24)
