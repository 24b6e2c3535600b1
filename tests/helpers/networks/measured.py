# SPDX-License-Identifier: MIT
"""Peers by their names, and a cell, for the tests of `benchmarks.gpu_bench`."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu.cells import Cell

Found = dict[str, Any]

WAITS, GRAPH = "bridge, loss read", "torch CUDA graph"
CELL = Cell(12, 2, "fp32")
