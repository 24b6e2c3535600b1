# SPDX-License-Identifier: MIT
"""Fourier ring correlation against what is known of it."""

from __future__ import annotations

import numpy as np
import pytest

from bridge.common.errors import ArgumentError
from bridge.train.ring_correlation import RingCorrelation, ring_correlation

SHAPES = [(128, 128), (96, 129), (131, 64)]


def low_pass(image: np.ndarray, limit: float) -> np.ndarray:
    """Nothing above a frequency, in cycles per pixel."""
    h, w = image.shape
    radius = np.hypot(np.fft.fftfreq(h)[:, None], np.fft.fftfreq(w))
    return np.asarray(np.fft.ifft2(np.fft.fft2(image) * (radius < limit)).real)


@pytest.mark.parametrize("shape", SHAPES)
def test_equal_images_agree_and_independent_ones_do_not(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    one = rng.standard_normal(shape)
    assert np.allclose(ring_correlation(one, 3 * one + 5).correlation, 1)
    assert np.allclose(ring_correlation(one, -one).correlation, -1)
    found = [ring_correlation(*rng.standard_normal((2, *shape))) for _ in range(20)]
    # Each ring's is about 1 / sqrt(coefficients), more for the window
    assert abs(np.mean([one.correlation[8:] for one in found])) < 0.03
    assert found[0].frequency[-1] == 0.5 and found[0].frequency.shape == (min(shape) // 2,)


@pytest.mark.parametrize("shape", [(16, 16), (12, 17), (19, 14)])
def test_every_coefficient_counts_once(shape: tuple[int, int]) -> None:
    """By all of both transforms, ring by ring."""
    one, other = np.random.default_rng(4).standard_normal((2, *shape)) + np.ones((2, *shape))
    h, w = shape
    window = np.hanning(h + 2)[1:-1, None] * np.hanning(w + 2)[1:-1]
    a, b = (np.fft.fft2((image - image.mean()) * window) for image in (one, other))
    radius = np.hypot(np.fft.fftfreq(h)[:, None], np.fft.fftfreq(w))
    found = ring_correlation(one, other)
    for frequency, correlation in zip(found.frequency, found.correlation, strict=True):
        ring = np.abs(radius - frequency) * 2 * (min(shape) // 2) < 0.5
        expected = (a * b.conj())[ring].sum().real / np.sqrt((abs(a[ring]) ** 2).sum() * (abs(b[ring]) ** 2).sum())
        assert correlation == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_the_correlation_is_that_of_signal_and_noise(noise: float) -> None:
    """S / (S + N) of white signals and noises, whatever their scales are."""
    rng = np.random.default_rng(2)
    signal, *noises = rng.standard_normal((3, 400, 400))
    found = ring_correlation(signal + noise * noises[0], 2 * (signal + noise * noises[1]))
    assert found.correlation[20:].mean() == pytest.approx(1 / (1 + noise**2), abs=0.01)


@pytest.mark.parametrize("limit", [0.1, 0.27])
def test_the_resolution_is_where_the_signal_ends(limit: float) -> None:
    rng = np.random.default_rng(3)
    signal = low_pass(10 * rng.standard_normal((256, 256)), limit)
    found = ring_correlation(*(signal + rng.standard_normal((256, 256)) for _ in range(2)))
    assert found.resolution() == pytest.approx(limit, abs=0.01)


def test_what_is_constant_has_no_correlation() -> None:
    flat = np.full((16, 16), 7.0)
    found = ring_correlation(flat, flat)
    assert not found.correlation.any() and found.resolution() == found.frequency[0]
    assert RingCorrelation(np.array([0.25, 0.5]), np.ones(2)).resolution() == 0.5


@pytest.mark.parametrize(("one", "other"), [
    (np.zeros((4, 5)), np.zeros((5, 4))), (np.zeros((1, 4, 4)), np.zeros((1, 4, 4))),
    (np.zeros((3, 9)), np.zeros((3, 9))), (np.full((8, 8), np.nan), np.zeros((8, 8)))])
def test_bad_images_are_refused(one: np.ndarray, other: np.ndarray) -> None:
    with pytest.raises(ArgumentError, match="expected"):
        ring_correlation(one, other)
