# SPDX-License-Identifier: MIT
"""What checkpoint.f90 does, with the same library from Python."""

import numpy as np
import torch
from torch import nn

from bridge import AdamW, Network

torch.manual_seed(7)
module = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.SiLU(), nn.Conv2d(8, 1, 5, padding=2))
net = Network.from_torch(module)


def train(net: Network, steps: int) -> float:
    """Up to a number of steps, counted from the first; a batch follows from the number of its step alone."""
    loss = 0.0
    while net.steps < steps:
        i = np.arange(1, 2 * 32 * 32 + 1)
        x = np.sin(0.37 * i * (net.steps + 1)).astype(np.float32).reshape(2, 1, 32, 32)
        loss = net.step(x, np.abs(x), AdamW(1e-3))
    return loss


train(net, 20)
net.save("checkpoint.h5")
loss = train(net, 40)
resumed = Network.from_file("checkpoint.h5")
loss_resumed = train(resumed, 40)
print(f"step {resumed.steps}, loss {loss_resumed:.6f}, the same to the bit: {'FT'[loss == loss_resumed]}")
