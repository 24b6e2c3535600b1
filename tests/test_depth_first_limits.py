# SPDX-License-Identifier: MIT
"""What depth first is not for, and what it may take of memory."""

from __future__ import annotations

import numpy as np
from chains import chain, conv
from test_lean_network import networks

import bridge
from bridge.model import Model


def _way(*convolutions: bridge.model.Conv2d, shape: tuple[int, int, int, int]) -> str:
    way, = bridge.Network(Model(chain(*convolutions)), lean=True).ways(shape)
    return way


def test_a_wide_input_counts_for_the_window() -> None:
    few = [conv("a", 256, 4, padding=(1, 1)), conv("b", 4, 4, padding=(1, 1))]
    rows = 393216 // (256 * 64 * 4)
    assert _way(*few, shape=(1, 256, 64, 64)).count(f"in windows of {rows} rows") == 2


def test_padding_alone_does_not_fill_the_memory() -> None:
    """A window of many short rows, each with a padding of thousands of pixels."""
    far = [conv("a", 1, 2, (1, 2), padding=(0, 15000), dilation=(1, 30000)), conv("b", 2, 2, (1, 1))]
    assert _way(*far, shape=(1, 1, 60000, 1)) == "a .. b: on device cpu, one after the other"


def test_one_filter_over_one_channel_goes_one_after_the_other() -> None:
    """It is added up row by row, which depends on the rows of a band: outputs would not be those of a plain network."""
    model = Model(chain(conv("a", 1, 1, padding=(1, 1)), conv("b", 1, 1, padding=(1, 1))))
    plain, lean = networks(model)
    assert lean.ways((1, 1, 64, 50)) == ["a .. b: on device cpu, one after the other"]
    x = np.random.default_rng(1).normal(size=(1, 1, 64, 50)).astype(np.float32)
    assert np.array_equal(plain.forward(x), lean.forward(x))
