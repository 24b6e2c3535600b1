# SPDX-License-Identifier: MIT
"""The kernels of graphs, run on a CPU against torch: from their source, and from the PTX that a GPU would get.

Functions of each number and of two tensors, sums, Adam.
torch computes in float64, from the same numbers; a result is right where it is that, rounded, or a neighbour of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
import torch

from bridge.operations import OPERATIONS, Operation
from bridge.operations.hyperparameters import fields
from bridge.operations.hyperparameters import numbers as hyperparameters
from bridge.operations.pointwise import Pointwise
from bridge.operations.table import rows
from tests.helpers.cuda.graph_kernels import GRIDS, counted, i8, numbers, strides, ulps, wide
from tests.helpers.cuda.kernel_memory import KINDS, Memory, special
from tests.helpers.loops import looped
from tests.software_device.host_kernels import HostKernels


def with_extremes(kind: str, largest: float, seed: int) -> np.ndarray:
    """Numbers up to +-largest, small ones, and every special one."""
    steps = np.linspace(-largest, largest, 4001)
    wp = KINDS[kind]
    return np.concatenate([special(wp, 300, seed), steps.astype(wp), (steps*1e-9).astype(wp)])

#: Functions of each number, with settings that are exact in both precisions; ReLUs have a kernel of their own
POINTWISE: dict[str, Operation] = {
    kind: one("it", *(0.25, 0.5)[:len(fields(one))])
    for kind, one in OPERATIONS.items() if issubclass(one, Pointwise) and kind != "relu"}

NUMBERS = counted("functions")
#: NaN of larger numbers
TURNED, MOST_TURNED = ("cos", "sin"), 2.0**27
#: Those that multiply a number far below 0 by a small difference from 1
CANCEL = ("gelu", "gelu_tanh")
OF_OUTPUT = {kind for kind in NUMBERS if re.search(r"\by\b", rows("functions")[kind]["gradient"])}


def test_every_function_has_a_number() -> None:
    assert NUMBERS.keys() == POINTWISE.keys()
    assert OF_OUTPUT


@looped("blocks", GRIDS)
@looped("name", POINTWISE)
@looped("kind", KINDS)
def test_functions_of_each_element(kernels: HostKernels, kind: str, name: str, blocks: int) -> None:
    """Forward over the whole range, with NaN and infinities as torch has them; backward at ordinary numbers."""
    memory, settings = Memory(), [value for (value,) in hyperparameters(POINTWISE[name]).values()]
    given = [np.int64(NUMBERS[name]), *map(np.float64, (*settings, 0.0, 0.0)[:2])]

    def formula(z: torch.Tensor) -> torch.Tensor:
        if name.startswith("hard"):  # whose constants torch has in float32
            return (z if name == "hardswish" else 1) * ((z + 3).clamp(0, 6) / 6)
        found: torch.Tensor = POINTWISE[name].torch_forward([z], {})
        return found

    z = memory.put(with_extremes(kind, 85.0 if kind == "f32" else 700.0, 3))
    y = memory.out(z.shape, z.dtype)
    kernels.launch(f"cnn_pointwise_{kind}", blocks, np.int64(z.size), z, y, *given)
    memory.check()
    right = formula(wide(z))
    if name in TURNED:
        right = torch.where(wide(z).abs() <= MOST_TURNED, right, torch.nan)
    # An exponential, a sum, a quotient and perhaps a product are rounded, and in float64 torch's are not exact either
    scale = 1.0 if name in CANCEL else float(np.finfo(z.dtype).tiny)
    assert ulps(y, right, scale) <= (3 if kind == "f32" else 4)

    z, dy = numbers(kind, 500, 4), memory.put(numbers(kind, 500, 5))
    x = wide(z)
    formula(x).backward(torch.tensor(dy.astype(np.float64)))
    assert x.grad is not None
    read = memory.put(formula(x).detach().numpy().astype(z.dtype) if name in OF_OUTPUT else z)
    dx = memory.out(z.shape, z.dtype)
    kernels.launch(f"cnn_pointwise_backward_{kind}", blocks, np.int64(z.size), read, dy, dx, *given)
    memory.check()
    # y is rounded: 1 - y has that error
    found = ulps(dx, x.grad, float(np.abs(dy).max()))
    assert found <= 3, found


@looped("kind", KINDS)
def test_sums_copies_and_masks(kernels: HostKernels, kind: str) -> None:
    """To the bit: each is one operation."""
    memory, size = Memory(), 777
    a, b = memory.put(special(KINDS[kind], size, 1)), memory.put(special(KINDS[kind], size, 2))
    y, total, kept = memory.out(size, a.dtype), memory.inout(b), memory.out(size, a.dtype)
    mask = memory.put((np.arange(size) % 3 > 0).astype(a.dtype))
    with np.errstate(over="ignore", invalid="ignore"):
        kernels.launch(f"cnn_accumulate_{kind}", 2, np.int64(size), a, total)
        np.testing.assert_array_equal(total, b + a)
        for pixels in (1, 7):
            kernels.launch(f"cnn_dropout_{kind}", 2, np.int64(size), a, mask, kept, np.int64(pixels), np.float64(2))
            np.testing.assert_array_equal(kept, a*(mask*2)[np.arange(size)//pixels])
    kernels.launch(f"cnn_copy_{kind}", 2, np.int64(size), a, y)
    assert y.tobytes() == a.tobytes()
    images, bias = memory.inout(numbers(kind, (2, 3, 35), 5)), memory.put(numbers(kind, 3, 6))
    before = images.copy()
    kernels.launch(f"cnn_add_bias_{kind}", 2, np.int64(images.size), bias, images, *i8(35, 3))
    np.testing.assert_array_equal(images, before + bias[None, :, None])
    memory.check()


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_is_torchs(kernels: HostKernels, decoupled: bool) -> None:
    size, lr, decay = 400, 0.05, 0.1
    w, m, v = np.random.default_rng(1).standard_normal(size), np.zeros(size), np.zeros(size)
    weights = torch.tensor(w, requires_grad=True)
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    optimizer = kind([weights], lr=lr, betas=(0.8, 0.95), eps=1e-6, weight_decay=decay)
    for step in range(1, 5):
        g = np.random.default_rng(step).standard_normal(size)
        weights.grad = torch.from_numpy(g.copy())
        optimizer.step()
        kept, added = (1 - lr*decay, 0.0) if decoupled else (1.0, decay)
        kernels.launch("cnn_adam_f64", 2, np.int64(size), g, w, m, v, *np.array(
            [lr, 0.8, 0.95, 1e-6, kept, added, 1 - 0.8**step, 1 - 0.95**step]))
        np.testing.assert_allclose(w, weights.detach().numpy(), rtol=0, atol=16*np.finfo(float).eps)
    single = [array.astype(np.float32) for array in (g, w, m, v)]
    kernels.launch("cnn_adam_f32", 2, np.int64(size), *single, *np.array([lr, 0.8, 0.95, 1e-6, 1, 0, 0.5, 0.5]))
    d = single[0].astype(float)
    average, square = 0.8*m.astype(np.float32) + (1 - 0.8)*d, 0.95*v.astype(np.float32) + (1 - 0.95)*d*d
    assert ulps(single[1], w.astype(np.float32) - lr*(average/0.5)/(np.sqrt(square/0.5) + 1e-6), 0.1) <= 1

SHAPES = [((2, 3, 4, 5), (1, 3, 1, 1)), ((2, 3, 4, 5), (2, 1, 4, 1)), ((1, 1, 4, 5), (2, 3, 1, 5)),
          ((2, 3, 4, 5), (1, 1, 1, 1))]


@looped("blocks", GRIDS)
@looped("shapes", SHAPES)
@looped("kind", KINDS)
def test_sums_of_boxes(kernels: HostKernels, kind: str, shapes: tuple[tuple[int, ...], tuple[int, ...]],
                                   blocks: int) -> None:
    memory = Memory()
    b, whole = np.empty(shapes[1], KINDS[kind]), np.broadcast_shapes(*shapes)
    dy = memory.put(numbers(kind, whole, 7))
    for parts in (1, 4):
        partial = memory.out((b.size, parts), np.float64)
        box = [big if small == 1 else 1 for big, small in zip(whole, b.shape, strict=True)]
        kernels.launch(f"cnn_box_sums_{kind}", blocks, np.int64(partial.size), dy, partial, *i8(
            parts, math.prod(box), *b.shape[:0:-1], *box[:0:-1]), *strides(whole, whole), np.float64(2))
        axes = tuple(i for i in range(4) if b.shape[i] == 1)
        right = dy.astype(np.float64).sum(axis=axes, keepdims=True)/2
        np.testing.assert_allclose(partial.sum(axis=1).reshape(b.shape), right, rtol=0, atol=1e-14)
    memory.check()

#: torch's functions of two numbers
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    **{kind: getattr(torch, kind) for kind in ("add", "subtract", "multiply", "divide")},
    "prelu": lambda a, b: torch.where(a > 0, a, a*b)}

BINARY_NUMBERS = counted("arithmetic")


@looped("blocks", GRIDS)
@looped("shapes", [*SHAPES, ((2, 3, 4, 5), (2, 3, 4, 5))])
@looped("name", BINARY)
@looped("kind", KINDS)
def test_functions_of_two_tensors(kernels: HostKernels, kind: str, name: str,
                                  shapes: tuple[tuple[int, ...], tuple[int, ...]], blocks: int) -> None:
    """Outputs to the bit; gradients of both, and their sums over what was broadcast."""
    memory, function, f = Memory(), BINARY[name], BINARY_NUMBERS[name]
    a, b = (memory.put(numbers(kind, shape, seed)) for seed, shape in enumerate(shapes))
    whole = np.broadcast_shapes(*shapes)
    y, dy = memory.out(whole, a.dtype), memory.put(numbers(kind, whole, 7))
    steps = [*i8(*whole[:0:-1]), *strides(a.shape, whole), *strides(b.shape, whole)]
    kernels.launch(f"cnn_combine_broadcast_{kind}", blocks, np.int64(y.size), a, b, y, *steps, np.int64(f))
    np.testing.assert_array_equal(y, function(torch.from_numpy(a), torch.from_numpy(b)).numpy())
    if a.shape == b.shape:
        y[...] = 0
        kernels.launch(f"cnn_combine_{kind}", blocks, np.int64(y.size), a, b, y, np.int64(f))
        np.testing.assert_array_equal(y, function(torch.from_numpy(a), torch.from_numpy(b)).numpy())
    pair = [wide(a), wide(b)]
    (function(*pair)*torch.from_numpy(dy.astype(np.float64))).sum().backward()
    for operand, one in enumerate(pair, 1):
        assert one.grad is not None
        right, extents = one.grad.numpy(), one.shape
        if tuple(extents) == whole:
            dx = memory.out(whole, a.dtype)
            kernels.launch(f"cnn_combine_backward_{kind}", blocks, np.int64(dy.size), a, b, dy, dx, *steps,
                           *i8(f, operand))
            assert ulps(dx, right) <= 2
        for parts in (1, 4):
            partial = memory.out((right.size, parts), np.float64)
            box = [big if small == 1 else 1 for big, small in zip(whole, extents, strict=True)]
            kernels.launch(f"cnn_combine_sums_{kind}", blocks, np.int64(partial.size), a, b, dy, partial, *i8(
                parts, math.prod(box), *extents[:0:-1], *box[:0:-1]), *strides(whole, whole), *steps[3:],
                *i8(f, operand))
            slack = 8*np.finfo(a.dtype).eps*np.abs(right).max() + 8*np.finfo(a.dtype).eps*math.prod(box)
            np.testing.assert_allclose(partial.sum(axis=1).reshape(extents), right, rtol=0, atol=slack)
    memory.check()


@looped(("images", "pixels"), [(2, 20), (70, 20), (2, 700)])
@looped("kind", KINDS)
def test_channels_are_copied(kernels: HostKernels, kind: str, images: int, pixels: int) -> None:
    """Into the middle of more, and back; rows shorter than the threads and longer."""
    memory, wp = Memory(), KINDS[kind]
    part = memory.put(special(wp, images*3*pixels, 1).reshape(images, 3, pixels))
    whole, back = memory.inout(np.zeros((images, 7, pixels), wp)), memory.out(part.shape, wp)
    row, first, step = 3*pixels, 2*pixels, 7*pixels
    kernels.launch(f"cnn_copy_rows_{kind}", 2, np.int64(part.size), part, whole, *i8(row, 0, row, first, step))
    assert whole[:, 2:5].tobytes() == part.tobytes() and not whole[:, :2].any() and not whole[:, 5:].any()
    kernels.launch(f"cnn_copy_rows_{kind}", 2, np.int64(part.size), whole, back, *i8(row, first, step, 0, row))
    assert back.tobytes() == part.tobytes()
    memory.check()
