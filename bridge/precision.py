# SPDX-License-Identifier: MIT
"""Recognise arithmetic of a lower precision by recomputing it, not by a threshold.

A convolution sums few products (9 in the first of the default model), so it still shows the precision of its
operands. The first one that fails is computed again in float64, from the candidate's own input, with operands rounded
as a lower precision rounds them; the one that brings the candidate inside the float32 bound is its precision.

Source: NVIDIA, cuDNN documentation (DEFAULT math lets float32 data use TF32: 10 bits of fraction).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bridge import oracle
from bridge.arithmetic import Arithmetic, total_roundoff
from bridge.comparison import compare
from bridge.exchange import ExchangeFile
from bridge.judged import Comparison
from bridge.model import Conv2d
from bridge.operation import operation
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
    proven : it was computed again; else everything is merely inside the bounds of that precision
    """

    name: str
    layer: str
    t: float
    declared_t: float
    proven: bool = True


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


#: Operations of whose operands a library may lower the precision
PRODUCTS = ("the convolution", "the filter gradient", "the data gradient")
#: In the Euclidean norm; a fault of layout, sign or scale leaves far more
LARGEST_RELATIVE_ERROR = {"TF32": 4 * 2.0**-11, "bf16": 4 * 2.0**-8}


def recognise(
    fixture: str | os.PathLike[str], result: str | os.PathLike[str], comparison: Comparison
) -> Recognised | None:
    """The lower precision of the first convolution of step 0 that fails; None when that shows none.

    A convolution after the first is computed from the candidate's own input, where both are in the file. Only called
    for a result that fails, with what the `comparison` found: a right one has nothing to recognise.
    """
    with ExchangeFile(fixture) as reference, ExchangeFile(result) as candidate:
        pair, source = Pair(reference, candidate), None
        for layer in pair.model.layers:
            name = f"forward/{layer.name}"
            known = candidate.has(f"steps/0/{name}") and (
                layer is pair.model.layers[0] or (source is not None and candidate.has(f"steps/0/{source}"))
            )
            if isinstance(layer, Conv2d) and known:
                declared = _statistic(pair, layer, source, lambda x: x, pair.u)
                if not declared.t <= 1:
                    return None if declared.nonfinite else _explained(pair, layer, source, declared.t)
            source = name
        declared = candidate.precision
    return _consistent(fixture, result, comparison) if declared == "float32" else None


def _consistent(
    fixture: str | os.PathLike[str], result: str | os.PathLike[str], comparison: Comparison
) -> Recognised | None:
    """A lower precision by whose bounds nothing fails, where no convolution can be computed again to prove it.

    The errors must look like it too: made by a convolution, small, and spread over many elements.
    """
    failures = comparison.failures
    if not failures or not operation(comparison.model, failures[0].name).startswith(PRODUCTS):
        return None
    first = failures[0].statistic
    if not first.error**2 < first.norm_error / 4:
        return None
    for name, limit in LARGEST_RELATIVE_ERROR.items():
        small = all(judged.statistic.relative_error < limit for judged in failures)
        if small and not compare(fixture, result, lower=name).failures:
            return Recognised(name, failures[0].name, first.t, first.t, proven=False)
    return None


def _explained(pair: Pair, layer: Conv2d, source: str | None, declared_t: float) -> Recognised | None:
    """The best precision whose operands explain a convolution that fails."""
    for name, lower in HYPOTHESES[pair.candidate.precision].items():
        # Products of rounded operands are exact in float32; a float64 candidate in float32 sums in float32
        found = _statistic(pair, layer, source, lower, total_roundoff("float32"))
        if found.t <= 1:
            return Recognised(name, f"forward/{layer.name}", found.t, declared_t)
    return None


def _statistic(pair: Pair, layer: Conv2d, source: str | None, lower: Callable[[Array], Array], u: float) -> Statistic:
    """T of the candidate's convolution against operands rounded by `lower`, summed with unit roundoff u.

    `source` is the candidate's tensor that it takes; None is the network's input.
    """
    w = _widened(lower, pair.start[f"{layer.name}/weight"])
    bias = np.zeros((layer.out_channels, 1, 1))
    if layer.bias:
        bias[:, 0, 0] = pair.start[f"{layer.name}/bias"]
    total, name = Statistic(), f"forward/{layer.name}"
    for image in range(pair.batch_shape[0]):
        x = _widened(lower, _input(pair, source, image).astype(pair.dtype))
        value, absolute = (
            products[0] for products in (oracle.forward(x, [w], layer), oracle.forward(np.abs(x), [np.abs(w)], layer))
        )
        n = oracle.products_forward(layer, x.shape[1:], value.shape[1:]) + layer.bias
        bound = Arithmetic(u).with_underflow(Arithmetic(u).factor(n) * (absolute + np.abs(bias)), n)
        found = pair.candidate.read(f"steps/0/{name}", pair.shapes[name], image)
        total.merge(measure(found, value + bias, bound, image=image))
    return total


def _input(pair: Pair, source: str | None, image: int) -> Array:
    if source is None:
        return pair.batch(0, "input", image)
    return pair.candidate.read(f"steps/0/{source}", pair.shapes[source], image)


def _widened(lower: Callable[[Array], Array], x: Array) -> Array:
    return lower(x).astype(np.float64)
