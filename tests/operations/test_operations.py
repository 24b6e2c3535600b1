# SPDX-License-Identifier: MIT
"""Each operation beside PyTorch's, within its bounds; a mistake is far outside."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from bridge.judge.measure.error_statistics import measure
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff
from bridge.operations import (
    OPERATIONS,
    AdaptiveAvgPool2d,
    BatchNorm2d,
    Conv3d,
    Dropout,
    LogSoftmax,
    MaxPool2d,
    MaxPool3d,
    Operation,
    Sigmoid,
    Silu,
    Softmax,
    Tanh,
)
from bridge.operations.pointwise import Pointwise
from tests.helpers.graphs import judge_step, make_case, torch_step
from tests.helpers.judged.operation_networks import NETWORKS, network
from tests.helpers.networks.moves import MOVES

#: Mistakes by operation: what is computed in its place, from its inputs and parameters
Mistake = Callable[[Any, list[torch.Tensor], dict[str, torch.Tensor]], torch.Tensor]

POINTWISE: list[Mistake] = [
    lambda it, x, p: it.torch_forward([-x[0]], p), lambda it, x, p: it.torch_forward([1.001 * x[0]], p),
    lambda it, x, p: it.torch_forward([x[0].detach()], p) + x[0] - x[0].detach(),
]

#: Of operations that only move numbers: others, and a gradient that is a little too large
MOVED: list[Mistake] = [
    lambda it, x, p: it.torch_forward([x[0].flip(1)], p), lambda it, x, p: it.torch_forward([x[0].roll(1, -1)], p),
    lambda it, x, p: it.torch_forward([1.001 * x[0] - 0.001 * x[0].detach()], p)]
#: What "it" computes: its output and state, gradients of its parameters, and those of what it takes
COMPUTED = r"forward/it|(state|grads)/it/(?!out)\w+|grads/(first|gates|narrow|other|pairs|table|third|volume)/output"
MISTAKES: dict[str, list[Mistake]] = {
    **dict.fromkeys((*MOVES, "gru", "lstm", "rnn"), MOVED),
    **{kind: POINTWISE for kind, one in OPERATIONS.items() if issubclass(one, Pointwise)},
    "abs": [lambda it, x, p: 1.001 * x[0].abs(), lambda it, x, p: (x[0] > 0) * x[0]],
    "add": [lambda it, x, p: x[0] + x[0], lambda it, x, p: x[0] + x[1].detach()],
    "adaptive_avg_pool2d": [
        lambda it, x, p: functional.adaptive_avg_pool2d(x[0], (7, 5)).mT,
        lambda it, x, p: functional.avg_pool2d(x[0], (4, 4), (3, 2)), lambda it, x, p: _floor_floor(it, x[0])],
    "adaptive_max_pool2d": [
        lambda it, x, p: functional.adaptive_max_pool2d(x[0], it.output_size[::-1]).mT,
        lambda it, x, p: functional.adaptive_avg_pool2d(x[0], it.output_size),
        lambda it, x, p: -functional.adaptive_max_pool2d(-x[0], it.output_size),
        lambda it, x, p: functional.adaptive_max_pool2d(x[0].detach(), it.output_size)
        + functional.adaptive_avg_pool2d(x[0] - x[0].detach(), it.output_size)],
    "amax": [lambda it, x, p: x[0].amin(it.dim, True), lambda it, x, p: x[0].amax((1, 2), True).mT,
             lambda it, x, p: x[0].detach().amax(it.dim, True) + (x[0] - x[0].detach()).mean(it.dim, True)],
    "amin": [lambda it, x, p: x[0].amin(3), lambda it, x, p: x[0].min(2).values],
    "avg_pool2d": [lambda it, x, p: functional.avg_pool2d(x[0], it.kernel_size, it.stride, it.padding,
                                                          count_include_pad=False)],
    "batch_norm2d": [
        lambda it, x, p: _batch_norm(x[0], p, unbiased=True),
        lambda it, x, p: _batch_norm(x[0], p, constant_statistics=True),
        lambda it, x, p: functional.batch_norm(x[0], x[0].mean((0, 2, 3)).detach(), x[0].var((0, 2, 3)).detach(),
                                               p["weight"], p["bias"])],
    "clip": [lambda it, x, p: x[0].clip(it.min, 1.001 * it.max), lambda it, x, p: x[0].clip(it.min),
             lambda it, x, p: it.torch_forward([x[0].detach()], p) + x[0] - x[0].detach()],
    "adaptive_avg_pool3d": [
        lambda it, x, p: functional.adaptive_avg_pool3d(x[0].mT, it.output_size),
        lambda it, x, p: functional.adaptive_avg_pool3d(x[0][:, :, :-1], it.output_size),
        lambda it, x, p: functional.adaptive_max_pool3d(x[0], it.output_size)],
    "avg_pool3d": [
        lambda it, x, p: functional.avg_pool3d(x[0], it.kernel_size, it.stride, it.padding, count_include_pad=False),
        lambda it, x, p: functional.avg_pool3d(x[0].flip(2), it.kernel_size, it.stride, it.padding)],
    "conv3d": [
        # Flipped along the depth, channels for depth, a tap too few in each gradient, another padding
        lambda it, x, p: it.torch_forward(x, {**p, "weight": p["weight"].flip(2)}),
        lambda it, x, p: it.torch_forward(x, {**p, "weight": p["weight"].transpose(1, 2).reshape(
            p["weight"].shape)}),
        lambda it, x, p: it.torch_forward(x, p) - _last_tap(it, x[0], p) + _last_tap(it, x[0].detach(), p),
        lambda it, x, p: it.torch_forward(x, p) - _last_tap(it, x[0], p) + _last_tap(it, x[0], {
            name: one.detach() for name, one in p.items()}),
        lambda it, x, p: replace(it, padding=(0, *it.padding[1:])).torch_forward(
            [functional.pad(x[0], (0, 0, 0, 0, 2, 0))], p),
        lambda it, x, p: it.torch_forward(x, {**p, "bias": p["bias"].detach()})],
    "conv_transpose3d": [
        lambda it, x, p: it.torch_forward(x, {**p, "weight": p["weight"].flip(2)}),
        lambda it, x, p: it.torch_forward([x[0].flip(2)], p),
        lambda it, x, p: it.torch_forward(x, {**p, "weight": p["weight"].detach()})],
    "max_pool3d": [
        lambda it, x, p: _even_max_3d(it, x[0]),
        lambda it, x, p: functional.max_pool3d(functional.pad(x[0], (0, 0, 1, 1, 1, 1)), it.kernel_size, it.stride)],
    "upsample_nearest3d": [lambda it, x, p: x[0].repeat(1, 1, *map(int, it.scale_factor)),
                           lambda it, x, p: functional.interpolate(
                               x[0], scale_factor=tuple(map(float, it.scale_factor)), mode="trilinear")],
    "upsample_trilinear3d": [
        lambda it, x, p: functional.interpolate(x[0], scale_factor=tuple(map(float, it.scale_factor)), mode="nearest"),
        lambda it, x, p: functional.interpolate(x[0], scale_factor=tuple(map(float, it.scale_factor)),
                                                mode="trilinear", align_corners=True)],
    "concat": [lambda it, x, p: torch.cat(x[::-1], 1), lambda it, x, p: torch.cat([x[0], x[1].detach()], 1)],
    "conv2d": [lambda it, x, p: it.torch_forward(x, {**p, "weight": p["weight"].flip(2)}),
               lambda it, x, p: it.torch_forward(x, {**p, "bias": p["bias"].detach()})],
    "conv_transpose2d": [lambda it, x, p: it.torch_forward(x, {**p, "weight": p["weight"].flip(3)}),
                         lambda it, x, p: it.torch_forward(x, {**p, "weight": p["weight"].detach()})],
    "divide": [lambda it, x, p: x[1] / x[0], lambda it, x, p: x[0] / x[1].detach()],
    "dropout": [lambda it, x, p: x[0] * p["mask"], lambda it, x, p: x[0] * (1 - p["mask"]) / (1 - it.p),
                lambda it, x, p: it.torch_forward([x[0].detach()], p) + x[0] - x[0].detach()],
    "dropout2d": [lambda it, x, p: x[0] * p["mask"], lambda it, x, p: x[0] * p["mask"].roll(1, 1) / (1 - it.p),
                  lambda it, x, p: x[0] * p["mask"].flip(0) / (1 - it.p)],
    "flatten": [lambda it, x, p: x[0].transpose(2, 3).flatten(1)],
    "global_avg_pool2d": [lambda it, x, p: x[0][:, :, 1:].mean((2, 3), keepdim=True)],
    "group_norm": [lambda it, x, p: _layer_norm(it, x[0].unflatten(1, (2, 2)), p, ones=True),
                   lambda it, x, p: functional.group_norm(x[0], 1, p["weight"], p["bias"]),
                   lambda it, x, p: _swapped(it.torch_forward([_swapped(x[0])], p))],
    "interpolate": [lambda it, x, p: functional.interpolate(x[0], it.size, mode="bilinear"),
                    lambda it, x, p: functional.interpolate(x[0], it.size, mode="bicubic", align_corners=True),
                    lambda it, x, p: functional.interpolate(x[0], it.size, mode="bicubic", antialias=True),
                    lambda it, x, p: it.torch_forward([x[0].flip(3)], p).flip(2)],
    "layer_norm": [lambda it, x, p: _layer_norm(it, x[0], p, unbiased=True),
                   lambda it, x, p: _layer_norm(it, x[0], p, constant=True),
                   lambda it, x, p: _layer_norm(it, x[0], p, over=(3,)),
                   lambda it, x, p: it.torch_forward(x, p | {"weight": p["weight"].mT})],
    "leaky_relu": [*POINTWISE, lambda it, x, p: functional.leaky_relu(x[0], 2 * it.negative_slope)],
    "linear": [lambda it, x, p: it.torch_forward(x, {**p, "weight": p["weight"].flip(0)}),
               lambda it, x, p: it.torch_forward([x[0].detach()], p) + 0 * x[0].sum()],
    # Of negative numbers it is NaN, and so is all that follows
    **dict.fromkeys(("log", "log2", "log10", "rsqrt", "sqrt"), POINTWISE[1:]),
    # An even function
    "cos": [*POINTWISE[1:], lambda it, x, p: x[0].sin()],
    "square": [*POINTWISE[1:], lambda it, x, p: x[0].abs()],
    "log_softmax": [lambda it, x, p: x[0].log_softmax(2),
                    lambda it, x, p: x[0] - x[0].exp().sum(1, True).log().detach()],
    "attention": [lambda it, x, p: replace(it, scale=0.25, is_causal=False).torch_forward(x, p)],
    "complex_linear": [lambda it, x, p: it.torch_forward([x[0].flip(3)], p)],
    "matmul": [lambda it, x, p: x[0].mT @ x[1], lambda it, x, p: x[0] @ x[1].detach(), lambda it, x, p: x[1] @ x[0]],
    "max": [lambda it, x, p: x[0].flip(1).max(1).values.detach() + x[0].min(1).values - x[0].min(1).values.detach(),
            lambda it, x, p: x[0].amin(1)],
    "mean": [lambda it, x, p: x[0].sum(it.dim, True) / 16, lambda it, x, p: x[0].sum(it.dim, True) / 31,
             lambda it, x, p: x[0].mean((0, 3), True).mT],
    "min": [lambda it, x, p: x[0].amax(3, True), lambda it, x, p: x[0].amin(2, True).mT],
    "max_pool2d": [lambda it, x, p: _even_max(it, x[0])],
    "multiply": [lambda it, x, p: x[0] * x[0], lambda it, x, p: x[0].detach() * x[1]],
    "embedding": [lambda it, x, p: it.torch_forward([(x[0] - 1).clamp(0)], p),
                  lambda it, x, p: functional.embedding(x[0].long(), p["weight"], 2),
                  lambda it, x, p: it.torch_forward(x, {"weight": 1.001 * p["weight"] - 0.001 * p["weight"].detach()})],
    "gather_rows": [lambda it, x, p: it.torch_forward([x[0].roll(1, 0), x[1]], p),
                    lambda it, x, p: it.torch_forward([x[0], x[1].flip(0)], p),
                    lambda it, x, p: it.torch_forward([1.001 * x[0] - 0.001 * x[0].detach(), x[1]], p)],
    "parameter": [lambda it, x, p: it.torch_forward(x, {"weight": p["weight"].detach()}) + 0 * p["weight"].mean(),
                  lambda it, x, p: it.torch_forward(x, {"weight": p["weight"].flip(0)})],
    "prelu": [lambda it, x, p: functional.prelu(x[0], 1.001 * p["weight"]),
              lambda it, x, p: functional.prelu(x[0], p["weight"].detach())],
    "reflection_pad2d": [lambda it, x, p: functional.pad(x[0], (1, 3, 0, 15), "reflect"),
                         lambda it, x, p: functional.pad(x[0], it.padding, "replicate"),
                         lambda it, x, p: functional.pad(x[0].detach(), it.padding, "reflect")
                         + functional.pad(x[0] - x[0].detach(), it.padding)],
    "relu": [*POINTWISE, lambda it, x, p: functional.leaky_relu(x[0], 1e-2),
             lambda it, x, p: x[0] * (x[0].detach() > 0.1)],
    "replication_pad2d": [lambda it, x, p: functional.pad(x[0], (3, 1, 20, 0), "replicate"),
                          lambda it, x, p: functional.pad(x[0], it.padding)],
    "reshape": [lambda it, x, p: x[0].mT.reshape(2, *it.shape), lambda it, x, p: it.torch_forward([x[0].flip(1)], p)],
    "softmax": [lambda it, x, p: x[0].softmax(3), lambda it, x, p: x[0].exp() / x[0].exp().sum(1, True).detach()],
    "spline": [
        # Knots, degree, base, gradients of the input, scales
        lambda it, x, p: replace(it, low=it.low + it.step, high=it.high + it.step).torch_forward(x, p),
        lambda it, x, p: replace(it, order=3, grid=it.grid - 1).torch_forward(x, p),
        lambda it, x, p: it.torch_forward(x, {**p, "scale_base": 0 * p["scale_base"]}),
        lambda it, x, p: it.torch_forward([x[0].detach()], p) + 0 * x[0].sum(),
        lambda it, x, p: it.torch_forward([x[0].detach()], p) + functional.linear(
            functional.silu(x[0]) - functional.silu(x[0]).detach(), p["scale_base"].detach()),
        lambda it, x, p: it.torch_forward(x, {**p, "scale_spline": torch.ones_like(p["scale_spline"])}),
        lambda it, x, p: it.torch_forward(x, {**p, "scale_spline": p["scale_spline"].detach()}),
        lambda it, x, p: it.torch_forward(x, {**p, "coefficient": p["coefficient"].roll(1, 2)})],
    "subtract": [lambda it, x, p: x[1] - x[0], lambda it, x, p: x[0] - x[1].detach()],
    "sum": [lambda it, x, p: x[0].mean(it.dim), lambda it, x, p: x[0].sum((1, 2)),
            lambda it, x, p: x[0][:, :, :, 1:].sum(it.dim) + x[0][:, :, :, 0].detach().sum(1)],
    "transpose": [lambda it, x, p: x[0].reshape(2, 16, 16, 4), lambda it, x, p: x[0].transpose(1, 3).mT.mT.roll(1, 2),
                  lambda it, x, p: x[0].detach().transpose(1, 3) + (x[0] - x[0].detach()).reshape(2, 16, 16, 4)],
    "upsample_bilinear2d": [
        lambda it, x, p: functional.interpolate(x[0], scale_factor=(2.0, 3.0), mode="nearest"),
        lambda it, x, p: functional.interpolate(x[0], scale_factor=(2.0, 3.0), mode="bilinear", align_corners=True)],
    "upsample_nearest2d": [lambda it, x, p: functional.interpolate(x[0], scale_factor=(2.0, 3.0), mode="bilinear"),
                           lambda it, x, p: x[0].repeat(1, 1, 2, 3)],
    "zero_pad2d": [lambda it, x, p: functional.pad(x[0], (1, 3, 2, 0)),
                   lambda it, x, p: functional.pad(x[0], it.padding, value=1e-3)],
}


def _batch_norm(x: torch.Tensor, p: dict[str, torch.Tensor], *, unbiased: bool = False,
                constant_statistics: bool = False) -> torch.Tensor:
    mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), unbiased=unbiased, keepdim=True)
    if constant_statistics:
        mean, variance = mean.detach(), variance.detach()
    normal = (x - mean) / (variance + 1e-5).sqrt()
    return normal * p["weight"][None, :, None, None] + p["bias"][None, :, None, None]


def _layer_norm(it: Any, x: torch.Tensor, p: dict[str, torch.Tensor], *, unbiased: bool = False,
                constant: bool = False, over: tuple[int, ...] = (-2, -1), ones: bool = False) -> torch.Tensor:
    mean, variance = x.mean(over, keepdim=True), x.var(over, unbiased=unbiased, keepdim=True)
    if constant:
        mean, variance = mean.detach(), variance.detach()
    normal = (x - mean) / (variance + it.eps).sqrt()
    if ones:
        return normal.flatten(1, 2) * p["weight"][:, None, None] + p["bias"][:, None, None]
    return normal * p["weight"] + p["bias"]


def _swapped(x: torch.Tensor) -> torch.Tensor:
    """Channels of the groups 0 0 1 1 as 0 1 0 1."""
    return x[:, [0, 2, 1, 3]]


def _last_tap(it: Conv3d, x: torch.Tensor, p: dict[str, torch.Tensor]) -> torch.Tensor:
    """What the last tap along the depth gives."""
    only = torch.zeros_like(p["weight"])
    only[:, :, -1] = 1
    return replace(it, bias=False).torch_forward([x], {"weight": p["weight"] * only})


def _even_max_3d(it: MaxPool3d, x: torch.Tensor) -> torch.Tensor:
    """The gradient of the maxima goes to all of their windows."""
    right = it.torch_forward([x], {})
    even = functional.avg_pool3d(x, it.kernel_size, it.stride, it.padding)
    return right.detach() + even - even.detach()


def _floor_floor(it: AdaptiveAvgPool2d, x: torch.Tensor) -> torch.Tensor:
    """Windows that end before floor((i + 1) * L / n)."""
    h, w = x.shape[2:]
    p, q = it.output_size
    return torch.stack([torch.stack([x[:, :, i * h // p : (i + 1) * h // p, j * w // q : (j + 1) * w // q].mean((2, 3))
                                     for j in range(q)], -1) for i in range(p)], -2)


def _even_max(it: MaxPool2d, x: torch.Tensor) -> torch.Tensor:
    """The gradient of a maximum goes to all of its window."""
    right = it.torch_forward([x], {})
    even = functional.avg_pool2d(x, it.kernel_size, it.stride, it.padding)
    return right.detach() + even - even.detach()


def test_every_operation_is_tried() -> None:
    assert NETWORKS.keys() == MISTAKES.keys() == OPERATIONS.keys()
    for kind, nodes in NETWORKS.items():
        assert any(type(node) is OPERATIONS[kind] for node in nodes)


@pytest.mark.parametrize("kind", NETWORKS)
def test_pytorch_is_right(kind: str) -> None:
    for precision in ("float32", "float64"):
        for mean in (True, False):
            case = make_case(network(kind), (2, 2, 16, 16), np.random.default_rng(5), precision, mean=mean)
            for name, seen in judge_step(case, torch_step(case)).items():
                assert seen.whole <= 1, (name, seen)
                assert seen.local <= 1, (name, seen)


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_mistake_is_far_outside(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the mistaken operation's tensors fail, and by more than ten times their bounds."""
    case = make_case(network(kind), (2, 2, 16, 16), np.random.default_rng(6))
    right = OPERATIONS[kind].torch_forward
    for mistake in MISTAKES[kind]:

        def wrong(self: Any, inputs: Any, parameters: Any, mistake: Mistake = mistake) -> Any:
            if self.name != "it":
                return right(self, inputs, parameters)
            with monkeypatch.context() as patch:
                patch.setattr(OPERATIONS[kind], "torch_forward", right)
                return mistake(self, inputs, parameters)

        with monkeypatch.context() as patch:
            patch.setattr(OPERATIONS[kind], "torch_forward", wrong)
            found = torch_step(case)
        seen = judge_step(case, found)
        failing = {name: one.local for name, one in seen.items() if not one.local <= 1}
        assert max(failing.values(), default=0) > 10, (mistake.__code__.co_firstlineno, failing)
        assert all(re.fullmatch(COMPUTED, name) for name in failing), failing


