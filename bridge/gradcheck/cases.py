# SPDX-License-Identifier: MIT
"""Small cases of every operation and loss, at points where they are differentiable; the tests step through them, too.

All sizes of a case differ where they may, so that no permutation survives. Numbers are drawn away from what has no
derivative, further than any step: from the kinks of a function, and from each other where the largest is sought.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bridge.operations import OPERATIONS
from bridge.operations.arithmetic import Add, Divide, Multiply, Prelu, Subtract
from bridge.operations.joins import Concat, Flatten
from bridge.operations.losses import LOSSES, PairLoss
from bridge.operations.normalization import BatchNorm2d, GroupNorm, LayerNorm
from bridge.operations.operation import Operation, Shape
from bridge.operations.pads import CircularPad, ConstantPad
from bridge.operations.pointwise import Dropout, Dropout2d, Pointwise
from bridge.operations.pooling import AdaptiveMaxPool2d, AvgPool2d, GlobalAvgPool2d, MaxPool2d
from bridge.operations.products import ComplexLinear, Conv2d, ConvTranspose2d, Linear, Matmul
from bridge.operations.rearrangement import (
    Expand,
    Flip,
    Permute,
    PixelShuffle,
    PixelUnshuffle,
    Reshape,
    Roll,
    Slice,
    Transpose,
)
from bridge.operations.recurrence import Gru, Lstm, Rnn
from bridge.operations.reductions import Amax, Amin, Max, Mean, Min, Sum
from bridge.operations.resizing import (
    AdaptiveAvgPool2d,
    Interpolate,
    ReflectionPad2d,
    ReplicationPad2d,
    UpsampleBilinear2d,
    UpsampleNearest2d,
    ZeroPad2d,
)
from bridge.operations.softmax import Attention, LogSoftmax, Softmax
from bridge.operations.spline import Spline
from bridge.operations.stored import Embedding, GatherRows, IndexSelect, Parameter
from bridge.operations.table import Row, rows
from bridge.operations.volumes.pooling import AvgPool3d, MaxPool3d
from bridge.operations.volumes.products import Conv3d, ConvTranspose3d
from bridge.operations.volumes.resizing import AdaptiveAvgPool3d, UpsampleNearest3d, UpsampleTrilinear3d

Array = np.ndarray
Draw = Callable[[np.random.Generator, Shape], Array]

#: How far from a kink numbers stay: two steps of float32 are less, of numbers up to 4
APART = 2.0**-4


def normal(rng: np.random.Generator, shape: Shape) -> Array:
    """Draw numbers of both signs."""
    return rng.standard_normal(shape)


def positive(rng: np.random.Generator, shape: Shape) -> Array:
    """Draw numbers from 1/2 to 2."""
    return rng.uniform(0.5, 2.0, shape)


def negative(rng: np.random.Generator, shape: Shape) -> Array:
    """Draw numbers from -2 to -1/2."""
    return -positive(rng, shape)


def distinct(rng: np.random.Generator, shape: Shape) -> Array:
    """Draw numbers no two of which are nearer than twice `APART`, in any order."""
    size = int(np.prod(shape))
    return (rng.permutation(size) - size / 2).reshape(shape) * (2 * APART)


def apart_from(*kinks: float) -> Draw:
    """Return how to draw numbers that are none of these, nor near one.

    >>> numbers = apart_from(0.0)(np.random.default_rng(0), (1000,))
    >>> bool(np.abs(numbers).min() >= APART)
    True
    """
    def draw(rng: np.random.Generator, shape: Shape) -> Array:
        x = rng.uniform(-2.0, 2.0, shape)
        for kink in kinks:
            distance = np.abs(x - kink)
            x = np.where(distance < APART, kink + np.where(x < kink, -1, 1) * (2 * APART - distance), x)
        return x

    return draw


def below(limit: int) -> Draw:
    """Return how to draw whole numbers from 0 on."""
    return lambda rng, shape: rng.integers(0, limit, shape)


@dataclass(frozen=True)
class Setup:
    """An operation with the shapes of its inputs.

    Attributes
    ----------
    node : with no hyperparameter as it is by default, where there is a choice; its name is "it"
    shapes : of the inputs
    draw : the numbers of all of them
    about : what makes it another than the first case of its operation, in words
    """

    node: Operation
    shapes: tuple[Shape, ...]
    draw: Draw = normal
    about: str = ""

    @property
    def title(self) -> str:
        """Return the operation's type, and what is special about this case.

        >>> CASES["add"][1].title
        'add, broadcast'
        """
        return ", ".join(filter(None, (self.node.kind, self.about)))


IMAGE = (2, 4, 5, 6)
#: Where many numbers go into one, and a bound of float32 is soon wider than what a step changes
FEW = (2, 4, 3, 2)
BOTH = ("first", "other")
THREE = (*BOTH, "third")
#: Inputs of two operands: of one shape, and such that either is broadcast, along the batch, too
ALIKE, BROADCAST = ((2, 3, 4, 5), (2, 3, 4, 5)), ((1, 3, 4, 1), (2, 3, 1, 5))


def _pointwise(one: type[Operation], row: Row) -> Setup:
    settings = [setting["cases"][0] for setting in row.get("settings", {}).values()]
    draw = positive if row.get("positive") else apart_from(*row["kinks"]) if "kinks" in row else normal
    return Setup(one("it", *settings), (IMAGE,), draw)


def _arithmetic(one: type[Operation], draw: Draw = normal) -> tuple[Setup, ...]:
    return (Setup(one("it", inputs=BOTH), ALIKE, draw), Setup(one("it", inputs=BOTH), BROADCAST, draw, "broadcast"))


#: Of every operation, by its type in an exchange file; the first is the one of the tests
CASES: dict[str, tuple[Setup, ...]] = {
    **{kind: (_pointwise(OPERATIONS[kind], row),) for kind, row in rows("functions").items()
       if issubclass(OPERATIONS[kind], Pointwise)},
    "adaptive_avg_pool2d": (Setup(AdaptiveAvgPool2d("it", (5, 7)), ((2, 3, 8, 6),)),),
    "adaptive_avg_pool3d": (Setup(AdaptiveAvgPool3d("it", (3, 5, 2)), ((2, 2, 5, 4, 3),)),),
    "adaptive_max_pool2d": (Setup(AdaptiveMaxPool2d("it", (4, 5)), ((1, 2, 5, 6),), distinct),),
    "add": _arithmetic(Add),
    "amax": (Setup(Amax("it", (1, -1), True), ((2, 3, 4, 2),), distinct),),
    "amin": (Setup(Amin("it", (2,)), ((2, 3, 4, 2),), distinct),
             Setup(Amin("it", (0, 3), True), ((2, 3, 4, 2),), distinct, "keepdim")),
    "attention": (Setup(Attention("it", inputs=THREE), ((2, 3, 5, 4), (2, 3, 5, 4), (2, 3, 5, 6))),
                  Setup(Attention("it", True, 0.7, inputs=THREE), ((2, 4, 3),) * 3, about="causal")),
    "avg_pool2d": (
        Setup(AvgPool2d("it", (3, 2), (2, 2), (1, 0)), ((2, 3, 6, 7),)),
        Setup(AvgPool2d("it", (3, 4), (2, 3), (1, 2), True), ((2, 3, 7, 6),), about="ceil_mode"),
        Setup(AvgPool2d("it", (3, 2), (2, 3), (1, 1), True, False), ((2, 3, 6, 6),), about="no padding counts"),
        Setup(AvgPool2d("it", (3, 2), (2, 2), (1, 0), divisor_override=5), ((2, 3, 6, 7),), about="a divisor")),
    "avg_pool3d": (Setup(AvgPool3d("it", (2, 3, 2), (1, 2, 2), (1, 1, 0)), ((2, 2, 4, 6, 5),)),),
    "batch_norm2d": (
        Setup(BatchNorm2d("it", 4, momentum=0.3, track_running_stats=True), (FEW,)),
        Setup(BatchNorm2d("it", 4, 0.01, track_running_stats=True, training=False), (FEW,), about="after training")),
    "circular_pad": (Setup(CircularPad("it", (1, 2, 3, 0)), ((2, 3, 5, 4),)),
                     Setup(CircularPad("it", (2, 1, 3, -1, 1, 1)), ((2, 2, 3, 4, 3),), about="cropped, too")),
    "complex_linear": (Setup(ComplexLinear("it", 4, 3, 5), ((2, 4, 5, 2),)),
                       Setup(ComplexLinear("it", 2, 5, 1), ((3, 2, 1, 2),), about="one place")),
    "concat": (Setup(Concat("it", inputs=BOTH), ((2, 3, 4, 5), (2, 1, 4, 5))),
               Setup(Concat("it", -2, inputs=BOTH), ((2, 3, 1, 2, 4), (2, 3, 1, 3, 4)), about="another dimension")),
    "constant_pad": (Setup(ConstantPad("it", (1, -2, 0, 3, -1, 2), 0.3), ((2, 4, 3, 5),)),
                     Setup(ConstantPad("it", (-1, -1)), ((2, 3, 5),), about="cropped")),
    "conv2d": (Setup(Conv2d("it", 4, 6, (3, 2), (2, 1), (1, 0), (1, 2), 2), ((2, 4, 7, 6),)),
               Setup(Conv2d("it", 4, 5, (3, 2), padding=(1, 1), bias=False), (IMAGE,), about="no bias")),
    "conv3d": (
        Setup(Conv3d("it", 4, 6, (2, 3, 2), (1, 2, 1), (1, 1, 0), (2, 1, 2), 2), ((2, 4, 5, 7, 6),)),
        Setup(Conv3d("it", 4, 5, (3, 1, 2), (2, 1, 1), (1, 0, 0), bias=False), ((2, 4, 5, 2, 3),), about="no bias"),
        Setup(Conv3d("it", 4, 5, (1, 1, 2)), ((2, 4, 3, 2, 3),), about="flat")),
    "conv_transpose2d": (
        Setup(ConvTranspose2d("it", 4, 6, (3, 2), (2, 3), (1, 0), (1, 2), (1, 2), 2), ((2, 4, 3, 5),)),
        Setup(ConvTranspose2d("it", 4, 5, (3, 2), bias=False), ((2, 4, 3, 5),), about="no bias")),
    "conv_transpose3d": (
        Setup(ConvTranspose3d("it", 4, 6, (3, 3, 2), (2, 2, 3), (1, 1, 0), (1, 1, 2), (2, 1, 2), 2),
              ((2, 4, 3, 2, 3),)),
        Setup(ConvTranspose3d("it", 4, 5, (2, 2, 2), (2, 2, 2), bias=False), ((2, 4, 2, 3, 2),), about="no bias")),
    "divide": _arithmetic(Divide, positive),
    "dropout": (Setup(Dropout("it", 0.4), (IMAGE,)),),
    "dropout2d": (Setup(Dropout2d("it", 0.4), (IMAGE,)),),
    # A row without a gradient is not chosen: the output depends on it all the same
    "embedding": (Setup(Embedding("it", 5, 3), ((2, 4),), below(5)),
                  Setup(Embedding("it", 4, 35, 3), ((2, 2, 3),), below(3), "padding_idx")),
    "expand": (Setup(Expand("it", (-1, 4, 16)), ((2, 3, 1, 16),)),
               Setup(Expand("it", (2, -1, 2, -1, 2)), ((2, 1, 2, 1, 2, 1),), about="six dimensions")),
    "flatten": (Setup(Flatten("it"), (IMAGE,)),),
    "flip": (Setup(Flip("it", (-1, 1)), (IMAGE,)),),
    "gather_rows": (Setup(GatherRows("it", inputs=BOTH), ((2, 5, 3), (2, 4, 2)), below(5)),
                    Setup(GatherRows("it", 3, inputs=BOTH), ((2, 4, 2), (2, 5)), below(3), "padding_idx")),
    "global_avg_pool2d": (Setup(GlobalAvgPool2d("it"), (IMAGE,)),),
    "group_norm": (Setup(GroupNorm("it", 2, 4), (FEW,)),
                   Setup(GroupNorm("it", 2, 4, 0.01, False), (FEW,), about="no parameters")),
    # Numbers for which outputs are so large that float32 shows what the weights, which multiply them, do
    "gru": (Setup(Gru("it", 2), ((1, 2, 6),), negative),
            Setup(Gru("it", 2, False, True), ((1, 2, 6),), negative, "reverse, no bias")),
    "index_select": (Setup(IndexSelect("it", -2, (2, 0, 1, 2, 2)), (IMAGE,)),),
    "interpolate": (
        Setup(Interpolate("it", 3, (3, 7)), ((1, 2, 4, 5),)),
        Setup(Interpolate("it", 3, (9, 3), align_corners=True), ((2, 3, 4, 5),), about="cubic, align_corners"),
        Setup(Interpolate("it", 1, scale_factor=(0.6, 1.7)), ((2, 3, 6, 5),), about="linear"),
        Setup(Interpolate("it", 1, (7, 3), align_corners=True), ((2, 3, 4, 5),), about="linear, align_corners"),
        Setup(Interpolate("it", 0, (7, 4)), ((2, 3, 4, 6),), about="nearest"),
        Setup(Interpolate("it", 0, scale_factor=(1.4, 0.7), exact=True), ((2, 3, 4, 6),), about="nearest, exact")),
    "layer_norm": (Setup(LayerNorm("it", (3, 2), 1e-3), (FEW,)),
                   Setup(LayerNorm("it", (5,), bias=False), ((4, 3, 5),), about="no bias"),
                   Setup(LayerNorm("it", (5,), elementwise_affine=False), ((4, 5),), about="no parameters")),
    "linear": (Setup(Linear("it", 16, 5), ((3, 16),)),
               Setup(Linear("it", 6, 5, bias=False), (IMAGE,), about="rows of images, no bias")),
    "log_softmax": (Setup(LogSoftmax("it"), (IMAGE,)), Setup(LogSoftmax("it", -1), (IMAGE,), about="columns")),
    "lstm": (Setup(Lstm("it", 2), ((1, 2, 8),), positive),
             Setup(Lstm("it", 2, False, True), ((1, 2, 8),), positive, "reverse, no bias")),
    "matmul": (Setup(Matmul("it", inputs=BOTH), ((2, 3, 4, 5), (2, 3, 5, 6))),),
    "max": (Setup(Max("it", (-3,)), ((2, 3, 4, 2),), distinct),
            Setup(Max("it", (2,), True), ((2, 3, 4, 2),), distinct, "keepdim")),
    "max_pool2d": (
        Setup(MaxPool2d("it", (3, 2), (2, 2), (1, 0)), ((1, 2, 6, 4),), distinct),
        Setup(MaxPool2d("it", (2, 2), (3, 2), (0, 1), ceil_mode=True), ((1, 2, 6, 5),), distinct, "ceil_mode"),
        Setup(MaxPool2d("it", (2, 3), (1, 1), (1, 0), (3, 2)), ((1, 2, 4, 7),), distinct, "dilation")),
    "max_pool3d": (Setup(MaxPool3d("it", (2, 3, 2), (1, 2, 2), (1, 1, 0)), ((1, 2, 3, 6, 4),), distinct),),
    "mean": (Setup(Mean("it", (0, 2), True), (IMAGE,)),),
    "min": (Setup(Min("it", (3,), True), ((2, 3, 4, 2),), distinct),),
    "multiply": _arithmetic(Multiply),
    "parameter": (Setup(Parameter("it", (3, 4)), (IMAGE,)),),
    "permute": (Setup(Permute("it", (0, 3, 1, 2)), (IMAGE,)),
                Setup(Permute("it", (0, 2, 4, 1, 5, 3)), ((2, 2, 3, 2, 3, 2),), about="six dimensions")),
    "pixel_shuffle": (Setup(PixelShuffle("it", 2), ((2, 8, 3, 2),)),),
    "pixel_unshuffle": (Setup(PixelUnshuffle("it", 2), ((2, 3, 4, 6),)),),
    "prelu": (Setup(Prelu("it", 4), (IMAGE,), apart_from(0.0)),),
    "reflection_pad2d": (Setup(ReflectionPad2d("it", (3, 1, 0, 15)), ((1, 2, 16, 5),)),),
    "replication_pad2d": (Setup(ReplicationPad2d("it", (3, 1, 0, 20)), ((2, 3, 4, 5),)),),
    "reshape": (Setup(Reshape("it", (8, -1, 4)), ((2, 4, 6, 8),)),
                Setup(Reshape("it", (-1, 4), images=6), ((2, 4, 6, 8),), about="more images"),
                Setup(Reshape("it", (8, 3), images=-2), ((4, 2, 6),), about="fewer images"),
                Setup(Reshape("it", (4, 6, 8), fixed=True), ((2, 4, 6, 8),), about="of one shape")),
    "rnn": (Setup(Rnn("it", 3), ((2, 4, 3),)), Setup(Rnn("it", 2, False, True), ((3, 3, 2),), about="reverse, no bias"),
            Setup(Rnn("it", 4, relu=True), ((2, 3, 4),), about="relu")),
    "roll": (Setup(Roll("it", (1, -2), (2, -1)), (IMAGE,)),),
    "slice": (Setup(Slice("it", 2, 1, -1, 2), ((2, 3, 6, 4),)),
              Setup(Slice("it", -1, -3), ((2, 5),), about="to the end")),
    "softmax": (Setup(Softmax("it"), (IMAGE,)), Setup(Softmax("it", 2), (IMAGE,), about="rows")),
    "spline": (Setup(Spline("it", 2, 3, 4, 2, -0.8, 1.0), ((2, 2),)),
               Setup(Spline("it", 2, 1, 4, 3, -2.0, 2.0, scale_spline=False), ((1, 2, 2),), about="cubic, no scale")),
    "subtract": _arithmetic(Subtract),
    "sum": (Setup(Sum("it", (-1, 1)), (IMAGE,)), Setup(Sum("it", (0, 2), True), (IMAGE,), about="keepdim")),
    "transpose": (Setup(Transpose("it", 1, -1), (IMAGE,)),),
    "upsample_bilinear2d": (
        Setup(UpsampleBilinear2d("it", (2, 3)), ((2, 3, 4, 5),)),
        Setup(UpsampleBilinear2d("it", (2, 3), True), ((2, 3, 4, 5),), about="align_corners")),
    "upsample_nearest2d": (Setup(UpsampleNearest2d("it", (2, 3)), ((2, 3, 4, 5),)),),
    "upsample_nearest3d": (Setup(UpsampleNearest3d("it", (3, 2, 1)), ((2, 2, 2, 3, 2),)),),
    "upsample_trilinear3d": (
        Setup(UpsampleTrilinear3d("it", (3, 2, 2)), ((2, 2, 2, 3, 4),)),
        Setup(UpsampleTrilinear3d("it", (2, 1, 3), True), ((2, 2, 3, 2, 4),), about="align_corners")),
    "zero_pad2d": (Setup(ZeroPad2d("it", (3, 1, 0, 2)), ((2, 3, 4, 5),)),),
}


def _losses(kind: str, *settings: tuple[str, ...]) -> tuple[str, ...]:
    """The texts of a loss with all settings that go together, of each of which there is none or one."""
    return tuple(" ".join(filter(None, (kind, *some))) for some in itertools.product(*settings))


#: Of every loss its texts, with settings that float32 has and has not. The cross entropy is of 4 classes
LOSS_CASES: dict[str, tuple[str, ...]] = {
    **{kind: _losses(kind, *(("", *(f"{name}={value}" for value in one.get("cases", ())))
                             for name, one in row.get("settings", {}).items()))
       for kind, row in rows("losses").items()},
    "cross_entropy": _losses(
        "cross_entropy", ("", "weight=1,2.3,0,4"),
        ("", "class_indices=1", "class_indices=1 ignore_index=2", "class_indices=1 ignore_index=9"),
        ("", "label_smoothing=0.1", "label_smoothing=1")),
}


#: So few elements that the bound of their sum, in float32, is far below what one of them changes
LOSS_SHAPE = (1, 4, 1, 3)


def draw_loss(text: str, rng: np.random.Generator, shape: Shape) -> tuple[Array, Array]:
    """Return an output and a target of a loss: probabilities, one class of each pixel, or numbers whose differences are
    no kinks.
    """
    kind, _, setting = text.partition(" ")
    if kind == "bce":
        return rng.uniform(0.1, 0.9, shape), rng.uniform(0.0, 1.0, shape)
    if "class_indices" in setting:
        # Every class, and a pixel that has none
        pixels = (shape[0], *shape[2:])
        target = np.moveaxis(np.eye(shape[1])[rng.permutation(np.arange(np.prod(pixels)) % shape[1])].reshape(
            *pixels, shape[1]), -1, 1)
        target[0, :, 0, 0] = 0
        return normal(rng, shape), np.ascontiguousarray(target)
    if issubclass(LOSSES[kind], PairLoss) and kind != "bce_with_logits":
        width = float(setting.partition("=")[2] or 1)
        target = normal(rng, shape)
        return target + apart_from(0.0, width, -width)(rng, shape), target
    return normal(rng, shape), rng.uniform(0.0, 1.0, shape)
