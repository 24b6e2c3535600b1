# SPDX-License-Identifier: MIT
"""Which bug: every fault is a hypothesis, recomputed in float64 and judged by the same bounds."""

from bridge.diagnosis.diagnose import BUDGET, diagnose
from bridge.diagnosis.kinds import KINDS, kind
from bridge.diagnosis.records import Adequacy, Diagnosis, Explanation, Finding, Kind, Sight

__all__ = ["BUDGET", "KINDS", "Adequacy", "Diagnosis", "Explanation", "Finding", "Kind", "Sight", "diagnose", "kind"]
