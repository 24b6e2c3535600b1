# SPDX-License-Identifier: MIT
"""Which bug: every fault is a hypothesis, recomputed in float64 and judged by the same bounds."""

from bridge.judge.diagnosis.catalogue import KINDS, kind
from bridge.judge.diagnosis.diagnose import BUDGET, diagnose
from bridge.judge.diagnosis.records import Adequacy, Diagnosis, Explanation, Finding, Kind, Sight

__all__ = ["BUDGET", "KINDS", "Adequacy", "Diagnosis", "Explanation", "Finding", "Kind", "Sight", "diagnose", "kind"]
