# SPDX-License-Identifier: MIT
"""Arithmetic classes: each algorithm against direct sums in float64, and its noise against what float32 makes of it."""

from __future__ import annotations

import numpy as np
import pytest

from bridge.exchange.model import Conv2d
from bridge.judge.oracle import convolution
from bridge.judge.oracle.algorithm import Algorithm
from bridge.judge.oracle.fast_algorithms import ALGORITHMS, FAMILIES
from bridge.judge.oracle.winograd import POINTS, transform

U = 2.0**-24
SIZE = (13, 18)


def all_three(by: Algorithm, x: np.ndarray, w: np.ndarray, dy: np.ndarray, layer: Conv2d, **noise: bool):
    return (by.forward(x, w, layer, **noise), by.backward_data(dy, w, layer, SIZE, **noise),
            by.backward_filter(x, dy, layer, **noise))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_is_right_and_inside_its_noise(name: str) -> None:
    algorithm, seen = ALGORITHMS[name], 0
    for taps, padding, groups in (((3, 3), (1, 1), 1), ((3, 3), (0, 2), 2), ((5, 5), (2, 1), 1), ((3, 3), (3, 3), 1)):
        layer = Conv2d("c", 4, 6, taps, padding=padding, groups=groups, bias=False)
        if not algorithm.applies(layer):
            continue
        seen += 1
        rng = np.random.default_rng(3)
        shapes = (4, *SIZE), layer.weight_shape, layer.output_shape((1, 4, *SIZE))[1:]
        given = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        x, w, dy = (one.astype(np.float64) for one in given)
        right = (convolution.forward(x, [w], layer)[0], convolution.backward_data(dy, w, layer, SIZE),
                 convolution.backward_filter(x, [dy], layer)[0])
        found, noise = all_three(algorithm, *given, layer), all_three(algorithm, x, w, dy, layer, noise=True)
        for one, value, extra in zip(found, right, noise, strict=True):
            assert one.shape == value.shape == extra.shape
            assert np.abs(one - value).max() > 0
            assert np.all(np.abs(one - value) <= U * extra)
        if algorithm.family != "split":
            for one, value in zip(all_three(algorithm, x, w, dy, layer), right, strict=True):
                assert np.abs(one - value).max() < 1e-10
    assert seen


def test_noise_lives_where_no_product_does() -> None:
    """One bright pixel: direct sums are exactly 0 three pixels away, and transforms are not."""
    layer = Conv2d("c", 1, 1, (3, 3), padding=(1, 1), bias=False)
    x, w = np.zeros((1, 12, 12)), np.ones((1, 1, 3, 3))
    x[0, 1, 1] = 1.0
    assert convolution.forward(x, [w], layer)[0][0, 3, 3] == 0
    for name in ("Winograd F(4x4,3x3)", "FFT", "Strassen, one level"):
        assert ALGORITHMS[name].forward(x, w, layer, noise=True)[0, 3, 3] > 0


@pytest.mark.parametrize("layer", [Conv2d("s", 4, 4, (3, 3), stride=(2, 2)), Conv2d("d", 4, 4, (3, 3), dilation=(2, 2)),
                                   Conv2d("p", 4, 4, (1, 1))])
def test_transforms_are_for_plain_windows(layer: Conv2d) -> None:
    assert {one.family for one in ALGORITHMS.values() if one.applies(layer)} <= {"strassen", "split"}


def test_all_points_are_used_and_all_families_have_names() -> None:
    assert transform(6, 3).bt.shape == (len(POINTS) + 1,) * 2
    assert FAMILIES == ("winograd", "fft", "strassen", "split")
