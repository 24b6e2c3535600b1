# SPDX-License-Identifier: MIT
"""The validator's own verdict on training steps of every device, and what it says of lower precisions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.engine.library import extension, programs
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.operations import OPERATIONS
from bridge.validate import cross_check
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.judged.opened import runs_of, with_pair
from tests.helpers.networks.moves import OF_OWN_TESTS
from tests.helpers.networks.parity_tools import LARGE
from tests.helpers.torch_graphs import Whole

SIZE = {"height": 128, "width": 96, "batch": 3} if LARGE else {"height": 18, "width": 23, "batch": 3}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "dampening": {"momentum": 0.8, "dampening": 0.3, "weight_decay": 0.05},
    "nesterov": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    "sum": {"reduction": "sum", "lr": 2.0**-16},
    "ten steps": {"steps": 10, "momentum": 0.9, "height": 14, "width": 11, "batch": 2},
    "double": {"precision": "float64", "momentum": 0.9},
}


@pytest.fixture(autouse=True)
def _leaks_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that leaves something on the strict software device ends with status 99."""
    monkeypatch.setenv("STRICT_AT_EXIT", "2")


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One for each of the settings."""
    folder, found = tmp_path_factory.mktemp("fixtures"), {}
    for name, settings in SETTINGS.items():
        found[name] = folder / f"{name}.h5"
        export(found[name], ExportSettings(**SIZE | settings))
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_steps_are_right(name: str, fixtures: dict[str, Path], device: str, tmp_path: Path) -> None:
    """Outputs, gradients, loss, momentum buffers and weights of every step."""
    extension.run_file(fixtures[name], tmp_path / "result.h5", device)
    comparison, verdict = judge(fixtures[name], tmp_path / "result.h5", diagnosing=False)
    assert verdict.outcome is Outcome.ROUNDING, verdict.words
    assert comparison.steps == SETTINGS[name].get("steps", 3) and not comparison.not_judged


@pytest.mark.deep
def test_every_operation_in_one_network(device: str, tmp_path: Path) -> None:
    """Ten steps, all that is in them judged."""
    fixture, result = tmp_path / "fixture.h5", tmp_path / "result.h5"
    export(fixture, ExportSettings(model=Whole, height=8, width=10, batch=3, steps=10, optimizer="adam", lr=2.0**-9))
    programs.run_cnn_step(fixture, result, device)
    comparison, verdict = judge(fixture, result, diagnosing=False)
    assert verdict.outcome is Outcome.ROUNDING, verdict.words
    # Behind so many operations a gradient may be below the last digit of its weights
    assert comparison.steps == 10
    assert all(one.name.startswith("update/") and one.measured and not one.hidden for one in comparison.not_judged)
    assert comparison.model is not None
    assert {layer.kind for layer in comparison.model.layers} == set(OPERATIONS) - OF_OWN_TESTS


@pytest.mark.deep
def test_no_option_makes_it_wrong(fixtures: dict[str, Path], cuda: str, tmp_path: Path) -> None:
    """Which algorithms run is for the options to say. Transforms have other bounds than sums of products."""
    for options in ("algorithm=measured", "deterministic=no,workspace=0", "algorithm=measured,workspace=1"):
        extension.run_file(fixtures["momentum"], tmp_path / "result.h5", f"{cuda},{options}")
        _, verdict = judge(fixtures["momentum"], tmp_path / "result.h5", diagnosing=False)
        assert verdict.outcome is Outcome.ROUNDING, f"{options}: {verdict.words}"


def test_program_and_extension_agree(fixtures: dict[str, Path], device: str, tmp_path: Path) -> None:
    """To the bit; and the program leaves nothing behind."""
    programs.run_cnn_step(fixtures["nesterov"], tmp_path / "result.h5", device)
    compared, differing = with_pair(fixtures["nesterov"], tmp_path / "result.h5",
                                    lambda pair: cross_check.differences(pair, device))
    assert compared > 50 and differing == []


def test_two_runs_are_the_same(fixtures: dict[str, Path], cuda: str, tmp_path: Path) -> None:
    """Deterministic to the bit, in processes of their own."""
    for name in "ab":
        programs.run_cnn_step(fixtures["momentum"], tmp_path / f"{name}.h5", cuda)
    runs = runs_of(fixtures["momentum"], tmp_path / "a.h5", tmp_path / "b.h5")
    assert runs.equal > 50 and not runs.changed


def test_devices_agree_to_rounding(fixtures: dict[str, Path], cuda: str, tmp_path: Path) -> None:
    """Held against each other, CPU and GPU differ by no more than two right computations may."""
    for device in ("cpu", cuda):
        extension.run_file(fixtures["plain"], tmp_path / f"{device[:4]}.h5", device)
    runs = runs_of(fixtures["plain"], tmp_path / "cpu.h5", tmp_path / f"{cuda[:4]}.h5")
    assert runs.outcome is Outcome.ROUNDING, runs.words


def validate(folder: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code, what was printed, and the JSON."""
    document = folder / "verdict.json"
    done = subprocess.run(
        [sys.executable, "-m", "bridge.validate", "--json", str(document), "--size", "{height}x{width}".format(**SIZE),
         *options], capture_output=True, text=True, check=False)
    assert document.exists(), done.stderr
    return done.returncode, " ".join(done.stdout.split()), json.loads(document.read_text(encoding="utf-8"))


def test_validate_says_right(cuda: str, tmp_path: Path) -> None:
    code, said, document = validate(tmp_path, "--device", cuda, "--momentum", "0.9")
    assert (code, document["verdict"]) == (0, "rounding"), said
    assert document["bitwise"] == {"compared": 78, "differing": 0}
    assert all(tensor["T"] <= 1 for tensor in document["tensors"])


@pytest.mark.deep
def test_validate_names_tf32(cuda: str, tmp_path: Path) -> None:
    """Right for TF32, and no float32."""
    code, said, document = validate(tmp_path, "--device", f"{cuda},direct=no,math=tf32", "--no-diagnosis")
    assert (code, document["verdict"]) == (3, "precision"), said
    assert "LOWER PRECISION than declared" in said and "is exactly what TF32" in said
    assert document["lower_precisions"][0]["name"].startswith("TF32")


@pytest.mark.deep
@pytest.mark.parametrize("math", ["fp16", "bf16"])
def test_sixteen_bits_are_named(math: str, fixtures: dict[str, Path], cuda: str, tmp_path: Path) -> None:
    try:
        extension.run_file(fixtures["plain"], tmp_path / "result.h5", f"{cuda},direct=no,math={math}")
    except extension.EngineError as error:
        assert "needs the CUDA Fortran kernels" in str(error)
        return
    _, verdict = judge(fixtures["plain"], tmp_path / "result.h5", diagnosing=False)
    assert verdict.outcome is Outcome.PRECISION, verdict.words
    assert f"is exactly what {math} operands and results give" in verdict.words
