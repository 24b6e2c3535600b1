# SPDX-License-Identifier: MIT
"""Kinds 30, 31, 38, 39, 45 and 46: precision, underflow, clipping, dropout, storing of numbers, stale files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

import h5py
import numpy as np
import torch

from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.edits import Array, Edit, plant
from bridge.validate.self_test.operations import Operations, only
from bridge.validate.self_test.plants.record import Plant, Scene, stored, wrong

Tensor = torch.Tensor
Lower = Callable[[Tensor], Tensor]

#: Bits of float32's fraction that TF32 has not
TF32_DROPS = 13


def tf32(x: Tensor) -> Tensor:
    """To the nearest TF32, by Dekker's and Veltkamp's splitting.

    >>> float(tf32(torch.tensor(1 + 2**-11 + 2**-12))) == 1 + 2**-10
    True
    """
    split = x * float(2**TF32_DROPS + 1)
    return split - (split - x)


def tf32_truncated(x: Tensor) -> Tensor:
    """Cut off, as tensor cores read float32 memory."""
    return (x.contiguous().view(torch.int32) & ~((1 << TF32_DROPS) - 1)).view(torch.float32)


def bf16(x: Tensor) -> Tensor:
    """To bfloat16 and back."""
    return x.bfloat16().float()


def fp16(x: Tensor) -> Tensor:
    """To half precision and back."""
    return x.half().float()


def reduced(lower: Lower, *layers: str, forward: bool = True) -> type[Operations]:
    """Products of operands that are rounded first, in some layers (all where none is named)."""

    class Reduced(Operations):
        def _low(self, layer: Any, x: Tensor) -> Tensor:
            return lower(x) if not layers or layer.name in layers else x

        def conv(self, layer: Any, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
            if not forward:
                return super().conv(layer, x, w, b)
            return super().conv(layer, self._low(layer, x), self._low(layer, w), b)

        def data_gradient(self, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
            return super().data_gradient(layer, self._low(layer, dz), self._low(layer, x), self._low(layer, w))

        def filter_gradient(self, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
            return super().filter_gradient(layer, self._low(layer, dz), self._low(layer, x), self._low(layer, w))

    return Reduced


def lower_precision(name: str, precision: str, lower: Lower, *layers: str, codes: tuple[int, ...] = (3,)) -> Plant:
    """A program of a lower precision than it declares: exit code 3."""
    return wrong(30, name, reduced(lower, *layers), codes=codes, precision=precision)


def flush(smallest: float) -> Callable[..., Tensor]:
    """What is smaller becomes 0."""
    return lambda x, *_: torch.where(x.abs() < smallest, 0.0, x)


def flush_half(x: Tensor, *_: Any) -> Tensor:
    """The smaller half of all numbers becomes 0."""
    return flush(float(x.abs().median()))(x)


def clipped(x: Tensor, *_: Any) -> Tensor:
    """Beyond half of the largest number nothing goes."""
    limit = float(x.abs().max() / 2)
    return x.clamp(-limit, limit)


def dropped(p: float, channels: bool = False, scaled: bool = True) -> Callable[..., Tensor]:
    """Dropout of elements or channels; the rest is scaled or not."""

    def drop(x: Tensor, *_: Any) -> Tensor:
        shape = x.shape[:2] if channels else x.shape
        kept = torch.from_numpy(np.random.default_rng(7).random(tuple(shape)) >= p)
        return x * kept.reshape(*shape, *(1,) * (x.ndim - len(shape))) / (1 - p if scaled else 1)

    return drop


def printed(form: str) -> Edit:
    """Written as text, and read again."""
    return lambda x: np.array([float(form % v) for v in x.ravel()], np.float32).reshape(x.shape)


def quantised(x: Array) -> Array:
    """Eight bits between the smallest and the largest number."""
    low, high = x.min(), x.max()
    step = (high - low) / np.float32(255)
    return (np.uint8(np.rint((x - low) / step)) * step + low).astype(np.float32)


def halved(x: Array) -> Array:
    """Stored as half precision."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


def brained(x: Array) -> Array:
    """Stored as bfloat16."""
    return torch.from_numpy(np.ascontiguousarray(x)).bfloat16().float().numpy()


def double_bytes(x: Array) -> Array:
    """The first half of float64 memory, read as float32."""
    return np.frombuffer(x.astype(np.float64).tobytes(), np.float32)[: x.size].reshape(x.shape).copy()


def _itself(scene: Scene) -> None:
    scene.path.symlink_to(scene.fixture)


def _copy(scene: Scene) -> None:
    shutil.copyfile(scene.fixture, scene.path)


