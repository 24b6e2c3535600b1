# SPDX-License-Identifier: MIT
"""Which faults the data can show, in HTML: a row for each family of faults, and every fault on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from bridge.common.number_format import short
from bridge.judge.diagnosis.catalogue import family
from bridge.judge.diagnosis.records import VISIBLE, Adequacy, Sight
from bridge.report.html_parts import scrolling


@dataclass(frozen=True)
class Fault:
    """One variant of a fault, in all tensors.

    Attributes
    ----------
    name : with the variant
    best : where it shows most
    seen, tensors : in how many tensors it can be seen, of how many
    """

    name: str
    best: Sight
    seen: int
    tensors: int

    @property
    def visible(self) -> bool:
        """Return whether a tensor shows it."""
        return self.best.ratio >= VISIBLE


def adequacy_tables(adequacy: Adequacy) -> str:
    """Return a table of the families of faults, and one of all faults that unfolds; nothing where none was tried."""
    families = _families(adequacy.sights)
    if not families:
        return ""
    first = scrolling("what these data can show", _heads("faults of", "seen", "hardest to see, where it shows most"),
                      [_family(name, faults) for name, faults in families.items()], "prose")
    rows = [row for name, faults in families.items() for row in (_heading(name), *map(_fault, faults))]
    every = scrolling("every fault", _heads("fault", "seen in", "deviation / E, at most"), rows, "prose")
    n = sum(map(len, families.values()))
    return f"{first}\n<details>\n<summary>All {n} faults</summary>\n{every}\n</details>"


def _families(sights: Sequence[Sight]) -> dict[str, list[Fault]]:
    variants: dict[tuple[int, str], list[Sight]] = {}
    for sight in sights:
        variants.setdefault((sight.kind.number, sight.detail), []).append(sight)
    found: dict[str, list[Fault]] = {}
    for (_, detail), each in variants.items():
        kind, best = each[0].kind, max(each, key=lambda one: one.ratio)
        name = f"{kind.title} ({detail})" if detail else kind.title
        found.setdefault(family(kind), []).append(
            Fault(name, best, sum(one.ratio >= VISIBLE for one in each), len(each)))
    return found


def _heads(*words: str) -> str:
    return f'<thead><tr>{"".join(f"<th>{escape(word)}</th>" for word in words)}</tr></thead>'


def _family(name: str, faults: Sequence[Fault]) -> str:
    hardest = min(faults, key=lambda one: one.best.ratio)
    seen = sum(one.visible for one in faults)
    kind = "seen" if seen == len(faults) else "blind"
    said = f"{hardest.name}: {_most(hardest)}"
    return (f'<tr><th scope="row">{escape(name)}</th><td class="{kind}">{seen} of {len(faults)}</td>'
            f"<td>{escape(said)}</td></tr>")


def _heading(name: str) -> str:
    return f'<tr><th scope="rowgroup" colspan="3" class="family">{escape(name)}</th></tr>'


def _fault(one: Fault) -> str:
    kind, where = ("seen", f"{one.seen} of {one.tensors}") if one.visible else ("blind", "nowhere")
    return (f'<tr><th scope="row">{escape(one.name)}</th><td class="{kind}">{where}</td>'
            f"<td>{escape(_most(one))}</td></tr>")


def _most(one: Fault) -> str:
    return f"{short(one.best.ratio)} in {one.best.tensor}"
