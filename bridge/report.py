# SPDX-License-Identifier: MIT
"""A comparison as a table for the terminal and as JSON."""

from __future__ import annotations

import json
import math
import os
import platform
import tempfile
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import h5py
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bridge.judged import NO_STEP, Comparison, Judged
from bridge.verdict import Outcome, Verdict, count, short

#: Version of the JSON; a key is added without a new one, never renamed or removed
JSON_VERSION = 1
#: Columns of the table besides the name
NUMBERS = ("step", "max error", "T", "E there", "rel. error", "cosine")
#: Of a long name at least so many characters are shown, however narrow the terminal
SHORTEST_NAME = 12

COLOURS = {
    Outcome.ROUNDING: "bold green",
    Outcome.BUG: "bold red",
    Outcome.PRECISION: "bold yellow",
    Outcome.CANNOT_TELL: "bold yellow",
    Outcome.BAD_INPUT: "bold red",
}


def print_report(console: Console, comparison: Comparison, verdict: Verdict, *, every_step: bool) -> None:
    """Table, what was not judged, and the verdict last, where a terminal shows it."""
    console.print(_table(comparison, every_step, console.width))
    for skipped in _grouped(comparison):
        console.print(f"not judged: {skipped}", style="yellow", highlight=False)
    for line in _facts(comparison):
        console.print(line, style="dim", highlight=False)
    console.print()
    console.print(Text(verdict.words, style=COLOURS[verdict.outcome]))
    for hint in verdict.hints:
        console.print(Text("  " + hint))


def _table(comparison: Comparison, every_step: bool, width: int) -> Table:
    """The numbers whole, and of the names what then fits into `width` columns."""
    shown = rows(comparison, every_step=every_step)
    cells = [_cells(judged) for judged in shown]
    widths = [max(len(text) for text in column) for column in zip(NUMBERS, *cells, strict=True)]
    names = max(width - sum(widths) - 2 * len(widths), SHORTEST_NAME)
    table = Table(title=_title(comparison), title_justify="left", pad_edge=False, box=None, header_style="bold")
    table.add_column("tensor", no_wrap=True)
    for name, at_least in zip(NUMBERS, widths, strict=True):
        table.add_column(name, justify="right", no_wrap=True, min_width=at_least)
    last = None
    for judged, numbers in zip(shown, cells, strict=True):
        if every_step and last is not None and judged.step != last:
            table.add_section()
        last = judged.step
        table.add_row(shortened(judged.name, names), *numbers, style="" if judged.passed else "bold red")
    return table


def _cells(judged: Judged) -> tuple[str, ...]:
    s = judged.statistic
    numbers = short(s.error), short(s.t), short(s.bound), short(s.relative_error)
    return str(judged.step), *numbers, _cosine(s.cosine)


def shortened(name: str, width: int) -> str:
    """A long name without its middle: its ends tell more.

    >>> shortened("forward/conv1", 9), shortened("forward/conv1", 13)
    ('forw…onv1', 'forward/conv1')
    """
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return f"{name[: width - 1 - tail]}\u2026{name[len(name) - tail :]}"


def rows(comparison: Comparison, *, every_step: bool) -> list[Judged]:
    """The rows of the table: all, or of each tensor the step with the largest T. Equal first weights are one row."""
    judged = [j for j in comparison.judged if not (j.given and j.passed)]
    if every_step:
        return judged
    worst: dict[str, Judged] = {}
    for one in judged:
        if one.name not in worst or not one.t <= worst[one.name].t:
            worst[one.name] = one
    return list(worst.values())


def _title(comparison: Comparison) -> str:
    n, c, h, w = comparison.batch_shape
    layers = ", ".join(layer.name for layer in comparison.model.layers)
    return (
        f"{layers}   batch {n} x {c} x {h} x {w}, {count(comparison.steps, 'step')}, {comparison.precision}\n"
        "T = largest ratio of an error to its bound E; right means T <= 1"
    )


