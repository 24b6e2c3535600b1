# SPDX-License-Identifier: MIT
"""A graph of torch.export with complex numbers, written anew without them: the rules of ATen's calls know of none."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import fx

from reference.errors import InputError, one_line
from reference.network.aten.calls import line_of, name_of, silence
from reference.network.aten.complex import fourier, parts
from reference.network.aten.complex.numbers import (
    ATEN,
    Complex,
    Emitter,
    Spectrum,
    complex_linear,
    shape_of,
)
from reference.network.aten.writing import UnsupportedError
from reference.network.layers import REAL_OF, as_pairs

Rule = Callable[..., Any]
#: Complex tensors
_KINDS = (Complex, Spectrum)


def without_complex(program: Any, foreign: bool) -> Any:
    """Return what has the graph and the signature of a program of torch.export, without complex numbers.

    Parameters
    ----------
    foreign : a program is returned as it is where that cannot be

    Raises
    ------
    InputError
        If it takes or gives complex numbers, or computes with them what is not known here.
    """
    if not any(isinstance(one.meta.get("val"), torch.Tensor) and one.meta["val"].is_complex()
               for one in program.graph.nodes):
        return program
    try:
        with silence():
            functional = program.run_decompositions({})
        return _Rewriter(functional).written()
    except UnsupportedError as error:
        learned = {*program.graph_signature.inputs_to_parameters, *program.graph_signature.inputs_to_buffers}
        if foreign and not any(one.meta["val"].is_complex() for one in program.graph.nodes if one.name in learned):
            return program
        raise InputError(f"the model has complex numbers: {error}") from None


class _Rewriter:
    """Writes the graph of a program, in which nothing is written over, anew."""

    def __init__(self, program: Any) -> None:
        self._old, self._emit = program, Emitter()
        self._known: dict[fx.Node, Any] = {}

    def written(self) -> Any:
        """Return what has a graph and a signature."""
        for node in self._old.graph.nodes:
            if node.op == "output":
                return self._program(node)
            self._emit.name = node.name
            self._emit.origin = {key: node.meta[key] for key in ("stack_trace", "nn_module_stack") if key in node.meta}
            try:
                self._known[node] = self._value(node)
            except UnsupportedError as error:
                raise UnsupportedError(f"{name_of(node)}{line_of(node)}: {error}") from None
            except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
                raise UnsupportedError(f"{name_of(node)}{line_of(node)}: with other arguments than supported: "
                                       f"{one_line(error)}") from None
        raise AssertionError("a graph without output")

    def _program(self, output: fx.Node) -> Any:
        given: Any = output.args[0]
        found = [self._known[one] if isinstance(one, fx.Node) else one for one in given]
        if any(isinstance(one, _KINDS) for one in found):
            raise InputError("the model gives complex numbers, expected real ones, as of torch.view_as_real")
        self._emit.graph.output(tuple(found))
        signature = self._old.graph_signature
        specs = [SimpleNamespace(kind=one.kind, arg=SimpleNamespace(name=getattr(new, "name", None)))
                 for one, new in zip(signature.output_specs, found, strict=True)]
        own = {name: getattr(signature, name, {}) for name in (
            "inputs_to_parameters", "inputs_to_buffers", "inputs_to_lifted_tensor_constants")}
        constants = {name: as_pairs(one) if isinstance(one, torch.Tensor) else one
                     for name, one in self._old.constants.items()}
        return SimpleNamespace(graph=self._emit.graph, graph_module=self._old.graph_module,
                               graph_signature=SimpleNamespace(**own, output_specs=specs),
                               constants=constants | self._emit.constants)

    def _value(self, node: fx.Node) -> Any:
        """A node of the new graph, or a complex tensor, or several."""
        value = node.meta.get("val")
        if node.op == "placeholder":
            if not (isinstance(value, torch.Tensor) and value.is_complex()):
                return self._emit.graph.node_copy(node, self._known.__getitem__)
            if node.name in self._old.graph_signature.user_inputs:
                raise InputError("the model takes complex numbers, expected real ones")
            new = self._emit.graph.placeholder(node.name)
            new.meta = {"val": torch.empty((*value.shape, 2), dtype=REAL_OF[value.dtype], device="meta")}
            return Complex(tuple(value.shape), new)
        own: Any = fx.node.map_arg((node.args, node.kwargs), self._known.__getitem__)
        args, kwargs = own
        values = [value] if isinstance(value, torch.Tensor) else [*(value or ())] if isinstance(
            value, (list, tuple)) else []
        taken = torch.utils._pytree.tree_leaves((args, kwargs), is_leaf=lambda one: isinstance(one, _KINDS))
        if not any(isinstance(one, _KINDS) for one in taken) and not any(
                one.is_complex() for one in values if isinstance(one, torch.Tensor)):
            return self._emit.graph.node_copy(node, self._known.__getitem__)
        if "getitem" in str(node.target):
            return args[0][args[1]]
        name = name_of(node)
        if name in fourier.CALLS:
            return parts.fourier_call(self._emit, name, *args, **kwargs)
        rule = RULES.get(name)
        if rule is None:
            raise UnsupportedError("there is no such rule")
        return rule(self._emit, node, *args, **kwargs)

# --- rules: of an emitter, the old call and its arguments ----------------------------------------------------


def _same(emit: Emitter, node: fx.Node, x: Any, *_: Any, **__: Any) -> Any:
    value = node.meta["val"]
    if not value.is_complex():
        raise UnsupportedError("their real parts as they are, without real()")
    return parts.as_complex(emit, x)


def _dimension(emit: Emitter, node: fx.Node, x: Any, dims: Any = None, *more: Any, **kwargs: Any) -> Any:
    """What takes one dimension, or several, as its second argument."""
    return _each(emit, node, x, _there(dims, len(shape_of(x))), *more, **kwargs)


def _behind(emit: Emitter, node: fx.Node, x: Any, what: Any, dim: int = 0) -> Any:
    """What takes a dimension as its third argument."""
    return _each(emit, node, x, what, dim % len(shape_of(x)))


def _two_dimensions(emit: Emitter, node: fx.Node, x: Any, one: int, other: int) -> Any:
    rank = len(shape_of(x))
    return _each(emit, node, x, one % rank, other % rank)


def _inserted(emit: Emitter, node: fx.Node, x: Any, dim: int) -> Any:
    return _each(emit, node, x, dim % (len(shape_of(x)) + 1))


def _permuted(emit: Emitter, node: fx.Node, x: Any, order: Any) -> Any:
    rank = len(shape_of(x))
    return _each(emit, node, x, [*(one % rank for one in order), rank])


def _shaped(emit: Emitter, node: fx.Node, x: Any, *_: Any, **__: Any) -> Any:
    """The same numbers in another shape."""
    return Complex(tuple(node.meta["val"].shape), emit(
        ATEN.reshape.default, emit.pairs(x), [*node.meta["val"].shape, 2]))


def _expanded(emit: Emitter, node: fx.Node, x: Any, sizes: Any, **__: Any) -> Any:
    return Complex(tuple(node.meta["val"].shape), emit(ATEN.expand.default, emit.pairs(x), [*sizes, 2]))


def _padded(emit: Emitter, node: fx.Node, x: Any, widths: Any, *_: Any) -> Any:
    return _each(emit, node, x, [0, 0, *widths])


def _there(dims: Any, rank: int) -> Any:
    """Dimensions from 0 on, to which the parts' is none."""
    if dims is None or dims == []:
        return [*range(rank)]
    return [one % rank for one in dims] if isinstance(dims, (list, tuple)) else dims % rank


