# SPDX-License-Identifier: MIT
"""The doctor says what is wrong with this machine, and is not harmed by it."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import bridge
from bridge.doctor import cpu, examine, isolated, isolated_child, probe, software
from bridge.doctor.__main__ import main
from bridge.doctor.isolated import ProbeAnswer, ask
from bridge.doctor.records import Examination, Problem, Readiness, Row, Section, State
from bridge.doctor.show import show
from tests.helpers.judged.doctor import report, row, section
from tests.helpers.terminals import on_terminal
from tests.helpers.tiers import deep


@pytest.mark.parametrize(("source", "how"), [
    ("import os; os.abort()", "the process was ended by SIGABRT"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "the process was ended by SIGSEGV"),
    ("import os; os._exit(3)", "the process ended with the exit status 3"),
    ("import time; time.sleep(60)", "no answer within 0.5 s"),
    ("import subprocess; subprocess.run(['sleep', '60'])", "no answer within 0.5 s"),
])
def test_a_process_may_end_in_any_way(source: str, how: str, tmp_path: Path) -> None:
    start = time.monotonic()
    with (tmp_path / "output").open("wb") as output:
        limit = 0.5 if "60" in source else 30
        assert isolated.how_it_ended(isolated.run([sys.executable, "-c", source], limit, output), limit) == how
    assert time.monotonic() - start < 20


def test_a_child_that_answers_is_not_silent(tmp_path: Path) -> None:
    """It may take longer in all."""
    source = ("import sys, time\n"
              "for i in range(4):\n    time.sleep(0.7)\n    open(sys.argv[1], 'a').write('x')\n")
    with (tmp_path / "output").open("wb") as output:
        command = [sys.executable, "-S", "-c", source, str(tmp_path / "answers")]
        assert isolated.run(command, 2.0, output, tmp_path / "answers") == 0
        assert isolated.run(command, 0.5, output) is None


def test_what_comes_after_a_death_is_still_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The question that the child died of gets the blame, with the last words; the next child goes on behind it."""
    program = tmp_path / "inside.py"
    program.write_text("import sys\nfrom bridge.doctor import isolated_child as inside\nimport os\n"
                       "def die(word):\n    print('first', file=sys.stderr)\n"
                       "    print(word, file=sys.stderr, flush=True)\n    os.abort()\n"
                       "inside.ANSWERS['die'] = die\nsys.exit(inside.main(sys.argv[1:]))\n", encoding="utf-8")
    real = isolated.run
    monkeypatch.setattr(isolated, "run",
                        lambda command, *rest: real([sys.executable, str(program), *command[3:]], *rest))
    found = ask(["echo:a", "die:last", "echo:b", "unknown", "echo:c"], 60)
    assert list(found) == ["echo:a", "die:last", "echo:b", "unknown", "echo:c"]
    assert [found[f"echo:{word}"].value for word in "abc"] == ["a", "b", "c"]
    assert found["die:last"] == ProbeAnswer(None, "the process was ended by SIGABRT", True, "last")
    assert found["unknown"].error and not found["unknown"].died


