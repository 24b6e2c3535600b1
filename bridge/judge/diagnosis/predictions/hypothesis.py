# SPDX-License-Identifier: MIT
"""A hypothesis: faults, in words, and the operation that they would make."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bridge.exchange.model import Pair
from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.faults.layouts import AxisLayout, IndexMap
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction, Remade
from bridge.judge.diagnosis.records import Kind
from bridge.judge.oracle.error_model import Arithmetic

Array = np.ndarray


@dataclass(frozen=True)
class Hypothesis:
    """Faults that may have made a tensor.

    Attributes
    ----------
    kinds : the faults
    detail : what exactly
    operation : computes the tensor that they would make
    fitted : a number in it was fitted to the candidate: what needs none is the simpler explanation
    layout : in which memory is read, where that is the fault
    altered : a call of the formula does something else, see `bridge.judge.diagnosis.altered`
    """

    kinds: tuple[Kind, ...]
    detail: str
    operation: Prediction
    fitted: bool = False
    layout: AxisLayout | None = None
    altered: bool = False

    @property
    def complexity(self) -> tuple[int, bool]:
        """Return what explanations are sorted by, the simple ones first."""
        return len(self.kinds), self.fitted

    def then(self, key: str, detail: str, operation: Prediction, *, fitted: bool = False) -> Hypothesis:
        """Return the hypothesis with one more fault on top."""
        kinds = join(self.kinds, (kind(key),))
        return Hypothesis(kinds, joined(self.detail, detail), operation, fitted or self.fitted)


def hypothesis(key: str, detail: str, operation: Prediction, *, fitted: bool = False) -> Hypothesis:
    """Return a hypothesis of one kind."""
    return Hypothesis((kind(key),), detail, operation, fitted)


def join(one: tuple[Kind, ...], other: tuple[Kind, ...]) -> tuple[Kind, ...]:
    """Return both, without repetition."""
    return tuple(dict.fromkeys(one + other))


def joined(*details: str) -> str:
    """Return the details of faults that compose."""
    return "; then ".join(filter(None, details))


@dataclass(frozen=True)
class Scaled(Prediction):
    """Another operation's tensor times a number that is known to a few roundings."""

    inner: Prediction
    factor: float

    def at(self, indices: Array) -> Array:
        return self.factor * self.inner.at(indices)

    def full(self, arithmetic: Arithmetic) -> Predicted:
        inner = self.inner.full(arithmetic)
        value = self.factor * inner.value
        error = 4 * arithmetic.u * np.abs(value)
        return Predicted(value, error if inner.error is None else error + abs(self.factor) * inner.error)


@dataclass(frozen=True)
class Added(Prediction):
    """Another operation's tensor, and old contents of its memory times a number."""

    inner: Prediction
    old: Array
    factor: float = 1.0

    def at(self, indices: Array) -> Array:
        return self.inner.at(indices) + self.factor * self.old.reshape(-1)[indices]

    def full(self, arithmetic: Arithmetic) -> Predicted:
        inner = self.inner.full(arithmetic)
        value = inner.value + self.factor * self.old.reshape(inner.value.shape)
        # n additions onto the old contents instead of onto 0
        error = 4 * arithmetic.u * (np.abs(value) + np.abs(self.old.reshape(value.shape)))
        return Predicted(value, error if inner.error is None else error + inner.error)


@dataclass(frozen=True)
class Passed(Prediction):
    """Another operation's numbers after a rounding, a quantisation, a change of bytes."""

    inner: Prediction
    change: object
    relative: float = 0.0
    absolute: float = 0.0

    def at(self, indices: Array) -> Array:
        return self._changed(self.inner.at(indices))

    def full(self, arithmetic: Arithmetic) -> Predicted:
        """Return all values, with their bound: one next to a rounding boundary may go either way."""
        inner = self.inner.full(arithmetic)
        value = self._changed(inner.value)
        error = self.relative * np.abs(value) + self.absolute
        return Predicted(value, error if inner.error is None else error + inner.error)

    def slack(self, value: Array) -> Array | float:
        """Return one step of the rounding at some values."""
        return self.relative * np.abs(value) + self.absolute + self.inner.slack(value)

    def _changed(self, x: Array) -> Array:
        return np.asarray(self.change(x), dtype=np.float64)  # type: ignore[operator]


@dataclass(frozen=True)
class Read(Prediction):
    """What another operation makes, read in another order."""

    inner: Prediction
    layout: IndexMap

    def at(self, indices: Array) -> Array:
        return self.inner.at(self.layout.source(indices, self.shape))

    def full(self, arithmetic: Arithmetic) -> Predicted:
        inner = self.inner.full(arithmetic)
        error = None if inner.error is None else self.layout(np.broadcast_to(inner.error, self.shape))
        return Predicted(self.layout(inner.value), error)


