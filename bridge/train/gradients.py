# SPDX-License-Identifier: MIT
"""What happens to gradients between the backward pass and the update: means of several batches, a limit of their norm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from bridge.engine.arrays.transfer import to_device, to_host
from bridge.engine.network.network import Network

#: What torch.nn.utils.clip_grad_norm_ adds to the norm
EPS = 1e-6


def read(network: Network) -> dict[str, np.ndarray]:
    """Return copies of a network's gradients, on the host."""
    return {name: np.array(to_host(one)) for name, one in network.gradients.items()}


def write(network: Network, gradients: Mapping[str, np.ndarray]) -> None:
    """Give a network other gradients."""
    for name, one in network.gradients.items():
        one[...] = to_device(gradients[name], network.device)


def add(total: dict[str, np.ndarray], gradients: Mapping[str, np.ndarray]) -> None:
    """Add gradients to others, in place.

    >>> total = {}
    >>> for _ in range(3):
    ...     add(total, {"w": np.ones(2)})
    >>> total["w"].tolist()
    [3.0, 3.0]
    """
    for name, one in gradients.items():
        if name in total:
            total[name] += one
        else:
            total[name] = one.copy()


def norm(gradients: Mapping[str, np.ndarray]) -> float:
    """Return the Euclidean norm of all gradients together, summed in float64.

    >>> norm({"w": np.array([3.0]), "b": np.array([4.0])})
    5.0
    """
    return math.sqrt(sum(float(np.sum(np.square(one, dtype=np.float64))) for one in gradients.values()))


def scale(gradients: Mapping[str, np.ndarray], factor: float) -> None:
    """Multiply gradients by a number, in place."""
    for one in gradients.values():
        one *= one.dtype.type(factor)


def clip_factor(found: float, limit: float) -> float:
    """Return by what gradients of a norm are multiplied, as ``torch.nn.utils.clip_grad_norm_`` does.

    >>> clip_factor(0.5, 1.0), round(clip_factor(4.0, 1.0), 6)
    (1.0, 0.25)
    """
    return min(1.0, limit / (found + EPS))
