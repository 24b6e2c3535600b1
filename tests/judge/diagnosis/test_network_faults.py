# SPDX-License-Identifier: MIT
"""Mistakes in networks that people train: a whole training in torch with one of them is a bug, and it is named.

Each network has two; the self-test plants all others in networks of its own. They are planted in torch, not by the
formulas of the search, and everything that follows from them is wrong, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn
from torch.nn import functional

from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.validate.self_test.graph_candidate import (
    GraphOperations,
    backward,
    layer,
    replaced,
    train_graph,
)
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.real_networks import (
    REAL,
    ImageClassifier,
    Perceptron,
    ResidualDenoiser,
    Resnet18,
    TwoLevelUnet,
)
from tests.helpers.torch_graphs import Kan

pytestmark = pytest.mark.deep

Wrong = type[GraphOperations]
Given = dict[str, Tensor]


def tuned() -> nn.Module:
    """The classifier with a first convolution that is frozen."""
    network = ImageClassifier()
    network.features[0].weight.requires_grad_(False)
    return network


#: The networks with optimisers whose rules can be planted wrongly
SETTINGS: dict[Callable[[], nn.Module], dict[str, Any]] = {
    ResidualDenoiser: REAL[ResidualDenoiser] | {"lr": 2.0**-6, "momentum": 0.9},
    TwoLevelUnet: REAL[TwoLevelUnet] | {"lr": 2.0**-6, "momentum": 0.9, "dampening": 0.5},
    Resnet18: REAL[Resnet18] | {"lr": 2.0**-6, "momentum": 0.9, "weight_decay": 2.0**-4},
    tuned: REAL[ImageClassifier] | {"optimizer": "adam", "lr": 2.0**-8, "eps": 2.0**-12},
    Perceptron: REAL[Perceptron] | {
        "optimizer": "adamw", "lr": 2.0**-8, "weight_decay": 0.25, "betas": (0.5, 0.75),
        "schedule": "StepLR(step_size=1, gamma=0.5)"},
    Kan: {"height": 4, "width": 10, "batch": 3, "lr": 2.0**-6, "momentum": 0.9},
}


def cut(name: str, which: int) -> Wrong:
    """The layer sends nothing back to one of its inputs."""
    return layer(name, lambda self, node, xs, w: GraphOperations.forward(
        self, node, [x.detach() + 0 * x if i == which else x for i, x in enumerate(xs)], w))


def by(name: str, change: Callable[..., Tensor]) -> Wrong:
    """The layer is another function of its inputs."""
    return layer(name, lambda self, node, xs, w: change(*xs))


class OtherWeight(GraphOperations):
    """A layer takes the weight of another one."""

    layer, source = "", ""

    def forward(self, node: Any, inputs: list[Tensor], parameters: Given) -> Tensor:
        if node.name == self.source:
            self.taken = parameters["weight"].detach()
        if node.name == self.layer:
            parameters = parameters | {"weight": self.taken + 0 * parameters["weight"]}
        return super().forward(node, inputs, parameters)


def weight_of(name: str, source: str) -> Wrong:
    return type("Wrong", (OtherWeight,), {"layer": name, "source": source})


class OldSkip(GraphOperations):
    """The concatenation takes what the layer before it gave for the previous batch."""

    old: Tensor | None = None

    def forward(self, node: Any, inputs: list[Tensor], parameters: Given) -> Tensor:
        if node.name == "cat":
            old, self.old = self.old, inputs[0].detach()
            inputs = inputs if old is None else [old + 0 * inputs[0], inputs[1]]
        return super().forward(node, inputs, parameters)


class Accumulated(GraphOperations):
    """Gradients are not set to zero between steps."""

    def gradient(self, name: str, g: Tensor) -> Tensor:
        kept = self.memory.setdefault(f"sum of {name}", {})
        kept["g"] = kept.get("g", 0) + g
        return kept["g"]


def parameter(name: str, change: Callable[[GraphOperations, Tensor], Tensor]) -> Wrong:
    """Another gradient of a parameter."""
    return replaced(gradient=lambda self, own, g: change(self, g) if own == name else g)


def adam(change: Callable[[GraphOperations, Any], Any]) -> Wrong:
    """Other settings of Adam."""
    return replaced(adam=lambda self, name, w, g, right: GraphOperations.adam(self, name, w, g, change(self, right)))


def undecayed(self: GraphOperations, name: str, w: Tensor, g: Tensor, sgd: Any) -> Tensor:
    """No weight decay on normalisations."""
    decay = 0.0 if "bn" in name else sgd.weight_decay
    return GraphOperations.sgd(self, name, w, g, replace(sgd, weight_decay=decay))


def splines(name: str, **change: Callable[[Any], Any]) -> Wrong:
    """A KAN layer with other settings."""
    return layer(name, lambda self, node, xs, w: GraphOperations.forward(
        self, replace(node, **{setting: to(node) for setting, to in change.items()}), xs, w))


def factors(name: str, change: Callable[[Given], Given]) -> Wrong:
    """A KAN layer with other factors."""
    return layer(name, lambda self, node, xs, w: GraphOperations.forward(self, node, xs, w | change(w)))


def entropy(change: Callable[[Tensor, Tensor], Tensor]) -> Wrong:
    """Another loss."""
    return replaced(loss=lambda self, y, target: change(y, target))


#: By the network: what is wrong, the program, the first wrong tensor and its step, and the key of the fault
MISTAKES: dict[Callable[[], nn.Module], list[tuple[str, Wrong, str, int, str]]] = {
    ResidualDenoiser: [
        ("the skip's gradient is overwritten", cut("add", 0), "grads/input", 0, "branch"),
        ("the weight of another layer", weight_of("noise.8", "noise.5"), "forward/noise.8", 0, "other_layer"),
    ],
    TwoLevelUnet: [
        ("gradients of the join exchanged", backward("cat", lambda self, dy, xs, w: [dy[:, 16:], dy[:, :16]]),
         "grads/up2/output", 0, "joined"),
        ("the skip of the batch before", OldSkip, "forward/cat", 1, "previous_step"),
    ],
    Resnet18: [
        ("loss over images and classes", entropy(lambda y, t: functional.cross_entropy(y, t) / y.shape[1]), "loss", 0,
         "count"),
        ("no decay of normalisations", replaced(sgd=undecayed), "optimizer/bn1/weight", 0, "weight_decay"),
    ],
    tuned: [
        ("flattened with channels last", by("classifier.0", lambda x: x.permute(0, 2, 3, 1).flatten(1)),
         "forward/classifier.0", 0, "nhwc"),
        ("a weight's gradient averaged over the batch", parameter("classifier.1/weight", lambda self, g: g / 4),
         "grads/classifier.1/weight", 0, "scale"),
    ],
    Perceptron: [
        ("gradients not set to zero", Accumulated, "grads/last/weight", 1, "accumulated"),
        ("the schedule is a step late", adam(lambda self, right: replace(
            right, lr=self.rates[max(self.step - 1, 0)])), "optimizer/first/weight", 1, "learning_rate"),
    ],
    Kan: [
        ("a degree too much", splines("first", order=lambda it: it.order + 1, grid=lambda it: it.grid - 1),
         "forward/first", 0, "activation"),
        ("inputs before outputs", factors("last", lambda w: {name: one.transpose(0, 1) for name, one in w.items()}),
         "forward/last", 0, "in_out_swapped"),
    ],
}


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> dict[Callable[[], nn.Module], Path]:
    folder = tmp_path_factory.mktemp("networks")
    return {network: export(folder / f"{network.__name__}.h5", ExportSettings(
        model=network, steps=2, threads=1, **settings)).path for network, settings in SETTINGS.items()}


@pytest.mark.parametrize("network", MISTAKES)
def test_the_program_without_a_mistake_is_right(
    network: Callable[[], nn.Module], fixtures: dict[Callable[[], nn.Module], Path], tmp_path: Path
) -> None:
    result = train_graph(fixtures[network], tmp_path / "result.h5")
    assert judge(fixtures[network], result, adequacy=False).verdict.outcome is Outcome.ROUNDING


@pytest.mark.parametrize(("network", "mistake"), [
    pytest.param(network, one, id=f"{network.__name__}, {one[0]}") for network, every in MISTAKES.items()
    for one in every])
def test_a_mistake_is_a_bug_and_named(
    network: Callable[[], nn.Module], mistake: tuple[str, Wrong, str, int, str],
    fixtures: dict[Callable[[], nn.Module], Path], tmp_path: Path
) -> None:
    _, wrong, tensor, step, key = mistake
    result = train_graph(fixtures[network], tmp_path / "result.h5", wrong)
    comparison, verdict = judge(fixtures[network], result, adequacy=False)
    assert verdict.outcome is Outcome.BUG and not verdict.missing, verdict.words
    assert verdict.diagnosis is not None
    first = verdict.diagnosis.findings[0]
    assert (first.name, first.step) == (tensor, step) == (comparison.failures[0].name, comparison.failures[0].step)
    said = [([kind.key for kind in one.kinds], one.detail) for one in first.explanations]
    assert not key or (said and key in said[0][0]), (said, first.runner_up)
