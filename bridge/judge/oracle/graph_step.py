# SPDX-License-Identifier: MIT
"""One training step of a graph of operations in float64, with bounds; for chains see `bridge.judge.oracle.step`.

The formulas are the operations' own (`bridge.operations`). Each tensor comes twice: as the whole step gives it, with
the errors of everything before it, and, where the candidate's file holds the inputs of the operation, as these give it,
with nothing but the rounding of that operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from bridge.judge.oracle import pieces
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.choices import Sent, Sums, sent, sums
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.from_own import FromOwn, in_use, paths_of_itself
from bridge.operations.graph import INPUT, Graph
from bridge.operations.losses import Loss, MeanSquaredError
from bridge.operations.operation import Operation

Array = np.ndarray
Peek = Callable[[str], Array | None]
#: In place of a tensor of the candidate that nothing can be computed from
UNUSABLE = np.array(np.nan)


class Visitor(Protocol):
    """Receives every tensor of a step."""

    def __call__(self, name: str, truth: Bounded, local: Bounded | None, /) -> Array | None:
        """Take a tensor by its name under /steps/<k>; give back the candidate's own, None where its file lacks it, and
        `UNUSABLE` where it is not finite.

        `local` is what the candidate's own tensors give; `lacking` of it has the names of those between that the file
        lacks. It is None where one of the tensors cannot be used.
        """


class SumsVisitor(Protocol):
    """Receives the sums of gradients that operations send to a number that they choose."""

    def __call__(self, name: str, readers: tuple[str, ...], right: Sums, /) -> None:
        """Take the sums of a tensor that was shown before, and the names of the gradients that they follow from."""


@dataclass
class _Flow:
    """What of a tensor is known: by the oracle, and the candidate's own, or what follows from its others where its file
    lacks this one; that is the oracle's itself where it lacks all before, too.
    """

    truth: Bounded
    own: Bounded | None
    #: absolute value of what was added last to make it
    term: Array | float = 0.0

    @property
    def is_oracles(self) -> bool:
        """Return whether the candidate's own numbers are nowhere in it."""
        return self.own is self.truth


