# SPDX-License-Identifier: MIT
"""The self-test on the terminal, and for the reports."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from bridge.common.number_format import short
from bridge.judge.diagnosis import KINDS
from bridge.judge.measure.outcome import Outcome
from bridge.report.junit import Answer
from bridge.report.series import Series
from bridge.validate.self_test.plants.unknown import UNKNOWN_KIND
from bridge.validate.self_test.run_case import Healthily, Told
from bridge.validate.self_test.summary import NAMED, OURS, Summary

#: Columns of the table of planted faults
COUNTS = ("planted", "caught", "named first", "in its class", "not visible")


def show(console: Console, summary: Summary) -> None:
    """Print tables, what is not as it should be, and a conclusion."""
    console.print(by_kind(summary))
    _list(console, "not visible in these data", [_told(one) for one in summary.told if not one.visible])
    _list(console, "MISSED", [_told(one) for one in summary.missed])
    _list(console, "caught, but another explanation came first", [_told(one) for one in summary.unnamed])
    _list(console, "FALSE ALARM", [_healthily(one) for one in summary.alarms])
    console.print(tolerances(summary))
    console.print(conclusion(summary), style="bold", highlight=False)


def by_kind(summary: Summary) -> Table:
    """Return what was planted, and what was said of it."""
    table = Table(title="planted faults", title_justify="left", box=None, pad_edge=False)
    for name in ("", "kind"):
        table.add_column(name, justify="right" if not name else "left")
    for name in COUNTS:
        table.add_column(name, justify="right")
    for number, row in summary.kinds().items():
        table.add_row(str(number), _title(number), *(str(value) for value in row.values()))
    return table


def series(summary: Summary) -> Series:
    """Return the same for the reports: an answer for each kind of fault, for naming, and for the right programs."""
    kinds = summary.kinds()
    answers = [_answer(_title(number), [_told(one) for one in summary.missed if one.kind == number],
                       f"{row['caught']} of {row['plants']} caught, {row['named']} named first")
               for number, row in kinds.items()]
    answers += [
        Answer("names", Outcome.ROUNDING if summary.naming >= NAMED else Outcome.BUG,
               f"{100 * summary.naming:.1f} % named by the first explanation", list(map(_told, summary.unnamed))),
        _answer("right programs", list(map(_healthily, summary.alarms)),
                f"{len(summary.alarms)} false alarms in {len(summary.healthy)}"),
    ]
    rows = [[_title(number), *map(str, row.values())] for number, row in kinds.items()]
    outcome = Outcome.ROUNDING if summary.passed else Outcome.BUG
    return Series("self-test", "The validator itself: planted faults and right programs", outcome, conclusion(summary),
                  answers, ("planted faults", *COUNTS), rows)


def _answer(name: str, wrong: list[str], words: str) -> Answer:
    return Answer(name, Outcome.BUG if wrong else Outcome.ROUNDING, words, wrong)


def _title(number: int) -> str:
    return KINDS[number - 1].title if number != UNKNOWN_KIND else "of no known kind, found in the right tensor"


def tolerances(summary: Summary) -> Table:
    """Return the same programs by fixed tolerances."""
    table = Table(title="the same by fixed tolerances", title_justify="left", box=None, pad_edge=False)
    table.add_column("rule")
    chosen = [one for one in summary.visible if one.naive]
    start = sum(one.at_start for one in chosen)
    for name in (
        f"missed of {len(chosen)}",
        f"missed of the {start} wrong in step 0",
        f"false alarms of {len(summary.healthy)}",
    ):
        table.add_column(name, justify="right")
    for rule, row in summary.tolerances().items():
        table.add_row(rule, *(str(value) for value in row.values()), style="bold" if rule == OURS else "")
    return table


def conclusion(summary: Summary) -> str:
    """Return the conclusion in one sentence."""
    kinds = {one.kind for one in summary.visible} - {UNKNOWN_KIND}
    whole = {kind for kind in kinds if all(one.caught for one in summary.visible if one.kind == kind)}
    said = "SELF-TEST PASSED" if summary.passed else "SELF-TEST FAILED"
    return (
        f"{said}: {len(whole)} of {len(KINDS)} kinds of faults caught ({len(summary.visible) - len(summary.missed)} of "
        f"{len(summary.visible)} visible ones planted), {100 * summary.naming:.1f} % named by the first explanation "
        f"(at least {100 * NAMED:.0f} % wanted), {len(summary.alarms)} false alarms in {len(summary.healthy)} right "
        "programs."
    )


def _list(console: Console, title: str, lines: list[str]) -> None:
    if lines:
        console.print(f"{title}:", style="bold")
        for line in lines:
            console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)


def _told(one: Told) -> str:
    return f"{one.kind} {one.name} ({one.data}; {one.setting}): exit code {one.code}, T = {short(one.t)}; {one.said}"


def _healthily(one: Healthily) -> str:
    return f"{one.name} ({one.data}; {one.setting}): exit code {one.code}, T = {short(one.t)}; {one.said}"
