# SPDX-License-Identifier: MIT
"""The kernels of graphs, run on a CPU against torch: from their source, and from the PTX that a GPU would get.

torch computes in float64, from the same numbers; a result is right where it is that, rounded, or a neighbour of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from bridge.operations import OPERATIONS, Operation
from bridge.operations.hyperparameters import fields
from bridge.operations.hyperparameters import numbers as hyperparameters
from bridge.operations.losses import LOSSES, CrossEntropy, Loss, PairLoss, settings
from bridge.operations.pointwise import Pointwise
from bridge.operations.table import rows
from reference.spline import Spline
from tests.helpers.cuda.kernel_memory import KINDS, Memory, special
from tests.helpers.loops import looped
from tests.software_device.host_kernels import BLOCK, HostKernels

GRIDS = (1, 3)


def numbers(kind: str, shape: int | tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(KINDS[kind])


def wide(array: np.ndarray) -> torch.Tensor:
    return torch.tensor(array.astype(np.float64), requires_grad=True)


def ulps(found: np.ndarray, expected: np.ndarray | torch.Tensor, scale: float = 0.0) -> float:
    """The largest distance in units of the last place, of `scale` where numbers are smaller; NaN only beside NaN, and
    infinities at the same places."""
    if isinstance(expected, torch.Tensor):
        expected = expected.detach().numpy()
    with np.errstate(over="ignore"):
        narrow = expected.astype(found.dtype)
    assert found.shape == narrow.shape
    assert np.array_equal(np.isnan(found), np.isnan(narrow))
    assert np.array_equal(np.where(np.isinf(found), found, 0), np.where(np.isinf(narrow), narrow, 0))
    finite = np.isfinite(found)
    magnitude = np.clip(np.abs(narrow[finite]), found.dtype.type(scale), np.finfo(found.dtype).max/2)
    spacing = np.spacing(magnitude).astype(np.float64)
    return float(np.max(np.abs(found[finite].astype(np.float64) - expected[finite])/spacing, initial=0))


def i8(*values: int) -> list[np.int64]:
    return [np.int64(value) for value in values]


def with_extremes(kind: str, largest: float, seed: int) -> np.ndarray:
    """Numbers up to +-largest, small ones, and every special one."""
    steps = np.linspace(-largest, largest, 4001)
    wp = KINDS[kind]
    return np.concatenate([special(wp, 300, seed), steps.astype(wp), (steps*1e-9).astype(wp)])


#: Functions of each number, with settings that are exact in both precisions; ReLUs have a kernel of their own
POINTWISE: dict[str, Operation] = {
    kind: one("it", *(0.25, 0.5)[:len(fields(one))])
    for kind, one in OPERATIONS.items() if issubclass(one, Pointwise) and kind != "relu"}


def counted(family: str) -> dict[str, int]:
    """The numbers by which the kernels know the functions of a family of the table."""
    return {kind: i for i, kind in enumerate((kind for kind, row in rows(family).items() if "value" in row), 1)}


NUMBERS = counted("functions")
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
        found: torch.Tensor = POINTWISE[name].torch_forward([z], {})
        return found

    z = memory.put(with_extremes(kind, 85.0 if kind == "f32" else 700.0, 3))
    y = memory.out(z.shape, z.dtype)
    kernels.launch(f"cnn_pointwise_{kind}", blocks, np.int64(z.size), z, y, *given)
    memory.check()
    right = formula(wide(z))
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


def strides(shape: tuple[int, ...], whole: tuple[int, ...]) -> list[np.int64]:
    """Of an array along the axes of another, the last first; 0 where it is broadcast."""
    return i8(*(0 if shape[i] < whole[i] else math.prod(shape[i + 1:]) for i in (3, 2, 1, 0)))


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


@looped("blocks", GRIDS)
@looped("logarithm", [0, 1])
@looped("kind", KINDS)
def test_softmax(kernels: HostKernels, kind: str, logarithm: int, blocks: int) -> None:
    memory = Memory()
    values = 20*numbers(kind, (2, 5, 33), 1)
    values[0, :, 0], values[0, 1, 1], values[0, 2, 2], values[1, 0, 3] = 1e30, np.nan, np.inf, -np.inf
    x, dy = memory.put(values), memory.put(numbers(kind, values.shape, 2))
    y, dx = memory.out(x.shape, x.dtype), memory.out(x.shape, x.dtype)
    formula = functional.log_softmax if logarithm else functional.softmax
    kernels.launch(f"cnn_softmax_{kind}", blocks, np.int64(66), x, y, *i8(33, 5, logarithm))
    right = formula(wide(x), dim=1)
    # The difference from the largest is rounded once, and may be large: of the logarithm its own unit
    scale = 100.0 if logarithm else 0.0
    assert ulps(y[:, :, 4:], right[:, :, 4:], scale) <= (2 if logarithm else 90)
    assert np.array_equal(np.isnan(y), np.isnan(right.detach().numpy()))
    usual = memory.put(numbers(kind, x.shape, 3))
    z = wide(usual)
    formula(z, dim=1).backward(torch.tensor(dy.astype(np.float64)))
    output = memory.put(formula(z, dim=1).detach().numpy().astype(x.dtype))
    kernels.launch(f"cnn_softmax_backward_{kind}", blocks, np.int64(66), output, dy, dx, *i8(33, 5, logarithm))
    assert z.grad is not None
    assert ulps(dx, z.grad, 4.0) <= 4
    memory.check()


LOSS_NUMBERS = counted("losses")
#: Sums of losses of each output and its target, with a setting that is exact in both precisions
PAIRS: dict[str, tuple[Loss, float]] = {
    kind: (LOSSES[kind](False, *[1.5] * len(settings(LOSSES[kind]))), 1.5) for kind in LOSS_NUMBERS}


def test_every_loss_of_pairs_has_a_number() -> None:
    assert LOSS_NUMBERS.keys() == {kind for kind, one in LOSSES.items() if issubclass(one, PairLoss)}


@looped("name", PAIRS)
@looped("kind", KINDS)
def test_losses_of_pairs(kernels: HostKernels, kind: str, name: str) -> None:
    memory, blocks, (loss, setting) = Memory(), 2, PAIRS[name]
    rng = np.random.default_rng(1)
    if name == "bce":
        y = memory.put(rng.uniform(1e-3, 1 - 1e-3, (3, 4, 50)).astype(KINDS[kind]))
    else:
        y = memory.put(3*numbers(kind, (3, 4, 50), 1))
    t = memory.put(rng.uniform(0, 1, y.shape).astype(y.dtype))
    dy, partial_sums = memory.out(y.shape, y.dtype), memory.out(blocks*BLOCK, np.float64)
    chosen = np.int64(LOSS_NUMBERS[name])
    kernels.launch(f"cnn_pair_loss_{kind}", blocks, np.int64(y.size), y, t, dy, partial_sums, chosen, np.float64(0.5),
                   np.float64(setting))
    memory.check()
    x, target = wide(y), wide(t).detach()
    right = loss.torch_forward(x, target)
    (0.5*right).backward()
    # Differences, exponentials and logarithms are rounded in the tensors' own precision
    assert abs(math.fsum(partial_sums) - right.item()) <= 1e-15*right.item()*(1 if kind == "f64" else 2.0**29)
    assert x.grad is not None and ulps(dy, x.grad, 4.0) <= 2


@looped("name", PAIRS)
@looped("kind", KINDS)
def test_special_numbers_of_losses(kernels: HostKernels, kind: str, name: str) -> None:
    """What torch has, of each pair by itself; where it refuses what is no probability, NaN."""
    given, setting = PAIRS[name]
    largest = float(np.finfo(KINDS[kind]).max)
    edges = [0.0, -0.0, 1.0, setting, -setting, 1 + setting, 1e-30, -1e-30, 90.0, -90.0, 1000.0, -1000.0, largest,
             np.inf, -np.inf, np.nan]
    for one in edges:
        for target in (0.0, 1.0, 0.5):
            memory = Memory()
            y, t = (memory.put(np.array([number], KINDS[kind])) for number in (one, target))
            dy, partial_sums = memory.out(y.shape, y.dtype), memory.out(BLOCK, np.float64)
            kernels.launch(f"cnn_pair_loss_{kind}", 1, np.int64(1), y, t, dy, partial_sums,
                           np.int64(LOSS_NUMBERS[name]), np.float64(1), np.float64(setting))
            memory.check()
            x = torch.tensor(y, requires_grad=True)
            loss = partial_sums.sum()
            if name == "bce" and not 0 <= one <= 1:
                assert np.isnan(loss)
                continue
            right = given.torch_forward(x, torch.tensor(t))
            right.backward()
            assert x.grad is not None
            said, near = str((one, target)), 8*np.finfo(y.dtype).eps
            with np.errstate(over="ignore"):
                np.testing.assert_allclose(y.dtype.type(loss), right.item(), rtol=near, atol=near, err_msg=said)
            if not (name == "l1" and np.isnan(one)):  # of which torch's sign is 0
                np.testing.assert_allclose(dy, x.grad.numpy(), rtol=near, atol=near, err_msg=said)


@looped("kind", KINDS)
def test_cross_entropy(kernels: HostKernels, kind: str) -> None:
    memory, blocks = Memory(), 2
    y = memory.put(3*numbers(kind, (3, 4, 50), 1))
    t = memory.put(np.abs(numbers(kind, y.shape, 2)))
    dy, partial_sums = memory.out(y.shape, y.dtype), memory.out(blocks*BLOCK, np.float64)
    n, channels = y.size//4, i8(50, 4)
    kernels.launch(f"cnn_cross_entropy_{kind}", blocks, np.int64(n), y, t, dy, partial_sums, *channels, np.float64(0.5))
    memory.check()
    x, target = wide(y), wide(t).detach()
    right = functional.cross_entropy(x, target, reduction="sum")
    (0.5*right).backward()
    # Differences and exponentials are rounded in the tensors' own precision
    assert abs(math.fsum(partial_sums) - right.item()) <= 1e-15*right.item()*(1 if kind == "f64" else 2.0**29)
    assert x.grad is not None and ulps(dy, x.grad, 4.0) <= 2
    nothing = np.full_like(y, np.nan)
    kernels.launch(f"cnn_cross_entropy_{kind}", 1, np.int64(n), nothing, t, dy, partial_sums, *channels, np.float64(1))
    assert np.isnan(dy).all()


@looped("settings", [
    {}, {"weight": (1.0, 0.0, 2.5, 0.5)}, {"class_indices": True}, {"class_indices": True, "ignore_index": 2},
    {"class_indices": True, "ignore_index": 1, "weight": (1.0, 3.0, 2.5, 0.5), "label_smoothing": 0.25}])
@looped("kind", KINDS)
def test_cross_entropy_of_classes(kernels: HostKernels, kind: str, settings: dict[str, Any]) -> None:
    memory, blocks, loss = Memory(), 2, CrossEntropy(mean=False, **settings)
    values, t = 3*numbers(kind, (3, 4, 50), 1), np.abs(numbers(kind, (3, 4, 50), 2))
    if loss.class_indices:
        t = np.moveaxis(np.eye(4)[np.random.default_rng(3).integers(0, 4, (3, 50))], -1, 1).astype(t.dtype)
        t[:, :, 7] = 0
        values[:, :, 7] = np.inf
        if not loss.label_smoothing:
            values[(t == 0) & (np.random.default_rng(4).random(t.shape) < 0.1)] = -np.inf
    y, t = memory.put(values), memory.put(t)
    weights = memory.put(np.array(loss.weight or (1, 1, 1, 1), y.dtype))
    dy, partial_sums = memory.out(y.shape, y.dtype), memory.out(blocks*BLOCK, np.float64)
    flags = i8(int(loss.class_indices), max(loss.ignore_index, -1) + 1)
    kernels.launch(f"cnn_class_entropy_{kind}", blocks, np.int64(150), y, t, weights, dy, partial_sums, *i8(50, 4),
                   *flags, np.float64(0.5), np.float64(loss.label_smoothing))
    memory.check()
    x = wide(y)
    right = loss.torch_forward(x, wide(t).detach())
    (0.5*right).backward()
    assert abs(math.fsum(partial_sums) - right.item()) <= 1e-15*right.item()*(1 if kind == "f64" else 2.0**29)
    assert x.grad is not None and ulps(dy, x.grad, 4.0) <= 2


WINDOWS = [((9, 7), (3, 2), (2, 1), (1, 0)), ((6, 6), (2, 2), (2, 2), (0, 0)), ((5, 8), (4, 3), (1, 2), (2, 1)),
           ((7, 5), (1, 2), (3, 2), (0, 1)), ((7, 6), (3, 2), (2, 2), (1, 0)), ((5, 7), (2, 3), (2, 2), (0, 1))]


@looped("case", WINDOWS)
@looped("kind", KINDS)
def test_pooling(kernels: HostKernels, kind: str, case: tuple[tuple[int, int], ...]) -> None:
    """Of equal numbers torch takes the first, of NaN the last, and of a window of -infinity the first."""
    size, kernel, stride, padding = case
    memory = Memory()
    plain = np.round(2*numbers(kind, (2, 3, *size), 1))
    odd = plain.copy()
    odd[0, 0, 2:4, 1:4], odd[0, 1, 1, 1], odd[1, 1, 2, 2] = np.nan, -np.inf, np.inf
    odd[1, 2] = -np.inf
    for name, values in (("avg", plain), ("max", plain), ("max", odd)):
        x = wide(values)
        pool = functional.avg_pool2d if name == "avg" else functional.max_pool2d
        right = pool(x, kernel, stride, padding)
        given, dy = memory.put(values), memory.put(numbers(kind, tuple(right.shape), 2))
        right.backward(torch.tensor(dy.astype(np.float64)))
        y, dx = memory.out(dy.shape, dy.dtype), memory.out(values.shape, dy.dtype)
        settings = i8(size[1], size[0], dy.shape[3], dy.shape[2], *kernel, *stride, *padding)
        kernels.launch(f"cnn_{name}_pool_{kind}", 2, np.int64(y.size), given, y, *settings)
        assert ulps(y, right) <= 0.5
        read = [given] if name == "max" else []
        kernels.launch(f"cnn_{name}_pool_backward_{kind}", 2, np.int64(dx.size), *read, dy, dx, *settings)
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


#: Pixels of an image: fewer than a row of blocks has threads, and so many that a thread takes several, of all images
NORMALISED = (40, 700)


@looped("pixels", NORMALISED)
@looped("kind", KINDS)
def test_statistics_follow_as_torchs(kernels: HostKernels, kind: str, pixels: int) -> None:
    """Moments, statistics and normalisation of a step, and those by running statistics, which stay."""
    memory, wp = Memory(), KINDS[kind]
    x, count, blocks = memory.put(5 + numbers(kind, (3, 2, pixels), 1)), 3.0*pixels, 1
    sizes = i8(pixels, 2, 3)
    sums = []
    for order in (1, 2):
        partial = memory.out((2, blocks*BLOCK), np.float64)
        kernels.launch(f"cnn_moments_{kind}", (blocks, 2), *sizes, x, sums[0] if sums else None, partial,
                       np.int64(order), np.float64(count))
        sums.append(memory.put(partial.sum(axis=1)))
    norm = torch.nn.BatchNorm2d(2, eps=0.01, momentum=0.25, dtype=torch.float64)
    running, weight, bias = memory.inout(np.array([[0, 0], [1, 1]], wp)), numbers(kind, 2, 2), numbers(kind, 2, 3)
    means, scales, y = memory.out(2, np.float64), memory.out(2, np.float64), memory.out(x.shape, wp)
    with torch.no_grad():
        norm.weight.copy_(torch.from_numpy(weight))
        norm.bias.copy_(torch.from_numpy(bias))
    for training in (1, 0):
        norm.train(bool(training))
        kernels.launch(f"cnn_statistics_{kind}", 1, np.int64(2), *sums, *running, means, scales,
                       *i8(training, training), *np.array([count, 0.01, 0.25]))
        kernels.launch(f"cnn_normalize_{kind}", (blocks, 2), *sizes, x, weight, bias, means, scales, y)
        right = norm(torch.from_numpy(x.astype(float))[..., None])
        assert norm.running_mean is not None and norm.running_var is not None
        # In float64 torch's sums are rounded as ours are
        assert ulps(running, np.stack([norm.running_mean.numpy(), norm.running_var.numpy()]), 1.0) <= 8
        assert ulps(y, right[..., 0], 8.0) <= 8
    memory.check()


@looped("training", [1, 0])
@looped("pixels", NORMALISED)
@looped("kind", KINDS)
def test_gradients_of_normalised_channels_are_torchs(kernels: HostKernels, kind: str, pixels: int,
                                                     training: int) -> None:
    memory, wp, blocks, sizes = Memory(), KINDS[kind], 1, i8(pixels, 2, 3)
    x, dy = memory.put(5 + numbers(kind, (3, 2, pixels), 1)), memory.put(numbers(kind, (3, 2, pixels), 2))
    weight, wide = memory.put(numbers(kind, 2, 3)), torch.from_numpy(x.astype(float)).requires_grad_()
    mean, variance = (torch.tensor(two, dtype=torch.float64) for two in ([4.0, 6.0], [2.0, 3.0]))
    factor = torch.from_numpy(weight.astype(float)).requires_grad_()
    y = torch.nn.functional.batch_norm(wide, mean, variance, factor, training=bool(training), momentum=0.0, eps=0.01)
    dwide, dfactor = torch.autograd.grad(y, (wide, factor), torch.from_numpy(dy.astype(float)))
    if training:
        mean, variance = wide.detach().mean(dim=(0, 2)), wide.detach().var(dim=(0, 2), correction=0)
    means, scales = memory.put(mean.numpy()), memory.put(1/np.sqrt(variance.numpy() + 0.01))
    sums, (dweight, dbias, dx) = memory.out((2, 2, blocks*BLOCK), np.float64), (
        memory.out(shape, wp) for shape in (2, 2, x.shape))
    kernels.launch(f"cnn_norm_gradients_{kind}", (blocks, 2), *sizes, x, dy, means, scales, sums)
    totals = memory.put(sums.sum(axis=2))
    right = np.stack([dfactor.numpy(), dy.astype(float).sum(axis=(0, 2))])
    np.testing.assert_allclose(totals, right, rtol=1e-12, atol=1e-10)
    kernels.launch(f"cnn_normalize_backward_{kind}", (blocks, 2), *sizes, x, weight, dy, means, scales, totals,
                   dweight, dbias, dx, np.int64(training), np.float64(3.0*pixels))
    assert ulps(dx, dwide, 1.0) <= 8
    np.testing.assert_array_equal([dweight, dbias], totals.astype(wp))
    memory.check()


@pytest.mark.parametrize("channels", [2, 3, 45, 181])
def test_logarithms(kernels: HostKernels, channels: int) -> None:
    """Of as many equal numbers as there are: those whose series is longest, too."""
    y = np.empty(channels)
    kernels.launch("cnn_softmax_f64", 1, np.int64(1), np.zeros(channels), y, *i8(1, channels, 1))
    assert ulps(y, np.full(channels, -math.log(channels))) <= 1


#: Numbers of a column, columns of a row, groups, rows: of layers, and of groups of channels
ROWS = [(1, 37, 1, 6), (20, 3, 2, 8), (60, 1, 1, 5)]


@looped("parts", [1, 4])
@looped("form", ROWS)
@looped("kind", KINDS)
def test_rows_are_normalised_as_torchs(kernels: HostKernels, kind: str, form: tuple[int, int, int, int],
                                       parts: int) -> None:
    """Sums, statistics, output and all gradients, with factors and shifts and without."""
    inner, columns, groups, rows = form
    memory, wp, shape = Memory(), KINDS[kind], (rows//groups, groups, columns, inner)
    x, dy = memory.put(5 + numbers(kind, shape, 1)), memory.put(numbers(kind, shape, 2))
    weight, bias = (memory.put(numbers(kind, (groups, columns), seed)) for seed in (3, 4))
    settings, length = i8(inner, columns, groups), inner*columns

    def sums(order: int, means: np.ndarray | None, scales: np.ndarray | None, weighted: int) -> np.ndarray:
        partial = memory.out((rows, parts), np.float64)
        kernels.launch(f"cnn_row_sums_{kind}", 2, np.int64(partial.size), x, weight if weighted else None,
                       dy if order > 2 else None, means, scales, partial, np.int64(parts), *settings,
                       *i8(order, weighted))
        return memory.put(partial.sum(axis=1))

    first = sums(1, None, None, 0)
    second = sums(2, first, None, 0)
    means, scales = memory.out(rows, np.float64), memory.out(rows, np.float64)
    kernels.launch(f"cnn_statistics_{kind}", 1, np.int64(rows), first, second, None, None, means, scales, *i8(1, 0),
                   *np.array([length, 0.01, 0]))
    memory.put(means)
    for weighted in (1, 0):
        z, w, b = wide(x), wide(weight), wide(bias)
        variance, mean = torch.var_mean(z, (2, 3), correction=0, keepdim=True)
        right = (z - mean)/(variance + 0.01).sqrt()
        if weighted:
            right = right*w[..., None] + b[..., None]
        right.backward(torch.tensor(dy.astype(np.float64)))
        y, dx = memory.out(shape, wp), memory.out(shape, wp)
        factors = (weight, bias) if weighted else (None, None)
        kernels.launch(f"cnn_row_normalize_{kind}", 2, np.int64(x.size), x, *factors, means, scales, y,
                       *settings, *i8(weighted, weighted))
        totals, along = (sums(order, means, scales, weighted) for order in (3, 4))
        kernels.launch(f"cnn_row_normalize_backward_{kind}", 2, np.int64(x.size), x, factors[0], dy, means,
                       scales, totals, along, dx, *settings, np.int64(weighted))
        assert z.grad is not None
        assert ulps(y, right, 4.0) <= (0.51 if kind == "f32" else 16)
        assert ulps(dx, z.grad, 4.0) <= (0.51 if kind == "f32" else 16)
        for order, parameter in ((6, w), (5, b)):
            partial = memory.out((groups*columns, parts), np.float64)
            kernels.launch(f"cnn_column_sums_{kind}", 2, np.int64(partial.size), x, dy, means, scales, partial,
                           np.int64(parts), *settings, *i8(rows, order))
            if weighted:
                assert parameter.grad is not None
                found = partial.sum(axis=1).reshape(groups, columns)
                np.testing.assert_allclose(found, parameter.grad, rtol=0, atol=1e-12)
    memory.check()


@looped("scaled", [0, 1])
@looped("order", [2, 3, 4, 5])
@looped("kind", KINDS)
def test_splines_are_the_references(kernels: HostKernels, kind: str, order: int, scaled: int) -> None:
    """Output and all gradients, at the ends of the grid and beyond all knots, too."""
    memory, wp, (features, outputs, grid, rows) = Memory(), KINDS[kind], (3, 4, 5, 37)
    layer = Spline(features, outputs, grid, order, -0.75, 1.75, bool(scaled)).double()
    given = {name: memory.put(numbers(kind, tuple(one.shape), i)) for i, (name, one) in enumerate(
        layer.named_parameters())}
    layer.load_state_dict({name: torch.from_numpy(one.astype(float)) for name, one in given.items()})
    values = 1.5*numbers(kind, (rows, features), 5)
    values[:4] = [[-0.75], [1.75], [-30], [30]]
    x, dy = memory.put(values), memory.put(numbers(kind, (rows, outputs), 6))
    z = wide(x)
    right = layer(z)
    right.backward(torch.from_numpy(dy.astype(float)))
    settings, ends = i8(features, outputs, order, grid), np.array([layer.low, layer.high])
    factors = [given.get(name) for name in ("coefficient", "scale_base", "scale_spline")]
    y, dx = memory.out(dy.shape, wp), memory.out(x.shape, wp)
    kernels.launch(f"cnn_spline_{kind}", 2, np.int64(y.size), x, *factors, y, *settings, np.int64(scaled), *ends)
    kernels.launch(f"cnn_spline_backward_{kind}", 2, np.int64(dx.size), x, *factors, dy, dx, *settings,
                   np.int64(scaled), *ends)
    # The SiLU is rounded in the tensors' own precision, and in float64 torch's sums are rounded as ours are
    assert ulps(y, right, 8.0) <= (2 if kind == "f32" else 8)
    assert z.grad is not None and ulps(dx, z.grad, 4.0) <= (2 if kind == "f32" else 16)
    functions, pairs = grid + order, features*outputs
    found = {name: memory.out(one.shape, wp) for name, one in given.items()}
    for parts in (1, 4):
        partial = memory.out((pairs*(functions + 1), parts), np.float64)
        kernels.launch(f"cnn_spline_sums_{kind}", 2, np.int64(partial.size), x, dy, partial, np.int64(parts), *settings,
                       np.int64(rows), *ends)
        sums = memory.put(partial.sum(axis=1))
        kernels.launch(f"cnn_spline_gradients_{kind}", 1, np.int64(pairs), factors[0] if scaled else None, factors[2],
                       sums, found.get("scale_spline"), found["scale_base"], found["coefficient"],
                       *i8(functions, scaled))
        for name, one in layer.named_parameters():
            assert one.grad is not None and ulps(found[name], one.grad, 4.0) <= (2 if kind == "f32" else 16)
    memory.check()


@looped("axes", [(2, 3), (1, 3), (1, 2)])
@looped("kind", KINDS)
def test_dimensions_are_exchanged(kernels: HostKernels, kind: str, axes: tuple[int, int]) -> None:
    """And divided: the latter with 0 for a stride, as a number that stands for all."""
    memory, shape = Memory(), (2, 3, 4, 5)
    x = memory.put(numbers(kind, shape, 1))
    steps = [math.prod(shape[i + 1:]) for i in range(4)]
    steps[axes[0]], steps[axes[1]] = steps[axes[1]], steps[axes[0]]
    right = np.swapaxes(x, *axes)
    y = memory.out(right.shape, x.dtype)
    kernels.launch(f"cnn_gather_{kind}", 2, np.int64(y.size), x, y, *i8(*right.shape[:0:-1], *steps[::-1]),
                   np.float64(1))
    np.testing.assert_array_equal(y, right)
    mean = memory.put(numbers(kind, (2, 1, 4, 1), 2))
    z = memory.out(shape, x.dtype)
    kernels.launch(f"cnn_gather_{kind}", 2, np.int64(z.size), mean, z, *i8(*shape[:0:-1]), *strides(mean.shape, shape),
                   np.float64(3))
    assert ulps(z, np.broadcast_to(mean.astype(float)/3, shape)) <= 0.5
    memory.check()


@looped("dims", [(3,), (1,), (0, 2), (1, 2, 3)])
@looped("kind", KINDS)
def test_extremes_and_their_gradients(kernels: HostKernels, kind: str, dims: tuple[int, ...]) -> None:
    """Of many equal numbers, and of NaN."""
    memory, shape = Memory(), (2, 3, 4, 5)
    x = memory.put(np.round(2*numbers(kind, shape, 1)))
    kept = tuple(1 if i in dims else n for i, n in enumerate(shape))
    box = [n if i in dims else 1 for i, n in enumerate(shape)]
    dy = memory.put(numbers(kind, kept, 2))
    settings = [*i8(math.prod(box), *kept[:0:-1], *box[:0:-1]), *strides(shape, shape)]
    for sign, to_first in ((1, 0), (-1, 0), (1, 1)):
        y, dx = memory.out(kept, x.dtype), memory.out(shape, x.dtype)
        kernels.launch(f"cnn_extreme_{kind}", 2, np.int64(y.size), x, y, *settings, np.int64(sign))
        z = wide(x)
        right = z.amax(dims, True) if sign > 0 else z.amin(dims, True)
        if to_first and len(dims) == 1:
            right = z.max(dims[0], True).values
        right.backward(torch.tensor(dy.astype(np.float64)))
        np.testing.assert_array_equal(y, right.detach().numpy())
        if to_first and len(dims) > 1:
            continue
        kernels.launch(f"cnn_extreme_backward_{kind}", 2, np.int64(y.size), x, y, dy, dx, *settings, np.int64(to_first))
        assert z.grad is not None and ulps(dx, z.grad) <= 0.5
    odd = x.copy()
    odd[0, 1, 2, 3] = np.nan
    kernels.launch(f"cnn_extreme_{kind}", 2, np.int64(y.size), odd, y, *settings, np.int64(-1))
    np.testing.assert_array_equal(y, torch.from_numpy(odd).amin(dims, True).numpy())
    memory.check()
