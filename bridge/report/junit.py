# SPDX-License-Identifier: MIT
"""A judgement as JUnit XML, for continuous integration: a test case for each tensor of each step, and the verdict.

Source: the elements that Jenkins' and GitLab's readers share (testsuite, testcase, failure, skipped, properties).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from xml.etree import ElementTree

from bridge.common.number_format import short
from bridge.common.stages import attempt
from bridge.judge.measure.findings import NO_STEP, Comparison, Judged, NotJudged
from bridge.judge.measure.operation_names import place
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict
from bridge.report.facts import finding_lines, missing_lines

#: What XML 1.0 cannot hold
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def suite(comparison: Comparison, verdict: Verdict) -> str:
    """Return the XML document. What fails in it is left out, and the verdict's case says so."""
    kinds: dict[str, Callable[[], list[ElementTree.Element]]] = {
        "the tensors": lambda: [_judged(comparison, one) for one in comparison.judged],
        "what was not judged": lambda: list(map(_skipped, comparison.not_judged)),
    }
    none: list[ElementTree.Element] = []
    found = [attempt(verdict.missing, f"{name}, in the JUnit file", make, none) for name, make in kinds.items()]
    return _document("bridge", [_verdict(verdict), *chain.from_iterable(found)])


@dataclass(frozen=True)
class Answer:
    """One of several questions, answered.

    Attributes
    ----------
    name : which question
    outcome, words, hints : the answer
    """

    name: str
    outcome: Outcome
    words: str
    hints: Sequence[str] = ()


def answers(found: Sequence[Answer], name: str) -> str:
    """Return the XML document of several answers, a test case for each; `name` is what they have in common."""
    cases = []
    for one in found:
        case = _case(name, one.name)
        if one.outcome is not Outcome.ROUNDING:
            _fail(case, one.outcome, one.words, "\n".join([one.words, *one.hints]))
        cases.append(case)
    return _document(f"bridge.{name}", cases)


def _document(name: str, cases: list[ElementTree.Element]) -> str:
    attributes = {
        "name": _plain(name),
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": "0",
        "skipped": str(sum(case.find("skipped") is not None for case in cases)),
    }
    root = ElementTree.Element("testsuites")
    whole = ElementTree.SubElement(root, "testsuite", attributes)
    whole.extend(cases)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(kind: str, name: str) -> ElementTree.Element:
    return ElementTree.Element("testcase", {"classname": f"bridge.{_plain(kind)}", "name": _plain(name), "time": "0"})


def _verdict(verdict: Verdict) -> ElementTree.Element:
    case = _case("verdict", "verdict")
    if verdict.outcome is not Outcome.ROUNDING:
        found = attempt(verdict.missing, "the faults, in the JUnit file", lambda: _faults(verdict), list[str]())
        _fail(case, verdict.outcome, verdict.words, "\n".join([verdict.words, *verdict.hints, *found]))
    if verdict.missing:
        ElementTree.SubElement(case, "system-err").text = _plain("\n".join(missing_lines(verdict)))
    return case


def _faults(verdict: Verdict) -> list[str]:
    findings = verdict.diagnosis.findings if verdict.diagnosis else []
    return [line for number, finding in enumerate(findings, 1)
            for line in finding_lines(number, finding, findings[: number - 1])]


def _judged(comparison: Comparison, judged: Judged) -> ElementTree.Element:
    case = _case(judged.name.partition("/")[0], f"{judged.name} [step {judged.step}]")
    if not judged.passed:
        s = judged.statistic
        at = place(comparison.model, judged.name, s.at)
        said = f"T = {short(s.t)} at {at}: found {s.found:.9g}, right is {s.expected:.9g}, E = {short(s.bound)}"
        _fail(case, judged.outcome, said, f"{said}\n{judged.note}".rstrip())
    return case


def _fail(case: ElementTree.Element, outcome: Outcome, message: str, text: str) -> None:
    failure = ElementTree.SubElement(case, "failure", {"type": outcome.label, "message": _plain(message)})
    failure.text = _plain(text)


def _skipped(skipped: NotJudged) -> ElementTree.Element:
    kind = "unknown" if skipped.unknown else skipped.name.partition("/")[0]
    step = "" if skipped.step == NO_STEP else f" [step {skipped.step}]"
    case = _case(kind, skipped.name + step)
    ElementTree.SubElement(case, "skipped", {"message": _plain(skipped.reason)})
    return case


def _plain(text: str) -> str:
    """
    >>> _plain("a\\x00b")
    'a?b'
    """
    return NOT_XML.sub("?", text)
