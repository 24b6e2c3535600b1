# SPDX-License-Identifier: MIT
"""Which operation of a step makes a tensor, and where an element of it stands, in words."""

from __future__ import annotations

from bridge.exchange.model import Model, Shape
from bridge.operations.aten.operation import Aten

#: Axes of weights by the kind of their operation
FILTERS = {"conv2d": "kcrs", "conv_transpose2d": "ckrs", "conv3d": "kcdrs", "conv_transpose3d": "ckdrs", "linear": "kc"}
#: Axes of what is computed for each image, by their number
PER_IMAGE = {2: "nc", 4: "nchw", 5: "ncdhw"}
#: Parameters of a convolution in words
FILTER_PARTS = {"weight": "filter", "bias": "bias"}


def place(model: Model, name: str, at: Shape) -> str:
    """Return where an element stands, each index with the name of its axis, where that has one.

    >>> from bridge.exchange.model import Conv2d
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

    >>> from bridge.exchange.model import Conv2d
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

    >>> from bridge.exchange.model import Conv2d, Relu
    >>> operation(Model((Conv2d("a", 1, 1, (1, 1)), Relu("r"))), "forward/r")
    'the ReLU r (forward)'
    """
    kind, _, rest = name.partition("/")
    if kind in MADE:
        return MADE[kind](model, rest)
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


def _forward(model: Model, name: str) -> str:
    kind = _kinds(model)[name]
    said = {"conv2d": f"the convolution {name} (forward)", "relu": f"the ReLU {name} (forward)"}
    return said.get(kind, f"{name} ({kind}, forward)")


def _state(model: Model, rest: str) -> str:
    layer, _, what = rest.partition("/")
    words = what.replace("running_var", "running variance").replace("_", " ")
    return f"the {words} of {layer} ({_kinds(model)[layer]})"


def _gradient(model: Model, rest: str) -> str:
    """That of a tensor is a sum over all that take it."""
    layer, _, what = rest.partition("/")
    kind = _kinds(model).get(layer)
    if what not in ("", "output"):
        return f"the {FILTER_PARTS[what]} gradient of {layer}" if kind == "conv2d" else (
            f"the {what} gradient of {layer} ({kind})")
    takers = [node for node in model.graph.nodes if layer in node.inputs]
    if not takers:
        return "the gradient of the loss with respect to the output"
    first = takers[0]
    if len(takers) == 1 and first.kind in ("conv2d", "relu"):
        backward = "the data gradient of" if first.kind == "conv2d" else "the backward pass (the mask) of the ReLU"
        return f"{backward} {first.name}"
    return f"the backward pass of {' and '.join(f'{node.name} ({node.kind})' for node in takers)}"


def _kinds(model: Model) -> dict[str, str]:
    return {node.name: ", ".join(node.calls.operations) if isinstance(node, Aten) else node.kind
            for node in model.graph.nodes}


#: What makes the tensors of a step, by the first part of their names
MADE = {"forward": _forward, "state": _state, "grads": _gradient}
