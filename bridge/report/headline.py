# SPDX-License-Identifier: MIT
"""A verdict in a few words, for the heading of a page and the name of its tab."""

from __future__ import annotations

from bridge.judge.diagnosis.records import Finding
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict

#: Sign and word: the colour alone tells nothing
HEADLINES = {
    Outcome.ROUNDING: "\u2713 Right: rounding",
    Outcome.BUG: "\u2717 Bug",
    Outcome.PRECISION: "\u25d1 Lower precision than declared",
    Outcome.CANNOT_TELL: "? Cannot tell",
    Outcome.BAD_INPUT: "\u2717 Bad input",
}
#: As verdicts begin
WORDS = {
    Outcome.ROUNDING: "RIGHT",
    Outcome.BUG: "BUG",
    Outcome.PRECISION: "LOWER PRECISION",
    Outcome.CANNOT_TELL: "CANNOT TELL",
    Outcome.BAD_INPUT: "BAD INPUT",
}


def headline(verdict: Verdict) -> str:
    """Return what is wrong, and where, "kernel flipped in conv2"; empty where that is not known, or nothing is."""
    if verdict.outcome is Outcome.ROUNDING:
        return ""
    if verdict.outcome is Outcome.PRECISION:
        known = [(one.name, one.layer) for one in verdict.precisions]
        known += [(one.name, one.layer) for one in verdict.algorithms]
        return f"{known[0][0]} in {_layer(known[0][1])}" if known else ""
    findings = verdict.diagnosis.findings if verdict.diagnosis else []
    return _finding(findings[0]) if findings else ""


def _finding(finding: Finding) -> str:
    if not finding.explanations:
        return f"{finding.name} of step {finding.step}"
    titles = " and ".join(kind.title for kind in finding.explanations[0].kinds)
    return f"{titles} in {_layer(finding.name)}"


def _layer(name: str) -> str:
    """
    >>> _layer("grads/conv2/weight"), _layer("forward/conv1"), _layer("loss"), _layer("grads/input")
    ('conv2', 'conv1', 'loss', 'input')
    """
    return name.split("/")[min(1, name.count("/"))]
