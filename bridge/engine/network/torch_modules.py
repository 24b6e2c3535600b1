# SPDX-License-Identifier: MIT
"""Torch modules to models and back. torch is imported only when one of these is called."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bridge.common.errors import ArgumentError, ArgumentTypeError, FileError
from bridge.common.optional_packages import require
from bridge.engine.network.torch_graph import make_graph, read_graph
from bridge.exchange.model import Conv2d, Layer, Model, Pair, Relu

if TYPE_CHECKING:
    import torch
    from torch import nn

Array = np.ndarray


@dataclass(frozen=True)
class Found:
    """What a module is.

    Attributes
    ----------
    model : layers and loss
    dtype : of its parameters
    values : float64, of parameters and buffers by torch's names
    frozen : names of those that torch would not train (``requires_grad=False``)
    """

    model: Model
    dtype: str
    values: dict[str, Array]
    frozen: tuple[str, ...]


def read_module(module: nn.Module, *, loss: str, mean: bool, shape: tuple[int, ...] | None) -> Found:
    """Return the model of a module, and its values.

    Parameters
    ----------
    module : a chain of ``Conv2d`` and ``ReLU``, or what `read_graph` takes
    loss, mean : of the model
    shape : see `read_graph`
    """
    require("torch", "from_torch takes a torch.nn.Module")
    from torch import nn

    if not isinstance(module, nn.Module):
        raise ArgumentTypeError(f"module: {type(module).__qualname__}, expected torch.nn.Module")
    if hasattr(module, "_orig_mod"):
        raise ArgumentError("module: compiled by torch.compile, expected the module itself, which is its _orig_mod")
    for name, part in module.named_modules():
        _refuse_changes(name, part)
    # One ReLU object may stand in several places
    leaves = [(name, leaf) for name, leaf in module.named_modules(remove_duplicate=False) if not list(leaf.children())]
    _check_parameters(leaves)
    if loss == "mse" and all(name and type(leaf) in (nn.Conv2d, nn.ReLU) for name, leaf in leaves):
        try:
            model = Model(tuple(_read_layer(name, leaf) for name, leaf in leaves), mean)
            _check_chain(module, model, {name: value.detach().cpu().double() for name, value in _learned(leaves)})
        except ArgumentError:
            # It may be a graph; and why it is nothing else, too, says the call or the layer that is none of ours
            model, leaves = read_graph(module, loss, mean, shape)
    else:
        model, leaves = read_graph(module, loss, mean, shape)
    dtype = _check_parameters(leaves)
    values = {f"{name}.{kind}": value for name, leaf in leaves for kind, value in leaf.state_dict().items()}
    frozen = tuple(name for name, value in _learned(leaves) if not value.requires_grad)
    return Found(model, dtype, {name: value.cpu().double().numpy() for name, value in values.items()}, frozen)


def _learned(leaves: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Parameters by torch's names."""
    return [(f"{name}.{kind}", value) for name, leaf in leaves for kind, value in leaf.named_parameters()]


def make_module(model: Model, dtype: str, values: Mapping[str, Array], frozen: Collection[str]) -> nn.Module:
    """Return a module, a ``Sequential`` of a chain, with the layers and names of a model and copies of the parameters
    and buffers, some of the parameters frozen.
    """
    require("torch", "to_torch makes a torch.nn.Module")
    import torch
    from torch import nn

    if model.is_chain:
        layers: dict[str, nn.Module] = {}
        for layer in model.layers:
            if not isinstance(layer, Conv2d):
                layers[layer.name] = nn.ReLU()
            else:
                layers[layer.name] = nn.Conv2d(
                    layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding,
                    layer.dilation, layer.groups, layer.bias, dtype=getattr(torch, dtype))
        module: nn.Module = nn.Sequential()
        # not add_module, which refuses the dots of nested names
        module._modules.update(layers)
    else:
        module, layers = make_graph(model, dtype)
    with torch.no_grad():
        for name, array in values.items():
            layer_name, _, kind = name.rpartition(".")
            part = getattr(layers[layer_name], kind)
            part.copy_(torch.from_numpy(array))
            if isinstance(part, nn.Parameter):
                part.requires_grad_(name not in frozen)
    return module


def _refuse_changes(name: str, part: Any) -> None:
    """What makes a module compute something else than its type says."""
    if hasattr(part, "parametrizations"):
        raise ArgumentError(f"module: layer {name!r} has parametrizations, expected plain weights "
                            "(torch.nn.utils.parametrize.remove_parametrizations)")
    for kind in ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"):
        if getattr(part, kind, None):
            raise ArgumentError(f"module: layer {name!r} has {kind.strip('_').replace('_', ' ')}, expected none")


