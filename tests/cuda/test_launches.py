# SPDX-License-Identifier: MIT
"""Steps of a chain, a U-Net and a ResNet-18: what docs/cuda.md says of launches, and captured the same bits."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bridge import DeviceArray, Model, Network
from bridge.engine.library import extension
from bridge.operations import Dropout, Relu
from tests import ROOT
from tests.helpers.cuda.launches import STEPS, Run, run
from tests.helpers.tiers import few

#: A row of the table: a name and nine numbers, sums in bold
ROW = re.compile(r"^\| ([\w -]+) ((?:\| (?:\d+|\*\*\d+\*\*) ){9})\|$", re.M)
ROWS = ("default net", "U-Net", "ResNet-18")


def documented() -> dict[str, list[int]]:
    """The rows of the table in docs/cuda.md."""
    rows = ROW.findall((ROOT / "docs/cuda.md").read_text(encoding="utf-8"))
    return {name: [int(number) for number in re.findall(r"\d+", numbers)] for name, numbers in rows}


def test_the_table_has_these_rows() -> None:
    assert tuple(documented()) == ROWS


@pytest.mark.parametrize("network", few(ROWS, lambda name: name != "ResNet-18"))
def test_launches_are_those_of_the_docs(network: str) -> None:
    """Call by call: kernels, cuDNN's calls, copies, all of them; captured: graph, kernels, copies, all; its nodes. Nor
    does a step wait for a loss that nobody reads.
    """
    plain, captured = steps_of(network, keep=False)
    assert plain.launches["graphs"] == 0 and captured.launches["cuDNN"] == 0 and plain.waits == captured.waits == 0
    one, other = plain.launches, captured.launches
    found = [one["kernels"], one["cuDNN"], one["copies"], sum(one.values()),
             other["graphs"], other["kernels"], other["copies"], sum(other.values())]
    assert [*found, captured.nodes] == documented()[network]


def steps_of(network: str, *, keep: bool) -> tuple[Run, Run]:
    """Call by call, and captured: losses, parameters and running statistics have the same bits."""
    plain, captured = (run(network, device, keep=keep) for device in ("cuda,capture=no", "cuda"))
    assert plain.captured == [False] * STEPS and captured.captured == [False] + [True] * (STEPS - 1)
    assert captured.losses == plain.losses and captured.digest == plain.digest
    assert len(set(plain.losses)) == STEPS
    return plain, captured


@pytest.mark.deep
@pytest.mark.parametrize("network", [*ROWS, "classifier"])
def test_a_network_that_keeps_all_is_captured(network: str) -> None:
    """Dropouts, too, whose masks are others in each step."""
    steps_of(network, keep=True)


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
    extension.call("network_set_mask", net._handle, 2, larger.ctypes.data, np.array([9, 9, 1, 1], np.int32))
    net.masks.give({"drop": np.zeros((2, 3), np.float32)})
    assert net.step(x, x, lr=0.5) == 1 and not net.captured
