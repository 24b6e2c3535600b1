# SPDX-License-Identifier: MIT
"""Graphs of right activations and losses by the formulas of other libraries; autograd makes their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from bridge.operations import elementary, pointwise
from bridge.operations.losses import Huber, MeanSquaredError, SmoothL1
from bridge.operations.operation import Operation as Node
from bridge.validate.self_test.graph_candidate import GraphOperations, Parameters

Tensor = torch.Tensor


def _exp(x: Tensor) -> Tensor:
    """As Triton and CUDA's fast mathematics have it."""
    return torch.exp2(x * math.log2(math.e))


def _sigmoid(x: Tensor) -> Tensor:
    return _with_gradient(1 / (1 + _exp(-x)), x.sigmoid())


def _with_gradient(value: Tensor, right: Tensor) -> Tensor:
    """Numbers with the gradient of others."""
    return value.detach() + (right - right.detach())


def _erf(x: Tensor) -> Tensor:
    """Abramowitz and Stegun, 7.1.26; its derivative is that of the error function."""
    t = 1 / (1 + 0.3275911 * x.abs())
    p = 1.061405429 * t - 1.453152027
    for a in (1.421413741, -0.284496736, 0.254829592):
        p = p * t + a
    return _with_gradient(x.sign() * (1 - p * t * _exp(-x * x)), x.erf())


def _gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + _erf(x * math.sqrt(0.5)))


def _log10(x: Tensor) -> Tensor:
    return x.log2() * math.log10(2)


#: Activations without a hyperparameter
FUNCTIONS: dict[type[Node], Callable[[Tensor], Tensor]] = {
    elementary.Exp: _exp, pointwise.Sigmoid: _sigmoid, pointwise.Silu: lambda x: x * _sigmoid(x),
    pointwise.Gelu: _gelu, elementary.Log10: _log10}


class OtherFormulas(GraphOperations):
    """Exponentials by powers of two, the error function by a polynomial, losses as optax has them, means of means."""

    def forward(self, node: Node, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        function = FUNCTIONS.get(type(node))
        return super().forward(node, inputs, parameters) if function is None else function(inputs[0])

    def loss(self, y: Tensor, target: Tensor) -> Tensor:
        loss, size = self.model.criterion, (y - target).abs()
        if isinstance(loss, MeanSquaredError):
            values = size * size
        elif isinstance(loss, Huber):
            values = _huber(size, loss.delta)
        elif isinstance(loss, SmoothL1) and loss.beta:
            values = _huber(size, loss.beta) / loss.beta
        else:
            return super().loss(y, target)
        return values.mean(1).mean() if loss.mean else values.sum()


def _huber(size: Tensor, delta: float) -> Tensor:
    q = size.minimum(torch.tensor(delta, dtype=size.dtype))
    return 0.5 * q * q + delta * (size - q)
