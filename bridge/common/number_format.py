# SPDX-License-Identifier: MIT
"""Numbers in words: one number reads the same wherever it is printed, T above all."""

from __future__ import annotations

import math


def short(value: float) -> str:
    """Return a number in few characters; never rounded to 1, the limit of T, from below or from above.

    >>> short(0.99996), short(1.00001), short(12345.0)
    ('0.999', '1.001', '1.2e+04')
    """
    if value == 0:
        return "0"
    if 0.95 <= value < 1:
        return f"{math.floor(value * 1000) / 1000:.3f}"
    if 1 < value < 1.05:
        return f"{math.ceil(value * 1000) / 1000:.3f}"
    return f"{value:.2g}" if 1e-3 <= abs(value) < 99.5 else f"{value:.1e}"


def count(n: int, what: str) -> str:
    """
    >>> count(1, "step"), count(2, "step")
    ('1 step', '2 steps')
    """
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def number(value: float | None) -> float | None:
    """JSON knows no infinity.

    >>> number(float("inf")), number(2)
    (None, 2.0)
    """
    return float(value) if value is not None and math.isfinite(value) else None
