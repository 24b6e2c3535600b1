# SPDX-License-Identifier: MIT
"""A network that lives in Fortran, with the face of a small torch module."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bridge import engine
from bridge.errors import ArgumentError, ArgumentTypeError, EngineError, FileError
from bridge.exchange import ExchangeFile, Sgd
from bridge.model import Conv2d, Layer, Model, Relu

if TYPE_CHECKING:
    from torch import nn

Array = np.ndarray

#: Numbers of `named_tensor` in cnn_api
WEIGHT, BIAS, WEIGHT_GRADIENT, BIAS_GRADIENT, OUTPUT, OUTPUT_GRADIENT = range(1, 7)


class Network:
    """A chain of convolutions and ReLUs with a mean-squared-error loss, computed in Fortran.

    Make one with `from_torch`, `from_file`, or from a `Model`. Weights and gradients are numpy **views** of
    Fortran's memory: writing to ``net.parameters["conv1.weight"]`` changes the network. Views keep the network
    alive; their addresses never change.

    Parameters
    ----------
    model : Model
    dtype : "float32" or "float64"
    device : "cpu"

    Attributes
    ----------
    parameters : mapping of str to array
        ``conv1.weight`` (k, c / groups, r, s), ``conv1.bias`` (k,), ..., in torch's order. Zero at first.
    gradients : mapping of str to array
        The same names and shapes; valid after `backward`.

    Examples
    --------
    >>> net = Network(Model((Conv2d("a", 1, 1, (1, 1)),)))
    >>> net.parameters["a.weight"][...] = 3
    >>> float(net.forward(np.full((1, 1, 1, 1), 2, np.float32))[0, 0, 0, 0])
    6.0
    """

    def __init__(self, model: Model, dtype: str = "float32", device: str = "cpu") -> None:
        self.model, self.dtype, self.device = model, dtype, device
        handle = engine.call("network_create", model.to_json(), engine.dtype_code("dtype", dtype), device)
        self._handle = int(handle)
        self._owner = _Owner(self._handle)
        self._input: Array | None = None
        self.parameters = _Views(self, WEIGHT, BIAS)
        self.gradients = _Views(self, WEIGHT_GRADIENT, BIAS_GRADIENT)
        for array in (*self.parameters.values(), *self.gradients.values()):
            array[...] = 0

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], step: int = 0, *, dtype: str | None = None,
                  device: str = "cpu") -> Network:
        """The network of an exchange file with its weights before step `step`.

        Parameters
        ----------
        path : exchange file
        step : which weights, from 0
        dtype : precision to compute in; None takes the file's

        Raises
        ------
        FileError, EngineError
            If the file is unreadable, has no model, or lacks these weights.
        """
        with ExchangeFile(path) as file:
            model, precision = file.model, file.precision
        if model is None:
            raise FileError(f"{os.fspath(path)}: /model is missing")
        network = cls(model, dtype or precision, device)
        engine.call("network_read_weights", network._handle, engine.path_text("path", path), int(step))
        return network

    @classmethod
    def from_torch(cls, module: nn.Module, *, dtype: str | None = None, reduction: str = "mean",
                   device: str = "cpu") -> Network:
        """The network of a torch module that is a chain of ``Conv2d`` and ``ReLU``, with its weights.

        The layers are taken in the order of ``named_modules``; the caller vouches that ``forward`` uses them in that
        order (``reference.export`` proves it).

        Raises
        ------
        ArgumentError, ArgumentTypeError
            If the module holds anything else, or a convolution pads with something other than zeros.
        """
        if reduction not in ("mean", "sum"):
            raise ArgumentError(f"reduction: {reduction!r}, expected 'mean' or 'sum'")
        leaves = [(name, leaf) for name, leaf in module.named_modules() if not list(leaf.children())]
        model = Model.from_json(Model(tuple(_from_torch(name, leaf) for name, leaf in leaves),
                                      reduction == "mean").to_json())
        state = {name: value.detach().cpu().numpy() for name, value in module.state_dict().items()}
        network = cls(model, dtype or next(iter(state.values())).dtype.name, device)
        for name, array in network.parameters.items():
            array[...] = state[name]
        return network

    def to_torch(self) -> nn.Module:
        """A torch ``Sequential`` with the same layers, names and (copied) weights."""
        import torch
        from torch import nn

        layers: dict[str, nn.Module] = {}
        for layer in self.model.layers:
            if isinstance(layer, Relu):
                layers[layer.name] = nn.ReLU()
            else:
                layers[layer.name] = nn.Conv2d(
                    layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding,
                    layer.dilation, layer.groups, layer.bias, dtype=getattr(torch, self.dtype))
        module = nn.Sequential()
        for name, layer in layers.items():
            # not add_module, which refuses the dots of nested names
            module._modules[name] = layer
        with torch.no_grad():
            for name, array in self.parameters.items():
                layer_name, _, kind = name.rpartition(".")
                getattr(layers[layer_name], kind).copy_(torch.from_numpy(array))
        return module

    def forward(self, input: Array) -> Array:
        """Output of the last layer, a new array (n, k, p, q).

        `input`: the network's dtype, (n, c, h, w), C-contiguous, finite; kept (not copied) until the next call.
        """
        x = engine.check_array("input", input, dtype=self.dtype, ndim=4, finite=True)
        engine.call("network_forward", self._handle, engine.address(x), engine.extent(x))
        self._input = x
        return self._copy(len(self.model.layers), OUTPUT)

    def loss(self, target: Array) -> float:
        """Mean or sum of (output - target)**2 of the last `forward`; `target` has the output's shape."""
        t = engine.check_array("target", target, dtype=self.dtype, ndim=4, finite=True)
        return float(engine.call("network_loss", self._handle, engine.address(t), engine.extent(t)))

    def backward(self) -> Array:
        """Fill `gradients`, and return the gradient of the last `loss` with respect to the input, a new array."""
        engine.call("network_backward", self._handle)
        return self._copy(0, OUTPUT_GRADIENT)

    def update(self, *, lr: float, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0,
               nesterov: bool = False) -> None:
        """One step of SGD with the last gradients, exactly as ``torch.optim.SGD``."""
        engine.call("network_update", self._handle, *_settings(lr, momentum, dampening, weight_decay, nesterov))

    def step(self, input: Array, target: Array, *, lr: float, momentum: float = 0.0, dampening: float = 0.0,
             weight_decay: float = 0.0, nesterov: bool = False) -> float:
        """Forward, loss, backward, update in one call; returns the loss before the update."""
        x = engine.check_array("input", input, dtype=self.dtype, ndim=4, finite=True)
        t = engine.check_array("target", target, dtype=self.dtype, ndim=4, finite=True)
        settings = _settings(lr, momentum, dampening, weight_decay, nesterov)
        loss = engine.call("network_step", self._handle, engine.address(x), engine.extent(x), engine.address(t),
                           engine.extent(t), *settings)
        self._input = x
        return float(loss)

    def output(self, layer: str) -> Array:
        """Output of a layer in the last forward pass, a new array."""
        return self._copy(self._number(layer), OUTPUT)

    def output_gradient(self, layer: str) -> Array:
        """Gradient of the loss with respect to a layer's output, a new array; "input" names the input's."""
        return self._copy(0 if layer == "input" else self._number(layer), OUTPUT_GRADIENT)

    def save(self, path: str | os.PathLike[str], sgd: Sgd | None = None) -> None:
        """Write model and weights to an exchange file, in one piece or not at all.

        Parameters
        ----------
        path : file name; an older file is replaced
        sgd : optimiser settings to record; lr = 0 when left out
        """
        s = sgd or Sgd(0.0)
        engine.call("network_save", self._handle, engine.path_text("path", path),
                    *_settings(s.lr, s.momentum, s.dampening, s.weight_decay, s.nesterov))

    def _number(self, layer: str) -> int:
        names = [one.name for one in self.model.layers]
        if layer not in names:
            raise ArgumentError(f"layer: {layer!r}, expected one of {', '.join(names)}")
        return names.index(layer) + 1

    def _find(self, number: int, which: int) -> tuple[int, tuple[int, ...]]:
        """Address and numpy shape of a tensor; address 0 when it does not exist yet."""
        shape = np.zeros(4, np.int32)
        place = int(engine.call("network_address", self._handle, number, which, shape))
        return place, tuple(int(n) for n in shape[::-1])

    def _copy(self, number: int, which: int) -> Array:
        place, shape = self._find(number, which)
        if place == 0:
            raise EngineError("this tensor does not exist yet: call forward, loss or backward first")
        array = np.empty(shape, self.dtype)
        engine.call("network_copy", self._handle, number, which, engine.address(array))
        return array


