# SPDX-License-Identifier: MIT
"""Kinds 8 to 12, 42 and 43: rotation, padding, shifts, strides and dilations, taps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

import torch
from torch.nn import functional

from bridge.exchange.model import Conv2d
from bridge.validate.self_test.operations import Operations, fed, only, replace
from bridge.validate.self_test.plants.record import Plant, wrong

Tensor = torch.Tensor


def padded(x: Tensor, layer: Conv2d, mode: str) -> Tensor:
    """Padded on four sides, by torch's name of a mode."""
    h, w = layer.padding
    return functional.pad(x, (w, w, h, h), mode=mode)


def padding_mode(name: str, mode: str) -> type[Operations]:
    """A forward convolution that pads with something else than zeros."""

    def conv(self: Operations, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        if layer.name != name:
            return Operations.conv(self, layer, x, w, b)
        return torch.conv2d(padded(x, layer, mode), w, b, layer.stride, 0, layer.dilation, layer.groups)

    return replace(conv=conv)


def filter_padding_mode(name: str, mode: str) -> type[Operations]:
    """A filter gradient that pads its input with something else than zeros."""

    def filters(self: Operations, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        if layer.name != name:
            return Operations.filter_gradient(self, layer, dz, x, w)
        return Operations.filter_gradient(self, changed(layer, padding=(0, 0)), dz, padded(x, layer, mode), w)

    return replace(filter_gradient=filters)


def off_by_one(name: str, sides: tuple[int, int, int, int]) -> type[Operations]:
    """Padded by (left, right, top, bottom) in place of the same on both sides."""

    def conv(self: Operations, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        if layer.name != name:
            return Operations.conv(self, layer, x, w, b)
        return torch.conv2d(functional.pad(x, sides), w, b, layer.stride, 0, layer.dilation, layer.groups)

    return replace(conv=conv)


def frame(x: Tensor, lost: tuple[int, int, int, int]) -> Tensor:
    """Zeros in the first and last rows and columns (top, bottom, left, right): never computed."""
    top, bottom, left, right = lost
    height, width = x.shape[2:]
    found = torch.zeros_like(x)
    inside = (..., slice(top, height - bottom), slice(left, width - right))
    found[inside] = x[inside]
    return found


def moved(x: Tensor, h: int = 0, w: int = 0) -> Tensor:
    """Moved by pixels; zeros come in."""
    found = torch.zeros_like(x)
    height, width = x.shape[2:]
    to = (..., slice(max(h, 0), height + min(h, 0)), slice(max(w, 0), width + min(w, 0)))
    origin = (..., slice(max(-h, 0), height + min(-h, 0)), slice(max(-w, 0), width + min(-w, 0)))
    found[to] = x[origin]
    return found


def loops(name: str, direction: str, **geometry: Any) -> type[Operations]:
    """Plain loops over taps with another stride or dilation; what falls outside is left out."""

    def data(self: Operations, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        if layer.name != name:
            return Operations.data_gradient(self, layer, dz, x, w)
        return _scattered(changed(layer, **geometry), dz, x.shape, w)

    def filters(self: Operations, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        if layer.name != name:
            return Operations.filter_gradient(self, layer, dz, x, w)
        return _gathered(changed(layer, **geometry), dz, x, w.shape)

    def conv(self: Operations, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        if layer.name != name:
            return Operations.conv(self, layer, x, w, b)
        right = Operations.conv(self, layer, x, w, b).shape
        return _convolved(changed(layer, **geometry), x, right, w) + (0 if b is None else b[:, None, None])

    chosen: dict[str, Callable[..., Any]] = {"data_gradient": data, "filter_gradient": filters, "conv": conv}
    return replace(**{direction: chosen[direction]})


def _taps(layer: Conv2d, output: torch.Size, size: torch.Size) -> Any:
    """(r, s), output rows and columns, and the input rows and columns that they see through that tap."""
    for r in range(layer.kernel_size[0]):
        for s in range(layer.kernel_size[1]):
            found = []
            for axis, tap in ((0, r), (1, s)):
                place = torch.arange(output[2 + axis])
                seen = place * layer.stride[axis] + tap * layer.dilation[axis] - layer.padding[axis]
                inside = (seen >= 0) & (seen < size[2 + axis])
                found += [place[inside], seen[inside]]
            yield r, s, found


def _groups(layer: Conv2d) -> Any:
    k, c = layer.out_channels // layer.groups, layer.in_channels // layer.groups
    for g in range(layer.groups):
        yield slice(g * k, (g + 1) * k), slice(g * c, (g + 1) * c)


def _scattered(layer: Conv2d, dz: Tensor, size: torch.Size, w: Tensor) -> Tensor:
    dx = torch.zeros(size, dtype=dz.dtype)
    for r, s, (p, i, q, j) in _taps(layer, dz.shape, size):
        for ks, cs in _groups(layer):
            part = torch.einsum("nkpq,kc->ncpq", dz[:, ks][:, :, p][..., q], w[ks, :, r, s])
            dx[:, cs, i[:, None], j[None, :]] += part
    return dx


def _gathered(layer: Conv2d, dz: Tensor, x: Tensor, shape: torch.Size) -> Tensor:
    dw = torch.zeros(shape, dtype=dz.dtype)
    for r, s, (p, i, q, j) in _taps(layer, dz.shape, x.shape):
        for ks, cs in _groups(layer):
            dw[ks, :, r, s] = torch.einsum("nkpq,ncpq->kc", dz[:, ks][:, :, p][..., q], x[:, cs][:, :, i][..., j])
    return dw


def _convolved(layer: Conv2d, x: Tensor, output: torch.Size, w: Tensor) -> Tensor:
    z = torch.zeros(output, dtype=x.dtype)
    for r, s, (p, i, q, j) in _taps(layer, output, x.shape):
        for ks, cs in _groups(layer):
            part = torch.einsum("ncij,kc->nkij", x[:, cs][:, :, i][..., j], w[ks, :, r, s])
            z[:, ks, p[:, None], q[None, :]] += part
    return z


def same_index(g: Tensor, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """The loop over taps does not move the image: all taps get one product."""
    return torch.einsum("nkij,ncij->kc", dz, x)[:, :, None, None].expand(g.shape).contiguous()


def summed_kernel(z: Tensor, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """The same of a forward convolution: the pixel in the middle by the sum of all taps."""
    return torch.einsum("kcrs,ncij->nkij", w, x) + b[:, None, None]


def rolled(*shift: int) -> Callable[[Tensor], Tensor]:
    """Rows and columns, of taps or of pixels, moved around the border."""
    return lambda x: x.roll(shift, (2, 3))


def _turned(w: Tensor) -> Tensor:
    return w.flip(2, 3)


PLANTS: list[Plant] = [
    wrong(8, "data gradient without rotation", fed("conv2", "data_gradient", w=_turned)),
    wrong(8, "last data gradient without rotation", fed("conv3", "data_gradient", w=_turned)),
    wrong(8, "first data gradient without rotation", fed("conv1", "data_gradient", w=_turned)),
    wrong(8, "grouped data gradient without rotation", fed("2", "data_gradient", w=_turned), "strided"),
    wrong(9, "replicated padding", padding_mode("conv2", "replicate")),
    wrong(9, "reflected padding", padding_mode("conv1", "reflect")),
    wrong(9, "circular padding", padding_mode("conv3", "circular")),
    wrong(9, "filter gradient with replicated padding", filter_padding_mode("conv2", "replicate")),
    wrong(9, "first filter gradient with circular padding", filter_padding_mode("conv1", "circular")),
    wrong(10, "padded on one side only", off_by_one("conv2", (2, 0, 2, 0))),
    wrong(10, "first layer padded late in h", off_by_one("conv1", (1, 1, 0, 2))),
    wrong(10, "only valid outputs are computed", only("conv2", "conv", lambda z, *_: frame(z, (1, 1, 1, 1)))),
    wrong(10, "last row of outputs is not computed", only("conv1", "conv", lambda z, *_: frame(z, (0, 1, 0, 0)))),
    wrong(
        10, "filter gradient of an image padded off by one", fed("conv2", "filter_gradient", x=lambda x: moved(x, 1, 1))
    ),
    wrong(
        10,
        "border of the data gradient is not computed",
        only("conv2", "data_gradient", lambda g, *_: frame(g, (1, 1, 1, 1))),
    ),
    wrong(11, "filter gradient of dz one pixel right", fed("conv2", "filter_gradient", dz=lambda dz: moved(dz, 0, 1))),
    wrong(
        11, "first filter gradient of dz one pixel up", fed("conv1", "filter_gradient", dz=lambda dz: moved(dz, -1, 0))
    ),
    wrong(11, "data gradient of dz one pixel down", fed("conv2", "data_gradient", dz=lambda dz: moved(dz, 1, 0))),
    wrong(10, "wide convolution padded two pixels late", fed("0", "conv", x=lambda x: moved(x, 0, 2)), "wide"),
    wrong(10, "filter gradient of an image rolled by a pixel", fed("conv2", "filter_gradient", x=rolled(0, 1))),
    wrong(10, "image shifted by half of it", fed("conv2", "conv", x=lambda x: torch.fft.fftshift(x, dim=(2, 3)))),
    wrong(11, "filter gradient of dz two pixels right",
          fed("2", "filter_gradient", dz=lambda dz: moved(dz, 0, 2)), "wide"),
    wrong(11, "data gradient of dz two pixels up", fed("2", "data_gradient", dz=lambda dz: moved(dz, -2, 0)), "wide"),
    wrong(11, "filter gradient of dz rolled by a pixel", fed("conv2", "filter_gradient", dz=rolled(-1, 1))),
    wrong(11, "data gradient one pixel left", only("conv3", "data_gradient", lambda g, *_: moved(g, 0, -1))),
    wrong(12, "data gradient with dilation 2", loops("conv2", "data_gradient", dilation=(2, 2))),
    wrong(12, "filter gradient with dilation 2", loops("conv2", "filter_gradient", dilation=(2, 2))),
    wrong(12, "filter gradient with stride 2", loops("conv3", "filter_gradient", stride=(2, 2))),
    wrong(12, "forward with dilation 2", loops("conv2", "conv", dilation=(2, 2))),
    wrong(12, "strided data gradient with stride 1", loops("0", "data_gradient", stride=(1, 1)), "strided"),
    wrong(12, "strided filter gradient with stride 1", loops("0", "filter_gradient", stride=(1, 1)), "strided"),
    wrong(12, "dilated data gradient with dilation 1", loops("2", "data_gradient", dilation=(1, 1)), "strided"),
    wrong(12, "dilated filter gradient with dilation 1", loops("2", "filter_gradient", dilation=(1, 1)), "strided"),
    wrong(12, "filter gradient with dilation 3", loops("2", "filter_gradient", dilation=(3, 3)), "strided"),
    wrong(12, "strided data gradient with stride 3 in h", loops("0", "data_gradient", stride=(3, 1)), "strided"),
    wrong(42, "forward kernel rolled", fed("conv2", "conv", w=rolled(1, 1))),
    wrong(42, "data gradient's kernel rolled", fed("conv3", "data_gradient", w=rolled(0, -1))),
    wrong(42, "filter gradient rolled", only("conv2", "filter_gradient", lambda g, *_: g.roll((1, 0), (2, 3)))),
    wrong(42, "wide kernel rolled by half", fed("0", "conv", w=rolled(2, 2)), "wide"),
    wrong(43, "filter gradient of the same index", only("conv2", "filter_gradient", same_index)),
    wrong(43, "every filter gradient of the same index", replace(
        filter_gradient=lambda self, layer, dz, x, w: same_index(w, dz, x, w))),
    wrong(43, "forward of the same index", only("conv2", "conv", summed_kernel)),
]
