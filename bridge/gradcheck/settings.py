# SPDX-License-Identifier: MIT
"""What is checked with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from bridge.gradcheck.check import check_counts

Array = np.ndarray


@dataclass(frozen=True)
class Settings:
    """Precision, device, seed of all data, elements of each input, random directions."""

    dtype: str = "float64"
    device: str = "cpu"
    seed: int = 0
    points: int = 32
    directions: int = 4

    def __post_init__(self) -> None:
        check_counts(self.seed, None, self.points, self.directions)

    @property
    def counts(self) -> dict[str, Any]:
        """Return the arguments of `gradcheck`."""
        return {"seed": self.seed, "points": self.points, "directions": self.directions}

    def generator(self, name: str) -> np.random.Generator:
        """Return random numbers, always the same for a seed and a name."""
        return np.random.default_rng([self.seed, crc32(name.encode())])

    def random(self, name: str, shape: tuple[int, ...]) -> Array:
        """Return normal numbers, always the same for a seed, a name and a shape."""
        return self.generator(name).standard_normal(shape).astype(self.dtype)
