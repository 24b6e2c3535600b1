# SPDX-License-Identifier: MIT
"""A judgement as one HTML file: no script, nothing loaded from anywhere, readable on a phone and in the dark."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from bridge.common.number_format import short
from bridge.common.stages import attempt
from bridge.judge.judge import Judgement
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.operation_names import axes
from bridge.judge.verdict import Verdict
from bridge.report.adequacy import adequacy_tables
from bridge.report.drawing.dots import dots
from bridge.report.drawing.error_map import error_map, worth_a_map
from bridge.report.drawing.figures import curve, losses, scatter
from bridge.report.drawing.pictures import pictures
from bridge.report.environment import environment, origins
from bridge.report.facts import adequacy_lines, facts, not_judged_lines, step_lines, title
from bridge.report.headline import HEADLINES, WORDS, headline
from bridge.report.html_parts import definitions, faults, figure, made, paragraphs, section, tensor_table
from bridge.report.rows import compact, rows
from bridge.report.style import STYLE

#: A figure of more tensors unfolds, and one of more than that is a long one
MOST_DOTS, MOST_ROWS = 40, 1000

DOTS = ("T = largest error / bound E of a tensor, on a logarithmic scale, in the order of computation. Right code "
        "stays left of the line at 1.")

HOW_TO_READ = [
    "E is the largest error that rounding can cause in an element, computed in float64 beside the right value. T is "
    "the largest error / E of a tensor: right code stays below 1, a bug stands at tens to millions.",
    "digits: decimal digits that agree over the whole tensor. kappa: how many times larger than the value the sum of "
    "absolute values is at the worst element; a large one loses digits in right code, too.",
    "Bounds of sums of up to 81 roundings are a theorem. Longer sums have a probabilistic one (lambda = 9: Higham and "
    "Mary 2019), so there is a probability, stated above, that rounding alone fails right code.",
    "Outcomes: rounding (T at most 1), bug (certain), precision (what a lower precision explains), cannot tell "
    "(between).",
]


def page(judgement: Judgement, pair: FilePair | None = None) -> str:
    """Return the document. A section that fails is left out, said, and added to what the verdict misses.

    Parameters
    ----------
    judgement : what was found
    pair : fixture and result; with them the wrong tensors are computed once more, and drawn
    """
    comparison, verdict = judgement
    body = [*_sections(judgement, pair), section("How to read this", paragraphs(HOW_TO_READ))]
    versions = attempt(verdict.missing, "Environment, in the report",
                       lambda: definitions(environment() | origins(pair)), "")
    body.append(section("Environment", versions))
    # Last, because it says what all others miss
    what = attempt(verdict.missing, "the headline, in the report", lambda: headline(verdict), "")
    files = attempt(verdict.missing, "the names of the files, in the report",
                    lambda: [str(one["file"]) for one in origins(pair).values()], list[str]())
    body = [_banner(comparison, verdict, what, files), section("Missing", paragraphs(verdict.missing)), *body]
    of = [WORDS[verdict.outcome] + (f": {what}" if what else ""), *files[-1:]]
    return document(", ".join(of), "\n".join(filter(None, body)))


def run_of_several(judgement: Judgement, pair: FilePair) -> str:
    """Return what stands in the document of a single comparison, without what it shares with others."""
    comparison, verdict = judgement
    said = paragraphs([verdict.words, *verdict.hints]) + paragraphs([title(comparison)], "soft")
    return "\n".join(filter(None, [said, *_sections(judgement, pair)]))


def _sections(judgement: Judgement, pair: FilePair | None) -> list[str]:
    comparison, verdict = judgement
    wanted: dict[str, Callable[[], str]] = {
        "T of every tensor": lambda: _dots(comparison),
        "What is wrong": lambda: faults(verdict),
        "Where the errors are": lambda: _errors(judgement, pair),
        "Tensors": lambda: "\n".join(filter(None, [paragraphs(step_lines(comparison)), _tables(comparison)])),
        "Over the steps": lambda: _over_steps(comparison),
        "What these data can show": lambda: _adequacy(verdict),
        "Not judged": lambda: paragraphs(not_judged_lines(comparison)),
        "Besides": lambda: paragraphs(facts(comparison)),
    }
    missing = verdict.missing
    return [section(title, attempt(missing, f"{title}, in the report", part, "")) for title, part in wanted.items()]


def document(title: str, content: str) -> str:
    """Return a whole page."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
{content}
</main>
</body>
</html>
"""


def _banner(comparison: Comparison, verdict: Verdict, what: str, files: list[str]) -> str:
    """The verdict, before anything else; then of which files, and when."""
    compared = attempt(verdict.missing, "what was compared, in the report", lambda: title(comparison), "")
    head = HEADLINES[verdict.outcome] + (f": {what}" if what else "")
    return (
        f'<header class="verdict {verdict.outcome.label}">\n<h1>{escape(head)}</h1>\n{made(files)}\n'
        f"{paragraphs([verdict.words, *verdict.hints])}\n{paragraphs([compared], 'soft')}\n</header>"
    )


def _dots(comparison: Comparison) -> str:
    """Of many tensors those that matter most first."""
    every = rows(comparison)
    names = dict.fromkeys(one.name for one in every)
    if len(names) <= MOST_DOTS:
        return figure(dots(every), DOTS) if every else ""
    most = {one.name for one in compact(comparison)}
    first = figure(dots([one for one in every if one.name in most]), DOTS)
    shown = set(list(names)[:MOST_ROWS])
    words = f"All {len(names)}" if len(shown) == len(names) else f"The first {MOST_ROWS} of {len(names)}"
    whole = dots([one for one in every if one.name in shown])
    return f"{first}\n<details>\n<summary>{words} tensors</summary>\n{whole}\n</details>"


def _tables(comparison: Comparison) -> str:
    """What matters most; the rest on demand."""
    most, every = compact(comparison), rows(comparison)
    first = tensor_table(comparison, most) if most else ""
    if len(every) == len(most):
        return first
    whole = tensor_table(comparison, every)
    return f"{first}\n<details>\n<summary>All {len(every)} rows</summary>\n{whole}\n</details>"


def _errors(judgement: Judgement, pair: FilePair | None) -> str:
    """The tensors of the first findings, each computed once more."""
    comparison, verdict = judgement
    if pair is None:
        return ""
    parts = []
    for judged in worth_a_map(comparison, verdict.diagnosis.findings if verdict.diagnosis else []):
        found = error_map(pair, judged)
        if found is None:
            continue
        head = f"{judged.name}, step {judged.step}: T = {short(judged.t)}"
        drawn = pictures(found, axes(comparison.model, judged.name, len(judged.statistic.at)))
        points = scatter(found)
        unfolds = "" if points is None else (
            f"<details>\n<summary>The error of each element against its bound</summary>\n{figure(*points)}\n</details>")
        parts.append(f"<h3>{escape(head)}</h3>\n{drawn}\n{unfolds}")
    return "\n".join(parts)


def _over_steps(comparison: Comparison) -> str:
    found = [one for one in comparison.judged if one.name == "loss"]
    loss = losses([(one.step, one.statistic.found) for one in found],
                  [(one.step, one.statistic.expected) for one in found])
    apart = curve(comparison.divergences)
    drawn = [figure(loss, "Loss of each step; dashed: right, from the candidate's own weights")] if loss else []
    drawn += [figure(apart, "Divergence: |w of the candidate - w of the reference| / |way from the first weights|, "
                     "each left to run on its own")] if apart else []
    return '<div class="figures">\n' + "\n".join(drawn) + "\n</div>" if drawn else ""


def _adequacy(verdict: Verdict) -> str:
    if verdict.adequacy is None:
        return ""
    how = "Each number is the largest deviation that a fault would cause in a tensor, in units of E."
    table = adequacy_tables(verdict.adequacy)
    return "\n".join([paragraphs(adequacy_lines(verdict.adequacy)), paragraphs([how], "soft") if table else "", table])
