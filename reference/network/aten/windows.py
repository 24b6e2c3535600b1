# SPDX-License-Identifier: MIT
"""ATen's operations on images, each as layers that exchange files know.

What has one dimension of pixels is written as an image of height 1.
"""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from reference.network.aten.writing import Rule, Stored, Tensor, UnsupportedError, Writer, only, parameter
from reference.network.layers import Reduce

#: Dimensions of images (n, c, h, w)
IMAGES = 4


def as_image(w: Writer, x: Tensor) -> Tensor:
    """(n, c, h, w) of (n, c, w), which stays as it is if it is an image."""
    if len(x.shape) not in (IMAGES - 1, IMAGES):
        raise UnsupportedError(f"an input of the shape {x.shape}: (n, c, h, w) and (n, c, w) are supported")
    return x if len(x.shape) == IMAGES else w.reshape(x, (*x.shape[:2], 1, x.shape[2]), 3)


def as_given(w: Writer, y: Tensor, x: Tensor) -> Tensor:
    """The output for the input that was made an image."""
    return y if len(x.shape) == IMAGES else w.reshape(y, (*y.shape[:2], y.shape[3]), 2)


def pair(value: Any, first: int) -> tuple[int, int]:
    """Height and width of one number or two; in one dimension the height is `first`."""
    found = list(value) if isinstance(value, (list, tuple)) else [value]
    return (found[0], found[1]) if len(found) > 1 else (first, found[0])


def pair2(value: Any) -> tuple[int, int]:
    """Height and width of one number for both, or two."""
    found = list(value) if isinstance(value, (list, tuple)) else [value]
    return (found[0], found[-1])


def convolution(w: Writer, x: Tensor, weight: Stored, bias: Stored | None = None, stride: Any = 1, padding: Any = 0,
                dilation: Any = 1, groups: int = 1) -> Tensor:
    x2, flat = as_image(w, x), len(x.shape) < IMAGES
    sides = (pair if flat else lambda value, _: pair2(value))
    k, c, *kernel = weight.value.shape
    size = pair(kernel, 1)
    step, spread = sides(stride, 1), sides(dilation, 1)
    if isinstance(padding, str):
        both = [d * (n - 1) * (padding == "same") for d, n in zip(spread, size, strict=True)]
        if any(n % 2 for n in both):
            raise UnsupportedError("padding 'same' of an even kernel, which is not the same on both sides")
        border = both[0] // 2, both[1] // 2
    else:
        border = sides(padding, 0)
    layer = nn.Conv2d(1, 1, size, step, border, spread)
    layer.in_channels, layer.out_channels, layer.groups = c * groups, k, groups
    layer.weight, layer.bias = parameter(weight, (k, c, *size)), parameter(bias)  # type: ignore[assignment]
    p, q = (_windows(n, m, *rest) for n, m, *rest in zip(x2.shape[2:], size, step, border, spread, strict=True))
    return as_given(w, w.add(layer, [x2], (x.shape[0], k, p, q), weight=weight, bias=bias), x)


