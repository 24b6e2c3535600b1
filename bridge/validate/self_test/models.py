# SPDX-License-Identifier: MIT
"""Models of the self-test's fixtures, for ``reference.export --model``, beside the default one."""

from __future__ import annotations

import torch
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


class Branched(nn.Module):
    """A small U-Net with a gate, whose output is added to its input; images of even height and width."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6, eps=1e-3, momentum=0.25)
        self.leaky = nn.LeakyReLU(0.125)
        self.pool = nn.MaxPool2d(2)
        self.deep = nn.Conv2d(6, 6, 3, padding=1)
        self.gate = nn.Sigmoid()
        self.larger = nn.Upsample(scale_factor=2, mode="bilinear")
        self.drop = nn.Dropout(0.25)
        self.last = nn.Conv2d(12, 1, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input and what the network adds to it."""
        one = self.leaky(self.norm(self.first(x)))
        two = self.larger(self.gate(self.deep(self.pool(one))))
        return self.last(self.drop(torch.cat([one, two], 1))) + x
