# SPDX-License-Identifier: MIT
"""The operations of one step with their operands: the candidate's own tensors where its file has them.

What the file lacks is computed by right operations from what it has, with the bound that this brings.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bridge.exchange.model import Conv2d, Model
from bridge.exchange.model import Operation as Node
from bridge.exchange.model import Relu as ReluNode
from bridge.judge.diagnosis.faults.convolution_faults import in_reduced_precision
from bridge.judge.diagnosis.predictions.convolutions import Data, Filter, Forward
from bridge.judge.diagnosis.predictions.elementwise import (
    BiasGradient,
    LossGradient,
    Rectified,
    ReluBackward,
    SquaredError,
)
from bridge.judge.diagnosis.predictions.formulas import Criterion, Formula, Joined
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.measure.file_pair import FilePair, Parameters
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.from_own import paths_of_itself
from bridge.judge.oracle.reduced_precision import HALF
from bridge.operations.losses import MeanSquaredError

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
    planted: dict[str, Prediction] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    known: dict[str, Predicted] = field(default_factory=dict)
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

    def value(self, name: str) -> Predicted:
        """Return a tensor: the candidate's own, else a computed one."""
        if name not in self.known:
            self.known[name] = self._value(name)
        return self.known[name]

    def _value(self, name: str) -> Predicted:
        if name in (INPUT, TARGET):
            images = range(self.pair.batch_shape[0])
            return Predicted(np.stack([self.pair.batch(self.step, name, image) for image in images]))
        own = None if name in self.planted else self.own(name)
        if own is not None:
            return Predicted(own)
        operation = self.planted[name] if name in self.planted else self.operation(name)
        return operation.full(self.arithmetic) if self.bounded else Predicted(operation.values())

    def planting(self, name: str, operation: Prediction, bounded: bool = True) -> StepGraph:
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
        if name == "loss":
            return (f"forward/{self.model.graph.nodes[-1].name}", TARGET)
        sort, _, rest = name.partition("/")
        layer, _, what = rest.partition("/")
        if sort in ("forward", "state"):
            return _taken(self._node(layer))
        if what not in ("", "output"):
            node, upstream = self._node(layer), f"grads/{layer}/output"
            return (upstream,) if isinstance(node, Conv2d) and what == "bias" else (*_taken(node), upstream)
        takers = [_backward_inputs(node) for node in self._takers(layer)]
        return tuple(dict.fromkeys(sum(takers, ()))) or self.inputs("loss")

    def _node(self, name: str) -> Node:
        return next(node for node in self.model.graph.nodes if node.name == name)

    def _takers(self, name: str) -> list[Node]:
        """The layers that take an output, or the network's input."""
        return [node for node in self.model.graph.nodes if name in node.inputs]

    def operation(self, name: str) -> Prediction:
        """Return the right operation that makes a tensor, with its operands; where all is stored in 16 bits, in that.
        """
        right, reduced = self._operation(name), HALF.get(self.pair.lower or "")
        return in_reduced_precision(right, reduced) if reduced and isinstance(right, Forward | Data | Filter) else right

    def _operation(self, name: str) -> Prediction:
        shape = self.pair.shapes[name] or (1,)
        sort, _, rest = name.partition("/")
        if name == "loss":
            return self._loss(shape, gradient=False)
        layer, _, what = rest.partition("/")
        if sort == "forward":
            return self._forward(shape, self._node(rest))
        if sort == "state":
            return self._formula(shape, self._node(layer)).replaced(state=what)
        if what not in ("", "output"):
            return self._gradient(shape, self._node(layer), what)
        ways = [(node, i) for node in self._takers(layer) for i, taken in enumerate(node.inputs) if taken == layer]
        parts = tuple(self._backward(shape, node, i) for node, i in ways)
        if not parts:
            return self._loss(shape, gradient=True)
        return parts[0] if len(parts) == 1 else Joined(shape, parts, tuple(node.name for node, _ in ways))

    def _loss(self, shape: tuple[int, ...], *, gradient: bool) -> Prediction:
        y, target = self._values("loss")
        if self.model.loss != MeanSquaredError.kind:
            return Criterion(shape, self.model.criterion, y, target.value, gradient)
        return (LossGradient if gradient else SquaredError)(shape, y, target.value, self.pair.loss_scale)

    def _values(self, name: str) -> list[Predicted]:
        return [self.value(other) for other in self.inputs(name)]

    def _forward(self, shape: tuple[int, ...], node: Node) -> Prediction:
        given = self._values(f"forward/{node.name}")
        if isinstance(node, Conv2d):
            return Forward(shape, node, given[0], self.weights[f"{node.name}/weight"], self._bias(node))
        return Rectified(shape, given[0]) if isinstance(node, ReluNode) else self._formula(shape, node)

    def _gradient(self, shape: tuple[int, ...], node: Node, parameter: str) -> Prediction:
        if not isinstance(node, Conv2d):
            return self._formula(shape, node, parameter)
        *x, dz = self._values(f"grads/{node.name}/{parameter}")
        return Filter(shape, node, x[0], dz) if x else BiasGradient(shape, dz)

    def _backward(self, shape: tuple[int, ...], node: Node, position: int) -> Prediction:
        """Back through a layer to one of its inputs."""
        upstream, *given = (self.value(name) for name in _backward_inputs(node))
        if isinstance(node, Conv2d):
            return Data(shape, node, upstream, self.weights[f"{node.name}/weight"])
        return ReluBackward(shape, upstream, given[0]) if isinstance(node, ReluNode) else self._formula(
            shape, node, position)

    def _formula(self, shape: tuple[int, ...], node: Node, gradient: int | str | None = None) -> Formula:
        """A layer's output, or a gradient of it; of one that it takes twice by their position."""
        dy = None if gradient is None else self.value(f"grads/{node.name}/output")
        known = self.weights
        if node.state_shapes():
            known = known | self.pair.first_state | self.pair.state(self.step)
        parameters = {name: known[f"{node.name}/{name}"] for name in (*node.parameter_shapes(), *node.state_shapes())}
        own = {name: self.own(path) for name, path in paths_of_itself(self.model.graph, node).items()}
        parameters |= {name: one for name, one in own.items() if one is not None}
        if node.has_mask:
            parameters["mask"] = self.pair.masks(self.step)[f"{node.name}/mask"]
        return Formula(shape, node, tuple(self.value(name) for name in _taken(node)), parameters, dy, gradient)

    def _bias(self, layer: Conv2d) -> Array | None:
        return self.weights.get(f"{layer.name}/bias")


def _taken(node: Node) -> tuple[str, ...]:
    """The tensors that a layer takes."""
    return tuple(INPUT if name == INPUT else f"forward/{name}" for name in node.inputs)


def _backward_inputs(node: Node) -> tuple[str, ...]:
    """Of the operation that leads back through a layer."""
    upstream = f"grads/{node.name}/output"
    return (upstream,) if isinstance(node, Conv2d) else (upstream, *_taken(node))
