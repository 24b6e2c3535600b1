# SPDX-License-Identifier: MIT
"""Indices and numbers in words."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

Array = np.ndarray

#: Of a list so many are said
MOST = 6


def several(word: str) -> str:
    """
    >>> several("image"), several("kernel row"), several("row of windows"), several("element of axis 2")
    ('images', 'kernel rows', 'rows of windows', 'elements of axis 2')
    """
    first, of, rest = word.partition(" of ")
    return f"{first}s{of}{rest}"


def listed(words: Sequence[object]) -> str:
    """
    >>> listed([1, 2, 3]), listed(range(9))
    ('1, 2 and 3', '0, 1, 2, 3, 4, 5, ...')
    """
    said = [str(word) for word in words]
    if len(said) > MOST:
        return ", ".join([*said[:MOST], "..."])
    return " and ".join([", ".join(said[:-1]), said[-1]]) if len(said) > 1 else said[0]


def indices(used: Array, size: int, word: str) -> str:
    """Return some of the indices of an axis in words.

    >>> indices(np.array([2]), 3, "image"), indices(np.array([0, 2, 4]), 6, "row")
    ('the last image (2 of 3)', 'every 2nd row (0, 2 and 4)')
    >>> indices(np.arange(8, 16), 16, "channel"), indices(np.array([0, 1, 3]), 4, "channel")
    ('channels 8 to 15 of 16', 'all channels but 2')
    >>> indices(np.array([0, 5]), 6, "row")
    'the first and last row'
    """
    if used.size == size:
        return f"all {several(word)}"
    if used.size == 1:
        first, which = int(used[0]), {0: "first", size - 1: "last"}
        return f"the {which[first]} {word} ({first} of {size})" if first in which else f"{word} {first} of {size}"
    if size > 3 and used.tolist() == [0, size - 1]:
        return f"the first and last {word}"
    if used.size == size - 1:
        return f"all {several(word)} but {(set(range(size)) - set(used.tolist())).pop()}"
    steps = np.diff(used)
    if (steps == 1).all():
        return f"{several(word)} {used[0]} to {used[-1]} of {size}"
    if used.size > 2 and (steps == steps[0]).all() and used[0] < steps[0] and used[-1] + steps[0] >= size:
        nth = {2: "2nd", 3: "3rd"}.get(int(steps[0]), f"{steps[0]}th")
        return f"every {nth} {word} ({listed(used.tolist())})"
    return f"{several(word)} {listed(used.tolist())} of {size}"


def factor(value: float, near: float = 2e-5) -> str:
    """Return a number as somebody may have written it.

    >>> factor(0.5), factor(1 / 3), factor(0.90000003), factor(-1.0), factor(0.123456)
    ('0.5', '1/3', '0.9', '-1', '0.123456')
    """
    for digits in (1, 2, 3):
        rounded = float(f"{value:.{digits}g}")
        if abs(rounded - value) <= near * abs(value):
            return f"{rounded + 0.0:g}"
    close = Fraction(value).limit_denominator(64) if np.isfinite(value) and abs(value) < 1e6 else Fraction(0)
    if close and abs(float(close) - value) <= near * abs(value):
        return str(close)
    return f"{value:.6g}"


def summed(weights: Array, names: Sequence[str]) -> str:
    """Return a sum of named tensors with its signs.

    >>> summed(np.array([1.0, -1.0]), ["the gradient", "that before"])
    'the gradient - that before'
    >>> summed(np.array([0.25, -0.5]), ["z", "1"])
    '0.25*(z) - 0.5'
    """
    said = ""
    for weight, name in zip(weights, names, strict=True):
        size = factor(abs(float(weight)))
        term = size if name == "1" else name if size == "1" else f"{size}*({name})"
        sign = "-" if weight < 0 else "+"
        said += f" {sign} {term}" if said else f"{'-' if weight < 0 else ''}{term}"
    return said


def scale(value: float, dimensions: dict[str, int], near: float = 2e-5) -> str:
    """Return a number in words; of one that is not short the dimensions that make it.

    >>> scale(0.5, {}), scale(2 / 1440, {"N": 1440})
    ('0.5', '0.00138889 (2/N, N = 1440)')
    """
    said = factor(value, near)
    if len(said) <= 6:
        return said
    for sign, small, power in ((s, f, p) for p in (-1, 1) for f in (1, 2, 0.5) for s in (1, -1)):
        for name, size in dimensions.items():
            if size > 1 and abs(sign * small * float(size) ** power - value) <= near * abs(value):
                how = f"{sign * small:g}/{name}" if power < 0 else f"{sign * small:g}*{name}"
                return f"{value:.6g} ({how}, {name} = {size})"
    return said


def factors(values: Array) -> str:
    """Return several factors in words: a rule, where they follow one.

    >>> factors(np.array([1.0, 0.5, 0.25, 0.125])), factors(np.array([1.0, 2.0, 3.0, 4.0]))
    ('1, 0.5, 0.25 and 0.125 (each 0.5 times the one before)', '1, 2, 3 and 4 (each 1 more than the one before)')
    """
    said = listed([factor(float(v)) for v in values])
    if values.size > 2 and (values != 0).all():
        ratio, more = values[1:] / values[:-1], np.diff(values)
        if np.ptp(ratio) <= 1e-3 * abs(ratio[0]) and abs(ratio[0] - 1) > 1e-3:
            return f"{said} (each {factor(float(ratio.mean()))} times the one before)"
        if np.ptp(more) <= 1e-3 * abs(more[0]):
            return f"{said} (each {factor(float(more.mean()))} more than the one before)"
    return said


def counting(times: float | str, *, many: bool) -> str:
    """Return how often something counts in a sum; a number in words stands for itself.

    >>> counting(0, many=True), counting(0, many=False), counting(2, many=True), counting("0.5", many=False)
    ('do not count', 'does not count', 'count twice', 'counts 0.5 times')
    """
    if times == 0:
        return "do not count" if many else "does not count"
    return f"count{'' if many else 's'} {'twice' if times == 2 else f'{times} times'}"
