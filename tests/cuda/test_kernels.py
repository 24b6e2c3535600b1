# SPDX-License-Identifier: MIT
"""The CUDA Fortran kernels, run on a CPU against numpy: from their source, and from the PTX that a GPU would get.

Nothing is compared with a tolerance where the arithmetic says what each bit must be: every operation is rounded for
itself, and every sum has a given order.
"""

from __future__ import annotations

import ctypes
import itertools
import math

import numpy as np
import pytest
import torch

from tests.helpers.cuda.kernel_memory import KINDS, Memory, special
from tests.helpers.loops import looped
from tests.software_device.host_kernels import BLOCK, HostKernels

SIZES = (0, 1, 255, 256, 257, 511, 1000, 4099)
GRIDS = (1, 2, 5)


def same_bits(found: np.ndarray, expected: np.ndarray) -> bool:
    return found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


def sums_in_order(values: np.ndarray, threads: int) -> np.ndarray:
    """What each thread adds up, in float64 and in its order: elements i, i + threads, ..."""
    total = np.zeros(threads)
    for first in range(0, values.size, threads):
        part = values[first:first + threads]
        total[:part.size] += part.astype(np.float64)
    return total


@looped("blocks", GRIDS)
@looped("size", SIZES)
@looped("kind", KINDS)
def test_mse(kernels: HostKernels, kind: str, size: int, blocks: int) -> None:
    rng, memory, wp = np.random.default_rng(size), Memory(), KINDS[kind]
    y, t = (memory.put(rng.standard_normal(size).astype(wp)) for _ in range(2))
    dy, partial = memory.out(size, wp), memory.out(blocks*BLOCK, np.float64)
    slope = wp(2.0/max(size, 1))
    kernels.launch(f"cnn_mse_{kind}", blocks, np.int64(size), y, t, dy, slope, partial)
    memory.check()
    assert same_bits(dy, slope*(y - t))
    squares = (y.astype(np.float64) - t.astype(np.float64))**2
    assert same_bits(partial, sums_in_order(squares, blocks*BLOCK))
    exact = math.fsum(squares)
    assert abs(math.fsum(partial) - exact) <= size*np.finfo(np.float64).eps*exact


@looped("blocks", GRIDS)
@looped("size", SIZES)
@looped("kind", KINDS)
def test_relu_backward(kernels: HostKernels, kind: str, size: int, blocks: int) -> None:
    memory, wp = Memory(), KINDS[kind]
    z, da = memory.put(special(wp, size, 3)), memory.put(special(wp, size, 5))
    dz = memory.out(size, wp)
    kernels.launch(f"cnn_relu_backward_{kind}", blocks, np.int64(size), z, da, dz)
    memory.check()
    assert same_bits(dz, np.where(z <= 0, wp(0), da))


@looped("blocks", GRIDS)
@looped("shape", [(1, 1, 1), (4, 2, 3), (2, 3, 256), (3, 2, 255), (2, 3, 257), (5, 4, 100),
                 (1, 2, 4099), (700, 2, 1), (0, 2, 5), (3, 2, 0), (3, 5, 511), (2, 2, 1281)])
@looped("kind", KINDS)
def test_relu_backward_bias(kernels: HostKernels, kind: str, shape: tuple[int, int, int], blocks: int) -> None:
    """shape is (batch, channels, pixels)"""
    memory, wp = Memory(), KINDS[kind]
    batch, channels, pixels = shape
    z = memory.put(special(wp, math.prod(shape), 7).reshape(shape))
    da = memory.put(np.random.default_rng(8).standard_normal(shape).astype(wp))
    dz, partial = memory.out(shape, wp), memory.out((channels, blocks*BLOCK), np.float64)
    kernels.launch(f"cnn_relu_backward_bias_{kind}", (blocks, channels), np.int64(pixels), np.int64(channels),
                   np.int64(batch), z, da, dz, partial)
    memory.check()
    assert same_bits(dz, np.where(z <= 0, wp(0), da))
    for channel in range(channels):
        assert same_bits(partial[channel], sums_in_order(dz[:, channel].ravel(), blocks*BLOCK))


@looped("blocks", GRIDS)
@looped("shape", [(1, 1, 1), (4, 2, 3), (2, 3, 256), (2, 3, 257), (1, 2, 4099), (700, 2, 1), (0, 2, 5),
                 (3, 2, 0), (3, 5, 511), (2, 2, 1281)])
