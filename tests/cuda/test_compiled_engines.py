# SPDX-License-Identifier: MIT
"""Engines that cuDNN compiles when a plan is made: none unless asked, one for a request, and only where it is faster.

On the strict software device, where only engine 6, and with ``STRICT_COMPILED=2`` number 8, takes the mask of a ReLU in
a data gradient, and engines can be told to be slow. Each step is a process of its own, with a clock that only a slow
engine moves.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.doctor.__main__ import main
from tests import ROOT, software_device
from tests.helpers.cuda.children import CUDNN, environment

# Measures plans, in processes of their own
pytestmark = pytest.mark.deep

COMPILED, ALL = 6, 9
#: For STRICT_SLOW_ENGINES: the compiled one, and every other
SLOW_PLAN, SLOW_STEPS = 1 << COMPILED, (1 << ALL) - 1 - (1 << COMPILED)
#: Plans of a memory-efficient step of three layers: forward, filter gradients, and data gradients but for the first
RUNS = 3 + 3 + 2
MEASURED = f"{CUDNN},capture=no,math=tf32,algorithm=measured,compile=yes"

PROGRAM = """
import json, sys
from tests.helpers.cuda.stream_checks import DeviceArray, Network, batch, strict
path, device = sys.argv[1:]
net = Network.from_file(path, device=device, keep_activations=False)
x, y = DeviceArray.from_numpy(batch(1)), DeviceArray.from_numpy(batch(2))
names = json.loads(sys.stdin.read())
losses, seen = [], []
for _ in range(3):
    before = [strict.counter(name) for name in names]
    losses.append(net.step(x, y, lr=0.25))
    seen.append({name: strict.counter(name) - was for name, was in zip(names, before)})
print(json.dumps({"losses": losses, "steps": seen}))
"""


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library to preload."""
    if sys.platform != "linux" or shutil.which("gcc") is None:
        pytest.skip("skipped, because there is no gcc, or no library is preloaded on this system")
    library = tmp_path_factory.mktemp("clock") / "virtual_clock.so"
    source = ROOT / "tests/helpers/programs/virtual_clock.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", source, "-o", library], check=True)
    return str(library)


def efficient_steps(fixture: Path, device: str, **settings: object) -> dict[str, Any]:
    """Three steps with channels last: losses, and what each has made and run."""
    names = ["plans made", "plans compiled", "cudnnBackendExecute", *(f"graph engine {i}" for i in range(ALL))]
    given = {name: str(value) for name, value in settings.items()}
    done = subprocess.run([sys.executable, "-c", PROGRAM, fixture, device], input=json.dumps(names), text=True,
                          capture_output=True, check=False, timeout=120, cwd=ROOT, env=environment(**given))
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def compiled(found: dict[str, Any]) -> int:
    """Plans of such engines that were made."""
    return sum(step["plans compiled"] for step in found["steps"])


def ran(found: dict[str, Any]) -> list[int]:
    """How often plans of such engines ran in the second step and in the third."""
    return [step[f"graph engine {COMPILED}"] for step in found["steps"][1:]]


@pytest.mark.parametrize("options", ["", ",algorithm=measured", ",deterministic=no"])
@pytest.mark.parametrize("math", ["tf32", "bf16"])
def test_nothing_is_compiled_unless_asked(fixture: Path, math: str, options: str) -> None:
    """Two kernels do what such an engine would."""
    found = efficient_steps(fixture, f"{CUDNN},capture=no,math={math}{options}", STRICT_COMPILED=2)
    assert compiled(found) == 0 and ran(found) == [0, 0]
    assert [step["cudnnBackendExecute"] for step in found["steps"][1:]] == [RUNS, RUNS]


def test_the_doctor_compiles_nothing_unless_asked(capsys: pytest.CaptureFixture[str],
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it name such plans."""
    monkeypatch.setenv("CNN_CUDA_PATH", str(software_device.build()))
    for device, words in ((f"{CUDNN},math=tf32", ""), (f"{CUDNN},math=tf32,compile=yes", "compiled when it is made")):
        assert main(["--plans", device, "--size", "16", "--json", "-"]) == 0
        plans = [one["plans"]["NHWC"] for one in json.loads(capsys.readouterr().out)["plans"]
                 if "mask" in one["operation"]]
        assert len(plans) > 1 and all(plan.endswith(words) and bool(plan) == bool(words) for plan in plans), plans


def test_one_engine_is_compiled_for_a_request(fixture: Path) -> None:
    """Of two that are offered; with algorithm=measured forward convolutions have one to try, too."""
    assert compiled(efficient_steps(fixture, f"{CUDNN},math=tf32,compile=yes", STRICT_COMPILED=2)) == 2
    found = efficient_steps(fixture, f"{CUDNN},math=tf32,compile=yes,algorithm=measured", STRICT_COMPILED=2)
    assert compiled(found) == 3 + 2


def test_untimed_it_is_taken(fixture: Path) -> None:
    """With algorithm=heuristic, however slow it is: who asks for it gets it."""
    found = efficient_steps(fixture, f"{CUDNN},capture=no,math=tf32,compile=yes", STRICT_SLOW_ENGINES=SLOW_PLAN)
    assert ran(found) == [2, 2]


@pytest.mark.parametrize(("slow", "runs"), [(SLOW_PLAN, 0), (SLOW_STEPS, 3 + 2)], ids=["two steps", "one plan"])
def test_the_faster_way_is_taken(fixture: Path, clock: str, slow: int, runs: int) -> None:
    """Timed once, in the first step. Where all others are slow forward convolutions take it, too."""
    right = efficient_steps(fixture, f"{CUDNN},math=tf32")["losses"]
    first = efficient_steps(fixture, MEASURED, STRICT_SLOW_ENGINES=slow, LD_PRELOAD=clock)
    assert ran(first) == [runs, runs] and first["losses"] == pytest.approx(right, rel=2e-3)
    assert [step["cudnnBackendExecute"] for step in first["steps"][1:]] == [RUNS, RUNS]


def test_a_way_that_fails_is_not_taken(fixture: Path, clock: str) -> None:
    """When it is timed: here the first of two data gradients with a mask, which is right all the same."""
    settings = {"STRICT_SLOW_ENGINES": SLOW_STEPS, "LD_PRELOAD": clock}
    right = efficient_steps(fixture, MEASURED, **settings)
    # Plans run in the order of a step, and this is the first run of that mask's plan
    found = efficient_steps(fixture, MEASURED, **settings, STRICT_FAIL="cudnnBackendExecute:73:4000")
    assert ran(right) == [3 + 2, 3 + 2] and ran(found) == [3 + 1, 3 + 1]
    assert found["losses"] == pytest.approx(right["losses"], rel=2e-3)
