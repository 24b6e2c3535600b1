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

from benchmarks.gpu_check import __main__ as program
from benchmarks.gpu_check import stages
from benchmarks.gpu_check.plan import Found, Plan
from benchmarks.harness import gpu_device
from benchmarks.harness.children import ChildError, Done
from benchmarks.harness.document import RESULTS
from benchmarks.harness.processes import ROOT
from bridge.engine.library import nvidia_wheels
from bridge.engine.library.nvidia_wheels import VARIABLE
from tests import software_device

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
    (tmp_path / "logs").mkdir()
    return Plan(tmp_path, tmp_path / "logs", "software device", "cuda", "24x20", "23x18", [], dict(os.environ))


@pytest.fixture(scope="module")
def libraries() -> Path:
    """The software device."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    return software_device.build()


def test_without_a_gpu_it_is_one_line(tmp_path: Path) -> None:
    """Where there is a GPU it is hidden, and where there is a software device, too."""
    done = check(OUT=str(tmp_path), CUDA_VISIBLE_DEVICES="", CNN_CUDA_PATH="")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("gpu-check: skipped: ") and done.stdout.count("\n") == 1
    assert len(done.stdout) > 30
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_can_be_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setattr(gpu_device, "doctor", lambda *_: gpu_device.Seen(False, "no GPU driver", {}, {}))
    assert [program.main(options) for options in ([], ["--require"])] == [0, 1]


def test_a_software_device_in_the_path_is_no_gpu(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    """As the documentation shows it, for other programs."""
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setenv("CNN_CUDA_PATH", str(libraries))
    assert program.main([]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "software device (no GPU)" in said.err and "expected a GPU" in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [("--device", "cpu"), ("--device", "cuda:"), ("--budget", "-1")])
def test_bad_usage_is_2(arguments: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    assert program.main(arguments) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and arguments[1] in said


@pytest.mark.deep
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
    # What child processes have said is beside the JSON
    logs = [one.name for one in (tmp_path / "check.logs").iterdir()]
    assert "01-reference.export.out" in logs and sum(name.endswith("-pytest.out") for name in logs) == 1
    assert "/" not in document["cuda"]["cudnn library"] and document["packages"]["numpy"]
    assert str(ROOT) not in json.dumps(document)


@pytest.mark.deep
def test_a_stage_that_fails_stops_nothing(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    """Its reason is written, the others are run, and the exit code is 1."""
    def broken(*_: object) -> Found:
        raise RuntimeError("nobody thought of this")

    seen = gpu_device.Seen(True, "a software device", {}, {})
    monkeypatch.setattr(gpu_device, "doctor", lambda *_: seen)
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
    monkeypatch.setattr(gpu_device, "doctor", lambda *_: gpu_device.Seen(True, "a software device", {}, {}))
    path = tmp_path / "check.json"
    assert program.main(["--pretend", str(libraries), "--output", str(path), "--budget", "0"]) == 1
    found = json.loads(path.read_text(encoding="utf-8"))["stages"]
    assert len(found) == len(stages.STAGES) and {one["words"] for one in found} == {"not run: the time was up"}


@pytest.mark.parametrize("output", [[], ["--output", str(RESULTS / "pretended.json")]])
def test_nothing_pretended_gets_among_the_results(output: list[str], tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--pretend", str(tmp_path), *output]) == 2
    assert "outside of benchmarks/results" in capsys.readouterr().err


def test_where_the_json_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To --output, else into $OUT, else among the results."""
    def place(*arguments: str) -> Path:
        return gpu_device.output_file(program.parser().parse_args(arguments), program.OUTPUT)

    monkeypatch.delenv("OUT", raising=False)
    assert place() == ROOT / "benchmarks" / "results" / "gpu_check.json"
    monkeypatch.setenv("OUT", str(tmp_path))
    assert place() == tmp_path / "gpu_check.json"
    assert place("--output", str(tmp_path / "b.json")) == tmp_path / "b.json"


def test_children_are_told_of_nvidias_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program cnn_step cannot look for them itself."""
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(nvidia_wheels, "name_wheels", lambda: os.environ.update({VARIABLE: "/a/lib"}))
    assert gpu_device.environment(None)[VARIABLE] == "/a/lib"


@pytest.mark.deep
def test_what_a_stage_had_said_is_kept(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end in the JSON, without the names of folders; and each stage is on file before the next one begins."""
    path, seen = tmp_path / "check.json", []

    def late(plan: Plan, _: float) -> Found:
        raise ChildError("no end within 9 s", f"began\n\n{plan.folder}/a.h5 and {ROOT}/tests/b.py\n")

    def reads(*_: object) -> Found:
        seen.append(json.loads(path.read_text(encoding="utf-8")))
        return Found("passed", "read")

    monkeypatch.setattr(gpu_device, "doctor", lambda *_: gpu_device.Seen(True, "a software device", {}, {}))
    monkeypatch.setitem(stages.STAGES, "tf32", late)
    monkeypatch.setitem(stages.STAGES, "cross", reads)
    (tmp_path / "check.logs").mkdir()
    for name in ("01-pytest.out", "mine.txt"):
        (tmp_path / "check.logs" / name).write_text("of another run")
    assert program.main(["--pretend", str(libraries), "--output", str(path), "--stages", "tf32,cross"]) == 1
    tf32, cross = json.loads(path.read_text(encoding="utf-8"))["stages"]
    assert tf32["words"] == "no end within 9 s" and "said" not in cross
    assert tf32["said"] == ["began", "FOLDER/a.h5 and tests/b.py"]
    assert (seen[0]["words"], seen[0]["exit_code"]) == ("software device: not finished", 1)
    assert [one["name"] for one in seen[0]["stages"]] == ["tf32"]
    assert [one.name for one in (tmp_path / "check.logs").iterdir()] == ["mine.txt"]