@looped("kind", KINDS)
def test_bias_gradient(kernels: HostKernels, kind: str, shape: tuple[int, int, int], blocks: int) -> None:
    """shape is (batch, channels, pixels)"""
    memory, wp = Memory(), KINDS[kind]
    batch, channels, pixels = shape
    dz = memory.put(np.random.default_rng(8).standard_normal(shape).astype(wp))
    partial = memory.out((channels, blocks*BLOCK), np.float64)
    kernels.launch(f"cnn_bias_gradient_{kind}", (blocks, channels), np.int64(pixels), np.int64(channels),
                   np.int64(batch), dz, partial)
    memory.check()
    for channel in range(channels):
        assert same_bits(partial[channel], sums_in_order(dz[:, channel].ravel(), blocks*BLOCK))


@pytest.mark.parametrize("inside", ["z", "da"])
@pytest.mark.parametrize("kind", KINDS)
def test_relu_backward_in_place(kernels: HostKernels, kind: str, inside: str) -> None:
    """The result may take the place of either operand, whichever thread comes first."""
    wp, shape = KINDS[kind], (2, 3, 700)
    z, da = special(wp, math.prod(shape), 3).reshape(shape), special(wp, math.prod(shape), 5).reshape(shape)
    right = np.where(z <= 0, wp(0), da)
    for backwards, bias in itertools.product((False, True), repeat=2):
        memory = Memory()
        operands = {"z": memory.inout(z), "da": memory.inout(da)}
        dz, partial = operands[inside], memory.out((3, 2*BLOCK), np.float64)
        if bias:
            kernels.launch(f"cnn_relu_backward_bias_{kind}", (2, 3), np.int64(700), np.int64(3), np.int64(2),
                           *operands.values(), dz, partial, backwards=backwards)
        else:
            kernels.launch(f"cnn_relu_backward_{kind}", 2, np.int64(z.size), *operands.values(), dz,
                           backwards=backwards)
        memory.check()
        assert same_bits(dz, right)


def as_float32(values: np.ndarray, kind: str) -> np.ndarray:
    """Elements of a stored kind, whose bits are `values`."""
    if kind == "bf16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.view(STORED[kind][1]).astype(np.float32)


#: Bits of the stored kinds, and the type that numpy reads them as
STORED = {"f32": (np.uint32, np.float32), "f16": (np.uint16, np.float16), "bf16": (np.uint16, None)}


