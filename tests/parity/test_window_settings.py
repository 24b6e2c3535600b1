# SPDX-License-Identifier: MIT
"""Windows, paddings and sizes with all of torch's arguments: beside torch, in networks, with mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from bridge.common.errors import BridgeError
from bridge.engine.network.passes import OperationPasses
from bridge.judge.measure.error_statistics import measure
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff
from bridge.operations import AdaptiveMaxPool2d, AvgPool2d, MaxPool2d, Operation
from tests.helpers.loops import looped

Draw = Callable[[np.random.Generator], Operation]
Array = np.ndarray


def pair(rng: np.random.Generator, low: int, high: int) -> tuple[int, int]:
    return int(rng.integers(low, high)), int(rng.integers(low, high))


def half(rng: np.random.Generator, kernel: tuple[int, int]) -> Any:
    return tuple(int(rng.integers(0, n // 2 + 1)) for n in kernel)


def of_largest(rng: np.random.Generator) -> Operation:
    kernel = pair(rng, 1, 5)
    return MaxPool2d("it", kernel, pair(rng, 1, 5), half(rng, kernel), pair(rng, 1, 4), bool(rng.integers(2)))


def of_means(rng: np.random.Generator) -> Operation:
    kernel = pair(rng, 1, 6)
    return AvgPool2d("it", kernel, pair(rng, 1, 5), half(rng, kernel), bool(rng.integers(2)), bool(rng.integers(2)),
                     int(rng.choice([0, 0, 0, 7])))


DRAWN: dict[str, Draw] = {
    "max_pool2d": of_largest, "avg_pool2d": of_means,
    "adaptive_max_pool2d": lambda rng: AdaptiveMaxPool2d("it", pair(rng, 1, 12))}
#: What only moves numbers; gradients may be sums
EXACT = {"max_pool2d", "adaptive_max_pool2d"}


def of_torch(node: Operation, x: Array, dy: Array | None = None) -> Array:
    """Its output, or the gradient, in the precision of the numbers."""
    leaf = torch.from_numpy(x).requires_grad_()
    y = node.torch_forward([leaf], {})
    found = y if dy is None else torch.autograd.grad(y, leaf, torch.from_numpy(dy))[0]
    array: Array = found.detach().numpy()
    return array


def drawn(kind: str, number: int) -> tuple[Operation, Array, Array]:
    """An operation with settings by chance, an image of small integers, many of them equal, and a gradient."""
    for seed in range(1000 * number, 1000 * (number + 1)):
        rng = np.random.default_rng(seed)
        node, x = DRAWN[kind](rng), np.round(2 * rng.standard_normal((2, 2, *pair(rng, 1, 14))))
        try:
            shape = node.output_shape(x.shape)
        except BridgeError:
            with pytest.raises(BridgeError):
                OperationPasses(node).forward([x], {})
            continue
        return node, x, rng.standard_normal(shape)
    raise AssertionError(kind)


@looped("number", range(40))
@looped("kind", DRAWN)
@pytest.mark.parametrize("place", ["cpu", "naive", "cuda"])
def test_settings_are_those_of_torch(place: str, kind: str, number: int, request: pytest.FixtureRequest) -> None:
    """Shapes, outputs and gradients, of equal numbers, too, where torch takes the first; what torch refuses is."""
    device = request.getfixturevalue("cuda") if place == "cuda" else place
    node, x, dy = drawn(kind, number)
    assert of_torch(node, x).shape == dy.shape, node
    for dtype, tolerance in (("float64", 1e-13), ("float32", 2e-6)):
        passes, given = OperationPasses(node, device), x.astype(dtype)
        upstream = dy.astype(dtype)
        y, right = passes.forward([given], {}), of_torch(node, given)
        np.testing.assert_allclose(y, right, *[0.0 if kind in EXACT else tolerance] * 2, err_msg=repr(node))
        (dx,), _ = passes.backward(upstream, [given], {})
        np.testing.assert_allclose(dx, of_torch(node, given, upstream), tolerance, tolerance, err_msg=repr(node))


def bounded(node: Operation, x: Array, dy: Array) -> tuple[Bounded, Bounded]:
    arithmetic = Arithmetic(total_roundoff(x.dtype.name))
    given, upstream = (Bounded(one, 0.0, arithmetic) for one in (x, dy))
    return node.forward([given], {}), node.backward(upstream, [given], {})[0][0]


@looped("number", range(40))
@looped("kind", DRAWN)
def test_bounds_hold_for_torch(kind: str, number: int) -> None:
    """In both precisions; what is 1e-4 off is outside."""
    node, x, dy = drawn(kind, number)
    for dtype in ("float32", "float64"):
        given, upstream = x.astype(dtype) + np.random.default_rng(1).random(x.shape).astype(dtype), dy.astype(dtype)
        for found, right in zip((of_torch(node, given), of_torch(node, given, upstream)),
                                bounded(node, given, upstream), strict=True):
            assert measure(found, right.value, right.error).t <= 1, node
            if found.any():
                assert measure(found * (1 + 1e-4), right.value, right.error).t > 1, node
