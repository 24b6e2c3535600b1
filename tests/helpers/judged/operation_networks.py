# SPDX-License-Identifier: MIT
"""One network for each operation, which is the node "it" behind a convolution, so that gradients flow through it."""

from __future__ import annotations

from bridge.gradcheck.cases import CASES
from bridge.operations import (
    OPERATIONS,
    Add,
    Affine,
    Attention,
    Clip,
    ComplexLinear,
    Conv2d,
    ConvTranspose2d,
    Embedding,
    Exp,
    Expand,
    Flatten,
    GatherRows,
    LayerNorm,
    Linear,
    Mean,
    Operation,
    Parameter,
    Permute,
    Relu,
    Reshape,
    Sigmoid,
    Spline,
    Sum,
)
from bridge.operations.graph import Graph
from bridge.operations.table import rows
from reference.network.pointwise import ELEMENTARY

#: What another operand is, or positive numbers
OTHER = {"divide": Exp("other")} | dict.fromkeys(("add", "amin", "concat", "matmul", "max", "multiply", "subtract"),
                                                 Relu("other")) | dict.fromkeys(ELEMENTARY, Sigmoid("other"))
#: Whole numbers from 0 to 4, of which no rounding makes others: how many channels of a pixel are positive
WHOLE: list[Operation] = [Affine("steep", 1e8, 0.0, inputs=("first",)), Clip("bits", 0.0, 1.0),
                          Sum("numbers", (1,), inputs=("bits",))]
#: What fits images of 16 by 16, in place of the case of `bridge.gradcheck`
FITTING: dict[str, list[Operation]] = {
    # The output_padding of the width is more than a stride
    "conv_transpose2d": [ConvTranspose2d("it", 4, 6, (3, 2), (2, 1), (1, 0), (1, 2), (1, 3), 2)],
    "expand": [Mean("narrow", (2,), True), Expand("it", (-1, 16, -1))],
    "flatten": [Flatten("it"), Linear("last", 1024, 3)], "layer_norm": [LayerNorm("it", (16, 16), 1e-3)],
    "attention": [Relu("other"), Sigmoid("third", inputs=("first",)),
                  Attention("it", True, inputs=("first", "other", "third"))],
    "complex_linear": [Reshape("pairs", (4, 128, 2)), ComplexLinear("it", 4, 3, 128)],
    "embedding": [*WHOLE, Embedding("it", 5, 4), Permute("turned", (0, 3, 1, 2)),
                  Add("sum", inputs=("first", "turned"))],
    "gather_rows": [*WHOLE, Reshape("table", (64, 16), inputs=("first",)),
                    GatherRows("it", inputs=("table", "numbers"))],
    "parameter": [Parameter("it", (4, 16, 16), inputs=("input",)), Add("sum", inputs=("first", "it"))],
    "spline": [Spline("it", 16, 5, 6, 2, -0.8, 1.0)],
    # Images of 4 channels as 4 times
    **{kind: [Reshape("times", (4, 256)), Linear("gates", 256, OPERATIONS[kind].gates * 3), OPERATIONS[kind]("it", 3)]
       for kind in rows("recurrence")},
    # Images of 16 by 16 as volumes
    **{kind: [Reshape("volume", (4, 4, 8, 8)), CASES[kind][0].node] for kind in rows("volumes")}}
#: What stands behind the convolution
NETWORKS: dict[str, list[Operation]] = {
    kind: [*filter(None, [OTHER.get(kind)]), *FITTING.get(kind, [cases[0].node])] for kind, cases in CASES.items()}
#: What fixtures take in their place: outputs that are images or vectors, of as many samples as the input, and what
#: every device has
FIXTURES: dict[str, list[Operation]] = {
    "amin": [*NETWORKS["amin"], Flatten("last")], "max": [*NETWORKS["max"], Flatten("last")],
    **{kind: [*NETWORKS[kind], Flatten("last")] for kind in (*rows("volumes"), *rows("recurrence"))},
    "conv_transpose2d": [CASES["conv_transpose2d"][0].node], "mean": [Mean("it", (2,), True)]}


def network(kind: str, channels: int = 2, *, of_fixture: bool = False) -> Graph:
    """Of an operation, for images (n, channels, 16, 16)."""
    nodes = FIXTURES.get(kind, NETWORKS[kind]) if of_fixture else NETWORKS[kind]
    return Graph([Conv2d("first", channels, 4, (3, 3), padding=(1, 1)), *nodes])
