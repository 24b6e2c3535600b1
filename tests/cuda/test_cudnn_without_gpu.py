# SPDX-License-Identifier: MIT
"""The real cuDNN through our Fortran interfaces, as far as it goes without a GPU; libraries not as expected.

Versions and messages need no GPU. Every run is a child process: cuDNN ends the process when one
of its parts is missing, and that must not happen.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests import software_device
from tests.helpers.cuda import nvidia_packages
from tests.helpers.cuda.signatures import functions as signatures
from tests.helpers.library import fortran_program

# Builds a program of all bindings, and asks the real libraries
pytestmark = pytest.mark.deep

PARTS = ("graph", "ops", "cnn", "adv", "heuristic", "engines_precompiled", "engines_runtime_compiled")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``cudnn_program``."""
    return fortran_program.build(fortran_program.PROGRAMS / "cudnn_program.f90", tmp_path_factory.mktemp("cudnn"))


@pytest.fixture(scope="module")
def packages() -> str:
    """The folders of NVIDIA's packages, as CNN_CUDA_WHEELS wants them."""
    for name in ("libcudart.so.*", "libcublasLt.so.*"):
        nvidia_packages.require("lib", name)
    return joined(nvidia_packages.require("lib", "libcudnn.so.9"))


def joined(folders: Iterable[Path]) -> str:
    """Folders as in CNN_CUDA_PATH."""
    return ":".join(str(folder) for folder in folders)


