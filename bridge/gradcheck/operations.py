# SPDX-License-Identifier: MIT
"""The registry: every differentiable operation of the package, and how its gradient is checked.

A new layer type, loss, or function with a ``_backward`` partner needs an entry here; a test compares the registry with
what the package offers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from bridge.common.errors import ArgumentError
from bridge.engine.arrays.transfer import with_numpy
from bridge.engine.network.functional import conv2d, conv2d_backward
from bridge.engine.network.network import Network
from bridge.exchange.file import ExchangeFile
from bridge.exchange.model import Conv2d, Layer, Model, Relu
from bridge.gradcheck.check import check_counts, gradcheck
from bridge.gradcheck.networks import NetworkFunctions
from bridge.gradcheck.results import GradcheckReport

Array = np.ndarray


@dataclass(frozen=True)
class Settings:
    """What to check with: precision, device, seed of all data, elements of each input, random directions."""

    dtype: str = "float64"
    device: str = "cpu"
    seed: int = 0
    points: int = 32
    directions: int = 4

    def __post_init__(self) -> None:
        check_counts(self.seed, None, self.points, self.directions)

    @property
    def counts(self) -> dict[str, Any]:
        """Return the arguments of `gradcheck`."""
        return {"seed": self.seed, "points": self.points, "directions": self.directions}

    def random(self, name: str, shape: tuple[int, ...]) -> Array:
        """Return normal numbers, always the same for a seed, a name and a shape."""
        return np.random.default_rng([self.seed, crc32(name.encode())]).standard_normal(shape).astype(self.dtype)


@dataclass(frozen=True)
class Operation:
    """An operation and its check."""

    about: str
    check: Callable[[Settings], list[GradcheckReport]]


#: Input, weight and settings of the convolutions to check; no two dimensions alike, so that no permutation survives
CONVOLUTIONS: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 3, 7, 6), (4, 3, 3, 2), {"padding": (1, 0)}),
    ((2, 3, 9, 8), (5, 3, 2, 3), {"stride": (3, 2), "padding": (1, 2)}),
    ((1, 2, 9, 10), (3, 2, 3, 2), {"dilation": (2, 3), "padding": (0, 1)}),
    ((2, 6, 5, 7), (9, 2, 2, 3), {"stride": (1, 2), "padding": 1, "groups": 3}),
)

#: A network needs a convolution; this one only scales each channel
SCALE = Conv2d("scale", 3, 3, (1, 1), groups=3, bias=False)


def check_conv2d(settings: Settings) -> list[GradcheckReport]:
    """Check the convolution, linear in each argument: by steps of the size of the numbers, exact but for rounding."""
    return [_convolution(settings, x, w, given) for x, w, given in CONVOLUTIONS]


def _convolution(settings: Settings, x: tuple[int, ...], w: tuple[int, ...],
                 given: dict[str, Any]) -> GradcheckReport:
    device = settings.device

    def forward(x: Array, w: Array, b: Array) -> Array:
        return with_numpy(conv2d, device)(x, w, b, **given)

    def backward(dy: Array, x: Array, w: Array, b: Array) -> tuple[Array | None, ...]:
        return with_numpy(conv2d_backward, device)(dy, x, w, **given)

    names = ["input", "weight", "bias"]
    inputs = [settings.random(name, shape) for name, shape in zip(names, (x, w, w[:1]), strict=True)]
    words = ", ".join(f"{key} {value}" for key, value in given.items())
    return gradcheck(forward, backward, inputs, names=names, linear=True, title=f"conv2d, {words}",
                     **settings.counts)


def check_chain(settings: Settings, title: str, *layers: Layer) -> list[GradcheckReport]:
    """Check layers without a loss: any upstream gradient, every output counts."""
    return [_network(settings, title, Model(layers, mean=False), of_loss=False)]


def check_loss(settings: Settings, title: str, *, mean: bool) -> list[GradcheckReport]:
    """Check the loss of a network that only scales its input."""
    return [_network(settings, title, Model((SCALE,), mean), of_loss=True)]


def check_step(settings: Settings) -> list[GradcheckReport]:
    """Check a small network as a whole: forward, loss, backward; all parameters and the input."""
    layers = (Conv2d("conv1", 1, 3, (3, 2), padding=(1, 1)), Relu("relu1"),
              Conv2d("conv2", 3, 4, (2, 3), stride=(2, 1)), Relu("relu2"), Conv2d("conv3", 4, 2, (1, 2)))
    return [_network(settings, "network", Model(layers), of_loss=True)]


def _network(settings: Settings, title: str, model: Model, *, of_loss: bool) -> GradcheckReport:
    """Random parameters of a size that keeps outputs near 1, a random input, and a random target where it is needed."""
    shape = (2, model.convolutions[0].in_channels, 8, 9)
    network = Network(model, settings.dtype, settings.device)
    for name, array in network.parameters.items():
        array[...] = settings.random(name, array.shape) / np.sqrt(math.prod(array.shape[1:]))
    target = settings.random("target", model.output_shapes(shape)[-1]) if of_loss else None
    return _functions_check(NetworkFunctions(network, target), settings.random("input", shape), title, settings)


def _functions_check(functions: NetworkFunctions, x: Array, title: str, settings: Settings) -> GradcheckReport:
    return gradcheck(functions.forward, functions.backward, functions.inputs(x), names=functions.names,
                     kinks=functions.kinks, title=title, **settings.counts)


def check_fixture(path: str, settings: Settings) -> GradcheckReport:
    """Check the network of an exchange file on its first batch, as a whole.

    Raises
    ------
    FileError, EngineError
        If the file has no model, weights or batch, or does not fit itself.
    """
    network = Network.from_file(path, dtype=settings.dtype, device=settings.device)
    name = {part: f"batches/0/{part}" for part in ("input", "target")}
    with ExchangeFile(path) as file:
        shape = file.shape(name["input"])
        if len(shape) != 4:
            raise ArgumentError(f"{path}: {name['input']} has the shape {shape}, expected (n, c, h, w)")
        x = file.read(name["input"], shape).astype(settings.dtype)
        target = file.read(name["target"], network.model.output_shapes(x.shape)[-1]).astype(settings.dtype)
    return _functions_check(NetworkFunctions(network, target), x, path, settings)


#: Every differentiable operation by name: a function of `bridge` by its own, ``layer.TYPE`` and
#: ``loss.TYPE.REDUCTION`` by those of the model description, and the whole network
OPERATIONS: dict[str, Operation] = {
    "conv2d": Operation("the function: stride, padding, dilation, groups; input, weight, bias", check_conv2d),
    "layer.conv2d": Operation("a convolution layer of a network: input, weight, bias", lambda s: check_chain(
        s, "layer.conv2d", Conv2d("conv", 4, 6, (3, 2), (2, 1), (1, 2), (1, 2), 2))),
    "layer.relu": Operation("a rectifier behind a scaling; kinks are left out", lambda s: check_chain(
        s, "layer.relu", SCALE, Relu("relu"))),
    "loss.mse.mean": Operation("mean of the squared errors, behind a scaling", lambda s: check_loss(
        s, "loss.mse.mean", mean=True)),
    "loss.mse.sum": Operation("sum of the squared errors, behind a scaling", lambda s: check_loss(
        s, "loss.mse.sum", mean=False)),
    "network": Operation("forward, loss and backward of three convolutions: input, all parameters", check_step),
}
