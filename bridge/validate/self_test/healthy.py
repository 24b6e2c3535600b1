# SPDX-License-Identifier: MIT
"""Right programs that round differently: none of them may raise an alarm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

from bridge.engine.library import extension
from bridge.exchange.model import Conv2d
from bridge.exchange.optimizers import Adam, AdamW
from bridge.operations.arithmetic import Add
from bridge.operations.joins import Concat
from bridge.operations.normalization import BatchNorm2d
from bridge.operations.operation import Operation as Node
from bridge.operations.pointwise import LeakyRelu, Relu, Sigmoid
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.graph_candidate import GraphOperations, Parameters, train_graph
from bridge.validate.self_test.operations import Operations

Array = np.ndarray
Tensor = torch.Tensor


@dataclass(frozen=True)
class Healthy:
    """A right program.

    Attributes
    ----------
    name : for tables
    make : runs it on a fixture and writes its result
    codes : exit codes of the verdicts that are right for its arithmetic; any other one is a false alarm
    """

    name: str
    make: Callable[[Path, Path], object]
    codes: tuple[int, ...] = (0,)


def _torch(kind: type[Operations] = Operations, dtype: str = "float32", threads: int = 1) -> Callable[..., object]:
    return lambda fixture, result: train(fixture, result, kind, dtype=dtype, threads=threads)


def _fortran(device: str, precision: str = "float32") -> Callable[..., object]:
    return lambda fixture, result: extension.run_file(fixture, result, device, precision)


class ChannelsLast(Operations):
    """Memory with the channels last, as torch and cuDNN often choose it; other kernels, other orders of sums."""

    def conv(self, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        x, w = _last(x, w)
        return super().conv(layer, x, w, b).contiguous()

    def data_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return super().data_gradient(layer, *_last(dz, x, w)).contiguous()

    def filter_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return super().filter_gradient(layer, *_last(dz, x, w)).contiguous()


def _last(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.contiguous(memory_format=torch.channels_last) for x in tensors)


class Reversed(Operations):
    """Every sum over images runs from the last to the first, every sum over channels, too."""

    def conv(self, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        if layer.groups == 1:
            x, w = x.flip(1), w.flip(1)
        return super().conv(layer, x.flip(0), w, b).flip(0)

    def filter_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return super().filter_gradient(layer, dz.flip(0), x.flip(0), w)

    def bias_gradient(self, layer: Conv2d, dz: Tensor) -> Tensor:
        return super().bias_gradient(layer, dz.flip(0, 2, 3))

    def loss(self, y: Tensor, target: Tensor) -> Tensor:
        return super().loss(y.flip(0, 2, 3), target.flip(0, 2, 3))


class NoLibrary(Operations):
    """Torch's own kernels in place of oneDNN's."""

    def conv(self, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        with _without_onednn():
            return super().conv(layer, x, w, b)

    def data_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        with _without_onednn():
            return super().data_gradient(layer, dz, x, w)

    def filter_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        with _without_onednn():
            return super().filter_gradient(layer, dz, x, w)


@contextmanager
def _without_onednn() -> Iterator[None]:
    """`torch.backends.mkldnn.flags` warns of graphics cards that are not there."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]  # torch declares a descriptor
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


class Unfolded(Operations):
    """Columns of what each output sees (im2col), and one matrix product for each group; numpy, float32."""

    def conv(self, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        columns, kernels = _columns(layer, x), _matrices(layer, w)
        z = np.concatenate([k @ c for k, c in zip(kernels, columns, strict=True)], axis=1)
        found = _image(z, x.shape[0], layer, x)
        return torch.from_numpy(found) + (0 if b is None else b[:, None, None])

    def filter_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        columns = _columns(layer, x)
        rows = np.split(dz.numpy().reshape(dz.shape[0], dz.shape[1], -1), layer.groups, axis=1)
        found = [(d @ c.transpose(0, 2, 1)).sum(0) for d, c in zip(rows, columns, strict=True)]
        return torch.from_numpy(np.concatenate(found).reshape(w.shape))

    def bias_gradient(self, layer: Conv2d, dz: Tensor) -> Tensor:
        return torch.from_numpy(np.einsum("nkij->k", dz.numpy()))


def _columns(layer: Conv2d, x: Tensor) -> list[Array]:
    """By group, (n, c / groups * r * s, pixels)."""
    seen = torch.nn.functional.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride).numpy()
    return np.split(seen, layer.groups, axis=1)


def _matrices(layer: Conv2d, w: Tensor) -> list[Array]:
    return np.split(w.numpy().reshape(w.shape[0], -1), layer.groups)


def _image(z: Array, n: int, layer: Conv2d, x: Tensor) -> Array:
    return np.ascontiguousarray(z.reshape(n, *layer.output_shape((x.shape[0], x.shape[1], x.shape[2], x.shape[3]))[1:]))


