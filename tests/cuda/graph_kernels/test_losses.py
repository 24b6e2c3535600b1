# SPDX-License-Identifier: MIT
"""The kernels of graphs, run on a CPU against torch: from their source, and from the PTX that a GPU would get.

Losses and softmax.
torch computes in float64, from the same numbers; a result is right where it is that, rounded, or a neighbour of it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from bridge.operations.losses import LOSSES, CrossEntropy, Loss, PairLoss, settings
from tests.helpers.cuda.graph_kernels import GRIDS, counted, i8, numbers, ulps, wide
from tests.helpers.cuda.kernel_memory import KINDS, Memory
from tests.helpers.loops import looped
from tests.software_device.host_kernels import BLOCK, HostKernels


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
