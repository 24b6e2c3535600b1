# SPDX-License-Identifier: MIT
"""Recognise arithmetic that flushes subnormal numbers to zero: legal, and usual on GPUs and in XLA on the CPU.

A product or a sum below the smallest normal number (1.2e-38 in float32) becomes 0, so that each may lose as much; the
bound of sums with gradual underflow does not allow it. It is recognised where it explains everything: by the wider
bounds nothing fails, and the candidate's tensors hold not one subnormal number.

Sources: IEEE 754-2019, 7.5 (underflow); Intel 64 and IA-32 Architectures Software Developer's Manual, vol. 1, 10.2.3
(FTZ and DAZ); NVIDIA, CUDA C++ Programming Guide (-ftz=true).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bridge.common.number_format import count, short
from bridge.judge.measure.comparison import compare
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison

#: An error that is so many times the smallest normal number is of another kind, whatever a sum's length
FAR = 2.0**40


@dataclass(frozen=True)
class Flushed:
    """A result that is right where subnormal numbers become 0.

    Attributes
    ----------
    comparison : by the bounds of such arithmetic
    failed : tensors that would be wrong where they are kept
    smallest : the smallest normal number
    """

    comparison: Comparison
    failed: int
    smallest: float

    @property
    def words(self) -> str:
        """Return it as a sentence."""
        below = [one for one in self.comparison.computed if one.statistic.norm_found == 0 < one.statistic.norm_expected]
        hidden = f" {count(len(below), 'tensor')} became 0 altogether: nothing is known of them." if below else ""
        return (
            f"Numbers below {short(self.smallest)} became 0 (flush to zero): {count(self.failed, 'tensor')} would be "
            f"outside the bounds of arithmetic that keeps them, and the result holds none.{hidden}"
        )


def recognise_flush(pair: FilePair, comparison: Comparison) -> Flushed | None:
    """Return what a failing result is by the bounds of flushing; None where that does not explain everything."""
    smallest, failures = float(np.finfo(pair.dtype).tiny), comparison.failures
    if pair.flushes or not failures:
        return None
    if not all(judged.statistic.error <= FAR * smallest for judged in failures) or _holds_subnormals(pair, smallest):
        return None
    flushed = compare(pair.flushing())
    return None if flushed.failures else Flushed(flushed, len(failures), smallest)


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
