# SPDX-License-Identifier: MIT
"""Losses and activations by the other formulas that right programs use, in float32: inside the bounds, which a formula
that is wrong by 1e-4 is not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from bridge.judge.measure.error_statistics import measure
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff
from bridge.operations import Attention, elementary, pointwise
from bridge.operations.losses import BinaryCrossEntropy, CrossEntropy, Huber, Loss, MeanSquaredError, SmoothL1

Array = np.ndarray
f = np.float32
ARITHMETIC = Arithmetic(total_roundoff("float32"))
#: Images and channels, neither of them a power of two
SHAPES = ((63, 63), (13, 49), (64, 64))


def exact(x: Array) -> Bounded:
    return Bounded(x.astype(np.float64), 0.0, ARITHMETIC)


def t_of(found: Array, right: Bounded) -> float:
    assert found.dtype == np.float32
    return measure(found, right.value, right.error).t


def by_two(x: Array) -> Array:
    """The exponential as CUDA's __expf and Triton's have it."""
    return np.exp2(x * f(math.log2(math.e)))


def of_optax(e: Array, delta: np.float32, g: Array) -> Array:
    """The gradient of ``q*q/2 + delta*(|e| - q)`` by jax.grad, g times, as its tape adds it up, of q**2 or q*q."""
    q = np.minimum(np.abs(e), delta)
    half = g * q * f(0.5)
    both = np.where(np.arange(e.size).reshape(e.shape) % 2, (g * q - g * delta), (half - g * delta) + half)
    return np.where(np.abs(e) < delta, both + g * delta, g * delta) * np.sign(e)


def of_means(shape: tuple[int, int]) -> np.float32:
    """What an element has in a mean of means."""
    return (f(1) / f(shape[0])) * (f(1) / f(shape[1]))


def shares(y: Array) -> Array:
    e = by_two(y - y.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def of_logarithms(y: Array, t: Array, g: np.float32) -> Array:
    """By reciprocals, as TensorFlow differentiates a logarithm."""
    return (g * (f(1) - t)) * (f(1) / (f(1) - y)) - (g * t) * (f(1) / y)


#: Loss, and its gradient g times from y and t
GRADIENTS: dict[str, tuple[Loss, Callable[[Array, Array, np.float32], Array]]] = {
    "huber 1": (Huber(), lambda y, t, g: of_optax(y - t, f(1), g)),
    "huber 0.3": (Huber(delta=0.3), lambda y, t, g: of_optax(y - t, f(0.3), g)),
    "smooth_l1 0.3": (SmoothL1(beta=0.3), lambda y, t, g: of_optax(y - t, f(0.3), g / f(0.3))),
    "smooth_l1 2": (SmoothL1(beta=2.5), lambda y, t, g: of_optax(y - t, f(2.5), g / f(2.5))),
    "mse": (MeanSquaredError(), lambda y, t, g: f(2) * (y - t) * g),
    "bce": (BinaryCrossEntropy(), lambda y, t, g: of_logarithms(y, t, g)),
}


def drawn(kind: str, shape: tuple[int, int], seed: int) -> tuple[Array, Array]:
    y, t = np.random.default_rng(seed).standard_normal((2, *shape)).astype(f)
    if kind == "bce":
        return f(1) / (f(1) + np.exp(-y)), f(1) / (f(1) + np.exp(-t))
    # Some are equal nearly to the bit
    t[:, 0] = y[:, 0] * f(1 + 2.0**-20)
    return y, t


@pytest.mark.parametrize("kind", GRADIENTS)
def test_other_gradients_of_losses_are_inside_the_bounds(kind: str) -> None:
    loss, gradient = GRADIENTS[kind]
    for seed, shape in enumerate(SHAPES):
        y, t = drawn(kind, shape, seed)
        right = loss.backward(exact(y), exact(t))
        for g in (f(1) / f(y.size), of_means(shape)):
            found = gradient(y, t, g)
            assert t_of(found, right) <= 1
            assert t_of(found * f(1.0001), right) > 50
            # A hundredth of the roundings at the end of the parabola is no excuse for others
            assert t_of(gradient(y, t * f(1.0001), g), right) > 10


def test_the_gradient_of_a_cross_entropy_by_powers_of_two() -> None:
    for seed, shape in enumerate(SHAPES):
        y, t = drawn("cross_entropy", shape, seed)
        y, t = f(20) * y, shares(t)
        right = CrossEntropy().backward(exact(y), exact(t))
        found = (shares(y) - t) * (f(1) / f(shape[0]))
        assert t_of(found, right) <= 1 and t_of(found * f(1.0001), right) > 50


def test_a_wrong_end_of_a_parabola_is_outside() -> None:
    y, t = drawn("huber", (13, 49), 0)
    g = f(1) / f(y.size)
    for loss, found in ((Huber(delta=0.3), of_optax(y - t, f(0.3001), g)),
                        (SmoothL1(beta=0.3), of_optax(y - t, f(0.3001), g / f(0.3001)))):
        assert t_of(found, loss.backward(exact(y), exact(t))) > 50


def erf(x: Array) -> Array:
    """By Abramowitz and Stegun, 7.1.26, in float32."""
    t = f(1) / (f(1) + f(0.3275911) * np.abs(x))
    p = f(1.061405429) * t - f(1.453152027)
    for a in (1.421413741, -0.284496736, 0.254829592):
        p = p * t + f(a)
    return np.sign(x) * (f(1) - p * t * np.exp(-x * x))


def sigmoid(z: Array) -> Array:
    return f(1) / (f(1) + by_two(-z))


def density(z: Array) -> Array:
    return np.exp(f(-0.5) * z * z) * f(1 / math.sqrt(2 * math.pi))


#: Value, and dy times the derivative, by other formulas
FUNCTIONS: dict[str, tuple[pointwise.Pointwise, Callable[[Array], Array], Callable[[Array, Array], Array]]] = {
    "exp": (elementary.Exp(""), by_two, lambda dy, z: dy * by_two(z)),
    "sigmoid": (pointwise.Sigmoid(""), sigmoid, lambda dy, z: dy * (sigmoid(z) * (f(1) - sigmoid(z)))),
    "silu": (pointwise.Silu(""), lambda z: z * sigmoid(z),
             lambda dy, z: dy * (sigmoid(z) * (f(1) + z * (f(1) - sigmoid(z))))),
    "softplus": (pointwise.Softplus("", threshold=1e9),
                 lambda z: np.maximum(z, 0) + np.log1p(by_two(-np.abs(z))),
                 lambda dy, z: dy * by_two(z - (np.maximum(z, 0) + np.log1p(by_two(-np.abs(z)))))),
    "gelu": (pointwise.Gelu(""), lambda z: f(0.5) * z * (f(1) + erf(z * f(math.sqrt(0.5)))),
             lambda dy, z: dy * (f(0.5) * (f(1) + erf(z * f(math.sqrt(0.5)))) + z * density(z))),
    "log10": (elementary.Log10(""), lambda z: np.log2(z) * f(math.log10(2)),
              lambda dy, z: (dy * f(1 / math.log(10))) * (f(1) / z)),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_other_formulas_of_activations_are_inside_the_bounds(kind: str) -> None:
    function, value, gradient = FUNCTIONS[kind]
    rng, size = np.random.default_rng(49), np.repeat([0.05, 1.0, 20.0], 20_000)
    z = (size * rng.standard_normal(size.size)).astype(f).clip(-80, 80)
    z = np.abs(z) + f(1e-3) if kind == "log10" else z
    dy = rng.standard_normal(z.size).astype(f)
    for found, right in ((value(z), function.value(exact(z))),
                         (gradient(dy, z), function.gradient(exact(dy), exact(z)))):
        assert t_of(found, right) <= 1
        assert t_of(found * f(1.0001), right) > 10


@pytest.mark.parametrize("z", [-60.0, 3.0])
def test_an_exponential_is_off_by_no_more_than_its_argument_is_large(z: float) -> None:
    """1.25 u of |z|, and a few units: not twice as much."""
    number = np.array([z], f)
    right = exact(number).exp()
    assert right.error[0] <= (1.26 * abs(z) + 8.1) * ARITHMETIC.u * right.value[0]
    assert t_of((right.value * (1 + 3 * abs(z) * 2.0**-24 + 16 * 2.0**-24)).astype(f), right) > 1


def test_an_exponential_next_to_the_smallest_number_may_be_that() -> None:
    """In float64, of an argument whose own error decides it; far below it is 0 for everybody."""
    x = Bounded(np.array([-745.2, -744.5, -800.0]), np.full(3, 0.5), Arithmetic(total_roundoff("float64")))
    assert (np.exp(x.value) == [0.0, 5e-324, 0.0]).all()
    error = x.exp().error
    assert error[0] >= 5e-324 and error[1] >= 5e-324 and error[2] == 0


def test_scores_of_attention_have_room_for_who_scales_before_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries or keys: their rounding is of the size of the absolute products, not of their sum. That of the factor is
    the same for all of them, and remains a part of the sum.
    """
    seen: dict[str, Bounded] = {}
    plain = Bounded.named

    def named(self: Bounded, label: str, *axes: str) -> Bounded:
        seen[label] = self
        return plain(self, label, *axes)

    monkeypatch.setattr(Bounded, "named", named)
    rng = np.random.default_rng(0)
    for size in (0.0, 2.0**-20):
        q, k, v = (Bounded(rng.standard_normal((2, 9, 5)), size * rng.random((2, 9, 5)), ARITHMETIC) for _ in range(3))
        Attention("a", inputs=("x", "x", "x")).forward([q, k, v], {})
        turned, factor = k.transpose((0, 2, 1)), q.exact(np.asarray(1 / math.sqrt(5)))
        for other in ((q @ turned) * factor, (q * factor) @ turned, q @ (turned * factor)):
            assert (seen["the scores"].error >= other.error).all()
