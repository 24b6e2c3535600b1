# SPDX-License-Identifier: MIT
"""Convolutions of volumes, as convolutions of images.

A plane of the output is the convolution of an image whose channels are the planes that a window reads along the depth:
so a weight (k, c, d, r, s) is one of (k, c * d, r, s), and every pass is one sum of products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bridge.operations.operation import Gradients, Number, Operation, Shape
from bridge.operations.products import Conv2d

Array = np.ndarray
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class _Convolving(Operation):
    """What a convolution and a transposed one have in common; a class that extends it has the hyperparameters."""

    in_channels: int
    out_channels: int
    kernel_size: Triple
    stride: Triple = (1, 1, 1)
    padding: Triple = (0, 0, 0)

    sample_rank: ClassVar[int | None] = 4

    def check(self) -> None:
        """Refuse channels that the groups do not divide."""
        channels, groups = (self.in_channels, self.out_channels), self._planes.groups
        if any(one % groups for one in channels):
            raise self.refuse(f"channels {channels} in {groups} groups", "multiples of the groups")

    @property
    def _planes(self) -> Planes:
        raise NotImplementedError


@dataclass(frozen=True)
class Planes:
    """A convolution of volumes as one of images.

    Attributes
    ----------
    channels : of input and output
    kernel, stride, padding, dilation : (depth, height, width)
    """

    channels: tuple[int, int]
    kernel: Triple
    stride: Triple
    padding: Triple
    dilation: Triple
    groups: int

    @property
    def weight_shape(self) -> Shape:
        """Return (k, c / groups, d, r, s)."""
        return (self.channels[1], self.channels[0] // self.groups, *self.kernel)

    def output_size(self, size: Sequence[int]) -> tuple[int, ...]:
        """Return (depth, height, width) of the output, for those of the input; less than 1 where it does not fit."""
        return tuple((n + 2 * pad - d * (k - 1) - 1) // step + 1 for n, pad, d, k, step in zip(
            size, self.padding, self.dilation, self.kernel, self.stride, strict=True))

    def _of_images(self, taps_in: int, taps_out: int) -> Conv2d:
        """The convolution of images, with the planes of several taps as channels of one side."""
        return Conv2d("", self.channels[0] * taps_in, self.channels[1] * taps_out, self.kernel[1:], self.stride[1:],
                      self.padding[1:], self.dilation[1:], self.groups, bias=False)

    def _source(self, depth: int, planes: int) -> Array:
        """The plane of the input that each tap of each plane of the output reads, (planes, taps)."""
        taps = np.arange(self.kernel[0]) * self.dilation[0] - self.padding[0]
        return np.arange(planes)[:, None] * self.stride[0] + taps

    def _read(self, x: Number, planes: int) -> Number:
        """What windows read: images (n * planes, c * taps, h, w)."""
        n, c, depth, h, w = x.shape
        source = self._source(depth, planes)
        return x.moved(lambda a: _taken(a, source, depth)).reshape((n * planes, c * self.kernel[0], h, w))

    def convolved(self, x: Number, weight: Number, planes: int, bias: Number | None = None) -> Number:
        """Return the convolution of volumes, (n, k, planes, p, q), and a bias (1, k, 1, 1) added."""
        layer, images = self._of_images(self.kernel[0], 1), self._read(x, planes)
        y = images.convolved(weight.reshape(layer.weight_shape), layer, bias)
        return _volumes(y, x.shape[0])

    def filter_gradient(self, x: Number, dy: Number) -> Number:
        """Return the gradient with respect to the weight."""
        found = _images(dy).filter_gradient(self._read(x, dy.shape[2]), self._of_images(self.kernel[0], 1))
        return found.reshape(self.weight_shape)

    def data_gradient(self, dy: Number, weight: Number, size: Sequence[int]) -> Number:
        """Return the gradient with respect to the input, of this (depth, height, width): one sum of products, too.

        A plane of it is that of images whose channels are the planes of dy that it went into, one for each tap.
        """
        n, k, planes = dy.shape[:3]
        depth, taps = size[0], self.kernel[0]
        source = self._source(depth, planes)
        # Of each plane of the input, and each tap, the plane of the output; -1 where there is none
        target = np.full((depth, taps), -1)
        for plane, tap in np.argwhere((source >= 0) & (source < depth)):
            target[source[plane, tap], tap] = plane
        images = dy.moved(lambda a: _taken(a, target, planes)).reshape((n * depth, k * taps, *dy.shape[3:]))
        layer = self._of_images(1, taps)
        w = weight.transpose((0, 2, 1, 3, 4)).reshape(layer.weight_shape)
        dx = images.data_gradient(w, layer, (n * depth, self.channels[0], *size[1:]))
        return _volumes(dx, n)


def _taken(a: Array, source: Array, depth: int) -> Array:
    """Planes of volumes (n, c, d, h, w) as (n, outputs, c, taps, h, w); zeros where there is no such plane."""
    padded = np.concatenate([a, np.zeros_like(a[:, :, :1])], axis=2)
    chosen = padded[:, :, np.where((source >= 0) & (source < depth), source, depth)]
    return chosen.transpose(0, 2, 1, 3, 4, 5)


def _images(y: Number) -> Number:
    """The planes of volumes as images."""
    n, k, planes, p, q = y.shape
    return y.transpose((0, 2, 1, 3, 4)).reshape((n * planes, k, p, q))


def _volumes(y: Number, n: int) -> Number:
    """Volumes of the planes of each."""
    planes, k, p, q = y.shape
    return y.reshape((n, planes // n, k, p, q)).transpose((0, 2, 1, 3, 4))


@dataclass(frozen=True)
class Conv3d(_Convolving):
    """A convolution of volumes (n, c, d, h, w). Triples are (depth, height, width)."""

    dilation: Triple = (1, 1, 1)
    groups: int = 1
    bias: bool = True
    kind: ClassVar[str] = "conv3d"

    @property
    def _planes(self) -> Planes:
        return Planes((self.in_channels, self.out_channels), self.kernel_size, self.stride, self.padding, self.dilation,
                      self.groups)

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return those of the filter bank, (k, c / groups, d, r, s), and of the bias, (k,), where there is one."""
        return {"weight": self._planes.weight_shape} | ({"bias": (self.out_channels,)} if self.bias else {})

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, k, and the numbers of windows in d, h and w)."""
        (shape,) = shapes
        if len(shape) != 5 or shape[1] != self.in_channels:
            raise self.refuse(f"input {shape}", f"a shape (n, {self.in_channels}, d, h, w)")
        size = self._planes.output_size(shape[2:])
        if min(size) < 1:
            raise self.refuse(f"input {shape} and padding {self.padding}",
                              f"a volume of the kernel's size {self.kernel_size} or more")
        return (shape[0], self.out_channels, *size)

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the cross-correlation with the weights, and the bias added."""
        bias = parameters["bias"].reshape((1, -1, 1, 1)) if self.bias else None
        return self._planes.convolved(inputs[0], parameters["weight"], self.output_shape(inputs[0].shape)[2], bias)

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the data gradient, and the filter and bias gradients."""
        (x,) = inputs
        found = {"weight": self._planes.filter_gradient(x, dy)}
        if self.bias:
            found["bias"] = dy.sum((0, 2, 3, 4))
        return [self._planes.data_gradient(dy, parameters["weight"], x.shape[2:])], found

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.conv3d``."""
        from torch.nn import functional

        return functional.conv3d(inputs[0], parameters["weight"], parameters.get("bias"), self.stride, self.padding,
                                 self.dilation, self.groups)


