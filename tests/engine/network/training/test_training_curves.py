# SPDX-License-Identifier: MIT
"""Trainings of 200 steps: the network learns, and its loss curve lies on PyTorch's.

Rounding grows from step to step: a rectifier that flips, or a normalisation of few numbers, carries the difference on.
How much, PyTorch itself says: the same training from weights that are off by one rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bridge import Adam, Network, Sgd
from tests.helpers.networks.learned_tasks import Batch, drawn_shapes, noisy_pictures
from tests.helpers.real_networks import ImageClassifier, Perceptron, ResidualDenoiser, Resnet18, TwoLevelUnet
from tests.helpers.tiers import few_rows

Array = np.ndarray
STEPS = 200
#: Of float64, relative to the loss, where training does not amplify a rounding
CLOSE = 1e-12
#: Every step rounds; the trainings that are set beside it have one rounding at their start
ROUNDINGS = 8
#: In float32 we may be so many times as far from the curve of float64 as PyTorch is
TIMES = 4
LOSSES = {"mse": nn.functional.mse_loss, "cross_entropy": nn.functional.cross_entropy}


@dataclass(frozen=True)
class Training:
    """A network and what it is to learn.

    Attributes
    ----------
    network, draw, batch : and its images with their targets, so many in each step
    rates : learning rates by optimiser
    falls : the loss of the first step over the mean of the last twenty, at least
    accuracy : share of new images that are classified rightly, at least; None of a denoiser
    noise_left : of a denoiser, squared error over that of the noisy image, on new ones, at most
    sensitive : one rounding of the first weights moves PyTorch's own curve by about `CLOSE` or more
    """

    network: Callable[[], nn.Module]
    draw: Callable[[np.random.Generator, int], Batch]
    batch: int
    rates: dict[str, float]
    falls: float
    accuracy: float | None = None
    noise_left: float | None = None
    sensitive: bool = False

    @property
    def loss(self) -> str:
        return "mse" if self.accuracy is None else "cross_entropy"


TRAININGS = {
    "MLP": Training(Perceptron, partial(drawn_shapes, size=12, classes=4), 16, {"sgd": 0.1, "adam": 0.01}, 6, 0.9),
    "classifier": Training(ImageClassifier, partial(drawn_shapes, size=16, classes=5), 16,
                           {"sgd": 0.05, "adam": 0.01}, 4, 0.85),
    "residual denoiser": Training(ResidualDenoiser, noisy_pictures, 4, {"sgd": 0.1, "adam": 0.02}, 4, noise_left=0.8),
    "U-Net": Training(TwoLevelUnet, noisy_pictures, 4, {"sgd": 0.1, "adam": 0.016}, 20, noise_left=0.5,
                      sensitive=True),
    # A sixteenth of the paper's 64 channels, so that a curve takes seconds
    "ResNet-18": Training(partial(Resnet18, 4), partial(drawn_shapes, size=32, classes=10, channels=3), 16,
                          {"sgd": 0.02, "adam": 0.004}, 8, 0.8, sensitive=True),
}
OPTIMIZERS: dict[str, tuple[Callable[[float], Any], Callable[..., torch.optim.Optimizer]]] = {
    "sgd": (partial(Sgd, momentum=0.9), partial(torch.optim.SGD, momentum=0.9)),
    "adam": (Adam, torch.optim.Adam),
}
#: Each network with one optimiser, and each optimiser with the network that is fastest
CASES = pytest.mark.parametrize(("name", "optimizer"), few_rows(
    [("MLP", "sgd"), ("MLP", "adam"), ("classifier", "adam"), ("residual denoiser", "sgd"), ("U-Net", "adam"),
     ("ResNet-18", "sgd")], lambda row: row[0] in ("MLP", "classifier")))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors: threads of PyTorch would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def module_of(training: Training, dtype: str, start: int) -> nn.Module:
    """The module with its first weights, which are float32; from `start` 1 on each is off by a rounding of its own."""
    torch.manual_seed(3)
    module = training.network().to(getattr(torch, dtype))
    if start:
        generator = torch.Generator().manual_seed(start)
        with torch.no_grad():
            for values in module.parameters():
                signs = torch.randint(2, values.shape, generator=generator).to(values.dtype) * 2 - 1
                values += torch.finfo(values.dtype).eps * signs * values
    return module


def batches(training: Training, dtype: str) -> Iterator[Batch]:
    """The same numbers in each dtype."""
    generator = np.random.default_rng(11)
    for _ in range(STEPS):
        x, target = training.draw(generator, training.batch)
        yield x.astype(dtype), target.astype(dtype)


def masks(training: Training, dtype: str) -> Iterator[Array]:
    """Of the classifier's dropout."""
    generator = np.random.default_rng(12)
    while True:
        yield (generator.random((training.batch, 16)) >= 0.25).astype(dtype)


@cache
def torch_curve(name: str, optimizer: str, dtype: str, start: int = 0,
                make: Callable[..., torch.optim.Optimizer] | None = None) -> Array:
    """PyTorch's losses; `make` is another optimiser than the one of that name."""
    training = TRAININGS[name]
    module, given = module_of(training, dtype, start), masks(training, dtype)
    for layer in module.modules():
        if isinstance(layer, nn.Dropout):
            layer.register_forward_hook(lambda one, x, _: x[0] * torch.from_numpy(next(given)) / (1 - one.p))
    step = (make or OPTIMIZERS[optimizer][1])(module.parameters(), lr=training.rates[optimizer])
    losses = []
    for x, target in batches(training, dtype):
        step.zero_grad()
        loss = LOSSES[training.loss](module(torch.from_numpy(x)), torch.from_numpy(target))
        loss.backward()
        step.step()
        losses.append(loss.item())
    return np.array(losses)


