# SPDX-License-Identifier: MIT
"""Recognise arithmetic that flushes subnormal numbers to zero: legal, and usual on GPUs and in XLA on the CPU.

A product or a sum below the smallest normal number (1.2e-38 in float32) becomes 0, so that each may lose as much; the
bound of sums with gradual underflow does not allow it. It is recognised where it explains everything: by the wider
bounds nothing fails, and the candidate's tensors hold not one subnormal number.

Sources: IEEE 754-2019, 7.5 (underflow); Intel 64 and IA-32 Architectures Software Developer's Manual, vol. 1, 10.2.3
(FTZ and DAZ); NVIDIA, CUDA C++ Programming Guide (-ftz=true).
"""

from __future__ import annotations

import numpy as np

from bridge.common.number_format import count, short
from bridge.judge.arithmetic.recognised import Recognised
from bridge.judge.measure.comparison import compare
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.outcome import Outcome

#: An error that is so many times the smallest normal number is of another kind, whatever a sum's length
FAR = 2.0**40


def recognise(pair: FilePair, comparison: Comparison) -> Recognised | None:
    """Return what a failing result is by the bounds of flushing; None where that does not explain everything."""
    smallest, failures = float(np.finfo(pair.dtype).tiny), comparison.failures
    if pair.flushes or not failures:
        return None
    # The largest error of a tensor may be the ordinary rounding of its large elements
    if not all(judged.statistic.worst <= FAR * smallest for judged in failures) or _holds_subnormals(pair, smallest):
        return None
    flushing = pair.flushing()
    flushed = compare(flushing)
    if flushed.failures:
        return None
    return Recognised(Outcome.ROUNDING, "rounding", flushing, flushed, (_words(flushed, len(failures), smallest),))


def _words(flushed: Comparison, failed: int, smallest: float) -> str:
    """It as a sentence; `failed` tensors would be wrong where numbers below the smallest normal one are kept."""
    below = [one for one in flushed.computed if one.statistic.norm_found == 0 < one.statistic.norm_expected]
    hidden = f" {count(len(below), 'tensor')} became 0 altogether: nothing is known of them." if below else ""
    return (
        f"Numbers below {short(smallest)} became 0 (flush to zero): {count(failed, 'tensor')} would be outside the "
        f"bounds of arithmetic that keeps them, and the result holds none.{hidden}"
    )


def _holds_subnormals(pair: FilePair, smallest: float) -> bool:
    for step in range(pair.steps):
        for name, shape in pair.shapes.items():
            path = f"steps/{step}/{name}"
            if not pair.candidate.has(path):
                continue
            for part in range(shape[0]) if shape else [None]:
                size = np.abs(pair.candidate.read(path, shape, part))
                if ((size > 0) & (size < smallest)).any():
                    return True
    return False
