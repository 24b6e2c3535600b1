# SPDX-License-Identifier: MIT
"""Arrays as Fortran takes them, from numpy and from CUDA libraries, without copies."""
