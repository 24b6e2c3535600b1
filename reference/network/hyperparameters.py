# SPDX-License-Identifier: MIT
"""What exchange files say of a layer: its type, and its hyperparameters.

Source: docs/exchange-file.md lists the operations and their hyperparameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from reference.errors import InputError, one_line
from reference.network import pointwise
from reference.network.layers import (
    Add,
    Attention,
    CircularPad,
    ComplexLinear,
    Concat,
    ConstantPad,
    Divide,
    Embedding,
    Expand,
    Flip,
    GatherRows,
    IndexSelect,
    MaskedDropout,
    Matmul,
    Multiply,
    Parameter,
    Permute,
    Recurrent,
    Reduce,
    Reshape,
    Roll,
    Slice,
    Subtract,
    Transpose,
)
from reference.network.program import Aten, described
from reference.spline import Spline

Hyperparameters = dict[str, Any]
Describe = Callable[[str, Any], tuple[str, Hyperparameters]]
#: Numbers along each axis, of one for all
Several = Callable[[Any], list[int]]


def is_operation(layer: nn.Module) -> bool:
    """Return whether it is a layer that exchange files know, and no class made from one."""
    return type(layer) in _LAYERS


def hyperparameters(name: str, layer: nn.Module) -> tuple[str, Hyperparameters]:
    """Return the type and the hyperparameters of a layer as format 2 of an exchange file has them.

    Raises
    ------
    InputError
        If it is no operation of exchange files, or has an option that they do not know.
    """
    describe = _LAYERS.get(type(layer))
    if describe is None:
        known = ", ".join(sorted(one.__name__ for one in _LAYERS))
        raise InputError(f"layer '{name}' is {type(layer).__name__}; supported are {known}")
    try:
        return describe(name, layer)
    except InputError:
        raise
    except (TypeError, ValueError) as error:  # what is no number where one is expected
        raise InputError(f"layer '{name}' ({type(layer).__name__}): {one_line(error)}") from None


def padding_of(name: str, conv: nn.Conv2d | nn.Conv3d) -> list[int]:
    """Zero padding of each axis in pixels on each side; words of torch turned into numbers."""
    if conv.padding_mode != "zeros":
        raise InputError(f"layer '{name}': padding_mode '{conv.padding_mode}' found, 'zeros' is supported")
    several = triple if isinstance(conv, nn.Conv3d) else pair
    if conv.padding == "valid":
        return several(0)
    if conv.padding != "same":
        return several(conv.padding)
    both_sides = [d * (k - 1) for d, k in zip(several(conv.dilation), several(conv.kernel_size), strict=True)]
    if any(total % 2 for total in both_sides):
        raise InputError(
            f"layer '{name}': padding 'same' of a {'x'.join(map(str, conv.kernel_size))} kernel is "
            "not the same on both sides; numbers are supported"
        )
    return [total // 2 for total in both_sides]


def pair(value: Any) -> list[int]:
    """Return height and width of what torch takes as one number for both, too.

    >>> pair(3), pair((1, 2)), pair((1,))
    ([3, 3], [1, 2], [1, 1])
    """
    found = [int(n) for n in value] if isinstance(value, (tuple, list)) else [int(value)]
    return found * 2 if len(found) == 1 else found


def triple(value: Any) -> list[int]:
    """Return depth, height and width of what torch takes as one number for all of them, too.

    >>> triple(3), triple((1, 2, 3)), triple([4])
    ([3, 3, 3], [1, 2, 3], [4, 4, 4])
    """
    given = [int(n) for n in value] if isinstance(value, (tuple, list)) else [int(value)]
    return given * 3 if len(given) == 1 else given


def _conv(kind: str, several: Several) -> Describe:
    def describe(name: str, layer: Any) -> tuple[str, Hyperparameters]:
        return kind, {
            "in_channels": layer.in_channels, "out_channels": layer.out_channels,
            "kernel_size": several(layer.kernel_size), "stride": several(layer.stride),
            "padding": padding_of(name, layer), "dilation": several(layer.dilation), "groups": layer.groups,
            "bias": int(layer.bias is not None)}

    return describe


def _conv_transpose(kind: str, several: Several) -> Describe:
    def describe(name: str, layer: Any) -> tuple[str, Hyperparameters]:
        _only(name, layer, padding_mode="zeros")
        return kind, {
            "in_channels": layer.in_channels, "out_channels": layer.out_channels,
            "kernel_size": several(layer.kernel_size), "stride": several(layer.stride),
            "padding": several(layer.padding), "output_padding": several(layer.output_padding),
            "dilation": several(layer.dilation), "groups": layer.groups, "bias": int(layer.bias is not None)}

    return describe


def _linear(_: str, layer: Any) -> tuple[str, Hyperparameters]:
    return "linear", {"in_features": layer.in_features, "out_features": layer.out_features,
                      "bias": int(layer.bias is not None)}


def _attention(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    return "attention", {"is_causal": int(layer.is_causal), "scale": float(layer.scale)}


def _complex_linear(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    return "complex_linear", {one: getattr(layer, one) for one in ("in_channels", "out_channels", "places")}


def _embedding(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    _only(name, layer, max_norm=None, scale_grad_by_freq=False)
    found = {"num_embeddings": layer.num_embeddings, "embedding_dim": layer.embedding_dim}
    return "embedding", found if layer.padding_idx is None else found | {"padding_idx": layer.padding_idx}


def _recurrent(name: str, layer: Recurrent) -> tuple[str, Hyperparameters]:
    found = {"hidden_size": layer.hidden_size, "bias": int(layer.bias is not None), "reverse": int(layer.reverse)}
    return layer.kind, found | ({"relu": int(layer.relu)} if layer.kind == "rnn" else {})


def _gather_rows(_: str, layer: Any) -> tuple[str, Hyperparameters]:
    return "gather_rows", {} if layer.padding_idx < 0 else {"padding_idx": layer.padding_idx}


def _spline(_: str, layer: Any) -> tuple[str, Hyperparameters]:
    return "spline", {"in_features": layer.in_features, "out_features": layer.out_features, "grid": layer.grid,
                      "order": layer.order, "low": float(layer.low), "high": float(layer.high),
                      "scale_spline": int(layer.scale_spline is not None)}


def _pooling(kind: str, several: Several = pair) -> Describe:
    def describe(name: str, layer: Any) -> tuple[str, Hyperparameters]:
        _only(name, layer, return_indices=False)
        stride = layer.kernel_size if layer.stride is None else layer.stride
        found = {name: several(one) for name, one in (
            ("kernel_size", layer.kernel_size), ("stride", stride), ("padding", layer.padding))}
        divisor = getattr(layer, "divisor_override", None) or 0
        if divisor < 0:
            raise InputError(f"layer '{name}' ({type(layer).__name__}): divisor_override {divisor} found, a positive "
                             "one is supported")
        more = {"dilation": several(getattr(layer, "dilation", 1)), "ceil_mode": int(layer.ceil_mode),
                "count_include_pad": int(getattr(layer, "count_include_pad", True)), "divisor_override": divisor}
        # Files without them are read by all versions
        usual = {"dilation": several(1), "ceil_mode": 0, "count_include_pad": 1, "divisor_override": 0}
        return kind, found | {option: value for option, value in more.items() if value != usual[option]}

    return describe


def _adaptive_pool(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    size = layer.output_size if isinstance(layer.output_size, (tuple, list)) else [layer.output_size] * 2
    if None in size:
        raise InputError(f"layer '{name}': output_size {layer.output_size} found, two integers are supported")
    if isinstance(layer, nn.AdaptiveMaxPool2d):
        _only(name, layer, return_indices=False)
        return "adaptive_max_pool2d", {"output_size": list(size)}
    return ("global_avg_pool2d", {}) if list(size) == [1, 1] else ("adaptive_avg_pool2d", {"output_size": list(size)})


def _adaptive_pool_3d(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    size = layer.output_size if isinstance(layer.output_size, (tuple, list)) else [layer.output_size] * 3
    if None in size:
        raise InputError(f"layer '{name}': output_size {layer.output_size} found, three integers are supported")
    return "adaptive_avg_pool3d", {"output_size": list(size)}


def _batch_norm(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    _only(name, layer, affine=True)
    found = {"num_features": layer.num_features, "eps": float(layer.eps)}
    if layer.running_mean is None:
        return "batch_norm2d", found
    _only(name, layer, track_running_stats=True)
    if layer.momentum is None:
        raise InputError(f"layer '{name}' ({type(layer).__name__}): momentum None found, a number is supported")
    return "batch_norm2d", found | {"momentum": float(layer.momentum), "track_running_stats": 1,
                                    "training": int(layer.training)}


def _layer_norm(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    return "layer_norm", {"normalized_shape": list(layer.normalized_shape), "eps": float(layer.eps),
                          "elementwise_affine": int(layer.elementwise_affine), "bias": int(layer.bias is not None)}


def _group_norm(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    return "group_norm", {"num_groups": layer.num_groups, "num_channels": layer.num_channels, "eps": float(layer.eps),
                          "affine": int(layer.affine)}


def _dropout(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    if not layer.p < 1:
        raise InputError(f"layer '{name}' ({type(layer).__name__}): p {layer.p} found, less than 1 is supported")
    of_channels = layer.of_channels if isinstance(layer, MaskedDropout) else isinstance(layer, nn.Dropout2d)
    return "dropout2d" if of_channels else "dropout", {"p": float(layer.p)}


def _flatten(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    _only(name, layer, start_dim=1, end_dim=-1)
    return "flatten", {}


def _reshape(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    shape = layer.shape if isinstance(layer, Reshape) else tuple(layer.unflattened_size)
    # How many dimensions there are is not known here: the last of two is what is usual
    if getattr(layer, "dim", 1) not in (1, -1) or not 1 <= len(shape) <= 7:
        raise InputError(f"layer '{name}' ({type(layer).__name__}): {getattr(layer, 'dim', 1)} to {shape} found, "
                         "dimension 1 to one of up to seven is supported")
    more = {"fixed": 1} if getattr(layer, "fixed", False) else {}
    more |= {"images": layer.images} if getattr(layer, "images", 1) != 1 else {}
    return "reshape", {"shape": list(shape)} | more


def _transpose(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    return "transpose", {"dim0": layer.dims[0], "dim1": layer.dims[1]}


def _reduce(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    return layer.kind, {"dim": list(layer.dim), "keepdim": int(layer.keepdim)}


def _upsample_3d(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    """Of volumes, by whole multiples."""
    _only(name, layer, size=None)
    if layer.mode not in ("nearest", "trilinear"):
        _only(name, layer, mode="nearest or trilinear")
    factors = layer.scale_factor if isinstance(layer.scale_factor, (tuple, list)) else [layer.scale_factor] * 3
    if any(factor is None or factor < 1 or factor != int(factor) for factor in factors):
        raise InputError(f"layer '{name}' ({type(layer).__name__}): scale_factor {layer.scale_factor} found, integers "
                         "are supported")
    scale = {"scale_factor": triple(tuple(factors))}
    if layer.mode == "nearest":
        return "upsample_nearest3d", scale
    return "upsample_trilinear3d", scale | {"align_corners": int(bool(layer.align_corners))}


#: Degrees of the polynomials between pixels, by torch's modes
DEGREES = {"nearest": 0, "nearest-exact": 0, "bilinear": 1, "bicubic": 3}


def _upsample(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    if layer.mode == "trilinear" or (isinstance(layer.scale_factor, (tuple, list)) and len(layer.scale_factor) == 3):
        return _upsample_3d(name, layer)
    if layer.mode not in DEGREES:
        _only(name, layer, mode=" or ".join(DEGREES))
    if layer.recompute_scale_factor:
        _only(name, layer, recompute_scale_factor=None)
    align = {"align_corners": int(bool(layer.align_corners))}
    exact = {"exact": 1} if layer.mode == "nearest-exact" else {}
    kind = {"degree": DEGREES[layer.mode]} | (align if layer.align_corners else {}) | exact
    given = layer.scale_factor if layer.size is None else layer.size
    factors = list(given) * (3 - len(given)) if isinstance(given, (tuple, list)) else [given] * 2
    if len(factors) != 2 or any(factor is None for factor in factors):
        raise InputError(f"layer '{name}' ({type(layer).__name__}): {'size' if layer.size else 'scale_factor'} {given} "
                         "found, a height and a width are supported")
    if layer.size is not None:
        return "interpolate", kind | {"size": pair(factors)}
    if layer.mode not in ("nearest", "bilinear") or any(factor < 1 or factor != int(factor) for factor in factors):
        return "interpolate", kind | {"scale_factor": [float(factor) for factor in factors]}
    scale = {"scale_factor": pair(factors)}
    return ("upsample_nearest2d", scale) if layer.mode == "nearest" else ("upsample_bilinear2d", scale | align)


def _padding(kind: str) -> Describe:
    def describe(name: str, layer: Any) -> tuple[str, Hyperparameters]:
        if getattr(layer, "value", 0) != 0 or len(layer.padding) != 4 or min(layer.padding) < 0:
            raise InputError(f"layer '{name}' ({type(layer).__name__}): padding {layer.padding} found, four integers "
                             "from 0 on are supported, and no other value than 0")
        return kind, {"padding": list(layer.padding)}

    return describe


def _along(kind: str) -> Describe:
    """The channels are what files without a dimension mean."""
    def describe(name: str, layer: Any) -> tuple[str, Hyperparameters]:
        if not isinstance(layer.dim, int):
            raise InputError(f"layer '{name}' ({type(layer).__name__}): dim {layer.dim} found, a number is supported")
        return kind, {} if layer.dim == 1 else {"dim": layer.dim}

    return describe


def _only(name: str, layer: Any, **wanted: Any) -> None:
    for option, value in wanted.items():
        found = getattr(layer, option, value)
        if found != value and found not in ((value,) * 2, (value,) * 3):
            raise InputError(f"layer '{name}' ({type(layer).__name__}): {option} {found} found, {value} is supported")


_LAYERS: Mapping[type, Describe] = {
    nn.Conv2d: _conv("conv2d", pair),
    nn.Conv3d: _conv("conv3d", triple),
    nn.ConvTranspose2d: _conv_transpose("conv_transpose2d", pair),
    nn.ConvTranspose3d: _conv_transpose("conv_transpose3d", triple),
    nn.Linear: _linear,
    **{layer: pointwise.describing(kind) for kind, (layer, _) in pointwise.LAYERS.items()},
    nn.Softmax: _along("softmax"),
    nn.LogSoftmax: _along("log_softmax"),
    nn.Upsample: _upsample,
    nn.UpsamplingNearest2d: _upsample,
    nn.UpsamplingBilinear2d: _upsample,
    nn.ZeroPad2d: _padding("zero_pad2d"),
    nn.ReflectionPad2d: _padding("reflection_pad2d"),
    nn.ReplicationPad2d: _padding("replication_pad2d"),
    nn.MaxPool2d: _pooling("max_pool2d"),
    nn.AvgPool2d: _pooling("avg_pool2d"),
    nn.MaxPool3d: _pooling("max_pool3d", triple),
    nn.AvgPool3d: _pooling("avg_pool3d", triple),
    nn.AdaptiveAvgPool2d: _adaptive_pool,
    nn.AdaptiveAvgPool3d: _adaptive_pool_3d,
    nn.AdaptiveMaxPool2d: _adaptive_pool,
    nn.BatchNorm2d: _batch_norm,
    nn.BatchNorm3d: _batch_norm,
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
    nn.Flatten: _flatten,
    nn.Unflatten: _reshape,
    Reshape: _reshape,
    Transpose: _transpose,
    Permute: lambda _, layer: ("permute", {"dims": list(layer.dims)}),
    Slice: lambda _, layer: ("slice", {"dim": layer.dim, "start": layer.start, "stop": layer.stop, "step": layer.step}),
    Flip: lambda _, layer: ("flip", {"dims": list(layer.dims)}),
    Roll: lambda _, layer: ("roll", {"shifts": list(layer.shifts), "dims": list(layer.dims)}),
    ConstantPad: lambda _, layer: ("constant_pad", {"pad": list(layer.pad), "value": float(layer.value)}),
    CircularPad: lambda _, layer: ("circular_pad", {"pad": list(layer.pad)}),
    Expand: lambda _, layer: ("expand", {"shape": list(layer.shape)}),
    Parameter: lambda _, layer: ("parameter", {"shape": list(layer.shape)}),
    Attention: _attention, ComplexLinear: _complex_linear, nn.Embedding: _embedding, Embedding: _embedding,
    GatherRows: _gather_rows,
    Recurrent: _recurrent,
    IndexSelect: lambda _, layer: ("index_select", {"dim": layer.dim, "indices": list(layer.indices)}),
    Reduce: _reduce,
    Add: lambda *_: ("add", {}),
    Subtract: lambda *_: ("subtract", {}),
    Multiply: lambda *_: ("multiply", {}),
    Divide: lambda *_: ("divide", {}),
    nn.PReLU: lambda _, layer: ("prelu", {"num_parameters": layer.num_parameters}),
    Concat: _along("concat"),
    nn.PixelShuffle: lambda _, layer: ("pixel_shuffle", {"upscale_factor": layer.upscale_factor}),
    nn.PixelUnshuffle: lambda _, layer: ("pixel_unshuffle", {"downscale_factor": layer.downscale_factor}),
    Matmul: lambda *_: ("matmul", {}),
    Spline: _spline,
    nn.Dropout: _dropout,
    nn.Dropout2d: _dropout,
    MaskedDropout: _dropout,
    Aten: described,
}
