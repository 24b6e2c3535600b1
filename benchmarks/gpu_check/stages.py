# SPDX-License-Identifier: MIT
"""The stages: what is run on a GPU, and what has to come out.

Everything runs in child processes with a time limit: a broken CUDA installation may crash or hang. Every stage is a
function of a `Plan` and the seconds that it may take, and gives a `Found`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.plan import Found, Plan
from benchmarks.harness.children import ChildError, Clock
from benchmarks.harness.processes import ROOT
from bridge.common.errors import BridgeError
from bridge.engine.library import programs
from bridge.judge.measure.file_pair import open_pair
from bridge.judge.repeatability import compare_runs

#: Tests that run on the real libraries when CNN_TEST_CUDA=real
TESTS = ("tests/parity", "tests/engine/network/test_network_cuda.py", "tests/engine/arrays/test_device_arrays.py",
         "tests/engine/arrays/test_streams.py", "tests/engine/arrays/test_interop.py", "tests/cuda/test_nhwc.py",
         "tests/cuda/test_prefetch.py")
#: Device options, and the exit code of the verdict that they must have; None: it is recorded, whatever it is.
#: Transforms have other bounds than sums of products
OPTIONS: dict[str, int | None] = {
    "direct=no": 0, "direct=no,algorithm=measured": 0, "direct=no,deterministic=no": 0,
    "direct=no,math=fp16": 3, "direct=no,math=bf16": 3, "direct=no,algorithm=measured,transforms=yes": None}
#: Processes that share the tests: each has a context of its own on the GPU
MOST_WORKERS = 8
#: Device options whose plans are recorded
PLANS = ("", "math=tf32", "deterministic=no")


def judged(plan: Plan, limit: float, *command: str | Path) -> dict[str, Any]:
    """The JSON of `bridge.validate` or `bridge.compare`, in short; any verdict is an answer."""
    path = plan.folder / "verdict.json"
    path.unlink(missing_ok=True)
    done = plan.run(limit, sys.executable, "-m", *command, "--json", path)
    if not path.exists():
        done.expect()
    document = json.loads(path.read_text(encoding="utf-8"))
    largest: dict[str, float] = {}
    for tensor in document["tensors"]:
        value = float("inf") if tensor["T"] is None else tensor["T"]
        largest[tensor["name"]] = max(largest.get(tensor["name"], 0.0), value)
    kept = {name: document[name] for name in ("verdict", "exit_code", "words", "precision", "batch_shape", "steps",
                                              "lower_precisions", "again", "bitwise", "seconds") if name in document}
    conclusion = document.get("float64_test", {}).get("conclusion")
    worst = {name: value if value < float("inf") else None for name, value in largest.items()}
    return kept | {"largest_T": worst} | ({"float64_test": conclusion} if conclusion else {})


def tests(plan: Plan, limit: float) -> Found:
    """The parity suite and the tests of CUDA arrays."""
    chosen = [name for name in plan.tests if (ROOT / name).exists()]
    if not chosen:
        return Found("failed", f"no tests below {ROOT}, expected {', '.join(plan.tests)}")
    options, variables = workers()
    # Plugins that are not ours would be loaded, and may warn, which is an error in the tests
    variables |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-v", "--color=no", "-p", "no:cacheprovider", *options, *chosen]
    try:
        done = replace(plan, environment=plan.environment | variables).run(limit, *command)
    except ChildError as late:
        return unfinished(late)
    lines = done.out.strip().splitlines()
    counts = {word: int(number) for number, word in
              re.findall(r"(\d+) (passed|failed|skipped|errors?)", lines[-1] if lines else "")}
    wrong = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    right = done.code == 0 and counts.get("passed", 0) > 0
    said = lines or done.errors.strip().splitlines() or [f"exit code {done.code}"]
    return Found.of(right, said[-1].strip("= "), counts | {"wrong": wrong[:50]}, done.out + done.errors)


def workers() -> tuple[list[str], dict[str, str]]:
    """Options of pytest and variables that share the tests among processes, where pytest-xdist is installed.

    Most of a test's time is the host's: plans are made, and their results judged.
    """
    cores = os.cpu_count() or 1
    number = min(MOST_WORKERS, cores)
    if number < 2 or importlib.util.find_spec("xdist") is None:
        return [], {}
    threads = os.environ.get("OMP_NUM_THREADS") or str(cores // number)
    return ["-p", "xdist.plugin", "-n", str(number)], {"OMP_NUM_THREADS": threads}


def unfinished(late: ChildError) -> Found:
    """Of tests whose time was up: what had passed and failed until then, one line for each by `pytest -v`."""
    outcomes = re.findall(r"^(?:\[gw\d+\] \[ *\d+%\] )?(PASSED|FAILED|ERROR|SKIPPED) (.+)|"
                          r"^(\S+::.+) (PASSED|FAILED|ERROR|SKIPPED)\b", late.said, re.M)
    by_word: dict[str, list[str]] = {}
    for before, name, other, after in outcomes:
        by_word.setdefault(before or after, []).append((name or other).strip())
    wrong = [f"{word} {name}" for word in ("FAILED", "ERROR") for name in by_word.get(word, [])]
    counts = {word.lower(): len(names) for word, names in by_word.items()}
    words = f"{late}; until then {counts.get('passed', 0)} passed, {len(wrong)} failed"
    return Found("failed", words, counts | {"wrong": wrong[:50]}, late.said)


def validate(plan: Plan, limit: float) -> Found:
    """The whole validation in float32: RIGHT."""
    found = judged(plan, limit, "bridge.validate", "--device", plan.device, "--size", plan.size)
    return Found.of(found["exit_code"] == 0, found["words"], found)


def tf32(plan: Plan, limit: float) -> Found:
    """A step with tensor cores: a lower precision, TF32 by name."""
    clock = Clock(limit)
    fixture, result = plan.fixture("one step", plan.size, limit), plan.folder / "tf32.h5"
    plan.step(fixture, result, clock.left, "direct=no,math=tf32")
    found = judged(plan, clock.left, "bridge.compare", fixture, result, "--no-diagnosis")
    result.unlink()
    names = [one["name"] for one in found["lower_precisions"]]
    right = found["exit_code"] == 3 and any(name.startswith("TF32") for name in names)
    return Found.of(right, found["words"], found)


def cross(plan: Plan, limit: float) -> Found:
    """CPU and GPU held against each other: no further apart than two right computations may be."""
    clock = Clock(limit)
    fixture, on_gpu, on_cpu = plan.fixture("one step", plan.size, limit), plan.folder / "gpu.h5", plan.folder / "cpu.h5"
    plan.step(fixture, on_gpu, clock.left)
    plan.step(fixture, on_cpu, clock.left, device="cpu")
    found = judged(plan, clock.left, "bridge.compare", fixture, on_cpu, "--again", on_gpu, "--no-diagnosis")
    on_cpu.unlink()
    changed = found["again"]["changed"]
    far = max((one["T"] if one["T"] is not None else float("inf") for one in changed), default=0.0)
    words = (f"{len(changed)} of {len(changed) + found['again']['equal']} tensors differ between CPU and {plan.kind}, "
             f"by at most {far:.2g} of the bound")
    # Equal to the bit would mean that both were computed in the same place
    return Found.of(found["exit_code"] == 0 and bool(changed), words, found)


def repeat(plan: Plan, limit: float) -> Found:
    """Two runs on the GPU: the same bits."""
    clock = Clock(limit)
    fixture, results = plan.fixture("one step", plan.size, limit), [plan.folder / "gpu.h5", plan.folder / "gpu2.h5"]
    for result in results:
        if not result.exists():
            plan.step(fixture, result, clock.left)
    with open_pair(fixture, results[0]) as pair:
        runs = compare_runs(pair, results[1])
    for result in results:
        result.unlink()
    return Found.of(not runs.changed, runs.words, {"equal": runs.equal, "changed": len(runs.changed)})


def double(plan: Plan, limit: float) -> Found:
    """float64, and by how much the error falls."""
    found = judged(plan, limit, "bridge.validate", "--device", plan.device, "--precision", "float64", "--size",
                   plan.small, "--steps", "2")
    return Found.of(found["exit_code"] == 0, found["words"], found)


def options(plan: Plan, limit: float) -> Found:
    """Verdicts on other algorithms and precisions."""
    clock, verdicts, wrong, last = Clock(limit), {}, [], ""
    fixture, result = plan.fixture("small", plan.small, limit), plan.folder / "option.h5"
    for text, expected in OPTIONS.items():
        try:
            plan.step(fixture, result, clock.left, text)
            found = judged(plan, clock.left, "bridge.compare", fixture, result, "--no-diagnosis")
            verdicts[text] = {name: found[name] for name in ("verdict", "exit_code", "words", "largest_T")}
            right = expected is None or found["exit_code"] == expected
        except ChildError as failure:
            verdicts[text], right = {"words": str(failure)}, False
            last = failure.said
        wrong += [] if right else [text]
    said = ", ".join(f"{text} {one.get('verdict', 'did not run')}" for text, one in verdicts.items())
    return Found.of(not wrong, said, {"verdicts": verdicts, "wrong": wrong}, last)


def plans(plan: Plan, limit: float) -> Found:
    """Which plans cuDNN's graph API has here. They are recorded: what has none goes through cuDNN's calls."""
    clock, found = Clock(limit), {}
    for text in PLANS:
        device = ",".join(filter(None, (plan.device, text)))
        done = plan.run(clock.left, sys.executable, "-m", "bridge.doctor", "--plans", device, "--json", "-").expect(0)
        found[text or "fp32"] = json.loads(done.out)["plans"]
    every = [one["plans"] for some in found.values() for one in some]
    words = f"{sum(bool(one['NCHW']) for one in every)} of {len(every)} operations have a plan in NCHW, " \
            f"{sum(bool(one['NHWC']) for one in every)} in NHWC"
    return Found.of(bool(every), words, {"plans": found})


def memcheck(plan: Plan, limit: float) -> Found:
    """NVIDIA's compute-sanitizer, where it is."""
    program = shutil.which("compute-sanitizer", path=plan.environment.get("PATH"))
    if program is None:
        return Found("skipped", "compute-sanitizer is not on the search path")
    clock, result = Clock(limit), plan.folder / "memcheck.h5"
    fixture = plan.fixture("tiny", "24x20", limit)
    done = plan.run(clock.left, program, "--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "9",
                    programs.cnn_step(), fixture, result, "--device", plan.device)
    lines = [line for line in done.out.splitlines() if line.startswith("=========")]
    return Found.of(done.code == 0, lines[-1].strip("= ") if lines else f"exit code {done.code}",
                    {"report": lines[:60]}, done.out + done.errors)


STAGES: dict[str, Callable[[Plan, float], Found]] = {
    one.__name__: one for one in (validate, plans, tf32, tests, cross, repeat, double, options, memcheck)}


#: Seconds for one stage, at most: one that hangs leaves time for the others
LONGEST = {"validate": 300.0, "tests": 240.0}


def attempt(name: str, plan: Plan, limit: float) -> Found:
    """A stage, whatever happens in it."""
    try:
        return STAGES[name](plan, min(limit, LONGEST.get(name, 180.0)))
    except (ChildError, BridgeError, OSError) as failure:
        return Found("failed", " ".join(str(failure).split()), said=getattr(failure, "said", ""))
    except Exception as failure:  # the other stages are to be run, and what they find is to be written
        return Found("failed", f"a fault of the check: {type(failure).__name__}: {failure}")