def _each(emit: Emitter, node: fx.Node, x: Any, *args: Any, **kwargs: Any) -> Any:
    """What does the same to real and imaginary parts."""
    operation: Any = ATEN.sum.dim_IntList if name_of(node) == "sum" else ATEN.mean.dim if name_of(node) == "mean" else (
        node.target)
    found = emit(operation, emit.pairs(x), *args, **kwargs)
    value = found.meta["val"]
    if isinstance(value, torch.Tensor):
        return Complex(tuple(value.shape[:-1]), found)
    all_of = []
    for number, one in enumerate(value):
        all_of.append(Complex(tuple(one.shape[:-1]), _taken(emit, found, number, one)))
    return all_of


def _taken(emit: Emitter, of: fx.Node, number: int, value: torch.Tensor) -> fx.Node:
    part = emit.graph.call_function(operator.getitem, (of, number))
    part.meta = {**emit.origin, "val": value}
    return part


def _joined(emit: Emitter, node: fx.Node, tensors: Any, dim: int = 0) -> Any:
    """cat and stack."""
    rank = len(shape_of(tensors[0])) + (name_of(node) == "stack")
    found = emit(node.target, [emit.pairs(parts.as_complex(emit, one)) for one in tensors], dim % rank)
    return Complex(tuple(found.meta["val"].shape[:-1]), found)


def _sum(sign: float) -> Rule:
    def rule(emit: Emitter, node: fx.Node, a: Any, b: Any, alpha: float = 1) -> Any:
        if alpha != 1 or not all(isinstance(one, (fx.Node, *_KINDS)) for one in (a, b)):
            raise UnsupportedError("a sum with a number, or with alpha")
        pairs = [emit.pairs(parts.as_complex(emit, one)) for one in _alike(emit, node, a, b)]
        operation = ATEN.add.Tensor if sign > 0 else ATEN.sub.Tensor
        return Complex(tuple(node.meta["val"].shape), emit(operation, *pairs))

    return rule


