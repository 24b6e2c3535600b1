# SPDX-License-Identifier: MIT
"""A convolution and its two gradients as operations, see `bridge.judge.diagnosis.predictions.operations`.

With a `reduced` precision results are stored in 16 bits: the sum is rounded, see
`bridge.judge.oracle.reduced_precision`.
Operands are given as they are multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bridge.exchange.model import Conv2d, Pair
from bridge.judge.diagnosis.faults.layouts import IndexMap
from bridge.judge.diagnosis.faults.padding import coordinates, window
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.oracle import convolution
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.reduced_precision import ReducedPrecision

Array = np.ndarray


class Patches:
    """What kernels see of an image at some elements: the same for all kernels, gathered once."""

    def __init__(self) -> None:
        self.key: tuple[Any, ...] = ()
        self.operand: Predicted | None = None
        self.indices = self.patches = np.empty(0)

    def get(self, operand: Predicted, key: tuple[Any, ...], indices: Array, gather: Callable[[Array], Array]) -> Array:
        """Return the last patches, if they are the same ones; `key` and the very objects `operand` and `indices` say
        so.
        """
        if self.key != key or self.operand is not operand or self.indices is not indices:
            self.key, self.operand, self.indices = key, operand, indices
            self.patches = gather(indices)
        return self.patches


@dataclass(frozen=True)
class Forward(Prediction):
    """``z = conv2d(x, w) + b``.

    Attributes
    ----------
    layer : geometry
    mode : how the image goes on beyond its border, see `bridge.judge.diagnosis.faults.padding`
    shift : pixels (h, w) by which the window starts late
    read : order in which x is read; None is the right one
    bias_factor, bias_axis : how often b is added, and along which axis; -1 is the place in memory
    """

    layer: Conv2d
    x: Predicted
    w: Array
    b: Array | None
    mode: str = "zero"
    shift: Pair = (0, 0)
    read: IndexMap | None = None
    bias_factor: float = 1.0
    bias_axis: int = 1
    reduced: ReducedPrecision | None = None
    seen: Patches = field(default_factory=lambda: Patches(), compare=False, repr=False)

    def at(self, indices: Array) -> Array:
        k = np.unravel_index(indices, self.shape)[1]
        patches = self.seen.get(self.x, (self.layer, self.mode, self.shift, self.read), indices, self._patches)
        return self._out(np.einsum("icrs,icrs->i", patches, self.w[k]), self._bias_at(indices))

    def _patches(self, indices: Array) -> Array:
        """What the kernels of some outputs see, (outputs, c / groups, r, s)."""
        n, k, i, j = np.unravel_index(indices, self.shape)
        layer, x = self.layer, self.x.value
        cg, kg = layer.in_channels // layer.groups, layer.out_channels // layer.groups
        cs = (k // kg)[:, None] * cg + np.arange(cg)
        patches = np.zeros((indices.size, cg, *layer.kernel_size))
        for r in range(layer.kernel_size[0]):
            rows, inside_h = coordinates(_reach(i, layer, 0, r, self.shift), x.shape[2], self.mode)
            for s in range(layer.kernel_size[1]):
                columns, inside_w = coordinates(_reach(j, layer, 1, s, self.shift), x.shape[3], self.mode)
                inside = np.nonzero(inside_h & inside_w)[0]
                place = (n[inside, None], cs[inside], rows[inside, None], columns[inside, None])
                patches[inside, :, r, s] = _elements(x, place, self.read)
        return patches

    def full(self, arithmetic: Arithmetic) -> Predicted:
        arithmetic = _summed(arithmetic, self.reduced)
        n = float(np.prod(self.w.shape[1:])) + (self.b is not None)
        value, error = _bounded_sum(self._sum, self.x, self.w, n, arithmetic)
        error += _noise(arithmetic, "forward_bound", _absolute(self.x), np.abs(self.w), self.layer)
        bias = self._bias()
        error += arithmetic.factor(n) * np.abs(bias)
        if self.reduced is not None:
            return Predicted(*self.reduced.stored(value, error, None if self.b is None else bias))
        return Predicted(value + bias, error)

    def values(self) -> Array:
        return self._out(self._sum(self.x.value, self.w), self._bias())

    def slack(self, value: Array) -> Array | float:
        largest = None if self.b is None else np.abs(self.bias_factor * self.b).max()
        return 0.0 if self.reduced is None else self.reduced.step(value, largest)

    def _out(self, total: Array, bias: Array) -> Array:
        """What comes out of a sum and a bias."""
        if self.reduced is None:
            return total + bias
        return self.reduced.stored(total, 0.0, None if self.b is None else bias)[0]

    def _sum(self, x: Array, w: Array) -> Array:
        padded = _padded(_in_order(x, self.read), self.layer, self.shape[2:], self.mode, self.shift)
        layer = replace(self.layer, padding=(0, 0))
        return np.stack([convolution.forward(image, [w], layer)[0] for image in padded])

    def _bias(self) -> Array:
        if self.b is None:
            return np.zeros(1)
        return self._bias_at(np.arange(int(np.prod(self.shape)))).reshape(self.shape)

    def _bias_at(self, indices: Array) -> Array:
        if self.b is None:
            return np.zeros(1)
        place = indices if self.bias_axis < 0 else np.unravel_index(indices, self.shape)[self.bias_axis]
        return self.bias_factor * self.b[place % self.b.size]


@dataclass(frozen=True)
class Data(Prediction):
    """``dx``, the gradient with respect to the input: `dz` spread by the stride, correlated with turned kernels.

    Attributes
    ----------
    shift : pixels (h, w) of the input by which dz, spread, is moved
    read : order in which dz is read
    """

    layer: Conv2d
    dz: Predicted
    w: Array
    shift: Pair = (0, 0)
    read: IndexMap | None = None
    reduced: ReducedPrecision | None = None
    seen: Patches = field(default_factory=lambda: Patches(), compare=False, repr=False)

    def at(self, indices: Array) -> Array:
        c, ks = self._channels(indices)
        patches = self.seen.get(self.dz, (self.layer, self.shift, self.read), indices, self._patches)
        kernels = self.w[ks, (c % (self.layer.in_channels // self.layer.groups))[:, None]]
        return _out(np.einsum("ikrs,ikrs->i", patches, kernels), self.reduced)

    def _channels(self, indices: Array) -> tuple[Array, Array]:
        """Input channel of each element, and the output channels that it has a part in."""
        layer = self.layer
        c = np.unravel_index(indices, self.shape)[1]
        kg, cg = layer.out_channels // layer.groups, layer.in_channels // layer.groups
        return c, (c // cg)[:, None] * kg + np.arange(kg)

    def _patches(self, indices: Array) -> Array:
        """dz at the outputs that see each element, by the tap that sees it, (elements, k / groups, r, s)."""
        n, _, i, j = np.unravel_index(indices, self.shape)
        _, ks = self._channels(indices)
        patches = np.zeros((indices.size, ks.shape[1], *self.layer.kernel_size))
        for r in range(self.layer.kernel_size[0]):
            p, inside_p = self._output(i, 0, r)
            for s in range(self.layer.kernel_size[1]):
                q, inside_q = self._output(j, 1, s)
                inside = np.nonzero(inside_p & inside_q)[0]
                place = (n[inside, None], ks[inside], p[inside, None], q[inside, None])
                patches[inside, :, r, s] = _elements(self.dz.value, place, self.read)
        return patches

    def _output(self, position: Array, axis: int, tap: int) -> tuple[Array, Array]:
        """Output positions that see an input position through a tap, and whether they exist."""
        layer = self.layer
        reach = position + layer.padding[axis] - tap * layer.dilation[axis] - self.shift[axis]
        output = reach // layer.stride[axis]
        return output, (reach % layer.stride[axis] == 0) & (output >= 0) & (output < self.dz.value.shape[2 + axis])

    def full(self, arithmetic: Arithmetic) -> Predicted:
        n = float(self.w.shape[0] // self.layer.groups * np.prod(self.w.shape[2:]))
        arithmetic, size = _summed(arithmetic, self.reduced), (self.shape[2], self.shape[3])
        value, error = _bounded_sum(self._sum, self.dz, self.w, n, arithmetic)
        error += _noise(arithmetic, "data_bound", _absolute(self.dz), np.abs(self.w), self.layer, size)
        return replace(_bounded(self.reduced, value, error), terms=n + 1)

    def values(self) -> Array:
        return _out(self._sum(self.dz.value, self.w), self.reduced)

    def slack(self, value: Array) -> Array | float:
        return 0.0 if self.reduced is None else self.reduced.step(value)

    def _sum(self, dz: Array, w: Array) -> Array:
        size = (self.shape[2], self.shape[3])
        top, left = (pad - move for pad, move in zip(self.layer.padding, self.shift, strict=True))
        layer = replace(self.layer, padding=(top, left))
        return np.stack([convolution.backward_data(image, w, layer, size) for image in _in_order(dz, self.read)])


@dataclass(frozen=True)
class Filter(Prediction):
    """``dw[k,c,r,s] = sum dz[n,k,i,j] * x[n,c,i+r,j+s]``.

    Attributes
    ----------
    mode, shift : as of `Forward`
    moved : pixels (h, w) by which dz is moved; zeros come in
    read_x, read_dz : orders in which the operands are read
    images : those that are summed; None is all
    """

    layer: Conv2d
    x: Predicted
    dz: Predicted
    mode: str = "zero"
    shift: Pair = (0, 0)
    moved: Pair = (0, 0)
    read_x: IndexMap | None = None
    read_dz: IndexMap | None = None
    images: tuple[int, ...] | None = None
    reduced: ReducedPrecision | None = None
    cache: dict[str, Array] = field(default_factory=dict, compare=False, repr=False)

    def replaced(self, **changes: Any) -> Filter:
        return replace(self, **({"cache": {}} | changes))

    def at(self, indices: Array) -> Array:
        return _out(self._sum_at(indices), self.reduced)

    def _sum_at(self, indices: Array) -> Array:
        """Of few channels only these are multiplied: a full gradient of large images takes a second."""
        if "sum" in self.cache:
            return self.cache["sum"].reshape(-1)[indices]
        k, c, r, s = np.unravel_index(indices, self.shape)
        ks, cs = np.unique(k), np.unique(c)
        if self.layer.groups > 1 or 4 * ks.size * cs.size > self.shape[0] * self.shape[1]:
            self.cache["sum"] = self._sum(self.x.value, self.dz.value)
            return self.cache["sum"].reshape(-1)[indices]
        few = self._sum(self.x.value, self.dz.value, cs, ks)
        return few[np.searchsorted(ks, k), np.searchsorted(cs, c), r, s]

    @property
    def products(self) -> int:
        """Return the multiplications of a full gradient."""
        return self.dz.value.size * int(np.prod(self.shape[1:]))

    def full(self, arithmetic: Arithmetic) -> Predicted:
        n = float(np.prod(self.dz.value.shape) // self.dz.value.shape[1])
        arithmetic = _summed(arithmetic, self.reduced)
        value, error = _bounded_sum(self._sum, self.x, self.dz.value, n, arithmetic, self.dz.error)
        self.cache["sum"] = value
        if arithmetic.algorithm is not None:
            of = arithmetic.algorithm.filter_bound
            for x, dz in zip(_absolute(self.x), _absolute(self.dz), strict=True):
                error += arithmetic.noise(lambda one, upstream: of(one, upstream, self.layer), x, dz)
        return _bounded(self.reduced, value, error)

    def slack(self, value: Array) -> Array | float:
        return 0.0 if self.reduced is None else self.reduced.step(value)

    def _sum(self, x: Array, dz: Array, cs: Array | None = None, ks: Array | None = None) -> Array:
        layer, x, dz = self.layer, _in_order(x, self.read_x, cs), _in_order(dz, self.read_dz, ks)
        if any(self.moved):
            dz = window(dz, (-self.moved[0], -self.moved[1]), dz.shape[2:])
        padded = _padded(x, layer, dz.shape[2:], self.mode, self.shift)
        few = replace(layer, padding=(0, 0), in_channels=x.shape[1], out_channels=dz.shape[1])
        total = np.zeros((dz.shape[1], x.shape[1] // layer.groups, *layer.kernel_size))
        for i in range(len(x)) if self.images is None else self.images:
            total += convolution.backward_filter(padded[i], [dz[i]], few)[0]
        return total


def _bounded_sum(
    product: Any, a: Predicted, b: Array, n: float, arithmetic: Arithmetic, b_error: Array | None = None
) -> tuple[Array, Array]:
    """A sum of products and its bound, s(n)*c + (1 + s(n)) * propagated."""
    value = product(a.value, b)
    absolute = np.abs(b)
    s = arithmetic.factor(n)
    error = s * product(np.abs(a.value), absolute)
    if a.error is not None:
        error += (1 + s) * product(a.error, absolute if b_error is None else absolute + b_error)
    if b_error is not None:
        error += (1 + s) * product(np.abs(a.value), b_error)
    return value, arithmetic.with_underflow(error, n)


def _absolute(a: Predicted) -> Array:
    """The largest that right operands may be."""
    return np.abs(a.value) if a.error is None else np.abs(a.value) + a.error


def _noise(arithmetic: Arithmetic, bound: str, images: Array, w: Array, *shape: Any) -> Array:
    """What the algorithm of the candidate's convolutions adds to the bound of each image; mostly nothing."""
    if arithmetic.algorithm is None:
        return np.zeros(1)
    of = getattr(arithmetic.algorithm, bound)
    return np.stack([np.atleast_3d(arithmetic.noise(lambda x, filters: of(x, filters, *shape), image, w))
                     for image in images])