@dataclass(frozen=True)
class Moved(Prediction):
    """Another operation's tensor, moved by pixels (h, w); what comes in is zero, or from the other side."""

    inner: Prediction
    shift: Pair
    circular: bool

    def at(self, indices: Array) -> Array:
        source, inside = self._source(indices)
        return np.where(inside, self.inner.at(source), 0.0)

    def full(self, arithmetic: Arithmetic) -> Predicted:
        inner = self.inner.full(arithmetic)
        source, inside = self._source(np.arange(inner.value.size))
        value, error = (
            None if x is None else np.where(inside, np.broadcast_to(x, self.shape).reshape(-1)[source], 0.0)
            for x in (inner.value, inner.error)
        )
        assert value is not None
        return Predicted(value.reshape(self.shape), None if error is None else error.reshape(self.shape))

    def _source(self, indices: Array) -> tuple[Array, Array]:
        place = list(np.unravel_index(indices, self.shape))
        inside = np.ones(indices.shape, dtype=bool)
        for axis, move in zip((-2, -1), self.shift, strict=True):
            at = place[axis] - move
            place[axis] = at % self.shape[axis]
            if not self.circular:
                inside &= at == place[axis]
        return np.ravel_multi_index(tuple(place), self.shape), inside


@dataclass(frozen=True)
class Framed(Prediction):
    """Another operation's tensor in the interior of images, `rest` on a border (top, bottom, left, right)."""

    inner: Prediction
    border: tuple[int, int, int, int]
    rest: Prediction | None = None

    def at(self, indices: Array) -> Array:
        inside = self._inside(indices)
        return np.where(inside, self.inner.at(indices), 0.0 if self.rest is None else self.rest.at(indices))

    def full(self, arithmetic: Arithmetic) -> Predicted:
        inner = self.inner.full(arithmetic)
        inside = self._inside(np.arange(inner.value.size)).reshape(self.shape)
        rest = np.zeros(1) if self.rest is None else self.rest.full(arithmetic).value
        error = None if inner.error is None else np.where(inside, inner.error, 4 * arithmetic.u * np.abs(rest))
        return Predicted(np.where(inside, inner.value, rest), error)

    def _inside(self, indices: Array) -> Array:
        *_, i, j = np.unravel_index(indices, self.shape)
        top, bottom, left, right = self.border
        return (i >= top) & (i < self.shape[-2] - bottom) & (j >= left) & (j < self.shape[-1] - right)


@dataclass(frozen=True)
class Within(Prediction):
    """Another operation's tensor in a part of the elements, `rest` in all others."""

    inner: Prediction
    rest: Prediction
    part: Array

    def at(self, indices: Array) -> Array:
        return np.where(self.part.reshape(-1)[indices], self.inner.at(indices), self.rest.at(indices))

    def full(self, arithmetic: Arithmetic) -> Predicted:
        inner, rest = self.inner.full(arithmetic), self.rest.full(arithmetic)
        errors = [np.zeros(1) if one.error is None else one.error for one in (inner, rest)]
        return Predicted(np.where(self.part, inner.value, rest.value), np.where(self.part, *errors))


@dataclass(frozen=True)
class SentBack(Prediction):
    """The gradient of images whose pixels stand at several places of larger ones: the sum of theirs at all of these.

    Attributes
    ----------
    larger : makes the gradient of the larger images
    places : of their rows and columns, which row and column of the images stands there
    """

    larger: Prediction
    places: tuple[tuple[int, ...], tuple[int, ...]]

    def at(self, indices: Array) -> Array:
        *of, i, j = np.unravel_index(indices, self.shape)
        found, (down, across) = np.zeros(indices.shape), map(_where, self.places)
        for a, b in itertools.product(range(down.shape[1]), range(across.shape[1])):
            row, column = down[i, a], across[j, b]
            there = np.flatnonzero((row >= 0) & (column >= 0))
            place = (*(one[there] for one in of), row[there], column[there])
            found[there] += self.larger.at(np.ravel_multi_index(place, self.larger.shape)) if there.size else 0.0
        return found

    def full(self, arithmetic: Arithmetic) -> Predicted:
        larger = self.larger.full(arithmetic)
        error = np.zeros(1) if larger.error is None else larger.error
        most = np.prod([_where(one).shape[1] for one in self.places])
        error = error + (most - 1) * arithmetic.u * (np.abs(larger.value) + error)
        return Predicted(self._summed(larger.value), self._summed(np.broadcast_to(error, larger.value.shape)))

    def _summed(self, a: Array) -> Array:
        found = np.zeros(self.shape)
        np.add.at(found, np.ix_(*map(range, self.shape[:-2]), *self.places), a)
        return found


def _where(places: tuple[int, ...]) -> Array:
    """Where each index stands, (indices, times that the one stands that does most often), and -1."""
    count = np.bincount(places)
    found = np.full((count.size, count.max()), -1)
    order = np.argsort(places, kind="stable")
    found[np.arange(count.max()) < count[:, None]] = order
    return found


def with_operand(operation: Prediction, name: str, change: object) -> Prediction:
    """Return the operation with one operand, a `Predicted` or an array, changed by a function of arrays."""
    if hasattr(operation, "with_operand"):
        changed: Prediction = operation.with_operand(name, change)
        return changed
    operand = getattr(operation, name)
    if isinstance(operand, Predicted):
        return operation.replaced(**{name: Remade(operand, change)})  # type: ignore[arg-type]
    return operation.replaced(**{name: change(operand)})  # type: ignore[operator]


def with_layer(operation: Prediction, **geometry: object) -> Prediction:
    """Return the operation with another stride, padding or dilation."""
    return operation.replaced(layer=replace(operation.layer, **geometry))  # type: ignore[attr-defined]


Hypotheses = Iterator[Hypothesis]