def _alike(emit: Emitter, node: fx.Node, *of: Any) -> list[Any]:
    """Operands of as many dimensions."""
    rank = len(node.meta["val"].shape)
    found = []
    for one in of:
        shape = shape_of(one)
        more = (1,) * (rank - len(shape))
        if more and isinstance(one, fx.Node):
            one = emit(ATEN.reshape.default, one, [*more, *shape])
        elif more:
            one = Complex((*more, *shape), emit(ATEN.reshape.default, emit.pairs(one), [*more, *shape, 2]))
        found.append(one)
    return found


def _product(emit: Emitter, node: fx.Node, a: Any, b: Any) -> Any:
    """Of complex tensors, of one and a real tensor, or of one and a number."""
    a, b = (b, a) if isinstance(b, _KINDS) and not isinstance(a, _KINDS) else (a, b)
    shape = tuple(node.meta["val"].shape)
    if isinstance(b, (int, float)):
        return Complex(shape, emit(ATEN.mul.Tensor, emit.pairs(parts.as_complex(emit, a)), b))
    if isinstance(b, complex):
        if isinstance(a, fx.Node):
            both = [emit(ATEN.mul.Tensor, a, one) for one in (b.real, b.imag)]
            return emit.of_parts(both[0], both[1])
        re, im = (emit.part(a, one) for one in (0, 1))
        return emit.of_parts(_combined(emit, ATEN.sub.Tensor, re, b.real, im, b.imag),
                             _combined(emit, ATEN.add.Tensor, im, b.real, re, b.imag))
    a, b = _alike(emit, node, a, b)
    if isinstance(b, fx.Node):
        return Complex(shape, emit(ATEN.mul.Tensor, emit.pairs(a), emit(ATEN.unsqueeze.default, b, -1)))
    (re, im), (x, y) = ([emit.part(one, number) for number in (0, 1)] for one in (a, b))
    return emit.of_parts(_combined(emit, ATEN.sub.Tensor, re, x, im, y), _combined(emit, ATEN.add.Tensor, re, y, im, x))


def _combined(emit: Emitter, how: Any, a: Any, b: Any, c: Any, d: Any, product: Any = ATEN.mul.Tensor) -> fx.Node:
    """a b + c d, or a b - c d."""
    return emit(how, emit(product, a, b), emit(product, c, d))


def _quotient(emit: Emitter, node: fx.Node, a: Any, b: Any) -> Any:
    if isinstance(b, (*_KINDS, complex)):
        raise UnsupportedError("a quotient by complex numbers")
    by = b if isinstance(b, (int, float)) else emit(ATEN.unsqueeze.default, _alike(emit, node, b)[0], -1)
    return Complex(tuple(node.meta["val"].shape), emit(ATEN.div.Tensor, emit.pairs(a), by))


def _negative(emit: Emitter, node: fx.Node, x: Any) -> Any:
    return Complex(shape_of(x), emit(ATEN.mul.Tensor, emit.pairs(x), -1.0))


def _conjugate(emit: Emitter, node: fx.Node, x: Any) -> Any:
    return emit.of_parts(emit.part(x, 0), emit(ATEN.mul.Tensor, emit.part(x, 1), -1.0))


def _zeros(emit: Emitter, node: fx.Node, *_: Any, **__: Any) -> Any:
    return Complex(tuple(node.meta["val"].shape), None)


def _matrix_product(emit: Emitter, node: fx.Node, a: Any, b: Any) -> Any:
    (re, im), (x, y) = ([emit.part(parts.as_complex(emit, one), number) for number in (0, 1)] for one in (a, b))
    return emit.of_parts(_combined(emit, ATEN.sub.Tensor, re, x, im, y, ATEN.matmul.default),
                         _combined(emit, ATEN.add.Tensor, re, y, im, x, ATEN.matmul.default))


def _einsum(emit: Emitter, node: fx.Node, equation: str, tensors: Any, **_: Any) -> Any:
    """A sum of products of two tensors; layers that learn a matrix for each frequency have a layer for it."""
    equation = equation.replace(" ", "")
    letters, arrow, output = equation.partition("->")
    if len(tensors) != 2 or not arrow or not output or "." in equation:
        raise UnsupportedError(f"einsum {equation}, supported is one of two tensors with an output")
    one, other = str(letters).split(",")
    a, b = (parts.as_complex(emit, parts.made(emit, x)) for x in tensors)
    if _is_learned(a) and not _is_learned(b):
        a, b, one, other = b, a, other, one
    if (_is_learned(b) and len(one) >= 2 and one[0] == output[0] and one[1] == other[0] and other[1] == output[1]
            and one[2:] == other[2:] == output[2:] and len({*one, *other}) == len(one) + 1):
        return _mixed(emit, a, b, tuple(node.meta["val"].shape))
    return _sum_of_products(emit, a, b, one, other, output)


