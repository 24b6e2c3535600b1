# SPDX-License-Identifier: MIT
"""Elements that are constant, limited, or a function of the right value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from bridge.judge.diagnosis.evidence.view import Array, Seen, View
from bridge.judge.diagnosis.evidence.words import factor, scale
from bridge.judge.diagnosis.records import MOSTLY

#: How near limits are to those that somebody wrote
LOOSE = 2e-4
#: Powers of ten that arguments span of which a power is told from other functions
DECADES = 1.0
#: Different numbers that a table gives, at most
LEVELS = 1024
#: Distinct arguments from which on a function is told from chance
ENOUGH = 8


def constants(view: View) -> Iterator[Seen]:
    """Yield one number in all wrong elements."""
    value = float(view.f[0])
    nothing = bool((np.abs(view.f) <= 2 * view.e).all() and view.rest(np.zeros_like(view.f)) <= MOSTLY)
    if view.f.size > 1 and ((view.f == value).all() or nothing) and view.rest(view.f) == 0:
        if value == 0 or nothing:
            yield Seen("it is 0", "whether this part is ever computed, and what clears it afterwards", 0.0)
        else:
            mean = float(view.right.mean())
            near = abs(mean - value) <= max(1e-5 * abs(value), float(view.e.max()))
            of = ", the mean of all right numbers" if near else ""
            yield Seen(f"it is {factor(value)} everywhere{of}", "what fills this part with one number", 0.0)


def functions(view: View) -> Iterator[Seen]:
    """Yield functions of the right value, and of what the right value is made of element by element."""
    for name, x in {"the right value": view.right, **view.operands}.items():
        chosen = x.reshape(-1)[view.at]
        if np.unique(chosen).size >= ENOUGH:
            yield from _fitted(view, chosen, name)
            yield from _named(view, chosen, name)


def _fitted(view: View, x: Array, name: str) -> Iterator[Seen]:
    """With a limit or a slope of its own."""
    f, size, kept = view.f, np.abs(x), np.abs(view.f)
    own = name == "the right value"
    low, high = float(f.min()), float(f.max())
    limits = "a limit on values where none belongs (clamp, clip, minimum, maximum, a saturating type)"
    # A limit stands in several elements; a largest number does not
    least, most = (scale(limit, view.dimensions, LOOSE) for limit in (low, high))
    for said, used, other in (
        (f"limited to {least} .. {most}", (low, high), np.clip(x, low, high)),
        (f"limited to at most {most}", (high,), np.minimum(x, high)),
        (f"limited to at least {least}", (low,), np.maximum(x, low)),
    ):
        off = np.maximum(2 * view.e, 4e-7 * np.abs(f))
        if all(np.count_nonzero(np.abs(f - limit) <= off) >= 3 for limit in used) and np.any(other != x):
            yield Seen(f"it is {name}, {said}", limits, view.rest(other), 1)
    lost = (f == 0) & (x != 0)
    if 3 <= np.count_nonzero(lost) < f.size:
        small, large = float(size[lost].max()), float(size[lost].min())
        threshold = "a threshold below which numbers are dropped"
        yield Seen(f"it is {name}, but 0 where that is smaller than {small:.3g} in size", threshold,
                   view.rest(np.where(size <= small, 0.0, x)), 1)
        yield Seen(f"it is {name}, but 0 where that is larger than {large:.3g} in size",
                   "what drops large numbers", view.rest(np.where(size >= large, 0.0, x)), 1)
        moved = float(np.median((size - kept)[~lost]))
        yield Seen(f"it is {name}, moved towards 0 by {factor(moved)} (soft threshold)", threshold,
                   view.rest(np.sign(x) * np.maximum(size - moved, 0)), 1)
    left, right = x < 0, x > 0
    slopes = [_slope(x[part & view.fitted], f[part & view.fitted]) for part in (left, right)]
    if left.any() and right.any() and (not own or abs(slopes[0] - slopes[1]) > 1e-4 * max(map(abs, slopes))):
        said = " and ".join(f"{factor(slope)} times where that is {sign}"
                            for slope, sign in zip(slopes, ("negative", "positive"), strict=True))
        yield Seen(f"it is {name} {said}", "the two branches of the activation or its gradient",
                   view.rest(np.where(left, slopes[0] * x, slopes[1] * x), 2), 2)
    known = (f != 0) & (x != 0) & view.fitted
    # Of numbers that are nearly equal every smooth function is a power
    if np.count_nonzero(known) >= ENOUGH and np.ptp(np.log10(size[known])) >= DECADES:
        power, log = np.polyfit(np.log(size[known]), np.log(kept[known]), 1)
        sign = np.sign(x) if np.mean((np.sign(x) == np.sign(f))[known]) > 0.9 else 1.0
        if 0.1 < abs(power) < 8 and abs(power - 1) > 1e-3:
            with np.errstate(divide="ignore", over="ignore"):
                yield Seen(f"it is {factor(math.exp(log))} times {name} to the power {factor(float(power))}",
                           "an exponent, a square or a root too much or missing",
                           view.rest(sign * np.exp(log) * size ** power, 2), 2)
    columns = np.stack([x, np.ones_like(x)], 1)
    (slope, offset), rest = view.solve(columns)
    if slope and (not own or abs(offset) > 1e-6 * np.abs(f).max()):
        times = "" if abs(slope - 1) < 2e-5 else f"{factor(slope)} times "
        said = f"it is {times}{name}" + (f" {'+' if offset > 0 else '-'} {factor(abs(offset))}"
                                         if abs(offset) > 1e-6 * np.abs(f).max() else "")
        if offset and abs(view.found.mean()) <= 1e-5 * view.found.std() < view.right.std():
            said += ", so that its mean is 0"
        yield Seen(said, "a factor and a constant: what is multiplied and added here", rest, 2)
    yield from _quantised(view, x, name)


def levels(view: View) -> Iterator[Seen]:
    """Yield few numbers, each of which stands for a range of the right value: a table, or few bits of an argument."""
    if view.f.size < 10 * LEVELS:
        return
    found = np.unique(view.f)
    for name, x in {"the right value": view.right, **view.operands}.items():
        chosen = x.reshape(-1)[view.at]
        if 4 <= found.size <= min(LEVELS, view.f.size // 8) and np.unique(chosen).size >= 4 * found.size:
            order = np.lexsort((view.f, chosen))
            runs = 1 + np.count_nonzero(np.diff(view.f[order]))
            if runs == found.size and view.rest(view.f) == 0:
                yield Seen(f"it takes {found.size} different numbers only, each for a range of {name}",
                           "a table of values, or an argument of few bits", 0.0, ENOUGH)


def _quantised(view: View, x: Array, name: str) -> Iterator[Seen]:
    """Multiples of a number, to which the right value is rounded."""
    for said, step in NAMED_STEPS.items():
        off = np.maximum(2 * view.e, 4e-7 * np.abs(view.f))
        times = np.rint(view.f / step)
        near = np.abs(view.f - times * step) <= off, np.abs(view.f - x) <= 0.5 * step + off
        if np.unique(times).size >= 4 and step > 20 * float(off.max()) and all(one.all() for one in near):
            yield Seen(f"it is {name}, rounded to multiples of {said}",
                       "a conversion to integers, as of images of 8 bits", view.rest(times * step), 1)
            return
    levels = np.unique(np.abs(view.f))
    levels = levels[levels > 0]
    if not 2 <= levels.size <= max(view.f.size // 3, 300):
        return
    steps = np.diff(np.concatenate([[0.0], levels]))
    step = float(steps[steps > 1e-6 * levels[-1]].min())
    for most in (levels[: max(2, levels.size // 8)], levels):
        # The smallest difference has lost digits: the more levels there are, the better the step is known
        times = np.rint(most / step)
        if not times.any():
            return
        step = float(times @ most) / float(times @ times)
    if np.abs(levels / step - np.rint(levels / step)).max() > 0.01 or levels[-1] / step > 2**17:
        return
    # Half way between two multiples rounding decides
    half = np.abs(np.abs(x / step) % 1 - 0.5) * step
    near = (half <= 2 * view.e + 1e-6 * np.abs(x)) & (np.abs(view.f - x) <= 0.5 * step + 4 * view.e + 1e-6 * np.abs(x))
    for said, rounded in (("rounded to", np.rint), ("cut down to", np.trunc), ("rounded down to", np.floor)):
        yield Seen(f"it is {name}, {said} multiples of {factor(step)}",
                   "a conversion to integers or to a fixed point, printing with few digits",
                   view.rest(np.where(near, view.f, step * rounded(x / step))), 1)


def _named(view: View, x: Array, name: str) -> Iterator[Seen]:
    """Without a number that is fitted, and times one."""
    look = "which function is applied to these elements"
    with np.errstate(all="ignore"):
        for said, function in NAMED.items():
            y = function(x)
            if not np.isfinite(y).all():
                continue
            straight = float(np.linalg.norm(y - _slope(x, y) * x))
            # Of small numbers many functions are multiples
            if not straight > 0.05 * float(np.linalg.norm(y)):
                continue
            yield Seen(f"it is {said} of {name}", look, view.rest(y))
            slope = _slope(y[view.fitted], view.f[view.fitted])
            if slope:
                times = scale(slope, view.dimensions)
                yield Seen(f"it is {times} times {said} of {name}", look, view.rest(slope * y, 1), 1)


def _slope(x: Array, y: Array) -> float:
    square = float(x @ x)
    return float(x @ y) / square if square > 0 else 0.0


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


#: Functions by name; none of them is a multiple of its argument
NAMED: dict[str, Callable[[Array], Array]] = {
    "the absolute value": np.abs,
    "the sign": np.sign,
    "the square": np.square,
    "the hyperbolic tangent": np.tanh,
    "the sigmoid": _sigmoid,
    "the softplus": lambda x: np.logaddexp(0, x),
    "the softsign x/(1 + |x|)": lambda x: x / (1 + np.abs(x)),
    "the SiLU x*sigmoid(x)": lambda x: x * _sigmoid(x),
    "the GELU (tanh form)": lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3))),
    "the ELU": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "the ReLU": lambda x: np.maximum(x, 0),
    "the negative part": lambda x: np.minimum(x, 0),
    "ReLU6": lambda x: np.clip(x, 0, 6),
    "the exponential": np.exp,
    "sign(x)*log(1 + |x|)": lambda x: np.sign(x) * np.log1p(np.abs(x)),
    "the sine": np.sin,
    "the integer part": np.trunc,
    "the reciprocal": lambda x: 1 / x,
}


#: Steps of numbers that were integers
NAMED_STEPS = {f"1/{n}": 1 / n for n in (255, 256, 127, 128, 15, 16, 31, 32, 63, 64, 1023, 4095, 65535)}


def unnamed(view: View) -> Iterator[Seen]:
    """Yield that the elements are some function of the right value, by its neighbours: equal arguments, equal results.
    """
    for name, x in {"the right value": view.right, **view.operands}.items():
        chosen = x.reshape(-1)[view.at]
        if np.unique(chosen).size < 10 * ENOUGH:
            continue
        order = np.argsort(chosen, kind="stable")
        a, y = chosen[order], view.f[order]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(a[2:] > a[:-2], (a[1:-1] - a[:-2]) / (a[2:] - a[:-2]), 0.5)
        guessed = y[:-2] + share * (y[2:] - y[:-2])
        predicted = view.f.copy()
        predicted[order[1:-1]] = guessed
        at = [round(q * (a.size - 1)) for q in (0.02, 0.25, 0.5, 0.75, 0.98)]
        points = ", ".join(f"{a[i]:.3g} -> {y[i]:.3g}" for i in at)
        yield Seen(f"it is a function of {name} ({points})", "which function is applied to these elements",
                   view.rest(predicted), ENOUGH)
