# SPDX-License-Identifier: MIT
"""Candidates that store convolutions in 16 bits: named by recomputation, and no excuse for a bug."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bridge.engine.library.programs import cnn_step
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.judge.oracle.reduced_precision import HALF, HYPOTHESES, round_fraction, to_bf16, to_fp16
from reference.export import export
from reference.model import ThreeLayerCNN
from reference.settings import ExportSettings
from tests import software_device
from tests.helpers.candidates import Operations, ask, plant, train
from tests.helpers.judged.onednn import convolutions_by, has_bfloat16
from tests.helpers.tiers import few, few_rows

Array = np.ndarray
Tensor = torch.Tensor
Change = Callable[..., Tensor]
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
CONVOLUTIONS = [f"forward/conv{i}" for i in (1, 2, 3)]
GRADIENTS = ["grads/conv3/weight", "grads/relu2/output", "grads/conv2/weight", "grads/relu1/output",
             "grads/conv1/weight", "grads/input"]  # fmt: skip
SUM = {"height": 14, "width": 19, "batch": 2, "steps": 2, "reduction": "sum", "lr": 2.0**-12, "oracle_steps": 1,
       "threads": 1}  # fmt: skip


def stored(name: str, **faults: Change) -> type[Operations]:
    """Convolutions of 16-bit tensors with float32 sums; a fault changes what conv2 is given or gives."""
    dtype = TYPES[name]

    def half(x: Tensor) -> Tensor:
        return x.to(dtype).float()

    class Stored(Operations):
        def conv(self, layer: Any, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
            if "kernel" in faults and layer.name == "conv2":
                w = faults["kernel"](w)
            z = half(super().conv(layer, half(x), half(w), None))
            return z if b is None else z + b[:, None, None]

        def data_gradient(self, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
            return half(self._of("data", layer, super().data_gradient(layer, half(dz), half(x), half(w))))

        def filter_gradient(self, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
            return half(self._of("filter", layer, super().filter_gradient(layer, half(dz), half(x), half(w))))

        def bias_gradient(self, layer: Any, dz: Tensor) -> Tensor:
            return self._of("bias", layer, super().bias_gradient(layer, dz))

        def relu_backward(self, name: str, da: Tensor, z: Tensor) -> Tensor:
            right = super().relu_backward(name, da, z)
            return faults["mask"](da, z) if "mask" in faults and name == "relu2" else right

        def _of(self, what: str, layer: Any, right: Tensor) -> Tensor:
            return faults[what](right) if what in faults and layer.name == "conv2" else right

    return Stored


class Autocast(Operations):
    """PyTorch's own, on the CPU: results, gradients and biases become bfloat16 where it decides so."""

    dtype = torch.bfloat16

    def conv(self, layer: Any, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        with torch.autocast("cpu", self.dtype):
            z = super().conv(layer, x, w, b)
        assert z.dtype == self.dtype
        return z.detach().float()

    def _backward(self, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        leaves = [one.clone().requires_grad_() for one in (x, w, torch.zeros(layer.out_channels))]
        with torch.autocast("cpu", self.dtype):
            z = super().conv(layer, *leaves)
        return torch.autograd.grad(z, leaves, dz.to(self.dtype))

    def data_gradient(self, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return self._backward(layer, dz, x, w)[0]

    def filter_gradient(self, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        _, gradient, self.bias = self._backward(layer, dz, x, w)
        return gradient

    def bias_gradient(self, layer: Any, dz: Tensor) -> Tensor:
        return self.bias

    def loss_gradient(self, y: Tensor, target: Tensor) -> Tensor:
        return super().loss_gradient(y, target).to(self.dtype).float()


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sum of squares: no gradient is below the range of fp16."""
    return export(tmp_path_factory.mktemp("storage") / "fixture.h5", ExportSettings(**SUM)).path


@pytest.fixture(scope="module", params=few(TYPES, "bf16".__eq__))
def candidate(request: pytest.FixtureRequest, fixture: Path) -> tuple[str, Path]:
    """A type, and a result that stores it."""
    path = fixture.with_name(f"{request.param}.h5")
    return request.param, train(fixture, path, stored(request.param))


def dim() -> torch.nn.Module:
    """A last layer that hardly passes a gradient on."""
    torch.manual_seed(3)
    net = ThreeLayerCNN()
    with torch.no_grad():
        net.conv3.weight *= 1e-8
    return net


# --- rounding -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ours", "dtype"), [(to_bf16, torch.bfloat16), (to_fp16, torch.float16)])
def test_rounding_is_torchs(ours: Callable[[Array], Array], dtype: torch.dtype) -> None:
    """Over the whole range, with subnormals, ties, signs and what overflows."""
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**32, 200_000, dtype=np.uint32)
    x = bits.view(np.float32)[np.isfinite(bits.view(np.float32))]
    exact = torch.arange(-(2**15), 2**15, dtype=torch.int32).short().view(dtype).float().numpy()
    exact = exact[np.isfinite(exact)]
    x = np.concatenate([x, exact, np.nextafter(exact, np.float32(0)), exact * np.float32(1 + 2.0**-9), exact / 2])
    x = x[np.isfinite(x)]
    assert np.array_equal(ours(x).astype(np.float32), torch.from_numpy(x).to(dtype).float().numpy())


def test_ties_go_away_from_zero() -> None:
    """As cvt.rna does; nearly everything else is as with ties to even."""
    x = np.array([1 + 2.0**-11, -1 - 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-12], np.float32)
    assert round_fraction(x, 10, away=True).tolist() == [1 + 2.0**-10, -1 - 2.0**-10, 1 + 2.0**-9, 1]
    assert round_fraction(x, 10).tolist() == [1, -1, 1 + 2.0**-9, 1]


@pytest.mark.parametrize("name", HALF)
def test_a_stored_sum_lies_between_the_roundings_of_its_ends(name: str) -> None:
    """Whatever the float32 sum was inside its bound; and mostly there is only one such number."""
    one, rng = HALF[name], np.random.default_rng(6)
    dtype = TYPES[one.type]
    value, bias = rng.standard_normal((4, 500)), rng.standard_normal((4, 1)).astype(np.float32).astype(np.float64)
    error = np.full(value.shape, 1e-6)
    middle, half = one.stored(value, error, bias)
    for part in (-1, -0.3, 0, 0.7, 1):
        total = torch.from_numpy((value + part * 0.99 * error).astype(np.float32))
        b = torch.from_numpy(bias.astype(np.float32))
        if one.bias_inside:
            found = [(total + b.to(dtype).float()).to(dtype), total.to(dtype) + b.to(dtype), (total + b).to(dtype)]
        else:
            found = [total.to(dtype).float() + b]
        for z in found:
            assert (np.abs(z.double().numpy() - middle) <= half).all()
    if not one.bias_inside:
        assert np.mean(half < 1e-6) > 0.95


# --- verdicts -----------------------------------------------------------------------------------------------


@pytest.mark.deep
def test_storage_is_named_in_every_layer_and_direction(fixture: Path, candidate: tuple[str, Path]) -> None:
    name, path = candidate
    comparison, verdict = judge(fixture, path, adequacy=False)
    assert verdict.outcome is Outcome.PRECISION and verdict.precisions[0].name == f"{name} stored"
    assert f"forward/conv1 is exactly what {name} operands and results give" in verdict.words
    assert all(one.outcome in (Outcome.ROUNDING, Outcome.PRECISION) for one in comparison.judged)
    assert verdict.diagnosis is not None
    said = {one.name: [(e.kinds[0].key, e.detail) for e in one.explanations] for one in verdict.diagnosis.findings}
    assert said == {one: [("precision", f"{name} operands and results")] for one in CONVOLUTIONS + GRADIENTS}
    assert all(one.explanations[0].t <= 1 for one in verdict.diagnosis.findings)


@pytest.mark.deep
@pytest.mark.parametrize("onednn", [True, False])
def test_autocast_is_named(fixture: Path, onednn: bool, tmp_path: Path) -> None:
    """The bias inside, and gradients of biases and of the loss that are bfloat16, too; partial sums, where oneDNN has
    no bfloat16.
    """
    with convolutions_by(onednn):
        result = train(fixture, tmp_path / "r.h5", Autocast)
        once = onednn and has_bfloat16()
    answer = ask(fixture, result, "--json", str(tmp_path / "r.json"), diagnosing=True)
    assert answer.code == 3, answer.words
    assert "forward/conv1 is exactly what bf16 operands, bias and results give" in answer.words
    faults = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["faults"]
    said = {fault["name"]: [one["detail"] for one in fault["explanations"]] for fault in faults}
    assert said["grads/conv3/output"] == said["grads/conv2/bias"] == ["bf16 results"]
    for name, partial in (("grads/conv2/weight", "image"), ("grads/relu1/output", "tap")):
        assert said[name] == [
            "bf16 operands and results" if once else f"bf16 operands, results and the sum of each {partial}"]


def test_the_strict_software_device_is_named(fixture: Path, tmp_path: Path) -> None:
    """Our own library with cuDNN's calls."""
    environment = os.environ | {"CNN_CUDA_PATH": str(software_device.build())}
    for name in TYPES:
        path = tmp_path / f"{name}.h5"
        command = [cnn_step(), str(fixture), str(path), "--device", f"cuda,direct=no,math={name}"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if "cuda" in done.stderr and "kernels" in done.stderr:
            pytest.skip(f"this build cannot: {done.stderr}")
        assert done.returncode == 0, done.stderr
        answer = ask(fixture, path)
        assert answer.code == 3 and f"{name} operands and results give" in answer.words, answer.words


def test_storage_of_some_layers_or_operands_only(fixture: Path, tmp_path: Path) -> None:
    """What a library does in one layer it need not do in another."""

    class Some(stored("bf16")):
        def conv(self, layer: Any, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
            return super().conv(layer, x, w, b) if layer.name == "conv2" else Operations.conv(self, layer, x, w, b)

        def filter_gradient(self, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
            low = [one.bfloat16().float() for one in (dz, x, w)]
            return Operations.filter_gradient(self, layer, *low)

    answer = ask(fixture, train(fixture, tmp_path / "r.h5", Some))
    assert answer.code == 3 and "forward/conv2 is exactly what bf16 operands and results give" in answer.words


def test_operands_alone_are_still_named_so(fixture: Path, tmp_path: Path) -> None:
    class Low(stored("bf16")):
        def conv(self, layer: Any, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
            return Operations.conv(self, layer, x.bfloat16().float(), w.bfloat16().float(), b)

    answer = ask(fixture, train(fixture, tmp_path / "r.h5", Low))
    assert "forward/conv1 is exactly what bf16 operands give" in answer.words


def test_tf32_with_ties_away_is_named(tmp_path: Path) -> None:
    """As tensor cores round: of many operands a few lie on a tie."""
    away = HYPOTHESES["float32"]["TF32 ties away"]

    class Away(Operations):
        def conv(self, layer: Any, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
            if layer.name == "conv2":
                x, w = (torch.from_numpy(away.operands(one.numpy())) for one in (x, w))
            return super().conv(layer, x, w, b)

    fixture = export(tmp_path / "f.h5", ExportSettings(**SUM | {"height": 56, "width": 70, "steps": 1})).path
    answer = ask(fixture, train(fixture, tmp_path / "r.h5", Away))
    assert answer.code == 3 and "forward/conv2 is exactly what TF32 ties away operands give" in answer.words


# --- no excuse ----------------------------------------------------------------------------------------------

FAULTS: dict[str, tuple[dict[str, Change], str, str]] = {
    "filter flipped": ({"filter": lambda g: g.flip(2, 3)}, "grads/conv2/weight", "kernel_flipped"),
    "filter transposed": ({"filter": lambda g: g.transpose(2, 3)}, "grads/conv2/weight", "taps_transposed"),
    "filter 2 % too large": ({"filter": lambda g: 1.02 * g}, "grads/conv2/weight", "scale"),
    "data moved": ({"data": lambda g: g.roll(1, 3)}, "grads/relu1/output", "shifted_gradient"),
    "kernel flipped": ({"kernel": lambda w: w.flip(2, 3)}, "forward/conv2", "kernel_flipped"),
    "bias gradient 1 % too large": ({"bias": lambda g: 1.01 * g}, "grads/conv2/bias", "scale"),
    "mask missing": ({"mask": lambda da, z: da}, "grads/conv2/output", "mask_missing"),
}


@pytest.mark.parametrize("fault", few(FAULTS, 2))
def test_a_fault_on_top_is_a_bug_and_is_named(fixture: Path, fault: str, tmp_path: Path) -> None:
    changes, name, key = FAULTS[fault]
    path = train(fixture, tmp_path / "r.h5", stored("bf16", **changes))
    _, verdict = judge(fixture, path, adequacy=False)
    assert verdict.outcome is Outcome.BUG, verdict.words
    assert verdict.diagnosis is not None
    first = verdict.diagnosis.findings[0]
    assert first.name == name and key in {kind.key for kind in first.explanations[0].kinds}, first
    if key != "scale":
        assert "is computed with bf16 operands and results" in verdict.hints[-1]


@pytest.mark.deep
def test_a_flip_that_wide_bounds_would_hide(tmp_path: Path) -> None:
    """The sum over many pixels of a larger image: bf16 operands may take it far, but not to there."""
    fixture = export(tmp_path / "f.h5", ExportSettings(**SUM | {"height": 96, "width": 120, "steps": 1})).path
    path = train(fixture, tmp_path / "r.h5", stored("bf16", filter=lambda g: g.flip(2, 3)))
    _, verdict = judge(fixture, path, diagnosing=False)
    assert verdict.outcome is Outcome.BUG and "grads/conv2/weight of step 0" in verdict.words


@pytest.mark.parametrize(
    ("steps", "outcome"),
    few_rows([(0, Outcome.PRECISION), (0.6, Outcome.CANNOT_TELL), (2, Outcome.CANNOT_TELL), (40, Outcome.BUG)], 2),
)
def test_one_number_that_is_off_by_some_steps(
    fixture: Path, candidate: tuple[str, Path], steps: float, outcome: Outcome, tmp_path: Path
) -> None:
    """Exact is exact; a few steps are in doubt, and many are a bug."""
    name, path = candidate
    relative = HALF[f"{name} stored"].relative

    def off(g: Array) -> Array:
        at = np.unravel_index(np.abs(g).argmax(), g.shape)
        g[at] *= np.float32(1 + steps * relative)
        return g

    # Nothing follows from it
    other = plant(path, tmp_path / "r.h5", {"steps/1/grads/input": off})
    assert judge(fixture, other, diagnosing=False)[1].outcome is outcome


@pytest.mark.parametrize("name", ["forward/relu2", "grads/conv2/output"])
def test_what_copies_numbers_is_exact_in_every_precision(
    fixture: Path, candidate: tuple[str, Path], name: str, tmp_path: Path
) -> None:
    """One step of the 16-bit type is a bug where nothing is rounded."""

    def off(a: Array) -> Array:
        at = np.unravel_index(np.abs(a).argmax(), a.shape)
        a[at] *= np.float32(1 + HALF[f"{candidate[0]} stored"].relative)
        return a

    other = plant(candidate[1], tmp_path / "r.h5", {f"steps/1/{name}": off})
    _, verdict = judge(fixture, other, diagnosing=False)
    assert verdict.outcome is Outcome.BUG and f"{name} of step 1" in verdict.words


def test_results_that_are_stored_without_their_operands_are_a_damage(fixture: Path, tmp_path: Path) -> None:
    """Only the file's copy is rounded: no convolution was computed so."""
    right = train(fixture, tmp_path / "right.h5")
    path = plant(right, tmp_path / "r.h5", {"steps/0/forward/conv1": to_bf16})
    _, verdict = judge(fixture, path, adequacy=False)
    assert verdict.outcome is Outcome.BUG and not verdict.precisions
    assert verdict.diagnosis is not None
    assert [kind.key for kind in verdict.diagnosis.findings[0].explanations[0].kinds] == ["storage"]


@pytest.mark.deep
def test_gradients_below_the_range_of_fp16_are_named_as_lost(tmp_path: Path) -> None:
    """Without a scaled loss: nothing is left of them, and nothing else is wrong."""
    fixture = export(tmp_path / "f.h5", ExportSettings(**SUM | {"model": dim, "steps": 1})).path
    _, verdict = judge(fixture, train(fixture, tmp_path / "r.h5", stored("fp16")), adequacy=False)
    assert verdict.outcome is Outcome.PRECISION, verdict.words
    assert verdict.diagnosis is not None
    details = {one.name: one.explanations[0].detail for one in verdict.diagnosis.findings if one.explanations}
    lost = "fp16 operands and results; all of it is below their range and became 0"
    assert details["grads/relu2/output"] == lost and details["forward/conv1"] == "fp16 operands and results"
