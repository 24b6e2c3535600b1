# SPDX-License-Identifier: MIT
"""What is used need not be what is written: right programs that are fused or wider, or add in another order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from bridge.judge.measure.findings import BUG_ABOVE
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff
from bridge.judge.oracle.from_own import FromOwn, in_use
from bridge.operations import Add, Attention, Conv2d, Dropout, LayerNorm, Linear, Relu, Subtract
from bridge.operations.graph import INPUT, Graph
from bridge.operations.operation import Operation as Node
from tests.helpers.graphs import Case, Tensors, judge_step, make_case, random_graph, torch_step

Array = np.ndarray
F32 = np.float32


def in_float64(case: Case, rng: np.random.Generator) -> Tensors:
    """A step by float64 numbers, of which each tensor is rounded when it is written, the weights before it, too."""
    wide = {name: array.astype(np.float64) for name, array in case.parameters.items()}
    for name, array in wide.items():
        if not name.endswith("/mask"):
            array *= 1 + rng.uniform(-0.4, 0.4, array.shape) * 2.0**-23
            array[:] = np.where(array.astype(F32) == case.parameters[name], array, case.parameters[name])
    made = replace(case, precision="float64", parameters=wide, x=case.x.astype(np.float64),
                   target=case.target.astype(np.float64))
    return {name: array.astype(F32) for name, array in torch_step(made).items()}


def worst_in_float64(seed: int) -> tuple[float, str]:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(2, 4)), int(rng.integers(1, 5)), int(rng.integers(5, 12)), int(rng.integers(5, 12)))
    graph = random_graph(rng, shape)
    case = make_case(graph, shape, rng, mean=bool(seed % 3))
    seen = judge_step(case, in_float64(case, rng))
    name, worst = max(seen.items(), key=lambda item: max(item[1].whole, item[1].local))
    return max(worst.whole, worst.local), f"seed {seed}: {name} of {graph.nodes}"


@pytest.mark.parametrize("seed", [15, 41, 42, 71, 111, 124, 125, 128, 139, 189])
def test_a_program_in_float64_that_writes_float32_is_right(seed: int) -> None:
    worst, where = worst_in_float64(seed)
    assert worst <= 1, where


@pytest.mark.deep
def test_many_programs_in_float64_are_right() -> None:
    worst, where = max(worst_in_float64(seed) for seed in range(200, 500))
    assert worst <= 1, where


def normalised() -> Case:
    """A residual sum whose branch, behind a normalisation, is small."""
    graph = Graph([LayerNorm("ln", (64,)), Linear("l", 64, 64), Add("add", inputs=(INPUT, "l"))])
    case = make_case(graph, (32, 64), np.random.default_rng(0))
    case.parameters["l/weight"] *= F32(1e-3)
    return case


def normalised_terms(case: Case, found: Tensors) -> dict[str, Array]:
    """What is sent back to the input: by the sum (g), and by the normalisation (a, b, c), each rounded."""
    x, weight = case.x, case.parameters["ln/weight"]
    centred = x - x.mean(-1, keepdims=True)
    r = F32(1) / np.sqrt((centred * centred).mean(-1, keepdims=True) + F32(1e-5))
    dy = found["grads/ln/output"] * weight
    slope = -F32(0.5) * (dy * centred).sum(-1, keepdims=True) * r**3
    a, b = dy * r, slope * F32(2 / 64) * centred
    return {"g": found["grads/add/output"], "a": a, "b": b, "c": -(a + b).sum(-1, keepdims=True) / F32(64) + 0 * x}


@pytest.mark.parametrize("order", ["g+((a+b)+c)", "((g+a)+b)+c", "((g+c)+a)+b", "((a+g)+c)+b"])
def test_what_a_normalisation_sends_back_may_be_added_term_by_term(order: str) -> None:
    """As JAX, tapes and adjoint code do: each addition is a rounding of the size of g, which is a thousand times a."""
    case = normalised()
    found = torch_step(case)
    terms = normalised_terms(case, found)
    found["grads/input"] = eval(order, dict(terms))
    assert found["grads/input"].dtype == F32
    assert judge_step(case, found)["grads/input"].local <= 1


def test_terms_are_counted_by_the_formulas() -> None:
    """A normalisation adds dy, its mean, and x and the mean of x times another mean; a convolution one more than its
    products.
    """
    case = normalised()
    exact = Bounded(case.x.astype(np.float64), 0.0, Arithmetic(total_roundoff("float32")))
    weights = {name: exact.exact(case.parameters[f"ln/{name}"]) for name in ("weight", "bias")}
    (dx,), _ = case.graph.nodes[0].backward(exact, [exact], weights)
    assert dx.terms == 4
    image = exact.reshape((2, 4, 16, 16))
    conv = Conv2d("c", 4, 4, (3, 3), padding=(1, 1), bias=False)
    (dx,), _ = conv.backward(image, [image], {"weight": exact.exact(np.ones((4, 4, 3, 3)))})
    assert dx.terms == 37


def dropped() -> Case:
    graph = Graph([Linear("l", 64, 64), Dropout("d", 0.3), Add("add", inputs=(INPUT, "d"))])
    return make_case(graph, (64, 64), np.random.default_rng(0))


def test_a_dropout_may_be_fused_with_a_residual_sum() -> None:
    """fma(x * mask, 1 / (1 - p), residual): the dropout is written rounded, the sum takes it unrounded."""
    case = dropped()
    found = torch_step(case)
    kept = (found["forward/l"] * case.parameters["d/mask"]).astype(np.float64) * float(F32(1 / 0.7))
    found["forward/add"] = (case.x + kept).astype(F32)
    assert judge_step(case, found)["forward/add"].local <= 1


def convolved(channels: int = 16, scale: float = 1e-2, bias: float = 1.0) -> Case:
    graph = Graph([Conv2d("c", channels, channels, (3, 3), padding=(1, 1)), Add("add", inputs=(INPUT, "c"))])
    case = make_case(graph, (2, channels, 16, 16), np.random.default_rng(0))
    case.parameters["c/weight"] *= F32(scale)
    case.parameters["c/bias"] *= F32(bias)
    return case


def test_a_residual_sum_of_a_program_in_float64_is_right() -> None:
    case = convolved(1)
    seen = judge_step(case, in_float64(case, np.random.default_rng(1)))
    assert max(max(one.whole, one.local) for one in seen.values()) <= 1


@pytest.mark.parametrize(("scale", "bias"), [(1e-2, 1.0), (1e-2, 30.0), (30.0, 100.0)])
def test_an_epilogue_may_add_the_bias_last(scale: float, bias: float) -> None:
    """(accumulator + residual) + bias, as cuDNN's convolution with bias and residual has it.

    Where accumulator and bias nearly cancel, the first sum is far larger than all that is written.
    """
    case = convolved(scale=scale, bias=bias)
    found = torch_step(case)
    b = case.parameters["c/bias"][:, None, None]
    accumulator = torch_step(replace(case, parameters=case.parameters | {"c/bias": 0 * case.parameters["c/bias"]}))
    found["forward/c"] = accumulator["forward/c"] + b
    found["forward/add"] = (accumulator["forward/c"] + case.x) + b
    seen = judge_step(case, found)
    assert seen["forward/c"].local <= 1 and seen["forward/add"].local <= 1


def test_sums_may_be_added_in_another_order() -> None:
    """``a + (b + c)`` where ``a + b`` is written, too: of -Ofast, or of one kernel for both."""
    graph = Graph([Linear("l", 64, 64), Add("one", inputs=(INPUT, "l")), Linear("m", 64, 64, inputs=(INPUT,)),
                   Add("two", inputs=("one", "m"))])
    case = make_case(graph, (64, 64), np.random.default_rng(0))
    case.x[:] = F32(1e-2) - case.x @ case.parameters["l/weight"].T
    found = torch_step(case)
    found["forward/two"] = case.x + (found["forward/l"] + found["forward/m"])
    assert judge_step(case, found)["forward/two"].local <= 1


@pytest.mark.parametrize("last", [Subtract("sub", inputs=("add", "add")), Add("sum", inputs=("add", "minus"))],
                         ids=["difference", "sum"])
def test_terms_that_cancel_may_be_added_in_another_order(last: Node) -> None:
    """``(b - s) + a`` where ``s = a + b`` is written, too: what is left is the rounding of s, and not 0."""
    minus = Subtract("minus", inputs=("zero", "add"))
    graph = Graph([Linear("l", 64, 64), Add("add", inputs=(INPUT, "l")), Subtract("zero", inputs=(INPUT, INPUT)), minus,
                   last] if isinstance(last, Add) else [Linear("l", 64, 64), Add("add", inputs=(INPUT, "l")), last])
    case = make_case(graph, (64, 64), np.random.default_rng(0))
    found = torch_step(case)
    name = f"forward/{last.name}"
    assert not found[name].any()
    found[name] = (found["forward/l"] - found["forward/add"]) + case.x
    assert found[name].any() and judge_step(case, found)[name].local <= 1
    # One of which nothing is rounded stays exact
    if isinstance(last, Add):
        found["forward/minus"][0, 0] = -found["forward/minus"][0, 0]
        assert judge_step(case, found)["forward/minus"].local > BUG_ABOVE


def test_a_gradient_may_be_added_up_in_memory() -> None:
    """``dx(i) = dx(i) + w(j, i) * dz(j)`` over j, where dx holds what the residual sum sends back."""
    case = normalised()
    case.graph = Graph([Linear("l", 64, 64), Add("add", inputs=(INPUT, "l"))])
    case.parameters = {name: array for name, array in case.parameters.items() if name.startswith("l/")}
    found = torch_step(case)
    dx = found["grads/add/output"].copy()
    for j in range(64):
        dx += found["grads/l/output"][:, j:j + 1] * case.parameters["l/weight"][j]
    found["grads/input"] = dx
    assert judge_step(case, found)["grads/input"].local <= 1


def test_an_accumulator_may_begin_with_the_bias() -> None:
    """As naive loops do: ``y = b``, then ``y = y + x(i) * w(i)`` over i."""
    case = make_case(Graph([Linear("l", 64, 8)]), (32, 64), np.random.default_rng(0))
    case.parameters["l/bias"] *= F32(1e3)
    found = torch_step(case)
    y = np.broadcast_to(case.parameters["l/bias"], (32, 8)).copy()
    for i in range(64):
        y += case.x[:, i:i + 1] * case.parameters["l/weight"][:, i]
    found["forward/l"] = y
    assert judge_step(case, found)["forward/l"].local <= 1


@pytest.mark.parametrize("mean", [0.0, 3.0, 10.0])
def test_a_variance_may_be_a_mean_square_less_a_squared_mean(mean: float) -> None:
    """As Flax has it; its derivative, too, is made of numbers of the size of the mean."""

    def forward(_: LayerNorm, inputs: list[torch.Tensor], w: dict[str, torch.Tensor]) -> torch.Tensor:
        (x,) = inputs
        middle = x.mean(-1, keepdim=True)
        variance = (x * x).mean(-1, keepdim=True) - middle * middle
        return (x - middle) * torch.rsqrt(variance + 1e-5) * w["weight"] + w["bias"]

    case = make_case(Graph([LayerNorm("ln", (6,))]), (200, 6), np.random.default_rng(0))
    case.x += F32(mean)
    fast = type("Fast", (LayerNorm,), {"torch_forward": forward})
    seen = judge_step(case, torch_step(replace(case, graph=Graph([fast("ln", (6,))]))))
    assert max(one.local for one in seen.values()) <= 1


Change = Callable[[Array, Array], Array]
WRONG: dict[str, Change] = {
    "a part is missing": lambda whole, part: whole - part,
    "a part is doubled": lambda whole, part: whole + part,
    "a part is wrong by 1e-2": lambda whole, part: whole + part * F32(1e-2),
    "all is wrong by 1e-5": lambda whole, part: whole * F32(1 + 1e-5),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("made", [normalised, dropped, convolved])
def test_a_wrong_join_is_a_bug(made: Callable[[], Case], wrong: Change) -> None:
    """Forward and backward, on the networks of the right programs."""
    case = made()
    found = torch_step(case)
    # Of 144 products in float32 each may be rounded by 6e-8
    least = 1 if wrong is WRONG["all is wrong by 1e-5"] else BUG_ABOVE
    for name, part in (("forward/add", found[f"forward/{case.graph.nodes[-2].name}"]),
                       ("grads/input", found["grads/input"] - found["grads/add/output"])):
        assert judge_step(case, found | {name: wrong(found[name], part)})[name].local > least, name


def test_what_is_copied_must_be_what_is_written() -> None:
    """One unit in the last place is too much for a ReLU, in both directions."""
    case = make_case(Graph([Conv2d("c", 1, 2, (3, 3)), Relu("r")]), (2, 1, 8, 8), np.random.default_rng(0))
    found = in_float64(case, np.random.default_rng(1))
    for name in ("forward/r", "grads/c/output"):
        assert judge_step(case, found)[name].local == 0
        wrong = np.nextafter(found[name], F32(9)) * (found[name] != 0)
        assert judge_step(case, found | {name: wrong})[name].local > BUG_ABOVE


def test_attention_has_room_for_operands_that_are_not_rounded() -> None:
    """Its own numbers may be in use before they are written; nothing of it is a copy, so that one bound says all."""
    arithmetic, rng = Arithmetic(total_roundoff("float32")), np.random.default_rng(0)
    node = Attention("a", inputs=("x", "x", "x"), is_causal=True)
    own, dy = [Bounded(rng.standard_normal((2, 6, 4)), 0.0, arithmetic) for _ in range(3)], Bounded(
        rng.standard_normal((2, 6, 4)), 0.0, arithmetic)
    used = [in_use(one) for one in own]
    pairs = [(FromOwn(node, {}).forward(own), node.forward(used, {}), node.forward(own, {})),
             *zip(FromOwn(node, {}).backward(dy, own)[0], node.backward(in_use(dy), used, {})[0],
                  node.backward(dy, own, {})[0], strict=True)]
    for found, wanted, written in pairs:
        assert (found.error == wanted.error).all() and (found.value == written.value).all()
        assert (found.error > written.error).any() and ((found.error == 0) == (written.error == 0)).all()
