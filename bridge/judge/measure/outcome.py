# SPDX-License-Identifier: MIT
"""The verdicts, of one tensor as of a whole comparison."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Outcome(Enum):
    """The verdicts; the value is the exit code."""

    ROUNDING = 0
    BUG = 1
    BAD_INPUT = 2
    PRECISION = 3
    CANNOT_TELL = 4

    @property
    def label(self) -> str:
        """Return the name in JSON."""
        return self.name.lower()

    @property
    def words(self) -> str:
        """Return the name for people."""
        return self.label.replace("_", " ")


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the outcome of a whole step from those of its tensors.

    >>> worst([Outcome.ROUNDING, Outcome.BUG, Outcome.CANNOT_TELL]).words
    'bug'
    """
    found = set(outcomes)
    order = (Outcome.BUG, Outcome.CANNOT_TELL, Outcome.PRECISION)
    return next((one for one in order if one in found), Outcome.ROUNDING)
