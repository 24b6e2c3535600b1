# SPDX-License-Identifier: MIT
"""What a planted mistake is, and ways to plant one in a right program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from bridge.validate.self_test.graph_candidate import Forward, GraphOperations, Parameters, replaced
from reference.settings import ExportSettings

Tensor = torch.Tensor


@dataclass(frozen=True)
class Mistake:
    """A mistake in a program.

    Attributes
    ----------
    words : what the program does, in a sentence without its point
    kind : the operations of the wrong program
    tensor : the first one that the mistake makes wrong
    said : words of the diagnosis that are this mistake; none: nothing that is said of it is
    step : the first at which it shows
    """

    words: str
    kind: type[GraphOperations]
    tensor: str
    said: str = ""
    step: int = 0


@dataclass(frozen=True)
class Program:
    """A right program, and what may be wrong in it.

    Attributes
    ----------
    name : of the example
    settings : of its fixture: the network in small, two steps
    mistakes : ten of them
    """

    name: str
    settings: ExportSettings
    mistakes: tuple[Mistake, ...] = field(repr=False)


def every(kind: str, change: Forward) -> type[GraphOperations]:
    """Return operations of which all of one kind give ``change(self, node, inputs, parameters)``."""
    def forward(self: GraphOperations, node: Any, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        chosen = change if node.kind == kind else GraphOperations.forward
        return chosen(self, node, inputs, parameters)

    return replaced(forward=forward)


def of_weights(kind: str, change: Callable[[Tensor], Tensor]) -> type[GraphOperations]:
    """Return operations of which all of one kind take another weight."""
    return every(kind, lambda self, node, inputs, p: GraphOperations.forward(
        self, node, inputs, {**p, "weight": change(p["weight"])}))


class _WithGradient(torch.autograd.Function):
    """A result whose gradients come from a formula of its own, for each of the tensors that it is made of."""

    @staticmethod
    def forward(ctx: Any, formula: Callable[..., tuple[Tensor | None, ...]], y: Tensor, *of: Tensor) -> Tensor:
        ctx.formula = formula
        ctx.save_for_backward(*of)
        return y.clone()

    @staticmethod
    def backward(ctx: Any, *dy: Tensor) -> Any:
        return None, None, *ctx.formula(dy[0], *ctx.saved_tensors)


def with_gradient(y: Tensor, formula: Callable[..., tuple[Tensor | None, ...]], *of: Tensor) -> Tensor:
    """Return a result with the gradients that ``formula(dy, *of)`` gives with respect to `of`.

    >>> x = torch.tensor([3.0], requires_grad=True)
    >>> with_gradient(x.detach().square(), lambda dy, x: (dy * x,), x).backward()
    >>> x.grad
    tensor([3.])
    """
    apply: Callable[..., Tensor] = _WithGradient.apply
    return apply(formula, y.detach(), *of)


def attention(mask: Tensor | None = None, dim: int = -1, weigh: Callable[[Tensor], Tensor] | None = None) -> Forward:
    """Return another attention: with a mask of its own, or other weights of the masked scores.

    Parameters
    ----------
    mask : 1 where a row has weights
    dim : along which their sum is 1
    weigh : makes weights of scores, in place of a softmax along `dim`
    """
    def forward(_: GraphOperations, node: Any, inputs: list[Tensor], __: Parameters) -> Tensor:
        q, k, v = inputs
        scores = q @ k.mT * node.factor(q.shape[-1])
        own = torch.ones(scores.shape[-2:]).tril() if node.is_causal else None
        marks = own if mask is None else mask
        if marks is not None:
            scores = scores.masked_fill(marks == 0, -torch.inf)
        found: Tensor = (scores.softmax(dim) if weigh is None else weigh(scores)) @ v
        return found

    return forward


def right(node: Any, inputs: list[Tensor], parameters: Parameters) -> Tensor:
    """Return what the operation is."""
    found: Tensor = node.torch_forward(inputs, parameters)
    return found
