# SPDX-License-Identifier: MIT
"""What an operation is said to read is what its output depends on: not a pixel less, and not one more."""

from __future__ import annotations

import numpy as np
import pytest

from bridge.apply import receptive_field
from bridge.apply.receptive_field import BY_PIXEL, REACHES, WHOLE, Reach, reach, why_whole
from bridge.apply.tiling import _inside
from bridge.common.errors import FileError
from bridge.operations import (
    OPERATIONS,
    AvgPool2d,
    BatchNorm2d,
    Conv2d,
    ConvTranspose2d,
    Max,
    MaxPool2d,
    Mean,
    Operation,
    ReflectionPad2d,
    ReplicationPad2d,
    UpsampleBilinear2d,
    UpsampleNearest2d,
    ZeroPad2d,
)
from tests.helpers.networks.tiled_networks import network

#: Of the image
SIZE = (17, 14)
NODES: list[Operation] = [
    Conv2d("a", 1, 1, (3, 5), (2, 1), (1, 3), (2, 1)), Conv2d("a", 1, 1, (2, 1), (3, 2)),
    Conv2d("a", 1, 1, (3, 3), padding=(4, 0)),
    MaxPool2d("a", (2, 3), (2, 2), (1, 1)), AvgPool2d("a", (3, 2), (1, 3), (1, 0)),
    ConvTranspose2d("a", 1, 1, (3, 2), (2, 3), (1, 0), (1, 2), (1, 2)),
    ConvTranspose2d("a", 1, 1, (2, 3), padding=(2, 3)), ConvTranspose2d("a", 1, 1, (4, 4), (2, 2), (1, 1)),
    UpsampleNearest2d("a", (2, 3)), UpsampleBilinear2d("a", (2, 4)),
    ZeroPad2d("a", (2, 0, 1, 3)), ReplicationPad2d("a", (2, 0, 1, 3)), ReflectionPad2d("a", (5, 2, 0, 3))]


def influence(node: Operation, axis: int) -> np.ndarray:
    """Which pixels (out, in) of an axis depend on which: what changes with a pixel of a row, or column, of numbers."""
    net = network([node])
    for array in net.parameters.values():
        array[...] = 1
    x = np.ones((1, 1, *SIZE), np.float32)
    before = net.forward(x).copy()
    found = []
    for pixel in range(SIZE[axis]):
        other = x.copy()
        other[(slice(None), slice(None), pixel) if axis == 0 else (..., pixel)] = 100
        found.append((net.forward(other) != before).any((0, 1, 3 - axis)))
    return np.array(found).T


@pytest.mark.parametrize("node", NODES, ids=lambda node: f"{node.kind}-{NODES.index(node)}")
def test_the_intervals_are_exact(node: Operation) -> None:
    """The smallest that hold all that parts of the output depend on."""
    for axis in (0, 1):
        depends, reads = influence(node, axis), reach(node, axis).reads
        for start in range(len(depends)):
            for stop in range(start + 1, len(depends) + 1):
                pixels = np.flatnonzero(depends[start:stop].any(0))
                read = reads((start, stop), SIZE[axis])
                assert set(pixels.tolist()) <= set(range(*_inside(read, SIZE[axis]))), (axis, start, stop)
                # At a border the pixel there is needed, too, and between pixels one that may have a part
                within = 0 <= read[0] < read[1] <= SIZE[axis] and not isinstance(node, UpsampleBilinear2d)
                if within and (stop - start > 3 or not isinstance(node, ConvTranspose2d)):
                    assert read == (pixels[0], pixels[-1] + 1), (axis, start, stop)


def test_interpolation_reads_one_pixel_more_at_most() -> None:
    """A place that is a pixel's own may be rounded to the one before."""
    reads = reach(UpsampleBilinear2d("a", (3, 3)), 0).reads
    assert [reads((k, k + 1), 10) for k in (3, 4, 5)] == [(0, 2), (0, 3), (1, 3)]


@pytest.mark.parametrize("node", NODES, ids=lambda node: f"{node.kind}-{NODES.index(node)}")
def test_scales_are_those_of_the_sizes(node: Operation) -> None:
    """An image that is longer by what the scale's denominator divides has an output that is so by that times the scale.
    """
    for axis in (0, 1):
        scale = reach(node, axis).scale
        small, large = (node.output_shape((1, 1, *size))[2 + axis] for size in (
            SIZE, [n + 6 * scale.denominator * (k == axis) for k, n in enumerate(SIZE)]))
        assert large - small == 6 * scale.denominator * scale


def test_every_operation_is_decided_on() -> None:
    """It reads pixel by pixel, windows, or the whole image; a new one fails here until that is known."""
    for kind in OPERATIONS.values():
        assert sum(issubclass(kind, group) for group in (tuple(REACHES), BY_PIXEL, tuple(WHOLE))) == 1, kind


@pytest.mark.parametrize(("node", "reason"), [
    (BatchNorm2d("norm", 1), "mean and variance are those of the whole image"),
    (UpsampleBilinear2d("up", (2, 2), True), "depends on the size of the whole image"),
    (Mean("mean", (2, 3), True), "over the whole image"), (Mean("mean", (-1,), True), "over the whole image"),
    (Max("max", (1,), False), "leaves a dimension out"), (Max("max", (2,), True), "over the whole image"),
])
def test_what_needs_the_whole_image_is_refused(node: Operation, reason: str) -> None:
    """With the layer's name and the reason."""
    with pytest.raises(FileError, match=rf"layer {node.name} \({node.kind}\): .*{reason}.*--whole"):
        reach(node, 0)


def test_every_reason_is_given() -> None:
    """For what always needs the whole image."""
    for kind, reason in WHOLE.items():
        assert why_whole(object.__new__(kind)) == reason
    assert why_whole(BatchNorm2d("norm", 1, track_running_stats=True)) == ""
    assert why_whole(Max("max", (-3,), True)) == ""


def test_a_shorter_reach_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pixel less on either side."""
    whole = receptive_field._windows
    for left, right in ((1, 0), (0, 1)):
        def less(stride: int, padding: int, span: int, left: int = left, right: int = right) -> Reach:
            return whole(stride, padding - left, span - left - right)

        with monkeypatch.context() as patch, pytest.raises(AssertionError):
            patch.setattr(receptive_field, "_windows", less)
            test_the_intervals_are_exact(NODES[0])
