# SPDX-License-Identifier: MIT
"""The largest element and its place, and choices by a threshold."""

from __future__ import annotations

from typing import Any

import numpy as np

from bridge.judge.diagnosis.altered.alteration import Alteration, Alterations, Extents, alters
from bridge.judge.diagnosis.altered.calls import Call
from bridge.judge.oracle.bounded import Bounded, Choice

Array = np.ndarray


@alters("max")
def largest(call: Call, extents: Extents) -> Alterations:
    """Yield something else than the largest."""
    x = call.first.label
    yield Alteration("pooling", f"the smallest of {x}, not the largest", lambda method, x, axes: -method(-x, axes))
    yield Alteration("pooling", f"the largest absolute value of {x}", lambda method, x, axes: method(
        x.moved(lambda a: np.where(np.isfinite(a), np.abs(a), a)), axes))
    for at, where in ((0, "first"), (-1, "last")):
        yield Alteration("pooling", f"the {where} of {x}, not the largest", lambda method, x, axes, at=at: x.moved(
            lambda a: np.moveaxis(a, axes, range(-len(axes), 0)).reshape(
                *(n for i, n in enumerate(a.shape) if i not in {b % a.ndim for b in axes}), -1)[..., at]))


@alters("where_max")
def places(call: Call, extents: Extents) -> Alterations:
    """Yield other places in a window."""
    rows, columns = call.first.shape[-2:]

    def to(index: Any) -> Any:
        def change(method: Any, x: Bounded) -> Choice:
            flat = method(x).true.reshape(*x.shape[:-2], -1)
            there = np.minimum(index(flat.argmax(-1)), rows * columns - 1)
            true = np.zeros(flat.shape, bool)
            np.put_along_axis(true, there[..., None], True, -1)
            return Choice(true.reshape(x.shape), np.zeros(x.shape, bool))
        return change

    said = "the place of the largest in its window"
    if rows > 1 and columns > 1:
        yield Alteration("index", f"{said} has row and column exchanged", to(
            lambda at: at % columns * columns + at // columns))
        yield Alteration("index", f"{said} is counted down columns and read along rows", to(
            lambda at: at % rows * columns + at // rows))
    yield Alteration("index", f"{said} is always the first", to(lambda at: 0 * at))
    yield Alteration("index", f"{said} is always the last", to(lambda at: 0 * at + rows * columns - 1))
    for by, where in ((1, "after"), (-1, "before")):
        yield Alteration("index", f"{said} is the one {where} it", to(lambda at, by=by: np.maximum(at + by, 0)))
    said = "the gradient goes to all that are equal to the largest"
    yield Alteration("pooling", said, lambda method, x: _certain(_largest(x, (-2, -1))), said)
    said = "the gradient goes to the last of equal ones"
    yield Alteration("pooling", said, lambda method, x: _certain(
        _one(_largest(x, (-2, -1)), (-2, -1), last=True)), said)


@alters("shares_of_max")
def shares(call: Call, extents: Extents) -> Alterations:
    """Yield other shares of numbers that are the largest alike."""
    yield Alteration("pooling", "each of equal largest numbers has all, not its share", lambda method, x, axes: x.exact(
        _largest(x, axes).astype(float)))
    for last, where in ((False, "first"), (True, "last")):
        yield Alteration("pooling", f"the {where} of equal largest numbers has all",
                         lambda method, x, axes, last=last: x.exact(
                             _one(_largest(x, axes), axes, last=last).astype(float)))


@alters("__gt__")
def thresholds(call: Call, extents: Extents) -> Alterations:
    """Yield other comparisons."""
    x, at = call.first.label, call.second.label
    yield Alteration("activation", f"{x} >= {at} in place of >", lambda method, x, t: _certain(x.value >= t))
    yield Alteration("activation", f"{x} < {at} in place of >", lambda method, x, t: _certain(x.value < t),
                     unlikely=True)
    if call.second.number:
        yield Alteration("activation", f"{x} > 0 in place of {x} > {at}", lambda method, x, t: method(x, 0.0))
        yield Alteration("activation", f"{x} > -{at} in place of {x} > {at}", lambda method, x, t: method(x, -t))


@alters("choose")
def branches(call: Call, extents: Extents) -> Alterations:
    """Yield one branch for all, or both exchanged."""
    yes, no = (one.label for one in call.operands[1:3])

    def of(true: Any) -> Any:
        return lambda method, choice, a, b: method(Choice(true(choice.true), np.zeros_like(choice.doubt)), a, b)

    limited = call.operands[2].number is not None
    everywhere = f"{yes} is not limited to {no}" if limited else f"{yes} everywhere, {no} nowhere"
    yield Alteration("activation", everywhere, of(np.ones_like))
    yield Alteration("activation", f"{no} everywhere, {yes} nowhere", of(np.zeros_like))
    yield Alteration("activation", f"{yes} and {no} exchanged", of(np.logical_not))


def _certain(true: Array) -> Choice:
    return Choice(true, np.zeros(true.shape, bool))


def _largest(x: Bounded, axes: tuple[int, ...]) -> Array:
    """Where numbers are the largest along axes."""
    found: Array = x.value == x.value.max(axes, keepdims=True)
    return found


def _one(true: Array, axes: tuple[int, ...], *, last: bool) -> Array:
    """The first or the last along axes of where something is true."""
    behind = tuple(range(-len(axes), 0))
    rows = np.moveaxis(true, axes, behind)
    flat = rows.reshape(*rows.shape[: -len(axes)], -1)
    at = flat.shape[-1] - 1 - flat[..., ::-1].argmax(-1) if last else flat.argmax(-1)
    found = np.zeros(flat.shape, bool)
    np.put_along_axis(found, at[..., None], True, -1)
    return np.moveaxis(found.reshape(rows.shape), behind, axes)
