# SPDX-License-Identifier: MIT
"""Does the error fall in float64? The analysis of ``validate --precision float64``.

Rounding falls with the unit roundoff, from 2^-24 to 2^-53: by 2^29. A bug stays. The oracle is float64 itself, and its
own error is as large as that of a right candidate: the measured fall is a little less than the true one. So a tensor
counts as fallen where its float64 error is inside its float64 bound, which includes the oracle's error, and the
factor says how clearly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.table import Table

from bridge.common.number_format import number, short
from bridge.judge.measure.findings import Comparison
from bridge.validate.size_study import is_computed

#: log2 of the ratio of the unit roundoffs of float32 and float64
ROUNDING_FALLS = 29
#: log2 of a fall below which the error stays
STAYS = 10


@dataclass(frozen=True)
class Fall:
    """One tensor of one step in both precisions.

    Attributes
    ----------
    name, step : as under /steps/<step>
    single, double : error over norm of the float32 and of the float64 run
    t_single, t_double : T of both, each against the bound of its precision
    """

    name: str
    step: int
    single: float
    double: float
    t_single: float
    t_double: float

    @property
    def log2(self) -> float:
        """Return the power of two by which it falls; infinite where only float64 is exact, NaN where float32 is or one
        is not finite.
        """
        if not (math.isfinite(self.single) and math.isfinite(self.double)) or self.single == 0:
            return math.nan
        return math.inf if self.double == 0 else math.log2(self.single / self.double)


def falls(single: Comparison, double: Comparison) -> list[Fall]:
    """Return all tensors of the forward and backward passes that both comparisons judged, in the order of computation.
    """
    other = {(judged.name, judged.step): judged for judged in single.judged}
    return [
        Fall(d.name, d.step, s.statistic.relative_error, d.statistic.relative_error, s.t, d.t)
        for d in double.judged
        if is_computed(d.name) and (s := other.get((d.name, d.step))) is not None
    ]


def conclusion(found: list[Fall]) -> str:
    """Return the conclusion in one line."""
    wrong = [fall for fall in found if not fall.t_double <= 1]
    known = [fall.log2 for fall in found if math.isfinite(fall.log2) and fall not in wrong]
    rest = f"2^{median(known):.1f} (median of {len(known)}; rounding falls by 2^{ROUNDING_FALLS})" if known else ""
    if wrong:
        return _stays(wrong[0], len(wrong), rest)
    single = [fall for fall in found if not fall.t_single <= 1]
    if single:
        first = single[0]
        by = f", where it falls by 2^{first.log2:.1f}" if math.isfinite(first.log2) else ""
        return (f"FLOAT64 IS RIGHT, float32 is not, first in {first.name} of step {first.step}{by}: a lower precision, "
                "a poor summation, or a bug of the float32 code alone.")
    return f"ROUNDING: from float32 to float64 the error falls by {rest}." if rest else "EXACT in both precisions."


def _stays(first: Fall, count: int, rest: str) -> str:
    others = f" (and {count - 1} more)" if count > 1 else ""
    what = f"the error of {first.name} in step {first.step}{others}"
    elsewhere = f" The other tensors fall by {rest}." if rest else ""
    if first.t_single <= 1:
        return (f"NOT FLOAT64: {what} is inside the float32 bound, and falls by {_factor(first)} only: something is "
                f"still computed in float32, or a bug is as small as its rounding.{elsewhere}")
    if first.log2 >= STAYS:
        return f"BUG: {what} falls by {_factor(first)}, and is still more than float64 rounding.{elsewhere}"
    return (f"BUG: {what} does not fall ({short(first.single)} of its norm in float32, {short(first.double)} in "
            f"float64).{elsewhere}")


def _factor(fall: Fall) -> str:
    if fall.log2 == math.inf:
        return "all of it"
    return f"2^{fall.log2:.1f}" if math.isfinite(fall.log2) else "nothing"


def to_dict(found: list[Fall]) -> dict[str, Any]:
    """Return what the JSON document says of it."""
    return {
        "conclusion": conclusion(found),
        "tensors": [
            {"name": f.name, "step": f.step, "float32": number(f.single), "float64": number(f.double),
             "log2_ratio": number(f.log2), "T_float32": number(f.t_single), "T_float64": number(f.t_double)}
            for f in found
        ],
    }


def of_worst_step(found: list[Fall]) -> list[Fall]:
    """Return for every tensor the step in which float64 is worst."""
    chosen: dict[str, Fall] = {}
    for fall in found:
        if fall.name not in chosen or not fall.t_double <= chosen[fall.name].t_double:
            chosen[fall.name] = fall
    return list(chosen.values())


def table(found: list[Fall]) -> Table:
    """Return one row for each tensor, of the step in which float64 is worst."""
    rows = Table(box=None, header_style="bold", pad_edge=False)
    rows.add_column("error / norm", no_wrap=True)
    for heading in ("step", "float32", "float64", "falls by", "T float32", "T float64"):
        rows.add_column(heading, justify="right", no_wrap=True)
    for fall in of_worst_step(found):
        by = "exact" if fall.single == fall.double == 0 else _factor(fall)
        t = [short(t) if math.isfinite(t) else str(t) for t in (fall.t_single, fall.t_double)]
        right = fall.t_single <= 1 and fall.t_double <= 1
        rows.add_row(fall.name, str(fall.step), f"{fall.single:.1e}", f"{fall.double:.1e}", by, *t,
                     style="" if right else "red")
    return rows
