# SPDX-License-Identifier: MIT
"""One command for every figure that is published: ``python -m benchmarks.step``."""
