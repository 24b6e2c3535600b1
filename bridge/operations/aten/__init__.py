# SPDX-License-Identifier: MIT
"""Operations that the table lacks, as calls of ATen, which PyTorch computes for the judge."""
