# SPDX-License-Identifier: MIT
"""Which operation of a step makes a tensor, in words."""

from __future__ import annotations

from bridge.exchange.model import Conv2d, Model


def operation(model: Model, name: str, step: int = 0) -> str:
    """Return the operation that makes a tensor, in words; `step` tells first weights from later ones.

    >>> from bridge.exchange.model import Relu
    >>> operation(Model((Relu("r"),)), "forward/r")
    'the ReLU r (forward)'
    """
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
        "weights": "how the weights are read: the candidate did not start from the fixture's",
        "optimizer": "the optimiser: the new weights do not follow from the candidate's own gradients",
        "update": "the update: the weights moved by something else than the gradient",
    }[kind]


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
