# SPDX-License-Identifier: MIT
"""Torch modules to models and back. torch is imported only when one of these is called."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bridge.common.errors import ArgumentTypeError
from bridge.common.optional_packages import require
from bridge.engine.network.torch_graph import make_graph, read_graph
from bridge.exchange.model import Model

if TYPE_CHECKING:
    from torch import nn

    from bridge.engine.network.torch_graph import Several

Array = np.ndarray


@dataclass(frozen=True)
class Found:
    """What a module is.

    Attributes
    ----------
    model : layers and loss
    dtype : of its parameters
    values : float64, of parameters and buffers by the layers' names
    frozen : names of those that torch would not train (``requires_grad=False``)
    original : the module itself
    """

    model: Model
    dtype: str
    values: dict[str, Array]
    frozen: tuple[str, ...]
    original: Original


class Original:
    """A copy of a module that was read, without the parameters that the network has.

    Parameters
    ----------
    module : any
    sources : its names of parameters and buffers that have others in the network, by these
    taken : its names of parameters that the network has; others stay as they are, as in torch, where they have no
        gradient
    """

    def __init__(self, module: nn.Module, sources: Mapping[str, str], taken: Collection[str]) -> None:
        import torch

        self._sources = sources
        self._shapes = {name: tuple(one.shape) for name, one in module.named_parameters()}
        with torch.inference_mode(False), torch.no_grad():
            self._module = copy.deepcopy(module).cpu()
            for name, one in self._module.named_parameters():
                one.data, one.grad = one.data.new_empty(0) if name in taken else one.data, None

    def filled(self, dtype: str, values: Mapping[str, Array], frozen: Collection[str]) -> nn.Module:
        """Return the module with copies of parameters and buffers, some of the parameters frozen.

        Parameters
        ----------
        dtype : of what it computes in
        values : by the layers' names; parameters may have the shape of another operation that computes the same
        frozen : names of parameters
        """
        import torch

        with torch.inference_mode(False), torch.no_grad():
            module = copy.deepcopy(self._module)
            parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
            for name, array in values.items():
                source, value = self._sources.get(name, name), torch.from_numpy(array)
                if source in parameters:
                    shape = self._shapes[source]
                    parameters[source].data = value.reshape(shape).clone() if value.numel() == math.prod(shape) else (
                        # Complex numbers, of which the network has real and imaginary parts
                        torch.view_as_complex(value.reshape(*shape, 2).clone()))
                    parameters[source].requires_grad_(name not in frozen)
                elif source:
                    buffers[source].copy_(value.reshape(buffers[source].shape))
            # Complex numbers stay as they are
            return module.double() if dtype == "float64" else module.float()


def read_module(module: nn.Module, *, loss: str, mean: bool, shape: tuple[int, ...] | Several | None,
                output: int | str | None = None) -> Found:
    """Return the model of a module, and its values.

    Parameters
    ----------
    module, loss, mean, shape, output : see `read_graph`
    """
    require("torch", "from_torch takes a torch.nn.Module")
    from torch import nn

    if not isinstance(module, nn.Module):
        raise ArgumentTypeError(f"module: {type(module).__qualname__}, expected torch.nn.Module")
    dtype = _element_type(module)
    model, layers = read_graph(module, loss, mean, shape, output)
    values = {f"{name}.{kind}": value for name, layer in layers for kind, value in layer.state_dict().items()}
    frozen = tuple(f"{name}.{kind}" for name, layer in layers for kind, value in layer.named_parameters()
                   if not value.requires_grad)
    return Found(model, dtype, {name: value.double().numpy() for name, value in values.items()}, frozen,
                 Original(module, layers.sources, {layers.sources.get(name, name) for name in values}))


def _element_type(module: nn.Module) -> str:
    """The name of the one type that all parameters have."""
    names: dict[str, str] = {}
    for name, value in module.named_parameters():
        kind = str(value.dtype).removeprefix("torch.")
        names.setdefault({"complex64": "float32", "complex128": "float64"}.get(kind, kind), name.rpartition(".")[0])
    if len(names) > 1:
        found = " and ".join(f"{dtype} (layer {name!r})" for dtype, name in names.items())
        raise ArgumentTypeError(f"module: {found}, expected one element type")
    return next(iter(names), "float32")


def make_module(model: Model, dtype: str, values: Mapping[str, Array], frozen: Collection[str]) -> nn.Module:
    """Return a module with the layers and names of a model and copies of the parameters and buffers, some of the
    parameters frozen; a ``Sequential`` where each layer takes the one before.
    """
    require("torch", "to_torch makes a torch.nn.Module")
    import torch
    from torch import nn

    module, layers = make_graph(model, dtype)
    with torch.no_grad():
        for name, array in values.items():
            layer_name, _, kind = name.rpartition(".")
            part = getattr(layers[layer_name], kind)
            part.copy_(torch.from_numpy(array))
            if isinstance(part, nn.Parameter):
                part.requires_grad_(name not in frozen)
    return module
