# SPDX-License-Identifier: MIT
"""Models of the self-test's fixtures, for ``reference.export --model``, beside the default one."""

from __future__ import annotations

from torch import nn


def strided() -> nn.Module:
    """Return strides, dilations, groups, paddings and kernels that differ in height and width; a layer without bias."""
    return nn.Sequential(
        nn.Conv2d(2, 6, (3, 5), stride=(2, 1), padding=(1, 2)),
        nn.ReLU(),
        nn.Conv2d(6, 8, (3, 3), padding=(2, 2), dilation=(2, 2), groups=2, bias=False),
        nn.ReLU(),
        nn.Conv2d(8, 3, (1, 3), stride=(1, 2), padding=(0, 1)),
    )


def wide() -> nn.Module:
    """Return kernels of 5x5 taps."""
    return nn.Sequential(nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.Conv2d(4, 2, 5, padding=2))


def pointwise() -> nn.Module:
    """Return one 1x1 convolution: little work for many pixels."""
    return nn.Sequential(nn.Conv2d(1, 1, 1))
