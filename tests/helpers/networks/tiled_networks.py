# SPDX-License-Identifier: MIT
"""Networks that can be computed in tiles, of every operation that can."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bridge import Conv2d, Model, Network, Relu
from bridge.operations import (
    OPERATIONS,
    Add,
    AvgPool2d,
    BatchNorm2d,
    Concat,
    ConvTranspose2d,
    Dropout,
    LogSoftmax,
    Max,
    MaxPool2d,
    Multiply,
    Operation,
    Prelu,
    ReflectionPad2d,
    ReplicationPad2d,
    Sigmoid,
    Softmax,
    Tanh,
    UpsampleBilinear2d,
    UpsampleNearest2d,
    ZeroPad2d,
)
from bridge.operations.pointwise import Pointwise


def conv(name: str, inputs: int, outputs: int, kernel: int = 3, *given: str, **options: object) -> Conv2d:
    """Square, with a padding that keeps the size unless it is given."""
    span = (kernel - 1) // 2
    return Conv2d(name, inputs, outputs, (kernel, kernel), inputs=given,
                  **{"padding": (span, span)} | options)  # type: ignore[arg-type]


def unet() -> list[Operation]:
    """Two levels down by pooling and by a stride, and up by a transposed convolution and by interpolation."""
    return [conv("a", 1, 4), Relu("ra"), MaxPool2d("down1", (2, 2), (2, 2)), conv("b", 4, 6), Tanh("rb"),
            Conv2d("down2", 6, 8, (3, 3), (2, 2), (1, 1)), Relu("rc"), conv("c", 8, 8),
            ConvTranspose2d("up2", 8, 6, (2, 2), (2, 2)), Concat("join2", inputs=("up2", "rb")), conv("d", 12, 6),
            Relu("rd"), UpsampleBilinear2d("up1", (2, 2)), Concat("join1", inputs=("up1", "ra")), conv("e", 10, 4),
            Relu("re"), conv("last", 4, 1, 1)]


def residual() -> list[Operation]:
    """Blocks with normalisations by running statistics, and the input added."""
    nodes: list[Operation] = [conv("first", 1, 4)]
    before = "first"
    for k in range(3):
        nodes += [conv(f"a{k}", 4, 4, 3, before, bias=False), BatchNorm2d(f"n{k}", 4, track_running_stats=True),
                  Relu(f"r{k}"), Dropout(f"d{k}", 0.5), conv(f"b{k}", 4, 4), Add(f"s{k}", inputs=(f"b{k}", before))]
        before = f"s{k}"
    return [*nodes, conv("noise", 4, 1), Add("out", inputs=("noise", "input"))]


#: By name; what each shows stands in its layers
NETWORKS: dict[str, list[Operation]] = {
    "default": [Conv2d("1", 1, 8, (3, 3)), Relu("r1"), Conv2d("2", 8, 8, (3, 3)), Relu("r2"),
                Conv2d("3", 8, 1, (3, 3))],
    "unet": unet(), "residual": residual(),
    "strides": [Conv2d("1", 1, 3, (4, 3), (2, 3), (1, 0)), Prelu("p", 3),
                Conv2d("2", 3, 2, (3, 3), (1, 2), (2, 2), (2, 1))],
    "far": [Conv2d("1", 1, 3, (3, 5), padding=(9, 2), dilation=(4, 3)), Sigmoid("s"), conv("2", 3, 1, 7)],
    "depthwise": [conv("1", 1, 4, 3), conv("2", 4, 4, 5, groups=4), conv("3", 4, 4, 3, groups=4, stride=(2, 2)),
                  ConvTranspose2d("4", 4, 4, (3, 3), (2, 2), (1, 1), (1, 1), groups=4)],
    "transposed": [ConvTranspose2d("1", 1, 3, (3, 2), (2, 3), (1, 0), (1, 2), (1, 2)), Relu("r"), conv("2", 3, 1)],
    "holes": [ConvTranspose2d("1", 1, 2, (1, 1), (3, 2), output_padding=(2, 1)), conv("2", 2, 1)],
    "trimmed": [ConvTranspose2d("1", 1, 2, (2, 2), padding=(3, 2)), conv("2", 2, 1)],
    "pools": [AvgPool2d("1", (3, 2), (2, 1), (1, 1)), MaxPool2d("2", (3, 3), (1, 2), (1, 1)), conv("3", 1, 2),
              Softmax("4")],
    "mirrored": [ReflectionPad2d("1", (3, 2, 1, 4)), conv("2", 1, 3, 5, padding=(0, 0)),
                 ReflectionPad2d("3", (1, 2, 5, 0)), conv("4", 3, 1)],
    "framed": [ZeroPad2d("1", (0, 3, 2, 0)), conv("2", 1, 3), ReplicationPad2d("3", (2, 1, 0, 4)),
               conv("4", 3, 2), LogSoftmax("5")],
    "larger": [conv("1", 1, 2), UpsampleNearest2d("2", (3, 2)), conv("3", 2, 2), UpsampleBilinear2d("4", (1, 4)),
               conv("5", 2, 1)],
    "gated": [conv("1", 1, 3), Sigmoid("2"), conv("3", 1, 3, 3, "input"), Multiply("4", inputs=("2", "3")),
              Max("5", (1,), True), Multiply("6", inputs=("5", "4")), conv("7", 3, 1)],
    "smaller": [MaxPool2d("1", (2, 3), (2, 3)), conv("2", 1, 2), MaxPool2d("3", (2, 2), (2, 2)), conv("4", 2, 1)],
}


def network(nodes: Sequence[Operation], dtype: str = "float32", seed: int = 0, **options: object) -> Network:
    """With random weights, and running statistics that are no 0 and 1."""
    net = Network(Model(tuple(nodes)), dtype, **options)  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    for name, array in net.parameters.items():
        array[...] = rng.standard_normal(array.shape) / max(1, np.prod(array.shape[1:])) ** 0.5
        if name.endswith("bias"):
            array[...] += 0.5
    for array in net.buffers.values():
        array[...] = rng.uniform(0.5, 2, array.shape)
    return net


def random_nodes(rng: np.random.Generator) -> list[Operation]:
    """A network of up to eight operations, sometimes joined with what was before; what cannot be is left out."""
    nodes: list[Operation] = [conv("first", 1, 4, int(rng.integers(1, 5)))]
    while len(nodes) < 8:
        name = f"n{len(nodes)}"
        if rng.random() < 0.25:
            before = ("input", *(node.name for node in nodes))[int(rng.integers(len(nodes)))]
            one: Operation = Concat(name, inputs=(nodes[-1].name, before))
            if rng.random() < 0.5:
                one = Add(name, inputs=(nodes[-1].name, before))
        else:
            one = _random_node(rng, name)
        if _fits([*nodes, one]):
            nodes.append(one)
    return nodes


def _random_node(rng: np.random.Generator, name: str) -> Operation:
    def pair(low: int, high: int) -> tuple[int, int]:
        return int(rng.integers(low, high)), int(rng.integers(low, high))

    sides: tuple[int, int, int, int] = (*pair(0, 4), *pair(0, 4))
    channels = int(rng.choice([1, 4, 8]))
    smooth = [kind for kind in OPERATIONS.values() if issubclass(kind, Pointwise) and kind.kind not in (
        "exp", "log", "log2", "log10", "reciprocal", "rsqrt", "sqrt", "square", "clip")]
    made: list[Operation] = [
        Conv2d(name, channels, 4, pair(1, 5), pair(1, 3), pair(0, 4), pair(1, 3)),
        Conv2d(name, channels, channels, pair(1, 6), padding=pair(0, 3), groups=channels),
        ConvTranspose2d(name, channels, 4, pair(1, 5), pair(2, 4), pair(0, 3), pair(0, 2), pair(1, 3)),
        MaxPool2d(name, pair(2, 4), pair(1, 4), pair(0, 2)), AvgPool2d(name, pair(2, 4), pair(1, 3), pair(0, 2)),
        UpsampleNearest2d(name, pair(1, 4)), UpsampleBilinear2d(name, (int(rng.choice([1, 2, 4])), 2)),
        ZeroPad2d(name, sides), ReplicationPad2d(name, sides), ReflectionPad2d(name, sides), Softmax(name),
        Prelu(name), BatchNorm2d(name, channels, track_running_stats=True),
        smooth[int(rng.integers(len(smooth)))](name)]
    return made[int(rng.integers(len(made)))]


def _fits(nodes: list[Operation]) -> bool:
    """It takes images of 40 x 36, and its output is neither tiny nor huge; its branches have one scale."""
    from bridge.apply.tiling import TiledGraph
    from bridge.common.errors import FileError
    from bridge.operations.graph import Graph

    try:
        graph = Graph(nodes)
        shapes = graph.shapes((1, 1, 40, 36))
        last = shapes[graph.nodes[-1].name]
        if min(last[2:]) < 6 or max(last[2:]) > 160 or last[1] > 16:
            return False
        TiledGraph(graph, (1, 40, 36))
    except FileError:
        return False
    return True