def _windows(n: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> int:
    return (n + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def transposed_convolution(w: Writer, x: Tensor, weight: Stored, bias: Stored | None = None, stride: Any = 1,
                           padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Tensor:
    x2, flat = as_image(w, x), len(x.shape) < IMAGES
    sides = (pair if flat else lambda value, _: pair2(value))
    c, k, *kernel = weight.value.shape
    size, step, border, more, spread = (pair(kernel, 1), sides(stride, 1), sides(padding, 0), sides(output_padding, 0),
                                        sides(dilation, 1))
    layer = nn.ConvTranspose2d(1, 1, size, step, border, more, dilation=spread)
    layer.in_channels, layer.out_channels, layer.groups = c, k * groups, groups
    layer.weight, layer.bias = parameter(weight, (c, k, *size)), parameter(bias)  # type: ignore[assignment]
    p, q = ((n - 1) * s - 2 * a + d * (m - 1) + o + 1
            for n, m, s, a, o, d in zip(x2.shape[2:], size, step, border, more, spread, strict=True))
    return as_given(w, w.add(layer, [x2], (x.shape[0], k * groups, p, q), weight=weight, bias=bias), x)


def pooling(layer: type[nn.Module]) -> Rule:
    def rule(w: Writer, x: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, *more: Any,
             **named: Any) -> Tensor:
        names = (("dilation", "ceil_mode") if layer is nn.MaxPool2d else
                 ("ceil_mode", "count_include_pad", "divisor_override"))
        given = dict(zip(names, more, strict=False)) | named
        x2, flat = as_image(w, x), len(x.shape) < IMAGES
        sides = (pair if flat else lambda value, _: pair2(value))
        size, border = sides(kernel_size, 1), sides(padding, 0)
        step = sides(stride, 1) if stride not in ((), []) else size
        only("dilation", sides(given.get("dilation", 1), 1), (1, 1))
        only("divisor_override", given.get("divisor_override"), None)
        if any(border):
            only("count_include_pad", given.get("count_include_pad", True), True)
        whole = [n + 2 * p - k for n, k, p in zip(x2.shape[2:], size, border, strict=True)]
        if given.get("ceil_mode") and any(n % s for n, s in zip(whole, step, strict=True)):
            raise UnsupportedError("ceil_mode True, with windows that reach beyond the image")
        if layer is nn.AvgPool2d and tuple(x2.shape[2:]) == size and not any(border):
            # Of the whole image whatever its size, as who writes the size as a number means
            w.rewritten()
            return as_given(w, w.add(nn.AdaptiveAvgPool2d(1), [x2], (*x.shape[:2], 1, 1)), x)
        p, q = (_windows(*one) for one in zip(x2.shape[2:], size, step, border, strict=True))
        return as_given(w, w.add(layer(size, step, border), [x2], (*x.shape[:2], p, q)), x)

    return rule


def adaptive_average(w: Writer, x: Tensor, output_size: Any) -> Tensor:
    x2 = as_image(w, x)
    size = pair(output_size, 1)
    return as_given(w, w.add(nn.AdaptiveAvgPool2d(size), [x2], (*x.shape[:2], *size)), x)


def adaptive_max(w: Writer, x: Tensor, output_size: Any) -> tuple[Tensor, None]:
    """Of the whole image: the largest of all pixels."""
    only("output_size", tuple(output_size), (1, 1), (1,), (1, 1, 1))
    flat = w.reshape(x, (*x.shape[:2], math.prod(x.shape[2:])), 2)
    found = w.add(Reduce("max", (2,), False), [flat], x.shape[:2])
    return w.reshape(found, (*x.shape[:2], *[1] * (len(x.shape) - 2))), None


_PADS = {"constant": nn.ZeroPad2d, "reflect": nn.ReflectionPad2d, "replicate": nn.ReplicationPad2d}


def padded(w: Writer, x: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    if not any(pad):
        return x
    only("mode", mode, *_PADS)
    only("value", value or 0, 0)
    sides = [*pad, *[0] * (4 - len(pad))]
    if any(sides[4:]) or min(sides) < 0 or (len(x.shape) < IMAGES and any(sides[2:])):
        raise UnsupportedError(f"padding {list(pad)}: numbers from 0 on are supported, of the pixels")
    left, right, top, bottom = sides[:4]
    x2 = as_image(w, x)
    shape = (*x2.shape[:2], x2.shape[2] + top + bottom, x2.shape[3] + left + right)
    return as_given(w, w.add(_PADS[mode]((left, right, top, bottom)), [x2], shape), x)


def padding(mode: str) -> Rule:
    return lambda w, x, pad, value=0: padded(w, x, pad, mode, value)


def resized(mode: str) -> Rule:
    """By a whole number of times, which the sizes say."""
    def rule(w: Writer, x: Tensor, output_size: Any, *more: Any, **named: Any) -> Tensor:
        align = more[0] if mode == "bilinear" else None
        factors = more[-1] if more and isinstance(more[-1], (list, tuple)) else None
        x2 = as_image(w, x)
        wanted = (pair(output_size, 1) if output_size is not None
                  else tuple(int(n * f) for n, f in zip(x2.shape[2:], pair(factors, 1), strict=True)))
        if any(n % m for n, m in zip(wanted, x2.shape[2:], strict=True)):
            raise UnsupportedError(f"from {x2.shape[2:]} to {wanted} pixels: whole multiples are supported")
        times = tuple(n // m for n, m in zip(wanted, x2.shape[2:], strict=True))
        layer = nn.Upsample(scale_factor=times, mode=mode, align_corners=align)
        return as_given(w, w.add(layer, [x2], (*x.shape[:2], *wanted)), x)

    return rule
