# SPDX-License-Identifier: MIT
"""One training step in float64, and for every element how far rounding may lead away from it."""
