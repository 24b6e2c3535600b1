# SPDX-License-Identifier: MIT
"""Operations that only move numbers, which torch.export alone reads, and some of tests/parity/test_window_settings.py.
"""

from bridge.operations.table import rows

MOVES = {"adaptive_max_pool2d", "circular_pad", "constant_pad", "expand", "flip", "index_select", "interpolate",
         "permute", "pixel_shuffle", "pixel_unshuffle", "roll", "slice"}
#: And those of networks that have tests of their own: test_attention, test_fourier, test_shared_operands, test_volumes
#: and test_words in tests/parity
OF_OWN_TESTS = MOVES | {"attention", "complex_linear", "embedding", "gather_rows", "parameter", *rows("recurrence"),
                        *rows("volumes")}
