# SPDX-License-Identifier: MIT
"""Operations whose outputs are sums of products with weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bridge.common.errors import FileError
from bridge.operations.operation import Gradients, Number, Operation, Shape

Pair = tuple[int, int]


@dataclass(frozen=True)
class Conv2d(Operation):
    """A convolution layer. Pairs are (height, width)."""

    in_channels: int
    out_channels: int
    kernel_size: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    bias: bool = True
    kind: ClassVar[str] = "conv2d"
    sample_rank: ClassVar[int | None] = 3

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """Return the shape of the filter bank, (k, c / groups, r, s)."""
        return (self.out_channels, self.in_channels // self.groups, *self.kernel_size)

    def check(self) -> None:
        """Refuse channels that the groups do not divide."""
        _check_groups(self)

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return those of the filter bank and, where there is one, of the bias, (k,)."""
        return {"weight": self.weight_shape} | ({"bias": (self.out_channels,)} if self.bias else {})

    def output_shape(self, *shapes: Shape) -> tuple[int, int, int, int]:
        """Return the shape (n, k, p, q) for an input (n, c, h, w).

        Raises
        ------
        FileError
            If the channels differ or the kernel is larger than the padded input.
        """
        (shape,) = shapes
        if len(shape) != 4:
            raise self.refuse(f"input {shape}", "a shape (n, c, h, w)")
        n, c, *size = shape
        if c != self.in_channels:
            raise FileError(f"layer {self.name}: input {shape} has {c} channels, expected {self.in_channels}")
        p, q = (
            (length + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
            for length, pad, dilation, kernel, stride in zip(
                size, self.padding, self.dilation, self.kernel_size, self.stride, strict=True
            )
        )
        if p < 1 or q < 1:
            raise FileError(f"layer {self.name}: the kernel {self.kernel_size} is larger than the padded input {shape}")
        return (n, self.out_channels, p, q)

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the cross-correlation with the weights, and the bias added."""
        bias = parameters["bias"].reshape((1, -1, 1, 1)) if self.bias else None
        return inputs[0].convolved(parameters["weight"], self, bias)

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the data gradient, and the filter and bias gradients."""
        (x,) = inputs
        found = {"weight": dy.filter_gradient(x, self)}
        if self.bias:
            found["bias"] = dy.sum((0, 2, 3))
        return [dy.data_gradient(parameters["weight"], self, x.shape)], found

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.conv2d``."""
        from torch.nn import functional

        return functional.conv2d(inputs[0], parameters["weight"], parameters.get("bias"), self.stride, self.padding,
                                 self.dilation, self.groups)


@dataclass(frozen=True)
class ConvTranspose2d(Operation):
    """A transposed convolution: what sends a gradient back through a convolution. Pairs are (height, width)."""

    in_channels: int
    out_channels: int
    kernel_size: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    output_padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    bias: bool = True
    kind: ClassVar[str] = "conv_transpose2d"
    sample_rank: ClassVar[int | None] = 3

    @property
    def convolution(self) -> Conv2d:
        """Return the convolution from the output to the input."""
        return Conv2d(self.name, self.out_channels, self.in_channels, self.kernel_size, self.stride, self.padding,
                      self.dilation, self.groups, bias=False)

    def check(self) -> None:
        """Refuse channels that the groups do not divide."""
        _check_groups(self)

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return those of the filter bank, (c, k / groups, r, s), and, where there is one, of the bias, (k,)."""
        weight = {"weight": self.convolution.weight_shape}
        return weight | ({"bias": (self.out_channels,)} if self.bias else {})

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, k, (h - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1, ...)."""
        (shape,) = shapes
        if len(shape) != 4 or shape[1] != self.in_channels:
            raise self.refuse(f"input {shape}", f"a shape (n, {self.in_channels}, h, w)")
        if any(more >= max(stride, dilation) for more, stride, dilation in zip(
                self.output_padding, self.stride, self.dilation, strict=True)):
            raise self.refuse(f"output_padding {self.output_padding}", "less than stride or dilation")
        h, w = ((length - 1) * stride - 2 * pad + dilation * (kernel - 1) + more + 1
                for length, stride, pad, dilation, kernel, more in zip(
                    shape[2:], self.stride, self.padding, self.dilation, self.kernel_size, self.output_padding,
                    strict=True))
        if h < 1 or w < 1:
            raise self.refuse(f"input {shape}", "an output of one pixel or more")
        return shape[0], self.out_channels, h, w

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the data gradient of the convolution, and the bias added."""
        y = inputs[0].data_gradient(parameters["weight"], self.convolution, self.output_shape(inputs[0].shape))
        return y.joined([parameters["bias"].reshape((1, -1, 1, 1))]) if self.bias else y

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the convolution of dy, and the filter and bias gradients."""
        found = {"weight": inputs[0].filter_gradient(dy, self.convolution)}
        if self.bias:
            found["bias"] = dy.sum((0, 2, 3))
        # With an output_padding of a stride or more the convolution has further pixels, which come from no input
        h, w = inputs[0].shape[2:]
        return [dy.convolved(parameters["weight"], self.convolution)[:, :, :h, :w]], found

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.conv_transpose2d``."""
        from torch.nn import functional

        return functional.conv_transpose2d(inputs[0], parameters["weight"], parameters.get("bias"), self.stride,
                                           self.padding, self.output_padding, self.groups, self.dilation)


def _check_groups(convolution: Conv2d | ConvTranspose2d) -> None:
    channels = convolution.in_channels, convolution.out_channels
    if any(one % convolution.groups for one in channels):
        raise convolution.refuse(f"channels {channels} in {convolution.groups} groups", "multiples of the groups")


@dataclass(frozen=True)
class Linear(Operation):
    """``x @ weight.T + bias`` over the last axis."""

    in_features: int
    out_features: int
    bias: bool = True
    kind: ClassVar[str] = "linear"
    sample_rank: ClassVar[int | None] = 1

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return those of the weight, (out, in), and, where there is one, of the bias, (out,)."""
        weight = {"weight": (self.out_features, self.in_features)}
        return weight | ({"bias": (self.out_features,)} if self.bias else {})

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape with `out_features` in the place of `in_features`."""
        (shape,) = shapes
        if len(shape) < 2 or shape[-1] != self.in_features:
            behind = " behind another axis" if shape[-1:] == (self.in_features,) else ""
            raise self.refuse(f"input {shape}", f"{self.in_features} features in its last axis{behind}")
        return (*shape[:-1], self.out_features)

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the product, and the bias added."""
        y = inputs[0] @ parameters["weight"].transpose((1, 0))
        return y.joined([parameters["bias"]]) if self.bias else y

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the gradients with respect to input, weight and bias."""
        x, rows = inputs[0].reshape((-1, self.in_features)), dy.reshape((-1, self.out_features))
        found = {"weight": rows.transpose((1, 0)) @ x}
        if self.bias:
            found["bias"] = rows.sum((0,))
        return [dy @ parameters["weight"]], found

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.linear``."""
        from torch.nn import functional

        return functional.linear(inputs[0], parameters["weight"], parameters.get("bias"))


@dataclass(frozen=True)
class Matmul(Operation):
    """The matrix product of two inputs (..., m, k) and (..., k, n), whose other axes are the same."""

    kind: ClassVar[str] = "matmul"
    arity: ClassVar[int] = 2

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (..., m, n)."""
        a, b = shapes
        if not (len(a) == len(b) >= 2 and a[-1] == b[-2] and a[:-2] == b[:-2]):
            raise self.refuse(f"the shapes {a} of {self.inputs[0]} and {b} of {self.inputs[1]}",
                              "shapes (..., m, k) and (..., k, n)")
        return (*a[:-1], b[-1])

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the product."""
        return inputs[0] @ inputs[1]

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy times the transpose of the one, and the transpose of the other times dy."""
        axes = (*range(len(dy.shape) - 2), len(dy.shape) - 1, len(dy.shape) - 2)
        a, b = (one.transpose(axes) for one in inputs)
        return [dy @ b, a @ dy], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.matmul``."""
        return inputs[0] @ inputs[1]


@dataclass(frozen=True)
class ComplexLinear(Operation):
    """Channels mixed by a complex matrix at each place, as layers do that learn in the frequencies of a transform.

    The input (n, in_channels, places, 2) has real and imaginary parts last; so has the output
    (n, out_channels, places, 2).
    """

    in_channels: int
    out_channels: int
    places: int
    kind: ClassVar[str] = "complex_linear"

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return that of the weight, (in, out, places, 2), torch's complex (in, out, places)."""
        return {"weight": (self.in_channels, self.out_channels, self.places, 2)}

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape with `out_channels` in the place of `in_channels`."""
        (shape,) = shapes
        if len(shape) != 4 or shape[1:] != (self.in_channels, self.places, 2):
            raise self.refuse(f"input {shape}", f"a shape (n, {self.in_channels}, {self.places}, 2)")
        return (shape[0], self.out_channels, *shape[2:])

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the products of the input, a row for each image, with the weight."""
        return _paired(_complex_product(_parts(inputs[0]), _parts(parameters["weight"])))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy times the conjugate transpose of the weight, and that of the input times dy."""
        rows = _parts(dy)
        x, weight = (_adjoint(_parts(one)) for one in (inputs[0], parameters["weight"]))
        return [_paired(_complex_product(rows, weight))], {"weight": _paired(_complex_product(x, rows))}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return torch's product of complex tensors."""
        import torch

        x, weight = (torch.view_as_complex(one.contiguous()) for one in (inputs[0], parameters["weight"]))
        return torch.view_as_real(torch.einsum("nip,iop->nop", x, weight))


Parts = tuple[Number, Number]


def _parts(pairs: Number) -> Parts:
    """Real and imaginary parts of (rows, columns, places, 2), as matrices (places, rows, columns)."""
    moved = pairs.transpose((3, 2, 0, 1))
    whole = moved.shape[1:]
    return moved[0:1,].reshape(whole).named("the real part"), moved[1:2,].reshape(whole).named("the imaginary part")


def _adjoint(of: Parts) -> Parts:
    """The conjugate transposes."""
    re, im = (one.transpose((0, 2, 1)) for one in of)
    return re, -im


def _complex_product(a: Parts, b: Parts) -> Parts:
    """Each part is one sum of products of both parts."""
    both = a[0].concatenated([a[1]], 2)
    return both @ b[0].concatenated([-b[1]], 1), both @ b[1].concatenated([b[0]], 1)


def _paired(of: Parts) -> Number:
    """(rows, columns, places, 2) of both parts."""
    re, im = (one.reshape((*one.shape, 1)) for one in of)
    return re.concatenated([im], 3).transpose((1, 2, 0, 3))
