# SPDX-License-Identifier: MIT
"""Operations on volumes (n, c, d, h, w): those on images with a depth. Triples are (depth, height, width)."""
