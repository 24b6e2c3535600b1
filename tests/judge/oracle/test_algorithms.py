# SPDX-License-Identifier: MIT
"""Algorithms of convolution that are no sums of products: what they compute, and bounds that they stay inside."""

from __future__ import annotations

import numpy as np
import pytest

from bridge.common.errors import ArgumentError
from bridge.exchange.model import Conv2d
from bridge.judge.oracle import convolution
from bridge.judge.oracle.algorithm import Algorithm, transposed, turned_kernels
from bridge.judge.oracle.algorithms import (
    Fft,
    Winograd,
    families,
    known,
    summed,
    title,
)
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.winograd import Filtering, matrices

U = 2.0**-24
LAYERS = (
    Conv2d("one", 1, 4, (3, 3), padding=(1, 1), bias=False),
    Conv2d("groups", 4, 6, (3, 3), padding=(0, 2), groups=2, bias=False),
    # The data gradient cuts off what the padding added
    Conv2d("cut", 2, 4, (1, 2), padding=(2, 0), bias=False),
    # Three filters are padded to four for a second halving
    Conv2d("padded", 1, 3, (3, 3), padding=(1, 1), bias=False),
    Conv2d("five", 3, 5, (5, 3), padding=(2, 1), bias=False),
    Conv2d("strided", 3, 4, (3, 3), stride=(2, 1), dilation=(1, 2), bias=False),
)


