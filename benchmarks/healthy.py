# SPDX-License-Identifier: MIT
"""``python -m benchmarks.healthy``: see `benchmarks.validator.healthy`."""

import sys

from benchmarks.validator.healthy import main as main

if __name__ == "__main__":
    sys.exit(main())
