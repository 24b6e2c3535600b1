# SPDX-License-Identifier: MIT
"""The oracle of graphs: right programs are inside its bounds, and wrong ones far outside."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bridge.engine.library import extension
from bridge.judge.measure.error_statistics import measure
from bridge.judge.measure.walk import limit
from bridge.judge.oracle import fast_convolution
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff
from bridge.operations import BatchNorm2d, Conv2d, ConvTranspose2d, Relu, Softmax
from bridge.operations.graph import Graph
from tests.helpers.graphs import judge_step, make_case, random_graph, torch_step, true_step


def run(seed: int) -> tuple[float, str]:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(2, 4)), int(rng.integers(1, 5)), int(rng.integers(5, 12)), int(rng.integers(5, 12)))
    graph = random_graph(rng, shape)
    case = make_case(graph, shape, rng, "float64" if seed % 5 == 0 else "float32", mean=bool(seed % 3))
    seen = judge_step(case, torch_step(case))
    name, worst = max(seen.items(), key=lambda item: max(item[1].whole, item[1].local))
    return max(worst.whole, worst.local), f"seed {seed}: {name} of {graph.nodes}"


def test_random_graphs_by_pytorch_are_right() -> None:
    worst, where = max(run(seed) for seed in range(40))
    assert worst <= 1, where


@pytest.mark.deep
def test_many_random_graphs_by_pytorch_are_right() -> None:
    worst, where = max(run(seed) for seed in range(1000, 1600))
    assert worst <= 1, where


def test_a_choice_behind_numbers_of_which_nothing_is_known_is_in_doubt() -> None:
    """Rounding may have made the variance of the first normalisation 0; 0 times what nobody bounds is no more known.

    The ReLU makes numbers that are exactly 0, which the second multiplies by a factor without a bound, and the
    convolution carries that to others. The signs of some differ between PyTorch's float32 and the oracle's float64.
    """
    graph = Graph([BatchNorm2d("one", 2), Relu("zeros"), BatchNorm2d("two", 2), Conv2d("conv", 2, 4, (3, 3)),
                   Relu("last")])
    case = make_case(graph, (2, 2, 24, 24), np.random.default_rng(0))
    case.x = (1e4 + 0.01 * case.x).astype(np.float32)
    found = torch_step(case)
    truths = true_step(case, found)
    signs = [one > 0 for one in (found["forward/conv"], truths["forward/conv"][0].value)]
    assert (signs[0] != signs[1]).any()
    for name, (whole, local) in truths.items():
        for truth in (whole, local):
            assert measure(*(np.atleast_1d(one) for one in (found[name], truth.value, limit(truth)))).t <= 1, name
    assert np.isinf(truths["forward/conv"][0].error).all()


def test_kernels_give_what_numpy_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions of large images are computed by our own float64 kernels, values and bounds alike."""
    graph = Graph([Conv2d("down", 2, 4, (3, 3), (2, 1), (1, 1)), Relu("relu"),
                   ConvTranspose2d("up", 4, 3, (2, 3), (2, 1), output_padding=(1, 0)),
                   ConvTranspose2d("wide", 3, 2, (2, 2), dilation=(2, 2), output_padding=(1, 1))])
    case = make_case(graph, (2, 2, 10, 11), np.random.default_rng(0))
    found = torch_step(case)
    by_numpy = true_step(case, found)
    calls: list[str] = []
    call = extension.call
    monkeypatch.setattr(extension, "call", lambda name, *given: (calls.append(name), call(name, *given)))
    monkeypatch.setattr(fast_convolution, "LARGE", 0)
    monkeypatch.delenv(fast_convolution.CHOICE, raising=False)
    for name, truths in true_step(case, found).items():
        for ours, theirs in zip(truths, by_numpy[name], strict=True):
            for one, other in ((ours.value, theirs.value), (ours.error, theirs.error)):
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12 * float(np.abs(other).max()), err_msg=name)
    assert {"conv2d_forward", "conv2d_backward"} <= {*calls}


def test_an_error_that_is_no_number_is_infinite() -> None:
    """Infinity times 0: no comparison with NaN holds, and a choice would be taken to be certain."""
    arithmetic = Arithmetic(total_roundoff("float32"))
    unbounded = Bounded(np.array([[1.0, -2.0]]), np.inf, arithmetic)
    with np.errstate(invalid="ignore"):
        products = unbounded * unbounded.exact(np.zeros((1, 2))), unbounded @ unbounded.exact(np.eye(2))
    for y in products:
        assert np.isinf(y.error).all()
        assert (y > 1.0).doubt.all() and y.reshape((1, 1, 1, 2)).where_max().doubt.all()
    few = Bounded(np.array([[1.0, -2.0]]), np.array([[0.5, np.nan]]), arithmetic)
    np.testing.assert_array_equal(few.error, [[0.5, np.inf]])
    assert Bounded(np.zeros((0, 2)), np.zeros((0, 2)), arithmetic).error.size == 0


def test_probabilities_that_underflow_are_within_their_bounds() -> None:
    """Their bounds underflow, too, in the oracle's float64."""
    x = np.array([[0.0, -90.0, -110.0, -700.0, -740.0, -800.0]])
    y = Softmax("a").forward([Bounded(x, 0.0, Arithmetic(total_roundoff("float32")))], {})
    for found in (torch.tensor(x, dtype=torch.float32).softmax(1).numpy(), np.where(y.value < 1e-45, 0, y.value)):
        assert (np.abs(found - y.value) <= y.error).all()
    assert (np.abs(y.error[0, 1:4]) < 1e-37).all()


def test_a_sigmoid_may_be_0_where_its_exponential_overflows() -> None:
    x = torch.tensor([[-80.0, -88.0, -89.0, -95.0, -200.0]])
    for dtype in (torch.float32, torch.float64):
        given = x.to(dtype) * (1 if dtype is torch.float32 else 8)
        arithmetic = Arithmetic(total_roundoff(str(dtype).removeprefix("torch.")))
        y = Bounded(given.double().numpy(), 0.0, arithmetic).sigmoid()
        assert (np.abs(given.sigmoid().numpy() - y.value) <= y.error).all()
        assert (y.error < 1e-36).all()


def test_a_tanh_may_be_made_of_an_exponential() -> None:
    """1 - 2 / (e**2x + 1) and 2 * sigmoid(2x) - 1 lose digits near 0, where the bound is no more than that."""
    x = torch.cat([torch.linspace(-12, 12, 4001), torch.logspace(-9, 0, 2000), torch.zeros(1)])
    y = Bounded(x.double().numpy(), 0.0, Arithmetic(total_roundoff("float32"))).tanh()
    for found in (x.tanh(), 1 - 2 / ((2 * x).exp() + 1), 2 * (2 * x).sigmoid() - 1):
        assert (np.abs(found.double().numpy() - y.value) <= y.error).all()
    assert y.error.max() < 2e-6 and y.error[-1] == 0
