# SPDX-License-Identifier: MIT
"""A judgement as one HTML file: no script, nothing loaded from anywhere, readable on a phone and in the dark."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from bridge.common.stages import attempt
from bridge.judge.judge import Judgement
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict
from bridge.report.environment import environment, origins
from bridge.report.error_map import ErrorMap, error_map, worth_a_map
from bridge.report.facts import adequacy_lines, facts, not_judged_lines, step_lines, title
from bridge.report.figures import curve, map_figure, scatter
from bridge.report.html_parts import adequacy_tables, definitions, faults, figure, paragraphs, section, tensor_table
from bridge.report.rows import compact, rows
from bridge.report.style import STYLE

#: Sign and word: the colour alone tells nothing
HEADLINES = {
    Outcome.ROUNDING: "\u2713 Right: rounding",
    Outcome.BUG: "\u2717 Bug",
    Outcome.PRECISION: "\u25d1 Lower precision than declared",
    Outcome.CANNOT_TELL: "? Cannot tell",
    Outcome.BAD_INPUT: "\u2717 Bad input",
}

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
    pair : fixture and result; with them the worst tensor is computed once more, and drawn
    """
    comparison, verdict = judgement
    body = [*_sections(judgement, pair), section("How to read this", paragraphs(HOW_TO_READ))]
    versions = attempt(verdict.missing, "Environment, in the report",
                       lambda: definitions(environment() | origins(pair)), "")
    body.append(section("Environment", versions))
    # Last, because it says what all others miss
    body = [_banner(comparison, verdict), section("Missing", paragraphs(verdict.missing)), *body]
    return document(HEADLINES[verdict.outcome], "\n".join(filter(None, body)))


def run_of_several(judgement: Judgement, pair: FilePair) -> str:
    """Return what stands in the document of a single comparison, without what it shares with others."""
    comparison, verdict = judgement
    said = paragraphs([verdict.words, *verdict.hints]) + paragraphs([title(comparison)], "soft")
    return "\n".join(filter(None, [said, *_sections(judgement, pair)]))


def _sections(judgement: Judgement, pair: FilePair | None) -> list[str]:
    comparison, verdict = judgement
    wanted: dict[str, Callable[[], str]] = {
        "What is wrong": lambda: faults(verdict),
        "Tensors": lambda: "\n".join(filter(None, [paragraphs(step_lines(comparison)), _tables(comparison)])),
        "Where the errors are": lambda: _figures(_mapped(comparison, pair)),
        "Divergence": lambda: _divergence(comparison),
        "What these data can show": lambda: _adequacy(verdict),
        "Not judged": lambda: paragraphs(not_judged_lines(comparison)),
        "Besides": lambda: paragraphs(facts(comparison)),
    }
    missing = verdict.missing
    return [section(title, attempt(missing, f"{title}, in the report", part, "")) for title, part in wanted.items()]


def document(headline: str, content: str) -> str:
    """Return a whole page."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{escape(headline)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
{content}
</main>
</body>
</html>
"""


def _banner(comparison: Comparison, verdict: Verdict) -> str:
    """The verdict, before anything else."""
    what = attempt(verdict.missing, "what was compared, in the report", lambda: title(comparison), "")
    return (
        f'<header class="verdict {verdict.outcome.label}">\n<h1>{escape(HEADLINES[verdict.outcome])}</h1>\n'
        f"{paragraphs([verdict.words, *verdict.hints])}\n{paragraphs([what], 'soft')}\n</header>"
    )


def _tables(comparison: Comparison) -> str:
    """What matters most; the rest on demand."""
    most, every = compact(comparison), rows(comparison)
    first = tensor_table(comparison, most) if most else ""
    if len(every) == len(most):
        return first
    whole = tensor_table(comparison, every)
    return f"{first}\n<details>\n<summary>All {len(every)} rows</summary>\n{whole}\n</details>"


def _mapped(comparison: Comparison, pair: FilePair | None) -> ErrorMap | None:
    worst = worth_a_map(comparison)
    return None if pair is None or worst is None else error_map(pair, worst)


def _figures(found: ErrorMap | None) -> str:
    if found is None:
        return ""
    drawn = [map_figure(found)]
    if (points := scatter(found)) is not None:
        drawn.append(points)
    return '<div class="figures">\n' + "\n".join(figure(*one) for one in drawn) + "\n</div>"


def _divergence(comparison: Comparison) -> str:
    drawn = curve(comparison.divergences)
    caption = "|w of the candidate - w of the reference| / |way from the first weights|, each left to run on its own"
    return "" if drawn is None else figure(drawn, caption)


def _adequacy(verdict: Verdict) -> str:
    if verdict.adequacy is None:
        return ""
    how = (
        "Each number is the largest deviation that a fault would cause in a tensor, in units of E; of several variants "
        "of a fault the one that is hardest to see."
    )
    table = adequacy_tables(verdict.adequacy)
    return "\n".join([paragraphs(adequacy_lines(verdict.adequacy)), paragraphs([how], "soft") if table else "", table])
