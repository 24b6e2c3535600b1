# SPDX-License-Identifier: MIT
"""Faults whose first wrong tensor is known: wrong operations, and wrong tensors in a right file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from bridge.validate.self_test.operations import Operations, fed, only, replace
from bridge.validate.self_test.plants import geometry, layouts, optimiser
from bridge.validate.self_test.plants.corruption import element, flipped_bit
from bridge.validate.self_test.plants.memory import remembering
from bridge.validate.self_test.plants.relus import FirstMask, PreviousMask

Array = np.ndarray
Tensor = torch.Tensor


@dataclass(frozen=True)
class Fault:
    """A wrong candidate, and what must be said of it.

    Attributes
    ----------
    name : of the fault
    operations : a step with one wrong operation
    first, step : the first wrong tensor in data-flow order, and its step
    optimizer : the fixture that can show it
    large : tried with larger images too
    """

    name: str
    operations: type[Operations]
    first: str
    step: int = 0
    optimizer: str = "plain"
    large: bool = False


def filter_of(change: Callable[[Tensor], Tensor]) -> type[Operations]:
    """The filter gradient of conv2, changed."""
    return layouts.filter_of("conv2", change)


def forward_of(change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> type[Operations]:
    """The forward convolution of conv2: change(right, w, b)."""
    return only("conv2", "conv", lambda z, x, w, b: change(z, w, b))


def corrupted(x: Tensor, factor: float) -> Tensor:
    """One element in the middle times a factor."""
    x = x.clone()
    x.view(-1)[x.numel() // 2] *= factor
    return x


CONV2 = "grads/conv2/weight"
OPTIMIZER = "optimizer/conv1/weight"

OPERATIONS = [
    Fault("kernel gradient flipped in h", filter_of(lambda g: g.flip(2)), CONV2, large=True),
    Fault("kernel gradient flipped in w", filter_of(lambda g: g.flip(3)), CONV2, large=True),
    Fault("kernel gradient flipped in both", filter_of(lambda g: g.flip(2, 3)), CONV2, large=True),
    Fault("in and out swapped", filter_of(lambda g: g.transpose(0, 1)), CONV2, large=True),
    Fault("kh and kw transposed", filter_of(lambda g: g.transpose(2, 3)), CONV2, large=True),
    Fault("column-major view", filter_of(layouts.column_major), CONV2, large=True),
    Fault("zero gradient", filter_of(torch.zeros_like), CONV2, large=True),
    Fault(
        "dz shifted by a pixel",
        fed("conv2", "filter_gradient", dz=lambda dz: geometry.moved(dz, 0, 1)),
        CONV2,
        large=True,
    ),
    Fault(
        "accumulated gradient", remembering("filter_gradient", "conv3", torch.add), "grads/conv3/weight", 1, large=True
    ),
    Fault(
        "previous gradient",
        remembering("filter_gradient", "conv3", lambda g, before: before),
        "grads/conv3/weight",
        1,
        large=True,
    ),
    Fault("no mask", only("relu2", "relu_backward", lambda dz, da, z: da), "grads/conv2/output", large=True),
    Fault("mask of another layer", FirstMask, "grads/conv2/output", large=True),
    Fault("mask of the previous batch", PreviousMask, "grads/conv2/output", 1),
    Fault(
        "leaky slope backward",
        only("relu1", "relu_backward", lambda dz, da, z: dz + 0.01 * da * (z <= 0)),
        "grads/conv1/output",
    ),
    Fault(
        "leaky slope forward", only("relu1", "relu", lambda a, z: a + 0.01 * z * (z < 0)), "forward/relu1", large=True
    ),
    Fault("no relu", only("relu2", "relu", lambda a, z: z), "forward/relu2"),
    Fault("sum for mean", replace(loss_gradient=lambda self, y, t: 2 * (y - t)), "grads/conv3/output"),
    Fault("loss twice", replace(loss=lambda self, y, t: 2 * Operations.loss(self, y, t)), "loss", large=True),
    Fault(
        "loss gradient without factor 2",
        replace(loss_gradient=lambda self, y, t: (y - t) / y.numel()),
        "grads/conv3/output",
        large=True,
    ),
    Fault(
        "mean over the batch too",
        replace(loss_gradient=lambda self, y, t: 2 * (y - t) / y.numel() / len(y)),
        "grads/conv3/output",
    ),
    Fault(
        "no rotation in the data gradient",
        fed("conv3", "data_gradient", w=lambda w: w.flip(2, 3)),
        "grads/relu2/output",
        large=True,
    ),
    Fault("input gradient flipped", only("conv1", "data_gradient", lambda g, *_: g.flip(3)), "grads/input"),
    Fault("replicated padding", geometry.padding_mode("conv1", "replicate"), "forward/conv1", large=True),
    Fault("kernel flipped forward", fed("conv2", "conv", w=lambda w: w.flip(2, 3)), "forward/conv2"),
    Fault("bias missing", forward_of(lambda z, w, b: z - b[:, None, None]), "forward/conv2", large=True),
    Fault("bias twice", forward_of(lambda z, w, b: z + b[:, None, None]), "forward/conv2"),
    Fault(
        "bias gradient of a part of the batch",
        replace(bias_gradient=lambda self, layer, dz: Operations.bias_gradient(self, layer, dz[:-1])),
        "grads/conv3/bias",
        large=True,
    ),
    Fault("filter gradient of a part of the batch", only("conv2", "filter_gradient", lambda g, *_: g * (2 / 3)), CONV2),
    Fault("batch reversed", fed("conv1", "conv", x=lambda x: x.flip(0)), "forward/conv1"),
    Fault(
        "one element 1 % off", only("conv2", "data_gradient", lambda g, *_: corrupted(g, 1.01)), "grads/relu1/output"
    ),
    Fault("one output element 1 % off", only("conv3", "conv", lambda z, *_: corrupted(z, 1.01)), "forward/conv3"),
    Fault("NaN", only("conv2", "filter_gradient", lambda g, *_: corrupted(g, float("nan"))), CONV2, large=True),
    Fault("infinite", only("relu1", "relu", lambda a, z: corrupted(a + 1, float("inf"))), "forward/relu1"),
    Fault(
        "learning rate 1 % too large",
        replace(update=lambda self, name, w, g: w - 1.01 * self.sgd.lr * g),
        OPTIMIZER,
        large=True,
    ),
    Fault("sign of the update", replace(update=lambda self, name, w, g: w + self.sgd.lr * g), OPTIMIZER, large=True),
    Fault(
        "a tensor not updated",
        replace(update=lambda self, name, w, g: w if name == "conv2/bias" else Operations.update(self, name, w, g)),
        "optimizer/conv2/bias",
        large=True,
    ),
    Fault("weight decay missing", replace(decayed=lambda self, name, w, g: g), OPTIMIZER, optimizer="momentum"),
    Fault(
        "weight decay not on biases",
        replace(decayed=lambda self, name, w, g: g if name.endswith("bias") else Operations.decayed(self, name, w, g)),
        "optimizer/conv1/bias",
        optimizer="momentum",
    ),
    Fault(
        "weight decay decoupled",
        optimiser.decoupled(lambda self: self.sgd.weight_decay),
        OPTIMIZER,
        optimizer="momentum",
    ),
    Fault(
        "dampening ignored",
        replace(velocity=lambda self, name, old, g: g if old is None else self.sgd.momentum * old + g),
        OPTIMIZER,
        1,
        "momentum",
    ),
    Fault(
        "dampening in the first step",
        replace(velocity=lambda self, name, old, g: (0 if old is None else self.sgd.momentum * old) + 0.75 * g),
        OPTIMIZER,
        0,
        "momentum",
    ),
    Fault("momentum buffer not kept", optimiser.NotKept, OPTIMIZER, 1, "momentum"),
    Fault("nesterov missing", replace(direction=lambda self, name, g, v: v), OPTIMIZER, 0, "nesterov"),
    Fault(
        "nesterov not asked for",
        replace(direction=lambda self, name, g, v: g + self.sgd.momentum * v),
        OPTIMIZER,
        0,
        "momentum",
    ),
]


def shown(rest: str) -> str:
    """The name under which a planted tensor is judged: saved weights show as the update before."""
    return rest.replace("weights/", "optimizer/", 1) if rest.startswith("weights/") else rest


def shown_step(rest: str, step: int) -> int:
    """The step under which a planted tensor is judged."""
    return step - 1 if rest.startswith("weights/") else step


#: (fault, tensor, edit)
TENSORS: list[tuple[str, str, Callable[[Array], Array]]] = [
    ("flip", "steps/0/grads/conv2/weight", lambda g: g[:, :, ::-1, ::-1]),
    ("flip of the first layer", "steps/1/grads/conv1/weight", lambda g: g[..., ::-1]),
    ("column-major", "steps/2/grads/conv2/weight", lambda g: g.ravel().reshape(g.shape, order="F")),
    ("in and out", "steps/0/grads/conv2/weight", lambda g: g.swapaxes(0, 1)),
    ("one pixel off", "steps/0/grads/conv3/output", lambda g: np.roll(g, 1, axis=3)),
    ("NHWC memory", "steps/0/forward/conv2", lambda z: np.moveaxis(z, 1, 3).reshape(z.shape)),
    ("channels reversed", "steps/0/forward/relu1", lambda a: a[:, ::-1]),
    ("image mirrored", "steps/0/grads/input", lambda g: g[..., ::-1]),
    ("bias reversed", "steps/0/grads/conv1/bias", lambda g: g[::-1]),
    ("all zero", "steps/1/grads/conv3/weight", np.zeros_like),
    ("a bit flipped", "steps/0/forward/conv3", flipped_bit(18)),
    ("a bit flipped in a gradient", "steps/0/grads/relu2/output", flipped_bit(18)),
    (
        "one element 1 % off",
        "steps/0/forward/conv2",
        lambda z: z * np.where(np.arange(z.size) == 99, 1.01, 1).reshape(z.shape).astype(z.dtype),
    ),
    ("NaN in the output", "steps/0/forward/conv3", element(np.nan)),
    ("NaN in the loss", "steps/1/loss", element(np.nan)),
    ("infinity in the input gradient", "steps/1/grads/input", element(np.inf)),
    ("a zero that is not", "steps/0/forward/relu2", lambda a: np.where(a == 0, np.float32(1e-6), a)),
    ("rounded to float16", "steps/0/forward/conv1", lambda z: z.astype(np.float16).astype(np.float32)),
    ("gradient rounded to float16", "steps/0/grads/conv2/output", lambda z: z.astype(np.float16).astype(np.float32)),
    ("bytes swapped", "steps/0/grads/conv2/weight", lambda g: g.byteswap()),
    ("loss of a naive sum", "steps/0/loss", lambda loss: np.array(loss * 1.0012)),
    ("saved weights scrambled", "steps/1/weights/conv2/weight", lambda w: w.ravel().reshape(w.shape, order="F")),
    ("last weights scrambled", "steps/3/weights/conv2/weight", lambda w: w.swapaxes(0, 1)),
    ("last weights NaN", "steps/3/weights/conv3/bias", element(np.nan)),
    ("last weights rounded", "steps/3/weights/conv3/weight", lambda w: w.astype(np.float16).astype(np.float32)),
]
