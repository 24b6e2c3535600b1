# SPDX-License-Identifier: MIT
"""`python -m bridge.compare`: right results, and parts of results."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from torch import nn

from bridge.compare import main
from bridge.engine.library import extension
from bridge.judge.judge import judge
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.candidates import ask, keep, plant, train
from tests.helpers.judged.compared import is_weight


def test_a_right_result(pair: tuple[Path, Path], tmp_path: Path) -> None:
    answer = ask(*pair, "--json", str(tmp_path / "out.json"))
    assert answer.code == 0 and "RIGHT: every difference is rounding." in answer.words
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["verdict"] == "rounding" and document["exit_code"] == 0 and document["words"].startswith("RIGHT")
    names = {(tensor["name"], tensor["step"]) for tensor in document["tensors"]}
    with h5py.File(pair[1]) as file:
        steps: list[str] = []
        file["steps"].visititems(lambda name, node: steps.append(name) if isinstance(node, h5py.Dataset) else None)
    wanted = {tuple(reversed(name.split("/", 1))) for name in steps if "weights" not in name}
    assert {(name, int(step)) for name, step in wanted} <= names
    assert all(0 <= tensor["T"] <= 1 and tensor["passed"] for tensor in document["tensors"])
    assert document["not_judged"] == [] and document["oracle_T"] < 1e-3 and document["reference_T"] <= 1


def test_the_program_and_its_help(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code of the process is the verdict."""
    done = subprocess.run([sys.executable, "-m", "bridge.compare", *map(str, pair)], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0 and "RIGHT" in done.stdout
    assert "--all shows every one" in done.stdout
    assert main([*map(str, pair), "--all"]) == 0
    every = capsys.readouterr().out
    assert "--all" not in every and every.count("\n") > done.stdout.count("\n")
    for options, code in ((["--help"], 0), ([], 2)):
        with pytest.raises(SystemExit) as end:
            main(options)
        assert (end.value.code or 0) == code
    said = capsys.readouterr().out
    assert "exit codes:" in said and "FIXTURE" in said and "docs/exchange-file.md" in said


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_float64_fixture_judges_both_precisions(precision: str, tmp_path: Path) -> None:
    """A float32 candidate starts from rounded weights and images; that is no error of its."""
    settings = ExportSettings(height=9, width=8, batch=2, steps=2, precision="float64", momentum=0.5, threads=1)
    fixture = export(tmp_path / "fixture.h5", settings).path
    extension.run_file(fixture, tmp_path / "result.h5", precision=precision)
    assert ask(fixture, tmp_path / "result.h5").code == 0


def unusual_network() -> nn.Module:
    """Starts and ends with a ReLU; strides, groups, dilation; a layer without bias."""
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 2), groups=2),
        nn.ReLU(),
        nn.Conv2d(4, 6, (2, 3), dilation=(1, 2), bias=False),
        nn.Conv2d(6, 3, 1),
        nn.ReLU(),
    )


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_another_model(reduction: str, tmp_path: Path) -> None:
    fixture = export(
        tmp_path / "fixture.h5",
        ExportSettings(
            height=13, width=11, batch=3, steps=2, model=unusual_network, reduction=reduction, lr=2.0**-9, threads=1
        ),
    ).path
    for kind in ("torch", "fortran"):
        if kind == "torch":
            train(fixture, tmp_path / "result.h5")
        else:
            extension.run_file(fixture, tmp_path / "result.h5")
        answer = ask(fixture, tmp_path / "result.h5")
        assert answer.code == 0, answer.words
    path = plant(tmp_path / "result.h5", tmp_path / "bad.h5", {"steps/0/grads/3/weight": lambda g: g[..., ::-1]})
    assert "BUG: grads/3/weight of step 0" in ask(fixture, path).words

PARTS: dict[str, Callable[[str], bool]] = {
    "only weights": is_weight,
    "only forward": lambda name: name.startswith("steps/0/forward/"),
    "only gradients": lambda name: name.startswith("steps/0/grads/"),
    "only filter gradients": lambda name: name.startswith("steps/0/grads/") and name.endswith("weight"),
    "only one step": lambda name: name.startswith("steps/0/"),
    "one step and the weights after": lambda name: name.startswith("steps/0/") or name.startswith("steps/1/weights/"),
    "a step missing": lambda name: not name.startswith("steps/1/") or is_weight(name),
    "no last weights": lambda name: not name.startswith("steps/3/"),
    "one tensor": lambda name: name == "steps/0/loss",
    "no biases": lambda name: name.startswith("steps/0/") and not name.endswith("bias"),
}

