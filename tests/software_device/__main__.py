# SPDX-License-Identifier: MIT
"""``python -m tests.software_device [FUNCTION...]``: print the folder for CNN_CUDA_PATH, without these functions."""

import sys

from tests.software_device import build

sys.stdout.write(f"{build(hidden=tuple(sys.argv[1:]))}\n")
