# SPDX-License-Identifier: MIT
"""Outcomes, condition numbers, and the probability of a false alarm."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from bridge.exchange.model import Conv2d, Model, Relu
from bridge.judge.arithmetic.recognised import Recognised
from bridge.judge.judge import judge
from bridge.judge.measure.condition import false_alarm, kappa, roundings
from bridge.judge.measure.error_statistics import measure
from bridge.judge.measure.file_pair import open_pair
from bridge.judge.measure.findings import NO_STEP, Comparison, Judged
from bridge.judge.measure.outcome import Outcome
from bridge.judge.oracle import convolution
from bridge.judge.verdict import Verdict, decide
from bridge.report.rows import outcomes_of_steps
from tests.helpers.judged.judgements import of, printed, stat

Array = np.ndarray
Pair = tuple[Comparison, Verdict]


@pytest.fixture(scope="module")
def right(small_fixture: Path, small_result: Path) -> Pair:
    return judge(small_fixture, small_result, diagnosing=False)


@pytest.mark.parametrize("t, outcome", [
    (0.0, Outcome.ROUNDING), (1.0, Outcome.ROUNDING), (1.001, Outcome.CANNOT_TELL), (10.0, Outcome.CANNOT_TELL),
    (10.1, Outcome.BUG), (math.inf, Outcome.BUG), (math.nan, Outcome.BUG),
])
def test_the_outcome_of_a_tensor(t: float, outcome: Outcome) -> None:
    assert Judged("loss", 0, stat(t)).outcome is outcome


@pytest.mark.parametrize("outcome", [Outcome.PRECISION, Outcome.CANNOT_TELL])
def test_a_lower_precision_excuses_what_is_inside_its_bounds(outcome: Outcome, small_fixture: Path,
                                                             small_result: Path) -> None:
    """And nothing else."""
    names = ("forward/conv1", "forward/conv2", "loss")
    declared = of(*(Judged(name, 0, stat(t)) for name, t in zip(names, (500.0, 500.0, 0.5), strict=True)))
    reduced = of(*(Judged(name, 0, stat(t)) for name, t in zip(names, (0.7, 40.0, 0.1), strict=True)))
    with open_pair(small_fixture, small_result) as pair:
        Recognised(outcome, "it is another", pair, reduced).excuse(declared)
    assert [one.outcome for one in declared.judged] == [outcome, Outcome.BUG, Outcome.ROUNDING]
    assert not declared.judged[0].passed
    assert [one.outcome for one in outcomes_of_steps(declared)] == [Outcome.BUG]


@pytest.mark.parametrize("outcome", [Outcome.ROUNDING, Outcome.PRECISION])
def test_nothing_is_known_beside_data_under_an_unknown_name(outcome: Outcome, small_fixture: Path, small_result: Path
                                                            ) -> None:
    """Neither that a result is right, nor that its precision alone is lower; unless that is allowed."""
    comparison = of(Judged("forward/conv1", 0, stat(0.5)))
    comparison.skip("steps/0/forward/conv_1", NO_STEP, "unknown name", unknown=True, misnamed=True)
    with open_pair(small_fixture, small_result) as pair:
        found = Recognised(outcome, "it is another", pair, comparison)
    assert decide(comparison, found).outcome is Outcome.CANNOT_TELL
    assert decide(comparison, found, allow_unknown=True).outcome is outcome


def test_the_outcomes_of_steps() -> None:
    """Neighbours are one; the first that fails speaks for a step, else the largest T."""
    table = {0: (0.1, 0.4), 1: (0.3, 0.2), 2: (0.1, 2.0), 3: (5e4, 9e4), 5: (0.2, 0.1)}
    found = outcomes_of_steps(of(*(Judged(f"forward/conv{i}", k, stat(t))
                                for k, row in table.items() for i, t in enumerate(row, 1))))
    assert [(s.first, s.last, s.outcome.label, s.at.t) for s in found] == [
        (0, 1, "rounding", 0.4), (2, 2, "cannot_tell", 2.0), (3, 3, "bug", 5e4), (5, 5, "rounding", 0.2)]


CHAIN = Model((
    Relu("first"), Conv2d("a", 4, 6, (3, 2), (2, 1), (1, 2), (1, 2), 2), Relu("middle"),
    Conv2d("b", 6, 3, (2, 3), bias=False), Relu("last")))


def test_roundings_count_every_product() -> None:
    """Against torch's sums of ones."""
    shape, size = (2, 4, 9, 8), {}
    x = torch.ones(shape, requires_grad=True)
    outputs_of = {}
    value = x
    for layer in CHAIN.layers:
        if isinstance(layer, Conv2d):
            given = torch.ones(value.shape, requires_grad=True)
            w = torch.ones(layer.weight_shape, requires_grad=True)
            z = torch.conv2d(given, w, None, layer.stride, layer.padding, layer.dilation, layer.groups)
            z.sum().backward()
            size[layer.name], outputs_of[layer.name] = (given.grad, w.grad, z.shape), z.detach()
            value = z
    for name, before in (("a", "first"), ("b", "middle")):
        data, filters, out = size[name]
        forward = roundings(CHAIN, shape, f"forward/{name}")
        assert np.array_equal(np.broadcast_to(forward, out) - (name == "a"), outputs_of[name].numpy())
        assert np.array_equal(np.broadcast_to(roundings(CHAIN, shape, f"grads/{name}/weight"), filters.shape),
                              filters.numpy())
        assert np.array_equal(np.broadcast_to(roundings(CHAIN, shape, f"grads/{before}/output"), data.shape),
                              data.numpy())
    assert roundings(CHAIN, shape, "grads/a/bias") == 2 * math.prod(size["a"][2][2:])
    # A ReLU hands on what it takes
    assert np.array_equal(roundings(CHAIN, shape, "forward/middle"), roundings(CHAIN, shape, "forward/a"))
    assert np.array_equal(roundings(CHAIN, shape, "grads/a/output"), roundings(CHAIN, shape, "grads/middle/output"))
    assert roundings(CHAIN, shape, "grads/last/output") == roundings(CHAIN, shape, "grads/b/output") == 4
    assert roundings(CHAIN, shape, "loss") == math.prod(size["b"][2]) + 3
    assert all(roundings(CHAIN, shape, name) is None for name in ("forward/first", "update/a/weight", "weights/a/bias"))


