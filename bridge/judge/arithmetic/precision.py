# SPDX-License-Identifier: MIT
"""Recognise arithmetic of a lower precision by recomputing it, not by a threshold.

A convolution sums few products (9 in the first of the default model), so it still shows the precision of its
operands. The first one that fails is computed again in float64, from the candidate's own input, with operands rounded
as a lower precision rounds them; the one that brings the candidate inside the float32 bound is its precision. Where
results are stored in 16 bits, they are rounded in the prediction as well, see `bridge.judge.oracle.reduced_precision`.

Source: NVIDIA, cuDNN documentation (DEFAULT math lets float32 data use TF32: 10 bits of fraction).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bridge.exchange.model import Conv2d
from bridge.judge.measure.comparison import compare
from bridge.judge.measure.error_statistics import Statistic, measure
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.operation_names import operation
from bridge.judge.oracle import convolution
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff
from bridge.judge.oracle.reduced_precision import CUT_OFF, HYPOTHESES, ReducedPrecision, words

Array = np.ndarray


@dataclass(frozen=True)
class Recognised:
    """A lower precision that explains a convolution.

    Attributes
    ----------
    name : a name of `bridge.judge.oracle.reduced_precision.HYPOTHESES`
    layer : the tensor that shows it
    t : T of the candidate against operands of that precision
    declared_t : T of that tensor against exact operands, as the comparison has it
    proven : it was computed again; else everything is merely inside the bounds of that precision
    """

    name: str
    layer: str
    t: float
    declared_t: float
    proven: bool = True

    @property
    def said(self) -> str:
        """Return it in words, "bf16 operands and results"."""
        return words(self.name)


#: Operations of whose operands a library may lower the precision
PRODUCTS = ("the convolution", "the filter gradient", "the data gradient")
#: In the Euclidean norm; a fault of layout, sign or scale leaves far more
LARGEST_RELATIVE_ERROR = {"TF32": 4 * 2.0**-11, "bf16": 4 * 2.0**-8}


def recognise(pair: FilePair, comparison: Comparison) -> Recognised | None:
    """Return the lower precision of the first convolution of step 0 that fails; None when that shows none.

    A convolution after the first is computed from the candidate's own input, where both are in the file. Only called
    for a result that fails, with what the `comparison` found: a right one has nothing to recognise.
    """
    candidate, source = pair.candidate, None
    for layer in pair.model.layers:
        name = f"forward/{layer.name}"
        known = candidate.has(f"steps/0/{name}") and (
            layer is pair.model.layers[0] or (source is not None and candidate.has(f"steps/0/{source}"))
        )
        if isinstance(layer, Conv2d) and known:
            declared = _statistic(pair, layer, source, None, pair.u)
            if not declared.t <= 1:
                return None if declared.nonfinite else _explained(pair, layer, source, comparison.t(name, 0))
        source = name
    return _consistent(pair, comparison) if candidate.precision == "float32" else None


def _consistent(pair: FilePair, comparison: Comparison) -> Recognised | None:
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
        if small and not compare(pair.reduced_to(name)).failures:
            return Recognised(name, failures[0].name, first.t, first.t, proven=False)
    return None


def _explained(pair: FilePair, layer: Conv2d, source: str | None, declared_t: float) -> Recognised | None:
    """The best precision that explains a convolution that fails."""
    for name, reduced in HYPOTHESES[pair.candidate.precision].items():
        # Products of rounded operands are exact in float32; a float64 candidate in float32 sums in float32
        u = total_roundoff("float32") if reduced.results is None else CUT_OFF
        found = _statistic(pair, layer, source, reduced, u)
        if found.t <= 1:
            return Recognised(name, f"forward/{layer.name}", found.t, declared_t)
    return None


def _statistic(
    pair: FilePair, layer: Conv2d, source: str | None, reduced: ReducedPrecision | None, u: float
) -> Statistic:
    """T of the candidate's convolution against that of a lower precision, summed with unit roundoff u.

    `source` is the candidate's tensor that it takes; None is the network's input.
    """
    w = _widened(reduced, pair.start[f"{layer.name}/weight"])
    bias = np.zeros((layer.out_channels, 1, 1))
    if layer.bias:
        bias[:, 0, 0] = pair.start[f"{layer.name}/bias"]
    total, name = Statistic(), f"forward/{layer.name}"
    for image in range(pair.batch_shape[0]):
        x = _widened(reduced, _input(pair, source, image).astype(pair.dtype))
        value, absolute = (
            products[0] for products in (
                convolution.forward(x, [w], layer), convolution.forward(np.abs(x), [np.abs(w)], layer))
        )
        n = convolution.products_forward(layer, x.shape[1:], value.shape[1:]) + layer.bias
        bound = Arithmetic(u).with_underflow(Arithmetic(u).factor(n) * (absolute + np.abs(bias)), n)
        if reduced is None or reduced.results is None:
            value += bias
        else:
            value, bound = reduced.stored(value, bound, bias if layer.bias else None)
        found = pair.candidate.read(f"steps/0/{name}", pair.shapes[name], image)
        total.merge(measure(found, value, bound, image=image))
    return total


def _input(pair: FilePair, source: str | None, image: int) -> Array:
    if source is None:
        return pair.batch(0, "input", image)
    return pair.candidate.read(f"steps/0/{source}", pair.shapes[source], image)


def _widened(reduced: ReducedPrecision | None, x: Array) -> Array:
    return x.astype(np.float64) if reduced is None else reduced.widened(x)
