# SPDX-License-Identifier: MIT
"""examples/10_emulator in small, and mistakes in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.validator.programs.mistakes import Mistake, Program, every, right, with_gradient
from benchmarks.validator.programs.optimizers import EpsInside
from bridge.validate.self_test.graph_candidate import GraphOperations, layer
from reference.settings import ExportSettings

Tensor = torch.Tensor
TIMES, WIDTH, BATCH = 6, 5, 3
#: (gates, state before) to output and state
Cell = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class Emulator(nn.Module):
    """States to those of the next time."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.change = nn.LSTM(2, WIDTH, num_layers=2, batch_first=True), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.change(self.cells(x)[0])
        return found


def settings() -> ExportSettings:
    """Two batches of random numbers."""
    return ExportSettings(model=Emulator, shape=(TIMES, 2), batch=BATCH, steps=2, optimizer="adam", lr=1e-2, threads=1)


def usual(gates: Tensor, c: Tensor, of_state: Callable[[Tensor], Tensor] = torch.tanh, order: str = "ifgo"
          ) -> tuple[Tensor, Tensor]:
    """Torch's cell, or one of another order of gates, or another function of the state."""
    of = dict(zip(order, gates.chunk(4, 1), strict=True))
    c = of["f"].sigmoid() * c + of["i"].sigmoid() * of["g"].tanh()
    return of["o"].sigmoid() * of_state(c), c


def cells(cell: Cell = usual, *, passed: bool = True, bias: bool = True, cut: int = -1, kept: bool = False
          ) -> type[GraphOperations]:
    """Return operations with other recurrent layers.

    Parameters
    ----------
    cell : what they compute at each time
    passed : the output before goes into the gates
    bias : theirs is added
    cut : no gradient goes from this time to the one before
    kept : the state goes on from batch to batch
    """
    def forward(self: GraphOperations, node: Any, inputs: list[Tensor], p: dict[str, Tensor]) -> Tensor:
        (z,) = inputs
        h = c = z.new_zeros(len(z), WIDTH)
        states = self.__dict__.setdefault("states", {})
        if kept and node.name in states:
            h, c = states[node.name]
        found = []
        for t in range(TIMES):
            if t == cut:
                h, c = h.detach(), c.detach()
            gates = z[:, t] + (h if passed else 0 * h) @ p["weight"].T + (p["bias"] if bias else 0.0)
            h, c = cell(gates, c)
            found.append(h)
        states[node.name] = h.detach(), c.detach()
        return torch.stack(found, 1)

    return every("lstm", forward)


class _Late(GraphOperations):
    """Gradients of recurrent weights with the output of the same time, not of the time before."""

    def gradient(self, name: str, g: Tensor) -> Tensor:
        if not (name.startswith("cells.hh") and name.endswith("weight")):
            return g
        gates = self.known[name.replace("hh", "ih").partition("/")[0]].grad
        assert gates is not None
        return torch.einsum("ntg,nth->gh", gates, self.known[name.partition("/")[0]].detach())


def late_input(_: GraphOperations, node: Any, inputs: list[Tensor], p: dict[str, Tensor]) -> Tensor:
    """The second layer with the output of the first at the time before."""
    (h,) = inputs
    return right(node, [torch.cat([0 * h[:, :1], h[:, :-1]], 1)], p)


MISTAKES = (
    Mistake("The gates are in the order input, forget, output, proposal", cells(
        lambda gates, c: usual(gates, c, order="ifog")), "forward/cells.hh_l0",
            said="the gates are in the order input, forget, output, proposal"),
    Mistake("The output is not passed to the next time", cells(passed=False), "forward/cells.hh_l0",
            said="lstm without the weight, as if it were 0"),
    Mistake("The state is not 0 at the beginning of the second batch", cells(kept=True), "forward/cells.hh_l0", step=1,
            said="at the beginning stands the last output and state of the batch before"),
    Mistake("The second of torch's two biases is missing", cells(bias=False), "forward/cells.hh_l0",
            said="lstm without the bias, as if it were 0"),
    Mistake("The gradient does not reach the first three times", cells(cut=3), "grads/cells.ih_l1/output",
            said="the gradient does not go back from time 3 to the time before"),
    Mistake("The output is the gated state, not the gated tangent of it", cells(
        lambda gates, c: usual(gates, c, of_state=lambda c: c)), "forward/cells.hh_l0",
            said="the state in place of its tanh"),
    Mistake("The derivative of tanh(c) is 1 - c², not 1 - tanh(c)²", cells(lambda gates, c: usual(
        gates, c, of_state=lambda c: with_gradient(c.tanh(), lambda dy, c: (dy * (1 - c * c),), c))),
        "grads/cells.ih_l1/output",
            said="the state in place of its tanh"),
    Mistake("Gradients of recurrent weights take the output of the same time", _Late, "grads/cells.hh_l1/weight",
            said="the output of the same time in place of the output before"),
    Mistake("The second layer takes the first one's output of the time before", layer("cells.ih_l1", late_input),
            "forward/cells.ih_l1", said="the input of the row (the time, the token) before"),
    Mistake("Adam's eps is added below the root", EpsInside, "optimizer/cells.ih_l0/weight",
            said="eps inside the root"),
)


def program() -> Program:
    """Return the program."""
    return Program("emulator", settings(), MISTAKES)