#: What holds tensors whose inputs are missing: nobody can tell whether those are right
UNTOLD: dict[str, Callable[[str], bool]] = {
    "no biases": lambda name: not name.endswith("bias"),
    "no bias in between": lambda name: name not in ("steps/1/weights/conv1/bias", "steps/2/weights/conv1/bias"),
    "forward of every step": lambda name: "/forward/" in name,
    "last weights alone": lambda name: name == "steps/0/forward/conv1" or name.startswith("steps/3/weights/"),
    "nothing but last weights": lambda name: name.startswith("steps/3/weights/"),
}


@pytest.mark.parametrize("head", [True, False], ids=["described", "bare"])
@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_judged_by_what_is_there(pair: tuple[Path, Path], part: str, head: bool, tmp_path: Path) -> None:
    """Right in what is there; the rest is listed, and never counted as right."""
    path = keep(pair[1], tmp_path / "part.h5", PARTS[part], head=head)
    comparison, verdict = judge(pair[0], path, diagnosing=False)
    assert verdict.exit_code == 0, verdict.words
    judged = {(one.name, one.step) for one in comparison.judged}
    missing = {(one.name, one.step) for one in comparison.not_judged}
    assert missing and not judged & missing and comparison.computed
    assert f"Not judged: {len(comparison.not_judged)}" in verdict.words
    assert ("says its precision" in " ".join(verdict.hints)) is False and comparison.declared is head


@pytest.mark.parametrize("part", UNTOLD)
def test_what_is_there_and_cannot_be_judged_is_not_right(pair: tuple[Path, Path], part: str, tmp_path: Path) -> None:
    """It is listed by its own name, and there is no divergence of weights that nobody judged."""
    path = keep(pair[1], tmp_path / "part.h5", UNTOLD[part])
    comparison, verdict = judge(pair[0], path, diagnosing=False)
    assert verdict.exit_code == 4 and "in the file, but could not be judged: " in verdict.words, verdict.words
    with h5py.File(path) as file:
        held: set[tuple[str, int]] = set()
        file["steps"].visititems(
            lambda name, node: (
                held.add((name.split("/", 1)[1], int(name[0]))) if isinstance(node, h5py.Dataset) else None
            )
        )
    known = {(one.name, one.step) for one in [*comparison.judged, *comparison.not_judged]}
    known |= {(n.replace("optimizer", "weights").replace("update", "weights"), k + 1) for n, k in known}
    assert held <= known
    assert comparison.divergence is None or not any(name.startswith("steps/3/") for name in held)


