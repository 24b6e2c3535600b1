# SPDX-License-Identifier: MIT
"""Grouped convolutions that read or write other channels than those of their group."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.evidence.operands import solved
from bridge.judge.diagnosis.evidence.view import Array, Seen, View
from bridge.judge.diagnosis.predictions.convolutions import Data, Filter, Forward
from bridge.judge.diagnosis.predictions.hypothesis import with_layer
from bridge.judge.diagnosis.predictions.operations import Predicted

#: Channels, or groups, that are given in words
MOST = 4
#: Groups up to which each is given the operands of the others, and products of all filter gradients of that
MOST_GROUPS, COSTLY = 16, 2**28


def across_groups(view: View, case: Case) -> Iterator[Seen]:
    """Yield which channels each output channel reads: its kernel is solved for over the channels of all groups."""
    right = case.right
    if isinstance(right, Filter) and 1 < right.layer.groups <= MOST_GROUPS and (
            right.layer.groups * right.products <= COSTLY):
        yield from _operands_of_others(view, right)
    if not isinstance(right, Forward | Data) or right.layer.groups == 1:
        return
    yield from _filters_of_others(view, right)
    yield from _written_elsewhere(view, right)
    layer = right.layer
    cg, kg = layer.in_channels // layer.groups, layer.out_channels // layer.groups
    w = np.zeros((layer.out_channels, layer.in_channels, *layer.kernel_size))
    own = np.arange(layer.out_channels)[:, None] // kg * cg + np.arange(cg)
    w[np.arange(layer.out_channels)[:, None], own] = right.w
    found = solved(view, with_layer(right, groups=1).replaced(w=w))
    if found is None:
        return
    kernel, _, rest = found
    size = np.abs(kernel).max((2, 3))
    used = size > 1e-3 * size.max()
    forward = isinstance(right, Forward)
    wanted = np.any(w, axis=(2, 3))
    reads, wanted = (used, wanted) if forward else (used.T, wanted.T)
    channels = [int(one) for one in np.unique(view.place[1]) if (reads[one] & ~wanted[one]).any()]
    if not channels:
        return
    of, what = ("output channel", "input channels") if forward else ("input channel", "output channels")
    said = "; ".join(f"{of} {one} is made of {what} {_list(reads[one])} in place of {_list(wanted[one])}"
                     for one in channels[:MOST])
    yield Seen(said + ("; ..." if len(channels) > MOST else ""),
               "which channels belong to a group: they are contiguous, the first channels are those of group 0", rest,
               int(np.prod(layer.kernel_size)) * (layer.in_channels if forward else layer.out_channels))


def _filters_of_others(view: View, right: Forward | Data) -> Iterator[Seen]:
    """Groups with the filters of another group: of each that is wrong those that leave the least."""
    groups = right.layer.groups
    if groups > MOST_GROUPS:
        return
    of_each = np.stack([right.replaced(w=np.concatenate([w] * groups)).at(view.at) for w in np.split(right.w, groups)])
    group = view.place[1] // (view.right.shape[1] // groups)
    yield from _chosen(view, of_each, group, "filters", "the offset of the filters of each group")


def _written_elsewhere(view: View, right: Forward | Data) -> Iterator[Seen]:
    """Groups that begin where those of the other side of the convolution do: further on, into the next image, or
    nearer, one over the other.
    """
    layer, value = right.layer, view.right
    count, what = (layer.in_channels, "input") if isinstance(right, Forward) else (layer.out_channels, "output")
    own, apart = value.shape[1] // layer.groups, count // layer.groups
    if apart == own:
        return
    groups = value.reshape(len(value), layer.groups, own, -1)
    for over in (False, True):
        memory = np.zeros((len(value) * value.shape[1] + layer.groups * max(apart, own), groups.shape[-1]))
        for i, image in enumerate(groups):
            for g, channels in enumerate(image):
                first = i * value.shape[1] + g * apart
                memory[first : first + own] = channels if over else memory[first : first + own] + channels
        predicted = memory[: len(value) * value.shape[1]].reshape(value.shape)
        how = "written over" if over else "added to"
        yield Seen(f"each group is {how} what is there, {apart} channels after the group before it, not {own}: as many "
                   f"as it has {what} channels",
                   "the offset of each group's channels in what is written", view.rest(predicted.reshape(-1)[view.at]))


def _operands_of_others(view: View, right: Filter) -> Iterator[Seen]:
    """Filter gradients of groups by the input channels, or the channels of dz, of another group."""
    groups = right.layer.groups
    group = view.place[0] // (view.right.shape[0] // groups)
    for operand, what, place in (("x", "input channels", "the offset into the input channels of each group"),
                                 ("dz", "channels of dz", "the offset into the channels of dz of each group")):
        given = getattr(right, operand).value
        of_each = np.stack([
            right.replaced(**{operand: Predicted(np.concatenate([part] * groups, 1))}).at(view.at)
            for part in np.split(given, groups, 1)])
        yield from _chosen(view, of_each, group, what, place)


def _chosen(view: View, of_each: Array, group: Array, what: str, place: str) -> Iterator[Seen]:
    """Of each group that is wrong the group that leaves the least; `of_each` is what all give by those of each."""
    groups = len(of_each)
    wrong = np.unique(group[view.wrong.reshape(-1)[view.at]])
    left = np.abs(of_each - view.f)
    best = [int(np.array([np.linalg.norm(one[group == g]) for one in left]).argmin()) for g in wrong]
    predicted = view.r.copy()
    for g, source in zip(wrong, best, strict=True):
        predicted[group == g] = of_each[source][group == g]
    if len(set(best)) == 1 and set(range(groups)) == {*wrong.tolist(), best[0]}:
        said = f"all groups use the {what} of group {best[0]}"
    else:
        pairs = [f"group {g} uses the {what} of group {source}" for g, source in zip(wrong, best, strict=True)]
        said = "; ".join(pairs[:MOST]) + ("; ..." if len(pairs) > MOST else "")
    yield Seen(said, place, view.rest(predicted))


def _list(row: Array) -> str:
    return ", ".join(str(int(one)) for one in np.flatnonzero(row)) or "none"
