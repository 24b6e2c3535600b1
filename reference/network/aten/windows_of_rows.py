# SPDX-License-Identifier: MIT
"""Sums and windows along a dimension of sequences, and norms of their rows."""

from __future__ import annotations

import math
from typing import Any

import torch

from reference.network import pointwise
from reference.network.aten import image_axis, rules, shapes, shared
from reference.network.aten.writing import Stored, Tensor, UnsupportedError, Writer, only

#: Most numbers along which sums are made, of which there is a matrix
MOST_SUMMED = 2048


def rms_norm(w: Writer, x: Tensor, shape: Any, weight: Any = None, eps: float | None = None) -> Tensor:
    """The quotient by the root of the mean of squares."""
    if x.axis >= len(x.shape) - len(shape):
        raise UnsupportedError("over the images, too; supported are the other dimensions")
    first = image_axis.images_first(x)
    dims = list(range(len(x.shape) - len(shape), len(x.shape)))
    square = w.add(pointwise.LAYERS["square"][0](), [first], first.shape, "square")
    mean = w.binary("add", rules.reduced("mean")(w, square, dims, True),
                    torch.finfo(w.real).eps if eps is None else eps, "mean")
    y = w.binary("multiply", first, w.add(pointwise.LAYERS["rsqrt"][0](), [mean], mean.shape, "scale"), "scaled")
    w.rewritten()
    y = y if weight is None else w.binary("multiply", y, shared.aligned(w, weight, y), "weighted")
    return image_axis.moved_to(y, x.axis)


def cumulated(w: Writer, x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """The product with a triangle of ones along a dimension."""
    only("dtype", dtype, None, w.real)
    first, dim = image_axis.images_first(x), image_axis.there(dim % len(x.shape), x.axis)
    n = first.shape[dim]
    if dim == 0 or n > MOST_SUMMED:
        raise UnsupportedError(f"over the images, or of more than {MOST_SUMMED} numbers")
    last = w.transpose(first, dim, -1)
    rows = w.reshape(last, (last.shape[0], math.prod(last.shape[1:-1]), n))
    ones = shared.lifted(w, Stored("", torch.ones(n, n, dtype=w.real).triu()), (n, n))
    y = rules.matmul(w, rows, shared.spread(w, ones, last.shape[0]), "product")
    w.rewritten()
    return image_axis.moved_to(w.transpose(w.reshape(y, last.shape), dim, -1), x.axis)


def unfolded(w: Writer, x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """Windows of a dimension, whose numbers are the last one."""
    first, dim = image_axis.images_first(x), image_axis.there(dim % len(x.shape), x.axis)
    if dim == 0:
        raise UnsupportedError("windows of images")
    starts = torch.arange(0, first.shape[dim] - size + 1, step)
    places = Stored("", (starts[:, None] + torch.arange(size)).reshape(-1))
    parts = shapes.index_selected(w, first, dim, places)
    split = w.reshape(parts, (*first.shape[:dim], len(starts), size, *first.shape[dim + 1:]))
    order = [one for one in range(len(split.shape)) if one != dim + 1]
    w.rewritten()
    return image_axis.moved_to(w.permute(split, [*order, dim + 1]), x.axis)
