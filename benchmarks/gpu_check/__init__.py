# SPDX-License-Identifier: MIT
"""Everything that only a GPU can show, in one command: ``python -m benchmarks.gpu_check``, or ``make gpu-check``."""