def operands(layer: Conv2d) -> tuple[np.ndarray, np.ndarray]:
    """An image with a dead corner, and filters; float32."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((layer.in_channels, 27, 22), dtype=np.float32)
    x[:, 12:, 9:] = 0
    return x, rng.standard_normal(layer.weight_shape, dtype=np.float32)


def test_minimal_filtering_is_a_sum_of_products() -> None:
    rng = np.random.default_rng(0)
    for m, r in ((2, 3), (4, 3), (6, 3), (2, 5), (4, 5), (2, 2), (1, 3), (4, 1)):
        at, g, bt = matrices(m, r)
        d, w = rng.standard_normal(m + r - 1), rng.standard_normal(r)
        np.testing.assert_allclose(at @ ((g @ w) * (bt @ d)), np.correlate(d, w), rtol=0, atol=1e-12)


def test_each_computes_a_convolution_and_its_data_gradient() -> None:
    """In float64 to rounding; in float32 inside the bound of its own, also where sums of products must be exact."""
    applied = dict.fromkeys((one.name for one in known()), 0)
    for layer in LAYERS:
        x, w = operands(layer)
        turned, dz = transposed(layer), operands(layer)[0]
        cases = [(x, w, layer)]
        if turned is not None:
            dz = np.resize(x, (layer.out_channels, *layer.output_shape((1, *x.shape))[2:]))
            cases.append((dz, turned_kernels(w, layer.groups), turned))
            right = convolution.backward_data(dz.astype(float), w.astype(float), layer, x.shape[1:])
            found = summed(cases[1][0].astype(float), cases[1][1].astype(float), turned)
            np.testing.assert_allclose(found, right, rtol=0, atol=1e-12)
        for one in known():
            if one.applies(layer):
                applied[one.name] += 1
                for case in cases:
                    inside(one, *case)
    assert {name for name, n in applied.items() if not n} == UNUSED


#: Two taps along h are in no layer here
UNUSED = {"Winograd F(3x1)", "Winograd F(3x3)"}


def inside(one: Algorithm, x: np.ndarray, w: np.ndarray, layer: Conv2d) -> None:
    exact, absolute = x.astype(float), np.abs(x.astype(float))
    right = summed(exact, w.astype(float), layer)
    c = summed(absolute, np.abs(w.astype(float)), layer)
    if one.family != "split":
        np.testing.assert_allclose(one.forward(exact, w.astype(float), layer), right, rtol=0, atol=1e-10)
    found = one.forward(x, w, layer)
    assert found.dtype == np.float32 and found.shape == right.shape
    n = convolution.products_forward(layer, x.shape[1:], right.shape[1:])
    bound = Arithmetic(U, one.operand).factor(n) * c + U * one.forward_bound(absolute, np.abs(w.astype(float)), layer)
    assert (np.abs(found - right) <= bound).all(), (one.name, layer.name)
    # It is no licence for anything: a thousandth of the sum of absolute values is outside
    assert np.median(bound / (c + 1e-30)) < 1e-3, one.name


@pytest.mark.parametrize(("of_x", "of_w"), [(-75, -75), (-65, -65), (-140, 0), (0, -126), (-30, -110), (-147, 0)])
def test_each_is_inside_its_bound_among_subnormal_numbers(of_x: int, of_w: int) -> None:
    """Where operands, what is transformed, or products are rounded to a whole multiple of the smallest number."""
    for layer in LAYERS:
        x, w = (np.ldexp(one, power).astype(np.float32)
                for one, power in zip(operands(layer), (of_x, of_w), strict=True))
        exact = x.astype(float), w.astype(float)
        right, c = summed(*exact, layer), summed(*map(np.abs, exact), layer)
        n = convolution.products_forward(layer, x.shape[1:], right.shape[1:])
        for one in known():
            # Halves of operands in bfloat16 are a lower precision, whose subnormal numbers are fewer
            if one.applies(layer) and one.family != "split":
                arithmetic = Arithmetic(U, algorithm=one)
                noise = arithmetic.noise(lambda a, b, one=one, layer=layer: one.forward_bound(a, b, layer),
                                         *map(np.abs, exact))
                bound = arithmetic.with_underflow(arithmetic.factor(n) * c, n) + noise
                assert (np.abs(one.forward(x, w, layer) - right) <= bound).all(), (one.name, layer.name)


def test_a_filter_gradient_has_a_bound_that_is_neither_nothing_nor_everything() -> None:
    layer = LAYERS[2]
    x = np.abs(operands(layer)[0].astype(float))
    dz = np.abs(np.resize(x, layer.output_shape((1, *x.shape))[1:]))
    c = convolution.backward_filter(x, [dz], layer)[0]
    for one in known():
        bound = U * np.broadcast_to(one.filter_bound(x, dz, layer), c.shape)
        if one.applies(layer) and one.family != "split":
            assert (bound > 0).all() and (bound < 1e-2 * c).all(), one.name
        else:
            assert not bound.any()


def test_the_bound_does_not_depend_on_the_rows_that_are_computed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = operands(LAYERS[0])
    filtering = Filtering((4, 4), (3, 3))
    whole = filtering.correlate(x, w), filtering.filter_bound(x.astype(float), np.ones((2, 25, 20)))
    monkeypatch.setattr("bridge.judge.oracle.winograd.BLOCK", 1)
    parts = filtering.correlate(x, w), filtering.filter_bound(x.astype(float), np.ones((2, 25, 20)))
    np.testing.assert_array_equal(whole[0], parts[0])
    np.testing.assert_allclose(whole[1], parts[1], rtol=1e-12)


def test_names() -> None:
    assert title(Winograd("Winograd F(4x4)", "winograd", m=(4, 4)), LAYERS[0]) == "Winograd F(4x4,3x3)"
    assert title(Fft("FFT of the whole image", "fft"), LAYERS[0]) == "FFT of the whole image"
    assert families("FFT,winograd", "x") == {"fft", "winograd"} and families("direct", "x") == frozenset()
    with pytest.raises(ArgumentError, match="x: 'winegrad' found, expected some of winograd, fft, strassen, split"):
        families("winegrad", "x")


def test_strassen_is_tried_where_the_data_gradient_has_rows_to_halve() -> None:
    """A layer with one output has no rows to halve, but its data gradient has as many as there are inputs."""
    applied = [one.name for one in known() if one.family == "strassen" and one.applies(Conv2d("one", 6, 1, (3, 3)))]
    assert applied[:2] == ["Strassen, 1 level", "Strassen, 2 levels"]
    assert applied[2:] == [f"{one}, of the whole batch" for one in applied[:2]]
    assert not any(one.family == "strassen" and one.applies(Conv2d("one", 1, 1, (3, 3))) for one in known())
