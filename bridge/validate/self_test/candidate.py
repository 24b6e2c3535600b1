# SPDX-License-Identifier: MIT
"""A candidate: a whole training run of some `Operations`, written tensor by tensor into a result file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import torch

from bridge.exchange.file import ExchangeFile
from bridge.exchange.model import Conv2d
from bridge.exchange.optimizers import Sgd
from bridge.validate.self_test.operations import Operations

Tensor = torch.Tensor


@dataclass
class Run:
    """A training run.

    Attributes
    ----------
    operations : what it computes with
    file : open for writing
    weights : before the next step
    written : type of what it writes, where that is another one than it computes with
    """

    operations: Operations
    file: h5py.File
    weights: dict[str, Tensor]
    written: str = ""

    def step(self, group: str, x: Tensor, target: Tensor) -> None:
        """Run forward, loss, backward and update; every tensor goes into a group, ``steps/<k>``."""
        layers, kept = self.operations.model.layers, [x]
        for layer in layers:
            kept.append(self._write(f"{group}/forward/{layer.name}", self._forward(layer, kept[-1])))
        y = kept.pop()
        self._write(f"{group}/loss", self.operations.loss(y, target))
        gradients: dict[str, torch.Tensor] = {}
        grad = self.operations.loss_gradient(y, target)
        for layer in reversed(layers):
            self._write(f"{group}/grads/{layer.name}/output", grad)
            grad = self._backward(group, layer, grad, kept.pop(), gradients)
        self._write(f"{group}/grads/input", grad)
        self.weights = {name: self.operations.update(name, w, gradients[name]) for name, w in self.weights.items()}

    def output(self, x: Tensor) -> Tensor:
        """Return the network's output."""
        for layer in self.operations.model.layers:
            x = self._forward(layer, x)
        return x

    def write_weights(self, step: int) -> None:
        """Write the weights before a step."""
        for name, w in self.weights.items():
            self._write(f"steps/{step}/weights/{name}", w)

    def _forward(self, layer: Any, x: Tensor) -> Tensor:
        if isinstance(layer, Conv2d):
            return self.operations.conv(layer, x, *self._of(layer))
        return self.operations.relu(layer.name, x)

    def _backward(self, group: str, layer: Any, grad: Tensor, x: Tensor, gradients: dict[str, Tensor]) -> Tensor:
        if not isinstance(layer, Conv2d):
            return self.operations.relu_backward(layer.name, grad, x)
        w, _ = self._of(layer)
        own = {f"{layer.name}/weight": self.operations.filter_gradient(layer, grad, x, w)}
        if layer.bias:
            own[f"{layer.name}/bias"] = self.operations.bias_gradient(layer, grad)
        for name, gradient in own.items():
            gradients[name] = self._write(f"{group}/grads/{name}", gradient)
        return self.operations.data_gradient(layer, grad, x, w)

    def _of(self, layer: Conv2d) -> tuple[Tensor, Tensor | None]:
        return self.weights[f"{layer.name}/weight"], self.weights.get(f"{layer.name}/bias")

    def _write(self, name: str, tensor: Tensor) -> Tensor:
        self.file[name] = tensor.numpy().astype(self.written or tensor.numpy().dtype)
        return tensor


def train(
    fixture: Path,
    result: Path,
    kind: type[Operations] = Operations,
    *,
    dtype: str = "float32",
    written: str = "",
    threads: int = 1,
    attributes: dict[str, Any] | None = None,
) -> Path:
    """Run a fixture's steps with the operations of `kind`; write everything.

    Parameters
    ----------
    dtype : in which it computes, float32 or float64
    written : type of what it writes, where that is another one
    threads : of torch
    attributes : of the result's root, in place of those of a candidate of this precision
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with ExchangeFile(fixture) as source, h5py.File(result, "w") as file:
            assert source.model is not None and isinstance(source.optimizer, Sgd)
            given = {"format": "cnn-exchange", "format_version": 2, "role": "candidate",
                     "precision": written or dtype}
            file.attrs.update(given if attributes is None else attributes)
            run = Run(kind(source.model, source.optimizer), file, first_weights(source, dtype), written)
            for k in range(source.batches()):
                run.write_weights(k)
                run.step(f"steps/{k}", *(read(source, f"batches/{k}/{name}", dtype) for name in ("input", "target")))
            run.write_weights(source.batches())
    finally:
        torch.set_num_threads(before)
    return result


def first_weights(source: ExchangeFile, dtype: str) -> dict[str, Tensor]:
    """Return the fixture's first weights."""
    assert source.model is not None
    shapes = source.model.parameter_shapes()
    return {name: read(source, f"steps/0/weights/{name}", dtype, shape) for name, shape in shapes.items()}


def read(source: ExchangeFile, name: str, dtype: str, shape: tuple[int, ...] | None = None) -> Tensor:
    """Return a tensor of a file."""
    return torch.from_numpy(source.read(name, shape or source.shape(name)).astype(dtype))
