# SPDX-License-Identifier: MIT
"""How the CUDA Fortran kernels are compiled: what the PTX must and must not hold, and what is refused."""

from __future__ import annotations

import ctypes
import doctest
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bridge.doctor import isolated_child
from tests.helpers.tiers import few_rows
from tests.software_device.host_kernels import KERNELS, PTX, builder, flang
from tests.software_device.ptx_as_c import entries_of

build_kernels = builder()
SOURCE = KERNELS / "kernels.cuf"
#: The flang whose PTX is tracked; another one may choose other registers
MADE_BY = 22
needs_flang = pytest.mark.skipif(flang() is None, reason="no flang to compile the CUDA Fortran kernels")
STRANGE = "@_QM__fortran_builtinsE__builtin_"


@pytest.fixture(scope="module")
def ptx() -> str:
    """What is tracked, and what is built in."""
    return PTX.read_text(encoding="utf-8")


def version_of(compiler: str) -> int:
    """The first number of its version."""
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"version (\d+)\.", said)
    assert found, said
    return int(found[1])


@needs_flang
def test_flang_makes_the_ptx_that_is_tracked(ptx: str, tmp_path: Path) -> None:
    """To the byte: after a change of the kernels `make kernels` was forgotten, where this fails."""
    compiler = flang()
    assert compiler
    if version_of(compiler) != MADE_BY:
        pytest.skip(f"skipped, because the PTX was made by flang {MADE_BY}, and here is {version_of(compiler)}")
    assert build_kernels.main(["--compiler", compiler, str(SOURCE), str(tmp_path / "kernels.ptx")]) == 0
    assert (tmp_path / "kernels.ptx").read_text(encoding="utf-8") == ptx


def test_the_library_holds_the_ptx(ptx: str) -> None:
    """As it was built: its entries, and its target."""
    facts = isolated_child.ANSWERS["facts"]("kernels")
    assert facts["kernels entries"].split() == re.findall(r"\.entry (\w+)", ptx)
    assert facts["kernels target"] == "sm_75"


def string_of(source: Path) -> str:
    """What a C compiler makes of the C file."""
    library = source.with_suffix(".so")
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, source], check=True)
    first = ctypes.c_char.in_dll(ctypes.CDLL(str(library)), "cnn_kernels_ptx")
    return ctypes.string_at(ctypes.addressof(first)).decode()


def test_the_examples_of_the_builder() -> None:
    assert doctest.testmod(build_kernels) == doctest.TestResults(failed=0, attempted=5)


def test_ptx_is_for_old_and_new_gpus(ptx: str) -> None:
    """CUDA 12 is the oldest that is supported: its drivers read PTX 8.0. Turing is the oldest that CUDA 13 has."""
    major, minor = map(int, re.findall(r"^\.version (\d+)\.(\d+)$", ptx, re.MULTILINE)[0])
    assert (major, minor) <= (8, 0)
    assert re.findall(r"^\.target (.*)$", ptx, re.MULTILINE) == ["sm_75"]
    assert ".address_size 64" in ptx


def test_ptx_has_the_kernels_and_nothing_else(ptx: str) -> None:
    assert set(re.findall(r"\.entry (\w+)", ptx)) == build_kernels.ENTRIES
    assert ptx.count(".visible") == len(build_kernels.ENTRIES)
    # functions that are called, memory that each thread has to itself, variables
    assert not re.findall(r"\.func|\.extern|\.local|\.shared|\.const|^\.global|\bcall\b|__fortran", ptx, re.MULTILINE)