def test_what_a_child_says_is_there_as_it_comes(plan: Plan) -> None:
    """Also when it is ended in the middle: in the files, and in the error."""
    program = "import sys, time; print('out'); print('error', file=sys.stderr); time.sleep(60)"
    with pytest.raises(ChildError, match="no end within 2 s") as raised:
        plan.run(2.0, sys.executable, "-c", program)
    assert raised.value.said == "out\nerror\n"
    assert {one.suffix: one.read_text() for one in plan.logs.iterdir()} == {".out": "out\n", ".err": "error\n"}
    plan.run(60.0, sys.executable, "-m", "platform")
    assert (plan.logs / "02-platform.out").read_text() and not (plan.logs / "02-platform.err").exists()


def test_a_child_with_children_ends_in_time(plan: Plan) -> None:
    start = time.monotonic()
    with pytest.raises(ChildError, match="bash: no end within 0 s"):
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
def test_the_stage_of_tests(plan: Plan, tmp_path: Path, source: str, outcome: str, counts: dict[str, int],
                            monkeypatch: pytest.MonkeyPatch) -> None:
    """One test that fails is enough, and so is none at all."""
    monkeypatch.setattr(stages, "workers", lambda: ([], {}))
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


@pytest.mark.deep
def test_plugins_of_others_are_not_loaded(plan: Plan, tmp_path: Path) -> None:
    """They may warn, which is an error in the tests, or worse; pytest-xdist is taken where it is."""
    (tmp_path / "foreign_plugin.py").write_text("raise RuntimeError('a foreign plugin was loaded')\n")
    metadata = tmp_path / "foreign-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[pytest11]\nforeign = foreign_plugin\n")
    path = tmp_path / "test_some.py"
    path.write_text(PASSES)
    plan.environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    found = stages.tests(replace(plan, tests=[str(path)]), 100.0)
    assert found.outcome == "passed", found.said


@pytest.mark.parametrize(("cores", "threads", "expected"), [
    (16, "", (["-p", "xdist.plugin", "-n", "8"], {"OMP_NUM_THREADS": "2"})),
    (2, "3", (["-p", "xdist.plugin", "-n", "2"], {"OMP_NUM_THREADS": "3"})), (1, "", ([], {}))])
def test_processes_that_share_the_tests(monkeypatch: pytest.MonkeyPatch, cores: int, threads: str,
                                        expected: tuple[list[str], dict[str, str]]) -> None:
    """Eight at most, and none where there is no pytest-xdist."""
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    assert stages.workers() == expected
    monkeypatch.setattr(stages.importlib.util, "find_spec", lambda _: None)
    assert stages.workers() == ([], {})


@pytest.mark.parametrize("lines", [
    ["[gw0] [  1%] PASSED tests/a.py::b ", "tests/a.py::c[x y] ", "[gw11] [ 99%] FAILED tests/a.py::c[x y] "],
    ["tests/a.py::b PASSED                  [  1%]", "tests/a.py::c[x y] FAILED   [ 99%]", "tests/a.py::d "]])
def test_tests_whose_time_was_up(lines: list[str]) -> None:
    """What had failed until then is named, with several processes and with one."""
    found = stages.unfinished(ChildError("python: no end within 240 s", "\n".join(lines)))
    assert (found.outcome, found.words) == ("failed", "python: no end within 240 s; until then 1 passed, 1 failed")
    assert found.numbers == {"passed": 1, "failed": 1, "wrong": ["FAILED tests/a.py::c[x y]"]}
    assert found.said == "\n".join(lines)


@pytest.mark.deep
@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
@pytest.mark.parametrize("name", ["gpu-check", "gpu-bench"])
def test_make_where_nothing_can_be_set_up(tmp_path: Path, name: str) -> None:
    """The Python at hand is taken where it has the package; else it is said what to do."""
    for one in ("Makefile", "benchmarks", "bridge", "reference"):
        (tmp_path / one).symlink_to(ROOT / one)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "gpu", tmp_path / ".ci")
    (tmp_path / ".ci" / "setup").write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
    (tmp_path / ".ci" / "setup").chmod(0o755)
    empty = tmp_path / "python-without-it"
    empty.write_text("#!/bin/sh\nexit 1\n")
    empty.chmod(0o755)

    def make(python: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["make", name, "ARGS=--help"], cwd=tmp_path, text=True, capture_output=True, check=False,
                              env=os.environ | {"PYTHON": python})

    done = make(sys.executable)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "nothing is set up" in done.stdout and f"usage: python -m benchmarks.{name.replace('-', '_')}" in done.stdout
    done = make(str(empty))
    assert done.returncode != 0 and "no network" in done.stderr
    assert f"{empty} -m benchmarks.{name.replace('-', '_')}" in done.stderr
