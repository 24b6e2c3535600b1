# SPDX-License-Identifier: MIT
"""Tiles of an image, each with as much around it as its outputs are computed from.

Why the outputs of a crop are those of the whole image. Let ``o`` be the first pixel of the crop, and of each node's
output what of the whole image's the crop's begins with: ``o`` times the node's scale, which is an integer where ``o``
is a multiple of `TiledGraph.step`. Then the windows of strided operations lie on the same pixels in both. For the
wanted outputs `TiledGraph.needs` follows the graph backwards to the pixels of each node that they are computed from; a
crop is one whose nodes have all of them. By induction from the input on these pixels are the same: an operation reads
the same pixels, which are needed and therefore right; and it pads there only if it does so in the whole image. For
where it pads, or repeats the border, the first (or last) pixel of its input is needed, so that the crop has it: it
begins (or ends) where the image does. At the other borders of a crop it pads, too: that is in none of the pixels that
are needed.

Where branches join, their lengths agree in the crop as in the whole image, because the end of a crop is a multiple of
`step` away from the image's: a length of the input that is longer by ``step`` makes one that is longer by ``step``
times the scale at every node.

The same numbers are not yet the same bits: of very few pixels some loops of the CPU add in another order (interpolated
rows of two pixels, depthwise transposed convolutions of three rows). So every node of a crop has `LEAST` pixels, where
the image has as many.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from bridge.apply.receptive_field import Interval, reach
from bridge.common.errors import ArgumentError, FileError
from bridge.operations.graph import INPUT, Graph
from bridge.operations.operation import Operation, Shape

#: Height and width
AXES = (0, 1)
#: The axes of an image batch before them
BEFORE = 2
#: Pixels of each node along an axis of a crop. Other bits were seen up to three
LEAST = 8


@dataclass(frozen=True)
class Tile:
    """A part of the output, and what of the image it is computed from.

    Attributes
    ----------
    rows, columns : of the output
    crop_rows, crop_columns : of the image
    inner_rows, inner_columns : where the tile lies in the output of the crop
    """

    rows: slice
    columns: slice
    crop_rows: slice
    crop_columns: slice
    inner_rows: slice
    inner_columns: slice


class TiledGraph:
    """A network, after training, on the parts of an image of one size.

    Parameters
    ----------
    graph : Graph
    shape : (channels, height, width) of the whole image

    Attributes
    ----------
    shapes : of each node's output by name, for the whole image as a batch of one
    output : (channels, height, width) of the whole output
    scales : of each axis, pixels of each node's output for each of the image, by name
    step : of each axis, the number of pixels that crops begin, and end, at multiples of from the image's own borders

    Raises
    ------
    FileError
        If an operation needs whole images, or cannot take this one. Names the layer.

    Examples
    --------
    >>> from bridge.operations import Conv2d, MaxPool2d, UpsampleNearest2d
    >>> net = Graph([Conv2d("a", 1, 1, (3, 3), padding=(1, 1)), MaxPool2d("b", (2, 2), (2, 2)),
    ...              UpsampleNearest2d("c", (2, 2))])
    >>> tiled = TiledGraph(net, (1, 100, 64))
    >>> tiled.step, tiled.crop(0, (31, 50)), tiled.crop(0, (0, 50))
    ([2, 2], (28, 52), (0, 52))
    """

    def __init__(self, graph: Graph, shape: Shape) -> None:
        self.graph = graph
        self._reaches = {(node.name, axis): reach(node, axis) for node in graph.nodes for axis in AXES}
        self.shapes = graph.shapes((1, *shape))
        self.output = self.shapes[graph.nodes[-1].name][1:]
        self.scales = [self._scales(axis) for axis in AXES]
        self.step = [math.lcm(*(scale.denominator for scale in scales.values())) for scales in self.scales]
        self._crop = lru_cache(1 << 16)(self._found_crop)

    @property
    def output_scales(self) -> list[Fraction]:
        """Return pixels of the output for each of the image, along the height and the width."""
        return [scales[self.graph.nodes[-1].name] for scales in self.scales]

    def crop(self, axis: int, wanted: Interval) -> Interval:
        """Return the pixels of the image that a part of the output is computed from, along an axis, and a few more so
        that it begins and ends where it may.
        """
        return self._crop(axis, wanted)

    def needs(self, axis: int, wanted: Interval) -> dict[str, Interval]:
        """Return which pixels of each node's output, and of the input, that part of the last node's is computed from.
        """
        found = {self.graph.nodes[-1].name: wanted}
        for node in reversed(self.graph.nodes):
            for name in node.inputs:
                length = self._length(name, axis)
                read = _inside(self._reaches[node.name, axis].reads(found[node.name], length), length)
                before = found.get(name, read)
                found[name] = min(before[0], read[0]), max(before[1], read[1])
        return found

    def bytes(self, rows: int, columns: int, itemsize: int) -> int:
        """Return the memory of a crop of this size: all outputs of nodes; the input twice more, as it is read and the
        one before, which the network holds; the output three times more, copied, normalised, and the one before.
        """
        shapes = self._shapes_of(rows, columns)
        kept = [*shapes.values(), *[shapes[INPUT]] * 2, *[shapes[self.graph.nodes[-1].name]] * 3]
        return itemsize * sum(map(math.prod, kept))

    def _found_crop(self, axis: int, wanted: Interval) -> Interval:
        needs, step, length = self.needs(axis, wanted), self.step[axis], self._length(INPUT, axis)
        start = needs[INPUT][0] // step * step
        stop = length - (length - needs[INPUT][1]) // step * step
        while (start, stop) != (0, length) and not self._has(axis, (start, stop), needs):
            start, stop = max(0, start - step), min(length, stop + step)
        return start, stop

    def _has(self, axis: int, crop: Interval, needs: dict[str, Interval]) -> bool:
        """Whether the nodes have what is needed of them when the network is given a crop, and not too few pixels."""
        size = list(self.shapes[INPUT][BEFORE:])
        size[axis] = crop[1] - crop[0]
        try:
            shapes = self._shapes_of(*size)
        except FileError:
            return False
        for name, (start, stop) in needs.items():
            first, length = crop[0] * self.scales[axis][name], shapes[name][BEFORE + axis]
            if start < first or stop > first + length or length < min(LEAST, self._length(name, axis)):
                return False
        return True

    def _shapes_of(self, rows: int, columns: int) -> dict[str, Shape]:
        return self.graph.shapes((*self.shapes[INPUT][:BEFORE], rows, columns))

    def _length(self, name: str, axis: int) -> int:
        return self.shapes[name][BEFORE + axis]

    def _scales(self, axis: int) -> dict[str, Fraction]:
        found = {INPUT: Fraction(1)}
        for node in self.graph.nodes:
            scales = {found[name] for name in node.inputs}
            lengths = {self._length(name, axis) for name in node.inputs}
            if len(scales) > 1 or len(lengths) > 1:
                raise _refuse_join(node, f"inputs of {_all(lengths)} pixels, at {_all(scales)} times the image's")
            found[node.name] = scales.pop() * self._reaches[node.name, axis].scale
        return found


def _refuse_join(node: Operation, found: str) -> FileError:
    return node.refuse(found, "inputs of one size and scale, or whole images (whole=True, --whole)")


def _all(values: set[int] | set[Fraction]) -> str:
    return " and ".join(str(one) for one in sorted(values))


def _inside(read: Interval, length: int) -> Interval:
    """Pixels that are there: of what lies beyond a border the one at the border."""
    start = min(max(read[0], 0), length - 1)
    return start, max(min(read[1], length), start + 1)


def tiles(tiled: TiledGraph, size: tuple[int, int]) -> Iterator[Tile]:
    """Yield the tiles of an output, row by row.

    Parameters
    ----------
    tiled : the network on images of one size
    size : height and width of a tile, in pixels of the output; at the end of an axis what is left

    Examples
    --------
    >>> from bridge.operations import Conv2d
    >>> net = TiledGraph(Graph([Conv2d("a", 1, 1, (3, 3), padding=(1, 1))]), (1, 4, 20))
    >>> for tile in tiles(net, (4, 10)):
    ...     print(tile.columns, tile.crop_columns, tile.inner_columns)
    slice(0, 10, None) slice(0, 11, None) slice(0, 10, None)
    slice(10, 20, None) slice(9, 20, None) slice(1, 11, None)
    """
    parts = [list(_parts(tiled, axis, size[axis])) for axis in AXES]
    for rows in parts[0]:
        for columns in parts[1]:
            yield Tile(rows[0], columns[0], rows[1], columns[1], rows[2], columns[2])


def _parts(tiled: TiledGraph, axis: int, size: int) -> Iterator[tuple[slice, slice, slice]]:
    """Of the output, of the image, and of the output of the crop, along an axis."""
    scale, end = tiled.output_scales[axis], tiled.output[1 + axis]
    for start in range(0, end, size):
        stop = min(start + size, end)
        crop = tiled.crop(axis, (start, stop))
        first = int(crop[0] * scale)
        yield slice(start, stop), slice(*crop), slice(start - first, stop - first)


def size_within(tiled: TiledGraph, memory: int, itemsize: int) -> tuple[int, int]:
    """Return the height and width of tiles that need no more memory: the whole output, whose longer side is halved as
    often as it takes.

    Raises
    ------
    ArgumentError
        If tiles of one pixel need more.
    """
    size = [tiled.output[1], tiled.output[2]]
    while True:
        crops = [max(_lengths(tiled, axis, size[axis])) for axis in AXES]
        needed = tiled.bytes(crops[0], crops[1], itemsize)
        if needed <= memory:
            return size[0], size[1]
        if size == [1, 1]:
            raise ArgumentError(f"memory: {memory} bytes, expected {needed} or more, which a tile of one pixel needs "
                                "with all around it that it is computed from")
        longer = int(size[1] > size[0])
        size[longer] = -(-size[longer] // 2)


def _lengths(tiled: TiledGraph, axis: int, size: int) -> Iterator[int]:
    for _, crop, _ in _parts(tiled, axis, size):
        yield crop.stop - crop.start
