# SPDX-License-Identifier: MIT
"""Faults inside a convolution, its data gradient and its filter gradient: kernels, images, geometry, operands."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bridge.exchange.model import Conv2d, Pair
from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.faults.layouts import SliceOrder, layouts
from bridge.judge.diagnosis.faults.padding import MODES, of_places, window
from bridge.judge.diagnosis.faults.unfolded import unfolded
from bridge.judge.diagnosis.predictions.convolutions import Data, Filter, Forward
from bridge.judge.diagnosis.predictions.hypothesis import (
    Framed,
    Hypotheses,
    Hypothesis,
    Moved,
    Passed,
    SentBack,
    hypothesis,
    with_layer,
    with_operand,
)
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction, Remade
from bridge.judge.oracle.reduced_precision import HALF, HYPOTHESES, ReducedPrecision

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
    yield from _rolled_kernels(z)


def data_faults(dx: Data) -> Hypotheses:
    """Yield what a data gradient may do instead."""
    for one in _kernels(dx):
        turned = [kind("dgrad_not_rotated")] if one.detail.startswith("kernel reversed along r and s") else one.kinds
        yield Hypothesis(tuple(turned), one.detail, one.operation, layout=one.layout)
    yield from _images(dx, "dz")
    yield from _geometry(dx)
    yield from _moved_gradient(dx, SHIFTS)
    yield from _frames(dx)
    yield from _edges(dx)
    yield from _modes_back(dx)
    yield from _lower(dx)
    yield from _rolled_kernels(dx)


def _edges(dx: Data) -> Hypotheses:
    """Loops over dz that begin one row or column too late, or end one too early."""
    rows, columns = dx.dz.value.shape[2:]
    first, last = slice(1, None), slice(-1)
    for down, across, said in ((first, slice(None), "first row"), (last, slice(None), "last row"),
                               (slice(None), first, "first column"), (slice(None), last, "last column"),
                               (first, first, "first row and column"), (last, last, "last row and column")):
        kept = np.zeros((rows, columns), bool)
        kept[down, across] = True
        left_out = Predicted(dx.dz.value * kept, None if dx.dz.error is None else dx.dz.error * kept)
        yield hypothesis("part_of_batch", f"without the {said} of dz", dx.replaced(dz=left_out))


def filter_faults(dw: Filter) -> Hypotheses:
    """Yield what a filter gradient may do instead. Its layouts are tried on what comes out."""
    yield from _images(dw, "x")
    yield from _images(dw, "dz")
    yield from _geometry(dw)
    yield from _moved_gradient(dw, SHIFTS)
    yield from _moved_input(dw, SHIFTS)
    yield from _modes(dw)
    yield from _parts(dw)
    yield from _lower(dw)
    for shift in rolls(dw.layer):
        yield hypothesis("taps_rolled", _rolled(shift), Moved(dw.shape, dw, shift, True))


def rare_faults(operation: Forward | Data | Filter) -> Hypotheses:
    """Yield what one of the three does instead more rarely: of the kinds of those above, but farther off."""
    further = shifts(operation.layer)[len(SHIFTS) :]
    if isinstance(operation, Forward | Filter):
        yield from _moved_input(operation, further)
        yield from _rolled_images(operation, "x", "padding_width")
    if isinstance(operation, Data | Filter):
        yield from _moved_gradient(operation, further)
        yield from _rolled_images(operation, "dz", "shifted_gradient")
    if isinstance(operation, Filter):
        yield from _other_images(operation, "x")
        yield from _other_images(operation, "dz")


def _kernels(operation: Prediction) -> Hypotheses:
    w: Array = operation.w  # type: ignore[attr-defined]
    for layout in layouts(w.shape, "kcrs"):
        detail = f"kernel {layout.detail}"
        yield Hypothesis(layout.kinds, detail, with_operand(operation, "w", layout), layout=layout)


def _rolled_kernels(operation: Forward | Data) -> Hypotheses:
    for shift in rolls(operation.layer):
        turned = with_operand(operation, "w", lambda w, s=shift: np.roll(w, s, (2, 3)))
        yield hypothesis("taps_rolled", _rolled(shift), turned)


def _images(operation: Prediction, name: str) -> Hypotheses:
    x: Array = getattr(operation, name).value
    what = "the input" if name == "x" else name
    for layout in layouts(x.shape, "nchw", "common"):
        read = {f"read_{name}" if isinstance(operation, Filter) else "read": layout}
        yield Hypothesis(layout.kinds, f"{what}: {layout.detail}", operation.replaced(**read), layout=layout)


def _geometry(operation: Prediction) -> Hypotheses:
    layer = operation.layer  # type: ignore[attr-defined]
    for axes in ((0,), (1,), (0, 1)):
        where = {(0,): " in h", (1,): " in w", (0, 1): ""}[axes]
        for what in ("stride", "dilation"):
            right = getattr(layer, what)
            for other in sorted({1, 2, *(right[axis] + off for axis in axes for off in (-1, 1))} - {0}):
                wrong = tuple(other if axis in axes else right[axis] for axis in (0, 1))
                if all(wrong[axis] != right[axis] for axis in axes):
                    yield hypothesis("geometry", f"{what} {other}{where}", with_layer(operation, **{what: wrong}))
    yield from _same_pixel(operation)


def _same_pixel(operation: Prediction) -> Hypotheses:
    """No tap is shifted against another: all of them see the pixel of one."""
    layer: Conv2d = operation.layer  # type: ignore[attr-defined]
    if layer.kernel_size == (1, 1):
        return
    centre = (layer.padding[0] - layer.dilation[0] * (layer.kernel_size[0] // 2),
              layer.padding[1] - layer.dilation[1] * (layer.kernel_size[1] // 2))
    for padding, which in {(0, 0): "the one of the same index", layer.padding: "that of the first tap",
                           centre: "that of the tap in the middle"}.items():
        same = with_layer(operation, dilation=(0, 0), padding=padding)
        yield hypothesis("same_pixel", f"every tap meets the same pixel, {which}", same)


def _paddings(z: Forward) -> Hypotheses:
    yield from _modes(z)
    yield from _moved_input(z, SHIFTS)
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


def _frames(operation: Prediction) -> Hypotheses:
    """A part of the border is not computed."""
    for i, side in enumerate(("first row", "last row", "first column", "last column")):
        lost = (int(i == 0), int(i == 1), int(i == 2), int(i == 3))
        framed = Framed(operation.shape, operation, lost)
        yield hypothesis("padding_width", f"the {side} of outputs is not computed", framed)
    if isinstance(operation, Data):
        framed = Framed(operation.shape, operation, (1, 1, 1, 1))
        yield hypothesis("padding_width", "the border is not computed", framed)


def _moved_input(operation: Forward | Filter, moves: list[Pair]) -> Hypotheses:
    """The padded image moves, or the image before it is padded, which loses what leaves it."""
    for shift in moves:
        yield hypothesis("padding_width", f"the input {moved_detail(shift)}", operation.replaced(shift=shift))
        moved = with_operand(operation, "x", lambda x, s=shift: window(x, (-s[0], -s[1]), x.shape[2:]))
        yield hypothesis("padding_width", f"the image {moved_detail(shift)}, what leaves it is lost", moved)


def _moved_gradient(operation: Data | Filter, moves: list[Pair]) -> Hypotheses:
    """dz moves; a data gradient may lose what leaves the image, a filter gradient does."""
    for shift in moves:
        said = f"dz {moved_detail(shift)}"
        if isinstance(operation, Filter):
            yield hypothesis("shifted_gradient", said, operation.replaced(moved=shift))
            continue
        yield hypothesis("shifted_gradient", said, operation.replaced(shift=shift))
        lost = with_operand(operation, "dz", lambda dz, s=shift: window(dz, (-s[0], -s[1]), dz.shape[2:]))
        yield hypothesis("shifted_gradient", f"{said}, what leaves the image is lost", lost)


def _rolled_images(operation: Prediction, name: str, key: str) -> Hypotheses:
    """What leaves the image comes in at the other side; by a pixel, and by half the image, as an FFT shifts it."""
    what = "the image" if name == "x" else name
    height, width = getattr(operation, name).value.shape[2:]
    for shift in dict.fromkeys([*SHIFTS, (height // 2, width // 2)]):
        rolled = with_operand(operation, name, lambda x, s=shift: np.roll(x, s, (2, 3)))
        yield hypothesis(key, f"{what} {moved_detail(shift)}, around the border", rolled)


def _other_images(dw: Filter, name: str) -> Hypotheses:
    """Products of the images of one operand with other ones of the other."""
    n, what = len(dw.x.value), "the input" if name == "x" else name
    orders = {tuple((i + off) % n for i in range(n)) for off in (-1, 1)} if name == "x" and n > 2 else set()
    orders |= {(i,) * n for i in (0, n - 1)} if n > 1 else set()
    for order in sorted(orders):
        said = f"{what} of image {order[0]} for every image" if order[0] == order[1] else order_detail("images", order)
        yield hypothesis("channels_permuted", said, dw.replaced(**{f"read_{name}": SliceOrder(0, order)}))


def _modes(operation: Prediction) -> Hypotheses:
    if any(operation.layer.padding):  # type: ignore[attr-defined]
        for mode in MODES[1:]:
            yield hypothesis("padding_mode", f"{mode} padding", operation.replaced(mode=mode))


def _modes_back(dx: Data) -> Hypotheses:
    """What went beyond the border of a padded image comes back to the pixels that it is a copy of."""
    (top, left), (n, c, *size) = dx.layer.padding, dx.shape
    if not (top or left):
        return
    shape = (n, c, size[0] + 2 * top, size[1] + 2 * left)
    larger = dx.replaced(shape=shape, layer=replace(dx.layer, padding=(0, 0)))
    for mode in MODES[1:]:
        down, across = of_places(tuple(size), ((top, top), (left, left)), mode)
        yield hypothesis("padding_mode", f"{mode} padding", SentBack(dx.shape, larger, (down, across)))


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
    """Return single images, all but one, the first or last few, and all with one of them twice."""
    found: list[tuple[int, ...]] = [(i,) for i in range(min(n, 8))]
    found += [tuple(i for i in range(n) if i != left_out) for left_out in range(min(n, 8))]
    found += [tuple(range(k)) for k in range(2, n)]
    twice = [(*range(n), i) for i in range(min(n, 8)) if n > 1]
    return [*(images for images in dict.fromkeys(found) if 0 < len(images) < n), *twice]


def part_detail(images: tuple[int, ...]) -> str:
    """
    >>> part_detail((0, 2)), part_detail((0, 1, 2, 1))
    ('only images 0, 2 of the batch', 'image 1 of the batch twice')
    """
    if len(set(images)) < len(images):
        return f"image {images[-1]} of the batch twice"
    return f"only image{'s' if len(images) > 1 else ''} {', '.join(map(str, images))} of the batch"


class Widened(Remade):
    """A tensor rounded to a lower precision; what is not known of it may be rounded to a neighbour."""

    def __init__(self, of: Predicted, reduced: ReducedPrecision) -> None:
        super().__init__(of, reduced.widened)
        object.__setattr__(self, "reduced", reduced)

    @property
    def error(self) -> Array | None:
        """Return what is not known of the values."""
        of, reduced = self.of, self.reduced  # type: ignore[attr-defined]
        return None if of.error is None else of.error + reduced.step(np.abs(of.value) + of.error)


def in_reduced_precision(operation: Forward | Data | Filter, reduced: ReducedPrecision) -> Prediction:
    """Return the operation in a lower precision: operands are rounded, and the result where it is stored."""
    for operand in OPERANDS[type(operation)]:
        x = getattr(operation, operand)
        x = Widened(x, reduced) if isinstance(x, Predicted) else reduced.widened(x)
        operation = operation.replaced(**{operand: x})
    return operation.replaced(reduced=None if reduced.results is None else reduced)


OPERANDS: dict[type, tuple[str, str]] = {Forward: ("x", "w"), Data: ("dz", "w"), Filter: ("x", "dz")}


def _lower(operation: Forward | Data | Filter) -> Hypotheses:
    """Convolutions of a lower precision."""
    for reduced in HYPOTHESES["float32"].values():
        # Only a forward convolution has a bias
        if not reduced.bias_inside or (isinstance(operation, Forward) and operation.b is not None):
            yield hypothesis("precision", reduced.said, in_reduced_precision(operation, reduced))
    for reduced in (HALF["fp16 stored"], HALF["bf16 stored"]):
        rounded = in_reduced_precision(operation, reduced).replaced(reduced=None)
        for words, one in unfolded(rounded, reduced):
            yield hypothesis("precision", f"{reduced.type} operands, results and {words}", one)


def order_detail(what: str, order: Sequence[int]) -> str:
    """
    >>> order_detail("images", (1, 0))
    'images in the order 1, 0'
    """
    return f"{what} in the order {', '.join(map(str, order[:16]))}{', ...' if len(order) > 16 else ''}"


def shifts(layer: Conv2d) -> list[Pair]:
    """Return a pixel in eight directions, and more of them up to half the window.

    >>> (0, 2) in shifts(Conv2d("", 1, 1, (5, 5))), (0, 2) in shifts(Conv2d("", 1, 1, (3, 3)))
    (True, False)
    """
    half = [d * (k - 1) // 2 for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
    further = [(distance * h, distance * w) for distance in range(2, max(half) + 1) for h, w in SHIFTS
               if distance * abs(h) <= half[0] and distance * abs(w) <= half[1]]
    return [*SHIFTS, *further]


def rolls(layer: Conv2d) -> list[Pair]:
    """Return by how much taps may be rolled along their axes: two of them can only be flipped, of many all is too much.

    >>> rolls(Conv2d("", 1, 1, (1, 3)))
    [(0, 1), (0, -1)]
    """
    lengths = [range(k) if 2 < k <= 5 else range(-1, 2) if k > 2 else (0,) for k in layer.kernel_size]
    turns = [[t - k if 2 * t > k else t for t in length] for length, k in zip(lengths, layer.kernel_size, strict=True)]
    return [(r, s) for r, s in itertools.product(*turns) if r or s]


def _rolled(shift: Pair) -> str:
    return f"taps rolled ({', '.join(f'{move:+d} in {axis}' for move, axis in zip(shift, 'rs', strict=True) if move)})"


def moved_detail(shift: Pair) -> str:
    """
    >>> moved_detail((1, 0)), moved_detail((0, -2))
    ('one pixel off (+1 in h)', '2 pixels off (-2 in w)')
    """
    said = [f"{move:+d} in {axis}" for move, axis in zip(shift, "hw", strict=True) if move]
    far = max(map(abs, shift))
    return f"{'one pixel' if far == 1 else f'{far} pixels'} off ({', '.join(said)})"
