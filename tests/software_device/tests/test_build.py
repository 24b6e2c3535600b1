# SPDX-License-Identifier: MIT
"""How the software device is built: its declarations against NVIDIA's headers, its names, one build for all tests."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.cuda import nvidia_packages
from tests.software_device import SOURCES, build, includes, source

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep

#: Our declarations
HEADERS = ("cuda_api.h", "cudnn_api.h", "cudnn_graph_api.h")
#: Structures of the interface
LAYOUTS = {
    "cudnnConvolutionFwdAlgoPerf_t": ("algo", "status", "time", "memory", "determinism", "mathType"),
    "cudnnConvolutionBwdDataAlgoPerf_t": ("algo", "status", "time", "memory", "determinism", "mathType"),
    "cudnnConvolutionBwdFilterAlgoPerf_t": ("algo", "status", "time", "memory", "determinism", "mathType"),
    "struct cudaPointerAttributes": ("type", "device", "devicePointer", "hostPointer"),
    "dim3": ("x", "y", "z"),
}


def compiler(*, real: bool) -> list[str]:
    """gcc, with the types from NVIDIA's headers or our own."""
    command = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", *includes()]
    if not real:
        return command
    folders = nvidia_packages.require("include", "cudnn.h")
    nvidia_packages.require_cuda(13)
    # half types need C++ headers that are not in these packages, and nothing here uses them
    command += ["-DREAL_HEADERS", "-D__CUDA_FP16_H__", "-D__CUDA_BF16_H__"]
    command += [f"-isystem{folder}" for folder in folders]
    return [*command, "-idirafter", str(Path(nvidia_packages.__file__).with_name("nvidia_headers"))]


def compiles(command: list[str], file: Path) -> str:
    """The compiler's complaints; empty if none."""
    return subprocess.run([*command, "-fsyntax-only", str(file)], capture_output=True, text=True, check=False).stderr


def prototypes_agree(folder: Path) -> str:
    """Complaints about the two headers of `folder`, with NVIDIA's beside them."""
    file = folder / "both.c"
    file.write_text('#include "cudnn_api.h"\n', encoding="utf-8")
    return compiles([*compiler(real=True), f"-I{folder}"], file)


def test_every_file_compiles_with_the_real_headers() -> None:
    """Same prototypes, and every enumerator that is used exists."""
    command = compiler(real=True)
    assert {file.name: compiles(command, file) for file in SOURCES.rglob("*.c") if compiles(command, file)} == {}


def own_values() -> dict[str, str]:
    """Enumerators with the values that our headers give them."""
    text = "".join(source(name).read_text(encoding="utf-8") for name in HEADERS)
    return dict(re.findall(r"\b(cuda\w+|CU\w+) = (\d+)", text))


def test_enumerators_and_layouts(tmp_path: Path) -> None:
    """Values, sizes and offsets are NVIDIA's."""
    values = own_values()
    assert len(values) > 220
    measured = ", ".join([f"offsetof({kind}, {part})" for kind, parts in LAYOUTS.items() for part in parts]
                         + [f"sizeof({kind})" for kind in LAYOUTS])  # fmt: skip
    file = tmp_path / "measure.c"
    file.write_text(f'''
        #include "cudnn_api.h"
        #include <stdio.h>
        int main(void) {{
           size_t all[] = {{{measured}}};
           for (size_t i = 0; i < sizeof all / sizeof *all; i++) printf("%zu ", all[i]);
        }}''', encoding="utf-8")
    found = []
    for real in (False, True):
        program = tmp_path / f"measure{real}"
        subprocess.run([*compiler(real=real), str(file), "-o", str(program)], check=True)
        found.append(subprocess.run([program], capture_output=True, text=True, check=True).stdout)
    assert found[0] == found[1]
    assert found[0].split()[:3] == ["0", "4", "8"]
    asserts = "".join(f'_Static_assert({name} == {value}, "{name}");\n' for name, value in values.items())
    file.write_text(f'#include "cudnn_api.h"\n{asserts}', encoding="utf-8")
    assert compiles(compiler(real=True), file) == ""


WRONG = {
    "swapped arguments": ("cudnn_api.h", "cudnnTensorFormat_t format, cudnnDataType_t type, int n",
                          "cudnnDataType_t type, cudnnTensorFormat_t format, int n"),
    "wrong kind": ("cuda_api.h", "int value, size_t bytes, cudaStream_t", "size_t value, size_t bytes, cudaStream_t"),
    "another width": ("cudnn_graph_api.h", "cudnnBackendAttributeType_t type, int64_t n, const void",
                      "cudnnBackendAttributeType_t type, int n, const void"),
    "missing pointer": ("cuda_api.h", "CUstream stream, void **arguments", "CUstream stream, void *arguments"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_prototype_is_seen(tmp_path: Path, name: str) -> None:
    """Swapped arguments, a wrong kind, a missing pointer."""
    file, right, wrong = WRONG[name]
    for header in HEADERS:
        (tmp_path / header).write_text(source(header).read_text(encoding="utf-8"), encoding="utf-8")
    assert prototypes_agree(tmp_path) == ""
    text = (tmp_path / file).read_text(encoding="utf-8")
    assert text.count(right) == 1
    (tmp_path / file).write_text(text.replace(right, wrong), encoding="utf-8")
    assert "conflicting types" in prototypes_agree(tmp_path)


def test_it_offers_what_the_bindings_load(root: Path) -> None:
    """All symbols that the Fortran sources load, and beside its own ones no others."""
    sources = "".join(file.read_text(encoding="utf-8") for file in (root / "fortran" / "cuda").rglob("*.f90"))
    asked = set(re.findall(r'symbol\("(cu\w+)"\)', sources))
    listing = subprocess.run(["nm", "-D", "--defined-only", build() / "libstrict_device.so"], capture_output=True,
                             text=True, check=True).stdout  # fmt: skip
    offered = {line.split()[2] for line in listing.splitlines()}
    assert len(asked) > 80
    assert {name for name in offered if not name.startswith("strict_")} == asked


def test_functions_can_be_hidden(tmp_path: Path) -> None:
    """Those named are gone, the others are there."""
    folder = build(hidden=("cuModuleLoadData",), cache=tmp_path)
    library = ctypes.CDLL(str(folder / "libcudart.so.13"))
    assert hasattr(library, "cuModuleUnload")
    assert not hasattr(library, "cuModuleLoadData")


def test_it_is_compiled_once(tmp_path: Path) -> None:
    """Until a source changes."""
    sources = shutil.copytree(SOURCES, tmp_path / "sources")
    first, again = (build(sources=sources, cache=tmp_path / "cache") for _ in range(2))
    assert first == again
    with (sources / "cuda" / "driver.c").open("a", encoding="utf-8") as file:
        file.write("// changed\n")
    assert build(sources=sources, cache=tmp_path / "cache") != first
    assert {path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()} >= {first.name}
    (sources / "cuda" / "driver.c").write_text("no C", encoding="utf-8")
    with pytest.raises(subprocess.CalledProcessError):
        build(sources=sources, cache=tmp_path / "cache")
    assert len([path for path in (tmp_path / "cache").iterdir() if path.is_dir()]) == 2
