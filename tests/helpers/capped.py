# SPDX-License-Identifier: MIT
"""A command as on a processor that has no more than AVX2, or than the baseline of x86-64: our library, and all that
PyTorch and numpy compute with.

    python -m tests.helpers.capped avx2 python -m pytest -n 0 tests/judge

Each variable is read once, when its library is loaded: a process that runs already cannot be capped.
"""

from __future__ import annotations

import os
import sys

from tests.helpers.instruction_sets import CAP_VARIABLE, LEVELS, X86

CAPS = LEVELS[:-1]
NUMPY_VARIABLE = "NPY_DISABLE_CPU_FEATURES"
#: Of PyTorch's own loops, oneDNN (where AVX2 has no bfloat16), MKL (which hears the first on Intel's processors alone),
#: OpenBLAS and glibc's functions. XLA's is for JAX, where a user has it
VARIABLES = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell", "XLA_FLAGS": "--xla_cpu_max_isa=AVX2"},
    "baseline": {
        "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "MKL_CBWR": "COMPATIBLE", "OPENBLAS_CORETYPE": "Nehalem", "XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX,-AVX2,-FMA,-FMA4"},
}


def environment(level: str) -> dict[str, str]:
    """The variables that keep everything at or below a level.

    Parameters
    ----------
    level : "avx2" or "baseline"

    Examples
    --------
    >>> environment("avx2")["CNN_CPU_CAP"]
    'avx2'
    """
    return {CAP_VARIABLE: level, NUMPY_VARIABLE: " ".join(_of_numpy(level))} | VARIABLES[level]


def _of_numpy(level: str) -> list[str]:
    """Features above the level that numpy has loops for, as it calls them, and those that it does without already. One
    that the processor lacks is a warning.
    """
    from numpy._core import _multiarray_umath as numpy_core

    names = [name for name in numpy_core.__cpu_dispatch__ if numpy_core.__cpu_features__[name]]
    above = [name for name in names if level == "baseline" or name == "X86_V4" or name.startswith("AVX512")]
    return os.environ.get(NUMPY_VARIABLE, "").split() + above


def main(level: str, *command: str) -> None:
    """Become the command."""
    if level not in CAPS or not command:
        sys.exit(f"usage: python -m tests.helpers.capped {'|'.join(CAPS)} COMMAND ...")
    if not X86:
        sys.exit("capped: only x86-64 has instruction sets to do without")
    os.execvpe(command[0], command, os.environ | environment(level))


if __name__ == "__main__":
    main(*sys.argv[1:] or [""])