def our_curve(name: str, optimizer: str, dtype: str) -> tuple[Array, Network]:
    """Our losses, and the network that was trained."""
    training = TRAININGS[name]
    x, _ = next(batches(training, dtype))
    net = Network.from_torch(module_of(training, dtype, 0), loss=training.loss, example=x.shape)
    settings, given = OPTIMIZERS[optimizer][0](training.rates[optimizer]), masks(training, dtype)
    losses = []
    for x, target in batches(training, dtype):
        if dropouts := net.model.graph.masked():
            net.masks.give(dict.fromkeys(dropouts, next(given)))
        losses.append(net.step(x, target, settings))
    return np.array(losses), net


def assert_learned(training: Training, losses: Array, net: Network) -> None:
    """The loss has fallen, and images that it has not seen come out right, by running statistics and without dropout.
    """
    assert losses[0] > training.falls * losses[-20:].mean()
    x, target = training.draw(np.random.default_rng(99), 200)
    evaluated = Network.from_torch(net.to_torch().eval(), loss=training.loss, example=x.shape)
    y = evaluated.forward(x.astype(net.dtype))
    if training.accuracy is not None:
        assert np.mean(y.argmax(1) == target.argmax(1)) > training.accuracy
    if training.noise_left is not None:
        assert np.mean((y - target) ** 2) < training.noise_left * np.mean((x - target) ** 2)


def allowed(name: str, optimizer: str) -> Array:
    """How far a curve in float64 may lie from PyTorch's in each step."""
    right = torch_curve(name, optimizer, "float64")
    bound = CLOSE * np.abs(right)
    if TRAININGS[name].sensitive:
        moved = [np.abs(torch_curve(name, optimizer, "float64", start) - right) for start in (1, 2)]
        # What has gone apart stays apart, though two curves may cross
        bound = np.maximum(bound, ROUNDINGS * np.maximum.accumulate(np.max(moved, axis=0)))
    assert np.all(bound < 1e-8 * np.abs(right)), "a bound that would hide a mistake"
    return bound


def distance(name: str, optimizer: str, curve: Array) -> float:
    """The mean distance from PyTorch's curve in float64, relative to the mean loss."""
    right = torch_curve(name, optimizer, "float64")
    return float(np.abs(curve - right).mean() / np.abs(right).mean())


@CASES
def test_in_float64_the_curves_are_one(name: str, optimizer: str) -> None:
    ours, net = our_curve(name, optimizer, "float64")
    assert_learned(TRAININGS[name], ours, net)
    assert np.all(np.abs(ours - torch_curve(name, optimizer, "float64")) <= allowed(name, optimizer))


@CASES
def test_in_float32_we_are_as_near_to_float64_as_pytorch(name: str, optimizer: str) -> None:
    """PyTorch's distance is the largest of three, because a rectifier flips in one training and not in the next."""
    ours, net = our_curve(name, optimizer, "float32")
    assert_learned(TRAININGS[name], ours, net)
    theirs = [distance(name, optimizer, torch_curve(name, optimizer, "float32", start)) for start in range(3)]
    assert distance(name, optimizer, ours) <= TIMES * max(theirs)


class UncorrectedAdam(torch.optim.Optimizer):
    """Adam whose moments are not divided by 1 - beta**t."""

    def __init__(self, parameters: Iterator[nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for one in group["params"]:
                state = self.state[one]
                first, second = state.get("first", 0), state.get("second", 0)
                state["first"], state["second"] = 0.9 * first + 0.1 * one.grad, 0.999 * second + 0.001 * one.grad**2
                one -= group["lr"] * state["first"] / (state["second"].sqrt() + 1e-8)


@pytest.mark.parametrize(("optimizer", "wrong"), [
    ("adam", UncorrectedAdam), ("adam", partial(torch.optim.Adam, eps=1e-7)),
    ("adam", partial(torch.optim.Adam, betas=(0.9, 0.99))),
    ("sgd", partial(torch.optim.SGD, momentum=0.9, dampening=0.1)),
    ("sgd", partial(torch.optim.SGD, momentum=0.9, nesterov=True)),
    ("sgd", partial(torch.optim.SGD, momentum=0.9, weight_decay=1e-6)),
], ids=["uncorrected", "epsilon", "betas", "dampening", "nesterov", "decay"])
def test_another_optimiser_has_another_curve(optimizer: str, wrong: Callable[..., torch.optim.Optimizer]) -> None:
    """Even one that differs little: mistakes of these kinds would be seen."""
    curve = torch_curve("MLP", optimizer, "float64", make=wrong)
    apart = np.abs(curve - torch_curve("MLP", optimizer, "float64"))
    assert apart[0] == 0
    assert np.any(apart > 1000 * allowed("MLP", optimizer))
    theirs = distance("MLP", optimizer, torch_curve("MLP", optimizer, "float32"))
    assert distance("MLP", optimizer, curve) > TIMES * theirs
