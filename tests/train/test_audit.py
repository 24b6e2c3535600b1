# SPDX-License-Identifier: MIT
"""Audits of a running training: right steps are right whatever the settings, and a fault that comes later ends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from bridge import Adam, AdamW, Network, Sgd, compare
from bridge.common.errors import ArgumentError
from bridge.data import Batches, Consecutive
from bridge.engine.library import extension
from bridge.train import Checkpoints, Trainer, TrainSettings
from bridge.train.audit import AuditError
from bridge.train.trainer import StepRecord
from tests.helpers.torch_graphs import Unet

SETTINGS = TrainSettings(steps=7, optimizer=Sgd(0.05, momentum=0.9), audit_every=3)


def chain() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))


def normalised() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.SiLU(), nn.Dropout(0.25),
                         nn.Conv2d(6, 1, 3, padding=1))


@pytest.fixture(autouse=True)
def seed() -> None:
    """The same weights in every run of a test."""
    torch.manual_seed(0)


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    """Noise on something smooth, in pairs."""
    rng, place = np.random.default_rng(0), np.linspace(0, 3, 24)
    clean = np.sin(place[:, None] + 2 * place)
    np.save(tmp_path / "noisy.npy", (clean + 0.5 * rng.standard_normal((20, 24, 24))).astype(np.float32))
    return Batches(Consecutive(tmp_path / "noisy.npy"), batch=3, crop=(16, 16), seed=4, normalization="image")


def trained(module: nn.Module, batches: Batches, settings: TrainSettings, folder: Path,
            spoil: Callable[[Network, int], None] | None = None) -> list[StepRecord]:
    """The records of a training of which a network before each step may be spoilt."""
    net = Network.from_torch(module, keep_activations=False, example=(1, 1, 16, 16))
    records = list[StepRecord]()
    trainer = Trainer(net, batches, settings, Checkpoints(folder), report=records.append)
    if spoil is not None:
        step, update = net.step, net.update

        def spoilt(call: Callable[..., object]) -> Callable[..., object]:
            def run(*args: object, **options: object) -> object:
                number = net.steps
                found = call(*args, **options)
                spoil(net, number)
                return found
            return run

        net.step, net.update = spoilt(step), spoilt(update)  # type: ignore[method-assign, assignment]
    trainer.run()
    return records


@pytest.mark.parametrize("module", [chain, normalised, Unet])
@pytest.mark.parametrize("changes", [
    {}, {"optimizer": Adam(1e-2), "clip": 0.05}, {"optimizer": AdamW(1e-2), "accumulate": 3},
    {"optimizer": Sgd(0.1), "clip": 100.0}], ids=["momentum", "clipped", "accumulated", "not clipped"])
def test_right_steps(module: Callable[[], nn.Module], changes: dict[str, object], batches: Batches,
                     tmp_path: Path) -> None:
    settings = replace(SETTINGS, **changes)  # type: ignore[arg-type]
    records = trained(module(), batches, settings, tmp_path / "run")
    audits = [record.audit for record in records]
    assert [one is not None for one in audits] == [True, False, False, True, False, False, True]
    for one in audits[::3]:
        assert one is not None and one.verdict == "rounding" and 0 < one.t <= 1 and one.seconds > 0
    assert not any((tmp_path / "run" / "audits").iterdir())


def stale_momentum(net: Network, step: int, kept: dict[str, np.ndarray]) -> None:
    """From step 120 on the buffer of one layer stays what it was."""
    if step >= 120:
        net.momenta["2.weight"][...] = kept["2.weight"]
    kept["2.weight"] = np.array(net.momenta["2.weight"])


def test_a_fault_that_comes_later_ends_the_training(batches: Batches, tmp_path: Path) -> None:
    """At the first audit behind it; what shows it stays, and so does the last checkpoint before it."""
    settings = replace(SETTINGS, steps=200, audit_every=50, checkpoint_every=60)
    kept: dict[str, np.ndarray] = {}
    with pytest.raises(AuditError, match=r"step 150 of the training: BUG: .*\(after the step it is what it was before"):
        trained(chain(), batches, settings, tmp_path, lambda net, step: stale_momentum(net, step, kept))
    evidence = tmp_path / "audits" / "step-000000150"
    assert {one.name for one in evidence.iterdir()} == {"fixture.h5", "result.h5"}
    assert [one.name for one in evidence.parent.iterdir()] == [evidence.name]
    assert Checkpoints(tmp_path).last() == tmp_path / "step-000000120.h5"
    assert compare.main([str(evidence / "fixture.h5"), str(evidence / "result.h5")]) == 1
    # The step once more, by the program
    extension.run_file(evidence / "fixture.h5", tmp_path / "again.h5")
    assert compare.main([str(evidence / "fixture.h5"), str(tmp_path / "again.h5")]) == 0


def scaled(name: str, factor: float) -> Callable[[Network, int], None]:
    def spoil(net: Network, step: int) -> None:
        if step == 3:
            getattr(net, name.partition(".")[0])[name.partition(".")[2]][...] *= factor
    return spoil


@pytest.mark.parametrize(("module", "spoil", "said"), [
    (chain, scaled("parameters.0.weight", 1.001), "BUG: optimizer/0/weight"),
    (chain, scaled("momenta.0.bias", 0.0), "BUG: memory/0/bias"),
    (chain, scaled("gradients.2.bias", 1.01), "BUG: grads/2/bias"),
    (normalised, scaled("gradients.4.weight", 1.01), "BUG: grads/4/weight"),
    (normalised, scaled("parameters.1.weight", 1.001), "BUG: optimizer/1/weight"),
    (normalised, scaled("buffers.1.running_var", 1.001), "BUG: state/1/running_var"),
], ids=["weights", "momentum", "gradient", "gradient of a graph", "weights of a graph", "running statistics"])
def test_faults(module: Callable[[], nn.Module], spoil: Callable[[Network, int], None], said: str, batches: Batches,
                tmp_path: Path) -> None:
    with pytest.raises(AuditError, match=said):
        trained(module(), batches, SETTINGS, tmp_path, spoil)


def test_a_chain_that_is_computed_depth_first(tmp_path: Path) -> None:
    """It sums its gradients in another order than the network that keeps everything, and is right."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "noisy.npy", rng.standard_normal((4, 128, 128)).astype(np.float32))
    data = Batches(Consecutive(tmp_path / "noisy.npy"), batch=2, crop=(128, 128))
    module = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
                           nn.Conv2d(16, 1, 3, padding=1))
    records = trained(module, data, replace(SETTINGS, steps=1), tmp_path / "run")
    assert records[0].audit is not None and records[0].audit.verdict == "rounding"
    # By the bound of the whole step this would not be certain: by its own inputs it is
    with pytest.raises(AuditError, match="BUG: grads/4/weight"):
        trained(module, data, replace(SETTINGS, steps=4), tmp_path / "wrong", scaled("gradients.4.weight", 1.1))


def test_audits_are_of_batches_that_are_computed_at_once() -> None:
    with pytest.raises(ArgumentError, match="audit_every: 3 with reproducible, which computes each image by itself"):
        replace(SETTINGS, reproducible=True)


def test_audits_need_a_folder(batches: Batches) -> None:
    net = Network.from_torch(chain(), keep_activations=False)
    with pytest.raises(ArgumentError, match="audit_every: 3 without a folder for it, expected checkpoints"):
        Trainer(net, batches, SETTINGS)
