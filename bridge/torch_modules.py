# SPDX-License-Identifier: MIT
"""Torch modules to models and back. torch is imported only when one of these is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bridge.errors import ArgumentError, ArgumentTypeError, FileError
from bridge.model import Conv2d, Layer, Model, Relu

if TYPE_CHECKING:
    from torch import nn

Array = np.ndarray


def read_module(module: nn.Module, *, mean: bool) -> tuple[Model, str, dict[str, Array]]:
    """Model, element type and float64 weights (by torch's names) of a chain of ``Conv2d`` and ``ReLU``."""
    # One ReLU object may stand in several places
    leaves = [(name, leaf) for name, leaf in module.named_modules(remove_duplicate=False) if not list(leaf.children())]
    model = Model(tuple(_read_layer(name, leaf) for name, leaf in leaves), mean)
    if len({id(leaf.weight) for _, leaf in leaves if hasattr(leaf, "weight")}) < len(model.convolutions):
        raise ArgumentError("module: two layers share a weight, expected a weight for each convolution")
    _check_chain(module, [leaf for _, leaf in leaves], model)
    state = module.state_dict()
    dtype = next((str(value.dtype).removeprefix("torch.") for value in state.values()), "float32")
    return model, dtype, {name: value.detach().cpu().double().numpy() for name, value in state.items()}


def make_module(model: Model, dtype: str, parameters: Mapping[str, Array]) -> nn.Module:
    """A ``Sequential`` with the layers and names of a model and copies of the parameters."""
    import torch
    from torch import nn

    layers: dict[str, nn.Module] = {}
    for layer in model.layers:
        if isinstance(layer, Relu):
            layers[layer.name] = nn.ReLU()
        else:
            layers[layer.name] = nn.Conv2d(
                layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding,
                layer.dilation, layer.groups, layer.bias, dtype=getattr(torch, dtype))
    module = nn.Sequential()
    for name, layer in layers.items():
        # not add_module, which refuses the dots of nested names
        module._modules[name] = layer
    with torch.no_grad():
        for name, array in parameters.items():
            layer_name, _, kind = name.rpartition(".")
            getattr(layers[layer_name], kind).copy_(torch.from_numpy(array))
    return module


def _read_layer(name: str, leaf: Any) -> Layer:
    from torch import nn

    if isinstance(leaf, nn.ReLU):
        return Relu(name)
    if not isinstance(leaf, nn.Conv2d):
        raise ArgumentTypeError(f"module: layer {name!r} is {type(leaf).__name__}, expected Conv2d or ReLU")
    if leaf.padding_mode != "zeros" or isinstance(leaf.padding, str):
        raise ArgumentError(f"module: layer {name!r} has padding {leaf.padding!r} of mode {leaf.padding_mode!r}, "
                            "expected numbers and zeros")
    return Conv2d(name, leaf.in_channels, leaf.out_channels, leaf.kernel_size, leaf.stride, leaf.padding,
                  leaf.dilation, leaf.groups, leaf.bias is not None)


def _check_chain(module: nn.Module, leaves: list[nn.Module], model: Model) -> None:
    """The module must give, to the bit, what its layers give one after the other."""
    import torch

    if not model.convolutions:
        return
    first = next(leaf for leaf in leaves if hasattr(leaf, "weight"))
    generator = torch.Generator().manual_seed(0)
    shape = (1, first.in_channels, *_smallest_image(model))
    x = torch.randn(shape, generator=generator, dtype=torch.float64).to(first.weight)
    with torch.no_grad():
        expected = x.clone()
        for leaf in leaves:
            expected = leaf(expected)
        try:
            found = module(x.clone())
        except Exception as error:
            raise ArgumentError(f"module: it cannot be run on an input of the shape {shape}: {error}") from None
    if not isinstance(found, torch.Tensor) or not torch.equal(found, expected):
        raise ArgumentError("module: its forward is not the chain of its layers in the order of named_modules, "
                            "expected every layer's output to be the next one's input")


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
