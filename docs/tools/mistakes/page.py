# SPDX-License-Identifier: MIT
"""The made parts of docs/mistakes.md: sources, pictures, verdicts and reports of each mistake, and the table of all.

``python -m docs.tools.mistakes FOLDER`` writes there, for a mistake called NAME:

- NAME.txt: what the page shows of it
- NAME-wide-light.png, NAME-wide-dark.png, NAME-narrow-light.png, NAME-narrow-dark.png: a tensor in four pictures, in a
  row and in two
- NAME.html: the whole report
- table.txt: all mistakes, what the loss and a tolerance say, and the verdicts
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bridge.common.atomic_file import write_text
from bridge.common.number_format import short
from bridge.report.drawing.error_map import ErrorMap
from bridge.report.headline import WORDS, headline
from docs.tools import drawing
from docs.tools.mistakes.catalogue import MISTAKES
from docs.tools.mistakes.runs import Found, found
from docs.tools.mistakes.sources import difference

#: Lines of a verdict that are shown
LINES = 6
NO_BREAK = "\N{NO-BREAK SPACE}"
#: Pictures of a row, and its width in inches; on a phone there are two rows
LAYOUTS = {"wide": (4, 10.4), "narrow": (2, 5.2)}


def panels(shown: ErrorMap) -> list[drawing.Panel]:
    """Return four pictures of a tensor: kernels side by side, or the channel with the largest error / E."""
    right, seen, ratio = shown.right, shown.found, shown.ratio
    if shown.image is None:
        right, seen, ratio = (drawing.kernels(one) for one in (right, seen, ratio))
        low, colours = -float(np.abs(right).max()), drawing.SIGNED
        high = -low
    else:
        channel = shown.judged.statistic.at[1]
        right, seen, ratio = (one[channel] for one in (right, seen, ratio))
        low, high, colours = float(right.min()), float(right.max()), drawing.GREY
    most = float(np.abs(seen - right).max())
    return [drawing.numbers("right", right, low, high, colours), drawing.numbers("found", seen, low, high, colours),
            drawing.numbers("found \u2212 right", seen - right, -most, most), drawing.error_map(ratio)]


def part(one: Found) -> str:
    """Return what the page shows of a mistake: the sources, four pictures, the verdict, and that on the repair."""
    name, said = one.mistake.name, one.said.partition("\n\n")[0].splitlines()[:LINES]
    lines = ["```diff", difference(name).rstrip(), "```", ""]
    lines += ['<div class="panels">', *(_picture(one, theme) for theme in drawing.INKS), "</div>", ""]
    lines += [f"`{one.mistake.tensor}`, step {one.mistake.step}{_of(one)}. "
              f'<a href="mistakes/{name}.html">The whole report</a>', ""]
    lines += ['<div class="verdict" markdown>', "", *_block(*said), "Repaired:", "", *_block(one.repaired), "</div>"]
    return "\n".join([*lines, ""])


def _picture(one: Found, theme: str) -> str:
    name, tensor = one.mistake.name, f"{one.mistake.tensor} of step {one.mistake.step}"
    return (f'<picture><source media="(max-width: 45em)" srcset="mistakes/{name}-narrow-{theme}.png">'
            f'<img src="mistakes/{name}-wide-{theme}.png#only-{theme}" '
            f'alt="{tensor}: right, found, the difference, and error / E"></picture>')


def _block(*lines: str) -> list[str]:
    return ["```text", *lines, "```", ""]


def _of(one: Found) -> str:
    """Which part of the tensor is drawn."""
    at = one.map.judged.statistic.at
    if one.map.image is not None:
        return f", image {one.map.image} of the batch, channel {at[1]}"
    k, c, r, s = one.map.right.shape
    return f", {k} x {c} kernels of {r} x {s}"


def table(all_of: Sequence[Found]) -> str:
    """Return the table of all mistakes, in Markdown."""
    lines = ["| mistake | loss, both steps | `assert_close`, first step | the validator |", "| --- | --- | --- | --- |"]
    for one in all_of:
        wrong, repaired, tensors = one.alarms
        cells = [f"[{one.mistake.title}](#{one.mistake.name})",
                 ", ".join(f"{100 * loss:.2g}{NO_BREAK}%" for loss in one.losses),
                 f"{wrong} of {tensors}; repaired {repaired}", _said(one)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _said(one: Found) -> str:
    verdict, t = one.judgement.verdict, short(one.map.judged.t)
    return f"{WORDS[verdict.outcome]}, T{NO_BREAK}={NO_BREAK}{t}: {headline(verdict)}"


def main(arguments: Sequence[str]) -> None:
    """Write all parts of the page into a folder."""
    folder = Path(arguments[0]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mistakes-") as temporary:
        all_of = [found(mistake, Path(temporary)) for mistake in MISTAKES]
    for one in all_of:
        stem = folder / one.mistake.name
        for layout, (columns, width) in LAYOUTS.items():
            drawing.draw(panels(one.map), stem.with_name(f"{stem.name}-{layout}"), width, columns)
        write_text(stem.with_suffix(".html"), one.report)
        write_text(stem.with_suffix(".txt"), part(one))
    write_text(folder / "table.txt", table(all_of))
