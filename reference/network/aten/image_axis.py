# SPDX-License-Identifier: MIT
"""Tensors whose images are not their first dimension, as attention's are: (3, n, heads, ...) or (length, n, ...).

Their layers have the images first, and the other dimensions in torch's order. What is asked of a dimension is asked of
that which it is there.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from reference.network import pointwise
from reference.network.aten.writing import Shape, Tensor, UnsupportedError, Writer

#: A rule for tensors whose images may be any dimension, given the ordinary one
Rule = Callable[..., Any]


def images_first(x: Tensor) -> Tensor:
    """Return what the layer gives."""
    return Tensor(x.name, (x.shape[x.axis], *x.shape[:x.axis], *x.shape[x.axis + 1:]), x.integers)


def moved_to(x: Any, axis: int) -> Any:
    """Return the output of a layer as the module has it, with its images in another place."""
    if isinstance(x, (list, tuple)):
        return type(x)(moved_to(one, axis) for one in x)
    if x is None:
        return None
    return Tensor(x.name, (*x.shape[1:axis + 1], x.shape[0], *x.shape[axis + 1:]), x.integers, axis=axis)


def there(axis: int, images: int) -> int:
    """Return which dimension of the layer's output one is.

    >>> [there(axis, 2) for axis in range(4)]
    [1, 2, 0, 3]
    """
    return 0 if axis == images else axis + (axis < images)


def permuted(w: Writer, rule: Any, x: Tensor, dims: Sequence[int]) -> Tensor:
    """All dimensions in another order."""
    order = [one % len(x.shape) for one in dims]
    images = order.index(x.axis)
    found = w.permute(images_first(x), [0, *(there(one, x.axis) for one in order if one != x.axis)])
    return moved_to(found, images)


def exchanged(w: Writer, rule: Any, x: Tensor, one: int = -2, other: int = -1) -> Tensor:
    order = list(range(len(x.shape)))
    order[one], order[other] = order[other], order[one]
    if x.axis == 0 and order[0] == 0:
        found: Tensor = rule(w, x, one, other)
        return found
    return permuted(w, rule, x, order)


def inserted(w: Writer, rule: Any, x: Tensor, dim: int) -> Tensor:
    """A dimension of one number; one before the images is behind them in the layer."""
    dim %= len(x.shape) + 1
    images = x.axis + (dim <= x.axis)
    return moved_to(rule(w, images_first(x), dim + 1 if dim <= x.axis else dim), images)


def stacked(w: Writer, rule: Any, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    dim %= len(tensors[0].shape) + 1
    if any(one.axis != tensors[0].axis for one in tensors):
        raise UnsupportedError("tensors whose images are in different places")
    images = tensors[0].axis
    found = rule(w, [images_first(one) for one in tensors], dim + 1 if dim <= images else dim)
    return moved_to(found, images + (dim <= images))


def joined(w: Writer, rule: Any, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    first = tensors[0]
    if any(one.axis != first.axis for one in tensors):
        raise UnsupportedError("tensors whose images are in different places")
    found = rule(w, [images_first(one) for one in tensors], there(dim % len(first.shape), first.axis))
    return moved_to(found, first.axis)


def along(w: Writer, rule: Any, x: Tensor, dim: Any = 0, *more: Any, **named: Any) -> Any:
    """What is done along a dimension, which stays."""
    return moved_to(rule(w, images_first(x), there(dim % len(x.shape), x.axis), *more, **named), x.axis)


def without(w: Writer, rule: Any, x: Tensor, dim: Any = 0, *more: Any, **named: Any) -> Any:
    """What takes parts along a dimension, which they do not have."""
    dim %= len(x.shape)
    return moved_to(rule(w, images_first(x), there(dim, x.axis), *more, **named), x.axis - (dim < x.axis))


def parts(w: Writer, rule: Any, x: Tensor, size: Any, dim: int = 0) -> Any:
    return moved_to(rule(w, images_first(x), size, there(dim % len(x.shape), x.axis)), x.axis)


def reduced(w: Writer, rule: Any, x: Tensor, dim: Any = (), keepdim: bool = False, **named: Any) -> Any:
    dims = [one % len(x.shape) for one in (dim if isinstance(dim, (list, tuple)) else [dim])]
    found = rule(w, images_first(x), [there(one, x.axis) for one in dims], keepdim, **named)
    return moved_to(found, x.axis if keepdim else x.axis - sum(one < x.axis for one in dims))


def squeezed(w: Writer, rule: Any, x: Tensor, dims: Any = None) -> Tensor:
    chosen = [one % len(x.shape) for one in (range(len(x.shape)) if dims is None else
                                            dims if isinstance(dims, (list, tuple)) else [dims])]
    gone = [one for one in chosen if x.shape[one] == 1]
    found = rule(w, images_first(x), [there(one, x.axis) for one in gone])
    return moved_to(found, x.axis - sum(one < x.axis for one in gone))


def _atoms(before: Shape, after: Shape) -> list[int]:
    """Extents of which both shapes are products of neighbours.

    >>> _atoms((6, 4), (2, 12))
    [2, 3, 4]
    """
    def edges(shape: Shape) -> set[int]:
        return {math.prod(shape[:i]) for i in range(1, len(shape) + 1)}

    ends = sorted(edges(before) | edges(after) | {1})
    if any(b % a for a, b in itertools.pairwise(ends)):
        raise UnsupportedError(f"the shape {before} as {after}, which mixes the images with other dimensions")
    return [b // a for a, b in itertools.pairwise(ends)]


def reshaped(w: Writer, rule: Any, x: Tensor, sizes: Any, *_: Any) -> Tensor:
    """In another shape, in which a dimension begins with the images: what is behind them there is more images."""
    known = math.prod(n for n in sizes if n >= 0)
    shape = tuple(math.prod(x.shape) // known if n < 0 else n for n in sizes)
    before = math.prod(x.shape[:x.axis])
    images = shape[0] // before if x.axis and shape else 0
    if images >= w.batch and images * before == shape[0] and x.shape[x.axis] % images == 0:
        # One dimension of these and the images, which linear layers leave as it is; heads may be behind it again
        found = reshaped(w, rule, x, (*x.shape[:x.axis], images, *shape[1:]))
        return dataclasses.replace(found, shape=shape, whole=found.shape)
    atoms = _atoms(x.shape, shape)
    begin = next((i for i in range(len(atoms)) if math.prod(atoms[:i]) == before), None)
    place = next((i for i in range(len(shape)) if math.prod(shape[:i]) == before and shape[i] >= w.batch), None)
    if begin is None or place is None or atoms[begin] % w.batch:
        raise UnsupportedError(f"the shape {x.shape} as {shape}, which mixes the images with other dimensions")
    # Behind those of the images before and after
    last, end = (next(i for i in range(begin, len(atoms) + 1) if math.prod(atoms[:i]) == many)
                 for many in (before * x.shape[x.axis], math.prod(shape[:place + 1])))
    order = [*range(begin, last), *range(begin), *range(last, len(atoms))]
    apart = w.reshape(images_first(x), tuple(atoms[i] for i in order))
    ordered = w.permute(apart, [order.index(i) for i in (*range(begin, end), *range(begin), *range(end, len(atoms)))])
    return moved_to(w.reshape(ordered, (shape[place], *shape[:place], *shape[place + 1:])), place)


def flattened(w: Writer, rule: Any, x: Tensor, start: int = 0, end: int = -1) -> Tensor:
    start, end = start % len(x.shape), end % len(x.shape)
    return reshaped(w, rule, x, (*x.shape[:start], math.prod(x.shape[start:end + 1]), *x.shape[end + 1:]))


def unflattened(w: Writer, rule: Any, x: Tensor, dim: int, sizes: Any) -> Tensor:
    dim %= len(x.shape)
    known = math.prod(n for n in sizes if n >= 0)
    return reshaped(w, rule, x, (*x.shape[:dim], *(x.shape[dim] // known if n < 0 else n for n in sizes),
                                 *x.shape[dim + 1:]))


def _alike(w: Writer, rule: Any, *args: Any, **named: Any) -> Any:
    """What sees no dimension, or the last one or two alone, which are not the images."""
    tensors = [one for one in args if isinstance(one, Tensor)]
    if any((one.axis, len(one.shape)) != (tensors[0].axis, len(tensors[0].shape)) for one in tensors):
        raise UnsupportedError("tensors whose images are in different places")
    return moved_to(rule(w, *(images_first(one) if isinstance(one, Tensor) else one for one in args), **named),
              tensors[0].axis)


def _in_rows(w: Writer, name: str, rule: Any, args: Any, kwargs: Any, rank: int) -> Any:
    """What is computed of tensors whose first dimensions, with the images, are one."""
    x = [dataclasses.replace(one, shape=one.whole, whole=None) if isinstance(one, Tensor) and one.whole else one
         for one in args]
    if ALONG.get(name) is reshaped:
        return written(w, name, rule, x, kwargs)
    if name not in ALIKE or name in ("matmul", "bmm") or any(isinstance(one, Tensor) and one is given for one, given in
                                                             zip(x, args, strict=True)):
        raise UnsupportedError("another dimension in the place of the images'")
    found = written(w, name, rule, x, kwargs)
    merged = rank - len(args[0].shape) + 1
    return dataclasses.replace(found, shape=(math.prod(found.shape[:merged]), *found.shape[merged:]), whole=found.shape)


#: Which dimensions of the input what is left sees: the last ones of these numbers
LAST = {"linear": 1, "layer_norm": 1, "matmul": 2, "bmm": 2, "scaled_dot_product_attention": 2}
ALONG: dict[str, Rule] = {
    "permute": permuted, **dict.fromkeys(("transpose", "swapaxes", "swapdims"), exchanged),
    "t": lambda w, rule, x: permuted(w, rule, x, (1, 0)),
    "unsqueeze": inserted, "squeeze": squeezed, "stack": stacked,
    **dict.fromkeys(("cat", "concat", "concatenate"), joined),
    **dict.fromkeys(("slice", "narrow", "softmax", "_softmax", "log_softmax", "_log_softmax", "index_select"), along),
    **dict.fromkeys(("select", "unbind"), without),
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), parts),
    **dict.fromkeys(("sum", "mean", "amax", "amin"), reduced),
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "_reshape_copy"), reshaped),
    "flatten": flattened, "unflatten": unflattened,
}
#: These may turn a tensor that is not
MOVING = {"permute", "transpose", "swapaxes", "swapdims", "t", "unsqueeze", "stack"}


def is_needed(name: str, tensors: Sequence[Tensor]) -> bool:
    """Return whether the images of some are not their first dimension, or may become another."""
    return bool(tensors) and (name in MOVING or any(one.axis for one in tensors))


def written(w: Writer, name: str, rule: Any, args: Any, kwargs: Any) -> Any:
    """Return what an operation gives of tensors whose images may be any dimension."""
    w.rewritten()
    if name.endswith("dropout") and not args[1]:
        return args[0]
    whole = next((one.whole for one in args if isinstance(one, Tensor) and one.whole), None)
    if whole is not None:
        return _in_rows(w, name, rule, args, kwargs, len(whole))
    if name in ALONG:
        return ALONG[name](w, rule, *args, **kwargs)
    first = next(one for one in args if isinstance(one, Tensor))
    if name not in ALIKE or first.axis >= len(first.shape) - LAST.get(name, 0):
        raise UnsupportedError("another dimension in the place of the images'")
    return _alike(w, rule, *args, **kwargs)


#: What sees no dimension but its last ones
ALIKE = {*LAST, *pointwise.LAYERS, "add", "sub", "subtract", "rsub", "mul", "multiply", "div", "divide", "true_divide",
         "neg", "pow", "dropout", "clamp", "clamp_min", "clamp_max", "hardtanh", "relu6", "elu", "selu", "celu",
         "log_sigmoid", "contiguous", "clone", "alias", "to", "_to_copy", "type_as"}
