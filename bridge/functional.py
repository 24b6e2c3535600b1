# SPDX-License-Identifier: MIT
"""Convolution as functions, with torch's argument names, on numpy arrays and without copies."""

from __future__ import annotations

import numpy as np

from bridge import engine
from bridge.errors import ArgumentError, ArgumentTypeError

Array = np.ndarray
PairLike = int | tuple[int, int]


def conv2d(input: Array, weight: Array, bias: Array | None = None, stride: PairLike = 1, padding: PairLike | str = 0,
           dilation: PairLike = 1, groups: int = 1, *, out: Array | None = None, device: str = "cpu") -> Array:
    """2-D convolution (cross-correlation), as ``torch.nn.functional.conv2d``.

    ``out[n,k,p,q] = bias[k] + sum_crs weight[k,c,r,s] * input[n, c, p*stride + r*dilation - padding, ...]``

    Parameters
    ----------
    input : float32 or float64, shape (n, c, h, w), C-contiguous, finite
    weight : same dtype, shape (k, c / groups, r, s)
    bias : same dtype, shape (k,), or None
    stride, padding, dilation : int or (height, width), in pixels
        `padding` adds zeros on all four sides; "valid" means 0, "same" (stride 1) keeps the size.
    groups : int
    out : same dtype, shape (n, k, p, q), optional
        Where to write; must not share memory with the inputs.
    device : "cpu"; "naive" runs the plain loops that the tests compare with

    Returns
    -------
    out : same dtype, shape (n, k, p, q)

    Raises
    ------
    ArgumentTypeError, ArgumentError
        For a wrong type, dtype, rank, shape, order, an empty, non-finite or read-only array.
    EngineError
        If the shapes do not fit together or the device does not exist.

    Examples
    --------
    >>> x = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    >>> conv2d(x, np.ones((1, 1, 2, 2), np.float32))[0, 0]
    array([[ 8., 12.],
           [20., 24.]], dtype=float32)
    """
    x, w = _check_pair(input, weight)
    params = _params(stride, padding, dilation, groups, w.shape[2:])
    b = None if bias is None else engine.check_array("bias", bias, dtype=x.dtype.name, shape=(w.shape[0],), finite=True)
    shape = _output_shape(x, w, params)
    if out is None:
        out = np.empty(shape, x.dtype)
    else:
        engine.check_array("out", out, dtype=x.dtype.name, shape=shape, writable=True)
        if any(np.may_share_memory(out, other) for other in (x, w, b) if other is not None):
            raise ArgumentError("out: shares memory with an input, expected separate memory")
    engine.call("conv2d_forward", engine.device_text(device), engine.DTYPES[x.dtype.name], params, engine.address(x),
                engine.extent(x), engine.address(w), engine.extent(w), engine.address(b), engine.address(out))
    return out


def conv2d_backward(grad_output: Array, input: Array, weight: Array, stride: PairLike = 1,
                    padding: PairLike | str = 0, dilation: PairLike = 1, groups: int = 1, *,
                    output_mask: tuple[bool, bool, bool] = (True, True, True),
                    device: str = "cpu") -> tuple[Array | None, Array | None, Array | None]:
    """Gradients of `conv2d`, as ``torch.ops.aten.convolution_backward``.

    Parameters
    ----------
    grad_output : same dtype as `input`, shape (n, k, p, q)
        Gradient of the loss with respect to the output.
    input, weight, stride, padding, dilation, groups, device : as for `conv2d`
    output_mask : three bool
        Which of the three gradients to compute.

    Returns
    -------
    grad_input : shape (n, c, h, w), or None
    grad_weight : shape (k, c / groups, r, s), summed over the batch, or None
    grad_bias : shape (k,), summed over batch and pixels, or None

    Raises
    ------
    As `conv2d`.

    Examples
    --------
    >>> x = np.arange(4, dtype=np.float64).reshape(1, 1, 2, 2)
    >>> dx, dw, db = conv2d_backward(np.ones((1, 1, 1, 1)), x, np.ones((1, 1, 2, 2)))
    >>> dw[0, 0]
    array([[0., 1.],
           [2., 3.]])
    """
    x, w = _check_pair(input, weight)
    params = _params(stride, padding, dilation, groups, w.shape[2:])
    shape = _output_shape(x, w, params)
    _check_mask(output_mask)
    dy = engine.check_array("grad_output", grad_output, dtype=x.dtype.name, shape=shape, finite=True)
    dx = np.empty_like(x) if output_mask[0] else None
    dw = np.empty_like(w) if output_mask[1] else None
    db = np.empty(w.shape[:1], w.dtype) if output_mask[2] else None
    engine.call("conv2d_backward", engine.device_text(device), engine.DTYPES[x.dtype.name], params, engine.address(x),
                engine.extent(x), engine.address(w), engine.extent(w), *(engine.address(a) for a in (dy, dx, dw, db)))
    return dx, dw, db


def _check_mask(mask: object) -> None:
    if not isinstance(mask, (tuple, list)):
        raise ArgumentTypeError(f"output_mask: {mask!r}, expected three bool")
    if len(mask) != 3:
        raise ArgumentError(f"output_mask: {mask!r}, expected three bool")
    if not all(isinstance(one, (bool, np.bool_)) for one in mask):
        raise ArgumentTypeError(f"output_mask: {mask!r}, expected three bool")


def _check_pair(input: Array, weight: Array) -> tuple[Array, Array]:
    x = engine.check_array("input", input, ndim=4, finite=True)
    return x, engine.check_array("weight", weight, dtype=x.dtype.name, ndim=4, finite=True)


def _params(stride: PairLike, padding: PairLike | str, dilation: PairLike, groups: int,
            kernel: tuple[int, ...]) -> Array:
    """stride, padding, dilation as (h, w) each, then groups, as cnn_api wants them."""
    strides, dilations = _pair("stride", stride), _pair("dilation", dilation)
    if isinstance(padding, str):
        padding = _named_padding(padding, strides, dilations, kernel)
    return np.array([*strides, *_pair("padding", padding), *dilations, _integer("groups", groups, "an int")],
                    dtype=np.int32)


def _named_padding(name: str, stride: tuple[int, int], dilation: tuple[int, int],
                   kernel: tuple[int, ...]) -> tuple[int, int]:
    if name == "valid":
        return (0, 0)
    total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    if name != "same" or stride != (1, 1) or any(t % 2 for t in total):
        raise ArgumentError(f"padding: {name!r}, expected numbers, 'valid', or 'same' with stride 1 and a kernel "
                            "whose padding is the same on both sides")
    return (total[0] // 2, total[1] // 2)


def _pair(name: str, value: PairLike) -> tuple[int, int]:
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ArgumentError(f"{name}: {value!r}, expected an int or a pair (height, width)")
        return (_integer(name, value[0]), _integer(name, value[1]))
    return (_integer(name, value), _integer(name, value))


def _integer(name: str, value: object, expected: str = "an int or a pair (height, width)") -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ArgumentTypeError(f"{name}: {value!r}, expected {expected}")
    if abs(int(value)) > np.iinfo(np.int32).max:
        raise ArgumentError(f"{name}: {value!r}, expected a number below 2**31")
    return int(value)


def _output_shape(x: Array, w: Array, params: Array) -> tuple[int, ...]:
    found = np.zeros(4, np.int32)
    engine.call("conv2d_extent", engine.extent(x), engine.extent(w), params, found)
    return tuple(int(n) for n in found[::-1])
