# SPDX-License-Identifier: MIT
"""What mpi.f90 does, with the same library from Python: mpirun -n 4 python mpi.py."""

import numpy as np
import torch
from mpi4py import MPI
from torch import nn

from bridge import Adam, Network

SIDE, IMAGES, STEPS = 48, 8, 200
world = MPI.COMM_WORLD
mine = slice(IMAGES * world.rank // world.size, IMAGES * (world.rank + 1) // world.size)
share = (mine.stop - mine.start) / IMAGES

torch.manual_seed(1)
net = Network.from_torch(nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1)),
                         keep_activations=False)
n, j, i = np.meshgrid(np.arange(1, IMAGES + 1), np.arange(1, SIDE + 1), np.arange(1, SIDE + 1), indexing="ij")
for step in range(1, STEPS + 1):
    # A batch follows from the number of its step, so that all ranks have the same
    clean = (np.sin(0.2 * (i + 5 * n)) * np.cos(0.15 * (j + step))).astype(np.float32)[:, None]
    noisy = clean + np.random.default_rng(step).random(clean.shape, np.float32) - np.float32(0.5)
    net.forward(noisy[mine])
    loss = world.allreduce(share * net.loss(clean[mine]))
    net.backward()
    gradients = np.float32(share) * np.concatenate([array.ravel() for array in net.gradients.values()])
    world.Allreduce(MPI.IN_PLACE, gradients)
    ends = np.cumsum([array.size for array in net.gradients.values()])
    for array, values in zip(net.gradients.values(), np.split(gradients, ends[:-1]), strict=True):
        array[...] = values.reshape(array.shape)
    net.update(Adam(3e-3))
    if world.rank == 0 and (step == 1 or step % 50 == 0):
        print(f"step {step}, loss {loss:.5f}")
