# SPDX-License-Identifier: MIT
"""torch's recurrent layers with all their arguments: read, trained in Fortran, judged, and with mistakes in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import bridge
from bridge import Network, Sgd
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.error_model import Arithmetic
from bridge.operations import Gru, Lstm, Operation, Rnn
from bridge.validate.self_test.graph_candidate import GraphOperations, train_graph
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.networks.exported_networks import Written

Cell = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


def last(m: Any, x: torch.Tensor) -> torch.Tensor:
    """All outputs, and the last ones of the last layer; within it, times may come first."""
    y, states = m.a(x if m.a.batch_first else x.transpose(0, 1))
    h = states[0] if isinstance(states, tuple) else states
    found: torch.Tensor = (y if m.a.batch_first else y.transpose(0, 1)) + h[-1].repeat(
        1, 1 + m.a.bidirectional)[:, None]
    return found


def layer(kind: str, **settings: Any) -> nn.Module:
    torch.manual_seed(3)
    return Written(last, a=LAYERS[kind](3, 4, **settings))


@pytest.mark.parametrize("settings", [
    {"batch_first": True}, {"num_layers": 2, "bias": False}, {"bidirectional": True, "num_layers": 2},
    {"batch_first": True, "bidirectional": True, "bias": False}])
@pytest.mark.parametrize("kind", LAYERS)
def test_steps_are_torchs(kind: str, settings: dict[str, Any]) -> None:
    """And the module comes back, trained."""
    module, x, t = layer(kind, **settings), torch.randn(5, 6, 3), torch.randn(5, 6, 1)
    net = Network.from_torch(module, example=(2, 6, 3))
    target = t.expand_as(module(x)).contiguous()
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(3):
        loss = functional.mse_loss(module(x), target)
        assert net.step(x.numpy(), target.numpy(), Sgd(0.1)) == pytest.approx(loss.item(), rel=1e-5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    back = net.to_torch()
    assert type(back.a) is LAYERS[kind]
    for one, other in zip(back.parameters(), module.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_relu_in_place_of_the_tangent_and_dropout_between_layers() -> None:
    net = Network.from_torch(layer("rnn", nonlinearity="relu", num_layers=3, dropout=0.25), example=(2, 6, 3))
    kinds = [one.kind for one in net.model.layers]
    assert kinds.count("rnn") == 3 and kinds.count("dropout") == 2
    assert all(one.relu for one in net.model.layers if one.kind == "rnn")  # type: ignore[attr-defined]


@pytest.mark.parametrize("make", [
    lambda x: torch.zeros(1, x.shape[0], 4), lambda x: x.new_zeros(1, x.shape[0], 4)], ids=["zeros", "new_zeros"])
def test_a_first_state_of_0_may_be_made_by_forward(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """As tutorials have it."""
    module = Written(lambda m, x: m.a(x, (make(x), make(x)))[0], a=nn.LSTM(3, 4, batch_first=True))
    assert Network.from_torch(module, example=(2, 6, 3)).model.layers[-1].kind == "lstm"


@pytest.mark.parametrize(("forward", "layer", "said"), [
    (lambda m, x: m.a(x)[0], nn.LSTM(3, 4, proj_size=2, batch_first=True), "proj_size other than 0"),
    (lambda m, x: m.a(x.repeat(1, 50, 1))[1][1][-1], nn.LSTM(3, 4, batch_first=True), "last state, of 300 times"),
    (lambda m, x: m.a(x)[0], nn.GRU(3, 4), "whose dimension 1 are not the images")])
def test_what_is_not_read_is_named(forward: Any, layer: nn.Module, said: str) -> None:
    with pytest.raises(bridge.ArgumentError, match=said):
        Network.from_torch(Written(forward, a=layer), example=(2, 6, 3))


# --- judged -------------------------------------------------------------------------------------------------------


class Emulator(nn.Module):
    """What climate models replace a column's physics by: levels are times, in both directions."""

    def __init__(self, kind: str = "lstm") -> None:
        super().__init__()
        self.cells = LAYERS[kind](5, 8, 2, batch_first=True, bidirectional=kind == "lstm")
        self.out = nn.Linear(16 if kind == "lstm" else 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.out(self.cells(x)[0])
        return found


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("recurrence")
    return {kind: export(folder / f"{kind}.h5", ExportSettings(
        model=lambda kind=kind: Emulator(kind), shape=(12, 5), batch=4, steps=2, lr=0.1, threads=1)).path
        for kind in LAYERS}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", LAYERS)
def test_right_programs_are_right(fixtures: dict[str, Path], kind: str, dtype: str, tmp_path: Path) -> None:
    """PyTorch's own cells, and such as compute in float64 and write float32."""
    result = train_graph(fixtures[kind], tmp_path / "result.h5", dtype=dtype, written="float32")
    comparison, verdict = judge(fixtures[kind], result, diagnosing=False)
    assert verdict.outcome is Outcome.ROUNDING, verdict.words
    # Of each time its own roundings alone: the bounds of the last say as much as those of the first
    assert not comparison.estimated


@pytest.mark.parametrize("kind", LAYERS)
def test_what_is_added_to_its_output_is_judged(kind: str, tmp_path: Path) -> None:
    """A residual sum, of a program that leaves out some tensors, too: its bias is not what its output ends with."""
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.out = LAYERS[kind](3, 3, batch_first=True), nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.out(x + self.cells(x)[0])
            return found

    fixture = export(tmp_path / "fixture.h5", ExportSettings(
        model=Residual, shape=(4, 3), batch=2, steps=2, lr=0.1, threads=1)).path
    result = train_graph(fixture, tmp_path / "result.h5")
    for left_out in ((), ("forward/cells.hh_l0",), ("grads/cells.ih_l0/output", "grads/cells.hh_l0/output")):
        with h5py.File(result, "r+") as file:
            for name in left_out:
                for step in range(2):
                    del file[f"steps/{step}/{name}"]
        _, verdict = judge(fixture, result, diagnosing=False)
        assert verdict.outcome is Outcome.ROUNDING, verdict.words


@pytest.mark.parametrize("kind", LAYERS)
def test_the_last_of_many_times_is_judged_as_the_first(kind: str, tmp_path: Path) -> None:
    """An error of the fourth digit shows in the last output of 60, and in the first gradient."""
    class Long(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.out = LAYERS[kind](4, 16, batch_first=True), nn.Linear(16, 2)
            for one in self.cells.parameters():
                nn.init.uniform_(one, -0.75, 0.75)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.out(self.cells(x)[0])
            return found

    fixture = export(tmp_path / "fixture.h5", ExportSettings(
        model=Long, shape=(60, 4), batch=2, steps=1, lr=0.1, threads=1)).path
    result = tmp_path / "result.h5"
    assert judge(fixture, train_graph(fixture, result), diagnosing=False)[1].outcome is Outcome.ROUNDING
    for backward in (False, True):
        class Wrong(GraphOperations):
            def forward(self, node: Operation, inputs: list[torch.Tensor], parameters: dict[str, torch.Tensor],
                        backward: bool = backward) -> torch.Tensor:
                factor = torch.ones(1, 60, 1)
                factor[:, 0 if backward else -1] += 1e-3
                if node.name == "cells.hh_l0" and backward:
                    # The numbers as they are, their gradients times the factor
                    inputs = [inputs[0] * factor + (inputs[0] * (1 - factor)).detach()]
                found = super().forward(node, inputs, parameters)
                return found * factor if node.name == "cells.hh_l0" and not backward else found

        _, verdict = judge(fixture, train_graph(fixture, result, Wrong), diagnosing=False)
        assert verdict.outcome is Outcome.BUG, (backward, verdict.words)


def test_a_bound_is_as_large_as_what_it_is_of() -> None:
    """A gradient that is a thousand times as large has a bound that is a thousand times as large."""
    rng, arithmetic = np.random.default_rng(1), Arithmetic(2.0**-24)
    for kind in (Lstm, Gru, Rnn):
        node = kind("it", 5)
        z, w, b, dy = (Bounded(rng.standard_normal(shape), 0.0, arithmetic) for shape in (
            (3, 4, 5 * node.gates), (5 * node.gates, 5), (5 * node.gates,), (3, 4, 5)))
        small, large = (node.backward(Bounded(scale * dy.value, 0.0, arithmetic), [z], {"weight": w, "bias": b})[0][0]
                        for scale in (1.0, 1024.0))
        assert np.allclose(large.error, 1024 * small.error, rtol=1e-6)


def wrong_lstm(order: str = "ifgo", forget: float = 0.0, of_state: Any = torch.tanh, gate: Any = torch.sigmoid,
               of_proposal: Any = torch.tanh) -> Cell:
    def cell(z: torch.Tensor, p: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        g = dict(zip(order, (z + p).chunk(4, 1), strict=True))
        c = gate(g["f"] + forget) * c + gate(g["i"]) * of_proposal(g["g"])
        return gate(g["o"]) * of_state(c), c

    return cell


def swapped_gru(z: torch.Tensor, p: torch.Tensor, h: torch.Tensor, c: torch.Tensor
                ) -> tuple[torch.Tensor, torch.Tensor]:
    (r, u, n), (r_, u_, n_) = z.chunk(3, 1), p.chunk(3, 1)
    u = (u + u_).sigmoid()
    return u * (n + (r + r_).sigmoid() * n_).tanh() + (1 - u) * h, c


#: A mistake by what is said of it: the kind, a cell, what the parameters are, and whether nothing flows back by way of
#: the output
MISTAKES: dict[str, tuple[str, Cell | None, Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]], bool]] = {
    "the gates are in the order input, forget, output, proposal": ("lstm", wrong_lstm("ifog"), dict, False),
    "the sigmoid of what the forget gate takes + 1": ("lstm", wrong_lstm(forget=1.0), dict, False),
    "the state in place of its tanh": ("lstm", wrong_lstm(of_state=lambda c: c), dict, False),
    "the hard sigmoid 1/2 + x/5 of what the input gate takes": (
        "lstm", wrong_lstm(gate=lambda x: (0.2 * x + 0.5).clamp(0, 1)), dict, False),
    "sigmoid of what the proposal takes in place of tanh": ("lstm", wrong_lstm(of_proposal=torch.sigmoid), dict, False),
    "lstm without the bias, as if it were 0": ("lstm", None, lambda p: {**p, "bias": 0 * p["bias"]}, False),
    "the weight of each gate transposed": ("lstm", None, lambda p: {**p, "weight": torch.cat(
        [one.T for one in p["weight"].chunk(4)])}, False),
    "lstm without the gradient of the time behind, as if it were 0": ("lstm", None, dict, True),
    "the sigmoid of -(what the update gate takes)": ("gru", swapped_gru, dict, False),
    "the reset gate multiplies the output before, not its product": ("gru", None, dict, False),
    "rnn without the gradient of the time behind, as if it were 0": ("rnn", None, dict, True),
    "the last time comes first in the output": ("gru", None, lambda p: p, False),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_where_it_is(fixtures: dict[str, Path], name: str, tmp_path: Path) -> None:
    """Each in the first tensor that it strikes."""
    kind, cell, change, detached = MISTAKES[name]

    class Wrong(GraphOperations):
        def forward(self, node: Operation, inputs: list[torch.Tensor], parameters: dict[str, torch.Tensor]
                    ) -> torch.Tensor:
            if node.name != "cells.hh_l1":
                return super().forward(node, inputs, parameters)
            if name.startswith("the last time"):
                return super().forward(node, inputs, parameters).flip(1)
            n = node.hidden_size  # type: ignore[attr-defined]
            h = c = inputs[0].new_zeros(inputs[0].shape[0], n)
            p, found = change(parameters), []
            for t in range(inputs[0].shape[1]):
                if name.startswith("the reset gate"):
                    r, u = (inputs[0][:, t, :2 * n] + functional.linear(
                        h, p["weight"][:2 * n], p["bias"][:2 * n])).sigmoid().chunk(2, 1)
                    h = u * h + (1 - u) * (inputs[0][:, t, 2 * n:] + functional.linear(
                        r * h, p["weight"][2 * n:], p["bias"][2 * n:])).tanh()
                    found.append(h)
                    continue
                product = functional.linear(h.detach() if detached else h, p["weight"], p["bias"])
                h, c = cell(inputs[0][:, t], product, h, c) if cell else node._torch_cell(  # type: ignore[attr-defined]
                    inputs[0][:, t], product, (h, c))
                found.append(h)
            return torch.stack(found, 1)

    _, verdict = judge(fixtures[kind], train_graph(fixtures[kind], tmp_path / "result.h5", Wrong))
    assert verdict.outcome is Outcome.BUG and verdict.diagnosis is not None
    (first, *_) = verdict.diagnosis.findings
    assert first.name == ("grads/cells.ih_l1/output" if detached else "forward/cells.hh_l1")
    # Of a plain cell a weight of 0 comes to the same
    assert any(name in one.detail for one in first.explanations)
