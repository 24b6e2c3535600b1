# SPDX-License-Identifier: MIT
"""One training step of a graph of operations in float64, with bounds; for chains see `bridge.judge.oracle.step`.

The formulas are the operations' own (`bridge.operations`). Each tensor comes twice: as the whole step gives it, with
the errors of everything before it, and, where the candidate's file holds the inputs of the operation, as these give it,
with nothing but the rounding of that operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.choices import Sent, Sums, sent, sums
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.from_own import FromOwn, in_use
from bridge.operations.graph import INPUT, Graph
from bridge.operations.losses import Loss, MeanSquaredError
from bridge.operations.operation import Operation

Array = np.ndarray


class Visitor(Protocol):
    """Receives every tensor of a step."""

    def __call__(self, name: str, truth: Bounded, local: Bounded | None, /) -> Array | None:
        """Take a tensor by its name under /steps/<k>; give back the candidate's own, None where its file lacks it.

        `local` is what the candidate's own inputs of the operation give, None where one of them is missing.
        """


class SumsVisitor(Protocol):
    """Receives the sums of gradients that operations send to a number that they choose."""

    def __call__(self, name: str, readers: tuple[str, ...], right: Sums, /) -> None:
        """Take the sums of a tensor that was shown before, and the names of the gradients that they follow from."""


@dataclass
class _Flow:
    """What of a tensor is known: by the oracle, and the candidate's own."""

    truth: Bounded
    own: Bounded | None
    #: absolute value of what was added last to make it
    term: Array | float = 0.0


@dataclass
class _Parts:
    """Gradients of one tensor from all that take it; `own` from the candidate's tensors, None where one is missing.

    `sent` says of each, from the candidate's tensors where these are known, how much of it there is; `readers` is where
    it comes from.
    """

    truth: list[Bounded] = field(default_factory=list)
    own: list[Bounded | None] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    readers: list[str] = field(default_factory=list)


