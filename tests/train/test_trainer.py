# SPDX-License-Identifier: MIT
"""A training is PyTorch's on the same batches, and what is stopped and resumed gives the same bits."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from bridge import Adam, AdamW, Network, Sgd
from bridge.common.errors import ArgumentError, DivergenceError, FileError
from bridge.common.signals import Ended
from bridge.data import Batches, Consecutive, Pairs
from bridge.exchange.contents import seal
from bridge.train import Checkpoints, Schedule, Trainer, TrainSettings
from bridge.train.checkpoints import load
from bridge.train.trainer import StepRecord
from tests import ROOT

SETTINGS = TrainSettings(steps=12, optimizer=Adam(1e-2), schedule=Schedule.of_text("cosine steps=12 warm_up=2"),
                         checkpoint_every=5)


def module(dropout: bool = False) -> nn.Sequential:
    """Without a bias before the normalisation, which takes it off again: its gradient would be rounding alone."""
    torch.manual_seed(3)
    middle = [nn.Dropout(0.25)] if dropout else []
    return nn.Sequential(nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.SiLU(), *middle,
                         nn.Conv2d(6, 1, 3, padding=1))


def network(dropout: bool = False) -> Network:
    return Network.from_torch(module(dropout))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise on something smooth, in pairs."""
    folder = tmp_path_factory.mktemp("images")
    rng, place = np.random.default_rng(0), np.linspace(0, 3, 24)
    clean = np.sin(place[:, None] + 2 * place)
    np.save(folder / "noisy.npy", (clean + 0.5 * rng.standard_normal((20, 24, 24))).astype(np.float32))
    return folder


def batches(images: Path, seed: int = 4) -> Batches:
    return Batches(Consecutive(images), batch=3, crop=(16, 16), seed=seed, normalization="image", swap=True)


def state(net: Network) -> dict[str, np.ndarray]:
    return {name: np.array(one) for name, one in (*net.parameters.items(), *net.buffers.items())}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def trained(images: Path, settings: TrainSettings, *, dropout: bool = False) -> tuple[Network, list[StepRecord]]:
    """By one run from the beginning."""
    net, records = network(dropout), list[StepRecord]()
    validation = batches(images, 9) if settings.validate_every else None
    Trainer(net, batches(images), settings, validation=validation, report=records.append).run()
    return net, records


@pytest.mark.parametrize(("optimizer", "clip", "accumulate"), [
    (Sgd(0.05, momentum=0.9), None, 1), (Adam(1e-2), 0.05, 1), (AdamW(1e-2), None, 3), (Sgd(0.1), 0.02, 2)])
def test_a_training_is_torchs(images: Path, optimizer: Sgd | Adam, clip: float | None, accumulate: int) -> None:
    """Losses, norms and weights of the same batches, in float32: as far as rounding goes."""
    settings = replace(SETTINGS, optimizer=optimizer, clip=clip, accumulate=accumulate)
    net, records = trained(images, settings)
    reference = module()
    made: torch.optim.Optimizer
    if isinstance(optimizer, Sgd):
        made = torch.optim.SGD(reference.parameters(), optimizer.lr, optimizer.momentum)
    else:
        kind = torch.optim.AdamW if isinstance(optimizer, AdamW) else torch.optim.Adam
        made = kind(reference.parameters(), optimizer.lr, weight_decay=optimizer.weight_decay)
    data = batches(images)
    for step, record in enumerate(records):
        for group in made.param_groups:
            group["lr"] = optimizer.lr * settings.schedule.factor(step)
        made.zero_grad()
        losses = []
        for k in range(accumulate):
            batch = data.at(step * accumulate + k)
            loss = nn.functional.mse_loss(reference(torch.from_numpy(batch.input)), torch.from_numpy(batch.target))
            (loss / accumulate).backward()  # type: ignore[no-untyped-call]
            losses.append(float(loss.detach()))
        if clip is not None:
            norm = float(nn.utils.clip_grad_norm_(reference.parameters(), clip))
            assert record.gradient_norm == pytest.approx(norm, rel=1e-3)
        made.step()
        assert record.loss == pytest.approx(np.mean(losses), rel=1e-4)
        assert record.lr == pytest.approx(made.param_groups[0]["lr"])
    for name, one in reference.named_parameters():
        assert np.allclose(net.parameters[name], one.detach().numpy(), rtol=1e-3, atol=1e-4), name


@pytest.mark.parametrize("settings", [
    SETTINGS, replace(SETTINGS, clip=0.05, accumulate=2, average=0.9, validate_every=4)], ids=["plain", "all"])
