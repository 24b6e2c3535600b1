# SPDX-License-Identifier: MIT
"""ATen's operations, each as layers that exchange files know.

A rule takes a `Writer` and the arguments of a call, in which `Tensor` and `Stored` stand for tensors, and returns the
output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from reference.network import pointwise
from reference.network.aten import masks, shapes, shared, volumes
from reference.network.aten.windows import (
    adaptive_average,
    adaptive_max,
    as_image,
    average,
    convolution,
    largest,
    padded,
    padding,
    resized,
    transposed_convolution,
)
from reference.network.aten.writing import Rule, Stored, Tensor, UnsupportedError, Writer, only, parameter
from reference.network.layers import Attention, Matmul, Reduce

# --- products -----------------------------------------------------------------------------------------------


def linear(w: Writer, x: Tensor, weight: Stored, bias: Stored | None = None) -> Tensor:
    layer = nn.Linear(1, 1)
    layer.out_features, layer.in_features = weight.value.size(0), weight.value.size(1)
    layer.weight, layer.bias = parameter(weight), parameter(bias)  # type: ignore[assignment]
    return w.add(layer, [x], (*x.shape[:-1], layer.out_features), weight=weight, bias=bias)


def matmul(w: Writer, one: Any, other: Any, suffix: str = "") -> Tensor:
    a: Any = getattr(one, "shape", ())
    b: Any = getattr(other, "shape", ())
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)) or min(len(a), len(b)) < 3 or (
            len(a) != len(b) and a[0] != b[0]):
        raise UnsupportedError("a product of other than two computed tensors (..., m, k) and (..., k, n)")
    count: Any = np.broadcast_shapes(*((x[0], *[1] * (max(len(a), len(b)) - len(x)), *x[1:-2]) for x in (a, b)))
    left, right = (broadcast(w, x, (*count, *x.shape[-2:])) for x in (one, other))
    return w.add(Matmul(), [left, right], (*count, a[-2], b[-1]), suffix)


def broadcast(w: Writer, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Repeated to a shape of as many dimensions, or of more behind the images."""
    whole = w.reshape(x, (x.shape[0], *[1] * (len(shape) - len(x.shape)), *x.shape[1:]))
    kept = [-1 if n == m else n for n, m in zip(shape, whole.shape, strict=True)]
    return shapes.expanded(w, whole, kept, suffix="expand")


def attention(w: Writer, query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, dropout_p: float = 0.0,
              is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False) -> Tensor:
    """Its definition: softmax of the scaled products along the keys, times the values."""
    only("enable_gqa", enable_gqa, False)
    w.rewritten()
    if (attn_mask is None and not dropout_p and scale != 0 and query.shape == key.shape
            and query.shape[:-1] == value.shape[:-1]):
        return w.add(Attention(is_causal, scale or 0.0), [query, key, value], value.shape)
    scores = matmul(w, query, w.transpose(key, -2, -1), "scores")
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = w.binary("multiply", scores, factor, "scaled")
    attn_mask = masks.of_attention(w, scores, attn_mask, is_causal)
    if attn_mask is not None:
        scores = w.binary("add", scores, attn_mask, "masked")
    found = along(nn.Softmax)(w, scores, -1, suffix="weights")
    if dropout_p:
        found = w.add(nn.Dropout(dropout_p), [found], found.shape, "dropout")
    return matmul(w, found, value)


# --- normalisations -----------------------------------------------------------------------------------------


def batch_norm(w: Writer, x: Tensor, weight: Stored | None, bias: Stored | None, mean: Stored | None,
               variance: Stored | None, training: bool, momentum: float, eps: float, cudnn: bool = False) -> Tensor:
    channels = x.shape[1]
    if weight is None or bias is None:
        # Numbers that nothing learns
        ones, zeros = (nn.Parameter(make(channels, dtype=w.real), False) for make in (torch.ones, torch.zeros))
        weight, bias = weight or Stored("", ones), bias or Stored("", zeros)
    of_volumes = len(x.shape) == volumes.VOLUMES
    layer = (nn.BatchNorm3d if of_volumes else nn.BatchNorm2d)(channels, eps, momentum,
                                                               track_running_stats=mean is not None)
    layer.weight, layer.bias = parameter(weight), parameter(bias)  # type: ignore[assignment]
    layer.train(training)
    buffers: dict[str, Stored | None] = {}
    if mean is not None and variance is not None:
        layer.running_mean, layer.running_var = mean.value, variance.value
        counter = w.counter_of(mean)
        layer.num_batches_tracked = None if counter is None else counter.value
        buffers = {"running_mean": mean, "running_var": variance, "num_batches_tracked": counter}
    images = x if of_volumes or len(x.shape) in (3, 4) else w.reshape(x, (*x.shape[:2], math.prod(x.shape[2:]), 1))
    x2 = images if of_volumes else as_image(w, images)
    y = w.add(layer, [x2], x2.shape, "", weight=weight, bias=bias, **buffers)
    return w.reshape(y, x.shape, len(x.shape) - 1 if len(x.shape) == 3 else None)