def _is_learned(of: Complex) -> bool:
    return of.pairs is not None and of.pairs.op == "placeholder"


def _mixed(emit: Emitter, x: Complex, weight: Complex, shape: tuple[int, ...]) -> Complex:
    """What a complex matrix of each place makes of the channels."""
    places = math.prod(shape[2:])
    taken = emit(ATEN.reshape.default, emit.pairs(x), [*x.shape[:2], places, 2])
    own = emit(ATEN.reshape.default, weight.pairs, [*weight.shape[:2], places, 2])
    found = emit(complex_linear, taken, own)
    return Complex(shape, emit(ATEN.reshape.default, found, [*shape, 2]))


def _sum_of_products(emit: Emitter, a: Complex, b: Complex, one: str, other: str, output: str) -> Complex:
    """As a product of matrices: (letters of both that stay, of the first alone, of the sum) and so on."""
    if len({*one}) < len(one) or len({*other}) < len(other) or not {*output} <= {*one, *other}:
        raise UnsupportedError(f"einsum {one},{other}->{output}")
    both = [x for x in output if x in one and x in other]
    # The images come first, also where the other tensor has none
    images = [] if one[0] in other else [one[0]]
    rows = [x for x in output if x not in other and x not in images]
    columns = [x for x in output if x not in one]
    inner = [x for x in one if x in other and x not in output]
    if (len(both) + len(images) + len(rows) + len(inner) < len(one)
            or len(both) + len(columns) + len(inner) < len(other)):
        raise UnsupportedError(f"einsum {one},{other}->{output}: a sum over one tensor alone")
    size = {**dict(zip(one, a.shape, strict=True)), **dict(zip(other, b.shape, strict=True))}

    def matrix(of: Complex, letters: str, lead: list[str], first: list[str], last: list[str]) -> list[fx.Node]:
        order = [letters.index(x) for x in (*lead, *first, *last)]
        shape = [*(size[x] for x in lead), math.prod(size[x] for x in first), math.prod(size[x] for x in last)]
        return [emit(ATEN.reshape.default, emit(ATEN.permute.default, emit.part(of, number), order), shape)
                for number in (0, 1)]

    (re, im), (x, y) = matrix(a, one, images + both, rows, inner), matrix(b, other, both, inner, columns)
    made = [_combined(emit, ATEN.sub.Tensor, re, x, im, y, ATEN.matmul.default),
             _combined(emit, ATEN.add.Tensor, re, y, im, x, ATEN.matmul.default)]
    found = [*images, *both, *rows, *columns]
    shaped = [emit(ATEN.reshape.default, part, [size[x] for x in found]) for part in made]
    ordered = [emit(ATEN.permute.default, part, [found.index(x) for x in output]) for part in shaped]
    return emit.of_parts(ordered[0], ordered[1])


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("alias", "clone", "contiguous", "detach", "lift_fresh", "lift_fresh_copy", "resolve_conj", "to",
                     "_to_copy"), _same),
    **dict.fromkeys(("flip", "sum", "mean", "select", "index_select", "unbind", "squeeze"), _dimension),
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), _behind),
    "roll": lambda emit, node, x, by, dims=(): _each(emit, node, x, by, _there(dims, len(shape_of(x)))),
    "transpose": _two_dimensions, "unsqueeze": _inserted, "permute": _permuted,
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "_reshape_copy", "flatten", "unflatten"), _shaped),
    "expand": _expanded, **dict.fromkeys(("constant_pad_nd", "pad"), _padded),
    **dict.fromkeys(("cat", "stack"), _joined),
    "add": _sum(1.0), "sub": _sum(-1.0), "mul": _product, "div": _quotient, "neg": _negative,
    **dict.fromkeys(("conj", "_conj", "conj_physical", "_conj_physical"), _conjugate),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros"), _zeros),
    **dict.fromkeys(("matmul", "bmm", "mm"), _matrix_product), "einsum": _einsum,
    "view_as_real": lambda emit, _, x: emit.pairs(x),
    "view_as_complex": lambda emit, _, x: Complex(shape_of(x)[:-1], x),
    "complex": lambda emit, _, re, im: emit.of_parts(re, im),
    "real": lambda emit, _, x: emit.part(x, 0), "imag": lambda emit, _, x: emit.part(x, 1),
    "slice": parts.sliced, "slice_scatter": parts.written_into,
    "select_scatter": parts.one_written_into, "copy": parts.copied,
    **dict.fromkeys(("fft_fftshift", "fft_ifftshift"), parts.shifted),
}
