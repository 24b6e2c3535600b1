# SPDX-License-Identifier: MIT
"""The bounds really bound, the statistic never lets a NaN pass, and the optimiser's bounds hold."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from bridge.common.number_format import short
from bridge.exchange.model import Conv2d, Model, Relu
from bridge.exchange.optimizers import Sgd
from bridge.judge.judge import Judgement
from bridge.judge.measure.error_statistics import BLOCK, Statistic, measure
from bridge.judge.measure.findings import Comparison, Judged, bug_above
from bridge.judge.measure.operation_names import operation
from bridge.judge.measure.updates import OTHER_ORDER
from bridge.judge.oracle import step as bounds
from bridge.judge.oracle import update as updates
from bridge.judge.oracle.elementwise import ConvolutionParts, finish
from bridge.judge.oracle.error_model import Arithmetic, rounding_factor, total_roundoff
from bridge.judge.oracle.reductions import GradientSums, StepSums, gradient_bound, loss_bound
from bridge.judge.verdict import Outcome, decide
from bridge.report import print_report, to_dict

Array = np.ndarray
U = total_roundoff("float32")
CHAIN = Model(
    (
        Conv2d("conv1", 2, 6, (3, 3), padding=(1, 1)),
        Relu("r1"),
        Conv2d("conv2", 6, 5, (3, 2), (2, 1), (1, 1)),
        Relu("r2"),
        Conv2d("conv3", 5, 2, (2, 3), padding=(0, 1)),
    )
)


# --- s(n) ---------------------------------------------------------------------------------------------------


def test_rounding_factor() -> None:
    n = np.array([0, 1, 9, 81, 82, 10_000])
    np.testing.assert_allclose(rounding_factor(n, 2.0), 2 * np.array([0, 1, 9, 81, 9 * math.sqrt(82), 900]))
    assert Arithmetic(U, 2.0**-11).factor(9) == pytest.approx(9 * U + 2.0**-10, rel=1e-3)
    assert bug_above(81) == 1 and bug_above(145) == pytest.approx(1.338, abs=1e-3) and bug_above(10**7) == 10


def test_underflow_leaves_exact_zeros_exact() -> None:
    bound = Arithmetic(U).with_underflow(np.array([0.0, 1e-60, 1.0]), 9)
    assert bound[0] == 0 and bound[1] == pytest.approx(9 * 2.0**-149) and bound[2] == 1
    tiny = Arithmetic(total_roundoff("float64")).with_underflow(np.array([1e-60]), 9)
    assert tiny[0] == 1e-60


def test_the_bound_of_a_gradient_is_that_of_its_sum() -> None:
    """s(n)*c for n roundings, and what errors of the inputs may change."""
    one = np.ones(2)
    value, bound = gradient_bound(GradientSums(5 * one, 3 * one, 0.5 * one, 4 * one), Arithmetic(U))
    np.testing.assert_allclose(value, 5)
    np.testing.assert_allclose(bound, 4 * U * 3 + (1 + 4 * U) * 0.5, rtol=1e-12)
    bound = gradient_bound(GradientSums(5 * one, 3 * one, 0 * one, 4 * one), Arithmetic(U))[1]
    np.testing.assert_allclose(bound, 12 * U, rtol=1e-12)


# --- the bounds of a step -----------------------------------------------------------------------------------


def one_step(weights: dict[str, Array], x: Array, target: Array, u: float) -> dict[str, tuple[Array, Array]]:
    """Value and bound of every tensor of one image."""
    found: dict[str, tuple[Array, Array]] = {}
    sums = bounds.step_of_image(
        CHAIN,
        weights,
        x,
        target,
        1 / target.size,
        Arithmetic(u),
        lambda n, v, e: found.setdefault(n, (v.copy(), e.copy())) and None,
    )
    found |= {f"grads/{n}": gradient_bound(parts, Arithmetic(u)) for n, parts in sums.gradients.items()}
    loss = loss_bound(sums, 1 / target.size, target.size, Arithmetic(u))
    return found | {"loss": (np.array([loss[0]]), np.array([loss[1]]))}


@pytest.fixture(scope="module")
def problem() -> tuple[dict[str, Array], Array, Array]:
    rng = np.random.default_rng(8)
    weights = {n: rng.standard_normal(s).astype(np.float32).astype(float) for n, s in CHAIN.parameter_shapes().items()}
    shape = CHAIN.output_shapes((1, 2, 12, 10))[-1][1:]
    x, target = (rng.standard_normal(s).astype(np.float32).astype(float) for s in ((2, 12, 10), shape))
    return weights, x, target


def rounded(values: Array, rng: np.random.Generator, u: float) -> Array:
    """Every element changed by at most one rounding, to one side or the other."""
    return values * (1 + u * rng.choice([-1.0, 1.0], values.shape))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("u", [2.0**-24, 2.0**-11])
def test_the_effect_of_rounded_weights_is_inside_the_bounds(
    problem: tuple[dict[str, Array], Array, Array], seed: int, u: float
) -> None:
    """Each product with a weight that is off by u changes less than n*u*c: so must all that follows, flips included."""
    weights, x, target = problem
    rng = np.random.default_rng(seed)
    truth = one_step(weights, x, target, u)
    off = one_step({n: rounded(w, rng, u) for n, w in weights.items()}, x, target, u)
    for name, (value, bound) in truth.items():
        assert measure(off[name][0], value, bound).t <= 1, name


def test_bounds_grow_in_proportion_to_u(problem: tuple[dict[str, Array], Array, Array]) -> None:
    coarse, fine = (one_step(*problem, u) for u in (2.0**-20, 2.0**-30))
    for name in ("forward/conv3", "loss"):
        assert np.median(coarse[name][1] / fine[name][1]) == pytest.approx(2.0**10, rel=1e-2)


def test_dead_inputs_must_be_exact() -> None:
    """Where a ReLU surely stops everything, the value and the bound are 0."""
    model = Model((Conv2d("a", 1, 1, (1, 1)), Relu("r")))
    weights = {"a/weight": np.ones((1, 1, 1, 1)), "a/bias": np.zeros(1)}
    found = {}
    bounds.step_of_image(
        model,
        weights,
        np.array([[[-1.0, 2.0]]]),
        np.ones((1, 1, 2)),
        1.0,
        Arithmetic(U),
        lambda n, v, e: found.setdefault(n, (v.copy(), e.copy())) and None,
    )
    for name in ("forward/r", "grads/a/output", "grads/input"):
        value, bound = found[name]
        assert value[0, 0, 0] == bound[0, 0, 0] == 0 and value[0, 0, 1] > 0 and bound[0, 0, 1] > 0


def test_a_relu_in_doubt_may_go_both_ways() -> None:
    model = Model((Conv2d("a", 1, 1, (1, 2)), Relu("r")))
    weights = {"a/weight": np.array([[[[1.0, -1.0]]]]), "a/bias": np.zeros(1)}
    found = {}
    x = np.array([[[1.0, 1.0 + 2.0**-23]]])
    bounds.step_of_image(
        model,
        weights,
        x,
        np.ones((1, 1, 1)),
        1.0,
        Arithmetic(U),
        lambda n, v, e: found.setdefault(n, (v.copy(), e.copy())) and None,
    )
    assert found["forward/a"][0] < 0 and found["forward/r"][1] > 0
    value, bound = found["grads/a/output"]
    passed = found["grads/r/output"][0]
    assert value == 0 and measure(passed, value, bound).t <= 1 < measure(1.01 * passed, value, bound).t


@pytest.mark.parametrize("mean", [True, False])
def test_a_loss_that_underflows_is_inside_its_bound(mean: bool) -> None:
    """Squares of numbers around 2**-70 are below the smallest normal float32."""
    rng, model = np.random.default_rng(4), Model((Relu("r"),))
    x, target = (np.float32(2.0**-70) * rng.standard_normal((1, 9, 9)).astype(np.float32) for _ in range(2))
    scale = 1 / x.size if mean else 1.0
    sums = bounds.step_of_image(model, {}, x.astype(float), target.astype(float), scale, Arithmetic(U), lambda *_: None)
    value, bound = loss_bound(sums, scale, x.size, Arithmetic(U))
    d = np.maximum(x, 0) - target
    for loss in (np.float32(scale) * (d * d).sum(dtype=np.float32), (np.float32(scale) * d * d).sum(dtype=np.float32)):
        assert abs(float(loss) - value) <= bound <= 200 * 2.0**-149
    assert value > 0 and loss_bound(StepSums(), scale, x.size, Arithmetic(U)) == (0, 0)


# --- the statistic ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", range(3))
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_fail_on_every_side(side: int, value: float) -> None:
    arrays = [np.ones((2, 3)), np.ones((2, 3)), np.ones((2, 3))]
    arrays[side][1, 2] = value
    found = measure(*arrays)
    assert found.t == math.inf and found.at == (1, 2) and found.nonfinite == 1
    assert not Judged("forward/a", 0, found).passed and Judged("forward/a", 0, found).certain


def test_equal_infinities_fail_too() -> None:
    assert measure(np.array([np.inf]), np.array([np.inf]), np.ones(1)).t == math.inf


def test_a_bound_of_zero_means_exact() -> None:
    value = np.array([0.0, 1.0])
    assert measure(value, value, np.zeros(2)).t == 0
    assert measure(np.array([0.0, np.nextafter(1, 2)]), value, np.zeros(2)).t == math.inf
    assert measure(np.array([1e-300, 1.0]), value, np.array([0.0, 1.0])).at == (0,)


def test_an_empty_or_misshapen_comparison_is_an_error() -> None:
    for shapes in (((0,), (0,)), ((2,), (3,)), ((2, 1), (2,))):
        with pytest.raises(ValueError, match="comparison"):
            measure(np.ones(shapes[0]), np.ones(shapes[1]), np.ones(1))


def test_blocks_and_parts_are_merged() -> None:
    """The worst element is found wherever it is, and sums do not depend on the parts."""
    rng = np.random.default_rng(0)
    value = rng.standard_normal((3, 2 * BLOCK + 5))
    bound, found = np.abs(value) + 1, value + 0.1 * rng.standard_normal(value.shape)
    found[1, BLOCK + 7] += 99
    whole = measure(found, value, bound)
    parts = Statistic()
    for image in range(3):
        parts.merge(measure(found[image], value[image], bound[image], image=image))
    assert (
        whole.at == parts.at == (1, BLOCK + 7) and whole.t == parts.t and whole.elements == parts.elements == value.size
    )
    assert whole.t == np.max(np.abs(found - value) / bound) and whole.error == np.abs(found - value).max()
    assert whole.dot == pytest.approx(np.vdot(found, value)) == pytest.approx(parts.dot)
    assert whole.relative_error == pytest.approx(np.linalg.norm(found - value) / np.linalg.norm(value))


def test_a_later_nan_is_shown_before_an_earlier_error() -> None:
    value = np.zeros(2 * BLOCK)
    found = value.copy()
    found[0], found[-1] = 1, np.nan
    merged = measure(found, value, np.zeros(1))
    assert merged.nonfinite == 1 and merged.at == (2 * BLOCK - 1,)


# --- the optimiser ------------------------------------------------------------------------------------------

OPTIMIZERS = [Sgd(0.1), Sgd(0.1, 0.9), Sgd(0.07, 0.9, 0.3, 0.01), Sgd(0.1, 0.8, 0.0, 0.02, True), Sgd(0.5, 0, 0, 0.1)]


@pytest.mark.parametrize("sgd", OPTIMIZERS, ids=str)
def test_float32_updates_are_inside_their_bounds(sgd: Sgd) -> None:
    """Several steps in float32, as torch writes them, against float64."""
    rng, momentum = np.random.default_rng(2), updates.memory_of(sgd)
    w, v = rng.standard_normal(500).astype(np.float32), None
    f = np.float32
    for _ in range(4):
        g = rng.standard_normal(500).astype(np.float32)
        direction = momentum.direction(sgd, "a", w.astype(float), (g.astype(float), np.zeros(500)), Arithmetic(U))
        d = g + f(sgd.weight_decay) * w if sgd.weight_decay else g
        if sgd.momentum:
            v = d if v is None else f(sgd.momentum) * v + f(1 - sgd.dampening) * d
            d = d + f(sgd.momentum) * v if sgd.nesterov else v
        after = w - f(sgd.lr) * d
        own = measure(after, *updates.new_weights(sgd, w.astype(float), direction, Arithmetic(U)))
        seen = updates.taken(sgd, w, after, direction, Arithmetic(U))
        assert own.t <= 1 and measure(seen.step, seen.expected, seen.bound).t <= 1
        # Not so wide that the last but two digits are lost
        assert own.bound <= 16 * U * (abs(own.expected) + 1)
        w = after


def decay_first(sgd: Sgd, w: Array, g: Array, v: Array | None) -> tuple[Array, Array]:
    """``(1 - lr*wd)*w - lr*g``; with momentum the decay goes there once, and into the buffer."""
    f = np.float32
    shrunk = (f(1) - f(sgd.lr) * f(sgd.weight_decay)) * w
    if not sgd.momentum:
        return shrunk - f(sgd.lr) * g, v
    d = g + f(sgd.weight_decay) * w
    if v is None:
        return shrunk - f(sgd.lr) * g, d
    keep = f(1) - f(sgd.dampening)
    return (w - f(sgd.lr) * f(sgd.momentum) * v) - f(sgd.lr) * keep * d, f(sgd.momentum) * v + keep * d


def lr_inside(sgd: Sgd, w: Array, g: Array, v: Array | None) -> tuple[Array, Array]:
    """The buffer holds ``lr*v``."""
    f = np.float32
    d = f(sgd.lr) * (g + f(sgd.weight_decay) * w)
    v = d if v is None else f(sgd.momentum) * v + (f(1) - f(sgd.dampening)) * d
    return w - v, v


@pytest.mark.parametrize("way", [decay_first, lr_inside])
@pytest.mark.parametrize(
    "sgd",
    [Sgd(0.1, 0, 0, 0.1), Sgd(0.9, 0, 0, 0.7), Sgd(0.1, 0.9, 0.3, 0.01), Sgd(0.3, 0.9, 0.9, 0.2), Sgd(0.1, 0.9)],
    ids=str,
)
@pytest.mark.parametrize("size", [1e-6, 1e-2, 1.0])
def test_other_orders_of_the_update_are_inside_the_bounds(way: Callable, sgd: Sgd, size: float) -> None:
    """The orders that bridge.judge.oracle.update names, in float32, for gradients much smaller than the weights too."""
    rng, momentum = np.random.default_rng(6), updates.memory_of(sgd)
    w, v = rng.standard_normal(20_000).astype(np.float32), None
    for _ in range(4):
        g = (size * rng.standard_normal(w.size)).astype(np.float32)
        direction = momentum.direction(sgd, "a", w.astype(float), (g.astype(float), np.zeros(w.size)), Arithmetic(U))
        after, v = way(sgd, w, g, v)
        assert measure(after, *updates.new_weights(sgd, w.astype(float), direction, Arithmetic(U))).t <= 1
        seen = updates.taken(sgd, w, after, direction, Arithmetic(U))
        assert measure(seen.step, seen.expected, seen.bound).t <= 1
        w = after


def test_new_weights_between_1_and_4_prove_nothing() -> None:
    for t, outcome in ((1.5, Outcome.CANNOT_TELL), (3.9, Outcome.CANNOT_TELL), (4.1, Outcome.BUG)):
        one = Judged("optimizer/conv1/bias", 0, Statistic(t, 1.0, (0,), 1.0, 2.0, 1.0, 1), OTHER_ORDER)
        verdict = decide(comparison(one))
        assert verdict.outcome is outcome
        assert outcome is Outcome.BUG or "order of the operations of the update" in verdict.hints[0]


def test_what_a_small_lr_hides() -> None:
    w = np.full(4, 1.0, np.float32)
    direction = np.full(4, 1e-3), np.full(4, 1e-6)
    for lr, visible in ((2.0**-20, 0.0), (2.0**-2, 1.0)):
        after = (w - np.float32(lr) * np.float32(1e-3)).astype(np.float32)
        found = updates.taken(Sgd(lr), w, after, direction, Arithmetic(U))
        assert found.visible == visible and found.lr_needed == 0.25
        assert measure(found.step, found.expected, found.bound).t <= 1


def test_without_a_gradient_no_weight_moves() -> None:
    w, zero = np.ones(2, np.float32), np.zeros(2)
    value, bound = updates.new_weights(Sgd(0.5), w.astype(float), (zero, zero), Arithmetic(U))
    moved = np.array([1, np.nextafter(np.float32(1), np.float32(2))], np.float32)
    assert measure(w, value, bound).t == 0 and measure(moved, value, bound).t == math.inf
    found = updates.taken(Sgd(2.0**-10), w, moved, (zero, zero), Arithmetic(U))
    assert found.visible == 1 and measure(found.step, found.expected, found.bound).t == math.inf


# --- decisions ----------------------------------------------------------------------------------------------


def comparison(*judged: Judged) -> Comparison:
    return Comparison(CHAIN, "float32", 1, (1, 2, 12, 10), judged=list(judged))


@pytest.mark.parametrize(
    "t, outcome",
    [
        (0.3, Outcome.ROUNDING),
        (1.0, Outcome.ROUNDING),
        (1.01, Outcome.CANNOT_TELL),
        (9.9, Outcome.CANNOT_TELL),
        (10.1, Outcome.BUG),
        (math.inf, Outcome.BUG),
        (math.nan, Outcome.BUG),
    ],
)
def test_outcomes_by_t(t: float, outcome: Outcome) -> None:
    verdict = decide(comparison(Judged("loss", 0, Statistic(t, 1.0, (0,), 1.0, 2.0, 1.0, 1))))
    assert verdict.outcome is outcome and verdict.exit_code == outcome.value


def test_what_a_theorem_excludes_is_a_bug() -> None:
    verdict = decide(comparison(Judged("forward/conv1", 0, Statistic(1.1, 1.0, (0,), 1.0, 2.0, 1.0, 1), 1.0)))
    assert verdict.outcome is Outcome.BUG


def test_json_has_null_for_infinity() -> None:
    one = comparison(Judged("loss", 0, measure(np.array([np.nan]), np.ones(1), np.ones(1))))
    document = json.loads(json.dumps(to_dict(Judgement(one, decide(one))), allow_nan=False))
    tensor = document["tensors"][0]
    assert tensor["T"] is None and tensor["max_error"] is None and tensor["expected"] == 1 and not tensor["passed"]


@pytest.mark.parametrize("layer", ["a", "a.long.name." * 5 + "1234", "x" * 200])
@pytest.mark.parametrize("t", [0.5, 12345.678])
def test_numbers_are_whole_in_80_columns(layer: str, t: float) -> None:
    """However long the names of the layers are."""
    statistic = Statistic(t, 1.25e-7, (0,), 1.0, 2.0, 3.5e-7, 9, 0, 3.0, 4.0, 5.0, 1e-13)
    names = [f"forward/{layer}", f"grads/{layer}/output", f"optimizer/{layer}/weight"]
    one = Comparison(Model((Conv2d(layer, 1, 1, (1, 1)),)), "float32", 1, (1, 1, 2, 2), judged=[])
    one.judged += [Judged(name, 10, statistic) for name in names]
    out = StringIO()
    print_report(Console(file=out, width=80), one, decide(one), every_step=True)
    lines = [line for line in out.getvalue().splitlines() if "1.2e-07" in line]
    assert len(lines) == 3 and all(len(line) <= 80 and short(t) in line.split() for line in lines), out.getvalue()
    assert all("3.5e-07" in line and "6.8" in line.split() for line in lines)
    assert lines[1].startswith("grads/") and "output " in lines[1]


@pytest.mark.parametrize(
    "name, words",
    [
        ("forward/conv2", "the convolution conv2 (forward)"),
        ("forward/r1", "the ReLU r1 (forward)"),
        ("loss", "the loss"),
        ("grads/conv3/output", "the gradient of the loss"),
        ("grads/conv2/weight", "the filter gradient of conv2"),
        ("grads/conv2/bias", "the bias gradient of conv2"),
        ("grads/r2/output", "the data gradient of conv3"),
        ("grads/conv2/output", "the mask) of the ReLU r2"),
        ("grads/input", "the data gradient of conv1"),
        ("optimizer/conv1/bias", "the optimiser"),
        ("update/conv1/bias", "the update"),
        ("weights/conv1/bias", "how the weights"),
    ],
)
def test_the_operation_behind_every_tensor_is_named(name: str, words: str) -> None:
    assert words in operation(CHAIN, name)


def test_short_never_rounds_up_to_the_limit() -> None:
    assert short(0.9999999) == "0.999" and short(1.0) == "1" and short(1.0000001) != "1"


@pytest.mark.parametrize("propagated", [False, True])
def test_to_add_a_bias_is_rounded_as_its_size_says(propagated: bool) -> None:
    """It stands in the sum of absolute values, too: beside small products it is what the rounding comes from."""
    arithmetic, n, bias = Arithmetic(total_roundoff("float32")), np.full((1, 3), 4), np.array([1e3, -2.0])
    shape = 2, 1, 3
    # They are changed in place
    carried = np.zeros(shape) if propagated else None
    parts = ConvolutionParts(np.zeros(shape), np.full(shape, 0.5), carried, np.ones(shape))
    own, = finish(parts, n, arithmetic, bias.reshape(2, 1, 1))
    whole = np.broadcast_to(bias.reshape(2, 1, 1), shape)
    np.testing.assert_array_equal(parts.value, whole)
    np.testing.assert_array_equal(own.value, 1 + whole)
    np.testing.assert_allclose(parts.absolute, arithmetic.factor(n)*(0.5 + np.abs(whole)), rtol=1e-12)
