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

from bridge import bounds, oracle
from bridge.exchange import ExchangeFile
from bridge.model import Conv2d
from bridge.statistic import Statistic, measure

Array = np.ndarray


@dataclass(frozen=True)
class Recognised:
    """A lower precision that explains a convolution.

    Attributes
    ----------
    name : "TF32", "TF32 truncated", "bf16", "fp16", "float32"
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


HYPOTHESES: dict[str, dict[str, Callable[[Array], Array]]] = {
    "float32": {
        "TF32": lambda x: round_fraction(x, 10),
        "TF32 truncated": lambda x: truncate_fraction(x, 10),
        "bf16": lambda x: round_fraction(x, 7),
        "fp16": _fp16,
    },
    "float64": {"float32": lambda x: np.asarray(x, dtype=np.float32)},
}


def recognise(fixture: str | os.PathLike[str], result: str | os.PathLike[str]) -> Recognised | None:
    """The lower precision of a result's first convolution at step 0; None when it shows none.

    Only called for a result that fails: a right one has nothing to recognise.
    """
    with ExchangeFile(fixture) as reference, ExchangeFile(result) as candidate:
        model = reference.model
        layer = model.layers[0] if model else None
        if model is None or not isinstance(layer, Conv2d) or not candidate.has(f"steps/0/forward/{layer.name}"):
            return None
        weights = {name: reference.read(f"steps/0/weights/{name}", shape)
                   for name, shape in model.parameter_shapes().items() if name.startswith(f"{layer.name}/")}
        declared = _statistic(reference, candidate, layer, weights, lambda x: x)
        if declared.t <= 1 or declared.nonfinite:
            return None
        for name, lower in HYPOTHESES[candidate.precision].items():
            found = _statistic(reference, candidate, layer, weights, lower)
            if found.t <= 1:
                return Recognised(name, f"forward/{layer.name}", found.t, declared.t)
    return None


def _statistic(reference: ExchangeFile, candidate: ExchangeFile, layer: Conv2d, weights: dict[str, Array],
               lower: Callable[[Array], Array]) -> Statistic:
    """T of the candidate's first convolution against operands rounded by `lower`; sums in its own precision.

    For float64 candidates computed in float32 the sums are float32 too, so the bound is that of float32.
    """
    u = bounds.total_roundoff("float32")
    shape = reference.shape("batches/0/input")
    out = layer.output_shape((shape[0], shape[1], shape[2], shape[3]))
    w = lower(weights[f"{layer.name}/weight"]).astype(np.float64)
    bias = weights.get(f"{layer.name}/bias", np.zeros(layer.out_channels)).astype(np.float64)[:, None, None]
    if candidate.precision == "float64" and lower is not HYPOTHESES["float64"]["float32"]:
        u = bounds.total_roundoff("float64")
    total = Statistic()
    for image in range(shape[0]):
        x = lower(reference.read("batches/0/input", shape, image)).astype(np.float64)
        value = oracle.forward(x, w, layer) + bias
        absolute = oracle.forward(np.abs(x), np.abs(w), layer) + np.abs(bias)
        n = oracle.products_forward(layer, x.shape[1:], value.shape[1:]) + 1
        found = candidate.read(f"steps/0/forward/{layer.name}", out, image)
        total.merge(measure(found, value, bounds.rounding_factor(n, u) * absolute, image=image))
    return total
