# SPDX-License-Identifier: MIT
"""Gradients behind a mask in which each element is what the mask lets through or stops, by another mask."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.evidence.view import MOST, Array, Seen, View
from bridge.judge.diagnosis.predictions.elementwise import ReluBackward
from bridge.judge.diagnosis.predictions.formulas import Formula
from bridge.operations.pointwise import Dropout

#: Elements that one mask lets through and the other does not, at least, each way
ENOUGH = 8
#: Numbers in a block of memory, of whose bits the order is looked for, blocks that must agree for each, at least, and
#: elements of a mask, at most
BLOCKS, AGREEING, LARGE = (4, 8, 16, 32, 64), 16, 2**22
#: A mask is one bit for each element: whatever says more of it is the simpler description
BITS = MOST


def masks(view: View, case: Case) -> Iterator[Seen]:
    """Yield that each element is one of the two numbers which it can be, and the order in which the mask was read."""
    right = case.right
    if isinstance(right, ReluBackward) and right.slope == 0:
        passed, known = right.da.value, right.source.value > 0
        what, but = "dy", "but not by the sign of x"
    elif isinstance(right, Formula) and isinstance(right.node, Dropout):
        of, what = (right.inputs[0], "x/(1 - p)") if right.dy is None else (right.dy, "dy/(1 - p)")
        passed, known = of.value / (1 - right.node.p), np.broadcast_to(right.parameters["mask"], of.value.shape) > 0.5
        but = f"by another mask than that of the {'file' if right.dy is None else 'forward pass'}"
    else:
        return
    found, near = view.found, 2 * view.bound + 1e-6 * np.abs(passed)
    # Where dy is 0 the mask does not show
    shown = passed != 0
    kept = shown & (np.abs(found - passed) <= near)
    lost, added = int(((found == 0) & known & shown).sum()), int((kept & ~known).sum())
    if not ((found == 0) | kept).all() or min(lost, added) < ENOUGH:
        return
    order = _order(kept, known, shown)
    if order:
        yield Seen(f"each element is {what} or 0, by the right mask with {order}",
                   "the order in which the bits of the mask are packed and read", 0.0, 1)
        return
    share, wanted = (100 * float(mask[shown].mean()) for mask in (kept, known))
    yield Seen(f"each element is {what} or 0, {but}: {share:.1f} % of the elements are let through, where "
               f"{wanted:.1f} % should be",
               "what the mask is made of, its pointer and its index; of random numbers the state of the generator",
               0.0, BITS)


def _order(kept: Array, known: Array, shown: Array) -> str:
    """The order of the bits of a mask within blocks of memory, in words; empty where there is none."""
    memory = {"": [kept, known, shown]}
    if kept.ndim == 4:
        memory[" in memory of the order NHWC"] = [np.moveaxis(x, 1, 3) for x in (kept, known, shown)]
    for where, arrays in memory.items():
        for block in BLOCKS:
            blocks = kept.size // block
            if blocks < AGREEING * block or kept.size > LARGE:
                return ""
            f, r, s = (x.reshape(-1)[: blocks * block].reshape(blocks, block).astype(np.float32) for x in arrays)
            # Disagreements of bit i of what was found with bit j of the mask, where they show
            off = (s * f).T @ (1 - r) + (s * (1 - f)).T @ r
            source = off.argmin(1)
            if off.min(1).any() or np.unique(source).size < block or (np.count_nonzero(off == 0, axis=1) > 1).any():
                continue
            if (source == np.arange(block)[::-1]).all():
                return f"each {block} elements that follow each other in reversed order{where}"
            return f"each {block} elements that follow each other in the order {', '.join(map(str, source))}{where}"
    return ""