def stored(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random bits: numbers of all sizes, subnormal ones, infinities and NaN; a quarter of them zeros of both signs."""
    rng, bits = np.random.default_rng(seed), STORED[kind][0]
    values = rng.integers(0, np.iinfo(bits).max, shape, bits, endpoint=True)
    zeros = rng.integers(0, 8, shape)
    sign = bits(1 << (8*np.dtype(bits).itemsize - 1))
    return np.where(zeros == 0, bits(0), np.where(zeros == 1, sign, values)).astype(bits)


@looped("inside", ["", "z", "da"])
@looped(("pixels", "channels", "blocks"), [(1, 1, 1), (700, 1, 2), (511, 3, 3), (200, 16, 2),
                                          (3, 512, 2), (40, 768, 6), (9, 5, 5), (0, 4, 1)])
@looped("kind", STORED)
def test_relu_backward_nhwc(kernels: HostKernels, kind: str, pixels: int, channels: int, blocks: int,
                            inside: str) -> None:
    """Bits pass or become 0; where z is NaN they pass. A thread adds up what it passed on, in its order."""
    memory, threads = Memory(), blocks*BLOCK
    given = {"z": stored(kind, (pixels, channels), 1), "da": stored(kind, (pixels, channels), 2)}
    operands = {name: memory.inout(values) if name == inside else memory.put(values) for name, values in given.items()}
    dz = operands.get(inside, memory.out((pixels, channels), STORED[kind][0]))
    partial = memory.out((channels, threads//channels), np.float64)
    kernels.launch(f"cnn_relu_backward_nhwc_{kind}", blocks, np.int64(dz.size), np.int64(channels),
                   *operands.values(), dz, partial)
    memory.check()
    right = np.where(as_float32(given["z"], kind) <= 0, STORED[kind][0](0), given["da"])
    assert same_bits(dz, right)
    check_sums(partial, right, kind)


def check_sums(partial: np.ndarray, values: np.ndarray, kind: str) -> None:
    """partial(channel) holds what each thread of that channel adds; NaN is NaN, whatever its bits."""
    for channel in range(values.shape[1]):
        with np.errstate(invalid="ignore"):
            expected = sums_in_order(as_float32(np.ascontiguousarray(values[:, channel]), kind), partial.shape[1])
        assert np.array_equal(partial[channel], expected, equal_nan=True)


@looped(("pixels", "channels", "blocks"), [(700, 1, 2), (511, 3, 3), (200, 16, 2), (3, 512, 2),
                                          (0, 4, 1)])
@looped("kind", STORED)
def test_channel_sums(kernels: HostKernels, kind: str, pixels: int, channels: int, blocks: int) -> None:
    memory = Memory()
    dz = memory.put(stored(kind, (pixels, channels), 3))
    partial = memory.out((channels, blocks*BLOCK//channels), np.float64)
    kernels.launch(f"cnn_channel_sums_{kind}", blocks, np.int64(dz.size), np.int64(channels), dz, partial)
    memory.check()
    check_sums(partial, dz, kind)


@looped("blocks", GRIDS)
@looped(("batch", "columns", "rows"), [(1, 1, 1), (3, 16, 257), (2, 257, 3), (5, 7, 1), (1, 1, 900),
                                      (0, 3, 4)])
@looped("kind", STORED)
def test_turn(kernels: HostKernels, kind: str, batch: int, columns: int, rows: int, blocks: int) -> None:
    """Bit for bit, NaN too."""
    memory = Memory()
    values = memory.put(stored(kind, (batch, columns, rows), 4))
    to = memory.out((batch, rows, columns), STORED[kind][0])
    kernels.launch(f"cnn_transpose_{kind}", blocks, np.int64(rows), np.int64(columns), np.int64(batch), values, to)
    memory.check()
    assert same_bits(to, np.ascontiguousarray(values.transpose(0, 2, 1)))


@looped("blocks", GRIDS)
@looped(("n", "m", "rows"), [(0, 1, 2), (1, 1, 1), (256, 1, 3), (1000, 7, 2), (1280, 256, 3),
                            (5, 9, 2), (4099, 257, 1), (3000, 1300, 2), (3, 1, 1500)])
def test_fold(kernels: HostKernels, n: int, m: int, rows: int, blocks: int) -> None:
    memory = Memory()
    values = memory.put(np.random.default_rng(n).standard_normal((rows, n)))
    to = memory.out((rows, m), np.float64)
    for slices in {1, (rows + 1)//2, rows}:
        to[...] = np.nan
        kernels.launch("cnn_fold", (blocks, slices), np.int64(n), np.int64(rows), values, np.int64(m), to)
        memory.check()
        for row in range(rows):
            assert same_bits(to[row], sums_in_order(values[row], m))


@looped("size", SIZES)
@looped("kind", KINDS)
def test_narrow(kernels: HostKernels, kind: str, size: int) -> None:
    memory, wp = Memory(), KINDS[kind]
    values = memory.put(special(np.float64, size, 11))
    to = memory.out(size, wp)
    kernels.launch(f"cnn_narrow_{kind}", 2, np.int64(size), values, to)
    memory.check()
    with np.errstate(over="ignore"):
        assert same_bits(to, values.astype(wp))


@looped("blocks", GRIDS)
@looped("flags", range(16))
@looped("kind", KINDS)
def test_sgd(kernels: HostKernels, kind: str, flags: int, blocks: int) -> None:
    """To the bit what the CPU kernel's formula says; with no momentum, v is not even looked at."""
    wp, size = KINDS[kind], 1281
    momentum_on, first, nesterov, decay_on = (bool(flags & bit) for bit in (1, 2, 4, 8))
    rng, memory = np.random.default_rng(flags), Memory()
    w, v = (memory.inout(rng.standard_normal(size).astype(wp)) for _ in range(2))
    g = memory.put(rng.standard_normal(size).astype(wp))
    lr, momentum, keep, decay = (wp(value) for value in (0.1, 0.9, 0.7, 0.03))
    d, v_expected = g + decay*w if decay_on else g, v.copy()
    if momentum_on:
        v_expected = d if first else momentum*v + keep*d
        d = d + momentum*v_expected if nesterov else v_expected
    w_expected = w - lr*d
    kernels.launch(f"cnn_sgd_{kind}", blocks, np.int64(size), w, g, v if momentum_on else None, lr, momentum, keep,
                   decay, np.int32(flags))
    memory.check()
    assert same_bits(w, w_expected)
    assert same_bits(v, v_expected)


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
                                      {"momentum": 0.8, "dampening": 0.3, "weight_decay": 0.02}])
