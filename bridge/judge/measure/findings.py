# SPDX-License-Identifier: MIT
"""What a comparison finds: plain records, no decisions (those are in `bridge.judge.verdict`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.exchange.model import Model, Shape
from bridge.judge.measure.error_statistics import Statistic
from bridge.judge.measure.outcome import Outcome
from bridge.judge.measure.walk import VAST

NOT_IN_FILE = "not in the file"
#: T from which on a sum with propagated errors is a bug: no rounding was ever seen to get there
BUG_ABOVE = 10.0
#: Step of what belongs to no step
NO_STEP = -1


@dataclass
class Judged:
    """One tensor of one step.

    Attributes
    ----------
    name : as under /steps/<k>: ``forward/conv1``, ``grads/conv1/weight``, ...; also ``optimizer/conv1/weight`` (new
        weights against the candidate's own gradient), ``update/conv1/weight`` ((w0 - w1)/lr against the oracle's) and
        ``memory/conv1/weight/momentum`` (what the optimiser remembers after the step)
    step : k
    statistic : what was found
    bug_above : T from which on it is a bug without doubt, see `bug_above`
    note : a remark for the reader
    estimated : its bound is no theorem, but what runs of PyTorch show: it rests on an operation that the table lacks
    by_itself : it was judged from the candidate's own inputs of its operation, all of which are in the file
    excused : set where it is outside its bound, but inside that of a lower precision: PRECISION where that precision is
        proven, else CANNOT_TELL
    """

    name: str
    step: int
    statistic: Statistic
    bug_above: float = BUG_ABOVE
    note: str = ""
    estimated: bool = False
    by_itself: bool = False
    excused: Outcome | None = None

    @property
    def t(self) -> float:
        """Return max |candidate - oracle| / E."""
        return self.statistic.t

    @property
    def passed(self) -> bool:
        """Return whether T <= 1; NaN is not."""
        return self.t <= 1.0

    @property
    def certain(self) -> bool:
        """Return whether it is a bug, and neither rounding nor doubt."""
        return not self.t <= self.bug_above

    @property
    def outcome(self) -> Outcome:
        """Return rounding (T <= 1), bug (certain), cannot tell between them, or precision where that explains it.

        >>> Judged("loss", 0, Statistic(t=2.0)).outcome.words
        'cannot tell'
        """
        if self.passed:
            return Outcome.ROUNDING
        return self.excused or (Outcome.BUG if self.certain else Outcome.CANNOT_TELL)

    @property
    def of_parameter(self) -> bool:
        """Return whether it is a parameter or its gradient, and no image."""
        return self.name.endswith(("/weight", "/bias"))

    @property
    def given(self) -> bool:
        """Return whether it is one of the first weights, which a candidate copies from the fixture and does not
        compute.
        """
        return self.step == 0 and self.name.startswith("weights/")


def bug_above(n: float) -> float:
    """Return the T above which an operation with known inputs and n roundings is a bug: n*u*c is a theorem.

    >>> bug_above(10), bug_above(324), bug_above(1e6)
    (1.0, 2.0, 10.0)
    """
    return min(max(1.0, math.sqrt(n) / 9), BUG_ABOVE)


def sharper(judged: Judged, local: Statistic | None, n: int, lacking: Sequence[str] = ()) -> Judged:
    """Return the same tensor against what the candidate's own inputs of the operation give, where that says more.

    Parameters
    ----------
    lacking : names of such inputs that its file lacks, which follow from others
    """
    # Where the whole step proves nothing, its bound is no answer
    if local is None or (local.t <= judged.t and judged.statistic.bound < VAST):
        return judged
    of = "inputs of this operation"
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        of = f"tensors before it, across {lacking[-1]}{more}, which its file lacks"
    return Judged(judged.name, judged.step, local, bug_above(n), f"from the candidate's own {of}",
                  by_itself=not lacking)


@dataclass
class NotJudged:
    """A tensor that could not be judged, and why.

    Attributes
    ----------
    name, step : as in `Judged`; the step is `NO_STEP` where it belongs to none
    reason : for the reader
    hidden : it was there, but nothing shows whether it is right (the learning rate hides it, or what it follows from
        is missing): no verdict without it
    unknown : the fixture knows no such name
    measured : it was measured and is inside its bound, but that proves nothing
    misnamed : the unknown name stands where the tensors of a step do, or is nearly one of theirs: it may be what was to
        be judged, and nothing is right without it, unless that is allowed
    nearest : known names that are like an unknown one, those that the file lacks
    """

    name: str
    step: int
    reason: str
    hidden: bool = False
    unknown: bool = False
    measured: bool = False
    misnamed: bool = False
    nearest: tuple[str, ...] = ()


@dataclass
class Comparison:
    """All that a comparison found; `bridge.judge.verdict.decide` draws the conclusion."""

    model: Model
    precision: str
    steps: int
    batch_shape: Shape
    #: the candidate's file says its precision; else it is judged as float32
    declared: bool = True
    judged: list[Judged] = field(default_factory=list)
    not_judged: list[NotJudged] = field(default_factory=list)
    #: largest T of the reference's own tensors at step 0; None when it was not checked
    reference_t: float | None = None
    #: largest difference between torch's float64 twins and the numpy oracle at step 0, in units of E
    twin_t: float | None = None
    #: |w_K - w_K*| / |w_K - w_0| of the last weights that both files have
    divergence: float | None = None
    #: the same after every step, from step 1 on; NaN where it is unknown, empty where nothing is known
    divergences: list[float] = field(default_factory=list)

    @property
    def failures(self) -> list[Judged]:
        """Return what is outside its bound, in the order of computation."""
        return [judged for judged in self.judged if not judged.passed]

    @property
    def computed(self) -> list[Judged]:
        """Return what was judged and is the candidate's own work."""
        return [judged for judged in self.judged if not judged.given]

    @property
    def estimated(self) -> list[Judged]:
        """Return what was judged by an estimated bound."""
        return [judged for judged in self.judged if judged.estimated]

    def t(self, name: str, step: int) -> float:
        """Return T of a tensor that was judged."""
        return next(judged.t for judged in self.judged if (judged.name, judged.step) == (name, step))

    @property
    def says_something(self) -> bool:
        """Return whether something that was computed could be judged, or something is wrong, or hidden."""
        return bool(self.computed or self.failures) or any(skipped.hidden for skipped in self.not_judged)

    def skip(self, name: str, step: int, reason: str, **marks: Any) -> None:
        """Put a tensor on the list of what could not be judged; `marks` as in `NotJudged`."""
        self.not_judged.append(NotJudged(name, step, reason, **marks))

    def note_reference(self, statistics: Iterable[Statistic]) -> None:
        """Remember the reference's largest T."""
        for statistic in statistics:
            self.reference_t = max(self.reference_t or 0.0, statistic.t)
