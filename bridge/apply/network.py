# SPDX-License-Identifier: MIT
"""A network on images of any size, tile by tile: the outputs are those of the whole image."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from bridge.apply.tiling import Tile, TiledGraph, size_within, tiles
from bridge.common.errors import ArgumentError, DivergenceError, FileError
from bridge.data.images import finite
from bridge.engine.arrays.transfer import to_device, to_host
from bridge.engine.network.network import Network
from bridge.operations.graph import Graph
from bridge.operations.normalization import BatchNorm2d
from bridge.operations.operation import Operation, Shape

#: Bytes that a tile may need, of a network that keeps all between its layers
MEMORY = 1 << 30
#: Gives a window (channels, rows, columns) of an image, of the network's dtype
Read = Callable[[slice, slice], np.ndarray]


class TilePlan:
    """How images of one size are computed.

    Parameters
    ----------
    graph : Graph
        As it computes after training.
    shape : (channels, height, width) of the images
    size : height and width of a tile, or the bytes that it may need; None: images are computed whole
    itemsize : bytes of a number

    Attributes
    ----------
    output : (channels, height, width) of what becomes of them
    scales : pixels of it for each of an image, along the height and the width
    tiles : tuple of Tile

    Raises
    ------
    FileError
        If a layer cannot take such images, or, in tiles, parts of them.
    ArgumentError
        If `size` is none, or the output is no image.
    """

    def __init__(self, graph: Graph, shape: Shape, size: tuple[int, int] | int | None, itemsize: int) -> None:
        if size is None:
            found = graph.shapes((1, *shape))[graph.nodes[-1].name]
            if len(found) != 4:
                raise ArgumentError(f"output: of shape {found}, expected images (1, channels, height, width)")
            self.output: Shape = found[1:]
            out, image = ((slice(0, n), slice(0, m)) for n, m in (found[2:], shape[1:]))
            self.tiles: tuple[Tile, ...] = (Tile(*out, *image, *out),)
            self.scales = _scales(graph, shape, found[2:])
            return
        tiled = TiledGraph(graph, shape)
        self.output, self.scales = tiled.output, tiled.output_scales
        self.tiles = tuple(tiles(tiled, size_within(tiled, size, itemsize) if isinstance(size, int) else size))


class TiledNetwork:
    """A network applied to images of any size, as after training: dropouts drop nothing, batch normalisations take
    their running statistics.

    Each tile is computed from a crop that has all that the tile depends on, see `bridge.apply.tiling`.

    Parameters
    ----------
    network : Network
        Is in the mode that it was in when an image is done.
    tile : height and width of a tile, in pixels of the output
        None: as large as `memory` allows.
    memory : bytes that a tile may need
    whole : compute whole images; for networks that cannot be computed in parts

    Raises
    ------
    ArgumentError
        If a number is less than 1.

    Examples
    --------
    >>> from bridge.exchange.model import Conv2d, Model
    >>> net = Network(Model((Conv2d("a", 1, 1, (3, 3), padding=(1, 1)),)))
    >>> net.parameters["a.weight"][...] = 1
    >>> TiledNetwork(net, tile=(2, 2))(np.ones((1, 4, 4), np.float32))[0].astype(int).tolist()
    [[4, 6, 6, 4], [6, 9, 9, 6], [6, 9, 9, 6], [4, 6, 6, 4]]
    """

    def __init__(self, network: Network, *, tile: tuple[int, int] | None = None, memory: int = MEMORY,
                 whole: bool = False) -> None:
        if tile is not None and (len(tile) != 2 or min(tile) < 1):
            raise ArgumentError(f"tile: {tile}, expected (height, width) of 1 or more")
        if memory < 1:
            raise ArgumentError(f"memory: {memory}, expected a number of bytes")
        self.network, self._size = network, None if whole else tile or memory
        self.dtype = np.dtype(network.dtype)
        self._graph = Graph([_after_training(node) for node in network.model.graph.nodes])
        self._plans: dict[Shape, TilePlan] = {}

    def plan(self, shape: Shape) -> TilePlan:
        """Return how images of this shape (channels, height, width) are computed."""
        if shape not in self._plans:
            self._plans[shape] = TilePlan(self._graph, shape, self._size, self.dtype.itemsize)
        return self._plans[shape]

    def parts(self, shape: Shape, read: Read) -> Generator[tuple[Tile, np.ndarray], None, None]:
        """Yield the tiles of an image's output, each with its numbers (channels, rows, columns).

        Parameters
        ----------
        shape : (channels, height, width) of the image
        read : gives its windows

        Raises
        ------
        DivergenceError
            If a number is NaN or infinite: names the place.
        """
        training = self.network.training
        self.network.eval()
        try:
            for tile in self.plan(shape).tiles:
                x = np.ascontiguousarray(read(tile.crop_rows, tile.crop_columns)[None])
                y = to_host(self.network.forward(to_device(x, self.network.device)))[0]
                part = y[:, tile.inner_rows, tile.inner_columns]
                if not finite(part):
                    raise DivergenceError(f"the output is not finite in rows {tile.rows.start} to {tile.rows.stop}, "
                                          f"columns {tile.columns.start} to {tile.columns.stop}")
                yield tile, part
        finally:
            self.network.train(training)

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """Return the output (k, p, q) of an image (c, h, w) of the network's dtype, or (n, k, p, q) of (n, c, h, w)."""
        if not isinstance(image, np.ndarray) or image.dtype != self.dtype or image.ndim not in (3, 4) or not image.size:
            found = f"{image.dtype} {image.shape}" if isinstance(image, np.ndarray) else type(image).__qualname__
            raise ArgumentError(f"image: {found}, expected a numpy array of {self.dtype.name}, (c, h, w) or "
                                "(n, c, h, w)")
        if image.ndim == 4:
            return np.stack([self(one) for one in image])
        output = np.empty(self.plan(image.shape).output, self.dtype)
        for tile, part in self.parts(image.shape, lambda rows, columns: image[:, rows, columns]):
            output[:, tile.rows, tile.columns] = part
        return output


def apply(network: Network, image: np.ndarray, *, tile: tuple[int, int] | None = None, memory: int = MEMORY,
          whole: bool = False) -> np.ndarray:
    """Return the output of a network, as after training, for an image of any size, computed tile by tile.

    Parameters
    ----------
    network : Network
    image : numpy.ndarray, shape (c, h, w) or (n, c, h, w), of the network's dtype
    tile, memory, whole : as of `TiledNetwork`

    Returns
    -------
    output : numpy.ndarray, shape (k, p, q) or (n, k, p, q)
        What the network makes of the whole image.

    Raises
    ------
    FileError, ArgumentError
        If a layer cannot take the image, or parts of it: names the layer.
    DivergenceError
        If the output is not finite.
    """
    return TiledNetwork(network, tile=tile, memory=memory, whole=whole)(image)


def _scales(graph: Graph, shape: Shape, size: Shape) -> list[Fraction]:
    """Of a network that may not be one for tiles: then of the sizes."""
    try:
        return TiledGraph(graph, shape).output_scales
    except FileError:
        return [Fraction(new, old) for new, old in zip(size, shape[1:], strict=True)]


def _after_training(node: Operation) -> Operation:
    return replace(node, training=False) if isinstance(node, BatchNorm2d) and node.track_running_stats else node
