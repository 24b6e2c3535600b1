# SPDX-License-Identifier: MIT
"""The numpy oracle against torch in float64, and against plain loops."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from bridge.exchange.model import Conv2d, Model, Relu
from bridge.judge.oracle import convolution
from bridge.judge.oracle import step as bounds
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.reductions import StepSums, loss_bound

Array = np.ndarray
MANY = settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class Case:
    """A layer and the height and width of its input."""

    layer: Conv2d
    size: tuple[int, int]

    @property
    def out(self) -> tuple[int, int]:
        shape = self.layer.output_shape((1, self.layer.in_channels, *self.size))
        return shape[2], shape[3]

    def random(self, seed: int = 0) -> tuple[Array, Array, Array]:
        """x, w, dy."""
        rng = np.random.default_rng(seed)
        return (
            rng.standard_normal((self.layer.in_channels, *self.size)),
            rng.standard_normal(self.layer.weight_shape),
            rng.standard_normal((self.layer.out_channels, *self.out)),
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any layer that fits its image."""
    pairs = st.tuples(st.integers(1, 4), st.integers(1, 4))
    groups = draw(st.integers(1, 3))
    layer = Conv2d(
        "a",
        groups * draw(st.integers(1, 3)),
        groups * draw(st.integers(1, 3)),
        draw(pairs),
        draw(pairs),
        draw(st.tuples(st.integers(0, 5), st.integers(0, 5))),
        draw(pairs),
        groups,
    )
    size = draw(st.tuples(st.integers(1, 12), st.integers(1, 12)))
    assume(
        all(
            n + 2 * p > d * (k - 1)
            for n, p, d, k in zip(size, layer.padding, layer.dilation, layer.kernel_size, strict=True)
        )
    )
    return Case(layer, size)


