# SPDX-License-Identifier: MIT
"""Where an error lives: images, channels, rows and columns, a run of memory; and the faults that a place betrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.last_place import moves
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.records import Explanation
from bridge.judge.oracle.error_model import UNIT_ROUNDOFF

Array = np.ndarray

#: Rows or columns up to which each is listed
FEW_LINES = 6
#: Share of wrong elements up to which an error is a local one
LOCAL = 0.25
#: Share of a region that is wrong where the region is
FILLED = 0.8
#: Numbers that agree with others to the bit by chance are fewer
ENOUGH = 4
#: Error / E from which on an element is not one of those that poor rounding takes a little too far
CLEAR = 3.0


@dataclass(frozen=True)
class Place:
    """Where a tensor is wrong.

    Attributes
    ----------
    said : in words
    wrong : number of wrong elements
    explanation : what the place betrays, if it does
    """

    said: str
    wrong: int
    explanation: Explanation | None = None


def locate(found: Array, truth: Predicted, before: Array | None = None, u: float = UNIT_ROUNDOFF["float32"]) -> Place:
    """Find the wrong elements of a tensor and say where they are.

    Parameters
    ----------
    found : what the candidate has
    truth : the right tensor and its bound
    before : the candidate's tensor of the step before, whose memory this may still hold
    u : unit roundoff of the candidate
    """
    value = truth.value
    found = found.reshape(value.shape)
    error = np.zeros(1) if truth.error is None else truth.error
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(found - value) <= error)
    flat = np.flatnonzero(wrong)
    if not flat.size:
        return Place("nowhere", 0)
    said = _said(wrong, flat)
    betrayed = _betrayed(found, value, error, wrong, flat, before) if moves(value, found, wrong, u) else None
    return Place(said, int(flat.size), betrayed)


def _said(wrong: Array, flat: Array) -> str:
    share = flat.size / wrong.size
    count = f"{flat.size} of {wrong.size} elements"
    if wrong.size == 1:
        return "the number itself"
    if flat.size == 1:
        return f"one element of {wrong.size}, {_index(flat[0], wrong.shape)}"
    parts = _axes(wrong) if wrong.ndim == 4 else []
    if _is_run(flat) and share <= LOCAL:
        parts.append(
            f"a contiguous run of memory from {_index(flat[0], wrong.shape)} to {_index(flat[-1], wrong.shape)}"
        )
    if not parts:
        parts = ["spread over the whole tensor"]
    return f"{count}: {', '.join(parts)}"


def _sides(wrong: Array) -> str:
    """Which sides of the border, where not all four are wrong; corners belong to two."""
    sides = {"top": wrong[..., 0, 1:-1], "bottom": wrong[..., -1, 1:-1],
             "left": wrong[..., 1:-1, 0], "right": wrong[..., 1:-1, -1]}
    found = [name for name, part in sides.items() if part.any()]
    return f" ({' and '.join(found)})" if 0 < len(found) < 4 else ""


def _axes(wrong: Array) -> list[str]:
    """What the wrong elements have in common: image, channel, rows, columns, the border."""
    said = []
    for axis, what in ((0, "index 0 of axis 0"), (1, "channel")):
        used = np.flatnonzero(wrong.any(axis=tuple(a for a in range(4) if a != axis)))
        if used.size < wrong.shape[axis]:
            name = ("image" if wrong.shape[2] > 7 else "output channel") if axis == 0 else what
            said.append(f"{name}{'s' if used.size > 1 else ''} {_listed(used)} of {wrong.shape[axis]}")
    height, width = wrong.shape[2:]
    rows, columns = (np.flatnonzero(wrong.any(axis=(0, 1, other))) for other in (3, 2))
    inner = wrong[..., 1:-1, 1:-1]
    if height > 4 and width > 4 and rows.size > 1 and columns.size > 1 and not inner.any():
        return [*said, f"the border only{_sides(wrong)}"]
    for used, what, size in ((rows, "row", height), (columns, "column", width)):
        if used.size < size:
            irregular = used.size > FEW_LINES and np.unique(np.diff(used)).size > 1
            said.append(f"{used.size} of the {what}s {used[0]} to {used[-1]}" if irregular else
                        f"{what}{'s' if used.size > 1 else ''} {_spanned(used)} of {size}")
    return said


def _spanned(used: Array) -> str:
    """
    >>> _spanned(np.array([4, 5, 6])), _spanned(np.array([7, 15])), _spanned(np.arange(1, 80, 8))
    ('4 to 6', '7, 15', '1, 9, ..., 73 (every 8th)')
    """
    steps = np.unique(np.diff(used))
    if used.size < 3 and not (steps == 1).any():
        return _listed(used)
    if steps.size > 1:
        return _listed(used)
    if steps[0] == 1:
        return f"{used[0]} to {used[-1]}"
    if used.size <= FEW_LINES:
        return _listed(used)
    nth = {2: "2nd", 3: "3rd"}.get(int(steps[0]), f"{steps[0]}th")
    return f"{used[0]}, {used[1]}, ..., {used[-1]} (every {nth})"


def _listed(used: Array) -> str:
    return ", ".join(map(str, used[:6])) + (", ..." if used.size > 6 else "")


def _index(flat: int, shape: tuple[int, ...]) -> str:
    return str(tuple(int(i) for i in np.unravel_index(flat, shape)))


def _is_run(flat: Array) -> bool:
    """The wrong elements lie side by side in memory; by chance a few of them may be right."""
    return flat.size > 1 and flat.size >= FILLED * (flat[-1] - flat[0] + 1)


def _betrayed(
    found: Array, value: Array, error: Array, wrong: Array, flat: Array, before: Array | None
) -> Explanation | None:
    chosen = found.reshape(-1)[flat]
    share = flat.size / wrong.size
    if not np.isfinite(chosen).all():
        return _nonfinite(chosen, flat, wrong)
    if share > LOCAL or wrong.size < 4 or not _clear(chosen, value.reshape(-1)[flat], error, value.shape, flat):
        return None
    if flat.size == 1:
        return _one(float(chosen[0]), float(value.reshape(-1)[flat[0]]), _at(error, value.shape, flat[0]))
    if not chosen.any():
        return _explained("uninitialised", f"{flat.size} elements are exactly 0 and were never written")
    if before is not None and before.size == found.size and np.array_equal(before.reshape(-1)[flat], chosen):
        held = _explained("uninitialised", f"{flat.size} elements still hold the numbers of the step before")
        # To the bit: a prediction that holds, where it is of more than a few numbers
        return replace(held, by_place=bool(np.count_nonzero(chosen) < ENOUGH))
    if _is_run(flat):
        if flat[0] == 0 or flat[-1] == wrong.size - 1:
            end = "first" if flat[0] == 0 else "last"
            return _explained("overwritten", f"the {end} {flat.size} elements in memory")
        return _explained("corrupted", f"a run of {flat.size} elements in memory")
    if wrong.ndim == 4 and _is_box(wrong):
        return _explained("corrupted", "a rectangle of pixels")
    if share < 0.01:
        return _explained("corrupted", f"{flat.size} single elements")
    return None


def _clear(found: Array, right: Array, error: Array, shape: tuple[int, ...], flat: Array) -> bool:
    """Most of the wrong elements are far outside their bounds: rounding that is too large would leave a tail."""
    bound = np.broadcast_to(error, shape).reshape(-1)[flat]
    return bool(np.mean(np.abs(found - right) > CLEAR * bound) >= 0.5)


def _nonfinite(chosen: Array, flat: Array, wrong: Array) -> Explanation:
    bad = int(np.count_nonzero(~np.isfinite(chosen)))
    if bad == 1 and flat.size == 1:
        return _explained("corrupted", f"one element is {chosen[0]:g}")
    return _explained("uninitialised", f"{bad} of {wrong.size} elements are NaN or infinite")


def _one(found: float, right: float, bound: float) -> Explanation:
    """One element: is it the right one with one bit turned?"""
    bits = np.array([found], np.float32).view(np.uint32)[0]
    for bit in range(32):
        other = float(np.array([bits ^ np.uint32(1 << bit)], np.uint32).view(np.float32)[0])
        if abs(other - right) <= max(bound, abs(right) * 2.0**-23):
            return _explained("corrupted", f"one element, of which bit {bit} is turned over")
    return _explained("corrupted", f"one element, {found:.6g} in place of {right:.6g}")


def _at(error: Array, shape: tuple[int, ...], index: int) -> float:
    return float(np.broadcast_to(error, shape).reshape(-1)[index])


def _is_box(wrong: Array) -> bool:
    """The wrong elements fill a box of rows and columns (and channels, images)."""
    spans = []
    for axis in range(4):
        used = np.flatnonzero(wrong.any(axis=tuple(a for a in range(4) if a != axis)))
        spans.append(slice(used[0], used[-1] + 1))
    box = wrong[tuple(spans)]
    return box.size < wrong.size and bool(np.count_nonzero(box) >= FILLED * box.size)


def _explained(key: str, detail: str) -> Explanation:
    return Explanation((kind(key),), detail, 0.0, by_place=True)
