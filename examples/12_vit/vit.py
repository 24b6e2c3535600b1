# SPDX-License-Identifier: MIT
"""A Vision Transformer that tells patterns apart: written for vit.f90, and trained by PyTorch with the same curve."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from bridge import Network

EDGE, PATCH, WIDTH, HEADS, LAYERS, CLASSES, BATCH = 16, 4, 32, 4, 2, 4, 32


class Vit(nn.Module):
    """Images (n, 1, EDGE, EDGE) to logits (n, CLASSES), by a token of the class beside those of the patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, tokens = nn.Conv2d(1, WIDTH, PATCH, stride=PATCH), (EDGE // PATCH)**2
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, WIDTH))
        self.places = nn.Parameter(0.02 * torch.randn(1, tokens + 1, WIDTH))
        self.layers = nn.Sequential(*(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(LAYERS)))
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        found: torch.Tensor = self.out(self.norm(self.layers(x)[:, 0]))
        return found


def mixed(numbers: np.ndarray) -> np.ndarray:
    """Numbers from 0 to 2**31 - 2 that look random, made of others."""
    for _ in range(3):
        numbers = (numbers * numbers + 12345) % 2147483647
    return numbers


def images(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 1, EDGE, EDGE) and their classes (n,): stripes of three directions, or rings, with noise."""
    y, x = np.indices((EDGE, EDGE))
    found, kinds = [], numbers % CLASSES
    for number, kind in zip(numbers, kinds, strict=True):
        p = mixed(4 * number + np.arange(4))
        place = (x, y, x + y, np.sqrt((x - p[1] % EDGE)**2 + (y - p[2] % EDGE)**2).astype(int))[kind]
        half = 2 + p[3] % 2
        noise = mixed(EDGE * EDGE * number + EDGE * y + x) / 2147483647 * 2.0 - 1.0
        found.append((place + p[0] % 6) // half % 2 + noise)
    return np.stack(found)[:, None].astype(np.float32), kinds


torch.manual_seed(0)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
vit = Vit()
Network.from_torch(vit, example=(BATCH, 1, EDGE, EDGE), loss="cross_entropy").save("vit.h5")
optimizer = torch.optim.AdamW(vit.parameters(), lr=2e-3)
for step in range(steps):
    x, target = map(torch.from_numpy, images(BATCH * step + np.arange(BATCH)))
    loss = functional.cross_entropy(vit(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0 or step == steps - 1:
        print(f"step {step:4d}  loss {loss.item():.6f}")
