# SPDX-License-Identifier: MIT
"""KAN layers: B-splines beside scipy's and inside the grid, at its knots and beyond it; gradients; what is refused."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import bridge
from bridge.common.errors import ArgumentError
from bridge.exchange.model import Model
from bridge.gradcheck import gradcheck
from bridge.gradcheck.networks import NetworkFunctions
from bridge.judge.measure.error_statistics import measure
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff
from bridge.operations import Spline
from reference.spline import Spline as Layer

Array = np.ndarray
ORDERS = (2, 3, 4, 5)
DEVICES = ("cpu", "naive")
#: Intervals, low, high: steps that are numbers, and that are not
GRIDS = ((5, -1.0, 1.0), (4, -2.0, 2.0), (7, 0.1, 0.9), (1, 3.0, 3.5))


def each_b_spline(order: int, grid: int, low: float, high: float, x: Array, device: str, derivative: bool = False
                  ) -> Array:
    """Of numbers (n,) all B-splines (n, grid + order), or their derivatives, by a layer with an output for each."""
    functions = grid + order
    net = bridge.Network(Model((Spline("s", 1, functions, grid, order, low, high, False),), mean=False), x.dtype.name,
                         device)
    net.parameters["s.coefficient"][...] = np.eye(functions)[:, None]
    if not derivative:
        return net.forward(np.ascontiguousarray(x[:, None]))
    found = []
    for k in range(functions):
        y = net.forward(np.ascontiguousarray(x[:, None]))
        # The gradient of the squares' sum is twice the difference
        net.loss((y - np.eye(functions, dtype=x.dtype)[k] / 2).astype(x.dtype))
        found.append(net.backward()[:, 0])
    return np.stack(found, 1)


def knots(order: int, grid: int, low: float, high: float) -> Array:
    return low + np.arange(-order, grid + order + 1) * ((high - low) / grid)


def places(order: int, grid: int, low: float, high: float) -> Array:
    """Knots, numbers beside them and between them, and beyond all."""
    t = knots(order, grid, low, high)
    between = np.concatenate([np.linspace(a, b, 12)[1:-1] for a, b in pairwise(t)])
    beyond = np.array([t[0] - 1, t[0] - 1e6, t[-1] + 1, t[-1] + 1e6])
    return np.concatenate([between, t, np.nextafter(t, -np.inf), np.nextafter(t, np.inf), beyond])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("order", ORDERS)
def test_b_splines_are_scipys(order: int, device: str) -> None:
    """Values and derivatives, where there are fewer than order + 1, too, and beyond the last knot: 0."""
    interpolate = pytest.importorskip("scipy.interpolate")
    for grid, low, high in GRIDS:
        x, t = places(order, grid, low, high), knots(order, grid, low, high)
        splines = [interpolate.BSpline.basis_element(t[k : k + order + 2], extrapolate=False)
                   for k in range(grid + order)]
        right = np.nan_to_num(np.stack([one(x) for one in splines], 1))
        slopes = np.nan_to_num(np.stack([one.derivative()(x) for one in splines], 1))
        assert np.abs(each_b_spline(order, grid, low, high, x, device) - right).max() < 1e-13
        found = each_b_spline(order, grid, low, high, x, device, derivative=True)
        # At a knot to the last digit the derivative of the other interval may be meant, which differs by rounding
        assert np.abs(found - slopes).max() < 1e-13 * grid / (high - low) * 10
        layer = Layer(1, 1, grid, order, low, high).double()
        assert np.abs(layer.b_splines(torch.from_numpy(x)).numpy() - right).max() < 1e-13


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("order", ORDERS)
def test_b_splines_sum_to_1_inside_the_grid_alone(order: int, device: str) -> None:
    for grid, low, high in GRIDS:
        h = (high - low) / grid
        for dtype in ("float32", "float64"):
            inside = np.linspace(low, high, 101).astype(dtype)
            inside = np.clip(inside, np.asarray(low, dtype), np.asarray(high, dtype))
            found = each_b_spline(order, grid, low, high, inside, device)
            assert found.min() >= 0 and np.abs(found.sum(1) - 1).max() < 8 * np.finfo(dtype).eps
            # Fewer and fewer of them from the ends on, none beyond the last knot
            for sign, end in ((-1, low), (1, high)):
                beyond = (end + sign * h * np.linspace(0.2, order, 40)).astype(dtype)
                sums = each_b_spline(order, grid, low, high, beyond, device).sum(1)
                assert (np.diff(sums) < 0).all() and sums[0] < 1 and sums[-1] < 1e-30 + np.finfo(dtype).eps
                assert not each_b_spline(order, grid, low, high, end + sign * (order + np.array(
                    [1e-3, 1.0, 1e9], dtype)) * np.asarray(h, dtype), device).any()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("order", ORDERS)
def test_intervals_have_their_first_knot(order: int, device: str) -> None:
    """At a knot, where steps are exact: order B-splines, as in the interval that begins there; just before it the same
    numbers, of the interval that ends there. At the right end of the grid nothing else happens, at the last knot all
    is 0."""
    grid, low, high = 4, -2.0, 2.0
    t = knots(order, grid, low, high)
    at, before = (each_b_spline(order, grid, low, high, x, device) for x in (t, np.nextafter(t, -np.inf)))
    for j in range(order, grid + order + 1):
        assert np.array_equal(np.flatnonzero(at[j]), np.arange(j - order, j))
    assert not at[-1].any() and not at[0].any()
    assert np.abs(at - before).max() < 4e-15
    slopes = [each_b_spline(order, grid, low, high, x, device, derivative=True)
              for x in (t, np.nextafter(t, -np.inf))]
    assert np.abs(slopes[0] - slopes[1]).max() < 4e-15


def layer_of(order: int, scaled: bool, dtype: torch.dtype, features: int = 3, outputs: int = 4) -> Layer:
    torch.manual_seed(order)
    layer = Layer(features, outputs, 6, order, -1.5, 1.0, scaled).to(dtype)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    return layer


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("order", ORDERS)
def test_a_single_layer_has_all_gradients(order: int, scaled: bool, device: str) -> None:
    """Beside autograd, inside the bounds; that of the input, of degree 2 and in a network of one layer, is not 0."""
    for dtype in (torch.float32, torch.float64):
        layer = layer_of(order, scaled, dtype)
        net = bridge.Network.from_torch(nn.Sequential(layer), reduction="sum", device=device)
        for shape in ((1, 3), (40, 3), (2, 5, 3), (2, 3, 4, 3)):
            x = 1.3 * torch.randn(shape, dtype=dtype)
            x.view(-1)[:2] = torch.tensor([layer.low, layer.high])
            target = torch.randn((*shape[:-1], 4), dtype=dtype)
            x.requires_grad_()
            layer.zero_grad()
            right = layer(x)
            functional.mse_loss(right, target, reduction="sum").backward()
            found = {"y": net.forward(x.detach().numpy())}
            net.loss(target.numpy())
            found |= {"x": net.backward()} | {name.removeprefix("0."): one for name, one in net.gradients.items()}
            assert x.grad is not None and np.count_nonzero(found["x"]) == x.numel()
            # Each by its own operands, which are rounded alike
            arithmetic, node = Arithmetic(total_roundoff(net.dtype)), net.model.layers[0]
            given = [Bounded(one, 0.0, arithmetic) for one in (x.detach().numpy(), 2 * (found["y"] - target.numpy()))]
            parameters = {name: Bounded(one.detach().numpy(), 0.0, arithmetic)
                          for name, one in layer.named_parameters()}
            (dx,), bounds = node.backward(given[1], given[:1], parameters)
            bounds |= {"y": node.forward(given[:1], parameters), "x": dx}
            for name, bound in bounds.items():
                assert measure(found[name], bound.value, bound.error).t <= 1, (name, shape)
            others = {"y": right, "x": x.grad} | {name: one.grad for name, one in layer.named_parameters()}
            for name, other in others.items():
                assert np.abs(found[name] - other.detach().numpy()).max() <= (
                    200 * torch.finfo(dtype).eps * other.abs().max().item()), (name, shape)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("order", ORDERS)
def test_central_differences(order: int, scaled: bool) -> None:
    layers = nn.Sequential(layer_of(order, scaled, torch.float64), layer_of(order, scaled, torch.float64, 4, 2))
    net = bridge.Network.from_torch(layers, reduction="sum")
    functions = NetworkFunctions(net)
    x = np.random.default_rng(order).uniform(-2, 2, (4, 3))
    report = gradcheck(functions.forward, functions.backward, functions.inputs(x), names=functions.names)
    assert report.verdict.label == "right", report


def multiplied_out(node: Spline, x: Array) -> Array:
    """By the place in the interval, in float32: polynomials by Horner's rule."""
    one = x.dtype.type
    place = (x - one(node.low)) / one(node.step)
    interval = np.floor(place).astype(int)
    w, found = place - interval, np.zeros((len(x), node.functions + 2 * node.order + 2), x.dtype)
    pieces = [np.poly1d([1.0])]
    for q in range(1, node.order + 1):
        before, behind = [*pieces, np.poly1d([0.0])], [np.poly1d([0.0]), *pieces]
        pieces = [(np.poly1d([1.0, m]) * before[m] + np.poly1d([-1.0, q + 1 - m]) * behind[m]) / q
                  for m in range(q + 1)]
    inside = (interval >= -node.order) & (interval < node.grid + node.order)
    for m, piece in enumerate(pieces):
        values = np.zeros_like(x)
        for coefficient in piece.coef:
            values = values * w + one(coefficient)
        at = np.clip(interval - m + 2 * node.order, 0, found.shape[1] - 1)
        found[np.arange(len(x)), at] = np.where(inside, values, 0)
    return found[:, node.order : node.order + node.functions]


