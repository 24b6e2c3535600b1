# SPDX-License-Identifier: MIT
"""Recognise arithmetic of a lower precision by recomputing it, not by a threshold.

The first convolution sums few products (9 in the default model), so it still shows the precision of its
operands. It is computed again in float64 with operands rounded as a lower precision rounds them; the one that
brings the candidate inside the float32 bound is its precision.

Source: NVIDIA, cuDNN documentation (DEFAULT math lets float32 data use TF32: 10 bits of fraction).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bridge import oracle
from bridge.arithmetic import Arithmetic, total_roundoff
from bridge.exchange import ExchangeFile
from bridge.model import Conv2d
from bridge.pair import Pair
from bridge.statistic import Statistic, measure

Array = np.ndarray


@dataclass(frozen=True)
class Recognised:
    """A lower precision that explains a convolution.

    Attributes
    ----------
    name : a name of `HYPOTHESES`
    layer : the tensor that shows it
    t : T of the candidate against operands of that precision
    declared_t : T against exact operands
    """

    name: str
    layer: str
    t: float
    declared_t: float


def round_fraction(x: Array, bits: int) -> Array:
    """Round float32 values to `bits` bits of fraction, ties to even.

    >>> float(round_fraction(np.float32([1 + 2**-11 + 2**-12]), 10)[0]) == 1 + 2**-10
    True
    """
    drop = 23 - bits
    raw = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    half = np.uint32((1 << (drop - 1)) - 1) + ((raw >> np.uint32(drop)) & np.uint32(1))
    return ((raw + half) & np.uint32(~((1 << drop) - 1) & 0xFFFFFFFF)).view(np.float32)


def truncate_fraction(x: Array, bits: int) -> Array:
    """Cut float32 values after `bits` bits of fraction.

    >>> float(truncate_fraction(np.float32([1 + 2**-10 + 2**-11]), 10)[0]) == 1 + 2**-10
    True
    """
    raw = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return (raw & np.uint32(~((1 << (23 - bits)) - 1) & 0xFFFFFFFF)).view(np.float32)


def _fp16(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(x, dtype=np.float16)


#: By declared precision: what else the operands may have been, the best precision first
HYPOTHESES: dict[str, dict[str, Callable[[Array], Array]]] = {
    "float32": {
        "TF32": lambda x: round_fraction(x, 10),
        "TF32 truncated": lambda x: truncate_fraction(x, 10),
        "fp16": _fp16,
        "bf16": lambda x: round_fraction(x, 7),
    },
    "float64": {"float32": lambda x: np.asarray(x, dtype=np.float32)},
}


def recognise(fixture: str | os.PathLike[str], result: str | os.PathLike[str]) -> Recognised | None:
    """The lower precision of a result's first convolution at step 0; None when it shows none.

    Only called for a result that fails: a right one has nothing to recognise.
    """
    with ExchangeFile(fixture) as reference, ExchangeFile(result) as candidate:
        pair = Pair(reference, candidate)
        layer = pair.model.layers[0]
        if not isinstance(layer, Conv2d) or not candidate.has(f"steps/0/forward/{layer.name}"):
            return None
        declared = _statistic(pair, layer, lambda x: x, pair.u)
        if declared.t <= 1 or declared.nonfinite:
            return None
        for name, lower in HYPOTHESES[candidate.precision].items():
            # Products of rounded operands are exact in float32; a float64 candidate in float32 sums in float32
            found = _statistic(pair, layer, lower, total_roundoff("float32"))
            if found.t <= 1:
                return Recognised(name, f"forward/{layer.name}", found.t, declared.t)
    return None


def _statistic(pair: Pair, layer: Conv2d, lower: Callable[[Array], Array], u: float) -> Statistic:
    """T of the candidate's first convolution against operands rounded by `lower`, summed with unit roundoff u."""
    w = _widened(lower, pair.start[f"{layer.name}/weight"])
    bias = np.zeros((layer.out_channels, 1, 1))
    if layer.bias:
        bias[:, 0, 0] = pair.start[f"{layer.name}/bias"]
    total = Statistic()
    for image in range(pair.batch_shape[0]):
        x = _widened(lower, pair.batch(0, "input", image).astype(pair.dtype))
        value, absolute = (
            products[0] for products in (oracle.forward(x, [w], layer), oracle.forward(np.abs(x), [np.abs(w)], layer))
        )
        n = oracle.products_forward(layer, x.shape[1:], value.shape[1:]) + layer.bias
        bound = Arithmetic(u).factor(n) * (absolute + np.abs(bias))
        name = f"forward/{layer.name}"
        found = pair.candidate.read(f"steps/0/{name}", pair.shapes[name], image)
        total.merge(measure(found, value + bias, bound, image=image))
    return total


def _widened(lower: Callable[[Array], Array], x: Array) -> Array:
    return lower(x).astype(np.float64)
