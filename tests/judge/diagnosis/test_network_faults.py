# SPDX-License-Identifier: MIT
"""Mistakes in networks that people train: a whole training in torch with one of them is a bug, and it is named.

Each network has ten of its own kind. They are planted in torch, not by the formulas of the search, and everything that
follows from them is wrong, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.validate.self_test.graph_candidate import (
    GraphOperations,
    backward,
    layer,
    replaced,
    through,
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


def normalised(x: Tensor, w: Given, eps: float = 1e-5, *, unbiased: bool = False, outside: float = 0.0) -> Tensor:
    root = (x.var((0, 2, 3), unbiased=unbiased, keepdim=True) + eps).sqrt() + outside
    return (x - x.mean((0, 2, 3), keepdim=True)) / root * w["weight"][:, None, None] + w["bias"][:, None, None]


def normalising(name: str, change: Callable[[Tensor, Given], Tensor]) -> Wrong:
    """Another normalisation; its running statistics are right."""
    def forward(self: GraphOperations, node: Any, xs: list[Tensor], w: Given) -> Tensor:
        fixed = {name: one.detach().clone() if name.startswith("running") else one for name, one in w.items()}
        GraphOperations.forward(self, node, [xs[0].detach()], w)
        return change(xs[0], fixed)

    return layer(name, forward)


def running(name: str, momentum: float = 0.1, *, unbiased: bool = True) -> Wrong:
    """The right normalisation; other running statistics."""
    def forward(self: GraphOperations, node: Any, xs: list[Tensor], w: Given) -> Tensor:
        x = xs[0].detach()
        new = {"running_mean": x.mean((0, 2, 3)), "running_var": x.var((0, 2, 3), unbiased=unbiased)}
        kept = {one: (1 - momentum) * w[one] + momentum * new[one] for one in new}
        y = GraphOperations.forward(self, node, xs, w)
        w.update(kept)
        return y

    return layer(name, forward)


def by_running(x: Tensor, w: Given) -> Tensor:
    return functional.batch_norm(x, w["running_mean"], w["running_var"], w["weight"], w["bias"], training=False)


def constant_statistics(self: GraphOperations, dy: Tensor, xs: list[Tensor], w: Given) -> list[Tensor]:
    return [dy * w["weight"][:, None, None] / (xs[0].var((0, 2, 3), unbiased=False, keepdim=True) + 1e-5).sqrt()]


def forgotten(self: GraphOperations, node: Any, xs: list[Tensor], w: Given) -> Tensor:
    """The running statistics are not saved: every step begins with those of a new network."""
    w["running_mean"], w["running_var"] = torch.zeros_like(w["running_mean"]), torch.ones_like(w["running_var"])
    return GraphOperations.forward(self, node, xs, w)


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


def updating(name: str, change: Callable[[GraphOperations, Tensor, Tensor], Tensor]) -> Wrong:
    """Another update of a parameter."""
    return replaced(update=lambda self, own, w, g: change(self, w, g) if own == name else GraphOperations.update(
        self, own, w, g))


def adam(change: Callable[[GraphOperations, Any], Any]) -> Wrong:
    """Other settings of Adam."""
    return replaced(adam=lambda self, name, w, g, right: GraphOperations.adam(self, name, w, g, change(self, right)))


def adam_inside(self: GraphOperations, name: str, w: Tensor, g: Tensor, right: Any) -> Tensor:
    """eps inside the root."""
    m, v = self.averages(name, g, right)
    c1, c2 = self.corrections(right)
    return w - right.lr / c1 * m / (v / c2 + right.eps).sqrt()


def coupled(self: GraphOperations, name: str, w: Tensor, g: Tensor, right: Any) -> Tensor:
    return GraphOperations.adam(self, name, w, g + right.weight_decay * w, replace(right, weight_decay=0.0))


def forgetting(self: GraphOperations, name: str, g: Tensor, right: Any) -> tuple[Tensor, Tensor]:
    self.memory.pop(name, None)
    return GraphOperations.averages(self, name, g, right)


def undecayed(self: GraphOperations, name: str, w: Tensor, g: Tensor, sgd: Any) -> Tensor:
    """No weight decay on normalisations."""
    decay = 0.0 if "bn" in name else sgd.weight_decay
    return GraphOperations.sgd(self, name, w, g, replace(sgd, weight_decay=decay))


def redrawn(self: GraphOperations, dy: Tensor, xs: list[Tensor], w: Given) -> list[Tensor]:
    """The backward pass of a dropout draws its mask anew."""
    return [dy * (torch.rand(dy.shape, generator=torch.Generator().manual_seed(1)) > 0.25) / 0.75]


def to_first(self: GraphOperations, dy: Tensor, xs: list[Tensor], w: Given) -> list[Tensor]:
    """To the first element of a window of 2 x 2."""
    found = torch.zeros_like(xs[0])
    found[:, :, ::2, ::2] = dy
    return [found]


def between(x: Tensor) -> Tensor:
    """Twice the size by interpolation at i / 2, without the centres of the pixels."""
    for axis in (2, 3):
        after = torch.cat([x.narrow(axis, 1, x.shape[axis] - 1), x.narrow(axis, x.shape[axis] - 1, 1)], axis)
        x = torch.stack([x, (x + after) / 2], axis + 1).flatten(axis, axis + 1)
    return x


def splines(name: str, **change: Callable[[Any], Any]) -> Wrong:
    """A KAN layer with other settings."""
    return layer(name, lambda self, node, xs, w: GraphOperations.forward(
        self, replace(node, **{setting: to(node) for setting, to in change.items()}), xs, w))


def factors(name: str, change: Callable[[Given], Given]) -> Wrong:
    """A KAN layer with other factors."""
    return layer(name, lambda self, node, xs, w: GraphOperations.forward(self, node, xs, w | change(w)))


def unscaled(w: Given) -> Given:
    """The gradient of the coefficients lacks the scale."""
    fixed = w["coefficient"].detach()
    return {"coefficient": fixed + (w["coefficient"] - fixed) / w["scale_spline"].detach()[..., None]}


def unlike(self: GraphOperations, node: Any, xs: list[Tensor], w: Given) -> Tensor:
    """The features themselves in place of their SiLUs."""
    more = functional.linear(xs[0] - functional.silu(xs[0]), w["scale_base"])
    return GraphOperations.forward(self, node, xs, w) + more


def bases_alone(self: GraphOperations, dy: Tensor, xs: list[Tensor], w: Given) -> list[Tensor]:
    s = xs[0].sigmoid()
    return [dy @ w["scale_base"] * (s + xs[0] * s * (1 - s))]


def entropy(change: Callable[[Tensor, Tensor], Tensor]) -> Wrong:
    """Another loss."""
    return replaced(loss=lambda self, y, target: change(y, target))


#: By the network: what is wrong, the program, the first wrong tensor and its step, and the key of the fault
MISTAKES: dict[Callable[[], nn.Module], list[tuple[str, Wrong, str, int, str]]] = {
    ResidualDenoiser: [
        ("the skip's gradient is overwritten", cut("add", 0), "grads/input", 0, "branch"),
        ("the noise is subtracted", by("add", lambda x, y: x - y), "forward/add", 0, "joined"),
        ("the skip is left out", by("add", lambda x, y: 0 * x + y), "forward/add", 0, "joined"),
        ("variance divided by n - 1", normalising("noise.3", lambda x, w: normalised(x, w, unbiased=True)),
         "forward/noise.3", 0, "statistics"),
        ("eps outside the root", normalising("noise.6", lambda x, w: normalised(x, w, 0.0, outside=1e-5)),
         "forward/noise.6", 0, "statistics"),
        ("running variance divided by n", running("noise.9", unbiased=False), "state/noise.9/running_var", 0,
         "statistics"),
        ("running statistics not saved", layer("noise.9", forgotten), "state/noise.9/running_mean", 1, "statistics"),
        ("mean and variance constant in the gradient", backward("noise.12", constant_statistics),
         "grads/noise.11/output", 0, "statistics"),
        ("no mask of a ReLU", backward("noise.13", lambda self, dy, xs, w: [dy]), "grads/noise.12/output", 0,
         "mask_missing"),
        ("the weight of another layer", weight_of("noise.8", "noise.5"), "forward/noise.8", 0, "other_layer"),
    ],
    TwoLevelUnet: [
        ("the skip joined behind", by("cat_1", lambda x, y: torch.cat([y, x], 1)), "forward/cat_1", 0, "joined"),
        ("gradients of the join exchanged", backward("cat", lambda self, dy, xs, w: [dy[:, 16:], dy[:, :16]]),
         "grads/up2/output", 0, "joined"),
        ("the skip's gradient overwritten by the pooling's", cut("cat_1", 0), "grads/down1.3/output", 0, "branch"),
        ("the pooling's gradient overwritten by the skip's", cut("pool_1", 0), "grads/down2.3/output", 0, "branch"),
        ("gradient of pooling to the first element", backward("pool", to_first), "grads/down1.3/output", 0, "pooling"),
        ("the mean for the maximum", by("pool", lambda x: functional.avg_pool2d(x, 2)), "forward/pool", 0, "pooling"),
        ("the usual slope", by("down2.1", functional.leaky_relu), "forward/down2.1", 0, "leaky"),
        ("gradient of a ReLU for a leaky one", backward("bottom.1", through(torch.relu)), "grads/bottom.0/output", 0,
         "leaky"),
        ("interpolation without centres", by("up2", between), "forward/up2", 0, "pooling"),
        ("the skip of the batch before", OldSkip, "forward/cat", 1, "previous_step"),
    ],
    Resnet18: [
        ("the weight of another block", weight_of("layer1.1.conv1", "layer1.0.conv1"), "forward/layer1.1.conv1", 0,
         "other_layer"),
        ("the shortcut's gradient overwritten", cut("add_1", 1), "grads/relu_2/output", 0, "branch"),
        ("a ReLU before the sum", by("add_3", lambda x, y: x.relu() + y), "forward/add_3", 0, "relu"),
        ("loss over images and classes", entropy(lambda y, t: functional.cross_entropy(y, t) / y.shape[1]), "loss", 0,
         "scale"),
        ("loss not averaged", entropy(lambda y, t: functional.cross_entropy(y, t, reduction="sum")), "loss", 0,
         "scale"),
        ("momentum of the running statistics exchanged", running("layer2.0.bn1", 0.9),
         "state/layer2.0.bn1/running_mean", 0, "statistics"),
        ("eps 0.001", normalising("layer3.0.bn1", lambda x, w: normalised(x, w, 1e-3)), "forward/layer3.0.bn1", 0,
         "statistics"),
        ("the sum for the mean", by("avgpool", lambda x: x.sum((2, 3), keepdim=True)), "forward/avgpool", 0, "count"),
        ("running statistics in training", normalising("layer4.1.bn2", by_running), "forward/layer4.1.bn2", 0,
         "statistics"),
        ("no decay of normalisations", replaced(sgd=undecayed), "optimizer/bn1/weight", 0, "weight_decay"),
    ],
    tuned: [
        ("dropout not scaled", layer("classifier.3", lambda self, node, xs, w: xs[0] * w["mask"]),
         "forward/classifier.3", 0, "activation"),
        ("dropout's mask turned round", layer("classifier.3", lambda self, node, xs, w: xs[0] * (1 - w["mask"]) / 0.75),
         "forward/classifier.3", 0, "activation"),
        ("dropout without its mask in the backward pass", backward("classifier.3", lambda self, dy, xs, w: [dy]),
         "grads/classifier.2/output", 0, "activation"),
        ("dropout's mask drawn anew", backward("classifier.3", redrawn), "grads/classifier.2/output", 0, ""),
        ("gradient of a mean through the maximum", backward("features.7", through(
            lambda x: functional.max_pool2d(x, 2))), "grads/features.6/output", 0, "pooling"),
        ("flattened with channels last", by("classifier.0", lambda x: x.permute(0, 2, 3, 1).flatten(1)),
         "forward/classifier.0", 0, "nhwc"),
        ("a weight's gradient averaged over the batch", parameter("classifier.1/weight", lambda self, g: g / 4),
         "grads/classifier.1/weight", 0, "scale"),
        ("a frozen weight updated", replaced(update=lambda self, name, w, g: GraphOperations.adam(
            self, name, w, g, self.settings)), "update/features.0/weight", 0, "wrong_tensor"),
        ("eps inside the root", replaced(adam=adam_inside), "optimizer/features.0/bias", 0, "adam"),
        ("a bias's gradient without the last image", parameter(
            "classifier.4/bias", lambda self, g: self.known["classifier.4"].grad[:-1].sum(0)),
         "grads/classifier.4/bias", 0, "part_of_batch"),
    ],
    Perceptron: [
        ("a weight transposed", layer("second", lambda self, node, xs, w: xs[0] @ w["weight"] + w["bias"]),
         "forward/second", 0, "in_out_swapped"),
        ("a weight transposed in the backward pass", backward("second", lambda self, dy, xs, w: [dy @ w["weight"].T]),
         "grads/tanh/output", 0, "in_out_swapped"),
        ("1 - y missing in a sigmoid", backward("sigmoid", lambda self, dy, xs, w: [dy * xs[0].sigmoid()]),
         "grads/second/output", 0, "activation"),
        ("1 - y for a tanh", backward("tanh", lambda self, dy, xs, w: [dy * (1 - xs[0].tanh())]),
         "grads/first/output", 0, "activation"),
        ("the softmax of a softmax", entropy(lambda y, t: functional.cross_entropy(y.softmax(1), t)), "loss", 0, ""),
        ("gradients not set to zero", Accumulated, "grads/last/weight", 1, "accumulated"),
        ("no bias correction", replaced(corrections=lambda self, right: (1.0, 1.0)), "optimizer/first/weight", 0,
         "adam"),
        ("the averages are forgotten", replaced(averages=forgetting), "optimizer/first/weight", 1, "adam"),
        ("the schedule is a step late", adam(lambda self, right: replace(
            right, lr=self.rates[max(self.step - 1, 0)])), "optimizer/first/weight", 1, "learning_rate"),
        ("decay in the gradient, as Adam's", replaced(adam=coupled), "optimizer/first/weight", 0, "weight_decay"),
    ],
    Kan: [
        ("knots an interval too low", splines("last", low=lambda it: it.low - it.step,
                                              high=lambda it: it.high - it.step), "forward/last", 0, "activation"),
        ("a degree too much", splines("first", order=lambda it: it.order + 1, grid=lambda it: it.grid - 1),
         "forward/first", 0, "activation"),
        ("no SiLUs", factors("first", lambda w: {"scale_base": 0 * w["scale_base"]}), "forward/first", 0, "activation"),
        ("no function beside the splines", layer("last", unlike), "forward/last", 0, "activation"),
        ("no gradient through a layer", backward("last", lambda self, dy, xs, w: [0 * xs[0]]), "grads/first/output", 0,
         "activation"),
        ("no gradient of the input", backward("first", lambda self, dy, xs, w: [0 * xs[0]]), "grads/input", 0,
         "activation"),
        ("no gradient through the splines", backward("last", bases_alone), "grads/first/output", 0, "activation"),
        ("no scales", factors("first", lambda w: {"scale_spline": 0 * w["scale_spline"] + 1}), "forward/first", 0,
         "activation"),
        ("no scales in the coefficients' gradient", factors("first", unscaled), "grads/first/coefficient", 0,
         "activation"),
        ("inputs before outputs", factors("last", lambda w: {name: one.transpose(0, 1) for name, one in w.items()}),
         "forward/last", 0, "in_out_swapped"),
    ],
}


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> dict[Callable[[], nn.Module], Path]:
    folder = tmp_path_factory.mktemp("networks")
    return {network: export(folder / f"{network.__name__}.h5", ExportSettings(
        model=network, steps=2, threads=1, **settings)).path for network, settings in SETTINGS.items()}


def test_each_network_has_ten() -> None:
    assert [len(every) for every in MISTAKES.values()] == 6 * [10] and list(MISTAKES) == list(SETTINGS)


@pytest.mark.parametrize("network", SETTINGS)
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