@pytest.mark.parametrize("stop", [1, 5, 7, 11])
def test_a_resumed_training_gives_the_same_bits(images: Path, tmp_path: Path, settings: TrainSettings, stop: int
                                                ) -> None:
    """With dropouts, whose masks are drawn, statistics of batches, momenta, and averaged weights."""
    whole, records = trained(images, settings, dropout=True)
    checkpoints, validation = Checkpoints(tmp_path), batches(images, 9)
    Trainer(network(True), batches(images), replace(settings, steps=stop), checkpoints, validation).run()
    last = checkpoints.last()
    assert last is not None
    net, progress = load(last)
    progress.settings = settings
    rest = list[StepRecord]()
    trainer = Trainer(net, batches(images), settings, checkpoints, validation, rest.append, progress=progress)
    trainer.run()
    assert rest == records[stop:]
    assert same(state(net), state(whole))


def test_masks_are_of_the_seed_and_the_step(images: Path) -> None:
    masks = list[np.ndarray]()
    for seed in (4, 4, 5):
        net = network(True)
        trainer = Trainer(net, batches(images, seed), replace(SETTINGS, steps=2))
        trainer.report = lambda record, net=net: masks.append(net.masks["3"].copy())
        trainer.run()
    assert np.array_equal(masks[0], masks[2]) and np.array_equal(masks[1], masks[3])
    assert not np.array_equal(masks[0], masks[1]) and not np.array_equal(masks[0], masks[4])


def test_averaged_weights_are_torchs(images: Path) -> None:
    decay, kept = 0.75, list[dict[str, np.ndarray]]()
    net = network()
    trainer = Trainer(net, batches(images), replace(SETTINGS, average=decay))
    first = {name: np.array(one) for name, one in net.parameters.items()}
    trainer.report = lambda record: kept.append({name: np.array(one) for name, one in net.parameters.items()})
    trainer.run()
    average = torch.optim.swa_utils.get_ema_avg_fn(decay)
    for name, one in first.items():
        expected = torch.from_numpy(one.copy())
        for weights in kept:
            expected = average(expected, torch.from_numpy(weights[name]), 0)
        assert np.allclose(trainer.progress.average[name], expected.numpy(), rtol=1e-6, atol=1e-7)


def test_validation_keeps_the_best_and_ends_without_better(images: Path, tmp_path: Path) -> None:
    """A better one begins the count anew, an equal one does not."""
    settings = replace(SETTINGS, steps=50, optimizer=Sgd(1e-3), schedule=Schedule.of_text("constant"), validate_every=2,
                       patience=3, checkpoint_every=100)
    net, records = network(), list[StepRecord]()
    before = state(net)
    checkpoints = Checkpoints(tmp_path)
    trainer = Trainer(net, batches(images), settings, checkpoints, batches(images, 9), records.append)
    trainer.validate()
    assert trainer.quality is not None and trainer.validation is not None
    assert np.array_equal(trainer.quality.noisy, trainer.validation.at(0).input[0, 0])
    assert same(state(net), before) and net.training
    losses = iter([3.0, 4.0, 1.0, 2.0, 1.0, 4.0])
    trainer.validate = lambda: next(losses)  # type: ignore[method-assign]
    trainer.run()
    assert [one.validation_loss for one in records[1::2]] == [3.0, 4.0, 1.0, 2.0, 1.0, 4.0]
    assert trainer.finished and net.steps == 12
    best, progress = load(tmp_path / "best.h5")
    assert best.steps == 6 and progress.best_loss == 1.0


def test_the_last_checkpoints_stay(images: Path, tmp_path: Path) -> None:
    Trainer(network(), batches(images), replace(SETTINGS, checkpoint_every=3, keep=2), Checkpoints(tmp_path, 2)).run()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["step-000000009.h5", "step-000000012.h5"]


@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_loss_that_is_not_finite_ends_it(images: Path, tmp_path: Path, clip: float | None) -> None:
    """With the number of the step; the checkpoint before stays, and none is written after."""
    settings = replace(SETTINGS, optimizer=Sgd(1.0), schedule=Schedule.of_text("constant"), checkpoint_every=2,
                       clip=clip)
    net = network()
    trainer = Trainer(net, batches(images), settings, Checkpoints(tmp_path))

    def spoil(record: StepRecord) -> None:
        if record.step == 4:
            net.parameters["0.weight"][...] = 3e38

    trainer.report = spoil
    # The network counts from 0, the trainer from 1
    with pytest.raises(DivergenceError, match=r"step 4: the gradient of 0\.weight" if clip is None else "step 5"):
        trainer.run()
    found = sorted(one.name for one in tmp_path.iterdir())
    assert found == ["step-000000002.h5", "step-000000004.h5"]


