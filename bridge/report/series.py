# SPDX-License-Identifier: MIT
"""Several answers with one conclusion: probes, sizes, checks, identities, gradients; as HTML and as JUnit XML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from bridge.judge.measure.outcome import Outcome
from bridge.report.environment import environment
from bridge.report.headline import HEADLINES, WORDS
from bridge.report.html_page import document
from bridge.report.html_parts import definitions, made, paragraphs, scrolling, section
from bridge.report.junit import Answer, answers


@dataclass(frozen=True)
class Series:
    """What was asked, what was answered, and what follows.

    Attributes
    ----------
    name : in one word, the class of the test cases
    title : what was asked
    outcome, words : the conclusion
    answers : one for each probe, size, check, ...
    headings, rows : a table of numbers, the first column are names; none where `headings` is empty
    worst : HTML of the run that is worst, and its name
    files : names of those that were read
    """

    name: str
    title: str
    outcome: Outcome
    words: str
    answers: Sequence[Answer]
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = field(default_factory=list)
    worst: tuple[str, str] = ("", "")
    files: Sequence[str] = ()


def series_page(series: Series) -> str:
    """Return one HTML file: the conclusion, every answer, the numbers, the worst run."""
    # What is right here need not be rounding
    sign = HEADLINES[series.outcome].partition(":")[0]
    banner = (f'<header class="verdict {series.outcome.label}">\n<h1>{escape(sign)}</h1>\n{made(series.files)}\n'
              f"{paragraphs([series.words])}\n{paragraphs([series.title], 'soft')}\n</header>")
    name, run = series.worst
    heading = "Nearest to its bounds" if series.outcome is Outcome.ROUNDING else "The worst"
    hints = [paragraphs([f"{one.name}: {hint}"]) for one in series.answers for hint in one.hints]
    parts = [banner, section("Answers", _answers(series.answers), *hints), section("Numbers", _numbers(series)),
             section(f"{heading}: {name}", run), section("Environment", definitions(environment()))]
    title = ", ".join([f"{WORDS[series.outcome]}: {series.title}", *series.files[-1:]])
    return document(title, "\n".join(filter(None, parts)))


def series_suite(series: Series) -> str:
    """Return JUnit XML: a test case for each answer, and one for the conclusion."""
    return answers([Answer("verdict", series.outcome, series.words), *series.answers], series.name)


def _answers(found: Sequence[Answer]) -> str:
    body = []
    for one in found:
        failed = "" if one.outcome is Outcome.ROUNDING else ' class="failed"'
        outcome = f'<td class="words {one.outcome.label}">{escape(one.outcome.words)}</td>'
        body.append(f'<tr{failed}><th scope="row">{escape(one.name)}</th>{outcome}'
                    f'<td class="words">{escape(one.words)}</td></tr>')
    heads = "".join(f'<th scope="col" class="words">{head}</th>' for head in ("", "verdict", "found"))
    return scrolling("answers", f"<thead><tr>{heads}</tr></thead>", body, "prose")


def _numbers(series: Series) -> str:
    if not series.headings:
        return ""
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in series.headings)
    body = [f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(one)}</td>" for one in cells)}</tr>'
            for name, *cells in series.rows]
    return scrolling("numbers", f"<thead><tr>{heads}</tr></thead>", body)
