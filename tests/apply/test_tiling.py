# SPDX-License-Identifier: MIT
"""The output of tiles is that of the whole image, to the bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.validator.random_graphs import Network as TorchNetwork
from benchmarks.validator.random_graphs import draw_layers
from bridge import Network
from bridge.apply import TiledNetwork, apply, tiling
from bridge.apply.network import MEMORY
from bridge.apply.receptive_field import why_whole
from bridge.apply.tiling import TiledGraph, size_within, tiles
from bridge.common.errors import ArgumentError, BridgeError, DivergenceError, FileError
from bridge.operations import (
    Add,
    Conv2d,
    GlobalAvgPool2d,
    MaxPool2d,
    Multiply,
    Operation,
    UpsampleBilinear2d,
    UpsampleNearest2d,
)
from bridge.operations.graph import Graph
from tests.helpers.networks.tiled_networks import NETWORKS, conv, network, random_nodes
from tests.helpers.tiers import few, few_rows

#: Of images; the U-Net takes multiples of four, as it does of whole images
SIZES = {"unet": (52, 36)}
TILES = ((1, 40), (7, 5), (16, 16), (23, 100))


def image(size: tuple[int, int], dtype: str = "float32", channels: int = 1) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((channels, *size)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NETWORKS)
def test_tiles_are_the_whole_image(name: str, dtype: str) -> None:
    """Of every operation, at odd sizes; with what lies between the layers kept, or not."""
    x = image(SIZES.get(name, (47, 38)), dtype)
    net = network(NETWORKS[name], dtype, keep_activations=dtype == "float64")
    whole = net.eval().forward(x[None])[0].copy()
    assert np.ptp(whole) > 1e-3
    net.train()
    for tile in TILES:
        assert np.array_equal(apply(net, x, tile=tile), whole), tile
    assert net.training


@pytest.mark.parametrize("seed", few(range(60), 12))
def test_random_networks(seed: int) -> None:
    """With tiles of random sizes, of images whose sizes are no multiples of anything."""
    rng = np.random.default_rng(seed)
    net = network(random_nodes(rng), seed=seed, keep_activations=bool(seed % 2))
    x = image((40, 36))
    whole = apply(net, x, whole=True)
    for _ in range(3):
        tile = int(rng.integers(3, 40)), int(rng.integers(3, 40))
        assert np.array_equal(apply(net, x, tile=tile), whole), tile


@pytest.mark.deep
@pytest.mark.parametrize("first", range(0, 500, 25))
def test_the_validators_random_graphs(first: int) -> None:
    """Of all operations: each is computed in tiles to the same bits, or refused for the layer that it has."""
    done = 0
    for seed in range(first, first + 25):
        rng = np.random.default_rng(seed)
        layers = draw_layers(rng, (2, 2, 15, 13))
        if not layers:
            continue
        module = TorchNetwork(layers).eval()
        try:
            net = Network.from_torch(module, example=(2, 2, 15, 13))
        except BridgeError:
            continue
        x = np.random.default_rng(seed).standard_normal((2, 15, 13), dtype=np.float32)
        reasons = [why_whole(node) for node in TiledNetwork(net)._graph.nodes]
        try:
            found = apply(net, x, tile=(5, 4))
        except FileError as error:
            assert any(reasons) or "inputs of one size and scale" in str(error), error
            continue
        done += 1
        assert not any(reasons)
        whole = apply(net, x, whole=True)
        assert np.array_equal(found, whole) or np.abs(found - whole).max() <= _of_interpolation(net, whole), seed
    assert done


def _of_interpolation(net: Network, whole: np.ndarray) -> float:
    """What may differ: places between pixels are rounded, where the factor is no power of two."""
    rounded = [node for node in net.model.layers if isinstance(node, UpsampleBilinear2d) and 3 in node.scale_factor]
    return 1e-5 * float(np.abs(whole).max()) if rounded else 0.0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_interpolation_by_three(dtype: str) -> None:
    """The weights are those of places that are counted from the crop's beginning, in float64."""
    net = network([conv("1", 1, 2), UpsampleBilinear2d("2", (3, 5)), conv("3", 2, 1)], dtype)
    x = image((60, 50), dtype)
    whole = apply(net, x, whole=True)
    found = apply(net, x, tile=(31, 29))
    assert np.abs(found - whole).max() <= 60 * 5 * np.finfo(np.float64).eps * np.abs(whole).max() * 10 + (
        0 if dtype == "float64" else np.finfo(np.float32).eps * np.abs(whole).max())


@pytest.mark.parametrize(("nodes", "size"), few_rows([
    # Results of 8 MB and more are stored past the caches, and some sums have another order there
    ([conv("1", 1, 8), conv("2", 8, 8, 3, groups=8), conv("3", 8, 1, 1)], (540, 520)),
    ([conv("1", 1, 4, stride=(2, 2)), UpsampleNearest2d("2", (2, 2)), conv("3", 4, 8), conv("4", 8, 1)], (540, 520)),
    ([conv("1", 1, 16), conv("2", 16, 16), conv("3", 16, 1)], (40, 4100)),
], 3))
def test_large_images(nodes: list[Operation], size: tuple[int, int]) -> None:
    """The algorithms of convolutions may be others for large images: the bits are the same."""
    net, x = network(nodes, keep_activations=False), image(size)
    assert np.array_equal(apply(net, x, tile=(200, 190)), apply(net, x, whole=True))


def test_several_images_and_channels() -> None:
    net = network([conv("1", 3, 2)])
    x = np.stack([image((20, 30), channels=3)] * 2) + np.float32(1)
    found = apply(net, x, tile=(6, 6))
    assert found.shape == (2, 2, 20, 30) and np.array_equal(found, net.forward(x))


