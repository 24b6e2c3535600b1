# SPDX-License-Identifier: MIT
"""``mpirun -n N python -m bridge.train``, and torchrun: the training of one process, and all end together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from bridge import Network
from bridge.train.__main__ import main
from bridge.train.checkpoints import load
from tests.helpers.ranks.rank_faults import STEP
from tests.helpers.ranks.ranks import launch, process, start

CONFIG = """
model = "{folder}/net.h5"
output = "{folder}/run"
[data]
inputs = "{folder}/noisy.npy"
noise2noise = "consecutive"
batch = 5
crop = [16, 16]
normalization = "image"
[validation]
inputs = "{folder}/held.npy"
batch = 2
[training]
steps = 20
clip = 0.05
average = 0.9
validate_every = 6
checkpoint_every = 10
[optimizer]
type = "adam"
lr = 0.01
"""
#: Seconds in which all ranks are gone after one of them
SOON = 20


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Two stacks, and networks: with dropout, which ranks may share image by image, and with batch normalisation."""
    rng = np.random.default_rng(0)
    for name, count in (("noisy", 12), ("held", 12)):
        np.save(tmp_path / f"{name}.npy", rng.standard_normal((count, 20, 24)).astype(np.float32))
    torch.manual_seed(1)
    for name, middle in (("net", nn.Dropout(0.25)), ("plain", nn.SiLU()), ("norm", nn.BatchNorm2d(4))):
        Network.from_torch(nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), middle,
                                         nn.Conv2d(4, 1, 3, padding=1))).save(tmp_path / f"{name}.h5")
    path = tmp_path / "train.toml"
    path.write_text(CONFIG.format(folder=tmp_path), encoding="utf-8")
    return path


def train(config: Path, launcher: str, ranks: int, output: str, *changes: str, resume: bool = False) -> Path:
    """Train to the end; the folder of the checkpoints."""
    folder = config.with_name(output)
    done = launch(launcher, ranks, "bridge.train", config, *options(f"output={folder}", *changes),
                  *(["--resume"] if resume else []))
    assert done.returncode == 0, done.stderr
    return folder


def options(*changes: str) -> list[str]:
    return [part for one in changes for part in ("--set", one)]


