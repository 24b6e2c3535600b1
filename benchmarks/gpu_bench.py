# SPDX-License-Identifier: MIT
"""``python -m benchmarks.gpu_bench``: see `benchmarks.gpu.cli`."""

import sys

from benchmarks.gpu.cli import main as main

if __name__ == "__main__":
    sys.exit(main())