def test_sgd_is_torchs(kernels: HostKernels, settings: dict[str, float]) -> None:
    rng, size = np.random.default_rng(1), 700
    w, v = rng.standard_normal(size), np.full(size, np.nan)
    weights = torch.tensor(w, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=0.05, **settings)
    flags = 1*("momentum" in settings) + 4*("nesterov" in settings) + 8*("weight_decay" in settings)
    for step in range(4):
        g = rng.standard_normal(size)
        weights.grad = torch.from_numpy(g.copy())
        optimizer.step()
        kernels.launch("cnn_sgd_f64", 2, np.int64(size), w, g, v, np.float64(0.05),
                       *(np.float64(value) for value in (settings.get("momentum", 0), 1 - settings.get("dampening", 0),
                                                         settings.get("weight_decay", 0))),
                       np.int32(flags + 2*(step == 0)))
        np.testing.assert_allclose(w, weights.detach().numpy(), rtol=0, atol=8*np.finfo(float).eps)


def float32_patterns(exact: np.ndarray) -> np.ndarray:
    """`exact` (all values of a half precision, in float32), the middles between neighbours, and what lies beside both;
    random bits too."""
    finite = np.unique(exact[np.isfinite(exact)])
    middles = ((finite[1:].astype(np.float64) + finite[:-1])/2).astype(np.float32)
    below = np.concatenate([finite, middles])
    beside = [np.nextafter(below, np.float32(to)) for to in (-np.inf, np.inf)]
    bits = np.random.default_rng(2).integers(0, 2**32, 100_000, dtype=np.uint32)
    largest = np.array([np.finfo(np.float32).max, np.inf, np.nan, -np.nan], np.float32)
    return np.concatenate([exact, below, *beside, bits.view(np.float32), largest, -largest])


def check_rounding(found: np.ndarray, expected: np.ndarray, values: np.ndarray, quiet: int) -> None:
    """Equal bits; for NaN the sign, and that it is one: IEEE 754 leaves the rest open."""
    number = ~np.isnan(values)
    assert np.array_equal(found[number], expected[number])
    assert ((found[~number] & 0x7FFF) > quiet).all()


ALL_HALVES = np.arange(65536, dtype=np.uint16)


def test_float16_widens_exactly(kernels: HostKernels) -> None:
    memory = Memory()
    halves, wide = memory.put(ALL_HALVES), memory.out(65536, np.float32)
    kernels.launch("cnn_f16_to_f32", 3, np.int64(65536), halves, wide)
    memory.check()
    expected = ALL_HALVES.view(np.float16).astype(np.float32)
    number = ~np.isnan(expected)
    assert same_bits(wide[number], expected[number])
    assert np.isnan(wide[~number]).all()


def test_float16_is_rounded_to_nearest_even(kernels: HostKernels) -> None:
    memory = Memory()
    values = memory.put(float32_patterns(ALL_HALVES.view(np.float16).astype(np.float32)))
    to = memory.out(values.size, np.uint16)
    kernels.launch("cnn_f32_to_f16", 3, np.int64(values.size), values, to)
    memory.check()
    with np.errstate(over="ignore", invalid="ignore"):
        check_rounding(to, values.astype(np.float16).view(np.uint16), values, 0x7C00)


def test_bfloat16_widens_exactly(kernels: HostKernels) -> None:
    memory = Memory()
    halves, wide = memory.put(ALL_HALVES), memory.out(65536, np.uint32)
    kernels.launch("cnn_bf16_to_f32", 3, np.int64(65536), halves, wide)
    memory.check()
    assert np.array_equal(wide, ALL_HALVES.astype(np.uint32) << 16)


def test_bfloat16_is_rounded_to_nearest_even(kernels: HostKernels) -> None:
    memory = Memory()
    values = memory.put(float32_patterns((ALL_HALVES.astype(np.uint32) << 16).view(np.float32)))
    to = memory.out(values.size, np.uint16)
    kernels.launch("cnn_f32_to_bf16", 3, np.int64(values.size), values, to)
    memory.check()
    expected = torch.from_numpy(values.copy()).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    check_rounding(to, expected, values, 0x7F80)
    assert np.array_equal(to >> 15, values.view(np.uint32) >> 31)


