# SPDX-License-Identifier: MIT
"""Planted faults: each must be caught, named by the first wrong tensor, and right candidates must pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from bridge.engine.library import extension
from bridge.judge.judge import judge
from bridge.validate.self_test.plants import numbers
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.candidates import Operations, ask, plant, train
from tests.helpers.judged import wrong
from tests.helpers.loops import looped
from tests.helpers.tiers import few

Array = np.ndarray
SETTINGS = {
    "plain": {"batch": 2, "steps": 2},
    "momentum": {"batch": 2, "steps": 3, "lr": 0.125, "momentum": 0.9, "dampening": 0.25, "weight_decay": 0.01},
    "nesterov": {"batch": 2, "steps": 3, "momentum": 0.9, "nesterov": True},
}
SIZES = {"small": (14, 19), "larger": (90, 110)}


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Fixtures by size and optimiser, made when they are first asked for."""
    folder, made = tmp_path_factory.mktemp("faults"), {}

    def get(optimizer: str, size: str) -> Path:
        if (optimizer, size) not in made:
            height, width = SIZES[size]
            path = folder / f"{optimizer}-{size}.h5"
            made[optimizer, size] = export(
                path, ExportSettings(height=height, width=width, oracle_steps=1, threads=1, **SETTINGS[optimizer])
            ).path
        return made[optimizer, size]

    return get


@pytest.fixture(scope="module")
def right(fixtures: Callable[[str, str], Path]) -> tuple[Path, Path]:
    """A fixture and our own, right result."""
    fixture = fixtures("momentum", "small")
    result = fixture.with_name("right.h5")
    extension.run_file(fixture, result)
    return fixture, result


def largest_t(fixture: Path, result: Path) -> float:
    comparison, verdict = judge(fixture, result, diagnosing=False)
    assert verdict.exit_code == 0, verdict.words
    return max(judged.t for judged in comparison.judged)


@pytest.mark.parametrize("optimizer", SETTINGS)
@pytest.mark.parametrize("size", few(SIZES, 1))
def test_right_candidates_pass(fixtures: Callable, optimizer: str, size: str, tmp_path: Path) -> None:
    fixture, path = fixtures(optimizer, size), tmp_path / "result.h5"
    for dtype in ("float32", "float64"):
        assert largest_t(fixture, train(fixture, path, dtype=dtype)) < 1
        extension.run_file(fixture, path, precision=dtype)
        assert largest_t(fixture, path) < 1


@looped("fault", wrong.OPERATIONS)
def test_a_wrong_operation_is_caught_and_named(fixtures: Callable, fault: wrong.Fault, tmp_path: Path) -> None:
    fixture = fixtures(fault.optimizer, "small")
    comparison, verdict = judge(fixture, train(fixture, tmp_path / "result.h5", fault.operations), diagnosing=False)
    assert verdict.exit_code == 1, verdict.words
    assert f"{fault.first} of step {fault.step} is wrong" in verdict.words
    assert max(judged.t for judged in comparison.failures) > 10


@looped("tensor, edit", wrong.TENSORS)
def test_a_wrong_tensor_is_caught_and_named(
    right: tuple[Path, Path], tensor: str, edit: Callable, tmp_path: Path
) -> None:
    answer = ask(right[0], plant(right[1], tmp_path / "result.h5", {tensor: edit}))
    assert answer.code == 1, answer.words
    _, step, rest = tensor.split("/", 2)
    assert f"BUG: {wrong.shown(rest)} of step {wrong.shown_step(rest, int(step))} is wrong" in answer.words


def test_only_the_planted_tensor_is_wrong(right: tuple[Path, Path], tmp_path: Path) -> None:
    """What is computed from other tensors stays right: the fault is not smeared over the table."""
    path = plant(right[1], tmp_path / "result.h5", {"steps/1/grads/conv1/output": lambda g: np.roll(g, 1, 3)})
    comparison, _ = judge(right[0], path, diagnosing=False)
    wrong_ones = {(judged.name, judged.step) for judged in comparison.failures}
    # What is made of dz is right, but does not follow from the dz that the file shows
    assert wrong_ones == {("grads/conv1/output", 1), ("grads/conv1/weight", 1), ("grads/input", 1)}


@pytest.mark.parametrize("factor, hint", [(0.5, "times 0.5 = 1/2:"), (2.0, "times 2:"), (-1.0, "times -1:")])
def test_a_factor_is_named(right: tuple[Path, Path], factor: float, hint: str, tmp_path: Path) -> None:
    path = plant(right[1], tmp_path / "result.h5", {"steps/0/grads/conv2/weight": lambda g: factor * g})
    _, verdict = judge(*(right[0], path), diagnosing=False)
    named = [text for text in verdict.hints if "grads/conv2/weight is the right one " + hint in text]
    assert named and ("the sign is wrong" if factor == -1 else "a scale is wrong") in named[0], verdict.hints


