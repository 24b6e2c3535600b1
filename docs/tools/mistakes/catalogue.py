# SPDX-License-Identifier: MIT
"""The mistakes of docs/mistakes.md: which routine, in which network, where it is seen best, and what it is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict
from docs.tools.mistakes import candidates
from docs.tools.mistakes.sources import Routine
from reference.settings import ExportSettings

#: By network: PyTorch's steps of it
CHAIN, KAN, NORMALISED = "chain", "kan", "normalised"
FIXTURES = {
    CHAIN: ExportSettings(height=40, width=56, steps=2, threads=1),
    KAN: ExportSettings(height=24, width=32, steps=2, threads=1, lr=1.0, model=candidates.kan),
    NORMALISED: ExportSettings(height=40, width=56, steps=2, threads=1, model=candidates.normalised),
}


@dataclass(frozen=True)
class Mistake:
    """A mistake.

    Attributes
    ----------
    name : of the routine, and of its part of the page
    title : of the table
    candidate : from the compiled routine to the operations of a training run
    tensor, step : that is drawn
    named : the key of the fault that the verdict must name (`bridge.judge.diagnosis.catalogue`), or a lower precision
    network : whose fixture it is judged by
    outcome : that the verdict must have
    """

    name: str
    title: str
    candidate: Callable[[Routine], type[Any]]
    tensor: str
    step: int
    named: str
    network: str = CHAIN
    outcome: Outcome = Outcome.BUG

    def is_named(self, verdict: Verdict) -> bool:
        """Return whether the verdict is the one that the page tells of: its outcome, and the first name that it has."""
        # Which way a half was rounded is not what the page is about
        names = [one.name.partition(" ")[0] for one in verdict.precisions]
        if verdict.outcome is Outcome.BUG and verdict.diagnosis is not None:
            first = verdict.diagnosis.findings[:1]
            names = [kind.key for one in first for found in one.explanations[:1] for kind in found.kinds]
        return verdict.outcome is self.outcome and names[:1] == [self.named]


MISTAKES = (
    Mistake("column_major", "memory in the wrong order", candidates.of_memory, "grads/conv2/weight", 0, "column_major"),
    Mistake("flipped", "a kernel flipped", candidates.of_loops, "forward/conv1", 0, "kernel_flipped"),
    Mistake("channels_last", "channels last, read as channels first", candidates.of_images, "forward/conv2", 0, "nhwc"),
    Mistake("shifted", "padding shifted by a pixel", candidates.of_padding, "forward/conv1", 0, "padding_width"),
    Mistake("saved", "a buffer that is not emptied", candidates.of_sums, "grads/conv2/weight", 1, "accumulated"),
    Mistake("spline_degree", "splines of a lower degree", candidates.of_splines, "forward/kan", 0, "activation", KAN),
    Mistake("frozen_statistics", "frozen statistics", candidates.of_statistics, "forward/norm", 0, "statistics",
            NORMALISED),
    Mistake("tf32", "no mistake: a lower precision", candidates.of_operands, "forward/conv2", 0, "TF32",
            outcome=Outcome.PRECISION),
)