def torch_conv(layer: Conv2d, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.conv2d(x[None], w, None, layer.stride, layer.padding, layer.dilation, layer.groups)[0]


def by_torch(case: Case, x: Array, w: Array, dy: Array) -> tuple[Array, Array, Array]:
    """y, dx, dw in float64."""
    tx, tw = (torch.tensor(a, requires_grad=True) for a in (x, w))
    y = torch_conv(case.layer, tx, tw)
    dx, dw = torch.autograd.grad(y, (tx, tw), torch.tensor(dy))
    return y.detach().numpy(), dx.numpy(), dw.numpy()


@given(cases())
@MANY
def test_convolutions_equal_torch(case: Case) -> None:
    x, w, dy = case.random()
    y, dx, dw = by_torch(case, x, w, dy)
    both = convolution.forward(x, [w, np.abs(w)], case.layer)
    np.testing.assert_allclose(both[0], y, rtol=0, atol=1e-13 * (1 + np.abs(y).max()))
    np.testing.assert_allclose(both[1], by_torch(case, x, np.abs(w), dy)[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        convolution.backward_data(dy, w, case.layer, case.size), dx, rtol=0, atol=1e-13 * (1 + np.abs(dx).max())
    )
    found = convolution.backward_filter(x, [dy, 2 * dy], case.layer)
    np.testing.assert_allclose(found[0], dw, rtol=0, atol=1e-13 * (1 + np.abs(dw).max()))
    np.testing.assert_allclose(found[1], 2 * dw, rtol=0, atol=2e-13 * (1 + np.abs(dw).max()))


@given(cases())
@MANY
def test_numbers_of_products_are_exact(case: Case) -> None:
    """Convolving ones counts the products: taps outside the image are none."""
    ones = [np.ones_like(array) for array in case.random()]
    y, dx, dw = by_torch(case, *ones)
    for counted, torchs in (
        (convolution.products_forward(case.layer, case.size, case.out), y),
        (convolution.products_data(case.layer, case.size, case.out), dx),
        (convolution.products_filter(case.layer, case.size, case.out), dw),
    ):
        np.testing.assert_array_equal(np.broadcast_to(counted, torchs.shape), torchs)


def test_a_tiny_case_by_hand() -> None:
    """The definition as plain loops: independent of torch, too."""
    case = Case(Conv2d("a", 4, 6, (3, 2), (2, 1), (1, 2), (1, 2), 2), (5, 4))
    x, w, dy = case.random(3)
    y, dx, dw = np.zeros_like(dy), np.zeros_like(x), np.zeros_like(w)
    layer = case.layer
    for k, p, q, c, r, s in product(*(range(n) for n in (*dy.shape, *w.shape[1:]))):
        channel = k // 3 * 2 + c
        i, j = (p * layer.stride[0] + r * layer.dilation[0] - 1, q * layer.stride[1] + s * layer.dilation[1] - 2)
        if 0 <= i < 5 and 0 <= j < 4:
            y[k, p, q] += w[k, c, r, s] * x[channel, i, j]
            dx[channel, i, j] += w[k, c, r, s] * dy[k, p, q]
            dw[k, c, r, s] += dy[k, p, q] * x[channel, i, j]
    for found, wanted in (
        (convolution.forward(x, [w], layer)[0], y),
        (convolution.backward_data(dy, w, layer, (5, 4)), dx),
        (convolution.backward_filter(x, [dy], layer)[0], dw),
    ):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14)


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images are unfolded a few rows at a time; with one row at a time nothing else comes out."""
    case = Case(Conv2d("a", 2, 3, (3, 2), (2, 1), (2, 1), (2, 1)), (17, 9))
    x, w, dy = case.random()
    whole = convolution.forward(x, [w], case.layer)[0], convolution.backward_filter(x, [dy], case.layer)[0]
    monkeypatch.setattr(convolution, "BLOCK", 1)
    rows = convolution.forward(x, [w], case.layer)[0], convolution.backward_filter(x, [dy], case.layer)[0]
    for a, b in zip(whole, rows, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)


CHAINS = {
    "default": (
        (
            Conv2d("conv1", 1, 5, (3, 3), padding=(1, 1)),
            Relu("r1"),
            Conv2d("conv2", 5, 4, (3, 2), padding=(1, 1)),
            Relu("r2"),
            Conv2d("conv3", 4, 1, (3, 3), padding=(1, 0)),
        ),
        True,
    ),
    "strange": (
        (
            Relu("r0"),
            Conv2d("a", 1, 6, (2, 3), (2, 1), (0, 2), (1, 2), bias=False),
            Relu("r1"),
            Conv2d("b", 6, 4, (1, 2), (1, 2), groups=2),
            Relu("r2"),
        ),
        False,
    ),
    "one relu": ((Relu("only"),), True),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_whole_step_equals_autograd(name: str) -> None:
    """Every tensor, the loss and the sums over the batch."""
    layers, mean = CHAINS[name]
    model, rng = Model(layers, mean), np.random.default_rng(5)
    shape = (3, 1, 9, 11)
    weights = {n: rng.standard_normal(s) for n, s in model.parameter_shapes().items()}
    x, target = rng.standard_normal(shape), rng.standard_normal(model.output_shapes(shape)[-1])
    scale = 1 / target.size if mean else 1.0
    found: dict[str, list[Array]] = {}
    sums = StepSums()
    for image in range(3):
        sums.add(
            bounds.step_of_image(
                model,
                weights,
                x[image],
                target[image],
                scale,
                Arithmetic(2.0**-53),
                lambda n, value, e: found.setdefault(n, []).append(value.copy()),
            )
        )
    wanted = autograd_step(model, weights, x, target)
    found = {n: np.stack(values) for n, values in found.items()}
    found |= {f"grads/{n}": parts.value for n, parts in sums.gradients.items()}
    found["loss"] = np.float64(loss_bound(sums, scale, target.size, Arithmetic(2.0**-53))[0])
    assert found.keys() == wanted.keys()
    for n, value in wanted.items():
        np.testing.assert_allclose(found[n], value, rtol=0, atol=1e-12 * (1 + np.abs(value).max()), err_msg=n)


def autograd_step(model: Model, weights: dict[str, Array], x: Array, target: Array) -> dict[str, Array]:
    """By torch."""
    learned = {n: torch.tensor(w, requires_grad=True) for n, w in weights.items()}
    outputs = {"input": torch.tensor(x, requires_grad=True)}
    a = outputs["input"]
    for layer in model.layers:
        if isinstance(layer, Conv2d):
            a = torch.conv2d(
                a,
                learned[f"{layer.name}/weight"],
                learned.get(f"{layer.name}/bias"),
                layer.stride,
                layer.padding,
                layer.dilation,
                layer.groups,
            )
        else:
            a = torch.relu(a)
        outputs[layer.name] = a
    loss = torch.nn.functional.mse_loss(a, torch.tensor(target), reduction="mean" if model.mean else "sum")
    tracked = {f"grads/{n}/output".replace("input/output", "input"): z for n, z in outputs.items()}
    tracked |= {f"grads/{n}": w for n, w in learned.items()}
    found = dict(zip(tracked, torch.autograd.grad(loss, list(tracked.values())), strict=True)) | {"loss": loss}
    found |= {f"forward/{n}": z for n, z in outputs.items() if n != "input"}
    return {n: value.detach().numpy() for n, value in found.items()}
