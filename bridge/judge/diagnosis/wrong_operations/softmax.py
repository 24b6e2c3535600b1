# SPDX-License-Identifier: MIT
"""Probabilities of other axes, and their derivatives."""

from __future__ import annotations

from bridge.judge.diagnosis.wrong_operations.change import Numbers, Parameters, Wrong, backward_only, changed
from bridge.operations.operation import Number
from bridge.operations.softmax import LogSoftmax, Softmax


def over_channels(node: Softmax | LogSoftmax) -> Wrong:
    """Yield other axes, and other derivatives."""
    for axis in (0, 2, 3):
        def other(xs: Numbers, w: Parameters, axis: int = axis) -> Number:
            axes = tuple({1: axis, axis: 1}.get(i, i) for i in range(len(xs[0].shape)))
            return node.forward([xs[0].transpose(axes)], w).transpose(axes) if axis < len(axes) else node.forward(xs, w)

        yield "activation", f"over axis {axis}, not over the channels", changed(node, forward=other)
    yield "activation", "the derivative is missing", backward_only(node, lambda dy, y: dy)
    if isinstance(node, Softmax):
        yield "activation", "y * (1 - y), without the other channels", backward_only(
            node, lambda dy, y: dy * (y * (1.0 - y)))
        yield "activation", "the sum over the channels is missing", backward_only(node, lambda dy, y: dy * y)
    other_kind = LogSoftmax if isinstance(node, Softmax) else Softmax
    yield "activation", f"{other_kind.kind} in its place", other_kind(node.name, inputs=node.inputs)
