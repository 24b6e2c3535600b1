# SPDX-License-Identifier: MIT
"""A part of a large tensor that the formula makes of the same part of its operands: some images, channels, rows.

Thousands of numbers reject an alteration as well as millions do. Which axes may be cut is not declared: the right
formula is evaluated with the operands cut, and has to give the right tensor there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np

from bridge.common.errors import BridgeError
from bridge.judge.diagnosis.altered.alteration import Extents
from bridge.judge.diagnosis.altered.call_results import MOST
from bridge.judge.diagnosis.altered.calls import Call, Change, Instead
from bridge.judge.diagnosis.altered.formulas import Altered, Evaluated, Part
from bridge.judge.diagnosis.altered.numbers import Target
from bridge.judge.diagnosis.predictions.formulas import Criterion, Formula
from bridge.judge.diagnosis.predictions.hypothesis import Hypotheses, Hypothesis
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.oracle.error_model import Arithmetic

Array = np.ndarray
#: Numbers of an operand from which on parts are made, and numbers that they have then where that can be
LARGE, FEW = 2**16, 2**13
#: Slices of an axis that stay at least: one with its neighbours, which may be taken in its place. Of images one stays
#: where these are still too many numbers for `kept`
SLICES = 3
#: Part of the largest number by which a part may be off: sums in another order
SAME = 1e-9


@dataclass(frozen=True)
class OnPart(Prediction):
    """What a formula makes, at the part by its operands there, and as a whole by all.

    Attributes
    ----------
    part : made of what is cut
    whole : of everything
    where : the part
    """

    part: Prediction
    whole: Prediction
    where: Cut

    def at(self, indices: Array) -> Array:
        found: Array = self.where.of_whole(self.part.values().reshape(-1))[np.searchsorted(self.where.places, indices)]
        return found

    def full(self, arithmetic: Arithmetic) -> Predicted:
        return self.whole.full(arithmetic)


@dataclass(frozen=True)
class Cut:
    """Where a part is in the whole.

    Attributes
    ----------
    places : flat indices, ascending
    factor : of what the part gives: of a mean over fewer numbers
    others : what is added: the other parts of a sum of gradients
    """

    places: Array
    factor: float
    others: Array

    def of_whole(self, value: Array) -> Array:
        """Return what the numbers of a part are in the whole."""
        return self.factor * value + self.others


@dataclass(frozen=True)
class Cropped:
    """A formula whose alterations are evaluated on a part first.

    Attributes
    ----------
    whole : the formula
    part : the same of what is cut
    target : what is found at the part
    """

    whole: Evaluated | Part
    part: Evaluated
    where: Cut
    target: Target
    family: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "family", self.whole.family)

    @property
    def extents(self) -> Extents:
        """Return the numbers of the whole's shapes and settings."""
        return self.whole.extents

    @property
    def numbers(self) -> dict[str, float]:
        """Return the settings that are real numbers."""
        return self.whole.numbers

    @property
    def given(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return name and shape of the operands."""
        return self.part.given

    def calls(self, *, other_way: bool = False) -> list[Call]:
        """Return the calls that the part follows from."""
        return self.part.calls(other_way=other_way)

    def others(self) -> Iterator[tuple[str, Prediction]]:
        """Yield words, and what another operation makes."""
        whole = dict(self.whole.others())
        return ((said, self._both(one, whole[said])) for said, one in self.part.others() if said in whole)

    def operands(self) -> Iterator[tuple[str, str, Prediction]]:
        """Yield a kind, words, and what is made of whole operands that are other ones."""
        whole = {said: one for _, said, one in self.whole.operands()}
        return ((key, said, self._both(one, whole[said])) for key, said, one in self.part.operands() if said in whole)

    def altered(self, made: Mapping[int, Change | Instead], other_way: bool = False) -> Prediction:
        """Return what is made when some calls do something else."""
        return self._both(self.part.altered(made, other_way), self.whole.altered(made, other_way))

    def in_words(self, name: str) -> str:
        """Return a setting, or what it stands for."""
        return self.whole.in_words(name)

    def with_number(self, name: str, number: float) -> Prediction:
        """Return the same by another setting."""
        return self._both(self.part.with_number(name, number), self.whole.with_number(name, number))

    def _both(self, part: Prediction, whole: Prediction) -> Prediction:
        return OnPart(whole.shape, part, whole, self.where)

    def seen(self, hypotheses: Hypotheses, most: float) -> Iterator[tuple[bool, Hypothesis]]:
        """Yield of each hypothesis whether the part does not reject it, and it itself about the whole."""
        for one in hypotheses:
            assert isinstance(one.operation, OnPart)
            near = self.target.near(one.operation.at(self.target.sample)) <= most
            yield near, replace(one, operation=one.operation.whole)


def cropped(formula: Altered, right: Array, wrong: Array, target: Target) -> Cropped | None:
    """Return a formula on a part of its tensor, where the tensor is wrong; None where it is small or cannot be cut.

    Parameters
    ----------
    right : what the formula gives
    wrong : which elements are
    target : of all elements
    """
    if not isinstance(formula, Evaluated | Part):
        return None
    own = formula.right if isinstance(formula, Evaluated) else formula.whole.parts[formula.at]
    if not isinstance(own, Formula | Criterion) or max(map(np.size, _operands(own))) < LARGE:
        return None
    value = right if isinstance(formula, Evaluated) else own.values()
    for images in (SLICES, 1):
        part = _cut(own, value, wrong, images)
        if max(map(np.size, _operands(part.formula))) <= MOST:
            break
    if part.formula is own:
        return None
    places = part.places(right.shape)
    others = (right - value).reshape(-1)[places]
    inner = part.places(right.shape, with_neighbours=True)
    return Cropped(formula, Evaluated(part.formula), Cut(places, part.factor, others),
                   target.of(inner if wrong.reshape(-1)[inner].any() else places))


@dataclass(frozen=True)
class _Smaller:
    """A formula of which some axes are cut.

    Attributes
    ----------
    ranges : the slices of each axis of its tensor
    inner : those of them both of whose neighbours are there, which may be taken in their place
    factor : as of `Cut`
    """

    formula: Formula | Criterion
    ranges: tuple[Array, ...]
    inner: tuple[Array, ...]
    factor: float = 1.0

    def places(self, shape: tuple[int, ...], *, with_neighbours: bool = False) -> Array:
        """Return flat indices into the whole tensor."""
        return np.ravel_multi_index(np.ix_(*(self.inner if with_neighbours else self.ranges)), shape).reshape(-1)


def _cut(own: Formula | Criterion, value: Array, wrong: Array, images: int) -> _Smaller:
    """The formula with all axes cut that can be."""
    every = tuple(np.arange(n) for n in value.shape)
    part = _Smaller(own, every, every)
    for axis in range(max(np.ndim(one) for one in _operands(own))):
        smaller = _with_axis_cut(part, axis, wrong, SLICES if axis else images)
        if smaller is not None:
            known = _factor(smaller.formula, value[np.ix_(*smaller.ranges)])
            if known is not None:
                part = replace(smaller, factor=known)
    return part


def _operands(right: Formula | Criterion) -> list[Array]:
    if isinstance(right, Criterion):
        return [right.y.value, right.target]
    return [*(one.value for one in right.inputs), *([] if right.dy is None else [right.dy.value])]


def _factor(part: Formula | Criterion, value: Array) -> float | None:
    """What the numbers of a part are to be multiplied with, a number that all share; None where there is none."""
    try:
        found = part.values()
    except (BridgeError, ArithmeticError, LookupError, ValueError):
        return None
    if found.shape != value.shape or not np.isfinite(found).all():
        return None
    size = float(found.reshape(-1) @ found.reshape(-1))
    factor = float(found.reshape(-1) @ value.reshape(-1)) / size if size > 0 and isinstance(part, Criterion) else 1.0
    return factor if np.abs(factor * found - value).max() <= SAME * np.abs(value).max() else None


def _with_axis_cut(whole: _Smaller, axis: int, wrong: Array, least: int) -> _Smaller | None:
    """The formula with an axis of its operands cut; None where it is short."""
    right = whole.formula
    operands = _operands(right)
    of_output = [a for a in range(wrong.ndim) if a == axis or (wrong.ndim == 1 and axis == 1)]
    if not of_output or any(np.ndim(one) <= axis for one in operands):
        return None
    at, made = of_output[0], len(whole.ranges[of_output[0]])
    groups = getattr(right.node, "num_groups", 0) if isinstance(right, Formula) and axis == 1 else 0
    blocks = math.gcd(made, groups, *(n for one in operands if (n := one.shape[axis]) > 1))
    keep = max(least, math.ceil(blocks * FEW / max(map(np.size, operands))))
    if keep >= blocks:
        return None
    first = _first_block(whole.ranges, at, wrong, blocks, keep)
    cut = _Blocks(blocks, slice(first, first + keep))
    left = cut.of(whole.ranges[at], 0)
    inner = left[made // blocks : -(made // blocks)] if keep >= SLICES else left
    ranges, with_neighbours = (
        (*before[:at], one, *before[at + 1:]) for before, one in ((whole.ranges, left), (whole.inner, inner)))
    made_of = replace(_of_blocks(right, axis, cut), shape=tuple(map(len, ranges)))
    return _Smaller(made_of, ranges, with_neighbours)


def _of_blocks(right: Formula | Criterion, axis: int, cut: _Blocks) -> Formula | Criterion:
    if isinstance(right, Criterion):
        y, target = cut.of(right.y.value, axis), cut.of(right.target, axis)
        return replace(right, y=Predicted(y), target=target)
    inputs = tuple(Predicted(cut.of(one.value, axis)) for one in right.inputs)
    channels = right.inputs[0].value.shape[1] if axis == 1 else 0
    parameters = {name: cut.of(w, 0) if len(w) == channels else w for name, w in right.parameters.items()}
    dy = None if right.dy is None else Predicted(cut.of(right.dy.value, axis))
    settings = {one.name: n // cut.blocks * (cut.kept.stop - cut.kept.start) for one in fields(right.node)
                if channels and one.name.startswith("num_") and (n := getattr(right.node, one.name)) % cut.blocks == 0}
    node = replace(right.node, **settings)
    return replace(right, inputs=inputs, parameters=parameters, dy=dy, node=node)


@dataclass(frozen=True)
class _Blocks:
    """Some of the blocks that an axis is made of."""

    blocks: int
    kept: slice

    def of(self, a: Array, axis: int) -> Array:
        """Return an array with these alone; one that is broadcast along the axis stays."""
        n = a.shape[axis] // self.blocks
        if a.shape[axis] == 1 or n * self.blocks != a.shape[axis]:
            return a
        return a[(slice(None),) * axis + (slice(self.kept.start * n, self.kept.stop * n),)]


def _first_block(ranges: tuple[Array, ...], axis: int, wrong: Array, blocks: int, keep: int) -> int:
    """Where those that are wrong are most, away from the ends."""
    there = wrong[np.ix_(*ranges)].sum(axis=tuple(a for a in range(wrong.ndim) if a != axis))
    count = np.convolve(there.reshape(blocks, -1).sum(1), np.ones(keep), "valid")
    most = np.flatnonzero(count == count.max())
    return int(most[most.size // 2])
