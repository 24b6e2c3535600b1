# SPDX-License-Identifier: MIT
"""Gradient checking: right gradients pass, at kinks and in few digits, too."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import bridge
from bridge.common.errors import ArgumentError, ArgumentTypeError
from bridge.gradcheck import GradcheckReport, Verdict, gradcheck
from bridge.gradcheck.networks import NetworkFunctions
from bridge.gradcheck.operations import CHECKS
from bridge.gradcheck.settings import Settings
from bridge.operations import Add
from tests.helpers.judged.gradients import (
    DTYPES,
    NAMES,
    Array,
    backward,
    check,
    random,
    squares,
)
from tests.helpers.tiers import few


@DTYPES
@pytest.mark.parametrize("seed", few(range(25), 3))
def test_right_convolutions_of_random_shapes_are_never_flagged(seed: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    n, cg, kg, groups, r, s = (int(i) for i in rng.integers(1, 4, 6))
    given = {key: tuple(int(i) for i in rng.integers(low, 3, 2))
             for key, low in (("stride", 1), ("padding", 0), ("dilation", 1))}
    x = random((n, cg * groups, *(int(i) for i in rng.integers(6, 10, 2))), dtype, seed)
    w, b = random((kg * groups, cg, r, s), dtype, seed), random((kg * groups,), dtype, seed)
    sizes = 10.0 ** rng.integers(-3, 4, 3)
    inputs = [(size * one).astype(dtype) for size, one in zip(sizes, (x, w, b), strict=True)]
    for linear in (True, False):
        report = gradcheck(
            lambda x, w, b: bridge.conv2d(x, w, b, **given, groups=groups),
            lambda dy, x, w, b: bridge.conv2d_backward(dy, x, w, **given, groups=groups),
            inputs, names=NAMES, seed=seed, linear=linear)
        assert report.verdict is not Verdict.WRONG, str(report)
        assert report.verdict is Verdict.RIGHT or dtype == "float32", str(report)


@pytest.mark.parametrize("seed", [143, 166])
def test_a_loss_does_not_hide_the_rounding_of_its_gradient(seed: int) -> None:
    """A bias gradient whose terms cancel: its rounding is not in proportion to it, and the loss does not show it."""
    (report,) = CHECKS["network"].run(Settings("float32", seed=seed, points=8))
    assert report.verdict is not Verdict.WRONG, str(report)

SMOOTH: dict[str, tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]] = {
    "sin": (np.sin, lambda dy, x: dy * np.cos(x)),
    "exp": (np.exp, lambda dy, x: dy * np.exp(x)),
    "cube": (lambda x: x**3, lambda dy, x: dy * 3 * x**2),
    "tanh": (np.tanh, lambda dy, x: dy * (1 - np.tanh(x)**2)),
    "sum of squares": (lambda x: np.sum(x * x), lambda dy, x: 2 * dy * x),
    "softmax": (lambda x: np.exp(x) / np.exp(x).sum(),
                lambda dy, x: (p := np.exp(x) / np.exp(x).sum()) * (dy - np.sum(dy * p))),
    "cumulative sum": (np.cumsum, lambda dy, x: np.cumsum(dy[::-1])[::-1]),
    "relu, kinks not declared": (lambda x: np.maximum(x, 0), lambda dy, x: dy * (x > 0)),
    "absolute value, not declared": (np.abs, lambda dy, x: dy * np.sign(x)),
}


@DTYPES
@pytest.mark.parametrize("name", SMOOTH)
def test_right_functions_are_never_flagged(name: str, dtype: str) -> None:
    function, gradient = SMOOTH[name]
    for seed in range(8):
        report = gradcheck(function, gradient, [random((37,), dtype, seed)], seed=seed)
        assert report.verdict is Verdict.RIGHT, str(report)
        report = gradcheck(function, lambda dy, x: 1.03 * gradient(dy, x).astype(dtype), [random((37,), dtype, seed)])
        assert report.verdict is Verdict.WRONG, str(report)


@pytest.mark.parametrize("name", ["network", "bridge.conv2d"])
def test_the_noise_is_measured_not_guessed(name: str) -> None:
    """Errors of right gradients have the size of the noise: the bound is 9 times that."""
    ratios = [9 * p.error / p.rounding for seed in range(6) for report in CHECKS[name].run(Settings(seed=seed))
              for one in report.inputs for p in one.kept if p.rounding > 0]
    assert 0.05 < np.sqrt(np.mean(np.square(ratios))) < 3


def test_what_last_digits_hide_is_measured() -> None:
    """A difference of float32 that is rounded to its last digits, which a path of powers of two would never change."""
    worst = 0.0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        t = rng.standard_normal(240).astype("float32")
        y = (t + rng.choice([-1, 1], 240) * rng.uniform(0.1, 2, 240)).astype("float32")
        report = gradcheck(lambda y, t=t: np.abs(y - t).sum(dtype="float64"),
                           lambda dy, y, t=t: (dy * np.sign(y - t)).astype("float32"), [y], seed=seed, points=2,
                           directions=60)
        worst = max(worst, report.inputs[0].t)
    assert 0.02 < worst < 0.3, worst


def test_bounds_are_taken_in_place_of_measures() -> None:
    """Wide ones hide what narrow ones show, and 0 is all that is allowed where nothing is rounded."""
    x = np.arange(1.0, 7.0)
    def found(of_forward: float, of_backward: float) -> GradcheckReport:
        return gradcheck(lambda x: 3 * x, lambda dy, x: 3.001 * dy, [x], bounds=(
            lambda x: np.full(6, of_forward), lambda dy, x: np.full(6, of_backward)))

    assert found(0.0, 0.0).verdict is found(1e-12, 1e-4).verdict is Verdict.WRONG
    assert found(0.0, 0.01).verdict is Verdict.RIGHT
    assert found(1.0, 0.0).verdict is Verdict.CANNOT_TELL
    exact = gradcheck(lambda x: 3 * x, lambda dy, x: 3 * dy, [x], bounds=(np.zeros_like, lambda dy, x: 0 * x))
    assert exact.verdict is Verdict.RIGHT and exact.inputs[0].resolution < 1e-10


def relu_check(x: Array, declared: bool, **given: object) -> GradcheckReport:
    return gradcheck(lambda x: np.maximum(x, 0), lambda dy, x: dy * (x > 0), [x],
                     kinks=(lambda x: x) if declared else None, directions=0, **given)


@DTYPES
def test_kinks_are_left_out_and_counted(dtype: str) -> None:
    """Two elements nearer to 0 than the shortest step, one within the first step only, five far away."""
    tiny = 2.0**-30 if dtype == "float64" else 2.0**-18
    near = 2.0**-19 if dtype == "float64" else 2.0**-9
    x = np.array([tiny, -tiny, near, 1, -1, 2, -0.5, 0.7], dtype)
    (one,) = relu_check(x, True).inputs
    assert (one.left_out, len(one.kept)) == (2, 6) and one.verdict is Verdict.RIGHT
    assert {p.at for p in one.probes if p.left_out == "kink"} == {(0,), (1,)}


def test_only_kinks_is_not_a_pass() -> None:
    report = relu_check(np.zeros(6), True)
    assert report.verdict is Verdict.CANNOT_TELL and report.exit_code == 4
    assert report.warnings == ("input 0: all 6 differences cross a kink; take another point, or float64",)


@DTYPES
def test_a_kink_that_nobody_declared_is_no_false_alarm(dtype: str) -> None:
    """Wherever it lies within two steps, on either side: curvature bounds its error."""
    eps = 2.0**-10
    for part in np.linspace(0, 2.2, 45):
        for sign in (1, -1):
            x = np.array([sign * part * eps, *random((9,), dtype) * 2], dtype)
            report = relu_check(x, False, eps=eps)
            assert report.verdict is Verdict.RIGHT, str(report)


def test_kinks_of_a_network_are_left_out() -> None:
    """In float32 a step of a bias moves every pixel of a channel: some cross, and none is judged by that."""
    layers = (bridge.Conv2d("conv", 1, 2, (3, 3), padding=(1, 1)), bridge.Relu("relu"))
    net = bridge.Network(bridge.Model(layers, mean=False), "float32")
    net.parameters["conv.weight"][...] = random((2, 1, 3, 3), "float32")
    functions = NetworkFunctions(net)
    inputs = functions.inputs(random((3, 1, 120, 120), "float32"))
    report = gradcheck(functions.forward, functions.backward, inputs, names=functions.names, kinks=functions.kinks)
    assert report.verdict is not Verdict.WRONG
    assert report.inputs[-1].left_out > 0


def test_the_relus_of_a_graph_are_found() -> None:
    """What they take is not always the layer before them."""
    layers = (bridge.Conv2d("a", 1, 2, (1, 1)), bridge.Conv2d("b", 1, 2, (1, 1), inputs=("input",)),
              bridge.Relu("relu", inputs=("a",)), Add("sum", inputs=("relu", "b")))
    net = bridge.Network(bridge.Model(layers, mean=False), "float64")
    for number, weights in enumerate(net.parameters.values()):
        weights[...] = random(weights.shape, "float64", number)
    functions = NetworkFunctions(net)
    inputs = functions.inputs(random((2, 1, 4, 5), "float64"))
    assert np.array_equal(functions.kinks(*inputs), net.output("a").ravel())
    report = gradcheck(functions.forward, functions.backward, inputs, names=functions.names, kinks=functions.kinks)
    assert report.verdict is Verdict.RIGHT


def test_float32_cannot_resolve_a_large_sum() -> None:
    report = squares("float32")
    assert report.verdict is Verdict.CANNOT_TELL and report.exit_code == 4
    assert re.search(r"float32 cannot resolve it, an error below \d+% of the gradient does not show; check in float64",
                     report.warnings[0])
    assert squares("float64").verdict is Verdict.RIGHT


def test_a_small_step_is_worse_in_float32() -> None:
    """Steps of 1e-5, usual in float64, lose what cbrt(u) keeps."""
    def resolution(eps: float | None) -> float:
        x = random((30,), "float32")
        return gradcheck(np.sin, lambda dy, x: dy * np.cos(x), [x], eps=eps).inputs[0].resolution

    assert resolution(1e-5) > 50 * resolution(None)


def test_what_is_linear_has_no_curvature() -> None:
    report = check(backward, linear=True)
    assert {one.eps for one in report.inputs} <= {0.5, 1.0}
    assert all(p.curvature == 0 for one in report.inputs for p in one.probes)
    assert all(one.resolution < 1e-12 for one in report.inputs)
    with pytest.raises(ArgumentError, match=r"linear: forward is not linear in input 0"):
        gradcheck(np.sin, lambda dy, x: dy * np.cos(x), [random((5,), "float64")], linear=True)


def test_a_report_tells_of_what_its_bound_consists() -> None:
    text = str(check(backward))
    assert text.startswith("RIGHT: gradients: ")
    assert all(words in text for words in ("rounding", "curvature", "eps 3.8e-06", "of the gradient"))


def test_the_seed_repeats_a_check() -> None:
    assert check(backward, seed=3).to_dict() == check(backward, seed=3).to_dict() != check(backward, seed=4).to_dict()


def test_inputs_are_left_alone_and_may_be_read_only() -> None:
    x = random((4, 3), "float64")
    x.setflags(write=False)
    before = x.copy()

    def greedy(x: Array) -> Array:
        x *= 2
        return np.sin(x)

    assert gradcheck(greedy, lambda dy, x: 2 * dy * np.cos(2 * x), [x.T]).verdict is Verdict.RIGHT
    assert np.array_equal(x, before)


def test_zeros_show_nothing() -> None:
    report = gradcheck(lambda x: np.maximum(x, 0), lambda dy, x: dy * (x > 0), [-np.ones(5)])
    assert report.verdict is Verdict.CANNOT_TELL
    assert report.warnings == ("input 0: gradient and differences are all 0, which shows nothing; take another point",)


def test_an_input_without_gradient_is_named() -> None:
    report = gradcheck(lambda x, t: (x - t)**2, lambda dy, x, t: (2 * dy * (x - t), None),
                       [np.arange(3.0), np.ones(3) / 3], names=["x", "t"])
    assert report.verdict is Verdict.RIGHT and report.not_checked == ("t",)
    assert report.warnings == ("t: backward gives no gradient; not checked",)

ONE = np.array([0.5, 1.5])
REFUSED = [
    (ArgumentTypeError, "input 0: int64", {"inputs": [np.arange(3)]}),
    (ArgumentTypeError, "inputs: ndarray", {"inputs": ONE}),
    (ArgumentError, "input 0: not finite", {"inputs": [np.array([np.nan])]}),
    (ArgumentError, "input 0: empty", {"inputs": [np.empty(0)]}),
    (ArgumentError, r"names: \['a', 'b'\], expected 1 different", {"names": ["a", "b"]}),
    (ArgumentError, "linear: 'z', expected one of input 0", {"linear": ["z"]}),
    (ArgumentError, "eps: 0", {"eps": 0}),
    (ArgumentError, "eps: 1e-30 does not move input 0", {"eps": 1e-30}),
    (ArgumentError, "points: 0", {"points": 0}),
    (ArgumentError, "seed: -1", {"seed": -1}),
    (ArgumentTypeError, "forward: int64", {"forward": lambda x: 3}),
    (ArgumentError, "forward: NaN or infinity", {"forward": lambda x: x * np.inf}),
    (ArgumentError, r"backward: the gradient of input 0 is float64 of shape \(1,\)", {"backward": lambda dy, x: x[:1]}),
    (ArgumentError, "backward: 2 values, expected one gradient", {"backward": lambda dy, x: (x, x)}),
]


@pytest.mark.parametrize(("error", "words", "given"), REFUSED, ids=[words for _, words, _ in REFUSED])
def test_what_is_refused(error: type[Exception], words: str, given: dict[str, object]) -> None:
    usual = {"forward": np.sin, "backward": lambda dy, x: dy * np.cos(x), "inputs": [ONE]}
    with pytest.raises(error, match=f"^{words}"):
        gradcheck(**(usual | given))
