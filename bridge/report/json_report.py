# SPDX-License-Identifier: MIT
"""A judgement as JSON; the keys are described in docs/json.md and docs/verdict.schema.json."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from bridge.common.number_format import number
from bridge.common.stages import attempt
from bridge.judge.arithmetic.recognised import LowerPrecision, OtherAlgorithm
from bridge.judge.diagnosis.records import VISIBLE, Adequacy, Explanation, Finding, Sight
from bridge.judge.judge import Judgement
from bridge.judge.measure.condition import false_alarm, kappa
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison, Judged
from bridge.judge.verdict import Verdict
from bridge.report.environment import environment, origins
from bridge.report.rows import outcomes_of_steps

#: Version of the JSON; a key is added without a new one, never renamed or removed
JSON_VERSION = 1


def to_dict(judgement: Judgement, pair: FilePair | None = None, **extra: Any) -> dict[str, Any]:
    """Return the JSON document; infinite and undefined numbers are null. So is a part that fails, and the verdict
    misses it.

    Parameters
    ----------
    judgement : what was found
    pair : fixture and result, whose attributes tell where they come from
    extra : further keys
    """
    comparison, verdict = judgement
    parts: dict[str, Callable[[], Any]] = {
        "precision": lambda: comparison.precision,
        "batch_shape": lambda: list(comparison.batch_shape),
        "steps": lambda: comparison.steps,
        "false_alarm": lambda: false_alarm(comparison),
        "faults": lambda: [_finding(one) for one in verdict.diagnosis.findings] if verdict.diagnosis else [],
        "diagnosis": lambda: _diagnosis(verdict),
        "lower_precisions": lambda: [_lower(one) for one in verdict.precisions],
        "algorithms": lambda: [_algorithm(one) for one in verdict.algorithms],
        "step_zones": lambda: _step_zones(comparison),
        "tensors": lambda: [_tensor(comparison, judged) for judged in comparison.judged],
        "not_judged": lambda: [asdict(skipped) for skipped in comparison.not_judged],
        "reference_T": lambda: number(comparison.reference_t),
        "oracle_T": lambda: number(comparison.twin_t),
        "divergence": lambda: number(comparison.divergence),
        "divergences": lambda: [number(value) for value in comparison.divergences],
        "adequacy": lambda: None if verdict.adequacy is None else _adequacy(verdict.adequacy),
        "environment": lambda: environment() | origins(pair),
    }
    body = {key: attempt(verdict.missing, f"{key}, in the JSON", part, None) for key, part in parts.items()}
    said = {
        "json_version": JSON_VERSION,
        "verdict": verdict.outcome.label,
        "exit_code": verdict.exit_code,
        "words": verdict.words,
        "hints": verdict.hints,
        "missing": verdict.missing,
        "would_decide": [{"name": name, "step": step} for name, step in verdict.would_decide],
    }
    return said | body | extra


def _diagnosis(verdict: Verdict) -> dict[str, Any] | None:
    found = verdict.diagnosis
    return None if found is None else _without(asdict(found), "findings")


def _tensor(comparison: Comparison, judged: Judged) -> dict[str, Any]:
    s = judged.statistic
    return {
        "name": judged.name,
        "step": judged.step,
        "T": number(s.t),
        "passed": judged.passed,
        "zone": judged.outcome.label,
        "max_error": number(s.error),
        "bound": number(s.bound),
        "relative_error": number(s.relative_error),
        "digits": number(s.digits),
        "kappa": number(kappa(comparison, judged)),
        "cosine": number(s.cosine),
        "at": list(s.at),
        "found": number(s.found),
        "expected": number(s.expected),
        "elements": s.elements,
        "nonfinite": s.nonfinite,
        "note": judged.note,
        "estimated": judged.estimated,
    }


def _step_zones(comparison: Comparison) -> list[dict[str, Any]]:
    return [
        {
            "first": one.first,
            "last": one.last,
            "zone": one.outcome.label,
            "T": number(one.at.t),
            "name": one.at.name,
            "step": one.at.step,
            "at": list(one.at.statistic.at),
        }
        for one in outcomes_of_steps(comparison)
    ]


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "name": finding.name,
        "step": finding.step,
        "operation": finding.operation,
        "T": number(finding.t),
        "explanations": [_explanation(one) for one in finding.explanations],
        "runner_up": None if finding.runner_up is None else _explanation(finding.runner_up),
        "where": finding.where,
        "share": number(finding.share),
        "seen": None if finding.seen is None else asdict(finding.seen) | {"rest": number(finding.seen.rest)},
    }


def _explanation(explanation: Explanation) -> dict[str, Any]:
    kinds = [asdict(kind) for kind in explanation.kinds]
    return {"kinds": kinds, "detail": explanation.detail, "T": number(explanation.t),
            "by_place": explanation.by_place, "rest": number(explanation.rest)}


def _lower(lower: LowerPrecision) -> dict[str, Any]:
    return {
        "name": lower.name,
        "tensor": lower.layer,
        "T": number(lower.t),
        "declared_T": number(lower.declared_t),
        "proven": lower.proven,
    }


def _algorithm(found: OtherAlgorithm) -> dict[str, Any]:
    return {
        "family": found.algorithm.family,
        "name": found.name,
        "tensor": found.layer,
        "T": number(found.t),
        "direct_T": number(found.declared_t),
        "digits": number(found.digits),
        "others": list(found.others),
    }


def _adequacy(adequacy: Adequacy) -> dict[str, Any]:
    return {
        "visible_from": VISIBLE,
        "blind": [_sight(one) for one in adequacy.blind],
        "sights": [_sight(one) for one in adequacy.sights],
        "remarks": adequacy.remarks,
    }


def _sight(sight: Sight) -> dict[str, Any]:
    return {
        "number": sight.kind.number,
        "key": sight.kind.key,
        "title": sight.kind.title,
        "detail": sight.detail,
        "tensor": sight.tensor,
        "ratio": number(sight.ratio),
    }


def _without(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}
