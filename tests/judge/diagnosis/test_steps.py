# SPDX-License-Identifier: MIT
"""Diagnoses of whole runs: faults of the update, of memory between steps, and of operations the file does not show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from bridge.exchange.optimizers import Sgd
from bridge.judge.diagnosis import Diagnosis, Explanation, Finding, kind
from bridge.judge.diagnosis.pattern import pattern
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.edits import plant
from bridge.validate.self_test.graph_candidate import GraphOperations, replaced, train_graph
from bridge.validate.self_test.operations import Operations, fed, only, replace
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.candidates import keep
from tests.helpers.judged.diagnosed import keys, make
from tests.helpers.judged.opened import diagnosed
from tests.helpers.tiers import few_rows

Array = np.ndarray

SETTINGS = {
    "plain": {},
    "momentum": {"momentum": 0.9, "dampening": 0.25, "weight_decay": 0.01},
    "nesterov": {"momentum": 0.9, "nesterov": True},
}


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """A fixture and a right result for each optimiser."""
    return {name: make(tmp_path_factory.mktemp(name), **given) for name, given in SETTINGS.items()}


def said(fixture: Path, result: Path, budget: float = 60.0) -> Diagnosis:
    return diagnosed(fixture, result, budget)


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


class Decoupled(Operations):
    """Takes the decay off beside the momentum."""

    def update(self, name: str, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        self.buffers[name] = self.velocity(name, self.buffers.get(name), g)
        return w - self.sgd.lr * (self.buffers[name] + 0.01 * w)

    def decayed(self, name: str, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return g


RULES: list[tuple[str, type[Operations], int, str, str]] = [
    ("plain", update(lambda self, n, w, g: w - 1.01 * self.sgd.lr * g), 0, "learning_rate", "1.01 times"),
    ("plain", update(lambda self, n, w, g: w - self.sgd.lr / 4 * g), 0, "learning_rate", "0.25 times"),
    ("plain", update(lambda self, n, w, g: w - self.sgd.lr * g * min(1.0, 0.01 / float(g.norm()))), 0, "clipped",
     "clipped to 0.01, the norm of each gradient"),
    ("plain", Fading, 0, "learning_rate", "another one at each step: step 0: lr"),
    ("plain", update(lambda self, n, w, g: w + self.sgd.lr * g), 0, "update_sign", "w + lr*g"),
    ("plain", update(lambda self, n, w, g: w), 0, "wrong_tensor", "not updated"),
    ("plain", update(lambda self, n, w, g: w - self.sgd.lr * (g + 0.02 * w)), 0, "weight_decay", "0.02 although none"),
    ("plain", OldGradient, 1, "previous_step", "of the step before"),
    ("momentum", replace(decayed=lambda self, n, w, g: g), 0, "weight_decay", "none"),
    ("momentum", replace(decayed=lambda self, n, w, g: g + 0.02 * w), 0, "weight_decay", "times 2"),
    ("momentum", replace(decayed=lambda self, n, w, g: g + 0.01 * self.buffers.setdefault(f"first {n}", w)), 1,
     "weight_decay", "of the weights of the first step"),
    ("momentum", replace(decayed=lambda self, n, w, g: g.half().float() + 0.01 * w), 0, "precision",
     "updated with the gradient rounded to fp16"),
    ("momentum", replace(decayed=lambda self, n, w, g: g.clamp(-0.001, 0.001) + 0.01 * w), 0, "clipped",
     "clipped to 0.001"),
    ("momentum", replace(decayed=lambda self, n, w, g: 0.25 * g + 0.01 * w), 0, "scale",
     "every gradient is multiplied by 0.25 before it is used"),
    ("momentum", replace(decayed=lambda self, n, w, g: g + 0.07 * w), 0, "weight_decay", "times 7"),
    (
        "momentum",
        replace(velocity=lambda self, n, old, g: g if old is None else 0.9 * old + g),
        1,
        "momentum",
        "dampening ignored",
    ),
    (
        "momentum",
        replace(velocity=lambda self, n, old, g: (0 if old is None else 0.9 * old) + 0.75 * g),
        0,
        "momentum",
        "dampening in the first step too",
    ),
    (
        "momentum",
        replace(velocity=lambda self, n, old, g: g),
        1,
        "momentum",
        "the buffer is empty before this step",
    ),
    ("nesterov", replace(direction=lambda self, n, g, v: v), 0, "momentum", "Nesterov missing"),
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


def test_a_rule_that_shows_later_alone_is_no_matter_of_the_first_call(
        fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """In the first step the momentum is the gradient: decay that is not in it makes the right step."""
    fixture = fixtures["momentum"][0]
    first = said(fixture, train(fixture, tmp_path / "result.h5", Decoupled)).findings[0]
    assert (first.step, keys(first.explanations[0])) == (1, ["weight_decay"])


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


def given_by(value: Any) -> Callable[[Array], Array]:
    return lambda x: value


def test_names_that_are_exchanged(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    fixture, right = fixtures["plain"]
    names = "grads/two/output", "grads/then/output"
    with h5py.File(right) as file:
        swapped = {f"steps/{k}/{name}": given_by(file[f"steps/{k}/{other}"][()])
                   for k in range(3) for name, other in (names, names[::-1])}
    findings = said(fixture, plant(right, tmp_path / "swapped.h5", swapped)).findings
    assert {one.name for one in findings[:2]} == set(names)
    assert all("its right numbers are in the file as grads/t" in one.explanations[0].detail for one in findings[:2])


def test_weights_that_are_written_after_the_update(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    fixture, right = fixtures["momentum"]
    name = "weights/one/weight"
    with h5py.File(right) as file:
        after = {f"steps/{k}/{name}": given_by(file[f"steps/{k + 1}/{name}"][()]) for k in range(3)}
    first, *_ = said(fixture, plant(right, tmp_path / "after.h5", after)).findings
    assert first.name == name and "the weights after the first update" in first.explanations[0].detail


def test_a_result_that_is_late_is_no_zero(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    fixture, right = fixtures["plain"]
    for name in ("loss", "grads/two/weight"):
        with h5py.File(right) as file:
            was = [file[f"steps/{k}/{name}"][()] for k in range(3)]
        late = {f"steps/{k}/{name}": given_by(was[k - 1] if k else 0 * was[0]) for k in range(3)}
        (first, *_) = said(fixture, plant(right, tmp_path / "late.h5", late)).findings
        assert first.explanations[0].detail == "all zero, and at each later step what belongs to the step before"


def test_a_loss_is_of_other_targets_at_every_step_and_so_is_its_gradient(
    fixtures: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    fixture, right = fixtures["plain"]
    with h5py.File(right) as file, h5py.File(fixture) as given:
        outputs = [file[f"steps/{k}/forward/three"][()].astype(np.float64) for k in range(3)]
        targets = [given[f"batches/{k}/target"][()] for k in range(3)]
    swapped = [np.float32(((y - t[::-1]) ** 2).mean()) for y, t in zip(outputs, targets, strict=True)]

    def details(steps: int, **more: Callable[[Array], Array]) -> list[str]:
        planted = {f"steps/{k}/loss": given_by(swapped[k] if k < steps else np.float32(k + 0.37)) for k in range(3)}
        (first, *_) = said(fixture, plant(right, tmp_path / "loss.h5", planted | more)).findings
        return [one.detail for one in first.explanations]

    assert any("targets of images in the order 3, 2, 1, 0" in one for one in details(3))
    assert details(1) == []
    masked = {"steps/0/grads/three/output": lambda g: g * (outputs[0] > 0)}
    assert details(3, **masked) == []


def test_saved_weights_scrambled(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """Only the file's copy is wrong: the next step went on with the right ones, and is not blamed."""
    fixture, right = fixtures["plain"]
    wrong = plant(
        right, tmp_path / "w.h5", {"steps/1/weights/two/weight": lambda w: w.ravel().reshape(w.shape, order="F")}
    )
    findings = said(fixture, wrong).findings
    assert [finding.name for finding in findings] == ["optimizer/two/weight"]
    assert keys(findings[0].explanations[0]) == ["saved_weights"]
    assert "column-major" in findings[0].explanations[0].detail


