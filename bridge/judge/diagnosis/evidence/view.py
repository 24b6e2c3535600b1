# SPDX-License-Identifier: MIT
"""A wrong tensor beside the right one, and how well something else explains it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bridge.judge.diagnosis.information import bits, place_bits, place_of_each
from bridge.judge.diagnosis.last_place import moves
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.predictions.updating import Updating
from bridge.judge.diagnosis.records import EXACT, Seen
from bridge.judge.oracle.error_model import UNIT_ROUNDOFF

Array = np.ndarray

__all__ = ["AGREE", "AXES", "EXACT", "PER_NUMBER", "Array", "Seen", "View"]

#: A single number agrees with another by chance, unless to nearly all of its digits
AGREE = 3e-6
#: Elements that are looked at: of larger tensors some at random
MOST = 20000
#: Elements for each number that is fitted, at least; as many again decide. Twice as many where what is left is more
#: than rounding
PER_NUMBER = 2
#: Bits that choose a description of hundreds, and those of a number in it: most are small and whole, as which image it
#: is, and one that was fitted is tried on elements that it was not fitted to
CHOICE, NUMBER = 10, 8
#: Numbers of a description that names an operand which was solved for, and tried on elements that it was not solved by
WHOLE_OPERAND = 100
#: Words for the axes of images, filters and biases
AXES = {
    "nchw": ("image", "channel", "row", "column"),
    "ncdhw": ("image", "channel", "plane", "row", "column"),
    "kcdrs": ("output channel", "input channel", "kernel plane", "kernel row", "kernel column"),
    "kcrs": ("output channel", "input channel", "kernel row", "kernel column"),
    "kc": ("output", "input"),
    "nc": ("image", "feature"),
    "nlc": ("image", "row", "feature"),
    "k": ("channel",),
}


@dataclass
class View:
    """A wrong tensor, or an operand that was recovered from it, beside the right one.

    Attributes
    ----------
    found, right, bound : candidate, right values and E, of one shape
    axes : a word for each axis
    others : tensors of the same shape by description, one of which may have got here
    operands : what the right tensor is made of element by element, by description
    dimensions : numbers by name, for factors
    at : flat indices of the elements that are looked at: they lie in the part that is wrong
    u : unit roundoff of the candidate
    left : of an operand that was solved for: the share of the result's error that it leaves, measured where it was not
        fitted
    """

    found: Array
    right: Array
    bound: Array
    axes: tuple[str, ...]
    others: Mapping[str, Array] = field(default_factory=dict)
    operands: Mapping[str, Array] = field(default_factory=dict)
    dimensions: dict[str, int] = field(default_factory=dict)
    at: Array = field(default_factory=lambda: np.zeros(0, int))
    left: float = np.inf
    u: float = UNIT_ROUNDOFF["float32"]

    def __post_init__(self) -> None:
        self.bound = np.broadcast_to(self.bound, self.right.shape)
        with np.errstate(invalid="ignore"):
            self.wrong = ~(np.abs(self.found - self.right) <= self.bound)
        if not self.at.size:
            inside = np.flatnonzero(self.region())
            if inside.size > MOST:
                inside = np.sort(np.random.default_rng(0).choice(inside, MOST, replace=False))
            self.at = inside
        self.f, self.r, self.e = (x.reshape(-1)[self.at] for x in (self.found, self.right, self.bound))
        self.place = np.unravel_index(self.at, self.right.shape)
        self.error = float(np.linalg.norm(self.f - self.r))
        #: elements to which numbers are fitted; by the others a description is judged
        self.fitted = np.random.default_rng(1).random(self.at.size) < 0.5

    def used(self) -> list[Array]:
        """Return of each axis the indices where something is wrong."""
        axes = range(self.wrong.ndim)
        return [np.flatnonzero(self.wrong.any(axis=tuple(b for b in axes if b != a))) for a in axes]

    def region(self) -> Array:
        """Return the smallest set of images, channels, rows, columns that holds all that is wrong, as a mask."""
        inside = np.zeros(self.wrong.shape, dtype=bool)
        inside[np.ix_(*self.used())] = True
        return inside

    def rest(self, predicted: Array, numbers: int = 0) -> float:
        """Return what a prediction at the elements that are looked at leaves of their error; infinite where too many
        numbers were fitted for that to mean anything.

        Parameters
        ----------
        numbers : that were fitted, to the elements `fitted`; then the others decide
        """
        chosen = ~self.fitted if numbers else np.ones(self.at.size, dtype=bool)
        if numbers and min(np.count_nonzero(chosen), np.count_nonzero(self.fitted)) < PER_NUMBER * numbers:
            return np.inf
        error = float(np.linalg.norm((self.f - self.r)[chosen]))
        with np.errstate(invalid="ignore", over="ignore"):
            off = np.abs(self.f - predicted)[chosen]
            left = float(np.linalg.norm(off))
            size = np.abs(predicted[chosen]) + np.abs(self.f[chosen])
            inside = bool((off <= 2 * self.e[chosen] + 4e-7 * size).all())
            moved = moves(self.r[chosen], np.broadcast_to(predicted, self.f.shape)[chosen],
                          self.wrong.reshape(-1)[self.at][chosen], self.u)
        if not error > 0 or not np.isfinite(left) or not moved:
            return np.inf
        # Rounding alone is left
        rest = min(left / error, EXACT) if inside and left < 0.5 * error else left / error
        return rest if rest <= EXACT or np.count_nonzero(chosen) >= 2 * PER_NUMBER * numbers else np.inf

    def solve(self, columns: Array) -> tuple[Array, float]:
        """Return the coefficients of columns (elements, numbers) that fit best, and what they leave of the error."""
        numbers = columns.shape[1]
        if np.count_nonzero(self.fitted) < PER_NUMBER * numbers or not np.isfinite(columns).all():
            return np.zeros(numbers), np.inf
        size = np.linalg.norm(columns, axis=0)
        size[size == 0] = 1.0
        found = np.linalg.lstsq(columns[self.fitted] / size, self.f[self.fitted], rcond=1e-9)[0] / size
        return found, self.rest(columns @ found, numbers)


def says_more(view: View, seen: Seen, of_each: bool, updating: Updating | None = None) -> bool:
    """Return whether a wrong tensor says more than a description of it: the numbers in it, and where it holds.

    Parameters
    ----------
    of_each : it is said of the wrong elements alone, wherever they are
    updating : of new weights, which say no more than the step that they took
    """
    own = place_of_each(view.wrong) if of_each else place_bits(view.wrong)
    own += CHOICE + (NUMBER * seen.numbers if seen.numbers < WHOLE_OPERAND else 0)
    right = Predicted(view.right, view.bound)
    return bits(view.found, right, Predicted(view.found, view.bound),
                0.0 if updating is None else updating.weights[-1]) >= own
