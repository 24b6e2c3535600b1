# SPDX-License-Identifier: MIT
"""What of its inputs each operation reads for a part of its output, along one axis of an image, exactly.

Height and width are independent of each other in every operation here. What reads a whole axis, or gives pixels another
order, has no such part, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from bridge.operations.arithmetic import BinaryOperation, Prelu
from bridge.operations.joins import Concat, Flatten
from bridge.operations.normalization import BatchNorm2d, GroupNorm, LayerNorm
from bridge.operations.operation import Operation
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
from bridge.operations.reductions import Reduction
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
from bridge.operations.volumes.pooling import AvgPool3d, MaxPool3d
from bridge.operations.volumes.products import Conv3d, ConvTranspose3d
from bridge.operations.volumes.resizing import AdaptiveAvgPool3d, UpsampleNearest3d, UpsampleTrilinear3d

#: Pixels of an axis: the first, and that behind the last
Interval = tuple[int, int]


@dataclass(frozen=True)
class Reach:
    """One operation along one axis.

    Attributes
    ----------
    scale : Fraction
        Pixels of the output for each of the input.
    reads : callable
        ``reads(wanted, length)``: the smallest interval that holds all pixels which `wanted` pixels of the output are
        computed from, of an input of `length` pixels. It goes beyond 0 or `length` where the operation pads, or repeats
        what lies at the border.
    """

    scale: Fraction
    reads: Callable[[Interval, int], Interval]


def reach(node: Operation, axis: int) -> Reach:
    """Return what an operation reads along an axis, 0 for the height and 1 for the width.

    Raises
    ------
    FileError
        If it has no part of an image to read: names the layer and the reason.

    Examples
    --------
    >>> reach(Conv2d("a", 1, 1, (3, 5), stride=(2, 1), padding=(1, 2)), 0).reads((10, 12), 100)
    (19, 24)
    """
    reason = why_whole(node)
    if reason:
        raise node.refuse(reason, "operations on a part of an image, or whole images (whole=True, --whole)")
    for kind, make in REACHES.items():
        if isinstance(node, kind):
            return make(node, axis)
    return SAME


def why_whole(node: Operation) -> str:
    """Return why an operation needs whole images, or an empty text where it does not."""
    if isinstance(node, BatchNorm2d) and not node.track_running_stats:
        return "its mean and variance are those of the whole image"
    if isinstance(node, UpsampleBilinear2d) and node.align_corners:
        return "where it reads depends on the size of the whole image"
    if isinstance(node, (MaxPool2d, AvgPool2d)) and node.ceil_mode:
        return "which windows reach beyond the image depends on the size of the whole image"
    if isinstance(node, Reduction) and (node.dim not in ((1,), (-3,)) or not node.keepdim):
        return "it sums or compares over the whole image, or leaves a dimension out"
    if isinstance(node, (Softmax, LogSoftmax, Concat)) and node.dim not in (1, -3):
        return "it goes along another dimension than the channels"
    return next((reason for kind, reason in WHOLE.items() if isinstance(node, kind)), "")


def _convolution(node: Any, axis: int) -> Reach:
    return _windows(node.stride[axis], node.padding[axis], node.dilation[axis] * (node.kernel_size[axis] - 1))


def _pooling(node: Any, axis: int) -> Reach:
    return _windows(node.stride[axis], node.padding[axis], node.settings()[0][axis] * (node.kernel_size[axis] - 1))


def _windows(stride: int, padding: int, span: int) -> Reach:
    """Windows from ``i*stride - padding`` on; `span` is from the first pixel of one to its last."""
    return Reach(Fraction(1, stride), lambda wanted, length: (
        wanted[0] * stride - padding, (wanted[1] - 1) * stride - padding + span + 1))


def _transposed(node: Any, axis: int) -> Reach:
    """Pixel i of the input goes into pixels from ``i*stride - padding`` on."""
    stride, padding = node.stride[axis], node.padding[axis]
    span = node.dilation[axis] * (node.kernel_size[axis] - 1)
    return Reach(Fraction(stride), lambda wanted, length: (
        -((span - padding - wanted[0]) // stride), (wanted[1] - 1 + padding) // stride + 1))


def _nearest(node: Any, axis: int) -> Reach:
    factor = node.scale_factor[axis]
    return Reach(Fraction(factor), lambda wanted, length: (wanted[0] // factor, (wanted[1] - 1) // factor + 1))


def _bilinear(node: Any, axis: int) -> Reach:
    """Pixel i of the output lies at ``(2*i + 1 - factor) / (2*factor)``, between two pixels of the input.

    A place that is a pixel's own may be rounded to just before it: then the pixel before has a part, of a rounding.
    """
    factor = node.scale_factor[axis]
    return Reach(Fraction(factor), lambda wanted, length: (
        (2 * wanted[0] - factor) // (2 * factor), (2 * wanted[1] - 1 - factor) // (2 * factor) + 2))


def _padded(node: Any, axis: int) -> Reach:
    before = node.padding[2 - 2 * axis]
    return Reach(Fraction(1), lambda wanted, length: (wanted[0] - before, wanted[1] - before))


def _mirrored(node: Any, axis: int) -> Reach:
    """Pixels before the first are those behind it, pixels behind the last those before it."""
    before = node.padding[2 - 2 * axis]

    def reads(wanted: Interval, length: int) -> Interval:
        start, stop = wanted[0] - before, wanted[1] - before
        behind = 1 - start if start < 0 else stop
        first = 2 * length - 1 - stop if stop > length else start
        return min(start, first), max(stop, behind)

    return Reach(Fraction(1), reads)


#: An operation on each pixel by itself, or on all channels of it
SAME = Reach(Fraction(1), lambda wanted, length: wanted)
#: What reads other pixels than its own
REACHES: dict[type[Operation], Callable[[Any, int], Reach]] = {
    Conv2d: _convolution, MaxPool2d: _pooling, AvgPool2d: _pooling, ConvTranspose2d: _transposed,
    UpsampleNearest2d: _nearest, UpsampleBilinear2d: _bilinear, ZeroPad2d: _padded, ReplicationPad2d: _padded,
    ReflectionPad2d: _mirrored}
#: What reads each pixel by itself; of dropouts and batch normalisations that is so after training
BY_PIXEL: tuple[type[Operation], ...] = (
    Pointwise, Prelu, Dropout, Dropout2d, Softmax, LogSoftmax, Concat, BinaryOperation, BatchNorm2d, Reduction)
#: What needs the whole image, and why
WHOLE: dict[type[Operation], str] = {
    **dict.fromkeys((AdaptiveAvgPool2d, AdaptiveMaxPool2d), "its windows depend on the size of the whole image"),
    Interpolate: "where it reads depends on the size of the whole image",
    GlobalAvgPool2d: "it is a mean over the whole image",
    GroupNorm: "its mean and variance are those of the whole image",
    LayerNorm: "its mean and variance are those of whole rows",
    Linear: "it mixes all columns of a row", Spline: "it mixes all columns of a row",
    Matmul: "it mixes all columns of a row",
    Flatten: "it gives the pixels of an image another order",
    Reshape: "it gives the pixels of an image another order",
    **dict.fromkeys((Transpose, Permute, Flip, Roll, PixelShuffle, PixelUnshuffle),
                    "it gives the pixels of an image another order"),
    **dict.fromkeys((AdaptiveAvgPool3d, AvgPool3d, Conv3d, ConvTranspose3d, MaxPool3d, UpsampleNearest3d,
                     UpsampleTrilinear3d), "it is of volumes, which are not divided"),
    **dict.fromkeys((CircularPad, ConstantPad), "where it puts numbers beside those of an image, or takes them away, "
                    "depends on its size"),
    Slice: "which pixels it takes depends on the size of the whole image",
    IndexSelect: "which pixels it takes depends on the size of the whole image",
    Attention: "each number is of all others",
    ComplexLinear: "it is of the frequencies of a whole image",
    **dict.fromkeys((Embedding, GatherRows), "it takes whole numbers, which are no pixels"),
    **dict.fromkeys((Gru, Lstm, Rnn), "each time follows from all before it"),
    Parameter: "it has numbers for each pixel of the whole image",
    Expand: "it repeats the pixels of an image"}
