# SPDX-License-Identifier: MIT
"""Kinds 1 to 7 and 41: kernels and images in another order of their memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bridge.validate.self_test.operations import Operations, fed, only, replace
from bridge.validate.self_test.plants.record import Plant, stored, wrong

Tensor = torch.Tensor
Change = Callable[[Tensor], Tensor]


def column_major(g: Tensor) -> Tensor:
    """Memory in C's order, taken for column-major of the same declared shape."""
    return torch.from_numpy(g.numpy().ravel().reshape(g.shape, order="F").copy())


def row_major(g: Tensor) -> Tensor:
    """The reverse: column-major memory, taken for C's order."""
    return torch.from_numpy(g.numpy().ravel(order="F").reshape(g.shape).copy())


def nhwc(x: Tensor) -> Tensor:
    """Channels-last memory, taken for NCHW."""
    return x.permute(0, 2, 3, 1).reshape(x.shape)


def krsc(w: Tensor) -> Tensor:
    """A channels-last filter, taken for (k, c, r, s)."""
    return w.permute(0, 2, 3, 1).reshape(w.shape)


def transposed(x: Tensor) -> Tensor:
    """Images written w by h, taken for h by w."""
    return x.transpose(2, 3).reshape(x.shape)


def shuffled(x: Tensor) -> Tensor:
    """Channels in a fixed, strange order."""
    order = np.random.default_rng(5).permutation(x.shape[1])
    return x[:, torch.from_numpy(order)]


def filter_of(layer: str, change: Change) -> type[Operations]:
    """The filter gradient comes out changed."""
    return only(layer, "filter_gradient", lambda g, *_: change(g))


def forward_kernel(layer: str, change: Change) -> type[Operations]:
    """The forward convolution takes a changed kernel."""
    return fed(layer, "conv", w=change)


def backward_kernel(layer: str, change: Change) -> type[Operations]:
    """The data gradient takes a changed kernel."""
    return fed(layer, "data_gradient", w=change)


