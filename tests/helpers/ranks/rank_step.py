# SPDX-License-Identifier: MIT
"""``python -m tests.helpers.ranks.rank_step FIXTURE RESULT [FAULT]``: one step of a fixture by `bridge.train.Trainer`
on all ranks, as a result for the judge; with a fault that is planted into how ranks add up.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np

from bridge.data import Batch
from bridge.engine.network.network import Network
from bridge.exchange.file import ExchangeFile
from bridge.train import Trainer, TrainSettings
from bridge.train.ranks.communicator import Communicator
from bridge.train.ranks.launcher import join
from bridge.train.ranks.sums import gather_numbers
from bridge.train.schedules import Constant
from bridge.train.trainer import StepRecord

FAULTS = ("forgotten", "unweighted", "twice", "overlap")


@dataclass
class OneBatch:
    """What a trainer needs of `bridge.data.Batches`, made of the batch of a fixture."""

    input: np.ndarray
    target: np.ndarray
    fault: str = ""
    seed: int = 0
    swap: bool = False
    scale: None = None

    def __post_init__(self) -> None:
        self.batch = self.samples = len(self.input)
        self.crop = self.input.shape[2:]
        self.data = SimpleNamespace(shape=lambda pair: self.input.shape[1:])

    def stream(self, first: int, stop: int, rank: int, ranks: int) -> Generator[Batch, None, None]:
        begin, end = self.batch * rank // ranks, self.batch * (rank + 1) // ranks
        if self.fault == "overlap" and rank == ranks - 1:
            begin, end = begin - 1, end - 1
        for step in range(first, stop):
            none: Any = None
            yield Batch(step, self.input[begin:end], self.target[begin:end], none, none, none, none, none, none)


def plant(trainer: Trainer, fault: str) -> None:
    """Into how the ranks of a trainer add up."""
    team = trainer._team
    parts, ranks = team._gradients, team.ranks
    if fault == "forgotten":
        weights = (*parts.weights[:-1], 0.0)
        team._gradients = replace(parts, weights=weights, divisor=sum(weights))
    elif fault == "unweighted":
        team._gradients = replace(parts, weights=(1.0,) * ranks.size, divisor=float(ranks.size))
    elif fault == "twice":
        exchange = ranks.exchange

        def doubled(sent: np.ndarray) -> np.ndarray:
            received = exchange(sent)
            received[1] = received[0]
            return received

        ranks.exchange = doubled  # type: ignore[method-assign]


def all_images(ranks: Communicator, array: np.ndarray, counts: tuple[int, ...], factor: float = 1.0) -> np.ndarray:
    """The images of all ranks, one behind the other."""
    padded = np.zeros((max(counts), *array.shape[1:]))
    padded[:len(array)] = array.astype(np.float64) * factor
    found = gather_numbers(ranks, padded.reshape(-1)).reshape(ranks.size, *padded.shape)
    return np.concatenate([one[:n] for one, n in zip(found, counts, strict=True)]).astype(array.dtype)


def main(fixture: str, result: str, fault: str = "") -> None:
    """Train one step, and write every tensor of it on rank 0."""
    ranks, network = join(), Network.from_file(fixture)
    with ExchangeFile(fixture) as file:
        arrays = [file.read(f"batches/0/{name}", file.shape(f"batches/0/{name}")) for name in ("input", "target")]
        optimizer = file.optimizer
    assert optimizer is not None
    before = {name: np.array(one) for name, one in network.parameters.items()}
    records = list[StepRecord]()
    trainer = Trainer(network, OneBatch(*arrays, fault),  # type: ignore[arg-type]
                      TrainSettings(steps=1, optimizer=optimizer, schedule=Constant()), report=records.append,
                      ranks=ranks)
    plant(trainer, fault)
    trainer.run()
    n, counts = len(arrays[0]), tuple(len(arrays[0]) * (r + 1) // ranks.size - len(arrays[0]) * r // ranks.size
                                      for r in range(ranks.size))
    share = counts[ranks.rank] / n
    tensors = {"loss": np.array(records[0].loss)}
    for layer in network.model.layers:
        tensors[f"forward/{layer.name}"] = all_images(ranks, network.output(layer.name), counts)
        tensors[f"grads/{layer.name}/output"] = all_images(ranks, network.output_gradient(layer.name), counts, share)
        for name in layer.parameter_shapes():
            tensors[f"grads/{layer.name}/{name}"] = network.gradients[f"{layer.name}.{name}"]
    tensors["grads/input"] = all_images(ranks, network.output_gradient("input"), counts, share)
    if ranks.rank == 0:
        write(Path(result), Path(fixture), tensors, (before, dict(network.parameters)))
    ranks.end(0)


def write(result: Path, fixture: Path, tensors: dict[str, np.ndarray], weights: tuple[dict[str, np.ndarray], ...]
          ) -> None:
    """A result, with the description of the fixture."""
    with h5py.File(fixture) as source, h5py.File(result, "w") as file:
        file.attrs.update({name: source.attrs[name] for name in ("format", "format_version", "precision", "math_mode")})
        file.attrs.update({"role": "candidate", "producer": "ranks of bridge.train"})
        for group in ("model", "optimizer"):
            source.copy(group, file)
        for name, one in tensors.items():
            file[f"steps/0/{name}"] = one
        for step, found in enumerate(weights):
            for name, one in found.items():
                file[f"steps/{step}/weights/{name.replace('.', '/')}"] = one


if __name__ == "__main__":
    main(*sys.argv[1:])
