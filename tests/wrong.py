# SPDX-License-Identifier: MIT
"""The catalogue of planted faults: wrong operations, and wrong tensors in a right file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from candidates import Operations

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


def replace(**methods: Callable[..., Any]) -> type[Operations]:
    """Operations with some replaced; each replacement gets ``self`` (with `right` for the right one) first."""
    return type("Wrong", (Operations,), methods)


def only(layer_name: str, method: str, change: Callable[..., Tensor]) -> type[Operations]:
    """One operation of one layer gives ``change(right value, arguments...)``."""

    def wrong(self: Operations, layer: Any, *arguments: Tensor) -> Tensor:
        right = getattr(Operations, method)(self, layer, *arguments)
        name = layer if isinstance(layer, str) else layer.name
        return change(right, *arguments) if name == layer_name else right

    return replace(**{method: wrong})


def colmajor(g: Tensor) -> Tensor:
    """A column-major view of C-order memory."""
    return torch.from_numpy(g.numpy().ravel().reshape(g.shape, order="F").copy())


def shifted(dz: Tensor) -> Tensor:
    """One pixel to the right, zeros from the left."""
    return torch.nn.functional.pad(dz, (1, 0))[..., :-1]


def filter_of(change: Callable[[Tensor], Tensor]) -> type[Operations]:
    """The filter gradient of conv2, changed."""
    return only("conv2", "filter_gradient", lambda g, *_: change(g))


def shifted_filter(self: Operations, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """Filter gradient from a dz that is one pixel off."""
    return Operations.filter_gradient(self, layer, shifted(dz) if layer.name == "conv2" else dz, x, w)


def unrotated(self: Operations, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """Data gradient without the rotation of the kernel."""
    return Operations.data_gradient(self, layer, dz, x, w.flip(2, 3) if layer.name == "conv3" else w)


def replicate(self: Operations, layer: Any, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """Padding repeats the border."""
    (h, v), x = layer.padding, x
    padded = torch.nn.functional.pad(x, (v, v, h, h), mode="replicate")
    return torch.conv2d(padded, w, b, layer.stride, 0, layer.dilation, layer.groups)


def forward_of(change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> type[Operations]:
    """The forward convolution of conv2: change(right, w, b)."""
    return only("conv2", "conv", lambda z, x, w, b: change(z, w, b))


def flipped_forward(self: Operations, layer: Any, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """A convolution in place of a cross-correlation."""
    return Operations.conv(self, layer, x, w.flip(2, 3) if layer.name == "conv2" else w, b)


def reversed_batch(self: Operations, layer: Any, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """Images of the batch in another order."""
    return Operations.conv(self, layer, x.flip(0) if layer.name == "conv1" else x, w, b)


class OtherMask(Operations):
    """The mask of the wrong layer: relu2 takes that of relu1."""

    def relu(self, name: str, z: Tensor) -> Tensor:
        self.first = z if name == "relu1" else self.first
        return super().relu(name, z)

    def relu_backward(self, name: str, da: Tensor, z: Tensor) -> Tensor:
        return super().relu_backward(name, da, self.first)


class PreviousMask(Operations):
    """The mask of the previous batch."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.old: dict[str, Tensor] = {}

    def relu_backward(self, name: str, da: Tensor, z: Tensor) -> Tensor:
        z, self.old[name] = self.old.get(name, z), z
        return super().relu_backward(name, da, z)


