# SPDX-License-Identifier: MIT
"""Discrete Fourier transforms as products with matrices of cosines and sines.

Few of the transform's frequencies are taken by layers that learn in frequencies, and so few of the matrix's rows are
left. Its rounding is that of a sum of n products, which is more than a fast transform has.

Sources
-------
- torch.fft, https://docs.pytorch.org/docs/stable/fft.html
- Z. Li et al., Fourier Neural Operator for Parametric Partial Differential Equations, ICLR 2021
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reference.network.aten.writing import UnsupportedError

#: Most numbers of a matrix: those of 2,896 frequencies of as many numbers
MOST = 1 << 24
#: By how much of 1/n the sum is multiplied: forward, inverse
_POWERS = {"backward": (0.0, 1.0), "ortho": (0.5, 0.5), "forward": (1.0, 0.0)}


@dataclass(frozen=True)
class Transform:
    """What a call of torch.fft does along its dimensions.

    Attributes
    ----------
    inverse : the exponents are positive
    one_sided : of real numbers, or to such: half of the frequencies along the last dimension are there
    axes : how many of the last dimensions, where the call names none; 0: all
    """

    inverse: bool
    one_sided: bool
    axes: int


#: By the names of ATen
CALLS: dict[str, Transform] = {
    f"fft_{'i' * inverse}{'r' * real}fft{ending}": Transform(inverse, real, axes)
    for inverse in (False, True) for real in (False, True) for ending, axes in (("", 1), ("2", 2), ("n", 0))}


def power(norm: str | None, inverse: bool) -> float:
    """Return the power of 1/n by which a transform is multiplied."""
    found = _POWERS.get(norm or "backward")
    if found is None:
        raise UnsupportedError(f"norm {norm}")
    return found[inverse]


def matrix(given: int, n: int, inverse: bool, scale: float) -> np.ndarray:
    """Return the transform (n, given) of length n; what is given beyond it is not read, what is lacking is 0.

    >>> matrix(2, 4, False, 0.0).round(12).tolist()[1]
    [(1+0j), -1j]
    """
    _check(given, n)
    taken = min(given, n)
    turns = np.arange(n)[:, None] * np.arange(taken) % n
    found = np.zeros((n, given), complex)
    found[:, :taken] = np.exp((2j if inverse else -2j) * np.pi * turns / n) / n**scale
    # Quarters of a turn are exact
    found.real[np.abs(found.real) < 1e-15], found.imag[np.abs(found.imag) < 1e-15] = 0.0, 0.0
    return found


def to_real(given: int, n: int, scale: float) -> np.ndarray:
    """Return (n, given, 2), which makes n real numbers of the first half of their frequencies.

    The imaginary parts of frequency 0, and of n/2, are not read, as by torch: their sines are 0.
    """
    _check(given, n)
    taken = min(given, n // 2 + 1)
    whole = matrix(taken, n, True, scale)
    # The others are the conjugates of these
    twice = np.array([1.0 if 2 * k % n == 0 else 2.0 for k in range(taken)])
    found = np.zeros((n, given, 2))
    found[:, :taken, 0], found[:, :taken, 1] = whole.real * twice, -whole.imag * twice
    return found


def block(of: np.ndarray) -> np.ndarray:
    """Return a complex matrix (k, n) as a real one (2 k, 2 n) of the parts one behind the other."""
    return np.block([[of.real, -of.imag], [of.imag, of.real]])


def _check(given: int, n: int) -> None:
    if max(given, n) * n > MOST:
        raise UnsupportedError(f"a Fourier transform of {n} numbers, whose matrix has more than {MOST}")
