# SPDX-License-Identifier: MIT
"""Write a torch network to denoiser.h5, and compute in PyTorch what inference.f90 computes from it."""

import torch
from torch import nn

from bridge import Network

torch.manual_seed(0)
module = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 1, 3, padding=1))
Network.from_torch(module, example=(2, 1, 48, 64)).save("denoiser.h5")

x = torch.sin(0.01 * torch.arange(2 * 48 * 64)).reshape(2, 1, 48, 64)
with torch.no_grad():
    y = module.eval()(x)
print(f"mean {y.double().mean():.4f}, corner {y[1, 0, 47, 63]:.4f}")
