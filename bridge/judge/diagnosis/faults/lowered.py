# SPDX-License-Identifier: MIT
"""Sums of products whose operands are rounded to fewer bits: convolutions, linear layers, products of matrices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bridge.judge.diagnosis.faults.convolution_faults import OPERANDS
from bridge.judge.diagnosis.predictions.convolutions import Data, Filter, Forward
from bridge.judge.diagnosis.predictions.elementwise import BiasGradient
from bridge.judge.diagnosis.predictions.formulas import Formula, Joined
from bridge.judge.diagnosis.predictions.hypothesis import Hypotheses, Passed, hypothesis, with_operand
from bridge.judge.diagnosis.predictions.operations import Prediction
from bridge.judge.oracle.reduced_precision import HYPOTHESES, ReducedPrecision, to_bf16, to_fp16

Array = np.ndarray
Change = Callable[[Array], Array]
#: What operands are called
WORDS = {"x": "the input", "y": "the second input", "w": "the weight", "weight": "the weight"}


def operands_of(operation: Prediction) -> tuple[str, ...]:
    """Return the names of the operands of an operation that sums products, two, or of a bias gradient, one; of a sum of
    operations those of the first such one; empty where there is none.
    """
    if isinstance(operation, Joined):
        return next(filter(None, map(operands_of, operation.parts)), ())
    if isinstance(operation, BiasGradient):
        return ("dz",)
    return operation.factors if isinstance(operation, Formula) else OPERANDS.get(type(operation), ())


def lowered(operation: Prediction, which: tuple[int, ...], change: Change) -> Prediction:
    """Return an operation with the first operand of its products changed (0), the second (1), or both."""
    if isinstance(operation, Joined):
        changed: Prediction = operation.replaced(parts=tuple(lowered(part, which, change) for part in operation.parts))
        return changed
    names = operands_of(operation)
    for i in which[: len(names)]:
        operation = with_operand(operation, names[i], change)
    return operation


def kept_in(operation: Prediction, half: ReducedPrecision) -> Prediction:
    """Return an operation with its result stored in 16 bits; of a sum of operations, those of its sums of products."""
    if isinstance(operation, Joined):
        parts: Prediction = operation.replaced(parts=tuple(
            kept_in(part, half) if operands_of(part) else part for part in operation.parts))
        return parts
    if isinstance(operation, Forward | Data | Filter):
        changed: Prediction = operation.replaced(reduced=half)
        return changed
    if half.bias_inside and isinstance(operation, Formula) and not _has_no_bias(operation):
        operation = operation.with_operand("bias", half.widened)
    return Passed(operation.shape, operation, half.widened, half.relative, half.absolute)


def in_precision(operation: Prediction, reduced: ReducedPrecision) -> Prediction:
    """Return an operation with both operands of its products rounded, and its result where that is stored."""
    rounded = lowered(operation, (0, 1), reduced.widened)
    return rounded if reduced.results is None else kept_in(rounded, reduced)


def _has_no_bias(operation: Prediction) -> bool:
    return not (isinstance(operation, Formula) and operation.dy is None and "bias" in operation.parameters)


def in_lower_precision(operation: Prediction) -> Hypotheses:
    """Yield what operands of each lower precision give, of an operation that is no convolution."""
    for reduced in HYPOTHESES["float32"].values():
        if len(operands_of(operation)) > 1 and not (reduced.bias_inside and _has_no_bias(operation)):
            yield hypothesis("precision", reduced.said, in_precision(operation, reduced))


def with_one_operand_lowered(operation: Prediction) -> Hypotheses:
    """Yield what is made where one operand of the products alone has fewer bits: it is kept so until then."""
    names = operands_of(operation)
    for i, name in enumerate(names if len(names) > 1 else ()):
        for said, change in (("bfloat16", to_bf16), ("float16", to_fp16)):
            yield hypothesis("precision", f"{WORDS.get(name, name)} alone, not the other operand, is in {said}",
                             lowered(operation, (i,), change))
