# SPDX-License-Identifier: MIT
"""The directions of steps, one module for each kind of optimiser."""