class _Owner:
    """Frees the network when neither the `Network` nor a view of its memory is left."""

    def __init__(self, handle: int) -> None:
        weakref.finalize(self, engine.api().network_free, handle)


class _Memory:
    """Memory of Fortran, as numpy's array interface wants it; holds on to its owner."""

    def __init__(self, owner: _Owner, place: int, shape: tuple[int, ...], dtype: str) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3, "data": (place, False), "shape": shape, "typestr": np.dtype(dtype).str}


class _Views(Mapping[str, Array]):
    """Tensors of a network by torch's names, as views."""

    def __init__(self, network: Network, weight: int, bias: int) -> None:
        self._arrays: dict[str, Array] = {}
        for number, layer in enumerate(network.model.layers, start=1):
            if not isinstance(layer, Conv2d):
                continue
            for kind, which, there in (("weight", weight, True), ("bias", bias, layer.bias)):
                if there:
                    place, shape = network._find(number, which)
                    shape = shape if kind == "weight" else shape[-1:]
                    memory = _Memory(network._owner, place, shape, network.dtype)
                    self._arrays[f"{layer.name}.{kind}"] = np.asarray(memory)

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


def _settings(lr: float, momentum: float, dampening: float, weight_decay: float,
              nesterov: bool) -> tuple[float, float, float, float, int]:
    numbers = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise ArgumentTypeError(f"{name}: {value!r}, expected a number")
    return float(lr), float(momentum), float(dampening), float(weight_decay), int(bool(nesterov))


def _from_torch(name: str, leaf: Any) -> Layer:
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
