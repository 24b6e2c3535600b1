# SPDX-License-Identifier: MIT
"""All alterations of the formula that makes one tensor, as hypotheses of the search."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bridge.judge.diagnosis.altered import arithmetic, choices, functions, sums, windows  # noqa: F401
from bridge.judge.diagnosis.altered.alteration import MAKERS, Alteration, Extents
from bridge.judge.diagnosis.altered.calls import Call
from bridge.judge.diagnosis.altered.combined import Single, later, pairs, with_settings
from bridge.judge.diagnosis.altered.fits import altered_hypothesis, constants, settings
from bridge.judge.diagnosis.altered.formulas import Altered, Part
from bridge.judge.diagnosis.altered.mixed_up import added_behind, exchanged, other_numbers, other_order
from bridge.judge.diagnosis.altered.numbers import Target, everywhere, fewer_bits
from bridge.judge.diagnosis.altered.parts import Cropped
from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.predictions.hypothesis import Hypotheses, Hypothesis

#: Calls that are altered alike, all or two of them, up to which pairs are tried
ALIKE = 8


def as_a_whole(formula: Altered | Cropped) -> Hypotheses:
    """Yield what another operation makes, this one with another setting, of other operands, or in another order."""
    for said, operation in formula.others():
        yield altered_hypothesis(formula.family, said, operation)
    for key, said, operation in formula.operands():
        yield altered_hypothesis(key, said, operation)
    for said, changes in other_order(formula.calls()):
        yield altered_hypothesis("function", said, formula.altered(changes))


def altered_formulas(formula: Altered | Cropped, target: Target) -> Iterator[Hypotheses]:
    """Yield what a formula gives with one call altered, then with several alike, then by another way to compute it.

    Parameters
    ----------
    target : what constants are fitted to

    Yields
    ------
    hypotheses : stages; the later ones say less simple things
    """
    whole = formula.whole if isinstance(formula, Cropped) else formula
    through = whole.through if isinstance(whole, Part) else ""
    for stage in _stages(formula, target):
        yield (replace(one, detail=through + one.detail) for one in stage)


def _stages(formula: Altered | Cropped, target: Target) -> Iterator[Hypotheses]:
    yield as_a_whole(formula)
    yield settings(formula, target)
    for other_way in (False, True):
        calls = formula.calls(other_way=other_way)
        made = [(call, one) for call in calls for one in _of_call(call, formula.extents)]
        yield (altered_hypothesis(one.key, one.said, formula.altered({call.at: one.change}, other_way))
               for call, one in sorted(made, key=lambda pair: pair[1].unlikely))
        yield _alike(formula, made, other_way)
        yield (altered_hypothesis("other_number", said, formula.altered(changes, other_way))
               for said, changes in other_numbers(calls, formula.given))
        yield _combined(formula, calls, other_way)
        yield constants(formula, calls, target, other_way)
        yield _pairs(formula, calls, made, target, other_way)


def _combined(formula: Altered | Cropped, calls: Sequence[Call], other_way: bool) -> Hypotheses:
    """Factors and terms that come too late, settings that are added elsewhere, numbers exchanged, all in fewer bits."""
    for key, found in (("factor", later(calls)), ("constant", with_settings(calls, formula.numbers)),
                       ("function", added_behind(calls)), ("other_number", exchanged(calls)),
                       ("precision", everywhere(calls))):
        for said, changes in found:
            yield altered_hypothesis(key, said, formula.altered(changes, other_way))


def _pairs(formula: Altered | Cropped, calls: Sequence[Call], made: Sequence[tuple[Call, Alteration]], target: Target,
           other_way: bool) -> Hypotheses:
    """Two mistakes in one formula: like what is fitted they come behind all else, and must explain more bits."""
    singles: list[Single] = [(one.key, one.said, {call.at: one.change}) for call, one in made
                             if not one.unlikely and one.key != "precision"]
    singles += [("function", said, changes) for said, changes in other_order(calls)]
    for keys, said, changes in pairs(formula, singles, target, other_way):
        kinds = tuple(dict.fromkeys(map(kind, keys)))
        yield Hypothesis(kinds, said, formula.altered(changes, other_way), fitted=True, altered=True)


def _of_call(call: Call, extents: Extents) -> Iterator[Alteration]:
    for maker in MAKERS.get(call.primitive, ()):
        yield from maker(call, extents)
    yield from fewer_bits(call)


def _alike(formula: Altered | Cropped, made: list[tuple[Call, Alteration]], other_way: bool) -> Hypotheses:
    """Several calls that do the same instead: all of them, or two."""
    groups: dict[tuple[str, str], list[tuple[Call, Alteration]]] = {}
    for call, one in made:
        if one.template:
            groups.setdefault((call.primitive, one.template), []).append((call, one))
    for together in sorted(groups.values(), key=lambda alike: alike[0][1].unlikely):
        if not 1 < len(together) <= ALIKE:
            continue
        pairs = list(itertools.combinations(together, 2)) if len(together) > 2 else []
        for chosen in (tuple(together), *pairs):
            said = " and ".join(dict.fromkeys(one.said for _, one in chosen))
            yield altered_hypothesis(chosen[0][1].key, said, formula.altered(
                {call.at: one.change for call, one in chosen}, other_way))
