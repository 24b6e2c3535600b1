# SPDX-License-Identifier: MIT
"""Checkpoints: exchange files of a network with what its training needs to go on as if it had never stopped.

A checkpoint is what `bridge.Network.save` writes (model, parameters, buffers, what the optimiser remembers, number of
steps) with a group ``/training``: attributes ``settings`` (JSON), ``seed``, ``best_loss``,
``without_better``; what was used (`bridge.train.used`): ``model``, ``data`` and ``validation`` (JSON), and the dataset
``files``; the averaged weights as ``average/NAME``; and a hash of every object of the file, by which a part
that is missing or has changed is told (`bridge.exchange.contents`). It is written as ``.checkpoint.h5`` and takes its
name when it is whole and on the disk: whatever ends the process leaves the older ones as they are, and one such file at
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
from bridge.engine.network.momenta import in_words, lost
from bridge.engine.network.network import Network
from bridge.exchange.contents import TRAINING, check_contents, seal
from bridge.exchange.file import ExchangeFile
from bridge.exchange.file_locks import lock_hint
from bridge.exchange.hdf5_values import HDF5_ERRORS, one_line
from bridge.train.settings import TrainSettings
from bridge.train.used import Used

GROUP, AVERAGE = TRAINING, "average"
#: Dataset with `Used.files`
FILES = "files"
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
    used : Used
        What the configuration said; nothing here reads it.
    best_loss : float
        Of all validations; infinite before the first.
    without_better : int
        Validations since.
    average : mapping of str to numpy.ndarray
        Averaged weights by the names of `bridge.Network.parameters`; empty where there are none.
    """

    settings: TrainSettings
    seed: int = 0
    used: Used = field(default_factory=Used)
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
    part = _written(path, network, progress)
    try:
        os.replace(part, path)
        flush(path.parent)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {one_line(error)}") from None


def _written(path: Path, network: Network, progress: Progress) -> Path:
    """A whole checkpoint, under another name."""
    part = path.with_name(UNFINISHED)
    try:
        network.save(part)
        with h5py.File(part, "r+") as file:
            _write(file.create_group(GROUP), progress)
            seal(file, GROUP)
        flush(part)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {one_line(error)}{lock_hint(str(part))}") from None
    return part


def _write(group: h5py.Group, progress: Progress) -> None:
    used = progress.used
    group.attrs.update({"settings": progress.settings.text, "data": used.data or "{}", "seed": np.uint64(progress.seed),
                        "best_loss": progress.best_loss, "without_better": progress.without_better,
                        "model": used.model, "validation": used.validation})
    group[FILES] = np.frombuffer(used.files.encode("utf-8", "surrogateescape"), np.uint8)
    for name, weight in progress.average.items():
        group[f"{AVERAGE}/{name}"] = weight


def load(path: str | os.PathLike[str], device: str = "cpu", **kept: object) -> tuple[Network, Progress]:
    """Return the network of a checkpoint, as `Network.from_file`, and what its training knew.

    Raises
    ------
    FileError
        If it is no checkpoint, or damaged, or lacks anything that the training needs to go on to the same bits: what
        the optimiser remembers, or averaged weights.
    """
    _check_whole(os.fspath(path))
    network = Network.from_file(path, device=device, **kept)  # type: ignore[arg-type]
    try:
        with h5py.File(path) as file:
            if GROUP not in file:
                raise FileError(f"{os.fspath(path)}: /{GROUP} is missing, expected a checkpoint of bridge.train")
            return network, _read(file[GROUP], {name: one.shape for name, one in network.parameters.items()})
    except (*HDF5_ERRORS, TypeError, ArgumentError) as error:
        raise FileError(f"{os.fspath(path)}: /{GROUP}: {one_line(error)}") from None


def _check_whole(path: str) -> None:
    """That nothing is missing or has changed; an older checkpoint, without hashes, by what there must be."""
    check_contents(path, GROUP)
    with ExchangeFile(path) as file:
        if without := lost(file, 0):
            raise FileError(f"{path}: {in_words(without)} missing, expected all that the optimiser remembers")


def _read(group: h5py.Group, shapes: Mapping[str, tuple[int, ...]]) -> Progress:
    a = group.attrs
    average: dict[str, np.ndarray] = {}
    settings = TrainSettings.of_text(str(a["settings"]))
    if settings.average is not None and AVERAGE not in group:
        raise ArgumentError(f"{AVERAGE} is missing, expected the averaged weights of a training with average = "
                            f"{settings.average:g}")
    if AVERAGE in group:
        for name, shape in shapes.items():
            average[name] = group[f"{AVERAGE}/{name}"][()]
            if average[name].shape != shape:
                raise ArgumentError(f"{AVERAGE}/{name} has shape {average[name].shape}, expected {shape}")
    files = group[FILES][()].tobytes().decode("utf-8", "surrogateescape") if FILES in group else ""
    used = Used(str(a.get("model", "")), str(a["data"]), str(a.get("validation", "")), files)
    return Progress(settings, int(a["seed"]), used, float(a["best_loss"]), int(a["without_better"]), average)


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

    @staticmethod
    def name_of(steps: int) -> str:
        """Return the name of the one after so many steps."""
        return f"step-{steps:09d}.h5"

    def try_to_write(self, network: Network, progress: Progress) -> None:
        """Write one and remove it, so that what prevents it is known before the first step.

        Raises
        ------
        FileError, EngineError
            If it cannot be written.
        """
        _written(self.folder / "a checkpoint", network, progress).unlink()

    def write(self, network: Network, progress: Progress) -> Path:
        """Write one, and remove those that are too many."""
        path = self.folder / self.name_of(network.steps)
        save(path, network, progress)
        for old in _all_in(self.folder)[:-self.keep]:
            old.unlink(missing_ok=True)
        return path

    def write_best(self, network: Network, progress: Progress) -> Path:
        """Write the one with the least loss of all validations."""
        path = self.folder / BEST
        save(path, network, progress)
        return path
