# SPDX-License-Identifier: MIT
"""Diagnoses of whole runs: what is late, old or of another place, in the memory between steps and in the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from bridge.judge.judge import judge
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.edits import plant
from bridge.validate.self_test.graph_candidate import GraphOperations, backward, train_graph
from bridge.validate.self_test.operations import Operations, replace
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.judged.diagnosed import keys
from tests.helpers.judged.runs import Array, given_by, said


def test_names_that_are_exchanged(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    fixture, right = fixtures["plain"]
    names = "grads/two/output", "grads/then/output"
    with h5py.File(right) as file:
        swapped = {f"steps/{k}/{name}": given_by(file[f"steps/{k}/{other}"][()])
                   for k in range(3) for name, other in (names, names[::-1])}
    findings = said(fixture, plant(right, tmp_path / "swapped.h5", swapped)).findings
    assert {one.name for one in findings[:2]} == set(names)
    assert all("its right numbers are in the file as grads/t" in one.explanations[0].detail for one in findings[:2])


@pytest.mark.deep
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


@pytest.mark.deep
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


@pytest.mark.deep
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


@pytest.mark.deep
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


class Normalised(nn.Sequential):
    """Weights of the normalisation are 1 in the first step."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 1, 3))


def without_the_weight(self: GraphOperations, dy: torch.Tensor, inputs: list[torch.Tensor],
                       parameters: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    variance, mean = torch.var_mean(inputs[0], (0, 2, 3), correction=0, keepdim=True)
    normal, scale = (inputs[0] - mean) / (variance + 1e-5).sqrt(), (variance + 1e-5).rsqrt()
    return [(dy - dy.mean((0, 2, 3), keepdim=True) - normal * (dy * normal).mean((0, 2, 3), keepdim=True)) * scale]


def test_a_fault_that_the_first_step_cannot_show_is_no_state(tmp_path: Path) -> None:
    """Where weights are 1, a gradient without them is right: nothing lives from call to call."""
    fixture, result = tmp_path / "f.h5", tmp_path / "r.h5"
    export(fixture, ExportSettings(model=Normalised, height=10, width=12, batch=2, steps=2, lr=0.5, threads=1))
    train_graph(fixture, result, backward("1", without_the_weight))
    verdict = judge(fixture, result, adequacy=False).verdict
    assert verdict.diagnosis is not None
    (first, *_) = verdict.diagnosis.findings
    assert (first.name, first.step) == ("grads/0/output", 1)
    assert [one.key for one in first.explanations[0].kinds] == ["factor"]
    assert first.explanations[0].detail == "batch_norm2d without the weight, as if it were 1"
