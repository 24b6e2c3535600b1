# SPDX-License-Identifier: MIT
"""fortran/cuda/kernels/selfcheck.cuf on a CPU: rewritten from CUDA Fortran to Fortran, and compiled by gfortran.

A kernel becomes a subroutine, a launch a loop over all threads, device memory the host's; where a thread is stands in
variables of a module ``cudafor`` of ours, which also answers what the program asks of CUDA. The kernels' own files are
rewritten alike, so that a fault in one of them is a fault here.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests import ROOT

KERNELS = ROOT / "fortran" / "cuda" / "kernels"
PROGRAM = KERNELS / "selfcheck.cuf"
#: The first line of each module that may ask for its place in the grid
USES = re.compile(r"^(?=   use, intrinsic :: iso_fortran_env)", re.M)
LAUNCH = re.compile(r"^( *)call (\w+)<<<(.*), (\w+)>>>(\((?:.*&\n)*.*\))$", re.M)
RUNTIME = """
module cudafor
   implicit none
   integer, parameter :: cudaSuccess = 0
   type :: dim3
      integer :: x = 1, y = 1, z = 1
   end type dim3
   type :: cudaDeviceProp
      character(16) :: name = 'a "software" CPU'
      integer :: major = 0, minor = 1
   end type cudaDeviceProp
   type(dim3) :: threadIdx, blockIdx, blockDim, gridDim
   interface grid_of
      procedure grid_of_number, grid_of_dim3
   end interface grid_of
contains
   type(dim3) function grid_of_number(x)
      integer, intent(in) :: x
      grid_of_number%x = x
   end function grid_of_number
   type(dim3) function grid_of_dim3(grid)
      type(dim3), intent(in) :: grid
      grid_of_dim3 = grid
   end function grid_of_dim3
   subroutine launch(grid, threads)
      type(dim3), intent(in) :: grid
      integer, intent(in) :: threads
      gridDim = grid
      blockDim = dim3(threads)
      blockIdx = dim3()
      threadIdx = dim3(0)
   end subroutine launch
   logical function next_thread()
      threadIdx%x = threadIdx%x + 1
      if (threadIdx%x > blockDim%x) then
         threadIdx%x = 1
         blockIdx%x = blockIdx%x + 1
      end if
      if (blockIdx%x > gridDim%x) then
         blockIdx%x = 1
         blockIdx%y = blockIdx%y + 1
      end if
      next_thread = blockIdx%y <= gridDim%y
   end function next_thread
   integer function cudaGetDeviceCount(n)
      integer, intent(out) :: n
      n = DEVICES
      cudaGetDeviceCount = cudaSuccess
   end function cudaGetDeviceCount
   integer function cudaGetDeviceProperties(properties, number)
      type(cudaDeviceProp), intent(out) :: properties
      integer, intent(in) :: number
      cudaGetDeviceProperties = number
   end function cudaGetDeviceProperties
   integer function cudaGetLastError()
      cudaGetLastError = STATUS
   end function cudaGetLastError
end module cudafor
"""


def as_fortran(text: str) -> str:
    """CUDA Fortran as Fortran.

    Examples
    --------
    >>> print(as_fortran("   call fold<<<dim3(2, 3, 1), 8>>>(n, &\\n      & from)"))
       call launch(grid_of(dim3(2, 3, 1)), 8)
       do while (next_thread())
       call fold(n, &
          & from)
       end do
    """
    text = LAUNCH.sub(r"\1call launch(grid_of(\3), \4)\n\1do while (next_thread())\n\1call \2\5\n\1end do", text)
    text = re.sub(r"attributes\((?:global|device)\) ", "", text)
    return USES.sub("   use cudafor\n", re.sub(r", device\b", "", text))


def build(folder: Path, change: Callable[[str, str], str] = lambda _, text: text, *, devices: int = 1,
          status: int = 0) -> Path:
    """The program in `folder`.

    Parameters
    ----------
    folder : where it may write
    change : makes another text of a file's, whose name is given
    devices : how many GPUs there are said to be
    status : what CUDA says of each launch

    Raises
    ------
    subprocess.CalledProcessError
        If gfortran refuses it.
    """
    for path in (PROGRAM, *sorted(KERNELS.glob("*.inc"))):
        text = change(path.name, path.read_text(encoding="utf-8"))
        (folder / path.name).write_text(as_fortran(text), encoding="utf-8")
    runtime, program = folder / "cudafor.f90", folder / "program"
    runtime.write_text(RUNTIME.replace("DEVICES", str(devices)).replace("STATUS", str(status)), encoding="utf-8")
    subprocess.run(["gfortran", "-O1", "-fcheck=all", "-ffree-form", "-J", folder, "-o", program, runtime, "-x", "f95",
                    folder / PROGRAM.name], check=True)  # fmt: skip
    return program
