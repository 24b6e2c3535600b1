# SPDX-License-Identifier: MIT
"""A training step on a GPU, ours beside PyTorch's, under the roofline: ``python -m benchmarks.gpu_bench``."""
