# SPDX-License-Identifier: MIT
"""Which faults are planted in which fixtures, and which right programs are run on them."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.validate.self_test.fast_algorithms import FAST
from bridge.validate.self_test.fixtures import (
    BRIGHT,
    CLASSIFIER,
    GRAPH,
    GRAPHS,
    KAN,
    RESIDUAL,
    SETTINGS,
    SKIPPED,
    FixtureData,
)
from bridge.validate.self_test.healthy import HEALTHY, ON_GRAPHS, Healthy
from bridge.validate.self_test.plants import CATALOGUE, UNKNOWN, Plant

SMALL = FixtureData("20x24", 3)
#: Of graphs, which have no scaled loss and no smooth images
LARGER = FixtureData("64x48", 2)
#: Where few channels of a filter gradient stand for all, and the size of micrographs
COSTLY, WHOLE = FixtureData("256x256", 2), FixtureData("1024x1024", 2)
#: Other sizes, loss scales and images
OTHERS = (
    FixtureData("20x24", 3, scale=2.0**-12),
    FixtureData("20x24", 3, scale=2.0**15),
    FixtureData("20x24", 3, smooth=True),
    LARGER,
    FixtureData("64x48", 2, smooth=True, scale=2.0**-12),
    COSTLY,
)


@dataclass(frozen=True)
class Trial:
    """A wrong or a right program on a fixture; only names travel to another process."""

    name: str
    data: FixtureData
    setting: str
    right: bool = False

    @property
    def plant(self) -> Plant:
        """Return the fault."""
        return _PLANTS[self.name]

    @property
    def healthy(self) -> Healthy | None:
        """Return the right program, if it is one."""
        return _HEALTHY[self.name] if self.right else None


_PLANTS = {f"{one.kind} {one.name}": one for one in (*CATALOGUE, *UNKNOWN)}
_HEALTHY = {one.name: one for one in (*HEALTHY, *FAST, *ON_GRAPHS)}
assert len(_PLANTS) == len(CATALOGUE) + len(UNKNOWN), "two faults of one name"


def planted(plants: list[Plant], data: FixtureData) -> list[Trial]:
    """Return the faults in one fixture."""
    return [Trial(f"{one.kind} {one.name}", data, one.setting) for one in plants]


def one_of_each(plants: tuple[Plant, ...], turn: int = 0) -> list[Plant]:
    """Return one plant of every kind, in every turn another one.

    >>> len(one_of_each(CATALOGUE)), one_of_each(CATALOGUE, 1)[0].name
    (60, 'filter gradient flipped in h')
    """
    kinds: dict[int, list[Plant]] = {}
    for one in plants:
        kinds.setdefault(one.kind, []).append(one)
    return [group[turn % len(group)] for group in kinds.values()]


def running(programs: tuple[Healthy, ...], data: FixtureData, *settings: str) -> list[Trial]:
    """Return right programs on fixtures of several settings."""
    return [Trial(one.name, data, setting, True) for setting in settings for one in programs]


#: All right programs
EVERY = (*HEALTHY, *FAST)


def quick() -> list[Trial]:
    """Return a fault of each kind and every right program, on small noisy images; of losses alone no program."""
    return planted(one_of_each(CATALOGUE), SMALL) + running(EVERY, SMALL, "plain") + running(
        ON_GRAPHS, SMALL, GRAPH, SKIPPED, RESIDUAL, CLASSIFIER, KAN)


def full() -> list[Trial]:
    """Return everything on small images; some kinds with every other size, loss scale and images; and what has none."""
    every = tuple(name for name in SETTINGS if name not in (*BRIGHT, *GRAPHS))
    cases = planted(list(CATALOGUE), SMALL) + running(HEALTHY, SMALL, *every) + running(FAST, SMALL, "plain", "wide")
    short = tuple(one for one in CATALOGUE if one.setting not in (*BRIGHT, *GRAPHS))
    graphs = tuple(one for one in CATALOGUE if one.setting == GRAPH)
    cases += planted(one_of_each(graphs, 1), LARGER)
    cases += running(ON_GRAPHS, SMALL, *GRAPHS) + running(ON_GRAPHS, LARGER, GRAPH)
    for turn, data in enumerate(OTHERS):
        # Every second kind, of the costly ones every third: all of them together are as good as all of each
        cases += planted(one_of_each(short, turn)[turn % 2 :: 3 if data == COSTLY else 2], data)
        cases += running(HEALTHY, data, "plain", *(() if data == COSTLY else ("strided",)))
    return cases + planted(list(UNKNOWN), COSTLY) + planted([UNKNOWN[0]], WHOLE)
