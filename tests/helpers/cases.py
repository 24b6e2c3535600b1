# SPDX-License-Identifier: MIT
"""Convolutions and networks to test with, and what PyTorch in float64 says of them.

Bounds are E = s(n)*c, n the number of products of one element, c their sum in absolute values. Both come from
the same torch operation, on ones and on absolute values; nothing here uses the oracle in ``bridge``. Torch is imported
where it is used: processes that need the cases alone start in a fifth of the time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock
from zlib import crc32

import numpy as np

import bridge
from bridge.engine.arrays import dispatch
from bridge.engine.arrays.transfer import to_host
from bridge.judge.oracle.error_model import rounding_factor, total_roundoff

if TYPE_CHECKING:
    import torch
    from torch import nn

Array = np.ndarray
Pair = tuple[int, int]
Judged = dict[str, tuple[Array, Array]]

#: Elements of NaN before and after every array that Fortran writes to
GUARD = 64


@dataclass(frozen=True)
class Case:
    """A convolution of x (n, c, h, w) with w (k, c / groups, r, s)."""

    name: str
    x: tuple[int, int, int, int]
    w: tuple[int, int, int, int]
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    bias: bool = True

    @property
    def settings(self) -> dict[str, Any]:
        """What both conv2d functions take."""
        return {name: getattr(self, name) for name in ("stride", "padding", "dilation", "groups")}

    @property
    def y(self) -> tuple[int, ...]:
        """Shape of the output."""
        sizes = zip(self.x[2:], self.w[2:], self.stride, self.padding, self.dilation, strict=True)
        return (self.x[0], self.w[0], *((n + 2 * pad - d * (t - 1) - 1) // step + 1 for n, t, step, pad, d in sizes))


CASES = (
    Case("plain", (2, 3, 11, 13), (5, 3, 4, 6)),
    Case("padded", (2, 5, 9, 12), (4, 5, 3, 7), padding=(1, 3)),
    Case("padded in height only", (3, 2, 6, 10), (4, 2, 5, 1), padding=(2, 0)),
    Case("padded in width only", (3, 2, 6, 10), (5, 2, 1, 4), padding=(0, 3)),
    Case("few channels", (2, 16, 9, 12), (16, 16, 3, 3), padding=(1, 1)),
    Case("few channels to one", (2, 16, 7, 9), (1, 16, 3, 3), padding=(2, 0)),
    Case("one channel to few", (3, 1, 8, 37), (16, 1, 3, 3), padding=(1, 1)),
    Case("few channels, few outputs", (1, 3, 6, 5), (4, 3, 3, 3), padding=(0, 1)),
    # What is near to what the device cuda has kernels of its own for, and is none of it
    Case("few channels, stride 2 1", (2, 4, 9, 8), (4, 4, 3, 3), (2, 1), (1, 1)),
    Case("few channels, dilation 1 2", (2, 4, 9, 8), (4, 4, 3, 3), padding=(1, 1), dilation=(1, 2)),
    Case("few channels, groups 2", (2, 4, 9, 8), (4, 2, 3, 3), padding=(1, 1), groups=2),
    Case("few channels, padding 3 1", (2, 4, 9, 8), (4, 4, 3, 3), padding=(3, 1)),
    Case("five channels", (2, 4, 9, 8), (5, 4, 3, 3), padding=(1, 1)),
    Case("padding larger than the kernel", (2, 3, 7, 5), (4, 3, 2, 3), padding=(4, 5)),
    Case("padding larger than the image", (2, 1, 3, 4), (3, 1, 5, 6), padding=(7, 6)),
    Case("stride 2 1", (2, 3, 12, 9), (4, 3, 5, 2), stride=(2, 1), padding=(1, 0)),
    Case("stride 1 3", (2, 3, 8, 17), (5, 3, 4, 6), stride=(1, 3), padding=(0, 2)),
    Case("stride 3 2", (2, 4, 13, 10), (3, 4, 5, 7), stride=(3, 2), padding=(2, 3)),
    Case("stride leaves pixels out", (2, 3, 11, 13), (4, 3, 2, 1), stride=(3, 4)),
    Case("stride larger than the image", (2, 3, 5, 6), (4, 3, 2, 3), stride=(7, 9)),
    Case("dilation 2 3", (2, 3, 12, 14), (5, 3, 4, 2), dilation=(2, 3)),
    Case("dilation in the padding", (2, 3, 5, 7), (4, 3, 3, 2), dilation=(4, 6), padding=(5, 4)),
    Case("everything", (3, 4, 15, 16), (6, 2, 5, 3), (2, 3), (3, 4), (2, 1), 2),
    Case("everything else", (2, 6, 14, 11), (9, 2, 3, 4), (3, 2), (1, 5), (1, 2), 3),
    Case("groups 2", (3, 4, 9, 8), (10, 2, 5, 6), padding=(2, 1), groups=2),
    Case("groups 3", (2, 6, 10, 7), (9, 2, 3, 4), stride=(1, 2), groups=3),
    Case("depthwise", (3, 5, 8, 9), (5, 1, 4, 2), padding=(1, 1), groups=5),
    Case("depthwise with a multiplier", (2, 4, 9, 7), (12, 1, 3, 5), padding=(1, 2), dilation=(2, 1), groups=4),
    Case("kernel 1 1", (2, 6, 5, 7), (4, 6, 1, 1)),
    Case("kernel 1 1 with stride and padding", (3, 2, 6, 9), (5, 2, 1, 1), (2, 3), (1, 2)),
    Case("kernel 1 5", (2, 3, 6, 11), (4, 3, 1, 5), padding=(0, 2)),
    Case("kernel 5 1", (2, 3, 11, 6), (4, 3, 5, 1), padding=(2, 0)),
    Case("even kernel", (3, 2, 9, 10), (5, 2, 4, 6), padding=(2, 3)),
    Case("kernel as large as the image", (3, 2, 5, 7), (4, 2, 5, 7)),
    Case("one pixel, all of it padding but one", (2, 3, 1, 1), (4, 3, 5, 7), padding=(2, 3)),
    Case("one row", (2, 3, 1, 9), (5, 3, 1, 4)),
    Case("one channel", (3, 1, 8, 10), (1, 1, 2, 5), padding=(1, 0)),
    Case("batch 1", (1, 3, 8, 10), (5, 3, 2, 4), padding=(1, 2)),
    Case("batch 7", (7, 3, 6, 9), (4, 3, 2, 5), padding=(1, 2)),
    Case("no bias", (2, 3, 9, 8), (4, 3, 5, 6), padding=(1, 2), bias=False),
    Case("no bias, groups", (3, 4, 7, 9), (6, 2, 5, 3), stride=(2, 1), groups=2, bias=False),
    Case("wide rows", (2, 5, 4, 3000), (3, 5, 3, 7), padding=(1, 3)),
    Case("wide rows with stride", (1, 6, 5, 3000), (4, 3, 3, 7), (2, 3), (2, 1), groups=2),
    Case("many rows", (7, 3, 700, 9), (4, 3, 6, 5), padding=(1, 2)),
    Case("many rows with stride", (2, 3, 1500, 10), (4, 3, 7, 5), (2, 3), (3, 2), (2, 1)),
)


def tensors(case: Case, dtype: str, seed: int = 0) -> dict[str, Array]:
    """Random x, w, b, dy of a case; no b without bias."""
    rng = np.random.default_rng([seed, crc32(case.name.encode())])
    shapes = {"x": case.x, "w": case.w, "b": case.w[:1], "dy": case.y}
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()
            if case.bias or name != "b"}


def truth(case: Case, t: dict[str, Array]) -> Judged:
    """y, dx, dw, db in torch float64, each with the bound for the precision of the tensors."""
    u = total_roundoff(t["x"].dtype.name)
    value = torch_convolution(case, t)
    absolute = torch_convolution(case, {name: np.abs(array) for name, array in t.items()})
    products = torch_convolution(case, {name: np.ones_like(array) for name, array in t.items()})
    return {name: (value[name], rounding_factor(products[name], u) * absolute[name]) for name in value}


def torch_convolution(case: Case, t: dict[str, Array]) -> dict[str, Array]:
    """y, dx, dw, db by torch in float64."""
    import torch
    from torch import nn

    x, w, dy = (torch.from_numpy(t[name].astype(np.float64)) for name in ("x", "w", "dy"))
    b = torch.from_numpy(t["b"].astype(np.float64)) if "b" in t else None
    inputs = [one.requires_grad_() for one in (x, w, b) if one is not None]
    y = nn.functional.conv2d(x, w, b, **case.settings)
    grads = torch.autograd.grad(y, inputs, dy)
    found = dict(zip(("dx", "dw", "db"), grads, strict=False)) | {"y": y.detach()}
    return {name: value.numpy() for name, value in found.items()}


def channels_last(array: Array) -> Array:
    """The same numbers with memory as torch's channels_last."""
    n, c, h, w = array.shape
    made = np.empty((n, h, w, c), array.dtype).transpose(0, 3, 1, 2)
    made[...] = array
    return made


