# SPDX-License-Identifier: MIT
"""Bias gradients, ReLUs and the loss as operations, see `bridge.judge.diagnosis.predictions.operations`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.oracle.error_model import Arithmetic

Array = np.ndarray


@dataclass(frozen=True)
class BiasGradient(Prediction):
    """``db[k] = sum dz[n,k,i,j]``, over some images and a part (h, w) of each."""

    dz: Predicted
    images: tuple[int, ...] | None = None
    part: tuple[slice, slice] = (slice(None), slice(None))
    sequential: bool = False

    def at(self, indices: Array) -> Array:
        return self._sum(self.dz.value)[indices]

    def full(self, arithmetic: Arithmetic) -> Predicted:
        n = float(self.dz.value.size // self.dz.value.shape[1])
        error = arithmetic.factor(n) * self._sum(np.abs(self.dz.value), exact=True)
        if self.dz.error is not None:
            error += (1 + arithmetic.factor(n)) * self._sum(self.dz.error, exact=True)
        return Predicted(self._sum(self.dz.value), arithmetic.with_underflow(error, n))

    def _sum(self, dz: Array, exact: bool = False) -> Array:
        chosen = dz if self.images is None else dz[list(self.images)]
        chosen = np.moveaxis(chosen[:, :, self.part[0], self.part[1]], 1, 0).reshape(self.shape[0], -1)
        if self.sequential and not exact:
            return np.add.accumulate(chosen.astype(np.float32), axis=1)[:, -1].astype(np.float64)
        return chosen.sum(1)


@dataclass(frozen=True)
class Rectified(Prediction):
    """``a = max(z, 0)``, with a slope for negative z; the slope 1 leaves z as it is."""

    z: Predicted
    slope: float = 0.0

    def at(self, indices: Array) -> Array:
        return self._apply(self.z.value.reshape(-1)[indices])

    def full(self, arithmetic: Arithmetic) -> Predicted:
        z, value = self.z.value, self._apply(self.z.value)
        error = np.where(z < 0, 2 * arithmetic.u * np.abs(value), 0.0) if self.slope not in (0.0, 1.0) else None
        if self.z.error is not None:
            steepest = max(1.0, abs(self.slope))
            doubt = np.where(z > -self.z.error, steepest, abs(self.slope)) * self.z.error
            error = doubt if error is None else error + doubt
        return Predicted(value, error)

    def _apply(self, z: Array) -> Array:
        return np.where(z > 0, z, self.slope * z)


@dataclass(frozen=True)
class ReluBackward(Prediction):
    """``dz = da where the mask, else slope * da``; `source` is what the mask is made of."""

    da: Predicted
    source: Predicted
    slope: float = 0.0
    rule: str = "positive"

    def at(self, indices: Array) -> Array:
        return self._apply(self.da.value.reshape(-1)[indices], self.source.value.reshape(-1)[indices])

    def full(self, arithmetic: Arithmetic) -> Predicted:
        da, source = self.da.value, self.source.value
        value = self._apply(da, source)
        error = np.where(value != 0, 2 * arithmetic.u * np.abs(value), 0.0) if self.slope not in (0.0, 1.0) else None
        if self.da.error is not None:
            passed = np.abs(self._apply(np.ones(1), source)) * self.da.error
            error = passed if error is None else error + passed
        if self.source.error is not None:
            unsure = (np.abs(source) <= self.source.error) & (self.source.error > 0)
            jump = abs(1 - self.slope) * (np.abs(da) + (0.0 if self.da.error is None else self.da.error))
            doubt = np.where(unsure, jump, 0.0)
            error = doubt if error is None else error + doubt
        return Predicted(value, error)

    def _apply(self, da: Array, source: Array) -> Array:
        return da * np.where(MASKS[self.rule](source), 1.0, self.slope)


#: Rules by which a mask can be made, the right one first
MASKS: dict[str, Callable[[Array], Array]] = {
    "positive": lambda z: z > 0,
    "all": lambda z: np.ones(z.shape, dtype=bool),
    "nonnegative": lambda z: z >= 0,
    "negative": lambda z: z < 0,
}


def unwritten(y: Predicted, arithmetic: Arithmetic) -> Array:
    """How far the output may be from the one in use: its bound, or of a candidate's own, the rounding of what it wrote.
    """
    return arithmetic.u * np.abs(y.value) if y.error is None else y.error


#: How near the scale of a mean is to one over its elements
MEAN = 1e-9


@dataclass(frozen=True)
class SquaredError(Prediction):
    """``scale * sum((y - t)**2)``, of some images."""

    y: Predicted
    target: Array
    scale: float
    images: tuple[int, ...] | None = None
    sequential: str = ""

    @property
    def is_mean(self) -> bool:
        """Return whether it is divided by the number of all elements."""
        return abs(self.scale * self.y.value.size - 1) <= MEAN

    def at(self, indices: Array) -> Array:
        return np.full(indices.shape, self._value())

    def full(self, arithmetic: Arithmetic) -> Predicted:
        d = np.abs(self.y.value - self.target)
        e = unwritten(self.y, arithmetic)
        rounding = (arithmetic.factor(d.size) + 3 * arithmetic.u) * float((d * d).sum())
        error = self.scale * (rounding + float((2 * d * e + e * e).sum()))
        return Predicted(np.full(1, self._value()), np.full(1, error))

    def _value(self) -> float:
        d = self.y.value - self.target
        if self.images is not None:
            d = d[list(self.images)]
        if not self.sequential:
            return self.scale * float(np.vdot(d, d))
        # A real(4) loop over the memory; the square is rounded, then the sum
        d = d.astype(np.float32).ravel()
        terms = d * d
        if self.sequential == "scaled":
            return float(np.add.accumulate(terms * np.float32(self.scale))[-1])
        return self.scale * float(np.add.accumulate(terms)[-1])


@dataclass(frozen=True)
class LossGradient(Prediction):
    """``dy = 2 * scale * (y - t)``."""

    y: Predicted
    target: Array
    scale: float

    @property
    def is_mean(self) -> bool:
        """Return whether it is divided by the number of all elements."""
        return abs(self.scale * self.y.value.size - 1) <= MEAN

    def at(self, indices: Array) -> Array:
        return 2 * self.scale * (self.y.value.reshape(-1)[indices] - self.target.reshape(-1)[indices])

    def full(self, arithmetic: Arithmetic) -> Predicted:
        rounding = 5 * arithmetic.u
        value = 2 * self.scale * (self.y.value - self.target)
        error = rounding * np.abs(value) + 2 * self.scale * (1 + rounding) * unwritten(self.y, arithmetic)
        return Predicted(value, arithmetic.with_underflow(error, 1))
