# SPDX-License-Identifier: MIT
"""What docs/mistakes.md shows: Fortran programs with a mistake each, what they compute, and what is said of it."""
