# SPDX-License-Identifier: MIT
"""Convolution as functions, with torch's argument names, on numpy and CUDA arrays and without copies."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from bridge.common.errors import ArgumentError, ArgumentTypeError
from bridge.engine.arrays import dispatch
from bridge.engine.arrays.dispatch import Place
from bridge.engine.arrays.operand import Operand, extent_of
from bridge.engine.library import extension
from bridge.engine.network import arguments as network_arguments

#: numpy.ndarray, or on a CUDA device a bridge.DeviceArray, a tensor of torch, an array of cupy, or anything with
#: DLPack or the CUDA array interface
Array = Any
PairLike = int | tuple[int, int]


def conv2d(input: Array, weight: Array, bias: Array | None = None, stride: PairLike = 1, padding: PairLike | str = 0,
           dilation: PairLike = 1, groups: int = 1, *, relu: bool = False, out: Array | None = None,
           device: str | None = None) -> Array:
    """Compute a 2-D convolution (cross-correlation), as ``torch.nn.functional.conv2d``.

    ``out[n,k,p,q] = bias[k] + sum_crs weight[k,c,r,s] * input[n, c, p*stride + r*dilation - padding, ...]``

    Parameters
    ----------
    input : float32 or float64, shape (n, c, h, w), C-contiguous or channels_last, finite
        On the CPU a numpy array or a tensor of torch. Channels_last is what torch calls so: memory as (n, h, w, c);
        of an array of numpy with that shape `array.transpose(0, 3, 1, 2)` is it. Its pixels that no tap reads, between
        strides, are not searched for NaN. On a CUDA device C-contiguous, also float16 and bfloat16, and not checked for
        NaN and infinity, which would wait for it.
    weight : same dtype, shape (k, c / groups, r, s)
        In C order, or with a channels_last input in either.
    bias : same dtype, shape (k,), or None
    stride, padding, dilation : int or (height, width), in pixels
        `padding` adds zeros on all four sides; "valid" means 0, "same" (stride 1) keeps the size.
    groups : int
    relu : bool
        Give ``max(out, 0)``.
    out : same dtype and layout as `input`, shape (n, k, p, q), optional
        Where to write; must not share memory with the inputs. After the refusal of a channels_last array that holds
        NaN, which is found as it is read, it may hold anything.
    device : where all arrays are; None takes that of `input`
        "cpu"; "cuda" or "cuda:N" with options (see `bridge.engine.library.device_spec`); "naive" runs the plain loops
        that the tests compare with. Work on a CUDA device is queued (see `bridge.engine.arrays.streams`), and not
        waited for.

    Returns
    -------
    out : same dtype and layout, shape (n, k, p, q)
        Of numpy, torch or cupy as `input` is, else on a CUDA device a `bridge.DeviceArray`.

    Raises
    ------
    ArgumentTypeError, ArgumentError
        For a wrong type, dtype, rank, shape, order, an array in another place, an empty, non-finite or read-only one.
    EngineError
        If the shapes do not fit together or the device does not exist.

    Examples
    --------
    >>> x = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    >>> conv2d(x, np.ones((1, 1, 2, 2), np.float32))[0, 0]
    array([[ 8., 12.],
           [20., 24.]], dtype=float32)
    """
    place = dispatch.of(device, input)
    x, w = _check_pair(place, input, weight)
    settings = _settings(stride, padding, dilation, groups, w.shape[2:])
    rectified = int(network_arguments.flag("relu", relu))
    b = None if bias is None else place.operand("bias", bias, like=x, shape=w.shape[:1], image=True)
    params, shape = _geometry(settings, x.shape, w.shape)
    if out is None:
        # One pixel of many channels lies in either order: then the filters say what is meant
        y = place.empty(shape, x, channels_last=x.channels_last or (w.channels_last and _is_both(x.shape)))
    else:
        y = place.operand("out", out, like=x, shape=shape, writable=True, image=True)
        dispatch.refuse_overlap(y, x, w, b)
    layouts = _layouts(w, x, "out", y)
    if not layouts[0]:
        _search(input=x, weight=w)
    with place.working(*_given(x, w, b, y)):
        extension.call("conv2d_forward", place.text, extension.ALL_DTYPES[x.dtype], params, layouts, rectified,
                       x.address, x.extent, w.address, w.extent, _address(b), y.address)
    return y.array


def conv2d_backward(grad_output: Array, input: Array, weight: Array, stride: PairLike = 1,
                    padding: PairLike | str = 0, dilation: PairLike = 1, groups: int = 1, *,
                    output_mask: tuple[bool, bool, bool] = (True, True, True),
                    device: str | None = None) -> tuple[Array | None, Array | None, Array | None]:
    """Compute the gradients of `conv2d` (without `relu`), as ``torch.ops.aten.convolution_backward``.

    Parameters
    ----------
    grad_output : same dtype and layout as `input`, shape (n, k, p, q)
        Gradient of the loss with respect to the output.
    input, weight, stride, padding, dilation, groups, device : as for `conv2d`
    output_mask : three bool
        Which of the three gradients to compute. Arrays whose values none of these needs are not searched for NaN.

    Returns
    -------
    grad_input : shape (n, c, h, w), in the layout of `input`, or None
    grad_weight : shape (k, c / groups, r, s), in the layout of `weight`, summed over the batch, or None
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
    _check_mask(output_mask)
    place = dispatch.of(device, input)
    x, w = _check_pair(place, input, weight, input_read=output_mask[1], weight_read=output_mask[0])
    params, shape = _geometry(_settings(stride, padding, dilation, groups, w.shape[2:]), x.shape, w.shape)
    dy = place.operand("grad_output", grad_output, like=x, shape=shape, image=True)
    layouts = _layouts(w, x, "grad_output", dy)
    if not layouts[0] or not any(output_mask[:2]):
        _search(input=x, weight=w, grad_output=dy)
    forms = ((x.shape, bool(layouts[0])), (w.shape, bool(layouts[1])), (w.shape[:1], False))
    dx, dw, db = (place.empty(one, x, channels_last=last) if wanted else None
                  for (one, last), wanted in zip(forms, output_mask, strict=True))
    with place.working(*_given(x, w, dy, dx, dw, db)):
        extension.call("conv2d_backward", place.text, extension.ALL_DTYPES[x.dtype], params, layouts, x.address,
                       x.extent, w.address, w.extent, *map(_address, (dy, dx, dw, db)))
    grad_input, grad_weight, grad_bias = (None if one is None else one.array for one in (dx, dw, db))
    return grad_input, grad_weight, grad_bias


