# SPDX-License-Identifier: MIT
"""Is a result right? Measured against float64 and bounds, decided, and the fault named."""
