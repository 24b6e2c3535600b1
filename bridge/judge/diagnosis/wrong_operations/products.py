# SPDX-License-Identifier: MIT
"""Transposed convolutions whose output padding is in another place."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from bridge.judge.diagnosis.wrong_operations.change import Numbers, Parameters, Wrong, changed
from bridge.operations.operation import Number
from bridge.operations.products import ConvTranspose2d


def conv_transpose(node: ConvTranspose2d) -> Wrong:
    """Yield other places of the output padding."""
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