def truncated_powers(node: Spline, x: Array) -> Array:
    """Differences of powers of what is right of each knot, which cancel."""
    one = x.dtype.type
    z = ((x[:, None] - one(node.low)) / one(node.step) - np.arange(-node.order, node.grid, dtype=x.dtype)[None]).astype(
        x.dtype)
    found = np.zeros_like(z)
    for j in range(node.order + 2):
        found += one((-1) ** j * math.comb(node.order + 1, j)) * np.maximum(z - one(j), 0) ** node.order
    return found / one(math.factorial(node.order))


@pytest.mark.parametrize("order", ORDERS)
def test_b_splines_may_be_found_in_any_way(order: int) -> None:
    """Recursions over rounded knots and over intervals, and polynomials multiplied out are inside the bound, which is
    some roundings wide; what is as far off as a hundred of them is outside, and truncated powers are."""
    arithmetic, worst = Arithmetic(total_roundoff("float32")), {"knots": 0.0, "intervals": 0.0, "out": 0.0}
    for grid, low, high in GRIDS:
        node = Spline("it", 1, 1, grid, order, low, high, False)
        x = places(order, grid, low, high)[:-4].astype(np.float32)
        bound = node.values(Bounded(x[:, None], 0.0, arithmetic))[:, 0, :-1]
        eye = {"coefficient": torch.eye(node.functions)[:, None], "scale_base": torch.zeros(node.functions, 1)}
        found = {"knots": Layer(1, 1, grid, order, low, high).b_splines(torch.from_numpy(x)).numpy(),
                 "intervals": node.torch_forward([torch.from_numpy(x[:, None])], eye).numpy(),
                 "out": multiplied_out(node, x)}
        for way, one in found.items():
            worst[way] = max(worst[way], measure(one, bound.value, bound.error).t)
        wrong = found["knots"] * np.float32(1 + 5e-5)
        assert measure(wrong, bound.value, bound.error).t > 4
        if order > 2 and grid > 3:
            assert measure(truncated_powers(node, x), bound.value, bound.error).t > 2
    assert all(0.02 < one <= 1 for one in worst.values()), worst