def _everywhere(change: Change) -> type[Operations]:
    """All three directions of all layers take the library's other constant, and agree with each other."""

    def conv(self: Operations, layer: Any, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        return Operations.conv(self, layer, x, change(w), b)

    def data(self: Operations, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return Operations.data_gradient(self, layer, dz, x, change(w))

    def filters(self: Operations, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return change(Operations.filter_gradient(self, layer, dz, x, w))

    return replace(conv=conv, data_gradient=data, filter_gradient=filters)


def _every_filter(change: Change) -> type[Operations]:
    def filters(self: Operations, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return change(Operations.filter_gradient(self, layer, dz, x, w))

    return replace(filter_gradient=filters)


def _flip(*axes: int) -> Change:
    return lambda x: x.flip(axes)


def _swap(x: Tensor) -> Tensor:
    return x.transpose(2, 3)


def _in_out(x: Tensor) -> Tensor:
    return x.transpose(0, 1)


PLANTS: list[Plant] = [
    wrong(1, "filter gradient flipped", filter_of("conv2", _flip(2, 3))),
    wrong(1, "filter gradient flipped in h", filter_of("conv2", _flip(2))),
    wrong(1, "filter gradient flipped in w", filter_of("conv3", _flip(3))),
    wrong(1, "first filter gradient flipped", filter_of("conv1", _flip(2, 3))),
    wrong(1, "convolution in place of cross-correlation", forward_kernel("conv2", _flip(2, 3))),
    wrong(1, "first convolution flipped in w", forward_kernel("conv1", _flip(3))),
    wrong(1, "data gradient flipped in h", backward_kernel("conv3", _flip(2))),
    stored(1, "exported flipped", "0/grads/conv2/weight", lambda g: g[:, :, ::-1, ::-1]),
    wrong(1, "strided filter gradient flipped in w", filter_of("0", _flip(3)), "strided"),
    wrong(2, "filter gradient with kh and kw swapped", filter_of("conv2", _swap)),
    wrong(2, "first filter gradient with kh and kw swapped", filter_of("conv1", _swap)),
    wrong(2, "forward with kh and kw swapped", forward_kernel("conv2", _swap)),
    wrong(2, "data gradient with kh and kw swapped", backward_kernel("conv2", _swap)),
    wrong(2, "kernels of 3x5 read as 5x3", filter_of("0", lambda g: _swap(g).reshape(g.shape)), "strided"),
    wrong(3, "filter gradient with in and out swapped", filter_of("conv2", _in_out)),
    wrong(3, "forward with in and out swapped", forward_kernel("conv2", _in_out)),
    wrong(3, "data gradient with in and out swapped", backward_kernel("conv2", _in_out)),
    stored(3, "in and out swapped", "1/grads/conv2/weight", lambda g: g.swapaxes(0, 1)),
    wrong(4, "filter gradient read column-major", filter_of("conv2", column_major)),
    wrong(4, "first filter gradient read column-major", filter_of("conv1", column_major)),
    wrong(4, "column-major filter gradient read as C", filter_of("conv2", row_major)),
    wrong(4, "forward kernel read column-major", forward_kernel("conv2", column_major)),
    wrong(4, "data gradient's kernel read column-major", backward_kernel("conv2", column_major)),
    wrong(4, "strided filter gradient read column-major", filter_of("0", column_major), "strided"),
    stored(4, "column-major", "2/grads/conv2/weight", lambda g: g.ravel().reshape(g.shape, order="F")),
    wrong(5, "first layer sees transposed images", fed("conv1", "conv", x=transposed)),
    wrong(5, "second layer sees transposed images", fed("conv2", "conv", x=transposed)),
    wrong(5, "first layer sees mirrored images", fed("conv1", "conv", x=_flip(3))),
    wrong(5, "filter gradient of transposed dz", fed("conv2", "filter_gradient", dz=transposed)),
    wrong(5, "input gradient mirrored", only("conv1", "data_gradient", lambda g, *_: g.flip(2))),
    stored(5, "exported transposed", "0/grads/input", lambda g: g.swapaxes(2, 3).reshape(g.shape)),
    wrong(6, "second layer sees NHWC images", fed("conv2", "conv", x=nhwc)),
    wrong(6, "NHWC output", only("conv2", "conv", lambda z, *_: nhwc(z))),
    wrong(6, "filter gradient of NHWC dz", fed("conv2", "filter_gradient", dz=nhwc)),
    wrong(6, "filter gradient in KRSC", filter_of("conv2", krsc)),
    wrong(6, "data gradient NHWC", only("conv2", "data_gradient", lambda g, *_: nhwc(g))),
    stored(6, "exported NHWC", "0/forward/conv2", lambda z: np.moveaxis(z, 1, 3).reshape(z.shape)),
    wrong(7, "channels of the input reversed", fed("conv2", "conv", x=_flip(1))),
    wrong(7, "channels of the output shuffled", only("conv2", "conv", lambda z, *_: shuffled(z))),
    wrong(7, "images of the batch reversed", fed("conv1", "conv", x=_flip(0))),
    wrong(7, "filter gradient with shuffled inputs", filter_of("conv2", shuffled)),
    wrong(7, "the first image for every image", fed("conv1", "conv", x=lambda x: x[:1].expand(x.shape))),
    wrong(7, "filter gradient of the next image", fed("conv2", "filter_gradient", x=lambda x: x.roll(1, 0))),
    wrong(7, "filter gradient of the first image's input", fed("conv2", "filter_gradient",
                                                               x=lambda x: x[:1].expand(x.shape).contiguous())),
    wrong(7, "bias gradient reversed", only("conv2", "bias_gradient", lambda g, *_: g.flip(0))),
    wrong(7, "bias of the neighbouring channel", fed("conv2", "conv", b=lambda b: b.roll(1))),
    stored(7, "channels reversed", "0/forward/relu1", lambda a: a[:, ::-1]),
    wrong(41, "convolution mode in every layer and direction", _everywhere(_flip(2, 3))),
    wrong(41, "convolution mode in every filter gradient", _every_filter(_flip(2, 3))),
    wrong(41, "kh and kw swapped in every layer and direction", _everywhere(_swap)),
    wrong(41, "every filter gradient read column-major", _every_filter(column_major)),
]
