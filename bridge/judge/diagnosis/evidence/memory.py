# SPDX-License-Identifier: MIT
"""Right numbers that were added up along the way, or that were read from other places of memory."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.evidence.view import Array, Seen, View
from bridge.judge.diagnosis.evidence.words import summed

#: Numbers of a tensor whose memory is read with other strides, and elements by which one is rejected
LARGE, PROBES = 2**16, 256
#: Padded memory has a multiple of so many numbers
MULTIPLES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
#: Distance over norm up to which slices are equal
SAME = 1e-3
#: Taps of a kernel that are given in words
MOST_TAPS = 25


def running_sums(view: View) -> Iterator[Seen]:
    """Yield sums of the right value and of all before it: a sum that is not set to 0 where the next one begins."""
    right, look = view.right, "the place where the sum is set to 0: it is inside or outside of the wrong loop"
    for axis, word in enumerate(view.axes):
        if right.shape[axis] > 1:
            yield from _running(view, np.cumsum(right, axis), f"along the {word}s", look)
    if right.ndim == 4 and view.axes[2] == "kernel row":
        taps = np.cumsum(right.reshape(*right.shape[:2], -1), 2).reshape(right.shape)
        yield from _running(view, taps, "over the taps of each kernel", look)
        yield from _running(view, np.cumsum(right.reshape(right.shape[0], -1), 1).reshape(right.shape),
                            "over the taps and input channels of each output channel", look)
    if right.ndim > 1:
        yield from _running(view, np.cumsum(right).reshape(right.shape), "over the whole tensor", look)


def _running(view: View, sums: Array, where: str, look: str) -> Iterator[Seen]:
    yield Seen(f"it is the running sum {where}: each is its own right value and all before it", look,
               view.rest(sums.reshape(-1)[view.at]))


def strides(view: View) -> Iterator[Seen]:
    """Yield memory that is read with another stride of one axis: blocks that lie further apart, or less."""
    shape, flat = view.right.shape, view.right.reshape(-1)
    if not 8 <= flat.size <= LARGE or view.right.ndim < 2:
        return
    right = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    for axis in range(len(shape)):
        if shape[axis] < 2 or right[axis] == flat.size:
            continue
        for stride in range(1, 2 * right[axis] + 2):
            for outer in (False, True):
                # The axes outside of it keep their strides, or follow from it
                used = list(right)
                used[axis] = stride
                for a in range(axis - 1, -1, -1) if outer else ():
                    used[a] = used[a + 1] * shape[a + 1]
                if used == right or (outer and axis == 0):
                    continue
                source = np.einsum("ai,a->i", np.stack(view.place), np.array(used))
                inside = source < flat.size
                few = np.flatnonzero(inside)[:PROBES]
                if 2 * np.count_nonzero(inside) < inside.size or not _near(view.f[few], flat[source[few]]):
                    continue
                predicted = np.where(inside, flat[np.where(inside, source, 0)], view.f)
                beyond = "" if inside.all() else "; beyond the end of the tensor it is something else"
                yield Seen(f"it is the right memory, read with strides {tuple(used)} in place of {tuple(right)}: the "
                           f"{view.axes[axis]}s are {stride} numbers apart, not {right[axis]}{beyond}",
                           f"the index into memory: the stride of the {view.axes[axis]}", view.rest(predicted))


def pitches(view: View) -> Iterator[Seen]:
    """Yield memory with gaps that is read as if it had none: rows, planes or images were padded to a multiple."""
    shape, flat = view.right.shape, view.right.reshape(-1)
    index = np.arange(flat.size)
    for axis in range(1, view.right.ndim):
        block = math.prod(shape[axis:])
        for pitch in sorted({-(-block // multiple) * multiple for multiple in MULTIPLES}):
            if not block < pitch <= 2 * block or flat.size <= pitch:
                continue
            there = index % pitch < block
            source = np.where(there, index // pitch * block + index % pitch, 0)
            predicted = np.where(there, flat[source], 0.0)
            # What begins where it should is no news
            few = view.at[(there & (source != index))[view.at]][:PROBES]
            if not _near(view.found.reshape(-1)[few], predicted[few]):
                continue
            gap = view.found.reshape(-1)[~there]
            predicted[~there] = gap
            yield Seen("it is the right memory with gaps, read as if it had none: "
                       f"the {view.axes[axis - 1]}s of {block} numbers begin {pitch} numbers apart, "
                       f"and the last {pitch - block} of each {pitch} are {'something else' if gap.any() else '0'}",
                       "the pitch of padded memory (a leading dimension) when the tensor is copied",
                       view.rest(predicted.reshape(-1)[view.at]))


def _near(found: Array, other: Array) -> bool:
    return found.size > 0 and float(np.linalg.norm(found - other)) <= SAME * float(np.linalg.norm(found))


def taps(view: View) -> Iterator[Seen]:
    """Yield kernels whose taps hold other taps of the same kernel, or sums of them."""
    if view.right.ndim != 4 or view.axes[2] != "kernel row":
        return
    height, width = view.right.shape[2:]
    found, right = (x.reshape(-1, height * width) for x in (view.found, view.right))
    used = np.flatnonzero(view.wrong.reshape(found.shape).any(1))
    found, right = found[used], right[used]
    if not 2 <= height * width <= MOST_TAPS or len(used) < 4:
        return
    matrix = _gathered(found, right)
    numbers = 0
    if matrix is None:
        matrix = _mixed(found, right)
        numbers = height * width
    if matrix is None:
        return
    predicted = view.right.reshape(-1, height * width) @ matrix.T
    names = [f"tap ({r}, {s})" for r in range(height) for s in range(width)]
    changed = [i for i, row in enumerate(matrix) if row[i] != 1 or np.count_nonzero(row) != 1]
    if not changed:
        return
    said = [f"{names[i]} is {_sum_of(row, names)}" for i, row in enumerate(matrix) if i in changed]
    more = "; ..." if len(said) > 9 else ""
    yield Seen(f"in each kernel {'; '.join(said[:9])}{more}",
               "the index of the tap: a stride of the kernel, a transposition or a flip in place",
               view.rest(predicted.reshape(-1)[view.at], numbers), numbers)


def _sum_of(row: Array, names: list[str]) -> str:
    there = np.flatnonzero(row)
    return summed(row[there], [names[j] for j in there]) if there.size else "0"


def _gathered(found: Array, right: Array) -> Array | None:
    """The matrix of taps that are others, or 0; None where one is neither."""
    matrix = np.zeros((found.shape[1],) * 2)
    for i, tap in enumerate(found.T):
        norm = float(np.linalg.norm(tap))
        if norm <= SAME * float(np.abs(right).max()):
            continue
        distance = np.linalg.norm(right - tap[:, None], axis=0)
        # Its own tap first, where several are equal
        distance[i] *= 1 - 1e-9
        if not distance.min() <= SAME * norm:
            return None
        matrix[i, int(distance.argmin())] = 1.0
    return matrix


def _mixed(found: Array, right: Array) -> Array | None:
    """The matrix of sums of taps; None where kernels are too few, or it has other numbers than 0, 1 and -1."""
    if len(found) < 2 * right.shape[1]:
        return None
    matrix = np.linalg.lstsq(right, found, rcond=1e-9)[0].T
    whole = np.rint(matrix)
    if np.abs(matrix - whole).max() > 1e-2 or np.abs(whole).max() > 1:
        return None
    return whole
