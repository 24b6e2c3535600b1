# SPDX-License-Identifier: MIT
"""What several files of tests of CUDA share."""

import os

#: Run on the CUDA libraries and the GPU of the machine, in place of the software device
REAL_CUDA = os.environ.get("CNN_TEST_CUDA") == "real"
