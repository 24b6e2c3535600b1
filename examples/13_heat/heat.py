# SPDX-License-Identifier: MIT
"""A Fourier neural operator of the heat equation: written for heat.f90, and trained by PyTorch, whose curve it has."""

import sys

import numpy as np
import torch
from torch import fft, nn
from torch.nn import functional

from bridge import Network

SIDE, BATCH, WIDTH, MODES, LAYERS, WAVES = 32, 16, 12, 6, 3, 8


class Spectral(nn.Module):
    """The channels of each of the lowest frequencies, of both signs along the height, mixed by a complex matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = (nn.Parameter(torch.randn(WIDTH, WIDTH, MODES, MODES, dtype=torch.cfloat) / WIDTH)
                               for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = fft.rfft2(x)
        y = torch.zeros_like(found)
        y[:, :, :MODES, :MODES] = torch.einsum("bixy,ioxy->boxy", found[:, :, :MODES, :MODES], self.low)
        y[:, :, -MODES:, :MODES] = torch.einsum("bixy,ioxy->boxy", found[:, :, -MODES:, :MODES], self.high)
        return fft.irfft2(y, s=x.shape[2:])


class Operator(nn.Module):
    """Temperature and diffusivity (n, 2, SIDE, SIDE) to the temperature a time later: what is found is the change."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Conv2d(2, WIDTH, 1), nn.Conv2d(WIDTH, 1, 1)
        self.spectral = nn.ModuleList(Spectral() for _ in range(LAYERS))
        self.local = nn.ModuleList(nn.Conv2d(WIDTH, WIDTH, 1) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.up(x)
        for spectral, local in zip(self.spectral, self.local, strict=True):
            y = functional.gelu(spectral(y) + local(y))
        return x[:, :1] + self.down(y)


def field(number: int) -> tuple[np.ndarray, np.ndarray]:
    """A sum of waves on a torus, with the diffusivity of this field as a second channel, and what is left of it."""
    places = 2 * np.pi * np.arange(SIDE) / SIDE
    diffusivity = (1 + number * 7919 % 100) / 1000
    before, after = np.zeros((2, SIDE, SIDE))
    for wave in range(WAVES):
        draw = number * WAVES + wave
        across, down = draw * 104729 % 997 % 5, draw * 1299709 % 991 % 9 - 4
        height, phase = draw * 15485863 % 983 / 983 - 0.5, 2 * np.pi * (draw * 32452843 % 977 / 977)
        shape = height * np.cos(across * places + down * places[:, None] + phase)
        before += shape
        after += shape * np.exp(-diffusivity * (across**2 + down**2))
    return np.stack([before, np.full_like(before, 10 * diffusivity)]), after[None]


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Fields that follow from the number of the step."""
    pairs = [field(step * BATCH + i) for i in range(BATCH)]
    x, target = (torch.from_numpy(np.stack(one).astype(np.float32)) for one in zip(*pairs, strict=True))
    return x, target


torch.manual_seed(0)
torch.set_num_threads(2)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
operator = Operator()
Network.from_torch(operator, example=(BATCH, 2, SIDE, SIDE), loss="mse").save("heat.h5")
optimizer = torch.optim.Adam(operator.parameters(), lr=3e-3)
for step in range(steps):
    x, target = batch(step)
    loss = functional.mse_loss(operator(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0 or step == steps - 1:
        print(f"step {step:4d}  loss {loss.item():.6f}")
