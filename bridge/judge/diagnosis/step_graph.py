# SPDX-License-Identifier: MIT
"""The operations of one step with their operands: the candidate's own tensors where its file has them.

What the file lacks is computed by right operations from what it has, with the bound that this brings.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bridge.exchange.model import Conv2d, Model
from bridge.judge.diagnosis.convolution_faults import in_reduced_precision
from bridge.judge.diagnosis.convolutions import Data, Filter, Forward
from bridge.judge.diagnosis.elementwise import BiasGradient, Loss, LossGradient, Relu, ReluBackward
from bridge.judge.diagnosis.operations import Bounded, Operation
from bridge.judge.measure.file_pair import FilePair, Parameters
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.reduced_precision import HALF

Array = np.ndarray
INPUT, TARGET = "input", "target"


@dataclass
class StepGraph:
    """One step of a candidate.

    Attributes
    ----------
    pair, step : whose step it is
    weights : before the step, float64
    planted : operations that are replaced, by the name of the tensor they make
    ignored : tensors in the file that are not to be used
    bounded : bounds are computed; without them all is faster
    """

    pair: FilePair
    step: int
    weights: Parameters
    planted: dict[str, Operation] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    known: dict[str, Bounded] = field(default_factory=dict)
    bounded: bool = True

    @property
    def model(self) -> Model:
        """Return the fixture's model."""
        return self.pair.model

    @property
    def arithmetic(self) -> Arithmetic:
        """Return the arithmetic of the candidate."""
        return self.pair.arithmetic

    def given(self, name: str) -> bool:
        """Return whether the candidate's file has this tensor."""
        return name not in self.ignored and self.pair.candidate.has(f"steps/{self.step}/{name}")

    def own(self, name: str) -> Array | None:
        """Return the candidate's tensor in float64; None where its file lacks it or holds NaN."""
        if name not in self.ignored and self.given(name):
            found = self.found(name)
            return found if np.isfinite(found).all() else None
        return None

    def found(self, name: str) -> Array:
        """Return what the file holds, whatever it is."""
        shape = self.pair.shapes[name]
        return np.atleast_1d(self.pair.candidate.read(f"steps/{self.step}/{name}", shape).astype(np.float64))

    def value(self, name: str) -> Bounded:
        """Return a tensor: the candidate's own, else a computed one."""
        if name not in self.known:
            self.known[name] = self._value(name)
        return self.known[name]

    def _value(self, name: str) -> Bounded:
        if name in (INPUT, TARGET):
            images = range(self.pair.batch_shape[0])
            return Bounded(np.stack([self.pair.batch(self.step, name, image) for image in images]))
        own = None if name in self.planted else self.own(name)
        if own is not None:
            return Bounded(own)
        operation = self.planted[name] if name in self.planted else self.operation(name)
        return operation.full(self.arithmetic) if self.bounded else Bounded(operation.values())

    def planting(self, name: str, operation: Operation, bounded: bool = True) -> StepGraph:
        """Return the same step with one operation replaced; what does not follow from it is shared."""
        follow = self.after(name)
        known = {other: value for other, value in self.known.items() if other not in follow}
        planted = self.planted | {name: operation}
        return StepGraph(self.pair, self.step, self.weights, planted, self.ignored, known, bounded)

    def after(self, name: str) -> set[str]:
        """Return the names of all tensors that a tensor has a part in, itself too."""
        found = {name}
        for other in self.pair.shapes:
            if found & set(self.inputs(other)):
                found.add(other)
        return found

    def inputs(self, name: str) -> tuple[str, ...]:
        """Return the names of the tensors that an operation takes."""
        layers = self.model.layers
        position = {layer.name: i for i, layer in enumerate(layers)}
        parts = name.split("/")
        if name == "loss":
            return (f"forward/{layers[-1].name}", TARGET)
        if parts[0] == "forward":
            return (self._before(position[parts[1]]),)
        if name == "grads/input":
            return self._backward_inputs(0)
        i = position[parts[1]]
        if parts[2] == "weight":
            return (self._before(i), f"grads/{parts[1]}/output")
        if parts[2] == "bias":
            return (f"grads/{parts[1]}/output",)
        return (f"forward/{layers[-1].name}", TARGET) if i == len(layers) - 1 else self._backward_inputs(i + 1)

    def _before(self, i: int) -> str:
        """The tensor that layer i takes."""
        return f"forward/{self.model.layers[i - 1].name}" if i else INPUT

    def _backward_inputs(self, i: int) -> tuple[str, ...]:
        """Of the operation that leads back through layer i."""
        layer = self.model.layers[i]
        upstream = f"grads/{layer.name}/output"
        return (upstream,) if isinstance(layer, Conv2d) else (upstream, self._before(i))

    def operation(self, name: str) -> Operation:
        """Return the right operation that makes a tensor, with its operands; where all is stored in 16 bits, in that.
        """
        right, reduced = self._operation(name), HALF.get(self.pair.lower or "")
        return in_reduced_precision(right, reduced) if reduced and isinstance(right, Forward | Data | Filter) else right

    def _operation(self, name: str) -> Operation:
        operands = [self.value(other) for other in self.inputs(name)]
        shape = self.pair.shapes[name] or (1,)
        parts = name.split("/")
        layers = {layer.name: layer for layer in self.model.layers}
        if name == "loss":
            return Loss(shape, operands[0], operands[1].value, self.pair.loss_scale)
        if parts[0] == "forward":
            layer = layers[parts[1]]
            if isinstance(layer, Conv2d):
                return Forward(shape, layer, operands[0], self.weights[f"{layer.name}/weight"], self._bias(layer))
            return Relu(shape, operands[0])
        if parts[-1] == "weight":
            layer = layers[parts[1]]
            assert isinstance(layer, Conv2d)
            x, dz = operands
            return Filter(shape, layer, x, dz)
        if parts[-1] == "bias":
            (dz,) = operands
            return BiasGradient(shape, dz)
        return self._backward(shape, 0 if parts[1] == INPUT else list(layers).index(parts[1]) + 1, operands)

    def _backward(self, shape: tuple[int, ...], i: int, operands: list[Bounded]) -> Operation:
        """Back through layer i, or from the loss."""
        if i == len(self.model.layers):
            return LossGradient(shape, operands[0], operands[1].value, self.pair.loss_scale)
        layer = self.model.layers[i]
        if isinstance(layer, Conv2d):
            return Data(shape, layer, operands[0], self.weights[f"{layer.name}/weight"])
        da, z = operands
        return ReluBackward(shape, da, z)

    def _bias(self, layer: Conv2d) -> Array | None:
        return self.weights.get(f"{layer.name}/bias")