def test_a_wrong_learning_rate_is_named(fixtures: Callable, tmp_path: Path) -> None:
    class Twice(Operations):
        def update(self, name: str, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
            return w - 2 * self.sgd.lr * g

    fixture = fixtures("plain", "small")
    answer = ask(fixture, train(fixture, tmp_path / "result.h5", Twice))
    assert answer.code == 1 and "optimizer/conv1/weight of step 0 is wrong" in answer.words
    assert "The step that was taken is the right one times 2:" in answer.words


def in_doubt(folder: Path) -> tuple[Path, Path]:
    """A fixture in which the first pixel of ``0 (convolution), 1 (ReLU)`` is exactly 0, and torch's result."""

    def chain(bias: float = 0.0) -> nn.Module:
        layers = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Conv2d(1, 1, 1))
        with torch.no_grad():
            layers[0].weight.fill_(1.0)
            layers[0].bias.fill_(bias)
        return layers

    settings = ExportSettings(height=5, width=6, batch=1, steps=1, model=chain, threads=1)
    with h5py.File(export(folder / "first.h5", settings).path) as file:
        first = float(file["batches/0/input"][0, 0, 0, 0])
    fixture = export(folder / "fixture.h5", replace(settings, model=lambda: chain(-first))).path
    return fixture, train(fixture, folder / "right.h5")


def pixel(value: float) -> Callable[[Array], Array]:
    """The first pixel replaced."""

    def edit(values: Array) -> Array:
        values = np.array(values)
        values[0, 0, 0, 0] = value
        return values

    return edit


@pytest.mark.parametrize("z", [2.0**-26, -(2.0**-26), 0.0, -0.0])
def test_a_mask_that_its_own_input_contradicts_is_caught(z: float, tmp_path: Path) -> None:
    """Rounding may decide the sign of a ReLU's input, but not whether the mask follows from that input."""
    fixture, right = in_doubt(tmp_path)
    with h5py.File(right) as file:
        g = float(file["steps/0/grads/1/output"][0, 0, 0, 0])
    assert g != 0
    edits = {"steps/0/forward/0": pixel(z), "steps/0/forward/1": pixel(max(z, 0.0))}

    def wrong_names(more: dict[str, Callable[[Array], Array]]) -> set[str]:
        result = plant(right, tmp_path / "result.h5", edits | more)
        return {one.name for one in judge(fixture, result, diagnosing=False)[0].failures}

    for value in (0.0, g):
        found = wrong_names({"steps/0/grads/0/output": pixel(value)})
        assert ("grads/0/output" in found) is (value != (g if z > 0 else 0.0)) and "forward/1" not in found
        # Without the input nobody knows
        hidden = {"steps/0/grads/0/output": pixel(value), "steps/0/forward/0": lambda values: None}
        assert "grads/0/output" not in wrong_names(hidden)
    assert "forward/1" in wrong_names({"steps/0/forward/1": pixel(2.0**-25)})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_copy_stored_with_fewer_bits_is_right(fixtures: Callable, dtype: str, tmp_path: Path) -> None:
    """A float64 candidate may store float32: then a copy is none to the last bit, and nothing is said of it."""
    fixture = fixtures("plain", "small")
    train(fixture, tmp_path / "right.h5", dtype="float64")
    path = plant(tmp_path / "right.h5", tmp_path / "stored.h5", {"steps/0/forward/conv2": lambda z: z.astype(dtype)})
    failed = {one.name for one in judge(fixture, path, diagnosing=False)[0].failures}
    assert "forward/relu2" not in failed and "grads/conv2/output" not in failed


# --- lower precision ----------------------------------------------------------------------------------------


CUTS = {"TF32": numbers.tf32, "bf16": numbers.bf16}


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("size", SIZES)
def test_lower_precision_is_recognised(fixtures: Callable, name: str, size: str, tmp_path: Path) -> None:
    fixture = fixtures("plain", size)
    answer = ask(fixture, train(fixture, tmp_path / "result.h5", numbers.reduced(CUTS[name])))
    assert answer.code == 3, answer.words
    assert f"forward/conv1 is exactly what {name} operands give" in answer.words


@pytest.mark.parametrize("name", CUTS)
def test_lower_precision_of_later_layers_is_recognised(fixtures: Callable, name: str, tmp_path: Path) -> None:
    """Libraries take other kernels where there is one channel; and the first output may not be in the file."""

    class Some(numbers.reduced(CUTS[name])):
        def conv(self, layer, x, w, b):
            return super().conv(layer, x, w, b) if layer.in_channels > 1 else Operations.conv(self, layer, x, w, b)

    fixture = fixtures("plain", "small")
    answer = ask(fixture, train(fixture, tmp_path / "some.h5", Some))
    assert answer.code == 3 and f"forward/conv2 is exactly what {name} operands give" in answer.words
    train(fixture, tmp_path / "all.h5", numbers.reduced(CUTS[name]))
    path = plant(tmp_path / "all.h5", tmp_path / "part.h5", {"steps/0/forward/conv1": lambda z: None})
    answer = ask(fixture, path)
    assert answer.code == 3 and f"forward/conv2 is exactly what {name} operands give" in answer.words


