# SPDX-License-Identifier: MIT
"""What several findings have in common."""

from __future__ import annotations

from bridge.judge.diagnosis.catalogue import KINDS
from bridge.judge.diagnosis.records import Finding


def pattern(findings: list[Finding]) -> str:
    """Return the same fault in every convolution of a direction: a constant, not a slip."""
    groups: dict[str, list[set[str]]] = {}
    for finding in findings:
        # What is described is no longer named after its place
        known = finding.explanations and finding.seen is None
        if known and (direction := _direction(finding.operation)):
            groups.setdefault(direction, []).append({one.key for e in finding.explanations for one in e.kinds})
    said = []
    for direction, keys in groups.items():
        common = set.intersection(*keys)
        if len(keys) > 1 and common:
            titles = " and ".join(one.title for one in KINDS if one.key in common)
            said.append(f"{titles}, in every one of the {len(keys)} wrong {direction}s")
    return "; ".join(said)


def _direction(said: str) -> str:
    """ "the filter gradient of conv2" -> "filter gradient"."""
    for direction in ("filter gradient", "data gradient", "bias gradient", "convolution", "ReLU"):
        if direction in said:
            return direction
    return ""
