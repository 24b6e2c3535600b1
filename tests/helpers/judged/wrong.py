# SPDX-License-Identifier: MIT
"""Faults whose first wrong tensor is known, one for each way to it. All others are planted by the self-test alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from bridge.validate.self_test.operations import Operations, only, replace
from bridge.validate.self_test.plants import layouts, optimiser
from bridge.validate.self_test.plants.corruption import element, flipped_bit
from bridge.validate.self_test.plants.memory import remembering
from bridge.validate.self_test.plants.relus import PreviousMask

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
    """

    name: str
    operations: type[Operations]
    first: str
    step: int = 0
    optimizer: str = "plain"


def corrupted(x: Tensor, factor: float) -> Tensor:
    """One element in the middle times a factor."""
    x = x.clone()
    x.view(-1)[x.numel() // 2] *= factor
    return x


CONV2 = "grads/conv2/weight"

OPERATIONS = [
    Fault("kernel gradient flipped", layouts.filter_of("conv2", lambda g: g.flip(2, 3)), CONV2),
    Fault("accumulated gradient", remembering("filter_gradient", "conv3", torch.add), "grads/conv3/weight", 1),
    Fault("mask of the previous batch", PreviousMask, "grads/conv2/output", 1),
    Fault("no relu", only("relu2", "relu", lambda a, z: z), "forward/relu2"),
    Fault("sum for mean", replace(loss_gradient=lambda self, y, t: 2 * (y - t)), "grads/conv3/output"),
    Fault("loss twice", replace(loss=lambda self, y, t: 2 * Operations.loss(self, y, t)), "loss"),
    Fault("input gradient flipped", only("conv1", "data_gradient", lambda g, *_: g.flip(3)), "grads/input"),
    Fault("bias missing", only("conv2", "conv", lambda z, x, w, b: z - b[:, None, None]), "forward/conv2"),
    Fault("bias gradient of a part of the batch", replace(
        bias_gradient=lambda self, layer, dz: Operations.bias_gradient(self, layer, dz[:-1])), "grads/conv3/bias"),
    Fault("one element 1 % off", only("conv2", "data_gradient", lambda g, *_: corrupted(g, 1.01)),
          "grads/relu1/output"),
    Fault("NaN", only("conv2", "filter_gradient", lambda g, *_: corrupted(g, float("nan"))), CONV2),
    Fault("learning rate 1 % too large", replace(update=lambda self, name, w, g: w - 1.01 * self.sgd.lr * g),
          "optimizer/conv1/weight"),
    Fault("a tensor not updated", replace(update=lambda self, name, w, g: w if name == "conv2/bias" else
                                          Operations.update(self, name, w, g)), "optimizer/conv2/bias"),
    Fault("momentum buffer not kept", optimiser.NotKept, "optimizer/conv1/weight", 1, "momentum"),
    Fault("nesterov missing", replace(direction=lambda self, name, g, v: v), "optimizer/conv1/weight", 0, "nesterov"),
]


def shown(rest: str) -> str:
    """The name under which a planted tensor is judged: saved weights show as the update before."""
    return rest.replace("weights/", "optimizer/", 1) if rest.startswith("weights/") else rest


def shown_step(rest: str, step: int) -> int:
    """The step under which a planted tensor is judged."""
    return step - 1 if rest.startswith("weights/") else step


#: (tensor, edit)
TENSORS: list[tuple[str, Callable[[Array], Array]]] = [
    ("steps/1/grads/conv1/weight", lambda g: g[..., ::-1]),
    ("steps/0/forward/conv2", lambda z: np.moveaxis(z, 1, 3).reshape(z.shape)),
    ("steps/0/forward/conv3", flipped_bit(18)),
    ("steps/1/loss", element(np.nan)),
    ("steps/1/grads/input", element(np.inf)),
    ("steps/0/forward/relu2", lambda a: np.where(a == 0, np.float32(1e-6), a)),
    ("steps/0/grads/conv2/output", lambda z: z.astype(np.float16).astype(np.float32)),
    ("steps/0/loss", lambda loss: np.array(loss * 1.0012)),
    ("steps/1/weights/conv2/weight", lambda w: w.ravel().reshape(w.shape, order="F")),
    ("steps/3/weights/conv2/weight", lambda w: w.swapaxes(0, 1)),
    ("steps/3/weights/conv3/bias", element(np.nan)),
    ("steps/3/weights/conv3/weight", lambda w: w.astype(np.float16).astype(np.float32)),
]
