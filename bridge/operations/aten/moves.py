# SPDX-License-Identifier: MIT
"""Operations that only move numbers: found by where they bring numbers that stand for their places.

What is moved is exact, and so are the terms of what is sent back: nothing of them is estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bridge.operations.operation import Number

Array = np.ndarray


@dataclass(frozen=True)
class Moves:
    """Where each number of the result comes from.

    Attributes
    ----------
    places : from 1 on, of all operands one after the other; negative where the sign changes, 0 where there is a 0
    """

    places: Array

    def moved(self, operands: Sequence[Number]) -> Number:
        """Return the numbers of operands where they are brought, with their errors."""
        value, error = (_laid([getattr(one, kind) for one in operands]) for kind in ("value", "error"))
        at = np.abs(self.places)
        return type(operands[0])(np.sign(self.places) * value[at], error[at], operands[0].arithmetic)

    def sent_back(self, dy: Number, operands: Sequence[Number]) -> list[Number]:
        """Return the gradients with respect to operands, sums of where they were brought."""
        at, signs = np.abs(self.places).ravel(), np.sign(self.places)
        value, size, error, count = (
            np.bincount(at, one.ravel(), sum(one.size for one in operands) + 1)[1:]
            for one in (signs * dy.value, np.abs(dy.value), dy.error, np.ones(dy.shape)))
        factor = dy.arithmetic.factor(np.maximum(count - 1, 0))
        bound = factor * size + (1 + factor) * error
        ends = np.cumsum([one.size for one in operands])
        return [type(dy)(value[end - one.size:end].reshape(one.shape), bound[end - one.size:end].reshape(one.shape),
                         dy.arithmetic, float(count[end - one.size:end].max(initial=1))) for one, end in
                zip(operands, ends, strict=True)]


def moves_of(function: Callable[[list[Array]], Array], operands: Sequence[Array], exact: frozenset[int]
             ) -> Moves | None:
    """Return where a function brings the numbers of its operands; None where it computes any.

    Parameters
    ----------
    function : of float64 arrays
    operands : of which it is asked
    exact : positions of operands that are integers, on which it depends otherwise

    Examples
    --------
    >>> moves_of(lambda given: -given[0][::-1], [np.array([1.5, 2.5])], frozenset()).places
    array([-2, -1])
    >>> moves_of(lambda given: abs(given[0]), [np.array([1.5, 2.5])], frozenset()) is None
    True
    """
    rng, ends = np.random.default_rng(0), np.cumsum([one.size for one in operands])
    places = [one if i in exact else np.arange(end - one.size + 1.0, end + 1).reshape(one.shape)
              for i, (one, end) in enumerate(zip(operands, ends, strict=True))]
    with np.errstate(all="ignore"):
        found = function(places)
        if not (np.isfinite(found).all() and (found == np.rint(found)).all() and (np.abs(found) <= ends[-1]).all()):
            return None
        moves = Moves(found.astype(np.int64))
        drawn = [one if i in exact else rng.standard_normal(one.shape) for i, one in enumerate(operands)]
        for given in (operands, drawn):
            if not np.array_equal(np.sign(found) * _laid(given)[np.abs(moves.places)], function(list(given))):
                return None
    return moves


def _laid(arrays: Sequence[Array]) -> Array:
    """All numbers one after the other behind a 0."""
    return np.concatenate([np.zeros(1), *(one.ravel() for one in arrays)])
