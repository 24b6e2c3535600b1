# SPDX-License-Identifier: MIT
"""``python -m benchmarks.gallery``: see `benchmarks.validator.gallery`."""

import sys

from benchmarks.validator.gallery import main as main

if __name__ == "__main__":
    sys.exit(main())
