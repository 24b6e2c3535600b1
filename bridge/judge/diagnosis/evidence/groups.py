# SPDX-License-Identifier: MIT
"""Grouped convolutions that read or write other channels than those of their group."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.convolutions import Data, Forward
from bridge.judge.diagnosis.evidence.operands import solved
from bridge.judge.diagnosis.evidence.view import Array, Seen, View
from bridge.judge.diagnosis.hypothesis import with_layer

#: Channels that are given in words
MOST = 4


def across_groups(view: View, case: Case) -> Iterator[Seen]:
    """Yield which channels each output channel reads: its kernel is solved for over the channels of all groups."""
    right = case.right
    if not isinstance(right, Forward | Data) or right.layer.groups == 1:
        return
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


def _list(row: Array) -> str:
    return ", ".join(str(int(one)) for one in np.flatnonzero(row)) or "none"
