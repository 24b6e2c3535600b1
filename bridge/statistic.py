# SPDX-License-Identifier: MIT
"""The one comparison: a candidate's tensor against its float64 value and bound.

``T = max |candidate - value| / E``. Where E is 0 the candidate must be exact. NaN and infinity on either side
are failures always: everything is written so that a NaN fails the test instead of passing it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass
class Statistic:
    """What a comparison found; parts of a tensor are merged in order.

    Attributes
    ----------
    t : largest |candidate - value| / E; infinite where E = 0 or something is not finite
    error : largest |candidate - value|
    at : index of the element with the largest ratio, numpy order
    found, expected, bound : candidate, value and E at that element
    elements : number of elements compared
    nonfinite : number of elements that are NaN or infinite on either side
    """

    t: float = 0.0
    error: float = 0.0
    at: tuple[int, ...] = ()
    found: float = 0.0
    expected: float = 0.0
    bound: float = 0.0
    elements: int = 0
    nonfinite: int = 0
    dot: float = 0.0
    norm_found: float = 0.0
    norm_expected: float = 0.0
    norm_error: float = 0.0

    @property
    def cosine(self) -> float:
        """Cosine of the angle between candidate and value; NaN when one of them is zero."""
        norms = np.sqrt(self.norm_found) * np.sqrt(self.norm_expected)
        return self.dot / norms if norms > 0 else float("nan")

    @property
    def relative_error(self) -> float:
        """|candidate - value| / |value| in the Euclidean norm."""
        return float(np.sqrt(self.norm_error / self.norm_expected)) if self.norm_expected > 0 else float("nan")

    def merge(self, other: Statistic) -> None:
        """Join another part of the same tensor."""
        if self.elements == 0 or not other.t <= self.t:
            self.t, self.at = other.t, other.at
            self.found, self.expected, self.bound = other.found, other.expected, other.bound
        self.error = other.error if not other.error <= self.error else self.error
        for name in ("elements", "nonfinite", "dot", "norm_found", "norm_expected", "norm_error"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def measure(candidate: Array, value: Array, bound: Array, *, image: int | None = None) -> Statistic:
    """Compare a tensor, or one image of it, with its value and bound.

    Examples
    --------
    >>> measure(np.float32([1, 3]), np.array([1.0, 2.0]), np.array([0.5, 0.5])).t
    2.0
    >>> measure(np.float32([np.nan]), np.array([1.0]), np.array([0.5])).t
    inf
    """
    if candidate.shape != value.shape or candidate.size == 0:
        raise ValueError(f"shapes {candidate.shape} and {value.shape}: a comparison needs equal, non-empty ones")
    found = candidate.astype(np.float64)
    bound = np.broadcast_to(bound, value.shape)
    bad = ~(np.isfinite(found) & np.isfinite(value) & np.isfinite(bound))
    nonfinite = int(np.count_nonzero(bad))
    if nonfinite:
        return _failure(found, value, bound, bad, nonfinite, image)
    difference = np.abs(found - value)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = difference / bound
    if not bound.all():
        ratio[(bound == 0) & (difference == 0)] = 0.0
    at = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    return Statistic(
        t=float(ratio[at]), error=float(difference.max()), at=_index(at, image), found=float(found[at]),
        expected=float(value[at]), bound=float(bound[at]), elements=value.size,
        dot=float(np.vdot(found, value)), norm_found=float(np.vdot(found, found)),
        norm_expected=float(np.vdot(value, value)), norm_error=float(np.vdot(difference, difference)))


def _failure(found: Array, value: Array, bound: Array, bad: Array, nonfinite: int, image: int | None) -> Statistic:
    at = np.unravel_index(int(np.argmax(bad)), bad.shape)
    return Statistic(
        t=float("inf"), error=float("nan"), at=_index(at, image), found=float(found[at]),
        expected=float(value[at]), bound=float(bound[at]), elements=value.size, nonfinite=nonfinite,
        dot=float("nan"), norm_found=float("nan"), norm_expected=float("nan"), norm_error=float("nan"))


def _index(at: tuple[np.intp, ...], image: int | None) -> tuple[int, ...]:
    prefix = () if image is None else (image,)
    return prefix + tuple(int(i) for i in at)
