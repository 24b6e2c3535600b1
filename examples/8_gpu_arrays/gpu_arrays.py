# SPDX-License-Identifier: MIT
"""A network applied to an array that is in a GPU's memory; torch's and cupy's arrays are taken there just so."""

import numpy as np
import torch
from torch import nn

from bridge import DeviceArray, Network

torch.manual_seed(0)
module = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, 1, 3, padding=1))
here, there = (Network.from_torch(module, device=device) for device in ("cpu", "cuda"))

x = np.random.default_rng(0).random((2, 1, 48, 64), dtype=np.float32)
on_device = DeviceArray.from_numpy(x, "cuda")
y = there.forward(on_device)
print(f"largest difference between cpu and cuda {np.abs(y.numpy() - here.forward(x)).max():.1e}")