@pytest.mark.parametrize("kind", KINDS)
def test_threads_do_not_depend_on_each_other(kernels: HostKernels, kind: str) -> None:
    """The same bits when the last thread goes first, and elements that do not care about the grid."""
    wp, shape = KINDS[kind], (3, 2, 700)
    z, da = special(wp, math.prod(shape), 1).reshape(shape), special(wp, math.prod(shape), 2).reshape(shape)
    results: list[list[np.ndarray]] = []
    for blocks, backwards in itertools.product((1, 4), (False, True)):
        dz, partial = np.zeros_like(z), np.zeros((2, blocks*BLOCK))
        w, v = np.ones(999, wp), np.full(999, 2, wp)
        kernels.launch(f"cnn_relu_backward_bias_{kind}", (blocks, 2), np.int64(700), np.int64(2), np.int64(3), z, da,
                       dz, partial, backwards=backwards)
        kernels.launch(f"cnn_sgd_{kind}", blocks, np.int64(999), w, da.ravel(), v, *np.array([0.1, 0.9, 1, 0], wp),
                       np.int32(1), backwards=backwards)
        results.append([dz, w, v, partial])
    for elements in zip(*(result[:3] for result in results), strict=True):
        assert all(same_bits(other, elements[0]) for other in elements[1:])
    assert same_bits(results[0][3], results[1][3])
    assert same_bits(results[2][3], results[3][3])


def test_a_sum_through_all_its_kernels(kernels: HostKernels) -> None:
    """mse, fold to 32, fold to 1, narrow: as a step does it."""
    rng, size, blocks = np.random.default_rng(4), 100_003, 7
    y, t = (rng.standard_normal(size).astype(np.float32) for _ in range(2))
    dy, partial = np.empty_like(y), np.empty(blocks*BLOCK)
    some, one, loss = np.empty(32), np.empty(1), np.empty(1, np.float32)
    kernels.launch("cnn_mse_f32", blocks, np.int64(size), y, t, dy, np.float32(1), partial)
    kernels.launch("cnn_fold", 1, np.int64(partial.size), np.int64(1), partial, np.int64(32), some)
    kernels.launch("cnn_fold", 1, np.int64(32), np.int64(1), some, np.int64(1), one)
    kernels.launch("cnn_narrow_f32", 1, np.int64(1), one, loss)
    exact = math.fsum((y.astype(float) - t.astype(float))**2)
    assert abs(one[0] - exact) <= 200*np.finfo(float).eps*exact
    assert loss[0] == np.float32(one[0])


def test_indices_have_64_bits(kernels: HostKernels) -> None:
    """One thread of a vast grid, with addresses such that its element lies in a small array."""
    block, thread, blocks = 2**25 + 3, 17, 2**25 + 4
    index = block*BLOCK + thread
    z, da, dz = np.array([9, 1, 9], np.float32), np.array([9, 5, 9], np.float32), np.array([7, 7, 7], np.float32)
    partial = np.array([7.0, 7, 7])

    def base(array: np.ndarray, offset: int) -> ctypes.c_void_p:
        return ctypes.c_void_p((array.ctypes.data + array.itemsize*(1 - offset)) % 2**64)

    n = ctypes.c_int64
    kernels.one_thread("cnn_relu_backward_f32", (block, 0), thread, (blocks, 1), n(index + 1), base(z, index),
                       base(da, index), base(dz, index))
    assert dz.tolist() == [7, 5, 7]
    dz[1] = 7
    # the third of four channels; all pixels of the first image but one lie before the thread's
    pixels, channel = index, 2
    element = pixels*(4 + channel)
    kernels.one_thread("cnn_relu_backward_bias_f32", (block, channel), thread, (blocks, 4), n(pixels), n(4), n(2),
                       base(z, element), base(da, element), base(dz, element),
                       base(partial, channel*blocks*BLOCK + index))
    assert dz.tolist() == [7, 5, 7]
    assert partial.tolist() == [7, 5, 7]


def test_an_unknown_kernel_is_an_error(kernels: HostKernels) -> None:
    with pytest.raises(KeyError, match="cnn_nothing"):
        kernels.launch("cnn_nothing", 1)