def _summed(arithmetic: Arithmetic, reduced: ReducedPrecision | None) -> Arithmetic:
    """Tensor cores may cut sums off, which is twice a rounding."""
    return arithmetic if reduced is None else replace(arithmetic, u=2 * arithmetic.u)


def _out(total: Array, reduced: ReducedPrecision | None) -> Array:
    return total if reduced is None else reduced.stored(total, 0.0)[0]


def _bounded(reduced: ReducedPrecision | None, value: Array, error: Array) -> Predicted:
    return Predicted(value, error) if reduced is None else Predicted(*reduced.stored(value, error))


def _elements(x: Array, place: tuple[Array, ...], read: IndexMap | None) -> Array:
    """Elements of a tensor that is read in a layout."""
    if read is None:
        return x[place]
    return x.reshape(-1)[read.source(np.ravel_multi_index(np.broadcast_arrays(*place), x.shape), x.shape)]


def _in_order(x: Array, read: IndexMap | None, channels: Array | None = None) -> Array:
    """The tensor, or some of its channels, as it is read in a layout."""
    if read is None:
        return x if channels is None else x[:, channels]
    n, c, h, w = x.shape
    place = np.ix_(np.arange(n), np.arange(c) if channels is None else channels, np.arange(h), np.arange(w))
    return _elements(x, place, read)


def _padded(x: Array, layer: Conv2d, size_out: tuple[int, ...], mode: str, shift: Pair) -> Array:
    """What the windows of all outputs cover, so that a convolution without padding gives `size_out`."""
    start = tuple(move - pad for move, pad in zip(shift, layer.padding, strict=True))
    length = tuple(
        (n - 1) * stride + dilation * (kernel - 1) + 1
        for n, stride, dilation, kernel in zip(size_out, layer.stride, layer.dilation, layer.kernel_size, strict=True)
    )
    return window(x, start, length, mode)


def _reach(output: Array, layer: Conv2d, axis: int, tap: int, shift: Pair) -> Array:
    """Input position that a tap of an output sees."""
    return output * layer.stride[axis] + tap * layer.dilation[axis] - layer.padding[axis] + shift[axis]