def say(program: Path, command: str, **variables: str) -> list[str]:
    """What it prints; it must end in order."""
    environment = {name: value for name, value in os.environ.items()
                   if name != "LD_LIBRARY_PATH" and not name.startswith("CNN_CUDA")}
    done = subprocess.run([program, command], env=environment | variables, capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout.splitlines()


def loader_finds(name: str) -> bool:
    """Would a child of this process find this library without being told where?"""
    environment = {variable: value for variable, value in os.environ.items() if variable != "LD_LIBRARY_PATH"}
    code = f"import ctypes; ctypes.CDLL({name!r})"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    return done.returncode == 0


def needs_absence(name: str) -> None:
    """Skip where the loader finds a library that the test wants to be missing."""
    if loader_finds(name):
        pytest.skip(f"the loader finds {name} on this machine")


def test_the_libraries_of_the_packages_are_used(program: Path, packages: str) -> None:
    """All that is found, where, and in which version; sizes of structures as gfortran lays them out."""
    said = say(program, "libraries", CNN_CUDA_WHEELS=packages)
    cudart, cudnn, cuda_11 = said[:3]
    assert any(cudart.startswith(f"cudart: {folder}/libcudart.so.1") for folder in packages.split(":"))
    assert cudnn.split()[2].startswith("9") and len(cudnn.split()[2]) == 5
    assert cuda_11.endswith("built for CUDA " + cudnn.split()[3][:2] + ", found the runtime of CUDA 11")
    assert "sizes: 88" in said


def test_statuses_have_their_names_and_reasons(program: Path, packages: str) -> None:
    """An error says what was tried, the status, and cuDNN's own words; success is none."""
    *names, said = say(program, "errors", CNN_CUDA_WHEELS=packages)
    assert names == [
        "status 0: CUDNN_STATUS_SUCCESS", "status 1001: CUDNN_STATUS_NOT_INITIALIZED",
        "status 2000: CUDNN_STATUS_BAD_PARAM", "status 3000: CUDNN_STATUS_NOT_SUPPORTED",
        "status 4003: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED", "status 5000: CUDNN_STATUS_EXECUTION_FAILED",
    ]
    tried = "descriptor error: cuDNN: finish a descriptor: CUDNN_STATUS_BAD_PARAM_NULL_POINTER (2002): "
    assert said.startswith(tried) and len(said) > len(tried)


def test_a_handle_needs_a_gpu(program: Path, packages: str) -> None:
    """With a GPU there is a handle; without one there is an error that says so."""
    said = say(program, "handle", CNN_CUDA_WHEELS=packages)
    devices = next(int(line.split()[1]) for line in said if line.startswith("devices: "))
    if devices > 0:
        assert said == [f"devices: {devices}", "created: T"]
    else:
        count, _, handle = said
        assert count.startswith("count error: CUDA: count the devices: cudaError")
        assert handle.startswith("handle error: cuDNN: create the handle: CUDNN_STATUS_NOT_INITIALIZED (1001): ")


# --- Libraries that are not as expected ------------------------------------------------------------------------


def make_library(path: Path, functions: dict[str, str]) -> Path:
    """A shared library with these functions, each with its C body."""
    source = path.with_suffix(".c")
    source.write_text("".join(f"long {name}(int *out) {{ (void)out; {body} }}\n" for name, body in functions.items())
                      + "int its_own_symbol;\n", encoding="utf-8")
    command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{path.name}", source, "-o", path]
    subprocess.run(command, check=True, capture_output=True)
    return path


def make_cudnn(folder: Path, version: int = 91900, cuda: int = 13010, without: str = "", blas: bool = True) -> Path:
    """A folder with something that looks like cuDNN; ``without`` a function or a part."""
    functions = dict.fromkeys(signatures("cudnn"), "return 0;")
    functions |= {"cudnnGetVersion": f"return {version};", "cudnnGetCudartVersion": f"return {cuda};"}
    functions.pop(without, None)
    make_library(folder / "libcudnn.so.9", functions)
    for part in PARTS:
        if part != without:
            make_library(folder / f"libcudnn_{part}.so.9", {})
    if blas:
        make_library(folder / f"libcublasLt.so.{cuda // 1000}", {})
    return folder


def make_cudart(folder: Path, soname: str = "libcudart.so.13", version: int = 13000, body: str = "return 0;") -> Path:
    """A folder with something that looks like the CUDA runtime."""
    folder.mkdir(exist_ok=True)
    functions = dict.fromkeys(signatures("cudart"), "return 0;")
    functions["cudaRuntimeGetVersion"] = f"*out = {version}; {body}"
    make_library(folder / soname, functions)
    return folder


def test_a_whole_cudnn_is_taken(program: Path, tmp_path: Path) -> None:
    """So that what the next tests take away is what makes them fail."""
    said = say(program, "cudnn", CNN_CUDA_PATH=str(make_cudnn(tmp_path)))
    assert said[0] == f"cudnn: {tmp_path}/libcudnn.so.9 91900 13010"


@pytest.mark.parametrize("part", PARTS)
def test_a_missing_part_is_an_error(program: Path, packages: str, tmp_path: Path, part: str) -> None:
    """The real cuDNN with one file missing ends the process when it is used: it is not used."""
    needs_absence(f"libcudnn_{part}.so.9")
    (real,) = [Path(folder) for folder in packages.split(":") if (Path(folder) / "libcudnn.so.9").is_file()]
    for file in real.glob("libcudnn*"):
        if part not in file.name:
            (tmp_path / file.name).symlink_to(file)
    (said,) = say(program, "cudnn", CNN_CUDA_PATH=str(tmp_path))
    assert said.startswith(f"cudnn error: device cuda: {tmp_path}/libcudnn.so.9 needs libcudnn_{part}.so.9, which is ")


def test_a_missing_cublaslt_is_an_error(program: Path, tmp_path: Path) -> None:
    """cuDNN's convolutions may want it, and end the process without it."""
    needs_absence("libcublasLt.so.13")
    (said,) = say(program, "cudnn", CNN_CUDA_PATH=str(make_cudnn(tmp_path, blas=False)))
    assert f"{tmp_path}/libcudnn.so.9 needs libcublasLt.so.13, which is neither beside it" in said


def test_cublaslt_is_found_where_cudnn_finds_it(program: Path, tmp_path: Path) -> None:
    """NVIDIA's packages lie side by side: one of them given is enough."""
    cudnn, blas = tmp_path / "cudnn" / "lib", tmp_path / "cu13" / "lib"
    cudnn.mkdir(parents=True)
    blas.mkdir(parents=True)
    make_cudnn(cudnn, blas=False)
    make_library(blas / "libcublasLt.so.13", {})
    assert say(program, "cudnn", CNN_CUDA_PATH=str(cudnn))[0] == f"cudnn: {cudnn}/libcudnn.so.9 91900 13010"


def test_two_cudnns_in_one_process_are_refused(program: Path, tmp_path: Path) -> None:
    """The parts are opened by name, so the second cuDNN would get those of the first."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
        make_cudnn(folder)
    first = str(theirs / "libcudnn.so.9")
    (said,) = say(program, "cudnn", CNN_CUDA_PATH=str(ours), LD_PRELOAD=first)
    assert said == (f"cudnn error: device cuda: {ours}/libcudnn.so.9 cannot be used beside {first}, which this "
                    "process uses already (PyTorch's?): let CNN_CUDA_PATH name the folder of that one")
    assert say(program, "cudnn", CNN_CUDA_PATH=str(theirs), LD_PRELOAD=first)[0] == f"cudnn: {first} 91900 13010"


def test_a_cudnn_in_one_file_stands_beside_another(program: Path, tmp_path: Path) -> None:
    """It opens no parts; the software device is one, and a PyTorch for CUDA has opened the real cuDNN beside it."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
        make_cudnn(folder)
    shim, first = ours / "libcudnn.so.9", str(theirs / "libcudnn.so.9")

    def found() -> str:
        return say(program, "cudnn", CNN_CUDA_PATH=str(ours), LD_PRELOAD=first)[0]

    for part in PARTS:
        assert found().startswith(f"cudnn error: device cuda: {shim} cannot be used beside {first}, ")
        (ours / f"libcudnn_{part}.so.9").unlink()
        (ours / f"libcudnn_{part}.so.9").symlink_to(shim.name)
    assert found() == f"cudnn: {shim} 91900 13010"


def test_the_software_device_stands_beside_a_cudnn(program: Path, tmp_path: Path) -> None:
    """Else no test of cuda runs where PyTorch is a build for CUDA."""
    software = software_device.build()
    theirs = str(make_cudnn(tmp_path) / "libcudnn.so.9")
    said = say(program, "cudnn", CNN_CUDA_PATH=str(software), LD_PRELOAD=theirs)
    assert said[0] == f"cudnn: {software}/libcudnn.so.9 91900 13000"


@pytest.mark.parametrize("version", [8907, 100000])
def test_another_major_version_is_refused(program: Path, tmp_path: Path, version: int) -> None:
    """cuDNN 8 has other statuses, and nobody knows of 10."""
    (said,) = say(program, "cudnn", CNN_CUDA_PATH=str(make_cudnn(tmp_path, version)))
    assert said == (f"cudnn error: {tmp_path}/libcudnn.so.9: found cuDNN version {version}, expected 9.x, "
                    "numbered 90000 and up")


def test_a_cudnn_for_another_cuda_is_told(program: Path, tmp_path: Path) -> None:
    """Its major version and that of the runtime must be one."""
    said = say(program, "cudnn", CNN_CUDA_PATH=str(make_cudnn(tmp_path, cuda=12080)))
    assert said[1].endswith("built for CUDA 12, found the runtime of CUDA 11")
    assert len(said) == 2


def test_missing_functions_are_named(program: Path, tmp_path: Path) -> None:
    """With the library."""
    (said,) = say(program, "cudnn", CNN_CUDA_PATH=str(make_cudnn(tmp_path, without="cudnnSetStream")))
    assert said == f"cudnn error: {tmp_path}/libcudnn.so.9: these functions are missing: cudnnSetStream"


@pytest.mark.parametrize("content", ["", "not a library\n"])
@pytest.mark.parametrize(("command", "name"), [("cudnn", "libcudnn.so.9"), ("cudart", "libcudart.so.13"),
                                               ("driver", "libcuda.so.1")])
def test_a_broken_file_is_an_error(program: Path, packages: str, tmp_path: Path, command: str, name: str,
                                   content: str) -> None:
    """It is told, not passed over for another one that is whole."""
    (tmp_path / name).write_text(content, encoding="utf-8")
    (said,) = say(program, command, CNN_CUDA_PATH=str(tmp_path), CNN_CUDA_WHEELS=packages)
    assert said.startswith(f"{command} error: device cuda: {tmp_path}/{name} is there but cannot be opened: ")
    assert len(said.split("cannot be opened: ")[1]) > 10


def test_a_broken_part_is_an_error(program: Path, tmp_path: Path) -> None:
    """As a missing one."""
    make_cudnn(tmp_path, without="ops")
    (tmp_path / "libcudnn_ops.so.9").touch()
    (said,) = say(program, "cudnn", CNN_CUDA_PATH=str(tmp_path))
    assert said.startswith(f"cudnn error: device cuda: {tmp_path}/libcudnn_ops.so.9 is there but cannot be opened: ")


def test_an_old_runtime_is_refused(program: Path, tmp_path: Path) -> None:
    """CUDA 11."""
    folder = make_cudart(tmp_path, version=11080)
    (said,) = say(program, "cudart", CNN_CUDA_PATH=str(folder))
    assert said == (f"cudart error: {tmp_path}/libcudart.so.13: found CUDA runtime version 11080, "
                    "expected 12000 (CUDA 12.0) or newer")


def test_a_runtime_of_cuda_12_is_taken(program: Path, tmp_path: Path) -> None:
    """Kernels are the driver's business."""
    functions = dict.fromkeys(signatures("cudart"), "return 0;")
    functions["cudaRuntimeGetVersion"] = "*out = 12060; return 0;"
    make_library(tmp_path / "libcudart.so.12", functions)
    said = say(program, "cudart", CNN_CUDA_PATH=str(tmp_path))
    assert said[0] == f"cudart: {tmp_path}/libcudart.so.12 12060"


def test_a_runtime_that_fails_is_told(program: Path, tmp_path: Path) -> None:
    """The first call of all."""
    (said,) = say(program, "cudart", CNN_CUDA_PATH=str(make_cudart(tmp_path, body="return 35;")))
    assert said.startswith("cudart error: CUDA: version of the runtime: ") and "(35)" in said


@pytest.mark.parametrize(("command", "names", "hint"), [
    ("cudnn", ["libcudnn.so.9"], "pip install nvidia-cudnn-cu13"),
    ("cudart", ["libcudart.so.13", "libcudart.so.12"], "nvidia-cuda-runtime"),
    ("driver", ["libcuda.so.1"], "it comes with NVIDIA's driver"),
])
def test_what_is_not_found_is_told(program: Path, tmp_path: Path, command: str, names: list[str], hint: str) -> None:
    """What, where it was looked for, and what to do."""
    for name in names:
        needs_absence(name)
    (said,) = say(program, command, CNN_CUDA_PATH=str(tmp_path))
    assert said.startswith(f"{command} error: device cuda: {' or '.join(names)} not found (")
    assert hint in said and f"CNN_CUDA_PATH ({tmp_path})" in said and "of this Python (not set)" in said
    assert all(f"{name}: cannot open shared object file" in said for name in names)


def test_a_broken_file_on_the_path_of_the_loader(program: Path, tmp_path: Path) -> None:
    """The loader's own words, and what to do; no other place is left to look in."""
    for name in ("libcudart.so.13", "libcudart.so.12"):
        (tmp_path / name).touch()
    (said,) = say(program, "cudart", LD_LIBRARY_PATH=str(tmp_path))
    assert said.startswith("cudart error: device cuda: libcudart.so.13 or libcudart.so.12 not found (pip install ")
    assert "nvidia-cuda-runtime" in said and f"{tmp_path}/libcudart.so.12: file too short" in said


def test_the_order_of_the_search(program: Path, tmp_path: Path) -> None:
    """CNN_CUDA_PATH, folder by folder, before the packages of Python, before the loader."""
    for name, soname, version in (("a", "libcudart.so.12", 12060), ("b", "libcudart.so.13", 13000),
                                  ("c", "libcudart.so.13", 13010)):
        make_cudart(tmp_path / name, soname, version)
    make_cudart(tmp_path / "b", "libcudart.so.12", 12080)
    a, b, c = (str(tmp_path / name) for name in "abc")

    def found(**variables: str) -> str:
        return say(program, "cudart", **variables)[0].removeprefix(f"cudart: {tmp_path}/")

    assert found(CNN_CUDA_PATH=f"{a}:{b}", CNN_CUDA_WHEELS=c) == "a/libcudart.so.12 12060"
    assert found(CNN_CUDA_PATH=f"{b}:{a}", CNN_CUDA_WHEELS=c) == "b/libcudart.so.13 13000"
    assert found(CNN_CUDA_PATH=f":{tmp_path}/none::{tmp_path}:{b}", CNN_CUDA_WHEELS=a) == "b/libcudart.so.13 13000"
    assert found(CNN_CUDA_PATH=str(tmp_path), CNN_CUDA_WHEELS=f"{c}:{b}") == "c/libcudart.so.13 13010"
    assert found(CNN_CUDA_WHEELS=f"{tmp_path}/none", LD_LIBRARY_PATH=c) == "c/libcudart.so.13 13010"
    assert found(LD_LIBRARY_PATH=b, CNN_CUDA_WHEELS=a) == "a/libcudart.so.12 12060"