def test_ptx_rounds_as_ieee_754_says(ptx: str) -> None:
    """Every sum and product names its rounding, so that the driver fuses none; subnormal numbers are kept."""
    assert not re.findall(r"\bmad\.(?:rn\.)?f|\.ftz|\.approx|\.full|\.sat", ptx)
    # Fused where the source says so
    assert {name for name, _, body in entries_of(ptx) if re.search(r"\bfma\b", body)} == {
        "cnn_direct_1", "cnn_direct_16", "cnn_direct_masked_1", "cnn_direct_masked_16", "cnn_direct_filter",
        "cnn_direct_filter_quads"}
    assert set(re.findall(r"\bfma\.[\w.]+", ptx)) == {"fma.rn.f32"}
    floating = re.findall(r"\b(?:add|sub|mul|div)\.[\w.]*f(?:32|64)\b", ptx)
    assert floating
    assert all(".rn." in opcode for opcode in floating)
    assert {"cvt.rn.f16.f32", "cvt.rn.f32.f64"} <= set(re.findall(r"\bcvt[\w.]+", ptx))


#: Kernels that may use more registers than 64, with which four blocks of 256 threads fit into a multiprocessor's 65536,
#: and why: three blocks still fit with 80, two with 128
MORE_REGISTERS = {
    # 12 sizes, and five loops: over images, the windows that hold an element, and the elements of each
    "cnn_max_pool_backward": 88,
    # 8 sizes of 64 bits, the rules' amounts and quotients, weights in float64 along both axes, and sums of four images
    "cnn_resample_backward": 112,
    # Over a dozen functions, each with its own constants in float64
    "cnn_pointwise": 80, "cnn_pointwise_backward": 80,
    # Three or four gates, each with its exponential in float64, where they are of that
    "cnn_gru_cell_backward": 80, "cnn_lstm_gates": 80,
    # The logarithm of the sum and the exponentials, each with its own constants in float64
    "cnn_cross_entropy": 80,
    # The same, with the weights' address and settings besides: two blocks fit
    "cnn_class_entropy": 96,
    # 64 or 72 sums in registers: two blocks fit
    "cnn_direct": 128, "cnn_direct_filter": 128,
    # 32 numbers that are read at once and where they lie: two blocks fit
    "cnn_fold": 128,
    # 64 or 72 sums and a sum of each channel: one block, whose threads need not wait for each other
    "cnn_direct_masked": 255,
    # Six B-splines in float64, beside the sizes and addresses
    "cnn_spline": 80, "cnn_spline_backward": 80,
    # The same, with the quotients that say which sum it is: two blocks fit
    "cnn_spline_sums": 96,
}
#: Kernels that may put registers into memory, and how many bytes of a thread: outside of their inner loops, which read
#: back two or three
SPILLED = {"cnn_direct_16": 128, "cnn_direct_filter": 192, "cnn_direct_filter_quads": 64, "cnn_direct_masked_16": 64}


