# SPDX-License-Identifier: MIT
"""What ranks do together in a training; here they are threads of one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridge import Adam, Network, Sgd
from bridge.common.errors import ArgumentError, BridgeError, DivergenceError
from bridge.data import Batches, Consecutive
from bridge.exchange.model import Conv2d, Model, Operation, Relu
from bridge.operations import BatchNorm2d, Dropout, Matmul, Mean
from bridge.train import Trainer, TrainSettings
from bridge.train.images import check_images_apart
from bridge.train.ranks.communicator import Alone, Communicator, RankError
from bridge.train.trainer import StepRecord
from tests.helpers.ranks.ranks import in_threads

SETTINGS = TrainSettings(steps=4, optimizer=Adam(1e-2), clip=0.2, accumulate=2)
#: Images of a batch
BATCH = 5


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    np.save(folder / "noisy.npy", np.random.default_rng(0).standard_normal((20, 12, 12)).astype(np.float32))
    return folder


def batches(images: Path, batch: int = BATCH) -> Batches:
    return Batches(Consecutive(images), batch=batch, crop=(8, 8), seed=4, swap=True)


def network(*middle: Operation, seed: int = 1, mean: bool = True) -> Network:
    rng = np.random.default_rng(seed)
    net = Network(Model((Conv2d("a", 1, 4, (3, 3), padding=(1, 1)), *(middle or (Relu("r"),)),
                         Conv2d("b", 4, 1, (3, 3), padding=(1, 1))), mean=mean))
    for name, one in net.parameters.items():
        one[...] = 1 if name == "norm.weight" else 0.1 * rng.standard_normal(one.shape)
    return net


def state(net: Network) -> dict[str, np.ndarray]:
    return {name: np.array(one) for name, one in (*net.parameters.items(), *net.buffers.items())}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def trained(images: Path, size: int, settings: TrainSettings, make: Callable[[int], Network]
            ) -> list[tuple[dict[str, np.ndarray], list[StepRecord]]]:
    """State and records of each rank."""
    def train(ranks: Communicator) -> Any:
        net, records = make(ranks.rank), list[StepRecord]()
        validation = batches(images, 2) if settings.validate_every else None
        Trainer(net, batches(images), settings, None, validation, records.append, ranks=ranks).run()
        return state(net), records

    found = in_threads(size, train)
    for one in found:
        assert not isinstance(one, BaseException), one
        assert same(one[0], found[0][0]) and one[1] == found[0][1]
    return found


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("mean", [True, False], ids=["mean", "sum"])
def test_ranks_train_as_one(images: Path, size: int, mean: bool) -> None:
    """Of unequal parts, by a loss that is a mean or a sum; all begin with rank 0's weights."""
    settings = replace(SETTINGS, optimizer=Sgd(1e-2 if mean else 1e-4, momentum=0.9), clip=None, validate_every=2)
    (alone, records), = trained(images, 1, settings, lambda rank: network(mean=mean))
    found, theirs = trained(images, size, settings, lambda rank: network(seed=1 + rank, mean=mean))[0]
    for name, one in alone.items():
        assert np.allclose(found[name], one, rtol=1e-4, atol=1e-6), name
    for mine, other in zip(records, theirs, strict=True):
        assert other.loss == pytest.approx(mine.loss, rel=1e-5)
        assert (other.validation_loss is None) == (mine.validation_loss is None)
        if mine.validation_loss is not None:
            assert other.validation_loss == pytest.approx(mine.validation_loss, rel=1e-5)


def test_a_validation_is_the_mean_of_whole_batches(images: Path) -> None:
    """The same bits on 1, 2 and 3 ranks, of five batches."""
    net, held = network().eval(), batches(images, 2)
    losses = []
    for k in range(5):
        net.forward(held.at(k).input)
        losses.append(net.loss(held.at(k).target))
    settings = replace(SETTINGS, validate_every=1)
    for size in (1, 2, 3):
        assert in_threads(size, lambda ranks: Trainer(
            network(), batches(images), settings, None, held, ranks=ranks).validate()) == [sum(losses) / 5] * size


@pytest.mark.parametrize("accumulate", [1, 2])
def test_reproducible_to_the_bit(images: Path, accumulate: int) -> None:
    """Masks and losses, too."""
    settings = replace(SETTINGS, accumulate=accumulate, reproducible=True, validate_every=3)
    dropout = Dropout("drop", 0.25)
    (alone, records), = trained(images, 1, settings, lambda rank: network(dropout))
    for size in (2, 3, 4):
        found, theirs = trained(images, size, settings, lambda rank: network(dropout))[0]
        assert same(found, alone) and theirs == records


def test_masks_differ_from_rank_to_rank_and_step_to_step(images: Path) -> None:
    masks: dict[tuple[int, int], np.ndarray] = {}

    def train(ranks: Communicator) -> None:
        net = network(Dropout("drop", 0.5))
        trainer = Trainer(net, batches(images, 4), replace(SETTINGS, accumulate=1), ranks=ranks)
        trainer.report = lambda record: masks.__setitem__((ranks.rank, record.step), net.masks["drop"].copy())
        trainer.run()

    assert in_threads(2, train) == [None, None] and len(masks) == 8
    assert len({one.tobytes() for one in masks.values()}) == 8