def as_it_is(array: Array) -> Array:
    """No other layout."""
    return array


def fortran_convolution(case: Case, t: dict[str, Array], device: str = "cpu",
                        layout: Callable[[Array], Array] = as_it_is) -> dict[str, Array]:
    """y, dx, dw, db by the library, in memory full of NaN; what lies beside it must stay as it was."""
    x, w, dy = (layout(t[name]) for name in ("x", "w", "dy"))
    buffers: list[Array] = []

    def empty(shape: tuple[int, ...], dtype: Any) -> Array:
        size = int(np.prod(shape))
        buffers.append(np.full(size + 2 * GUARD, np.nan, dtype))
        return buffers[-1][GUARD:GUARD + size].reshape(shape)

    guarded = SimpleNamespace(**vars(np) | {"empty": empty})
    with mock.patch.object(dispatch, "np", guarded):
        y = bridge.conv2d(x, w, t.get("b"), **case.settings, device=device)
        dx, dw, db = bridge.conv2d_backward(dy, x, w, **case.settings, device=device)
    assert len(buffers) == 4
    assert all(np.isnan(buffer[:GUARD]).all() and np.isnan(buffer[-GUARD:]).all() for buffer in buffers)
    return {"y": y, "dx": dx, "dw": dw} | ({"db": db} if case.bias else {})