def test_garbage_that_cannot_be_judged_is_not_right(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """NaN is wrong whatever it should be; finite garbage leaves the question open."""
    last = {f"steps/3/weights/conv{i}/{what}": lambda w: 9 - w for i in (1, 2, 3) for what in ("weight", "bias")}
    gone = {f"steps/{k}/weights/conv1/bias": lambda w: None for k in (1, 2)}
    answer = ask(pair[0], plant(pair[1], tmp_path / "bad.h5", last | gone))
    assert answer.code == 4 and "After all steps the weights of the two runs" not in answer.words
    part = keep(tmp_path / "bad.h5", tmp_path / "part.h5", UNTOLD["last weights alone"])
    assert ask(pair[0], part).code == 4

    def spoiled(values: np.ndarray) -> np.ndarray:
        values = np.array(values)
        values[(-1,) * values.ndim] = np.nan
        return values

    for name in ("forward/conv1", "grads/conv2/weight", "loss"):
        path = plant(pair[1], tmp_path / "nan.h5", gone | {f"steps/1/{name}": spoiled})
        answer = ask(pair[0], path)
        assert answer.code == 1 and f"BUG: {name} of step 1 is wrong: 1 value NaN or infinite" in answer.words
    path = plant(pair[1], tmp_path / "nan.h5", gone | {"steps/3/weights/conv2/weight": spoiled})
    answer = ask(pair[0], path)
    assert answer.code == 1 and "BUG: weights/conv2/weight of step 3" in answer.words
    assert "Look at the update of the step before" in answer.words


@pytest.mark.parametrize(
    "part, edit, name",
    [
        ("only weights", {"steps/2/weights/conv2/weight": lambda w: w[:, :, ::-1]}, "update/conv2/weight"),
        ("only forward", {"steps/0/forward/conv3": lambda z: z * np.float32(1.001)}, "forward/conv3"),
        ("only gradients", {"steps/0/grads/conv2/output": lambda g: np.roll(g, 1, 2)}, "grads/conv2/output"),
        ("only filter gradients", {"steps/0/grads/conv2/weight": lambda g: g.swapaxes(2, 3)}, "grads/conv2/weight"),
        ("no last weights", {"steps/2/grads/conv1/weight": lambda g: g / 2}, "grads/conv1/weight"),
    ],
)
def test_a_fault_in_a_part_is_found(pair: tuple[Path, Path], part: str, edit: dict, name: str, tmp_path: Path) -> None:
    whole = plant(pair[1], tmp_path / "whole.h5", edit)
    answer = ask(pair[0], keep(whole, tmp_path / "part.h5", PARTS[part]))
    assert answer.code == 1 and f"BUG: {name} of step" in answer.words


@pytest.mark.parametrize(
    "part",
    [lambda name: False, lambda name: name.startswith("steps/0/weights/"), lambda name: name.startswith("batches/")],
    ids=["nothing", "first weights", "batches"],
)
def test_nothing_computed_is_bad_input(pair: tuple[Path, Path], part: Callable, tmp_path: Path) -> None:
    """First weights are copied from the fixture, not computed: they alone prove nothing."""
    answer = ask(pair[0], keep(pair[1], tmp_path / "part.h5", part))
    assert answer.code == 2 and "nothing was compared" in answer.errors


def test_unknown_names_are_not_right(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """Whatever stands where a tensor of a step does may be one that nobody would ever judge."""
    path = plant(pair[1], tmp_path / "result.h5", {})
    with h5py.File(path, "r+") as file:
        file.move("steps/0/forward/conv2", "steps/0/forward/conv_2")
        file["steps/7/loss"] = 1.0
        file["activations/conv1"] = np.zeros(3)
    comparison, verdict = judge(pair[0], path, diagnosing=False)
    assert verdict.exit_code == 4 and verdict.would_decide == [("forward/conv2", 0)]
    assert verdict.words == (
        "CANNOT TELL: the result has data of a step under 2 unknown names, which nobody has judged: "
        "steps/0/forward/conv_2 (expected perhaps steps/0/forward/conv2) and 1 more.")
    assert "; 3 unknown names: steps/0/forward/conv_2, steps/7/loss, activations/conv1." in verdict.hints[0]
    assert [(one.name, one.misnamed) for one in comparison.not_judged if one.unknown] == [
        ("steps/0/forward/conv_2", True), ("steps/7/loss", True), ("activations/conv1", False)]
    assert ("forward/conv2", 0) in {(one.name, one.step) for one in comparison.not_judged}
    answer = ask(pair[0], path)
    assert answer.code == 4 and "steps/0/forward/conv_2: unknown name, expected perhaps steps/0/f" in answer.words
    assert judge(pair[0], path, diagnosing=False, allow_unknown=True).verdict.exit_code == 0


@pytest.mark.parametrize(("old", "new", "near"), [
    ("steps/0/grads/conv2/weight", "steps/0/grads/conv2/kernel", "steps/0/grads/conv2/weight"),
    ("steps/1/weights/conv2/bias", "steps/1/weights/conv2/b", "steps/1/weights/conv2/bias"),
    ("steps/0/forward/conv1", "steps/0/outputs/conv1", "steps/0/forward/conv1"),
    ("steps/0/grads/conv3/output", "step/0/grads/conv3/output", "steps/0/grads/conv3/output"),
    ("steps/0/grads/input", "grads/input", "steps/0/grads/input"),
])
def test_a_misnamed_tensor_is_told(pair: tuple[Path, Path], old: str, new: str, near: str, tmp_path: Path) -> None:
    path = plant(pair[1], tmp_path / "result.h5", {})
    with h5py.File(path, "r+") as file:
        file.move(old, new)
    comparison, verdict = judge(pair[0], path, diagnosing=False)
    assert verdict.exit_code == 4
    (unknown,) = (one for one in comparison.not_judged if one.misnamed)
    assert unknown.name == new and near in unknown.nearest, unknown


def test_data_of_ones_own_leave_a_result_right(pair: tuple[Path, Path], tmp_path: Path) -> None:
    path = plant(pair[1], tmp_path / "result.h5", {})
    with h5py.File(path, "r+") as file:
        file["log/loss"], file["timing/conv1"] = np.zeros(3), 1.0
        file["steps/0/forward/conv1"].attrs["kernel"] = "fast"
    assert judge(pair[0], path, diagnosing=False).verdict.exit_code == 0


def test_a_misnamed_layer_alone_is_bad_input(pair: tuple[Path, Path], tmp_path: Path) -> None:
    path = keep(pair[1], tmp_path / "part.h5", PARTS["one tensor"])
    with h5py.File(path, "r+") as file:
        file.move("steps/0/loss", "steps/0/Loss")
    answer = ask(pair[0], path)
    assert answer.code == 2 and "names that are unknown: steps/0/Loss" in answer.errors
