# SPDX-License-Identifier: MIT
"""How a wrong program of a graph is made: a layer that is another function, or sends other gradients back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bridge.validate.self_test.fixtures import GRAPH
from bridge.validate.self_test.graph_candidate import GraphOperations, Parameters, layer, replaced, train_graph
from bridge.validate.self_test.plants.record import Plant

Tensor = torch.Tensor
#: Of the gradient of a layer's output, its input and its parameters
OfParameter = Callable[[Tensor, Tensor, Parameters], Tensor]


def wrong(kind: int, name: str, operations: type[GraphOperations], setting: str = GRAPH) -> Plant:
    """A wrong program of a graph, with its consequences in everything that follows."""
    return Plant(kind, name, lambda scene: train_graph(scene.fixture, scene.path, operations), setting)


def of(name: str, function: Callable[..., Tensor]) -> type[GraphOperations]:
    """A layer that is another function of its inputs."""
    return layer(name, lambda self, node, inputs, parameters: function(*inputs))


def sends(name: str, *factors: float) -> type[GraphOperations]:
    """A layer that sends each of its inputs a multiple of the gradient that belongs to it."""
    def forward(self: GraphOperations, node: Any, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        given = [factor * x + (1 - factor) * x.detach() if factor != 1 else x
                 for x, factor in zip(inputs, factors, strict=True)]
        return GraphOperations.forward(self, node, given, parameters)

    return layer(name, forward)


def own_gradient(name: str, parameter: str, formula: OfParameter) -> type[GraphOperations]:
    """A parameter's gradient by another formula; that of the layer's input is right."""
    def gradient(self: GraphOperations, of: str, g: Tensor) -> Tensor:
        if of != f"{name}/{parameter}":
            return g
        (source,) = (node.inputs[0] for node in self.model.graph.nodes if node.name == name)
        dy = self.known[name].grad
        assert dy is not None
        return formula(dy, self.known[source].detach(), self.weights).reshape(g.shape)

    return replaced(gradient=gradient)


def loss(formula: Callable[[Tensor, Tensor], Tensor]) -> type[GraphOperations]:
    """Another loss of output and target, and autograd's gradient of it."""
    return replaced(loss=lambda self, y, target: formula(y, target))


def loss_gradient(formula: Callable[[Tensor, Tensor], Tensor]) -> type[GraphOperations]:
    """The right loss, and another gradient of it."""
    def value(self: GraphOperations, y: Tensor, target: Tensor) -> Tensor:
        right = GraphOperations.loss(self, y.detach(), target)
        slope = formula(y.detach(), target)
        return right + ((y - y.detach()) * slope).sum()

    return replaced(loss=value)
