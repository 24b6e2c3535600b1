# SPDX-License-Identifier: MIT
"""Every layer with parameters, the same on every device: its gradients by the oracle and by PyTorch in float64.

A layer is a row of LAYERS, from which all tests take it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge.engine.arrays.transfer import to_device, to_host
from bridge.gradcheck.networks import NetworkFunctions
from bridge.judge.oracle.error_model import rounding_factor, total_roundoff
from bridge.operations import OPERATIONS, LayerNorm, Linear, Operation
from reference.network.layers import ComplexLinear
from reference.spline import Spline
from tests.helpers.cases import Array, batch
from tests.helpers.graphs import judge_step, t_of, torch_step, true_step
from tests.helpers.loops import looped
from tests.helpers.networks.parity_tools import LARGE, case_of, parameters, step_tensors
from tests.helpers.tiers import few

#: Height and width; full tiles are for the convolutions of test_operations.py
IMAGE = (6, 5)


@dataclass(frozen=True)
class Layer:
    """A layer by the channels that it takes and gives; what keeps them takes as many as it gives.

    Attributes
    ----------
    behind : what a sample has behind its channels
    before : what it has before them
    """

    make: Callable[[int, int], nn.Module]
    keeps: bool = False
    behind: tuple[int, ...] = IMAGE
    before: tuple[int, ...] = ()


LAYERS: dict[str, Layer] = {
    "conv2d": Layer(lambda c, k: nn.Conv2d(c, k, (2, 3), padding=(1, 0))),
    "conv2d grouped": Layer(lambda c, k: nn.Conv2d(c, k, (3, 2), padding=(0, 1), groups=2)),
    "conv2d strided": Layer(lambda c, k: nn.Conv2d(c, k, 3, (2, 3), padding=1, bias=False)),
    "conv2d dilated": Layer(lambda c, k: nn.Conv2d(c, k, (2, 3), padding=1, dilation=(3, 2))),
    "conv_transpose2d": Layer(lambda c, k: nn.ConvTranspose2d(c, k, (3, 2), (2, 1), (1, 0), (1, 0))),
    "conv_transpose2d grouped": Layer(lambda c, k: nn.ConvTranspose2d(c, k, 2, (2, 3), 1, (1, 2), 2, False, (1, 2))),
    "conv3d": Layer(lambda c, k: nn.Conv3d(c, k, (3, 2, 3), (2, 1, 1), (1, 1, 0), groups=2), behind=(4, *IMAGE)),
    "conv_transpose3d": Layer(lambda c, k: nn.ConvTranspose3d(c, k, (3, 2, 2), (2, 1, 2), (1, 0, 1)),
                              behind=(3, *IMAGE)),
    "linear": Layer(nn.Linear, behind=()),
    "complex_linear": Layer(lambda c, k: ComplexLinear(c, k, 15), behind=(15, 2)),
    "linear of rows": Layer(lambda c, k: nn.Linear(c, k, bias=False), behind=(), before=(3, 2)),
    "spline": Layer(lambda c, k: Spline(c, k, grid=4, order=2, low=-2, high=2), behind=()),
    "batch_norm2d": Layer(lambda _, k: nn.BatchNorm2d(k, momentum=0.3), keeps=True),
    "group_norm": Layer(lambda _, k: nn.GroupNorm(2, k), keeps=True),
    "layer_norm": Layer(lambda _, k: nn.LayerNorm((k, *IMAGE)), keeps=True),
    "layer_norm of rows": Layer(lambda _, k: nn.LayerNorm(IMAGE[1:]), keeps=True),
    "prelu": Layer(lambda _, k: nn.PReLU(k), keeps=True),
    "prelu of one": Layer(lambda _, k: nn.PReLU(), keeps=True),
}
ALL = pytest.mark.parametrize("name", LAYERS)
DTYPES = ("float32", "float64")


@pytest.fixture(params=["cuda"] if LARGE else ["cpu", "naive", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    """A device's text; these are so small that plain loops do them, too."""
    return request.getfixturevalue("cuda") if request.param == "cuda" else request.param


@dataclass(frozen=True)
class Made:
    """A network of a layer, alone or the second of three, and the shape of its input."""

    net: bridge.Network
    sample: tuple[int, ...]

    def data(self, n: int, seed: int = 1) -> tuple[Array, Array]:
        """A batch, and a target for it."""
        x = batch((n, *self.sample), self.net.dtype, seed)
        return x, batch(self.net.model.output_shapes(x.shape)[-1], self.net.dtype, seed + 1000)