def test_masks_of_images_differ(images: Path) -> None:
    """With `reproducible`, also of the batches that make one update."""
    net, masks = network(Dropout("drop", 0.5)), list[bytes]()
    trainer = Trainer(net, batches(images, 2), replace(SETTINGS, reproducible=True))
    draw = net.masks.draw

    def noted(shape: tuple[int, ...]) -> None:
        draw(shape)
        masks.append(net.masks["drop"].tobytes())

    net.masks.draw = noted  # type: ignore[method-assign]
    trainer.run()
    assert len(masks) == len(set(masks)) == 4 * 2 * 2


def test_running_statistics_are_the_mean_over_ranks(images: Path) -> None:
    """Weighted by images, the same on all; each rank normalises its part by itself."""
    norm = BatchNorm2d("norm", 4, track_running_stats=True)
    settings = TrainSettings(steps=1, optimizer=Sgd(0.0))
    found, records = trained(images, 2, settings, lambda rank: network(norm))[0]
    expected, loss = dict[str, Any](), 0.0
    for rank in range(2):
        net, part = network(norm), batches(images).at(0, rank, 2)
        net.forward(part.input)
        loss += len(part.input) * net.loss(part.target) / BATCH
        for name, one in net.buffers.items():
            expected[name] = expected.get(name, 0.0) + len(part.input) * one.astype(np.float64) / BATCH
    assert set(expected) == {"norm.running_mean", "norm.running_var"}
    for name, one in expected.items():
        assert np.array_equal(found[name], one.astype(np.float32))
    assert records[0].loss == pytest.approx(loss, rel=1e-12)


def failures(size: int, make: Callable[[Communicator], Trainer]) -> list[tuple[type, str]]:
    """How each rank ends."""
    def train(ranks: Communicator) -> Any:
        try:
            make(ranks).run()
        except BridgeError as error:
            assert ranks.settled
            return type(error), str(error)
        return None

    return in_threads(size, train)


def test_ranks_that_begin_differently_are_refused(images: Path) -> None:
    kinds = failures(2, lambda ranks: Trainer(
        network(), batches(images), replace(SETTINGS, steps=4 + ranks.rank), ranks=ranks))
    assert kinds == [(RankError, "the beginning: rank 1 differs from rank 0, expected the same data, settings and step "
                      "to the bit on all ranks")] * 2


def test_a_rank_that_drifts_is_found_at_the_checkpoint(images: Path) -> None:
    def make(ranks: Communicator) -> Trainer:
        net = network()
        trainer = Trainer(net, batches(images), replace(SETTINGS, checkpoint_every=2), ranks=ranks)
        trainer.report = lambda record: net.parameters["b.bias"].__iadd__(record.step == 2 and ranks.rank == 1)
        return trainer

    (kind, words), other = failures(2, make)
    assert kind is RankError and words.startswith("step 4: rank 1 differs from rank 0, expected the same b.bias")
    assert other == (kind, words)


def test_a_loss_that_is_not_finite_ends_all(images: Path) -> None:
    def make(ranks: Communicator) -> Trainer:
        net = network()
        trainer = Trainer(net, batches(images), SETTINGS, ranks=ranks)

        def spoil(record: StepRecord) -> None:
            if (record.step, ranks.rank) == (1, 2):
                net.parameters["a.weight"][...] = 3e38

        trainer.report = spoil
        return trainer

    found = failures(3, make)
    assert [kind for kind, _ in found] == [DivergenceError] * 3
    assert len({words for _, words in found}) == 1 and found[0][1].startswith("step 2: loss")


def test_what_ranks_cannot_share_is_refused(images: Path) -> None:
    classes = Network(Model((Conv2d("a", 1, 2, (1, 1)),), loss="cross_entropy class_indices=1"))
    cases: list[tuple[int, Callable[[], Network], TrainSettings, str]] = [
        (BATCH + 1, network, SETTINGS, "ranks: 6, expected at most as many as images in a batch, 5"),
        (2, lambda: classes, SETTINGS, "ranks: 2 with the loss cross_entropy class_indices=1, whose mean"),
        (1, lambda: classes, replace(SETTINGS, reproducible=True), "reproducible: True with the loss"),
        (1, lambda: network(BatchNorm2d("norm", 4)), replace(SETTINGS, reproducible=True), "layer norm .batch_norm2d")]
    for size, make, settings, said in cases:
        def train(ranks: Communicator, make: Any = make, settings: TrainSettings = settings) -> Trainer:
            return Trainer(make(), batches(images), settings, ranks=ranks)

        found = failures(size, train)
        assert len(found) == size
        with pytest.raises(ArgumentError, match=said):
            raise ArgumentError(found[0][1])


def test_operations_that_join_images_are_known() -> None:
    for layers, shape, said in (
            ((Mean("m", dim=(0,), keepdim=True),), (2, 3, 4, 4), "layer m (mean)"),
            ((Mean("m", dim=(-4, 1), keepdim=True),), (2, 3, 4, 4), "layer m (mean)"),
            ((Relu("r"), Matmul("p", inputs=("r", "r"))), (3, 3), "layer p (matmul)")):
        with pytest.raises(ArgumentError) as caught:
            check_images_apart(Model(layers), shape, "who")
        assert str(caught.value).startswith(f"who, but {said} joins the images")
    apart = (Mean("m", dim=(-1, 2), keepdim=True), BatchNorm2d("n", 3, training=False, track_running_stats=True),
             Matmul("p", inputs=("n", "n")))
    check_images_apart(Model(apart), (2, 3, 4, 4), "who")


def test_reproducible_is_true_or_false() -> None:
    with pytest.raises(ArgumentError, match="reproducible: 1, expected true or false"):
        replace(SETTINGS, reproducible=1)
    assert Alone().settled is False