@pytest.mark.deep
@pytest.mark.parametrize("target", ["sm_75", "sm_90"])
def test_ptxas_takes_it(tmp_path: Path, target: str) -> None:
    """No stack, no spills but few, and few enough registers for blocks of 256 threads."""
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("no ptxas to assemble PTX")
    done = subprocess.run([ptxas, f"-arch={target}", "-v", PTX, "-o", tmp_path / "kernels.cubin"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    count = len(build_kernels.ENTRIES)
    spills = re.findall(r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores", done.stderr,
                        re.DOTALL)
    assert len(spills) == count
    assert not [found for found in spills if max(map(int, found[1:])) > SPILLED.get(found[0], 0)], "registers in memory"
    registers = re.findall(r"entry function '(\w+)'.*?Used (\d+) registers", done.stderr, re.DOTALL)
    assert len(registers) == count
    assert not [(name, used) for name, used in registers
                if int(used) > MORE_REGISTERS.get(name, MORE_REGISTERS.get(name.rpartition("_")[0], 64))]


def test_the_c_file_holds_the_ptx(ptx: str, tmp_path: Path) -> None:
    source = tmp_path / "kernels_ptx.c"
    assert build_kernels.main(["--embed", str(PTX), str(source)]) == 0
    assert string_of(source).replace("\t", " ").split() == ptx.split()
    assert [line.strip() for line in string_of(source).splitlines()] == [
        line.strip().replace("\t", "  ") for line in ptx.splitlines()]


@pytest.mark.parametrize(("line", "expected"), [
    ("  %8 = load i32, ptr @{}blockdim, align 4, !tbaa !8", ["%8 = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()"]),
    ("  %x = load i32, ptr @{}griddim, align 4", ["%x = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()"]),
    ("  %9 = load i32, ptr getelementptr inbounds nuw (i8, ptr @{}blockidx, i64 4), align 4",
     ["%zero.9 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()", "%9 = add i32 %zero.9, 1"]),
    ("  %9 = load i32, ptr getelementptr (i8, ptr @{}threadidx, i64 8), align 4",
     ["%zero.9 = call i32 @llvm.nvvm.read.ptx.sreg.tid.z()", "%9 = add i32 %zero.9, 1"]),
])
def test_variables_become_registers(line: str, expected: list[str]) -> None:
    """Fortran counts threads and blocks from 1, the hardware from 0; sizes are sizes."""
    text = line.format("_QM__fortran_builtinsE__builtin_") + "\n"
    assert [part.strip() for part in build_kernels.rewrite(text, host=False).split("\n")][:len(expected)] == expected


@pytest.mark.parametrize("line", [
    f"  %1 = load i32, ptr {STRANGE}warpsize, align 4",
    f"  %1 = load i64, ptr {STRANGE}blockidx, align 4",
    f"  store i32 1, ptr {STRANGE}blockidx, align 4",
    f"  %1 = load i32, ptr getelementptr (i8, ptr {STRANGE}blockidx, i64 12), align 4",
])
@pytest.mark.parametrize("host", [False, True])
def test_a_use_that_is_not_understood_is_refused(line: str, host: bool) -> None:
    with pytest.raises(build_kernels.KernelError, match="is not understood: " + re.escape(line.strip()[:20])):
        build_kernels.rewrite(line + "\n", host=host)


@pytest.mark.parametrize(("old", "new", "message"), [
    (".entry cnn_fold(", ".entry cnn_fald(", "lacks cnn_fold"),
    (".visible .entry cnn_fold(", ".visible .entry cnn_more(\n.visible .entry cnn_fold(", "not expected: cnn_more"),
    (".address_size 64", ".address_size 64\n.extern .func sinf", r"no GPU has: \.extern \.func sinf"),
    (".target sm_75", ".target sm_90", "not for sm_75"),
])
def test_unusable_ptx_is_refused(ptx: str, old: str, new: str, message: str) -> None:
    assert old in ptx
    with pytest.raises(build_kernels.KernelError, match=message):
        build_kernels.check_ptx(ptx.replace(old, new), "sm_75")


@needs_flang
@pytest.mark.parametrize(("old", "new", "message"), few_rows([
    ("real(wp), device, intent(in) :: y(n)", "real(wp), devise, intent(in) :: y(n)", "exit status 1"),
    ("total = total + d*d", "if (n < 0) stop 1", "a kernel calls what no GPU has: _FortranAStopStatement"),
    ('name="cnn_mse_"', 'name="mse_"', "the PTX lacks cnn_mse_f32, cnn_mse_f64"),
], 1))
def test_unusable_kernels_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str,
                                      message: str) -> None:
    """A call of the run-time library, another name, a syntax error: the build stops, and writes no file."""
    body = (KERNELS / "kernels.inc").read_text(encoding="utf-8")
    assert old in body
    fortran = KERNELS.parents[1]
    for file in fortran.rglob("*.inc"):
        copied = tmp_path / file.relative_to(fortran)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copied)
    source = Path(shutil.copy(SOURCE, tmp_path / "cuda/kernels"))
    source.with_suffix(".inc").write_text(body.replace(old, new), encoding="utf-8")
    output = tmp_path / "kernels.ptx"
    assert build_kernels.main(["--compiler", flang(), str(source), str(output)]) == 1
    assert re.search(message, capsys.readouterr().err)
    assert not output.exists()


def test_a_missing_compiler_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build_kernels.main(["--compiler", str(tmp_path / "flang"), str(SOURCE), str(tmp_path / "kernels.ptx")]) == 1
    assert "cannot be run: No such file or directory" in capsys.readouterr().err