def network(name: str, device: str, dtype: str = "float32", *, channels: tuple[int, int] = (4, 6),
            three: bool = False) -> Made:
    """The layer with random parameters, with a tanh and another layer on both sides if it is of three."""
    torch.manual_seed(7)
    row, (c, k) = LAYERS[name], channels
    takes = k if row.keeps else c
    parts = [row.make(c, k)]
    if three:
        side: Any = {0: nn.Linear, 2: lambda c, k: nn.Conv2d(c, k, 1), 3: lambda c, k: nn.Conv3d(c, k, 1)}[
            len(row.behind)]
        first, last = side(takes, takes), side(k, 2)
        parts = [first, nn.Tanh(), *parts, nn.Tanh(), last]
    for part in parts:
        for one in part.parameters():
            nn.init.normal_(one, std=1 / math.sqrt(max(1, one[0].numel())))
    sample = (*row.before, takes, *row.behind)
    module = nn.Sequential(*parts).to(getattr(torch, dtype))
    return Made(bridge.Network.from_torch(module, device=device, example=(2, *sample)), sample)


def assert_right(net: bridge.Network, x: Array, target: Array) -> dict[str, Array]:
    """Output, loss, new state and all gradients of a step lie within the bounds, of the step and of each operation."""
    case = case_of(net, x, target)
    found = step_tensors(net, x, target)
    wrong = {tensor: seen for tensor, seen in judge_step(case, found).items() if not max(seen.whole, seen.local) <= 1}
    assert not wrong
    return found


def test_every_layer_with_parameters_has_a_row() -> None:
    kinds = {network(name, "cpu").net.model.layers[0].kind for name in LAYERS}
    assert kinds == {kind for kind, one in OPERATIONS.items()
                     if one.parameter_shapes is not Operation.parameter_shapes and not one.without_gradient
                     and not one.follows_itself}


@ALL
@looped("three", (False, True))
@looped("dtype", DTYPES)
def test_a_step_of_one_layer_and_of_three(name: str, device: str, dtype: str, three: bool) -> None:
    """And PyTorch's in float64 is in the middle of the bounds."""
    made = network(name, device, dtype, three=three)
    x, target = made.data(3)
    case = case_of(made.net, x, target)
    found = assert_right(made.net, x, target)
    case.precision = "float64"
    wide = torch_step(case)
    case.precision = dtype
    for tensor, (truth, _) in true_step(case, found).items():
        assert t_of(wide[tensor], truth) <= (1 if dtype == "float64" else 2**-20), tensor


@ALL
def test_batches(name: str, device: str) -> None:
    """Sums over few and many images; one network takes all sizes one after the other."""
    made = network(name, device)
    for n in (128, 1, 7, 64, 16):
        assert_right(made.net, *made.data(n, seed=n))


@pytest.mark.parametrize("name", few(LAYERS, ("conv2d", "conv_transpose2d grouped", "linear",
                                              "layer_norm").__contains__))
def test_a_wide_layer(name: str, device: str) -> None:
    """Of few images where loops compute it: many are those of `test_batches`."""
    made = network(name, device, channels=(32, 256))
    assert_right(made.net, *made.data(64 if LARGE else 5))


@pytest.mark.parametrize("name", [name for name, row in LAYERS.items()
                                  if getattr(row.make(4, 6), "bias", None) is not None])
@looped("dtype", DTYPES)
def test_the_bias_gradient_is_the_sum(name: str, device: str, dtype: str) -> None:
    """Of what comes from above, over all that the bias was added to."""
    made = network(name, device, dtype)
    found = step_tensors(made.net, *made.data(7))
    bias, dy = found["grads/0/bias"], found["grads/0/output"].astype(np.float64)
    of_rows = isinstance(made.net.model.layers[0], (Linear, LayerNorm))
    terms = (dy if of_rows else np.moveaxis(dy, 1, -1)).reshape(-1, bias.size).T
    factor = rounding_factor(terms.shape[1], total_roundoff(dtype))
    for value, one in zip(bias.ravel(), terms, strict=True):
        assert abs(value - math.fsum(one)) <= factor * math.fsum(np.abs(one))


