# SPDX-License-Identifier: MIT
"""Right programs that round differently: none of them may raise an alarm."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch.nn import functional

from bridge.engine.library import extension
from bridge.exchange.model import Conv2d
from bridge.exchange.optimizers import Adam, AdamW
from bridge.operations.arithmetic import Add, Divide, Prelu
from bridge.operations.joins import Concat
from bridge.operations.normalization import BatchNorm2d, GroupNorm, LayerNorm
from bridge.operations.operation import Operation as Node
from bridge.operations.pointwise import Elu, Gelu, GeluTanh, LeakyRelu, Relu, Sigmoid, Silu, Softplus
from bridge.operations.pooling import AvgPool2d, MaxPool2d
from bridge.operations.products import ConvTranspose2d, Linear, Matmul
from bridge.operations.resizing import UpsampleBilinear2d, UpsampleNearest2d
from bridge.operations.softmax import LogSoftmax, Softmax
from bridge.operations.spline import Spline
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


def _row_norm(node: Any, inputs: list[Tensor], w: Parameters) -> Tensor:
    """Variance by the distances from the mean, in rows that are taken apart."""
    rows = inputs[0].reshape(node._form(inputs[0].shape))
    distance = rows - rows.flip(2, 3).mean((2, 3), keepdim=True)
    normal = distance * torch.rsqrt((distance * distance).mean((2, 3), keepdim=True) + node.eps)
    shape = (1, rows.shape[1], -1, 1)
    factor, shift = (w[name].reshape(shape) if name in w else default for name, default in (("weight", 1), ("bias", 0)))
    return (normal * factor + shift).reshape(inputs[0].shape)


def _transposed(node: ConvTranspose2d, inputs: list[Tensor], w: Parameters) -> Tensor:
    """Products of matrices, whose columns are added where they belong."""
    if node.groups > 1:
        return node.torch_forward(inputs, w)
    columns = w["weight"].flatten(1).T @ inputs[0].flatten(2)
    n, c, h, width = inputs[0].shape
    z = functional.fold(columns, node.output_shape((n, c, h, width))[2:], node.kernel_size, node.dilation, node.padding,
                        node.stride)
    return z + w["bias"][:, None, None] if "bias" in w else z


def _largest(node: MaxPool2d, inputs: list[Tensor], w: Parameters) -> Tensor:
    """The last of equal numbers is as good as the first."""
    if node.settings() != ((1, 1), False):
        return node.torch_forward(inputs, w)
    (down, across), (rows, columns) = node.stride, node.kernel_size
    sides = [n for n in node.padding[::-1] for _ in range(2)]
    padded = functional.pad(inputs[0], sides, value=-math.inf)
    windows = padded.unfold(2, rows, down).unfold(3, columns, across).flatten(4).flip(-1)
    return windows.gather(-1, windows.argmax(-1, keepdim=True)).squeeze(-1)


def _mean(node: AvgPool2d, inputs: list[Tensor], w: Parameters) -> Tensor:
    """A convolution of each channel by itself."""
    if node.ceil_mode or not node.count_include_pad or node.divisor_override:
        return node.torch_forward(inputs, w)
    kernel = inputs[0].new_full((inputs[0].shape[1], 1, *node.kernel_size), 1 / math.prod(node.kernel_size))
    return functional.conv2d(inputs[0], kernel, None, node.stride, node.padding, groups=len(kernel))


def _logarithms(node: LogSoftmax, inputs: list[Tensor], w: Parameters) -> Tensor:
    below = inputs[0] - inputs[0].amax(1, keepdim=True).detach()
    return below - below.exp().sum(1, keepdim=True).log()


def _shares(node: Softmax, inputs: list[Tensor], w: Parameters) -> Tensor:
    powers = (inputs[0] - inputs[0].amax(1, keepdim=True).detach()).exp()
    return powers / powers.sum(1, keepdim=True)


def _bilinear(node: UpsampleBilinear2d, inputs: list[Tensor], w: Parameters) -> Tensor:
    """Products with the matrices of its weights, the columns first."""
    x, matrices = inputs[0], []
    for length, scale in zip(x.shape[2:], node.scale_factor, strict=True):
        number = torch.arange(length * scale, dtype=x.dtype)
        place = number * ((length - 1) / max(length * scale - 1, 1)) if node.align_corners else (
            (number + 0.5) / scale - 0.5).clamp(0, length - 1)
        matrices.append((1 - (place[:, None] - torch.arange(length)).abs()).clamp(min=0))
    return matrices[0] @ (x @ matrices[1].T)


def _spline(node: Spline, inputs: list[Tensor], w: Parameters) -> Tensor:
    """B-splines by the recursion on their knots, summed feature by feature."""
    x = inputs[0][..., None]
    knots = node.low + node.step * torch.arange(-node.order, node.grid + node.order + 1, dtype=x.dtype)
    found = ((x >= knots[:-1]) & (x < knots[1:])).to(x.dtype)
    for q in range(1, node.order + 1):
        before = (x - knots[: -q - 1]) / (knots[q:-1] - knots[: -q - 1])
        behind = (knots[q + 1 :] - x) / (knots[q + 1 :] - knots[1:-q])
        found = before * found[..., :-1] + behind * found[..., 1:]
    each = torch.einsum("...ik,oik->...oi", found, w["coefficient"])
    each = each * w["scale_spline"] if node.scale_spline else each
    return (each + functional.silu(inputs[0])[..., None, :] * w["scale_base"]).flip(-1).sum(-1)


#: Other algorithms of layers
OTHERWISE: dict[type[Node], Callable[[Any, list[Tensor], Parameters], Tensor]] = {
    AvgPool2d: _mean, ConvTranspose2d: _transposed, GroupNorm: _row_norm, LayerNorm: _row_norm,
    LogSoftmax: _logarithms, MaxPool2d: _largest, Softmax: _shares, Spline: _spline, UpsampleBilinear2d: _bilinear,
    Divide: lambda node, x, w: x[0] * x[1].reciprocal(),
    Elu: lambda node, x, w: torch.where(x[0] > 0, x[0], node.alpha * x[0].clamp(max=0).expm1()),
    Gelu: lambda node, x, w: 0.5 * x[0] * (1 + (x[0] / math.sqrt(2)).erf()),
    GeluTanh: lambda node, x, w: 0.5 * x[0] * (1 + (math.sqrt(2 / math.pi) * (x[0] + 0.044715 * x[0] ** 3)).tanh()),
    Linear: lambda node, x, w: (x[0][..., None, :] * w["weight"]).sum(-1) + w.get("bias", 0),
    Matmul: lambda node, x, w: torch.einsum("...ij,...jk->...ik", *x),
    # By clamp the derivative at 0 would be that of both sides, added
    Prelu: lambda node, x, w: torch.where(x[0] > 0, x[0], w["weight"].reshape(-1, *[1] * (x[0].ndim - 2)) * x[0]),
    Silu: lambda node, x, w: x[0] / (1 + (-x[0]).exp()),
    Softplus: lambda node, x, w: torch.logaddexp(node.beta * x[0], torch.zeros_like(x[0])) / node.beta,
    UpsampleNearest2d: lambda node, x, w: x[0].repeat_interleave(node.scale_factor[0], 2).repeat_interleave(
        node.scale_factor[1], 3),
}


class LastChannels(GraphOperations):
    """Images whose memory has the channels last."""

    def forward(self, node: Node, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        last = [x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x for x in inputs]
        given = {name: w.contiguous(memory_format=torch.channels_last) if w.ndim == 4 and name == "weight" else w
                 for name, w in parameters.items()}
        y = super().forward(node, last, given)
        parameters.update({name: given[name] for name in node.new_state_shapes()})
        return y


class WrittenOut(GraphOperations):
    """Layers of graphs by arithmetic of tensors and other algorithms, a normalisation multiplied out, Adam as its paper
    has it, and losses whose images are summed from the last on.
    """

    def loss(self, y: Tensor, target: Tensor) -> Tensor:
        return super().loss(y.flip(0), target.flip(0))

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
        if type(node) in OTHERWISE:
            return OTHERWISE[type(node)](node, inputs, parameters)
        if isinstance(node, Concat):
            return torch.cat([one.flip(1) for one in inputs[::-1]], 1).flip(1)
        if isinstance(node, BatchNorm2d) and node.training:
            return self._normalised(node, x, parameters)
        return super().forward(node, inputs, parameters)

    def _normalised(self, node: BatchNorm2d, x: Tensor, parameters: Parameters) -> Tensor:
        # Of vectors and volumes, too
        shape, x = x.shape, x.reshape(*x.shape[:2], -1, 1)
        count = x.numel() // x.shape[1]
        mean = x.flip(0).sum((0, 2, 3)) / count
        variance = ((x - mean[:, None, None]) ** 2).sum((0, 2, 3)) / count
        for name, new in (("running_mean", mean), ("running_var", variance * (count / max(count - 1, 1)))):
            if name in parameters:
                parameters[name] = parameters[name] + node.momentum * (new.detach() - parameters[name])
        factor = parameters["weight"] / (variance + node.eps).sqrt()
        return (x * factor[:, None, None] + (parameters["bias"] - mean * factor)[:, None, None]).reshape(shape)

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
    Healthy("graph: torch, channels_last", _graph(LastChannels)),
    Healthy("graph: torch, written out", _graph(WrittenOut)),
    Healthy("graph: Fortran, cpu", _fortran("cpu")),
    Healthy("graph: Fortran, naive", _fortran("naive")),
    Healthy("graph: Fortran, float64", _fortran("cpu", "float64")),
)
