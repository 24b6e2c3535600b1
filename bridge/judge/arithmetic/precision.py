# SPDX-License-Identifier: MIT
"""Recognise arithmetic of a lower precision by recomputing it, not by a threshold.

A convolution sums few products (9 in the first of the default model), so it still shows the precision of its
operands; so do linear layers, products of matrices and transposed convolutions. The first one that fails is computed
again in float64, from the candidate's own input, with operands rounded as a lower precision rounds them; the one that
brings the candidate inside the float32 bound is its precision. Where results are stored in 16 bits, they are rounded
in the prediction as well, see `bridge.judge.oracle.reduced_precision`.

Source: NVIDIA, cuDNN documentation (DEFAULT math lets float32 data use TF32: 10 bits of fraction).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bridge.common.number_format import count, short
from bridge.common.progress import Report
from bridge.exchange.model import Conv2d, Relu
from bridge.exchange.model import Operation as Layer
from bridge.judge.arithmetic import operands
from bridge.judge.arithmetic.own_inputs import graph_of
from bridge.judge.arithmetic.recognised import LowerPrecision, Recognised
from bridge.judge.diagnosis.faults.lowered import in_precision
from bridge.judge.diagnosis.faults.stored_16_bit import compared, replay
from bridge.judge.measure.comparison import compare
from bridge.judge.measure.error_statistics import Statistic, measure
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison, Judged
from bridge.judge.measure.operation_names import operation
from bridge.judge.measure.outcome import Outcome
from bridge.judge.oracle import convolution
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff
from bridge.judge.oracle.reduced_precision import CUT_OFF, HALF, HYPOTHESES, ReducedPrecision, words
from bridge.operations.graph import INPUT

Array = np.ndarray


#: In the Euclidean norm; a fault of layout, sign or scale leaves far more
LARGEST_RELATIVE_ERROR = {"TF32": 4 * 2.0**-11, "bf16": 4 * 2.0**-8}


def recognise(pair: FilePair, comparison: Comparison, progress: Report | None = None) -> Recognised | None:
    """Return the lower precision of the first sum of products of step 0 that fails; None where that shows none.

    One after the first is computed from the candidate's own input, where both are in the file.

    Parameters
    ----------
    pair, comparison : the two files, and what was found
    progress : called as ``progress(done, total)`` where all images are compared by the bounds of that precision
    """
    failing = _failing(pair) if comparison.failures else None
    # Arithmetic that explains everything else excuses no NaN
    if failing is None or failing.statistic.nonfinite:
        return None
    tensor = f"forward/{failing.layer.name}"
    for name, reduced in HYPOTHESES[pair.candidate.precision].items():
        if name in HALF and not pair.model.graph.consists_of(Conv2d, Relu):
            # Other operations than convolutions store their results, too
            continue
        # Products of rounded operands are exact in float32; a float64 candidate in float32 sums in float32
        u = total_roundoff("float32") if reduced.results is None else CUT_OFF
        found = _statistic(pair, failing.layer, reduced, u)
        if found.t <= 1:
            lower = LowerPrecision(name, tensor, found.t, comparison.t(tensor, 0), words(name))
            below = pair.reduced_to(name)
            judged = replay(pair, comparison, name) if name in HALF else compare(below, progress)
            # Gradients that are below the smallest fp16 number are lost whole, which no relative bound covers
            single = operands.recognise(pair, comparison) if judged.failures else None
            return single or _proven(lower, below, judged)
    return None


def _proven(lower: LowerPrecision, pair: FilePair, judged: Comparison) -> Recognised:
    half = HALF.get(lower.name)
    kind = half.type if half else lower.name
    said = (
        f"LOWER PRECISION than declared: {lower.layer} is exactly what {lower.said} give "
        f"(T = {short(lower.t)}; as {judged.precision}: T = {short(lower.declared_t)}), and nothing "
        f"is further off than {kind} explains."
    )
    off = "float32 tensors and FMA math; PyTorch: no autocast" if half else "FMA math; PyTorch: allow_tf32 = False"
    hint = (
        f"A bug smaller than the rounding of {kind} cannot be excluded: run in {judged.precision} (cuDNN: {off}), "
        "then compare again."
    )
    besides = (
        f"Besides, {lower.layer} is computed with {lower.said}; all this is judged by the bounds "
        f"of that precision, and the table by those of {judged.precision}."
    )
    return Recognised(Outcome.PRECISION, said, pair, judged, (hint,), besides, searched=True, precisions=(lower,))


def consistent(pair: FilePair, comparison: Comparison) -> Recognised | None:
    """Return a lower precision by whose bounds nothing fails, where no convolution can be computed again to prove it.

    The errors must look like it too: made by a convolution, small, and spread over many elements, and no operation
    without products may be wrong by its own inputs. Where a product is
    computed again and is that of no lower precision, none is named: arithmetic that nobody lists is no proof of a bug.
    """
    failures = comparison.failures
    if pair.candidate.precision != "float32" or pair.algorithm is not None or not failures:
        return None
    if failures[0].name.endswith("/bias") or not operands.is_product(comparison.model, failures[0].name):
        return None
    if any(one.by_itself and not operands.is_product(comparison.model, one.name) for one in failures):
        return None
    first = failures[0].statistic
    if not first.error**2 < first.norm_error / 4:
        return None
    for name, limit in LARGEST_RELATIVE_ERROR.items():
        if all(judged.statistic.relative_error < limit for judged in failures):
            below = pair.reduced_to(name)
            judged = compare(below)
            if not judged.failures:
                # One of the forward pass that was computed again, and is of no lower precision, is wrong
                if _failing(pair) is not None:
                    return None
                other = operands.excluded(pair, comparison)
                if other is not None:
                    return _unlisted(other, below, judged, comparison)
                lower = LowerPrecision(name, failures[0].name, first.t, first.t, words(name), proven=False)
                return _unproven(lower, below, judged, len(failures))
    return None


def _unlisted(other: Judged, pair: FilePair, judged: Comparison, comparison: Comparison) -> Recognised:
    said = (
        f"CANNOT TELL: {count(len(comparison.failures), 'tensor')} outside the {judged.precision} bounds. The errors "
        f"are small, but not those of a lower precision: {other.name} of step {other.step} (T = {short(other.t)}), "
        "computed again from the candidate's own inputs, is not what operands in TF32, fp16 or bf16 give."
    )
    hint = (
        f"A small bug can do this, or arithmetic that is not known here: look at "
        f"{operation(comparison.model, other.name, other.step)}, and run the candidate in float64."
    )
    return Recognised(Outcome.CANNOT_TELL, said, pair, judged, (hint,), searched=True)


def _unproven(lower: LowerPrecision, pair: FilePair, judged: Comparison, failed: int) -> Recognised:
    said = (
        f"CANNOT TELL: {count(failed, 'tensor')} outside the {judged.precision} bounds, "
        f"first {lower.layer} (T = {short(lower.t)}); consistent with {lower.said}, not proven."
    )
    hint = f"A small bug can do this too: turn {lower.name} off (PyTorch: allow_tf32 = False), compare again."
    return Recognised(Outcome.CANNOT_TELL, said, pair, judged, (hint,), searched=True, precisions=(lower,))


class Failing(NamedTuple):
    """A layer of step 0 whose output is wrong by the candidate's own input, and by what."""

    layer: Layer
    statistic: Statistic


