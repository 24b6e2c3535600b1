# SPDX-License-Identifier: MIT
"""Candidates to judge: a training step in torch in which any one operation can be replaced by a wrong one, and
result files in which single tensors are replaced.

A wrong operation has its consequences in everything that follows, as in a wrong program; a planted tensor is
wrong alone, as after a wrong export.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from bridge import compare
from bridge.exchange import ExchangeFile, Sgd
from bridge.model import Conv2d, Model

Array = np.ndarray
Tensor = torch.Tensor
Edit = Callable[[Array], Array]


@dataclass
class Answer:
    """What ``python -m bridge.compare`` said."""

    code: int
    words: str
    errors: str


def ask(fixture: Path, result: Path, *options: str) -> Answer:
    """Run bridge.compare in this process."""
    out, errors = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        code = compare.main([str(fixture), str(result), *options])
    return Answer(code, " ".join(out.getvalue().split()), errors.getvalue())


def parts(layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor, which: int) -> Tensor:
    """One of the gradients (input, filter, bias) of a convolution."""
    mask = [which == i for i in range(3)]
    found = torch.ops.aten.convolution_backward(
        dz,
        x,
        w,
        [layer.out_channels] if layer.bias else None,
        layer.stride,
        layer.padding,
        layer.dilation,
        False,
        [0, 0],
        layer.groups,
        mask,
    )
    return found[which]


class Operations:
    """The operations of a training step, right, in torch. Everything a fault can replace."""

    def __init__(self, model: Model, sgd: Sgd) -> None:
        self.model, self.sgd = model, sgd
        self.buffers: dict[str, Tensor] = {}

    def conv(self, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        return torch.conv2d(x, w, b, layer.stride, layer.padding, layer.dilation, layer.groups)

    def data_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return parts(layer, dz, x, w, 0)

    def filter_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return parts(layer, dz, x, w, 1)

    def bias_gradient(self, layer: Conv2d, dz: Tensor) -> Tensor:
        return dz.sum((0, 2, 3))

    def relu(self, name: str, z: Tensor) -> Tensor:
        return z.clamp(min=0)

    def relu_backward(self, name: str, da: Tensor, z: Tensor) -> Tensor:
        return da * (z > 0)

    def loss(self, y: Tensor, target: Tensor) -> Tensor:
        return torch.nn.functional.mse_loss(y, target, reduction="mean" if self.model.mean else "sum")

    def loss_gradient(self, y: Tensor, target: Tensor) -> Tensor:
        return 2 * (y - target) / (y.numel() if self.model.mean else 1)

    def decayed(self, name: str, w: Tensor, g: Tensor) -> Tensor:
        return g + self.sgd.weight_decay * w

    def velocity(self, name: str, old: Tensor | None, g: Tensor) -> Tensor:
        return g if old is None else self.sgd.momentum * old + (1 - self.sgd.dampening) * g

    def direction(self, name: str, g: Tensor, v: Tensor) -> Tensor:
        return g + self.sgd.momentum * v if self.sgd.nesterov else v

    def update(self, name: str, w: Tensor, g: Tensor) -> Tensor:
        g = self.decayed(name, w, g)
        if self.sgd.momentum:
            self.buffers[name] = self.velocity(name, self.buffers.get(name), g)
            g = self.direction(name, g, self.buffers[name])
        return w - self.sgd.lr * g


@dataclass
class Run:
    """A whole training run of a candidate, tensor by tensor into a file."""

    operations: Operations
    file: h5py.File
    weights: dict[str, Tensor]
    prefix: str = ""
    kept: list[Tensor] = field(default_factory=list)

    def step(self, k: int, x: Tensor, target: Tensor) -> None:
        """Forward, loss, backward, update."""
        self.write_weights(k)
        self.prefix, self.kept = f"steps/{k}", [x]
        for layer in self.operations.model.layers:
            self.kept.append(self.write(f"forward/{layer.name}", self._forward(layer, self.kept[-1])))
        y = self.kept.pop()
        self.write("loss", self.operations.loss(y, target))
        grad, gradients = self.operations.loss_gradient(y, target), {}
        for layer in reversed(self.operations.model.layers):
            self.write(f"grads/{layer.name}/output", grad)
            grad = self._backward(layer, grad, self.kept.pop(), gradients)
        self.write("grads/input", grad)
        self.weights = {name: self.operations.update(name, w, gradients[name]) for name, w in self.weights.items()}

    def _forward(self, layer: Any, x: Tensor) -> Tensor:
        if isinstance(layer, Conv2d):
            return self.operations.conv(layer, x, *self._of(layer))
        return self.operations.relu(layer.name, x)

    def _backward(self, layer: Any, grad: Tensor, x: Tensor, gradients: dict[str, Tensor]) -> Tensor:
        if not isinstance(layer, Conv2d):
            return self.operations.relu_backward(layer.name, grad, x)
        w, _ = self._of(layer)
        gradients[f"{layer.name}/weight"] = self.operations.filter_gradient(layer, grad, x, w)
        if layer.bias:
            gradients[f"{layer.name}/bias"] = self.operations.bias_gradient(layer, grad)
        for name in (n for n in gradients if n.startswith(f"{layer.name}/")):
            self.write(f"grads/{name}", gradients[name])
        return self.operations.data_gradient(layer, grad, x, w)

    def _of(self, layer: Conv2d) -> tuple[Tensor, Tensor | None]:
        return self.weights[f"{layer.name}/weight"], self.weights.get(f"{layer.name}/bias")

    def write(self, name: str, tensor: Tensor) -> Tensor:
        self.file[f"{self.prefix}/{name}"] = tensor.numpy()
        return tensor

    def write_weights(self, k: int) -> None:
        self.prefix = f"steps/{k}"
        for name, w in self.weights.items():
            self.write(f"weights/{name}", w)


def train(
    fixture: Path,
    result: Path,
    kind: type[Operations] = Operations,
    *,
    dtype: str = "float32",
    attributes: dict[str, Any] | None = None,
) -> Path:
    """Run a fixture's steps with the operations of `kind`; write everything."""
    torch.set_num_threads(1)
    with ExchangeFile(fixture) as source, h5py.File(result, "w") as file:
        assert source.model is not None and source.sgd is not None
        given = {"format": "cnn-exchange", "format_version": 1, "role": "candidate", "precision": dtype}
        file.attrs.update(given if attributes is None else attributes)

        def read(name: str, shape: tuple[int, ...] | None = None) -> Tensor:
            return torch.from_numpy(source.read(name, shape or source.shape(name)).astype(dtype))

        shapes = source.model.parameter_shapes()
        weights = {name: read(f"steps/0/weights/{name}", shape) for name, shape in shapes.items()}
        run = Run(kind(source.model, source.sgd), file, weights)
        for k in range(source.batches()):
            run.step(k, read(f"batches/{k}/input"), read(f"batches/{k}/target"))
        run.write_weights(source.batches())
    return result


def plant(result: Path, path: Path, edits: dict[str, Edit]) -> Path:
    """A copy of a result with some tensors replaced; one whose edit gives None is left out."""
    shutil.copyfile(result, path)
    with h5py.File(path, "r+") as file:
        for name, edit in edits.items():
            changed = edit(file[name][()])
            del file[name]
            if changed is not None:
                file[name] = changed
    return path


def keep(result: Path, path: Path, wanted: Callable[[str], bool], *, head: bool = True) -> Path:
    """A copy of a result that holds only some of its datasets; without `head`, only format and version besides."""
    with h5py.File(result) as source, h5py.File(path, "w") as file:
        for name, value in source.attrs.items():
            if head or name.startswith("format"):
                file.attrs[name] = value
        if head:
            source.copy("optimizer", file)

        def take(name: str, node: Any) -> None:
            if isinstance(node, h5py.Dataset) and (wanted(name) if name != "model" else head):
                file[name] = node[()]

        source.visititems(take)
    return path
