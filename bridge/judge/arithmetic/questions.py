# SPDX-License-Identifier: MIT
"""The questions of this room, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bridge.common.progress import Report
from bridge.judge.arithmetic import algorithm, few_bits, flush, operands, order, precision, rounding
from bridge.judge.arithmetic.recognised import Recognised
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison


class Question(NamedTuple):
    """Whether a result shows another arithmetic.

    Attributes
    ----------
    what : the work, for a line that says that it failed
    ask : given the files and what was found, returns the arithmetic; None where that does not explain it
    """

    what: str
    ask: Callable[[FilePair, Comparison], Recognised | None]


def questions(allowed: frozenset[str] = frozenset(), progress: Report | None = None) -> list[Question]:
    """Return all questions; the first answer counts.

    What explains everything comes first, then what was computed again, then what looks like an algorithm, then single
    operands that are rounded, then what is merely inside the bounds of a lower precision; last, evidence inside all
    bounds.

    Parameters
    ----------
    allowed : families of algorithms whose errors are rounding
    progress : called as ``progress(done, total)`` where all images are compared once more
    """
    return [
        Question("the look for flush to zero", flush.recognise),
        Question("the look for the order of evaluation", order.recognise),
        Question("the look for directed rounding", rounding.recognise),
        Question("the look for a lower precision", partial(precision.recognise, progress=progress)),
        Question("the look for an algorithm", partial(algorithm.recognise, allowed=allowed)),
        Question("the look for rounded operands", operands.recognise),
        Question("the look for the bounds of a lower precision", precision.consistent),
        Question("the look at how many bits a sum has", few_bits.recognise),
    ]
