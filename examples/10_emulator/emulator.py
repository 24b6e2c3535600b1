# SPDX-License-Identifier: MIT
"""An LSTM that emulates an oscillator: written for emulator.f90, and trained by PyTorch, whose curve that has."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from bridge import Network

TIMES, BATCH, WIDTH = 60, 32, 32


class Emulator(nn.Module):
    """Place and velocity (n, TIMES, 2) to those of the next time: the change is what the layers find."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.change = nn.LSTM(2, WIDTH, num_layers=2, batch_first=True), nn.Linear(WIDTH, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.change(self.cells(x)[0])


def oscillator(place: float, velocity: float, count: int) -> np.ndarray:
    """Van der Pol's oscillator from there on, (count, 2), by Runge and Kutta's method with a step of 0.1."""
    def slope(y: np.ndarray) -> np.ndarray:
        return np.array([y[1], (1 - y[0] * y[0]) * y[1] - y[0]])

    y, h, found = np.array([place, velocity]), 0.1, []
    for _ in range(count):
        found.append(y)
        a = slope(y)
        b = slope(y + 0.5 * h * a)
        c = slope(y + 0.5 * h * b)
        d = slope(y + h * c)
        y = y + h / 6 * (a + 2 * b + 2 * c + d)
    return np.stack(found)


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Oscillators that begin elsewhere in every step, and the same a time later."""
    numbers = step * BATCH + np.arange(BATCH)
    begin = np.stack([7919 * numbers % 1000, 104729 * numbers % 997], 1) / 250 - 2
    paths = np.stack([oscillator(*one, TIMES + 1) for one in begin]).astype(np.float32)
    return paths[:, :-1].copy(), paths[:, 1:].copy()


torch.manual_seed(0)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
emulator = Emulator()
Network.from_torch(emulator, example=(BATCH, TIMES, 2), loss="mse").save("emulator.h5")
optimizer = torch.optim.Adam(emulator.parameters(), lr=3e-3)
for step in range(steps):
    x, target = map(torch.from_numpy, batch(step))
    loss = functional.mse_loss(emulator(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0 or step == steps - 1:
        print(f"step {step:4d}  loss {loss.item():.6f}")
