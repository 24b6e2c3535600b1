# SPDX-License-Identifier: MIT
"""Windows of which something else is taken."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from bridge.judge.diagnosis.wrong_operations.change import Wrong, changed
from bridge.operations.operation import Operation
from bridge.operations.pooling import AdaptiveMaxPool2d, AvgPool2d, GlobalAvgPool2d, MaxPool2d, Places
from bridge.operations.reductions import Amax


def global_avg_pool(node: GlobalAvgPool2d) -> Wrong:
    """Yield the largest number."""
    yield "pooling", "the largest number of each channel", Amax(node.name, (2, 3), True, inputs=node.inputs)


def max_pool(node: MaxPool2d) -> Wrong:
    """Yield windows without holes."""
    if node.dilation != (1, 1):
        def dense(length: int, axis: int) -> Places:
            return tuple(tuple(range(start, start + node.kernel_size[axis])) for start in node.starts(length, axis))

        yield "pooling", f"neighbours in each window, without the dilation {node.dilation}", changed(node, places=dense)


def avg_pool(node: AvgPool2d) -> Wrong:
    """Yield other numbers to divide by."""
    if node.divisor_override:
        yield "pooling", "the mean of each window, without divisor_override", replace(node, divisor_override=0)
        return
    if any(node.padding):
        said = ("the mean of what is inside the image, without the padding" if node.count_include_pad else
                "the mean in which the padding counts as zeros")
        yield "pooling", said, replace(node, count_include_pad=not node.count_include_pad)
    if node.ceil_mode or not node.count_include_pad:
        yield "pooling", "all windows divided by the size of the kernel", replace(
            node, divisor_override=math.prod(node.kernel_size))


def adaptive_max(node: AdaptiveMaxPool2d) -> Wrong:
    """Yield other windows."""
    size = node.output_size

    def of(window: Callable[[int, int, int], range]) -> Operation:
        return changed(node, places=lambda length, axis: _one_length(
            [window(i, length, size[axis]) for i in range(size[axis])], length))

    yield "pooling", "windows that end before floor((i + 1)*L/n), not the ceiling", of(
        lambda i, length, n: range(i * length // n, max((i + 1) * length // n, i * length // n + 1)))
    yield "pooling", "windows of the size and at the distance floor(L/n)", of(
        lambda i, length, n: range(i * max(length // n, 1) % length, i * max(length // n, 1) % length
                                   + max(length // n, 1)))
    yield "pooling", "the first pixel of each window", of(
        lambda i, length, n: range(i * length // n, i * length // n + 1))


def _one_length(windows: list[range], length: int) -> Places:
    """The same with pixels outside behind those of shorter ones."""
    most = max(map(len, windows))
    return tuple((*one, *[length] * (most - len(one))) for one in windows)
