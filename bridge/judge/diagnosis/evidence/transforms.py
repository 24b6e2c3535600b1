# SPDX-License-Identifier: MIT
"""Winograd's algorithm with a mistake in one of its constant matrices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.evidence.view import Array, Seen, View
from bridge.judge.diagnosis.predictions.convolutions import Data, Forward
from bridge.judge.oracle.algorithm import transposed, turned_kernels
from bridge.judge.oracle.winograd import Filtering, Matrices, matrices
from bridge.operations.products import Conv2d

#: Outputs of a tile along each axis, of three taps
TILES = (2, 4)
#: Products up to which whole tensors are computed again, and what a matrix may leave of the error in one channel
COSTLY, LEFT = 2**28, 1e-3
WORDS = {"g": "filter", "bt": "input", "at": "output"}
CHANGES = {-1.0: "of the other sign", 0.0: "0"}


@dataclass(frozen=True)
class _Mistaken(Filtering):
    """With one entry of a matrix multiplied, along both axes."""

    which: str = "g"
    at: tuple[int, int] = (0, 0)
    times: float = -1.0

    def _matrices(self, dtype: np.dtype, *, absolute: bool) -> tuple[Matrices, Matrices]:
        down, across = super()._matrices(dtype, absolute=absolute)
        return self._changed(down), self._changed(across)

    def _changed(self, right: Matrices) -> Matrices:
        matrix = getattr(right, self.which).copy()
        matrix[self.at] *= self.times
        return right._replace(**{self.which: matrix})


def wrong_transforms(view: View, case: Case) -> Iterator[Seen]:
    """Yield convolutions of 3 x 3 taps by such a matrix; each is tried in one channel of one image first."""
    given = _given(case)
    if given is None:
        return
    x, w, bias, layer = given
    image, channel = (int(np.flatnonzero(view.wrong.any(axes))[0]) for axes in ((1, 2, 3), (0, 2, 3)))
    group = channel // (layer.out_channels // layer.groups)
    own = np.split(x[image], layer.groups)[group]
    right, found = (one[image, channel] for one in (view.right, view.found))
    error = float(np.linalg.norm(found - right))
    for one in _mistakes():
        predicted = one.correlate(own, w[channel : channel + 1])[0] + bias[channel]
        if np.linalg.norm(found - predicted) <= LEFT * error:
            whole = np.stack([np.concatenate([one.correlate(*part) for part in zip(
                np.split(plane, layer.groups), np.split(w, layer.groups), strict=True)]) for plane in x])
            predicted = (whole + bias[:, None, None]).reshape(-1)[view.at]
            yield Seen(_said(one), "the constants of the transforms", view.rest(predicted))


def _said(one: _Mistaken) -> str:
    m, (i, j) = one.m[0], one.at
    points = "0, 1, -1" + ", 2, -2" * (m == 4)
    return (f"it is what Winograd's F({m}x{m}, 3x3) gives whose matrix of the {WORDS[one.which]} transform has its "
            f"entry ({i}, {j}) {CHANGES[one.times]}, with the points {points} and infinity in this order")


def _mistakes() -> Iterator[_Mistaken]:
    for m in TILES:
        for which in WORDS:
            matrix = getattr(matrices(m, 3), which)
            for i, j in zip(*np.nonzero(matrix), strict=True):
                for times in CHANGES:
                    yield _Mistaken((m, m), (3, 3), which, (int(i), int(j)), times)


def _given(case: Case) -> tuple[Array, Array, Array, Conv2d] | None:
    """Padded images, filters and biases of a convolution that Winograd's algorithm computes; None of any other one."""
    right = case.right
    if not isinstance(right, Forward | Data) or right.layer.dilation != (1, 1) or right.layer.kernel_size != (3, 3):
        return None
    layer = right.layer if isinstance(right, Forward) else transposed(right.layer)
    if layer is None or layer.stride != (1, 1) or min(layer.padding) < 0:
        return None
    if isinstance(right, Forward):
        x, w, b = right.x.value, right.w, right.b
    else:
        x, w, b = right.dz.value, turned_kernels(right.w, right.layer.groups), None
    if x.size * layer.out_channels // layer.groups * 9 > COSTLY:
        return None
    (p, q), bias = layer.padding, np.zeros(layer.out_channels) if b is None else b
    return np.pad(x, ((0, 0), (0, 0), (p, p), (q, q))), w, bias, layer
