# SPDX-License-Identifier: MIT
"""What training.f90 does, with the same library from Python."""

from pathlib import Path

import numpy as np
from torch import nn

from bridge import Adam, Network

SIDE, IMAGES, STEPS = 64, 4, 300


def make_batch(number: int) -> tuple[np.ndarray, np.ndarray]:
    """In place of a program's own data: waves, and the same with noise."""
    n, j, i = np.meshgrid(np.arange(1, IMAGES + 1), np.arange(1, SIDE + 1), np.arange(1, SIDE + 1), indexing="ij")
    clean = (np.sin(0.2 * (i + 7 * number)) * np.cos(0.15 * j * n)).astype(np.float32)[:, None]
    return clean, clean + np.random.default_rng(number).random(clean.shape, np.float32) - np.float32(0.5)


if Path("trained.h5").exists():
    net = Network.from_file("trained.h5", keep_activations=False)
else:
    module = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
                           nn.Conv2d(16, 1, 3, padding=1))
    net = Network.from_torch(module, keep_activations=False)
for step in range(net.steps + 1, STEPS + 1):
    # A schedule: the rate falls as half a cosine
    optimizer = Adam(3e-3 * (1 + np.cos(np.pi * step / STEPS)) / 2)
    clean, noisy = make_batch(step)
    loss = net.step(noisy, clean, optimizer)
    if step % 100 == 0:
        # How it does on images of which no step is made, and a checkpoint, which is whole or the one before
        clean, noisy = make_batch(0)
        net.forward(noisy)
        unseen = net.loss(clean)
        net.save("trained.h5", optimizer)
        print(f"step {step}, loss {loss:.5f}, of unseen images {unseen:.5f}")
