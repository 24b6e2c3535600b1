# SPDX-License-Identifier: MIT
"""Windows of volumes, and their copies, of which the depth is another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from bridge.judge.diagnosis.faults.padding import MODES, of_places
from bridge.judge.diagnosis.wrong_operations.change import Numbers, Parameters, Wrong, changed
from bridge.operations.operation import Gradients, Number, Operation, Shape
from bridge.operations.volumes.products import Conv3d, ConvTranspose3d
from bridge.operations.volumes.resizing import UpsampleNearest3d, UpsampleTrilinear3d

Array = np.ndarray
#: What is done to a tensor, and its adjoint
Change = Callable[[Array], Array]


def convolution(node: Conv3d | ConvTranspose3d) -> Wrong:
    """Yield other taps along the depth, windows that begin at another plane, and other numbers beyond the border."""
    taps = node.kernel_size[0]
    if taps > 1:
        yield "kernel_flipped", "flipped along the depth", _of_weight(node, lambda a: a[:, :, ::-1])
        for tap in sorted({0, taps - 1}):
            yield "geometry", f"without tap {tap} along the depth", _of_weight(node, partial(_without, tap=tap))
    for said, planes in (("a plane too early", 1), ("a plane too late", -1)):
        yield "padding_width", f"every window {said}", _of_input(
            node, partial(_shifted, planes=planes), partial(_shifted, planes=-planes))
    for axis, word in ((2, "plane"), (3, "row"), (4, "column")):
        for at, side in ((0, "first"), (-1, "last")):
            yield "padding_width", f"the {side} {word} of outputs is not computed", _without_side(node, axis, at)
    if isinstance(node, Conv3d) and any(node.padding):
        for mode in MODES[1:]:
            yield "padding_mode", f"{mode} padding", _padded(node, mode)
    if isinstance(node, ConvTranspose3d):
        yield "padding_width", "the output a plane too early", changed(
            node, forward=lambda xs, w: _before_bias(node, partial(_shifted, planes=-1), xs, w))


def _padded(node: Conv3d, mode: str) -> Operation:
    """With numbers of the volume beyond its border, to which their gradients come back."""
    of_padded = replace(node, padding=(0, 0, 0))

    def places(shape: Shape) -> tuple[tuple[int, ...], ...]:
        return of_places(shape, ((0, 0), (0, 0), *((pad, pad) for pad in node.padding)), mode)

    def padded(xs: Numbers) -> Numbers:
        return [xs[0].moved(lambda a: a[np.ix_(*places(a.shape))])]

    def backward(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        (dx,), found = of_padded.backward(dy, padded(xs), w)
        return [dx.scattered(places(xs[0].shape), xs[0].shape)], found

    return changed(node, forward=lambda xs, w: of_padded.forward(padded(xs), w), backward=backward)


def _without_side(node: Conv3d | ConvTranspose3d, axis: int, at: int) -> Operation:
    """With 0 in the place of outputs on one side, to which no gradient comes back."""
    def left(y: Number) -> Number:
        kept = np.arange(y.shape[axis]) != at % y.shape[axis]
        return y.moved(lambda a: np.where(kept.reshape((-1,) + (1,) * (a.ndim - axis - 1)), a, 0.0))

    return changed(node, forward=lambda xs, w: left(node.forward(xs, w)),
                   backward=lambda dy, xs, w: node.backward(left(dy), xs, w))


def _of_weight(node: Conv3d | ConvTranspose3d, change: Change) -> Operation:
    """With a weight that is changed as its gradient is."""

    def other(w: Parameters) -> Parameters:
        return {**w, "weight": w["weight"].moved(change)}

    def backward(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        dx, found = node.backward(dy, xs, other(w))
        return dx, {**found, "weight": found["weight"].moved(change)}

    return changed(node, forward=lambda xs, w: node.forward(xs, other(w)), backward=backward)


def _of_input(node: Operation, change: Change, back: Change) -> Operation:
    """With an input that is changed, and its gradient as the adjoint says."""

    def backward(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        (dx,), found = node.backward(dy, [xs[0].moved(change)], w)
        return [dx.moved(back)], found

    return changed(node, forward=lambda xs, w: node.forward([xs[0].moved(change)], w), backward=backward)


def _before_bias(node: ConvTranspose3d, change: Change, xs: Numbers, w: Parameters) -> Number:
    """An output that is changed before the bias is added."""
    bias = w["bias"].reshape((1, -1, 1, 1, 1)) if node.bias else 0.0
    return (node.forward(xs, w) - bias).moved(change) + bias


def _without(a: Array, tap: int) -> Array:
    found = a.copy()
    found[:, :, tap] = 0
    return found


def _shifted(a: Array, planes: int) -> Array:
    """Planes further behind, or before; zeros come in."""
    found = np.roll(a, planes, 2)
    found[:, :, slice(planes) if planes > 0 else slice(planes, None)] = 0
    return found


def pooling(node: Operation) -> Wrong:
    """Yield windows that begin at another plane."""
    for said, planes in (("a plane too early", 1), ("a plane too late", -1)):
        yield "padding_width", f"every window {said}", _of_input(
            node, partial(_shifted, planes=planes), partial(_shifted, planes=-planes))


def upsample(node: UpsampleNearest3d | UpsampleTrilinear3d) -> Wrong:
    """Yield planes that are copied where others are interpolated, and the volume repeated as a whole."""
    scale = node.scale_factor
    if isinstance(node, UpsampleTrilinear3d):
        yield "pooling", "each voxel repeated, in place of an interpolation", UpsampleNearest3d(
            node.name, scale, inputs=node.inputs)
        return
    yield "pooling", "the volume repeated as a whole, not each voxel", changed(
        node, forward=lambda xs, w: xs[0].moved(lambda a: np.tile(a, (1, 1, *scale))),
        backward=lambda dy, xs, w: ([_summed(dy, xs[0].shape)], {}))


def _summed(dy: Number, shape: tuple[int, ...]) -> Number:
    """Copies of a whole volume, added."""
    n, c, *size = shape
    times = [a // b for a, b in zip(dy.shape[2:], size, strict=True)]
    parts = dy.reshape((n, c, times[0], size[0], times[1], size[1], times[2], size[2]))
    return parts.sum((2, 4, 6))