def log(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    for line in lines:
        del line["seconds"]
    return lines


def content(path: Path) -> dict[str, Any]:
    """Every dataset of a checkpoint and what its training knew, as bytes."""
    found = dict[str, Any]()
    with h5py.File(path) as file:
        file.visititems(lambda name, node: found.__setitem__(name, node[()].tobytes())
                        if isinstance(node, h5py.Dataset) else None)
        return found | dict(file["training"].attrs)


def close(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    """The same steps, with losses as far as rounding goes."""
    return [one["step"] for one in found] == [one["step"] for one in expected] and all(
        np.isclose(one[key], other[key], rtol=1e-4) for one, other in zip(found, expected, strict=True)
        for key in ("loss", "gradient_norm", "validation_loss") if other[key] is not None)


def test_two_ranks_train_as_one(config: Path) -> None:
    """As far as rounding goes; rank 0 alone writes."""
    plain = f"model={config.with_name('plain.h5')}"
    assert main([str(config), *options(plain, f"output={config.with_name('one')}")]) == 0
    one, two = config.with_name("one"), train(config, "mpi", 2, "two", plain)
    assert sorted(path.name for path in two.iterdir()) == sorted(path.name for path in one.iterdir())
    assert close(log(two), log(one))


@pytest.mark.deep
@pytest.mark.parametrize(("launcher", "ranks"), [("mpi", 4), ("torch", 2)])
def test_any_number_of_ranks_goes_on(config: Path, launcher: str, ranks: int) -> None:
    """From the checkpoints of another number, with the batches that would have come."""
    plain = f"model={config.with_name('plain.h5')}"
    one = train(config, "none", 1, "one", plain)
    parts = train(config, launcher, ranks, "parts", plain, "training.steps=7")
    train(config, "none", 1, "parts", plain, "training.steps=13", resume=True)
    train(config, launcher, ranks, "parts", plain, resume=True)
    assert close(log(parts), log(one))


@pytest.mark.deep
@pytest.mark.parametrize("accumulate", [1, 2])
def test_reproducible_to_the_bit(config: Path, accumulate: int) -> None:
    """With dropouts: 1, 2 and 4 ranks have the same log and the same checkpoints; so has who goes on with others."""
    how = ("training.reproducible=true", f"training.accumulate={accumulate}")
    folders = [train(config, launcher, ranks, f"{launcher}{ranks}", *how)
               for launcher, ranks in (("none", 1), ("mpi", 2), ("mpi", 4))]
    train(config, "mpi", 4, "parts", *how, "training.steps=10")
    folders.append(train(config, "none", 1, "parts", *how, resume=True))
    if accumulate == 1:
        folders.append(train(config, "torch", 2, "torch", *how))
    expected = content(folders[0] / "step-000000020.h5")
    assert any("exp_avg_sq" in name for name in expected) and any("average" in name for name in expected)
    for folder in folders[1:]:
        assert log(folder) == log(folders[0])
        assert content(folder / "step-000000020.h5") == expected
        assert content(folder / "best.h5") == content(folders[0] / "best.h5")


@pytest.mark.deep
@pytest.mark.parametrize("network", ["net", "norm"])
def test_a_second_run_and_a_resumed_one_give_the_same_bits(config: Path, network: str) -> None:
    """On the same number of ranks, with masks and running statistics that no other number has."""
    model = f"model={config.with_name(network)}.h5"
    first, second = (train(config, "mpi", 3, name, model) for name in ("first", "second"))
    train(config, "mpi", 3, "parts", model, "training.steps=7")
    parts = train(config, "mpi", 3, "parts", model, resume=True)
    for folder in (second, parts):
        assert log(folder) == log(first)
        assert content(folder / "step-000000020.h5") == content(first / "step-000000020.h5")


@pytest.mark.deep
@pytest.mark.parametrize(("launcher", "changes", "said"), [
    ("torch", ["data.batch=1"], "ranks: 2, expected at most as many as images in a batch, 1"),
    ("mpi", ["training.reproducible=true", "model=norm.h5"], "layer 2 (batch_norm2d) joins the images of a batch"),
    ("mpi", ["data.crop=5"], "data.crop: 5, expected [height, width]"),
    *((launcher, ["optimizer.lr=1e30"], "the last checkpoint is none") for launcher in ("mpi", "torch")),
])
def test_what_is_wrong_is_said_once(config: Path, launcher: str, changes: list[str], said: str) -> None:
    changes = [one.replace("model=", f"model={config.parent}/") for one in changes]
    done = launch(launcher, 2, "bridge.train", config, *options(*changes))
    assert done.returncode != 0
    assert done.stderr.count("bridge.train: ") == 1 and said in done.stderr, done.stderr
    assert not list(config.parent.glob("run/*.h5"))


@pytest.mark.deep
@pytest.mark.parametrize(("fault", "said", "checkpoint"), [
    ("unreadable", "bridge.train: movie.mrcs: not there any more", 2),
    ("bug", "bridge.train: this is a fault of ours", 2),
    ("diverges", f"bridge.train: step {STEP}: loss", 2),
    ("drifts", "bridge.train: step 4: rank 1 differs from rank 0, expected the same 0.weight", 2),
    ("signal", "bridge.train: ended by SIGTERM", STEP + 1)])
@pytest.mark.parametrize("launcher", ["mpi", "torch"])
def test_what_happens_to_one_rank_ends_all(config: Path, launcher: str, fault: str, said: str, checkpoint: int) -> None:
    """With one message and the last good checkpoint."""
    begin = time.monotonic()
    done = launch(launcher, 2, "tests.helpers.ranks.rank_faults", fault, config,
                  *options("training.checkpoint_every=2"))
    assert done.returncode != 0 and time.monotonic() - begin < 2 * SOON
    assert said in done.stderr and done.stderr.count("bridge.train: ") == 1, done.stderr
    last = sorted(config.with_name("run").glob("step-*.h5"))[-1]
    assert last.name == f"step-{checkpoint:09d}.h5" and load(last)[0].steps == checkpoint


@pytest.mark.deep
@pytest.mark.parametrize(("launcher", "ranks", "victim"), [
    ("mpi", 2, 1), ("mpi", 2, 0), ("mpi", 4, 2), ("torch", 2, 1), ("torch", 2, 0), ("torch", 4, 3)])
def test_a_killed_rank_ends_all(config: Path, launcher: str, ranks: int, victim: int) -> None:
    """Within seconds; the last checkpoint is whole, and another number of ranks goes on from it as if nothing had been.
    """
    how = ("training.reproducible=true", "training.checkpoint_every=1")
    folder, printed = config.with_name("run"), config.with_name("printed.txt")
    launched = start(launcher, ranks, printed, "bridge.train", config, *options(*how, "training.steps=100000"))
    try:
        wait(lambda: folder.joinpath("log.jsonl").exists() and len(log_lines(folder)) > 3, launched)
        pids = [process(printed, rank) for rank in range(ranks)]
        assert None not in pids
        os.kill(pids[victim] or 0, signal.SIGKILL)
        begin = time.monotonic()
        assert launched.wait(SOON) != 0
        wait(lambda: not any(alive(pid) for pid in pids))
        assert time.monotonic() - begin < SOON
    finally:
        launched.kill()
        launched.wait()
    last = sorted(folder.glob("step-*.h5"))[-1]
    steps = load(last)[0].steps
    train(config, "none", 1, "run", *how, f"training.steps={steps + 3}", resume=True)
    whole = train(config, "none", 1, "whole", *how, f"training.steps={steps + 3}")
    name = f"step-{steps + 3:09d}.h5"
    assert content(folder / name) == content(whole / name) and log(folder) == log(whole)


@pytest.mark.deep
@pytest.mark.parametrize("launcher", ["mpi", "torch"])
def test_a_signal_to_the_launcher_leaves_a_checkpoint(config: Path, launcher: str) -> None:
    """Of the last step that is in the log."""
    folder, printed = config.with_name("run"), config.with_name("printed.txt")
    launched = start(launcher, 2, printed, "bridge.train", config, *options("training.steps=100000",
                                                                            "training.checkpoint_every=50000"))
    try:
        wait(lambda: folder.joinpath("log.jsonl").exists() and len(log_lines(folder)) > 3, launched)
        launched.send_signal(signal.SIGTERM)
        assert launched.wait(SOON) != 0
    finally:
        launched.kill()
        launched.wait()
    (last,) = folder.glob("step-*.h5")
    assert load(last)[0].steps == len(log_lines(folder))


def log_lines(folder: Path) -> list[str]:
    return (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()


def alive(pid: int | None) -> bool:
    """A zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait(ready: Any, child: subprocess.Popen[str] | None = None) -> None:
    begin = time.monotonic()
    while not ready():
        assert time.monotonic() - begin < 90 and (child is None or child.poll() is None)
        time.sleep(0.05)


@pytest.mark.parametrize(("network", "changes"), [("net", ()), ("plain", ("training.clip=0.01",))])
def test_audits_of_ranks_are_of_their_own_part_and_of_the_common_update(config: Path, network: str,
                                                                         changes: tuple[str, ...]) -> None:
    model = f"model={config.with_name(f'{network}.h5')}"
    folder = train(config, "mpi", 2, "audited", model, "training.audit_every=7", *changes)
    audits = [line["audit"] for line in log(folder)]
    assert [step for step, one in enumerate(audits) if one] == [0, 7, 14]
    assert all(one["verdict"] == "rounding" for one in audits if one)


def test_a_bug_that_an_audit_finds_ends_all_ranks(config: Path) -> None:
    """A fault of all ranks alike, which no hash of their weights shows."""
    folder = config.with_name("wrong")
    done = launch("mpi", 2, "tests.helpers.ranks.rank_faults", "stale_momentum", config, "--output", folder,
                  "--audit", "5",
                  *options(f"model={config.with_name('plain.h5')}", "optimizer.type=sgd", "optimizer.momentum=0.9"))
    assert done.returncode == 1, done.stderr
    assert "step 10 of the training: BUG" in done.stderr and "not updated" in done.stderr
    assert (folder / "audits" / "step-000000010" / "result.h5").exists()
    assert [line["audit"]["verdict"] for line in log(folder) if line["audit"]] == ["rounding", "rounding", "bug"]
    assert len(log(folder)) == 11
