# SPDX-License-Identifier: MIT
"""How much memory a step in float64 takes: at 1024 x 1024 each of its arrays has 134 MB."""

from __future__ import annotations

import tracemalloc

import numpy as np

from bridge.exchange.model import Conv2d, Model, Relu
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff
from bridge.judge.oracle.reductions import Truth
from bridge.judge.oracle.step import step_of_image

Array = np.ndarray
WIDTH, SIDE = 16, 96
CHAIN = Model(
    (
        Conv2d("conv1", 1, WIDTH, (3, 3), padding=(1, 1)),
        Relu("relu1"),
        Conv2d("conv2", WIDTH, WIDTH, (3, 3), padding=(1, 1)),
        Relu("relu2"),
        Conv2d("conv3", WIDTH, 1, (3, 3), padding=(1, 1)),
    )
)
#: Arrays of the widest layer, float64. Nine are there when it is taken back: four gradients, as many that are made of
#: them, and masks; what a pass that is over keeps would be six more
MOST = 11


def in_float32(name: str, value: Array, bound: Array, /, *local: Truth) -> Array:
    """A candidate that rounds once."""
    return value.astype(np.float32)


def test_what_is_done_with_is_let_go() -> None:
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal(shape) for name, shape in CHAIN.parameter_shapes().items()}
    x, target = rng.standard_normal((2, 1, SIDE, SIDE))
    tracemalloc.start()
    try:
        step_of_image(CHAIN, weights, x, target, 1.0, Arithmetic(total_roundoff("float32")), in_float32)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Unfolded blocks of numpy's convolutions do not grow with the image
    assert peak <= MOST * WIDTH * SIDE * SIDE * 8 + 4 * 2**20, f"{peak / (WIDTH * SIDE * SIDE * 8):.1f} arrays"
