# SPDX-License-Identifier: MIT
"""Linear layers, matrix products and transposed convolutions of a lower precision, and networks under autocast."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bridge.exchange.model import Conv2d
from bridge.judge.diagnosis.predictions.formulas import PRODUCTS
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.judge.oracle.reduced_precision import round_fraction
from bridge.validate.self_test.edits import plant
from bridge.validate.self_test.graph_candidate import GraphOperations, replaced, train_graph
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.judged.onednn import convolutions_by, has_bfloat16
from tests.helpers.real_networks import REAL, Perceptron, ResidualDenoiser

Change = Callable[[Tensor], Tensor]


class Mixed(nn.Module):
    """A transposed convolution, and two linear layers whose outputs, 13 x 13 and 13 x 23, are multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(1, 2, 3, stride=2)
        self.left, self.right = nn.Linear(23, 13), nn.Linear(23, 23)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        return torch.matmul(self.left(x), self.right(x))


def tf32(x: Tensor) -> Tensor:
    return torch.from_numpy(round_fraction(x.detach().numpy(), 10).astype(np.float32))


def bf16(x: Tensor) -> Tensor:
    return x.detach().bfloat16().float()


class Rounded(torch.autograd.Function):
    """A function of operands that are rounded, forward and backward."""

    @staticmethod
    def forward(ctx: Any, of: Callable[..., Tensor], change: Change, *operands: Tensor) -> Tensor:
        ctx.of, ctx.change = of, change
        ctx.save_for_backward(*operands)
        return of(*map(change, operands))

    @staticmethod
    def backward(ctx: Any, *dy: Tensor) -> Any:
        operands = [ctx.change(one).requires_grad_() for one in ctx.saved_tensors]
        with torch.enable_grad():
            y = ctx.of(*operands)
        return None, None, *torch.autograd.grad(y, operands, ctx.change(dy[0]))


def with_operands(change: Change) -> type[GraphOperations]:
    """All sums of products of rounded operands; biases are added in float32."""
    def forward(self: GraphOperations, node: Any, inputs: list[Tensor], parameters: dict[str, Tensor]) -> Tensor:
        if not isinstance(node, (Conv2d, *PRODUCTS)):
            return GraphOperations.forward(self, node, inputs, parameters)
        bias, weights = parameters.get("bias"), [w for name, w in parameters.items() if name == "weight"]

        def of(*operands: Tensor) -> Tensor:
            given = {"weight": operands[-1]} if weights else {}
            given |= {"bias": torch.zeros_like(bias)} if bias is not None else {}
            return node.torch_forward(list(operands[: len(inputs)]), given)

        y = Rounded.apply(of, change, *inputs, *weights)
        return y if bias is None else y + (bias[:, None, None] if y.ndim == 4 and node.kind != "linear" else bias)

    return replaced(forward=forward)


def autocast(self: GraphOperations, node: Any, inputs: list[Tensor], parameters: dict[str, Tensor]) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return GraphOperations.forward(self, node, inputs, parameters).float()


@pytest.fixture(scope="module")
def perceptron(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("operands") / "perceptron.h5", ExportSettings(
        model=Perceptron, steps=2, threads=1, **REAL[Perceptron])).path


@pytest.mark.parametrize(("change", "name"), [(tf32, "TF32"), (bf16, "bf16")])
def test_linear_layers_of_a_lower_precision(perceptron: Path, tmp_path: Path, change: Change, name: str) -> None:
    result = train_graph(perceptron, tmp_path / "result.h5", with_operands(change))
    verdict = judge(perceptron, result, adequacy=False).verdict
    assert verdict.outcome is Outcome.PRECISION and verdict.exit_code == 3
    assert f"forward/first is exactly what {name} operands give" in verdict.words


@pytest.mark.deep
def test_a_network_without_convolutions_in_float32_that_declares_float64(tmp_path: Path) -> None:
    fixture = export(tmp_path / "fixture.h5", ExportSettings(
        model=Perceptron, steps=1, threads=1, precision="float64", **REAL[Perceptron])).path
    result = train_graph(fixture, tmp_path / "result.h5", dtype="float32")
    with h5py.File(result, "r+") as file:
        file.attrs["precision"] = "float64"
    verdict = judge(fixture, result, adequacy=False).verdict
    assert verdict.outcome is Outcome.PRECISION and "forward/first is exactly what float32" in verdict.words


