# SPDX-License-Identifier: MIT
"""What every benchmark shares: workloads, processes, interleaved runs, times, rooflines, documents, tables."""