def test_a_network_is_kept(tmp_path: Path) -> None:
    """In a file, and by torch: the same settings, numbers and outputs."""
    module = nn.Sequential(layer_of(2, True, torch.float32), layer_of(5, False, torch.float32, 4, 2))
    net = bridge.Network.from_torch(module)
    net.save(tmp_path / "kan.h5")
    again = bridge.Network.from_file(tmp_path / "kan.h5")
    assert again.model == net.model and isinstance(net.model.layers[0], Spline)
    assert net.model.layers[1] == Spline("1", 4, 2, 6, 5, -1.5, 1.0, False, inputs=("0",))
    x = torch.randn(7, 3)
    assert np.array_equal(again.forward(x.numpy()), net.forward(x.numpy()))
    back = again.to_torch()
    assert torch.equal(back(x), module(x)) and str(back[0] if isinstance(back, nn.Sequential) else back._modules["0"]
                                                   ) == str(module[0])


@pytest.mark.parametrize(("given", "message"), [
    ({"order": 1}, "order 1, expected 2, 3, 4 or 5"), ({"order": 6}, "order 6, expected 2, 3, 4 or 5"),
    ({"low": 1.0}, "a grid from 1 to 1, expected finite numbers, low below high"),
    ({"high": np.inf}, "a grid from -1 to inf, expected finite numbers, low below high"),
])
def test_what_is_refused(given: dict[str, float], message: str) -> None:
    settings: dict[str, float] = {"in_features": 2, "out_features": 3} | given
    with pytest.raises(ArgumentError) as error:
        bridge.Network(Model((Spline("s", **settings),)))  # type: ignore[arg-type]
    assert str(error.value) == f"layer s (spline): {message}"
