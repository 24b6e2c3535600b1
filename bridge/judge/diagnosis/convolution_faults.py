# SPDX-License-Identifier: MIT
"""Faults inside a convolution, its data gradient and its filter gradient: kernels, images, geometry, operands."""

from __future__ import annotations

import itertools

import numpy as np

from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.convolutions import Data, Filter, Forward
from bridge.judge.diagnosis.hypothesis import (
    Framed,
    Hypotheses,
    Hypothesis,
    Passed,
    hypothesis,
    with_layer,
    with_operand,
)
from bridge.judge.diagnosis.layouts import layouts
from bridge.judge.diagnosis.operations import Bounded, Operation
from bridge.judge.diagnosis.padding import MODES, window
from bridge.judge.oracle.reduced_precision import HYPOTHESES, ReducedPrecision

Array = np.ndarray
SHIFTS = [(h, w) for h, w in itertools.product((-1, 0, 1), repeat=2) if h or w]


def forward_faults(z: Forward) -> Hypotheses:
    """Yield what a forward convolution may do instead."""
    yield from _kernels(z)
    yield from _images(z, "x")
    yield from _geometry(z)
    yield from _paddings(z)
    yield from _bias(z)
    yield hypothesis("relu", "a ReLU on what comes out", Passed(z.shape, z, lambda x: np.maximum(x, 0)))
    yield from _lower(z)


def data_faults(dx: Data) -> Hypotheses:
    """Yield what a data gradient may do instead."""
    for one in _kernels(dx):
        turned = [kind("dgrad_not_rotated")] if one.detail.startswith("kernel reversed along r and s") else one.kinds
        yield Hypothesis(tuple(turned), one.detail, one.operation, layout=one.layout)
    yield from _images(dx, "dz")
    yield from _geometry(dx)
    for shift in SHIFTS:
        yield hypothesis("shifted_gradient", f"dz {_moved(shift)}", dx.replaced(shift=shift))
        lost = with_operand(dx, "dz", lambda dz, s=shift: window(dz, (-s[0], -s[1]), dz.shape[2:]))
        yield hypothesis("shifted_gradient", f"dz {_moved(shift)}, what leaves the image is lost", lost)
    yield from _frames(dx)
    yield from _lower(dx)


def filter_faults(dw: Filter) -> Hypotheses:
    """Yield what a filter gradient may do instead. Its layouts are tried on what comes out."""
    yield from _images(dw, "x")
    yield from _images(dw, "dz")
    yield from _geometry(dw)
    for shift in SHIFTS:
        yield hypothesis("shifted_gradient", f"dz {_moved(shift)}", dw.replaced(moved=shift))
    for shift in SHIFTS:
        yield hypothesis("padding_width", f"the input {_moved(shift)}", dw.replaced(shift=shift))
        yield _moved_image(dw, shift)
    yield from _modes(dw)
    yield from _parts(dw)
    yield from _lower(dw)


def _kernels(operation: Operation) -> Hypotheses:
    w: Array = operation.w  # type: ignore[attr-defined]
    for layout in layouts(w.shape, "kcrs"):
        detail = f"kernel {layout.detail}"
        yield Hypothesis(layout.kinds, detail, with_operand(operation, "w", layout), layout=layout)


def _images(operation: Operation, name: str) -> Hypotheses:
    x: Array = getattr(operation, name).value
    what = "the input" if name == "x" else name
    for layout in layouts(x.shape, "nchw", "common"):
        read = {f"read_{name}" if isinstance(operation, Filter) else "read": layout}
        yield Hypothesis(layout.kinds, f"{what}: {layout.detail}", operation.replaced(**read), layout=layout)


def _geometry(operation: Operation) -> Hypotheses:
    layer = operation.layer  # type: ignore[attr-defined]
    for axes in ((0,), (1,), (0, 1)):
        where = {(0,): " in h", (1,): " in w", (0, 1): ""}[axes]
        for what, others in (("stride", (1, 2)), ("dilation", (1, 2))):
            right = getattr(layer, what)
            for other in others:
                wrong = tuple(other if axis in axes else right[axis] for axis in (0, 1))
                if all(wrong[axis] != right[axis] for axis in axes):
                    yield hypothesis("geometry", f"{what} {other}{where}", with_layer(operation, **{what: wrong}))


def _paddings(z: Forward) -> Hypotheses:
    yield from _modes(z)
    for shift in SHIFTS:
        yield hypothesis("padding_width", f"the input {_moved(shift)}", z.replaced(shift=shift))
        yield _moved_image(z, shift)
    (top, left), (height, width) = z.layer.padding, z.shape[2:]
    if 0 < 2 * top < height or 0 < 2 * left < width:
        border = (top, top, left, left)
        no_bias = None if z.b is None else z.replaced(w=np.zeros_like(z.w))
        yield hypothesis(
            "padding_width", "only 'valid' outputs are computed, the border is 0", Framed(z.shape, z, border)
        )
        if no_bias is not None:
            yield hypothesis(
                "padding_width", "only 'valid' outputs, the border is the bias", Framed(z.shape, z, border, no_bias)
            )
    yield from _frames(z)


