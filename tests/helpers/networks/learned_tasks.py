# SPDX-License-Identifier: MIT
"""Small tasks that networks really learn in 200 steps: noise is taken off pictures, drawn shapes are told apart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray
#: Images and what the network should make of them, (n, c, h, w) and (n, ...), float32
Batch = tuple[Array, Array]
#: Deviation of the noise on pictures from 0 to 1
NOISE = 0.25


def noisy_pictures(generator: np.random.Generator, number: int, size: int = 16) -> Batch:
    """Disks on stripes with noise on them, and the same without it.

    Examples
    --------
    >>> x, target = noisy_pictures(np.random.default_rng(1), 3)
    >>> x.shape == target.shape == (3, 1, 16, 16), 0.05 < ((x - target) ** 2).mean() < 0.08
    (True, True)
    """
    clean = np.stack([_picture(generator, size) for _ in range(number)])[:, None]
    return (clean + NOISE * generator.standard_normal(clean.shape)).astype(np.float32), clean.astype(np.float32)


def _picture(generator: np.random.Generator, size: int) -> Array:
    y, x = np.mgrid[:size, :size]
    angle, place = generator.uniform(0, np.pi), generator.uniform(0.25, 0.75, 2) * size
    stripes = 0.3 + 0.2 * np.sign(np.sin((x * np.cos(angle) + y * np.sin(angle)) * 2 * np.pi / 8))
    return np.where(np.hypot(x - place[0], y - place[1]) < generator.uniform(0.15, 0.3) * size, 1.0, stripes)


def _disk(y: Array, x: Array) -> Array:
    return np.hypot(y, x) < 1


def _ring(y: Array, x: Array) -> Array:
    return abs(np.hypot(y, x) - 0.8) < 0.25


def _square(y: Array, x: Array) -> Array:
    return np.maximum(abs(y), abs(x)) < 0.9


def _bar(y: Array, x: Array) -> Array:
    return (abs(y) < 0.3) & (abs(x) < 1)


def _cross(y: Array, x: Array) -> Array:
    return _bar(y, x) | _bar(x, y)


#: Of coordinates from -1 to 1, in this order the classes
SHAPES: tuple[Callable[[Array, Array], Array], ...] = (
    _bar, lambda y, x: _bar(x, y), _square, _cross, _ring, _disk, lambda y, x: _cross(y + x, y - x),
    lambda y, x: (abs(x) < (1 + y) / 2) & (abs(y) < 1), lambda y, x: abs(np.maximum(abs(y), abs(x)) - 0.8) < 0.2,
    lambda y, x: _bar(y - 0.6, x) | _bar(y + 0.6, x))


def drawn_shapes(generator: np.random.Generator, number: int, size: int, classes: int, channels: int = 1) -> Batch:
    """Shapes of some classes, each somewhere near the middle with its own size, in noise, and the classes as
    probabilities 0 and 1.

    Examples
    --------
    >>> x, target = drawn_shapes(np.random.default_rng(1), 5, 12, 4)
    >>> x.shape, target.shape, float(target.sum())
    ((5, 1, 12, 12), (5, 4), 5.0)
    """
    chosen = generator.integers(classes, size=number)
    y, x = np.mgrid[-1:1:size * 1j, -1:1:size * 1j]
    images = np.empty((number, channels, size, size), np.float32)
    for image, one in zip(images, chosen, strict=True):
        (dy, dx), radius = generator.uniform(-0.2, 0.2, 2), generator.uniform(0.5, 0.8)
        shape = SHAPES[one]((y - dy) / radius, (x - dx) / radius)
        colour = generator.uniform(0.6, 1.0, (channels, 1, 1))
        image[:] = colour * shape + 0.2 * generator.standard_normal(image.shape)
    return images, np.eye(classes, dtype=np.float32)[chosen]

