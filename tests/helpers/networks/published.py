# SPDX-License-Identifier: MIT
"""A ConvNeXt and a U-Net of volumes, as papers have them; ``width`` makes them as wide."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class ConvNextBlock(nn.Module):
    """A depthwise convolution of 7 x 7, two linear layers of all channels, factors of channels, and what was before.

    Source: Z. Liu et al., A ConvNet for the 2020s, CVPR 2022.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width, eps=1e-6)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(0.1 * torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(functional.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    """Two blocks of the first stage, behind patches of 4 x 4; one of ten classes."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.patches, self.one, self.two = nn.Conv2d(3, width, 4, 4), ConvNextBlock(width), ConvNextBlock(width)
        self.classes = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classes(self.two(self.one(self.patches(x))).mean((2, 3)))


class DoubleConv3d(nn.Sequential):
    """Two convolutions of volumes with normalisations."""

    def __init__(self, given: int, width: int) -> None:
        super().__init__(nn.Conv3d(given, width, 3, padding=1), nn.InstanceNorm3d(width), nn.ReLU(inplace=True),
                         nn.Conv3d(width, width, 3, padding=1), nn.InstanceNorm3d(width), nn.ReLU(inplace=True))


class VolumeUnet(nn.Module):
    """One level down by maxima, and up by a transposed convolution.

    Source: O. Cicek et al., 3D U-Net, MICCAI 2016, with three levels of 32 channels and more.
    """

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.down, self.bottom = DoubleConv3d(1, width), DoubleConv3d(width, 2 * width)
        self.pool, self.up = nn.MaxPool3d(2), nn.ConvTranspose3d(2 * width, width, 2, 2)
        self.join, self.last = DoubleConv3d(2 * width, width), nn.Conv3d(width, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = self.down(x)
        return self.last(self.join(torch.cat([kept, self.up(self.bottom(self.pool(kept)))], dim=1)))