def test_what_is_no_checkpoint_is_refused(images: Path, tmp_path: Path) -> None:
    network().save(tmp_path / "network.h5")
    with pytest.raises(FileError, match="/training is missing, expected a checkpoint"):
        load(tmp_path / "network.h5")
    checkpoints = Checkpoints(tmp_path / "new")
    Trainer(network(), batches(images), replace(SETTINGS, steps=2, average=0.5), checkpoints).run()
    last = checkpoints.last()
    assert last is not None
    for name, wrong, said in (("settings", "{", "settings of a training"), ("seed", "x", "invalid literal"),
                              ("best_loss", "x", "could not convert")):
        with h5py.File(last, "r+") as file:
            kept = file["training"].attrs[name]
            file["training"].attrs[name] = wrong
            seal(file, "training")
        with pytest.raises(FileError, match=f"/training: .*{said}"):
            load(last)
        with h5py.File(last, "r+") as file:
            file["training"].attrs[name] = kept
    with h5py.File(last, "r+") as file:
        del file["training/average/1.bias"]
        seal(file, "training")
    with pytest.raises(FileError, match=r"/training: .*1\.bias"):
        load(last)


@pytest.mark.parametrize(("loss", "reduction"), [
    ("cross_entropy class_indices=1 ignore_index=9", "mean"), ("cross_entropy class_indices=1 weight=1,1,20", "mean"),
    ("cross_entropy class_indices=1 weight=1,1,20", "sum"), ("mse", "sum"), ("mse", "mean")])
def test_several_batches_are_one(loss: str, reduction: str, tmp_path: Path) -> None:
    """Of as many images, whatever their targets let the mean count; the second has nothing that counts."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, (8, 8, 8))
    labels[:4][rng.random((4, 8, 8)) < 0.9] = 9
    labels[2:4] = 9
    np.save(tmp_path / "x.npy", rng.standard_normal((8, 3, 8, 8)).astype("f4"))
    np.save(tmp_path / "t.npy", np.stack([labels == c for c in range(3)], 1).astype("f4"))
    pairs = Pairs(tmp_path / "x.npy", tmp_path / "t.npy")

    def update(batch: int, accumulate: int) -> tuple[float, np.ndarray]:
        torch.manual_seed(0)
        net = Network.from_torch(nn.Sequential(nn.Conv2d(3, 3, 3, padding=1)), loss=loss, reduction=reduction)
        before, records = np.array(net.parameters["0.weight"]), list[StepRecord]()
        data = Batches(pairs, batch=batch, crop=(8, 8), flips=False, rotations=False, block=1, seed=3)
        Trainer(net, data, TrainSettings(steps=1, optimizer=Sgd(1e-3), accumulate=accumulate),
                report=records.append).run()
        return records[0].loss, net.parameters["0.weight"] - before

    (one_loss, one), (several_loss, several) = update(8, 1), update(2, 4)
    assert several_loss == pytest.approx(one_loss, rel=1e-5)
    assert np.abs(one - several).max() < 1e-4 * np.abs(one).max()


LOST = ["steps/0/optimizer", "steps/0/optimizer/1", "steps/0/optimizer/1/weight/exp_avg_sq", "training/average",
        "training/average/1.bias", "training/contents"]


@pytest.mark.parametrize("path", LOST)
def test_a_checkpoint_that_has_lost_something_is_refused(path: str, images: Path, tmp_path: Path) -> None:
    """By its name, with hashes and, but for one of the averages' layers, as an older one without."""
    checkpoints = Checkpoints(tmp_path)
    Trainer(network(), batches(images), replace(SETTINGS, steps=2, average=0.5, optimizer=AdamW(0.01)),
            checkpoints).run()
    last = checkpoints.last()
    assert last is not None and load(last)[0].steps == 2
    with h5py.File(last, "r+") as file:
        file.move(path, f"{path}x")
    for read in (load, Network.from_file):
        with pytest.raises(FileError, match=f"{last}: /{path}.* is missing"):
            read(last)
    with h5py.File(last, "r+") as file:
        file.pop("training/contents", None)
        del file["training"].attrs["sha256"]
    if path != "training/contents":
        with pytest.raises(FileError, match=re.escape(path.rpartition("/")[2]) if "/1" in path else "missing"):
            load(last)


