# SPDX-License-Identifier: MIT
"""The roofline bound of a training step: arithmetic and bytes, operation by operation, and the least time they need.

The model.  A chain of convolutions with bias, ReLU after each but the last, mean squared error, SGD. The step is a
list of operations, each of which reads its operands from memory once and writes its results once; what one operation
hands to the next goes through memory once each way. Inside an operation nothing is written down. They are:

=============== ========================================== =========================== =========================
operation       reads                                      writes                      floating-point operations
=============== ========================================== =========================== =========================
forward         its input, filters, bias                   its output, after the ReLU  2 n k p q (c / groups) r s
loss            the last output, the target                that output's gradient      not counted
data gradient   the output's gradient, filters, and the    the gradient of the         as forward
                layer's input: where it is 0 the ReLU      input, masked by the ReLU
                before it was closed                       before it
filter gradient the layer's input, the output's gradient   gradients of filters, bias  as forward
update          parameters, their gradients                parameters                  not counted
=============== ========================================== =========================== =========================

Nobody computes the data gradient of the first layer: the image needs none. A product on the zeros of the padding
counts, as everybody counts it, and a multiply-add is two operations; bias, ReLU, loss and update are not counted.
Parameters and their gradients take four bytes an element, whatever the tensors have.

What it is not.  A program that goes through several layers while their rows are in a cache (docs/cpu.md) moves less,
and so does every program whose tensors all fit into the cache of the GPU: such a time may be below this bound. FFT and
Winograd methods need fewer operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from benchmarks.harness.workloads import Conv, Net

#: Bytes of an element of a tensor. TF32 is how products are formed; it is stored as float32
ITEM_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2}
PARAMETER_BYTES = 4


@dataclass(frozen=True)
class Operation:
    """One of a step: its name, floating-point operations, bytes.

    Examples
    --------
    >>> Operation("forward 1", flop=10, read=8, written=4).bytes
    12
    """

    name: str
    flop: int
    read: int
    written: int

    @property
    def bytes(self) -> int:
        """Through memory, both ways."""
        return self.read + self.written

    def seconds(self, rates: Rates) -> float:
        """The longer of arithmetic and memory.

        >>> Operation("a", flop=10, read=8, written=4).seconds(Rates(bandwidth=4.0, arithmetic=1.0))
        10.0
        """
        return max(self.flop / rates.arithmetic, self.bytes / rates.bandwidth)


@dataclass(frozen=True)
class Rates:
    """Of a machine: bytes per second through memory (both ways added), floating-point operations per second."""

    bandwidth: float
    arithmetic: float


#: Of NVIDIA's data sheet of the H200 SXM: 4.8 TB/s; 67 TFLOP/s in float32 outside of tensor cores, 495 in TF32 and
#: 989 in bfloat16 without sparsity. They are promises, not measurements
H200 = {"fp32": Rates(4.8e12, 67e12), "tf32": Rates(4.8e12, 495e12), "bf16": Rates(4.8e12, 989e12)}


def operations(layers: Sequence[Conv], precision: str = "fp32") -> list[Operation]:
    """Of a step, in their order, by the model in this module's head.

    Parameters
    ----------
    layers : each takes what the one before gives
    precision : "fp32", "tf32" or "bf16"

    Raises
    ------
    ValueError
        If there are no layers, or they do not fit each other.

    Examples
    --------
    >>> one = Conv(n=1, c=1, h=4, w=5, k=2, r=3, s=3, padding=(1, 1))
    >>> [(each.name, each.flop, each.bytes) for each in operations([one])]
    [('forward 1', 720, 320), ('loss', 0, 480), ('filter gradient 1', 720, 320), ('update', 0, 240)]
    """
    if not layers or any(a.output != b.input for a, b in pairwise(layers)):
        raise ValueError(f"layers: {layers}, expected some, each with the input that the one before gives")
    size = ITEM_BYTES[precision]
    forward, backward = [], []
    for number, layer in enumerate(layers, 1):
        x, y = size * math.prod(layer.input), size * math.prod(layer.output)
        filters, bias = PARAMETER_BYTES * math.prod(layer.weight), PARAMETER_BYTES * layer.k
        forward.append(Operation(f"forward {number}", layer.flop, x + filters + bias, y))
        # Backward goes from the last layer to the first; of one layer, data first: what it gives lets others begin
        backward.append(Operation(f"filter gradient {number}", layer.flop, x + y, filters + bias))
        if number > 1:
            backward.append(Operation(f"data gradient {number}", layer.flop, y + filters + x, x))
    last = size * math.prod(layers[-1].output)
    parameters = PARAMETER_BYTES * sum(math.prod(one.weight) + one.k for one in layers)
    return [*forward, Operation("loss", 0, 2 * last, last), *reversed(backward),
            Operation("update", 0, 2 * parameters, parameters)]


@dataclass(frozen=True)
class Roofline:
    """Of a whole step.

    Attributes
    ----------
    flop, bytes : of all operations
    each : seconds, the sum over operations of the longer of arithmetic and memory
    whole : seconds, the longer of all arithmetic and all memory, as if one operation could use what another leaves
    limits : of each operation: name, flop, bytes, seconds, and what takes longer, "arithmetic" or "memory"
    """

    flop: int
    bytes: int
    each: float
    whole: float
    limits: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def roofline(layers: Sequence[Conv], precision: str, rates: Rates) -> Roofline:
    """The least time of a step on a machine.

    Examples
    --------
    >>> found = roofline([Conv(n=1, c=1, h=4, w=5, k=2, r=3, s=3, padding=(1, 1))], "fp32", Rates(10.0, 10.0))
    >>> found.flop, found.bytes, found.each, found.whole
    (1440, 1360, 216.0, 144.0)
    """
    steps = operations(layers, precision)
    flop, size = sum(one.flop for one in steps), sum(one.bytes for one in steps)
    limits = [{"name": one.name, "flop": one.flop, "bytes": one.bytes, "seconds": one.seconds(rates),
               "limit": "arithmetic" if one.flop / rates.arithmetic > one.bytes / rates.bandwidth else "memory"}
              for one in steps]
    return Roofline(flop, size, sum(one.seconds(rates) for one in steps),
                 max(flop / rates.arithmetic, size / rates.bandwidth), limits)


def predictions() -> list[str]:
    """Rows of the table of docs/gpu-bench.md: the mission's operations on an H200, by its data sheet.

    Examples
    --------
    >>> predictions()[0]
    '| forward 1 | 0.60 | 143 | 30 | 30 | 15 |'
    """
    layers = Net().layers
    columns = [roofline(layers, precision, rates) for precision, rates in H200.items()]
    rows = []
    for parts in zip(*(one.limits for one in columns), strict=True):
        times = [f"{1e6 * one['seconds']:.0f}" for one in parts]
        cells = [f"**{text}**" if one["limit"] == "arithmetic" else text
                 for text, one in zip(times, parts, strict=True)]
        rows.append([parts[0]["name"], f"{parts[0]['flop'] / 1e9:.2f}", f"{parts[0]['bytes'] / 1e6:.0f}", *cells])
    for name, key in (("the bound: their sum", "each"), ("of the whole", "whole")):
        rows.append([name, f"{columns[0].flop / 1e9:.1f}", f"{columns[0].bytes / 1e6:.0f}",
                     *(f"{1e6 * getattr(one, key):.0f}" for one in columns)])
    return [f"| {' | '.join(row)} |" for row in rows]
