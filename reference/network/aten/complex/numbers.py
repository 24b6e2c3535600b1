# SPDX-License-Identifier: MIT
"""Complex tensors as real ones, and their Fourier transforms.

A complex tensor (...) becomes a real one (..., 2), as of torch.view_as_real. Fourier transforms become products with
their matrices, of which only those rows are made that something takes, and only those columns that are not zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from reference.network.aten.complex import fourier
from reference.network.aten.writing import Shape, UnsupportedError

ATEN = torch.ops.aten
Places = Mapping[int, np.ndarray]


@dataclass(frozen=True)
class Complex:
    """A complex tensor.

    Attributes
    ----------
    shape : of the whole
    pairs : the real tensor (..., 2) of what is not known to be zero; None: all is
    places : along some axes, where the pairs lie in the whole; along others they are all there is
    """

    shape: Shape
    pairs: fx.Node | None
    places: Places = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Spectrum:
    """A Fourier transform that is still to be made, so that what is taken of it is known.

    Attributes
    ----------
    of : the real or complex tensor
    along : for each axis its matrix
    name, origin : of the call, as of the `Emitter`
    """

    of: fx.Node | Complex
    along: Mapping[int, np.ndarray] = field(hash=False)
    name: str
    origin: dict[str, Any] = field(hash=False)

    @property
    def shape(self) -> Shape:
        """Return that of the transform."""
        given = tuple(self.of.meta["val"].shape) if isinstance(self.of, fx.Node) else self.of.shape
        return tuple(len(self.along[i]) if i in self.along else n for i, n in enumerate(given))


def complex_linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return what a complex matrix (in, out) of each place makes of the channels: of (n, in, places, 2) and
    (in, out, places, 2).
    """
    found = torch.einsum("nip,iop->nop", torch.view_as_complex(x), torch.view_as_complex(weight))
    return torch.view_as_real(found)


