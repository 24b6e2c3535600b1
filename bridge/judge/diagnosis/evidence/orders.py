# SPDX-License-Identifier: MIT
"""The right numbers in another order: blocked layouts by name, any other order by their sorted numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.evidence.view import MOST, Array, Seen, View

#: Elements from which on, and up to which, sorted numbers are compared; the share of different ones, and how large the
#: error must be beside the numbers' deviation: a little noise hardly changes sorted numbers
ENOUGH, MANY, DIFFERENT, LARGE = 64, 2**21, 0.25, 0.5
#: Channels in a block
BLOCKS = (4, 8, 16, 32)


def blocked(view: View) -> Iterator[Seen]:
    """Yield tensors of images or filters that lie in blocks of channels."""
    for name, memory in _layouts(view.right, view.axes):
        if view.found.shape == memory.shape and not np.array_equal(memory, view.right):
            yield Seen(f"it holds the right numbers in the order {name}", "the layout of this tensor in memory: it is "
                       "written, or read, without a reorder", view.rest(memory.reshape(-1)[view.at]), 1)


def _layouts(x: Array, axes: tuple[str, ...]) -> Iterator[tuple[str, Array]]:
    if x.ndim != 4 or x.size > MANY:
        return
    a, b, height, width = x.shape
    filters = axes[2] == "kernel row"
    for block in BLOCKS:
        # One block of all channels is NHWC, which is known
        if b % block == 0 and b > block:
            name = f"OIhw{block}i" if filters else f"nChw{block}c"
            yield f"{name} (blocks of {block} channels)", _inner(x, (b // block, block)).reshape(x.shape)
            back = x.reshape(a, b // block, height, width, block).transpose(0, 1, 4, 2, 3)
            yield f"of NCHW that is read as {name} (blocks of {block} channels)", back.reshape(x.shape)
        if filters and a % block == 0:
            outer = x.reshape(a // block, block, b, height, width).transpose(0, 2, 3, 4, 1)
            yield f"Oihw{block}o (blocks of {block} output channels)", outer.reshape(x.shape)
            if b % block == 0:
                both = x.reshape(a // block, block, b // block, block, height, width)
                yield (f"OIhw{block}i{block}o (blocks of {block} channels)",
                       both.transpose(0, 2, 4, 5, 3, 1).reshape(x.shape))


def _inner(x: Array, channels: tuple[int, int]) -> Array:
    """Blocks of channels innermost."""
    return x.reshape(x.shape[0], *channels, *x.shape[2:]).transpose(0, 1, 3, 4, 2)


def orders(view: View) -> Iterator[Seen]:
    """Yield that the numbers are the right ones, whatever their order."""
    found, right = view.found.reshape(-1), view.right.reshape(-1)
    wrong = view.wrong.reshape(-1)
    f, r = found[wrong], right[wrong]
    if not ENOUGH <= f.size <= MANY or np.unique(r).size < DIFFERENT * r.size:
        return
    if np.linalg.norm(f - r) < LARGE * np.linalg.norm(r - r.mean()):
        return
    by_size, of_right = np.sort(f), np.argsort(r, kind="stable")
    off = np.abs(by_size - r[of_right])
    near = 2 * view.bound.reshape(-1)[wrong]
    # The numbers that meet may belong to different elements: the larger bound of both
    if (off <= np.maximum(near[of_right], near[np.argsort(f, kind="stable")]) + 4e-7 * np.abs(by_size)).all():
        yield Seen("it holds the right numbers in another order: sorted they agree",
                   "the layout of this tensor in memory, and the index by which it is written", 0.0, MOST)
