# SPDX-License-Identifier: MIT
"""Layers whose weights are operands: those that several calls take, and those that are computed of others.

A layer of exchange files has its weights itself. Here they are tensors of each image, and a convolution is a product
with the numbers below each place of its kernel; its images have one size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import nn

from reference.network.aten import image_axis, rules, shapes, shared
from reference.network.aten.windows import padded
from reference.network.aten.writing import (
    Rule,
    Shape,
    Stored,
    Tensor,
    UnsupportedError,
    Writer,
    only,
    parameter,
    shape_of,
)
from reference.network.layers import ComplexLinear, Embedding, GatherRows

Weight = Stored | Tensor


def are_needed(w: Writer, args: Any) -> bool:
    """Return whether a weight behind the first argument is a tensor, or one that several calls take."""
    return any(isinstance(one, Tensor) or (isinstance(one, Stored) and one.name in w.several)
               for one in shared.leaves(args[1:]))


def _of(x: Tensor, w: Writer, weight: Weight, shape: Shape) -> Tensor:
    """The weight in that shape, for as many images as the input has."""
    if isinstance(weight, Tensor) and weight.images:
        raise UnsupportedError("a weight that depends on the input")
    own = shared.lifted(w, weight, shape_of(weight))
    return shared.spread(w, w.reshape(own, (w.batch, *shape)), x.shape[0])


def _with(w: Writer, kind: str, y: Tensor, of: Weight | None, axis: int) -> Tensor:
    """The output and one number for each index of a dimension."""
    if of is None:
        return y
    extents = tuple(n if i == axis % len(y.shape) else 1 for i, n in enumerate(y.shape))
    return w.binary(kind, y, _of(y, w, of, extents[1:]), {"add": "biased", "multiply": "weighted"}[kind])


def linear(w: Writer, x: Tensor, weight: Weight, bias: Weight | None = None) -> Tensor:
    """The product of all rows with the weight."""
    k, c = shape_of(weight)
    rows = w.reshape(x, (x.shape[0], math.prod(x.shape[1:-1]), c))
    y = rules.matmul(w, rows, w.transpose(_of(x, w, weight, (k, c)), -2, -1), "product")
    return _with(w, "add", w.reshape(y, (*x.shape[:-1], k)), bias, -1)


def convolution(w: Writer, x: Tensor, weight: Weight, bias: Weight | None = None, stride: Any = 1, padding: Any = 0,
                dilation: Any = 1, groups: int = 1) -> Tensor:
    """The product of the weight with all numbers below each place of the kernel, of any number of dimensions."""
    k, c, *kernel = shape_of(weight)

    def sides(value: Any) -> list[int]:
        found = list(value) if isinstance(value, (list, tuple)) else [value]
        return found * len(kernel) if len(found) == 1 else found

    steps, spreads = sides(stride), sides(dilation)
    if padding == "same":
        both = [d * (n - 1) for n, d in zip(kernel, spreads, strict=True)]
        border = [one for n in reversed(both) for one in (n // 2, n - n // 2)]
    else:
        border = [one for n in reversed(sides(0 if padding == "valid" else padding)) for one in (n, n)]
    taps = [padded(w, x, border)]
    for i, (n, step, spread) in enumerate(zip(kernel, steps, spreads, strict=True)):
        last = taps[0].shape[2 + i] - spread * (n - 1)
        taps = [shapes.taken(w, one, 2 + i, spread * j, spread * j + last, step, "slice") for one in taps
                for j in range(n)]
    pixels, count = taps[0].shape[2:], len(taps)
    columns = w.reshape(shapes.concatenated(w, taps, 1), (x.shape[0], count, groups, c, math.prod(pixels)))
    columns = w.reshape(w.permute(columns, [0, 2, 1, 3, 4]), (x.shape[0], groups, count * c, math.prod(pixels)))
    rows = w.transpose(_of(x, w, weight, (groups, k // groups, c, count)), -2, -1)
    rows = w.reshape(rows, (x.shape[0], groups, k // groups, count * c))
    y = w.reshape(rules.matmul(w, rows, columns, "product"), (x.shape[0], k, *pixels))
    return _with(w, "add", y, bias, 1)


def _normalised(axis: int) -> Rule:
    """A normalisation without weights, times them; they are in one dimension."""
    def rule(w: Writer, x: Tensor, sizes: Any, weight: Weight | None = None, bias: Weight | None = None,
             eps: float = 1e-5, *_: Any) -> Tensor:
        if axis < 0 and len(sizes) > 1:
            raise UnsupportedError(f"a normalisation over {list(sizes)} whose weight is an operand: over the last "
                                   "dimension it is supported")
        plain = rules.layer_norm if axis < 0 else rules.group_norm
        y = plain(w, x, sizes, None, None, eps)
        return _with(w, "add", _with(w, "multiply", y, weight, axis), bias, axis)

    return rule


def instance_norm(w: Writer, x: Tensor, weight: Weight | None, bias: Weight | None, mean: Any, variance: Any,
                  by_input: bool, momentum: float, eps: float, *_: Any) -> Tensor:
    if mean is not None:
        raise UnsupportedError("track_running_stats True, supported is False")
    found: Tensor = _normalised(1)(w, x, x.shape[1], weight, bias, eps)
    return found


def batch_norm(w: Writer, x: Tensor, weight: Weight | None, bias: Weight | None, mean: Any, variance: Any,
               training: bool, momentum: float, eps: float, *_: Any) -> Tensor:
    """One without running statistics; these are one layer's."""
    if mean is not None:
        raise UnsupportedError("a batch normalisation with running statistics that several calls take")
    y = rules.batch_norm(w, x, None, None, None, None, training, momentum, eps)
    return _with(w, "add", _with(w, "multiply", y, weight, 1), bias, 1)