def test_weights_that_are_scrambled_whenever_they_are_saved(
        fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """No kernel is flipped: each step was computed with the right ones, which the file lacks."""
    fixture, right = fixtures["plain"]
    flipped = {f"steps/{k}/weights/two/weight": lambda w: w[..., ::-1, ::-1] for k in (1, 2, 3)}
    findings = said(fixture, plant(right, tmp_path / "w.h5", flipped)).findings
    assert [finding.name for finding in findings] == ["optimizer/two/weight"]


def test_an_input_that_is_never_refreshed(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    class First(Operations):
        def conv(self, layer: Any, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
            x = self.buffers.setdefault("x", x.clone()) if layer.name == "one" else x
            return super().conv(layer, x, w, b)

    fixture, _ = fixtures["plain"]
    first, *_ = said(fixture, train(fixture, tmp_path / "x.h5", First)).findings
    assert (first.name, first.step) == ("forward/one", 1)
    assert first.explanations[0].detail == "the input of step 0, at each later step, too: never refreshed"


def test_what_follows_from_a_wrong_batch_is_no_damage_of_its_own(
        fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """The other layers got these images, and are right."""
    class Twice(Operations):
        def conv(self, layer: Any, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
            return super().conv(layer, x[[0, 1, 1, 3]] if layer.name == "one" else x, w, b)

    fixture, _ = fixtures["plain"]
    findings = said(fixture, train(fixture, tmp_path / "x.h5", Twice)).findings
    assert [one.name for one in findings] == ["forward/one"]


def test_a_copy_of_the_weights_that_is_never_refreshed(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """The next step was computed with weights that the file lacks: they were updated."""
    fixture, right = fixtures["momentum"]
    with h5py.File(right) as file:
        first = {name: file[f"steps/0/weights/{name}"][...] for name in ("two/weight", "two/bias")}
        later = [k for k in file["steps"] if k != "0"]
    old = {f"steps/{k}/weights/{name}": given_by(w) for k in later for name, w in first.items()}
    findings = said(fixture, plant(right, tmp_path / "stale.h5", old)).findings
    assert [one.name for one in findings] == ["optimizer/two/weight", "optimizer/two/bias"]
    assert all("the copy that is written is old" in one.explanations[0].detail for one in findings)
    with h5py.File(right) as file:
        late = {f"steps/{k}/weights/{name}": given_by(file[f"steps/{max(int(k) - 1, 0)}/weights/{name}"][...])
                for k in later for name in first}
    findings = said(fixture, plant(right, tmp_path / "late.h5", late)).findings
    assert [one.name for one in findings] == ["optimizer/two/weight", "optimizer/two/bias"]
    assert all("the copy that is written is old" in one.explanations[0].detail for one in findings)
    kept = said(fixture, train(fixture, tmp_path / "kept.h5", replace(update=lambda self, name, w, g: w)))
    assert all(one.explanations[0].detail == "not updated" for one in kept.findings)


def test_what_is_never_refreshed_is_of_the_first_step_at_every_later_one(
        fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """At step 1 the weights of step 0 are those of the step before; at step 2 they are not."""
    class Old(Operations):
        def data_gradient(self, layer: Any, dz: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            w = self.buffers.setdefault(f"old {layer.name}", w.clone()) if layer.name == "two" else w
            return super().data_gradient(layer, dz, x, w)

    fixture, _ = fixtures["plain"]
    first, *_ = said(fixture, train(fixture, tmp_path / "old.h5", Old)).findings
    assert first.explanations[0].detail == "the weights of step 0, at each later step, too: never refreshed"


def test_a_momentum_that_is_empty_at_one_step_says_which(
        fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """Two buffers by turns: at step 1 there is none, at step 2 that of step 0."""
    class Turns(Operations):
        def update(self, name: str, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
            turn = self.buffers[f"turn {name}"] = 1 - self.buffers.get(f"turn {name}", torch.ones(1))
            own = f"{name} {int(turn)}"
            g = g + self.sgd.weight_decay * w
            v = self.buffers[own] = (self.sgd.momentum * self.buffers[own] + (1 - self.sgd.dampening) * g
                                     if own in self.buffers else g)
            return w - self.sgd.lr * v

    fixture, _ = fixtures["momentum"]
    first, *_ = said(fixture, train(fixture, tmp_path / "turns.h5", Turns)).findings
    assert first.explanations[0].detail.startswith("at step 1, but not at each later one: ")


def test_a_wrong_copy_in_the_file_is_one_finding(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """What follows was computed from the right tensor: the gradients of `two` are not wrong themselves."""
    fixture, right = fixtures["plain"]
    wrong = plant(right, tmp_path / "w.h5", {"steps/0/grads/two/output": lambda g: np.roll(g, 1, 3)})
    assert [finding.name for finding in said(fixture, wrong).findings] == ["grads/two/output"]


def test_images_that_are_written_to_the_first_slot_are_one_damage(
        fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """What follows from them in the file, masks above all, is no fault of its own."""
    fixture, right = fixtures["plain"]
    def last_alone(x: Array) -> Array:
        return np.concatenate([x[-1:], np.zeros_like(x[1:])])

    with h5py.File(right) as file:
        names = [f"steps/{k}/grads/{layer}/output" for k in file["steps"] if "grads" in file[f"steps/{k}"]
                 for layer, tensors in file[f"steps/{k}/grads"].items() if layer != "input" and "output" in tensors]
    found = said(fixture, plant(right, tmp_path / "slots.h5", dict.fromkeys(names, last_alone)))
    assert not found.pattern
    first, *others = found.findings
    assert first.seen is not None and "image 0 is" in first.seen.said
    assert len(others) == len({name.partition("grads")[2] for name in names}) - 1
    assert all(one.seen is first.seen and not one.explanations for one in others)


def test_what_follows_from_an_image_that_is_0_is_no_damage(
        fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """Gradients of such an image are 0 by right."""
    def gradient(self: Operations, y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        g = Operations.loss_gradient(self, y, target).clone()
        g[-1] = 0
        return g

    fixture = fixtures["plain"][0]
    wrong = train(fixture, tmp_path / "lost.h5", type("Lost", (Operations,), {"loss_gradient": gradient}))
    found = said(fixture, wrong)
    assert [finding.name for finding in found.findings] == ["grads/three/output"]


def test_a_loss_that_is_late_at_every_step(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """What the file says of the step before is late, too."""
    fixture, right = fixtures["plain"]
    with h5py.File(right) as file:
        losses = [file[f"steps/{k}/loss"][()] for k in range(2)]
    late = {f"steps/{k + 1}/loss": lambda x, old=loss: np.full_like(x, old) for k, loss in enumerate(losses)}
    first = said(fixture, plant(right, tmp_path / "late.h5", late)).findings[0]
    assert (first.name, first.step) == ("loss", 1)
    assert first.seen is not None and first.seen.said == "it is the loss of the step before"


def test_windows_that_reach_beyond_the_image(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    fixture, right = fixtures["plain"]

    def edge(x: Array) -> Array:
        x = x.copy()
        x[:, :, 0] += np.random.default_rng(0).normal(size=x[:, :, 0].shape)
        return x

    def inside(x: Array) -> Array:
        return np.roll(edge(x), 1, 2)

    where = []
    for name, change in (("edge", edge), ("inside", inside)):
        wrong = plant(right, tmp_path / f"{name}.h5", {"steps/0/forward/two": change})
        where.append(said(fixture, wrong, 5.0).findings[0].where)
    assert where[0].endswith("row 0 of 9, where windows reach beyond the image") and "beyond" not in where[1]


def copies(right: Path, change: Callable[[Array], Array], *sorts: str) -> dict[str, Callable[[Array], Array]]:
    """The same damage of every tensor whose name begins so."""
    names: list[str] = []
    with h5py.File(right) as file:
        file["steps"].visititems(lambda name, one: names.append(f"steps/{name}") if hasattr(one, "shape") else None)
    return {name: change for name in names if name.split("/")[2] in sorts}


def test_a_text_dump_is_one_damage(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """Six decimals of every number: small gradients lose most of their digits, and nothing else is named."""
    fixture, right = fixtures["momentum"]
    printed = copies(right, lambda x: np.round(x.astype(np.float64), 6).astype(np.float32), "weights", "forward",
                     "grads", "loss")
    found = said(fixture, plant(right, tmp_path / "text.h5", printed))
    assert found.findings[0].name.startswith("weights/")
    assert {one.detail for finding in found.findings for one in finding.explanations} == {"printed as %.6f"}
    assert all(one.explanations for one in found.findings)


@pytest.mark.parametrize(("change", "detail"), [
    (lambda x: x[::-1], "reversed along n"), (lambda x: x.reshape(-1, order="F").reshape(x.shape), "column-major"),
    (lambda x: np.where(np.arange(x.size).reshape(x.shape) == 3, 1e4, x), "one element"),
])
def test_activations_that_are_written_wrongly_alike_are_one_damage(
        fixtures: dict[str, tuple[Path, Path]], tmp_path: Path, change: Callable[[Array], Array], detail: str) -> None:
    """Neither a target nor a mask is another one, and no gradient is wrong."""
    def written(x: Array) -> Array:
        return np.ascontiguousarray(change(x)).astype(np.float32)

    fixture, right = fixtures["plain"]
    first, *others = said(fixture, plant(right, tmp_path / "w.h5", copies(right, written, "forward"))).findings
    assert detail in first.explanations[0].detail
    assert all(one.name.startswith("forward/") for one in others), [one.name for one in others]
    assert all(one.explanations[0].kinds == first.explanations[0].kinds for one in others)


def test_a_tail_that_is_never_written_is_one_damage(
        fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """What follows from the file's zeros is no fault of its own."""
    def cut(x: Array) -> Array:
        y = x.copy()
        y.reshape(-1)[-70:] = 0
        return y

    fixture, right = fixtures["plain"]
    first, *others = said(fixture, plant(right, tmp_path / "tail.h5", copies(right, cut, "forward"))).findings
    assert first.seen is not None and "in the last 70 elements in memory it is 0" in first.seen.said
    assert others and all(one.seen is first.seen and not one.explanations for one in others)


@pytest.mark.deep
def test_gradients_in_fixed_point_are_one_damage(
        fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """The weights moved by the gradients that were computed: no rule of the optimiser is wrong."""
    fixture, right = fixtures["momentum"]
    fixed = copies(right, lambda g: (np.rint(g / np.float32(2e-5)) * np.float32(2e-5)), "grads")
    first, *others = said(fixture, plant(right, tmp_path / "fixed.h5", fixed)).findings
    assert first.seen is not None and "rounded to multiples of 2e-05" in first.seen.said
    assert not [one.name for one in others if one.name.startswith(("optimizer/", "update/"))]


def test_tensors_of_the_next_step_are_known(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    fixture, right = fixtures["plain"]
    with h5py.File(right) as file:
        names = [f"forward/{name}" for name in file["steps/0/forward"]]
        late = {f"steps/{k}/{name}": given_by(file[f"steps/{k + 1}/{name}"][()]) for k in (0, 1) for name in names}
    findings = said(fixture, plant(right, tmp_path / "late.h5", late)).findings
    assert [one.name for one in findings] == ["forward/one", "forward/two", "forward/three"]
    assert all(one.explanations[0].detail.startswith("what belongs to the next step") for one in findings)


def test_state_names_the_step(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    fixture = fixtures["plain"][0]

    class Later(Operations):
        calls = 0

        def filter_gradient(self, layer: object, *operands: torch.Tensor) -> torch.Tensor:
            right = super().filter_gradient(layer, *operands)  # type: ignore[arg-type]
            self.calls += layer.name == "two"  # type: ignore[attr-defined]
            return right.flip(2, 3) if self.calls > 1 and layer.name == "two" else right  # type: ignore[attr-defined]

    (first,) = said(fixture, train(fixture, tmp_path / "r.h5", Later)).findings
    assert (first.name, first.step) == ("grads/two/weight", 1)
    assert keys(first.explanations[0]) == ["state", "kernel_flipped"]
    assert first.explanations[0].detail == "right at step 0, then: reversed along r and s"


def test_what_happens_once_at_a_later_step_is_no_matter_of_the_first_call(tmp_path: Path) -> None:
    fixture, right = make(tmp_path, steps=3)
    flipped = {"steps/1/grads/two/weight": lambda g: g[..., ::-1, ::-1]}
    (first,) = said(fixture, plant(right, tmp_path / "w.h5", flipped)).findings
    assert (first.step, keys(first.explanations[0])) == (1, ["kernel_flipped"])


def test_a_gradient_that_was_overwritten_in_place_is_no_dropout(
    fixtures: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    """What was written is masked already: in place of the gradient of the ReLU's output that of its input."""
    fixture, right = fixtures["plain"]
    with h5py.File(right) as file:
        later = file["steps/0/grads/one/output"][()]
    (first,) = said(fixture, plant(right, tmp_path / "w.h5", {"steps/0/grads/relu/output": lambda g: later})).findings
    assert keys(first.explanations[0]) == ["other_layer"] and len(first.explanations) == 1
    assert first.explanations[0].detail.startswith("it holds grads/one/output")


def test_an_accumulating_gradient_is_a_memory_of_its_own(
    fixtures: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    fixture = fixtures["plain"][0]

    class Adding(Operations):
        def filter_gradient(self, layer: object, *operands: torch.Tensor) -> torch.Tensor:
            name = layer.name  # type: ignore[attr-defined]
            self.buffers[name] = super().filter_gradient(layer, *operands) + self.buffers.get(name, 0)  # type: ignore[arg-type]
            return self.buffers[name]

    diagnosis = said(fixture, train(fixture, tmp_path / "r.h5", Adding))
    assert [keys(one.explanations[0]) for one in diagnosis.findings] == [["accumulated"]] * 3
    assert diagnosis.pattern == "added to old contents, in every one of the 3 wrong filter gradients"


def test_what_some_findings_have_in_common_is_counted() -> None:
    scaled = Explanation((kind("scale"),), "times 2", 0.5)
    found = [Finding(f"grads/{i}/bias", 0, f"the bias gradient of {i}", 9.0, (scaled,) if i else ()) for i in range(3)]
    assert pattern(found) == "a constant factor, in 2 of the 3 wrong bias gradients"
    assert pattern(found[1:]) == "a constant factor, in every one of the 2 wrong bias gradients"


def gradients(name: str) -> bool:
    return "grads" in name and name.endswith(("weight", "bias"))


def weights(name: str) -> bool:
    return "weights/" in name


def output(name: str) -> bool:
    return name.endswith("forward/three")


NO_ROTATION = fed("two", "data_gradient", w=lambda w: w.flip(2, 3))
NO_MASK = only("then", "relu_backward", lambda dz, da, z: da)
FLIPPED = fed("two", "conv", w=lambda w: w.flip(2, 3))
EVERYWHERE = replace(
    conv=lambda self, layer, x, w, b: Operations.conv(self, layer, x, w, None)  # no bias
)
UNOBSERVED: list[tuple[type[Operations], Callable[[str], bool], str, str]] = [
    (NO_ROTATION, gradients, "dgrad_not_rotated", "in the data gradient of two"),
    (NO_MASK, gradients, "mask_missing", "of the ReLU then: all gradients pass"),
    (FLIPPED, gradients, "kernel_flipped", "in the convolution two (forward)"),
    (NO_ROTATION, weights, "dgrad_not_rotated", "in the data gradient of two"),
    (FLIPPED, weights, "kernel_flipped", "in the convolution two (forward)"),
    (FLIPPED, output, "kernel_flipped", "in the convolution two (forward)"),
    (EVERYWHERE, output, "bias", "in every one of forward/one, forward/two, forward/three: bias missing"),
]


@pytest.mark.parametrize(("kind", "wanted", "key", "detail"),
                         few_rows(UNOBSERVED, lambda row: row[0] is NO_MASK, name=lambda h: f"{h[1].__name__}: {h[3]}"))
def test_unobserved_operations(
    fixtures: dict[str, tuple[Path, Path]],
    tmp_path: Path,
    kind: type[Operations],
    wanted: Callable[[str], bool],
    key: str,
    detail: str,
) -> None:
    fixture = fixtures["plain"][0]
    part = keep(train(fixture, tmp_path / "whole.h5", kind), tmp_path / "part.h5", wanted, head=False)
    first = said(fixture, part).findings[0]
    assert keys(first.explanations[0]) == [key] and detail in first.explanations[0].detail


def test_budget_is_kept(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """Noise in the only gradient that the file has: everything could be tried. And nothing is, in no time."""
    fixture, right = fixtures["plain"]
    noise = np.random.default_rng(0)
    wrong = plant(
        right, tmp_path / "w.h5", {"steps/0/grads/one/weight": lambda g: noise.normal(size=g.shape).astype(g.dtype)}
    )
    part = keep(wrong, tmp_path / "part.h5", lambda name: name == "steps/0/grads/one/weight", head=False)
    for budget, limit in ((0.0, 2.0), (1.5, 6.0)):
        diagnosis = said(fixture, part, budget)
        assert not any(finding.explanations for finding in diagnosis.findings) and diagnosis.seconds < limit
        assert (len(diagnosis.findings), diagnosis.not_searched) == ((1, 0) if budget else (0, 1))
