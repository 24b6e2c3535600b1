# SPDX-License-Identifier: MIT
"""``python -m benchmarks.gpu_check`` where there is no GPU, and with a software device in the place of one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import software_device

from benchmarks.gpu_check import __main__ as program
from benchmarks.gpu_check import stages
from benchmarks.gpu_check.plan import ROOT, Done, Found, Plan, StageError
from bridge import wheels
from bridge.wheels import VARIABLE

RIGHT = {"exit_code": 0, "words": "RIGHT", "largest_T": {}, "lower_precisions": [],
         "again": {"changed": [], "equal": 9}}


def check(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "benchmarks.gpu_check", *map(str, arguments)], cwd=ROOT, text=True,
                          capture_output=True, check=False, env=os.environ | variables)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Of small images; its fixture is there."""
    for name in ("one step", "small", "tiny"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "fixture.h5").touch()
    return Plan(tmp_path, "software device", "cuda", "24x20", "23x18", [], dict(os.environ))


@pytest.fixture(scope="module")
def libraries() -> Path:
    """The software device."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    return software_device.build()


def without_gpu(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Where there is a GPU it is hidden, and where there is a software device, too."""
    return check(*arguments, OUT=str(tmp_path), CUDA_VISIBLE_DEVICES="", CNN_CUDA_PATH="")


def test_without_a_gpu_it_is_one_line(tmp_path: Path) -> None:
    done = without_gpu(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("gpu-check: skipped: ") and done.stdout.count("\n") == 1
    assert len(done.stdout) > 30
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_can_be_required(tmp_path: Path) -> None:
    assert without_gpu(tmp_path, "--require").returncode == 1


def test_a_software_device_in_the_path_is_no_gpu(libraries: Path, tmp_path: Path) -> None:
    """As the documentation shows it, for other programs."""
    done = check(OUT=str(tmp_path), CNN_CUDA_PATH=str(libraries))
    assert (done.returncode, done.stdout) == (2, "")
    assert "software device (no GPU)" in done.stderr and "expected a GPU" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [("--device", "cpu"), ("--device", "cuda:"), ("--budget", "-1")])
def test_bad_usage_is_2(arguments: tuple[str, str], tmp_path: Path) -> None:
    done = check(*arguments, OUT=str(tmp_path))
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and arguments[1] in done.stderr


def test_a_software_device_is_called_one(libraries: Path, tmp_path: Path) -> None:
    """The main stages from end to end; in all that is printed and written nobody takes it for a GPU."""
    done = check("--pretend", libraries, "--output", tmp_path / "check.json", "--stages", "tf32,cross,repeat,tests",
                 "--tests", "tests/parity/test_precisions.py")
    document = json.loads((tmp_path / "check.json").read_text(encoding="utf-8"))
    assert done.returncode == 0, done.stdout
    assert document["kind"] == "software device" and document["words"] == "software device: no stage failed"
    assert document["exit_code"] == 0 and "software device" in document["name"]
    assert done.stdout.startswith("software device: ")
    assert "GPU" not in (done.stdout + json.dumps(document)).replace("(no GPU)", "")
    assert [(one["name"], one["outcome"]) for one in document["stages"]] == [
        ("tf32", "passed"), ("cross", "passed"), ("repeat", "passed"), ("tests", "passed")]
    lower, cross, repeat, tests = (one["numbers"] for one in document["stages"])
    assert lower["lower_precisions"][0]["name"].startswith("TF32") and lower["exit_code"] == 3
    assert cross["largest_T"]["loss"] < 1 and cross["again"]["changed"]
    assert repeat["equal"] >= 18 and repeat["changed"] == 0
    assert tests["passed"] >= 4 and tests["wrong"] == []
    assert "/" not in document["cuda"]["cudnn library"] and document["packages"]["numpy"]
    assert str(ROOT) not in json.dumps(document)