def _renamed(scene: Scene) -> None:
    """The fixture with another role: everything in it is right, and none of it was computed."""
    shutil.copyfile(scene.fixture, scene.path)
    with h5py.File(scene.path, "r+") as file:
        file.attrs["role"] = "candidate"


def _instead(new: Array, _: Array) -> Array:
    return new


def _first_step_again(*names: str) -> Callable[[Scene], None]:
    """Tensors of step 0 written for step 1."""

    def make(scene: Scene) -> None:
        with h5py.File(scene.right) as file:
            old = {name: file[f"steps/0/{name}"][()] for name in names}
        plant(scene.right, scene.path, {f"steps/1/{name}": partial(_instead, x) for name, x in old.items()})

    return make


def _other_run(scene: Scene) -> None:
    """A result of an older fixture, of other weights."""
    other = scene.path.with_suffix(".older")
    shutil.copyfile(scene.fixture, other)
    with h5py.File(other, "r+") as file:
        rng = np.random.default_rng(11)
        for layer in file["steps/0/weights"].values():
            for weights in layer.values():
                weights[...] = weights[()] * (1 + 0.1 * rng.standard_normal(weights.shape)).astype(np.float32)
    train(other, scene.path)
    other.unlink()


PLANTS: list[Plant] = [
    lower_precision("TF32", "TF32", tf32),
    lower_precision("TF32 cut off", "TF32 truncated", tf32_truncated),
    lower_precision("bf16", "bf16", bf16),
    # Where gradients are below its range they are lost, which no precision excuses
    lower_precision("fp16", "fp16", fp16, codes=(1, 3, 4)),
    lower_precision("TF32 in the second layer", "TF32", tf32, "conv2"),
    wrong(30, "TF32 in the backward pass only", reduced(tf32, forward=False), codes=(3, 4), precision="TF32"),
    wrong(31, "dz in fp16 that flushes subnormals", only("relu2", "relu_backward", flush(2.0**-14))),
    wrong(31, "dz in fp16", only("relu2", "relu_backward", lambda dz, *_: fp16(dz))),
    wrong(31, "data gradient below the range of fp16 lost", only("conv3", "data_gradient", flush(2.0**-24))),
    wrong(31, "data gradient below its median lost", only("conv2", "data_gradient", flush_half)),
    stored(38, "fp16", "0/forward/conv1", halved),
    stored(38, "bf16", "0/grads/conv2/weight", brained),
    stored(38, "fp16", "3/weights/conv3/weight", halved),
    stored(38, "%.4f", "0/grads/conv2/weight", printed("%.4f")),
    stored(38, "%.4f", "0/forward/conv3", printed("%.4f")),
    stored(38, "%.5e", "0/grads/conv1/weight", printed("%.5e")),
    stored(38, "%.5e", "1/weights/conv2/weight", printed("%.5e")),
    stored(38, "eight bits", "0/grads/conv2/weight", quantised),
    stored(38, "bytes swapped", "0/grads/conv2/weight", lambda g: g.byteswap()),
    stored(38, "bytes swapped", "0/forward/conv3", lambda z: z.byteswap()),
    stored(38, "float64 read as float32", "0/grads/conv2/weight", double_bytes),
    Plant(39, "the fixture itself", _itself, codes=(2,)),
    Plant(39, "a copy of the fixture", _copy, codes=(2,)),
    Plant(39, "a copy of the fixture that calls itself a candidate", _renamed, codes=(1, 2, 4)),
    Plant(39, "a filter gradient of step 0 in step 1", _first_step_again("grads/conv2/weight")),
    Plant(39, "an output of step 0 in step 1", _first_step_again("forward/conv2")),
    Plant(39, "result of an older fixture", _other_run),
    wrong(39, "filter gradient all zero", only("conv2", "filter_gradient", lambda g, *_: torch.zeros_like(g))),
    stored(39, "filter gradient all zero", "0/grads/conv3/weight", np.zeros_like),
    wrong(45, "ReLU with an upper limit", only("relu2", "relu", clipped)),
    wrong(45, "dz clipped", only("relu1", "relu_backward", clipped)),
    wrong(45, "filter gradient clipped", only("conv2", "filter_gradient", clipped)),
    wrong(45, "output clipped", only("conv3", "conv", clipped)),
    wrong(46, "dropout after the ReLU", only("relu1", "relu", dropped(0.5))),
    wrong(46, "dropout of a tenth of the gradient", only("conv3", "data_gradient", dropped(0.1))),
    wrong(46, "dropout that scales nothing", only("relu1", "relu", dropped(0.3, scaled=False))),
    wrong(46, "dropout of channels", only("relu2", "relu", dropped(0.25, True))),
]
