# SPDX-License-Identifier: MIT
"""Kinds 27 to 29: memory that was never written, single numbers that changed, and neighbours that were overwritten."""

from __future__ import annotations

from collections.abc import Callable

import h5py
import numpy as np
import torch

from bridge.validate.self_test.edits import Array, Edit, plant
from bridge.validate.self_test.operations import Operations, only
from bridge.validate.self_test.plants.memory import remembering
from bridge.validate.self_test.plants.record import Plant, Scene, stored, wrong

Tensor = torch.Tensor


def some(start: float, stop: float) -> Callable[[int], slice]:
    """A part of the memory, as shares of it."""
    return lambda size: slice(int(start * size), max(int(start * size) + 1, int(stop * size)))


def unwritten(right: Tensor, part: slice, value: float | Tensor) -> Tensor:
    """A part of the memory holds something else."""
    found = right.clone().contiguous()
    found.view(-1)[part] = value if isinstance(value, float) else value.reshape(-1)[part]
    return found


def part_of(method: str, layer: str, part: Callable[[int], slice], value: float) -> type[Operations]:
    """A part of an operation's memory that holds a number."""
    return only(layer, method, lambda right, *_: unwritten(right, part(right.numel()), value))


def _old_rows(right: Tensor, before: Tensor) -> Tensor:
    return unwritten(right, slice(int(0.9 * right.numel()), None), before)


def element(value: float) -> Edit:
    """One element replaced."""

    def edit(x: Array) -> Array:
        x = np.array(x)
        x.reshape(-1)[x.size // 2] = value
        return x

    return edit


def largest(factor: float) -> Edit:
    """The largest element multiplied."""

    def edit(x: Array) -> Array:
        x = np.array(x)
        x.reshape(-1)[np.abs(x).argmax()] *= np.float32(factor)
        return x

    return edit


def flipped_bit(bit: int) -> Edit:
    """A bit of one float32; one that is not zero."""

    def edit(x: Array) -> Array:
        x = np.array(x, np.float32)
        used = np.flatnonzero(x)
        x.reshape(-1).view(np.uint32)[used[used.size // 3]] ^= np.uint32(1 << bit)
        return x

    return edit


def corrupted_row(x: Array) -> Array:
    """A row of one image is noise."""
    x = np.array(x)
    row = x[0, -1, x.shape[2] // 2]
    row[:] = np.random.default_rng(3).standard_normal(row.size).astype(np.float32) * np.abs(x).max()
    return x


def corrupted_tile(x: Array) -> Array:
    """A tile of 4 x 5 pixels of one channel is its neighbour's."""
    x = np.array(x)
    x[-1, 0, 3:7, 4:9] = x[0, -1, 8:12, 9:14]
    return x


def overwritten(count: int, source: str, *, end: bool = False) -> Callable[[str], Callable[[Scene], object]]:
    """The first numbers of a buffer (or the last) are those of the end (or start) of another."""

    def of(target: str) -> Callable[[Scene], object]:
        def make(scene: Scene) -> None:
            with h5py.File(scene.right) as file:
                other = file[f"steps/{source}"][()].reshape(-1)

            def edit(x: Array) -> Array:
                x = np.array(x)
                if end:
                    x.reshape(-1)[-count:] = other[:count]
                else:
                    x.reshape(-1)[:count] = other[-count:]
                return x

            plant(scene.right, scene.path, {f"steps/{target}": edit})

        return make

    return of


PLANTS: list[Plant] = [
    wrong(27, "end of the output never written, poisoned", part_of("conv", "conv2", some(0.9, 1), float("nan"))),
    wrong(
        27,
        "end of a filter gradient never written, poisoned",
        part_of("filter_gradient", "conv2", some(0.9, 1), float("nan")),
    ),
    wrong(27, "end of the output never written, zeros", part_of("conv", "conv2", some(0.9, 1), 0.0)),
    wrong(27, "last filters never written, zeros", part_of("filter_gradient", "conv2", some(15 / 16, 1), 0.0)),
    wrong(27, "end of the output still holds the step before", remembering("conv", "conv2", _old_rows)),
    wrong(27, "end of a filter gradient holds the step before", remembering("filter_gradient", "conv2", _old_rows)),
    stored(28, "one element 1 % off", "0/forward/conv2", largest(1.01)),
    stored(28, "one element of a gradient 10 % off", "0/grads/conv2/output", largest(1.1)),
    stored(28, "one element of a filter gradient zero", "0/grads/conv2/weight", largest(0.0)),
    stored(28, "one element NaN", "0/forward/conv3", element(np.nan)),
    stored(28, "one element infinite", "1/grads/input", element(np.inf)),
    stored(28, "bit 18 flipped", "0/forward/conv3", flipped_bit(18)),
    stored(28, "bit 30 flipped", "0/grads/relu2/output", flipped_bit(30)),
    stored(28, "sign bit flipped", "1/grads/conv2/output", flipped_bit(31)),
    stored(28, "row of noise", "0/forward/conv1", corrupted_row),
    stored(28, "tile of a neighbour", "0/grads/conv1/output", corrupted_tile),
    Plant(
        29,
        "start of a filter gradient overwritten by dy",
        overwritten(21, "0/grads/conv3/output")("0/grads/conv2/weight"),
    ),
    Plant(29, "start of an output overwritten by another", overwritten(50, "0/forward/conv1")("0/forward/conv2")),
    Plant(
        29,
        "end of dz overwritten by a gradient",
        overwritten(40, "0/grads/conv2/weight", end=True)("0/grads/conv2/output"),
    ),
    Plant(
        29, "start of the new weights overwritten", overwritten(16, "0/grads/conv3/output")("1/weights/conv2/weight")
    ),
]
