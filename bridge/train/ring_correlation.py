# SPDX-License-Identifier: MIT
"""Fourier ring correlation: up to which resolution do two images of one thing agree?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bridge.common.errors import ArgumentError

#: What the field takes for the limit of two halves of the data
THRESHOLD = 0.143


@dataclass(frozen=True, eq=False)
class RingCorrelation:
    """The correlation of two images' Fourier coefficients on rings of one pixel.

    Attributes
    ----------
    frequency : float64, shape (rings,)
        In cycles per pixel, 0 to 0.5.
    correlation : float64, shape (rings,)
        -1 to 1; 0 where a ring has no power.
    """

    frequency: np.ndarray
    correlation: np.ndarray

    def resolution(self, threshold: float = THRESHOLD) -> float:
        """Return the first frequency at which the correlation falls below the threshold, in cycles per pixel.

        Between rings it is interpolated; 0.5 where it never falls. A pixel of p angstrom makes it p / resolution.

        >>> found = RingCorrelation(np.array([0.0, 0.1, 0.2]), np.array([1.0, 0.5, 0.0]))
        >>> round(found.resolution(0.25), 9)
        0.15
        """
        below = np.flatnonzero(self.correlation < threshold)
        if not below.size:
            return float(self.frequency[-1])
        i = int(below[0])
        if i == 0:
            return float(self.frequency[0])
        (a, b), (f, g) = self.correlation[i - 1:i + 1], self.frequency[i - 1:i + 1]
        return float(f + (g - f) * (a - threshold) / (a - b))


def ring_correlation(one: np.ndarray, other: np.ndarray) -> RingCorrelation:
    """Return the Fourier ring correlation of two images.

    Both are multiplied by a Hann window first, so that their borders, which do not fit together, are not what agrees.

    Parameters
    ----------
    one, other : shape (h, w), of one shape
        Two independent images of the same thing, as the denoised halves of a movie.

    Raises
    ------
    ArgumentError
        If they are no two images of one shape, of 4 pixels or more, or a number is not finite.

    References
    ----------
    W. O. Saxton, W. Baumeister, J. Microscopy 127 (1982) 127; the threshold: P. B. Rosenthal, R. Henderson,
    J. Mol. Biol. 333 (2003) 721.

    Examples
    --------
    >>> image = np.random.default_rng(0).standard_normal((64, 64))
    >>> bool((ring_correlation(image, image).correlation > 0.999).all())
    True
    """
    if one.ndim != 2 or one.shape != other.shape or min(one.shape) < 4:
        raise ArgumentError(f"images: shapes {one.shape} and {other.shape}, expected one (h, w) of 4 pixels or more")
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        raise ArgumentError("images: NaN or infinity in one, expected finite numbers")
    height, width = one.shape
    window = np.hanning(height + 2)[1:-1, None] * np.hanning(width + 2)[1:-1]
    a, b = (np.fft.rfft2((image - image.mean(dtype=np.float64)) * window) for image in (one, other))
    radius = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    rings = min(height, width) // 2
    ring = np.rint(radius * 2 * rings).astype(np.int64)
    # A real image has every coefficient twice, but those of the first column and, of even widths, the last
    twice = np.full(a.shape, 2.0)
    twice[:, 0] = 1
    if width % 2 == 0:
        twice[:, -1] = 1

    def sums(values: np.ndarray) -> np.ndarray:
        return np.bincount(ring.ravel(), (values * twice).ravel(), rings + 1)[1:rings + 1]

    product, power = sums((a * b.conj()).real), sums(np.abs(a) ** 2) * sums(np.abs(b) ** 2)
    correlation = np.divide(product, np.sqrt(power), out=np.zeros(rings), where=power > 0)
    return RingCorrelation(np.arange(1, rings + 1) / (2 * rings), np.clip(correlation, -1, 1))
