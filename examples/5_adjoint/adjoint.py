# SPDX-License-Identifier: MIT
"""What adjoint.f90 does, where PyTorch differentiates the solver and the network."""

import torch
from torch import nn

SIDE, STEPS, FLOW = 32, 10, 0.1
torch.manual_seed(0)
source = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 1, 3, padding=1)).double()


def laplace(t: torch.Tensor) -> torch.Tensor:
    return sum(t.roll(by, axis) for axis in (2, 3) for by in (1, -1)) - 4 * t


def energy(t: torch.Tensor) -> torch.Tensor:
    for _ in range(STEPS):
        t = t + FLOW * laplace(t) + 0.01 * source(t)
    return (t**2).sum() / 2


first = torch.rand(1, 1, SIDE, SIDE, dtype=torch.float64, requires_grad=True)
direction = torch.rand_like(first)
(gradient,) = torch.autograd.grad(energy(first), first)
along = (gradient * direction).sum().item()
with torch.no_grad():
    difference = ((energy(first + 1e-6 * direction) - energy(first - 1e-6 * direction)) / 2e-6).item()
print(f"adjoint {along:.5e}, difference {difference:.5e}, relative error {abs(along / difference - 1):.1e}")