def test_kappa_is_the_condition_of_the_sum(right: Pair, small_fixture: Path) -> None:
    comparison, _ = right
    (one,) = (j for j in comparison.judged if (j.name, j.step) == ("forward/conv1", 0))
    layer, (image, *at) = comparison.model.layers[0], one.statistic.at
    with h5py.File(small_fixture) as file:
        x, w, b = (file[name][()].astype(float) for name in (
            "batches/0/input", "steps/0/weights/conv1/weight", "steps/0/weights/conv1/bias"))
    (value,), (c,) = (convolution.forward(f(x[image]), [f(w)], layer) for f in (np.asarray, np.abs))
    k = at[0]
    here = tuple(at)
    assert kappa(comparison, one) == pytest.approx((c[here] + abs(b[k])) / abs(value[here] + b[k]), rel=1e-9)
    assert all(kappa(comparison, j) is None for j in comparison.judged if j.name.startswith(("update", "weights")))


def test_digits() -> None:
    value = np.array([3.0, 4.0])
    assert measure(value + 5e-4 * np.array([0.6, 0.8]), value, np.ones(1)).digits == pytest.approx(4)
    assert measure(value, value, np.ones(1)).digits == math.inf
    assert math.isnan(measure(np.array([np.nan, 4.0]), value, np.ones(1)).digits)


def test_the_probability_of_a_false_alarm() -> None:
    """Below 1e-6 for the default model, as it is promised; 0 where every bound is a theorem."""
    pad = {"padding": (1, 1)}
    layers = (Conv2d("a", 1, 16, (3, 3), **pad), Relu("b"), Conv2d("c", 16, 16, (3, 3), **pad), Relu("d"),
              Conv2d("e", 16, 1, (3, 3), **pad))
    judged = [Judged("loss", k, stat(0.1)) for k in range(3)]
    whole = Comparison(Model(layers), "float32", 3, (2, 1, 1024, 1024), judged=judged)
    assert 1e-7 < false_alarm(whole) < 1e-6
    # 2 x 2 images, one channel, 3 x 3 taps: no sum of more than 81
    one = Model((Conv2d("a", 1, 1, (3, 3), **pad),))
    tiny = Comparison(one, "float32", 1, (2, 1, 2, 2), judged=judged[:1])
    assert false_alarm(tiny) == 0
    # 100 pixels: of the loss 103 roundings, of the bias 100, of the centre tap 100, of 4 taps 90, of the corners 81
    larger = replace(tiny, batch_shape=(1, 1, 10, 10))
    assert false_alarm(larger) == pytest.approx(2 * math.exp(-40.5) * (103 + 100 + 100 + 4 * 90))
    assert false_alarm(replace(larger, judged=judged)) == pytest.approx(3 * false_alarm(larger))
    # What a ReLU hands on is not rounded again: forward 91 roundings, in each of 100 pixels
    deep = Conv2d("a", 10, 1, (3, 3), **pad)
    plain, copied = (replace(larger, model=Model(layers), batch_shape=(1, 10, 12, 12)) for layers in (
        (deep,), (deep, Relu("b"))))
    assert false_alarm(plain) == false_alarm(copied) > 0
    assert "rounding alone cannot fail right code" in " ".join(printed((tiny, decide(tiny))))
