# SPDX-License-Identifier: MIT
"""What is written of an operation of ATen: layers that exchange files know, their names, the shapes of outputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from reference.errors import InputError
from reference.network.hyperparameters import hyperparameters
from reference.network.layers import (
    INPUT,
    Add,
    Divide,
    Layers,
    Multiply,
    Permute,
    Reduce,
    Reshape,
    Subtract,
    Transpose,
)
from reference.network.pointwise import is_inverse_exact, with_number
from reference.network.program import Aten, Reference
from reference.network.trace import NAME

Shape = tuple[int, ...]
#: What writes an operation
Rule = Callable[..., Any]
#: Most letters of a layer's name
LONGEST = 64
#: Most dimensions of a tensor, with that of the images
MOST = 8


class UnsupportedError(Exception):
    """What no operation of exchange files expresses; the text says why."""


def only(what: str, found: Any, *wanted: Any) -> None:
    """Refuse an argument that is none of those that are supported."""
    if found not in wanted:
        raise UnsupportedError(f"{what} {found}, supported is {' or '.join(str(one) for one in wanted)}")


@dataclass(frozen=True)
class Tensor:
    """What a layer gives, or the model's input.

    Attributes
    ----------
    name : of the layer
    shape : for the example, with the number of images where it has any
    integers : the element type of an input that is none of real numbers
    images : whether one of its dimensions are the images; else all of them share it
    axis : which dimension they are; the layer's output has them first, and the others in this order
    plain : it is what calls of ATen give of parameters alone, and has no images
    whole : the shape whose first dimensions are one in `shape`; `axis` is of it
    """

    name: str
    shape: Shape
    integers: torch.dtype | None = None
    images: bool = True
    axis: int = 0
    plain: bool = False
    whole: Shape | None = None


@dataclass(frozen=True)
class Stored:
    """A parameter or buffer of the module, or a tensor that its forward makes.

    Attributes
    ----------
    name : in the module; none of a tensor that it makes
    value : its own, of a copy of the module
    exact : of one that is computed in float32 what it is in float64
    """

    name: str
    value: torch.Tensor
    exact: torch.Tensor | None = None

    def changed(self, how: Callable[[torch.Tensor], torch.Tensor]) -> Stored:
        """Return what a function makes of it, without a name."""
        return Stored("", how(self.value), None if self.exact is None else how(self.exact))


def shape_of(of: Any) -> Shape:
    """Return the shape of what a layer gives, or of what is stored."""
    return tuple(of.value.shape) if isinstance(of, Stored) else of.shape


def parameter(of: Stored | None, shape: Shape | None = None) -> nn.Parameter | None:
    """Return a parameter for a layer: the module's own, or a view of it in another shape."""
    if of is None:
        return None
    if not isinstance(of.value, nn.Parameter):
        raise UnsupportedError(f"'{of.name or 'a tensor that it makes'}', which is no parameter, as a weight")
    if shape is None or tuple(of.value.shape) == shape:
        return of.value
    return nn.Parameter(of.value.detach().view(shape), of.value.requires_grad)


def _merged(before: Shape, after: Shape) -> int | None:
    """The only dimension that neither those before it nor those after it have: neighbours that have become one.

    >>> _merged((2, 4, 8, 9), (2, 4, 72)), _merged((2, 4, 72), (2, 4, 8, 9))
    (2, None)
    """
    differ = (i for i, (n, m) in enumerate(zip(before, after, strict=False)) if n != m)
    first = next(differ, min(len(before), len(after)))
    behind = len(after) - first - 1
    found = len(before) > len(after) and (not behind or after[-behind:] == before[-behind:])
    return first if found and first < len(after) else None