def test_a_stage_that_fails_stops_nothing(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    """Its reason is written, the others are run, and the exit code is 1."""
    def broken(*_: object) -> Found:
        raise RuntimeError("nobody thought of this")

    seen = stages.Seen(True, "a software device", {}, {})
    monkeypatch.setattr(program, "doctor", lambda *_: seen)
    monkeypatch.setitem(stages.STAGES, "validate", broken)
    monkeypatch.setitem(stages.STAGES, "repeat", lambda *_: Found("passed", "done"))
    path = tmp_path / "check.json"
    code = program.main(["--pretend", str(libraries), "--output", str(path), "--stages", "validate,tests,repeat",
                         "--tests", "tests/none.py"])
    document = json.loads(path.read_text(encoding="utf-8"))
    assert code == document["exit_code"] == 1
    assert document["words"] == "software device: failed: validate, tests"
    assert [one["outcome"] for one in document["stages"]] == ["failed", "failed", "passed"]
    assert "RuntimeError: nobody thought of this" in document["stages"][0]["words"]
    assert "tests/none.py" in document["stages"][1]["words"]
    assert "failed" in capsys.readouterr().out


def test_when_the_time_is_up_stages_fail(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "doctor", lambda *_: stages.Seen(True, "a software device", {}, {}))
    path = tmp_path / "check.json"
    assert program.main(["--pretend", str(libraries), "--output", str(path), "--budget", "0"]) == 1
    found = json.loads(path.read_text(encoding="utf-8"))["stages"]
    assert len(found) == len(stages.STAGES) and {one["words"] for one in found} == {"not run: the time was up"}


@pytest.mark.parametrize("output", [[], ["--output", str(program.RESULTS / "pretended.json")]])
def test_nothing_pretended_gets_among_the_results(output: list[str], tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--pretend", str(tmp_path), *output]) == 2
    assert "outside of benchmarks/results" in capsys.readouterr().err


def test_where_the_json_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To --output, else into $OUT, else among the results."""
    def place(*arguments: str) -> Path:
        return program.output_file(program.parser().parse_args(arguments))

    monkeypatch.delenv("OUT", raising=False)
    assert place() == ROOT / "benchmarks" / "results" / "gpu_check.json"
    monkeypatch.setenv("OUT", str(tmp_path))
    assert place() == tmp_path / "gpu_check.json"
    assert place("--output", str(tmp_path / "b.json")) == tmp_path / "b.json"


def test_children_are_told_of_nvidias_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program cnn_step cannot look for them itself."""
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(wheels, "name_wheels", lambda: os.environ.update({VARIABLE: "/a/lib"}))
    assert program.environment(None)[VARIABLE] == "/a/lib"


def test_a_child_with_children_ends_in_time(plan: Plan) -> None:
    start = time.monotonic()
    with pytest.raises(StageError, match="bash: no end within 0 s"):
        plan.run(0.3, "bash", "-c", "sleep 50 & sleep 50")
    assert time.monotonic() - start < 20


@pytest.mark.parametrize(("stage", "changes", "outcome"), [
    ("validate", {}, "passed"), ("validate", {"exit_code": 1}, "failed"), ("validate", {"exit_code": 3}, "failed"),
    ("double", {}, "passed"), ("double", {"exit_code": 4}, "failed"),
    ("tf32", {"exit_code": 3, "lower_precisions": [{"name": "TF32"}]}, "passed"), ("tf32", {}, "failed"),
    ("tf32", {"exit_code": 3, "lower_precisions": [{"name": "bf16"}]}, "failed"),
    ("tf32", {"exit_code": 1, "lower_precisions": [{"name": "TF32"}]}, "failed"),
    ("cross", {"again": {"changed": [{"T": 0.5}], "equal": 1}}, "passed"), ("cross", {}, "failed"),
    ("cross", {"exit_code": 1, "again": {"changed": [{"T": 5}], "equal": 1}}, "failed"),
    # Whatever all options give alike is wrong for some
    ("options", {"verdict": "rounding"}, "failed"), ("options", {"verdict": "precision", "exit_code": 3}, "failed"),
])
def test_what_a_stage_demands(plan: Plan, monkeypatch: pytest.MonkeyPatch, stage: str, changes: dict[str, Any],
                              outcome: str) -> None:
    monkeypatch.setattr(stages, "judged", lambda *_: RIGHT | changes)
    monkeypatch.setattr(Plan, "step", lambda self, fixture, result, *_, **__: result.touch())
    assert stages.attempt(stage, plan, 60.0).outcome == outcome


PASSES, FAILS = "def test_a(): pass\n", "def test_b(): assert 1 == 2\n"


@pytest.mark.parametrize(("source", "outcome", "counts"), [
    (PASSES, "passed", {"passed": 1}), (PASSES + FAILS, "failed", {"passed": 1, "failed": 1}), ("", "failed", {}),
    ("import pytest\npytestmark = pytest.mark.skip(reason='of a test')\n" + PASSES, "failed", {"skipped": 1}),
    (PASSES + "import nothing_of_this_name\n", "failed", {"error": 1}),
])
def test_the_stage_of_tests(plan: Plan, tmp_path: Path, source: str, outcome: str, counts: dict[str, int]) -> None:
    """One test that fails is enough, and so is none at all."""
    path = tmp_path / "test_some.py"
    path.write_text(source)
    found = stages.tests(replace(plan, tests=[str(path)]), 60.0)
    wrong = found.numbers.pop("wrong")
    assert (found.outcome, found.numbers) == (outcome, counts)
    assert len(wrong) == counts.get("failed", 0) + counts.get("error", 0)


@pytest.mark.parametrize(("code", "outcome"), [(0, "passed"), (2, "failed")])
def test_plans_are_recorded(plan: Plan, monkeypatch: pytest.MonkeyPatch, code: int, outcome: str) -> None:
    """Of each device text; a doctor that has no answer fails the stage."""
    said = json.dumps({"plans": [{"operation": "forward with bias", "plans": {"NCHW": "engine 1", "NHWC": "engine 2"}},
                                 {"operation": "bias gradient", "plans": {"NCHW": "", "NHWC": ""}}]})
    monkeypatch.setattr(Plan, "run", lambda *_: Done("the doctor", code, said, ""))
    found = stages.attempt("plans", plan, 60.0)
    assert found.outcome == outcome
    if code == 0:
        assert set(found.numbers["plans"]) == {"fp32", "math=tf32", "deterministic=no"}
        assert found.words == "3 of 6 operations have a plan in NCHW, 3 in NHWC"


@pytest.mark.parametrize("wrong", [None, *(name for name, code in stages.OPTIONS.items() if code is not None)])
def test_every_option_has_its_verdict(plan: Plan, monkeypatch: pytest.MonkeyPatch, wrong: str | None) -> None:
    """One verdict that is another than it must be fails the stage, and is named."""
    codes = iter([1 if name == wrong else code or 0 for name, code in stages.OPTIONS.items()])
    monkeypatch.setattr(stages, "judged", lambda *_: RIGHT | {"verdict": "of a test", "exit_code": next(codes)})
    monkeypatch.setattr(Plan, "step", lambda self, fixture, result, *_, **__: result.touch())
    found = stages.attempt("options", plan, 60.0)
    assert (found.outcome, found.numbers["wrong"]) == (("failed", [wrong]) if wrong else ("passed", []))


@pytest.mark.parametrize(("code", "outcome"), [(0, "passed"), (9, "failed"), (None, "skipped")])
def test_memcheck(plan: Plan, tmp_path: Path, code: int | None, outcome: str) -> None:
    """It believes the exit code of the program, where there is one."""
    plan.environment["PATH"] = str(tmp_path)
    if code is not None:
        script = tmp_path / "compute-sanitizer"
        script.write_text(f"#!{shutil.which('bash')}\necho '========= ERROR SUMMARY: of a test'\nexit {code}\n")
        script.chmod(0o755)
    found = stages.attempt("memcheck", plan, 60.0)
    assert found.outcome == outcome and found.words
