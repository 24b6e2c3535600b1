# SPDX-License-Identifier: MIT
"""Parts of the HTML report: tables, faults, definition lists. Every text from a file is escaped here."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from typing import Any

from bridge.common.number_format import short
from bridge.judge.diagnosis.records import VISIBLE, Adequacy, Sight
from bridge.judge.measure.findings import Comparison, Judged
from bridge.judge.verdict import Verdict
from bridge.report.facts import effort_lines, finding_lines, pattern_lines
from bridge.report.table import NUMBERS

#: A page with more rows is slow; JSON has them all
MOST_ROWS = 2000
#: What a phone shows beside the name comes first
COLUMNS = ("outcome", "T", *(head for head in NUMBERS if head not in ("outcome", "T")))


def section(title: str, *parts: str) -> str:
    """Return a heading and what stands below; nothing where nothing stands below."""
    body = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{escape(title)}</h2>\n{body}\n</section>" if body else ""


def paragraphs(lines: Iterable[str], kind: str = "") -> str:
    """Return a paragraph for each line."""
    mark = f' class="{kind}"' if kind else ""
    return "\n".join(f"<p{mark}>{escape(line)}</p>" for line in lines)


def figure(drawn: str, caption: str) -> str:
    """Return an SVG and its caption."""
    return f"<figure>\n{drawn}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"


def faults(verdict: Verdict) -> str:
    """Return what is wrong, and what to look at."""
    if verdict.diagnosis is None:
        return ""
    items = []
    for number, finding in enumerate(verdict.diagnosis.findings, 1):
        head, *rest = finding_lines(number, finding)
        kinds = ["advice" if line.startswith("Look at") else "" for line in rest]
        body = "\n".join(paragraphs([line], kind) for line, kind in zip(rest, kinds, strict=True))
        items.append(f"<li>\n<h3>{escape(head)}</h3>\n{body}\n</li>")
    listed = '<ol class="faults">\n' + "\n".join(items) + "\n</ol>" if items else ""
    found = verdict.diagnosis
    return "\n".join([paragraphs(pattern_lines(found), "advice"), listed, paragraphs(effort_lines(found), "soft")])


def tensor_table(comparison: Comparison, shown: list[Judged]) -> str:
    """Return a row for each tensor, with all columns of the terminal's table."""
    heads = "".join(f'<th scope="col"{_left(head)}>{escape(head)}</th>' for head in COLUMNS)
    body = []
    for judged in shown[:MOST_ROWS]:
        cells = "".join(_cell(head, NUMBERS[head](comparison, judged), judged) for head in COLUMNS)
        failed = "" if judged.passed else ' class="failed"'
        body.append(f'<tr{failed}><th scope="row">{escape(judged.name)}</th>{cells}</tr>')
    more = len(shown) - MOST_ROWS
    rest = paragraphs([f"{more} more rows: in the JSON."], "soft") if more > 0 else ""
    return scrolling("tensors", f'<thead><tr><th scope="col">tensor</th>{heads}</tr></thead>', body) + rest


def _left(head: str) -> str:
    return ' class="words"' if head == "outcome" else ""


def _cell(head: str, text: str, judged: Judged) -> str:
    if head == "outcome":
        return f'<td class="words {judged.outcome.label}">{escape(text)}</td>'
    return f"<td>{escape(text)}</td>"


def scrolling(name: str, head: str, rows: list[str], kind: str = "") -> str:
    """Return a table that scrolls in itself, so that the page never does."""
    mark = f' class="{kind}"' if kind else ""
    body = "\n".join(rows)
    return (
        f'<div class="scroll" role="region" aria-label="{escape(name)}" tabindex="0">\n<table{mark}>\n{head}\n'
        f"<tbody>\n{body}\n</tbody>\n</table>\n</div>"
    )


def adequacy_tables(adequacy: Adequacy) -> str:
    """Return the faults by tensors: the deviation that each would cause, in units of E; first by kind, then every
    variant.
    """
    if not adequacy.sights:
        return ""
    kinds: dict[str, list[Sight]] = {}
    variants: dict[str, list[Sight]] = {}
    for sight in adequacy.sights:
        kinds.setdefault(sight.kind.title, []).append(sight)
        variants.setdefault(f"{sight.kind.title} ({sight.detail})".removesuffix(" ()"), []).append(sight)
    tensors = list(dict.fromkeys(sight.tensor for sight in adequacy.sights))
    blind = {(sight.kind.number, sight.detail) for sight in adequacy.blind}
    first = _matrix("what these data can show", kinds, tensors, blind)
    if len(variants) == len(kinds):
        return first
    whole = _matrix("every variant", variants, tensors, blind)
    return f"{first}\n<details>\n<summary>All {len(variants)} variants</summary>\n{whole}\n</details>"


def _matrix(name: str, faults: dict[str, list[Sight]], tensors: list[str], blind: set[tuple[int, str]]) -> str:
    """Of several variants of a fault a cell shows the one that is hardest to see."""
    heads = "".join(f'<th scope="col">{escape(tensor)}</th>' for tensor in ("fault", *tensors))
    rows = []
    for title, sights in faults.items():
        hardest: dict[str, float] = {}
        for sight in sights:
            hardest[sight.tensor] = min(sight.ratio, hardest.get(sight.tensor, math.inf))
        cells = "".join(_sight(hardest.get(tensor)) for tensor in tensors)
        rows.append(f'<tr><th scope="row">{escape(title + _nowhere(sights, blind))}</th>{cells}</tr>')
    return scrolling(name, f"<thead><tr>{heads}</tr></thead>", rows, "matrix")


def _nowhere(sights: list[Sight], blind: set[tuple[int, str]]) -> str:
    """How many variants no tensor shows."""
    variants = {(sight.kind.number, sight.detail) for sight in sights}
    unseen = len(variants & blind)
    share = f"{unseen} of {len(variants)} variants " if len(variants) > 1 else ""
    return f": {share}seen nowhere" if unseen else ""


def _sight(ratio: float | None) -> str:
    """The ratio in words and colour."""
    if ratio is None:
        return "<td></td>"
    seen = ratio >= VISIBLE
    return f'<td class="{"seen" if seen else "blind"}">{escape(short(ratio))}{"" if seen else " blind"}</td>'


def definitions(values: dict[str, Any]) -> str:
    """Return the names and values; nested ones with both names."""
    items = []
    for name, value in values.items():
        if isinstance(value, dict):
            items += [(f"{name}: {inner}", text) for inner, text in value.items()]
        else:
            items.append((name, value))
    inside = "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in items)
    return f"<dl>\n{inside}\n</dl>" if items else ""
