# SPDX-License-Identifier: MIT
"""ATen's operations on images, each as layers that exchange files know.

What has one dimension of pixels is written as an image of height 1.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from reference.network.aten.writing import Rule, Stored, Tensor, UnsupportedError, Writer, only, parameter
from reference.network.layers import CircularPad, ConstantPad, Reduce

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


def largest(w: Writer, x: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
            ceil_mode: bool = False) -> Tensor:
    size, step, border, holes = _sides(x, kernel_size, stride or kernel_size, padding, dilation)
    return _of_images(w, x, nn.MaxPool2d(size, step, border, holes, ceil_mode=ceil_mode))


def average(w: Writer, x: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
            count_include_pad: bool = True, divisor_override: int | None = None) -> Tensor:
    size, step, border = _sides(x, kernel_size, stride or kernel_size, padding)
    if size == (1, *x.shape[2:])[-2:] and not any(border) and divisor_override is None:
        # Of the whole image whatever its size, as who writes the size as a number means
        w.rewritten()
        return _of_images(w, x, nn.AdaptiveAvgPool2d(1))
    return _of_images(w, x, nn.AvgPool2d(size, step, border, ceil_mode, count_include_pad, divisor_override))


def _sides(x: Tensor, kernel_size: Any, *others: Any) -> list[tuple[int, int]]:
    """Height and width of each; in one dimension the height is that of a window of one row."""
    if len(x.shape) >= IMAGES:
        return [pair2(one) for one in (kernel_size, *others)]
    heights = (1, 1, 0, 1)
    return [pair(one, height) for one, height in zip((kernel_size, *others), heights, strict=False)]


def _of_images(w: Writer, x: Tensor, layer: nn.Module) -> Tensor:
    """What a layer of images gives, of a shape that torch knows."""
    x2 = as_image(w, x)
    return as_given(w, w.add(layer, [x2], tuple(layer(torch.empty(x2.shape, device="meta")).shape)), x)


def adaptive_average(w: Writer, x: Tensor, output_size: Any) -> Tensor:
    return _of_images(w, x, nn.AdaptiveAvgPool2d(pair(output_size, 1)))


def adaptive_max(w: Writer, x: Tensor, output_size: Any) -> tuple[Tensor, None]:
    if len(x.shape) == VOLUMES:
        # Of the whole volume: the largest of all voxels
        only("output_size", tuple(output_size), (1, 1), (1,), (1, 1, 1))
        flat = w.reshape(x, (*x.shape[:2], math.prod(x.shape[2:])), 2)
        found = w.add(Reduce("max", (2,), False), [flat], x.shape[:2])
        return w.reshape(found, (*x.shape[:2], *[1] * (len(x.shape) - 2))), None
    return _of_images(w, x, nn.AdaptiveMaxPool2d(pair(output_size, 1))), None


_PADS = {"constant": nn.ZeroPad2d, "reflect": nn.ReflectionPad2d, "replicate": nn.ReplicationPad2d}
#: Of volumes (n, c, d, h, w)
VOLUMES = 5


def padded(w: Writer, x: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    only("mode", mode, *_PADS, "circular")
    pads, number = list(pad), float(value or 0)
    while pads[-2:] == [0, 0]:
        del pads[-2:]
    if not pads:
        return x
    of_pixels = len(pads) <= 2 * (min(len(x.shape), IMAGES) - 2) and len(x.shape) in (IMAGES - 1, IMAGES)
    if mode == "circular":
        return _beside(w, x, CircularPad(tuple(pads)))
    if mode == "constant" and (number or min(pads) < 0 or not of_pixels):
        return _beside(w, x, ConstantPad(tuple(pads), number))
    if min(pads) < 0:
        raise UnsupportedError(f"padding {list(pad)} in the mode '{mode}': numbers from 0 on are supported")
    if of_pixels:
        left, right, top, bottom = [*pads, 0, 0][:4]
        return _of_images(w, x, _PADS[mode]((left, right, top, bottom)))
    if len(x.shape) != VOLUMES or len(pads) > 2 * 3:
        raise UnsupportedError(f"padding {list(pad)} of the shape {x.shape} in the mode '{mode}': one of pixels, or of "
                               "those of volumes, is supported")
    # Rows and columns first, of as many images as there are layers; then these, as rows of pixels
    left, right, top, bottom, front, back = [*pads, 0, 0, 0, 0][:6]
    n, c, depth, *pixels = x.shape
    flat = _of_images(w, w.reshape(x, (n, c * depth, *pixels)), _PADS[mode]((left, right, top, bottom)))
    height, width = flat.shape[2:]
    deep = _of_images(w, w.reshape(flat, (n, c, depth, height * width)), _PADS[mode]((0, 0, front, back)))
    return w.reshape(deep, (n, c, depth + front + back, height, width), None, "")


def _beside(w: Writer, x: Tensor, layer: ConstantPad | CircularPad) -> Tensor:
    """Numbers beside those of the last dimensions, of which the images are none."""
    if len(layer.pad) >= 2 * len(x.shape):
        raise UnsupportedError(f"padding {list(layer.pad)} of the shape {x.shape}, of the images, too")
    sides = [*layer.pad, *[0] * (2 * len(x.shape) - len(layer.pad))]
    shape = tuple(n + sum(sides[2 * i:2 * i + 2]) for i, n in zip(reversed(range(len(x.shape))), x.shape, strict=True))
    return w.add(layer, [x], shape)


def padding(mode: str) -> Rule:
    return lambda w, x, pad, value=0: padded(w, x, pad, mode, value)


def resized(mode: str) -> Rule:
    """To a size, or some times as large; by a whole number of times as images of any size are."""
    def rule(w: Writer, x: Tensor, output_size: Any, *more: Any, **named: Any) -> Tensor:
        given = [*more, *named.values()]
        align = given.pop(0) if mode in ("bilinear", "bicubic") else None
        factors = given[0] if len(given) == 1 else given
        x2 = as_image(w, x)
        if factors and all(factor is not None for factor in factors):
            of_layer: dict[str, Any] = {"scale_factor": tuple(map(float, factors))}
            if len(x.shape) < IMAGES:
                of_layer = {"scale_factor": (1.0, float(factors[-1]))}
            wanted = tuple(int(n * f) for n, f in zip(x2.shape[2:], of_layer["scale_factor"], strict=True))
        else:
            wanted = pair(output_size, 1)
            of_layer = {"size": wanted}
        if mode in ("nearest", "bilinear") and not any(n % m for n, m in zip(wanted, x2.shape[2:], strict=True)):
            of_layer = {"scale_factor": tuple(n // m for n, m in zip(wanted, x2.shape[2:], strict=True))}
        layer = nn.Upsample(**of_layer, mode=mode, align_corners=align)
        return as_given(w, w.add(layer, [x2], (*x.shape[:2], *wanted)), x)

    return rule
