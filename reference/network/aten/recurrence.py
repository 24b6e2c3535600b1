# SPDX-License-Identifier: MIT
"""torch's recurrent layers: for each layer and direction a linear layer of its input, and the recurrence; its cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from reference.network.aten import image_axis, operand_weights, shapes, shared
from reference.network.aten.writing import Rule, Stored, Tensor, UnsupportedError, Writer, parameter, shape_of
from reference.network.layers import GATES, Recurrent

#: Times that are written one by one
MOST_TIMES = 256


def _are_zero(states: list[Any]) -> bool:
    return all(isinstance(one, Stored) and not one.name and not one.value.any() for one in states)


def recurrent(kind: str, relu: bool = False) -> Rule:
    """Return what writes a call of torch's layer: its output, and the last output, and state, of each direction.

    `state`: whether the last state is taken. Then, and where the first output and state are not 0, it is written as
    cells, one for each time.
    """
    def rule(w: Writer, x: Tensor, states: Any, weights: Any, biases: bool, layers: int, dropout: float, train: bool,
             bidirectional: bool, batch_first: bool, *, state: bool = False) -> Any:
        states = list(states) if isinstance(states, (list, tuple)) else [states]
        if len(x.shape) != 3 or x.axis != (0 if batch_first else 1):
            raise UnsupportedError(f"an input {x.shape} whose dimension {0 if batch_first else 1} are not the images")
        count = 4 if biases else 2
        if len(weights) != count * layers * (1 + bidirectional):
            raise UnsupportedError("proj_size other than 0")
        w.rewritten()
        by_cells = state or not _are_zero(states)
        y, last = image_axis.images_first(x), []
        for layer in range(layers):
            if layer and train and dropout:
                y = w.add(nn.Dropout(dropout), [y], y.shape, f"dropout_l{layer - 1}")
            found = []
            for back in range(1 + bidirectional):
                at = layer * (1 + bidirectional) + back
                cells = Cells(kind, relu, weights[at * count:(at + 1) * count], f"l{layer}" + "_reverse" * back)
                if by_cells:
                    y_of, *ends = cells.one_by_one(w, y, [_of_direction(w, one, at) for one in states])
                else:
                    y_of = cells.at_once(w, y)
                    ends = [shapes.selected(w, y_of, 1, 0 if back else -1)]
                found.append(y_of)
                last.append(ends)
            y = shapes.concatenated(w, found, 2) if bidirectional else found[0]
        y = y if batch_first else image_axis.moved_to(y, 1)
        ended = [_of_all(w, list(one)) for one in zip(*last, strict=True)]
        return (y, *ended, *[None] * (1 + (kind == "lstm") - len(ended)))

    return rule


def cell(kind: str, relu: bool = False) -> Rule:
    """Return what writes a call of torch's cell: its output, and its state where it has one."""
    def rule(w: Writer, x: Tensor, states: Any, *weights: Any) -> Any:
        states = list(states) if isinstance(states, (list, tuple)) else [states]
        if len(x.shape) != 2 or x.axis:
            raise UnsupportedError(f"an input {x.shape} whose first dimension are not the images")
        w.rewritten()
        cells = Cells(kind, relu, [one for one in weights if one is not None], "")
        z = operand_weights.linear(w, x, weights[0], weights[2] if len(weights) > 2 else None)
        before = [None if one is None or _are_zero([one]) else _each(w, one) for one in states]
        after = cells.turn(w, z, before)
        return tuple(after) if kind == "lstm" else after[0]

    return rule


def _each(w: Writer, state: Any) -> Tensor:
    """A first state (images, hidden_size), of a cell; of one that all images share, each has it."""
    if isinstance(state, Tensor) and state.images:
        return image_axis.images_first(state)
    shape = shape_of(state)
    return shapes.selected(w, shared.lifted(w, state, shape), 1, 0)


def _of_direction(w: Writer, state: Any, at: int) -> Tensor | None:
    """The first state (images, hidden_size) of a layer's direction, of (directions, images, hidden_size).

    One that all images share was repeated for the example's: what is proved is that the first one is every image's.
    """
    if _are_zero([state]):
        return None
    if not isinstance(state, Tensor) or not state.images:
        shape = shape_of(state)
        return shapes.selected(w, shapes.selected(w, shared.lifted(w, state, shape), 1, at), 1, 0)
    if state.axis != 1:
        raise UnsupportedError(f"a first state {state.shape} whose dimension 1 are not the images")
    return shapes.selected(w, image_axis.images_first(state), 1, at)


def _of_all(w: Writer, last: list[Tensor]) -> Tensor:
    """The last outputs or states of all directions, (directions, images, hidden_size)."""
    rows = [w.reshape(one, (one.shape[0], 1, *one.shape[1:]), None, "row") for one in last]
    return image_axis.moved_to(shapes.concatenated(w, rows, 1), 1)


