#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compile kernels.cuf with LLVM's flang, to PTX or to an object for this machine's CPU; put PTX into a C file.

    build_kernels.py --compiler flang-22 kernels.cuf kernels.ptx
    build_kernels.py --compiler flang-22 --host kernels.cuf kernels.o
    build_kernels.py --embed kernels.ptx kernels_ptx.c

kernels.ptx is tracked beside kernels.cuf, so only who changes the kernels needs flang: `make kernels` is the first of
these commands. A build does the last one.

No CUDA toolkit is needed: flang checks the file as CUDA Fortran and holds NVIDIA's code generator. What flang 22 does
not do is to give threadIdx and the like a meaning: it reads them from global structures that nobody defines. So the
way goes over LLVM's intermediate text, where each such read becomes a read of the hardware's register, plus one for
threadIdx and blockIdx, which count from 1 in Fortran. For the CPU the same rewriting reads, in place of a register,
one of four C arrays ``int cnn_host_tid[3], cnn_host_ctaid[3], cnn_host_ntid[3], cnn_host_nctaid[3]`` that the
program around it defines and sets: zero-based, as the hardware's registers are.

The C file defines ``const char cnn_kernels_ptx[]``, the PTX text. The driver compiles it for the GPU at hand, which
may be newer than the target.

Nothing here loosens arithmetic: no fast-math, no contraction to fused multiply-adds. Where kernels.cuf says ``fma``, an
operation of its own, LLVM's is put; ``prefetch`` becomes PTX's instruction, and nothing on a CPU.
nvfortran takes CUDA Fortran too, but nobody has tried it on this file: there is no option for it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAME = re.compile(r'attributes\(global\) subroutine[^!]*?bind\(C, name="(cnn_\w+)"(//suffix)?\)')


def entries() -> frozenset[str]:
    """Return the names of the kernels, as kernels.cuf and the files that its modules include give them.

    >>> {"cnn_fold", "cnn_copy_f32", "cnn_copy_f64", "cnn_transpose_bf16", "cnn_direct_16"} <= entries()
    True
    """
    found = set()
    for module in re.split(r"^end module .*$", (HERE / "kernels.cuf").read_text(encoding="utf-8"), flags=re.MULTILINE):
        suffix = "".join(re.findall(r'parameter :: suffix = "(\w+)"', module))
        included = [HERE / name for name in re.findall(r'include "([\w/]+\.inc)"', module)]
        texts = [module, *(path.read_text(encoding="utf-8") for path in included if path.is_file())]
        found |= {name + (suffix if ending else "") for text in texts for name, ending in NAME.findall(text)}
    return frozenset(found)


ENTRIES = entries()

# What Fortran cannot say of arguments, by their number from 0: that nobody writes there while the kernel runs, so that
# reads may go through the read-only cache; and where an array begins, so that four numbers may be read at once
READ_ONLY, IN_FOURS = "noalias", "noalias align 16"
ARGUMENTS = {
    "cnn_direct_1": {10: READ_ONLY, 11: READ_ONLY, 12: READ_ONLY},
    "cnn_direct_16": {10: READ_ONLY, 11: IN_FOURS, 12: IN_FOURS},
    "cnn_direct_filter": {13: READ_ONLY, 14: READ_ONLY},
    "cnn_direct_filter_quads": {10: IN_FOURS, 11: IN_FOURS},
    "cnn_direct_masked_1": {9: READ_ONLY, 10: READ_ONLY, 11: READ_ONLY},
    "cnn_direct_masked_16": {9: READ_ONLY, 10: IN_FOURS, 11: IN_FOURS}}
# Blocks of 256 threads of which a multiprocessor has room for two: 128 registers for a thread
TWO_BLOCKS = '"nvvm.maxntid"="256" "nvvm.minctasm"="2" '
IN_PAIRS = frozenset(["cnn_direct_1", "cnn_direct_16", "cnn_direct_masked_1", "cnn_direct_filter",
                      "cnn_direct_filter_quads"])

# Writes what the kernels include of the table of operations
TABLE = Path(__file__).resolve().parents[2] / "from_table/write.py"

# Fortran's name, the hardware's name, and what Fortran's is greater by
REGISTERS = {"threadidx": ("tid", 1), "blockidx": ("ctaid", 1), "blockdim": ("ntid", 0), "griddim": ("nctaid", 0)}
BUILTIN = "_QM__fortran_builtinsE__builtin_"
OFFSETS = {None: 0, "4": 1, "8": 2}

