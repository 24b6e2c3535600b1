# SPDX-License-Identifier: MIT
"""One command for every figure that is published: ``python -m benchmarks`` for speed and memory (docs/benchmarks.md),
``python -m benchmarks.NAME`` for gallery, healthy, fuzz and gpu_check."""

# It says what is missing, before anything else fails for want of it
import bridge as bridge
