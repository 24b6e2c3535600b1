# SPDX-License-Identifier: MIT
"""How the software device is built: its declarations against NVIDIA's headers, its names."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.helpers.cuda import nvidia_packages, signatures
from tests.software_device import SOURCES, build, includes, source

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep

#: Our declarations
HEADERS = ("cuda_api.h", "cudnn_api.h", "cudnn_graph_api.h")
#: Structures of the interface
LAYOUTS = {
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
    assert len(values) > 150
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
    asserts = "".join(f'_Static_assert({name} == {value}, "{name}");\n' for name, value in values.items())
    file.write_text(f'#include "cudnn_api.h"\n{asserts}', encoding="utf-8")
    assert compiles(compiler(real=True), file) == ""


def test_it_offers_what_the_bindings_load() -> None:
    """All symbols that the Fortran sources load, and beside its own ones no others."""
    asked = {name for library in ("cudart", "driver", "cudnn") for name in signatures.functions(library)}
    listing = subprocess.run(["nm", "-D", "--defined-only", build() / "libstrict_device.so"], capture_output=True,
                             text=True, check=True).stdout  # fmt: skip
    offered = {line.split()[2] for line in listing.splitlines()}
    assert len(asked) > 40
    # By which tests of the device itself ask for its state
    asked.add("cudaStreamIsCapturing")
    assert {name for name in offered if not name.startswith("strict_")} == asked
