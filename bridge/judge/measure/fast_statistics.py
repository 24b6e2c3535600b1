# SPDX-License-Identifier: MIT
"""Deviations of large tensors from a value, in one pass over memory by our library, and a part of them again by numpy.

The loops (``fortran/oracle``) share nothing with the kernels that are judged, and condemn nobody: what is not finite,
outside its bound, or near underflow is left to numpy, see `bridge.judge.measure.error_statistics`. So is everything on
machines without the library, and where the environment says ``CNN_ORACLE=numpy``.
"""

from __future__ import annotations

import numpy as np

from bridge.common import parallel
from bridge.common.errors import OracleError
from bridge.engine.library import extension
from bridge.judge.oracle import fast_convolution

Array = np.ndarray

#: Elements from which on numpy is slow
LARGE = 2 * parallel.GRAIN
#: Tensors that are looked at together
MOST = 3
#: Of a run that numpy looks at again, and how many of these there are in every tensor
CHECKED, CHECKS = 1 << 12, 8
SEED = 20261122

#: Names of the figures of one tensor, in their order: the largest ratio, its place in memory order, the largest
#: |x - v|, sums of x*v, x*x, v*v and (x - v)**2
Figures = tuple[float, int, float, float, float, float, float]


def deviations(candidates: list[Array], value: Array, bound: Array) -> list[Figures] | None:
    """Return figures of each tensor, or None where numpy must find them.

    Parameters
    ----------
    candidates : float32 or float64, each of the shape of `value`
    value : float64 or float32, any shape
    bound : float64, of that shape, or one number

    Returns
    -------
    list of (t, at, error, x*v, x*x, v*v, (x - v)**2), all of them finite and every t at most 1

    Raises
    ------
    OracleError
        If numpy finds something else in a part of a tensor.

    Examples
    --------
    >>> x = np.zeros((1024, 1024), np.float32)
    >>> x[3, 4] = 0.5
    >>> found = deviations([x], np.zeros(x.shape), np.ones(1))
    >>> found is None or found[0][:3] == (0.5, 3 * 1024 + 4, 0.5)
    True
    """
    if value.size < LARGE or parallel.shared() or len(candidates) > MOST or not _taken(candidates, value, bound):
        return None
    if not fast_convolution.usable():
        return None
    dtypes, addresses = np.zeros(MOST + 1, np.int32), np.zeros(MOST, np.int64)
    for i, candidate in enumerate(candidates):
        dtypes[i], addresses[i] = extension.DTYPES[candidate.dtype.name], candidate.ctypes.data
    dtypes[MOST] = extension.DTYPES[value.dtype.name]
    figures = np.zeros((MOST, 8))
    extension.call("deviations", dtypes, addresses, value.size, value.ctypes.data, bound.ctypes.data, bound.size,
                   figures.ctypes.data)
    found = figures[: len(candidates)]
    if found[:, 7].any():
        return None
    for candidate, row in zip(candidates, found, strict=True):
        _check(candidate.reshape(-1), value.reshape(-1), bound.reshape(-1), row)
    return [(float(row[0]), int(row[1]), float(row[2]), float(row[3]), float(row[4]), float(row[5]), float(row[6]))
            for row in found]


def _taken(candidates: list[Array], value: Array, bound: Array) -> bool:
    """Arrays that may be handed over by their addresses."""
    arrays = [value, bound, *candidates]
    return (
        all(array.flags.c_contiguous and array.flags.aligned and array.dtype in extension.NAMES for array in arrays)
        and bound.dtype == np.float64
        and bound.size in (1, value.size)
        and all(candidate.size == value.size for candidate in candidates)
    )


def _check(candidate: Array, value: Array, bound: Array, figures: Array) -> None:
    """What was found at its place, and in random runs nothing that is larger."""
    t, at, error = figures[0], int(figures[1]), figures[2]
    first = np.random.default_rng([SEED, value.size]).integers(0, value.size - CHECKED, CHECKS)
    for start, length in ((at, 1), *((int(start), CHECKED) for start in first)):
        part = slice(start, start + length)
        deviation = np.abs(candidate[part].astype(np.float64) - value[part].astype(np.float64))
        limit = bound[part] if bound.size > 1 else bound
        # 0/0: exact where it must be
        ratio = np.divide(deviation, limit, out=np.zeros_like(deviation), where=deviation > 0)
        same = ratio[0] == t if length == 1 else ratio.max() <= t
        if not (same and deviation.max() <= error):
            raise OracleError(
                f"our own comparison is wrong: it found T = {t:.17g} at {at} and the error {error:.17g}, numpy "
                f"{ratio.max():.17g} and {deviation.max():.17g} from {start} on. This is a fault of the oracle and "
                "says nothing about the candidate; CNN_ORACLE=numpy computes without it"
            )
