# SPDX-License-Identifier: MIT
"""Constant factors: fitted, and named by the dimensions that make them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np

Array = np.ndarray

#: Small numbers that somebody may have forgotten or added
SMALL = (1.0, 2.0, 0.5, 4.0, 0.25, 3.0, 1 / 3)

#: Largest denominator of a fraction that is short, and how near the square of a fitted factor is to one
SHORT, ROOT = 16, 2e-7

#: Numbers to whose multiples rows of memory are padded
PITCHES = (4, 8, 16, 32, 64, 128)

#: Elements of a tensor that are proportional to another by chance
FEW = 4


def fitted(predicted: Array, found: Array, dimensions: dict[str, int], known: Iterable[float] = ()) -> float | None:
    """Return the factor of `found` over `predicted`, exactly a named one where it is close to that; None where nothing
    fits.

    Few numbers are proportional to anything: there only named factors count, and those that are `known`.
    """
    square = float(np.vdot(predicted, predicted))
    if not square > 0:
        return None
    factor = float(np.vdot(predicted, found)) / square
    if not math.isfinite(factor) or factor == 0:
        return None
    residual = np.linalg.norm(found - factor * predicted)
    # A factor that explains less than nine tenths of what is there is none
    if not residual <= 0.1 * np.linalg.norm(found):
        return None
    every = (*_named(dimensions), *_counts(dimensions), *known)
    named = [value for value in every if abs(value - factor) <= 1e-5 * abs(factor)]
    # 1 itself is as near as a count that is off by one in millions
    named = [value for value in named if value != 1.0] if abs(factor - 1) > 1e-9 else named
    if named:
        return min(named, key=lambda value: abs(value - factor))
    return factor if predicted.size >= FEW else None


def is_named(factor: float, dimensions: dict[str, int]) -> bool:
    """Return whether it is made of the dimensions and small numbers."""
    return any(abs(value - factor) <= 1e-9 * abs(factor) for value in (*_named(dimensions), *_counts(dimensions)))


def is_count(factor: float, dimensions: dict[str, int]) -> bool:
    """Return whether it is N over a number of elements that is off by few, or counts the padding too.

    >>> is_count(1536 / 1535, {"N": 1536}), is_count(0.5, {"N": 1536})
    (True, False)
    """
    return any(abs(value - factor) <= 1e-3 * abs(value - 1) for value in _counts(dimensions))


def factor_detail(factor: float, dimensions: dict[str, int]) -> str:
    """Return a factor in words.

    >>> factor_detail(0.5, {}), factor_detail(1 / 1536, {"N": 1536})
    ('times 0.5 (1/2)', 'times 0.000651042 (1/N, N = 1536)')
    >>> factor_detail(3.0, {"B": 4, "H": 12}), factor_detail(0.375, {"B": 4, "C": 3})
    ('times 3 (3)', 'times 0.375 (3/8)')
    >>> factor_detail(2**-0.5, {}), factor_detail(6**0.5, {"K": 6}), factor_detail(0.7, {})
    ('times 0.707107 (1/sqrt(2))', 'times 2.44949 (sqrt(6), K = 6)', 'times 0.7 (no product of the dimensions)')
    """
    said = f"times {factor:.6g}"
    if said == "times 1":
        said = f"times 1 {'+' if factor > 1 else '-'} {abs(factor - 1):.2g}"
    if is_count(factor, dimensions):
        return f"{said} (N/{dimensions['N'] / factor:.6g}, N = {dimensions['N']}{_rows(factor, dimensions)})"
    short = Fraction(factor).limit_denominator(SHORT)
    for sign, text in ((1, ""), (-1, "-")):
        for small, power in _combinations(dimensions):
            value = sign * small * math.prod(float(dimensions[name]) ** p for name, p in power)
            if abs(value - factor) <= 1e-9 * abs(factor) and (power or small != 1 or sign < 0):
                if len(power) > 1 and small != 1 and abs(float(short) - factor) <= 1e-9 * abs(factor):
                    # A short fraction is the simpler reading
                    return f"{said} ({short})"
                sizes = ", ".join(f"{name} = {dimensions[name]}" for name, _ in power)
                read = f"{text}{_text(small, power)}{', ' + sizes if sizes else ''}"
                return f"{said} ({read})"
    square = Fraction(factor * factor).limit_denominator(SHORT)
    if square and abs(float(square) - factor * factor) <= ROOT * factor * factor:
        return f"{said} ({'-' * (factor < 0)}{_root(square)}{_sizes(square, dimensions)})"
    return f"{said} (no product of the dimensions)"


def divisors(shape: tuple[int, ...]) -> dict[float, str]:
    """Return factors of a mean over a tensor of this shape, in words: it is divided by the product of some extents.

    Small numbers, which may be anything, are left out.

    >>> divisors((2, 1, 6, 6, 4))[144.0], divisors((2, 3)), 12.0 in divisors((3, 4))
    ('divided by n = 2 in place of n c d h w = 288', {}, False)
    """
    letters = {2: "nc", 3: "nlc", 4: "nchw", 5: "ncdhw"}.get(len(shape), "")
    used, whole, found = [axis for axis, n in enumerate(shape) if n > 1], math.prod(shape), dict[float, str]()
    for count in range(1, len(used)) if letters else ():
        for axes in itertools.combinations(used, count):
            divisor = math.prod(shape[axis] for axis in axes)
            if whole / divisor not in SMALL:
                found.setdefault(whole / divisor, f"divided by {' '.join(letters[axis] for axis in axes)} = {divisor} "
                                                  f"in place of {' '.join(letters)} = {whole}")
    return found


def _root(square: Fraction) -> str:
    return (f"sqrt({square.numerator})" if square.denominator == 1 else f"1/sqrt({square.denominator})"
            if square.numerator == 1 else f"sqrt({square})")


def _sizes(square: Fraction, dimensions: dict[str, int]) -> str:
    """The dimension that is under a root, of a scale of attention."""
    return next((f", {name} = {n}" for name, n in dimensions.items() if n > 2 and square in (n, Fraction(1, n))), "")


def _rows(factor: float, dimensions: dict[str, int]) -> str:
    """The length to which rows are padded, where they are counted so."""
    w = dimensions.get("W", 0)
    padded = [-(-w // multiple) * multiple for multiple in PITCHES if w % multiple]
    return next((f": rows of W = {w} counted as {one}" for one in padded if abs(w / one - factor) <= 1e-5 * factor), "")


def _text(small: float, power: tuple[tuple[str, int], ...]) -> str:
    above = [name for name, p in power if p > 0]
    below = [name for name, p in power if p < 0]
    if small >= 1:
        above = ([f"{small:g}"] if small != 1 else []) + above
    else:
        below = [f"{1 / small:g}", *below]
    divisor = "*".join(below)
    return "*".join(above or ["1"]) + (f"/({divisor})" if "*" in divisor else f"/{divisor}" if below else "")


def _combinations(dimensions: dict[str, int]) -> list[tuple[float, tuple[tuple[str, int], ...]]]:
    """Products of up to two dimensions, to the power 1 or -1, and a small number; simple ones first.

    A small whole number is read as that before it is read as a product.
    """
    used = [name for name, size in dimensions.items() if size > 1]
    powers: list[tuple[tuple[str, int], ...]] = [()]
    powers += [((name, p),) for name in used for p in (-1, 1)]
    powers += [
        ((one, p), (other, q)) for one, other in itertools.combinations(used, 2) for p in (-1, 1) for q in (-1, 1)
    ]
    simple = [(small, power) for power in powers for small in SMALL[:3]]
    single = [one for one in simple if len(one[1]) <= 1]
    whole: list[tuple[float, tuple[tuple[str, int], ...]]] = [(small, ()) for small in SMALL[3:]]
    rest = [(small, power) for power in powers for small in SMALL[3:] if power]
    return [*single, *whole, *(one for one in simple if len(one[1]) > 1), *rest]


def _named(dimensions: dict[str, int]) -> list[float]:
    values = [
        small * math.prod(float(dimensions[name]) ** p for name, p in power)
        for small, power in _combinations(dimensions)
    ]
    return [*values, *(-value for value in values)]


def _counts(dimensions: dict[str, int]) -> list[float]:
    """N over a wrong number of elements: a few more or less, a border more or less."""
    n, h, w = (dimensions.get(name, 0) for name in ("N", "H", "W"))
    if not n:
        return []
    wrong = {n + off for off in (-2, -1, 1, 2)}
    if w and n % w == 0:
        # Rows that are counted with what pads them to a multiple
        wrong |= {n // w * -(-w // multiple) * multiple for multiple in PITCHES}
    if h and w and n % (h * w) == 0:
        wrong |= {n // (h * w) * (h + off) * (w + off) for off in (-4, -2, -1, 1, 2, 4)}
    return [n / one for one in wrong if one > 0 and one != n]
