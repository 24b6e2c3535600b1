# SPDX-License-Identifier: MIT
"""Figures from times: medians, quartiles, quotients, slopes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any


def summary(seconds: Sequence[float]) -> dict[str, Any]:
    """Median, quartiles and extremes of some times in seconds.

    Raises
    ------
    ValueError
        If there are none, or one is no positive number.

    Examples
    --------
    >>> summary([3.0, 1.0, 2.0])
    {'median': 2.0, 'quartiles': [1.5, 2.5], 'least': 1.0, 'most': 3.0, 'runs': 3}
    """
    times = sorted(seconds)
    if not times or not all(math.isfinite(t) and t > 0 for t in times):
        raise ValueError(f"times: {list(seconds)}, expected one or more positive numbers")
    low, _, high = statistics.quantiles(times, method="inclusive") if len(times) > 1 else times * 3
    return {"median": statistics.median(times), "quartiles": [low, high], "least": times[0], "most": times[-1],
            "runs": len(times)}


def ratios(results: Mapping[str, Mapping[str, Any]], own: str) -> dict[str, float]:
    """How many times as long as `own` each one takes: the quotient of the medians; above 1, `own` is faster.

    Those that were skipped, and `own` itself, are left out.

    Examples
    --------
    >>> ratios({"a": {"median": 2.0}, "b": {"median": 6.0}, "c": {"skipped": "not there"}}, "a")
    {'b': 3.0}
    """
    if "median" not in results.get(own, {}):
        return {}
    mine = results[own]["median"]
    return {name: one["median"] / mine for name, one in results.items() if name != own and "median" in one}


def slope(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Exponent p of y ~ x**p by least squares on the upper half of the points; None with fewer than two of them.

    The lower half is left out, because there what is constant hides what grows.

    Examples
    --------
    >>> round(slope([1, 2, 4, 8], [9.0, 9.5, 16, 64]), 3)
    2.0
    """
    points = sorted(zip(x, y, strict=True))
    points = [(math.log(a), math.log(b)) for a, b in points[min(len(points) // 2, max(len(points) - 2, 0)):]]
    if len(points) < 2:
        return None
    return statistics.linear_regression(*zip(*points, strict=True)).slope