@dataclass
class _Parts:
    """Gradients of one tensor from all that take it, as `flows` of their own.

    `sent` says of each, from the candidate's tensors where these are known, how much of it there is; `readers` is where
    it comes from.
    """

    flows: list[_Flow] = field(default_factory=list)
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
    peek : gives a tensor of the candidate by its name before it is visited, None where its file lacks it or it is not
        finite: an operation that follows itself is replayed from its own output
    """

    def __init__(self, graph: Graph, loss: Loss, parameters: Mapping[str, Array], arithmetic: Arithmetic,
                 visit: Visitor, visit_sums: SumsVisitor | None = None, peek: Peek = lambda name: None) -> None:
        self._graph, self._loss, self._arithmetic = graph, loss, arithmetic
        self._visit, self._visit_sums, self._peek = visit, visit_sums, peek
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

    def _seen(self, name: str, truth: Bounded, local: Bounded | None, given: list[_Flow]) -> _Flow:
        """Show a tensor that follows from others, and return what is known of it."""
        found = self._visit(name, truth, local)
        if found is UNUSABLE or (found is None and local is None):
            return _Flow(truth, None)
        if found is not None:
            return _Flow(truth, self._exact(found))
        if all(one.is_oracles for one in given):
            truth = _lacking(truth, given, name)
            return _Flow(truth, truth)
        return _Flow(truth, None if local is None else _lacking(local, given, name))

    def _forward(self, x: Array) -> dict[str, _Flow]:
        exact = self._exact(x)
        flows = {INPUT: _Flow(exact, exact)}
        for node in self._graph.nodes:
            given, replay = [flows[name] for name in node.inputs], self._own[node.name]
            own, parameters = _known(given), replay.parameters
            truth = pieces.forward(node, [one.truth for one in given], parameters)
            local = None
            if own is not None:
                same = _nothing_new(given)
                itself = {} if same else self._of_itself(node)
                local = _lacking(truth if same else replay.forward(own, [one.term for one in given], itself), given)
            flow = flows[node.name] = self._seen(f"forward/{node.name}", truth, local, given)
            if own is not None and not flow.is_oracles:
                flow.term = replay.last_term(own, len(truth.shape))
            if set(node.new_state_shapes()) <= set(parameters):
                new = node.new_state([one.truth for one in given], parameters)
                own_new = {} if own is None else replay.new_state(own)
                for name, state in new.items():
                    local = None if own is None else _lacking(own_new[name], given)
                    self._visit(f"state/{node.name}/{name}", state, local)
        return flows

    def _of_itself(self, node: Operation) -> dict[str, Bounded]:
        """What the candidate's file has of an operation that follows itself."""
        known = {name: self._peek(path) for name, path in paths_of_itself(self._graph, node).items()}
        return {name: self._exact(one) for name, one in known.items() if one is not None}

    def _backward(self, flows: dict[str, _Flow], target: Bounded) -> None:
        last = flows[self._graph.nodes[-1].name]
        truth, local = self._loss.forward(last.truth, target), None
        if last.own is not None:
            local = _lacking(truth if _nothing_new([last]) else self._loss.forward(in_use(last.own), target), [last])
        self._visit("loss", truth, local)
        parts = {name: _Parts() for name in flows}
        truth, local = self._loss_gradient(last.truth, target), None
        if last.own is not None:
            truth = _lacking(truth, [last])
            local = truth if _nothing_new([last]) else _lacking(self._loss_gradient(in_use(last.own), target), [last])
        parts[self._graph.nodes[-1].name] = _Parts([_Flow(truth, local)])
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
        truth, own = _sum([one.truth for one in parts.flows]), _known(parts.flows)
        local = None
        if own is not None:
            local = _lacking(truth if _nothing_new(parts.flows) else _sum(own), parts.flows)
        flow = self._seen(name, truth, local, parts.flows)
        right = sums(parts.sent, self._arithmetic.u) if parts.sent else None
        if right is not None and self._visit_sums is not None:
            self._visit_sums(name, tuple(parts.readers), right)
        return flow

    def _operation_backward(self, node: Operation, dy: _Flow, flows: dict[str, _Flow], parts: dict[str, _Parts]
                            ) -> None:
        given, replay = [dy, *(flows[name] for name in node.inputs)], self._own[node.name]
        truth = pieces.backward(node, dy.truth, [one.truth for one in given[1:]], replay.parameters)
        own, local = _known(given), None
        if own is not None:
            local = truth if _nothing_new(given) else replay.backward(own[0], own[1:], self._of_itself(node))
        for name, gradient in truth[1].items():
            # Where its terms are in the file, that says more
            alone = name == "bias" and not node.follows_itself
            if alone and (own is None or any(one.lacking for one in own)):
                gradient.alone = replay.sum_alone(dy.truth, gradient.shape)
            self._visit(f"grads/{node.name}/{name}", gradient,
                        None if local is None else _lacking(local[1][name], given))
        for i, name in enumerate(node.inputs):
            known = None if local is None else _lacking(local[0][i], given)
            part = known if known is not None and local is truth else truth[0][i]
            parts[name].flows.append(_Flow(part, known))
            if self._visit_sums is not None:
                back = [one.truth for one in given] if own is None else own
                parts[name].sent.append(sent(node, part if known is None else known, back[0], back[1:]))
                parts[name].readers.append(f"grads/{node.name}/output")


def _nothing_new(given: list[_Flow]) -> bool:
    """Whether the candidate's file lacks all that these follow from, so that the oracle has computed it already."""
    return all(one.is_oracles for one in given) and any(one.truth.lacking for one in given)


def _lacking(found: Bounded, given: list[_Flow], *names: str) -> Bounded:
    """The same, which follows from these, and knows which tensors the candidate's file lacks between."""
    between = dict.fromkeys(name for one in given if one.own is not None for name in one.own.lacking)
    if not (between or names):
        return found
    made = Bounded(found.value, found.error, found.arithmetic, found.terms)
    made.estimated, made.lacking = found.estimated, (*between, *names)
    return made


def _sum(parts: list[Bounded]) -> Bounded:
    """The gradient of a tensor; of a single reader it is what that sends back."""
    if len(parts) == 1:
        return parts[0]
    found = parts[0].joined(parts[1:])
    found.estimated = any(one.estimated for one in parts)
    return found


def _known(found: list[_Flow]) -> list[Bounded] | None:
    """The candidate's own of all of them, or None where one is missing."""
    known = [one.own for one in found if one.own is not None]
    return known if len(known) == len(found) else None