def test_a_checkpoint_of_which_a_bit_has_changed_is_refused(images: Path, tmp_path: Path) -> None:
    """Of a weight, a moment, the number of updates, a setting, or the hashes."""
    checkpoints = Checkpoints(tmp_path)
    Trainer(network(), batches(images), replace(SETTINGS, steps=2, optimizer=AdamW(0.01)), checkpoints).run()
    last = checkpoints.last()
    assert last is not None
    whole = last.read_bytes()
    for path, attribute in (("steps/0/weights/1/bias", ""), ("steps/0/optimizer/1/weight/exp_avg", ""),
                            ("steps/0/optimizer/1/weight", "updates"), ("training", "seed"), ("training", "sha256"),
                            ("training/contents", ""), ("", "first_step"), ("model/layers/0", "padding")):
        last.write_bytes(whole)
        with h5py.File(last, "r+") as file:
            node = file[f"/{path}"]
            value = node.attrs[attribute] if attribute else node[()]
            bits = np.array(value)
            if isinstance(value, str):
                bits = np.array("x" + value[1:], dtype=object)
            else:
                bits.reshape(-1).view(np.uint8)[0] ^= 1
            if attribute:
                node.attrs[attribute] = bits[()]
            else:
                node[...] = bits
        for read in (load, Network.from_file):
            with pytest.raises(FileError, match=f"{last}: .*/{path}.* changed"):
                read(last)


def test_settings_are_checked(images: Path) -> None:
    for wrong in ({"steps": -1}, {"clip": 0.0}, {"clip": float("nan")}, {"average": 1.0}, {"accumulate": 0},
                  {"patience": 2}, {"keep": 0}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            replace(SETTINGS, **wrong)
    with pytest.raises(ArgumentError, match="validate_every: 2 without data"):
        Trainer(network(), batches(images), replace(SETTINGS, validate_every=2))


PROGRAM = """
import sys
from pathlib import Path
from tests.train.test_trainer import *
images, folder, steps = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
settings = replace(SETTINGS, steps=steps, checkpoint_every=1, average=0.9)
checkpoints = Checkpoints(folder)
last = checkpoints.last()
net, progress = load(last) if last else (network(True), None)
Trainer(net, batches(images), settings, checkpoints, progress=progress,
        report=lambda record: print(record.step, flush=True)).run()
"""


def start(images: Path, folder: Path, steps: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, images, folder, str(steps)], stdout=subprocess.PIPE,
                            text=True, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"})


def test_a_signal_that_is_ignored_stays_ignored(images: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        net = network()
        trainer = Trainer(net, batches(images), replace(SETTINGS, steps=4))
        trainer.report = lambda record: os.kill(os.getpid(), signal.SIGHUP)
        trainer.run()
        assert net.steps == 4
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.deep
def test_killed_at_any_moment(images: Path, tmp_path: Path) -> None:
    """Thirty times, and resumed: the same as never stopped."""
    rng, steps = np.random.default_rng(1), 400
    settings = replace(SETTINGS, steps=steps, average=0.9)
    whole, _ = trained(images, settings, dropout=True)
    for _ in range(30):
        child = start(images, tmp_path, steps)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(float(rng.uniform(0, 0.03)))
        child.kill()
        child.wait()
        child.stdout.close()
    child = start(images, tmp_path, steps)
    child.communicate()
    assert child.returncode == 0
    net, _ = load(tmp_path / f"step-{steps:09d}.h5")
    assert same(state(net), state(whole))
    assert sorted(one.name for one in tmp_path.iterdir()) == [f"step-{steps - 1:09d}.h5", f"step-{steps:09d}.h5"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_after_the_step(images: Path, tmp_path: Path, number: signal.Signals) -> None:
    """With a checkpoint of the step that was at work, though none was due."""
    whole, _ = trained(images, SETTINGS)
    net = network()
    checkpoints = Checkpoints(tmp_path)
    trainer = Trainer(net, batches(images), replace(SETTINGS, checkpoint_every=1000), checkpoints)
    trainer.report = lambda record: os.kill(os.getpid(), number) if record.step == 6 else None
    # As in a shell's foreground; what a shell starts in its background ignores SIGINT
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, usual)
    try:
        with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else Ended):
            trainer.run()
        assert signal.getsignal(number) == usual
    finally:
        signal.signal(number, before)
    last = checkpoints.last()
    assert last is not None
    resumed, progress = load(last)
    assert resumed.steps == 7
    Trainer(resumed, batches(images), SETTINGS, progress=progress).run()
    assert same(state(resumed), state(whole))
