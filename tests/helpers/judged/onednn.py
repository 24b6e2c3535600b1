# SPDX-License-Identifier: MIT
"""Convolutions of PyTorch's CPU with and without oneDNN: without it, 16-bit ones are computed from unfolded images, as
on a processor for which oneDNN has no bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def convolutions_by(onednn: bool) -> Iterator[None]:
    """Without torch's warning of `torch.backends.mkldnn.flags`, which sets TF32, too."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(onednn)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def has_bfloat16() -> bool:
    """Whether oneDNN has it for this processor."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
