# SPDX-License-Identifier: MIT
"""``python -m bridge.doctor``: what works on this machine, what does not, and the one command that would help.

Nothing that may crash runs in the doctor's own process: the Fortran library, the CUDA libraries and the probes are
asked in child processes with a time limit (`apart`).
"""
