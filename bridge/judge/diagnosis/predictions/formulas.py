# SPDX-License-Identifier: MIT
"""Predictions by the formulas of `bridge.operations`, for the search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add

import numpy as np

from bridge.common.errors import FileError
from bridge.exchange.model import Operation as Node
from bridge.judge.diagnosis.predictions.elementwise import unwritten
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.oracle import bounded
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.from_own import FromOwn
from bridge.operations.aten.operation import Aten
from bridge.operations.losses import Loss
from bridge.operations.products import ConvTranspose2d, Linear, Matmul
from bridge.operations.volumes.products import Conv3d, ConvTranspose3d

Array = np.ndarray

#: Numbers without their errors
NUMBERS = Arithmetic(0.0, bounds=False)
#: Layers that sum products, beside convolutions of images
PRODUCTS = (Linear, Matmul, ConvTranspose2d, Conv3d, ConvTranspose3d)


@dataclass(frozen=True)
class Formula(Prediction):
    """What a layer gives, or a gradient of it.

    Attributes
    ----------
    node : the layer
    inputs : what it takes
    parameters : by name
    dy : gradient of its output; None forward
    gradient : of an input by its position, of a parameter by its name; None forward
    state : name of what it keeps, where that is wanted and not the output
    decided : of equal numbers the first is the largest
    """

    node: Node
    inputs: tuple[Predicted, ...]
    parameters: Mapping[str, Array]
    dy: Predicted | None = None
    gradient: int | str | None = None
    state: str = ""
    decided: bool = False

    @property
    def factors(self) -> tuple[str, ...]:
        """Return the names of the operands of a sum of products, two, or of a bias gradient, one; of all else none."""
        if not isinstance(self.node, PRODUCTS) or self.state:
            return ()
        if self.gradient == "bias":
            return ("dy",)
        given = ("x", "y") if isinstance(self.node, Matmul) else ("x", "weight")
        if self.dy is None:
            return given
        if self.gradient == "weight":
            return "x", "dy"
        return "dy", given[1 - int(self.gradient or 0)]

    def with_operand(self, name: str, change: Callable[[Array], Array]) -> Formula:
        """Return the same with one operand, a parameter or by a name of `factors`, changed."""
        if name in self.parameters:
            return replace(self, parameters={**self.parameters, name: change(self.parameters[name])})
        if name == "dy":
            assert self.dy is not None
            return replace(self, dy=_changed(self.dy, change))
        which = ("x", "y").index(name)
        return replace(self, inputs=tuple(
            _changed(one, change) if i == which else one for i, one in enumerate(self.inputs)))

    @property
    def known(self) -> dict[str, Array]:
        """Return the parameters; of a part of the batch nothing is known of the operation itself."""
        images = len(self.inputs[0].value)
        return {name: one for name, one in self.parameters.items()
                if name not in ("output", "input_gradient") or len(one) == images}

    def at(self, indices: Array) -> Array:
        return self._values.reshape(-1)[indices]

    def full(self, arithmetic: Arithmetic) -> Predicted:
        found = self._computed(arithmetic)
        return Predicted(found.value.reshape(self.shape), found.error.reshape(self.shape), found.terms)

    @cached_property
    def _values(self) -> Array:
        return self._computed(NUMBERS).value

    def _computed(self, arithmetic: Arithmetic) -> bounded.Bounded:
        try:
            return self._given(arithmetic)
        except FileError:
            if not isinstance(self.node, Aten):
                raise
            # PyTorch does not compute it of operands of other shapes: nothing comes of them
            return bounded.Bounded(np.full(self.shape, np.nan), 0.0, arithmetic)

    def _given(self, arithmetic: Arithmetic) -> bounded.Bounded:
        arithmetic = replace(arithmetic, decided=self.decided)
        inputs = [_number(one, arithmetic) for one in self.inputs]
        parameters = {name: bounded.Bounded(w, 0.0, arithmetic) for name, w in self.known.items()}
        node = FromOwn(self.node, parameters)
        if self.state:
            return node.new_state(inputs)[self.state]
        if self.dy is None:
            return node.forward(inputs)
        of_inputs, of_parameters = node.backward(_number(self.dy, arithmetic), inputs)
        found = of_parameters[self.gradient] if isinstance(self.gradient, str) else of_inputs[self.gradient or 0]
        assert isinstance(found, bounded.Bounded)
        return found


@dataclass(frozen=True)
class Criterion(Prediction):
    """A loss that is no mean squared error, or its gradient.

    Attributes
    ----------
    loss : which one
    y : output of the network
    target : of its shape
    gradient : the gradient with respect to y is wanted
    """

    loss: Loss
    y: Predicted
    target: Array
    gradient: bool = False

    @property
    def scale(self) -> float:
        """Return the factor of the loss's sum."""
        return self.loss.scale(self.y.value.shape, self.target)

    def at(self, indices: Array) -> Array:
        return self._values.reshape(-1)[indices]

    def full(self, arithmetic: Arithmetic) -> Predicted:
        found = self._computed(arithmetic)
        return Predicted(found.value.reshape(self.shape), found.error.reshape(self.shape))

    @cached_property
    def _values(self) -> Array:
        return self._computed(NUMBERS).value

    def _computed(self, arithmetic: Arithmetic) -> bounded.Bounded:
        formula = self.loss.backward if self.gradient else self.loss.forward
        y = Predicted(self.y.value, unwritten(self.y, arithmetic))
        found: bounded.Bounded = formula(_number(y, arithmetic), bounded.Bounded(self.target, 0.0, arithmetic))
        return found