def check(found: dict[str, Array], judged: Judged, dtype: str) -> None:
    """Every tensor has its shape and type and lies within its bound; NaN does not."""
    assert set(found) == set(judged)
    for name, (value, bound) in judged.items():
        array = np.asarray(found[name])
        assert array.shape == np.shape(value) and array.dtype == dtype, f"{name}: {array.shape} {array.dtype}"
        error = np.abs(array.astype(np.float64) - value)
        worst = np.max(error - bound)
        assert np.all(error <= bound), f"{name}: beyond its bound by {worst}, largest error {error.max()}"


def three_layers(seed: int = 0, channels: int = 16, dtype: torch.dtype | None = None) -> nn.Sequential:
    """conv-relu-conv-relu-conv, 1 -> channels -> channels -> 1, as torch initialises it."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    sizes = ((1, channels), (channels, channels), (channels, 1))
    first, middle, last = (nn.Conv2d(i, o, 3, padding=1) for i, o in sizes)
    parts = (first, nn.ReLU(), middle, nn.ReLU(), last)
    return nn.Sequential(OrderedDict(zip(("conv1", "relu1", "conv2", "relu2", "conv3"), parts, strict=True))).to(dtype)


def one_layer() -> bridge.Network:
    """A 1x1 convolution, 1 -> 2 channels, and a ReLU."""
    return bridge.Network(bridge.Model((bridge.Conv2d("a", 1, 2, (1, 1)), bridge.Relu("r"))))


def batch(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """A random tensor."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def layered(net: bridge.Network) -> nn.Module:
    """The network's layers as a module of torch, by their names, whatever module it was read of."""
    from bridge.engine.network.torch_modules import make_module

    values = {name: to_host(array) for name, array in (*net.parameters.items(), *net.buffers.items())}
    return make_module(net.model, net.dtype, values, net.frozen)


