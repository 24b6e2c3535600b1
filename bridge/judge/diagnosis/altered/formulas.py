# SPDX-License-Identifier: MIT
"""The formulas that tensors follow from, to be evaluated with some of their calls altered."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from bridge.judge.diagnosis.altered.alteration import Extents
from bridge.judge.diagnosis.altered.call_results import CallResults
from bridge.judge.diagnosis.altered.calls import Call, Change, Instead, calls_of, settings_of, with_changes
from bridge.judge.diagnosis.altered.operands import changes, in_memory
from bridge.judge.diagnosis.altered.others import (
    OF_SHAPE,
    along_other_axes,
    by_running_statistics,
    fits,
    in_other_blocks,
    in_other_orders,
    in_words,
    of_another_input,
    of_another_output,
    other_parts,
    other_settings,
    others_in_its_place,
    with_state_twice,
)
from bridge.judge.diagnosis.altered.recurrences import (
    in_other_gates,
    in_other_gradients,
    in_other_times,
    other_grus,
)
from bridge.judge.diagnosis.altered.updates import Update, UpdateFormula
from bridge.judge.diagnosis.predictions.formulas import Criterion, EachPart, Formula, Joined
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.diagnosis.predictions.updating import Updating
from bridge.judge.diagnosis.wrong_operations.change import changed
from bridge.judge.oracle import bounded
from bridge.judge.oracle.error_model import Arithmetic
from bridge.operations.normalization import BatchNorm2d
from bridge.operations.products import Matmul

Array = np.ndarray
#: Kinds of mistakes in the choice of an operation and its settings, by the module of `bridge.operations`
FAMILIES = {"arithmetic": "joined", "joins": "joined", "normalization": "statistics", "pooling": "pooling",
            "products": "geometry", "rearrangement": "image_transposed", "reductions": "pooling", "resizing": "pooling"}
#: Those of single operations, by their kind; and of all others
OF_KINDS = {"leaky_relu": "leaky", "prelu": "leaky", "mean": "count", "sum": "count", **dict.fromkeys(
    ("zero_pad2d", "reflection_pad2d", "replication_pad2d"), "padding_mode")}
#: What the extents of shapes are called, by how many there are
EXTENTS = {2: ("samples", "features"), 3: ("samples", "rows", "features"), 4: ("images", "channels", "rows", "columns"),
           5: ("images", "channels", "planes", "rows", "columns")}
#: What is known of an operation that follows itself
OF_ITSELF = {"output": "the output of the time before", "input_gradient": "the gradient of the time behind"}
OF_OPERATIONS = frozenset({*FAMILIES.values(), *OF_KINDS.values(), "activation"})


@dataclass(frozen=True)
class Evaluated:
    """The formula of an operation or a loss, to be evaluated with changes.

    Attributes
    ----------
    right : makes the tensor
    """

    right: Formula | Criterion
    _kept: dict[tuple[str, bool], CallResults] = field(default_factory=dict, compare=False, repr=False)

    @property
    def _owner(self) -> Any:
        return self.right.node if isinstance(self.right, Formula) else self.right.loss

    def with_owner(self, owner: Any) -> Prediction:
        """Return the same of another operation, or another loss."""
        found: Prediction = self.right.replaced(**{"node" if isinstance(self.right, Formula) else "loss": owner})
        return found

    def altered(self, made: Mapping[int, Change | Instead], other_way: bool = False) -> Prediction:
        """Return what makes the tensor when some calls do something else."""
        owner = self._owner
        names = ("forward", "backward", "new_state") if isinstance(self.right, Formula) else ("forward", "backward")
        kept = {name: self._kept.setdefault((name, other_way), CallResults()) for name in names}
        methods = {name: with_changes(getattr(owner, name), made, kept[name], other_way=other_way) for name in names}
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

    def in_words(self, name: str) -> str:
        """Return a setting, or what it stands for."""
        return in_words(self._owner, name, self._shapes)

    @property
    def _shapes(self) -> list[tuple[int, ...]]:
        """Those of an operation's inputs."""
        return [one.value.shape for one in self.right.inputs] if isinstance(self.right, Formula) else []

    def operands(self) -> Iterator[tuple[str, str, Prediction]]:
        """Yield a kind, words, and what is made of whole operands that are other ones."""
        right = self.right
        if isinstance(right, Criterion):
            for key, what, change in changes(right.target.shape):
                yield key, f"the target {what}", right.replaced(target=change(right.target))
            return
        # A part of a tensor that is moved is another part, and no part of another tensor
        for key, words, node in itertools.chain(*(of(right.node, right.inputs[0].value.shape)
                                                  for of in (other_parts, in_other_blocks))):
            yield key, words, self.with_owner(node)
        for i, (one, name) in enumerate(zip(right.inputs, _names(right), strict=True)):
            for key, what, change in changes(one.value.shape):
                inputs = (*right.inputs[:i], _changed(one, change), *right.inputs[i + 1:])
                exchanged = isinstance(right.node, Matmul) and "exchanged" in what
                yield "in_out_swapped" if exchanged else key, f"{name} {what}", right.replaced(inputs=inputs)
        for name, w in right.parameters.items():
            for number in (1.0, 0.0):
                words = f"{right.node.kind} without {_called(name)}, as if it were {number:g}"
                yield "bias" if (name, number) == ("bias", 0) else "factor", words, right.with_operand(
                    name, partial(np.full_like, fill_value=number))
            groups = getattr(right.node, "groups", 1)
            if name == "weight" and right.node.follows_itself:
                words = "the weight of each gate transposed"
                yield "in_out_swapped", words, right.with_operand(name, _each_transposed)
            # A mask is of images, as what it is multiplied by
            of_images = name == "mask" or name in OF_ITSELF
            for key, what, change in (*changes(w.shape, not of_images, sequence=False), *in_memory(w.shape, groups)):
                yield _of_weight(key, what, w.ndim), f"{_called(name)} {what}", right.with_operand(name, change)
        if right.dy is not None:
            for key, what, change in changes(right.dy.value.shape):
                yield key, f"dy {what}", right.replaced(dy=_changed(right.dy, change))

    @property
    def family(self) -> str:
        """Return the kind of what is another operation, or has another setting."""
        module = type(self._owner).__module__.rpartition(".")[2]
        return OF_KINDS.get(self._owner.kind, FAMILIES.get(module, "activation"))

    def others(self) -> Iterator[tuple[str, Prediction]]:
        """Yield words, and what another operation or loss makes, or this one with another setting or of another input.
        """
        right, owner = self.right, self._owner
        shapes = self._shapes
        made = itertools.chain(others_in_its_place(owner), other_settings(owner, shapes))
        if isinstance(right, Criterion):
            yield from ((words, self.with_owner(other)) for words, other in (*made, *of_another_output(owner)))
            return
        if isinstance(owner, BatchNorm2d) and owner.training and not right.state:
            yield from ((words, self.with_owner(other)) for words, other in by_running_statistics(owner))
        # In the place of an operation that keeps the shape there may be none
        keeps = owner.output_shape(*shapes) == shapes[0] and not (right.state or isinstance(right.gradient, str))
        for words, other in itertools.chain(made, in_other_gates(owner), in_other_times(owner), other_grus(owner),
                                            of_another_input(owner), in_other_orders(owner, shapes),
                                            along_other_axes(owner, shapes[0]), with_state_twice(owner),
                                            in_other_gradients(owner, shapes[0]) if right.dy is not None else ()):
            known = right.state in other.new_state_shapes() if right.state else keeps or not words.startswith(OF_SHAPE)
            if known and fits(other, owner, shapes):
                left_out = right.dy is not None and words.startswith("no ")
                yield f"the derivative of {owner.kind} is missing" if left_out else words, self.with_owner(other)
        if isinstance(owner, BatchNorm2d) and owner.training and not right.state:
            n = len(right.inputs[0].value)
            for size in (one for one in range(1, n) if n % one == 0):
                each = "each image by itself" if size == 1 else f"each {size} images by themselves, a part of the batch"
                yield each, EachPart(right.shape, right, size)

    @property
    def extents(self) -> Extents:
        """Return the numbers of its shapes and settings."""
        right = self.right
        shapes = [one.value.shape for one in right.inputs] if isinstance(right, Formula) else [right.y.value.shape]
        if isinstance(right, Formula) and right.dy is not None:
            shapes.append(right.dy.value.shape)
        found: dict[str, int] = {}
        for shape in (*shapes, right.shape):
            names = EXTENTS.get(len(shape), tuple(f"extent {i}" for i in range(len(shape))))
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

    @property
    def given(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return name and shape of the operands, in the order in which its methods take them."""
        right = self.right
        if isinstance(right, Criterion):
            return [("the output", right.y.value.shape), ("the target", right.target.shape)]
        dy = [] if right.dy is None else [("dy", right.dy.value.shape)]
        inputs = [(name, one.value.shape) for name, one in zip(_names(right), right.inputs, strict=True)]
        return [*dy, *inputs, *((_called(name), w.shape) for name, w in right.parameters.items())]

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
        parameters = {name: bounded.Bounded(w, 0.0, exact).named(_called(name))
                      for name, w in right.known.items()}
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


@dataclass(frozen=True)
class Part:
    """The formula of one part of a sum of gradients; what is made of it is the whole sum.

    Attributes
    ----------
    whole : the sum
    at : which part
    """

    whole: Joined
    at: int

    @cached_property
    def _formula(self) -> Evaluated:
        part = self.whole.parts[self.at]
        assert isinstance(part, Formula)
        return Evaluated(part)

    def _sum(self, part: Prediction) -> Prediction:
        parts = (*self.whole.parts[: self.at], part, *self.whole.parts[self.at + 1:])
        found: Prediction = self.whole.replaced(parts=parts)
        return found

    @property
    def through(self) -> str:
        """Return how a sentence about it begins."""
        return f"through {self.whole.through[self.at]}: "

    @property
    def family(self) -> str:
        """Return the kind of what is another operation, or has another setting."""
        return self._formula.family

    @property
    def extents(self) -> Extents:
        """Return the numbers of its shapes and settings."""
        return self._formula.extents

    @property
    def numbers(self) -> dict[str, float]:
        """Return the settings that are real numbers."""
        return self._formula.numbers

    @property
    def given(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return name and shape of the operands."""
        return self._formula.given

    def calls(self, *, other_way: bool = False) -> list[Call]:
        """Return the calls that the part follows from."""
        return self._formula.calls(other_way=other_way)

    def others(self) -> Iterator[tuple[str, Prediction]]:
        """Yield words, and the sum with what another operation makes."""
        return ((said, self._sum(one)) for said, one in self._formula.others())

    def operands(self) -> Iterator[tuple[str, str, Prediction]]:
        """Yield a kind, words, and the sum with what is made of whole operands that are other ones."""
        return ((key, said, self._sum(one)) for key, said, one in self._formula.operands())

    def altered(self, made: Mapping[int, Change | Instead], other_way: bool = False) -> Prediction:
        """Return the sum when some calls of the part do something else."""
        return self._sum(self._formula.altered(made, other_way))

    def in_words(self, name: str) -> str:
        """Return a setting, or what it stands for."""
        return self._formula.in_words(name)

    def with_number(self, name: str, number: float) -> Prediction:
        """Return the sum by another setting."""
        return self._sum(self._formula.with_number(name, number))


Altered = Evaluated | Part | UpdateFormula


def formulas_of(right: Prediction, updating: Updating | None) -> list[Altered]:
    """Return the formulas that make a tensor, of a sum of gradients those of its parts; a convolution has none."""
    if updating is not None:
        return [UpdateFormula(updating)] if updating.trained is None else []
    if isinstance(right, Update):
        return [UpdateFormula(right.updating, right.memory)]
    if isinstance(right, Joined):
        return [Part(right, i) for i, part in enumerate(right.parts) if isinstance(part, Formula)]
    return [Evaluated(right)] if isinstance(right, Formula | Criterion) else []


def _of_weight(key: str, what: str, rank: int) -> str:
    """The kind of the mistake where what is in another order is a weight."""
    if rank == 2 or "channels" in what:
        return "in_out_swapped" if "exchanged" in what else key
    return "kernel_flipped" if "reverse" in what and rank > 2 else "taps_transposed" if (
        "exchanged" in what and rank > 2) else key


def _each_transposed(w: Array) -> Array:
    """The square matrix of each gate."""
    return np.concatenate([one.T for one in np.split(w, len(w) // w.shape[1])])


def _called(name: str) -> str:
    """What a parameter is called, or what is known of the operation itself."""
    return OF_ITSELF.get(name, f"the {name}")


def _names(right: Formula) -> list[str]:
    """What the inputs are called."""
    return ["the input"] if len(right.inputs) == 1 else [f"the output of {name}" for name in right.node.inputs]


def _changed(one: Predicted, change: Callable[[Array], Array]) -> Predicted:
    error = None if one.error is None else change(np.broadcast_to(one.error, one.value.shape))
    return Predicted(change(one.value), error)
