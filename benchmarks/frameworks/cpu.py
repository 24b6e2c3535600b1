# SPDX-License-Identifier: MIT
"""Who takes part: a name, the module that knows how, and who starts it with which task.

A module has ``prepare(threads)``, which loads its library and sets the number of threads, and of ``step(name, net)``,
``training(name, training)``,
``conv(name, conv, which)`` and ``operation(name, work)`` those that it can: they make the data and return a function
without arguments that does the work once.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from benchmarks.harness.errors import NotHere
from benchmarks.harness.workloads import Conv, Net, OperationPass, Training

OURS = "bridge"
#: Of arrays that are channels_last
OURS_LAST = "bridge channels_last"
#: The procedures of the library with everything prepared: no checks for NaN, no new arrays
KERNEL = "bridge kernel"
EAGER = "torch eager"
CHANNELS_LAST = "torch channels_last"
#: With a memory allocator that does not give pages back between steps, which PyTorch's usual one does
MEMORY_KEPT = "torch channels_last, memory kept"
COMPILED = "torch.compile"
COMPILED_LAST = "torch.compile channels_last"
JAX_NCHW = "jax.jit NCHW"
JAX_NHWC = "jax.jit NHWC"
#: The matrix products alone
BLAS = "OpenBLAS"

MODULES = {
    OURS: "bridge_cpu", OURS_LAST: "bridge_cpu", KERNEL: "bridge_cpu",
    EAGER: "torch_cpu", CHANNELS_LAST: "torch_cpu", MEMORY_KEPT: "torch_cpu",
    COMPILED: "torch_cpu", COMPILED_LAST: "torch_cpu",
    JAX_NCHW: "jax_cpu", JAX_NHWC: "jax_cpu", BLAS: "blas_cpu",
}
#: Set for the process of one framework alone
ENVIRONMENT = {MEMORY_KEPT: {"GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1000000000000"}}


def prepare(name: str, threads: int) -> None:
    """Import a framework's library, and set its number of threads.

    Raises
    ------
    NotHere
        If the library is not installed.
    """
    try:
        _module(name).prepare(threads)
    except ModuleNotFoundError as error:
        raise NotHere(f"{error.name} is not installed") from None


def build(name: str, task: dict[str, Any]) -> Callable[[], Any]:
    """The work of a framework, `task` as it comes from JSON: ``{"net": ...}``, ``{"training": ...}``,
    ``{"conv": ..., "pass": ...}`` or ``{"operation": ...}``.

    Raises
    ------
    NotHere
        If the framework cannot do it on this machine.
    """
    if "net" in task:
        return _module(name).step(name, Net.of_dict(task["net"]))
    if "training" in task:
        return _module(name).training(name, Training.of_dict(task["training"]))
    if "operation" in task:
        return _module(name).operation(name, OperationPass.of_dict(task["operation"]))
    return _module(name).conv(name, Conv.of_dict(task["conv"]), task["pass"])


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"benchmarks.frameworks.{MODULES[name]}")
