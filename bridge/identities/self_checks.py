# SPDX-License-Identifier: MIT
"""Checks of our own convolutions and network that need no reference: identities that hold whatever the numbers are.

* *Homogeneity*: dy times a power of two gives gradients times that power, bit for bit. Otherwise something is added to
  old memory, flushed to zero, or overflows.
* *Again*: the same call gives the same bits. Otherwise a race, or uninitialised memory.
* *Poison*: NaN in the outputs and in every buffer beforehand changes nothing.
* *Central difference*: a convolution is linear in each argument, so a difference quotient with step 1 is exact up to
  rounding.

The convolutions are small, and no two of their sizes are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bridge.common.errors import ArgumentError
from bridge.common.number_format import short
from bridge.engine.arrays.transfer import to_device, to_host, with_numpy
from bridge.engine.library.device_spec import DeviceSpec
from bridge.engine.network.functional import conv2d, conv2d_backward
from bridge.engine.network.network import Network
from bridge.exchange.model import Conv2d, Model, Relu
from bridge.judge.oracle import convolution
from bridge.judge.oracle.error_model import rounding_factor, total_roundoff

Array = np.ndarray

BATCH, HEIGHT, WIDTH = 3, 13, 18
LAYERS = (
    Conv2d("plain", 5, 7, (3, 3), padding=(1, 1)),
    Conv2d("strided", 6, 9, (2, 3), (1, 2), (2, 1), (2, 1), groups=3),
)
#: Powers of two that neither overflow nor underflow, in float32 either
POWERS = (-40, -1, 5, 40)


@dataclass(frozen=True)
class IdentityCheck:
    """One identity.

    Attributes
    ----------
    name : what was checked
    found : the number that was found, in words
    passed : it is what it must be
    """

    name: str
    found: str
    passed: bool


def self_checks(device: str = "cpu") -> Iterator[IdentityCheck]:
    """IdentityCheck the convolutions and the network of a device, one identity after the other.

    Raises
    ------
    ArgumentError
        For a device whose options allow other bits in every run.

    Examples
    --------
    >>> all(check.passed for check in self_checks())
    True
    """
    if not DeviceSpec.parse(device).repeatable:
        raise ArgumentError(f"device {device}: these identities hold to the bit, expected deterministic=yes and "
                            "algorithm=heuristic")
    for layer in LAYERS:
        for precision in ("float32", "float64"):
            case = _Case(layer, precision, device, np.random.default_rng(0))
            yield case.homogeneity()
            yield case.again()
            yield case.poison()
        # The last case is that of float64
        yield from case.differences()
    for precision in ("float32", "float64"):
        yield from _network(precision, device, np.random.default_rng(0))


class _Case:
    """One convolution with random arguments."""

    def __init__(self, layer: Conv2d, precision: str, device: str, rng: np.random.Generator) -> None:
        def draw(shape: tuple[int, ...]) -> Array:
            return rng.standard_normal(shape).astype(precision)

        self.layer, self.what = layer, f"{layer.name} convolution, {precision}"
        self.shape = (BATCH, layer.in_channels, HEIGHT, WIDTH)
        self.x, self.w = draw(self.shape), draw(layer.weight_shape)
        self.b, self.dy = draw((layer.out_channels,)), draw(layer.output_shape(self.shape))
        self.along = {"x": draw(self.shape), "w": draw(layer.weight_shape), "b": draw((layer.out_channels,))}
        settings = {name: getattr(layer, name) for name in ("stride", "padding", "dilation", "groups")}
        self.settings, self.device = settings, device

    def forward(self, x: Array, w: Array, b: Array, out: Array | None = None) -> Array:
        return with_numpy(conv2d, self.device)(x, w, b, **self.settings, out=out)

    def backward(self, dy: Array) -> list[Array]:
        found = with_numpy(conv2d_backward, self.device)(dy, self.x, self.w, **self.settings)
        return [g for g in found if g is not None]

    def homogeneity(self) -> IdentityCheck:
        right, wrong = self.backward(self.dy), 0
        for power in POWERS:
            found = self.backward(np.ldexp(self.dy, power))
            wrong += sum(_unequal(f, np.ldexp(g, power)) for f, g in zip(found, right, strict=True))
        return _bits(f"{self.what}: dy * 2^k scales the gradients", wrong)

    def again(self) -> IdentityCheck:
        first, second = ([self.forward(self.x, self.w, self.b), *self.backward(self.dy)] for _ in range(2))
        return _bits(f"{self.what}: run again", sum(map(_unequal, first, second)))

    def poison(self) -> IdentityCheck:
        right = self.forward(self.x, self.w, self.b)
        found = self.forward(self.x, self.w, self.b, np.full_like(right, np.nan))
        return _bits(f"{self.what}: written over NaN", _unequal(found, right))

    def differences(self) -> Iterator[IdentityCheck]:
        """<dy, (y(a + v) - y(a - v))/2> against <gradient, v>, for a = x, w, b."""
        gradients = dict(zip("xwb", self.backward(self.dy), strict=True))
        for name, v in self.along.items():
            ends = [self.forward(**self._moved(name, sign * v)) for sign in (1, -1)]
            found = float(np.sum(self.dy * (ends[0] - ends[1]))) / 2
            expected = float(np.sum(gradients[name] * v))
            t = abs(found - expected) / self._bound(name, v)
            yield IdentityCheck(f"{self.what}: difference in {name} with step 1", f"T = {short(t)}", bool(t <= 1))

    def _moved(self, name: str, v: Array) -> dict[str, Array]:
        given = {"x": self.x, "w": self.w, "b": self.b}
        return given | {name: given[name] + v}

    def _bound(self, name: str, v: Array) -> float:
        """s(n) times the sum of absolute values of everything that is added, n the longest of the sums."""
        a = {key: np.abs(value) for key, value in self._moved(name, 0 * v).items()}
        a[name] = a[name] + np.abs(v)
        c = np.stack([convolution.forward(image, [a["w"]], self.layer)[0] for image in a["x"]]) + a["b"][:, None, None]
        return float(rounding_factor(self.dy.size, total_roundoff("float64")) * np.sum(np.abs(self.dy) * c))


def _network(precision: str, device: str, rng: np.random.Generator) -> Iterator[IdentityCheck]:
    """A step of a network: again, and after every buffer held infinities and NaN."""
    last = Conv2d("last", 5, 2, (3, 1))
    net = Network(Model((Conv2d("first", 1, 5, (3, 3)), Relu("relu"), last)), precision, device)
    for array in net.parameters.values():
        array[...] = rng.standard_normal(array.shape)
    x = rng.standard_normal((BATCH, 1, HEIGHT, WIDTH)).astype(precision)
    target = rng.standard_normal((BATCH, 2, HEIGHT - 4, WIDTH - 2)).astype(precision)
    right = _pass(net, x, target)
    yield _bits(f"network, {precision}: run again", sum(map(_unequal, _pass(net, x, target), right)))
    with np.errstate(all="ignore"):
        spoilt = _pass(net, np.full_like(x, np.finfo(precision).max), target)
        for array in net.gradients.values():
            array[...] = np.nan
    poisoned = not all(np.isfinite(array).all() for array in spoilt)
    found = _bits(f"network, {precision}: after NaN in every buffer", sum(map(_unequal, _pass(net, x, target), right)))
    yield IdentityCheck(found.name, found.found, found.passed and poisoned)


def _pass(net: Network, x: Array, target: Array) -> list[Array]:
    """Every tensor of a forward and a backward pass."""
    y = net.forward(to_device(x, net.device))
    loss = np.atleast_1d(np.float64(net.loss(to_device(target, net.device))))
    dx = net.backward()
    layers = [f(layer.name) for layer in net.model.layers for f in (net.output, net.output_gradient)]
    found = [to_host(array) for array in (y, dx, *layers, *net.gradients.values())]
    return [loss, *(array.copy() for array in found)]


def _bits(name: str, wrong: int) -> IdentityCheck:
    return IdentityCheck(name, "bit for bit" if wrong == 0 else f"{wrong} elements differ", wrong == 0)


def _unequal(found: Array, right: Array) -> int:
    """Elements that differ; NaN always does."""
    return int(np.count_nonzero(~(found == right)))