def _frames(operation: Operation) -> Hypotheses:
    """A part of the border is not computed."""
    for i, side in enumerate(("first row", "last row", "first column", "last column")):
        lost = (int(i == 0), int(i == 1), int(i == 2), int(i == 3))
        framed = Framed(operation.shape, operation, lost)
        yield hypothesis("padding_width", f"the {side} of outputs is not computed", framed)
    if isinstance(operation, Data):
        framed = Framed(operation.shape, operation, (1, 1, 1, 1))
        yield hypothesis("padding_width", "the border is not computed", framed)


def _moved_image(operation: Operation, shift: tuple[int, int]) -> Hypothesis:
    """What leaves the image is lost, before it is padded."""
    moved = with_operand(operation, "x", lambda x: window(x, (-shift[0], -shift[1]), x.shape[2:]))
    return hypothesis("padding_width", f"the image {_moved(shift)}, what leaves it is lost", moved)


def _modes(operation: Operation) -> Hypotheses:
    if any(operation.layer.padding):  # type: ignore[attr-defined]
        for mode in MODES[1:]:
            yield hypothesis("padding_mode", f"{mode} padding", operation.replaced(mode=mode))


def _bias(z: Forward) -> Hypotheses:
    if z.b is None:
        return
    yield hypothesis("bias", "bias missing", z.replaced(bias_factor=0.0))
    yield hypothesis("bias", "bias added twice", z.replaced(bias_factor=2.0))
    yield hypothesis("bias", "bias subtracted", z.replaced(bias_factor=-1.0))
    for axis, along in ((3, "w"), (2, "h"), (0, "the batch"), (-1, "memory")):
        yield hypothesis("bias_axis", f"bias along {along}", z.replaced(bias_axis=axis))
    if z.b.size > 1:
        yield hypothesis("channels_permuted", "bias reversed", z.replaced(b=z.b[::-1]))
        yield hypothesis("channels_permuted", "bias of the neighbouring channel", z.replaced(b=np.roll(z.b, 1)))


def _parts(dw: Filter) -> Hypotheses:
    for images in parts_of_batch(dw.dz.value.shape[0]):
        yield hypothesis("part_of_batch", part_detail(images), dw.replaced(images=images))


def parts_of_batch(n: int) -> list[tuple[int, ...]]:
    """Return single images, all but one, the first or last few."""
    found: list[tuple[int, ...]] = [(i,) for i in range(min(n, 8))]
    found += [tuple(i for i in range(n) if i != left_out) for left_out in range(min(n, 8))]
    found += [tuple(range(k)) for k in range(2, n)]
    return [images for images in dict.fromkeys(found) if 0 < len(images) < n]


def part_detail(images: tuple[int, ...]) -> str:
    """
    >>> part_detail((0, 2))
    'only images 0, 2 of the batch'
    """
    return f"only image{'s' if len(images) > 1 else ''} {', '.join(map(str, images))} of the batch"


def in_reduced_precision(operation: Forward | Data | Filter, reduced: ReducedPrecision) -> Operation:
    """Return the operation in a lower precision: operands are rounded, and the result where it is stored."""
    for operand in _OPERANDS[type(operation)]:
        x = getattr(operation, operand)
        if isinstance(x, Bounded):
            # What is not known may be rounded to a neighbour
            error = None if x.error is None else x.error + reduced.step(np.abs(x.value) + x.error)
            x = Bounded(reduced.widened(x.value), error)
        else:
            x = reduced.widened(x)
        operation = operation.replaced(**{operand: x})
    return operation.replaced(reduced=None if reduced.results is None else reduced)


_OPERANDS: dict[type, tuple[str, str]] = {Forward: ("x", "w"), Data: ("dz", "w"), Filter: ("x", "dz")}


def _lower(operation: Forward | Data | Filter) -> Hypotheses:
    """Convolutions of a lower precision."""
    for reduced in HYPOTHESES["float32"].values():
        # Only a forward convolution has a bias
        if not reduced.bias_inside or (isinstance(operation, Forward) and operation.b is not None):
            yield hypothesis("precision", reduced.said, in_reduced_precision(operation, reduced))


def _moved(shift: tuple[int, int]) -> str:
    """
    >>> _moved((1, 0))
    'one pixel off (+1 in h)'
    """
    said = [f"{move:+d} in {axis}" for move, axis in zip(shift, "hw", strict=True) if move]
    return f"one pixel off ({', '.join(said)})"