# A read of one component, `%7 = load i32, ptr PLACE, align 4`; PLACE is the structure, or a constant offset into it
READ = re.compile(
    rf"^  (%[\w.]+) = load i32, ptr (?:@{BUILTIN}(\w+)"
    rf"|getelementptr [a-z ]*\(i8, ptr @{BUILTIN}(\w+), i64 (\d+)\))(?:,.*)?$", re.MULTILINE)
DECLARED = re.compile(rf"^@{BUILTIN}\w+ = external .*\n", re.MULTILINE)
DEFINED = re.compile(r"^define (.*?)(\S+) @([\w.$]+)(\(.*)\{$", re.MULTILINE)


class KernelError(Exception):
    """The kernels cannot be compiled; the message says at which step and why."""


def flang(compiler: str, *arguments: str) -> None:
    """Run flang's compiling part.

    Raises
    ------
    KernelError
        If it cannot be started, or complains; with the beginning of what it says.
    """
    try:
        done = subprocess.run([compiler, "-fc1", *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise KernelError(f"{compiler}: cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        command = " ".join([compiler, "-fc1", *arguments])
        raise KernelError(f"{command}: exit status {done.returncode}\n{done.stderr[:2000]}")


def rewrite(text: str, *, host: bool) -> str:
    """Give the built-in variables their meaning, keep only the kernels visible, and put into them what they call.

    Parameters
    ----------
    text : LLVM's intermediate text, as flang writes it
    host : whether registers are C arrays (for a CPU) rather than the GPU's

    Raises
    ------
    KernelError
        If a use of a built-in variable is left that is not understood, or a GPU would have to call something that
        lies outside the file (a procedure, Fortran's run-time library).

    Examples
    --------
    >>> line = "  %7 = load i32, ptr @_QM__fortran_builtinsE__builtin_threadidx, align 4\\n"
    >>> print(rewrite(line, host=False).splitlines()[0:2])
    ['  %zero.7 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()', '  %7 = add i32 %zero.7, 1']
    """
    used: set[str] = set()

    def register(found: re.Match[str]) -> str:
        value, whole, part, offset = found.groups()
        name, base = REGISTERS.get(whole or part, (None, 0))
        if name is None or offset not in OFFSETS:
            return found.group(0)
        axis = OFFSETS[offset]
        raw = f"%zero.{value[1:]}" if base else value
        if host:
            used.add(f"@cnn_host_{name} = external global [3 x i32], align 4")
            place = f"getelementptr (i8, ptr @cnn_host_{name}, i64 {4*axis})"
            line = f"  {raw} = load i32, ptr {place}, align 4"
        else:
            intrinsic = f"@llvm.nvvm.read.ptx.sreg.{name}.{'xyz'[axis]}()"
            used.add(f"declare i32 {intrinsic}")
            line = f"  {raw} = call i32 {intrinsic}"
        return line + (f"\n  {value} = add i32 {raw}, {base}" if base else "")

    text = DECLARED.sub("", READ.sub(register, instructions(text, host=host)))
    if left := [line for line in text.splitlines() if f"@{BUILTIN}" in line]:
        raise KernelError(f"a use of a CUDA variable is not understood: {left[0].strip()}")
    if not host and (calls := re.findall(r"^declare .*@((?!llvm\.)[\w.]+)\(", text, re.MULTILINE)):
        raise KernelError(f"a kernel calls what no GPU has: {', '.join(calls)}")
    convention = "" if host else "ptx_kernel "

    def linkage(found: re.Match[str]) -> str:
        attributes, kind, name, rest = found.groups()
        if kind == "void" and name in ENTRIES:
            for number, attribute in ARGUMENTS.get(name, {}).items():
                rest = re.sub(rf"(ptr [^,%]*)%{number}\b", rf"\1{attribute} %{number}", rest)
            room = TWO_BLOCKS if name in IN_PAIRS and not host else ""
            return f'define {convention}{kind} @{name}{rest}"no-jump-tables"="true" {room}{{'
        return f"define internal {attributes}{kind} @{name}{rest}alwaysinline {{"

    text = DEFINED.sub(linkage, text)
    text = re.sub(r"^(@\w+ =) (?:local_unnamed_addr |unnamed_addr )?constant ", r"\1 internal constant ", text,
                  flags=re.MULTILINE)
    return text + "\n" + "".join(f"{line}\n" for line in sorted(used))


def instructions(text: str, *, host: bool) -> str:
    """Put what a processor does in one instruction in the place of the procedures `fma` and `prefetch`.

    Examples
    --------
    >>> instructions("  %3 = call float @cnn_fma(float %0, float %1, float %2)", host=False)
    '  %3 = call float @llvm.fma.f32(float %0, float %1, float %2)'
    """
    text = text.replace("@cnn_fma(", "@llvm.fma.f32(")
    text = re.sub(r"^declare void @cnn_prefetch\(.*\n", "", text, flags=re.MULTILINE)
    call = r"^( *)(?:tail )?call void @cnn_prefetch\(ptr (?:[a-z]+ )*(%[\w.]+)\).*\n"
    put = "" if host else r'\1call void asm sideeffect "prefetch.global.L1 [$0];", "l"(ptr \2)' + "\n"
    return re.sub(call, put, text, flags=re.MULTILINE)


def check_ptx(ptx: str, target: str) -> None:
    """Every kernel is there, for the right target, and nothing is called that a GPU does not have.

    Raises
    ------
    KernelError
        If something is missing or left over.
    """
    found = frozenset(re.findall(r"^\.visible \.entry (\w+)\(", ptx, re.MULTILINE))
    if missing := sorted(ENTRIES - found):
        raise KernelError(f"the PTX lacks {', '.join(missing)}")
    if strange := sorted(found - ENTRIES):
        raise KernelError(f"the PTX has entries that are not expected: {', '.join(strange)}")
    if outside := re.findall(r"^\s*\.extern .*", ptx, re.MULTILINE):
        raise KernelError(f"the PTX needs what no GPU has: {outside[0].strip()}")
    if not re.search(rf"^\.target {re.escape(target)}\b", ptx, re.MULTILINE):
        raise KernelError(f"the PTX is not for {target}")


def compile_kernels(compiler: str, source: Path, output: Path, *, target: str | None) -> None:
    """kernels.cuf -> PTX for `target`, or an object for this machine if `target` is None; `output` is that file."""
    device = [] if target is None else ["-triple", "nvptx64-nvidia-cuda", "-target-cpu", target]
    exact = "-ffp-contract=off"
    with tempfile.TemporaryDirectory() as folder:
        raw, ready = Path(folder, "raw.ll"), Path(folder, "ready.ll")
        subprocess.run([sys.executable, str(TABLE), folder], check=True)
        flang(compiler, *device, exact, "-O2", "-emit-llvm", "-module-dir", folder, "-I", folder, str(source), "-o",
              str(raw))
        ready.write_text(rewrite(raw.read_text(encoding="utf-8"), host=target is None), encoding="utf-8")
        last = ["-S"] if device else ["-emit-obj", "-mrelocation-model", "pic", "-pic-level", "2"]
        flang(compiler, *device, exact, "-O3" if device else "-O2", *last, str(ready), "-o", str(output))
    if target is not None:
        check_ptx(output.read_text(encoding="utf-8"), target)


def c_source(ptx: str) -> str:
    """C file with `ptx` as the text ``cnn_kernels_ptx``, one line of it a line.

    Examples
    --------
    >>> print(c_source('.target sm_75'))
    /* PTX of the CUDA Fortran kernels. Generated by build_kernels.py. */
    extern const char cnn_kernels_ptx[];
    const char cnn_kernels_ptx[] =
      ".target sm_75\\n"
      "";
    const char *cnn_kernels_text(void);
    const char *cnn_kernels_text(void) { return cnn_kernels_ptx; }
    <BLANKLINE>
    """
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "  ") for line in ptx.splitlines())
    lines = "".join(f'  "{line}\\n"\n' for line in escaped)
    return ("/* PTX of the CUDA Fortran kernels. Generated by build_kernels.py. */\n"
            f'extern const char cnn_kernels_ptx[];\nconst char cnn_kernels_ptx[] =\n{lines}  "";\n'
            'const char *cnn_kernels_text(void);\nconst char *cnn_kernels_text(void) { return cnn_kernels_ptx; }\n')


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0, or 1 with a message."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="flang-22", help="flang, version 22 or later (default: %(default)s)")
    parser.add_argument("--target", default="sm_75", help="oldest GPU that the PTX is for (default: %(default)s)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--host", action="store_true", help="an object for this machine's CPU, in place of PTX")
    mode.add_argument("--embed", action="store_true", help="put PTX into a C file; nothing is compiled")
    parser.add_argument("source", type=Path, help="kernels.cuf; with --embed kernels.ptx")
    parser.add_argument("output", type=Path, help="the file to write")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.embed:
            chosen.output.write_text(c_source(chosen.source.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            # In one piece: a file that is there stays where the compiler fails
            with tempfile.TemporaryDirectory() as folder:
                made = Path(folder, "made")
                compile_kernels(chosen.compiler, chosen.source, made, target=None if chosen.host else chosen.target)
                chosen.output.write_bytes(made.read_bytes())
    except KernelError as error:
        print(f"build_kernels: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
