# SPDX-License-Identifier: MIT
"""JAX on the CPU: the whole step in one ``jax.jit``, in two memory orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.frameworks.cpu import JAX_NHWC
from benchmarks.harness import data
from benchmarks.harness.errors import NotHere
from benchmarks.harness.workloads import Conv, Net

if TYPE_CHECKING:
    from jax import Array


def prepare(threads: int) -> None:
    """JAX has as many threads as this process has processors: the worker sees to that, before the import."""
    import jax

    jax.config.update("jax_enable_x64", True)
    if jax.default_backend() != "cpu":
        raise NotHere(f"jax runs on {jax.default_backend()} here, expected the CPU")


def step(name: str, net: Net) -> Callable[[], float]:
    """A training step; gives the loss before the update."""
    import jax
    import jax.numpy as jnp

    last = name == JAX_NHWC
    order = ("NHWC", "HWIO", "NHWC") if last else ("NCHW", "OIHW", "NCHW")
    state = [(jnp.asarray(w.transpose(2, 3, 1, 0) if last else w), jnp.asarray(b if last else b[:, None, None]))
             for w, b in data.weights(net)]
    x, t = (jnp.asarray(np.ascontiguousarray(one.transpose(0, 2, 3, 1)) if last else one) for one in data.batch(net))

    def loss_of(parameters: list[tuple[Array, Array]], x: Array, t: Array) -> Array:
        for number, (w, b) in enumerate(parameters):
            x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=order) + b
            if number < len(parameters) - 1:
                x = jax.nn.relu(x)
        return jnp.mean((x - t) ** 2)

    @jax.jit
    def updated(parameters: list[tuple[Array, Array]], x: Array, t: Array) -> tuple[Array, list[tuple[Array, Array]]]:
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, t)
        return loss, jax.tree.map(lambda p, g: p - data.LR * g, parameters, gradients)

    def run() -> float:
        nonlocal state
        loss, state = updated(state, x, t)
        jax.block_until_ready(state)
        return float(loss)

    return run


def conv(name: str, task: Conv, which: str) -> Callable[[], Array]:
    """JAX takes part in training steps only."""
    raise NotHere(f"{name} takes part in training steps only")
