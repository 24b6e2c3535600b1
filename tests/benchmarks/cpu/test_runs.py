# SPDX-License-Identifier: MIT
"""``python -m benchmarks``: runs that alternate, who is not there is named, the command line."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as program
from benchmarks.cpu import SECTIONS, step
from benchmarks.cpu.tools.machine_peak import MachinePeak
from benchmarks.cpu.tools.runs import check_agreement, compare, worker
from benchmarks.frameworks import cpu as frameworks
from benchmarks.frameworks.cpu import COMPILED, JAX_NHWC, MEMORY_KEPT, OURS
from benchmarks.harness import processors
from benchmarks.harness.document import Goal, Options
from benchmarks.harness.errors import BenchmarkError, NotHere
from benchmarks.harness.workloads import PASSES, Conv, Net

TINY = Net(size=6, batch=1)
TASK = {"net": TINY.as_dict()}


class Scripted:
    """In place of a process: takes a given time, and notes when it was asked."""

    def __init__(self, name: str, seconds: float, asked: list[str], checksum: float = 1.0,
                 turns: int = 1000) -> None:
        self.name, self.seconds, self.asked, self.checksum, self.turns = name, seconds, asked, checksum, turns

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        if do == "build":
            return {"seconds": self.seconds, "checksum": self.checksum, "memory": {}}
        self.asked.append(self.name)
        if len(self.asked) > self.turns:
            raise BenchmarkError("killed")
        return {"seconds": self.seconds / request["calls"]}


def named(*processes: Scripted) -> dict[str, Scripted]:
    return {one.name: one for one in processes}


def test_runs_alternate() -> None:
    """There and back; a short call is repeated; once in a round the machine is measured."""
    asked: list[str] = []
    found = compare(named(Scripted("a", 0.02, asked), Scripted("b", 2.0, asked)), TINY, 3,
                    between=lambda: asked.append("peak"))
    assert asked == ["peak", "a", "b", "peak", "b", "a", "peak", "a", "b"]
    assert found["a"]["calls"] == 5 and found["b"]["calls"] == 1
    assert found["a"]["median"] == pytest.approx(0.004) and found["b"]["median"] == 2.0 and found["b"]["runs"] == 3


@pytest.mark.deep
def test_a_peer_that_dies_in_the_middle_is_skipped_and_we_are_not() -> None:
    found = compare(named(Scripted("a", 1.0, []), Scripted("b", 1.0, [], turns=2)), TINY, 3)
    assert found["a"]["runs"] == 3 and found["b"] == {"skipped": "b: killed"}
    with pytest.raises(BenchmarkError, match="killed"):
        compare(named(Scripted(OURS, 1.0, [], turns=2)), TINY, 3)


def test_who_computes_something_else_is_not_compared() -> None:
    with pytest.raises(BenchmarkError, match=r"b computes 1\.01, a 1: not the same work"):
        compare(named(Scripted("a", 1.0, []), Scripted("b", 1.0, [], 1.01)), TINY, 1)
    check_agreement({"a": {"checksum": 1.0}, "b": {"checksum": 1.0001}, "c": {"skipped": "why"}}, "float32")
    for wrong in (math.nan, 1.01):
        with pytest.raises(BenchmarkError):
            check_agreement({"a": {"checksum": 1.0}, "b": {"checksum": wrong}}, "float32")
    with pytest.raises(BenchmarkError, match="a computes inf, expected a finite number"):
        check_agreement({"a": {"checksum": math.inf}, "b": {"checksum": math.inf}}, "float32")


def fake_jax(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """What a framework finds in place of JAX."""
    (folder / "jax.py").write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_a_peer_that_is_not_installed_is_skipped_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_jax(tmp_path, monkeypatch, "raise ModuleNotFoundError('no', name='jax')\n")
    with worker(OURS, 1) as ours, worker(JAX_NHWC, 1) as jax:
        found = compare({OURS: ours, JAX_NHWC: jax}, TINY, 1)
    assert found[JAX_NHWC] == {"skipped": "jax is not installed"}
    assert found[OURS]["median"] > 0


def test_a_peer_that_dies_is_skipped_with_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_jax(tmp_path, monkeypatch, "import sys, os\nsys.stderr.write('no luck\\n')\nsys.stderr.flush()\nos._exit(3)\n")
    with worker(JAX_NHWC, 1) as jax:
        assert compare({JAX_NHWC: jax}, TINY, 1)[JAX_NHWC] == {"skipped": f"{JAX_NHWC}: ended with status 3: no luck"}


def test_our_own_failure_ends_the_section() -> None:
    with worker(OURS, 1) as ours, pytest.raises(BenchmarkError, match=r"bridge: ended with status 1: .*kernel"):
        compare({OURS: ours}, Conv(1, 1, 2, 2, 1, 3, 3), 1, "forward")


@pytest.mark.deep
def test_torch_compile_without_a_compiler_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(NotHere, match=r"needs a C\+\+ compiler"):
        frameworks.build(COMPILED, TASK)
    with pytest.raises(NotHere, match="gfortran is not on the search path"):
        MachinePeak(tmp_path)


def state(pid: int) -> str:
    """A letter of the kernel's; "gone" for a process that is no more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