class GraphStep:
    """Forward and backward of one batch.

    Parameters
    ----------
    graph, loss : the network
    parameters : float64 arrays by name, ``conv1/weight``, ..., the state before the step, ``norm1/running_mean``, ...,
        and masks, ``dropout1/mask``, ...; exact in the candidate's precision. State may be missing, where no output
        follows from it
    arithmetic : of the candidate
    visit : receives ``forward/<node>``, ``state/<node>/<name>`` (what of it is known), ``loss``,
        ``grads/<node>/output``, ``grads/<node>/<parameter>`` and
        ``grads/input`` in data-flow order
    visit_sums : receives the sums of gradients that operations choose a place for
    """

    def __init__(self, graph: Graph, loss: Loss, parameters: Mapping[str, Array], arithmetic: Arithmetic,
                 visit: Visitor, visit_sums: SumsVisitor | None = None) -> None:
        self._graph, self._loss, self._arithmetic = graph, loss, arithmetic
        self._visit, self._visit_sums = visit, visit_sums
        self._own = {
            node.name: FromOwn(node, {
                name: self._exact(parameters[f"{node.name}/{name}"])
                for name in (*node.parameter_shapes(), *node.state_shapes(), *("mask",)[:node.has_mask])
                if f"{node.name}/{name}" in parameters})
            for node in graph.nodes
        }

    def run(self, x: Array, target: Array) -> None:
        """Take a batch through the step: the input, and what the output is compared with."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            flows = self._forward(x)
            self._backward(flows, self._exact(target))

    def _exact(self, array: Array) -> Bounded:
        return Bounded(array, 0.0, self._arithmetic)

    def _seen(self, name: str, truth: Bounded, local: Bounded | None) -> _Flow:
        own = self._visit(name, truth, local)
        return _Flow(truth, None if own is None else self._exact(own))

    def _forward(self, x: Array) -> dict[str, _Flow]:
        flows = {INPUT: _Flow(self._exact(x), self._exact(x))}
        for node in self._graph.nodes:
            given, replay = [flows[name] for name in node.inputs], self._own[node.name]
            own, parameters = _known([one.own for one in given]), replay.parameters
            truth = node.forward([one.truth for one in given], parameters)
            local = None if own is None else replay.forward(own, [one.term for one in given])
            flows[node.name] = self._seen(f"forward/{node.name}", truth, local)
            if own is not None:
                flows[node.name].term = replay.last_term(own, len(truth.shape))
            if set(node.new_state_shapes()) <= set(parameters):
                new = node.new_state([one.truth for one in given], parameters)
                own_new = {} if own is None else replay.new_state(own)
                for name, state in new.items():
                    self._visit(f"state/{node.name}/{name}", state, own_new.get(name))
        return flows

    def _backward(self, flows: dict[str, _Flow], target: Bounded) -> None:
        last = flows[self._graph.nodes[-1].name]
        own = None if last.own is None else in_use(last.own)
        self._visit("loss", self._loss.forward(last.truth, target),
                    None if own is None else self._loss.forward(own, target))
        parts = {name: _Parts() for name in flows}
        parts[self._graph.nodes[-1].name] = _Parts(
            [self._loss_gradient(last.truth, target)],
            [None if own is None else self._loss_gradient(own, target)])
        for node in reversed(self._graph.nodes):
            dy = self._gradient(f"grads/{node.name}/output", parts[node.name])
            self._operation_backward(node, dy, flows, parts)
        self._gradient("grads/input", parts[INPUT])

    def _loss_gradient(self, y: Bounded, target: Bounded) -> Bounded:
        found: Bounded = self._loss.backward(y, target)
        if not (self._arithmetic.cancels and isinstance(self._loss, MeanSquaredError)):
            return found
        # Of c*y - c*t each product is rounded before they are subtracted
        size = np.abs(y.value) + y.error + np.abs(target.value)
        lost = 4 * self._loss.scale(y.shape) * self._arithmetic.u * size
        return Bounded(found.value, found.error + lost, self._arithmetic)

    def _gradient(self, name: str, parts: _Parts) -> _Flow:
        """The sum over all that take a tensor."""
        own = _known(parts.own)
        flow = self._seen(name, _sum(parts.truth), None if own is None else _sum(own))
        right = sums(parts.sent, self._arithmetic.u) if parts.sent else None
        if right is not None and self._visit_sums is not None:
            self._visit_sums(name, tuple(parts.readers), right)
        return flow

    def _operation_backward(self, node: Operation, dy: _Flow, flows: dict[str, _Flow], parts: dict[str, _Parts]
                            ) -> None:
        given, replay = [flows[name] for name in node.inputs], self._own[node.name]
        truth = node.backward(dy.truth, [one.truth for one in given], replay.parameters)
        own = _known([dy.own, *(one.own for one in given)])
        local = None if own is None else replay.backward(own[0], own[1:])
        for name, gradient in truth[1].items():
            self._visit(f"grads/{node.name}/{name}", gradient, None if local is None else local[1][name])
        for i, name in enumerate(node.inputs):
            parts[name].truth.append(truth[0][i])
            parts[name].own.append(None if local is None else local[0][i])
            if self._visit_sums is not None:
                known = [one.truth for one in given] if own is None else own[1:]
                part, upstream = (truth[0][i], dy.truth) if own is None or local is None else (local[0][i], own[0])
                parts[name].sent.append(sent(node, part, upstream, known))
                parts[name].readers.append(f"grads/{node.name}/output")


def _sum(parts: list[Bounded]) -> Bounded:
    """The gradient of a tensor; of a single reader it is what that sends back."""
    if len(parts) == 1:
        return parts[0]
    found = parts[0].joined(parts[1:])
    found.estimated = any(one.estimated for one in parts)
    return found


def _known(found: list[Bounded | None]) -> list[Bounded] | None:
    """All of them, or None where one is missing."""
    known = [one for one in found if one is not None]
    return known if len(known) == len(found) else None
