# SPDX-License-Identifier: MIT
"""torch's recurrent layers: for each layer and direction a linear layer of its input, and the recurrence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from reference.network.aten import image_axis, shapes
from reference.network.aten.writing import Rule, Stored, Tensor, UnsupportedError, Writer, parameter
from reference.network.layers import GATES, Recurrent


def _are_zero(states: Any) -> bool:
    return all(isinstance(one, Stored) and not one.name and not one.value.any() for one in states)


def recurrent(kind: str, relu: bool = False) -> Rule:
    """Return what writes a call of torch's layer: its output, and the last output, or state, of each direction."""
    def rule(w: Writer, x: Tensor, states: Any, weights: Any, biases: bool, layers: int, dropout: float, train: bool,
             bidirectional: bool, batch_first: bool) -> Any:
        if not _are_zero(states if isinstance(states, (list, tuple)) else [states]):
            raise UnsupportedError("a first state other than 0")
        if len(x.shape) != 3 or x.axis != (0 if batch_first else 1):
            raise UnsupportedError(f"an input {x.shape} whose dimension {0 if batch_first else 1} are not the images")
        count = 4 if biases else 2
        if len(weights) != count * layers * (1 + bidirectional):
            raise UnsupportedError("proj_size other than 0")
        w.rewritten()
        y, last = image_axis.images_first(x), []
        for layer in range(layers):
            if layer and train and dropout:
                y = w.add(nn.Dropout(dropout), [y], y.shape, f"dropout_l{layer - 1}")
            found = [_direction(w, y, kind, weights[at * count:(at + 1) * count], f"l{layer}" + "_reverse" * back, relu)
                     for back in range(1 + bidirectional) for at in [layer * (1 + bidirectional) + back]]
            last += [shapes.selected(w, one, 1, 0 if back else -1) for back, one in enumerate(found)]
            y = shapes.concatenated(w, found, 2) if bidirectional else found[0]
        rows = [w.reshape(one, (one.shape[0], 1, *one.shape[1:]), None, "row") for one in last]
        hidden = image_axis.moved_to(shapes.concatenated(w, rows, 1), 1)
        y = y if batch_first else image_axis.moved_to(y, 1)
        return (y, hidden, None) if kind == "lstm" else (y, hidden)

    return rule


def _direction(w: Writer, x: Tensor, kind: str, weights: list[Stored], name: str, relu: bool) -> Tensor:
    """One direction of one layer."""
    of: Any = parameter
    of_input, of_output, *biases = weights
    hidden = of_output.value.shape[1]
    if of_output.value.shape[0] != GATES[kind] * hidden:
        raise UnsupportedError("proj_size other than 0")
    linear = nn.Linear(1, 1)
    linear.out_features, linear.in_features = of_input.value.shape
    linear.weight, linear.bias = of(of_input), of(biases[0] if biases else None)
    shape = (*x.shape[:2], linear.out_features)
    z = w.add(linear, [x], shape, f"ih_{name}", weight=of_input, bias=biases[0] if biases else None)
    layer = Recurrent(kind, hidden, bool(biases), name.endswith("_reverse"), relu)
    layer.weight, layer.bias = of(of_output), of(biases[1] if biases else None)
    return w.add(layer, [z], (*x.shape[:2], hidden), f"hh_{name}", weight=of_output, bias=biases[1] if biases else None)


#: By the names of ATen
RULES: Mapping[str, Rule] = {
    "lstm": recurrent("lstm"), "gru": recurrent("gru"), "rnn_tanh": recurrent("rnn"),
    "rnn_relu": recurrent("rnn", relu=True)}