class Writer:
    """Collects layers.

    Attributes
    ----------
    base : name of the layer that the operation at hand is, where it is one
    line : where the module calls it, in brackets
    input : the model's
    batch : its images
    lifted : what the layers of parameters that are operands give, by the names of the parameters
    real : the element type of numbers that no tensor of the module gives
    several : names of parameters that several calls take, of which no layer can have them
    left_out : names of running statistics that a call would change

    Parameters
    ----------
    buffers : of the module
    foreign : what has no rule is written, too, as calls (`reference.network.aten.foreign`)
    """

    def __init__(self, buffers: Mapping[str, Stored], shape: Shape, foreign: bool = False) -> None:
        self.foreign, self.input, self.batch = foreign, Tensor(INPUT, shape), shape[0]
        self.lifted: dict[str, Tensor] = {}
        self.several: set[str] = set()
        self.left_out: set[str] = set()
        self.real = torch.float32
        self.base, self.line, self._buffers = "", "", buffers
        self._layers: list[tuple[str, nn.Module]] = []
        self._inputs: dict[str, tuple[str, ...]] = {}
        self._sources: dict[str, str] = {}
        self._constants: frozenset[str] = frozenset()
        self._owned: set[str] = set()
        self._rewritten = False

    def add(self, layer: nn.Module, inputs: list[Tensor], shape: Shape, suffix: str = "",
            **stored: Stored | None) -> Tensor:
        """Add a layer, and return its output.

        Parameters
        ----------
        suffix : of its name, where it is not what the operation is but stands beside
        stored : where its parameters and buffers come from, by their names in the layer

        Raises
        ------
        UnsupportedError
            If exchange files have no such layer, or another layer has the parameter already.
        """
        if not all(isinstance(one, Tensor) for one in inputs):
            raise UnsupportedError("a number or a stored tensor as an operand")
        is_view = isinstance(layer, Reshape)
        if not 1 <= len(shape) <= MOST or any(one.shape[0] != shape[0] and not is_view for one in inputs):
            raise UnsupportedError(f"the shape {shape}: one to {MOST} dimensions are supported, of which the first "
                                   "stays the images'")
        name = self._named(f"{self.base}.{suffix}" if suffix else self.base)
        if stored:
            name = self._claimed(name, {part: one for part, one in stored.items() if one is not None})
        try:
            hyperparameters(name, layer)
        except InputError as error:
            raise UnsupportedError(str(error)) from None
        self._layers.append((name, layer))
        self._inputs[name] = tuple(one.name for one in inputs)
        self._rewritten = self._rewritten or bool(suffix)
        return Tensor(name, shape)

    def add_calls(self, layer: Aten, inputs: list[Tensor], stored: Mapping[str, Stored]) -> Tensor:
        """Add calls of operations that have no rule, and return their output."""
        name = self._named(self.base)
        self._claimed(name, {part: one for part, one in stored.items() if isinstance(one.value, nn.Parameter)})
        self._sources |= {f"{name}.{part}": one.name for part, one in stored.items() if one.name}
        self._layers.append((name, layer))
        self._inputs[name] = tuple(one.name for one in inputs)
        self._rewritten = True
        return Tensor(name, layer.shape)

    def kept(self) -> tuple[Any, ...]:
        """Return what is written so far, for `back`."""
        return (list(self._layers), dict(self._inputs), dict(self._sources), set(self._owned), self._rewritten,
                dict(self.lifted), self._constants)

    def back(self, kept: tuple[Any, ...]) -> None:
        """Forget what was written since."""
        (self._layers, self._inputs, self._sources, self._owned, self._rewritten, self.lifted, self._constants) = kept

    def reads(self, names: Iterable[str]) -> None:
        """Say that numbers of layers follow from these buffers."""
        self._constants |= set(names)

    def counter_of(self, mean: Stored) -> Stored | None:
        """Return how often a normalisation has been trained, if it counts."""
        return self._buffers.get(f"{mean.name.rpartition('.')[0]}.num_batches_tracked".lstrip("."))

    def rewritten(self) -> None:
        """Say that what is written rounds in another way than what the module calls."""
        self._rewritten = True

    def _claimed(self, name: str, stored: dict[str, Stored]) -> str:
        """The name of the module's layer, where its parameters are the layer's own; else they have two names."""
        for one in stored.values():
            if one.name and one.name in self._owned:
                raise UnsupportedError(f"layer '{one.name.rpartition('.')[0]}' is used twice; supported is each once")
        self._owned |= {one.name for one in stored.values()}
        made = {part for part, one in stored.items() if not one.name}
        owners = {one.name.rpartition(".")[0] for part, one in stored.items() if part not in made}
        taken = {one for one, _ in self._layers}
        if len(owners) == 1 and all(one.name.rpartition(".")[2] in (part, "") for part, one in stored.items()):
            (owner,) = owners
            if NAME.fullmatch(owner) and owner not in taken and owner != INPUT:
                self._sources |= {f"{owner}.{part}": "" for part in made}
                return owner
        self._sources |= {f"{name}.{part}": one.name for part, one in stored.items()}
        return name

    def _named(self, wanted: str) -> str:
        """A name that no layer has."""
        taken = {INPUT, *(name for name, _ in self._layers)}
        endings = itertools.chain(("",), (f"_{i}" for i in itertools.count(1)))
        cut = (wanted[-(LONGEST - len(one)):].lstrip(".-") + one for one in endings)
        return next(one for one in cut if one not in taken)

    def layers(self, output: Tensor) -> Layers:
        """Return those that the output needs.

        Raises
        ------
        InputError
            If another one changes its statistics all the same.
        """
        needed, found = {output.name}, []
        for name, layer in reversed(self._layers):
            if name in needed:
                needed |= set(self._inputs[name])
                found.append((name, layer))
            elif (not self.foreign and isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.training
                  and layer.running_mean is not None):
                raise InputError(f"layer '{name}' is called, and nothing takes its output, but its statistics change; "
                                 "expected is a layer that takes it")
        names = {name for name, _ in found}
        return Layers(reversed(found), {name: one for name, one in self._inputs.items() if name in names},
                      self._sources, self._rewritten, self._constants, frozenset(self.left_out))

    # --- what several operations are written with ------------------------------------------------------------

    def reshape(self, x: Tensor, shape: Shape, left: int | None = None, suffix: str = "reshape") -> Tensor:
        """The same numbers in another shape; the extent number `left` is what is left, in images of other sizes."""
        if shape == x.shape:
            return x
        counts = all(one and one[0] % self.batch == 0 for one in (shape, x.shape))
        if self.foreign and (len(shape) > MOST or not counts):
            view: Any = torch.ops.aten.reshape.default, [Reference("input", 0), list(shape)], {}
            return self.add_calls(Aten([view], None, shape, {}), [x], {})
        if counts and len(shape) == 1:
            flat = self.reshape(x, (*shape, 1), None, suffix)
            return self.add(Reduce("sum", (1,), False), [flat], shape, "number")
        if not counts:
            raise UnsupportedError(f"the shape {x.shape} as {shape}: the first dimension, the images', must stay")
        before, after = x.shape[0], shape[0]
        if before % after and after % before:
            x = self.reshape(x, (self.batch, math.prod(x.shape) // self.batch), 1)
            before = self.batch
        if left is None and before == after:
            left = _merged(x.shape, shape)
        extents = [-1 if left == i else n for i, n in enumerate(shape)]
        images = after // before if after >= before else -(before // after)
        return self.add(Reshape(tuple(extents[1:]), images=images), [x], shape, suffix)

    def transpose(self, x: Tensor, one: int, other: int, suffix: str = "transpose") -> Tensor:
        """Two dimensions exchanged."""
        one, other = sorted((one % len(x.shape), other % len(x.shape)))
        if one == other:
            return x
        if one == 0:
            raise UnsupportedError("another dimension in the place of the images'")
        shape = list(x.shape)
        shape[one], shape[other] = shape[other], shape[one]
        return self.add(Transpose(one, other), [x], tuple(shape), suffix)

    def permute(self, x: Tensor, order: list[int]) -> Tensor:
        """Dimensions in another order."""
        wanted = tuple(one % len(x.shape) for one in order)
        if wanted == tuple(range(len(x.shape))):
            return x
        if wanted[0] != 0:
            raise UnsupportedError("another dimension in the place of the images'")
        return self.add(Permute(wanted), [x], tuple(x.shape[i] for i in wanted))

    def binary(self, kind: str, one: Any, other: Any, suffix: str = "") -> Tensor:
        """One of the four operations on tensors or numbers."""
        pair = [one, other]
        tensors = [x for x in pair if isinstance(x, Tensor)]
        numbers = [x for x in pair if isinstance(x, (int, float)) and not isinstance(x, bool)]
        if not tensors or len(tensors) + len(numbers) < 2:
            raise UnsupportedError("a stored tensor as an operand")
        if numbers:
            return self._with_number(kind, one, other, suffix)
        layer = {"add": Add, "subtract": Subtract, "multiply": Multiply, "divide": Divide}[kind]
        ranks = {len(x.shape) for x in pair}
        if len(ranks) > 1 and any(len(x.shape) > 1 for x in pair):
            raise UnsupportedError(f"operands of {' and '.join(str(x.shape) for x in pair)}: as many dimensions are "
                                   "supported")
        shape: Any = np.broadcast_shapes(*(x.shape for x in pair))
        return self.add(layer(), pair, tuple(shape), suffix)

    def _with_number(self, kind: str, one: Any, other: Any, suffix: str) -> Tensor:
        found = with_number(kind, one, other)
        if found is not None:
            layer, x = found
            self._rewritten = self._rewritten or (kind == "divide" and not is_inverse_exact(other))
            return self.add(layer, [x], x.shape, suffix)
        if kind != "divide" or isinstance(one, Tensor) or not -3e38 < one < 3e38:
            raise UnsupportedError(f"{kind} by the number {other if isinstance(one, Tensor) else one}")
        return self.binary("multiply", self.binary("divide", 1.0, other, "reciprocal"), one, suffix)
