# SPDX-License-Identifier: MIT
"""The doctor says what is wrong with CUDA: broken installations, the software device, machines that are not here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge.doctor import advice, cuda, machine
from bridge.doctor.cuda import CudaFacts
from bridge.doctor.isolated import ProbeAnswer, ask
from bridge.doctor.machine import Machine
from bridge.doctor.records import State
from tests.helpers.cuda import broken_libraries as broken_cuda
from tests.helpers.judged.doctor import report, section
from tests.helpers.tiers import few_rows

#: Seconds: long enough for a child to start on a busy machine, short enough to wait for
SHORT = 8.0
NOWHERE = Machine(cards=[], module="")


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
], lambda row: row[0] == broken_cuda.CRASHES))
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


@pytest.mark.deep
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
], 2))
def test_a_device_that_does_not_work(settings: dict[str, str], words: str, device: None,
                                     monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    code, document = report(capsys, "--device", "cuda")
    assert code == 1 and document["devices"]["cpu"]["usable"]
    first = document["devices"]["cuda"]["problems"][0]
    assert words in first["what"] and first["fix"]

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
