# SPDX-License-Identifier: MIT
"""Complex numbers of a graph of ATen, written with pairs of real ones."""
