# SPDX-License-Identifier: MIT
"""Does the error grow with the size of the images as rounding does? The analysis of ``validate --sizes``.

A sum of n terms in floating point has an error that grows like n at worst, like sqrt(n) by the probabilistic bounds,
and more slowly where sums are taken in blocks; what is not summed over the pixels does not grow at all. A bug does not
follow: a flipped gradient is wrong by the same share of itself at every size, an overflowing index only from some size
on.

Source: N. J. Higham and T. Mary, SIAM J. Sci. Comput. 41 (2019) A2815.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from bridge.common.number_format import number, short
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.outcome import Outcome, worst
from bridge.judge.verdict import Verdict

#: Exponent of n that no rounding exceeds, and that of the probabilistic bounds
WORST_EXPONENT, EXPECTED_EXPONENT = 1.0, 0.5
RELU = " A jump inside the bounds: an input of a ReLU is 0 up to rounding and went the other way, as it may."


@dataclass(frozen=True)
class Size:
    """What a validation found at one size.

    Attributes
    ----------
    name : as it was asked for, "64" or "48x64"
    pixels : number of pixels in a batch's input, batch * h * w
    outcome, words : the verdict
    first : first wrong tensor and its step; empty where all are right
    relative : error over norm by tensor name, the largest of all steps
    t : largest T by tensor name
    """

    name: str
    pixels: int
    outcome: Outcome
    words: str
    first: str
    relative: dict[str, float]
    t: dict[str, float]


@dataclass(frozen=True)
class Growth:
    """How the error of one tensor depends on the number of pixels n.

    Attributes
    ----------
    name : of the tensor
    exponent : p of error ~ n^p, a least-squares fit of the logarithms; NaN with fewer than two points
    reduced : it is a sum over all pixels: the loss, or a gradient of weights or bias
    """

    name: str
    exponent: float
    reduced: bool


@dataclass
class Scaling:
    """All sizes, from small to large."""

    sizes: list[Size] = field(default_factory=list)

    def add(self, name: str, comparison: Comparison, verdict: Verdict) -> None:
        """Add one more size."""
        relative: dict[str, float] = {}
        t: dict[str, float] = {}
        for judged in comparison.judged:
            if is_computed(judged.name):
                relative[judged.name] = _larger(relative.get(judged.name, 0.0), judged.statistic.relative_error)
                t[judged.name] = _larger(t.get(judged.name, 0.0), judged.t)
        n, _, *image = comparison.batch_shape
        failures = comparison.failures
        first = f"{failures[0].name} of step {failures[0].step}" if failures else ""
        self.sizes.append(Size(name, n * math.prod(image), verdict.outcome, verdict.words, first, relative, t))
        self.sizes.sort(key=lambda size: size.pixels)

    @property
    def outcome(self) -> Outcome:
        """Return the worst of all sizes."""
        return worst(size.outcome for size in self.sizes)

    @property
    def growths(self) -> list[Growth]:
        """Return the growth of every tensor that all sizes have, in the order of computation."""
        names = [name for name in self.sizes[0].relative if all(name in size.relative for size in self.sizes)]
        return [Growth(name, self._exponent(name), is_reduced(name)) for name in names]

    def _exponent(self, name: str) -> float:
        points = [(size.pixels, size.relative[name]) for size in self.sizes]
        return fitted_exponent([(n, error) for n, error in points if 0 < error < math.inf])

    @property
    def conclusion(self) -> str:
        """Return the conclusion in one line."""
        wrong = [size for size in self.sizes if size.outcome is not Outcome.ROUNDING]
        if not wrong:
            return f"ROUNDING: {self._grows()} {self._largest()}{RELU if any(map(_jumps, self.growths)) else ''}"
        outcome = self.outcome
        chosen = [size for size in wrong if size.outcome is outcome]
        name = chosen[-1].first.partition(" of step ")[0]
        label = {Outcome.BUG: "BUG", Outcome.PRECISION: "LOWER PRECISION"}.get(outcome, "CANNOT TELL")
        where = "at every size" if len(chosen) == len(self.sizes) else f"at {_listed(chosen)} only"
        if not name:
            return f"{label} {where}: {chosen[-1].words}"
        return f"{label} {where}: {name} {self._does_not(name, chosen)}"

    def _grows(self) -> str:
        reduced, rest = ([g.exponent for g in self.growths if g.reduced is kind and math.isfinite(g.exponent)]
                         for kind in (True, False))
        found = []
        if reduced:
            found.append(f"sums over n pixels ~ n^{median(reduced):.2f} (n^{min(reduced):.2f} to n^{max(reduced):.2f})")
        if rest:
            found.append(f"the rest ~ n^{median(rest):.2f}")
        faster = " More than n is faster than any rounding." if reduced and median(reduced) > WORST_EXPONENT else ""
        ends = f"from {self.sizes[0].name} to {self.sizes[-1].name}"
        return (f"{ends} the error grows like rounding, {', '.join(found)}; "
                f"expected is n^{EXPECTED_EXPONENT} or less, n at worst.{faster}")

    def _largest(self) -> str:
        t, name, size = max((t, name, size.name) for size in self.sizes for name, t in size.t.items())
        return f"Largest T = {short(t)} ({name} at {size})."

    def _does_not(self, name: str, chosen: list[Size]) -> str:
        errors = [size.relative.get(name, math.nan) for size in chosen]
        if not all(math.isfinite(error) for error in errors):
            return "holds NaN or infinity."
        exponent = self._exponent(name)
        grows = f", like n^{exponent:.2f}" if len(chosen) > 2 and math.isfinite(exponent) else ""
        t = max(size.t.get(name, 0.0) for size in chosen)
        right = _listed([size for size in self.sizes if size not in chosen])
        rest = f"; right at {right}: look at what depends on the size (indices, tiles, long sums)" if right else ""
        return (f"is off by {short(min(errors))} to {short(max(errors))} of its norm{grows}, up to {short(t)} times "
                f"what rounding can do{rest}.")

    def to_dict(self) -> dict[str, Any]:
        """Return what the JSON document of ``validate --sizes`` says besides the verdict."""
        return {
            "conclusion": self.conclusion,
            "sizes": [
                {"size": s.name, "pixels": s.pixels, "verdict": s.outcome.label, "words": s.words} for s in self.sizes
            ],
            "tensors": [
                {"name": g.name, "reduced": g.reduced, "exponent": number(g.exponent),
                 "relative_errors": [number(s.relative[g.name]) for s in self.sizes],
                 "T": [number(s.t[g.name]) for s in self.sizes]}
                for g in self.growths
            ],
        }

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return headings and rows of the table: relative errors by tensor and size."""
        rows = []
        for g in self.growths:
            t = max(size.t[g.name] for size in self.sizes)
            exponent = f"{g.exponent:.2f}" if math.isfinite(g.exponent) else ""
            rows.append([g.name, *(f"{size.relative[g.name]:.1e}" for size in self.sizes), exponent, short(t)])
        return ["error / norm", *(size.name for size in self.sizes), "~ n^", "max T"], rows

    def table(self) -> Table:
        """Return the same for the terminal."""
        (first, *headings), rows = self.cells()
        made = Table(box=None, header_style="bold", pad_edge=False)
        made.add_column(first, no_wrap=True)
        for heading in headings:
            made.add_column(heading, justify="right", no_wrap=True)
        for g, row in zip(self.growths, rows, strict=True):
            right = all(size.t[g.name] <= 1 for size in self.sizes)
            made.add_row(*row, style="" if right else "red")
        return made


def _jumps(growth: Growth) -> bool:
    """It is not summed over pixels, and yet its error depends on how many there are."""
    return not growth.reduced and growth.exponent > EXPECTED_EXPONENT


def is_computed(name: str) -> bool:
    """Return whether it is a tensor of the forward or backward pass, and no weights."""
    return name == "loss" or name.startswith(("forward/", "grads/"))


def is_reduced(name: str) -> bool:
    """Return whether it is summed over all pixels of the batch."""
    return name == "loss" or (name.startswith("grads/") and name.endswith(("/weight", "/bias")))


def fitted_exponent(points: list[tuple[float, float]]) -> float:
    """Return p of y ~ x^p, by least squares of the logarithms; NaN with fewer than two different x.

    >>> round(fitted_exponent([(1, 3), (10, 300), (100, 30000)]), 6)
    2.0
    """
    if len({x for x, _ in points}) < 2:
        return math.nan
    x, y = np.log(np.array(points, dtype=np.float64)).T
    return float(np.polyfit(x, y, 1)[0])


def _larger(a: float, b: float) -> float:
    """Their maximum; NaN if one is."""
    return b if not b <= a else a


def _listed(sizes: list[Size]) -> str:
    return ", ".join(size.name for size in sizes)
