# SPDX-License-Identifier: MIT
"""Our own kernels for convolutions of more channels than a thread makes: which they are, and that they are exact."""

from __future__ import annotations

import numpy as np
import pytest

from bridge.doctor.plans import LAYOUTS, OPERATIONS
from bridge.engine.arrays.operand import extent_of
from bridge.engine.library import extension
from tests.helpers.cases import Case, torch_convolution
from tests.helpers.networks.parity_tools import convolution

OURS = "our own kernel"
#: Operation, input channels, filters, images, pixels of a side, and whether it is ours in fp32
RULES = [
    ("forward", 32, 32, 1, 8, True), ("forward", 96, 32, 2, 64, True), ("forward", 64, 64, 2, 256, False),
    ("forward", 3, 64, 2, 32, True), ("forward", 8, 64, 2, 32, False), ("forward", 40, 24, 2, 32, False),
    ("data gradient", 32, 32, 1, 8, True), ("data gradient", 32, 64, 1, 512, True),
    ("data gradient", 96, 32, 2, 512, True), ("data gradient", 64, 64, 1, 512, False),
    ("data gradient", 64, 4, 1, 256, True), ("data gradient", 40, 64, 1, 512, False),
    ("filter gradient", 32, 32, 1, 8, True), ("filter gradient", 64, 64, 1, 64, True),
    ("filter gradient", 64, 64, 1, 60, False), ("filter gradient", 64, 64, 1, 66, False),
    ("filter gradient", 128, 128, 4, 64, True), ("filter gradient", 256, 256, 4, 64, False)]  # fmt: skip


def plan(device: str, operation: str, channels: int, filters: int, images: int, size: int) -> str:
    """The library's words on a convolution of 3 x 3 with padding 1."""
    said = extension.call("plan_text", device, "", OPERATIONS[operation], extension.ALL_DTYPES["float32"],
                          LAYOUTS["NCHW"], np.zeros(3, np.int32), np.ones(7, np.int32),
                          *map(extent_of, ((images, channels, size, size), (filters, channels, 3, 3))))
    return (said.decode() if isinstance(said, bytes) else str(said)).strip()


@pytest.mark.parametrize(("operation", "channels", "filters", "images", "size", "ours"), RULES)
def test_where_our_kernels_are_faster_they_are_taken(operation: str, channels: int, filters: int, images: int,
                                                     size: int, ours: bool, cuda: str) -> None:
    """In fp32; beside tensor cores those of few channels alone, and with direct=no none."""
    shape = channels, filters, images, size
    assert (plan(f"{cuda},math=fp32", operation, *shape) == OURS) is ours
    assert plan(f"{cuda},math=fp32,direct=no", operation, *shape) != OURS
    if max(channels, filters) > 16:
        assert plan(f"{cuda},math=tf32", operation, *shape) != OURS


@pytest.mark.parametrize(("options", "channels", "filters", "forward"), [
    ("math=fp32", 33, 5, True), ("math=fp32", 64, 64, True), ("math=fp32", 64, 4, False),
    ("math=fp32,direct=no", 64, 64, False), ("math=tf32", 64, 64, False)])
def test_data_gradients_of_many_channels_are_forward_passes(options: str, channels: int, filters: int, forward: bool,
                                                            cuda: str) -> None:
    said = plan(f"{cuda},{options}", "data gradient", channels, filters, 2, 32)
    assert said.startswith("engine") and said.endswith(", as a forward pass") is forward


CASES = [
    # Data gradients as forward passes, whose padding is another on each side
    Case("40->24", (2, 40, 9, 11), (24, 40, 3, 3), padding=(0, 2)),
    Case("33->5", (2, 33, 8, 7), (5, 33, 3, 3), padding=(1, 0)),
    # A data gradient of enough threads, with many rows of fours
    Case("48->1", (1, 48, 296, 296), (1, 48, 3, 3), padding=(1, 1)),
    # Filter gradients of channels that are no multiple of four on either side, of short rows, and of several images
    Case("36->3", (9, 36, 24, 20), (3, 36, 3, 3), padding=(1, 1)),
    Case("3->40", (17, 3, 16, 16), (40, 3, 3, 3), padding=(1, 1)),
    # Sums of more rows than blocks of their own are made for
    Case("48->16", (2, 48, 48, 44), (16, 48, 3, 3), padding=(1, 1)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_they_are_exact_on_integers(case: Case, cuda: str) -> None:
    rng = np.random.default_rng(3)
    t = {name: rng.integers(-3, 4, shape).astype(np.float32)
         for name, shape in {"x": case.x, "w": case.w, "b": case.w[:1], "dy": case.y}.items()}
    found, right = convolution(case, t, f"{cuda},math=fp32"), torch_convolution(case, t)
    assert set(found) == set(right)
    for name, array in right.items():
        assert np.array_equal(found[name], array), name
