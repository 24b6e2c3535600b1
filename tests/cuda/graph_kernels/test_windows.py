# SPDX-License-Identifier: MIT
"""The kernels of graphs, run on a CPU against torch: from their source, and from the PTX that a GPU would get.

Pooling, resampling, products of matrices.
torch computes in float64, from the same numbers; a result is right where it is that, rounded, or a neighbour of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from tests.helpers.cuda.graph_kernels import i8, numbers, ulps, wide
from tests.helpers.cuda.kernel_memory import KINDS, Memory
from tests.helpers.loops import looped
from tests.software_device.host_kernels import HostKernels

#: Of images of a size windows with a kernel, a stride, a padding, a dilation of those that look for the largest number,
#: and whether they may reach beyond the padding
WINDOWS = [((9, 7), (3, 2), (2, 1), (1, 0), (1, 1), False), ((6, 6), (2, 2), (2, 2), (0, 0), (1, 1), False),
           ((5, 8), (4, 3), (1, 2), (2, 1), (1, 1), False), ((7, 5), (1, 2), (3, 2), (0, 1), (1, 1), False),
           ((7, 6), (3, 2), (2, 2), (1, 0), (1, 1), False), ((5, 7), (2, 3), (2, 2), (0, 1), (1, 1), False),
           ((6, 7), (3, 2), (2, 3), (1, 0), (1, 1), True), ((9, 8), (3, 2), (2, 1), (1, 1), (2, 3), True)]
#: Of all sums, and of which of them
DIVISORS = [(6.0, {"divisor_override": 6}), (0.0, {"count_include_pad": False}), (-1.0, {})]


@looped("case", WINDOWS)
@looped("kind", KINDS)
def test_pooling(kernels: HostKernels, kind: str, case: tuple[Any, ...]) -> None:
    """Of equal numbers torch takes the first, of NaN the last, and of a window of -infinity the first."""
    size, kernel, stride, padding, dilation, ceil_mode = case
    plain = np.round(2*numbers(kind, (2, 3, *size), 1))
    odd = plain.copy()
    odd[0, 0, 2:4, 1:4], odd[0, 1, 1, 1], odd[1, 1, 2, 2] = np.nan, -np.inf, np.inf
    odd[1, 2] = -np.inf
    for values in (plain, odd):
        check(kernels, kind, values, "max", lambda x: functional.max_pool2d(
            x, kernel, stride, padding, dilation, ceil_mode), (*kernel, *stride, *padding, *dilation))
    for divisor, options in DIVISORS:
        check(kernels, kind, plain, "avg", lambda x, options=options: functional.avg_pool2d(
            x, kernel, stride, padding, ceil_mode, **options), (*kernel, *stride, *padding), np.float64(divisor))


@looped("output_size", [(3, 2), (7, 6), (5, 9)])
@looped("kind", KINDS)
def test_adaptive_maxima(kernels: HostKernels, kind: str, output_size: tuple[int, int]) -> None:
    """Their windows are those of a kernel of 0."""
    check(kernels, kind, np.round(2*numbers(kind, (2, 3, 7, 6), 1)), "max",
          lambda x: functional.adaptive_max_pool2d(x, output_size), (0, 0, 1, 1, 0, 0, 1, 1))


def check(kernels: HostKernels, kind: str, values: np.ndarray, name: str,
          pool: Callable[[torch.Tensor], torch.Tensor], settings: tuple[int, ...], *reals: np.float64) -> None:
    """Both passes of a pooling beside torch."""
    memory = Memory()
    x = wide(values)
    right = pool(x)
    given, dy = memory.put(values), memory.put(numbers(kind, tuple(right.shape), 2))
    right.backward(torch.tensor(dy.astype(np.float64)))
    y, dx = memory.out(dy.shape, dy.dtype), memory.out(values.shape, dy.dtype)
    rest = (*i8(values.shape[3], values.shape[2], dy.shape[3], dy.shape[2], *settings), *reals)
    kernels.launch(f"cnn_{name}_pool_{kind}", 2, np.int64(y.size), given, y, *rest)
    assert ulps(y, right) <= 0.5
    read = [given] if name == "max" else []
    kernels.launch(f"cnn_{name}_pool_backward_{kind}", 2, np.int64(dx.size), *read, dy, dx, *rest)
    assert x.grad is not None and ulps(dx, x.grad, 4.0) <= 1
    memory.check()

#: torch's call, the rule's number, and its settings for height and width
RESIZED: list[tuple[Callable[[torch.Tensor], torch.Tensor], int, tuple[int, int]]] = [
    (lambda x: functional.interpolate(x, scale_factor=(2, 3), mode="nearest"), 1, (2, 3)),
    (lambda x: functional.interpolate(x, scale_factor=(2, 3), mode="bilinear"), 2, (2, 3)),
    (lambda x: functional.interpolate(x, scale_factor=(5, 4), mode="bilinear"), 2, (5, 4)),
    (lambda x: functional.interpolate(x, scale_factor=(2, 3), mode="bilinear", align_corners=True), 3, (2, 3)),
    (lambda x: functional.pad(x, (1, 2, 3, 0)), 4, (3, 1)),
    (lambda x: functional.pad(x, (1, 2, 4, 3), mode="replicate"), 5, (4, 1)),
    (lambda x: functional.pad(x, (1, 3, 3, 2), mode="reflect"), 6, (3, 1)),
    (lambda x: functional.pad(x, (4, 4, 3, 3), mode="reflect"), 6, (3, 4)),
    (lambda x: functional.adaptive_avg_pool2d(x, (3, 4)), 7, (3, 4)),
    (lambda x: functional.adaptive_avg_pool2d(x, (7, 2)), 7, (7, 2)),
]


@looped("case", RESIZED)
@looped("kind", KINDS)
def test_resampling(kernels: HostKernels, kind: str,
                    case: tuple[Callable[[torch.Tensor], torch.Tensor], int, tuple[int, int]]) -> None:
    formula, rule, amounts = case
    memory = Memory()
    for h, w in ((4, 5), (1, 1), (9, 6)):
        if rule == 6 and h == 1:
            continue
        x = memory.put(numbers(kind, (2, 3, h, w), 1))
        z = wide(x)
        right = formula(z)
        dy = memory.put(numbers(kind, tuple(right.shape), 2))
        right.backward(torch.tensor(dy.astype(np.float64)))
        y, dx = memory.out(dy.shape, x.dtype), memory.out(x.shape, x.dtype)
        settings = i8(w, h, dy.shape[3], dy.shape[2], rule, *amounts)
        kernels.launch(f"cnn_resample_{kind}", 2, np.int64(y.size), x, y, *settings)
        kernels.launch(f"cnn_resample_backward_{kind}", 2, np.int64(dx.size), dy, dx, *settings)
        assert z.grad is not None
        # In float64 torch's places, weights and sums are rounded as ours are
        assert ulps(y, right, 4.0) <= (0.51 if kind == "f32" else 8)
        assert ulps(dx, z.grad, 16.0) <= (0.51 if kind == "f32" else 8)
    memory.check()


@looped("turned", [(False, False), (False, True), (True, False)])
@looped("kind", KINDS)
def test_matrix_products(kernels: HostKernels, kind: str, turned: tuple[bool, bool]) -> None:
    memory, (m, k, n) = Memory(), (3, 5, 4)
    a = memory.put(numbers(kind, (6, k, m) if turned[0] else (6, m, k), 1))
    b = memory.put(numbers(kind, (6, n, k) if turned[1] else (6, k, n), 2))
    y = memory.out((6, m, n), a.dtype)
    kernels.launch(f"cnn_matmul_{kind}", 2, np.int64(y.size), a, b, y, *i8(
        n, m, k, *((1, m) if turned[0] else (k, 1)), m*k, *((k, 1) if turned[1] else (1, n)), k*n))
    memory.check()
    left = a.astype(float).transpose(0, 2, 1) if turned[0] else a.astype(float)
    right = b.astype(float).transpose(0, 2, 1) if turned[1] else b.astype(float)
    assert ulps(y, left @ right, 4.0) <= 3
