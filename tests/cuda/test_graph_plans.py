# SPDX-License-Identifier: MIT
"""Which of cuDNN's engines a training step uses, on the strict software device; its results stay right.

The device has engines for every trap: 0 TF32, 1 not deterministic, 2 FFT, 3 Winograd, 4 plain, 5 plain with workspace,
6 compiled later (cuda/test_compiled_engines.py), 7 refused when its plan is made, 17 Winograd without a note of that.
Each check is a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.helpers.cuda.children import CUDNN, environment
from tests.helpers.cuda.one_step import GRAPHS, PROGRAM
from tests.helpers.tiers import few

ENGINES = (*range(8), 17)


def run(fixture: Path, device: str, *, keep: bool | str = True, poison: bool = False,
        **settings: str) -> subprocess.CompletedProcess[str]:
    """A process that makes one step."""
    names = [GRAPHS, *(f"graph engine {i}" for i in ENGINES)]
    command = [sys.executable, "-c", PROGRAM, fixture, device, "" if keep is True else keep, "NaN" if poison else ""]
    return subprocess.run(command, input=json.dumps(names), capture_output=True, text=True, check=False, timeout=120,
                          env=environment(**settings), cwd=ROOT)


def step(fixture: Path, device: str = CUDNN, **given: Any) -> dict[str, Any]:
    """One step: loss, weights, and how often graphs were executed and engines ran."""
    done = run(fixture, device, **given)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def failure(fixture: Path, device: str = CUDNN, **given: Any) -> str:
    """The error that ends a step: one line."""
    done = run(fixture, device, **given)
    assert done.returncode == 1 and "Traceback" in done.stderr
    return done.stderr.splitlines()[-1]


def engines(found: dict[str, Any]) -> set[int]:
    """Those that ran."""
    return {i for i in ENGINES if found["counts"][f"graph engine {i}"]}


def same(a: dict[str, Any], b: dict[str, Any], tolerance: float) -> None:
    """Loss and weights agree."""
    assert a["loss"] == pytest.approx(b["loss"], rel=tolerance)
    for one, other in zip(a["weights"], b["weights"], strict=True):
        assert one == pytest.approx(other, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("keep", [True, "after_relu"])
def test_a_step_goes_through_graphs(fixture: Path, keep: bool | str) -> None:
    """All convolutions, by plain engines; the bias is part of them, and with "after_relu" the ReLU."""
    found = step(fixture, keep=keep)
    assert found["counts"][GRAPHS] == 3 + 3 + 3  # three layers: forward, data and filter gradients
    assert engines(found) <= {4, 5}
    same(found, step(fixture, "cpu", keep=keep), 1e-5)


def test_what_is_not_fused_is_done_in_parts(fixture: Path) -> None:
    """The bias and the ReLU by our kernels."""
    found = step(fixture, keep="after_relu", STRICT_GRAPH_FUSION="0")
    assert found["counts"][GRAPHS] == 3 + 3 + 3
    same(found, step(fixture, keep="after_relu"), 1e-6)


@pytest.mark.parametrize(("settings", "found"), [
    ({"STRICT_GRAPHS": "0"}, "found 0 offers, 0 of them allowed"),
    # Every plan's Finalize fails, as without NVRTC
    ({"STRICT_PLANS": "0"}, "found 9 offers, 4 of them allowed")])
def test_a_convolution_without_a_plan_is_an_error(fixture: Path, settings: dict[str, str], found: str) -> None:
    """What was asked, what was offered, and the shapes."""
    assert failure(fixture, **settings).endswith(
        "cuDNN: no plan for this forward that is allowed (math, deterministic, transforms, compile) and fits into the "
        f"workspace limit: {found}; input (2, 1, 6, 7), weight (16, 1, 3, 3)")


@pytest.mark.parametrize(("options", "allowed", "wanted"), [
    ("", {4, 5}, set()), ("math=tf32", {0, 4, 5}, {0}), ("deterministic=no", {1, 4, 5}, {1}),
    ("transforms=yes", {2, 3, 4, 5, 17}, {3}), ("workspace=0", {4}, {4})])
def test_options_choose_the_engines(fixture: Path, options: str, allowed: set[int], wanted: set[int]) -> None:
    """What an option forbids never runs; what it allows and is offered first does."""
    found = step(fixture, f"{CUDNN},{options}" if options else CUDNN)
    assert wanted <= engines(found) <= allowed
    same(found, step(fixture, "cpu"), 1e-2 if "tf32" in options else 1e-5)


@pytest.mark.deep
def test_measured_plans(fixture: Path) -> None:
    """Each allowed engine runs in the trial, none that is not."""
    found = step(fixture, f"{CUDNN},algorithm=measured")
    assert {4, 5} <= engines(found) <= {4, 5}
    assert found["counts"][GRAPHS] > 9 * 6
    same(found, step(fixture), 1e-5)


def test_nan_passes_a_fused_relu(fixture: Path) -> None:
    """As it does where the three are computed one after the other."""
    found = step(fixture, keep="after_relu", poison=True)
    assert found["loss"] != found["loss"]


@pytest.mark.parametrize(("fails", "goes_on"), [("cudnnBackendExecute:1:3000", True),
                                                ("cudnnBackendExecute:0:3000", False)])
def test_a_fused_plan_that_does_not_run(fixture: Path, fails: str, goes_on: bool) -> None:
    """NOT_SUPPORTED when it is run: of a fused plan the parts are computed, of a plain one it is an error."""
    program = PROGRAM.replace("loss = net.step(x, y, lr=0.25)", "out = net.forward(x)")
    program = program.replace('"loss": loss', '"out": out.numpy().ravel().tolist()')
    command = [sys.executable, "-c", program, fixture, CUDNN, "after_relu", ""]
    done = subprocess.run(command, input="[]", capture_output=True, text=True, check=False, timeout=120, cwd=ROOT,
                          env=environment(STRICT_FAIL=fails))
    if not goes_on:
        assert done.returncode == 1 and "CUDNN_STATUS_NOT_SUPPORTED (3000)" in done.stderr
        return
    right = subprocess.run(command, input="[]", capture_output=True, text=True, check=False, timeout=120, cwd=ROOT,
                           env=environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["out"] == pytest.approx(json.loads(right.stdout)["out"], rel=1e-6, abs=1e-6)


@pytest.mark.deep
@pytest.mark.parametrize(("function", "status"), [
    ("CreateDescriptor", 4000), ("SetAttribute", 2000), ("GetAttribute", 5000), ("Finalize", 4000)])
def test_where_graphs_fail_there_is_an_error(fixture: Path, function: str, status: int) -> None:
    """Whatever fails, and with whatever status: building a graph, its heuristics, its plans."""
    said = failure(fixture, keep="after_relu", STRICT_FAIL=f"cudnnBackend{function}:0:{status}")
    assert "cuDNN: graph: " in said and f"({status})" in said and said.endswith("weight (16, 1, 3, 3)")


def test_where_a_heuristic_fails_the_other_is_asked(fixture: Path) -> None:
    """Its engines do all the work."""
    found = step(fixture, STRICT_HEURISTICS="0")
    assert found["counts"][GRAPHS] == 9 and engines(found) == {4}
    same(found, step(fixture), 1e-5)


@pytest.mark.deep
def test_plans_of_which_none_runs(fixture: Path) -> None:
    """When they are measured."""
    said = failure(fixture, f"{CUDNN},algorithm=measured", STRICT_FAIL="cudnnBackendExecute:0:5000")
    assert "cuDNN: graph: run a plan: CUDNN_STATUS_EXECUTION_FAILED (5000)" in said


@pytest.mark.parametrize("call", few([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12], 2))
def test_notes_that_cannot_be_read_allow_nothing(fixture: Path, call: int) -> None:
    """Reading an attribute is not supported, always or once: what an engine's arithmetic is must be known."""
    fails = f"cudnnBackendGetAttribute:{call}:3000"
    if call == 0:
        assert "cuDNN: no plan for this forward that is allowed" in failure(fixture, STRICT_FAIL=fails)
        return
    found = step(fixture, STRICT_FAIL=fails)
    assert engines(found) <= {4, 5}
    same(found, step(fixture), 1e-6)