def embedding(w: Writer, weight: Weight, x: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False,
              sparse: bool = False) -> Tensor:
    """The rows of a table that are learned, of one that several calls take, or of one that is computed."""
    only("scale_grad_by_freq", scale_grad_by_freq, False)
    if x.axis:
        first = embedding(w, weight, image_axis.images_first(x), padding_idx)
        return image_axis.moved_to(first, x.axis)
    rows, width = shape_of(weight)
    shape = (*x.shape, width)
    if are_needed(w, (None, weight)):
        return w.add(GatherRows(padding_idx), [_of(x, w, weight, (rows, width)), x], shape)
    assert isinstance(weight, Stored)
    layer = Embedding(1, 1)
    layer.num_embeddings, layer.embedding_dim = rows, width
    layer.padding_idx = None if padding_idx < 0 else padding_idx
    layer.weight = parameter(weight)  # type: ignore[assignment]
    return w.add(layer, [x], shape, weight=weight)


def complex_linear(w: Writer, x: Tensor, weight: Weight) -> Tensor:
    """What a complex matrix of each place makes of the channels."""
    if not isinstance(weight, Stored) or are_needed(w, (None, weight)):
        raise UnsupportedError("complex weights that several calls take, or that are computed")
    first = image_axis.images_first(x)
    # The module has no layer of its own for it
    w.base = weight.name
    layer = ComplexLinear(1, 1, 1)
    layer.in_channels, layer.out_channels, layer.places, _ = weight.value.shape
    layer.weight = parameter(weight)  # type: ignore[assignment]
    return w.add(layer, [first], (first.shape[0], layer.out_channels, *first.shape[2:]), weight=weight)


def prelu(w: Writer, x: Tensor, weight: Weight) -> Tensor:
    """relu(x) - weight relu(-x)."""
    above = w.add(nn.ReLU(), [x], x.shape, "above")
    below = w.add(nn.ReLU(), [w.binary("multiply", x, -1.0, "negative")], x.shape, "below")
    count = math.prod(shape_of(weight))
    factor = _of(x, w, weight, (count, *[1] * (len(x.shape) - 2)) if count > 1 else (1,) * (len(x.shape) - 1))
    return w.binary("subtract", above, w.binary("multiply", below, factor, "weighted"))


RULES: Mapping[str, Rule] = {
    "linear": linear, **dict.fromkeys(("conv1d", "conv2d", "conv3d"), convolution), "prelu": prelu,
    "batch_norm": batch_norm, "instance_norm": instance_norm, "group_norm": _normalised(1),
    "layer_norm": _normalised(-1),
}