def instance_norm(w: Writer, x: Tensor, weight: Stored | None, bias: Stored | None, mean: Any, variance: Any,
                  by_input: bool, momentum: float, eps: float, cudnn: bool = False) -> Tensor:
    """A group normalisation of as many groups as channels."""
    if mean is not None:
        raise UnsupportedError("track_running_stats True, supported is False")
    w.rewritten()
    return group_norm(w, x, x.shape[1], weight, bias, eps)


def group_norm(w: Writer, x: Tensor, groups: int, weight: Stored | None = None, bias: Stored | None = None,
               eps: float = 1e-5, cudnn: bool = True) -> Tensor:
    if (weight is None) != (bias is None):
        raise UnsupportedError("a weight without a bias")
    layer = nn.GroupNorm(groups, x.shape[1], eps, affine=weight is not None)
    layer.weight, layer.bias = parameter(weight), parameter(bias)  # type: ignore[assignment]
    return w.add(layer, [x], x.shape, weight=weight, bias=bias)


def layer_norm(w: Writer, x: Tensor, shape: Any, weight: Stored | None = None, bias: Stored | None = None,
               eps: float = 1e-5, cudnn: bool = True) -> Tensor:
    layer = nn.LayerNorm(list(shape), eps, elementwise_affine=weight is not None, bias=bias is not None)
    layer.weight, layer.bias = parameter(weight), parameter(bias)  # type: ignore[assignment]
    return w.add(layer, [x], x.shape, weight=weight, bias=bias)


# --- one number of many, and many of one ----------------------------------------------------------------------


def reduced(kind: str) -> Rule:
    def rule(w: Writer, x: Tensor, dim: Any = (), keepdim: bool = False, dtype: Any = None) -> Any:
        if kind == "max" and isinstance(dim, Stored):
            return largest_of(w, x, dim)
        only("dtype", dtype, None)
        dims = sorted(d % len(x.shape) for d in (dim if isinstance(dim, (list, tuple)) else [dim]))
        if not dims or 0 in dims:
            raise UnsupportedError("over the images, too; supported are the other dimensions")
        shape = tuple(1 if i in dims else n for i, n in enumerate(x.shape) if keepdim or i not in dims)
        found = w.add(Reduce(kind, tuple(dims), keepdim), [x], shape)
        return (found, None) if kind in ("max", "min") else found

    return rule


def variance(w: Writer, x: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *,
             correction: Any = 1) -> Tensor:
    """The mean of the squared distances from the mean, or of their sum over as many less some."""
    correction = int(unbiased) if unbiased is not None else 1 if correction is None else correction
    dims = list(range(1, len(x.shape))) if dim is None else dim
    middle = w.binary("subtract", x, reduced("mean")(w, x, dims, True), "centred")
    square = w.add(pointwise.LAYERS["square"][0](), [middle], x.shape, "square")
    found: Tensor = reduced("mean")(w, square, dims, keepdim)
    count = math.prod(x.shape[d] for d in (dims if isinstance(dims, (list, tuple)) else [dims]))
    w.rewritten()
    return w.binary("multiply", found, count / (count - correction), "unbiased") if correction else found


def deviation(w: Writer, x: Tensor, *args: Any, **named: Any) -> Tensor:
    """The root of the variance, whose gradient at 0 is 0."""
    return root(w, variance(w, x, *args, **named))


def root(w: Writer, x: Tensor) -> Tensor:
    """Without a gradient at 0: it is that of the smallest number of float32 at least."""
    w.rewritten()
    found = w.add(pointwise.Clip(2.0**-126), [x], x.shape, "clip")
    return w.add(pointwise.LAYERS["sqrt"][0](), [found], found.shape, "root")


def norm(w: Writer, x: Tensor, order: Any = 2, dim: Any = None, keepdim: bool = False, **named: Any) -> Tensor:
    """The root of the sum of squares, whose gradient at 0 is 0."""
    only("ord", order, 2, 2.0)
    square = w.add(pointwise.LAYERS["square"][0](), [x], x.shape, "square")
    return root(w, reduced("sum")(w, square, list(range(1, len(x.shape))) if dim is None else dim, keepdim))


def along(layer: type[nn.Module]) -> Rule:
    def rule(w: Writer, x: Tensor, dim: int, dtype: Any = None, *, suffix: str = "") -> Tensor:
        only("dtype", dtype, None, w.real)
        dim %= len(x.shape)
        if dim == 0:
            raise UnsupportedError("dim 0, the images'")
        return w.add(layer(dim), [x], x.shape, suffix)

    return rule


