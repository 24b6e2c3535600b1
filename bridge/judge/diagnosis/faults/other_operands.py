# SPDX-License-Identifier: MIT
"""The right operation with an operand of another layer, or with its own as it was before a ReLU."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.exchange.model import Conv2d
from bridge.exchange.model import Relu as ReluNode
from bridge.judge.diagnosis.predictions.convolutions import Data, Filter, Forward
from bridge.judge.diagnosis.predictions.elementwise import BiasGradient
from bridge.judge.diagnosis.predictions.hypothesis import Hypotheses, hypothesis
from bridge.judge.diagnosis.predictions.operations import Prediction
from bridge.judge.diagnosis.predictions.step_graph import INPUT, StepGraph

#: Other layers that are tried, the nearest first
MOST = 8


def other_operands(graph: StepGraph, name: str, right: Prediction) -> Hypotheses:
    """Yield a convolution, one of its gradients, or a bias gradient with operands that belong elsewhere.

    Parameters
    ----------
    graph : the step
    name : of the tensor
    right : the operation that should have made it
    """
    own = graph.inputs(name)
    if isinstance(right, Forward | Filter):
        if own[0] != INPUT and _is_relu(graph, own[0]) and _exact(graph, own[0]):
            before = graph.inputs(own[0])[0]
            yield hypothesis("relu", "the input as it was before its ReLU", right.replaced(x=graph.value(before)))
        inputs = [(one, graph.inputs(f"forward/{one}")[0]) for one in _near(graph, name)]
        for layer, other in _tensors(graph, own[0], inputs):
            yield hypothesis("other_layer", f"the input of {layer}", right.replaced(x=graph.value(other)))
    if isinstance(right, Data | Filter | BiasGradient):
        # Where gradients of several layers are added, the tensor's operands are those of all
        dz = f"grads/{right.layer.name}/output" if isinstance(right, Data) else own[-1]
        before, *mask = graph.inputs(dz)
        # In a sum the last input may be that of another part, and back through a layer of other sizes is no mask
        shape = right.dz.value.shape
        if before.startswith("grads/") and mask and graph.pair.shapes[before] == shape and _exact(graph, dz):
            yield hypothesis("mask_missing", "dz as it was before the mask", right.replaced(dz=graph.value(before)))
        every = [(one, f"grads/{one}/output") for one in _near(graph, name)]
        for layer, other in _tensors(graph, dz, every, channels=isinstance(right, BiasGradient)):
            alike = 2 if isinstance(right, BiasGradient) else 4
            if graph.pair.shapes[other][:alike] == shape[:alike]:
                yield hypothesis("other_layer", f"dz of {layer}", right.replaced(dz=graph.value(other)))
    if isinstance(right, Forward | Data):
        yield from _parameters(graph, name, right)


def _parameters(graph: StepGraph, name: str, right: Forward | Data) -> Hypotheses:
    for layer in _near(graph, name):
        if layer == right.layer.name:
            continue
        w, b = graph.weights[f"{layer}/weight"], graph.weights.get(f"{layer}/bias")
        if w.shape == right.w.shape:
            yield hypothesis("other_layer", f"the kernel of {layer}", right.replaced(w=w))
        if isinstance(right, Forward) and b is not None and right.b is not None and b.shape == right.b.shape:
            yield hypothesis("other_layer", f"the bias of {layer}", right.replaced(b=b))


def _near(graph: StepGraph, name: str) -> list[str]:
    """Names of convolutions, those next to a tensor's layer first."""
    names = [layer.name for layer in graph.model.layers]
    own = names.index(name.split("/")[1]) if name != "grads/input" else 0
    layers = [layer.name for layer in graph.model.layers if isinstance(layer, Conv2d)]
    return sorted(layers, key=lambda layer: abs(names.index(layer) - own))[: MOST + 1]


def _tensors(
    graph: StepGraph, own: str, others: list[tuple[str, str]], *, channels: bool = False
) -> Iterator[tuple[str, str]]:
    """Layers and tensors of the same shape (or number of channels) that are known, without the right one."""
    shapes = {INPUT: graph.pair.batch_shape, **graph.pair.shapes}
    end = 2 if channels else 4
    for layer, other in others:
        known = other == INPUT or other in graph.known or graph.given(other)
        if other != own and known and shapes[other][:end] == shapes[own][:end]:
            yield layer, other


def _exact(graph: StepGraph, name: str) -> bool:
    """The file holds the tensor: of one that it lacks it is the ReLU itself that may be wrong."""
    return graph.value(name).error is None


def _is_relu(graph: StepGraph, name: str) -> bool:
    layer = next(layer for layer in graph.model.layers if layer.name == name.split("/")[1])
    return isinstance(layer, ReluNode)
