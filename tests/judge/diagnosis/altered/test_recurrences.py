# SPDX-License-Identifier: MIT
"""Mistakes of recurrent layers, of all kinds alike, are named; PyTorch makes the tensors time by time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bridge.judge.judge import judge
from bridge.operations.operation import Operation
from bridge.operations.products import Linear
from bridge.operations.recurrence import Gru, Lstm, Rnn
from bridge.validate.self_test.graph_candidate import GraphOperations, train_graph
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.judged.single_operations import explained, formula

Array = np.ndarray
RNG = np.random.default_rng(4)
N, TIMES, H = 3, 6, 4
KINDS: dict[str, Operation] = {
    "lstm": Lstm("it", H), "gru": Gru("it", H), "rnn": Rnn("it", H), "reverse": Lstm("it", H, reverse=True)}
Known = dict[str, Array]


def run(node: Any, z: Tensor, w: dict[str, Tensor], cut: Callable[[int], bool] = lambda t: False,
        state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Outputs of all times and the last state; `cut`: whether a gradient does not go from a time to the one before."""
    ordered = z.flip(1) if node.reverse else z
    h = state or (z.new_zeros(len(z), H), z.new_zeros(len(z), H))
    found = []
    for t in range(z.shape[1]):
        h = tuple(one.detach() for one in h) if cut(t) else h  # type: ignore[assignment]
        h = node._torch_cell(ordered[:, t], h[0] @ w["weight"].T + w["bias"], h)
        found.append(h[0])
    y = torch.stack(found, 1)
    return (y.flip(1) if node.reverse else y), h


def backward(node: Any, cut: Callable[[int], bool] = lambda t: False) -> tuple[Known, Array, Tensor, Known]:
    """Parameters, input and dy, and what autograd gives: the output, and gradients of the input and the weight."""
    gates = node.gates * H
    w = {name: RNG.normal(size=shape).astype(np.float32) / 2 for name, shape in node.parameter_shapes().items()}
    z = RNG.normal(size=(N, TIMES, gates)).astype(np.float32)
    given = {name: torch.from_numpy(one).requires_grad_() for name, one in w.items()}
    x = torch.from_numpy(z).requires_grad_()
    y, _ = run(node, x, given, cut)
    dy = torch.from_numpy(RNG.normal(size=y.shape).astype(np.float32))
    dz, dw = torch.autograd.grad(y, (x, given["weight"]), dy)
    return w, z, dy, {"output": y.detach().numpy(), "input_gradient": dz.numpy(), "weight": dw.numpy()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("own", [True, False])
def test_gradients_that_do_not_go_back_through_all_times_are_named(kind: str, own: bool) -> None:
    node = KINDS[kind]
    for cut, said in ((lambda t: t == 2, f"from time {3 if kind == 'reverse' else 2} to the time before"),
                      (lambda t: t > 0 and t % 2 == 0, "through 2 times at most"),
                      (lambda t: t > 0, "from any time to the time before")):
        w, z, dy, found = backward(node, cut)
        known = {name: found[name] for name in ("output", "input_gradient")} if own else {}
        right = formula(node, z, w | known, dy.numpy(), 0)
        (one,) = explained(right, found["input_gradient"])
        assert said in one.detail


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_multiplied_by_the_output_of_the_same_time_are_named(kind: str) -> None:
    node: Any = KINDS[kind]
    w, z, dy, found = backward(node)
    known = {name: found[name] for name in ("output", "input_gradient")}
    right = formula(node, z, w | known, dy.numpy(), "weight")
    products = np.asarray(found["input_gradient"], float)
    if kind == "gru":
        h = np.concatenate([np.zeros((N, 1, H)), found["output"][:, :-1]], 1)
        r = 1 / (1 + np.exp(-(z + h @ w["weight"].T + w["bias"])[..., :H]))
        products = np.concatenate([products[..., :2 * H], products[..., 2 * H:] * r], -1)
    wrong = np.einsum("ntg,nth->gh", products, found["output"])
    (one,) = explained(right, wrong)
    assert one.detail == "the output of the same time in place of the output before"


@pytest.mark.parametrize(("change", "said"), [
    (lambda x: np.concatenate([0 * x[:, :1], x[:, :-1]], 1), "before, 0 at the edge"),
    (lambda x: np.concatenate([x[:, 1:], x[:, -1:]], 1), "behind, the edge repeated"),
    (lambda x: np.roll(x, 1, 1), "before, around the end"),
])
def test_an_input_of_the_time_before_is_named(change: Callable[[Array], Array], said: str) -> None:
    x, w = (RNG.normal(size=shape).astype(np.float32) for shape in ((N, TIMES, 5), (7, 5)))
    dy = RNG.normal(size=(N, TIMES, 7)).astype(np.float32)
    words = f"the input of the row (the time, the token) {said}"
    node = Linear("it", 5, 7, False)
    assert explained(formula(node, x, {"weight": w}), change(x) @ w.T)[0].detail == words
    right = formula(node, x, {"weight": w}, dy, "weight")
    assert explained(right, np.einsum("nto,nti->oi", dy, change(x)))[0].detail == words


class Layers(nn.Module):
    """A recurrent layer, and a linear one."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.cells, self.change = kind(2, H, batch_first=True), nn.Linear(H, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.change(self.cells(x)[0])
        return found


def keeping(what: str) -> type[GraphOperations]:
    """Operations whose recurrent layers begin where the batch before ended, with its output, state or both."""
    class Keeping(GraphOperations):
        kept: tuple[Tensor, Tensor] | None = None

        def forward(self, node: Any, inputs: list[Tensor], parameters: dict[str, Tensor]) -> Tensor:
            if not node.follows_itself:
                return super().forward(node, inputs, parameters)
            y, (h, c) = run(node, inputs[0], parameters, state=self.kept)
            h, c = h.detach(), c.detach()
            self.kept = {"output and state": (h, c), "output": (h, 0 * c), "state": (0 * h, c)}[what]
            return y

    return Keeping


@pytest.mark.parametrize(("kind", "kept"), [(nn.LSTM, "output and state"), (nn.LSTM, "state"), (nn.GRU, "output")])
def test_what_goes_on_from_batch_to_batch_is_named(kind: type[nn.RNNBase], kept: str, tmp_path: Path) -> None:
    """Also at the third step, whose state at the beginning follows from those of both before."""
    settings = ExportSettings(model=lambda: Layers(kind), shape=(TIMES, 2), batch=N, steps=3, lr=0.1, threads=1)
    fixture = export(tmp_path / "fixture.h5", settings).path
    found = judge(fixture, train_graph(fixture, tmp_path / "result.h5", keeping(kept)), adequacy=False).verdict
    assert found.diagnosis is not None
    first = found.diagnosis.findings[0]
    assert (first.name, first.step) == ("forward/cells.hh_l0", 1)
    words = f"at the beginning stands the last {kept} of the batch before, not 0"
    assert [one.detail for one in first.explanations] == [words]
    assert all(one.explanations and one.explanations[0].detail == words for one in found.diagnosis.findings)


@pytest.mark.parametrize("gradient", [None, 0, "weight"])
def test_noise_in_a_recurrent_layer_is_not_named(gradient: Any) -> None:
    node = KINDS["lstm"]
    w, z, dy, found = backward(node)
    known = {name: found[name] for name in ("output", "input_gradient")}
    right = formula(node, z, w | known, None if gradient is None else dy.numpy(), gradient)
    for noise in (right._values.std() * RNG.normal(size=right.shape), 0.01 * right._values * RNG.normal(
            size=right.shape)):
        assert explained(right, right._values + noise) == []