def _grouped(comparison: Comparison) -> list[str]:
    """One line for each reason."""
    reasons: dict[str, list[str]] = {}
    for skipped in comparison.not_judged:
        step = "" if skipped.step == NO_STEP else f" (step {skipped.step})"
        reasons.setdefault(skipped.reason, []).append(skipped.name + step)
    return [
        f"{', '.join(names[:6])}{f' and {len(names) - 6} more' if len(names) > 6 else ''}: {reason}"
        for reason, names in reasons.items()
    ]


def is_unreduced_gradient(judged: Judged) -> bool:
    """A gradient of an output or of the input, where the sign of one ReLU can be seen."""
    return judged.name == "grads/input" or (judged.name.startswith("grads/") and judged.name.endswith("/output"))


def _facts(comparison: Comparison) -> list[str]:
    facts = []
    if not comparison.declared:
        facts.append(f"The result does not say its precision: judged as {comparison.precision}.")
    if comparison.reference_t is not None:
        facts.append(
            f"The reference, PyTorch in {comparison.precision}, against the same bounds: T = "
            f"{short(comparison.reference_t)} (step 0)."
        )
    if comparison.twin_t is not None:
        facts.append(f"The oracle and PyTorch in float64 agree to T = {short(comparison.twin_t)} (step 0).")
    if any(judged.passed and judged.t > 0.9 and is_unreduced_gradient(judged) for judged in comparison.judged):
        facts.append(
            "T close to 1 in gradients of outputs is legal: where rounding decides the sign of a ReLU, the whole "
            "gradient of that element comes or goes, and E says so."
        )
    if comparison.divergence is not None:
        facts.append(
            "Left to run on their own, the weights of candidate and reference differ by "
            f"{short(comparison.divergence)} of the way they went."
        )
    return facts


def _cosine(value: float) -> str:
    """Shows how far from 1, where digits would all be nines."""
    if not math.isfinite(value):
        return "-"
    gap = 1 - value
    return f"1 - {max(gap, 0):.0e}" if 0 <= gap < 1e-3 or abs(gap) < 1e-12 else f"{value:.4f}"


def to_dict(comparison: Comparison, verdict: Verdict, **extra: Any) -> dict[str, Any]:
    """The JSON document; infinite and undefined numbers are null."""
    return {
        "json_version": JSON_VERSION,
        "verdict": verdict.outcome.label,
        "exit_code": verdict.exit_code,
        "words": verdict.words,
        "hints": verdict.hints,
        "precision": comparison.precision,
        "batch_shape": list(comparison.batch_shape),
        "steps": comparison.steps,
        "tensors": [_tensor(judged) for judged in comparison.judged],
        "not_judged": [asdict(skipped) for skipped in comparison.not_judged],
        "reference_T": _number(comparison.reference_t),
        "oracle_T": _number(comparison.twin_t),
        "divergence": _number(comparison.divergence),
        "environment": environment(),
    } | extra


def _tensor(judged: Judged) -> dict[str, Any]:
    s = judged.statistic
    return {
        "name": judged.name,
        "step": judged.step,
        "T": _number(s.t),
        "passed": judged.passed,
        "max_error": _number(s.error),
        "bound": _number(s.bound),
        "relative_error": _number(s.relative_error),
        "cosine": _number(s.cosine),
        "at": list(s.at),
        "found": _number(s.found),
        "expected": _number(s.expected),
        "elements": s.elements,
        "nonfinite": s.nonfinite,
        "note": judged.note,
    }


def _number(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def environment() -> dict[str, str]:
    """Versions that a reader needs to repeat the comparison."""
    try:
        own = version("fortran-torch-bridge")
    except PackageNotFoundError:
        own = "not installed"
    return {
        "bridge": own,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "h5py": h5py.__version__,
        "machine": platform.machine(),
        "cpus": str(os.cpu_count()),
    }


def write_json(path: str | os.PathLike[str], document: dict[str, Any]) -> None:
    """Write a JSON file in one piece: a reader never sees half of it."""
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(document, stream, indent=1, allow_nan=False)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