def test_products_of_matrices_and_transposed_convolutions(tmp_path: Path) -> None:
    fixture = export(tmp_path / "fixture.h5", ExportSettings(
        model=Mixed, height=6, width=11, batch=2, steps=1, threads=1)).path
    verdict = judge(fixture, train_graph(fixture, tmp_path / "result.h5", with_operands(tf32)), adequacy=False).verdict
    assert verdict.outcome is Outcome.PRECISION and "forward/up is exactly what TF32" in verdict.words


class Upsampled(nn.Module):
    """Convolutions from unfolded images where several images, channels, groups, steps and distances of taps count."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 6, 3, stride=2, padding=1)
        self.grouped = nn.Conv2d(6, 4, (3, 2), padding=2, dilation=2, groups=2)
        self.up = nn.ConvTranspose2d(4, 3, 3, stride=2)
        self.last = nn.ConvTranspose2d(3, 1, (2, 3), padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.relu(self.up(functional.relu(self.grouped(functional.relu(self.first(x)))))))


@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("network", [Perceptron, ResidualDenoiser, Upsampled])
def test_a_network_under_autocast(network: type[nn.Module], onednn: bool, tmp_path: Path) -> None:
    """Products and their results are bf16; what follows from them, and the sum with a skip, is float32. Without oneDNN,
    and where it has no bfloat16, convolutions have partial sums in bf16.
    """
    options = REAL.get(network, {"height": 11, "width": 14, "batch": 3})
    fixture = export(tmp_path / "fixture.h5", ExportSettings(model=network, steps=1, threads=1, **options)).path
    with convolutions_by(onednn):
        result = train_graph(fixture, tmp_path / "result.h5", replaced(forward=autocast))
    verdict = judge(fixture, result, adequacy=False).verdict
    assert verdict.outcome is Outcome.PRECISION, verdict.words
    assert re.search("in bf16 and keeps? (its result|their results) in bf16", verdict.words)
    partial = bool(re.search("keeps? (its result|their results) and the sum of each image in bf16", verdict.words))
    if network is not Perceptron:
        assert partial is not (onednn and has_bfloat16())


@pytest.mark.parametrize("kind", ["conv2d", "conv_transpose2d"])
def test_some_layers_alone_under_autocast(kind: str, tmp_path: Path) -> None:
    """Their bias gradients are of rounded numbers, which the file has unrounded, and rounded; other layers' are not."""
    def forward(self: GraphOperations, node: Any, inputs: list[Tensor], parameters: dict[str, Tensor]) -> Tensor:
        chosen = autocast if node.kind == kind else GraphOperations.forward
        return chosen(self, node, inputs, parameters)

    fixture = export(tmp_path / "fixture.h5", ExportSettings(model=Upsampled, height=11, width=14, batch=3, steps=1,
                                                             threads=1)).path
    verdict = judge(fixture, train_graph(fixture, tmp_path / "result.h5", replaced(forward=forward)),
                    adequacy=False).verdict
    assert verdict.outcome is Outcome.PRECISION, verdict.words


def test_a_mistake_under_a_lower_precision_is_a_bug(perceptron: Path, tmp_path: Path) -> None:
    class Wrong(with_operands(tf32)):  # type: ignore[misc]
        def gradient(self, name: str, g: Tensor) -> Tensor:
            return g / 2 if name == "second/weight" else g

    verdict = judge(perceptron, train_graph(perceptron, tmp_path / "result.h5", Wrong), adequacy=False).verdict
    assert verdict.outcome is Outcome.BUG and verdict.diagnosis is not None
    found = [(one.name, kind.key) for one in verdict.diagnosis.findings for kind in one.explanations[0].kinds]
    assert found == [("grads/second/weight", "scale")]


def test_one_result_that_was_stored_in_16_bits_is_damaged(perceptron: Path, tmp_path: Path) -> None:
    right = train_graph(perceptron, tmp_path / "right.h5")
    wrong = plant(right, tmp_path / "wrong.h5", {
        "steps/0/forward/second": lambda y: torch.from_numpy(y).bfloat16().float().numpy()})
    verdict = judge(perceptron, wrong, adequacy=False).verdict
    assert verdict.outcome is Outcome.BUG and verdict.diagnosis is not None
    assert verdict.diagnosis.findings[0].explanations[0].detail == "rounded to bf16"
