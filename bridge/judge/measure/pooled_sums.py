# SPDX-License-Identifier: MIT
"""What a max pooling sends back, whichever of equal numbers takes it.

Elements are judged by bounds that let any of equal numbers be the largest of its window, as other programs than
PyTorch choose another one. That the whole gradient goes to each of them would pass, too, but for the sums: an image's
channel gets back what its windows were given, no more and no less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from bridge.judge.measure.error_statistics import Statistic, measure
from bridge.judge.measure.file_pair import FilePair
from bridge.operations.graph import INPUT
from bridge.operations.pooling import MaxPool2d

Array = np.ndarray

#: Note of a tensor whose elements pass and whose sums do not
SUMS = ("sums over image and channel, which are those of the gradient of the pooled output, whichever of equal numbers "
        "takes it")


def pooled_sums(pair: FilePair, step: int) -> Iterator[tuple[str, Statistic]]:
    """Yield the gradients that a max pooling alone sends back, with the statistic of their sums over (h, w).

    Parameters
    ----------
    pair : the two files, of a graph
    step : of the candidate's tensors; what its file lacks, or holds in fewer bytes than it computes with, is left out
    """
    nodes, candidate = pair.model.graph.nodes, pair.candidate
    for node in nodes:
        (name, *_) = node.inputs
        if not isinstance(node, MaxPool2d) or sum(other.inputs.count(name) for other in nodes) != 1:
            continue
        taken, given = "grads/input" if name == INPUT else f"grads/{name}/output", f"grads/{node.name}/output"
        if not all(candidate.has(f"steps/{step}/{one}") for one in (taken, given)):
            continue
        dx, dy = (candidate.read(f"steps/{step}/{one}", pair.shapes[one]) for one in (taken, given))
        if min(dx.dtype.itemsize, dy.dtype.itemsize) >= pair.dtype.itemsize and np.isfinite(dx).all() and np.isfinite(
                dy).all():
            yield taken, _compared(dx, dy, node, pair)


def _compared(dx: Array, dy: Array, node: MaxPool2d, pair: FilePair) -> Statistic:
    arithmetic, windows = pair.arithmetic, math.prod(node.kernel_size)
    absolute = np.abs(dy.astype(np.float64)).sum((2, 3))
    # Each element is a sum of as many windows as reach it, or gets a part of each
    bound = arithmetic.factor(windows) * absolute
    if arithmetic.flushes:
        bound += math.prod(dx.shape[2:]) * windows * arithmetic.smallest_normal
    found, right = (one.sum((2, 3), dtype=np.float64) for one in (dx, dy))
    return measure(found, right, bound)
