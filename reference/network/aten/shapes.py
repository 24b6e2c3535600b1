# SPDX-License-Identifier: MIT
"""ATen's operations that move numbers, each as layers that exchange files know."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import nn

from reference.network.aten.writing import Stored, Tensor, UnsupportedError, Writer
from reference.network.layers import Concat, Expand, Flip, IndexSelect, Roll, Slice


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
    if not all(isinstance(one, Tensor) for one in tensors):
        raise UnsupportedError("a stored tensor as an operand")
    first = tensors[0].shape
    dim %= len(first)
    if dim == 0:
        raise UnsupportedError("dim 0, the images'")
    if len(tensors) == 1:
        found: Tensor = tensors[0]
        return found
    return w.add(Concat(dim), list(tensors), (*first[:dim], sum(one.shape[dim] for one in tensors), *first[dim + 1:]))


def stacked(w: Writer, tensors: Any, dim: int = 0) -> Tensor:
    dim %= len(tensors[0].shape) + 1
    return concatenated(w, [w.reshape(one, (*one.shape[:dim], 1, *one.shape[dim:])) for one in tensors], dim)


def taken(w: Writer, x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1, suffix: str = ""
          ) -> Any:
    """A slice; one that takes all is nothing."""
    dim, start, n = dim % len(x.shape), 0 if start is None else start, x.shape[dim]
    stop = Slice.END if end is None or end >= n else end
    chosen = range(n)[start:None if stop == Slice.END else stop:step]
    if len(chosen) == n:
        return x
    if not chosen and dim:
        # Which may be joined with others
        return Stored("", torch.empty(*x.shape[:dim], 0, *x.shape[dim + 1:]))
    if dim == 0 or abs(start) >= Slice.END or (n >= Slice.END and abs(stop) >= Slice.END > (end or 0)):
        raise UnsupportedError("a part of the images, or one from the number 2**24 on")
    return w.add(Slice(dim, start, stop, step), [x], (*x.shape[:dim], len(chosen), *x.shape[dim + 1:]), suffix)


def selected(w: Writer, x: Tensor, dim: int, index: int) -> Tensor:
    """A slice of one, without its dimension."""
    part = taken(w, x, dim, index, None if index == -1 else index + 1, 1, "slice")
    return squeezed(w, part, dim)


def split(w: Writer, x: Tensor, sizes: Any, dim: int = 0) -> list[Tensor]:
    """Parts of one size, or of several."""
    n = x.shape[dim]
    lengths = [min(sizes, n - i) for i in range(0, n, sizes)] if isinstance(sizes, int) else list(sizes)
    ends = list(itertools.accumulate(lengths))
    return [taken(w, x, dim, end - length, end) for length, end in zip(lengths, ends, strict=True)]


def chunked(w: Writer, x: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
    return split(w, x, -(-x.shape[dim] // chunks), dim)


def unbound(w: Writer, x: Tensor, dim: int = 0) -> list[Tensor]:
    return [selected(w, x, dim, i) for i in range(x.shape[dim])]


def flipped(w: Writer, x: Tensor, dims: Any) -> Tensor:
    return w.add(Flip(tuple(dims)), [x], x.shape) if len(dims) else x


def rolled(w: Writer, x: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    if len(shifts) != len(dims):
        raise UnsupportedError("a tensor that is rolled as one row, which the images would be, too")
    return w.add(Roll(tuple(shifts), tuple(dims)), [x], x.shape)


def expanded(w: Writer, x: Tensor, sizes: Any, suffix: str = "", **_: Any) -> Tensor:
    """Dimensions of one number, none of them new; one that stays what it is may be of any length."""
    if len(sizes) != len(x.shape) or sizes[0] not in (-1, x.shape[0]):
        raise UnsupportedError(f"the shape {x.shape} repeated to {list(sizes)}: as many dimensions are supported, and "
                               "the images stay")
    pairs = list(zip(x.shape[1:], sizes[1:], strict=True))
    if all(m in (-1, n) for n, m in pairs):
        return x
    return w.add(Expand(tuple(-1 if m == n else m for n, m in pairs)), [x],
                 (x.shape[0], *(n if m == -1 else m for n, m in pairs)), suffix)


def repeated(w: Writer, x: Tensor, times: Any) -> Tensor:
    """Each dimension so many times, but the images."""
    if len(times) != len(x.shape) or times[0] != 1:
        raise UnsupportedError(f"the shape {x.shape} {list(times)} times: as many dimensions are supported, and the "
                               "images once")
    pairs = list(zip(times[1:], x.shape[1:], strict=True))
    apart = w.reshape(x, (x.shape[0], *itertools.chain(*((1, n) if m > 1 else (n,) for m, n in pairs))))
    whole = expanded(w, apart, [-1, *itertools.chain(*((m, -1) if m > 1 else (-1,) for m, _ in pairs))],
                     suffix="expand")
    return w.reshape(whole, (x.shape[0], *(n * m for n, m in zip(x.shape[1:], times[1:], strict=True))))


def shuffled(w: Writer, x: Tensor, factor: int) -> Tensor:
    n, c, height, width = x.shape
    return w.add(nn.PixelShuffle(factor), [x], (n, c // factor**2, height * factor, width * factor))


def unshuffled(w: Writer, x: Tensor, factor: int) -> Tensor:
    n, c, height, width = x.shape
    return w.add(nn.PixelUnshuffle(factor), [x], (n, c * factor**2, height // factor, width // factor))


def indexed(w: Writer, x: Tensor, indices: Any) -> Tensor:
    """Integers that depend on nothing as the index of one dimension, and of any shape."""
    found = [(axis, one) for axis, one in enumerate(indices) if one is not None]
    if len(found) != 1 or not isinstance(found[0][1], Stored) or found[0][1].value.dtype.is_floating_point:
        raise UnsupportedError("other indices than integers that are the same for all images, of one dimension")
    axis, index = found[0][0], found[0][1].value
    if axis == 0 or index.dtype == torch.bool:
        raise UnsupportedError("indices of the images, or marks")
    w.reads([found[0][1].name] if found[0][1].name else [])
    y = _selected(w, x, axis, index.reshape(-1))
    return w.reshape(y, (*x.shape[:axis], *index.shape, *x.shape[axis + 1:]))


def index_selected(w: Writer, x: Tensor, dim: int, index: Any) -> Tensor:
    if not isinstance(index, Stored):
        raise UnsupportedError("an index that depends on the input")
    return _selected(w, x, dim % len(x.shape), index.value.reshape(-1))


def gathered(w: Writer, x: Tensor, dim: int, index: Any, sparse_grad: bool = False) -> Tensor:
    """Integers that are the same for all images as indices of one dimension: numbers of an image in any order."""
    if not isinstance(index, Stored):
        raise UnsupportedError("an index that depends on the input")
    places, dim = index.value, dim % len(x.shape)
    if dim == 0 or places.shape[0] != x.shape[0] or not torch.equal(places[:1].expand_as(places), places):
        raise UnsupportedError("indices of each image")
    w.reads([index.name] if index.name else [])
    extents = x.shape[1:]
    at = list(torch.meshgrid(*(torch.arange(n) for n in places.shape[1:]), indexing="ij"))
    at[dim - 1] = places[0] % extents[dim - 1]
    flat = torch.zeros_like(places[0])
    for one, extent in zip(at, extents, strict=True):
        flat = flat * extent + one
    w.rewritten()
    row = w.reshape(x, (x.shape[0], math.prod(extents)))
    return w.reshape(_selected(w, row, 1, flat.reshape(-1)), tuple(places.shape))


def _selected(w: Writer, x: Tensor, axis: int, index: torch.Tensor) -> Tensor:
    chosen = tuple((index % x.shape[axis]).tolist())
    if not 0 < len(chosen) <= IndexSelect.MOST:
        raise UnsupportedError(f"{len(chosen)} indices, from 1 to {IndexSelect.MOST} are supported")
    return w.add(IndexSelect(axis, chosen), [x], (*x.shape[:axis], len(chosen), *x.shape[axis + 1:]))
