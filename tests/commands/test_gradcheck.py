# SPDX-License-Identifier: MIT
"""Gradient checking: right gradients pass, every planted wrong one is caught, every operation has a check."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import bridge
from bridge.common.errors import ArgumentError, ArgumentTypeError
from bridge.engine.library import extension
from bridge.engine.network import functional, passes
from bridge.engine.network.passes import OperationPasses
from bridge.gradcheck import GradcheckReport, Verdict, gradcheck, operations, single
from bridge.gradcheck import __main__ as command
from bridge.gradcheck.cases import CASES, LOSS_CASES
from bridge.gradcheck.networks import NetworkFunctions
from bridge.gradcheck.operations import CHECKS, Check
from bridge.gradcheck.settings import Settings
from bridge.judge.measure.outcome import Outcome
from bridge.operations import OPERATIONS, Add
from bridge.operations.hyperparameters import fields
from bridge.operations.losses import LOSSES, loss_from
from bridge.operations.losses import settings as settings_of_loss
from bridge.report import outputs
from bridge.report.series import Series
from tests.helpers.tiers import few

Array = np.ndarray
Gradients = tuple[Array, Array, Array]

DTYPES = pytest.mark.parametrize("dtype", ["float64", "float32"])
NAMES = ["input", "weight", "bias"]
#: Square images and kernels, as many channels in as out: every transposition keeps the shapes
X, W, GIVEN = (2, 3, 6, 6), (3, 3, 3, 3), {"padding": 1}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Thousands of tiny operations: threads would only wait for each other. Loaded libraries alone can be told so."""
    extension.api()
    with threadpool_limits(1):
        yield


