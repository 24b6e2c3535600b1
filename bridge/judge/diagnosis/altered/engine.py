# SPDX-License-Identifier: MIT
"""All alterations of the formula that makes one tensor, as hypotheses of the search."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np

from bridge.judge.diagnosis.altered import arithmetic, choices, functions, sums, windows  # noqa: F401
from bridge.judge.diagnosis.altered.alteration import MAKERS, Alteration, Extents
from bridge.judge.diagnosis.altered.calls import Call, Change, calls_of, settings_of, with_changes
from bridge.judge.diagnosis.altered.numbers import Target, fewer_bits, fitted, said, with_constant
from bridge.judge.diagnosis.altered.operands import changes
from bridge.judge.diagnosis.altered.updates import UpdateFormula
from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.information import ENOUGH
from bridge.judge.diagnosis.predictions.formulas import Criterion, Formula
from bridge.judge.diagnosis.predictions.hypothesis import Hypotheses, Hypothesis
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.diagnosis.predictions.updating import Updating
from bridge.judge.diagnosis.wrong_operations.change import changed
from bridge.judge.oracle import bounded
from bridge.judge.oracle.error_model import Arithmetic

Array = np.ndarray
#: Calls that are altered alike, all or two of them, up to which pairs are tried
ALIKE = 8
#: Primitives whose first argument may be a constant of the formula
WITH_CONSTANT = {"__add__", "__sub__", "__rsub__", "__mul__", "__truediv__", "__rtruediv__", "averaged", "__gt__"}


@dataclass(frozen=True)
class Evaluated:
    """The formula of an operation or a loss, to be evaluated with changes.

    Attributes
    ----------
    right : makes the tensor
    """

    right: Formula | Criterion

    @property
    def _owner(self) -> Any:
        return self.right.node if isinstance(self.right, Formula) else self.right.loss

    def with_owner(self, owner: Any) -> Prediction:
        """Return the same of another operation, or another loss."""
        found: Prediction = self.right.replaced(**{"node" if isinstance(self.right, Formula) else "loss": owner})
        return found

    def altered(self, made: Mapping[int, Change], other_way: bool = False) -> Prediction:
        """Return what makes the tensor when some calls do something else."""
        owner = self._owner
        names = ("forward", "backward", "new_state") if isinstance(self.right, Formula) else ("forward", "backward")
        methods = {name: with_changes(getattr(owner, name), made, other_way) for name in names}
        return self.with_owner(changed(owner, **methods))

    def calls(self, *, other_way: bool = False) -> list[Call]:
        """Return the calls that the tensor follows from."""
        return calls_of(self._evaluate, settings_of(self._owner), other_way=other_way)

    @property
    def numbers(self) -> dict[str, float]:
        """Return the settings that are real numbers."""
        return {one.name: value for one in fields(self._owner)
                if isinstance(value := getattr(self._owner, one.name), float)}

    def with_number(self, name: str, number: float) -> Prediction:
        """Return the same by another setting."""
        return self.with_owner(replace(self._owner, **{name: number}))

    def operands(self) -> Iterator[tuple[str, str, Prediction]]:
        """Yield a kind, words, and what is made of whole operands that are other ones."""
        right = self.right
        if isinstance(right, Criterion):
            for key, what, change in changes(right.target.shape):
                yield key, f"the target {what}", right.replaced(target=change(right.target))
            return
        for i, (one, name) in enumerate(zip(right.inputs, _names(right), strict=True)):
            for key, what, change in changes(one.value.shape):
                inputs = (*right.inputs[:i], _changed(one, change), *right.inputs[i + 1:])
                yield key, f"{name} {what}", right.replaced(inputs=inputs)
        for name, w in right.parameters.items():
            for key, what, change in changes(w.shape):
                yield key, f"the {name} {what}", right.with_operand(name, change)
        if right.dy is not None:
            for key, what, change in changes(right.dy.value.shape):
                yield key, f"dy {what}", right.replaced(dy=_changed(right.dy, change))

    @property
    def extents(self) -> Extents:
        """Return the numbers of its shapes and settings."""
        right = self.right
        shapes = [one.value.shape for one in right.inputs] if isinstance(right, Formula) else [right.y.value.shape]
        if isinstance(right, Formula) and right.dy is not None:
            shapes.append(right.dy.value.shape)
        found: dict[str, int] = {}
        for shape in (*shapes, right.shape):
            names = {4: ("images", "channels", "rows", "columns"), 2: ("samples", "features")}.get(
                len(shape), tuple(f"extent {i}" for i in range(len(shape))))
            for name, n in zip(names, shape, strict=True):
                if n not in found.values():
                    found[name if name not in found else f"{name} of the output"] = n
        for one in fields(self._owner):
            value = getattr(self._owner, one.name)
            values = value if isinstance(value, tuple) else (value,)
            for i, n in enumerate(values):
                if type(n) is int and n > 1 and n not in found.values():
                    found[f"{one.name}[{i}]" if len(values) > 1 else one.name] = n
        return Extents(found)

    def _evaluate(self) -> bounded.Bounded:
        """The formula itself, of operands that have names."""
        right, exact = self.right, Arithmetic(0.0)
        if isinstance(right, Criterion):
            y, target = bounded.Bounded(right.y.value, 0.0, exact), bounded.Bounded(right.target, 0.0, exact)
            loss: bounded.Bounded = (right.loss.backward if right.gradient else right.loss.forward)(
                y.named("the output"), target.named("the target"))
            return loss
        inputs = [bounded.Bounded(one.value, 0.0, exact).named(name)
                  for one, name in zip(right.inputs, _names(right), strict=True)]
        parameters = {name: bounded.Bounded(w, 0.0, exact).named(f"the {name}")
                      for name, w in right.parameters.items()}
        found: bounded.Bounded
        if right.state:
            found = right.node.new_state(inputs, parameters)[right.state]
        elif right.dy is None:
            found = right.node.forward(inputs, parameters)
        else:
            dy = bounded.Bounded(right.dy.value, 0.0, exact).named("dy")
            of_inputs, of_parameters = right.node.backward(dy, inputs, parameters)
            found = of_parameters[right.gradient] if isinstance(right.gradient, str) else of_inputs[right.gradient or 0]
        return found


def hypothesis(key: str, detail: str, operation: Prediction, *, fitted: bool = False) -> Hypothesis:
    """Return what an altered formula explains."""
    return Hypothesis((kind(key),), detail, operation, fitted, altered=True)


Altered = Evaluated | UpdateFormula


def formula_of(right: Prediction, updating: Updating | None) -> Altered | None:
    """Return the formula of a tensor; None of what has none, as a copy or a convolution."""
    if updating is not None:
        return UpdateFormula(updating) if updating.trained is None else None
    return Evaluated(right) if isinstance(right, Formula | Criterion) else None


def altered_formulas(formula: Altered, target: Target) -> Iterator[Hypotheses]:
    """Yield what a formula gives with one call altered, then with several alike, then by another way to compute it.

    Parameters
    ----------
    target : what constants are fitted to

    Yields
    ------
    hypotheses : stages; the later ones say less simple things
    """
    yield (hypothesis(key, said, operation) for key, said, operation in formula.operands())
    yield _settings(formula, target)
    for other_way in (False, True):
        calls = formula.calls(other_way=other_way)
        made = [(call, one) for call in calls for one in _of_call(call, formula.extents)]
        yield (hypothesis(one.key, one.said, formula.altered({call.at: one.change}, other_way))
               for call, one in sorted(made, key=lambda pair: pair[1].unlikely))
        yield itertools.chain(_alike(formula, made, other_way), _constants(formula, calls, target, other_way))


def _of_call(call: Call, extents: Extents) -> Iterator[Alteration]:
    for maker in MAKERS.get(call.primitive, ()):
        yield from maker(call, extents)
    yield from fewer_bits(call)


def _alike(formula: Altered, made: list[tuple[Call, Alteration]], other_way: bool) -> Hypotheses:
    """Several calls that do the same instead: all of them, or two."""
    groups: dict[tuple[str, str], list[tuple[Call, Alteration]]] = {}
    for call, one in made:
        if one.template:
            groups.setdefault((call.primitive, one.template), []).append((call, one))
    for together in groups.values():
        if not 1 < len(together) <= ALIKE:
            continue
        pairs = list(itertools.combinations(together, 2)) if len(together) > 2 else []
        for chosen in (tuple(together), *pairs):
            said = " and ".join(dict.fromkeys(one.said for _, one in chosen))
            yield hypothesis(chosen[0][1].key, said, formula.altered(
                {call.at: one.change for call, one in chosen}, other_way))


def _settings(formula: Altered, target: Target) -> Hypotheses:
    """Another number in the place of a setting."""
    for name, right in formula.numbers.items():
        yield from _fit(name, right, partial(formula.with_number, name), target)


def _constants(formula: Altered, calls: list[Call], target: Target, other_way: bool) -> Hypotheses:
    """Another number in the place of a constant."""
    for call in calls:
        if call.primitive not in WITH_CONSTANT or call.second.number is None:
            continue

        def with_number(number: float, call: Call = call) -> Prediction:
            return formula.altered({call.at: with_constant(number)}, other_way)

        name = f"{call.second.label} in {call.label}"
        yield from _fit(name, call.second.number, with_number, target)


def _fit(name: str, right: float, with_number: Callable[[float], Prediction], target: Target) -> Hypotheses:
    def predict(number: float) -> Array:
        return with_number(number).at(target.sample)

    if target.found.size < ENOUGH:
        return
    with np.errstate(all="ignore"):
        known = fitted(right, predict, target)
    if known is not None:
        yield hypothesis("constant", f"{name} is {said(*known, right)} in place of {right:.6g}", with_number(known[0]),
                         fitted=True)


def _names(right: Formula) -> list[str]:
    """What the inputs are called."""
    return ["the input"] if len(right.inputs) == 1 else [f"the output of {name}" for name in right.node.inputs]


def _changed(one: Predicted, change: Callable[[Array], Array]) -> Predicted:
    error = None if one.error is None else change(np.broadcast_to(one.error, one.value.shape))
    return Predicted(change(one.value), error)
