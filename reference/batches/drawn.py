# SPDX-License-Identifier: MIT
"""Batches of what is no image, drawn: vectors, sequences, volumes, several inputs."""

from __future__ import annotations

import numpy as np
import torch

from reference.inputs import Inputs
from reference.losses import LossText


class DrawnSource:
    """Inputs and targets of each step, normal numbers.

    Parameters
    ----------
    shape : of one sample, or several inputs, which lie in one array
    batch : samples in a batch
    seed : int >= 0

    Attributes
    ----------
    shape : of an input, with the samples
    inputs : names and shapes, where there are several
    integers : 0: inputs are real numbers
    data, target : root attributes of the fixture

    Examples
    --------
    >>> source = DrawnSource((3,), 2, seed=0)
    >>> source.shape, source.batch(0)[0].shape, source.fitted(0, (2, 1), LossText.read("mse"), torch.float32).shape
    ((2, 3), (2, 3), torch.Size([2, 1]))
    """

    integers = 0

    def __init__(self, shape: tuple[int, ...] | Inputs, batch: int, seed: int) -> None:
        self.inputs = shape if isinstance(shape, Inputs) else None
        sample = (shape.numbers,) if isinstance(shape, Inputs) else shape
        self.shape: tuple[int, ...] = (batch, *sample)
        self._seed = seed
        self.data, self.target = f"normal numbers, seed {seed}", "normal numbers, of the output's shape"

    def batch(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Input of step k, and what nobody takes for its target; see `fitted`."""
        x = np.random.default_rng([self._seed, k]).standard_normal(self.shape)
        return x, x

    def fitted(self, k: int, shape: tuple[int, ...], loss: LossText, dtype: torch.dtype) -> torch.Tensor:
        """Return the target of step k for an output of a shape: of a loss of classes these."""
        drawn = np.random.default_rng([self._seed, k, 1]).standard_normal(shape)
        return loss.target(torch.from_numpy(drawn).to(dtype))
