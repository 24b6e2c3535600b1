# SPDX-License-Identifier: MIT
"""What every step on a GPU is made of: the same images, and a face that the worker uses."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import torch

from benchmarks.harness.workloads import Net

#: Large enough that three updates show what the gradients were, small enough that thousands do not diverge
LR = 2.0**-6
#: Images repeat these values; a prime number, so that no two rows of an image are equal
VALUES = 1048573


class Step(Protocol):
    """A training step that is ready to run.

    Attributes
    ----------
    notes : how it is done, for the report
    """

    notes: dict[str, Any]

    def run(self) -> None:
        """Queue one step; wait for nothing."""

    def loss(self) -> float:
        """Of the last step, before its update. Waits."""

    def parameters(self) -> list[np.ndarray]:
        """Weight and bias of every layer, in the order of the layers, on the host. Waits."""


def batch(net: Net, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and targets, made on the device from values that are drawn on the host: the same for everybody."""
    generator = np.random.default_rng(2)
    shapes = [(net.batch, channels, net.size, net.size) for channels in (net.channels[0], net.channels[-1])]
    return tuple(_repeated(generator.standard_normal(min(VALUES, math.prod(shape)), dtype=np.float32), shape, device)
                 for shape in shapes)


def _repeated(values: np.ndarray, shape: tuple[int, ...], device: str) -> torch.Tensor:
    some, number = torch.from_numpy(values).to(device), math.prod(shape)
    return some.repeat(-(-number // len(values)))[:number].reshape(shape).contiguous()
