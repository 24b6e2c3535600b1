# SPDX-License-Identifier: MIT
"""Torch modules to graphs of operations, by `reference.network.reading`, and back.

torch is imported only when one of these is called, and with it `reference`, which reads torch's modules for both sides.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bridge.common.errors import ArgumentError, FileError
from bridge.engine.library import extension
from bridge.exchange.model import Conv2d, Model
from bridge.operations import OPERATIONS, Operation
from bridge.operations.hyperparameters import described
from bridge.operations.joins import Flatten
from bridge.operations.pointwise import Pointwise
from bridge.operations.products import ConvTranspose2d, Linear
from bridge.operations.rearrangement import Reshape
from bridge.operations.reductions import Reduction
from bridge.operations.spline import Spline
from bridge.operations.table import rows

if TYPE_CHECKING:
    from torch import nn

    from reference.inputs import Inputs as Inputs
    from reference.inputs import Several as Several
    from reference.network.layers import Layers

Shape = tuple[int, ...]

#: Dimensions of an image (c, h, w), and of a volume (c, d, h, w)
IMAGE, VOLUME = 3, 4
#: Numbers in an example of which as many images are run as it has
FEW = 2**16
#: Sides of images that are tried where no shape of the input is given
SIDES = (*range(16, 65), *range(15, 0, -1), *range(72, 257, 8), 299, 320, 384, 448, 512)


def read_graph(module: nn.Module, loss: str, mean: bool, shape: Shape | Several | None,
               output: int | str | None = None) -> tuple[Model, Layers]:
    """Return the model that a module is, and its layers of torch by name, copies on the CPU.

    Parameters
    ----------
    module : what consists of the operations of `bridge.operations`
    loss, mean : of the model
    shape : of an input that the model takes, with which torch.export reads what torch.fx cannot; None looks for one;
        shapes of several inputs
    output : which one, where it gives several

    Raises
    ------
    ArgumentError
        If it cannot be traced, holds what is no operation, or does anything that its layers do not.
    """
    from reference.errors import InputError
    from reference.inputs import is_several, of_example
    from reference.network.hyperparameters import hyperparameters
    from reference.network.reading import read

    models: list[Model] = []
    inputs: Inputs | None = None
    example: Shape | None = None

    def shapes(layers: Layers) -> list[Shape]:
        try:
            nodes = [described(OPERATIONS[kind], name, layers.inputs[name], found)
                     for name, layer in layers for kind, found in [hyperparameters(name, layer)]]
            for node, (name, layer) in zip(nodes, layers, strict=True):
                _check_shapes(name, node, layer)
            models.append(Model(tuple(nodes), mean, loss, "" if inputs is None else inputs.text))
            return _shapes_of_proof(models[-1], example)
        except FileError as error:
            raise InputError(str(error)) from None

    # One array says its shape; several say which of them are integers
    shape = getattr(shape, "shape", shape)
    try:
        if shape is not None and is_several(shape):
            inputs, count = of_example(module.forward, shape)
            example = (count, inputs.numbers)
        elif shape is not None:
            example = tuple(shape)  # type: ignore[arg-type]
        layers = read(module, shapes, example, output=output, inputs=inputs)
    except InputError as error:
        raise ArgumentError(f"module: {error}") from None
    return models[-1], layers


def several_inputs(text: str) -> Inputs | None:
    """Return names and shapes of a model's several inputs, or None where it has one.

    Raises
    ------
    ArgumentError
        If the text says something else.
    """
    if not text:
        return None
    from reference.errors import InputError
    from reference.inputs import Inputs

    try:
        return Inputs.of_text(text)
    except InputError as error:
        raise ArgumentError(f"model: {error}") from None


def packed(inputs: Inputs | None, given: Any, real: Callable[[str, Any], Any]) -> Any:
    """Return several inputs as the array in which they lie; what a network of one is given stays as it is.

    Parameters
    ----------
    real : makes real numbers of an array of integers, of a name, before it lies beside others

    Raises
    ------
    ArgumentError
        If one is missing, unknown, or of another shape.
    """
    if inputs is None or hasattr(given, "ndim"):
        given = real("input", given)
    if inputs is None:
        return given
    from reference.errors import InputError

    if isinstance(given, Mapping):
        given = {name: real(f"input '{name}'", one) for name, one in given.items()}
    elif not hasattr(given, "ndim"):
        names = itertools.chain(inputs.names, itertools.repeat("?"))
        given = [real(f"input '{name}'", one) for name, one in zip(names, given, strict=False)]
    try:
        return inputs.packed(given)
    except InputError as error:
        raise ArgumentError(str(error)) from None


def image_channels(module: nn.Module) -> int:
    """Return the channels of the images that a module takes, as far as its layers say it."""
    from reference.model import channels_of

    return channels_of(module)


def _shapes_of_proof(model: Model, example: Shape | None) -> list[Shape]:
    """Two numbers of small images, of two sizes if the model takes two; of one sample alone, if it was given so."""
    from reference.network.proof import sizes, volumes

    given = _shape_for(model) if example is None else tuple(example)
    extension.check_shape("example", given, extension.DIMENSIONS)
    alone = len(given) == model.sample_rank
    batch, *sample = (2, *given) if alone else given
    model.output_shapes((batch, *sample))

    def fits(*size: int) -> bool:
        try:
            model.output_shapes((2, sample[0], *size))
        except FileError:
            return False
        return True

    found: Sequence[Sequence[int]] = [sample]
    if len(sample) == IMAGE:
        found = [(sample[0], *size) for size in sizes(fits, (sample[1], sample[2]))]
    elif len(sample) == VOLUME:
        found = [(sample[0], *size) for size in volumes(fits, (sample[1], sample[2], sample[3]))]
    if alone:
        # What a function of torch takes alone it may not take in batches
        return [tuple(one) for one in found]
    few = batch if math.prod(given) <= FEW else 2
    return [(few, *found[0]), (few + 1, *found[-1])]


def _check_shapes(name: str, node: Operation, layer: nn.Module) -> None:
    """Parameters may have been replaced by others, by which torch computes whatever the layer says of itself."""
    found = {kind: tuple(value.shape) for kind, value in layer.named_parameters()}
    if found != node.parameter_shapes():
        raise FileError(f"layer {name!r} has parameters of the shapes {found}, expected {node.parameter_shapes()}")


def _shape_for(model: Model) -> Shape:
    """A shape of an input that every layer can work on, with square images."""
    reason: FileError | None = None
    for shape in _shapes(model):
        try:
            model.output_shapes(shape)
        except FileError as error:
            reason = reason or error
            continue
        return shape
    raise FileError(f"no input with square images fits ({reason}), expected the shape of one: example=(n, c, h, w)")


def _shapes(model: Model) -> Iterator[Shape]:
    """For the layer that takes the input first, and for a linear one behind a flatten."""
    features = next((one.in_features for one in model.layers if isinstance(one, (Linear, Spline))), 1)
    channels = next((one.in_channels for one in model.layers if isinstance(one, (Conv2d, ConvTranspose2d))), 1)
    if not any(isinstance(one, (Conv2d, ConvTranspose2d)) for one in model.layers):
        yield 2, features
    for side in SIDES:
        yield 2, channels, side, side


def make_graph(model: Model, dtype: str) -> tuple[nn.Module, dict[str, nn.Module]]:
    """Return a module with the layers of a model, which has no values yet, and these by name.

    Where each layer takes the one before, it is a ``Sequential``.
    """
    import torch
    from torch import nn

    class Graph(nn.Module):
        """Layers that take the outputs of any before them."""

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            known = {"input": input}
            for layer in model.graph.nodes:
                part = self._modules[layer.name]
                assert part is not None
                known[layer.name] = part(*(known[name] for name in layer.inputs))
            return known[model.layers[-1].name]

    layers = {layer.name: _maker(model, layer)(layer).to(getattr(torch, dtype)) for layer in model.layers}
    for layer in model.layers:
        layers[layer.name].train(bool(vars(layer).get("training", True)))
    before = ("input", *layers)
    in_sequence = all(node.inputs == (one,) for node, one in zip(model.graph.nodes, before, strict=False))
    graph: nn.Module = nn.Sequential() if in_sequence else Graph()
    # not add_module, which refuses the dots of nested names
    graph._modules.update(layers)
    return graph, layers


def _maker(model: Model, layer: Operation) -> Callable[[Any], nn.Module]:
    """What makes a layer: torch has one normalisation for images and one for volumes."""
    of_volumes = layer.kind == "batch_norm2d" and _is_near(model, layer, rows("volumes").keys())
    return _batch_norm_3d if of_volumes else _MAKERS[layer.kind]


def _is_near(model: Model, layer: Operation, kinds: Collection[str]) -> bool:
    """Whether one of these operations is before or behind a layer, with nothing between that gives another shape."""
    nodes = model.graph.nodes
    if not any(one.kind in kinds for one in nodes):
        return False
    found, new = {layer.name}, [layer]
    while new:
        one = new.pop()
        near = [other for other in nodes if other.name not in found and (
            other.name in one.inputs or one.name in other.inputs)]
        if any(other.kind in kinds for other in near):
            return True
        found |= {other.name for other in near}
        new += [other for other in near if not isinstance(other, (Reshape, Flatten, Reduction))]
    return False


def _nn() -> Any:
    """torch.nn, which is there when a module is made."""
    from torch import nn

    return nn


def _joined(operation: Operation) -> nn.Module:
    """A module of what torch has no layer for."""
    from torch import nn

    class Joined(nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return operation.torch_forward(inputs, {})

        def extra_repr(self) -> str:
            return operation.kind

    return Joined()


def _convolution(name: str) -> Callable[[Any], nn.Module]:
    def make(a: Any) -> nn.Module:
        more = {"output_padding": a.output_padding} if name.startswith("ConvTranspose") else {}
        made: nn.Module = getattr(_nn(), name)(a.in_channels, a.out_channels, a.kernel_size, a.stride, a.padding,
                                               dilation=a.dilation, groups=a.groups, bias=a.bias, **more)
        return made

    return make


def _batch_norm(a: Any, dimensions: int = 2) -> nn.Module:
    made: nn.Module = getattr(_nn(), f"BatchNorm{dimensions}d")(
        a.num_features, a.eps, a.momentum, track_running_stats=a.track_running_stats)
    return made


def _layers() -> Any:
    """Those that torch has not, of `reference`."""
    from reference.network import layers

    return layers


def _batch_norm_3d(a: Any) -> nn.Module:
    return _batch_norm(a, 3)


def _spline(a: Spline) -> nn.Module:
    from reference.spline import Spline as Layer

    return Layer(a.in_features, a.out_features, a.grid, a.order, a.low, a.high, a.scale_spline)


def _pointwise(a: Pointwise) -> nn.Module:
    from reference.network.pointwise import LAYERS

    layer, names = LAYERS[a.kind]
    return layer(*(getattr(a, name) for name in names))


#: How torch calls each operation
_MAKERS: Mapping[str, Callable[[Any], nn.Module]] = {
    **dict.fromkeys(("add", "amax", "amin", "circular_pad", "concat", "constant_pad", "divide", "expand", "flip",
                     "matmul", "max", "mean", "min", "multiply", "permute", "roll", "slice", "subtract", "sum",
                     "transpose"), _joined),
    "attention": lambda a: _layers().Attention(a.is_causal, a.scale),
    "avg_pool2d": lambda a: _nn().AvgPool2d(a.kernel_size, a.stride, a.padding, a.ceil_mode, a.count_include_pad,
                                            a.divisor_override or None),
    "avg_pool3d": lambda a: _nn().AvgPool3d(a.kernel_size, a.stride, a.padding),
    "batch_norm2d": _batch_norm,
    "conv2d": _convolution("Conv2d"), "conv_transpose2d": _convolution("ConvTranspose2d"),
    "conv3d": _convolution("Conv3d"), "conv_transpose3d": _convolution("ConvTranspose3d"),
    "adaptive_avg_pool2d": lambda a: _nn().AdaptiveAvgPool2d(a.output_size),
    "adaptive_avg_pool3d": lambda a: _nn().AdaptiveAvgPool3d(a.output_size),
    "adaptive_max_pool2d": lambda a: _nn().AdaptiveMaxPool2d(a.output_size),
    "complex_linear": lambda a: _layers().ComplexLinear(a.in_channels, a.out_channels, a.places),
    "dropout": lambda a: _nn().Dropout(a.p), "dropout2d": lambda a: _nn().Dropout2d(a.p),
    "embedding": lambda a: _layers().Embedding(a.num_embeddings, a.embedding_dim, a.padding_idx),
    "flatten": lambda a: _nn().Flatten(),
    "gather_rows": lambda a: _layers().GatherRows(a.padding_idx),
    "global_avg_pool2d": lambda a: _nn().AdaptiveAvgPool2d(1),
    "gru": lambda a: _layers().Recurrent("gru", a.hidden_size, a.bias, a.reverse),
    "group_norm": lambda a: _nn().GroupNorm(a.num_groups, a.num_channels, a.eps, a.affine),
    "index_select": lambda a: _layers().IndexSelect(a.dim, a.indices),
    "interpolate": lambda a: _nn().Upsample(
        a.size if any(a.size) else None, None if any(a.size) else a.scale_factor, a.mode,
        a.align_corners if a.degree else None),
    "layer_norm": lambda a: _nn().LayerNorm(a.normalized_shape, a.eps, a.elementwise_affine, a.bias),
    "linear": lambda a: _nn().Linear(a.in_features, a.out_features, a.bias),
    "lstm": lambda a: _layers().Recurrent("lstm", a.hidden_size, a.bias, a.reverse),
    "log_softmax": lambda a: _nn().LogSoftmax(a.dim),
    "max_pool2d": lambda a: _nn().MaxPool2d(a.kernel_size, a.stride, a.padding, a.dilation, ceil_mode=a.ceil_mode),
    "max_pool3d": lambda a: _nn().MaxPool3d(a.kernel_size, a.stride, a.padding),
    "parameter": lambda a: _layers().Parameter(a.shape),
    "pixel_shuffle": lambda a: _nn().PixelShuffle(a.upscale_factor),
    "pixel_unshuffle": lambda a: _nn().PixelUnshuffle(a.downscale_factor),
    "prelu": lambda a: _nn().PReLU(a.num_parameters),
    "reflection_pad2d": lambda a: _nn().ReflectionPad2d(a.padding),
    "rnn": lambda a: _layers().Recurrent("rnn", a.hidden_size, a.bias, a.reverse, a.relu),
    "reshape": lambda a: _layers().Reshape(a.shape, a.fixed, a.images),
    "replication_pad2d": lambda a: _nn().ReplicationPad2d(a.padding),
    "softmax": lambda a: _nn().Softmax(a.dim),
    "spline": _spline,
    "upsample_bilinear2d": lambda a: _nn().Upsample(scale_factor=a.scale_factor, mode="bilinear",
                                                    align_corners=a.align_corners),
    **dict.fromkeys(("upsample_nearest2d", "upsample_nearest3d"),
                    lambda a: _nn().Upsample(scale_factor=a.scale_factor)),
    "upsample_trilinear3d": lambda a: _nn().Upsample(scale_factor=a.scale_factor, mode="trilinear",
                                                     align_corners=a.align_corners),
    "zero_pad2d": lambda a: _nn().ZeroPad2d(a.padding),
    **{kind: _pointwise for kind, one in OPERATIONS.items() if issubclass(one, Pointwise)},
}
