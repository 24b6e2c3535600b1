# SPDX-License-Identifier: MIT
"""The logarithms of formulas.inc by themselves: compiled as the loops are, and with the bits of the CUDA kernels."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests import ROOT
from tests.helpers.instruction_sets import LEVELS, choose
from tests.helpers.loops import looped

Array = np.ndarray
SOURCE = """
module logarithms_{kind}
   use, intrinsic :: iso_c_binding, only : dp => c_double, i8 => c_int64_t, wp => c_{kind}
   implicit none
   private
   public :: values
   include "constants.inc"
contains
   subroutine values(n, x, y) bind(C, name="values_{kind}")
      integer(i8), value :: n
      real(wp), intent(in) :: x(n)
      real(wp), intent(out) :: y(n, 2)
      integer(i8) :: i
      !$omp simd
      do i = 1, n
         y(i, 1) = logarithm(x(i))
      end do
      !$omp simd
      do i = 1, n
         y(i, 2) = logarithm_1_plus(x(i))
      end do
   end subroutine values
{bits}
   include "formulas.inc"
end module logarithms_{kind}
"""
#: As in fortran/config/meson.build
FLAGS = ["-std=f2018", "-Wall", "-Wextra", "-Werror", "-O3", "-fopenmp", "-fno-trapping-math", "-finline-limit=600"]
ARCHITECTURES = {"avx2": ["-march=x86-64-v3"], "avx512": ["-march=x86-64-v4"]}


@pytest.fixture(scope="module", params=[*LEVELS, "cuda"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Vectors are made of both loops, but of the kernels' procedures, which have no bits of numbers."""
    if shutil.which("gfortran") is None:
        pytest.skip("gfortran is not installed")
    folder: Path = tmp_path_factory.mktemp(request.param)
    cuda = request.param == "cuda"
    path = ROOT / "fortran" / ("cuda/kernels/bits.inc" if cuda else "operations/loops/bits.inc")
    bits = path.read_text(encoding="utf-8").replace("attributes(device) ", "")
    made = folder / "logarithms.so"
    sources = []
    for kind in ("float", "double"):
        sources.append(folder / f"{kind}.f90")
        sources[-1].write_text(SOURCE.format(kind=kind, bits=bits), encoding="utf-8")
    level = ARCHITECTURES.get(request.param, [])
    options = ["-fopt-info-vec", "-J", folder, "-I", ROOT / "fortran/operations/loops"]
    done = subprocess.run(["gfortran", *FLAGS, *level, *options, "-shared", "-fPIC", "-o", made, *sources],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    vectors = re.findall(r"(?:float|double)\.f90:(?:16|20):.*loop vectorized", done.stdout + done.stderr)
    assert cuda or request.param == "baseline" or len(vectors) >= 4, done.stderr
    if not cuda:
        with pytest.MonkeyPatch.context() as environment:
            choose(request.param, environment)
    return ctypes.CDLL(str(made))


def logarithms(library: ctypes.CDLL, x: Array) -> Array:
    """log(x), and log(1 + x)."""
    y = np.empty((2, x.size), x.dtype)
    kind = "float" if x.dtype == np.float32 else "double"
    getattr(library, f"values_{kind}")(ctypes.c_int64(x.size), *(
        array.ctypes.data_as(ctypes.c_void_p) for array in (x, y)))
    return y


def numbers(dtype: str) -> Array:
    """Of all sizes, subnormal ones too, and most of them near 1."""
    rng, info = np.random.default_rng(0), np.finfo(dtype)
    bits = np.dtype(dtype).itemsize * 8
    any_bits = rng.integers(0, 2**(bits - 1), 400_000, dtype=np.uint64).astype(f"uint{bits}").view(dtype)
    near = rng.uniform(0.5, 2, 400_000).astype(dtype)
    nearer = (1 + rng.uniform(-1, 1, 100_000) * 10.0**rng.uniform(-16, 0, 100_000)).astype(dtype)
    edges = [info.smallest_subnormal, info.tiny, info.max, 1.0, 2.0, 0.5, np.sqrt(0.5), np.sqrt(2.0), 1 + info.eps]
    edges = np.array(edges, dtype)
    x = np.concatenate([any_bits, near, nearer, edges, np.nextafter(edges, 0), np.nextafter(edges, info.max),
                        info.tiny * rng.uniform(0, 1, 1000).astype(dtype)])
    return x[np.isfinite(x) & (x > 0)]


def ulps(found: Array, truth: Array) -> float:
    unit = np.spacing(np.maximum(np.abs(truth), np.finfo(found.dtype).tiny).astype(found.dtype))
    return float((np.abs(found - truth) / unit.astype(truth.dtype)).max())


@looped("dtype", ["float32", "float64"])
def test_logarithms_are_right_to_the_last_places(library: ctypes.CDLL, dtype: str) -> None:
    """In the next larger precision, which has 29 or 11 bits more."""
    x, wide = numbers(dtype), np.float64 if dtype == "float32" else np.longdouble
    found = ulps(logarithms(library, x)[0], np.log(x.astype(wide)))
    small = np.concatenate([x, -x[x < 1]])
    plus = ulps(logarithms(library, small)[1], np.log1p(small.astype(wide)))
    print(dtype, found, plus)
    assert found <= 1
    assert plus <= 2


@looped("dtype", ["float32", "float64"])
def test_special_numbers(library: ctypes.CDLL, dtype: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, -2.0, -np.finfo(dtype).smallest_subnormal], dtype)
    log, log_1_plus = logarithms(library, x)
    with np.errstate(all="ignore"):
        assert np.array_equal(log, np.log(x), equal_nan=True)
        assert np.array_equal(log_1_plus, np.log1p(x), equal_nan=True)
