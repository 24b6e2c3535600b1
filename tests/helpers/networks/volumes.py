# SPDX-License-Identifier: MIT
"""U-Nets of volumes (n, c, d, h, w), as people write them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Unit(nn.Module):
    """Two convolutions, the first of which may make the volume smaller, and one beside them, as MONAI has them."""

    def __init__(self, c: int, k: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1, self.act1 = nn.Conv3d(c, k, 3, stride, 1), nn.InstanceNorm3d(k), nn.PReLU()
        self.conv2, self.norm2, self.act2 = nn.Conv3d(k, k, 3, padding=1), nn.InstanceNorm3d(k), nn.PReLU()
        self.beside = nn.Conv3d(c, k, 3, stride, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act1(self.norm1(self.conv1(x)))
        return self.act2(self.norm2(self.conv2(y))) + self.beside(x)


class ResidualUnet(nn.Module):
    """Strides down, transposed convolutions of three taps up."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.bottom = Unit(1, 3, 2), Unit(3, 4, 2)
        self.up1 = nn.ConvTranspose3d(4, 3, 3, 2, 1, output_padding=1)
        self.norm, self.act = nn.InstanceNorm3d(3), nn.PReLU()
        self.up2 = nn.ConvTranspose3d(6, 2, 3, 2, 1, output_padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = self.down(x)
        y = self.act(self.norm(self.up1(self.bottom(kept))))
        return self.up2(torch.cat([y, kept], dim=1))


class Twice(nn.Module):
    """Two convolutions with normalisations over the batch."""

    def __init__(self, c: int, k: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv3d(c, k, 3, padding=1, bias=False), nn.BatchNorm3d(k)
        self.conv2, self.norm2 = nn.Conv3d(k, k, 3, padding="same", bias=False), nn.BatchNorm3d(k)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.silu(self.norm1(self.conv1(x)))
        return functional.silu(self.norm2(self.conv2(y)))


class PooledUnet(nn.Module):
    """Maxima down, interpolation up."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.bottom, self.after = Twice(1, 3), Twice(3, 4), Twice(7, 3)
        self.pool = nn.MaxPool3d(2)
        self.larger = nn.Upsample(scale_factor=2, mode="trilinear", align_corners=True)
        self.drop, self.last = nn.Dropout3d(0.1), nn.Conv3d(3, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = self.down(x)
        y = self.larger(self.bottom(self.pool(kept)))
        return self.last(self.drop(self.after(torch.cat([y, kept], dim=1))))


class Means(nn.Module):
    """Means of windows, of as many windows as wanted and of all, and voxels that are repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.pool = nn.Conv3d(1, 3, (1, 3, 2), padding=(0, 1, 0)), nn.AvgPool3d((2, 3, 2), 2, (1, 1, 1))
        self.larger, self.second = nn.Upsample(scale_factor=2), nn.Conv3d(3, 4, 2, dilation=(2, 1, 1))
        self.some, self.all, self.last = nn.AdaptiveAvgPool3d((3, 2, 2)), nn.AdaptiveAvgPool3d(1), nn.Linear(48, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(self.larger(self.pool(functional.gelu(self.first(x)))))
        return self.last(self.some(y).flatten(1)) + self.all(y).flatten(1)


NETWORKS = {"strides": ResidualUnet, "maxima": PooledUnet, "means": Means}