def test_a_batch_norm_may_be_multiplied_out() -> None:
    """PyTorch computes x * factor + shift; where x is near its mean, that rounds more than weight * (x - mean)."""
    arithmetic = Arithmetic(total_roundoff("float32"))
    it, worst = BatchNorm2d("it", 4), 0.0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        x = (rng.standard_normal((2, 4, 6, 6)) + 0.3).astype(np.float32)
        parameters = {name: rng.uniform(-1, 1, 4).astype(np.float32) for name in ("weight", "bias")}
        truth = it.forward([Bounded(x, 0.0, arithmetic)],
                           {name: Bounded(one, 0.0, arithmetic) for name, one in parameters.items()})
        found = it.torch_forward([torch.from_numpy(x)], {name: torch.from_numpy(p) for name, p in parameters.items()})
        worst = max(worst, measure(found.numpy(), truth.value, truth.error).t)
    assert 0.3 < worst <= 1, worst

ONE = np.float32(1)


def sigmoid(z: np.ndarray) -> np.ndarray:
    return ONE / (ONE + np.exp(-z))

#: Ways to write a derivative in float32, from z, dy, and y where that is known
WAYS: dict[str, tuple[Operation, Callable[..., Any]]] = {
    "1 - y*y": (Tanh("it"), lambda z, dy, y: dy * (ONE - y * y)),
    "(1 - y)*(1 + y)": (Tanh("it"), lambda z, dy, y: dy * ((ONE - y) * (ONE + y))),
    "dy - dy*y*y": (Tanh("it"), lambda z, dy, y: dy - dy * y * y),
    "1/cosh**2": (Tanh("it"), lambda z, dy, y: dy / (np.cosh(z) * np.cosh(z))),
    "1/cosh, squared": (Tanh("it"), lambda z, dy, y: dy * (ONE / np.cosh(z)) ** 2),
    "y*(1 - y)": (Sigmoid("it"), lambda z, dy, y: dy * (y * (ONE - y))),
    "y - y*y": (Sigmoid("it"), lambda z, dy, y: dy * (y - y * y)),
    "(dy*y)*(1 - y)": (Sigmoid("it"), lambda z, dy, y: (dy * y) * (ONE - y)),
    "e/(1 + e)**2": (Sigmoid("it"), lambda z, dy, y: dy * (np.exp(-np.abs(z)) / (ONE + np.exp(-np.abs(z))) ** 2)),
    "s*(1 + z*(1 - s))": (Silu("it"), lambda z, dy, y: dy * (sigmoid(z) * (ONE + z * (ONE - sigmoid(z))))),
    "s + y*(1 - s)": (Silu("it"), lambda z, dy, y: dy * (sigmoid(z) + y * (ONE - sigmoid(z)))),
    "s + z*s*(1 - s)": (Silu("it"), lambda z, dy, y: dy * (sigmoid(z) + z * (sigmoid(z) * (ONE - sigmoid(z))))),
    "y*(dy - sum)": (Softmax("it"), lambda z, dy, y: y * (dy - (y * dy).sum(1, keepdims=True))),
    "y*dy - y*sum": (Softmax("it"), lambda z, dy, y: y * dy - y * (y * dy).sum(1, keepdims=True)),
    "dy - exp(y)*sum": (LogSoftmax("it"), lambda z, dy, y: dy - np.exp(y) * dy.sum(1, keepdims=True)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_derivative_may_be_written_in_any_way(way: str) -> None:
    """Each is inside the bound, which is a few roundings wide: a hundred of them are far outside."""
    arithmetic = Arithmetic(total_roundoff("float32"))
    it, formula = WAYS[way]
    worst = 0.0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        z, dy = (scale * rng.standard_normal((2, 6, 16, 16)).astype(np.float32) for scale in (np.float32(2), ONE))
        y = it.torch_forward([torch.from_numpy(z)], {}).numpy()
        (right,), _ = it.backward(Bounded(dy, 0.0, arithmetic), [Bounded(z, 0.0, arithmetic)], {})
        with np.errstate(over="ignore", under="ignore"):
            found = formula(z, dy, y)
        worst = max(worst, measure(found, right.value, right.error).t)
        wrong = found * np.float32(1 + 2e-5)
        assert measure(wrong, right.value, right.error).t > 4
    assert 0.05 < worst <= 1, worst


@pytest.mark.parametrize("silu", [False, True])
def test_a_square_that_underflows_is_inside_the_bound(silu: bool) -> None:
    """Automatic differentiation of 1/(1 + exp(-z)) gives 0 where y*y is below float32's numbers; a right program does.

    The bound grows only where it does: of larger numbers a hundred roundings are outside.
    """
    arithmetic = Arithmetic(total_roundoff("float32"))
    z = torch.linspace(-88, 15, 4000, requires_grad=True)
    y = z / (1 + (-z).exp()) if silu else 1 / (1 + (-z).exp())
    dy = torch.from_numpy(np.random.default_rng(3).uniform(0.5, 2, 4000).astype(np.float32))
    (found,) = torch.autograd.grad(y, z, dy)
    node = Silu("it") if silu else Sigmoid("it")
    given = [Bounded(one.detach().numpy(), 0.0, arithmetic) for one in (dy, z)]
    (right,), _ = node.backward(given[0], given[1:], {})
    assert measure(found.numpy(), right.value, right.error).t <= 1
    assert (silu or (found == 0).any()) and (right.value != 0).all()
    inside = (z.detach().numpy() > -34) & (z.detach().numpy() < 0) & (np.abs(right.value) > 1e-15)
    assert (right.error[inside] < 1e-4 * np.abs(right.value[inside])).mean() > 0.95


@pytest.mark.parametrize("number", [2, 3, 7, 35, 49, 240])
def test_a_mean_may_be_multiplied_by_a_reciprocal(number: int) -> None:
    """Two roundings are inside the bound, and three are not; the reciprocal of a power of two is exact."""
    x = np.random.default_rng(number).standard_normal(5000).astype(np.float32)
    right = Bounded(x, 0.0, Arithmetic(total_roundoff("float32"))) / number
    reciprocal = ONE / np.float32(number)
    exact = number == 2
    assert measure(x / np.float32(number), right.value, right.error).t <= (0.01 if exact else 0.6)
    assert measure(x * reciprocal, right.value, right.error).t <= 1
    assert measure(x * reciprocal * np.float32(1 + 2**-22), right.value, right.error).t > 1


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.99])
def test_dropout_may_compute_its_scale_in_float32(p: float) -> None:
    arithmetic = Arithmetic(total_roundoff("float32"))
    x = np.random.default_rng(1).standard_normal((2, 3, 8, 8)).astype(np.float32)
    kept = np.ones_like(x)
    right = Dropout("it", p).forward([Bounded(x, 0.0, arithmetic)], {"mask": Bounded(kept, 0.0, arithmetic)})
    for found in (x * (ONE / (ONE - np.float32(p))), x / (ONE - np.float32(p)), x * np.float32(1 / (1 - p))):
        assert measure(found, right.value, right.error).t <= 1


def test_a_softmax_may_be_the_exponential_of_its_logarithm() -> None:
    arithmetic = Arithmetic(total_roundoff("float32"))
    for seed in range(20):
        x = (8 * np.random.default_rng(seed).standard_normal((2, 5, 8, 8))).astype(np.float32)
        right = Softmax("it").forward([Bounded(x, 0.0, arithmetic)], {})
        found = torch.from_numpy(x).log_softmax(1).exp().numpy()
        assert measure(found, right.value, right.error).t <= 1