def pointwise_of(kind: str) -> Rule:
    make = pointwise.making(kind)

    def rule(w: Writer, x: Tensor, *given: Any, **named: Any) -> Tensor:
        layer, _ = make(x, *given, **named)
        return w.add(layer, [x], x.shape)

    return rule


def elu(w: Writer, x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    only("input_scale", input_scale, 1, 1.0)
    found = w.add(nn.ELU(alpha), [x], x.shape)
    return found if scale == 1 else w.binary("multiply", found, scale, "scaled")


def selu(w: Writer, x: Tensor) -> Tensor:
    return elu(w, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


def celu(w: Writer, x: Tensor, alpha: float = 1.0) -> Tensor:
    """alpha times an ELU of x / alpha."""
    w.rewritten()
    found = w.add(nn.ELU(), [w.binary("divide", x, alpha, "scaled")], x.shape, "elu")
    return w.binary("multiply", found, alpha)


def log_sigmoid(w: Writer, x: Tensor) -> Tensor:
    """-softplus(-x)."""
    w.rewritten()
    return negative(w, w.add(nn.Softplus(), [w.binary("multiply", x, -1.0, "negative")], x.shape, "softplus"))


def clipped(w: Writer, x: Tensor, low: Any = -1.0, high: Any = 1.0) -> Tensor:
    """torch's hardtanh has no derivative at its ends, a clip has: at 0, where many numbers are, a ReLU is right."""
    if low != 0:
        return w.add(pointwise.Clip(low, high), [x], x.shape)
    return w.add(pointwise.Clip(None, high), [w.add(nn.ReLU(), [x], x.shape, "relu")], x.shape)


def prelu(w: Writer, x: Tensor, weight: Stored) -> Tensor:
    layer = nn.PReLU(weight.value.numel())
    layer.weight = parameter(weight)  # type: ignore[assignment]
    return w.add(layer, [x], x.shape, weight=weight)


def dropped(layer: type[nn.Module]) -> Rule:
    def rule(w: Writer, x: Tensor, p: float, training: bool) -> Tensor:
        return w.add(layer(p), [x], x.shape) if training and p else x

    return rule


def largest_of(w: Writer, x: Tensor, other: Any) -> Tensor:
    """The larger one of each number and of the smallest that there is, as masks of attention are made: the number."""
    if not (shared.is_constant(other) and bool((other.value <= -shared.HUGE).all()) and other.value.numel() == 1):
        raise UnsupportedError("the larger one of two numbers")
    return x


# --- arithmetic ---------------------------------------------------------------------------------------------


def arithmetic(kind: str, turned: bool = False) -> Rule:
    def rule(w: Writer, one: Any, other: Any, alpha: Any = 1, **named: Any) -> Tensor:
        only("rounding_mode", named.get("rounding_mode"), None)
        if alpha != 1:
            other = w.binary("multiply", other, alpha, "scaled") if isinstance(other, Tensor) else other * alpha
        return w.binary(kind, *((other, one) if turned else (one, other)))

    return rule


def negative(w: Writer, x: Tensor) -> Tensor:
    return w.binary("multiply", x, -1.0)


def power(w: Writer, x: Tensor, exponent: Any) -> Tensor:
    only("exponent", exponent, *pointwise.POWERS, 1, 3)
    if exponent not in (1, 2):
        w.rewritten()
    if exponent in pointwise.POWERS:
        return w.add(pointwise.LAYERS[pointwise.POWERS[exponent]][0](), [x], x.shape)
    if exponent == 1:
        return x
    return w.binary("multiply", w.add(pointwise.LAYERS["square"][0](), [x], x.shape, "squared"), x)


def same(w: Writer, x: Any, *_: Any, **named: Any) -> Any:
    """What computes nothing; a change of the type is refused where it is called."""
    return x


def _rows() -> dict[str, Rule]:
    """By the names of the operations, without those of their overloads."""
    return {
        **{kind: pointwise_of(kind) for kind in pointwise.LAYERS if kind not in ("elu", "gelu_tanh")},
        "clamp": pointwise_of("clip"), "clamp_min": lambda w, x, low: pointwise_of("clip")(w, x, low),
        "clamp_max": lambda w, x, high: pointwise_of("clip")(w, x, None, high),
        "hardtanh": clipped, "relu6": lambda w, x: clipped(w, x, 0.0, 6.0), "elu": elu, "selu": selu, "celu": celu,
        "log_sigmoid": log_sigmoid, "prelu": prelu,
        "conv1d": convolution, "conv2d": convolution, "conv_transpose1d": transposed_convolution,
        "conv_transpose2d": transposed_convolution, "linear": linear, "matmul": matmul, "bmm": matmul,
        "conv3d": volumes.convolution, "conv_transpose3d": volumes.transposed_convolution,
        "scaled_dot_product_attention": attention,
        "batch_norm": batch_norm, "instance_norm": instance_norm, "group_norm": group_norm, "layer_norm": layer_norm,
        "max_pool1d": largest, "max_pool2d": largest, "avg_pool1d": average, "avg_pool2d": average,
        "adaptive_avg_pool1d": adaptive_average, "adaptive_avg_pool2d": adaptive_average,
        "max_pool3d": volumes.pooling(nn.MaxPool3d), "avg_pool3d": volumes.pooling(nn.AvgPool3d),
        "adaptive_avg_pool3d": volumes.adaptive_average, "adaptive_max_pool3d": adaptive_max,
        "adaptive_max_pool1d": adaptive_max, "adaptive_max_pool2d": adaptive_max,
        "pad": padded, "constant_pad_nd": padding("constant"),
        **{f"{name}_pad{n}d": padding(mode) for n in (1, 2, 3)
           for name, mode in (("reflection", "reflect"), ("replication", "replicate"))},
        "upsample_nearest1d": resized("nearest"), "upsample_nearest2d": resized("nearest"),
        **dict.fromkeys(("_upsample_nearest_exact1d", "_upsample_nearest_exact2d"), resized("nearest-exact")),
        "upsample_bicubic2d": resized("bicubic"),
        "upsample_linear1d": resized("bilinear"), "upsample_bilinear2d": resized("bilinear"),
        "upsample_nearest3d": volumes.resized("nearest"), "upsample_trilinear3d": volumes.resized("trilinear"),
        **dict.fromkeys(("view", "reshape", "_unsafe_view", "_reshape_copy"), shapes.reshaped),
        "flatten": shapes.flattened, "unflatten": shapes.unflattened,
        "squeeze": shapes.squeezed, "unsqueeze": shapes.unsqueezed,
        **dict.fromkeys(("transpose", "swapaxes", "swapdims", "mT"), shapes.exchanged),
        "t": lambda w, x: shapes.exchanged(w, x, 0, 1),
        "permute": lambda w, x, dims: w.permute(x, dims),
        **dict.fromkeys(("cat", "concat", "concatenate"), shapes.concatenated), "stack": shapes.stacked,
        "slice": shapes.taken, "select": shapes.selected, "unbind": shapes.unbound, "chunk": shapes.chunked,
        **dict.fromkeys(("split", "split_with_sizes"), shapes.split),
        "narrow": lambda w, x, dim, start, length: shapes.taken(w, x, dim, start, start + length),
        "index": shapes.indexed, "index_select": shapes.index_selected,
        "gather": shapes.gathered, "maximum": largest_of,
        "expand": shapes.expanded, "flip": shapes.flipped, "roll": shapes.rolled,
        "pixel_shuffle": shapes.shuffled, "pixel_unshuffle": shapes.unshuffled,
        **{kind: reduced(kind) for kind in ("amax", "amin", "max", "mean", "min", "sum")},
        "softmax": along(nn.Softmax), "_softmax": lambda w, x, dim, _: along(nn.Softmax)(w, x, dim),
        "log_softmax": along(nn.LogSoftmax),
        "_log_softmax": lambda w, x, dim, _: along(nn.LogSoftmax)(w, x, dim),
        "dropout": dropped(nn.Dropout), "feature_dropout": volumes.dropped_channels,
        "add": arithmetic("add"), "sub": arithmetic("subtract"),
        "subtract": arithmetic("subtract"), "rsub": arithmetic("subtract", turned=True),
        "mul": arithmetic("multiply"), "multiply": arithmetic("multiply"),
        **dict.fromkeys(("div", "divide", "true_divide"), arithmetic("divide")),
        "neg": negative, "pow": power,
        **dict.fromkeys(("contiguous", "clone", "alias", "to", "_to_copy", "type_as", "lift_fresh", "lift_fresh_copy",
                         "positive"), same),
        "repeat": shapes.repeated, "where": masks.where, "masked_fill": masks.filled,
        "var": variance, "linalg_vector_norm": norm, "std": deviation,
        "reshape_as": lambda w, x, other: w.reshape(x, other.shape, None, ""),
        "view_as": lambda w, x, other: w.reshape(x, other.shape, None, ""),
    }


RULES: Mapping[str, Rule] = _rows()


def rule_of(operation: Any) -> tuple[Rule | None, bool]:
    """Return what writes an operation of ATen, and whether that is one which writes over its first argument.

    >>> rule_of(torch.ops.aten.add_.Tensor)[1], rule_of(torch.ops.aten.cumsum.default)
    (True, (None, False))
    """
    if not isinstance(operation, torch._ops.OpOverload) or operation.namespace != "aten":
        return None, False
    name = operation._schema.name.partition("::")[2]
    written = operation._schema.is_mutable
    return RULES.get(name.removesuffix("_") if written else name), written

