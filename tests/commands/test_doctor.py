# SPDX-License-Identifier: MIT
"""The doctor says what is wrong, and is not harmed by it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import bridge
from bridge.doctor import advice, cpu, cuda, examine, isolated, isolated_child, machine, probe, software
from bridge.doctor.__main__ import main
from bridge.doctor.cuda import CudaFacts
from bridge.doctor.isolated import ProbeAnswer, ask
from bridge.doctor.machine import Machine
from bridge.doctor.records import Examination, Problem, Readiness, Row, Section, State
from bridge.doctor.show import show
from tests import software_device
from tests.helpers.cuda import broken_libraries as broken_cuda
from tests.helpers.terminals import on_terminal
from tests.helpers.tiers import few_rows

#: Seconds: long enough for a child to start on a busy machine, short enough to wait for
SHORT = 8.0
NOWHERE = Machine(cards=[], module="")


@pytest.fixture(autouse=True)
def no_other_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the PyTorch of this machine brings."""
    monkeypatch.setattr(advice, "torch_build", lambda: "built without CUDA")


def report(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON."""
    code = main(["--json", "-", *options])
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == code
    return code, document


def section(document: dict[str, Any], title: str) -> list[dict[str, str]]:
    (found,) = (one["rows"] for one in document["sections"] if one["title"] == title)
    return found


def row(document: dict[str, Any], title: str, name: str) -> dict[str, str]:
    return next(one for one in section(document, title) if one["name"] == name)


# --- processes that end in every way


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
              "for i in range(4):\n    time.sleep(0.3)\n    open(sys.argv[1], 'a').write('x')\n")
    with (tmp_path / "output").open("wb") as output:
        command = [sys.executable, "-S", "-c", source, str(tmp_path / "answers")]
        assert isolated.run(command, 0.5, output, tmp_path / "answers") == 0
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


# --- the probe is right, and sees what is wrong


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


# --- this machine


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


# --- the device cpu


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
    ("CNN_CPU_LEVEL", "sse9", "baseline, avx2 or avx512"), ("CNN_CPU_CAP", "avx1", "baseline, avx2 or avx512"),
    ("CNN_CPU_LANES", "lanes", "pixels or channels")])
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


# --- broken CUDA installations


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For broken libraries, looked in first."""
    monkeypatch.setenv("CNN_CUDA_PATH", str(tmp_path))
    return tmp_path


def found_here(name: str, limit: float = 120.0) -> tuple[CudaFacts, str]:
    """The examination, and what it says of one library."""
    found = cuda.find(limit)
    (said,) = (one for one in advice.problems(found, NOWHERE) if one.what.startswith(name))
    return found, f"{said.what} -> {said.fix}"


@pytest.mark.parametrize(("harm", "how"), few_rows([
    (broken_cuda.ABORTS, "the process was ended by SIGABRT while loading {}: Invalid handle. Cannot load symbol "
                         "cudnnCreate"),
    (broken_cuda.CRASHES, "the process was ended by SIGSEGV while loading {}"),
    (broken_cuda.EXITS, "the process ended with the exit status 3 while loading {}"),
    (broken_cuda.HANGS, "no answer within 8 s while loading {}"),
], lambda row: row[0] != broken_cuda.HANGS))
def test_a_library_that_ends_or_stops_the_process(harm: str, how: str, folder: Path) -> None:
    """One line of the report; the questions behind it are answered all the same."""
    path = broken_cuda.make_library(folder / "libcudnn.so.9", when_loaded=harm)
    found, said = found_here("cuDNN: ", SHORT if harm == broken_cuda.HANGS else 120.0)
    assert said == f"cuDNN: {how.format(path)} -> take {folder} out of CNN_CUDA_PATH, or repair what is in it"
    assert set(found.errors) >= {"cudnn"} and "build" not in found.errors and "kernels target" in found.facts


def test_the_library_that_is_blamed_is_the_one_that_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As fortran/cuda/bindings/libraries.f90 looks: variable by variable, folder by folder, name by name."""
    for number, name in (("1", "libcudart.so.12"), ("2", "libcudart.so.13"), ("3", "libcudnn.so.9")):
        (tmp_path / number).mkdir()
        (tmp_path / number / name).touch()
    monkeypatch.setenv("CNN_CUDA_PATH", f"{tmp_path}/0::{tmp_path}/1")
    monkeypatch.setenv("CNN_CUDA_WHEELS", f"{tmp_path}/2:{tmp_path}/3")
    assert cuda.path_of("cudart") == f"{tmp_path}/1/libcudart.so.12"
    assert cuda.path_of("cudnn") == f"{tmp_path}/3/libcudnn.so.9"
    assert cuda.path_of("driver") == "libcuda.so.1"


def test_an_empty_file(folder: Path) -> None:
    (folder / "libcudnn.so.9").touch()
    _, said = found_here("cuDNN: ")
    assert "libcudnn.so.9 is there but cannot be opened" in said and "file too short" in said


def test_missing_functions(folder: Path) -> None:
    broken_cuda.make_library(folder / "libcudnn.so.9", functions="long cudnnGetVersion(void) { return 91900; }\n")
    _, said = found_here("cuDNN: ")
    assert "these functions are missing: cudnn" in said


def test_a_missing_part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN itself would end the process."""
    monkeypatch.setenv("CNN_CUDA_WHEELS", "")
    broken_cuda.make_library(folder / "libcudnn.so.9",
                        functions=broken_cuda.with_all_symbols("cudnn", cudnnGetVersion=91900))
    _, said = found_here("cuDNN: ")
    if "built for CUDA" in said:
        pytest.skip("the loader finds the parts of another cuDNN")
    assert f"cuDNN: {folder}/libcudnn.so.9" in said and "libcudnn_graph.so.9" in said


def test_a_wrong_version(folder: Path) -> None:
    """Complete, but another cuDNN than ours."""
    broken_cuda.make_library(folder / "libcudnn.so.9",
                        functions=broken_cuda.with_all_symbols("cudnn", cudnnGetVersion=81000))
    for part in ("graph", "ops", "cnn", "adv", "heuristic", "engines_precompiled", "engines_runtime_compiled"):
        (folder / f"libcudnn_{part}.so.9").symlink_to(folder / "libcudnn.so.9")
    _, said = found_here("cuDNN: ")
    assert "found cuDNN version 81000, expected 9.x" in said


# --- the software device


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The strict software device in place of a GPU."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not on the search path")
    monkeypatch.setenv("CNN_CUDA_PATH", str(software_device.build()))


