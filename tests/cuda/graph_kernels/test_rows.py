# SPDX-License-Identifier: MIT
"""The kernels of graphs, run on a CPU against torch: from their source, and from the PTX that a GPU would get.

Normalisations, splines, what changes the order, extremes.
torch computes in float64, from the same numbers; a result is right where it is that, rounded, or a neighbour of it.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from reference.spline import Spline
from tests.helpers.cuda.graph_kernels import i8, numbers, strides, ulps, wide
from tests.helpers.cuda.kernel_memory import KINDS, Memory
from tests.helpers.loops import looped
from tests.software_device.host_kernels import BLOCK, HostKernels

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