class Emitter:
    """Adds calls to a graph.

    Attributes
    ----------
    graph : the new one
    name : with which those of the calls begin
    origin : the call of the old one that they stand for
    constants : tensors, by the names of their nodes
    """

    def __init__(self) -> None:
        self.graph, self.name = fx.Graph(), ""
        self.origin: dict[str, Any] = {}
        self.constants: dict[str, torch.Tensor] = {}
        #: Of pairs the real tensors that were joined
        self.parts: dict[fx.Node, tuple[fx.Node, fx.Node]] = {}
        #: Transforms along one axis that were made already
        self.made: dict[tuple[object, ...], tuple[fx.Node, list[int | str]]] = {}

    def __call__(self, operation: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Return a call of an operation, and know its shape."""
        name = operation.__name__.partition(".")[0]
        node = self.graph.create_node("call_function", operation, args, kwargs, f"{self.name}_{name}".lstrip("_"))
        own: Any = fx.node.map_arg((args, kwargs), lambda one: _like(one.meta["val"]))
        node.meta = {**self.origin, "val": operation(*own[0], **own[1])}
        return node

    def constant(self, value: np.ndarray, dtype: torch.dtype) -> fx.Node:
        """Return a tensor that nobody learns; what it is before it is rounded is its ``exact``."""
        name = f"_fourier_{len(self.constants)}"
        exact = torch.from_numpy(np.ascontiguousarray(value, np.float64))
        found = nn.Parameter(exact.to(dtype), requires_grad=False)
        found.exact = exact  # type: ignore[attr-defined]
        self.constants[name] = found
        node = self.graph.create_node("get_attr", name)
        node.meta = {**self.origin, "val": _like(found)}
        return node

    # --- complex tensors -------------------------------------------------------------------------------------

    def pairs(self, of: Complex | Spectrum) -> fx.Node:
        """Return all of it as a real tensor (..., 2)."""
        if isinstance(of, Spectrum):
            whole: Complex = self.transformed(of)
            return self.pairs(whole)
        if of.pairs is None:
            raise UnsupportedError("complex numbers that are all 0, as an operand")
        found = of.pairs
        for axis, places in of.places.items():
            found = self._spread(found, axis, places, of.shape[axis])
        return found

    def _spread(self, of: fx.Node, axis: int, places: np.ndarray, extent: int) -> fx.Node:
        """Zeros between the places along an axis."""
        order = np.argsort(places)
        if (order != np.arange(len(order))).any():
            of = self(ATEN.index_select.default, of, axis, self._indices(order))
            places = places[order]
        rank, parts = len(of.meta["val"].shape), []
        runs = np.split(np.arange(len(places)), np.flatnonzero(np.diff(places) > 1) + 1)
        for number, run in enumerate(runs):
            begin = 0 if number == 0 else places[run[0]]
            end = extent if number == len(runs) - 1 else places[runs[number + 1][0]]
            part = self(ATEN.slice.Tensor, of, axis, int(run[0]), int(run[-1]) + 1)
            widths = [0, 0] * (rank - 1 - axis) + [int(places[run[0]] - begin), int(end - places[run[-1]] - 1)]
            parts.append(self(ATEN.constant_pad_nd.default, part, widths, 0.0) if any(widths) else part)
        return parts[0] if len(parts) == 1 else self(ATEN.cat.default, parts, axis)

    def _indices(self, of: np.ndarray) -> fx.Node:
        name = f"_fourier_{len(self.constants)}"
        self.constants[name] = torch.from_numpy(of.astype(np.int64))
        node = self.graph.create_node("get_attr", name)
        node.meta = {**self.origin, "val": _like(self.constants[name])}
        return node

    def part(self, of: Complex | Spectrum, number: int) -> fx.Node:
        """Return the real parts, or the imaginary ones."""
        pairs = self.pairs(of)
        known = self.parts.get(pairs)
        return self(ATEN.select.int, pairs, -1, number) if known is None else known[number]

    def of_parts(self, re: fx.Node, im: fx.Node) -> Complex:
        """Return the complex tensor of two real ones."""
        pairs = self(ATEN.stack.default, [re, im], -1)
        self.parts[pairs] = re, im
        return Complex(tuple(re.meta["val"].shape), pairs)

    def transformed(self, of: Spectrum, to_real: np.ndarray | None = None) -> Any:
        """Return a transform, made along one axis after the other, the last one first; to a real tensor along the last
        axis by a matrix (n, frequencies, 2), after all others.
        """
        kept = self.name, self.origin
        self.name, self.origin = of.name, of.origin
        try:
            return self._transformed(of, to_real)
        finally:
            self.name, self.origin = kept

    def _transformed(self, of: Spectrum, to_real: np.ndarray | None) -> Any:
        source = of.of
        if isinstance(source, Complex):
            if source.pairs is None:
                raise UnsupportedError("a Fourier transform of zeros")
            others = {axis: one for axis, one in source.places.items() if axis not in of.along and not (
                to_real is not None and axis == len(source.shape) - 1)}
            for axis, places in others.items():
                source = replace(source, pairs=self._spread(source.pairs, axis, places, source.shape[axis]),
                                 places={i: one for i, one in source.places.items() if i != axis})
        state = _State(self, source)
        known = source.places if isinstance(source, Complex) else {}
        for axis in sorted(of.along, reverse=True):
            state.along(axis, of.along[axis][:, known[axis]] if axis in known else of.along[axis])
        if to_real is None:
            return Complex(of.shape, state.pairs())
        last = len(of.shape) - 1
        return state.to_real(last, to_real[:, known[last]] if last in known else to_real)


def _like(value: Any) -> Any:
    """A tensor without numbers of that shape."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty(tuple(value.shape), dtype=value.dtype, device="meta")


class _State:
    """A tensor between the transforms along its axes: other axes, then the two parts, then the axis at hand."""

    def __init__(self, emit: Emitter, of: fx.Node | Complex) -> None:
        self._emit = emit
        node = of if isinstance(of, fx.Node) else of.pairs
        assert node is not None
        self._node, self._real = node, isinstance(of, fx.Node)
        rank = len(node.meta["val"].shape)
        # "2" stands for the parts
        self._order: list[int | str] = [*range(rank)] if self._real else [*range(rank - 1), "2"]
        self._dtype = node.meta["val"].dtype

    def _shape(self) -> Shape:
        return tuple(self._node.meta["val"].shape)

    def _permute(self, order: list[int | str]) -> None:
        if order != self._order:
            at = [self._order.index(one) for one in order]
            self._node, self._order = self._emit(ATEN.permute.default, self._node, at), order

    def _product(self, axis: int, matrix: np.ndarray) -> None:
        """The product of the numbers along an axis, of both parts, with a matrix."""
        if axis == 0:
            raise UnsupportedError("a Fourier transform over the images")
        rest = [one for one in self._order if one not in (axis, "2")]
        self._permute([*rest, *(() if self._real else ("2",)), axis])
        if not self._real:
            self._node = self._emit(ATEN.reshape.default, self._node, [*self._shape()[:-2], matrix.shape[1]])
        self._node = self._emit(ATEN.linear.default, self._node, self._emit.constant(matrix, self._dtype))
        self._order = [*rest, axis]

    def along(self, axis: int, matrix: np.ndarray) -> None:
        """Go on with the transform along an axis."""
        key = (self._node, *self._order, axis, matrix.tobytes())
        if key in self._emit.made:
            self._node, self._order = self._emit.made[key]
            self._real = False
            return
        self._product(axis, np.concatenate([matrix.real, matrix.imag]) if self._real else fourier.block(matrix))
        *rest, _ = self._order
        self._node = self._emit(ATEN.reshape.default, self._node, [*self._shape()[:-1], 2, len(matrix)])
        self._order, self._real = [*rest, "2", axis], False
        self._emit.made[key] = self._node, self._order

    def to_real(self, axis: int, matrix: np.ndarray) -> fx.Node:
        """End with real numbers along an axis."""
        self._product(axis, np.concatenate([matrix[..., 0], matrix[..., 1]], 1))
        self._permute([*range(len(self._order))])
        return self._node

    def pairs(self) -> fx.Node:
        """Return the parts last, and all axes in their order."""
        self._permute([*range(len(self._order) - 1), "2"])
        return self._node


def shape_of(of: Any) -> Shape:
    """Return the shape of a real tensor's node or of a complex one."""
    return tuple(of.meta["val"].shape) if isinstance(of, fx.Node) else of.shape