def wait_for(pid: int, wanted: tuple[str, ...]) -> str:
    end = time.monotonic() + 20
    while state(pid) not in wanted and time.monotonic() < end:
        time.sleep(0.01)
    return state(pid)

PARENT = """
import sys, time
from benchmarks.cpu.tools.runs import worker
one = worker("bridge", 1)
one.ask("build", task={task})
print(one.number, flush=True)
time.sleep(100)
"""


@pytest.mark.deep
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_who_waits_is_stopped_and_ends_with_its_parent(root: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT.replace("{task}", repr(TASK))], cwd=root, text=True,
                              stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent:
        child = int(parent.stdout.readline())
        try:
            assert wait_for(child, ("T",)) == "T"
        finally:
            parent.send_signal(signal.SIGKILL)
    assert wait_for(child, ("gone", "Z")) in ("gone", "Z")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processes cannot be bound to processors here")
def test_threads_are_equal_for_all() -> None:
    found = processors.environment(3)
    assert {found[variable] for variable in processors.THREAD_VARIABLES} == {"3"}
    assert sorted(processors.available()) == sorted(os.sched_getaffinity(0))


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(SECTIONS)
    for wrong in (["nonsense"], ["--runs", "0"]):
        with pytest.raises(SystemExit) as ended:
            program.main(wrong)
        assert ended.value.code == 2
    with pytest.raises(SystemExit):
        program.main(["--help"])
    text = capsys.readouterr().out
    assert all(section in text for section in SECTIONS) and "examples:" in text and "exit codes:" in text


def test_a_section_that_fails_does_not_hide_the_others(capsys: pytest.CaptureFixture[str], tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        @staticmethod
        def measure(*_: object) -> None:
            raise BenchmarkError("nobody is here")

    class Working:
        @staticmethod
        def measure(options: Options, _: object) -> tuple[dict[str, Any], list[Goal]]:
            assert options.without == ("torch",) and options.rounds(5) == 4
            return {"value": 1}, [Goal("the other section", 2.0, 1.0)]

        @staticmethod
        def tables(_: object) -> list[Any]:
            return []

    monkeypatch.setattr(program, "module", {"calls": Failing, "files": Working}.__getitem__)
    assert program.main(["calls", "files", "--output", str(tmp_path), "--runs", "4", "--without", "torch"]) == 1
    said = capsys.readouterr()
    assert "benchmarks: calls: nobody is here" in said.err
    assert "the other section" in said.out and "met" in said.out
    assert [path.name for path in tmp_path.iterdir()] == ["files.json"]
    assert json.loads((tmp_path / "files.json").read_text(encoding="utf-8"))["value"] == 1


def test_left_out_frameworks_are_named() -> None:
    options = Options(without=("jax", "torch.compile"))
    assert set(options.left_out(step.PEERS)) | {MEMORY_KEPT} == set(step.SLOW_TO_START)
    assert Options().left_out(step.PEERS, slow=step.PEERS) == {}


def test_every_pass_has_a_picture_and_a_name() -> None:
    from benchmarks.cpu.tools.pictures import MARKERS

    assert tuple(MARKERS) == PASSES