def test_a_device_that_works(device: None, capsys: pytest.CaptureFixture[str]) -> None:
    """All is green, and it says what it is."""
    code, document = report(capsys, "--device", "cuda")
    assert code == 0
    assert document["words"] == "cpu: ready. cuda: ready (cuda:0 strict software device (no GPU))"
    assert {one["state"] for one in section(document, "CUDA")} == {"good"}
    checks = {one["name"]: one["value"] for one in section(document, "Self-check, with integers")}
    assert checks["cuda:0"] == "exact: a 3x3 convolution, one training step"
    modes = document["cuda_facts"]["device 0 math"].split()
    assert modes == ["fp32", "tf32", "fp16", "bf16"]
    assert set(checks) == {"cpu", "cuda:0", *(f"cuda:0,math={mode}" for mode in modes[1:])}
    assert "cnn_mse_f32" in document["cuda_facts"]["kernels entries"].split()
    assert int(document["cuda_facts"]["device 0 memory total"]) == 2**30


@pytest.mark.parametrize(("capability", "modes"), [
    ("50", "fp32"), ("53", "fp32 fp16"), ("75", "fp32 fp16"), ("80", "fp32 tf32 fp16 bf16"),
    ("120", "fp32 tf32 fp16 bf16"),
])
def test_what_a_device_can_do(capability: str, modes: str, device: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRICT_CAPABILITY", capability)
    facts = ask(["facts:devices"], 60)["facts:devices"].value
    assert facts["device 0 math"] == modes
    assert facts["device 0 compute capability"] == f"{capability[:-1]}.{capability[-1]}"


def test_versions_as_people_write_them(device: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("CUDART", 13010), ("DRIVER", 13120), ("CUDNN", 91105), ("CUDNN_CUDART", 13020)):
        monkeypatch.setenv(f"STRICT_{name}_VERSION", str(value))
    answers = ask([f"facts:{part}" for part in ("driver", "cudart", "cudnn")], 60)
    facts = {name: value for one in answers.values() for name, value in one.value.items() if "library" not in name}
    assert facts == {"driver version": "13.12", "cudart version": "13.1", "cudnn version": "9.11.5",
                     "cudnn CUDA": "13.2"}


def test_two_devices_of_which_one_fails(device: None, monkeypatch: pytest.MonkeyPatch,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    """Devices are told apart; the first that works is enough."""
    monkeypatch.setenv("STRICT_DEVICES", "2")
    # Each device makes one handle, device by device
    monkeypatch.setenv("STRICT_FAIL", "cudnnCreate:2:4000")
    code, document = report(capsys, "--device", "cuda")
    assert code == 0 and document["words"].endswith("cuda: ready (cuda:0 strict software device (no GPU))")
    (said,) = (one["what"] for one in document["advice"] if one["what"].startswith("cuda:"))
    assert said.startswith("cuda:1: cuDNN: ") and "4000" in said


@pytest.mark.parametrize(("settings", "words"), few_rows([
    ({"STRICT_DEVICES": "0"}, "the driver sees no GPU"),
    ({"STRICT_FAIL": "cudnnCreate:0:1001"}, "cuda:0: cuDNN: cudnnCreate: CUDNN_STATUS_NOT_INITIALIZED (1001)"),
    ({"STRICT_FAIL": "cudaMalloc:0:2"}, "out of memory"),
    ({"STRICT_FAIL": "cuInit:0:803"}, "GPU driver: the kernel's driver and libcuda.so.1 have different versions"),
    ({"STRICT_FAIL": "cuInit:0:7"}, "GPU driver: CUDA driver: start the driver"),
    ({"STRICT_FAIL": "cudaGetDeviceCount:0:35"}, "the GPU driver serves CUDA 13.0, the runtime is CUDA 13.0"),
    ({"STRICT_CUDNN_VERSION": "81000"}, "cuDNN: "),
    ({"STRICT_CUDNN_CUDART_VERSION": "12080", "CNN_CUDA_WHEELS": ""}, "so.12"),
    ({"STRICT_CUDART_VERSION": "11080"}, "CUDA runtime: "),
], 3))
def test_a_device_that_does_not_work(settings: dict[str, str], words: str, device: None,
                                     monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    code, document = report(capsys, "--device", "cuda")
    assert code == 1 and document["devices"]["cpu"]["usable"]
    first = document["devices"]["cuda"]["problems"][0]
    assert words in first["what"] and first["fix"]


# --- what follows from facts (of machines that are not here)

LIBRARIES = {"driver library": "/d/libcuda.so.1", "driver version": "13.0", "cudart library": "/w/libcudart.so.13",
             "cudart version": "13.0", "cudnn library": "/w/libcudnn.so.9", "cudnn version": "9.19.0",
             "cudnn CUDA": "13.1"}
BUILT = {"kernels target": "sm_75", "kernels entries": "a b c"}
H100 = {"devices": "1", "device 0 name": "H100", "device 0 compute capability": "9.0", "device 0 math": "fp32 tf32",
        "device 0 multiprocessors": "132", "device 0 memory total": "85899345920",
        "device 0 memory free": "1073741824"}
GOOD = {"probe:cuda:0": ProbeAnswer("exact"), "probe:cuda:0,math=tf32": ProbeAnswer("exact")}


def first_problem(found: CudaFacts, seen: Machine = NOWHERE) -> str:
    one = advice.problems(found, seen)[0]
    return f"{one.what} -> {one.fix}"


def test_everything_is_there() -> None:
    found = CudaFacts(LIBRARIES | BUILT | H100, {}, GOOD)
    assert not advice.problems(found, NOWHERE) and not advice.advice(found)
    rows = {one.name: one for one in cuda.section(found).rows}
    assert all(one.state is State.GOOD for one in rows.values())
    assert rows["cuda:0"].value == "H100, compute capability 9.0, 132 multiprocessors, 1.0 of 80.0 GiB free"
    assert rows["cuda:0"].note == "math: fp32, tf32"
    assert rows["our kernels"].value == "built in: 3 kernels, PTX for sm_75 and newer"
    assert rows["cuDNN"].value == "9.19.0, made with CUDA 13.1"
    assert cuda._texts(found) == ["cuda:0", "cuda:0,math=tf32"]


def test_a_cudnn_without_its_neighbour() -> None:
    """cuDNN is whole, but opens cuBLASLt: to install cuDNN again would not help."""
    lone = {"cudnn": "device cuda: /w/libcudnn.so.9 needs libcublasLt.so.13, which is neither beside it nor where the "
                     "loader looks (x)"}
    found = CudaFacts(LIBRARIES | BUILT, lone)
    assert first_problem(found).endswith(" -> pip install nvidia-cudnn-cu13 nvidia-cuda-runtime nvidia-cublas")


def test_an_old_driver_gets_the_libraries_that_fit() -> None:
    found = CudaFacts(LIBRARIES | BUILT | {"driver version": "12.4"},
                 {"devices": "CUDA: number of devices: cudaErrorInsufficientDriver (35): insufficient"})
    assert first_problem(found) == ("the GPU driver serves CUDA 12.4, the runtime is CUDA 13.0 -> pip install "
                                    "nvidia-cudnn-cu12 nvidia-cuda-runtime-cu12 nvidia-cublas-cu12")


def test_two_cudnns_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's and another: a program that uses both would get an error, and the doctor knows before."""
    (tmp_path / "libcudnn.so.9").touch()
    monkeypatch.setenv("CNN_CUDA_WHEELS", str(tmp_path))
    found = CudaFacts(LIBRARIES | BUILT | H100, {}, GOOD)
    for build, count in (("built for CUDA 13.0", 1), ("built without CUDA", 0), ("", 0)):
        monkeypatch.setattr(advice, "torch_build", lambda build=build: build)
        assert len(advice.advice(found)) == count
    monkeypatch.setattr(advice, "torch_build", lambda: "built for CUDA 13.0")
    assert advice.advice(found)[0].what.startswith("PyTorch loads another cuDNN")
    same = CudaFacts(found.facts | {"cudnn library": f"{tmp_path}/./libcudnn.so.9"}, {}, GOOD)
    assert not advice.advice(same)


def test_a_gpu_that_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    found = CudaFacts(LIBRARIES | BUILT, {"devices": "CUDA: number of devices: cudaErrorNoDevice (100): none"})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert first_problem(found) == "no GPU is visible: CUDA_VISIBLE_DEVICES is '-1' -> unset CUDA_VISIBLE_DEVICES"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert first_problem(found).startswith("no GPU is visible: CUDA_VISIBLE_DEVICES is ''")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert first_problem(found).startswith("the driver sees no GPU -> ")


def test_a_gpu_that_computes_wrongly() -> None:
    wrong = GOOD | {"probe:cuda:0": ProbeAnswer(error="loss: 1 of 1 numbers are wrong")}
    found = CudaFacts(LIBRARIES | BUILT | H100, {}, wrong)
    assert first_problem(found).startswith("cuda:0: loss: 1 of 1 numbers are wrong -> python -m bridge.validate ")
    old = CudaFacts(LIBRARIES | BUILT | H100 | {"device 0 compute capability": "7.0"}, {}, wrong)
    assert first_problem(old).endswith(" -> take a newer GPU   (our kernels are for compute capability 7.5 and newer)")
    second = CudaFacts(LIBRARIES | BUILT | H100 | {"devices": "2"}, {}, GOOD | {
        "probe:cuda:1": ProbeAnswer(error="the process was ended by SIGABRT", died=True)})
    assert not advice.problems(second, NOWHERE)
    assert advice.advice(second)[0].what == "cuda:1: the process was ended by SIGABRT at the probe"


def test_the_driver_is_got_in_the_way_of_the_machine() -> None:
    card = ["0000:01:00.0"]
    assert "run on one that has one" in machine.driver_command(NOWHERE)
    assert "docker run --gpus" in machine.driver_command(Machine(card, "", contained=True))
    assert machine.driver_command(Machine(card, "", system="ubuntu")) == "sudo ubuntu-drivers install"
    assert "nvidia.com" in machine.driver_command(Machine(None, "", system="plan9"))


def test_cards_on_the_bus(tmp_path: Path) -> None:
    """Graphics cards of NVIDIA, not its sound and network devices."""
    for name, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300"), ("c", "0x8086", "0x030000")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor + "\n")
        (tmp_path / name / "class").write_text(kind + "\n")
    assert machine._cards(str(tmp_path)) == ["a"]
    assert machine._cards(str(tmp_path / "none")) is None


@pytest.mark.parametrize(("script", "lines", "works"), [
    ("echo '0, NVIDIA H200, 580.1, 143771 MiB'", ["0, NVIDIA H200, 580.1, 143771 MiB"], True),
    ("echo 'NVIDIA-SMI has failed'; echo more; exit 9", ["NVIDIA-SMI has failed"], False),
    ("exit 12", ["exit status 12"], False),
    ("sleep 60", ["no answer within 0.5 s"], False),
])
def test_nvidia_smi(script: str, lines: list[str], works: bool, tmp_path: Path,
                    monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert machine._nvidia_smi(0.5 if "60" in script else 30) == (lines, works)


# --- on the terminal


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


# --- software


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
