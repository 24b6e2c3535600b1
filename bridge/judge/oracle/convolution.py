# SPDX-License-Identifier: MIT
"""Convolutions in float64 with numpy: the truth that candidates are measured against.

Independent of PyTorch and of the Fortran kernels: an image is unfolded a few rows at a time (im2col) and
multiplied by numpy's BLAS. Everything here works on one image, arrays (channels, height, width).

Source: the definition in docs/exchange-file.md; checked against torch float64 in
`tests/judge/oracle/test_convolution.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import as_strided

from bridge.exchange.model import Conv2d, Pair

Array = np.ndarray

#: Elements of one unfolded block: about what a core's cache holds in float64
BLOCK = 1 << 17


def forward(x: Array, ws: list[Array], layer: Conv2d) -> list[Array]:
    """Return ``conv2d(x, w)`` without bias for each w in `ws`: one input is unfolded once for all of them.

    Parameters
    ----------
    x : (c, h, w)
    ws : arrays (k, c / groups, r, s)

    Returns
    -------
    ys : arrays (k, p, q), float64
    """
    padded = np.pad(x, ((0, 0), *((pad, pad) for pad in layer.padding)))
    return _correlate(padded, ws, layer.stride, layer.dilation, layer.groups)


def backward_data(dy: Array, w: Array, layer: Conv2d, size: Pair) -> Array:
    """Return the gradient with respect to the input, of height and width `size`.

    ``dy`` is spread over a grid of zeros by the stride, then correlated with the kernels turned by 180
    degrees and with their channels swapped.
    """
    groups, (k, cg, r, s) = layer.groups, w.shape
    turned = w.reshape(groups, k // groups, cg, r, s)[..., ::-1, ::-1].swapaxes(1, 2)
    turned = np.ascontiguousarray(turned).reshape(groups * cg, k // groups, r, s)
    grid = np.zeros((k, *(n + d * (t - 1) for n, d, t in zip(size, layer.dilation, (r, s), strict=True))), dy.dtype)
    place, taken = zip(
        *(
            _spread(n_out, n_grid, pad - d * (t - 1), stride)
            for n_out, n_grid, pad, d, t, stride in zip(
                dy.shape[1:], grid.shape[1:], layer.padding, layer.dilation, (r, s), layer.stride, strict=True
            )
        ),
        strict=True,
    )
    grid[:, place[0], place[1]] = dy[:, taken[0], taken[1]]
    return _correlate(grid, [turned], (1, 1), layer.dilation, groups)[0]


def backward_filter(x: Array, dys: list[Array], layer: Conv2d) -> list[Array]:
    """Return the gradients with respect to the filters, one for each upstream gradient in `dys`, each (k, c / groups,
    r, s).
    """
    groups = layer.groups
    padded = np.pad(x, ((0, 0), *((pad, pad) for pad in layer.padding)))
    k, *out = dys[0].shape
    kg = k // groups
    cg = x.shape[0] // groups
    total = np.zeros((groups, len(dys) * kg, cg * np.prod(layer.kernel_size)))
    for g in range(groups):
        chosen = [dy[g * kg : (g + 1) * kg] for dy in dys]
        part = padded[g * cg : (g + 1) * cg]
        for rows, cols in _unfold(part, layer.kernel_size, layer.stride, layer.dilation, (out[0], out[1])):
            upstream = np.concatenate([dy[:, rows].reshape(kg, -1) for dy in chosen])
            total[g] += upstream @ cols.T
    total = total.reshape(groups, len(dys), kg, cg, *layer.kernel_size)
    return [np.ascontiguousarray(total[:, i]).reshape(k, cg, *layer.kernel_size) for i in range(len(dys))]


def products_forward(layer: Conv2d, size_in: Pair, size_out: Pair) -> Array:
    """Return the number of products in each output element, (p, q): fewer at the border, where taps fall outside."""
    return _taps(layer, size_in, size_out, of_output=True) * (layer.in_channels // layer.groups)


def products_data(layer: Conv2d, size_in: Pair, size_out: Pair) -> Array:
    """Return the number of products in each element of the input gradient, (h, w)."""
    return _taps(layer, size_in, size_out, of_output=False) * (layer.out_channels // layer.groups)


def products_filter(layer: Conv2d, size_in: Pair, size_out: Pair) -> Array:
    """Return the number of products of one image in each weight, (r, s)."""
    inside = [_inside(layer, axis, size_in, size_out).sum(axis=1) for axis in (0, 1)]
    return np.multiply.outer(*inside)


def _taps(layer: Conv2d, size_in: Pair, size_out: Pair, *, of_output: bool) -> Array:
    counts = []
    for axis in (0, 1):
        inside = _inside(layer, axis, size_in, size_out)
        if of_output:
            counts.append(inside.sum(axis=0))
        else:
            positions = _positions(layer, axis, size_out)[inside]
            counts.append(np.bincount(positions, minlength=size_in[axis]))
    return np.multiply.outer(*counts)


def _positions(layer: Conv2d, axis: int, size_out: Pair) -> Array:
    """Input position of tap t and output o along an axis, (taps, outputs)."""
    taps = np.arange(layer.kernel_size[axis])[:, None] * layer.dilation[axis] - layer.padding[axis]
    return taps + np.arange(size_out[axis]) * layer.stride[axis]


def _inside(layer: Conv2d, axis: int, size_in: Pair, size_out: Pair) -> Array:
    positions = _positions(layer, axis, size_out)
    return (positions >= 0) & (positions < size_in[axis])


def _spread(n_out: int, n_grid: int, first: int, stride: int) -> tuple[slice, slice]:
    """Output o goes to grid position o*stride - first; both as slices, cut to the grid."""
    start = max(0, -(-first // stride))
    stop = max(start, min(n_out, (n_grid - 1 + first) // stride + 1))
    if stop == start:
        return slice(0, 0), slice(0, 0)
    return slice(start * stride - first, (stop - 1) * stride - first + 1, stride), slice(start, stop)


def _correlate(padded: Array, ws: list[Array], stride: Pair, dilation: Pair, groups: int) -> list[Array]:
    k, cg, *kernel = ws[0].shape
    kg = k // groups
    size = tuple(
        (n - d * (t - 1) - 1) // st + 1 for n, d, t, st in zip(padded.shape[1:], dilation, kernel, stride, strict=True)
    )
    ys = [np.empty((k, *size)) for _ in ws]
    for g in range(groups):
        chosen = slice(g * kg, (g + 1) * kg)
        part = padded[g * cg : (g + 1) * cg]
        if len(ws) * kg < cg:
            for y, w in zip(ys, ws, strict=True):
                y[chosen] = _by_taps(part, w[chosen], stride, dilation, size)
            continue
        filters = np.concatenate([w[chosen].reshape(kg, -1) for w in ws])
        for rows, cols in _unfold(part, (kernel[0], kernel[1]), stride, dilation, (size[0], size[1])):
            products = (filters @ cols).reshape(len(ws), kg, -1, size[1])
            for y, product in zip(ys, products, strict=True):
                y[chosen, rows] = product
    return ys


def _by_taps(x: Array, w: Array, stride: Pair, dilation: Pair, size: Pair) -> Array:
    """The same for few output channels: the products of every tap, shifted and added; nothing is unfolded."""
    k, c, r, s = w.shape
    products = (w.transpose(2, 3, 0, 1).reshape(-1, c) @ x.reshape(c, -1)).reshape(r, s, k, *x.shape[1:])
    y = np.zeros((k, *size))
    for i in range(r):
        for j in range(s):
            rows, cols = (
                slice(t * d, t * d + (n - 1) * step + 1, step)
                for t, d, n, step in zip((i, j), dilation, size, stride, strict=True)
            )
            y += products[i, j, :, rows, cols]
    return y


def _unfold(x: Array, kernel: Pair, stride: Pair, dilation: Pair, size: Pair) -> Iterator[tuple[slice, Array]]:
    """Blocks of output rows, each with its unfolded input (c*r*s, rows*q)."""
    c, (r, s), (p, q) = x.shape[0], kernel, size
    rows = max(1, BLOCK // (c * r * s * q))
    sc, sh, sw = x.strides
    for first in range(0, p, rows):
        block = slice(first, min(p, first + rows))
        view = as_strided(
            x[:, first * stride[0] :],
            (c, r, s, block.stop - first, q),
            (sc, sh * dilation[0], sw * dilation[1], sh * stride[0], sw * stride[1]),
            writeable=False,
        )
        yield block, view.reshape(c * r * s, -1)
