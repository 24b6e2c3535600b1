# SPDX-License-Identifier: MIT
"""Losses with settings are kept by files, torch's modules and Fortran programs, and computed as torch has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bridge import Conv2d, Model, Network, Sgd
from bridge.gradcheck.cases import LOSS_CASES
from bridge.operations.losses import loss_from
from bridge.operations.pointwise import Sigmoid
from tests import ROOT
from tests.helpers.library.cnn_library import compiled, printed
from tests.helpers.loops import looped

TEXTS = [text for texts in LOSS_CASES.values() for text in texts]
LAYERS = (Conv2d("conv", 1, 4, (1, 1)), Sigmoid("share"))


def drawn() -> tuple[np.ndarray, np.ndarray]:
    """Images, and one class of each pixel: what every loss takes for a target."""
    rng = np.random.default_rng(1)
    classes = np.eye(4)[rng.integers(0, 4, (2, 3, 5))]
    return rng.standard_normal((2, 1, 3, 5)), np.ascontiguousarray(np.moveaxis(classes, 3, 1))


def by_torch(net: Network, x: np.ndarray, target: np.ndarray) -> float:
    """Its loss in float64."""
    with torch.no_grad():
        y = net.to_torch().double()(torch.from_numpy(x))
    return float(net.model.criterion.torch_forward(y, torch.from_numpy(target)))


@looped("text", TEXTS)
def test_a_file_keeps_a_loss(text: str, tmp_path: Path) -> None:
    """With every setting: the model is the same, and what it computes, to the bit."""
    x, target = drawn()
    for mean in (True, False):
        net = Network(Model(LAYERS, mean, text), "float64")
        net.parameters["conv.weight"][...] = np.array([0.5, -1, 2, 0.25]).reshape(4, 1, 1, 1)
        net.save(tmp_path / "net.h5")
        again = Network.from_file(tmp_path / "net.h5")
        assert again.model == net.model.joined() and again.model.criterion == loss_from(text, mean)
        losses = [one.step(x, target, Sgd(0.125)) for one in (net, again)]
        assert losses[0] == losses[1]
        assert net.parameters["conv.weight"].tobytes() == again.parameters["conv.weight"].tobytes()
        net.forward(x)
        assert net.loss(target) == pytest.approx(by_torch(net, x, target), rel=1e-12)
        made = Network.from_torch(net.to_torch(), loss=text, reduction="mean" if mean else "sum")
        assert made.model.criterion == net.model.criterion


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = ROOT / "tests/library/programs/losses.f90"
    return compiled(source, tmp_path_factory.mktemp("losses"))


@looped("text", TEXTS)
def test_a_fortran_program_has_the_same_losses(text: str, program: Path) -> None:
    """Built from the text, and loaded from a file: numbers and file are those of `bridge.Network`, to the bit."""
    x = ((np.arange(1, 31) * 7 % 23 - 11) / 8).reshape(2, 1, 3, 5)
    n, j, i = np.indices((2, 3, 5)) + 1
    target = np.ascontiguousarray(np.moveaxis(np.eye(4)[(i + 2 * j + n) % 4], 3, 1))
    for mean in (True, False):
        losses = [float(line) for line in printed(program, text, "mean" if mean else "sum")]
        net = Network.from_file(program.parent / "before.h5")
        assert net.model.criterion == loss_from(text, mean)
        assert losses[0] == net.step(x, target, Sgd(0.125))
        net.forward(x)
        assert losses[1] == net.loss(target) == pytest.approx(by_torch(net, x, target), rel=1e-12)
        after = Network.from_file(program.parent / "after.h5")
        assert after.model == net.model
        assert {name: one.tobytes() for name, one in after.parameters.items()} == {
            name: one.tobytes() for name, one in net.parameters.items()}
