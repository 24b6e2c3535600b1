# SPDX-License-Identifier: MIT
"""Diagnoses of whole runs: faults of the update."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from bridge.exchange.optimizers import Sgd
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.edits import plant
from bridge.validate.self_test.graph_candidate import GraphOperations, replaced, train_graph
from bridge.validate.self_test.operations import Operations, replace
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.judged.diagnosed import keys, make
from tests.helpers.judged.runs import given_by, said
from tests.helpers.tiers import few_rows


def update(change: Callable[..., torch.Tensor]) -> type[Operations]:
    return replace(update=change)


class OldGradient(Operations):
    """Updates with the gradients of the step before."""

    def update(self, name: str, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        old = self.buffers.get(name, g)
        self.buffers[name] = g
        return w - self.sgd.lr * old


class Corrected(Operations):
    """Divides by 1 - mu**t, as Adam does."""

    def direction(self, name: str, g: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        t = self.buffers[f"t {name}"] = self.buffers.get(f"t {name}", torch.zeros(1)) + 1
        return super().direction(name, g, v) / (1 - self.sgd.momentum ** t)


class Fading(Operations):
    """Takes a shorter step each time."""

    def update(self, name: str, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        times = self.buffers[name] = 0.8 * self.buffers.get(name, torch.ones(1))
        return w - times * self.sgd.lr * g


class LateFading(Fading):
    """The first step is right."""

    def update(self, name: str, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        self.buffers.setdefault(name, torch.ones(1) / 0.8)
        return super().update(name, w, g)


class GradientLater(Operations):
    """Nesterov's gradient and buffer are exchanged."""

    def direction(self, name: str, g: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return v + self.sgd.momentum * g


class Decoupled(Operations):
    """Takes the decay off beside the momentum."""

    def update(self, name: str, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        self.buffers[name] = self.velocity(name, self.buffers.get(name), g)
        return w - self.sgd.lr * (self.buffers[name] + 0.01 * w)

    def decayed(self, name: str, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return g

#: Which the self-test does not plant
RULES: list[tuple[str, type[Operations], int, str, str]] = [
    ("plain", update(lambda self, n, w, g: w - self.sgd.lr / 4 * g), 0, "learning_rate", "0.25 times"),
    ("plain", update(lambda self, n, w, g: w - self.sgd.lr * g * min(1.0, 0.01 / float(g.norm()))), 0, "clipped",
     "clipped to 0.01, the norm of each gradient"),
    ("plain", Fading, 0, "learning_rate", "another one at each step: step 0: lr"),
    ("momentum", replace(decayed=lambda self, n, w, g: g + 0.01 * self.buffers.setdefault(f"first {n}", w)), 1,
     "weight_decay", "of the weights of the first step"),
    ("momentum", replace(decayed=lambda self, n, w, g: g.half().float() + 0.01 * w), 0, "precision",
     "updated with the gradient rounded to fp16"),
    ("momentum", replace(decayed=lambda self, n, w, g: g.clamp(-0.001, 0.001) + 0.01 * w), 0, "clipped",
     "clipped to 0.001"),
    ("momentum", replace(decayed=lambda self, n, w, g: 0.25 * g + 0.01 * w), 0, "scale",
     "every gradient is multiplied by 0.25 before it is used"),
    ("momentum", replace(decayed=lambda self, n, w, g: g + 0.07 * w), 0, "weight_decay", "times 7"),
    ("momentum", replace(
        velocity=lambda self, n, old, g: (g if old is None else 0.9 * old + 0.75 * g).half().float()), 0,
     "momentum", "the buffer is stored in fp16"),
    ("nesterov", Corrected, 0, "momentum", "divided by 1 - mu**t"),
    ("momentum", replace(decayed=lambda self, n, w, g: g + 0.01 * w / (0.75 if n in self.buffers else 1.0)), 1,
     "momentum", "weight decay is added to v after the dampening"),
    (
        "momentum",
        replace(velocity=lambda self, n, old, g: 0.9 * ((0 if old is None else old) + g)),
        0,
        "momentum",
        "v = mu*(v + g)",
    ),
    (
        "momentum",
        replace(velocity=lambda self, n, old, g: 0.9 * (0 if old is None else old) + (1 - 0.9) * g),
        0,
        "momentum",
        "v = mu*v + (1 - mu)*g",
    ),
]


@pytest.mark.parametrize(("setting", "kind", "step", "key", "detail"), few_rows(
    RULES, 4, name=lambda r: f"{r[0]} {r[4]}"))
def test_wrong_rules(
    fixtures: dict[str, tuple[Path, Path]],
    tmp_path: Path,
    setting: str,
    kind: type[Operations],
    step: int,
    key: str,
    detail: str,
) -> None:
    fixture = fixtures[setting][0]
    first = said(fixture, train(fixture, tmp_path / "result.h5", kind)).findings[0]
    assert (first.name, first.step) == ("optimizer/one/weight", step)
    assert key in keys(first.explanations[0]) and detail in first.explanations[0].detail


@pytest.mark.deep
def test_a_rule_that_shows_later_alone_is_no_matter_of_the_first_call(
        fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """In the first step the momentum is the gradient: decay that is not in it makes the right step."""
    fixture = fixtures["momentum"][0]
    first = said(fixture, train(fixture, tmp_path / "result.h5", Decoupled)).findings[0]
    assert (first.step, keys(first.explanations[0])) == (1, ["weight_decay"])
    late = fixtures["plain"][0]
    first = said(late, train(late, tmp_path / "late.h5", LateFading)).findings[0]
    assert (first.step, keys(first.explanations[0])) == (1, ["learning_rate"])


def test_what_later_steps_say_is_asked_of_the_first(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """There the buffer is the gradient, and something else comes to the same."""
    fixture = fixtures["nesterov"][0]
    first = said(fixture, train(fixture, tmp_path / "result.h5", GradientLater)).findings[0]
    assert "are exchanged in" in first.explanations[0].detail


def test_a_later_step_tells_apart_what_the_first_cannot(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """After one step a Nesterov that is missing is also a learning rate; in the second only one of them is left."""
    fixture = fixtures["nesterov"][0]
    result = train(fixture, tmp_path / "result.h5", replace(direction=lambda self, n, g, v: v))
    (explanation,) = said(fixture, result).findings[0].explanations
    assert explanation.detail == "Nesterov missing"


class LateGradient(OldGradient):
    """Updates with the gradients of the step before, and with none at first."""

    def update(self, name: str, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        old = self.late.get(name, 0 * g)  # type: ignore[has-type]
        self.late[name] = g
        return Operations.update(self, name, w, old)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.late: dict[str, torch.Tensor] = {}


class Thrice(Operations):
    """Updates each bias three times."""

    def update(self, name: str, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        for _ in range(4 if name.endswith("/bias") else 1):
            w = super().update(name, w, g)
        return w


def test_what_is_said_of_an_update_holds_at_every_step(
    fixtures: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    """No clipping whose norm is another one in each tensor, no learning rate of a tensor of few numbers."""
    fixture = fixtures["momentum"][0]
    for rule, detail in ((LateGradient, "updated with the gradient of the step before, and with none in the first"),
                         (Thrice, "updated 4 times in each step, once for each image of the batch")):
        findings = said(fixture, train(fixture, tmp_path / "result.h5", rule)).findings
        assert findings and all(detail in one.explanations[0].detail for one in findings), findings


class Exchanged(Operations):
    """The buffers of two parameters of one shape are exchanged before the third step."""

    def velocity(self, name: str, old: torch.Tensor | None, g: torch.Tensor) -> torch.Tensor:
        steps = self.count[name] = self.count.get(name, 0) + 1
        other = {"0/bias": "2/bias", "2/bias": "0/bias"}.get(name)
        if steps == 3 and other:
            old = self.last[other]
        found = super().velocity(name, old, g)
        if steps < 3:
            self.last[name] = found
        return found

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.count: dict[str, int] = {}
        self.last: dict[str, torch.Tensor] = {}


def test_momentum_of_another_parameter(tmp_path: Path) -> None:
    def two() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Conv2d(1, 5, 3), torch.nn.ReLU(), torch.nn.Conv2d(5, 5, 3))

    fixture, _ = make(tmp_path, model=two, momentum=0.9, weight_decay=0.01)
    findings = said(fixture, train(fixture, tmp_path / "exchanged.h5", Exchanged)).findings
    details = {one.name: one.explanations[0].detail for one in findings if one.explanations}
    assert details == {"optimizer/0/bias": "the buffer is that of 2/bias",
                       "optimizer/2/bias": "the buffer is that of 0/bias"}


def test_gradients_that_are_clipped_at_another_limit_in_each_step(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path
                                                                  ) -> None:
    def clipped(self: Operations, name: str, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        limit = float(f"{0.4 * g.abs().max():.1g}")
        return Operations.update(self, name, w, g.clamp(-limit, limit))

    fixture = fixtures["plain"][0]
    first = said(fixture, train(fixture, tmp_path / "clipped.h5", update(clipped))).findings[0]
    assert keys(first.explanations[0]) == ["clipped"]
    assert first.explanations[0].detail.startswith("another one at each step: step 0: updated with the gradient")


def test_two_plain_updates_are_a_learning_rate(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    twice = update(lambda self, n, w, g: Operations.update(self, n, Operations.update(self, n, w, g), g))
    fixture = fixtures["plain"][0]
    first = said(fixture, train(fixture, tmp_path / "twice.h5", twice)).findings[0]
    assert keys(first.explanations[0]) == ["learning_rate"]


def test_a_later_infinite_loss_takes_nothing_back(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """The run diverges by other images' targets: what the first loss shows is not asked of the last one."""
    fixture, right = fixtures["plain"]
    with h5py.File(fixture) as file, h5py.File(right) as ours:
        y, t = ours["steps/0/forward/three"][()], np.roll(file["batches/0/target"][()], 1, 0)
    wrong = plant(right, tmp_path / "wrong.h5", {
        "steps/0/loss": given_by(np.float32(((y - t) ** 2).mean())), "steps/1/loss": given_by(np.float32(np.inf)),
        "steps/0/grads/three/output": given_by(((y - t) * (2 / y.size)).astype(np.float32))})
    first = said(fixture, wrong).findings[0]
    assert first.name == "loss" and keys(first.explanations[0]) == ["other_target"]


def test_one_momentum_buffer_for_two_parameters(tmp_path: Path) -> None:
    """A cache that is keyed by the size gives both biases the same buffer."""
    def two() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Conv2d(1, 5, 3), torch.nn.ReLU(), torch.nn.Conv2d(5, 5, 3))

    def shared(self: GraphOperations, name: str, w: torch.Tensor, g: torch.Tensor, sgd: Sgd) -> torch.Tensor:
        kept = self.memory.setdefault(name if w.ndim > 1 else "bias", {})
        kept["v"] = sgd.momentum * kept["v"] + g if kept else g
        return w - sgd.lr * kept["v"]

    fixture, _ = make(tmp_path, model=two, momentum=0.9)
    findings = said(fixture, train_graph(fixture, tmp_path / "result.h5", replaced(sgd=shared))).findings
    details = {one.name: one.explanations[0].detail for one in findings if one.explanations}
    assert details == {"optimizer/2/bias": "one buffer with 0/bias, which is updated before it",
                       "optimizer/0/bias": "one buffer with 2/bias, which is updated after it"}


@pytest.mark.deep
def test_elements_behind_the_last_block_are_not_updated(tmp_path: Path) -> None:
    """A grid of whole blocks of 32: nearly all of the channels that hold the rest are wrong."""
    fixture, _ = make(tmp_path, momentum=0.9, weight_decay=0.01)

    def blocks(self: Operations, name: str, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        new, full = Operations.update(self, name, w, g), w.numel() // 32 * 32
        return torch.cat([new.reshape(-1)[:full], w.reshape(-1)[full:]]).reshape(w.shape)

    found = {one.name: one for one in said(fixture, train(fixture, tmp_path / "blocks.h5", update(blocks))).findings}
    seen = found["optimizer/two/weight"].seen
    assert seen is not None
    assert "right but for the step (w - w')/lr: in the last 20 elements in memory it is 0" in seen.said


@pytest.mark.deep
def test_a_learning_rate_inside_the_buffer_shows_when_it_changes(tmp_path: Path) -> None:
    def inside(self: GraphOperations, name: str, w: torch.Tensor, g: torch.Tensor, sgd: Sgd) -> torch.Tensor:
        g = sgd.lr * (g + sgd.weight_decay * w)
        kept = self.memory.setdefault(name, {})
        kept["v"] = sgd.momentum * kept["v"] + g if kept else g
        return w - kept["v"]

    fixture = export(tmp_path / "fixture.h5", ExportSettings(
        height=9, width=11, batch=2, steps=3, momentum=0.9, weight_decay=0.01, lr=0.25,
        schedule="StepLR(step_size=2, gamma=0.5)")).path
    findings = said(fixture, train_graph(fixture, tmp_path / "result.h5", replaced(sgd=inside))).findings
    assert [one.step for one in findings] == 6 * [2]
    for finding in findings:
        first = finding.explanations[0]
        assert keys(first) == ["momentum"]
        assert first.detail.startswith("the learning rate of each step is in the buffer")


def test_a_learning_rate_needs_more_numbers_than_a_bias_of_one_channel(tmp_path: Path) -> None:
    fixture, _ = make(tmp_path, model=lambda: torch.nn.Sequential(torch.nn.Conv2d(1, 1, 3, padding=1)), momentum=0.9)
    moved = replace(update=lambda self, n, w, g: Operations.update(self, n, w, g) + 0.1 * n.endswith("/bias"))
    for finding in said(fixture, train(fixture, tmp_path / "moved.h5", moved)).findings:
        assert all("learning_rate" not in keys(one) for one in finding.explanations), finding
