# SPDX-License-Identifier: MIT
"""The calls of a formula: recorded with the names of their operands, and altered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from bridge.judge.diagnosis.altered.call_results import CallResults
from bridge.judge.oracle.bounded import Bounded, Choice
from bridge.judge.oracle.primitives import watched

Array = np.ndarray
#: What is done in place of a call: it is given the primitive, the object and the arguments
Change = Callable[..., Any]

#: What axes are called, by their number
AXES = {1: ("number",), 2: ("row", "column"), 3: ("image", "row", "column"), 4: ("image", "channel", "row", "column"),
        6: ("image", "channel", "row of windows", "column of windows", "row of each window", "column of each window")}
#: Letters from which on a name of an intermediate is no help, and those that are left of what it is made of
LONG, SHORT = 80, 40
#: What is said of a tensor without a name
UNNAMED = "a number"
#: Primitives that only move numbers: what they give has the name of what they take
MOVES = {"moved", "reshape", "transpose", "broadcast", "__getitem__", "by_terms", "padded", "rows", "windows"}
#: How a call is spoken of, by its primitive; {0}, {1} are its operands
WORDS = {
    "__add__": "{0} + {1}", "__sub__": "{0} - {1}", "__rsub__": "{1} - {0}", "__mul__": "{0} * {1}",
    "__truediv__": "{0} / {1}", "__rtruediv__": "{1} / {0}", "averaged": "the share of {0}", "squared": "{0}**2",
    "sum": "the sum of {0}", "summed_to": "the sum of {0}", "folded": "the sum of {0} over windows",
    "scattered": "the sum of {0}",
    "__neg__": "-{0}", "__abs__": "|{0}|", "sqrt": "sqrt({0})", "exp": "exp({0})", "expm1": "expm1({0})",
    "log": "log({0})", "log1p": "log1p({0})", "erf": "erf({0})", "tanh": "tanh({0})", "sigmoid": "sigmoid({0})",
    "carried": "{0} and what of it is carried on", "sin": "sin({0})", "cos": "cos({0})",
    "max": "the largest of {0}", "where_max": "the place of the largest of {0}", "__matmul__": "{0} @ {1}",
    "clipped": "{0}, clipped", "__gt__": "{0} > {1}", "resized": "{0}, resampled",
}


#: Those whose operands stand beside a sign
BRACKETED = {name for name in WORDS if "__" in name} - {"__gt__", "__abs__"} | {"squared"}


def word_of(axis: int, rank: int) -> str:
    """Return what one number of an axis of so many is called.

    >>> word_of(2, 3), word_of(2, 5)
    ('column', 'element of axis 2')
    """
    return AXES[rank][axis] if rank in AXES else f"element of axis {axis}"


@dataclass(frozen=True)
class Argument:
    """What a call is given: its name, its shape and axes where it is an array, its number where it is one."""

    label: str
    shape: tuple[int, ...] = ()
    number: float | None = None
    axes: tuple[str, ...] = ()

    @property
    def named(self) -> bool:
        """Return whether it is a tensor that the formula has a name for."""
        return bool(self.shape) and self.label not in ("", UNNAMED)

    def word(self, axis: int) -> str:
        """Return what an axis is called."""
        return self.axes[axis] if len(self.axes) == len(self.shape) else word_of(axis, len(self.shape))


@dataclass(frozen=True)
class Call:
    """One call of a primitive.

    Attributes
    ----------
    at : its place in the order of calls
    primitive : the name of the method
    operands : the object, and the arguments
    label, shape : of what it gives
    arguments : that are neither tensors nor numbers, such as axes
    follows : the calls that made what it is given
    """

    at: int
    primitive: str
    operands: tuple[Argument, ...]
    label: str
    shape: tuple[int, ...]
    arguments: tuple[Any, ...] = ()
    follows: frozenset[int] = frozenset()

    @property
    def first(self) -> Argument:
        """Return the object."""
        return self.operands[0]

    @property
    def second(self) -> Argument:
        """Return the first argument."""
        return self.operands[1]


@dataclass
class Recorder:
    """Watches a formula and keeps its calls.

    Attributes
    ----------
    settings : what numbers of the formula are called, ``{1e-05: "eps"}``
    """

    settings: Mapping[float, str] = field(default_factory=dict)
    other_way: bool = False
    calls: list[Call] = field(default_factory=list)
    _choices: dict[int, tuple[Choice, int]] = field(default_factory=dict)

    def __call__(self, method: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
        """Make the call and note it."""
        found = method(*given, **named)
        arguments = (*given, *named.values())
        operands = tuple(self._operand(one) for one in arguments)
        label = _label(method.__name__, operands)
        rest = tuple(one for one in arguments if not isinstance(one, Bounded | Choice))
        follows = frozenset[int]().union(*map(self._made_by, arguments))
        self._note(found, len(self.calls))
        self.calls.append(Call(len(self.calls), method.__name__, operands, label, _shape(found), rest, follows))
        if isinstance(found, Bounded) and not found.label:
            axes = next((one.axes for one in operands if one.axes and len(one.shape) == len(found.shape)), ())
            found.named(label, *axes)
        return found

    def _note(self, found: Any, at: int) -> None:
        """Remember which call has made a result, which is kept, so that its identity stays its own."""
        if isinstance(found, Bounded):
            found.call = at
        elif isinstance(found, Choice):
            self._choices[id(found)] = found, at

    def _made_by(self, one: Any) -> set[int]:
        """The calls that a number follows from at once."""
        if isinstance(one, list | tuple):
            return set().union(*map(self._made_by, one))
        at = self._choices[id(one)][1] if id(one) in self._choices else getattr(one, "call", None)
        return set() if at is None else {at}

    def before(self, found: Any) -> list[Call]:
        """Return the calls that a result follows from, in their order."""
        wanted = self._made_by(found)
        for at in reversed(range(len(self.calls))):
            if at in wanted:
                wanted |= self.calls[at].follows
        return [call for call in self.calls if call.at in wanted]

    def _operand(self, one: Any) -> Argument:
        if isinstance(one, Bounded):
            return Argument(one.label or UNNAMED, one.shape, axes=one.axes)
        if isinstance(one, int | float) and not isinstance(one, bool):
            return Argument(self.settings.get(float(one), f"{one:.6g}"), (), float(one))
        return Argument("", _shape(one))


#: In place of the number of a call: what the formula takes
GIVEN = -1


@dataclass(frozen=True)
class Source:
    """A number of a formula: what the formula or a call was given, or what a call gave.

    Attributes
    ----------
    call : its place in the order of calls; `GIVEN`: the formula itself
    argument : which of those it was given; None: the result
    """

    call: int
    argument: int | None = None


@dataclass(frozen=True)
class Instead:
    """A change: the call is given another number of the formula in the place of one of its operands."""

    operand: int
    source: Source


@dataclass
class Altering:
    """Watches a formula and does something else in some of its calls.

    Attributes
    ----------
    changes : by the place of the call
    kept : what the calls gave without changes
    """

    changes: Mapping[int, Change | Instead]
    other_way: bool = False
    kept: CallResults | None = None
    count: int = 0
    _numbers: dict[Source, Any] = field(default_factory=dict)

    def __call__(self, method: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
        """Make the call, or what is in its place."""
        at, self.count = self.count, self.count + 1
        change = self.changes.get(at)
        self.keep(at, given, None)
        if isinstance(change, Instead):
            given = tuple(self._numbers[change.source] if i == change.operand else one for i, one in enumerate(given))
        known, found = (False, None) if change is not None or self.kept is None else self.kept.at(
            at, method.__name__, (given, named))
        if not known:
            found = change(lambda *g: method(*g, **named), *given) if callable(change) else method(*given, **named)
        self.keep(at, (), found)
        return found

    def keep(self, at: int, given: Sequence[Any], found: Any) -> None:
        """Keep what a call is given, by the formula, or gave, where another one is to take it."""
        for one in self.changes.values():
            if isinstance(one, Instead) and one.source.call == at:
                where = one.source.argument
                if where is None:
                    self._numbers[one.source] = found
                elif given:
                    self._numbers[one.source] = given[where]


def settings_of(one: Any) -> dict[float, str]:
    """Return what numbers of a formula are called, by the settings of an operation, a loss or an optimiser.

    >>> from bridge.exchange.optimizers import Adam
    >>> settings_of(Adam(0.25, beta2=0.875))[0.875], settings_of(Adam(0.25, beta2=0.875))[0.125]
    ('beta2', '1 - beta2')
    """
    found: dict[float, str] = {}
    known = {each.name: value for each in fields(one) if isinstance(value := getattr(one, each.name), float)}
    for name, value in known.items():
        if value not in (0.0, 1.0):
            # Formulas have halves and twos of their own
            found[value] = name if value not in (0.5, 2.0) else f"{value:g} ({name}, or {value:g} itself)"
    for name, value in known.items():
        if value in found:
            found.setdefault(1 - value, f"1 - {name}")
    return found


def calls_of(formula: Callable[[], Bounded], settings: Mapping[float, str], *, other_way: bool = False) -> list[Call]:
    """Return the calls that what a formula gives follows from."""
    recorder = Recorder(settings, other_way)
    with watched(recorder):
        return recorder.before(formula())


def with_changes(formula: Callable[..., Any], changes: Mapping[int, Change | Instead], kept: CallResults, *,
                 other_way: bool = False) -> Callable[..., Any]:
    """Return a formula some of whose calls do something else; `kept` is for all formulas that are made of this one."""

    def altered(*given: Any) -> Any:
        altering = Altering(changes, other_way, kept.of(formula, given, other_way=other_way))
        altering.keep(GIVEN, _flat(given), None)
        with watched(altering):
            return formula(*given)

    return altered


def _flat(given: Sequence[Any]) -> list[Any]:
    """The operands of a formula, one by one."""
    found: list[Any] = []
    for one in given:
        found += one.values() if isinstance(one, Mapping) else one if isinstance(one, list | tuple) else [one]
    return found


def _shape(one: Any) -> tuple[int, ...]:
    return one.true.shape if isinstance(one, Choice) else tuple(getattr(one, "shape", ()))


def _label(primitive: str, operands: Sequence[Argument]) -> str:
    """The name of what a call gives; that of a formula that is too long says only what came last."""
    first = operands[0].label
    if primitive in MOVES:
        return first
    if primitive == "choose":
        return next((one.label for one in operands[1:3] if one.named), UNNAMED)
    if primitive == "__truediv__" and operands[1].number is not None and first.startswith("the sum of "):
        return f"the mean of {first.removeprefix('the sum of ')}"
    if primitive not in WORDS:
        return first
    said = ""
    for change in (str, shortened):
        inner = [_bracketed(change(one.label)) if primitive in BRACKETED else change(one.label) for one in operands]
        said = said if 0 < len(said) <= LONG else WORDS[primitive].format(*inner, *[""] * 2)
    return said


def shortened(label: str) -> str:
    """Return a name, or of a long one what is before the last sign in no brackets that is near enough.

    >>> shortened("the input less its largest - log(the sum of exp(the input less its largest))")
    'the input less its largest - ...'
    >>> shortened("exp(the input less its largest, of all of its channels)"), shortened("the input")
    ('...', 'the input')
    """
    signs = [at for at in _signs(label) if at <= SHORT]
    return label if len(label) <= SHORT else f"{label[:signs[-1] + 2]} ..." if signs else "..."


def _signs(label: str) -> list[int]:
    """Where spaces before signs are that stand in no brackets."""
    depth, found = 0, []
    for at, letter in enumerate(label):
        depth += (letter == "(") - (letter == ")")
        if not depth and letter == " " and label[at + 1:at + 3] in ("+ ", "- ", "* ", "/ "):
            found.append(at)
    return found


def _bracketed(label: str) -> str:
    return f"({label})" if _signs(label) else label
