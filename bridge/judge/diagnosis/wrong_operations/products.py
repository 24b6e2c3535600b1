# SPDX-License-Identifier: MIT
"""Linear layers, matrix products and transposed convolutions that are wrong."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from bridge.judge.diagnosis.wrong_operations.change import Numbers, Parameters, Wrong, changed
from bridge.operations.operation import Gradients, Number
from bridge.operations.products import ConvTranspose2d, Linear, Matmul


def linear(node: Linear) -> Wrong:
    """Yield other weights and biases."""
    if node.bias:
        yield "bias", "no bias", changed(node, forward=lambda xs, w: xs[0] @ w["weight"].transpose((1, 0)))
        yield "bias", "the bias added twice", changed(node, forward=lambda xs, w: node.forward(xs, w) + w["bias"])
    if node.in_features == node.out_features:
        def turned(w: Parameters) -> Parameters:
            return {**w, "weight": w["weight"].transpose((1, 0))}

        yield "in_out_swapped", "the weight transposed", changed(
            node, forward=lambda xs, w: node.forward(xs, turned(w)),
            backward=lambda dy, xs, w: node.backward(dy, xs, turned(w)))


def matmul(node: Matmul) -> Wrong:
    """Yield matrices that are transposed, or are not, and products of elements; where the shapes allow it."""
    for which, said in ((0, "the first"), (1, "the second")):
        def turned(xs: Numbers, w: Parameters, which: int = which) -> Number:
            if not _square(xs[which]):
                return node.forward(xs, w)
            one, other = (_transposed(x) if i == which else x for i, x in enumerate(xs))
            return one @ other

        def back(dy: Number, xs: Numbers, w: Parameters, which: int = which) -> Gradients:
            if not _square(xs[which]):
                return node.backward(dy, xs, w)
            first, second = (x if i == which else _transposed(x) for i, x in enumerate(xs))
            return [dy @ second, first @ dy], {}

        yield "in_out_swapped", f"{said} matrix transposed", changed(node, forward=turned)
        other = "second" if which == 0 else "first"
        yield "in_out_swapped", f"the gradient of the {other} takes {said} matrix without transposing it", changed(
            node, backward=back)

    def elements(xs: Numbers, w: Parameters) -> Number:
        return xs[0] * xs[1] if all(map(_square, xs)) else node.forward(xs, w)

    def of_elements(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        return ([dy * xs[1], dy * xs[0]], {}) if all(map(_square, xs)) else node.backward(dy, xs, w)

    yield "joined", "the product of elements, not of matrices", changed(node, forward=elements, backward=of_elements)


def _square(x: Number) -> bool:
    return bool(x.shape[-1] == x.shape[-2])


def _transposed(x: Number) -> Number:
    return x.transpose((*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2))


def conv_transpose(node: ConvTranspose2d) -> Wrong:
    """Yield other kernels, biases, and places of the output padding."""
    if node.bias:
        def bare(xs: Numbers, w: Parameters) -> Number:
            return xs[0].data_gradient(w["weight"], node.convolution, node.output_shape(xs[0].shape))

        yield "bias", "no bias", changed(node, forward=bare)
    for axes, said in (((2, 3), "r and s"), ((2,), "r"), ((3,), "s")):
        def flipped(w: Parameters, axes: tuple[int, ...] = axes) -> Parameters:
            return {**w, "weight": w["weight"].moved(lambda a: np.flip(a, axes))}

        yield "kernel_flipped", f"the kernel reversed along {said}", changed(
            node, forward=lambda xs, w, flipped=flipped: node.forward(xs, flipped(w)),
            backward=lambda dy, xs, w, flipped=flipped: node.backward(dy, xs, flipped(w)))
    for axis, more in zip((2, 3), node.output_padding, strict=True):
        if more:
            which = "rows" if axis == 2 else "columns"
            for said, empty in ((f"the output padding before the {which}", False),
                                (f"the output padding before the {which}, with nothing but the bias in it", True)):
                yield "padding_width", said, changed(node, forward=partial(_padded_before, node, (axis,), empty))
    if all(node.output_padding):
        for said, empty in (("the output padding above and to the left", False),
                            ("the output padding above and to the left, with nothing but the bias in it", True)):
            yield "padding_width", said, changed(node, forward=partial(_padded_before, node, (2, 3), empty))


def _padded_before(node: ConvTranspose2d, axes: tuple[int, ...], empty: bool, xs: Numbers, w: Parameters) -> Number:
    """An output that begins so many rows or columns earlier, which the kernels reach, or where there is nothing."""
    (rows, columns), (top, left) = node.output_padding, node.padding
    down, across = rows if 2 in axes else 0, columns if 3 in axes else 0
    above, before = (0, 0) if empty else (min(down, top), min(across, left))
    larger = replace(node, bias=False, padding=(top - above, left - before), output_padding=(rows - down,
                                                                                            columns - across))
    shape = node.output_shape(xs[0].shape)
    sides = ((0, 0), (0, 0), (down - above, 0), (across - before, 0))
    found = larger.forward(xs, w).moved(lambda a: np.pad(a, sides)[..., : shape[2], : shape[3]])
    return found + w["bias"].reshape((1, -1, 1, 1)) if node.bias else found
