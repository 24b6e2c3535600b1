# SPDX-License-Identifier: MIT
"""Judge a result of an exact probe: every number must be right to the bit, and no tolerance is needed.

A probe (``python -m reference.export FILE --probe``) is a fixture in which nothing is rounded: every sum is a small
integer times a power of two, in every order, in float32 as in float64, and with TF32 or bfloat16 operands. Two judges
that do not know each other must agree: the comparison with the numpy oracle, whose bounds are 0 here
(`bridge.judge.measure.file_pair`), and the fixture's own tensors, which PyTorch computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bridge.common.number_format import count
from bridge.exchange.model import Relu
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict, decide

TRANSFORMS = (
    "This is an exact probe: no order of summation, TF32 or bfloat16 operand can do this. An algorithm that transforms "
    "its input (Winograd beyond F(2x2), FFT) rounds here too: compare such a one with an ordinary fixture."
)
#: Torch's convention, which integers meet at every other element
ZEROS = "Many inputs of a ReLU are exactly 0 here; the gradient stops there, as in torch."


@dataclass(frozen=True)
class Unequal:
    """A tensor of a result that differs from the probe's.

    Attributes
    ----------
    name, step : as under /steps/<step>
    differing, elements : how many elements differ, NaN always, of how many
    """

    name: str
    step: int
    differing: int
    elements: int


def judge_probe(comparison: Comparison, pair: FilePair) -> Verdict:
    """Return the verdict on a result of a probe.

    Parameters
    ----------
    comparison : what `bridge.judge.measure.comparison.compare` found; its bounds are 0
    pair : the same files

    Raises
    ------
    FileError
        If a file cannot be read.
    """
    found, unequal = decide(comparison), list(differences(pair))
    if found.outcome is Outcome.BUG or unequal:
        words = found.words if found.outcome is Outcome.BUG else f"BUG: {_where(unequal[0])} differs from PyTorch's."
        counted = [_counted(unequal)] if unequal else []
        masks = [ZEROS] if _is_a_mask(comparison) else []
        return Verdict(Outcome.BUG, words, [*counted, *found.hints, *masks, TRANSFORMS])
    if found.outcome is not Outcome.ROUNDING:
        return found
    words = (
        f"EXACT: all {count(len(comparison.computed), 'tensor')} of {count(comparison.steps, 'step')} are right to the "
        "bit. Nothing is rounded in this probe: layouts, masks, sums and update are right without any tolerance."
    )
    if comparison.not_judged:
        words += f" Not judged: {len(comparison.not_judged)}, listed below."
    return Verdict(Outcome.ROUNDING, words)


def differences(pair: FilePair) -> Iterator[Unequal]:
    """Yield the tensors of the candidate that differ from the probe's own, in data-flow order; -0 is 0."""
    names = [f"weights/{name}" for name in pair.start] + list(pair.shapes)
    shapes = {f"weights/{name}": w.shape for name, w in pair.start.items()} | pair.shapes
    for k in range(pair.steps + 1):
        for name in names:
            path = f"steps/{k}/{name}"
            if not (pair.reference.has(path) and pair.candidate.has(path)):
                continue
            found, expected = pair.candidate.read(path, shapes[name]), pair.reference.read(path, shapes[name])
            # NaN differs from everything, as it must
            differing = int(np.count_nonzero(~(found == expected)))
            if differing:
                yield Unequal(name, k, differing, expected.size)


def _where(unequal: Unequal) -> str:
    return f"{unequal.name} of step {unequal.step}"


def _counted(unequal: list[Unequal]) -> str:
    first = unequal[0]
    others = f", and so do {count(len(unequal) - 1, 'other tensor')}" if len(unequal) > 1 else ""
    return f"{first.differing} of {count(first.elements, 'element')} of {_where(first)} differ from PyTorch's{others}."


def _is_a_mask(comparison: Comparison) -> bool:
    """The first wrong tensor is what the backward pass of a ReLU gives."""
    layers = comparison.model.layers
    masked = {f"grads/{before.name}/output" for before, after in pairwise(layers) if isinstance(after, Relu)}
    return bool(comparison.failures) and comparison.failures[0].name in masked
