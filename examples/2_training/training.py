# SPDX-License-Identifier: MIT
"""What training.f90 does, with the same library from Python."""

import numpy as np
from torch import nn

from bridge import Adam, Network

SIDE, IMAGES, STEPS = 64, 4, 300
i, j = np.meshgrid(np.arange(1, SIDE + 1), np.arange(1, SIDE + 1), indexing="xy")
wave = (np.sin(0.2 * i) * np.cos(0.15 * j)).astype(np.float32)
clean = np.stack([wave, *[wave.T] * (IMAGES - 1)])[:, None]

module = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
                       nn.Conv2d(16, 1, 3, padding=1))
net = Network.from_torch(module, keep_activations=False)
rng = np.random.default_rng(0)
for step in range(1, STEPS + 1):
    noisy = clean + rng.random(clean.shape, np.float32) - np.float32(0.5)
    loss = net.step(noisy, clean, Adam(3e-4 if step > 2 * STEPS // 3 else 3e-3))
    if step == 1 or step % 100 == 0:
        print(f"step {step}, loss {loss:.5f}")
net.save("trained.h5")
