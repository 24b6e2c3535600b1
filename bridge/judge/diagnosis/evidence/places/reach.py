# SPDX-License-Identifier: MIT
"""Convolutions that leave out some taps, or count them twice, in some rows and columns: halos, tiles, borders."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.evidence.view import PER_NUMBER, Array, Seen, View
from bridge.judge.diagnosis.evidence.words import counting, indices, listed
from bridge.judge.diagnosis.predictions.convolutions import Data, Forward

#: Numbers of all patches up to which taps are told apart, and sorts of rows or columns that are said
MANY, SORTS = 2**25, 3
#: Distance from 0, 1 and 2 up to which the weight of a tap is one of them
NEAR = 0.05
TIMES = (0.0, 2.0)
#: Difference of the shares of wrong elements from which on rows or columns are told apart
APART = 0.3
#: Wrong elements from which on it is no chance where they are
ENOUGH = 16
WORDS = ("row", "column")


def reach(view: View, case: Case) -> Iterator[Seen]:
    """Yield the sum in which rows and columns of outputs lack rows and columns of taps: how often each tap counts in
    each row is solved for, and in each column. Then the same of the channels that are summed.
    """
    right = case.right
    if not isinstance(right, Forward | Data) or right.reduced is not None:
        return
    layer, (_, channel, *place) = right.layer, view.place
    groups = layer.groups
    if view.at.size * np.prod(layer.kernel_size) * max(layer.in_channels, layer.out_channels) // groups > MANY:
        return
    patches = right._patches(view.at)
    if isinstance(right, Forward):
        kernels = right.w[channel]
        bias = np.zeros(1) if right.b is None else right.b[channel]
    else:
        c, ks = right._channels(view.at)
        kernels, bias = right.w[ks, (c % (layer.in_channels // groups))[:, None]], np.zeros(1)
    products = patches * kernels
    yield from _channels(view, products.sum((2, 3)), bias, right)
    if max(layer.kernel_size) > 1:
        yield from _taps(view, products.sum(1), bias, right, place)


def is_beyond(right: object, wrong: Array) -> bool:
    """Whether all that is wrong are sums whose windows reach beyond the image, and those inside of it are right."""
    if not isinstance(right, Forward | Data) or (isinstance(right, Data) and max(right.layer.stride) > 1):
        return False
    inside = [_sources(right, axis, wrong.shape[2 + axis], right.layer.kernel_size[axis])[1] for axis in (0, 1)]
    outer = ~np.logical_and.outer(*(np.asarray(one.all(axis=1)) for one in inside))
    return bool(outer.any() and 2 * np.count_nonzero(outer) < outer.size and np.count_nonzero(wrong) >= ENOUGH
                and not wrong[..., ~outer].any())


def _channels(view: View, sums: Array, bias: Array, right: Forward | Data) -> Iterator[Seen]:
    """Channels that do not count, or count twice, in all that is wrong."""
    size = sums.shape[1]
    weights, rest = view.solve(np.concatenate([sums, np.broadcast_to(bias, view.f.shape)[:, None]], 1))
    whole = np.rint(weights[:size])
    whole[~sums.any(0)] = 1
    off = np.flatnonzero(whole != 1)
    if not rest <= 0.1 or not 0 < off.size < size or np.unique(whole[off]).size > 1 or whole[off[0]] not in TIMES:
        return
    name = "input channel" if isinstance(right, Forward) else "output channel"
    of = "" if right.layer.groups == 1 else " of each group"
    times = counting(float(whole[off[0]]), many=off.size > 1)
    yield Seen(f"it is the sum in which {indices(off, size, name)}{of} {times}",
               f"the bounds of the loop over {name}s", view.rest(sums @ whole + bias, size), size)


def _taps(view: View, sums: Array, bias: Array, right: Forward | Data, place: list[Array]) -> Iterator[Seen]:
    tried = (_both(view, sums, view.f - bias, place, first) for first in (0, 1))
    counts = next((one for one in tried if one is not None), None)
    if counts is None:
        return
    said = [words for axis in (0, 1) if (words := _said(counts[axis], right, axis)) is not None]
    if not said or "" in said:
        return
    predicted = bias + np.einsum("irs,ir,is->i", sums, counts[0][place[0]], counts[1][place[1]])
    numbers = sum(int(np.unique(one, axis=0).size) for one in counts)
    yield Seen(f"it is the sum in which {', and '.join(said)}",
               "which rows and columns each output reads: the halo of tiles, the guards at borders",
               view.rest(predicted, numbers), numbers)


def _both(view: View, sums: Array, y: Array, place: list[Array], first: int) -> list[Array] | None:
    """How often rows of taps count in each row, and columns in each column: those of the axis `first` from the elements
    that the other axis spares, the others from all that they leave.
    """
    counts = [np.zeros(0)] * 2
    wrong, clean = view.wrong.reshape(-1)[view.at], np.ones(y.size, bool)
    for axis in (first, 1 - first):
        if axis == first:
            clean = _like_most(place[1 - axis], wrong)
            own = sums.sum(2 - axis)
        else:
            own = np.einsum("irs,ir->is" if axis else "irs,is->ir", sums, counts[first][place[first]])
            wrong = np.abs(own.sum(1) - y) > 2 * view.e + 4e-7 * (np.abs(y) + np.abs(view.f))
            clean[:] = True
        one = _counted(view, own, y, place[axis], wrong & clean, clean, view.right.shape[2 + axis])
        if one is None:
            return None
        counts[axis] = one
    return counts


def _like_most(index: Array, wrong: Array) -> Array:
    """The elements in the rows, or columns, in which the smaller part is wrong, where some differ from others."""
    there = np.bincount(index)
    share = np.where(there > 0, np.bincount(index, wrong) / np.maximum(there, 1), np.nan)
    least, most = np.nanmin(share), np.nanmax(share)
    return np.asarray(share <= (least + most) / 2)[index] if most - least > APART else np.ones(index.size, bool)


def _counted(view: View, sums: Array, y: Array, index: Array, wrong: Array, clean: Array, size: int) -> Array | None:
    """How often each row of taps counts in each row of outputs, (size, taps); None where it is no whole number."""
    counts = np.ones((size, sums.shape[1]))
    for i in np.unique(index[wrong]):
        at = np.flatnonzero((index == i) & clean & view.fitted)
        columns = sums[at]
        there = columns.any(0)
        if at.size < PER_NUMBER * np.count_nonzero(there):
            return None
        weights = np.linalg.lstsq(columns[:, there], y[at], rcond=1e-9)[0]
        whole = np.rint(weights)
        if (np.abs(weights - whole) > NEAR).any() or (whole < 0).any() or (whole > 2).any():
            return None
        counts[i, there] = whole
    return counts


def _said(counts: Array, right: Forward | Data, axis: int) -> str | None:
    """Rows by what they lack; None where they lack nothing, empty where that is too much to say."""
    off = counts != 1
    if not off.any():
        return None
    word, (size, taps) = WORDS[axis], counts.shape
    given = right.x if isinstance(right, Forward) else right.dz
    name, length = "the input" if isinstance(right, Forward) else "dz", given.value.shape[2 + axis]
    source, inside = _sources(right, axis, size, taps)
    lost = np.unique(source[off & inside])
    if (counts[off] == 0).all() and (off | ~inside | ~np.isin(source, lost)).all():
        return f"{indices(lost, length, word)} of {name} {counting(0, many=lost.size > 1)}"
    sorts: dict[tuple[float, ...], list[int]] = {}
    for i in np.flatnonzero(off.any(1)):
        sorts.setdefault(tuple(counts[i]), []).append(int(i))
    if len(sorts) > SORTS:
        return ""
    parts = []
    for sort, lines in sorts.items():
        for times in TIMES:
            which = [tap for tap in range(taps) if sort[tap] == times]
            if which:
                many = len(which) > 1
                parts.append(f"kernel {word}{'s' if many else ''} {listed(which)}{_from(right, axis, which, name)} "
                             f"{counting(times, many=many)} in {indices(np.array(lines), size, word)}")
    return " and ".join(parts)


def _from(right: Forward | Data, axis: int, which: list[int], name: str) -> str:
    """What these taps read, where no stride lies between."""
    layer = right.layer
    if layer.stride[axis] != 1:
        return ""
    away = [tap * layer.dilation[axis] - layer.padding[axis] for tap in which]
    away = away if isinstance(right, Forward) else [-one for one in away]
    before, after = ("above", "below") if axis == 0 else ("to the left", "to the right")
    words = [f"{abs(one)} {after if one > 0 else before}" if one else f"in the same {WORDS[axis]}" for one in away]
    return f" ({name} {listed(words)})"


def _sources(right: Forward | Data, axis: int, size: int, taps: int) -> tuple[Array, Array]:
    """The row of the operand that each tap reads for each row of outputs, and whether it is there."""
    layer, i, tap = right.layer, np.arange(size)[:, None], np.arange(taps)
    step, pad = layer.stride[axis], layer.padding[axis]
    if isinstance(right, Forward):
        source = i * step + tap * layer.dilation[axis] - pad
        return source, (source >= 0) & (source < right.x.value.shape[2 + axis])
    far = i + pad - tap * layer.dilation[axis]
    return far // step, (far % step == 0) & (far >= 0) & (far // step < right.dz.value.shape[2 + axis])
