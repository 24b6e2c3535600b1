# SPDX-License-Identifier: MIT
"""A convolution whose gradients are checked, and gradients of it that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import bridge
from bridge.engine.network.passes import OperationPasses
from bridge.gradcheck import GradcheckReport, gradcheck

Array = np.ndarray

Gradients = tuple[Array, Array, Array]

DTYPES = pytest.mark.parametrize("dtype", ["float64", "float32"])
NAMES = ["input", "weight", "bias"]


#: Square images and kernels, as many channels in as out: every transposition keeps the shapes
X, W, GIVEN = (2, 3, 6, 6), (3, 3, 3, 3), {"padding": 1}


def random(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def forward(x: Array, w: Array, b: Array) -> Array:
    return bridge.conv2d(x, w, b, **GIVEN)


def backward(dy: Array, x: Array, w: Array, b: Array) -> Gradients:
    return bridge.conv2d_backward(dy, x, w, **GIVEN)


def check(wrong: Callable[..., Gradients], dtype: str = "float64", **given: object) -> GradcheckReport:
    inputs = [random(X, dtype), random(W, dtype), random(W[:1], dtype)]
    return gradcheck(forward, wrong, inputs, names=NAMES, **given)


class WrongPasses(OperationPasses):
    """The passes of an operation, all gradients of one of which are changed, or its output."""

    edit: Callable[[Array], Array]
    which: int

    def forward(self, inputs: Sequence[Array], parameters: Mapping[str, Array]) -> Array:
        y = super().forward(inputs, parameters)
        return type(self).edit(y) if self.which < 0 else y

    def backward(self, dy: Array, inputs: Sequence[Array], parameters: Mapping[str, Array]) -> Any:
        dx, dw = super().backward(dy, inputs, parameters)
        found = [*dx, *dw.values()]
        if self.which >= 0:
            found[self.which] = type(self).edit(found[self.which])
        return found[:len(dx)], dict(zip(dw, found[len(dx):], strict=True))


def wrong(edit: Callable[[Array], Array], which: int) -> type[WrongPasses]:
    """Of the gradient of that number among inputs and parameters, or -1, the output."""
    return type("_", (WrongPasses,), {"edit": staticmethod(edit), "which": which})


def changed(**change: Callable[[Array], Array]) -> Callable[..., Gradients]:
    """The right gradients, some of them changed."""
    def wrong(dy: Array, x: Array, w: Array, b: Array) -> Gradients:
        found = dict(zip(NAMES, backward(dy, x, w, b), strict=True))
        return tuple(np.ascontiguousarray(change.get(name, np.array)(g)) for name, g in found.items())
    return wrong


def of_other(dy: Callable[[Array], Array] = np.array,
             w: Callable[[Array], Array] = np.array) -> Callable[..., Gradients]:
    """The right formula with other operands."""
    return lambda dy_, x, w_, b: backward(np.ascontiguousarray(dy(dy_)), x, np.ascontiguousarray(w(w_)), b)


def corrupted(g: Array) -> Array:
    g = g.copy()
    g.flat[g.size // 2] *= 1.01
    return g


def element(value: float) -> Callable[[Array], Array]:
    def edit(g: Array) -> Array:
        g = g.copy()
        g.flat[1] = value
        return g
    return edit


#: One for each way in which gradients differ; the faults themselves are the self-test's
WRONG = {
    "kernel gradient flipped in both": changed(weight=lambda g: g[:, :, ::-1, ::-1]),
    "data gradient without the rotation": of_other(w=lambda w: w[:, :, ::-1, ::-1]),
    "mean for sum over the pixels": changed(bias=lambda g: g / (X[2] * X[3])),
    "dy transposed": of_other(dy=lambda dy: dy.swapaxes(2, 3)),
    "sign": changed(weight=np.negative),
    "one element 1 % off": changed(weight=corrupted),
    "one element of the input 1 % off": changed(input=corrupted),
    "NaN": changed(weight=element(np.nan)),
    "infinite": changed(input=element(np.inf)),
}


def squares(dtype: str, **given: object) -> GradcheckReport:
    """The sum of 10000 squares, rounded to the precision of its terms."""
    x = random((100, 100), dtype)
    return gradcheck(lambda x: np.sum(x * x, dtype=dtype), lambda dy, x: 2 * dy * x, [x], **given)
