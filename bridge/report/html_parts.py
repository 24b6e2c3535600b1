# SPDX-License-Identifier: MIT
"""Parts of the HTML report: tables, faults, definition lists. Every text from a file is escaped here."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from datetime import datetime, timezone
from html import escape
from typing import Any

from bridge.judge.diagnosis.records import Finding
from bridge.judge.measure.findings import Comparison, Judged
from bridge.judge.measure.operation_names import place
from bridge.judge.verdict import Verdict
from bridge.report.facts import again, effort_lines, fault_of, finding_lines, pattern_lines
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
    items, before = [], list[Finding]()
    for number, (finding, *others) in enumerate(_together(verdict.diagnosis.findings), 1):
        head, *rest = finding_lines(number, finding, before)
        kinds = ["advice" if line.startswith("Look at") else "" for line in rest]
        body = "\n".join(paragraphs([line], kind) for line, kind in zip(rest, kinds, strict=True))
        same = "".join(f"<li>{escape(again(one))}</li>" for one in others)
        body += f"\n<p>The same in:</p>\n<ul>{same}</ul>" if same else ""
        items.append(f"<li>\n<h3>{escape(head)}</h3>\n{body}\n</li>")
        before += [finding, *others]
    listed = '<ol class="faults">\n' + "\n".join(items) + "\n</ol>" if items else ""
    found = verdict.diagnosis
    return "\n".join([paragraphs(pattern_lines(found), "advice"), listed, paragraphs(effort_lines(found), "soft")])


def _together(findings: list[Finding]) -> list[list[Finding]]:
    """Those of one fault are one entry."""
    groups: dict[Hashable, list[Finding]] = {}
    for i, one in enumerate(findings):
        fault = fault_of(one)
        groups.setdefault(i if fault is None else ("known", fault), []).append(one)
    return list(groups.values())


def made(names: Iterable[str] = ()) -> str:
    """Return what a page is of and when it was made, to stand at its top."""
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = "".join(f"<b>{escape(name)}</b>, " for name in names)
    return f'<p class="soft">{said}<time datetime="{now}">{now}</time></p>'


def tensor_table(comparison: Comparison, shown: list[Judged]) -> str:
    """Return a row for each tensor, with all columns of the terminal's table."""
    heads = "".join(f'<th scope="col"{_left(head)}>{escape(head)}</th>' for head in COLUMNS)
    body = []
    for judged in shown[:MOST_ROWS]:
        cells = "".join(_cell(head, _text(comparison, head, judged), judged) for head in COLUMNS)
        failed = "" if judged.passed else ' class="failed"'
        body.append(f'<tr{failed}><th scope="row">{escape(judged.name)}</th>{cells}</tr>')
    more = len(shown) - MOST_ROWS
    rest = paragraphs([f"{more} more rows: in the JSON."], "soft") if more > 0 else ""
    return scrolling("tensors", f'<thead><tr><th scope="col">tensor</th>{heads}</tr></thead>', body) + rest


def _text(comparison: Comparison, head: str, judged: Judged) -> str:
    """As on the terminal, but that there is room for the names of axes."""
    if head != "worst at":
        return NUMBERS[head](comparison, judged)
    return place(comparison.model, judged.name, judged.statistic.at) if judged.statistic.elements > 1 else "-"


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
