# SPDX-License-Identifier: MIT
"""What is measured: this project, PyTorch and JAX, on the CPU and on a GPU."""
