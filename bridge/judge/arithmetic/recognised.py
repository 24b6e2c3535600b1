# SPDX-License-Identifier: MIT
"""What every question of this room answers: the arithmetic of a result, what it excuses, and how the rest is judged."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.outcome import Outcome
from bridge.judge.oracle.algorithm import Algorithm


@dataclass(frozen=True)
class LowerPrecision:
    """A lower precision than the declared one, for reports.

    Attributes
    ----------
    name : a name of `bridge.judge.oracle.reduced_precision.HYPOTHESES`, or the type of single operands
    layer : the tensor that shows it
    t : T of the candidate against operands of that precision
    declared_t : T of that tensor against exact operands, as the comparison has it
    said : it in words, "bf16 operands and results"
    proven : it was computed again; else everything is merely inside the bounds of that precision
    """

    name: str
    layer: str
    t: float
    declared_t: float
    said: str
    proven: bool = True


@dataclass(frozen=True)
class OtherAlgorithm:
    """An algorithm whose errors a result shows, for reports.

    Attributes
    ----------
    algorithm : by whose bounds the result is judged
    name : with the kernel's size, "Winograd F(4x4,3x3)"
    layer : the tensor that shows it
    t, declared_t : its T by the bound of the algorithm, and by that of sums of products
    digits : decimal digits that the algorithm costs there, beside sums of products
    others : families with errors of that size, where none agrees with the candidate's element by element
    """

    algorithm: Algorithm
    name: str
    layer: str
    t: float
    declared_t: float
    digits: float
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recognised:
    """Another arithmetic than direct sums in the declared precision with round to nearest.

    Attributes
    ----------
    outcome : what its errors are: rounding, where that arithmetic is legal or was declared; a lower precision, where
        it is proven; else cannot tell
    words : the sentence of the verdict where nothing else is wrong; of rounding: what every difference is
    pair, comparison : the files and all tensors, judged by the bounds of that arithmetic
    hints : what to look at where nothing else is wrong
    besides : said of it where something else is wrong
    searched : the search for faults names it tensor by tensor; else the sentence leaves nothing to name
    precisions, algorithms : for reports
    """

    outcome: Outcome
    words: str
    pair: FilePair
    comparison: Comparison
    hints: tuple[str, ...] = ()
    besides: str = ""
    searched: bool = False
    precisions: tuple[LowerPrecision, ...] = ()
    algorithms: tuple[OtherAlgorithm, ...] = ()

    @property
    def leaves(self) -> bool:
        """Return whether something is left that the search for faults could name."""
        return self.searched or bool(self.comparison.failures)

    def excuse(self, comparison: Comparison) -> None:
        """Mark what is outside its bound, but not outside that of this arithmetic: `Judged.excused`."""
        outside = {(judged.name, judged.step) for judged in self.comparison.failures}
        for judged in comparison.failures:
            if (judged.name, judged.step) not in outside:
                judged.excused = self.outcome
