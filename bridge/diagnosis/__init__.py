# SPDX-License-Identifier: MIT
"""Which bug: every fault is a hypothesis, recomputed in float64 and judged by the same bounds."""
