# SPDX-License-Identifier: MIT
"""Products of matrices under other names than `matmul`, sums of products, and what is written with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import nn

from reference.network.aten import image_axis, rules, shared, windows_of_rows
from reference.network.aten.einsum import einsum
from reference.network.aten.writing import Rule, Stored, Tensor, UnsupportedError, Writer, parameter, shape_of

#: Dimensions of rows, and of a matrix
ROWS = 2


def is_one(name: str, args: Any, kwargs: Any) -> bool:
    """Return whether a call is one of these that takes a tensor of images."""
    tensors = shared.leaves((args, kwargs))
    if name == "matmul":
        return shared.is_shared(args[1]) and not shared.is_shared(args[0]) and (
            len(shape_of(args[1])) == 1 or len(args[0].shape) == len(shape_of(args[1])) == ROWS)
    return name in RULES and not all(shared.is_shared(one) for one in tensors)


def times(w: Writer, x: Tensor, other: Any) -> Tensor:
    """The product of rows with a vector or a matrix that all images share."""
    if len(shape_of(other)) == ROWS:
        return rows_times(w, x, other)
    first = image_axis.images_first(x)
    if x.axis == len(x.shape) - 1:
        raise UnsupportedError("a product over the images")
    (c,) = shape_of(other)
    w.rewritten()
    if isinstance(other, Stored) and isinstance(other.value, nn.Parameter) and other.name not in w.several:
        layer = nn.Linear(c, 1, bias=False)
        layer.weight = parameter(other, (1, c))  # type: ignore[assignment]
        y = w.add(layer, [first], (*first.shape[:-1], 1), "product", weight=other)
    else:
        column = shared.spread(w, shared.lifted(w, other, (c, 1)), first.shape[0])
        rows = w.reshape(first, (first.shape[0], math.prod(first.shape[1:-1]), c))
        y = rules.matmul(w, rows, column, "product")
    return image_axis.moved_to(w.reshape(y, first.shape[:-1]), x.axis)


def rows_times(w: Writer, x: Any, weight: Any) -> Tensor:
    """The product of rows, (images times some, c), with a matrix (c, k) that all images share."""
    if not isinstance(x, Tensor) or shared.is_shared(x) or x.axis or not shared.is_shared(weight):
        raise UnsupportedError("a product of other than rows of images with a matrix that all images share")
    c, k = shape_of(weight)
    w.rewritten()
    rows = w.reshape(x, (w.batch, x.shape[0] // w.batch, c))
    y = rules.matmul(w, rows, shared.lifted(w, weight, (c, k)), "product")
    return w.reshape(y, (x.shape[0], k))


def rows_times_and_more(w: Writer, more: Any, x: Any, weight: Any, beta: float = 1, alpha: float = 1) -> Tensor:
    """The same, and more of each row."""
    return _sum(w, more, rows_times(w, x, weight), beta, alpha)


def products_and_more(w: Writer, more: Any, one: Any, other: Any, beta: float = 1, alpha: float = 1) -> Tensor:
    """Products of matrices, and more of each."""
    if any(shared.is_shared(x) for x in (one, other)):
        one, other = shared.of_images(w, "bmm", (one, other))
    w.rewritten()
    return _sum(w, more, rules.matmul(w, one, other, "product"), beta, alpha)


def _sum(w: Writer, more: Any, y: Tensor, beta: float, alpha: float) -> Tensor:
    """beta times more, and alpha times y."""
    y = y if alpha == 1 else w.binary("multiply", y, float(alpha), "scaled")
    if beta == 0:
        return y
    if shared.is_shared(more):
        more = shared.aligned(w, more, y)
    more = more if beta == 1 else w.binary("multiply", more, float(beta), "more")
    return w.binary("add", more, y, "sum")


#: By the names of ATen
RULES: Mapping[str, Rule] = {"einsum": einsum, "mm": rows_times, "addmm": rows_times_and_more,
                             "baddbmm": products_and_more, "matmul": times, "rms_norm": windows_of_rows.rms_norm,
                             "cumsum": windows_of_rows.cumulated, "unfold": windows_of_rows.unfolded}
