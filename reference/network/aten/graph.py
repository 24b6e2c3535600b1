# SPDX-License-Identifier: MIT
"""A module read from the graph of ATen's operations that torch.export gives for one shape of its input.

Sizes are numbers there, control flow and optional arguments are gone, and each call has its line and its module. What
has a rule becomes layers; what has none is taken apart by PyTorch's own decompositions, and what is left then is named,
all of it at once.

Source: torch.export, https://docs.pytorch.org/docs/stable/export.html
"""

from __future__ import annotations

import collections
import dataclasses
import re
from typing import Any

import torch
from torch import fx, nn

from reference.errors import InputError, one_line, own_line
from reference.network.aten import image_axis, recurrence, shared
from reference.network.aten.calls import (
    Calls,
    check_rank,
    check_type,
    functional,
    line_of,
    name_of,
    plain_name,
    silence,
)
from reference.network.aten.complex.calls import without_complex
from reference.network.aten.foreign import Expression, expressed, running_statistics, written
from reference.network.aten.rules import rule_of
from reference.network.aten.writing import Shape, Stored, Tensor, UnsupportedError, Writer
from reference.network.layers import INPUT, Layers, Reshape, as_pairs, real_type

#: Most obstacles that a message names
MOST = 12


def read_exported(root: nn.Module, shape: Shape, *, foreign: bool = False, dtype: torch.dtype | None = None,
                  functional: bool = False) -> Layers:
    """Return the layers of a module, which are right for inputs of a shape and any number of images.

    Parameters
    ----------
    root : whose parameters and buffers the layers have; a copy of the user's
    shape : of an input, with the number of images, two or more
    foreign : what exchange files have no operation for is read as calls of ATen, for this number of images alone
    dtype : of the input, where that is not the module's
    functional : nothing is written over: PyTorch turns it into new tensors

    Raises
    ------
    InputError
        If torch.export cannot read it, or exchange files cannot express it: with all obstacles, and their lines.
    """
    dtype = dtype or real_type(root)
    try:
        with silence():
            program = _export(root, torch.zeros(shape, dtype=dtype))
            program = program.run_decompositions({}) if functional else program
    except InputError:
        raise
    except Exception as error:  # a foreign forward() raises what it likes, and torch.export too
        raise InputError(f"torch.export cannot read the model for an input of the shape {shape}: "
                         f"{_first(error)}{own_line(error)}") from error
    return _Reader(root, without_complex(program, foreign), shape, foreign).read()


def fixed(layers: Layers, shape: Shape) -> Layers:
    """Return layers that take images of one shape alone."""
    taken = {one for inputs in layers.inputs.values() for one in inputs} | {name for name, _ in layers}
    name = next(one for one in ("input_shape", "input_shape_") if one not in taken)
    inputs = {one: tuple(name if x == INPUT else x for x in takes) for one, takes in layers.inputs.items()}
    return Layers([(name, Reshape(tuple(shape[1:]), fixed=True)), *layers], {name: (INPUT,), **inputs}, layers.sources,
                  layers.rewritten, layers.constants)


def _export(module: nn.Module, x: torch.Tensor) -> Any:
    """Before any decomposition: torch 2.5 calls it otherwise."""
    early = "export_for_training" if torch.__version__.startswith("2.5.") else "export"
    export = getattr(torch.export, early)
    return export(module, (x,), strict=False)


def _first(error: BaseException) -> str:
    """The beginning of a long message: what follows is advice on how to export."""
    if "data-dependent" in str(error) or "DataDependent" in type(error).__name__:
        return "its forward depends on the values of tensors"
    return one_line(error)[:300]


