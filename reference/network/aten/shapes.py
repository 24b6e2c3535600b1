# SPDX-License-Identifier: MIT
"""ATen's operations that move numbers, each as layers that exchange files know."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from reference.network.aten.writing import Tensor, UnsupportedError, Writer
from reference.network.layers import Concat


def reshaped(w: Writer, x: Tensor, sizes: Any, *_: Any) -> Tensor:
    sizes = list(sizes)
    left = sizes.index(-1) if -1 in sizes[1:] else None
    known = math.prod(n for n in sizes if n >= 0)
    shape = tuple(math.prod(x.shape) // known if n < 0 else n for n in sizes)
    return w.reshape(x, shape, left, "")


def flattened(w: Writer, x: Tensor, start: int = 0, end: int = -1) -> Tensor:
    start, end = start % len(x.shape), end % len(x.shape)
    shape = (*x.shape[:start], math.prod(x.shape[start:end + 1]), *x.shape[end + 1:])
    if start == 1 and end == len(x.shape) - 1 and end > start:
        return w.add(nn.Flatten(), [x], shape)
    return w.reshape(x, shape, start, "")


def unflattened(w: Writer, x: Tensor, dim: int, sizes: Any) -> Tensor:
    dim, known = dim % len(x.shape), math.prod(n for n in sizes if n >= 0)
    found = [x.shape[dim] // known if n < 0 else n for n in sizes]
    return w.reshape(x, (*x.shape[:dim], *found, *x.shape[dim + 1:]), None, "")


def squeezed(w: Writer, x: Tensor, dims: Any = None) -> Tensor:
    chosen = range(len(x.shape)) if dims is None else [d % len(x.shape) for d in
                                                       (dims if isinstance(dims, (list, tuple)) else [dims])]
    return w.reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in chosen or n != 1), None, "")


def unsqueezed(w: Writer, x: Tensor, dim: int) -> Tensor:
    dim %= len(x.shape) + 1
    return w.reshape(x, (*x.shape[:dim], 1, *x.shape[dim:]), None, "")


def exchanged(w: Writer, x: Tensor, one: int = -2, other: int = -1) -> Tensor:
    return w.transpose(x, one, other, "")


def concatenated(w: Writer, tensors: Any, dim: int = 0) -> Tensor:
    """Along another dimension than the channels by exchanging it with them."""
    if not all(isinstance(one, Tensor) for one in tensors):
        raise UnsupportedError("a stored tensor as an operand")
    dim %= len(tensors[0].shape)
    turned = [w.transpose(one, 1, dim) for one in tensors]
    shape = list(turned[0].shape)
    shape[1] = sum(one.shape[1] for one in turned)
    if dim == 0:
        raise UnsupportedError("dim 0, the images'")
    if len(turned) == 1:
        return tensors[0]
    return w.transpose(w.add(Concat(), turned, tuple(shape)), 1, dim)


def stacked(w: Writer, tensors: Any, dim: int = 0) -> Tensor:
    dim %= len(tensors[0].shape) + 1
    return concatenated(w, [w.reshape(one, (*one.shape[:dim], 1, *one.shape[dim:])) for one in tensors], dim)


def taken(w: Writer, x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    """A slice that takes all."""
    n = x.shape[dim]
    if step != 1 or (start or 0) not in (0, -n) or (end is not None and end < n):
        raise UnsupportedError("a part of a tensor")
    return x


def expanded(w: Writer, x: Tensor, sizes: Any, **_: Any) -> Tensor:
    """To its own shape."""
    if len(sizes) != len(x.shape) or any(m not in (-1, n) for n, m in zip(x.shape, sizes, strict=True)):
        raise UnsupportedError("a tensor that is repeated")
    return x