def test_an_image_of_one_pixel() -> None:
    """Normalisations by running statistics take it, which those by the image's own could not."""
    net, x = network(NETWORKS["residual"]), image((1, 1))
    assert np.array_equal(apply(net, x), net.eval().forward(x[None])[0])


def test_the_size_of_tiles_follows_the_memory() -> None:
    """All between the layers fits in; the longer side is halved first."""
    tiled = TiledGraph(Graph(NETWORKS["default"]), (1, 1000, 600))
    assert size_within(tiled, MEMORY, 4) == (994, 594)
    sizes = [size_within(tiled, memory, 4) for memory in (40_000_000, 20_000_000, 1_000_000)]
    assert sizes == [(497, 297), (249, 297), (63, 75)]
    for memory, size in zip((40_000_000, 20_000_000, 1_000_000), sizes, strict=True):
        crop = [max(one.crop_rows.stop - one.crop_rows.start for one in tiles(tiled, size)),
                max(one.crop_columns.stop - one.crop_columns.start for one in tiles(tiled, size))]
        assert tiled.bytes(*crop, 4) <= memory
    with pytest.raises(ArgumentError, match="memory: 100 bytes, expected 22556 or more"):
        size_within(tiled, 100, 4)


def test_crops_are_as_small_as_they_may_be() -> None:
    """The halo of three convolutions is three pixels, where the image goes on."""
    tiled = TiledGraph(Graph([conv("1", 1, 1), conv("2", 1, 1), conv("3", 1, 1)]), (1, 100, 100))
    assert [tiled.crop(0, wanted) for wanted in ((0, 10), (40, 50), (90, 100))] == [(0, 13), (37, 53), (87, 100)]
    graph = Graph([MaxPool2d("1", (4, 4), (4, 4)), conv("2", 1, 1), UpsampleNearest2d("3", (4, 4))])
    strided = TiledGraph(graph, (1, 100, 100))
    assert strided.step == [4, 4] and strided.crop(1, (33, 64)) == (28, 68)
    # Eight pixels of each node
    assert strided.crop(1, (41, 42)) == (24, 60)
    # The end is a multiple of four away from the image's
    assert TiledGraph(graph, (1, 100, 103)).crop(1, (33, 64)) == (28, 71)


@pytest.mark.parametrize(("nodes", "said"), [
    ([conv("1", 1, 2), GlobalAvgPool2d("mean"), Multiply("gate", inputs=("mean", "1"))], "layer mean .*whole image"),
    ([Conv2d("a", 1, 1, (1, 20)), Add("sum", inputs=("a", "input"))], r"layer sum \(add\): inputs of 1 and 20 pixels"),
    ([Conv2d("a", 1, 1, (1, 1), (2, 2)), Conv2d("b", 1, 1, (11, 11), inputs=("input",)), Add("sum", inputs=("a", "b"))],
     r"layer sum \(add\): inputs of 10 pixels, at 1/2 and 1 times the image's"),
])
def test_branches_must_fit(nodes: list[Operation], said: str) -> None:
    """Two that have one size by accident have none in a crop."""
    net, x = network(nodes), image((20, 20))
    with pytest.raises(FileError, match=said):
        apply(net, x, tile=(5, 5))


def test_what_the_network_does_not_take_is_refused() -> None:
    net = network(NETWORKS["unet"])
    with pytest.raises(FileError, match="layer join1"):
        apply(net, image((49, 36)))
    with pytest.raises(FileError, match="3 channels, expected 1"):
        apply(net, image((48, 36), channels=3))
    for wrong in (image((48, 36), "float64"), image((48, 36))[0], [[1.0]]):
        with pytest.raises(ArgumentError, match=r"image: .*expected a numpy array of float32"):
            apply(net, wrong)  # type: ignore[arg-type]
    for options, said in (({"tile": (0, 4)}, "tile: "), ({"memory": 0}, "memory: 0")):
        with pytest.raises(ArgumentError, match=said):
            apply(net, image((48, 36)), **options)  # type: ignore[arg-type]


def test_an_output_that_is_not_finite_is_an_error() -> None:
    """It names the tile, and the network is in the mode that it was in."""
    net = network([conv("1", 1, 1)])
    net.parameters["1.weight"][...] = 3e38
    with pytest.raises(DivergenceError, match="rows 0 to 4, columns 0 to 5"):
        apply(net, image((8, 10)) + np.float32(9), tile=(4, 5))
    assert net.training


def less_halo(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pixel of what is read is left out."""
    right = tiling._inside
    monkeypatch.setattr(tiling, "_inside", lambda read, length: right((read[0] + 1, read[1]), length))


def no_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiling.math, "lcm", lambda *numbers: 1)


def no_borders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read at the image's end, so that the crop pads where it ends."""
    right = tiling._inside
    monkeypatch.setattr(tiling, "_inside", lambda read, length: right((read[0], min(read[1], length - 1)), length))


@pytest.mark.parametrize(("fault", "name"), [
    (less_halo, "residual"), (less_halo, "unet"), (no_alignment, "strides"), (no_alignment, "unet"),
    (no_borders, "residual"), (no_borders, "mirrored")])
def test_a_fault_would_be_found(fault: Callable[[pytest.MonkeyPatch], None], name: str,
                                monkeypatch: pytest.MonkeyPatch) -> None:
    """By the test of the bits, or because the network refuses the crop."""
    net, x = network(NETWORKS[name]), image(SIZES.get(name, (47, 38)))
    whole = apply(net, x, whole=True)
    fault(monkeypatch)
    try:
        found = apply(net, x, tile=(7, 5))
    except (BridgeError, ValueError):
        return
    assert not np.array_equal(found, whole)
