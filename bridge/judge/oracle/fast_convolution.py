# SPDX-License-Identifier: MIT
"""The oracle's convolutions of large images: by our own float64 kernels, each result checked by a random projection.

Those kernels are the candidate's family, so nothing rests on them: `bridge.judge.oracle.freivalds`, plain numpy, checks
every tensor that they make. Small images, whatever is not finite, machines without the library, and everything where
the environment says ``CNN_ORACLE=numpy`` are computed by `bridge.judge.oracle.convolution` instead, which tests compare
with PyTorch.

Arrays are those of one image, (channels, height, width), float64.
"""

from __future__ import annotations

import math
import os

import numpy as np

from bridge.common.errors import ArgumentError, EngineError
from bridge.engine.library import extension
from bridge.exchange.model import Conv2d, Model, Pair
from bridge.judge.oracle import convolution, freivalds

Array = np.ndarray

#: Multiply-adds of a convolution from which on numpy is slow
LARGE = 1 << 26
#: Its value "numpy" keeps our kernels out of the oracle
CHOICE = "CNN_ORACLE"


def usable() -> bool:
    """Return whether our own kernels may be used.

    Raises
    ------
    ArgumentError
        If the environment variable CNN_ORACLE is neither unset, empty, nor "numpy".
    """
    choice = os.environ.get(CHOICE, "")
    if choice not in ("", "numpy"):
        raise ArgumentError(f"{CHOICE}: {choice!r}, expected 'numpy' or nothing")
    if choice or extension.forked():
        return False
    try:
        extension.api()
    except EngineError:
        return False
    return True


def wanted(model: Model, shape: tuple[int, ...]) -> bool:
    """Return whether they are usable, and a convolution of one image is large."""
    shapes = model.output_shapes(shape)
    layers = [(one, size) for one, size in zip(model.layers, shapes, strict=True) if isinstance(one, Conv2d)]
    return any(_products(layer, size[2:]) >= LARGE for layer, size in layers) and usable()


def forward(x: Array, ws: list[Array], layer: Conv2d) -> list[Array]:
    """Return the same as `bridge.judge.oracle.convolution.forward`."""
    size = layer.output_shape((1, *x.shape))[2:]
    if not _ours(layer, size):
        return convolution.forward(x, ws, layer)
    ys = [np.empty((layer.out_channels, *size)) for _ in ws]
    x, *ws = (np.ascontiguousarray(one) for one in (x, *ws))
    for w, y in zip(ws, ys, strict=True):
        extension.call("conv2d_forward", "cpu", extension.DTYPES["float64"], _params(layer), extension.C_ORDER, 0,
                       x.ctypes.data, _extent(x), w.ctypes.data, _extent(w), 0, y.ctypes.data)
    agree = freivalds.agrees_forward(x, ws, ys, layer, f"the output of {layer.name}")
    # What cannot be projected is numpy's
    return ys if agree else convolution.forward(x, ws, layer)


def backward_data(dy: Array, w: Array, layer: Conv2d, size: Pair) -> Array:
    """Return the same as `bridge.judge.oracle.convolution.backward_data`."""
    if not (_ours(layer, dy.shape[1:]) and _fits(layer, size, dy)):
        return convolution.backward_data(dy, w, layer, size)
    dy, w, dx = np.ascontiguousarray(dy), np.ascontiguousarray(w), np.empty((layer.in_channels, *size))
    # The input itself is not needed, only where one of its shape lies
    _backward(layer, dx, w, dy, dx.ctypes.data, 0)
    agree = freivalds.agrees_data(dy, w, dx, layer, f"the data gradient of {layer.name}")
    return dx if agree else convolution.backward_data(dy, w, layer, size)


def backward_filter(x: Array, dys: list[Array], layer: Conv2d) -> list[Array]:
    """Return the same as `bridge.judge.oracle.convolution.backward_filter`."""
    if not (_ours(layer, dys[0].shape[1:]) and _fits(layer, x.shape[1:], dys[0])):
        return convolution.backward_filter(x, dys, layer)
    x, *dys = (np.ascontiguousarray(one) for one in (x, *dys))
    dws = [np.empty(layer.weight_shape) for _ in dys]
    for dy, dw in zip(dys, dws, strict=True):
        _backward(layer, x, dw, dy, 0, dw.ctypes.data)
    agree = freivalds.agrees_filter(x, dys, dws, layer, f"the filter gradient of {layer.name}")
    return dws if agree else convolution.backward_filter(x, dys, layer)


def _backward(layer: Conv2d, x: Array, w: Array, dy: Array, dx: int, dw: int) -> None:
    extension.call("conv2d_backward", "cpu", extension.DTYPES["float64"], _params(layer), extension.C_ORDER,
                   x.ctypes.data, _extent(x), w.ctypes.data, _extent(w), dy.ctypes.data, dx, dw, 0)


def _ours(layer: Conv2d, size: tuple[int, ...]) -> bool:
    return _products(layer, size) >= LARGE and usable()


def _fits(layer: Conv2d, size: tuple[int, ...], dy: Array) -> bool:
    """Whether an input of this size gives all of dy: that of a transposed convolution may have been padded further."""
    return layer.output_shape((1, layer.in_channels, *size))[2:] == dy.shape[1:]


def _products(layer: Conv2d, size: tuple[int, ...]) -> int:
    return math.prod(layer.weight_shape) * math.prod(size)


def _params(layer: Conv2d) -> Array:
    """As cnn_api_convolution wants them."""
    return np.array([*layer.stride, *layer.padding, *layer.dilation, layer.groups], np.int32)


def _extent(array: Array) -> Array:
    """In Fortran order; an image is a batch of one."""
    shape = array.shape[::-1]
    return np.array(shape + (1,) * (extension.DIMENSIONS[-1] - len(shape)), np.int32)
