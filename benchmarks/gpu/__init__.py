# SPDX-License-Identifier: MIT
"""A training step on a GPU, ours beside PyTorch's and the machine's floor: ``python -m benchmarks.gpu_bench``."""
