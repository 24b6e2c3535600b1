# SPDX-License-Identifier: MIT
"""Which tensors would decide where nobody can tell: the inputs of operations that a result's file lacks.

With them the operation is computed again from the candidate's own numbers, and nothing but its own rounding is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bridge.judge.diagnosis.predictions.step_graph import INPUT, TARGET, StepGraph
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import NO_STEP, Comparison
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict

#: Names that the text gives; the JSON has all
MOST_SAID = 6
#: What follows from a gradient, and stands under its parameter's name
OF_PARAMETERS = ("weights", "update", "optimizer", "memory")


def with_deciding(verdict: Verdict, comparison: Comparison, pair: FilePair) -> Verdict:
    """Return a verdict that cannot tell with the tensors that would decide; any other as it is."""
    if verdict.outcome is not Outcome.CANNOT_TELL:
        return verdict
    found = list(dict.fromkeys(_wanted(comparison, pair)))
    if not found:
        return verdict
    more = f" and {len(found) - MOST_SAID} more" if len(found) > MOST_SAID else ""
    said = ", ".join(f"{name} (step {step})" for name, step in found[:MOST_SAID])
    hint = f"The result lacks what would decide: {said}{more}. Write them (docs/exchange-file.md), and compare again."
    return replace(verdict, hints=[*verdict.hints, hint], would_decide=found)


def _wanted(comparison: Comparison, pair: FilePair) -> Iterator[tuple[str, int]]:
    """Names and steps, the first in doubt first."""
    doubts = [(one.name, one.step) for one in comparison.failures]
    for skipped in comparison.not_judged:
        if skipped.hidden:
            doubts.append((skipped.name, skipped.step))
        elif skipped.misnamed and skipped.nearest:
            _, number, name = skipped.nearest[0].split("/", 2)
            yield name, int(number)
    for name, step in doubts:
        if step != NO_STEP:
            for other, its in _inputs(name, step, pair):
                if not pair.candidate.has(f"steps/{its}/{other}"):
                    yield other, its


def _inputs(name: str, step: int, pair: FilePair) -> Iterator[tuple[str, int]]:
    """What a tensor follows from, as far as a file may hold it; a parameter from its gradient and what makes that."""
    graph = StepGraph(pair, step, {})
    sort, _, rest = name.partition("/")
    if sort in OF_PARAMETERS:
        # New weights have the number of the step that they are before
        step = max(step - 1, 0) if sort == "weights" else step
        name = "grads/" + (rest if sort != "memory" else rest.rpartition("/")[0])
        yield name, step
    if name in pair.shapes:
        yield from ((one, step) for one in graph.inputs(name) if one not in (INPUT, TARGET))
    # Without the weights before it nothing of a step is known
    if step:
        yield from ((f"weights/{one}", step) for one in pair.start)
