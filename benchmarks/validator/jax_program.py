# SPDX-License-Identifier: MIT
"""The operations of a training step in JAX, compiled by XLA for the CPU, where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch

from bridge.exchange.model import Conv2d
from bridge.validate.self_test.operations import Operations

if TYPE_CHECKING:
    import jax

Tensor = torch.Tensor


class Jax(Operations):
    """Convolutions, their gradients and the loss by `jax.lax` and `jax.vjp`; float32."""

    def conv(self, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        z = _computed(_convolution(layer), x, w)
        return z if b is None else z + b[:, None, None]

    def data_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return _computed(_gradient(layer, 0), x, w, dz)

    def filter_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return _computed(_gradient(layer, 1), x, w, dz)

    def bias_gradient(self, layer: Conv2d, dz: Tensor) -> Tensor:
        return _computed(lambda dz: dz.sum((0, 2, 3)), dz)

    def loss(self, y: Tensor, target: Tensor) -> Tensor:
        return _computed(lambda y, t: ((y - t) ** 2).mean() if self.model.mean else ((y - t) ** 2).sum(), y, target)


def _convolution(layer: Conv2d) -> Callable[[jax.Array, jax.Array], jax.Array]:
    import jax

    padding = [(n, n) for n in layer.padding]
    return lambda x, w: jax.lax.conv_general_dilated(
        x, w, layer.stride, padding, rhs_dilation=layer.dilation, feature_group_count=layer.groups)


def _gradient(layer: Conv2d, which: int) -> Callable[..., jax.Array]:
    """With respect to the input (0) or the filters (1)."""
    import jax

    return lambda x, w, dz: jax.vjp(_convolution(layer), x, w)[1](dz)[which]


def _computed(function: Callable[..., jax.Array], *operands: Tensor) -> Tensor:
    """Compiled once for each shape, for the CPU whatever else there is."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    found = jax.jit(function)(*(one.contiguous().numpy() for one in operands))
    return torch.from_numpy(np.array(found))
