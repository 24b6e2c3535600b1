# SPDX-License-Identifier: MIT
"""Synthetic micrographs: one lopsided particle in many orientations, uneven ice, two kinds of noise.

Nothing in them is symmetric, and positive and negative values are about as many: a flipped, transposed or
shifted tensor shows, and a ReLU has work to do.
"""

from __future__ import annotations

import numpy as np

# Smaller images are cut out of one of this side, so that mean and deviation mean something.
SMALLEST_CANVAS = 16
# In units of the clean image's deviation: of about the strength that makes denoising worth while.
WHITE_NOISE = 1.0
CORRELATED_NOISE = 0.5
CORRELATION_PIXELS = 3.0

# The particle, in units of its radius: blobs of (x, y, long sigma, short sigma, angle in radians, height).
_BLOBS = np.array(
    [
        (0.00, 0.00, 0.45, 0.20, 0.3, 1.0),
        (0.55, 0.25, 0.30, 0.12, 1.4, 0.8),
        (-0.35, 0.50, 0.22, 0.10, 2.3, -0.9),
        (0.20, -0.55, 0.18, 0.12, 0.0, 0.6),
        (-0.60, -0.20, 0.25, 0.08, 0.9, -0.7),
    ]
)
# Beyond this many radii a particle is below 1 % of its height.
_REACH = 1.5


def synthetic_micrograph(rng: np.random.Generator, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return one noisy micrograph and what it would be without noise.

    Parameters
    ----------
    rng : numpy Generator
        The only source of randomness.
    height, width : int >= 1, in pixels

    Returns
    -------
    noisy, clean : float64, shape (height, width)
        On one scale: that on which `noisy` has mean 0 and standard deviation 1 (before an image of fewer than
        16 pixels in height or width is cut out).
    """
    canvas = max(height, SMALLEST_CANVAS), max(width, SMALLEST_CANVAS)
    clean = _particles(rng, *canvas)
    clean /= clean.std()
    clean += _background(rng, *canvas)
    correlated = gaussian_blur(rng.standard_normal(canvas), CORRELATION_PIXELS)
    correlated *= CORRELATED_NOISE / correlated.std()
    noisy = clean + WHITE_NOISE * rng.standard_normal(canvas) + correlated
    mean, deviation = noisy.mean(), noisy.std()
    cut = np.s_[:height, :width]
    return (noisy[cut] - mean) / deviation, (clean[cut] - mean) / deviation


def gaussian_blur(image: np.ndarray, sigma: float) -> np.ndarray:
    """Return image convolved with a Gaussian.

    Parameters
    ----------
    image : float64, shape (h, w)
        Not modified. Beyond its edges the last pixel goes on.
    sigma : float > 0, in pixels
        The Gaussian is cut at 4 sigma and its sum is 1.

    Returns
    -------
    blurred : float64, shape (h, w)
    """
    reach = int(np.ceil(4 * sigma))
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    taps /= taps.sum()
    height, width = image.shape
    rows = np.pad(image, ((reach, reach), (0, 0)), mode="edge")
    blurred = taps[reach] * image
    for shift in range(reach):
        # The Gaussian is symmetric: one product for two rows.
        blurred += taps[shift] * (
            rows[shift : shift + height] + rows[2 * reach - shift : 2 * reach - shift + height]
        )
    columns = np.pad(blurred, ((0, 0), (reach, reach)), mode="edge")
    blurred *= taps[reach]
    for shift in range(reach):
        pair = columns[:, shift : shift + width] + columns[:, 2 * reach - shift : 2 * reach - shift + width]
        blurred += taps[shift] * pair
    return blurred


def _particles(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Sum of particles at random places and angles, about 40 % of the area covered."""
    radius = float(np.clip(min(height, width) / 8, 3, 24))
    count = max(2, round(0.4 * height * width / (2 * radius) ** 2))
    half = int(np.ceil(_REACH * radius))
    # Anywhere, also cut by an edge: one margin around the image, taken off in the end.
    image = np.zeros((height + 2 * half, width + 2 * half))
    centres = rng.uniform((0, 0), (height, width), size=(count, 2))
    # One particle near the middle, so that no image is empty.
    centres[0] = height / 2, width / 2
    angles = rng.uniform(0, 2 * np.pi, size=count)
    for centre, angle in zip(centres, angles, strict=True):
        top, left = np.minimum(np.floor(centre).astype(int), (height - 1, width - 1))
        image[top : top + 2 * half + 1, left : left + 2 * half + 1] += _particle(
            centre - (top, left), angle, radius, half
        )
    return image[half : half + height, half : half + width]


def _particle(offset: np.ndarray, angle: float, radius: float, half: int) -> np.ndarray:
    """One particle, shape (2*half + 1, 2*half + 1), its centre `offset` (y, x) pixels from the middle."""
    steps = np.arange(-half, half + 1)
    y, x = (steps - offset[0])[:, None] / radius, (steps - offset[1])[None, :] / radius
    u, v = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
    stamp = np.zeros_like(u)
    for centre_u, centre_v, long, short, turn, level in _BLOBS:
        du, dv = u - centre_u, v - centre_v
        along = (np.cos(turn) * du + np.sin(turn) * dv) / long
        across = (np.cos(turn) * dv - np.sin(turn) * du) / short
        stamp += level * np.exp(-0.5 * (along**2 + across**2))
    return stamp


def _background(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Ice of uneven thickness: a slope in a random direction with a slight twist."""
    y, x = np.linspace(-1, 1, height)[:, None], np.linspace(-1, 1, width)[None, :]
    angle, twist = rng.uniform(0, 2 * np.pi), rng.uniform(-0.3, 0.3)
    return 0.5 * (np.cos(angle) * x + np.sin(angle) * y) + twist * x * y
