# SPDX-License-Identifier: MIT
"""Which operation of a step makes a tensor, and where an element of it stands, in words."""

from __future__ import annotations

from bridge.exchange.model import Conv2d, Model, Shape

#: Axes of weights by the kind of their operation
FILTERS = {"conv2d": "kcrs", "conv_transpose2d": "ckrs", "linear": "kc"}
#: Axes of what is computed for each image, by their number
PER_IMAGE = {2: "nc", 4: "nchw"}


def place(model: Model, name: str, at: Shape) -> str:
    """Return where an element stands, each index with the name of its axis, where that has one.

    >>> model = Model((Conv2d("a", 1, 1, (1, 1)),))
    >>> place(model, "forward/a", (0, 2, 5, 7)), place(model, "grads/a/weight", (0, 2, 1, 1))
    ('(n=0, c=2, h=5, w=7)', '(k=0, c=2, r=1, s=1)')
    >>> place(model, "loss", (0,))
    '(0)'
    """
    names = axes(model, name, len(at))
    named = [f"{axis}={i}" for axis, i in zip(names, at, strict=True)] if names else map(str, at)
    return f"({', '.join(named)})"


def axes(model: Model, name: str, rank: int) -> str:
    """Return a letter for each axis of a tensor, as torch's documentation has them; empty where they have none.

    >>> axes(Model((Conv2d("a", 1, 1, (1, 1)),)), "update/a/bias", 1)
    'k'
    """
    kind, *rest = name.split("/")
    if kind == "forward" or rest[-1:] in (["output"], ["input"]):
        return PER_IMAGE.get(rank, "")
    layer, what = [*rest, "", ""][:2]
    filters = next((FILTERS.get(one.kind, "") for one in model.layers if one.name == layer), "")
    if what == "bias" and filters and rank == 1:
        return "k"
    return filters if what == "weight" and rank == len(filters) else ""


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
