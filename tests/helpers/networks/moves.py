# SPDX-License-Identifier: MIT
"""Operations that only move numbers, which torch.export alone reads."""

MOVES = {"expand", "flip", "index_select", "permute", "pixel_shuffle", "pixel_unshuffle", "roll", "slice"}
