# SPDX-License-Identifier: MIT
"""Alterations of the formula of a large tensor are tried on a part of it, and computed again only where they change."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bridge.judge.diagnosis.altered import call_results
from bridge.judge.diagnosis.altered.formulas import Altered, formulas_of
from bridge.judge.diagnosis.altered.numbers import Target
from bridge.judge.diagnosis.altered.parts import LARGE, Cropped, OnPart, cropped
from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.clock import now
from bridge.judge.diagnosis.predictions.formulas import Criterion, Formula, Joined
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.search import Search
from bridge.judge.oracle.error_model import Arithmetic
from bridge.operations.losses import Huber, Loss, MeanAbsoluteError
from bridge.operations.normalization import BatchNorm2d, GroupNorm, LayerNorm
from bridge.operations.operation import Operation as Node
from bridge.operations.pointwise import Gelu, Silu
from bridge.operations.pooling import MaxPool2d
from bridge.operations.resizing import UpsampleBilinear2d
from bridge.operations.softmax import Softmax

Array = np.ndarray
SHAPE = (4, 8, 64, 48)
RNG = np.random.default_rng(3)
X, DY = (RNG.normal(size=SHAPE).astype(np.float32).astype(float) for _ in range(2))
OF_CHANNELS: Mapping[str, Array] = {"weight": RNG.normal(size=8), "bias": RNG.normal(size=8)}
OF_COLUMNS: Mapping[str, Array] = {"weight": RNG.normal(size=48), "bias": RNG.normal(size=48)}
NONE: Mapping[str, Array] = {}


def made(node: Node, parameters: Mapping[str, Array] = NONE, gradient: int | str | None = None) -> Formula:
    """An operation of X, or its gradient."""
    forward = Formula((), node, (Predicted(X),), parameters)
    if gradient is not None:
        shape = forward._values.shape
        dy = Predicted(DY.reshape(-1)[: int(np.prod(shape))].reshape(shape))
        forward = forward.replaced(dy=dy, gradient=gradient)
    shaped: Formula = forward.replaced(shape=forward._values.shape)
    return shaped


def gradient_of(loss: Loss) -> Criterion:
    """The gradient of a loss."""
    return Criterion(SHAPE, loss, Predicted(X), DY, True)


NORM = made(BatchNorm2d("it", 8), OF_CHANNELS, 0)
FORMULAS: dict[str, tuple[Formula | Criterion | Joined, int]] = {
    "batch_norm": (made(BatchNorm2d("it", 8), OF_CHANNELS), 3 * X.size // 8),
    "its gradient": (NORM, 3 * X.size // 8),
    "that of its weight": (made(BatchNorm2d("it", 8), OF_CHANNELS, "weight"), 3 * X.size // 8),
    "layer_norm": (made(LayerNorm("it", (48,)), OF_COLUMNS), LARGE // 4),
    "group_norm": (made(GroupNorm("it", 4, 8), OF_CHANNELS), 3 * X.size // 4),
    "softmax": (made(Softmax("it")), LARGE // 4),
    "gelu": (made(Gelu("it"), gradient=0), LARGE // 4),
    "max_pool": (made(MaxPool2d("it", (2, 2), (2, 2))), LARGE // 4),
    "its gradient at places": (made(MaxPool2d("it", (2, 2), (2, 2)), gradient=0), LARGE // 4),
    "over windows that overlap": (made(MaxPool2d("it", (3, 3), (2, 2), (1, 1))), LARGE // 2),
    "bilinear": (made(UpsampleBilinear2d("it", (2, 2))), LARGE // 2),
    "huber": (gradient_of(Huber(delta=0.5)), LARGE // 4),
    "absolute": (gradient_of(MeanAbsoluteError()), LARGE // 4),
    "a part of a sum": (Joined(SHAPE, (NORM, made(Silu("it"), gradient=0)), ("norm", "silu")), 3 * X.size // 8),
}


def part_of(formula: Altered, right: Array) -> Cropped:
    """What alterations are tried on."""
    every = Target(np.arange(right.size), *[right.reshape(-1)] * 2, np.ones(right.size), 2.0**-24)
    found = cropped(formula, right, np.ones(right.shape, bool), every)
    assert found is not None
    return found


@pytest.mark.parametrize("name", FORMULAS)
def test_a_part_is_made_of_the_same_part_of_the_operands(name: str) -> None:
    right, most = FORMULAS[name]
    whole = right.values()
    for formula in formulas_of(right, None):
        part = part_of(formula, whole)
        given = part.part.right
        assert (given.y if isinstance(given, Criterion) else given.inputs[0]).value.size <= most
        calls = part.calls()
        # The same alteration, of the part and of the whole: the last call gives twice as much
        twice = part.altered({calls[-1].at: lambda method, *given: method(*given) * 2.0})
        for made, all_of_it in ((part.altered({}), whole), (twice, twice.whole.values())):  # type: ignore[attr-defined]
            assert np.allclose(made.at(part.target.sample), all_of_it.reshape(-1)[part.target.sample], rtol=1e-9,
                               atol=1e-12 * np.abs(whole).max())


def test_neighbours_of_what_is_compared_are_in_the_part() -> None:
    right = FORMULAS["gelu"][0]
    (formula,) = formulas_of(right, None)
    part = part_of(formula, right.values())
    seen = 0
    for _, said, made in part.operands():
        if said.startswith("dy of the ") and "for all" not in said:
            assert isinstance(made, OnPart)
            whole = made.whole.values().reshape(-1)
            assert np.array_equal(made.at(part.target.sample), whole[part.target.sample]), said
            seen += 1
    assert seen == 4


def test_one_image_is_enough_where_three_are_too_many() -> None:
    wide = Formula((3, 8, 160, 160), GroupNorm("it", 2, 8), (Predicted(np.resize(X, (3, 8, 160, 160))),), OF_CHANNELS)
    (formula,) = formulas_of(wide, None)
    given = part_of(formula, wide.values()).part.right
    assert isinstance(given, Formula) and given.inputs[0].value.shape == (1, 8, 160, 160)


def test_functions_are_the_same_where_they_hold_the_same() -> None:
    def adding(number: float) -> Any:
        return lambda x: x + number

    assert call_results.same(adding(1.0), adding(1.0)) and not call_results.same(adding(1.0), adding(2.0))


def test_small_tensors_have_no_parts() -> None:
    small = Formula((4, 8, 16, 16), Gelu("it"), (Predicted(X[:, :, :16, :16]),), {})
    (formula,) = formulas_of(small, None)
    assert cropped(formula, small.values(), np.ones(small.shape, bool), Target(*[np.zeros(1)] * 4, 2.0**-24)) is None


@pytest.mark.deep
def test_a_mistake_in_a_large_tensor_costs_few_evaluations_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    computed = Formula._computed

    def counted(self: Formula, arithmetic: Arithmetic) -> Any:
        sizes.append(self.inputs[0].value.size)
        return computed(self, arithmetic)

    mean, deviation = X.mean((0, 2, 3), keepdims=True), np.sqrt(X.var((0, 2, 3), keepdims=True) + 1e-5)
    normal = (X - mean) / deviation
    found = (DY - 2 * DY.mean((0, 2, 3), keepdims=True) - normal * (DY * normal).mean((0, 2, 3), keepdims=True)
             ) * OF_CHANNELS["weight"].reshape(-1, 1, 1) / deviation
    graph: Any = SimpleNamespace(arithmetic=Arithmetic(2.0**-24))
    search = Search(Case("forward/it", graph, NORM, found.astype(np.float32).astype(float)), now() + 120)
    monkeypatch.setattr(Formula, "_computed", counted)
    with np.errstate(all="ignore"):
        search._altered()
    assert search._accepted()[0].detail == "the mean of dy is subtracted from dy twice"
    assert sizes.count(X.size) <= 10 < len(sizes) / 5


def test_only_what_follows_from_a_changed_call_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    right = made(Softmax("it")).replaced(inputs=(Predicted(X[:, :, :4, :4]),), shape=(4, 8, 4, 4))
    (formula,) = formulas_of(right, None)
    calls = formula.calls()
    known: list[bool] = []
    at = call_results.CallResults.at

    def counted(self: call_results.CallResults, place: int, primitive: str, given: Any) -> tuple[bool, Any]:
        found = at(self, place, primitive, given)
        known.append(found[0])
        return found

    monkeypatch.setattr(call_results.CallResults, "at", counted)
    for call in calls:
        known.clear()
        changed = formula.altered({call.at: lambda method, *given: method(*given) * 2.0})
        values = changed.values()
        follows = {call.at}
        for other in calls:
            if other.follows & follows:
                follows.add(other.at)
        assert known[: call.at] == [True] * call.at
        assert known.count(False) == len(follows) - 1
        # With bounds nothing is kept
        known.clear()
        assert np.array_equal(values, changed.full(Arithmetic(2.0**-24)).value) and not known
