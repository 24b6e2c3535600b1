# SPDX-License-Identifier: MIT
"""What several findings have in common."""

from __future__ import annotations

from bridge.judge.diagnosis.catalogue import KINDS
from bridge.judge.diagnosis.records import Finding


def pattern(findings: list[Finding]) -> str:
    """Return the same fault in every convolution of a direction: a constant, not a slip."""
    groups: dict[str, list[set[str]]] = {}
    wrong: dict[str, int] = {}
    for finding in findings:
        direction = _direction(finding.operation)
        wrong[direction] = wrong.get(direction, 0) + 1
        # What is described is no longer named after its place
        if direction and finding.explanations and finding.seen is None:
            groups.setdefault(direction, []).append({one.key for e in finding.explanations for one in e.kinds})
    said = []
    for direction, keys in groups.items():
        common = set.intersection(*keys)
        if len(keys) > 1 and common:
            titles = " and ".join(one.title for one in KINDS if one.key in common)
            every = "every one" if len(keys) == wrong[direction] else len(keys)
            said.append(f"{titles}, in {every} of the {wrong[direction]} wrong {direction}s")
    return "; ".join(said)


def _direction(said: str) -> str:
    """ "the filter gradient of conv2" -> "filter gradient"."""
    for direction in ("filter gradient", "data gradient", "bias gradient", "convolution", "ReLU"):
        if direction in said:
            return direction
    return ""
