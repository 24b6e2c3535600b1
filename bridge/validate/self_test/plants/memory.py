# SPDX-License-Identifier: MIT
"""Kinds 23 to 26: old contents, state between calls, other steps, races."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bridge.validate.self_test.edits import Array, Edit
from bridge.validate.self_test.edits import plant as plant_tensors
from bridge.validate.self_test.operations import Operations
from bridge.validate.self_test.plants.record import Plant, Scene, wrong

Tensor = torch.Tensor


class KeepsResults(Operations):
    """Keeps what it computed in the last call of an operation of a layer."""

    #: which operation, of which layer, and what it gives: (right, before or None) -> Tensor
    method, layer = "filter_gradient", "conv2"
    #: the memory takes what came out, not what was computed
    running = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.old: dict[str, Tensor] = {}

    def passed(self, name: str, right: Tensor) -> Tensor:
        """What comes out."""
        if name != self.layer:
            return right
        before = self.old.get(name)
        found = self.change(right, before) if before is not None else right
        self.old[name] = found if self.running else right
        return found

    def change(self, right: Tensor, before: Tensor) -> Tensor:
        """From the second call on."""
        raise NotImplementedError


def remembering(
    method: str, layer: str, change: Callable[[Tensor, Tensor], Tensor], *, running: bool = False
) -> type[Operations]:
    """An operation that gives ``change(right, before)`` from its second call on."""

    def operation(self: KeepsResults, layer_: Any, *arguments: Any) -> Tensor:
        name = layer_ if isinstance(layer_, str) else layer_.name
        return self.passed(name, getattr(Operations, method)(self, layer_, *arguments))

    body = {"layer": layer, "running": running, "change": lambda self, right, before: change(right, before)}
    return type("Remembering", (KeepsResults,), body | {method: operation})


class PreviousWeights(Operations):
    """conv2 computes with the weights before the last update: a copy to the device that is late."""

    late: str = "conv"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.kept: list[Tensor] = []

    def conv(self, layer: Any, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        if layer.name == "conv2":
            self.kept.append(w)
            if len(self.kept) > 1 and self.late == "conv":
                w = self.kept[-2]
        return super().conv(layer, x, w, b)

    def data_gradient(self, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        if layer.name == "conv2" and len(self.kept) > 1 and self.late == "data_gradient":
            w = self.kept[-2]
        return super().data_gradient(layer, dz, x, w)


class LateData(PreviousWeights):
    """The same, of the data gradient."""

    late = "data_gradient"


class UpdatedTooEarly(Operations):
    """The data gradient of conv2 takes the weights after the update of its own layer."""

    def filter_gradient(self, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        self.gradient = super().filter_gradient(layer, dz, x, w)
        return self.gradient

    def data_gradient(self, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        w = w - self.sgd.lr * self.gradient if layer.name == "conv2" else w
        return super().data_gradient(layer, dz, x, w)


class LateGradient(Operations):
    """The update takes the gradient of the step before."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.last: dict[str, Tensor] = {}

    def update(self, name: str, w: Tensor, g: Tensor) -> Tensor:
        late, self.last[name] = self.last.get(name, g), g
        return super().update(name, w, late)


def _race(scene: Scene, names: tuple[str, ...], change: Edit) -> None:
    plant_tensors(scene.right, scene.path, {f"steps/0/{name}": change for name in names})


def race(name: str, change: Edit, *names: str) -> Plant:
    """A second run of a program whose first run was right."""
    return Plant(26, name, lambda scene: _race(scene, names, change), runs=True)


def half_written(x: Array) -> Array:
    """The last eighth was read before it was there: zeros."""
    x = np.array(x)
    x.reshape(-1)[-max(1, x.size // 8) :] = 0
    return x


def lost_sums(x: Array) -> Array:
    """Threads that add to one number without an atomic: a few contributions are lost."""
    x = np.array(x)
    x.reshape(-1)[::5] *= np.float32(0.97)
    return x


def garbage(x: Array) -> Array:
    """A few numbers from memory that nobody has written."""
    x = np.array(x)
    x.reshape(-1)[3:7] = np.array([1e-20, 7e3, -1e-41, 0], np.float32)
    return x


def _second_call(method: str, layer: str, change: Callable[[Tensor], Tensor]) -> type[Operations]:
    return remembering(method, layer, lambda right, before: change(right))


class NoReluAgain(Operations):
    """relu1 works in the first call only: a plan that was cached without its activation."""

    calls = 0

    def relu(self, name: str, z: Tensor) -> Tensor:
        if name != "relu1":
            return super().relu(name, z)
        self.calls += 1
        return super().relu(name, z) if self.calls == 1 else z


class HalfAgain(Operations):
    """The gradient of the loss is halved from the second call on: a scale that is divided in place."""

    scale = 1.0

    def loss_gradient(self, y: Tensor, target: Tensor) -> Tensor:
        found = super().loss_gradient(y, target) * self.scale
        self.scale *= 0.5
        return found


PLANTS: list[Plant] = [
    wrong(23, "beta is 1 from the second call on", remembering("filter_gradient", "conv2", torch.add, running=True)),
    wrong(23, "last filter gradient accumulates", remembering("filter_gradient", "conv3", torch.add)),
    wrong(23, "bias gradient accumulates", remembering("bias_gradient", "conv2", torch.add, running=True)),
    wrong(23, "data gradient accumulates", remembering("data_gradient", "conv2", torch.add)),
    wrong(23, "output accumulates", remembering("conv", "conv2", torch.add)),
    wrong(24, "no ReLU from the second call on", NoReluAgain),
    wrong(24, "flipped from the second call on", _second_call("filter_gradient", "conv2", lambda g: g.flip(2, 3))),
    wrong(24, "loss gradient halved with every call", HalfAgain),
    wrong(24, "no mask from the second call on", remembering("data_gradient", "conv2", lambda g, before: g.flip(3))),
    wrong(
        25, "filter gradient of the previous step", remembering("filter_gradient", "conv2", lambda g, before: before)
    ),
    wrong(25, "bias gradient of the previous step", remembering("bias_gradient", "conv2", lambda g, before: before)),
    wrong(25, "forward with the previous weights", PreviousWeights),
    wrong(25, "data gradient with the previous weights", LateData),
    wrong(25, "data gradient after the update", UpdatedTooEarly),
    wrong(25, "update by the previous gradient", LateGradient),
    race("output read too early", half_written, "forward/conv2"),
    race("sums without atomics", lost_sums, "grads/conv2/weight", "grads/conv2/bias"),
    race("unwritten memory", garbage, "grads/conv2/output"),
]
