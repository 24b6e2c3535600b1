# SPDX-License-Identifier: MIT
"""The model description of an exchange file, read and checked (docs/exchange-file.md, ``/model``)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from bridge.common.errors import FileError
from bridge.operations.graph import INPUT, Graph
from bridge.operations.hyperparameters import NAME
from bridge.operations.losses import CrossEntropy, Loss, MeanSquaredError, loss_from
from bridge.operations.operation import Operation as Operation
from bridge.operations.operation import Shape as Shape
from bridge.operations.pointwise import Relu as Relu
from bridge.operations.products import Conv2d as Conv2d

Pair = tuple[int, int]

#: Layers of a chain, which the Fortran library computes
Layer = Conv2d | Relu


@dataclass(frozen=True)
class Model:
    """A graph of layers with a loss; often a chain of convolutions and ReLUs with the mean squared error.

    Attributes
    ----------
    layers : in an order of computation
    mean : the loss is a mean, else a sum
    loss : its type, a key of `bridge.operations.losses.LOSSES`, and perhaps settings: "huber delta=0.5"
    inputs : names and shapes of several inputs that lie in the network's one, "x=1,64,64 t="; nothing computes by them

    Examples
    --------
    >>> text = '{"layers": [{"name": "a", "type": "relu"}], "loss": {"type": "mse", "reduction": "sum"}}'
    >>> [layer.kind for layer in Model.from_json(text).layers]
    ['relu']
    """

    layers: tuple[Operation, ...]
    mean: bool = True
    loss: str = MeanSquaredError.kind
    inputs: str = field(default="", compare=False)

    @classmethod
    def from_json(cls, text: str) -> Model:
        """Read the text of ``/model``.

        Raises
        ------
        FileError
            If the text is not JSON, a layer or a key is unknown, or a name is not allowed.
        """
        try:
            content = json.loads(text, object_pairs_hook=_unique)
        except (json.JSONDecodeError, RecursionError) as error:
            raise FileError(f"model description: not JSON ({error})") from None
        if not isinstance(content, dict) or not isinstance(content.get("layers"), list) or not content["layers"]:
            raise FileError("model description: layers is missing or empty, expected an array of layers")
        _only_keys("the model", content, {"layers", "loss"})
        layers = tuple(_layer(entry) for entry in content["layers"])
        names = [layer.name for layer in layers]
        if len(set(names)) != len(names):
            raise FileError("model description: two layers have the same name")
        loss = content.get("loss")
        if not isinstance(loss, dict) or loss.get("type") != "mse" or loss.get("reduction") not in ("mean", "sum"):
            raise FileError(f"model description: loss is {loss}, expected mse with the reduction mean or sum")
        _only_keys("loss", loss, {"type", "reduction"})
        return cls(layers, loss["reduction"] == "mean")

    def joined(self) -> Model:
        """Return the same model, whose layers say whose outputs they take."""
        return replace(self, layers=self.graph.nodes)

    @cached_property
    def graph(self) -> Graph:
        """Return the layers joined and checked; raises `FileError` where they do not fit together."""
        return Graph(self.layers)

    @cached_property
    def sample_rank(self) -> int | None:
        """Return how many dimensions one sample has that torch takes without a batch: 3 for an image (c, h, w), 4 for
        a volume, 1 for a vector. None where it takes none, or would compute something else than for a batch of one.

        >>> Model((Conv2d("a", 1, 1, (3, 3)), Relu("r"))).sample_rank
        3
        """
        found = {layer.sample_rank for layer in self.layers} - {0}
        # Of (c, h, w) torch's cross entropy takes c for the images and h for the classes
        if (found in ({3}, {4}) and not isinstance(self.criterion, CrossEntropy)) or found == {1}:
            return found.pop()
        return None

    @cached_property
    def criterion(self) -> Loss:
        """Return the loss; raises `FileError` where there is none of that name or with these settings."""
        return loss_from(self.loss, self.mean)

    @property
    def convolutions(self) -> tuple[Conv2d, ...]:
        """Return the convolutions, which are all that has parameters in a chain."""
        return tuple(layer for layer in self.layers if isinstance(layer, Conv2d))

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes by name, ``conv1/weight``, ``conv1/bias``, ..., in the order of the layers."""
        shapes: dict[str, tuple[int, ...]] = {}
        for layer in self.layers:
            shapes |= {f"{layer.name}/{name}": shape for name, shape in layer.parameter_shapes().items()}
        return shapes

    def output_shapes(self, shape: Shape) -> list[Shape]:
        """Return the shape of every layer's output for an input (n, c, h, w)."""
        shapes = {INPUT: shape}
        before = INPUT
        for layer in self.layers:
            shapes[layer.name] = layer.output_shape(*(shapes[name] for name in layer.inputs or (before,)))
            before = layer.name
        return [shapes[layer.name] for layer in self.layers]


def _layer(entry: object) -> Layer:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise FileError(f"model description: a layer is {entry!r}, expected an object with a name")
    name = entry["name"]
    if not NAME.fullmatch(name) or name == "input":
        raise FileError(f"model description: layer name {name!r} is not allowed "
                        "(1 to 64 letters, digits, '_', '.', '-'; not 'input')")
    kind = entry.get("type")
    if kind == "relu":
        _only_keys(f"layer {name}", entry, {"name", "type"})
        return Relu(name)
    if kind != "conv2d":
        raise FileError(f"model description: layer {name} has type {kind!r}, expected conv2d or relu")
    return _conv2d(name, entry)


def _conv2d(name: str, entry: dict[str, Any]) -> Conv2d:
    _only_keys(f"layer {name}", entry, set(Conv2d.__dataclass_fields__) - {"inputs"} | {"type"})
    bias = entry.get("bias")
    if not isinstance(bias, bool):
        raise FileError(f"model description: layer {name} has bias {bias!r}, expected true or false")
    layer = Conv2d(
        name,
        _integer(name, entry, "in_channels", 1),
        _integer(name, entry, "out_channels", 1),
        _pair(name, entry, "kernel_size", 1, None),
        _pair(name, entry, "stride", 1, (1, 1)),
        _pair(name, entry, "padding", 0, (0, 0)),
        _pair(name, entry, "dilation", 1, (1, 1)),
        _integer(name, entry | {"groups": entry.get("groups", 1)}, "groups", 1),
        bias,
    )
    if layer.in_channels % layer.groups or layer.out_channels % layer.groups:
        raise FileError(f"model description: layer {name} has {layer.in_channels} and {layer.out_channels} "
                        f"channels, expected multiples of groups = {layer.groups}")
    return layer


def _only_keys(what: str, entry: dict[str, Any], known: set[str]) -> None:
    """An unknown key might change what is computed: it is refused."""
    if unknown := sorted(set(entry) - known):
        raise FileError(f"model description: {what} has the unknown key {unknown[0]!r}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON readers differ in which of two equal keys they take: neither is taken."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise FileError("model description: a key stands twice in one object")
    return found


def _integer(name: str, entry: dict[str, Any], key: str, lowest: int) -> int:
    value = entry.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= 65536:
        raise FileError(f"model description: layer {name} has {key} {value!r}, "
                        f"expected an integer from {lowest} to 65536")
    return value


def _pair(name: str, entry: dict[str, Any], key: str, lowest: int, default: Pair | None) -> Pair:
    value = entry.get(key, default)
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise FileError(f"model description: layer {name} has {key} {value!r}, expected [height, width]")
    first, second = (_integer(name, {key: item}, key, lowest) for item in value)
    return (first, second)
