# SPDX-License-Identifier: MIT
"""Faults of KAN layers, of a network of two and of a single one, and of losses that are their criteria."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from bridge.validate.self_test.fixtures import ABSOLUTE, KAN, SMOOTH, SPLINE
from bridge.validate.self_test.graph_candidate import GraphOperations, Parameters, backward, layer
from bridge.validate.self_test.plants.graph_record import loss, loss_gradient, own_gradient, wrong
from bridge.validate.self_test.plants.record import Plant

Tensor = torch.Tensor


def b_splines(x: Tensor, knots: Tensor, order: int) -> Tensor:
    """B-splines on these knots at each number, in a last axis."""
    x = x[..., None]
    found = ((x >= knots[:-1]) & (x < knots[1:])).to(x.dtype)
    for q in range(1, order + 1):
        before = (x - knots[: -q - 1]) / (knots[q:-1] - knots[: -q - 1])
        behind = (knots[q + 1 :] - x) / (knots[q + 1 :] - knots[1:-q])
        found = before * found[..., :-1] + behind * found[..., 1:]
    return found


def _knots(node: Any, moved: float = 0.0) -> Tensor:
    return node.low + node.step * (torch.arange(-node.order, node.grid + node.order + 1) + moved)


def _sum(x: Tensor, splines: Tensor, w: Parameters, base: Callable[[Tensor], Tensor] = functional.silu) -> Tensor:
    scale = w.get("scale_spline", torch.ones_like(w["scale_base"]))
    return base(x) @ w["scale_base"].T + torch.einsum("...ik,oik->...o", splines, w["coefficient"] * scale[..., None])


def other(name: str, of: Callable[[Any, Tensor], Tensor]) -> type[GraphOperations]:
    """A layer of other splines."""
    return layer(name, lambda self, node, inputs, w: _sum(inputs[0], of(node, inputs[0]), w))


def based(name: str, base: Callable[[Tensor], Tensor]) -> type[GraphOperations]:
    """A layer with another function beside the splines."""
    return layer(name, lambda self, node, inputs, w: _sum(
        inputs[0], b_splines(inputs[0], _knots(node), node.order), w, base))


def _with(name: str, change: Callable[[Parameters], Parameters]) -> type[GraphOperations]:
    """A layer with other parameters."""
    return layer(name, lambda self, node, inputs, w: _sum(
        inputs[0], b_splines(inputs[0], _knots(node), node.order), {**w, **change(w)}))


def _lower(node: Any, x: Tensor) -> Tensor:
    """The recursion ends a degree too early."""
    return b_splines(x, _knots(node), node.order - 1)[..., : node.functions]


def _clamped(node: Any, x: Tensor) -> Tensor:
    return b_splines(x.clamp(node.low, node.high - 1e-6), _knots(node), node.order)


def _no_input_gradient(self: GraphOperations, dy: Tensor, inputs: list[Tensor], w: Parameters) -> list[Tensor]:
    return [torch.zeros_like(inputs[0])]


def part_of_gradient(name: str, splines: bool, factor: float = 1.0) -> type[GraphOperations]:
    """The gradient of the input through the splines alone, or the base alone."""
    def formula(self: GraphOperations, dy: Tensor, inputs: list[Tensor], w: Parameters) -> list[Tensor]:
        (node,) = (one for one in self.model.graph.nodes if one.name == name)
        with torch.enable_grad():
            leaf = inputs[0].detach().requires_grad_()
            values = b_splines(leaf, _knots(node), node.order)  # type: ignore[attr-defined]
            y = _sum(leaf, values, w, torch.zeros_like) if splines else functional.silu(leaf) @ w["scale_base"].T
            return [factor * one for one in torch.autograd.grad(y, leaf, dy)]

    return backward(name, formula)


def _without_coefficients(dy: Tensor, x: Tensor, w: Parameters) -> Tensor:
    knots = -2.0 + torch.arange(-2, 7)
    return torch.einsum("...o,...ik->oi", dy, b_splines(x, knots, 2))


def _ones(*names: str) -> Callable[[Parameters], Parameters]:
    return lambda w: {name: torch.ones_like(w[name]) for name in names}


PLANTS: list[Plant] = [
    wrong(50, "knots one interval lower", other("first", lambda node, x: b_splines(
        x, _knots(node, -1.0), node.order)), KAN),
    wrong(50, "knots one interval higher", other("second", lambda node, x: b_splines(
        x, _knots(node, 1.0), node.order)), KAN),
    wrong(50, "the degree one less", other("second", _lower), KAN),
    wrong(50, "no silu beside the splines", based("first", torch.zeros_like), KAN),
    wrong(50, "the features beside the splines", based("second", lambda x: x), KAN),
    wrong(50, "a ReLU beside the splines", based("first", torch.relu), KAN),
    wrong(50, "features beyond the grid moved to its end", other("first", _clamped), KAN),
    wrong(50, "scales of splines ignored", _with("first", _ones("scale_spline")), KAN),
    wrong(50, "scales exchanged", _with("first", lambda w: {
        "scale_base": w["scale_spline"], "scale_spline": w["scale_base"]}), KAN),
    wrong(50, "the gradient of a scale without the coefficients", own_gradient(
        "first", "scale_spline", _without_coefficients), KAN),
    wrong(50, "the gradient of a KAN layer's input zero", backward("second", _no_input_gradient), KAN),
    wrong(50, "the gradient through the silu alone", part_of_gradient("second", False), KAN),
    wrong(50, "the gradient through the splines alone", part_of_gradient("second", True), KAN),
    wrong(3, "inputs before outputs", _with("second", lambda w: {
        name: w[name].transpose(0, 1) for name in ("coefficient", "scale_base")}), KAN),
    wrong(50, "logits for probabilities", loss(functional.binary_cross_entropy_with_logits), KAN),
    wrong(54, "the loss of the target 1 alone", loss(lambda y, t: -(t * y.log()).mean()), KAN),
    wrong(57, "1e-3 in a logarithm", loss(
        lambda y, t: -(t * (y + 1e-3).log() + (1 - t) * (1 - y + 1e-3).log()).mean()), KAN),
    wrong(50, "the gradient of logits for probabilities", loss_gradient(lambda y, t: (y - t) / y.numel()), KAN),
    wrong(50, "the gradient of a single KAN layer's input zero", backward("first", _no_input_gradient), SPLINE),
    wrong(50, "the gradient of a single KAN layer through the silu alone", part_of_gradient("first", False), SPLINE),
    wrong(50, "a single KAN layer of a degree less", other("first", _lower), SPLINE),
    wrong(50, "pos_weight ignored", loss(
        lambda y, t: functional.binary_cross_entropy_with_logits(y, t, reduction="sum")), SPLINE),
    wrong(50, "the sigmoid twice", loss(lambda y, t: functional.binary_cross_entropy_with_logits(
        y.sigmoid(), t, pos_weight=torch.tensor(2.5), reduction="sum")), SPLINE),
    wrong(50, "a squared error for an absolute one", loss(functional.mse_loss), ABSOLUTE),
    wrong(50, "the gradient of a squared error for an absolute one", loss_gradient(
        lambda y, t: 2 * (y - t) / y.numel()), ABSOLUTE),
    wrong(50, "beta 1 in a smooth L1 loss", loss(functional.smooth_l1_loss), SMOOTH),
    wrong(50, "Huber's loss for smooth L1", loss(lambda y, t: functional.huber_loss(y, t, delta=0.5)), SMOOTH),
]