@dataclass(frozen=True)
class ConvTranspose3d(_Convolving):
    """A transposed convolution: what sends a gradient back through a convolution. Triples are (depth, height, width).
    """

    output_padding: Triple = (0, 0, 0)
    dilation: Triple = (1, 1, 1)
    groups: int = 1
    bias: bool = True
    kind: ClassVar[str] = "conv_transpose3d"

    @property
    def _planes(self) -> Planes:
        """The convolution from the output to the input."""
        return Planes((self.out_channels, self.in_channels), self.kernel_size, self.stride, self.padding, self.dilation,
                      self.groups)

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return those of the filter bank, (c, k / groups, d, r, s), and of the bias, (k,), where there is one."""
        return {"weight": self._planes.weight_shape} | ({"bias": (self.out_channels,)} if self.bias else {})

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, k, (d - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1, ...)."""
        (shape,) = shapes
        if len(shape) != 5 or shape[1] != self.in_channels:
            raise self.refuse(f"input {shape}", f"a shape (n, {self.in_channels}, d, h, w)")
        if any(more >= max(stride, dilation) for more, stride, dilation in zip(
                self.output_padding, self.stride, self.dilation, strict=True)):
            raise self.refuse(f"output_padding {self.output_padding}", "less than stride or dilation")
        size = tuple((length - 1) * stride - 2 * pad + dilation * (kernel - 1) + more + 1
                     for length, stride, pad, dilation, kernel, more in zip(
                         shape[2:], self.stride, self.padding, self.dilation, self.kernel_size, self.output_padding,
                         strict=True))
        if min(size) < 1:
            raise self.refuse(f"input {shape}", "an output of one voxel or more")
        return (shape[0], self.out_channels, *size)

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the data gradient of the convolution, and the bias added."""
        (x,) = inputs
        y = self._planes.data_gradient(x, parameters["weight"], self.output_shape(x.shape)[2:])
        return y.joined([parameters["bias"].reshape((1, -1, 1, 1, 1))]) if self.bias else y

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the convolution of dy, and the filter and bias gradients."""
        (x,) = inputs
        depth, h, w = x.shape[2:]
        found = {"weight": self._planes.filter_gradient(dy, x)}
        if self.bias:
            found["bias"] = dy.sum((0, 2, 3, 4))
        # With an output_padding of a stride or more the convolution has further pixels, which come from no input
        return [self._planes.convolved(dy, parameters["weight"], depth)[:, :, :, :h, :w]], found

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.conv_transpose3d``."""
        from torch.nn import functional

        return functional.conv_transpose3d(inputs[0], parameters["weight"], parameters.get("bias"), self.stride,
                                           self.padding, self.output_padding, self.groups, self.dilation)
