# SPDX-License-Identifier: MIT
"""Checkpoints: exchange files of a network with what its training needs to go on as if it had never stopped.

A checkpoint is what `bridge.Network.save` writes (model, parameters, buffers, what the optimiser remembers, number of
steps) with a group ``/training``: attributes ``settings`` (JSON), ``data`` (JSON), ``seed``, ``best_loss``,
``without_better``, and the averaged weights as ``average/NAME``. It is written as ``.checkpoint.h5`` and takes its name
when it is whole and on the disk: whatever ends the process leaves the older ones as they are, and one such file at
most, which the next checkpoint overwrites.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from bridge.common.atomic_file import flush
from bridge.common.errors import ArgumentError, FileError
from bridge.engine.network.network import Network
from bridge.exchange.hdf5_values import HDF5_ERRORS, one_line
from bridge.train.settings import TrainSettings

GROUP, AVERAGE = "training", "average"
BEST, UNFINISHED = "best.h5", ".checkpoint.h5"
NAME = re.compile(r"step-(\d{9,})\.h5")


@dataclass
class Progress:
    """What a training knows beside its network.

    Attributes
    ----------
    settings : TrainSettings
    seed : int
        Of dropouts' masks, as of batches.
    data : str
        Of the batches, as JSON; nothing here reads it.
    best_loss : float
        Of all validations; infinite before the first.
    without_better : int
        Validations since.
    average : mapping of str to numpy.ndarray
        Averaged weights by the names of `bridge.Network.parameters`; empty where there are none.
    """

    settings: TrainSettings
    seed: int = 0
    data: str = "{}"
    best_loss: float = float("inf")
    without_better: int = 0
    average: dict[str, np.ndarray] = field(default_factory=dict)


def save(path: Path, network: Network, progress: Progress) -> None:
    """Write a checkpoint, whole or not at all.

    Raises
    ------
    FileError, EngineError
        If it cannot be written: an older file stays as it was.
    """
    part = path.with_name(UNFINISHED)
    try:
        network.save(part)
        with h5py.File(part, "r+") as file:
            _write(file.create_group(GROUP), progress)
        flush(part)
        os.replace(part, path)
        flush(path.parent)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {one_line(error)}") from None


def _write(group: h5py.Group, progress: Progress) -> None:
    group.attrs.update({"settings": progress.settings.text, "data": progress.data, "seed": np.uint64(progress.seed),
                        "best_loss": progress.best_loss, "without_better": progress.without_better})
    for name, weight in progress.average.items():
        group[f"{AVERAGE}/{name}"] = weight


def load(path: str | os.PathLike[str], device: str = "cpu", **kept: object) -> tuple[Network, Progress]:
    """Return the network of a checkpoint, as `Network.from_file`, and what its training knew.

    Raises
    ------
    FileError
        If it is no checkpoint, or damaged.
    """
    network = Network.from_file(path, device=device, **kept)  # type: ignore[arg-type]
    try:
        with h5py.File(path) as file:
            if GROUP not in file:
                raise FileError(f"{os.fspath(path)}: /{GROUP} is missing, expected a checkpoint of bridge.train")
            return network, _read(file[GROUP], {name: one.shape for name, one in network.parameters.items()})
    except (*HDF5_ERRORS, TypeError, ArgumentError) as error:
        raise FileError(f"{os.fspath(path)}: /{GROUP}: {one_line(error)}") from None


def _read(group: h5py.Group, shapes: Mapping[str, tuple[int, ...]]) -> Progress:
    a = group.attrs
    average: dict[str, np.ndarray] = {}
    if AVERAGE in group:
        for name, shape in shapes.items():
            average[name] = group[f"{AVERAGE}/{name}"][()]
            if average[name].shape != shape:
                raise ArgumentError(f"{AVERAGE}/{name} has shape {average[name].shape}, expected {shape}")
    return Progress(TrainSettings.of_text(str(a["settings"])), int(a["seed"]), str(a["data"]), float(a["best_loss"]),
                    int(a["without_better"]), average)


def last_in(folder: str | os.PathLike[str]) -> Path | None:
    """Return the newest checkpoint in a folder, which need not exist."""
    found = _all_in(Path(folder))
    return found[-1] if found else None


def _all_in(folder: Path) -> list[Path]:
    """Those of a folder, oldest first, without the best."""
    names = os.listdir(folder) if folder.is_dir() else []
    found = [(int(match[1]), folder / name) for name in names if (match := NAME.fullmatch(name))]
    return [one for _, one in sorted(found)]


class Checkpoints:
    """The checkpoints of a training in a folder: the last few, and the best.

    Parameters
    ----------
    folder : is made where it does not exist
    keep : how many of the last stay, 1 or more
    """

    def __init__(self, folder: str | os.PathLike[str], keep: int = 2) -> None:
        self.folder, self.keep = Path(folder), keep
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{self.folder}: {error.strerror}, expected a folder for checkpoints") from None

    def last(self) -> Path | None:
        """Return the newest."""
        return last_in(self.folder)

    def write(self, network: Network, progress: Progress) -> Path:
        """Write one, and remove those that are too many."""
        path = self.folder / f"step-{network.steps:09d}.h5"
        save(path, network, progress)
        for old in _all_in(self.folder)[:-self.keep]:
            old.unlink(missing_ok=True)
        return path

    def write_best(self, network: Network, progress: Progress) -> Path:
        """Write the one with the least loss of all validations."""
        path = self.folder / BEST
        save(path, network, progress)
        return path
