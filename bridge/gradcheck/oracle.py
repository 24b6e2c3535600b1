# SPDX-License-Identifier: MIT
"""Operations and losses by the float64 oracle: values of both passes, with bounds on the rounding of each element."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bridge.judge.measure.error_statistics import measure
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff
from bridge.operations.losses import Loss
from bridge.operations.operation import Operation

Array = np.ndarray


class OperationOracle:
    """The formulas of an operation on exact arrays, whose precision is the candidate's.

    Examples
    --------
    >>> from bridge.operations import Exp
    >>> y = OperationOracle(Exp("a")).forward([np.zeros((1, 1), np.float32)], {})
    >>> y.value.item(), bool(y.error < 1e-6)
    (1.0, True)
    """

    def __init__(self, node: Operation) -> None:
        self._node = node

    def forward(self, inputs: Sequence[Array], parameters: Mapping[str, Array]) -> Bounded:
        """Return the output."""
        found: Bounded = self._node.forward([exact(x) for x in inputs], _exact(parameters))
        return found

    def backward(self, dy: Array, inputs: Sequence[Array], parameters: Mapping[str, Array]) -> list[Bounded]:
        """Return the gradients of the inputs, and of the parameters in their order."""
        dx, dw = self._node.backward(exact(dy), [exact(x) for x in inputs], _exact(parameters))
        return [*dx, *(dw[name] for name in self._node.parameter_shapes())]


class LossOracle:
    """The same of a loss with its target."""

    def __init__(self, loss: Loss, target: Array) -> None:
        self._loss, self._target = loss, exact(target)

    def forward(self, output: Array) -> Bounded:
        """Return the loss."""
        found: Bounded = self._loss.forward(exact(output), self._target)
        return found

    def backward(self, output: Array) -> Bounded:
        """Return the gradient of the output."""
        found: Bounded = self._loss.backward(exact(output), self._target)
        return found


def exact(array: Array) -> Bounded:
    """Return an array without error, in the arithmetic of its precision."""
    return Bounded(array, 0.0, Arithmetic(total_roundoff(array.dtype.name)))


def ratios(found: Iterable[Array], right: Iterable[Bounded]) -> list[float]:
    """Return T of each tensor, its largest error in units of the bound.

    >>> ratios([np.array([1.0, 2.5])], [Bounded(np.array([1.0, 2.0]), 1.0, Arithmetic(0.0))])
    [0.5]
    """
    return [measure(np.atleast_1d(one), np.atleast_1d(truth.value), np.atleast_1d(truth.error)).t
            for one, truth in zip(found, right, strict=True)]


def _exact(arrays: Mapping[str, Array]) -> dict[str, Bounded]:
    return {name: exact(one) for name, one in arrays.items()}
