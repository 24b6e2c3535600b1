# SPDX-License-Identifier: MIT
"""Two runs of one program on one fixture: equal to the bit, or different by rounding, or by more than that.

Sums in an order that depends on threads (atomic additions) differ in their last bits, by much less than the bound E.
A race, a read before a kernel has finished, or memory that nobody has written differs by more, whether the tensors are
right or wrong otherwise.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bridge.common.errors import FileError
from bridge.common.number_format import number, short
from bridge.common.progress import Report
from bridge.judge.measure.error_statistics import Statistic
from bridge.judge.measure.file_pair import FilePair, Parameters, other_result
from bridge.judge.measure.operation_names import place
from bridge.judge.measure.outcome import Outcome
from bridge.judge.measure.per_step import Parts, compared
from bridge.judge.measure.walk import walk
from bridge.judge.oracle.reductions import Truth
from bridge.judge.verdict import Verdict

Array = np.ndarray
StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Changed:
    """A tensor that differs between two runs.

    Attributes
    ----------
    name, step : as under /steps/<step>
    statistic : the difference; its T is |run 1 - run 2| / 2E, since both runs may be E away from the truth
    at : where that is largest, in words
    """

    name: str
    step: int
    statistic: Statistic
    at: str

    @property
    def within_rounding(self) -> bool:
        """Rounding in another order explains it; false for NaN."""
        return self.statistic.t <= 1


@dataclass
class Runs:
    """What two runs have in common.

    Attributes
    ----------
    equal : tensors that are equal to the bit
    changed : the others, in the order of computation
    left_out : steps that were not compared, since the runs entered them with different weights
    """

    equal: int = 0
    changed: list[Changed] = field(default_factory=list)
    left_out: int = 0

    @property
    def outcome(self) -> Outcome:
        """Rounding, or a bug."""
        return Outcome.ROUNDING if all(one.within_rounding for one in self.changed) else Outcome.BUG

    @property
    def words(self) -> str:
        """Return one sentence."""
        if not self.changed:
            return f"REPEATABLE: two runs agree to the bit in all {self.equal} tensors."
        rest = f" {self.left_out} later steps start from different weights and say no more." if self.left_out else ""
        if self.outcome is Outcome.ROUNDING:
            worst = max(self.changed, key=lambda one: one.statistic.t)
            return (
                f"NOT REPEATABLE, within rounding: {len(self.changed)} of {self.equal + len(self.changed)} tensors "
                f"differ between two runs, by at most {worst.statistic.t:.1g} of the bound ({worst.name}, step "
                f"{worst.step}): sums in another order, as from atomic additions.{rest}"
            )
        first = next(one for one in self.changed if not one.within_rounding)
        s = first.statistic
        return (
            f"BUG: two runs of the same program differ in {first.name} of step {first.step} by more than rounding "
            f"(T = {short(s.t)}; at {first.at} {s.found:.9g} and {s.expected:.9g}): a race, a read before the kernel "
            f"has finished, or memory that nobody has written.{rest}"
        )

    def to_dict(self) -> dict[str, Any]:
        """For the JSON document."""
        changed = [{"name": one.name, "step": one.step, "T": number(one.statistic.t)} for one in self.changed]
        return {"words": self.words, "outcome": self.outcome.label, "equal": self.equal, "changed": changed,
                "steps_left_out": self.left_out}


def compare_runs(first: FilePair, second: StrPath, progress: Report | None = None) -> Runs:
    """Compare two results of one program on one fixture.

    Parameters
    ----------
    first : fixture and first result
    second : exchange file, the second result
    progress : called as ``progress(done, total)`` after every step

    Raises
    ------
    FileError
        If a file is unreadable, they do not belong together, or there is nothing to compare.
    """
    refuse_the_same(first.candidate.path, second)
    with other_result(first, second) as other, np.errstate(over="ignore", invalid="ignore"):
        if first.precision != other.precision:
            raise FileError(f"{other.candidate.path}: its precision is {other.precision}, that of "
                            f"{first.candidate.path} {first.precision}")
        runs = Runs()
        for k in range(first.steps):
            weights = _common_weights(first, other, k)
            if weights is None:
                runs.left_out = first.steps - k
                break
            _step(first, other, k, weights, runs)
            if progress:
                progress(k + 1, first.steps)
    if not runs.equal and not runs.changed:
        raise FileError(f"{os.fspath(second)}: no tensor that {first.candidate.path} has: nothing was compared")
    return runs


def refuse_the_same(first: StrPath, second: StrPath) -> None:
    """Refuse one file as both runs.

    Raises
    ------
    FileError
        With the name of the second.
    """
    if os.path.exists(first) and os.path.exists(second) and os.path.samefile(first, second):
        raise FileError(f"{os.fspath(second)}: the second result is the first one itself, expected another run's")


def _common_weights(one: FilePair, other: FilePair, k: int) -> Parameters | None:
    """Weights before step k, if both runs have the same."""
    if k == 0:
        return {name: w.astype(np.float64) for name, w in one.start.items()}
    first, second = (pair.parameters(pair.candidate, k) for pair in (one, other))
    if first is None or second is None or not all(np.array_equal(w, second[name]) for name, w in first.items()):
        return None
    return {name: w.astype(np.float64) for name, w in first.items()}


def _step(one: FilePair, other: FilePair, k: int, weights: Parameters, runs: Runs) -> None:
    """Compare bits first: the bounds take a hundred times as long."""
    shared = [name for name in one.shapes if all(p.candidate.has(f"steps/{k}/{name}") for p in (one, other))]
    differing = {name for name in shared if not _same(*_read(one, other, k, name))}
    runs.equal += len(shared) - len(differing)
    if not differing:
        return
    statistics = _differences(one, other, k, weights, shared, differing)
    runs.changed += [Changed(name, k, statistics[name], place(one.model, name, statistics[name].at))
                     for name in shared if name in differing]


def _differences(one: FilePair, other: FilePair, k: int, weights: Parameters, shared: list[str], differing: set[str]
                 ) -> dict[str, Statistic]:
    """The differences over twice the bound.

    The oracle computes on with what is equal in both runs: an operation of equal inputs has its own, sharper bound.
    """
    statistics = Parts()

    def look(name: str, truth: Truth, local: Truth | None, image: int | None, /) -> Array | None:
        if name not in shared:
            return None
        a, b = _read(one, other, k, name, image)
        if name not in differing:
            return a if np.isfinite(a).all() else None
        bound = truth.bound if local is None else local.bound
        statistics.put(name, image, compared([a], Truth(b.astype(np.float64), 2 * bound), image)[0])
        return None

    walk(one, k, weights, look)
    return statistics.merged()


def _read(one: FilePair, other: FilePair, k: int, name: str, image: int | None = None) -> tuple[Array, Array]:
    path, shape = f"steps/{k}/{name}", one.shapes[name]
    return one.candidate.read(path, shape, image), other.candidate.read(path, shape, image)


def _same(a: Array, b: Array) -> bool:
    """Equal values; a NaN in the same place is repeatable, too."""
    return a.dtype == b.dtype and bool(np.array_equal(a, b, equal_nan=True))


def with_runs(verdict: Verdict, runs: Runs) -> Verdict:
    """Return the verdict on the first run, and what the second one says: runs that differ are a bug, whatever each is.
    """
    if runs.outcome is Outcome.ROUNDING:
        return replace(verdict, hints=[*verdict.hints, runs.words])
    return replace(verdict, outcome=Outcome.BUG, words=runs.words, hints=[verdict.words, *verdict.hints])
