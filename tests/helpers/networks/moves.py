# SPDX-License-Identifier: MIT
"""Operations that only move numbers, which torch.export alone reads, and some of tests/parity/test_window_settings.py.
"""

MOVES = {"adaptive_max_pool2d", "circular_pad", "constant_pad", "expand", "flip", "index_select", "interpolate",
         "permute", "pixel_shuffle", "pixel_unshuffle", "roll", "slice"}