def random(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def forward(x: Array, w: Array, b: Array) -> Array:
    return bridge.conv2d(x, w, b, **GIVEN)


def backward(dy: Array, x: Array, w: Array, b: Array) -> Gradients:
    return bridge.conv2d_backward(dy, x, w, **GIVEN)


def check(wrong: Callable[..., Gradients], dtype: str = "float64", **given: object) -> GradcheckReport:
    inputs = [random(X, dtype), random(W, dtype), random(W[:1], dtype)]
    return gradcheck(forward, wrong, inputs, names=NAMES, **given)


def verdicts(report: GradcheckReport) -> dict[str, Verdict]:
    return {one.name: one.verdict for one in report.inputs}


# --- every operation has a check ---------------------------------------------------------------------------------


FUNCTIONS = {f"{module.__name__.split('.')[0]}.{name}": one for module in (bridge, functional)
             for name, one in vars(module).items() if inspect.isfunction(one) and not name.startswith("_")}


def offered(kinds: Iterable[str], losses: Iterable[str], functions: Iterable[str]) -> set[str]:
    """What the package can differentiate, from its own registries: nothing here knows the cases."""
    return {*kinds, *losses, "network"} | {name for name in functions if f"{name}_backward" in functions}


def test_every_differentiable_operation_has_a_check() -> None:
    assert set(CHECKS) == offered(OPERATIONS, LOSSES, FUNCTIONS)
    assert CASES.keys() == OPERATIONS.keys() and LOSS_CASES.keys() == LOSSES.keys()
    for kind, cases in CASES.items():
        assert cases and all(type(case.node) is OPERATIONS[kind] for case in cases)
    for kind, texts in LOSS_CASES.items():
        assert texts and all(type(loss_from(text)) is LOSSES[kind] for text in texts)


def test_an_operation_without_a_check_would_be_found() -> None:
    """A planted operation, loss and function have none."""
    found = offered([*OPERATIONS, "pool"], [*LOSSES, "hinge"], [*FUNCTIONS, "bridge.pool", "bridge.pool_backward",
                                                               "bridge.helper"])
    assert found - set(CHECKS) == {"pool", "hinge", "bridge.pool"}


def test_every_choice_of_an_operation_is_made_otherwise_than_by_default() -> None:
    """A hyperparameter that only ever has its default could be ignored by both passes alike."""
    for cases in CASES.values():
        for field in fields(type(cases[0].node)):
            made = {getattr(case.node, field.name) for case in cases}
            assert made != {field.default}, (cases[0].title, field.name)
    for texts in LOSS_CASES.values():
        for field in settings_of_loss(loss_from(texts[0])):
            assert any(field.name in loss_from(text).given for text in texts), (texts, field.name)


@DTYPES
@pytest.mark.parametrize("device", ["cpu", "naive"])
@pytest.mark.parametrize("name", few(CHECKS, 12))
def test_every_operation_is_right(name: str, device: str, dtype: str) -> None:
    """And so it is at every point: nothing is drawn at a kink, but for a network, whose inner numbers nobody draws."""
    for report in CHECKS[name].run(Settings(dtype, device, points=12)):
        assert report.verdict is Verdict.RIGHT, str(report)
        assert not report.not_checked
        assert all(one.resolution < (1e-5 if dtype == "float64" else 0.1) for one in report.inputs), str(report)
        assert name == "network" or not any(one.left_out for one in report.inputs), str(report)
        assert (not report.oracle) == (name in ("network", "bridge.conv2d", "bridge.spline"))


# --- wrong operations --------------------------------------------------------------------------------------------


class WrongPasses(OperationPasses):
    """The passes of an operation, all gradients of one of which are changed, or its output."""

    edit: Callable[[Array], Array]
    which: int

    def forward(self, inputs: Sequence[Array], parameters: Mapping[str, Array]) -> Array:
        y = super().forward(inputs, parameters)
        return type(self).edit(y) if self.which < 0 else y

    def backward(self, dy: Array, inputs: Sequence[Array], parameters: Mapping[str, Array]) -> Any:
        dx, dw = super().backward(dy, inputs, parameters)
        found = [*dx, *dw.values()]
        if self.which >= 0:
            found[self.which] = type(self).edit(found[self.which])
        return found[:len(dx)], dict(zip(dw, found[len(dx):], strict=True))


def wrong(edit: Callable[[Array], Array], which: int) -> type[WrongPasses]:
    """Of the gradient of that number among inputs and parameters, or -1, the output."""
    return type("_", (WrongPasses,), {"edit": staticmethod(edit), "which": which})


@pytest.mark.parametrize("kind", few(CASES, 12))
def test_a_wrong_gradient_of_any_operation_is_caught(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every one of its gradients: 1 % off in one element, and missing; in float32 a tenth off everywhere."""
    for case in CASES[kind]:
        for which in range(len(case.shapes) + len(case.node.parameter_shapes())):
            for edit, dtype in ((spoiled, "float64"), (np.zeros_like, "float64"), (np.zeros_like, "float32")):
                with monkeypatch.context() as patch:
                    patch.setattr(single, "OperationPasses", wrong(edit, which))
                    report = single.check_operation(case, Settings(dtype, points=4))
                assert report.verdict is Verdict.WRONG and report.exit_code == 1, str(report)
                found = report.inputs[which]
                assert found.verdict is Verdict.WRONG and not report.oracle[found.name] <= 1, str(report)
                assert [one.verdict for one in report.inputs].count(Verdict.WRONG) == 1
                assert len(report.beyond) == 1


@pytest.mark.parametrize("kind", few(CASES, 12))
def test_passes_that_are_wrong_alike_are_caught_by_the_oracle(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the output and twice every gradient: differences agree, and the function is another one."""
    class Doubled(OperationPasses):
        def forward(self, inputs: Sequence[Array], parameters: Mapping[str, Array]) -> Array:
            return 2 * super().forward(inputs, parameters)

        def backward(self, dy: Array, inputs: Sequence[Array], parameters: Mapping[str, Array]) -> Any:
            dx, dw = super().backward(dy, inputs, parameters)
            return [2 * g for g in dx], {name: 2 * g for name, g in dw.items()}

    monkeypatch.setattr(single, "OperationPasses", Doubled)
    report = single.check_operation(CASES[kind][0], Settings())
    assert {one.verdict for one in report.inputs} == {Verdict.RIGHT} and report.verdict is Verdict.WRONG
    assert len(report.beyond) == len(report.oracle) and "output is " in report.words


@pytest.mark.parametrize("kind", few(LOSS_CASES, "cross_entropy".__ne__))
def test_a_wrong_gradient_of_any_loss_is_caught(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for edit in (spoiled, np.zeros_like, lambda g: 2 * g):
        monkeypatch.setattr(single, "loss_pass", lambda *given, edit=edit: (
            passes.loss_pass(*given)[0], edit(passes.loss_pass(*given)[1])))
        for text in LOSS_CASES[kind]:
            report = single.check_loss(text, True, Settings())
            assert report.verdict is report.inputs[0].verdict is Verdict.WRONG, str(report)
            assert report.oracle["loss"] <= 1 and not report.oracle["output"] <= 1


def spoiled(g: Array) -> Array:
    """The largest element 1 % off."""
    g = g.copy()
    g.flat[np.argmax(np.abs(g))] *= 1.01
    return g


# --- wrong gradients ---------------------------------------------------------------------------------------------


def changed(**change: Callable[[Array], Array]) -> Callable[..., Gradients]:
    """The right gradients, some of them changed."""
    def wrong(dy: Array, x: Array, w: Array, b: Array) -> Gradients:
        found = dict(zip(NAMES, backward(dy, x, w, b), strict=True))
        return tuple(np.ascontiguousarray(change.get(name, np.array)(g)) for name, g in found.items())
    return wrong


def of_other(dy: Callable[[Array], Array] = np.array,
             w: Callable[[Array], Array] = np.array) -> Callable[..., Gradients]:
    """The right formula with other operands."""
    return lambda dy_, x, w_, b: backward(np.ascontiguousarray(dy(dy_)), x, np.ascontiguousarray(w(w_)), b)


def corrupted(g: Array) -> Array:
    g = g.copy()
    g.flat[g.size // 2] *= 1.01
    return g


def element(value: float) -> Callable[[Array], Array]:
    def edit(g: Array) -> Array:
        g = g.copy()
        g.flat[1] = value
        return g
    return edit


WRONG = {
    "kernel gradient flipped in h": changed(weight=lambda g: g[:, :, ::-1]),
    "kernel gradient flipped in both": changed(weight=lambda g: g[:, :, ::-1, ::-1]),
    "kh and kw transposed": changed(weight=lambda g: g.swapaxes(2, 3)),
    "in and out swapped": changed(weight=lambda g: g.swapaxes(0, 1)),
    "column-major view": changed(weight=lambda g: g.ravel().reshape(g.shape, order="F")),
    "data gradient without the rotation": of_other(w=lambda w: w[:, :, ::-1, ::-1]),
    "factor 2 missing": changed(input=lambda g: g / 2),
    "mean for sum over the batch": changed(weight=lambda g: g / X[0], bias=lambda g: g / X[0]),
    "mean for sum over the pixels": changed(bias=lambda g: g / (X[2] * X[3])),
    "bias gradient zero": changed(bias=np.zeros_like),
    "bias gradient of a part of the batch": lambda dy, x, w, b: (
        *backward(dy, x, w, b)[:2], dy[:-1].sum(axis=(0, 2, 3), dtype=dy.dtype)),
    "dz shifted by a pixel": of_other(dy=lambda dy: np.roll(dy, 1, axis=3)),
    "dy transposed": of_other(dy=lambda dy: dy.swapaxes(2, 3)),
    "sign": changed(weight=np.negative),
    "channels reversed": changed(input=lambda g: g[:, ::-1]),
    "one element 1 % off": changed(weight=corrupted),
    "one element of the input 1 % off": changed(input=corrupted),
    "bias gradients swapped": changed(bias=lambda g: g[::-1]),
    "a constant added": changed(weight=lambda g: g + np.abs(g).max() / 8),
    "NaN": changed(weight=element(np.nan)),
    "infinite": changed(input=element(np.inf)),
}


@pytest.mark.parametrize("linear", [False, True])
@DTYPES
@pytest.mark.parametrize("name", few(WRONG, 4))
def test_a_wrong_gradient_is_caught(name: str, dtype: str, linear: bool) -> None:
    report = check(WRONG[name], dtype, linear=linear, points=300)
    assert report.verdict is Verdict.WRONG and report.exit_code == 1
    assert report.words.startswith("WRONG: gradients: the gradient of ")


@pytest.mark.parametrize("seed", range(5))
def test_one_wrong_element_of_a_large_tensor_is_caught_by_the_directions(seed: int) -> None:
    """Whether or not it is among the few elements that are looked at."""
    report = check(WRONG["one element of the input 1 % off"], points=1, seed=seed)
    assert verdicts(report)["input"] is Verdict.WRONG


@DTYPES
def test_the_right_gradient_is_not_flagged(dtype: str) -> None:
    for linear in (False, True):
        report = check(backward, dtype, linear=linear)
        assert report.verdict is Verdict.RIGHT and report.exit_code == 0, str(report)


class Wrong(NetworkFunctions):
    """A network whose gradients are changed."""

    change: Callable[[dict[str, Array], NetworkFunctions, Array], None]

    def backward(self, dy: Array, *inputs: Array) -> tuple[Array, ...]:
        found = dict(zip(self.names, super().backward(dy, *inputs), strict=True))
        type(self).change(found, self, dy)
        return tuple(found.values())


def missing_mask(found: dict[str, Array], functions: NetworkFunctions, dy: Array) -> None:
    """The gradient behind the first rectifier, also where it is closed."""
    net = functions._network
    found["conv1.bias"] = (dy * net.output_gradient("relu1").sum(axis=(0, 2, 3))).astype(dy.dtype)


def doubled_loss(found: dict[str, Array], functions: NetworkFunctions, dy: Array) -> None:
    for name in found:
        found[name] = 2 * found[name]


def swapped(found: dict[str, Array], functions: NetworkFunctions, dy: Array) -> None:
    found["conv1.bias"] = found["conv1.bias"][::-1]


@pytest.mark.parametrize("change", [missing_mask, doubled_loss, swapped], ids=lambda one: one.__name__)
def test_a_wrong_gradient_of_a_network_is_caught(change: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "NetworkFunctions", type("_", (Wrong,), {"change": staticmethod(change)}))
    (report,) = CHECKS["network"].run(Settings())
    assert report.verdict is Verdict.WRONG


def test_a_relu_without_its_mask_is_caught() -> None:
    x = random((4, 5), "float64")
    report = gradcheck(lambda x: np.maximum(x, 0), lambda dy, x: dy, [x], kinks=lambda x: x)
    assert report.verdict is Verdict.WRONG


def test_a_buffer_that_accumulates_is_caught() -> None:
    total = np.zeros(5)

    def accumulating(dy: Array, x: Array) -> Array:
        total[...] += dy * np.cos(x)
        return total

    assert gradcheck(np.sin, accumulating, [random((5,), "float64")]).verdict is Verdict.WRONG


def test_ones_cannot_see_a_transposed_upstream_gradient() -> None:
    """Why dy is random: with ones the wrong gradient is the right one, to the bit."""
    x, w, b = random(X, "float64"), random(W, "float64"), random(W[:1], "float64")
    ones, wrong = np.ones(X), WRONG["dy transposed"]
    assert all(np.array_equal(*pair) for pair in zip(wrong(ones, x, w, b), backward(ones, x, w, b), strict=True))
    assert check(wrong).verdict is Verdict.WRONG


# --- right gradients, everywhere ---------------------------------------------------------------------------------


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


# --- kinks -------------------------------------------------------------------------------------------------------


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


# --- precision ---------------------------------------------------------------------------------------------------


def squares(dtype: str, **given: object) -> GradcheckReport:
    """The sum of 10000 squares, rounded to the precision of its terms."""
    x = random((100, 100), dtype)
    return gradcheck(lambda x: np.sum(x * x, dtype=dtype), lambda dy, x: 2 * dy * x, [x], **given)


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


# --- the command -------------------------------------------------------------------------------------------------


def test_the_command_as_a_program() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-m", "bridge.gradcheck", "gelu", "--points", "4"],
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("RIGHT: ")


@pytest.mark.parametrize("dtype", few(["float64", "float32"], 1))
def test_the_command_on_everything(dtype: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gradients.json"
    assert command.main(["--dtype", dtype, "--json", str(path), "--seed", "5", "--points", "8"]) == 0
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["verdict"] == "right" and document["seed"] == 5 and document["dtype"] == dtype
    assert {re.split("[ ,]", one["title"])[0] for one in document["reports"]} == set(CHECKS)
    assert all((one["oracle"] == {}) == (one["title"][:7] in ("network", "bridge.")) for one in document["reports"])
    assert capsys.readouterr().out.startswith("RIGHT: ")


@pytest.mark.parametrize(("wrong", "dtype", "code", "word"), [
    (WRONG["sign"], "float64", 1, "WRONG: "), (None, "float32", 4, "CANNOT TELL: ")])
def test_the_exit_code_is_the_verdict(wrong: Callable[..., Gradients] | None, dtype: str, code: int, word: str,
                                      monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    report = check(wrong) if wrong else squares(dtype)
    monkeypatch.setitem(CHECKS, "planted", Check("", lambda settings: [report]))
    assert command.main(["relu", "planted"]) == code
    said = capsys.readouterr().out
    # Of what is right a line, of what is not every gradient, too
    assert said.startswith(word) and "\n  input" in said.partition("planted float")[2]
    assert "\n  input" not in said.partition("planted float")[0]


def test_the_command_alone_shows_every_gradient(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["linear", "--points", "4"]) == 0
    said = capsys.readouterr().out
    assert all(words in said for words in (
        "linear float64", "linear float32", "  linear: weight", "  linear, rows of images, no bias: input"))
    assert "linear, rows of images, no bias: bias" not in said


def test_the_list_and_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(CHECKS)
    assert "batch_norm2d         input, weight, bias" in lines and "matmul               first, other" in lines
    with pytest.raises(SystemExit):
        command.main(["--help"])
    text = capsys.readouterr().out
    assert all(word in text for word in ("cbrt(u)", "float64", "exit codes:", "kink"))


@pytest.mark.parametrize(("arguments", "words"), [
    (["pool"], "OPERATION: 'pool', expected one of abs, "),
    (["--fixture", "missing.h5"], "missing.h5: no such file"),
    (["conv2d", "--fixture", "missing.h5"], "--fixture: given together with 'conv2d'"),
    (["--device", "abacus"], "device abacus"),
    (["--seed", "-1"], "seed: -1, expected an integer of 0 or more"),
    (["--points", "0"], "points: 0, expected"),
    (["--json", "no/such/folder.json"], "--json no/such/folder.json: no such folder"),
])
def test_bad_input_is_said_in_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"bridge.gradcheck: {words}")


def test_the_network_of_a_fixture(small_fixture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gradients.json"
    assert command.main(["--fixture", str(small_fixture), "--points", "4", "--json", str(path)]) == 0
    (report,) = json.loads(path.read_text(encoding="utf-8"))["reports"]
    assert [one["name"] for one in report["inputs"]] == [
        "input", *(f"conv{i}.{part}" for i in (1, 2, 3) for part in ("weight", "bias"))]
    assert capsys.readouterr().out.startswith("RIGHT: ")


def test_a_verdict_against_a_gradient_stays_when_the_file_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(outputs, "write_json", fail)
    wanted = outputs.OutputFiles(json="a.json")
    for outcome, expected in ((Outcome.ROUNDING, 2), (Outcome.BUG, 1), (Outcome.CANNOT_TELL, 4)):
        series = Series("gradients", "", outcome, "", [])
        assert outputs.finish_series("bridge.gradcheck", wanted, series, {}) == expected


@pytest.mark.parametrize("name", ["cases", "check", "differences", "gradient_noise", "networks", "operations", "oracle",
                                  "results", "single", "__main__"])
def test_docstrings_of_gradcheck(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"bridge.gradcheck.{name}")).failed == 0
