# SPDX-License-Identifier: MIT
"""What a call may do instead: alterations by primitive, and the extents that they may mistake for each other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from bridge.judge.diagnosis.altered.calls import Call, Change
from bridge.judge.diagnosis.altered.operands import displaced
from bridge.judge.diagnosis.faults.padding import coordinates
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.windows import Places

Array = np.ndarray


@dataclass(frozen=True)
class Alteration:
    """Something else that a call does.

    Attributes
    ----------
    key : kind of the mistake, see `bridge.judge.diagnosis.catalogue`
    said : in words, a sentence without its point
    change : what is done
    template : the same for calls that are altered alike; empty where they are not
    unlikely : another one that comes to the same is the better explanation
    """

    key: str
    said: str
    change: Change
    template: str = ""
    unlikely: bool = False


@dataclass(frozen=True)
class Extents:
    """The numbers of a formula's shapes and settings, by what they are.

    >>> Extents({"images": 2, "rows": 5}).products[10]
    'images * rows'
    """

    by_name: Mapping[str, int]

    @property
    def products(self) -> dict[int, str]:
        """Return all products of up to four extents, each with the shortest words."""
        found: dict[int, str] = {}
        names = [name for name, n in self.by_name.items() if n > 1]
        for count in (1, 2, 3, 4):
            for chosen in itertools.combinations(names, count):
                found.setdefault(math.prod(self.by_name[name] for name in chosen), " * ".join(chosen))
        return found


#: What may be there beyond a border in place of one number
BEYOND = {"replicate": "are copies of the outermost", "reflect": "are those mirrored at the outermost",
          "circular": "are those of the opposite side"}
Alterations = Iterator[Alteration]
Maker = Callable[[Call, Extents], Alterations]
#: Who says what a primitive may do instead; a primitive without one is in `WITHOUT`
MAKERS: dict[str, list[Maker]] = {}
#: Primitives that nobody alters, with the reason
WITHOUT = {
    "moved": "it moves numbers in a way that only the operation knows",
    "__getitem__": "parts of a batch are taken by alterations of sums",
    "constant": "a number of the formula, fitted where it meets another one",
    "constants": "numbers of a table",
    "by_terms": "of the bound alone",
    "convolved": "mistakes of convolutions are in `bridge.judge.diagnosis.faults.convolution_faults`",
    "data_gradient": "as `convolved`",
    "filter_gradient": "as `convolved`",
}


def alters(*primitives: str) -> Callable[[Maker], Maker]:
    """Declare what yields the alterations of some primitives."""

    def declare(maker: Maker) -> Maker:
        for name in primitives:
            MAKERS.setdefault(name, []).append(maker)
        return maker

    return declare


def only(x: Bounded, keep: Array) -> Bounded:
    """Return a tensor with zeros where `keep`, which is broadcast, is False."""
    return x.moved(lambda a: np.where(keep, a, 0.0))


def chosen(shape: tuple[int, ...], axis: int, keep: Array) -> Array:
    """Return a choice along one axis, to be broadcast."""
    return keep.reshape(tuple(-1 if a == axis else 1 for a in range(len(shape))))


def shifted(x: Bounded, axis: int, by: int, *, edge: bool = False) -> Bounded:
    """Return element ``i + by`` at place i along an axis; beyond the end 0, or the edge's."""
    return x.moved(partial(displaced, axis=axis, by=by, edge=edge))


def near(x: Bounded, value: Array) -> Bounded:
    """Return other numbers with a few roundings of their own."""
    return Bounded(value, 4 * x.arithmetic.u * np.abs(value), x.arithmetic)


def beyond(places: Sequence[Places], size: Sequence[int]) -> Iterator[tuple[str, tuple[Places, ...]]]:
    """Yield what is there beyond an image of this size, and windows that take it; nothing where they are inside."""
    outside = any(not 0 <= at < n for axis, n in zip(places, size, strict=True) for one in axis for at in one)
    for mode, said in BEYOND.items() if outside else ():
        yield said, tuple(tuple(tuple(map(int, coordinates(np.array(one), n, mode)[0])) for one in axis)
                          for axis, n in zip(places, size, strict=True))


def behind_padding(rows: Places, columns: Places) -> tuple[Places, Places] | None:
    """Return windows that begin with the image, as where there is padding behind it alone; None where they do."""
    before = [-min(min(one) for one in places) for places in (rows, columns)]
    if max(before) <= 0:
        return None
    down, across = (tuple(tuple(at + max(by, 0) for at in one) for one in places)
                    for places, by in zip((rows, columns), before, strict=True))
    return down, across
