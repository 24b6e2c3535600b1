# SPDX-License-Identifier: MIT
"""One step of a running training, recorded and judged as `bridge.validate` judges a program.

The fixture is the network before the step with its batch; nothing of it is computed by anybody else. The result has
what the running network made of them: loss, gradients, running statistics, new weights, and what its optimiser
remembers then. What lies between, outputs and their gradients, it has not kept. They are of a second network from the
same file, which keeps all, and count where its loss and its biases' gradients, sums of all that lies between, are those
of the training to the bit. (Filter gradients need not be: a chain that is computed depth first adds them up in another
order.) Without them the bounds are those of the whole step.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bridge.common.errors import FileError
from bridge.data import Batch
from bridge.engine.arrays.transfer import to_host
from bridge.engine.network.network import Network
from bridge.engine.network.recorded_step import recorded_step
from bridge.exchange.hdf5_values import HDF5_ERRORS, one_line
from bridge.exchange.optimizers import Optimizer
from bridge.judge.judge import judge_pair
from bridge.judge.measure.file_pair import open_pair
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict
from bridge.train import gradients

#: In place of an infinite error
MOST = 1e300
FOLDER, FIXTURE, RESULT = "audits", "fixture.h5", "result.h5"


@dataclass(frozen=True)
class AuditRecord:
    """What was found.

    Attributes
    ----------
    verdict : str
        "rounding", "precision", "cannot_tell" or "bug", which ends the training.
    t : float
        The largest error of a tensor as a share of its bound.
    seconds : float
        What the audit has cost.
    """

    verdict: str
    t: float
    seconds: float


class AuditError(FileError):
    """A step of a training was wrong; the message says how, and where fixture and result are.

    Attributes
    ----------
    record : AuditRecord or None
        On the rank that has judged it.
    """

    record: AuditRecord | None = None


class Audit:
    """The record of one step: begun before it, shown its first batch, judged behind it.

    Parameters
    ----------
    folder : of all audits; this one has a folder in it, which a right step removes again
    network : before the step
    optimizer : of the step

    Raises
    ------
    FileError, EngineError
        If it cannot be written, or a weight is not finite.
    """

    def __init__(self, folder: Path, network: Network, optimizer: Optimizer) -> None:
        begin, self._step, self._optimizer = time.monotonic(), network.steps, optimizer
        self.folder = folder / f"step-{network.steps:09d}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.fixture, self.result = self.folder / FIXTURE, self.folder / RESULT
        network.save(self.fixture, optimizer)
        self.has_seen = False
        self._spent = time.monotonic() - begin

    def saw(self, network: Network, batch: Batch, loss: float) -> None:
        """Keep what the network has computed of the step's first batch, before anything else is."""
        self.has_seen = True
        self._input, self._target, self._loss = np.array(batch.input), np.array(batch.target), loss
        self._masks = {name: np.array(one) for name, one in network.masks.items()}
        self._gradients = gradients.read(network)
        self._state = {f"{layer.name}/{name}": np.array(to_host(network.buffers[f"{layer.name}.{name}"]))
                       for layer in network.model.layers for name in layer.new_state_shapes()}

    def judge(self, network: Network, applied: Mapping[str, np.ndarray] | None = None) -> AuditRecord:
        """Judge the step, when the network has been updated.

        Parameters
        ----------
        applied : gradients that the optimiser was given, where they are not those of the first batch: clipped, or means

        Raises
        ------
        AuditError
            If the step is a bug. Fixture and result stay.
        """
        begin = time.monotonic()
        self._write(network, applied)
        with open_pair(self.fixture, self.result) as pair:
            comparison, verdict = judge_pair(pair, diagnosing=False)
            if verdict.outcome is Outcome.BUG:
                comparison, verdict = judge_pair(pair, adequacy=False)
        largest = max((one.t for one in comparison.judged), default=0.0)
        # JSON has no infinity
        record = AuditRecord(verdict.outcome.label, float(f"{min(largest, MOST):.3g}"),
                             round(self._spent + time.monotonic() - begin, 3))
        if verdict.outcome is Outcome.BUG:
            error = AuditError(self._said(verdict))
            error.record = record
            raise error
        shutil.rmtree(self.folder, ignore_errors=True)
        return record

    def _said(self, verdict: Verdict) -> str:
        found = [] if verdict.diagnosis is None else verdict.diagnosis.findings
        named = [f"{one.name}: {one.explanations[0].kinds[0].title} ({one.explanations[0].detail})"
                 for one in found if one.explanations]
        return "; ".join((f"{self._where}: {verdict.words}", *named[:2]))

    @property
    def _where(self) -> str:
        """The step within the training; in its files it is step 0."""
        return f"{self.result}: step {self._step} of the training"

    def _write(self, network: Network, applied: Mapping[str, np.ndarray] | None) -> None:
        """Fixture and result."""
        network.save(self.result, self._optimizer)
        try:
            with h5py.File(self.fixture, "r+") as fixture, h5py.File(self.result, "r+") as result:
                fixture.attrs["role"], result.attrs["role"] = "reference", "candidate"
                result.attrs["producer"], result.attrs["device"] = "bridge.train", network.device
                _end_of_step(result, fixture)
                self._write_batch(fixture)
                step = result["steps/0"]
                for name, tensor in self._seen().items():
                    step[name] = tensor
                for name, tensor in (applied or {}).items():
                    if not np.array_equal(tensor, self._gradients[name]):
                        step[f"applied/{_path(name)}"] = tensor
            self._write_twin(network.device)
        except HDF5_ERRORS as error:
            raise FileError(f"{self.folder}: the audit cannot be written: {one_line(error)}") from None

    def _write_batch(self, fixture: h5py.File) -> None:
        fixture["batches/0/input"], fixture["batches/0/target"] = self._input, self._target
        for name, mask in self._masks.items():
            fixture[f"steps/0/masks/{name}"] = mask

    def _seen(self) -> dict[str, np.ndarray]:
        """What the running network computed of the first batch, by its name in the file."""
        dtype = next(iter(self._gradients.values())).dtype
        return {"loss": np.asarray(self._loss, dtype)} | {
            f"state/{name}": one for name, one in self._state.items()} | {
            f"grads/{_path(name)}": one for name, one in self._gradients.items()}

    def _write_twin(self, device: str) -> None:
        """What the same step once more by a network that keeps all has besides, where it is the same step."""
        twin, seen, same = Network.from_file(self.fixture, device=device), self._seen(), True
        biases = [name for name in seen if name.endswith("/bias")]
        sums = {*(biases or seen), "loss"}
        twin.masks.give(self._masks)
        with h5py.File(self.result, "r+") as result:
            for name, found in recorded_step(twin, self._input, self._target):
                if name in sums:
                    same &= np.array_equal(to_host(found), self._loss if name == "loss" else seen[name])
                if name not in seen:
                    result[f"steps/0/{name}"] = to_host(found)
            if not same:
                for name in ("forward", "grads/input"):
                    result.pop(f"steps/0/{name}", None)
                for layer in result["steps/0/grads"].values():
                    layer.pop("output", None)


def _end_of_step(result: h5py.File, fixture: h5py.File) -> None:
    """What was saved behind a step as that before step 0 is that before step 1."""
    for name in ("weights", "optimizer"):
        if name in result["steps/0"]:
            result.move(f"steps/0/{name}", f"steps/1/{name}")
    if "state" in result:
        del result["state"]
    weights: Any = fixture["steps/0/weights"]
    fixture.copy(weights, result.require_group("steps/0"), "weights")


def _path(name: str) -> str:
    """
    >>> _path("conv.1.weight")
    'conv.1/weight'
    """
    layer, _, kind = name.rpartition(".")
    return f"{layer}/{kind}"
