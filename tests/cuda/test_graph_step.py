# SPDX-License-Identifier: MIT
"""``cnn_step --device cuda`` on networks that are no chains, on the strict software device."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import h5py
import pytest
from torch import nn

from bridge.engine.library.programs import cnn_step
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.operations import OPERATIONS
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.cuda.children import environment
from tests.helpers.loops import looped
from tests.helpers.networks.moves import OF_OWN_TESTS
from tests.helpers.torch_graphs import (
    Activations,
    Attention,
    Denoiser,
    Dropped,
    Evaluated,
    Everything,
    Gated,
    Kan,
    Mlp,
    Normalised,
    Pooled,
    Reduced,
    Resized,
    Resnet,
    Segmenter,
    Unet,
)

SETTINGS = {"height": 8, "width": 10, "batch": 3, "steps": 2}
OPTIMIZERS = {"sgd": {"momentum": 0.5}, "adam": {"optimizer": "adam", "weight_decay": 0.01},
              "adamw": {"optimizer": "adamw", "weight_decay": 0.01}}
#: Networks, and what of the settings is theirs
NETWORKS: dict[type[nn.Module], dict[str, object]] = {
    Denoiser: {}, Unet: {"loss": "smooth_l1 beta=0.25"}, Resnet: {"height": 12, "loss": "cross_entropy"},
    Mlp: {"height": 12, "loss": "l1"}, Everything: {}, Resized: {"loss": "huber delta=0.3"}, Evaluated: {}, Dropped: {},
    Segmenter: {"loss": "cross_entropy class_indices=1 ignore_index=0 label_smoothing=0.1"},
    Activations: {"loss": "bce_with_logits pos_weight=2.5"}, Gated: {}, Normalised: {}, Attention: {}, Reduced: {},
    Pooled: {}, Kan: {}}


def rows() -> nn.Module:
    """Linear layers over the columns of each row."""
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Linear(10, 5), nn.ReLU(),
                         nn.Linear(5, 3, bias=False))


def probabilities() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Sigmoid())


def run(fixture: Path, result: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """It ends with 99 if anything leaks."""
    return subprocess.run([cnn_step(), fixture, result, "--device", "cuda", *options], capture_output=True, text=True,
                          timeout=120, check=False, env=environment(STRICT_AT_EXIT="2"))


def check(folder: Path, optimizer: str, precision: str, **settings: object) -> None:
    """The verdict is rounding, and everything is there."""
    fixture, result = folder / "f.h5", folder / "r.h5"
    fixture.unlink(missing_ok=True)
    export(fixture, ExportSettings(**SETTINGS | OPTIMIZERS[optimizer] | settings))
    done = run(fixture, result, "--precision", precision)
    assert (done.returncode, done.stderr) == (0, "")
    comparison, verdict = judge(fixture, result, diagnosing=False)
    assert verdict.outcome is Outcome.ROUNDING and not comparison.failures, verdict.words


def test_linear_layers_are_right(tmp_path: Path) -> None:
    check(tmp_path, "sgd", "float32", model=rows)


def test_losses_of_probabilities_and_weighted_classes_are_right(tmp_path: Path) -> None:
    weighted = "cross_entropy weight=1,2.5,0.3,1 class_indices=1"
    for precision in ("float32", "float64"):
        check(tmp_path, "sgd", precision, model=probabilities, loss="bce")
        check(tmp_path, "sgd", precision, model=rows, loss=weighted, reduction="mean")
        check(tmp_path, "sgd", precision, model=rows, loss="cross_entropy weight=1,2.5,0.3,1", reduction="sum")


@looped("network", NETWORKS)
def test_networks_of_all_operations_are_right(tmp_path: Path, network: type[nn.Module]) -> None:
    turn = [*NETWORKS].index(network) % 2
    check(tmp_path, ("sgd", "adam")[turn], ("float32", "float64")[turn], model=network, **NETWORKS[network])


@pytest.mark.deep
@looped(("network", "optimizer"), zip(NETWORKS, itertools.cycle(OPTIMIZERS)))
def test_networks_are_right_with_every_optimizer(tmp_path: Path, network: type[nn.Module], optimizer: str) -> None:
    """Each optimiser on several networks: its kernels know nothing of the layers."""
    for precision in ("float32", "float64"):
        check(tmp_path, optimizer, precision, model=network, **NETWORKS[network])


def test_no_operation_is_left_out(tmp_path: Path) -> None:
    found = set()
    for network, settings in NETWORKS.items():
        export(tmp_path / "f.h5", ExportSettings(model=network, **SETTINGS | settings))
        with h5py.File(tmp_path / "f.h5") as file:
            found |= {layer.attrs["type"] for layer in file["model/layers"].values()}
        (tmp_path / "f.h5").unlink()
    # What torch.export alone reads is trained in tests/parity/test_many_dimensions.py
    assert found == set(OPERATIONS) - OF_OWN_TESTS
