# SPDX-License-Identifier: MIT
"""A wrong program judged, and how well the judge has named what is wrong."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import h5py

from benchmarks.validator.programs.mistakes import Mistake, Program
from bridge.exchange.file import ExchangeFile
from bridge.judge.diagnosis.records import Finding
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict
from bridge.validate.self_test.graph_candidate import GraphOperations, train_graph
from reference.export import export

#: Seconds for a search, so that a busy machine finds the same
PATIENCE = 600.0
#: How a mistake is known, from the best to the worst
WAYS = {
    "named": "the first wrong tensor is found, and an explanation there is the mistake",
    "described": "the first wrong tensor is found; what is said of its error is true and exact, and not the mistake",
    "named later": "the first wrong tensor is found; the mistake is named or described in another one alone",
    "unknown": "the first wrong tensor is found, and nothing is said but how large the error is",
    "misnamed": "what is said of the first wrong tensor is another mistake",
    "misplaced": "another tensor is called the first wrong one",
    "missed": "the program is not called wrong",
}


@dataclass(frozen=True)
class Judged:
    """What the judge says of a mistake.

    Attributes
    ----------
    mistake : in words
    outcome : of the verdict
    tensor, step : the first that is wrong itself, as the judge has it
    way : one of `WAYS`
    said : of that tensor, or of the one that has it; empty where nothing is said
    few : outcome where the program writes the layers with parameters alone, and not what is between them
    """

    mistake: str
    outcome: str
    tensor: str
    step: int
    way: str
    said: str
    few: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def judged(program: Program, mistakes: tuple[Mistake, ...]) -> Iterator[Judged]:
    """Judge a program without a mistake, and with each of these.

    Raises
    ------
    AssertionError
        If the program without one is not right.
    """
    with tempfile.TemporaryDirectory() as name:
        fixture, result = export(Path(name, "fixture.h5"), program.settings).path, Path(name, "result.h5")

        def verdict(kind: type[GraphOperations]) -> Verdict:
            return judge(fixture, train_graph(fixture, result, kind), adequacy=False, seconds=PATIENCE).verdict

        def few() -> str:
            leave_layers(fixture, result)
            return judge(fixture, result, diagnosing=False).verdict.outcome.label

        right = verdict(GraphOperations)
        assert right.outcome is Outcome.ROUNDING and few() == "rounding", f"{program.name}: {right.words}"
        for one in mistakes:
            found = of_verdict(one, verdict(one.kind))
            yield replace(found, few=few())


def leave_layers(fixture: Path, result: Path) -> None:
    """Take the tensors of all other operations than the last one and the layers with parameters out of a result."""
    with ExchangeFile(fixture) as source, h5py.File(result, "r+") as file:
        assert source.model is not None
        kept = {name.rpartition("/")[0] for name in source.model.parameter_shapes()}
        kept.add(source.model.graph.nodes[-1].name)
        for step in file["steps"].values():
            for name in [one for one in step.get("forward", ()) if one not in kept]:
                del step[f"forward/{name}"]
            for name in [one for one in step.get("grads", ()) if one not in kept]:
                del step[f"grads/{name}"]


def of_verdict(mistake: Mistake, verdict: Verdict) -> Judged:
    """Return how well a verdict knows a mistake."""
    findings = verdict.diagnosis.findings if verdict.diagnosis else []
    if verdict.outcome is not Outcome.BUG or not findings:
        return Judged(mistake.words, verdict.outcome.label, "", 0, "missed", verdict.words)
    first = findings[0]
    way, said = known(mistake, findings)
    if (first.name, first.step) != (mistake.tensor, mistake.step):
        way = "misplaced"
    return Judged(mistake.words, verdict.outcome.label, first.name, first.step, way, said)


def known(mistake: Mistake, findings: list[Finding]) -> tuple[str, str]:
    """Return how a mistake is known, and the words for it."""
    first, *others = findings
    if named := _named(mistake, first):
        return "named", named
    if described := _described(mistake, first):
        return "described", described
    if first.explanations:
        return "misnamed", first.explanations[0].detail
    for one in others:
        if later := _named(mistake, one) or _described(mistake, one):
            return "named later", f"{later} ({one.name})"
    return "unknown", first.extent


def _named(mistake: Mistake, finding: Finding) -> str:
    return next((one.detail for one in finding.explanations if mistake.said and mistake.said in one.detail), "")


def _described(mistake: Mistake, finding: Finding) -> str:
    """What is seen exactly, or where all of it is; only where it is no explanation that may be wrong."""
    if finding.seen and finding.seen.exact:
        return finding.seen.said
    return next((one.detail for one in finding.explanations if one.by_place), "")