class Cells:
    """One direction of one layer.

    Parameters
    ----------
    kind, relu : of which layer
    weights : of the input, of the output before, and perhaps the two biases
    name : of the layer and direction
    """

    def __init__(self, kind: str, relu: bool, weights: list[Stored], name: str) -> None:
        self._kind, self._relu, self._name = kind, relu, name
        self._of_input, self._of_output, *self._biases = weights
        self._hidden = self._of_output.value.shape[1]
        if self._of_output.value.shape[0] != GATES[kind] * self._hidden:
            raise UnsupportedError("proj_size other than 0")

    def at_once(self, w: Writer, x: Tensor) -> Tensor:
        """Return the outputs of all times, by a layer of exchange files."""
        of: Any = parameter
        layer = Recurrent(self._kind, self._hidden, bool(self._biases), self._name.endswith("_reverse"), self._relu)
        bias = self._biases[1] if self._biases else None
        layer.weight, layer.bias = of(self._of_output), of(bias)
        return w.add(layer, [self._of_all_inputs(w, x)], (*x.shape[:2], self._hidden), f"hh_{self._name}",
                     weight=self._of_output, bias=bias)

    def one_by_one(self, w: Writer, x: Tensor, before: list[Tensor | None]) -> list[Tensor]:
        """Return the outputs of all times, the last output, and the last state where there is one."""
        times = x.shape[1]
        if times > MOST_TIMES:
            raise UnsupportedError(f"a first state other than 0, or the last state, of {times} times; up to "
                                   f"{MOST_TIMES} are supported")
        z, last, found = self._of_all_inputs(w, x), list(before), []
        is_reverse = self._name.endswith("_reverse")
        for time in reversed(range(times)) if is_reverse else range(times):
            now = self.turn(w, shapes.selected(w, z, 1, time), last)
            last = [*now]
            found.append(now[0])
        return [shapes.stacked(w, found[::-1] if is_reverse else found, 1), *now]

    def turn(self, w: Writer, z: Tensor, before: list[Tensor | None]) -> list[Tensor]:
        """Return output and state of one time from its input's product (n, gates * hidden_size)."""
        if not all(before):
            nothing = w.binary("multiply", shapes.taken(w, z, 1, 0, self._hidden), 0.0)
        h, *c = (one or nothing for one in before)
        bias = self._biases[1] if self._biases else None
        p = operand_weights.linear(w, h, self._of_output, bias)
        if self._kind == "rnn":
            return [w.add(nn.ReLU() if self._relu else nn.Tanh(), [w.binary("add", z, p)], z.shape)]
        if self._kind == "gru":
            (zs, ps) = (shapes.chunked(w, one, 3, 1) for one in (z, p))
            reset, update = (self._gate(w, nn.Sigmoid(), w.binary("add", *pair))
                             for pair in zip(zs[:2], ps[:2], strict=True))
            new = self._gate(w, nn.Tanh(), w.binary("add", zs[2], w.binary("multiply", reset, ps[2])))
            return [w.binary("add", new, w.binary("multiply", update, w.binary("subtract", h, new)))]
        given, kept, proposed, shown = shapes.chunked(w, w.binary("add", z, p), 4, 1)
        new = w.binary("multiply", self._gate(w, nn.Sigmoid(), given), self._gate(w, nn.Tanh(), proposed))
        state = w.binary("add", w.binary("multiply", self._gate(w, nn.Sigmoid(), kept), c[0]), new)
        return [w.binary("multiply", self._gate(w, nn.Sigmoid(), shown), self._gate(w, nn.Tanh(), state)), state]

    @staticmethod
    def _gate(w: Writer, function: nn.Module, x: Tensor) -> Tensor:
        return w.add(function, [x], x.shape)

    def _of_all_inputs(self, w: Writer, x: Tensor) -> Tensor:
        """What the inputs of all times make of the gates."""
        of: Any = parameter
        bias = self._biases[0] if self._biases else None
        linear = nn.Linear(1, 1)
        linear.out_features, linear.in_features = self._of_input.value.shape
        linear.weight, linear.bias = of(self._of_input), of(bias)
        return w.add(linear, [x], (*x.shape[:2], linear.out_features), f"ih_{self._name}", weight=self._of_input,
                     bias=bias)


#: By the names of ATen
RULES: Mapping[str, Rule] = {
    "lstm": recurrent("lstm"), "gru": recurrent("gru"), "rnn_tanh": recurrent("rnn"),
    "rnn_relu": recurrent("rnn", relu=True)}
CELLS: Mapping[str, Rule] = {
    "lstm_cell": cell("lstm"), "gru_cell": cell("gru"), "rnn_tanh_cell": cell("rnn"),
    "rnn_relu_cell": cell("rnn", relu=True)}