class Remembering(Operations):
    """Filter gradients with a memory of the previous step."""

    accumulate = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.old: dict[str, Tensor] = {}

    def filter_gradient(self, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        g = super().filter_gradient(layer, dz, x, w)
        before = self.old.get(layer.name)
        self.old[layer.name] = g
        if before is None:
            return g
        return g + before if self.accumulate else before


class Stale(Remembering):
    """The previous gradient in place of this one."""

    accumulate = False


class NotKept(Operations):
    """The momentum buffer is forgotten after every step."""

    def velocity(self, name: str, old: Tensor | None, g: Tensor) -> Tensor:
        return g


def corrupted(x: Tensor, factor: float) -> Tensor:
    """One element in the middle times a factor."""
    x = x.clone()
    x.view(-1)[x.numel() // 2] *= factor
    return x


def sgd(**methods: Callable[..., Tensor]) -> type[Operations]:
    """Replaced parts of the optimiser."""
    return replace(**methods)


CONV2 = "grads/conv2/weight"
OPTIMIZER = "optimizer/conv1/weight"

OPERATIONS = [
    Fault("kernel gradient flipped in h", filter_of(lambda g: g.flip(2)), CONV2, large=True),
    Fault("kernel gradient flipped in w", filter_of(lambda g: g.flip(3)), CONV2, large=True),
    Fault("kernel gradient flipped in both", filter_of(lambda g: g.flip(2, 3)), CONV2, large=True),
    Fault("in and out swapped", filter_of(lambda g: g.transpose(0, 1)), CONV2, large=True),
    Fault("kh and kw transposed", filter_of(lambda g: g.transpose(2, 3)), CONV2, large=True),
    Fault("column-major view", filter_of(colmajor), CONV2, large=True),
    Fault("zero gradient", filter_of(torch.zeros_like), CONV2, large=True),
    Fault("dz shifted by a pixel", replace(filter_gradient=shifted_filter), CONV2, large=True),
    Fault("accumulated gradient", Remembering, "grads/conv3/weight", 1, large=True),
    Fault("previous gradient", Stale, "grads/conv3/weight", 1, large=True),
    Fault("no mask", only("relu2", "relu_backward", lambda dz, da, z: da), "grads/conv2/output", large=True),
    Fault("mask of another layer", OtherMask, "grads/conv2/output", large=True),
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
    Fault("no rotation in the data gradient", replace(data_gradient=unrotated), "grads/relu2/output", large=True),
    Fault("input gradient flipped", only("conv1", "data_gradient", lambda g, *_: g.flip(3)), "grads/input"),
    Fault("replicated padding", replace(conv=replicate), "forward/conv1", large=True),
    Fault("kernel flipped forward", replace(conv=flipped_forward), "forward/conv2"),
    Fault("bias missing", forward_of(lambda z, w, b: z - b[:, None, None]), "forward/conv2", large=True),
    Fault("bias twice", forward_of(lambda z, w, b: z + b[:, None, None]), "forward/conv2"),
    Fault(
        "bias gradient of a part of the batch",
        replace(bias_gradient=lambda self, layer, dz: Operations.bias_gradient(self, layer, dz[:-1])),
        "grads/conv3/bias",
        large=True,
    ),
    Fault("filter gradient of a part of the batch", only("conv2", "filter_gradient", lambda g, *_: g * (2 / 3)), CONV2),
    Fault("batch reversed", replace(conv=reversed_batch), "forward/conv1"),
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
    Fault("weight decay missing", sgd(decayed=lambda self, name, w, g: g), OPTIMIZER, optimizer="momentum"),
    Fault(
        "weight decay not on biases",
        sgd(decayed=lambda self, name, w, g: g if name.endswith("bias") else Operations.decayed(self, name, w, g)),
        "optimizer/conv1/bias",
        optimizer="momentum",
    ),
    Fault(
        "weight decay decoupled",
        sgd(
            update=lambda self, name, w, g: (
                type("_", (Operations,), {"decayed": lambda self, name, w, g: g}).update(self, name, w, g)
                - self.sgd.weight_decay * w
            )
        ),
        OPTIMIZER,
        optimizer="momentum",
    ),
    Fault(
        "dampening ignored",
        sgd(velocity=lambda self, name, old, g: g if old is None else self.sgd.momentum * old + g),
        OPTIMIZER,
        1,
        "momentum",
    ),
    Fault(
        "dampening in the first step",
        sgd(velocity=lambda self, name, old, g: (0 if old is None else self.sgd.momentum * old) + 0.75 * g),
        OPTIMIZER,
        0,
        "momentum",
    ),
    Fault("momentum buffer not kept", NotKept, OPTIMIZER, 1, "momentum"),
    Fault("nesterov missing", sgd(direction=lambda self, name, g, v: v), OPTIMIZER, 0, "nesterov"),
    Fault(
        "nesterov not asked for",
        sgd(direction=lambda self, name, g, v: g + self.sgd.momentum * v),
        OPTIMIZER,
        0,
        "momentum",
    ),
]


def flipped_bit(x: Array) -> Array:
    """Bit 12 of one float32."""
    x = np.array(x, np.float32)
    x.reshape(-1).view(np.uint32)[x.size // 3] ^= 1 << 12
    return x


def element(value: float) -> Callable[[Array], Array]:
    """One element replaced."""

    def edit(x: Array) -> Array:
        x = np.array(x)
        x.reshape(-1)[x.size // 2] = value
        return x

    return edit


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
    ("a bit flipped", "steps/0/forward/conv3", flipped_bit),
    ("a bit flipped in a gradient", "steps/0/grads/relu2/output", flipped_bit),
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