@ALL
@looped("dtype", DTYPES)
def test_zero_from_above_gives_exact_zeros(name: str, device: str, dtype: str) -> None:
    made = network(name, device, dtype, three=True)
    x, _ = made.data(3)
    found = step_tensors(made.net, x, to_host(made.net.forward(to_device(x, made.net.device))))
    assert found["loss"] == 0
    assert not any(array.any() for tensor, array in found.items() if tensor.startswith("grads/"))


@ALL
def test_backward_again_gives_the_same_bits(name: str, device: str) -> None:
    """Nothing is added to what was there, after another batch either."""
    made = network(name, device, three=True)
    x, target = made.data(7)
    first = step_tensors(made.net, x, target)
    assert np.array_equal(to_host(made.net.backward()), first["grads/input"])
    step_tensors(made.net, *made.data(3, seed=2))
    again = step_tensors(made.net, x, target)
    for tensor, array in first.items():
        if not tensor.startswith("state/"):
            assert np.array_equal(array, again[tensor]), tensor
    for parameter, array in made.net.gradients.items():
        assert np.array_equal(to_host(array), first[f"grads/{parameter.replace('.', '/')}"]), parameter


@pytest.mark.deep
@ALL
def test_central_differences(name: str, device: str) -> None:
    """Of the loss of three layers, along elements and directions of the input and of every parameter."""
    made = network(name, device, "float64", three=True)
    x, target = made.data(2)
    functions = NetworkFunctions(made.net, target)
    report = bridge.gradcheck(functions.forward, functions.backward, functions.inputs(x), names=functions.names,
                              points=4, directions=2)
    assert report.verdict.label == "right", report


def test_a_wider_output_is_refused_on_cuda(cuda: str) -> None:
    """The CPU computes it (tests/operations)."""
    net = bridge.Network.from_torch(nn.Sequential(nn.ConvTranspose2d(2, 3, 2, output_padding=(0, 1), dilation=2)),
                                    device=cuda)
    with pytest.raises(bridge.EngineError, match=r"output_padding \(0, 1\), expected less than the stride on .*cuda"):
        net.forward(to_device(np.ones((1, 2, 3, 3), np.float32), cuda))


@ALL
@looped("dtype", DTYPES)
def test_one_train_step_beside_torch(name: str, device: str, dtype: str) -> None:
    """New parameters within the rounding of the gradient and of w - lr*g; PyTorch's in float64, too."""
    made, lr = network(name, device, dtype, three=True), 2.0**-4
    x, target = made.data(3)
    case = case_of(made.net, x, target)
    truths = true_step(case, {})
    module = made.net.to_torch().double()
    loss = nn.functional.mse_loss(module(torch.from_numpy(x).double()), torch.from_numpy(target).double())
    loss.backward()
    torch.optim.SGD(module.parameters(), lr).step()
    made.net.step(*(to_device(one, made.net.device) for one in (x, target)), lr=lr)
    wide = dict(module.named_parameters())
    for parameter, array in parameters(made.net).items():
        gradient, _ = truths[f"grads/{parameter.replace('.', '/')}"]
        new = gradient.exact(case.parameters[parameter.replace(".", "/")]) - gradient * lr
        assert t_of(array, new) <= 1 and t_of(wide[parameter].detach().numpy(), new) <= 1, parameter


@ALL
def test_it_learns_as_torch_does(name: str, device: str) -> None:
    """Thirty steps towards another such network: every loss is PyTorch's but for rounding, and the last is smaller."""
    made = network(name, device, "float64", three=True)
    module = made.net.to_torch()
    x, _ = made.data(8)
    with torch.no_grad():
        other = made.net.to_torch()
        for one in other.parameters():
            one.add_(torch.randn(one.shape, generator=torch.Generator().manual_seed(3), dtype=one.dtype), alpha=0.2)
        target = other(torch.from_numpy(x)).numpy()
    optimizer = torch.optim.SGD(module.parameters(), 0.05, momentum=0.9)
    losses, given = [], [to_device(one, made.net.device) for one in (x, target)]
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(module(torch.from_numpy(x)), torch.from_numpy(target))
        loss.backward()
        optimizer.step()
        losses.append(made.net.step(*given, lr=0.05, momentum=0.9))
        assert losses[-1] == pytest.approx(loss.item(), rel=1e-10)
    assert losses[-1] < 0.5 * losses[0]
