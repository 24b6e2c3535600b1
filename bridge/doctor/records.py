# SPDX-License-Identifier: MIT
"""What an examination finds: rows in sections, and for each device whether it can be used."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any


class State(Enum):
    """What a row means for the user."""

    FACT = "fact"
    GOOD = "good"
    ABSENT = "absent"
    BAD = "bad"


@dataclass(frozen=True)
class Row:
    """One line of the report; `note` explains it."""

    name: str
    value: str
    state: State = State.FACT
    note: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return what the JSON document says of it."""
        return {**asdict(self), "state": self.state.value}


@dataclass(frozen=True)
class Section:
    """Rows that belong together."""

    title: str
    rows: list[Row]


@dataclass(frozen=True)
class Problem:
    """What is wrong, and the one thing to do about it: a command where there is one."""

    what: str
    fix: str


@dataclass(frozen=True)
class Readiness:
    """Whether a kind of device can be used; `problems` in the order in which they must be solved.

    Examples
    --------
    >>> Readiness("cpu").words
    'cpu: ready'
    >>> Readiness("cuda", [Problem("no GPU driver", "install it")]).words
    'cuda: not usable: no GPU driver'
    """

    device: str
    problems: list[Problem] = field(default_factory=list)
    #: Which devices of the kind
    names: str = ""

    @property
    def usable(self) -> bool:
        """Return whether nothing stands against it."""
        return not self.problems

    @property
    def words(self) -> str:
        """Return what the verdict says of it."""
        if not self.usable:
            return f"{self.device}: not usable: {self.problems[0].what}"
        return f"{self.device}: ready ({self.names})" if self.names else f"{self.device}: ready"

    def to_dict(self) -> dict[str, Any]:
        """Return what the JSON document says of it."""
        return {"usable": self.usable, "names": self.names, "problems": [asdict(one) for one in self.problems]}


@dataclass(frozen=True)
class Examination:
    """Everything that was found."""

    sections: list[Section]
    cpu: Readiness
    cuda: Readiness
    #: What could be better, though the devices work
    advice: list[Problem]
    #: As the Fortran library says them
    facts: dict[str, str]
    #: The same of the device cpu
    cpu_facts: dict[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """Return the verdict, in one line."""
        return f"{self.cpu.words}. {self.cuda.words}"

    def exit_code(self, device: str) -> int:
        """Return 0 if the devices that were asked for can be used, else 1; the cpu always is."""
        wanted = [self.cpu, self.cuda] if device == "cuda" else [self.cpu]
        return 0 if all(one.usable for one in wanted) else 1
