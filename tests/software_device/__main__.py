# SPDX-License-Identifier: MIT
"""``python -m tests.software_device``: print the folder for CNN_CUDA_PATH."""

import sys

from tests.software_device import build

sys.stdout.write(f"{build()}\n")