#: As messages call them
_LAYOUT = ("in C order", "channels_last")
#: By whether tensors, and filters, are channels_last
_LAYOUTS = tuple(tuple(np.array([tensors, filters], np.int32) for filters in (0, 1)) for tensors in (0, 1))


#: Shape, and whether it is channels_last
_Form = tuple[tuple[int, ...], bool]


def _layouts(w: Operand, x: Operand, name: str, y: Operand) -> np.ndarray:
    """1 where the tensors, and the filters, are channels_last; `name` is what messages call `y`.

    Raises
    ------
    ArgumentError
        If two tensors lie in memory in different orders, or filters are channels_last and tensors are not.
    """
    return _layouts_of((w.shape, w.channels_last), (x.shape, x.channels_last), name, (y.shape, y.channels_last))


@functools.lru_cache(maxsize=256)
def _layouts_of(w: _Form, x: _Form, name: str, y: _Form) -> np.ndarray:
    """Of one channel, or one pixel, they may be both."""
    if not (w[1] or x[1] or y[1]):
        return extension.C_ORDER
    certain = [(one, last) for one, (shape, last) in (("input", x), (name, y)) if not _is_both(shape)]
    if not certain:
        # The same memory in both orders: for one channel the kernels in C order are faster
        return _LAYOUTS[1][1] if w[1] and not _is_both(w[0]) else extension.C_ORDER
    first, leading = certain[0]
    for one, last in certain:
        if last != leading:
            raise ArgumentError(f"{one}: {_LAYOUT[last]}, expected {_LAYOUT[leading]} as {first} is")
    if w[1] and not leading:
        if not _is_both(w[0]):
            raise ArgumentError(f"weight: channels_last, expected in C order as {first} is")
        return extension.C_ORDER
    return _LAYOUTS[leading][w[1]]


def _search(**operands: Operand) -> None:
    """Refuse NaN and infinity in what could have been channels_last, where no kernel does it as it reads.

    Raises
    ------
    ArgumentError
    """
    for name, one in operands.items():
        if one.channels_last:
            extension.check_finite(name, one.array if one.keep is None else one.keep)


def _is_both(shape: tuple[int, ...]) -> bool:
    return 1 in (shape[1], math.prod(shape[2:]))


def _given(*operands: Operand | None) -> list[Operand]:
    return [one for one in operands if one is not None]


def _address(operand: Operand | None) -> int:
    """Fortran takes 0 for none."""
    return 0 if operand is None else operand.address


def _check_mask(mask: object) -> None:
    if not isinstance(mask, (tuple, list)):
        raise ArgumentTypeError(f"output_mask: {mask!r}, expected three bool")
    if len(mask) != 3:
        raise ArgumentError(f"output_mask: {mask!r}, expected three bool")
    if not all(isinstance(one, (bool, np.bool_)) for one in mask):
        raise ArgumentTypeError(f"output_mask: {mask!r}, expected three bool")


def _check_pair(place: Place, input: Array, weight: Array, *, input_read: bool = True,
                weight_read: bool = True) -> tuple[Operand, Operand]:
    x = place.operand("input", input, ndim=4, values=input_read, image=True)
    return x, place.operand("weight", weight, like=x, ndim=4, values=weight_read, image=True)


def _settings(stride: PairLike, padding: PairLike | str, dilation: PairLike, groups: int,
              kernel: tuple[int, ...]) -> tuple[int, ...]:
    """stride, padding, dilation as (h, w) each, then groups."""
    strides, dilations = _pair("stride", stride), _pair("dilation", dilation)
    if isinstance(padding, str):
        padding = _named_padding(padding, strides, dilations, kernel)
    return (*strides, *_pair("padding", padding), *dilations, _integer("groups", groups, "an int"))


@functools.lru_cache(maxsize=256)
def _geometry(settings: tuple[int, ...], x: tuple[int, ...], w: tuple[int, ...]) -> tuple[np.ndarray, tuple[int, ...]]:
    """The settings as cnn_api_convolution wants them, and the shape of the output. Mostly the same again and again.

    Raises
    ------
    EngineError
        If the shapes do not fit together.
    """
    params, found = np.array(settings, np.int32), np.zeros(4, np.int32)
    extension.call("conv2d_extent", extent_of(x), extent_of(w), params, found)
    return params, tuple(int(n) for n in found[::-1])


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
    both = _integer(name, value)
    return (both, both)


def _integer(name: str, value: object, expected: str = "an int or a pair (height, width)") -> int:
    # Mostly it is one, and this is done seven times a call
    if type(value) is not int:
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise ArgumentTypeError(f"{name}: {value!r}, expected {expected}")
        value = int(value)
    if not -extension.LARGEST <= value <= extension.LARGEST:
        raise ArgumentError(f"{name}: {value!r}, expected a number below 2**31")
    return value
