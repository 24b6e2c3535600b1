# SPDX-License-Identifier: MIT
"""What the calls of a formula gave: who alters one of them computes again only what follows from it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from bridge.judge.oracle.bounded import Bounded, Choice
from bridge.judge.oracle.primitives import watched

#: Numbers of the largest operand up to which results are kept, since there are tens of them
MOST = 2**18


@dataclass
class CallResults:
    """The results of all calls of a formula, of one set of operands.

    Attributes
    ----------
    given : the operands
    calls : of each call its primitive, what it was given and what it gave
    """

    given: Any = None
    calls: list[tuple[str, Any, Any]] = field(default_factory=list)

    def of(self, formula: Callable[..., Any], given: Any, *, other_way: bool) -> CallResults | None:
        """Return the results for some operands; None where these are too large, or have bounds, which are made once."""
        numbers = _numbers_in(given)
        if not numbers or any(one.arithmetic.bounds or one.size > MOST for one in numbers):
            return None
        if not same(self.given, given):
            self.given, self.calls = given, []
            with watched(_Keeping(self, other_way)):
                formula(*given)
        return self

    def at(self, place: int, primitive: str, given: Any) -> tuple[bool, Any]:
        """Return whether a call was given the same, and what it gave then."""
        if place >= len(self.calls):
            return False, None
        name, before, found = self.calls[place]
        return name == primitive and same(before, given), found


@dataclass
class _Keeping:
    kept: CallResults
    other_way: bool

    def __call__(self, method: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
        found = method(*given, **named)
        self.kept.calls.append((method.__name__, (given, named), found))
        return found


def same(one: Any, other: Any) -> bool:
    """Return whether two arguments of a call are the same: arrays are where they are one object.

    >>> x = np.zeros(3)
    >>> same((x, 1.0), (x, 1.0)), same(x, x.copy()), same(lambda a: a + 1, lambda a: a + 2)
    (True, False, False)
    """
    if one is other:
        return True
    if type(one) is not type(other) or isinstance(one, np.ndarray):
        return False
    if isinstance(one, Bounded):
        return one.value is other.value and one.arithmetic == other.arithmetic
    if isinstance(one, Choice):
        return one.true is other.true
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, FunctionType):
        return one.__code__ is other.__code__ and same(_closed_over(one), _closed_over(other))
    if isinstance(one, MethodType):
        return one.__func__ is other.__func__ and same(one.__self__, other.__self__)
    if isinstance(one, functools.partial):
        return same((one.func, one.args, one.keywords), (other.func, other.args, other.keywords))
    return bool(one == other)


def _closed_over(function: FunctionType) -> tuple[Any, ...]:
    return function.__defaults__, function.__kwdefaults__, tuple(
        cell.cell_contents for cell in function.__closure__ or ())


def _numbers_in(given: Any) -> list[Bounded]:
    """The numbers among the operands of a formula, one by one."""
    if isinstance(given, Bounded):
        return [given]
    values = given.values() if isinstance(given, Mapping) else given if isinstance(given, list | tuple) else ()
    return [number for one in values for number in _numbers_in(one)]