def test_lower_precision_that_nothing_proves(fixtures: Callable, tmp_path: Path) -> None:
    """Where the file lacks the inputs of the backward pass there is room for it and for a small bug."""

    class Backward(numbers.reduced(CUTS["TF32"])):
        conv = Operations.conv

    class Wrong(Backward):
        def filter_gradient(self, layer, dz, x, w):
            return super().filter_gradient(layer, dz, x, w).flip(2)

    fixture = fixtures("plain", "small")
    result = train(fixture, tmp_path / "result.h5", Backward)
    answer = ask(fixture, result)
    assert answer.code == 3 and "the filter gradient of conv3, " in answer.words, answer.words
    assert "take x and dz in TF32" in answer.words
    with h5py.File(result, "r+") as file:
        for step in file["steps"].values():
            step.pop("forward", None)
    answer = ask(fixture, result)
    assert answer.code == 4 and "consistent with TF32 operands, not proven" in answer.words, answer.words
    assert ask(fixture, train(fixture, tmp_path / "result.h5", Wrong)).code == 1


@pytest.mark.parametrize("name", CUTS)
def test_lower_precision_excuses_no_bug(fixtures: Callable, name: str, tmp_path: Path) -> None:
    class Both(numbers.reduced(CUTS[name])):
        def filter_gradient(self, layer, dz, x, w):
            found = super().filter_gradient(layer, dz, x, w)
            return found.flip(2, 3) if layer.name == "conv2" else found

    fixture = fixtures("plain", "small")
    answer = ask(fixture, train(fixture, tmp_path / "result.h5", Both))
    assert answer.code == 1 and "BUG: grads/conv2/weight of step 0" in answer.words
    assert f"forward/conv1 is computed with {name} operands" in answer.words


@pytest.mark.deep
def test_float32_in_place_of_float64(fixtures: Callable, tmp_path: Path) -> None:
    fixture = fixtures("plain", "small")
    head = {"format": "cnn-exchange", "format_version": 1, "role": "candidate", "precision": "float64"}
    answer = ask(fixture, train(fixture, tmp_path / "result.h5", attributes=head))
    assert answer.code == 3 and "exactly what float32 operands give" in answer.words


# --- bad fixtures -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "batches/1/input",
        "batches/1/target",
        "steps/0/weights/conv2/weight",
        "steps/3/weights/conv1/bias",
        "steps/0/forward/relu1",
        "steps/0/grads/conv2/weight",
        "steps/0/loss",
        "oracle/steps/0/grads/conv3/output",
    ],
)
def test_nan_in_the_fixture_is_bad_input(right: tuple[Path, Path], name: str, tmp_path: Path) -> None:
    def spoil(values: Array) -> Array:
        values = np.array(values)
        values[(-1,) * values.ndim] = np.nan
        return values

    answer = ask(plant(right[0], tmp_path / "fixture.h5", {name: spoil}), right[1])
    assert answer.code == 2
    assert name in answer.errors.replace("/oracle", "oracle") or "twin" in answer.errors
    assert answer.errors.count("\n") <= 2 and "NaN" in answer.errors


def test_a_wrong_fixture_is_bad_input(right: tuple[Path, Path], tmp_path: Path) -> None:
    fixture = plant(right[0], tmp_path / "fixture.h5", {"steps/0/grads/conv2/weight": lambda g: g[:, :, ::-1]})
    answer = ask(fixture, right[1])
    assert answer.code == 2 and "this fixture cannot judge anybody" in answer.errors


def test_json_of_a_failure(right: tuple[Path, Path], tmp_path: Path) -> None:
    """Infinite and undefined numbers are null; the document is there although the verdict is a bug."""
    path = plant(right[1], tmp_path / "result.h5", {"steps/0/loss": lambda loss: loss * np.nan})
    assert ask(right[0], path, "--json", str(tmp_path / "out.json")).code == 1
    document = json.loads((tmp_path / "out.json").read_text(), parse_constant=lambda word: pytest.fail(word))
    assert document["verdict"] == "bug" and document["exit_code"] == 1
    first = next(tensor for tensor in document["tensors"] if not tensor["passed"])
    assert (first["name"], first["step"], first["T"], first["nonfinite"]) == ("loss", 0, None, 1)


def test_byte_swapped_data_is_caught_and_big_endian_is_not(right: tuple[Path, Path], tmp_path: Path) -> None:
    """Swapped bytes are garbage; a big-endian dataset, which says so, is as good as any."""
    swapped = plant(right[1], tmp_path / "swapped.h5", {"steps/0/forward/conv2": lambda x: x.byteswap()})
    assert ask(right[0], swapped).code == 1
    with h5py.File(right[1]) as source, h5py.File(tmp_path / "big.h5", "w") as file:
        file.attrs.update(source.attrs)

        def write(name: str, node: object) -> None:
            if isinstance(node, h5py.Dataset) and name != "model":
                big = node[()].astype(node.dtype.newbyteorder(">"))
                packed = {"chunks": True, "compression": "gzip", "shuffle": True} if node.shape else {}
                file.create_dataset(name, data=big, **packed)

        source.visititems(write)
    assert ask(right[0], tmp_path / "big.h5").code == 0
