# SPDX-License-Identifier: MIT
"""``python -m benchmarks.fuzz``: see `benchmarks.validator.fuzz`."""

import sys

from benchmarks.validator.fuzz import main as main

if __name__ == "__main__":
    sys.exit(main())
