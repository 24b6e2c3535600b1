# SPDX-License-Identifier: MIT
"""Recognise an operation that takes an operand of the step before: proven to the last bits, it is a bug.

Where weights move little, so is its error: inside the bounds of a lower precision, or of an unusual order of summation.
But those leave errors of all signs, and the operand of the step before predicts each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from bridge.common.number_format import short
from bridge.judge.arithmetic.own_inputs import are_known, graph_of
from bridge.judge.diagnosis.faults.stored_16_bit import compared
from bridge.judge.diagnosis.predictions.convolutions import Data, Filter, Forward
from bridge.judge.diagnosis.predictions.elementwise import BiasGradient
from bridge.judge.diagnosis.predictions.formulas import Joined
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.diagnosis.predictions.step_graph import INPUT, StepGraph
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.operation_names import operation
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict

#: What may be left of the error, in the Euclidean norm, of at least so many elements
LEFT, ENOUGH = 0.1, 16


# A candidate's NaN and infinity are judged, not warned of
@np.errstate(all="ignore")
def recognise_stale(pair: FilePair, comparison: Comparison) -> Verdict | None:
    """Return the verdict on a result whose first wrong tensor is what an operand of the step before gives; else None.

    Parameters
    ----------
    pair, comparison : the two files, and what was found by the declared precision
    """
    first = next(iter(comparison.failures), None)
    if first is None or first.step == 0 or first.statistic.elements < ENOUGH:
        return None
    now, before = (graph_of(pair, step) for step in (first.step, first.step - 1))
    if now is None or before is None or first.name not in pair.shapes or not are_known(now, first.name):
        return None
    right, found = now.operation(first.name), now.found(first.name)
    wrong = compared(found, right.full(now.arithmetic))
    if wrong.t <= 1 or wrong.nonfinite:
        return None
    for said, other in _stale(right, before, first.name):
        statistic = compared(found, other.full(now.arithmetic))
        if statistic.t <= 1 and math.sqrt(statistic.norm_error / wrong.norm_error) <= LEFT:
            words = (
                f"BUG: {first.name} of step {first.step} is wrong, T = {short(first.t)}: it is what {said} of the step "
                f"before gives, to the last bits (T = {short(statistic.t)})."
            )
            doing = operation(pair.model, first.name)
            return Verdict(Outcome.BUG, words, [f"Look at {doing}: {said} is kept from one step to the next."])
    return None


def _stale(right: Prediction, before: StepGraph, name: str) -> Iterator[tuple[str, Prediction]]:
    """The operation with each operand of the step before, and what it is called; of a sum, one of its parts so."""
    if isinstance(right, Joined):
        for i, (part, through) in enumerate(zip(right.parts, right.through, strict=True)):
            for said, other in _stale(part, before, f"grads/{through}/output"):
                yield f"{said} of {through}", right.replaced(parts=(*right.parts[:i], other, *right.parts[i + 1:]))
    if isinstance(right, Forward | Data):
        layer = right.layer.name
        w, b = before.weights[f"{layer}/weight"], before.weights.get(f"{layer}/bias")
        if isinstance(right, Forward) and b is not None:
            yield "the bias", right.replaced(b=b)
            yield "the filter and the bias", right.replaced(w=w, b=b)
        yield "the filter", right.replaced(w=w)
    if isinstance(right, Forward | Data | Filter | BiasGradient):
        operands = {Forward: ("x",), Data: ("dz",), Filter: ("x", "dz"), BiasGradient: ("dz",)}[type(right)]
        sources = (f"grads/{right.layer.name}/output",) if isinstance(right, Data) else before.inputs(name)
        for operand, source in zip(operands, sources, strict=True):
            old = before.value(INPUT).value if source == INPUT else before.own(source)
            if old is not None:
                yield {"x": "the input", "dz": "dz"}[operand], right.replaced(**{operand: Predicted(old)})
