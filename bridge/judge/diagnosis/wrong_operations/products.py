# SPDX-License-Identifier: MIT
"""Linear layers that are wrong."""

from __future__ import annotations

from bridge.judge.diagnosis.wrong_operations.change import Parameters, Wrong, changed
from bridge.operations.products import Linear


def linear(node: Linear) -> Wrong:
    """Yield other weights and biases."""
    if node.bias:
        yield "bias", "no bias", changed(node, forward=lambda xs, w: xs[0] @ w["weight"].transpose((1, 0)))
        yield "bias", "the bias added twice", changed(node, forward=lambda xs, w: node.forward(xs, w) + w["bias"])
    if node.in_features == node.out_features:
        def turned(w: Parameters) -> Parameters:
            return {**w, "weight": w["weight"].transpose((1, 0))}

        yield "in_out_swapped", "the weight transposed", changed(
            node, forward=lambda xs, w: node.forward(xs, turned(w)),
            backward=lambda dy, xs, w: node.backward(dy, xs, turned(w)))
