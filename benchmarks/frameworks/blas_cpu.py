# SPDX-License-Identifier: MIT
"""The matrix products of OpenBLAS, the library that the build would link: what products of our own are set against."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
from collections.abc import Callable

import numpy as np

from benchmarks.harness import data
from benchmarks.harness.errors import NotHere
from benchmarks.harness.workloads import OperationPass

#: Of cblas.h
ROW_MAJOR, AS_IT_IS, TRANSPOSED = 101, 111, 112


@functools.cache
def _library() -> ctypes.CDLL:
    name = ctypes.util.find_library("openblas")
    if name is None:
        raise NotHere("no library openblas is installed")
    return ctypes.CDLL(name)


def prepare(threads: int) -> None:
    """Load the library, and set its number of threads."""
    _library().openblas_set_num_threads(threads)


def operation(_: str, work: OperationPass) -> Callable[[], np.ndarray]:
    """The products of a pass of a linear layer or of a matmul, without a bias; gives the first."""
    if work.kind not in ("linear", "matmul"):
        raise NotHere("it has matrix products alone")
    operands = data.pass_operands(work)
    a, b = (operands["x"] + operands["parameters"])[:2]
    (dy,) = operands["dy"]
    # linear has y = a b^T: b is (features out, features in)
    flipped = work.kind == "linear"
    if not work.backward:
        return _products(work, [(a, False, b, flipped)])
    return _products(work, [(dy, False, b, not flipped), (dy, True, a, False) if flipped else (a, True, dy, False)])


def _products(work: OperationPass, factors: list[tuple[np.ndarray, bool, np.ndarray, bool]]
              ) -> Callable[[], np.ndarray]:
    """op(a) op(b) for each pair of factors, which may be batches of matrices."""
    function, number = {"float32": (_library().cblas_sgemm, ctypes.c_float),
                        "float64": (_library().cblas_dgemm, ctypes.c_double)}[work.dtype]
    calls, results = [], []
    for a, a_flipped, b, b_flipped in factors:
        m, k = a.shape[-2:][::-1] if a_flipped else a.shape[-2:]
        n = b.shape[-2] if b_flipped else b.shape[-1]
        results.append(np.zeros((*a.shape[:-2], m, n), a.dtype))
        for one in zip(*(array.reshape(-1, *array.shape[-2:]) for array in (a, b, results[-1])), strict=True):
            pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in one]
            calls.append((ROW_MAJOR, *(TRANSPOSED if flipped else AS_IT_IS for flipped in (a_flipped, b_flipped)),
                          m, n, k, number(1.0), pointers[0], a.shape[-1], pointers[1], b.shape[-1], number(0.0),
                          pointers[2], n))

    def run(kept: object = (factors, results)) -> np.ndarray:
        for arguments in calls:
            function(*arguments)
        return results[0]

    return run
