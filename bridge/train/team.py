# SPDX-License-Identifier: MIT
"""What the ranks of a training do together: each takes its part of a batch, and all make the same update."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence

import numpy as np

from bridge.common.errors import ArgumentError
from bridge.data import Batch, Batches
from bridge.engine.arrays.transfer import to_device, to_host
from bridge.engine.network.network import Network
from bridge.train import images
from bridge.train.ranks.communicator import Communicator, together
from bridge.train.ranks.sameness import check_same
from bridge.train.ranks.sums import RankParts, add_up, gather_numbers
from bridge.train.settings import TrainSettings
from bridge.train.stopping import Request

Tensors = Mapping[str, np.ndarray]


class Team:
    """All ranks, and this one's part. Made and called by all of them alike.

    After every step all have the same parameters, buffers and memory of the optimiser, to the bit: each makes the same
    update with gradients that are added up once for all.

    Parameters
    ----------
    ranks : Communicator
    network : Network
        Gets rank 0's parameters and buffers, before its first step.
    batches : Batches
        Of all ranks together.
    settings : TrainSettings
    seed : int
        Of dropouts' masks.

    Raises
    ------
    ArgumentError
        If there are more ranks than images in a batch; if the loss, or with `reproducible` the network, is none that
        ranks can share.
    RankError
        If the ranks have begun differently.
    """

    def __init__(self, ranks: Communicator, network: Network, batches: Batches, settings: TrainSettings, seed: int
                 ) -> None:
        self.ranks, self.network, self.batches, self.settings, self.seed = ranks, network, batches, settings, seed
        together(ranks, self._check)
        counts = tuple(batches.batch * (r + 1) // ranks.size - batches.batch * r // ranks.size
                       for r in range(ranks.size))
        mean = network.model.mean
        self._first = sum(counts[:ranks.rank])
        one, images_of = (1,) * ranks.size, tuple(map(float, counts))
        self._mean = RankParts(one, images_of, float(batches.batch))
        if settings.reproducible:
            self._gradients = RankParts(counts, tuple(map(float, one)), float(batches.batch) if mean else 1.0)
        else:
            self._gradients = self._mean if mean else RankParts(one, tuple(map(float, one)), 1.0)
        self._changing = {f"{layer.name}.{name}": network.buffers[f"{layer.name}.{name}"]
                          for layer in network.model.layers for name in layer.new_state_shapes()}
        self._request: Request | None = None
        self._signal = 0
        self._begin()

    @property
    def alone(self) -> bool:
        """Return whether a batch is one piece, which nobody shares or divides."""
        return self.ranks.size == 1 and not self.settings.reproducible

    def stream(self, first: int, stop: int) -> Generator[Batch, None, None]:
        """Return this rank's part of the batches, read ahead."""
        return self.batches.stream(first, stop, rank=self.ranks.rank, ranks=self.ranks.size)

    def generator(self, step: int) -> np.random.Generator:
        """Return what draws the masks of a step; other ones on every rank."""
        return np.random.default_rng((self.seed, step, self.ranks.rank) if self.ranks.size > 1 else (self.seed, step))

    def by_images(self, batch: Batch, step: int, number: int) -> tuple[float, dict[str, np.ndarray]]:
        """Return loss and gradients of a batch of all ranks, added up image by image in their order.

        Parameters
        ----------
        batch : this rank's part
        number : of the batch among those of the step
        """
        first = number * self.batches.batch + self._first
        return self._added(*images.of_each_image(
            self.network, batch, lambda k: np.random.default_rng((self.seed, step, first + k))))

    def added(self, loss: float, gradients: Tensors) -> tuple[float, dict[str, np.ndarray]]:
        """Return loss and gradients of a batch of all ranks, from those of their parts."""
        found = self._added([loss], [gradients])
        if self._changing:
            mine = {name: np.array(to_host(one)) for name, one in self._changing.items()}
            for name, one in add_up(self.ranks, [mine], self._mean, np.zeros(0))[0].items():
                self._changing[name][...] = to_device(one, self.network.device)
        return found

    def mean_in_order(self, losses: np.ndarray) -> float:
        """Return the mean of losses, float64, of which each rank knows those that `mine` gives it."""
        found, total = gather_numbers(self.ranks, losses), 0.0
        for k in range(losses.size):
            total += float(found[k % self.ranks.size, k])
        return total / losses.size

    def mine(self, count: int) -> range:
        """Return which of so many batches of a validation are this rank's."""
        return range(self.ranks.rank, count, self.ranks.size)

    def ended_by(self, request: Request) -> bool:
        """Return whether a signal ends the training on all ranks, after the step in which one of them has told of it.

        Parameters
        ----------
        request : of this rank, which tells of it with the next gradients; gets the number of a signal that ends all
        """
        self._request = request
        if self.ranks.size == 1:
            return request.number is not None
        if self._signal:
            request.number = self._signal
            self.ranks.settle()
        return bool(self._signal)

    def check(self) -> None:
        """Refuse to go on where a rank has other numbers than rank 0."""
        network = self.network
        if self.ranks.size == 1:
            return
        held = {name: to_host(one) for views in (network.parameters, network.buffers) for name, one in views.items()}
        held |= {f"momentum of {name}": to_host(one) for name, one in network.momenta.items()}
        check_same(self.ranks, f"step {network.steps}", held)

    def _check(self) -> None:
        model, size = self.network.model, self.ranks.size
        if size > self.batches.batch:
            raise ArgumentError(f"ranks: {size}, expected at most as many as images in a batch, {self.batches.batch}")
        if size > 1:
            images.check_loss(model, f"ranks: {size}")
        if self.settings.reproducible:
            shape = (1, self.batches.data.shape(0)[0], *self.batches.crop)
            images.check_images_apart(model, shape, "reproducible: True")

    def _begin(self) -> None:
        """All with the weights of rank 0, which only an untrained network may lack."""
        b, network = self.batches, self.network
        facts = [self.settings.text, network.steps, self.seed, b.seed, b.batch, b.crop, b.scale, b.samples, b.swap]
        check_same(self.ranks, "the beginning", {}, json.dumps(facts))
        if self.ranks.size > 1 and network.steps == 0:
            for views in (network.parameters, network.buffers):
                for array in views.values():
                    sent = np.array(to_host(array))
                    self.ranks.broadcast(sent.reshape(-1).view(np.uint8))
                    array[...] = to_device(sent, network.device)
        self.check()

    def _added(self, losses: Sequence[float], found: Sequence[Tensors]) -> tuple[float, dict[str, np.ndarray]]:
        parts = self._gradients
        said = np.zeros(max(parts.counts) + 1)
        said[:len(losses)] = losses
        said[-1] = (self._request.number or 0) if self._request else 0
        sums, all_said = add_up(self.ranks, found, parts, said)
        self._signal = int(all_said[:, -1].max())
        loss = 0.0
        for count, weight, numbers in zip(parts.counts, parts.weights, all_said, strict=True):
            for k in range(count):
                loss += weight * float(numbers[k])
        return loss / parts.divisor, sums
