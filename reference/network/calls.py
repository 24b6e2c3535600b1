# SPDX-License-Identifier: MIT
"""Functions and methods of torch as layers: what makes a layer of the arguments of a call, and gives its inputs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from reference.network import pointwise
from reference.network.layers import Add, Concat, Divide, Matmul, Multiply, Reduce, Reshape, Subtract, Transpose

Made = tuple[nn.Module, list[Any]]


def _joining(layer: type[nn.Module]) -> Callable[..., Made]:
    def make(one: Any, other: Any) -> Made:
        if layer is Divide and not pointwise.is_inverse_exact(other):
            raise TypeError(f"a division by {other}")
        found = pointwise.with_number(layer.__name__.lower(), one, other)
        return (layer(), [one, other]) if found is None else (found[0], [found[1]])

    return make


def _power(input: Any, exponent: Any) -> Made:
    # Others round their derivative in another way than the functions that they are
    if exponent != 2:
        raise TypeError(f"exponent={exponent}, 2 is supported")
    return pointwise.LAYERS["square"][0](), [input]


def _cat(tensors: Any, dim: int = 0) -> Made:
    if dim == 0:
        raise TypeError(f"dim={dim}, another than the images' is supported")
    return Concat(dim) if len(tensors) != 1 else nn.Identity(), list(tensors)


def _flattened(x: Any, start_dim: int = 0, end_dim: int = -1) -> Made:
    return nn.Flatten(start_dim, end_dim), [x]


def _reshaped(x: Any, *sizes: Any, shape: Any = ()) -> Made:
    sizes = tuple(shape or sizes)
    sizes = tuple(sizes[0]) if sizes and isinstance(sizes[0], (tuple, list)) else sizes
    if not sizes:
        raise TypeError("shape=(), one dimension or more is supported")
    batch, *rest = sizes
    if not all(isinstance(one, int) for one in (batch, *rest)):
        raise TypeError(f"shape={sizes}, numbers are supported, and for the first the number of images")
    return Reshape(tuple(rest)), [x]


def _reduced(kind: str) -> Callable[..., Made]:
    def make(input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Made:
        dims = tuple(dim) if isinstance(dim, (tuple, list)) and kind not in ("max", "min") else (dim,)
        if dtype is not None or not dims or not all(isinstance(one, int) for one in dims):
            raise TypeError(f"dim={dim}, dtype={dtype}; supported are numbers, and no other type")
        return Reduce(kind, dims, keepdim), [input]

    return make


def _exchanged(x: Any, dim0: int, dim1: int) -> Made:
    return Transpose(dim0, dim1), [x]


def _probabilities(layer: type[nn.Module]) -> Callable[..., Made]:
    def make(input: Any, dim: int, dtype: Any = None, _stacklevel: int = 3) -> Made:
        if dtype is not None:
            raise TypeError(f"dtype={dtype}, none is supported")
        return layer(dim), [input]

    return make


def _interpolated(input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                  align_corners: Any = None, recompute_scale_factor: Any = None, antialias: bool = False) -> Made:
    if recompute_scale_factor or antialias or mode == "nearest-exact":
        raise TypeError("recompute_scale_factor, antialias, or mode='nearest-exact', none of which is supported")
    return nn.Upsample(size, scale_factor, mode, align_corners), [input]


def _by_rows(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Made:
    if weight is not None or bias is not None:
        raise TypeError("a weight or a bias, which are supported in nn.LayerNorm")
    return nn.LayerNorm(normalized_shape, eps, elementwise_affine=False), [input]


def _dropped(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Made:
    return nn.Dropout(p).train(training), [input]


def _dropped_channels(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Made:
    return nn.Dropout2d(p).train(training), [input]


def _padded(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Made:
    layers = {"constant": nn.ZeroPad2d, "reflect": nn.ReflectionPad2d, "replicate": nn.ReplicationPad2d}
    if mode not in layers or value or len(pad) not in (2, 4):
        raise TypeError(f"mode={mode}, value={value}, pad={pad}; supported are {', '.join(layers)} with zeros, on two "
                        "or four sides")
    return layers[mode]((*pad, 0, 0)[:4]), [input]


#: Those that write over their first argument
OVERWRITING = {operator.iadd, operator.isub, operator.imul, operator.itruediv}
#: Those that are known
FUNCTIONS: Mapping[Any, Callable[..., Made]] = {
    **dict.fromkeys((operator.add, operator.iadd, torch.add, torch.Tensor.add), _joining(Add)),
    **dict.fromkeys((operator.sub, operator.isub, torch.sub, torch.subtract, torch.Tensor.sub, torch.Tensor.subtract),
                    _joining(Subtract)),
    **dict.fromkeys((operator.mul, operator.imul, torch.mul, torch.multiply, torch.Tensor.mul, torch.Tensor.multiply),
                    _joining(Multiply)),
    **dict.fromkeys((operator.truediv, operator.itruediv, torch.div, torch.divide, torch.true_divide, torch.Tensor.div,
                     torch.Tensor.divide), _joining(Divide)),
    **dict.fromkeys((operator.matmul, torch.matmul, torch.bmm, torch.mm, torch.Tensor.matmul, torch.Tensor.bmm,
                     torch.Tensor.mm), _joining(Matmul)),
    **dict.fromkeys((operator.neg, torch.neg, torch.negative, torch.Tensor.neg, torch.Tensor.negative),
                    lambda input: (pointwise.Affine(-1.0), [input])),
    **dict.fromkeys((operator.pow, torch.pow, torch.Tensor.pow), _power),
    torch.cat: _cat, torch.concat: _cat,
    **{call: pointwise.making(kind) for kind in pointwise.LAYERS for call in pointwise.calls(kind)},
    torch.softmax: _probabilities(nn.Softmax), functional.softmax: _probabilities(nn.Softmax),
    torch.Tensor.softmax: _probabilities(nn.Softmax),
    torch.log_softmax: _probabilities(nn.LogSoftmax), functional.log_softmax: _probabilities(nn.LogSoftmax),
    torch.Tensor.log_softmax: _probabilities(nn.LogSoftmax),
    functional.interpolate: _interpolated, functional.pad: _padded,
    functional.dropout: _dropped, functional.dropout2d: _dropped_channels,
    functional.layer_norm: _by_rows,
    torch.reshape: _reshaped, torch.Tensor.reshape: _reshaped, torch.Tensor.view: _reshaped,
    **dict.fromkeys((torch.unflatten, torch.Tensor.unflatten), lambda x, dim, sizes: (nn.Unflatten(dim, sizes), [x])),
    **dict.fromkeys((torch.transpose, torch.Tensor.transpose, torch.swapaxes, torch.Tensor.swapaxes), _exchanged),
    **{call: _reduced(kind) for kind in ("amax", "amin", "max", "mean", "min", "sum")
       for call in (getattr(torch, kind), getattr(torch.Tensor, kind))},
    torch.flatten: _flattened, torch.Tensor.flatten: _flattened,
    functional.max_pool2d: lambda x, *args, **options: (nn.MaxPool2d(*args, **options), [x]),
    functional.avg_pool2d: lambda x, *args, **options: (nn.AvgPool2d(*args, **options), [x]),
    functional.adaptive_avg_pool2d: lambda x, size: (nn.AdaptiveAvgPool2d(size), [x]),
    functional.max_pool3d: lambda x, *args, **options: (nn.MaxPool3d(*args, **options), [x]),
    functional.avg_pool3d: lambda x, *args, **options: (nn.AvgPool3d(*args, **options), [x]),
    functional.adaptive_avg_pool3d: lambda x, size: (nn.AdaptiveAvgPool3d(size), [x]),
}
