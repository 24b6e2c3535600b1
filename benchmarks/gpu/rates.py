# SPDX-License-Identifier: MIT
"""What a GPU is, and what it reaches: bandwidth through memory, arithmetic in each precision."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.frameworks.torch_gpu import set_precision

#: Bytes of an array, and rows of a matrix: large enough that no cache and no launch is seen
BYTES, ROWS = 2**30, 8192
#: Of a device that is none
FEW_BYTES, FEW_ROWS = 2**20, 64
RUNS = 7


def facts(device: str) -> dict[str, Any]:
    """Of the GPU and of PyTorch; ``usable`` false, with the reason, where PyTorch has none."""
    found: dict[str, Any] = {"torch": torch.__version__, "torch_cuda": torch.version.cuda}
    if device == "cpu":
        return found | {"usable": True, "name": "no GPU", "memory": 2**34}
    if not torch.cuda.is_available():
        return found | {"usable": False, "why": f"PyTorch {torch.__version__} sees no GPU"}
    torch.cuda.init()
    card = torch.cuda.get_device_properties(device)
    left, memory = torch.cuda.mem_get_info(device)
    return found | {"usable": True, "name": card.name, "memory": memory, "memory_left": left,
                    "capability": f"{card.major}.{card.minor}", "multiprocessors": card.multi_processor_count,
                    "l2_bytes": getattr(card, "L2_cache_size", None), "torch_cudnn": torch.backends.cudnn.version()}


def measure(device: str, precisions: list[str], *, small: bool) -> dict[str, Any]:
    """Bytes per second, and floating-point operations per second by precision: the best of some runs.

    The bandwidth is the better of a copy and of a sum of two arrays, with what is read and what is written added up.
    """
    size, rows = (FEW_BYTES, FEW_ROWS) if small else (BYTES, ROWS)
    through, arithmetic = _through(device, size), {}
    for precision in precisions:
        set_precision(precision, benchmark=False)
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        left, right = (torch.randn(rows, rows, device=device).to(dtype) for _ in range(2))
        out = torch.empty_like(left)
        arithmetic[precision] = 2 * rows**3 / _best(_product(left, right, out), device)
    return {"bandwidth": max(through.values()), "through": through, "arithmetic": arithmetic}


def _through(device: str, size: int) -> dict[str, float]:
    """Bytes per second, both ways added."""
    a, b, c = (torch.full((size // 4,), value, device=device) for value in (1.0, 2.0, 0.0))
    return {"copy": 2 * size / _best(lambda: c.copy_(a), device),
            "add": 3 * size / _best(lambda: torch.add(a, b, out=c), device)}


def _product(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: torch.matmul(left, right, out=out)


def _best(work: Callable[[], object], device: str) -> float:
    """Seconds of a call, in the second best of some runs: what the machine can do, without the one that is odd."""
    wait = (lambda: None) if device == "cpu" else torch.cuda.synchronize
    for _ in range(3):
        work()
    seconds = []
    for _ in range(RUNS):
        wait()
        begin = time.perf_counter()
        for _ in range(5):
            work()
        wait()
        seconds.append((time.perf_counter() - begin) / 5)
    return statistics.quantiles(seconds, n=RUNS + 1)[1]
