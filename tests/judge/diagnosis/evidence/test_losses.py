# SPDX-License-Identifier: MIT
"""Losses that no known fault predicts are described, and other targets and inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.evidence.describe import describe
from bridge.judge.diagnosis.evidence.view import Seen
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.oracle.reduced_precision import round_fraction
from bridge.validate.self_test.edits import plant
from tests.helpers.judged.diagnosed import Lab, make
from tests.helpers.judged.evidence import FIRST, A, Array, Z, at, seen, with_operand


def test_losses_that_are_wrong_by_one_factor_at_every_step(lab: Lab) -> None:
    def cases(times: tuple[float, ...]) -> list[Case]:
        return [lab.case("loss", lab.right("loss", k) * one, k) for k, one in enumerate(times)]

    one = 1 / np.log(2)
    first, *later = cases((one, one, one))
    found = describe(first, first.right.full(lab.arithmetic), lambda: False, later)
    assert found is not None and "the right loss times 1.4427 (1/log(2): the binary logarithm) at each" in found.said
    first, *later = cases((one, one, 1.2))
    assert describe(first, first.right.full(lab.arithmetic), lambda: False, later) is None


def test_a_loss_that_is_a_running_mean(lab: Lab) -> None:
    found = seen(lab, "loss", 0.9 * lab.right("loss", 0) + 0.1 * lab.right("loss", 1), 1)
    assert found is not None
    assert found.said == "it is the running mean of the losses, 0.9 of the one before and 0.1 of this one"


def test_a_loss_that_follows_from_its_gradient(tmp_path: Path) -> None:
    """Some differences do not count, in both: one cause."""
    fixture, right = make(tmp_path)
    given = Lab(fixture, right)
    operation = given.graph().operation("loss")
    counts = operation.target > 0.2
    value = operation.scale * float((((operation.y.value - operation.target) * counts) ** 2).sum())
    given.close()
    wrong = plant(right, tmp_path / "wrong.h5", {
        "steps/0/grads/three/output": lambda g: (g * counts).astype(np.float32),
        "steps/0/loss": lambda loss: np.float32(value)})
    lab = Lab(fixture, wrong)
    found = seen(lab, "loss", lab.right("loss"))
    lab.close()
    assert found is not None and "one cause makes both wrong" in found.said, found


def classes() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.Conv2d(4, 5, 1))


def test_cross_entropies_of_another_kind(tmp_path: Path) -> None:
    lab = Lab(*make(tmp_path, model=classes, loss="cross_entropy"))
    right = lab.graph().operation("loss")
    y, t, scale = right.y.value, right.target, right.loss.scale(right.y.value.shape)
    e = np.exp(y)
    p, across = e / e.sum(1, keepdims=True), e / e.sum(3, keepdims=True)
    smoothed = 0.9 * t + 0.1 / t.shape[1]
    for said, value in (("without image 3, divided by", -(t * np.log(p))[:3].sum()),
                        ("smoothed by 0.1", -(smoothed * np.log(p)).sum()),
                        ("log(p + 0.001)", -(t * np.log(p + 1e-3)).sum()),
                        ("softmax over the columns", -(t * np.log(across)).sum())):
        found = seen(lab, "loss", np.full(1, scale * value))
        assert found is not None and said in found.said, found
    for said, gradient in (("targets that are smoothed by 0.1", p - smoothed),
                           ("the softmax over the columns", across - t),
                           ("the target: images are in reversed order", p - t[::-1])):
        found = seen(lab, "grads/1/output", scale * gradient)
        assert found is not None and found.exact and said in found.said, found
    lab.close()


def test_a_penalty_in_the_loss_is_described(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = lab.graph().pair
    monkeypatch.setattr(pair, "optimizer", replace(pair.optimizer, weight_decay=0.03))
    size = sum(float((w * w).sum()) for w in lab.graph().weights.values())
    found = seen(lab, "loss", lab.right("loss") + 0.5 * 0.03 * size)
    assert found is not None
    assert found.said == "it is the loss with the penalty of the weight decay, 1/2 * weight_decay * sum(w**2)"


def test_a_loss_is_what_it_is_said_to_be_at_every_step(lab: Lab) -> None:
    """A single number may agree with another by chance."""
    def root(step: int) -> Array:
        return np.sqrt(lab.right("loss", step))

    def described(found: Array) -> Seen | None:
        first, later = lab.case("loss", root(0)), lab.case("loss", found, 1)
        return describe(first, first.right.full(lab.arithmetic), lambda: False, [later])

    same = described(root(1))
    assert same is not None and same.said == "it is the root of the mean square (RMSE)"
    assert described(1.1 * root(1)) is None


def missing_run(d: Array, step: int) -> Array:
    squares = (d * d).ravel().copy()
    squares[32 * (step + 1): 32 * (step + 2)] = 0
    return squares.mean()


@pytest.mark.parametrize(("made", "said"), [
    (lambda y, t, k: ((y - t)[:, :, 1:-1] ** 2).sum() / y.size, "without the first and last row, over all elements"),
    (lambda y, t, k: ((y - t) ** 2)[[0, 0, 1, 2, 3]].mean(), "image 0 counts 2 times, divided by the sum"),
    (lambda y, t, k: ((np.clip(y, -0.1, 0.1) - t) ** 2).mean(), "of the output limited to -0.1 .. 0.1"),
    (lambda y, t, k: ((y - 0.98 * t) ** 2).mean(), "the target times 0.98"),
    (lambda y, t, k: (round_fraction((y - t).astype(np.float32), 7).astype(float) ** 2).mean(), "rounded to bf16"),
    (lambda y, t, k: missing_run(y - t, k), "without one run of 32 elements"),
])
def test_a_loss_of_many_is_said_where_it_holds_at_several_steps(
    lab: Lab, made: Callable[[Array, Array, int], Array], said: str
) -> None:
    def case(step: int) -> Case:
        right = lab.graph(step).operation("loss")
        return lab.case("loss", np.array([made(right.y.value, right.target, step)]), step)

    first, *later = (case(k) for k in range(3))
    truth = first.right.full(lab.arithmetic)
    found = describe(first, truth, lambda: False, later)
    assert found is not None and said in found.said, found
    later[1] = replace(later[1], found=1.001 * later[1].found)
    assert describe(first, truth, lambda: False, later) is None


def test_another_input_is_solved_for(tmp_path: Path) -> None:
    """By half of the filters; the others confirm it."""
    lab = Lab(*make(tmp_path, model=lambda: torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3, padding=1)), batch=2))

    def of_input(change: Callable[[Array], Array]) -> Seen | None:
        x = change(lab.graph().operation("forward/0").x.value)
        return seen(lab, "forward/0", with_operand(lab, "forward/0", x=Predicted(x)))

    flat, coarse = of_input(lambda x: x - x.mean(3, keepdims=True)), of_input(lambda x: np.rint(20 * x) % 7)
    noise = seen(lab, "forward/0", np.random.default_rng(0).standard_normal(lab.right("forward/0").shape))
    lab.close()
    assert flat is not None and "right but for the input: it is the right value plus a number for each" in flat.said
    assert coarse is not None and "it is what another input gives, whose pixels are" in coarse.said
    assert noise is None


def test_a_copy_that_has_not_arrived(lab: Lab, tmp_path: Path) -> None:
    """The lower half of the last image of step 1 is that of step 0, or a part of the first one another image's."""
    fixture, right = make(tmp_path)
    x, old = (lab.graph(step).value("input").value for step in (1, 0))
    late = Predicted(at(x, np.s_[3, :, 5:], old[3, :, 5:]))
    wrong = {name: lab.graph(1).operation(name).replaced(x=late).values() for name in ("forward/one", FIRST)}
    spoilt = Lab(fixture, plant(right, tmp_path / "wrong.h5", {
        f"steps/1/{name}": lambda _, new=new: new.astype(np.float32) for name, new in wrong.items()}))
    for name in wrong:
        found = seen(spoilt, name, spoilt.right(name, 1), 1)
        assert found is not None and found.exact, name
        assert "if in the last image (3 of 4), rows 5 to 8 of 9 it is that of the step before" in found.said, found
    spoilt.close()
    mixed = at(lab.right(A), np.s_[0, :, 2:6, 3:7], lab.right(A)[2, :, 2:6, 3:7])
    found = seen(lab, Z, with_operand(lab, Z, x=Predicted(mixed)))
    assert found is not None and found.exact
    assert "if in the first image (0 of 4), rows 2 to 5 of 9, columns 3 to 6 of 12 it is that of image 2" in found.said


def test_an_input_that_the_output_betrays(tmp_path: Path) -> None:
    """An input of 8 bits makes the output, which shows its pixels, and the filter gradient, which does not."""
    fixture, right = make(tmp_path, model=lambda: torch.nn.Sequential(torch.nn.Conv2d(1, 6, 3, padding=1)))
    lab = Lab(fixture, right)
    x = lab.graph().value("input").value
    coarse = Predicted(x.min() + np.rint((x - x.min()) * 255 / np.ptp(x)) * np.ptp(x) / 255)
    names = ("forward/0", "grads/0/weight")
    wrong = {name: lab.graph().operation(name).replaced(x=coarse).values() for name in names}
    lab.close()
    spoilt = Lab(fixture, plant(right, tmp_path / "wrong.h5", {
        f"steps/0/{name}": lambda _, new=new: new.astype(np.float32) for name, new in wrong.items()}))
    found = seen(spoilt, names[1], spoilt.right(names[1]))
    spoilt.close()
    assert found is not None and found.exact
    assert "from the input that forward/0 shows to be in use" in found.said
