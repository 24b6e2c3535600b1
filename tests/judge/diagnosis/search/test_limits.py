# SPDX-License-Identifier: MIT
"""The search: right tensors, NaN, noise, and time that is short."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from bridge.judge.diagnosis.candidates import operation_faults
from bridge.judge.diagnosis.clock import now
from bridge.judge.diagnosis.predictions.operations import Predicted, Remade
from bridge.judge.diagnosis.sampling import few_channels, sample
from bridge.judge.diagnosis.search import PAIRS, Search
from bridge.judge.diagnosis.unobserved import unobserved_operations
from tests.helpers.judged.diagnosed import Lab, keys
from tests.helpers.judged.searched import DW, Array, Z


def test_right_tensors_have_nothing_to_explain(lab: Lab) -> None:
    """The candidate's own float32 numbers are inside the bounds of every operation of every step."""
    for step in range(3):
        for name in lab.pair.shapes:
            found = Search(lab.case(name, lab.right(name, step), step))
            assert found.t <= 1 and not found.place.wrong


def test_bounds_are_those_of_the_comparison(lab: Lab) -> None:
    """Where everything is computed from the weights alone; there elements of the border have fewer products."""
    images: dict[str, list[tuple[Array, Array]]] = {}

    class Keep:
        def __call__(self, name: str, value: Array, error: Array, *_: object) -> None:
            images.setdefault(name, []).append((value.copy(), np.broadcast_to(error, value.shape).copy()))

    from bridge.judge.oracle.step import step_of_image

    graph = lab.graph()
    graph.ignored = frozenset(lab.pair.shapes)
    for image in range(4):
        x, target = (lab.pair.batch(0, what, image) for what in ("input", "target"))
        step_of_image(graph.model, graph.weights, x, target, lab.pair.loss_scale, lab.pair.arithmetic, Keep())
    for name, parts in images.items():
        mine = graph.value(name)
        value, error = (np.stack([part[i] for part in parts]) for i in (0, 1))
        np.testing.assert_allclose(mine.value, value, atol=1e-13)
        ours = np.broadcast_to(np.zeros(1) if mine.error is None else mine.error, value.shape)
        assert (ours >= error * (1 - 1e-9)).all(), name
        assert np.median(ours[error > 0] / error[error > 0]) < 1.3, name


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_never_raises(lab: Lab, bad: float) -> None:
    rng = np.random.default_rng(0)
    for name in lab.pair.shapes:
        for share in (0.0, 0.3, 1.0):
            found = lab.right(name).copy()
            # At least one: what is right may be a sequential sum, too
            found.flat[0] = bad
            found.flat[rng.random(found.size) < share] = bad
            explanations, _ = lab.search(name, found, seconds=0.5)
            assert all(set(keys(one)) & {"corrupted", "uninitialised"} for one in explanations)


def test_a_huge_number_never_raises(lab: Lab) -> None:
    for name in (DW, Z, "loss", "grads/two/bias"):
        lab.search(name, np.full_like(lab.right(name), 3e38), seconds=0.5)


def test_no_time_is_no_explanation(lab: Lab) -> None:
    for name in lab.pair.shapes:
        start = now()
        explanations, runner_up = lab.search(
            name, np.random.default_rng(0).normal(size=lab.right(name).shape), seconds=0
        )
        assert explanations == [] and runner_up is None
        assert now() - start < 1


def test_deadline_is_kept(lab: Lab) -> None:
    """Noise that nothing explains; hypotheses and confirmations end together."""
    start = now()
    found = lab.right(DW) + 5 * lab.bound(DW) * np.random.default_rng(0).normal(size=lab.right(DW).shape)
    assert lab.search(DW, found, seconds=0.5)[0] == []
    assert now() - start < 3


