# SPDX-License-Identifier: MIT
"""Steps of a chain, a U-Net and a ResNet-18: what docs/cuda.md says of launches, and captured the same bits."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bridge import DeviceArray, Model, Network
from bridge.engine.arrays.operand import extent_of
from bridge.engine.library import extension
from bridge.operations import Dropout, Relu
from tests import ROOT
from tests.helpers.cuda.launches import STEPS, run
from tests.helpers.tiers import deep, few

#: A row of the table: a name and nine numbers, sums in bold
ROW = re.compile(r"^\| ([\w -]+) ((?:\| (?:\d+|\*\*\d+\*\*) ){9})\|$", re.M)
ROWS = ("default net", "U-Net", "ResNet-18")


def documented() -> dict[str, list[int]]:
    """The rows of the table in docs/cuda.md."""
    rows = ROW.findall((ROOT / "docs/cuda.md").read_text(encoding="utf-8"))
    return {name: [int(number) for number in re.findall(r"\d+", numbers)] for name, numbers in rows}


def test_the_table_has_these_rows() -> None:
    assert tuple(documented()) == ROWS


def assert_same_bits(network: str, *, keep: bool = False) -> None:
    """Losses, parameters and running statistics, after steps of which all but the first are one launch."""
    plain, captured = (run(network, device, keep=keep) for device in ("cuda,capture=no", "cuda"))
    assert plain.captured == [False] * STEPS and captured.captured == [False] + [True] * (STEPS - 1)
    assert captured.losses == plain.losses and captured.digest == plain.digest
    assert len(set(plain.losses)) == STEPS


@pytest.mark.parametrize("network", few(ROWS, "default net".__eq__))
def test_launches_are_those_of_the_docs(network: str) -> None:
    """Call by call: kernels, cuDNN's calls, copies, all of them; captured: graph, kernels, copies, all; its nodes.

    Captured the same bits; and neither waits for a loss that nobody reads.
    """
    plain, captured = (run(network, device) for device in ("cuda,capture=no", "cuda"))
    called, launched = plain.launches, captured.launches
    assert called["graphs"] == 0 and launched["cuDNN"] == 0
    found = [called["kernels"], called["cuDNN"], called["copies"], sum(called.values()),
             launched["graphs"], launched["kernels"], launched["copies"], sum(launched.values())]
    assert [*found, captured.nodes] == documented()[network]
    assert plain.waits == captured.waits == 0
    assert_same_bits(network)


@pytest.mark.parametrize(("network", "keep"), [
    ("classifier", False), *(deep(network, True) for network in (*ROWS, "classifier"))])
def test_a_captured_step_gives_the_same_bits(network: str, keep: bool) -> None:
    assert_same_bits(network, keep=keep)


def test_a_loss_that_waits_is_not_captured() -> None:
    """The mean over the pixels that count is by a number that the host has to know."""
    plain, other = (run("classes", device) for device in ("cuda,capture=no", "cuda"))
    assert other.captured == [False] * STEPS and other.waits > 0
    assert other.losses == plain.losses and other.digest == plain.digest


def test_a_mask_that_moves_is_no_captured_one(cuda: str) -> None:
    """A captured step reads the mask that it was captured with, which is gone."""
    net = Network(Model((Relu("a"), Dropout("drop", p=0.5)), loss="l1"), device=cuda)
    x = DeviceArray.from_numpy(np.ones((2, 3), np.float32), cuda)
    for _ in range(3):
        net.step(x, x, lr=0.5)
    assert net.captured
    larger = np.ones((9, 9), np.float32)
    extension.call("network_set_mask", net._handle, 2, larger.ctypes.data, extent_of((1, 1, 9, 9)))
    net.masks.give({"drop": np.zeros((2, 3), np.float32)})
    assert net.step(x, x, lr=0.5) == 1 and not net.captured
