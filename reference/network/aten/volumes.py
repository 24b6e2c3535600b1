# SPDX-License-Identifier: MIT
"""ATen's operations on volumes (n, c, d, h, w), each as layers that exchange files know."""

from __future__ import annotations

from typing import Any

from torch import nn

from reference.network.aten.writing import Rule, Stored, Tensor, UnsupportedError, Writer, only, parameter
from reference.network.hyperparameters import triple
from reference.network.layers import Reduce

#: Dimensions of volumes
VOLUMES = 5


def _triple(value: Any) -> tuple[int, int, int]:
    """Depth, height and width."""
    depth, height, width = triple(value)
    return depth, height, width


def _only_batches(x: Tensor) -> None:
    if len(x.shape) != VOLUMES:
        raise UnsupportedError(f"an input of the shape {x.shape}: (n, c, d, h, w) is supported")


def convolution(w: Writer, x: Tensor, weight: Stored, bias: Stored | None = None, stride: Any = 1, padding: Any = 0,
                dilation: Any = 1, groups: int = 1) -> Tensor:
    _only_batches(x)
    k, c = weight.value.shape[:2]
    size, step, spread = _triple(tuple(weight.value.shape[2:])), _triple(stride), _triple(dilation)
    if isinstance(padding, str):
        both = [d * (n - 1) * (padding == "same") for d, n in zip(spread, size, strict=True)]
        if any(n % 2 for n in both):
            raise UnsupportedError("padding 'same' of an even kernel, which is not the same on both sides")
        border = _triple([n // 2 for n in both])
    else:
        border = _triple(padding)
    layer = nn.Conv3d(1, 1, size, step, border, spread)
    layer.in_channels, layer.out_channels, layer.groups = c * groups, k, groups
    layer.weight, layer.bias = parameter(weight), parameter(bias)  # type: ignore[assignment]
    windows = [(n + 2 * a - d * (m - 1) - 1) // s + 1
               for n, m, s, a, d in zip(x.shape[2:], size, step, border, spread, strict=True)]
    return w.add(layer, [x], (x.shape[0], k, *windows), weight=weight, bias=bias)


def transposed_convolution(w: Writer, x: Tensor, weight: Stored, bias: Stored | None = None, stride: Any = 1,
                           padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Tensor:
    _only_batches(x)
    c, k = weight.value.shape[:2]
    size, step, border, more, spread = (_triple(one) for one in (
        tuple(weight.value.shape[2:]), stride, padding, output_padding, dilation))
    layer = nn.ConvTranspose3d(1, 1, size, step, border, more, dilation=spread)
    layer.in_channels, layer.out_channels, layer.groups = c, k * groups, groups
    layer.weight, layer.bias = parameter(weight), parameter(bias)  # type: ignore[assignment]
    sides = [(n - 1) * s - 2 * a + d * (m - 1) + o + 1
             for n, m, s, a, o, d in zip(x.shape[2:], size, step, border, more, spread, strict=True)]
    return w.add(layer, [x], (x.shape[0], k * groups, *sides), weight=weight, bias=bias)


def pooling(layer: type[nn.Module]) -> Rule:
    """A maximum also has the places of its windows, which nobody may take."""
    def rule(w: Writer, x: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, *more: Any,
             **named: Any) -> Tensor:
        _only_batches(x)
        names = (("dilation", "ceil_mode") if layer is nn.MaxPool3d else
                 ("ceil_mode", "count_include_pad", "divisor_override"))
        given = dict(zip(names, more, strict=False)) | named
        size, border = triple(kernel_size), triple(padding)
        step = triple(stride) if stride not in ((), []) else size
        only("dilation", triple(given.get("dilation", 1)), [1, 1, 1])
        only("divisor_override", given.get("divisor_override"), None)
        if any(border):
            only("count_include_pad", given.get("count_include_pad", True), True)
        whole = [n + 2 * p - k for n, k, p in zip(x.shape[2:], size, border, strict=True)]
        if given.get("ceil_mode") and any(n % s for n, s in zip(whole, step, strict=True)):
            raise UnsupportedError("ceil_mode True, with windows that reach beyond the volume")
        windows = [n // s + 1 for n, s in zip(whole, step, strict=True)]
        return w.add(layer(tuple(size), tuple(step), tuple(border)), [x], (*x.shape[:2], *windows))

    return rule


def adaptive_average(w: Writer, x: Tensor, output_size: Any) -> Tensor:
    """Of the whole volume: the mean of all its voxels."""
    _only_batches(x)
    size = triple(output_size)
    if size == [1, 1, 1]:
        return w.add(Reduce("mean", (2, 3, 4), True), [x], (*x.shape[:2], 1, 1, 1))
    return w.add(nn.AdaptiveAvgPool3d(tuple(size)), [x], (*x.shape[:2], *size))


def resized(mode: str) -> Rule:
    """By a whole number of times, which the sizes say."""
    def rule(w: Writer, x: Tensor, output_size: Any, *more: Any, **named: Any) -> Tensor:
        _only_batches(x)
        align = more[0] if mode == "trilinear" else None
        factors = more[-1] if more and isinstance(more[-1], (list, tuple)) else None
        wanted = (triple(output_size) if output_size is not None
                  else [int(n * f) for n, f in zip(x.shape[2:], factors or (1, 1, 1), strict=True)])
        if any(n % m for n, m in zip(wanted, x.shape[2:], strict=True)):
            raise UnsupportedError(f"from {x.shape[2:]} to {wanted} voxels: whole multiples are supported")
        times = tuple(n // m for n, m in zip(wanted, x.shape[2:], strict=True))
        return w.add(nn.Upsample(scale_factor=times, mode=mode, align_corners=align), [x], (*x.shape[:2], *wanted))

    return rule


def dropped_channels(w: Writer, x: Tensor, p: float, training: bool) -> Tensor:
    """Of volumes as of images whose rows are planes."""
    if not (training and p):
        return x
    if len(x.shape) != VOLUMES:
        return w.add(nn.Dropout2d(p), [x], x.shape)
    rows = (*x.shape[:3], x.shape[3] * x.shape[4])
    found = w.add(nn.Dropout2d(p), [w.reshape(x, rows)], rows)
    return w.reshape(found, x.shape)