def _read_layer(name: str, leaf: Any) -> Layer:
    from torch import nn

    # Exactly these types: a subclass may compute something else
    if type(leaf) is nn.ReLU:
        return Relu(name)
    if type(leaf) is not nn.Conv2d:
        raise ArgumentTypeError(f"module: layer {name!r} is {type(leaf).__name__}, expected Conv2d or ReLU")
    kernel, stride, dilation = _pair(leaf.kernel_size), _pair(leaf.stride), _pair(leaf.dilation)
    layer = Conv2d(name, leaf.in_channels, leaf.out_channels, kernel, stride, _padding(name, leaf, kernel, dilation),
                   dilation, leaf.groups, leaf.bias is not None)
    if tuple(leaf.weight.shape) != layer.weight_shape:
        raise ArgumentError(f"module: layer {name!r} has a weight of the shape {tuple(leaf.weight.shape)}, expected "
                            f"{layer.weight_shape}")
    return layer


def _pair(value: Any) -> Pair:
    """torch takes one number for both sides."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)


def _padding(name: str, conv: Any, kernel: Pair, dilation: Pair) -> Pair:
    """Zeros on each side (height, width); torch's words turned into numbers."""
    total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    if conv.padding_mode != "zeros" or (conv.padding == "same" and any(n % 2 for n in total)):
        raise ArgumentError(f"module: layer {name!r} has padding {conv.padding!r} of mode {conv.padding_mode!r}, "
                            "expected numbers and zeros, the same on both sides")
    if isinstance(conv.padding, str):
        return (total[0] // 2, total[1] // 2) if conv.padding == "same" else (0, 0)
    return _pair(conv.padding)


def _check_parameters(leaves: list[tuple[str, Any]]) -> str:
    """Every layer has its own, of one element type, with finite values; the type's name."""
    owners: dict[int, str] = {}
    dtypes: dict[str, str] = {}
    for name, leaf in leaves:
        for kind, value in leaf.named_parameters():
            if value.is_meta or not value.dtype.is_floating_point:
                found = "on the meta device, without values" if value.is_meta else str(value.dtype)
                raise ArgumentError(f"module: the {kind} of layer {name!r} is {found}, expected floating-point values")
            if value.data_ptr() in owners:
                raise ArgumentError(f"module: layers {owners[value.data_ptr()]!r} and {name!r} share a {kind}, "
                                    "expected one for each convolution")
            owners[value.data_ptr()] = name
            if not bool(value.isfinite().all()):
                raise ArgumentError(f"module: the {kind} of layer {name!r} holds NaN or infinity, expected finite "
                                    "values")
            dtypes.setdefault(str(value.dtype).removeprefix("torch."), name)
    if len(dtypes) > 1:
        found = " and ".join(f"{dtype} (layer {name!r})" for dtype, name in dtypes.items())
        raise ArgumentTypeError(f"module: {found}, expected one element type")
    return next(iter(dtypes), "float32")


def _check_chain(module: nn.Module, model: Model, weights: Mapping[str, torch.Tensor]) -> None:
    """The module must give, to the bit, what the descriptions of its layers give one after the other."""
    import torch

    if not model.convolutions:
        return
    shape = (1, model.convolutions[0].in_channels, *_smallest_image(model))
    try:
        twin = copy.deepcopy(module).cpu().double()
    except Exception as error:
        raise ArgumentError(f"module: it cannot be copied: {error}") from None
    generator = torch.Generator().manual_seed(0)
    # Large values too, and both modes: a limit or a dropout shows
    for scale, training in itertools.product((1, 100), (False, True)):
        x = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
        try:
            with torch.no_grad():
                found = twin.train(training)(x.clone())
        except Exception as error:
            raise ArgumentError(f"module: it cannot be run on an input of the shape {shape}: {error}") from None
        if not isinstance(found, torch.Tensor) or not torch.equal(found, _chain(model, weights, x)):
            layers = ", ".join(layer.name for layer in model.layers)
            raise ArgumentError(f"module: its forward is not the chain of its layers ({layers}) in the order of "
                                "named_modules, expected every layer's output to be the next one's input")


def _chain(model: Model, weights: Mapping[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional

    for layer in model.layers:
        if not isinstance(layer, Conv2d):
            x = functional.relu(x)
        else:
            x = functional.conv2d(x, weights[f"{layer.name}.weight"], weights.get(f"{layer.name}.bias"), layer.stride,
                                  layer.padding, layer.dilation, layer.groups)
    return x


def _smallest_image(model: Model) -> tuple[int, int]:
    """A size that every layer can work on; a few pixels more than the smallest, so that no layer is trivial."""
    reason = ""
    for side in (2**n for n in range(1, 14)):
        try:
            model.output_shapes((1, model.convolutions[0].in_channels, side, side))
        except FileError as error:
            reason = str(error)
            continue
        return (side + 3, side + 2)
    raise ArgumentError(f"module: {reason}")
