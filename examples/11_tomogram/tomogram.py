# SPDX-License-Identifier: MIT
"""A 3-D U-Net that removes noise from a tomogram: written for tomogram.f90, and trained by PyTorch with the same curve.

It learns without a tomogram that is free of noise: one half of the projections from the other (Noise2Noise).
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from bridge import Network

SIZE, PART, BATCH, WIDTH, STRUCTURES = 48, 16, 4, 8, 24


class UNet(nn.Module):
    """Volumes (n, 1, d, h, w) at two resolutions; the channels of both are joined at the finer one."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Conv3d(1, WIDTH, 3, padding=1)
        self.coarse1, self.coarse2 = (nn.Conv3d(n * WIDTH, 2 * WIDTH, 3, padding=1) for n in (1, 2))
        self.up = nn.ConvTranspose3d(2 * WIDTH, WIDTH, 2, stride=2)
        self.joined, self.out = nn.Conv3d(2 * WIDTH, WIDTH, 3, padding=1), nn.Conv3d(WIDTH, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fine = self.fine(x).relu()
        coarse = self.coarse2(self.coarse1(functional.max_pool3d(fine, 2)).relu()).relu()
        found: torch.Tensor = self.out(self.joined(torch.cat([fine, self.up(coarse)], 1)).relu())
        return found


def mixed(numbers: np.ndarray) -> np.ndarray:
    """Numbers from 0 to 2**31 - 2 that look random, made of others."""
    for _ in range(3):
        numbers = (numbers * numbers + 12345) % 2147483647
    return numbers


def structures(number: int) -> np.ndarray:
    """A tomogram without noise, (SIZE, SIZE, SIZE): 1 in spheres and filaments, and 0 around them."""
    found, places = np.zeros((SIZE, SIZE, SIZE), np.float32), np.moveaxis(np.indices((SIZE, SIZE, SIZE))[::-1], 0, -1)
    for i in range(STRUCTURES):
        p = mixed(7 * (STRUCTURES * number + i) + np.arange(7))
        d = places - p[:3] % SIZE
        if i % 2 == 0:
            inside = (d * d).sum(-1) <= (3 + p[6] % 3)**2
        else:
            u = p[3:6] % [7, 7, 3] + [-3, -3, 1]
            inside = (np.cross(d, u)**2).sum(-1) <= 4 * (u * u).sum()
        found[inside] = 1.0
    return found


def half(number: int, which: int) -> np.ndarray:
    """A tomogram with the noise of one half, (SIZE, SIZE, SIZE)."""
    numbers = mixed((2 * number + which) * SIZE**3 + np.arange(SIZE**3))
    noise = numbers / 2147483647 * 1.6 - 0.8
    return (structures(number) + noise.reshape((SIZE, SIZE, SIZE))).astype(np.float32)


def batch(halves: list[np.ndarray], step: int) -> tuple[np.ndarray, np.ndarray]:
    """Parts of both halves, at places that follow from the number of the step."""
    found: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for i in range(BATCH):
        x, y, z = mixed(3 * (BATCH * step + i) + np.arange(3)) % (SIZE - PART + 1)
        for parts, one in zip(found, halves, strict=True):
            parts.append(one[None, z:z + PART, y:y + PART, x:x + PART])
    return np.stack(found[0]), np.stack(found[1])


torch.manual_seed(0)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
net = UNet()
Network.from_torch(net, example=(BATCH, 1, PART, PART, PART), loss="mse").save("tomogram.h5")
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
halves = [half(0, 0), half(0, 1)]
for step in range(steps):
    x, target = map(torch.from_numpy, batch(halves, step))
    loss = functional.mse_loss(net(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0 or step == steps - 1:
        print(f"step {step:4d}  loss {loss.item():.6f}")