class _Reader:
    """Turns the calls of a graph into layers."""

    def __init__(self, root: nn.Module, program: Any, shape: Shape, foreign: bool) -> None:
        pairs = {id(one): as_pairs(one) for one in [*root.parameters(), *root.buffers()]}
        self._stored = {name: pairs[id(one)] for name, one in [*root.named_parameters(remove_duplicate=False),
                                                               *root.named_buffers(remove_duplicate=False)]}
        self._graph, self._signature, self._shape = program.graph, program.graph_signature, shape
        self._parts: dict[str, nn.Module] = dict(program.graph_module.named_modules())
        self._writer = Writer({name: Stored(name, one) for name, one in root.named_buffers()}, shape, foreign)
        self._constants, self._foreign = program.constants, foreign
        #: the only name of each parameter, and how many calls take it
        self._names = {id(pairs[id(one)]): name for name, one in root.named_parameters()}
        self._users: collections.Counter[int] = collections.Counter()
        self._shared: list[tuple[Any, nn.Parameter]] = []
        self._real = real_type(root)
        self._writer.real = self._real
        self._values: dict[fx.Node, Any] = {}
        calls = Calls(self._writer, foreign, self._values)
        self._write, self._write_graph = calls.write, calls.write_graph
        self._obstacles: list[str] = []
        self._needed = _needed(self._graph)
        self._calls = collections.Counter(_path(node) for node in self._graph.nodes if _is_call(node))

    def read(self) -> Layers:
        places = [node for node in self._graph.nodes if node.op == "placeholder"]
        for node in places:
            self._place(node)
        for node in places:
            self._share(node)
        for node in self._graph.nodes:
            if node.op == "placeholder":
                continue
            if node.op == "call_function":
                self._call(node)
            elif isinstance(self._parts.get(str(node.target)), fx.GraphModule):
                self._values[node] = self._parts[str(node.target)]
            elif node.op == "get_attr" and str(node.target) in self._constants:
                self._values[node] = Stored("", self._constants[str(node.target)])
            elif node.op == "get_attr":
                self._obstacle(node, f"the tensor '{node.target}'")
        output = self._output()
        if self._obstacles:
            many = list(dict.fromkeys(self._obstacles))
            named = "; ".join(many[:MOST]) + (f"; and {len(many) - MOST} more" if len(many) > MOST else "")
            raise InputError(f"the model has {len(many)} obstacle{'s' * (len(many) > 1)}: {named}")
        assert isinstance(output, Tensor)
        if output.name == INPUT:
            raise InputError("the model has no layers that exchange files know")
        return self._writer.layers(output)

    def _place(self, node: fx.Node) -> None:
        names = (self._signature.inputs_to_parameters, self._signature.inputs_to_buffers,
                 getattr(self._signature, "inputs_to_lifted_tensor_constants", {}))
        found = next((one[node.name] for one in names if node.name in one), None)
        if found is None:
            of: Any = node.meta.get("val")
            self._values[node] = Tensor(INPUT, self._shape, None if of.is_floating_point() else of.dtype) if isinstance(
                of, torch.Tensor) else None
        elif found in self._stored:
            value = self._stored[found]
            self._values[node] = Stored(self._names.get(id(value), found), value)
            self._users[id(value)] += len(node.users)
        else:
            self._values[node] = Stored("", self._constants.get(found, torch.empty(0)))

    def _share(self, node: fx.Node) -> None:
        """A parameter that several calls take is a layer of its own, whose output they take."""
        of = self._values[node]
        if isinstance(of, Stored) and isinstance(of.value, nn.Parameter) and self._users[id(of.value)] > 1 and any(
                plain_name(user) in shared.OWN | {"embedding"} for user in node.users):
            if not self._foreign:
                self._writer.several.add(of.name)
                return
            layer = next((one for one, known in self._shared if known is of.value), None)
            if layer is None:
                self._writer.base = f"{of.name}.shared"
                layer = written(self._writer, Expression(torch.ops.aten.alias.default, [of], {}, of.value), self._real)
                layer = dataclasses.replace(layer, plain=True) if isinstance(layer, Tensor) else layer
                self._shared.append((layer, of.value))
            self._values[node] = layer

    def _output(self) -> Any:
        node = next(one for one in self._graph.nodes if one.op == "output")
        user = [one.arg.name for one in self._signature.output_specs if one.kind.name == "USER_OUTPUT"]
        outputs = [one for one in node.args[0] if getattr(one, "name", None) in user]
        if len(outputs) != 1:
            self._obstacles.append(f"it gives {len(outputs)} outputs, supported is one tensor: say which (output)")
            return None
        found = self._values.get(outputs[0])
        if not isinstance(found, Tensor) or not found.images:
            self._obstacles.append("its output is nothing that it has computed of its input")
        elif self._obstacles:
            pass
        elif found.axis or (found.shape[:1] != self._shape[:1] and not self._foreign):
            self._obstacles.append(f"its output has the shape {found.shape}: its first dimension must be the images'")
        return found

    def _call(self, node: fx.Node) -> None:
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            return
        given: Any = fx.node.map_arg((node.args, node.kwargs), self._given)
        if "getitem" in str(node.target):
            self._take(node, *given[0])
            return
        self._writer.base, self._writer.line = self._base(node), line_of(node)
        kept = self._writer.kept()
        try:
            self._values[node] = self._written(node, *given)
        except (UnsupportedError, AttributeError, IndexError, TypeError, ValueError, InputError, RuntimeError) as error:
            why = f": {error}" if isinstance(error, UnsupportedError) else (
                f" with other arguments than supported: {one_line(error)}")
            self._writer.back(kept)
            if self._foreign:
                try:
                    self._values[node] = self._as_call(node, *given)
                    return
                except UnsupportedError as last:
                    why = f": {last}"
            self._obstacle(node, f"{name_of(node)}{why}")

    def _as_call(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The call as it is, a layer or a part of one; who uses what it overwrites sees what was written."""
        overwritten = rule_of(node.target)[1]
        if overwritten and isinstance(args[0], Stored):
            raise UnsupportedError(f"it changes '{args[0].name}'")
        has_images = any(isinstance(one, Tensor) and not one.plain for one in shared.leaves((args, kwargs)))
        args, kwargs = torch.utils._pytree.tree_map(_as_taken, (args, kwargs))
        found = expressed(functional(node.target) or node.target, args, kwargs, node.meta.get("val"))
        self._writer.left_out |= {one.name for one in running_statistics(node.target, args)}
        made = written(self._writer, found, self._real)
        if isinstance(made, Tensor) and not has_images:
            made = dataclasses.replace(made, plain=True)
        if overwritten:
            self._overwrite(node.args[0], made)  # type: ignore[arg-type]
        return made

    def _given(self, node: fx.Node) -> Any:
        return self._values.get(node)

    def _take(self, node: fx.Node, of: Any, number: int) -> None:
        found = of[number] if isinstance(of, (tuple, list)) and number < len(of) else None
        source = node.args[0]
        if found is None and self._foreign and isinstance(source, fx.Node):
            try:
                if not isinstance(of, Expression):
                    taken: Any = fx.node.map_arg((source.args, source.kwargs), self._given)
                    of = expressed(functional(source.target), taken[0], taken[1], source.meta.get("val"))
                self._writer.base = self._base(node)
                self._values[node] = written(self._writer, of.part(number), self._real)
                return
            except UnsupportedError:
                pass
        if found is None and node.users:
            self._obstacle(node, f"{name_of(node.args[0])}, of whose outputs number {number} is taken")  # type: ignore[arg-type]
            return
        self._values[node] = found

    def _written(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        if name_of(node) == "wrap_with_autocast" and not args[2]:
            # A part whose type nothing changes
            return self._write_graph(args[4].graph, list(args[5:]))
        if any(isinstance(one, Expression) for one in torch.utils._pytree.tree_leaves((args, kwargs))):
            raise UnsupportedError("it takes what is no layer")
        rule, written_over = rule_of(node.target)
        if written_over and isinstance(args[0], Stored):
            # The counter of a batch normalisation, which has it itself
            if args[0].name.endswith("num_batches_tracked") and tuple(args[1:]) == (1,):
                return args[0]
            if name := next((known for known, one in self._stored.items() if _same_memory(one, args[0].value)), None):
                raise UnsupportedError(f"it changes '{name}'")
            if torch.Tag.nondeterministic_seeded in node.target.tags:  # type: ignore[union-attr]
                raise UnsupportedError("it draws random numbers")
            if all(shared.is_constant(one) for one in shared.leaves((args, kwargs))):
                # Of a tensor that forward makes, all of whose views see it
                return shared.constant(self._writer, node.target, args, kwargs)
            raise UnsupportedError(f"it changes '{args[0].name}'")
        taken = shared.leaves((args, kwargs))
        if not taken or not all(shared.is_constant(one) for one in taken):
            check_type(node)
        check_rank(node, args)
        if any(isinstance(one, Tensor) and one.plain for one in taken):
            raise UnsupportedError("it takes a tensor without images")
        if self._foreign and not _is_real(node):
            raise UnsupportedError("it gives no real numbers")
        found = self._write(node, rule, args, kwargs)
        if written_over and node.args and isinstance(node.args[0], fx.Node):
            self._overwrite(node.args[0], found)
        return found

    def _overwrite(self, node: fx.Node, value: Any) -> None:
        """Who uses the tensor from now on sees what was written."""
        before = self._values[node]
        for one, known in self._values.items():
            if known == before:
                self._values[one] = value

    def _base(self, node: fx.Node) -> str:
        """The module's path, where it is the only call of its module; else path, operation and number.

        Of `in_proj_weight`, as torch's attention has it, `in_proj`.
        """
        path = _path(node)
        for one in node.all_input_nodes:
            of = self._values.get(one)
            if isinstance(of, Stored) and self._users[id(of.value)] == 1 and (
                    own := re.fullmatch(r"(.*[A-Za-z0-9])_weight", of.name)):
                return own[1]
        name = re.sub(r"[^A-Za-z0-9_]", "_", node.name).rstrip("_") or "layer"
        if not path:
            return name
        if plain_name(node) in recurrence.RULES:
            # The module makes its first state, too
            return path
        return path if self._calls[path] == 1 else f"{path}.{name}"

    def _obstacle(self, node: fx.Node, what: str) -> None:
        """It is read on as if it were there, so that the next one is found, too."""
        if node in self._needed:
            self._obstacles.append(f"{what}{line_of(node)}")
        self._values[node] = torch.utils._pytree.tree_map(
            lambda one: Tensor("lost", tuple(one.shape)) if isinstance(one, torch.Tensor) else None,
            node.meta.get("val"))


def _as_taken(value: Any) -> Any:
    """A tensor as a call takes it: of what all images share that of the first image; images where they are there."""
    if isinstance(value, Tensor) and not value.images:
        whole = Tensor(value.name, (0, *value.shape))
        return Expression(torch.ops.aten.select.int, [whole, 0, 0], {}, torch.empty(value.shape, device="meta"))
    if isinstance(value, Tensor) and value.axis:
        order = [image_axis.there(axis, value.axis) for axis in range(len(value.shape))]
        return Expression(torch.ops.aten.permute.default, [image_axis.images_first(value), order], {},
                          torch.empty(value.shape, device="meta"))
    return value


def _same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether what is written into one is seen in the other, or in a part of it."""
    return bool(one.numel()) and one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _needed(graph: fx.Graph) -> set[fx.Node]:
    """What the output follows from, and what changes a tensor; of a module of several outputs one is read."""
    found: set[fx.Node] = set()
    left = [one for one in graph.nodes if one.op == "output" or getattr(
        getattr(one.target, "_schema", None), "is_mutable", False)]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += one.all_input_nodes
    return found


def _is_real(node: fx.Node) -> bool:
    """Whether what it gives, or the first of it, are real numbers, and so is all that it takes."""
    found = [one.meta.get("val") for one in (node, *node.all_input_nodes)]
    return all(one[0].is_floating_point() if isinstance(one, (tuple, list)) else one.is_floating_point()
               for one in found if one is not None)


def _is_call(node: fx.Node) -> bool:
    """Whether it computes: neither a placeholder nor one of several outputs, and no counter of a normalisation."""
    if node.op != "call_function" or "getitem" in str(node.target):
        return False
    return not (node.args and isinstance(node.args[0], fx.Node) and "num_batches_tracked" in node.args[0].name)


def _path(node: fx.Node) -> str:
    """Of the innermost module that calls it."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return re.sub(r"[^A-Za-z0-9_.-]", "_", stack[-1][0].split("@")[0]) if stack else ""