class Windows(Operations):
    """A sum over windows with einsum, taps outermost; numpy, float32."""

    def conv(self, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        (top, left), (dh, dw), (sh, sw) = layer.padding, layer.dilation, layer.stride
        padded = np.pad(x.numpy(), ((0, 0), (0, 0), (top, top), (left, left)))
        reach = (layer.kernel_size[0] - 1) * dh + 1, (layer.kernel_size[1] - 1) * dw + 1
        seen = sliding_window_view(padded, reach, axis=(2, 3))[:, :, ::sh, ::sw, ::dh, ::dw]
        pairs = zip(np.split(seen, layer.groups, axis=1), np.split(w.numpy(), layer.groups), strict=True)
        z = np.concatenate([np.einsum("ncijrs,kcrs->nkij", part, kernel) for part, kernel in pairs], axis=1)
        return torch.from_numpy(np.ascontiguousarray(z)) + (0 if b is None else b[:, None, None])


class DoubleInside(Operations):
    """Sums in float64, results in float32: better than asked for."""

    def conv(self, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        return super().conv(layer, x.double(), w.double(), None if b is None else b.double()).float()

    def data_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return super().data_gradient(layer, dz.double(), x.double(), w.double()).float()

    def filter_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return super().filter_gradient(layer, dz.double(), x.double(), w.double()).float()

    def bias_gradient(self, layer: Conv2d, dz: Tensor) -> Tensor:
        return super().bias_gradient(layer, dz.double()).float()


class OtherUpdate(Operations):
    """The same optimiser, written down differently: lr*g first, decay and momentum folded into factors."""

    def update(self, name: str, w: Tensor, g: Tensor) -> Tensor:
        sgd = self.sgd
        if sgd.momentum or sgd.weight_decay:
            return super().update(name, w, g)
        return w.add(g, alpha=-sgd.lr)


class KerasMomentum(Operations):
    """Momentum as Keras writes it: the buffer holds steps, lr included, and is added to the weights."""

    def update(self, name: str, w: Tensor, g: Tensor) -> Tensor:
        sgd = self.sgd
        if not sgd.momentum or sgd.dampening:
            return super().update(name, w, g)
        step = sgd.lr * self.decayed(name, w, g)
        old = self.buffers.get(name)
        v = -step if old is None else sgd.momentum * old - step
        self.buffers[name] = v
        return w + sgd.momentum * v - step if sgd.nesterov else w + v


class OtherLoss(Operations):
    """A mean of the images' means, and a gradient that is scaled by a reciprocal."""

    def loss(self, y: Tensor, target: Tensor) -> Tensor:
        squares = (y - target) ** 2
        return squares.mean((1, 2, 3)).mean() if self.model.mean else squares.sum((1, 2, 3)).sum()

    def loss_gradient(self, y: Tensor, target: Tensor) -> Tensor:
        return (y - target) * (2 / (y.numel() if self.model.mean else 1))


HEALTHY: tuple[Healthy, ...] = (
    Healthy("torch", _torch()),
    Healthy("torch, 2 threads", _torch(threads=2)),
    Healthy("torch, channels_last", _torch(ChannelsLast)),
    Healthy("torch without oneDNN", _torch(NoLibrary)),
    Healthy("torch, sums reversed", _torch(Reversed)),
    Healthy("torch, float64", _torch(dtype="float64")),
    Healthy("torch, sums in float64", _torch(DoubleInside)),
    Healthy("torch, fused update", _torch(OtherUpdate)),
    Healthy("torch, Keras' momentum", _torch(KerasMomentum)),
    Healthy("torch, mean of means", _torch(OtherLoss)),
    Healthy("im2col in numpy", _torch(Unfolded)),
    Healthy("windows in numpy", _torch(Windows)),
    Healthy("Fortran, cpu", _fortran("cpu")),
    Healthy("Fortran, naive", _fortran("naive")),
    Healthy("Fortran, float64", _fortran("cpu", "float64")),
)


class WrittenOut(GraphOperations):
    """Layers of graphs by arithmetic of tensors, a normalisation multiplied out, and Adam as its paper has it."""

    def forward(self, node: Node, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        x = inputs[0]
        if isinstance(node, Relu):
            return torch.where(x > 0, x, 0.0)
        if isinstance(node, LeakyRelu):
            return torch.where(x > 0, x, node.negative_slope * x)
        if isinstance(node, Sigmoid):
            return 1 / (1 + (-x).exp())
        if isinstance(node, Add):
            return inputs[1] + x
        if isinstance(node, Concat):
            return torch.cat([one.flip(1) for one in inputs[::-1]], 1).flip(1)
        if isinstance(node, BatchNorm2d) and node.training:
            return self._normalised(node, x, parameters)
        return super().forward(node, inputs, parameters)

    def _normalised(self, node: BatchNorm2d, x: Tensor, parameters: Parameters) -> Tensor:
        count = x.numel() // x.shape[1]
        mean = x.flip(0).sum((0, 2, 3)) / count
        variance = ((x - mean[:, None, None]) ** 2).sum((0, 2, 3)) / count
        for name, new in (("running_mean", mean), ("running_var", variance * (count / max(count - 1, 1)))):
            if name in parameters:
                parameters[name] = parameters[name] + node.momentum * (new.detach() - parameters[name])
        factor = parameters["weight"] / (variance + node.eps).sqrt()
        return x * factor[:, None, None] + (parameters["bias"] - mean * factor)[:, None, None]

    def adam(self, name: str, w: Tensor, g: Tensor, adam: Adam) -> Tensor:
        """Return new weights by one rate of the step (Kingma and Ba, section 2), of roots that are corrected first."""
        if isinstance(adam, AdamW):
            w = w * (1 - adam.lr * adam.weight_decay)
        else:
            g = g + adam.weight_decay * w
        m, v = self.averages(name, g, adam)
        first, second = self.corrections(adam)
        return w - adam.lr * second**0.5 / first * (m / (v.sqrt() + adam.eps * second**0.5))


def _graph(kind: type[GraphOperations] = GraphOperations, dtype: str = "float32") -> Callable[..., object]:
    return lambda fixture, result: train_graph(fixture, result, kind, dtype=dtype)


#: Right programs of graphs, with every optimiser
ON_GRAPHS: tuple[Healthy, ...] = (
    Healthy("graph: torch", _graph()),
    Healthy("graph: torch, float64", _graph(dtype="float64")),
    Healthy("graph: torch, written out", _graph(WrittenOut)),
    Healthy("graph: Fortran, cpu", _fortran("cpu")),
    Healthy("graph: Fortran, naive", _fortran("naive")),
    Healthy("graph: Fortran, float64", _fortran("cpu", "float64")),
)