def test_a_half_written_answer_is_none(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    path.write_text('{"question": "a", "value": 1, "error": ""}\n{"question": "b", "val', encoding="utf-8")
    assert isolated._read(path) == {"a": ProbeAnswer(1, "")}


def changed(change: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Any]:
    real = bridge.conv2d
    return lambda *given, **named: change(real(*given, **named))


@pytest.mark.parametrize("change", [
    lambda y: y[:, :, ::-1],
    lambda y: np.roll(y, 1, 3),
    lambda y: y[:, ::-1],
    lambda y: np.nextafter(y, np.float32(np.inf)),
    lambda y: np.where(np.arange(y.size).reshape(y.shape) == 17, np.float32("nan"), y),
    lambda y: y[:, :, :-1],
])
def test_a_wrong_convolution_is_seen(change: Callable[[np.ndarray], np.ndarray],
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "conv2d", changed(change))
    with pytest.raises(ValueError, match=r"^convolution: (\d+ of 240 numbers are wrong; at \(|shape )"):
        probe.probe("cpu")


def test_flipped_and_transposed_filters_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = bridge.conv2d
    for change in (lambda w: w[:, :, ::-1, ::-1], lambda w: w.transpose(0, 1, 3, 2)):
        monkeypatch.setattr(bridge, "conv2d", lambda x, w, b, change=change, **named:
                            real(x, np.ascontiguousarray(change(w)), b, **named))
        with pytest.raises(ValueError, match="convolution"):
            probe.probe("cpu")


@pytest.mark.parametrize(("name", "factor"), [("a.weight", 1.001), ("a.bias", 0.999)])
def test_a_wrong_update_is_seen(name: str, factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    real = bridge.Network.step

    def step(self: bridge.Network, *given: Any, **named: Any) -> float:
        loss = real(self, *given, **named)
        self.parameters[name][...] *= np.float32(factor)
        return loss

    monkeypatch.setattr(bridge.Network, "step", step)
    with pytest.raises(ValueError, match=f"^new {name[2:]}"):
        probe.probe("cpu")


@pytest.mark.parametrize("device", ["cpu", "naive"])
def test_the_probe_is_exact(device: str) -> None:
    assert probe.probe(device).startswith("exact")


def test_the_probe_stays_exact_in_eight_bits() -> None:
    """Operands and results are integers below 2**8: no math mode may round them."""
    x, w, b = probe.integers((2, 3, 5, 6), 1, 2), probe.integers((4, 3, 3, 3), 2, 2), probe.integers((4,), 3, 2)
    y = probe.correlated(x, w, b)
    assert max(np.abs(one).max() for one in (x, w, b, y)) < 2**8
    assert len(np.unique(y)) > 20 and all(np.array_equal(one, np.rint(one)) for one in (x, w, b, y))


def test_the_report_of_this_machine(tmp_path: Path) -> None:
    """From another folder, as a user runs it; the cpu is ready, and cuda is either ready or has a reason."""
    done = on_terminal(80, "bridge.doctor", "--json", tmp_path / "d.json", folder=tmp_path)
    assert done.code == 0, done.errors
    document = json.loads((tmp_path / "d.json").read_text(encoding="utf-8"))
    words = " ".join(" ".join(done.lines).split())
    assert words.endswith(document["words"])
    assert re.match(r"cpu: ready\. cuda: (ready \(cuda:0 .|not usable: .)", document["words"])
    assert row(document, "Self-check, with integers", "cpu")["value"].startswith("exact: ")
    assert row(document, "Fortran library", "built by")["value"].startswith("GCC")
    assert not [line for line in done.lines if len(line) > 80 and "/" not in line]
    assert not [line for line in done.lines if line != line.rstrip()]


def test_without_a_gpu_the_reason_is_the_driver(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = report(capsys, "--device", "cuda")
    if document["devices"]["cuda"]["usable"] or row(document, "CUDA", "GPU driver")["state"] == "good":
        pytest.skip("this machine has a GPU driver")
    assert code == 1
    assert document["words"] == "cpu: ready. cuda: not usable: no GPU driver (libcuda.so.1 not found)"
    first = document["devices"]["cuda"]["problems"][0]
    assert first["what"] == "no GPU driver (libcuda.so.1 not found)" and first["fix"]


def test_json_keys_are_documented(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (root / "docs" / "json.md").read_text(encoding="utf-8").partition("## The doctor's")[2]
    _, document = report(capsys)
    for key in (*document, *document["sections"][0]["rows"][0], *document["devices"]["cpu"]):
        assert f"`{key}`" in text or f"`{key}[]`" in text, key


def test_bad_usage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--json", str(tmp_path / "no" / "d.json")]) == 2
    assert "no such folder" in capsys.readouterr().err
    for wrong in ("0", "nan", "soon", "inf"):
        with pytest.raises(SystemExit):
            main(["--time-limit", wrong])
    assert "expected seconds" in capsys.readouterr().err


def test_the_path_for_other_programs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The user's folders come first, as the library looks for them."""
    monkeypatch.setenv("CNN_CUDA_PATH", "/one")
    monkeypatch.setenv("CNN_CUDA_WHEELS", "/two:/three")
    assert main(["--cuda-path"]) == 0
    assert capsys.readouterr().out == "/one:/two:/three\n"
    monkeypatch.setenv("CNN_CUDA_PATH", "[bold]/a:cat:/b" + "/long" * 40)
    assert main(["--cuda-path"]) == 0
    assert capsys.readouterr().out == "[bold]/a:cat:/b" + "/long" * 40 + ":/two:/three\n"
    monkeypatch.setenv("CNN_CUDA_PATH", "")
    monkeypatch.setenv("CNN_CUDA_WHEELS", "")
    assert main(["--cuda-path"]) == 1
    assert "pip install" in capsys.readouterr().err


def test_a_library_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The cpu is not ready then, and that is exit code 1."""
    died = {"library": ProbeAnswer(error="the process was ended by SIGILL", died=True, said="bad instruction"),
            "cpu": ProbeAnswer(error="the process was ended by SIGILL", died=True),
            "probe:cpu": ProbeAnswer(error="the process was ended by SIGILL", died=True)}
    monkeypatch.setattr(examine, "ask", lambda *given: died)
    code, document = report(capsys)
    assert code == 1
    assert document["words"].startswith("cpu: not usable: the Fortran library: the process was ended by SIGILL while "
                                        "it was loaded: bad instruction. cuda: not usable: ")
    assert document["devices"]["cpu"]["problems"][0]["fix"] == "make setup"


@pytest.mark.parametrize(("source", "words"), [
    ("raise ImportError('libgfortran.so.5: no such file')",
     "the Fortran library: the Fortran extension cnn_fortran cannot be loaded (libgfortran.so.5: no such file)"),
    ("import os, sys\nprint('illegal instruction', file=sys.stderr, flush=True)\nos.abort()",
     "the Fortran library: the process was ended by SIGABRT while it was loaded: illegal instruction"),
])
def test_a_broken_extension(source: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                            capsys: pytest.CaptureFixture[str]) -> None:
    """The real thing, in the child; the doctor itself never loads it."""
    (tmp_path / "cnn_fortran.py").write_text(source, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    code, document = report(capsys)
    assert code == 1
    first = document["devices"]["cpu"]["problems"][0]
    assert first["what"].startswith(words) and first["fix"] == "make setup"
    assert document["devices"]["cuda"]["problems"][0]["what"] == "the Fortran library cannot be used"


def test_the_cpu_as_it_computes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the text and in the JSON: instruction set, threads, and a way for each pass of each layer."""
    monkeypatch.delenv("CNN_CPU_LEVEL", raising=False)
    monkeypatch.delenv("CNN_CPU_CAP", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    code, document = report(capsys)
    facts = document["cpu_facts"]
    assert code == 0 and facts["level"] == facts["best"] and facts["level"] in cpu.LEVELS and facts["threads"] == "3"
    passes = [f"{layer} {one}" for layer in ("conv1", "conv2", "conv3")
              for one in ("output", "data gradient", "filter gradient")]
    assert set(facts) == {"level", "best", "threads", "training", *passes}
    assert re.match(r"conv1 \.\. conv3: outputs depth first, in windows of \d+ rows", facts["training"])
    for name in passes:
        assert re.fullmatch(r"im2col|direct, in bands of \d+ rows of \d+ pixels", facts[name]), name
    rows = {one["name"]: one for one in section(document, "CPU")}
    assert rows["instruction set"] == {"name": "instruction set", "value": facts["level"], "state": "good",
                                       "note": "the best of this processor and this build"}
    assert rows["threads"]["value"] == "3" and rows["training"]["value"] == facts["training"]
    assert facts["conv2 output"] in rows["conv2"]["value"]
    assert rows["conv2"]["note"] == "16 to 16 channels, 2 x 1024 x 1024, float32"


def test_a_level_that_was_chosen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It works, and the report says what it costs."""
    monkeypatch.setenv("CNN_CPU_LEVEL", "baseline")
    code, document = report(capsys)
    best = document["cpu_facts"]["best"]
    line = row(document, "CPU", "instruction set")
    said = [one for one in document["advice"] if "CNN_CPU_LEVEL" in one["what"]]
    assert code == 0 and line["value"] == "baseline" and "chosen by CNN_CPU_LEVEL" in line["note"]
    assert said == ([] if best == "baseline" else [
        {"what": f"CNN_CPU_LEVEL is baseline: the cpu is slower than with {best}", "fix": "unset CNN_CPU_LEVEL"}])
    assert row(document, "Environment variables", "CNN_CPU_LEVEL")["value"] == "baseline"


def test_a_cap_is_said_beside_the_level(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CNN_CPU_LEVEL", raising=False)
    monkeypatch.setenv("CNN_CPU_CAP", "baseline")
    code, document = report(capsys)
    line = row(document, "CPU", "instruction set")
    assert code == 0 and (line["value"], document["cpu_facts"]["best"]) == ("baseline", "baseline")
    assert line["note"] == "the best of this processor and this build, of which CNN_CPU_CAP allows no more"


@pytest.mark.parametrize(("variable", "value", "expected"), [
    ("CNN_CPU_LEVEL", "sse9", "baseline, avx2 or avx512"), deep("CNN_CPU_CAP", "avx1", "baseline, avx2 or avx512"),
    deep("CNN_CPU_LANES", "lanes", "pixels or channels")])
def test_a_level_or_way_that_does_not_exist(variable: str, value: str, expected: str,
                                            capsys: pytest.CaptureFixture[str],
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """The one thing to do about it is to take it away: nothing is broken."""
    monkeypatch.setenv(variable, value)
    code, document = report(capsys)
    words = f'{variable} is "{value}", expected {expected}'
    assert code == 1 and document["words"].startswith(f"cpu: not usable: {words}")
    assert document["devices"]["cpu"]["problems"] == [{"what": words, "fix": f"unset {variable}"}]
    assert document["cpu_facts"] == {}
    for title, name in (("CPU", "instruction set"), ("Environment variables", variable)):
        assert row(document, title, name)["state"] == "bad"


def test_a_level_that_the_processor_lacks() -> None:
    """On a machine that is not here: as the library says it."""
    words = 'CNN_CPU_LEVEL is "avx512", but the best that this processor and this build have is avx2'
    assert cpu.problems(ProbeAnswer(error=words)) == [Problem(words, "unset CNN_CPU_LEVEL")]
    assert not cpu.problems(ProbeAnswer(error="the process was ended by SIGILL", died=True))
    (only,) = cpu.section(ProbeAnswer(error=words)).rows
    assert (only.value, only.state) == (words, State.BAD)


def test_one_way_for_all_passes_is_said_once() -> None:
    known = {"level": "avx2", "best": "avx2", "threads": "8", "training": "all: on device cpu"}
    known |= {f"{layer} {one}": "im2col" for layer in cpu.LAYERS for one in cpu.PASSES}
    assert {one.value for one in cpu.section(ProbeAnswer(known)).rows if one.name in cpu.LAYERS} == {"im2col"}
    known["conv3 data gradient"] = "direct, in bands of 9 rows of 7 pixels"
    values = {one.name: one.value for one in cpu.section(ProbeAnswer(known)).rows}
    assert values["conv3"] == ("output: im2col; data gradient: direct, in bands of 9 rows of 7 pixels; "
                               "filter gradient: im2col")


def test_long_lines_are_wrapped_and_paths_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Row("name", "word " * 30, State.BAD, "note " * 30), Row("library", "9.19", State.GOOD, "/very" * 30),
            Row("short", "value", State.FACT, "a [bold] note")]
    problem = Problem("what " * 30, "sudo do " + "this " * 30)
    found = Examination([Section("Title", rows)], Readiness("cpu", [problem]), Readiness("cuda"), [], {})
    show(Console(width=80), found)
    lines = capsys.readouterr().out.splitlines()
    assert {line for line in lines if len(line) > 80} == {f"{' ' * 24}{'/very' * 30}", f"    {problem.fix}"}
    assert "  short                 value (a [bold] note)" in lines
    assert lines[-1].startswith("what") and " ".join(lines[-3:]).endswith(". cuda: ready")


def test_hostile_text_does_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes that are no text, and what a terminal acts on; from a variable, a file name, a library's last words."""
    bad = "a\x1b[31m\udcff"
    show(Console(width=80), Examination([Section("T", [Row("n", bad, State.FACT, bad)])], Readiness("cpu"), Readiness(
        "cuda", [Problem(bad, bad)]), [], {}))
    said = capsys.readouterr().out
    assert said.count("a?[31m?") == 5 and said.isascii() and "\x1b" not in said


def test_variables_that_harm_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in software.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert all(one.state is State.ABSENT for one in software.variables_section().rows)
    monkeypatch.setenv("CNN_CUDA_PATH", "/nowhere/at/all")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    rows = {one.name: one for one in software.variables_section().rows}
    assert rows["CNN_CUDA_PATH"].state is State.BAD and "no such folder" in rows["CNN_CUDA_PATH"].note
    assert rows["CUDA_VISIBLE_DEVICES"].state is State.BAD and rows["CUDA_VISIBLE_DEVICES"].value == "empty"
    assert rows["NVIDIA_TF32_OVERRIDE"].state is State.FACT and "forbids TF32" in rows["NVIDIA_TF32_OVERRIDE"].note
    assert rows["OMP_NUM_THREADS"].value == "4"


def test_compilers_of_all_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gfortran-13", "flang-new-19", "flang-22", "flang-mlir-opt", "nvfortran", "ifx.txt"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo && echo '{name} says'\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(os, "get_exec_path", lambda: [str(tmp_path)])
    rows = software.compilers_section().rows
    assert [(one.name, one.value) for one in rows] == [
        ("gfortran-13", "gfortran-13 says"), ("flang-22", "flang-22 says"), ("flang-new-19", "flang-new-19 says"),
        ("nvfortran", "nvfortran says"), ("ifx", "not on the search path")]


def test_the_child_answers_what_is_raised(tmp_path: Path) -> None:
    assert isolated_child.main([str(tmp_path / "a"), "nonsense", "echo:x"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "a").read_text(encoding="utf-8").splitlines()]
    assert [one["value"] for one in lines] == [None, "x"] and lines[0]["error"]