def _failing(pair: FilePair) -> Failing | None:
    """The first sum of products of the forward pass of step 0 that fails, of those that can be computed again."""
    for layer in pair.model.graph.nodes:
        names = [layer.name, *(name for name in layer.inputs if name != INPUT)]
        if isinstance(layer, operands.LAYERS) and all(pair.candidate.has(f"steps/0/forward/{name}") for name in names):
            declared = _statistic(pair, layer, None, pair.u)
            if not declared.t <= 1:
                return Failing(layer, declared)
    return None


def _statistic(pair: FilePair, layer: Layer, reduced: ReducedPrecision | None, u: float) -> Statistic:
    """T of the candidate's sums against those of a lower precision, summed with unit roundoff u."""
    if isinstance(layer, Conv2d):
        return _of_convolution(pair, layer, reduced, u)
    graph, name = graph_of(pair, 0), f"forward/{layer.name}"
    assert graph is not None
    right = graph.operation(name)
    right = right if reduced is None else in_precision(right, reduced)
    return compared(graph.found(name), right.full(Arithmetic(u)))


def _of_convolution(pair: FilePair, layer: Conv2d, reduced: ReducedPrecision | None, u: float) -> Statistic:
    """The same, image by image."""
    source = None if layer.inputs[0] == INPUT else f"forward/{layer.inputs[0]}"
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
