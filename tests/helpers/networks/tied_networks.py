# SPDX-License-Identifier: MIT
"""Networks whose layers are called several times, share weights, or have weights that are computed."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from tests.helpers.networks.exported_networks import conv


class Recursive(nn.Module):
    """A block that is called three times, of a grouped and a strided convolution, and norms of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.block = conv(1, 4), nn.Conv2d(4, 4, 3, padding=2, dilation=2, groups=2)
        self.norm, self.act, self.last = nn.GroupNorm(2, 4), nn.PReLU(4), nn.Conv2d(4, 1, (2, 3), (2, 1), bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for _ in range(3):
            x = x + self.act(self.norm(self.block(x)))
        return self.last(x) + self.last(x.flip(2))


class Autoencoder(nn.Module):
    """Rows of pixels, back by the same weight, transposed, and one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.norm = nn.Parameter(torch.randn(3, 8) / 4), nn.LayerNorm(8)
        self.line, self.act, self.series = nn.Linear(8, 8), nn.PReLU(), nn.Conv1d(6, 6, 3, padding="same")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.series(self.act(self.line(self.norm(x.squeeze(1)))))
        y = self.series(self.act(self.line(self.norm(y))))
        return functional.linear(functional.linear(y, self.weight), self.weight.t()).unsqueeze(1)


class Standardised(nn.Module):
    """Filters without mean and of one variance, lengths apart from directions, a classifier of cosines."""

    def __init__(self) -> None:
        super().__init__()
        self.filters, self.gain = nn.Conv2d(1, 4, 3, padding=1), nn.Parameter(torch.ones(4, 1, 1, 1))
        self.ones, self.norm = conv(4, 4), nn.BatchNorm2d(4, affine=False)
        self.series, self.classes = weight_norm(nn.Conv2d(4, 2, 3, stride=2)), nn.Parameter(torch.randn(5, 4) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = self.filters.weight
        w = functional.batch_norm(w.reshape(1, 4, -1), None, None, (self.gain * 0.5).view(-1), None, True, 0.0, 1e-5)
        y = torch.relu(functional.conv2d(x, w.reshape_as(self.filters.weight), self.filters.bias, padding=1))
        w = self.ones.weight
        w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-3)
        y = self.norm(functional.conv2d(y, w, self.ones.bias, padding=1))
        y = torch.relu(self.series(y)).flatten(1)[:, :4]
        return functional.linear(functional.normalize(y + 1), functional.normalize(self.classes))


class Deep(nn.Module):
    """A convolution of volumes, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.voxels = nn.Conv3d(1, 1, (1, 3, 2), (1, 1, 2), (0, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.voxels(torch.tanh(self.voxels(x.unsqueeze(1)))).squeeze(1)


#: All of them with the shape of a batch
TIED: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "recursive": (Recursive, (2, 1, 6, 5)), "autoencoder": (Autoencoder, (2, 1, 6, 8)),
    "standardised": (Standardised, (2, 1, 5, 6)), "deep": (Deep, (2, 1, 4, 5)),
}
