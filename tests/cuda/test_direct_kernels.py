# SPDX-License-Identifier: MIT
"""The kernels of convolutions with few channels, run on a CPU: exact on integers, whatever the order of the threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.nn.grad import conv2d_input, conv2d_weight

from tests.helpers.cuda.kernel_memory import Memory
from tests.software_device.host_kernels import BLOCK, HostKernels

#: Channels and pixels below each other that a kernel makes at a time, and what a filter gradient takes at a time
BELOW = {1: 8, 16: 4}
TOGETHER, STRIP = 4, 128


@dataclass(frozen=True)
class Shape:
    """x (n, c, h, w) and w (k, c, 3, 3)."""

    batch: int
    inputs: int
    outputs: int
    height: int
    width: int
    padding: int

    def tensors(self, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """x, w, bias, dy: integers so small that every sum is exact."""
        rng = np.random.default_rng(seed)
        p, q = (extent + 2*self.padding - 2 for extent in (self.height, self.width))
        shapes = ((self.batch, self.inputs, self.height, self.width), (self.outputs, self.inputs, 3, 3),
                  (self.outputs,), (self.batch, self.outputs, p, q))
        x, w, bias, dy = (torch.from_numpy(rng.integers(-3, 4, shape).astype(np.float32)) for shape in shapes)
        return x, w, bias, dy


SHAPES = [Shape(2, 16, 16, 9, 37, 1), Shape(1, 1, 16, 5, 7, 0), Shape(3, 3, 1, 6, 40, 2), Shape(1, 16, 2, 4, 4, 1),
          Shape(2, 2, 32, 3, 3, 1), Shape(1, 4, 4, 1, 1, 1), Shape(1, 5, 16, 70, 131, 1), Shape(1, 12, 1, 2, 300, 1),
          Shape(5, 8, 3, 9, 4, 1), Shape(3, 6, 8, 10, 12, 1), Shape(1, 4, 4, 7, 132, 1)]


def numbers(*values: int) -> list[np.int32]:
    return [np.int32(value) for value in values]


def made_at_a_time(channels: int) -> int:
    return 16 if channels % 16 == 0 else 1


def arranged(kernels: HostKernels, w: np.ndarray, bias: np.ndarray | None, *, data: bool) -> tuple[np.ndarray, ...]:
    """Filters and biases as the kernels read them."""
    k, c = w.shape[:2]
    inputs, outputs = (k, c) if data else (c, k)
    n, behind = w.size, (w.size + 3)//4*4
    memory = Memory()
    # numpy aligns to 16 bytes
    to = np.full(behind + outputs, np.nan, np.float32)
    steps = (8, -1, -3, 9*c, 9) if data else (0, 1, 3, 9, 9*c)
    given = (n, made_at_a_time(outputs), inputs, outputs, *steps, bias is not None)
    kernels.launch("cnn_direct_arrange", 2, *numbers(*given), memory.put(w), None if bias is None else memory.put(bias),
                   to)
    memory.check()
    return to[:n], to[behind:]


def geometry(x: np.ndarray, y: np.ndarray, padding: int) -> list[np.int32]:
    """Tiles, and what all kernels take next."""
    below, (p, q) = BELOW[made_at_a_time(y.shape[1])], y.shape[2:]
    return numbers(q*-(-p//below)*y.shape[0], q, p, *x.shape[:1:-1], x.shape[1], y.shape[1], padding, padding)


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward(kernels: HostKernels, shape: Shape, relu: bool, blocks: int) -> None:
    x, w, bias, _ = shape.tensors()
    expected = functional.conv2d(x, w, bias, padding=shape.padding)
    expected = (expected.relu() if relu else expected).numpy()
    filters, biases = arranged(kernels, w.numpy(), bias.numpy(), data=False)
    together, memory = made_at_a_time(shape.outputs), Memory()
    y = memory.out(expected.shape, np.float32)
    kernels.launch(f"cnn_direct_{together}", (blocks, shape.outputs//together),
                   *geometry(x.numpy(), y, shape.padding), *numbers(relu), memory.put(x.numpy()), filters, biases, y)
    memory.check()
    assert np.array_equal(y, expected)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("shape", [one for one in SHAPES if one.inputs <= 4 or one.inputs % 16 == 0], ids=str)
def test_masked_data_gradient(kernels: HostKernels, shape: Shape, backwards: bool) -> None:
    x, w, _, dy = shape.tensors()
    gradient = conv2d_input(x.shape, w, dy, padding=shape.padding)
    expected = torch.where(x > 0, gradient, 0).numpy()
    filters, zeros = arranged(kernels, w.numpy(), None, data=True)
    assert not zeros.any()
    together, memory, blocks = made_at_a_time(shape.inputs), Memory(), 2
    a, partial = memory.inout(x.numpy()), memory.out((shape.inputs, blocks*BLOCK), np.float64)
    kernels.launch(f"cnn_direct_masked_{together}", (blocks, shape.inputs//together),
                   *geometry(dy.numpy(), a, 2 - shape.padding), memory.put(dy.numpy()), filters, zeros, a, partial,
                   backwards=backwards)
    memory.check()
    assert np.array_equal(a, expected)
    assert np.array_equal(partial.sum(1), expected.sum((0, 2, 3)))


@pytest.mark.parametrize(("parts", "rows"), [(1, 63), (2, 3), (3, 5)])
@pytest.mark.parametrize("shape", [one for one in SHAPES if 0 in (one.inputs % TOGETHER, one.outputs % TOGETHER)],
                         ids=str)
def test_filter_gradient(kernels: HostKernels, shape: Shape, parts: int, rows: int) -> None:
    x, w, _, dy = shape.tensors()
    expected = conv2d_weight(x, w.shape, dy, padding=shape.padding).numpy()
    for turned, (window, wide) in enumerate(((x, dy), (dy, x))):
        if wide.shape[1] % TOGETHER:
            continue
        memory, channels, (height, width) = Memory(), window.shape[1], wide.shape[2:]
        blocks = -(-parts*channels*32//BLOCK)
        sums = blocks*BLOCK//32//channels*32
        strips, pieces = -(-width//STRIP), -(-height//rows)
        padding = 2 - shape.padding if turned else shape.padding
        partial = memory.out((*expected.shape, sums), np.float64)
        kernels.launch("cnn_direct_filter", (blocks, wide.shape[1]//TOGETHER),
                       *numbers(strips*pieces*shape.batch, strips, pieces, rows, width, height, *window.shape[:1:-1],
                                channels, wide.shape[1], padding, padding, turned),
                       memory.put(window.numpy()), memory.put(wide.numpy()), partial)
        memory.check()
        assert np.array_equal(partial.sum(-1), expected)


@pytest.mark.parametrize(("parts", "rows"), [(1, 63), (2, 3), (3, 4)])
@pytest.mark.parametrize("shape", [one for one in SHAPES if one.padding == 1 and one.width % 4 == 0
                                   and 0 in (one.inputs % TOGETHER, one.outputs % TOGETHER)], ids=str)
def test_filter_gradient_by_fours(kernels: HostKernels, shape: Shape, parts: int, rows: int) -> None:
    """Rows of a few fours, which a warp takes several of, and of more than it takes at a time."""
    x, w, _, dy = shape.tensors()
    expected = conv2d_weight(x, w.shape, dy, padding=1).numpy()
    for turned, (window, wide) in enumerate(((x, dy), (dy, x))):
        if wide.shape[1] % TOGETHER:
            continue
        memory, channels, pieces = Memory(), window.shape[1], -(-shape.height//rows)
        blocks = -(-parts*channels*32//BLOCK)
        partial = memory.out((*expected.shape, blocks*BLOCK//32//channels*32), np.float64)
        kernels.launch("cnn_direct_filter_quads", (blocks, wide.shape[1]//TOGETHER),
                       *numbers(shape.width//4*pieces*shape.batch, pieces, rows, shape.width, shape.height,
                                shape.height, channels, wide.shape[1], 1, turned),
                       memory.put(window.numpy()), memory.put(wide.numpy()), partial)
        memory.check()
        assert np.array_equal(partial.sum(-1), expected)


def test_special_numbers(kernels: HostKernels) -> None:
    """NaN stays NaN through the ReLU, and what a pixel outside would be meets neither NaN nor infinity."""
    shape = Shape(1, 1, 16, 4, 4, 1)
    x, w, bias, _ = shape.tensors(3)
    x[0, 0, 0, 0], x[0, 0, 3, 3] = np.nan, np.inf
    expected = functional.conv2d(x, w, bias, padding=1).relu().numpy()
    filters, biases = arranged(kernels, w.numpy(), bias.numpy(), data=False)
    y = np.zeros(expected.shape, np.float32)
    kernels.launch("cnn_direct_16", (1, 1), *geometry(x.numpy(), y, 1), *numbers(1), x.numpy(), filters, biases, y)
    assert np.array_equal(y, expected, equal_nan=True)
