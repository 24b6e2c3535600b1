# SPDX-License-Identifier: MIT
"""Which operation of a step makes a tensor, in words."""

from __future__ import annotations

from bridge.exchange.model import Conv2d, Model


def operation(model: Model, name: str, step: int = 0) -> str:
    """Return the operation that makes a tensor, in words; `step` tells first weights from later ones.

    >>> from bridge.exchange.model import Relu
    >>> operation(Model((Conv2d("a", 1, 1, (1, 1)), Relu("r"))), "forward/r")
    'the ReLU r (forward)'
    """
    if not model.is_chain and name.startswith(("forward/", "state/", "grads/")):
        return _in_graph(model, name)
    kind, _, rest = name.partition("/")
    layers = {layer.name: layer for layer in model.layers}
    if kind == "forward":
        layer = layers[rest]
        return f"the {'convolution' if isinstance(layer, Conv2d) else 'ReLU'} {rest} (forward)"
    if kind == "grads":
        return _backward_operation(model, rest)
    if kind == "weights" and step > 0:
        return "the update of the step before"
    return {
        "loss": "the loss",
        "masks": "how a dropout draws its mask",
        "weights": "how the weights are read, and when they are written: the file's first ones are not the fixture's",
        "optimizer": "the optimiser: the new weights do not follow from the candidate's own gradients",
        "memory": "the optimiser: what it remembers after the step does not follow from what it did before",
        "update": "the update: the weights moved by something else than the gradient",
    }[kind]


def _in_graph(model: Model, name: str) -> str:
    """Of an operation of any kind; a gradient is a sum over all that take the tensor."""
    kinds = {node.name: node.kind for node in model.graph.nodes}
    kind, _, rest = name.partition("/")
    if kind == "forward":
        return f"{rest} ({kinds[rest]}, forward)"
    layer, _, what = rest.partition("/")
    if kind == "state":
        return f"the {what.replace('running_var', 'running variance').replace('_', ' ')} of {layer} ({kinds[layer]})"
    if what not in ("", "output"):
        return f"the {what} gradient of {layer} ({kinds[layer]})"
    takers = [f"{node.name} ({node.kind})" for node in model.graph.nodes if layer in node.inputs]
    if not takers:
        return "the gradient of the loss with respect to the output"
    return f"the backward pass of {' and '.join(takers)}"


def _backward_operation(model: Model, rest: str) -> str:
    names = [layer.name for layer in model.layers]
    if rest == "input":
        following = model.layers[0]
    else:
        layer, _, what = rest.partition("/")
        if what == "weight":
            return f"the filter gradient of {layer}"
        if what == "bias":
            return f"the bias gradient of {layer}"
        if layer == names[-1]:
            return "the gradient of the loss with respect to the output"
        following = model.layers[names.index(layer) + 1]
    if isinstance(following, Conv2d):
        return f"the data gradient of {following.name}"
    return f"the backward pass (the mask) of the ReLU {following.name}"