@pytest.mark.parametrize("size", [1.05, 3.0, 10.0])
def test_noise_is_explained_by_nothing(lab: Lab, size: float) -> None:
    """Errors of up to `size` E everywhere, and a tail that leaves E here and there: rounding that is a little large."""
    tried = 0
    for seed in range(2):
        for name in (DW, Z, "grads/three/output", "grads/two/bias", "loss"):
            rng = np.random.default_rng((seed, len(name)))
            truth = lab.graph().operation(name).full(lab.arithmetic)
            shape = truth.value.shape
            noise = rng.uniform(-size, size, shape) if seed % 2 else size / 3 * rng.normal(size=shape)
            found = truth.value + noise * np.broadcast_to(truth.error, shape)
            case = lab.case(name, found)
            # A tail of few elements that are far out is no noise
            search = Search(case, now() + 0.25)
            if search.t > 1 and not (size == 10 and search.place.explanation):
                tried += 1
                explanations, _ = search.run(search.place)
                assert explanations == [], (name, seed, search.t, explanations)
    assert tried > 3


def test_samples_hold_the_border() -> None:
    shape = (2, 3, 100, 90)
    *_, i, j = np.unravel_index(sample(shape), shape)
    for edge in (i == 0, i == 99, j == 0, j == 89):
        assert np.count_nonzero(edge) > 200
    assert np.count_nonzero((i == 0) & (j == 89)) == 6
    assert len(np.unique(sample(shape))) == len(sample(shape))
    np.testing.assert_array_equal(sample((4, 5, 3, 3)), np.arange(180))
    k, c, *_ = np.unravel_index(few_channels((9, 1, 3, 2)), (9, 1, 3, 2))
    assert set(k) == {3, 6} and set(c) == {0} and len(k) == 12


def test_unobserved_operations_nearest_first(lab: Lab) -> None:
    graph = lab.graph()
    graph.ignored = frozenset({"grads/two/output", "grads/then/output", "forward/then"})
    assert unobserved_operations(graph, DW) == ["grads/two/output", "grads/then/output"]
    assert unobserved_operations(graph, "forward/three") == ["forward/then"]
    assert unobserved_operations(graph, "forward/two") == []


def test_planting_changes_only_what_follows(lab: Lab) -> None:
    graph = lab.graph()
    graph.ignored = frozenset(lab.pair.shapes)
    right = {name: graph.value(name) for name in lab.pair.shapes}
    planted = graph.planting(Z, graph.operation(Z).replaced(bias_factor=0.0))
    for name in lab.pair.shapes:
        same = planted.value(name) is right[name]
        assert same == (name in ("forward/one", "forward/relu")), name
        assert isinstance(planted.value(name), Predicted)
    # Also in place of a tensor that the file holds
    wrong = lab.graph().operation(Z).replaced(bias_factor=0.0)
    np.testing.assert_array_equal(lab.graph().planting(Z, wrong).value(Z).value, wrong.full(lab.arithmetic).value)


def test_operands_of_hypotheses_are_made_anew() -> None:
    """A search keeps hundreds of hypotheses, and not the tensors of each."""
    made: list[weakref.ref[Array]] = []

    def change(a: Array) -> Array:
        found = a + 1
        made.append(weakref.ref(found))
        return found

    several = [Remade(Predicted(np.zeros(5), np.ones(5)), change) for _ in range(20)]
    for one in several:
        assert (one.value == 1).all() and one.error is not None and (one.error == 2).all()
        assert one.value is one.value
    assert len(made) == 40 and sum(one() is not None for one in made) == Remade.KEPT
    Remade.forget()
    assert not any(one() is not None for one in made)


@pytest.mark.deep
def test_of_thousands_of_pairs_the_nearest_are_kept(lab: Lab) -> None:
    """And operands of hypotheses are such as are made anew."""
    right = lab.right(Z)
    search = Search(lab.case(Z, right * (1 + np.random.default_rng(0).standard_normal(right.shape))))
    search._try(operation_faults(search.case))
    first = [one.hypothesis for one in search.tried if not one.hypothesis.altered]
    assert any(isinstance(getattr(one.operation, "x", None), Remade) for one in first)
    before, count = len(search.tried), search.count
    search._twice(first)
    assert search.count > count + 10 * PAIRS and len(search.tried) <= before + 2 * PAIRS
