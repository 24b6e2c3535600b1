# SPDX-License-Identifier: MIT
"""The Fortran library from Python: loaded, given arrays of the host and of CUDA devices, and as a network."""
