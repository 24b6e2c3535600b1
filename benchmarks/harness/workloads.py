# SPDX-License-Identifier: MIT
"""What is measured, without measuring: tasks, the arithmetic they need, the bytes they must move.

A multiply and an add are two operations. The counts are those of the direct method, with the products that fall on
the zeros of the padding, as everybody counts; nobody computes fewer by Winograd's or Fourier's method unseen, because
the rate is work over time for all alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

#: What a pass computes: the output, the gradient of the input, the gradient of the filters
PASSES = ("forward", "data", "filter")
ITEM_BYTES = {"float32": 4, "float64": 8}


@dataclass(frozen=True)
class Conv:
    """One convolution; pairs are (height, width), `dtype` is float32 or float64.

    Examples
    --------
    >>> layer = Conv(n=1, c=2, h=4, w=5, k=3, r=3, s=3, padding=(1, 1))
    >>> layer.output, layer.flop, layer.bytes
    ((1, 3, 4, 5), 2160, 616)
    """

    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    dtype: str = "float32"

    @property
    def output(self) -> tuple[int, int, int, int]:
        """Shape (n, k, p, q)."""
        p, q = ((length + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
                for length, kernel, stride, pad, dilation in zip((self.h, self.w), (self.r, self.s), self.stride,
                                                                 self.padding, self.dilation, strict=True))
        return self.n, self.k, p, q

    @property
    def input(self) -> tuple[int, int, int, int]:
        """Shape (n, c, h, w)."""
        return self.n, self.c, self.h, self.w

    @property
    def weight(self) -> tuple[int, int, int, int]:
        """Shape (k, c / groups, r, s)."""
        return self.k, self.c // self.groups, self.r, self.s

    @property
    def flop(self) -> int:
        """Operations of each of the three passes: they have the same products."""
        n, k, p, q = self.output
        return 2 * n * k * p * q * (self.c // self.groups) * self.r * self.s

    @property
    def bytes(self) -> int:
        """What each pass must move at least: two of the three tensors are read once, one is written once."""
        elements = sum(a * b * c * d for a, b, c, d in (self.input, self.weight, self.output))
        return elements * ITEM_BYTES[self.dtype]

    def as_dict(self) -> dict[str, Any]:
        """For a worker, or for JSON; `of_dict` reads it."""
        return asdict(self)

    @classmethod
    def of_dict(cls, found: dict[str, Any]) -> Conv:
        """From JSON, where a pair is a list."""
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in found.items()})


@dataclass(frozen=True)
class Net:
    """A chain of convolutions that keep the image's size, ReLU between them, mean squared error, SGD.

    Parameters
    ----------
    channels : of the image, and after each convolution
    kernel : odd
    batch, size : images of size x size pixels
    dtype : "float32" or "float64"

    Examples
    --------
    >>> net = Net()
    >>> net.channels, net.size, round(net.flop / 1e9, 1)
    ((1, 16, 16, 1), 1024, 32.0)
    """

    channels: tuple[int, ...] = (1, 16, 16, 1)
    kernel: int = 3
    batch: int = 2
    size: int = 1024
    dtype: str = "float32"

    @property
    def layers(self) -> tuple[Conv, ...]:
        """The convolutions."""
        pad = (self.kernel // 2, self.kernel // 2)
        return tuple(Conv(self.batch, c, self.size, self.size, k, self.kernel, self.kernel, padding=pad,
                          dtype=self.dtype) for c, k in zip(self.channels, self.channels[1:], strict=False))

    @property
    def flop(self) -> int:
        """Of the convolutions of a training step: three passes, but nobody wants the gradient of the image."""
        return 3 * sum(layer.flop for layer in self.layers) - self.layers[0].flop

    @property
    def likely_bytes(self) -> int:
        """What a step of a framework that keeps every tensor and its gradient takes, about."""
        return 4 * self.batch * self.size**2 * sum(self.channels) * ITEM_BYTES[self.dtype]

    def as_dict(self) -> dict[str, Any]:
        """For a worker, or for JSON; `of_dict` reads it."""
        return asdict(self)

    @classmethod
    def of_dict(cls, found: dict[str, Any]) -> Net:
        """From JSON, where a tuple is a list."""
        return cls(**found | {"channels": tuple(found["channels"])})


@dataclass(frozen=True)
class Training:
    """A training step of a network that is no chain: forward, loss, backward, SGD.

    Parameters
    ----------
    network : of `benchmarks.frameworks.torch_networks.NETWORKS`
    width : its channels after the first convolution
    input, output : shapes
    loss : "mse" or "cross_entropy"
    words : if not 0, the input is whole numbers below it
    path : an exchange file with the network and its first weights
    flop : of its products
    dtype : "float32" or "float64"
    """

    network: str
    width: int
    input: tuple[int, ...]
    output: tuple[int, ...]
    loss: str
    words: int = 0
    path: str = ""
    flop: int = 0
    dtype: str = "float32"

    def as_dict(self) -> dict[str, Any]:
        """For a worker, or for JSON; `of_dict` reads it."""
        return asdict(self)

    @classmethod
    def of_dict(cls, found: dict[str, Any]) -> Training:
        """From JSON, where a tuple is a list."""
        return cls(**{name: _tuples(value) for name, value in found.items()})


@dataclass(frozen=True)
class OperationPass:
    """A pass of an operation of graphs, or of a loss, beside what it must at least move or compute.

    Parameters
    ----------
    kind : the operation's type in an exchange file, that of a loss, or "accumulate" (y = y + x)
    backward : whether it is the backward pass
    inputs, output : shapes
    parameters : shapes
    options : hyperparameters
    moves : tensors that it must move once for each time that they are named: inputs ``x``, output ``y``, mask ``m``,
        the gradients of output ``d`` and inputs ``g``
    products : the extents (m, n, k) of the matrix products that it consists of, each ``2 m n k`` operations
    dtype : "float32" or "float64"

    Examples
    --------
    >>> one = OperationPass("tanh", True, ((2, 3, 4, 4),), (2, 3, 4, 4), moves="ydg")
    >>> one.bytes, one.flop
    (1152, 0)
    """

    kind: str
    backward: bool
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    parameters: tuple[tuple[int, ...], ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    moves: str = ""
    products: tuple[tuple[int, int, int], ...] = ()
    dtype: str = "float32"

    @property
    def bytes(self) -> int:
        """What it must move at least."""
        inputs, output = sum(map(math.prod, self.inputs)), math.prod(self.output)
        return ITEM_BYTES[self.dtype] * sum(inputs if one in "xg" else output for one in self.moves)

    @property
    def flop(self) -> int:
        """Of its matrix products."""
        return sum(2 * m * n * k for m, n, k in self.products)

    def as_dict(self) -> dict[str, Any]:
        """For a worker, or for JSON; `of_dict` reads it."""
        return asdict(self)

    @classmethod
    def of_dict(cls, found: dict[str, Any]) -> OperationPass:
        """From JSON, where a tuple is a list."""
        return cls(**{name: _tuples(value) for name, value in found.items() if name != "options"},
                   options={name: _tuples(value) for name, value in found["options"].items()})


def _tuples(value: Any) -> Any:
    """Lists as tuples, and those in them."""
    return tuple(map(_tuples, value)) if isinstance(value, Sequence) and not isinstance(value, str) else value