def torch_step(net: bridge.Network, x: Array, target: Array) -> Judged:
    """Every tensor of a step from the network's present weights in torch float64, with its bound.

    Names: loss, <layer>.weight and <layer>.bias (gradients), output/<layer>, gradient/<layer>, gradient/input.
    """
    import torch
    from torch import nn

    module = layered(net).double()
    outputs: dict[str, torch.Tensor] = {}
    for name, leaf in module._modules.items():
        leaf.register_forward_hook(lambda _, __, z, name=name: outputs.update({name: z}))
    source = torch.from_numpy(x).double().requires_grad_()
    y = module(source)
    loss = nn.functional.mse_loss(y, torch.from_numpy(target).double(), reduction="mean" if net.model.mean else "sum")
    learned = {f"{name}.{kind}": one for name, leaf in module._modules.items() for kind, one in leaf.named_parameters()}
    tracked = {"gradient/input": source, **{f"gradient/{name}": z for name, z in outputs.items()}, **learned}
    found = dict(zip(tracked, torch.autograd.grad(loss, list(tracked.values())), strict=True))
    found |= {f"output/{name}": z for name, z in outputs.items()} | {"loss": loss}
    values = {name: one.detach().numpy() for name, one in found.items()}
    limits = step_bounds(net, values, x, target)
    return {name: (value, limits[name]) for name, value in values.items()}


def layer_convolution(layer: bridge.Conv2d, **t: Array) -> dict[str, Array]:
    """`torch_convolution` of a layer; what is not given is ones."""
    case = Case(layer.name, t["x"].shape, layer.weight_shape, layer.stride, layer.padding, layer.dilation, layer.groups)
    t = {"w": np.ones(case.w), "b": np.ones(case.w[:1]), "dy": np.ones(case.y)} | t
    return torch_convolution(case, {name: array for name, array in t.items() if layer.bias or name != "b"})


def step_bounds(net: bridge.Network, values: dict[str, Array], x: Array, target: Array) -> dict[str, Array]:
    """Bounds of `values`, rounding of each operation and of all before it, in absolute values."""
    u, scale = total_roundoff(net.dtype), 1 / target.size if net.model.mean else 1.0
    weights = {name: np.abs(array.astype(np.float64)) for name, array in net.parameters.items()}
    limits: dict[str, Array] = {}
    kept, a, e = [], x.astype(np.float64), np.zeros(x.shape)
    for layer in net.model.layers:
        kept.append((layer, a, e))
        if isinstance(layer, bridge.Conv2d):
            w = weights[f"{layer.name}.weight"]
            b = weights.get(f"{layer.name}.bias", np.zeros(w.shape[0]))
            s = rounding_factor(layer_convolution(layer, x=np.ones(a.shape))["y"], u)
            carried = layer_convolution(layer, x=e, w=w, b=0 * b)["y"]
            e = s * layer_convolution(layer, x=np.abs(a), w=w, b=b)["y"] + (1 + s) * carried
        else:
            e = np.where(a > -e, e, 0.0)
        limits[f"output/{layer.name}"] = e
        a = values[f"output/{layer.name}"]
    d = np.abs(a - target)
    limits["loss"] = scale * ((rounding_factor(d.size, u) + 3 * u) * np.sum((d + e)**2) + np.sum((2 * d + e) * e))
    e = 2 * scale * ((1 + 4 * u) * e + 4 * u * d)
    for layer, a, e_a in reversed(kept):
        limits[f"gradient/{layer.name}"] = e
        dz = np.abs(values[f"gradient/{layer.name}"])
        if isinstance(layer, bridge.Conv2d):
            t = {"x": np.abs(a), "w": weights[f"{layer.name}.weight"]}
            c, n = layer_convolution(layer, **t, dy=dz), layer_convolution(layer, x=np.ones(a.shape))
            carried, more = layer_convolution(layer, **t, dy=e), layer_convolution(layer, x=e_a, dy=dz + e)
            carried["dw"] = carried["dw"] + more["dw"]
            after = {part: (s := rounding_factor(n[part], u)) * c[part] + (1 + s) * carried[part] for part in c}
            limits |= {f"{layer.name}.weight": after["dw"], f"{layer.name}.bias": after.get("db")}
            e = after["dx"]
        else:
            e = np.where(a > 0, e, 0.0) + np.where(np.abs(a) <= e_a, dz + e, 0.0)
    return limits | {"gradient/input": e}


def network_step(net: bridge.Network) -> dict[str, Array]:
    """What the library has after `backward`, by the names of `torch_step`, without the loss."""
    names = [layer.name for layer in net.model.layers]
    found = {f"output/{name}": net.output(name) for name in names}
    found |= {f"gradient/{name}": net.output_gradient(name) for name in (*names, "input")}
    return found | {name: array.copy() for name, array in net.gradients.items()}