@dataclass(frozen=True)
class Joined(Prediction):
    """The gradient of what several layers take: all that come back are added.

    Attributes
    ----------
    parts : what comes back
    through : names of the layers through which
    """

    parts: tuple[Prediction, ...]
    through: tuple[str, ...]

    def at(self, indices: Array) -> Array:
        return reduce(add, [one.at(indices) for one in self.parts])

    def full(self, arithmetic: Arithmetic) -> Predicted:
        found = [_number(one.full(arithmetic), arithmetic) for one in self.parts]
        total = found[0].joined(found[1:])
        return Predicted(total.value, total.error)


@dataclass(frozen=True)
class EachPart(Prediction):
    """What a layer makes of each few images by themselves; gradients of parameters are added.

    Attributes
    ----------
    right : of the whole batch
    images : in each part
    """

    right: Formula
    images: int

    def at(self, indices: Array) -> Array:
        return self.full(NUMBERS).value.reshape(-1)[indices]

    def full(self, arithmetic: Arithmetic) -> Predicted:
        right = self.right
        found = []
        for i in range(0, len(right.inputs[0].value), self.images):
            here = slice(i, i + self.images)
            inputs = tuple(_part(one, here) for one in right.inputs)
            dy = None if right.dy is None else _part(right.dy, here)
            found.append(replace(right, inputs=inputs, dy=dy)._computed(arithmetic))
        whole = (found[0].joined(found[1:]) if isinstance(right.gradient, str) else
                 found[0].concatenated(found[1:], axis=0))
        return Predicted(whole.value.reshape(self.shape), whole.error.reshape(self.shape))


def _part(one: Predicted, here: slice) -> Predicted:
    return Predicted(one.value[here], None if one.error is None else one.error[here])


def decided(operation: Prediction) -> Prediction:
    """Return the same in which of equal numbers the first is the largest, as it is in PyTorch."""
    if isinstance(operation, Joined):
        return replace(operation, parts=tuple(decided(one) for one in operation.parts))
    return replace(operation, decided=True) if isinstance(operation, Formula) else operation


def _changed(one: Predicted, change: Callable[[Array], Array]) -> Predicted:
    error = None if one.error is None else change(np.broadcast_to(one.error, one.value.shape))
    return Predicted(change(one.value), error)


def _number(one: Predicted, arithmetic: Arithmetic) -> bounded.Bounded:
    return bounded.Bounded(one.value, 0.0 if one.error is None else one.error, arithmetic, one.terms)
