# SPDX-License-Identifier: MIT
"""Gradient checking: every operation has a check, and every planted wrong gradient is caught."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import bridge
from bridge.engine.network import functional, passes
from bridge.engine.network.passes import OperationPasses
from bridge.gradcheck import GradcheckReport, Verdict, gradcheck, operations, single
from bridge.gradcheck.cases import CASES, LOSS_CASES
from bridge.gradcheck.networks import NetworkFunctions
from bridge.gradcheck.operations import CHECKS
from bridge.gradcheck.settings import Settings
from bridge.operations import OPERATIONS
from bridge.operations.hyperparameters import fields
from bridge.operations.losses import LOSSES, loss_from
from bridge.operations.losses import settings as settings_of_loss
from tests.helpers.judged.gradients import (
    DTYPES,
    WRONG,
    Array,
    W,
    X,
    backward,
    check,
    random,
    wrong,
)
from tests.helpers.loops import looped
from tests.helpers.tiers import deep, few


def verdicts(report: GradcheckReport) -> dict[str, Verdict]:
    return {one.name: one.verdict for one in report.inputs}

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


@looped("dtype", ("float64", "float32"))
@pytest.mark.parametrize(("name", "device"), [
    *((name, device) for name in CHECKS if name not in (*OPERATIONS, *LOSSES) for device in ("cpu", "naive")),
    *(deep(name, "naive") for name in (*OPERATIONS, *LOSSES))])
def test_every_function_is_right(name: str, device: str, dtype: str) -> None:
    """And so it is at every point: nothing is drawn at a kink, but for a network, whose inner numbers nobody draws.

    Operations and losses on the other devices are in tests/operations/test_registry.py.
    """
    for report in CHECKS[name].run(Settings(dtype, device, points=12)):
        assert report.verdict is Verdict.RIGHT, str(report)
        assert len(report.not_checked) == len(getattr(OPERATIONS.get(name), "without_gradient", ())), str(report)
        assert all(one.resolution < (1e-5 if dtype == "float64" else 0.1) for one in report.inputs), str(report)
        assert name == "network" or not any(one.left_out for one in report.inputs), str(report)
        assert (not report.oracle) == (name in ("network", "bridge.conv2d", "bridge.spline"))


@pytest.mark.parametrize("kind", few(CASES, 12))
def test_a_wrong_gradient_of_any_operation_is_caught(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every one of its gradients: 1 % off in one element, and missing; in float32 a tenth off everywhere."""
    for case in CASES[kind]:
        # Some inputs have no gradient: there is none to make wrong
        learned = [i for i in range(len(case.shapes) + len(case.node.parameter_shapes()))
                   if i not in case.node.without_gradient]
        for number, which in enumerate(learned):
            for edit, dtype in ((spoiled, "float64"), (np.zeros_like, "float64"), (np.zeros_like, "float32")):
                with monkeypatch.context() as patch:
                    patch.setattr(single, "OperationPasses", wrong(edit, which))
                    report = single.check_operation(case, Settings(dtype, points=4))
                assert report.verdict is Verdict.WRONG and report.exit_code == 1, str(report)
                found = report.inputs[number]
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
    case = CASES[kind][0]
    report = single.check_operation(case, Settings())
    assert {one.verdict for one in report.inputs} == {Verdict.RIGHT} and report.verdict is Verdict.WRONG
    assert len(report.beyond) == len(report.oracle) - len(case.node.without_gradient) and "output is " in report.words


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


@pytest.mark.parametrize("linear", [False, True])
@DTYPES
@looped("name", WRONG)
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
