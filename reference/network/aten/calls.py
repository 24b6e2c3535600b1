# SPDX-License-Identifier: MIT
"""What is written of one call of ATen: by its rule, of operands that all images share, or taken apart by PyTorch."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import fx

from reference.network.aten import image_axis, operand_weights, products, recurrence, shared
from reference.network.aten.rules import rule_of
from reference.network.aten.writing import Rule, Stored, Tensor, UnsupportedError, Writer, only, shape_of

TORCH = str(Path(torch.__file__).parent)
HERE = str(Path(__file__).parents[2])
#: Arguments of a call that say nothing of numbers
_NO_NUMBERS = {"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "copy"}


class Calls:
    """Writes calls.

    Parameters
    ----------
    writer : of the layers
    foreign : what has no rule may be written as it is
    values : what stands for the outputs of nodes
    """

    def __init__(self, writer: Writer, foreign: bool, values: Mapping[fx.Node, Any]) -> None:
        self._w, self._foreign, self._values = writer, foreign, values

    def write(self, node: fx.Node, rule: Rule | None, args: Any, kwargs: Any) -> Any:
        """Return what a call gives.

        Raises
        ------
        UnsupportedError
            If exchange files have no such operation.
        """
        if plain_name(node) in recurrence.RULES:
            state = any("getitem" in str(one.target) and one.args[1] == 2 and one.users for one in node.users)
            return recurrence.RULES[plain_name(node)](self._w, *args, **kwargs, state=state)
        if plain_name(node) in recurrence.CELLS:
            return recurrence.CELLS[plain_name(node)](self._w, *args, **kwargs)
        if products.is_one(plain_name(node), args, kwargs):
            kept = self._w.kept()
            try:
                return products.RULES[plain_name(node)](self._w, *args, **_numbers(kwargs))
            except UnsupportedError as error:
                self._w.back(kept)
                try:
                    return self._otherwise(node, rule, args, kwargs)
                except UnsupportedError:
                    raise error from None
        return self._otherwise(node, rule, args, kwargs)

    def _otherwise(self, node: fx.Node, rule: Rule | None, args: Any, kwargs: Any) -> Any:
        """What is none of these products."""
        if plain_name(node) == "complex_linear":
            return operand_weights.complex_linear(self._w, *args)
        if plain_name(node) == "embedding" and isinstance(args[1], Tensor):
            return operand_weights.embedding(self._w, *args, **kwargs)
        if self._shares(node, args, kwargs):
            return self._with_shared(node, rule, args, kwargs)
        return self._apart(node) if rule is None else self._by_rule(node, rule, args, kwargs)

    def _with_shared(self, node: fx.Node, rule: Rule | None, args: Any, kwargs: Any) -> Any:
        """What takes parameters or buffers as its operands, or what follows from them."""
        w, operation, name = self._w, functional(node.target), plain_name(node)
        operands = shared.leaves((args, kwargs))
        if operation is None:
            raise UnsupportedError("there is no such operation in exchange files")
        if name in shared.BY_SHAPE:
            if isinstance(args[0], Tensor):
                like = torch.empty(args[0].shape, dtype=getattr(node.all_input_nodes[0].meta.get("val"), "dtype", None))
                args = (Stored("", like), *args[1:])
            operands = shared.leaves((args, kwargs))
        if all(shared.is_constant(one) for one in operands) and torch.Tag.nondeterministic_seeded not in operation.tags:
            return shared.constant(w, operation, args, kwargs)
        kwargs = _numbers(kwargs)
        for one in operation._schema.arguments[len(args):]:
            if one.kwarg_only or one.name not in kwargs:
                break
            args = (*args, kwargs.pop(one.name))
        if name in shared.SAME and shared.is_shared(args[0]):
            return args[0]
        if name in shared.VIEWS and isinstance(args[0], Stored):
            return shared.viewed(operation, args, kwargs)
        if name in shared.REPEATS and (found := shared.repeated(w, name, args[0], args[1])) is not None:
            return found
        if name in shared.OWN and operand_weights.are_needed(w, args):
            rule = operand_weights.RULES.get(name)
            if rule is None:
                raise UnsupportedError("a weight that several calls take, or that is computed")
            if not shared.is_shared(args[0]):
                w.rewritten()
                return self._by_rule(node, rule, args, kwargs)
        if name in shared.LAST and rule and isinstance(args[0], Tensor) and not args[0].images:
            found = rule(w, Tensor(args[0].name, (w.batch, *args[0].shape)), *args[1:], **kwargs)
            return Tensor(found.name, found.shape[1:], images=False)
        if name in shared.OWN and rule and shared.is_shared(args[0]):
            return shared.of_one(w, rule, args, kwargs)
        if name == "embedding" and (of := shared.alike(w, args[1])) is not None:
            # Of places of each image, which are the same for all
            rows = self._with_shared(node, rule, (args[0], of, *args[2:]), kwargs)
            return shared.lifted(w, rows, shape_of(rows))
        if name == "index_select":
            # Which vmap takes apart otherwise
            operation, args = torch.ops.aten.index.Tensor, (args[0], [*[None] * args[1], args[2]])
        if name == "embedding":
            # Of places, which are the same for all images; the row that has no gradient is none of them
            only("padding_idx", bool((args[1].value == args[2]).any()) if len(args) > 2 else False, False)
            operation, args = torch.ops.aten.index.Tensor, (args[0], [args[1]])
        if name == "_weight_norm":
            operation = shared.weight_norm
        if all(shared.is_shared(one) for one in operands):
            args = shared.once_each(self._w, args) if name in shared.BROADCAST | shared.CHOICES else args
            return shared.of_all_images(w, operation, args, kwargs, self.write_graph)
        if rule is None:
            return self._apart(node)
        return self._by_rule(node, rule, shared.of_images(w, name, args), kwargs)

    def _apart(self, node: fx.Node) -> Any:
        """By PyTorch's decompositions, on tensors that do not exist."""
        from torch._decomp import core_aten_decompositions
        from torch.fx.experimental.proxy_tensor import make_fx

        operation = functional(node.target)
        if operation is None:
            raise UnsupportedError("there is no such operation in exchange files")
        nodes = list(node.all_input_nodes)
        values = [self._values[one] for one in nodes]
        if not all(isinstance(one, (Tensor, Stored)) for one in values):
            raise UnsupportedError("there is no such operation in exchange files")

        def call(*tensors: torch.Tensor) -> Any:
            known = dict(zip(nodes, tensors, strict=True))
            own: Any = fx.node.map_arg((node.args, node.kwargs), lambda one: known[one])
            return operation(*own[0], **own[1])

        examples = [torch.empty(one.meta["val"].shape, dtype=one.meta["val"].dtype) for one in nodes]
        try:
            with silence(), torch.no_grad():
                table: Any = core_aten_decompositions()
                graph = make_fx(call, table, tracing_mode="fake")(*examples).graph
        except Exception:  # what PyTorch cannot take apart
            raise UnsupportedError("there is no such operation in exchange files") from None
        return self.write_graph(graph, values, operation)

    def write_graph(self, graph: fx.Graph, values: list[Any], operation: Any = None) -> Any:
        """Write the calls of a graph.

        Parameters
        ----------
        values : that stand for its inputs
        operation : which it is, where messages need no other name
        """
        places = (one for one in graph.nodes if one.op == "placeholder")
        known: dict[fx.Node, Any] = dict(zip(places, values, strict=True))
        base = self._w.base
        for one in graph.nodes:
            if one.op == "output":
                return fx.node.map_arg(one.args[0], known.__getitem__)
            if one.op == "placeholder" or one.target is torch.ops.aten._assert_tensor_metadata.default:
                continue
            own: Any = fx.node.map_arg((one.args, one.kwargs), known.__getitem__)
            if "getitem" in str(one.target):
                known[one] = own[0][0][own[0][1]]
                continue
            if not self._foreign and _makes_numbers(one):
                known[one] = Stored("", one.target(*own[0], **own[1]))
                continue
            rule, written_over = rule_of(one.target)
            if rule is None or written_over or one.op != "call_function":
                inner = "" if one.target is operation else f" (its part {name_of(one)})"
                raise UnsupportedError(f"there is no such operation in exchange files{inner}")
            check_type(one)
            check_rank(one, own[0])
            self._w.base = f"{base}.{one.name}"
            self._w.rewritten()
            known[one] = (self._with_shared(one, rule, *own) if self._shares(one, *own) else
                          self._by_rule(one, rule, *own))
        raise AssertionError("a graph without output")

    def _by_rule(self, node: fx.Node, rule: Rule, args: Any, kwargs: Any) -> Any:
        tensors = [one for one in shared.leaves((args, kwargs)) if isinstance(one, Tensor)]
        name = plain_name(node)
        if image_axis.is_needed(name, tensors):
            return image_axis.written(self._w, name, rule, args, _numbers(kwargs))
        return rule(self._w, *args, **_numbers(kwargs))

    def _shares(self, node: fx.Node, args: Any, kwargs: Any) -> bool:
        """Whether it takes a tensor that all images share, as an operand."""
        operands = shared.leaves((args, kwargs))
        numbers = [one for one in operands if not shared.is_index(one)]
        if not numbers:
            return bool(operands) or not self._foreign
        if plain_name(node) in shared.BY_SHAPE:
            return not self._foreign
        if plain_name(node) in shared.OWN:
            return shared.is_shared(args[0]) or operand_weights.are_needed(self._w, args)
        return any(shared.is_shared(one) for one in numbers)


def _makes_numbers(node: fx.Node) -> bool:
    """Whether it is a call of ATen that takes no tensor, and draws nothing."""
    return (node.op == "call_function" and not node.all_input_nodes and isinstance(node.target, torch._ops.OpOverload)
            and torch.Tag.nondeterministic_seeded not in node.target.tags)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """What torch.export has to say is in the exceptions that it raises; it prints graphs, too."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(
                io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _numbers(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Those arguments that say something of numbers."""
    return {key: one for key, one in kwargs.items() if key not in _NO_NUMBERS}


def plain_name(node: fx.Node) -> str:
    """Of what it computes, whether or not it writes over an argument."""
    return name_of(node).removesuffix("_")


def check_type(node: fx.Node) -> None:
    """Refuse another element type than the input's, which would round otherwise."""
    types = {one.meta["val"].dtype for one in (node, *node.all_input_nodes)
             if isinstance(one.meta.get("val"), torch.Tensor) and one.meta["val"].is_floating_point()}
    if len(types) > 1:
        found = " and ".join(sorted(str(one) for one in types))
        raise UnsupportedError(f"it computes in {found}, supported is one type")


def functional(target: Any) -> Any:
    """The same operation that gives a new tensor; None of what is no operation of ATen."""
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return target if isinstance(target, torch._ops.OpOverload) else None
    packet = getattr(torch.ops.aten, target._schema.name.partition("::")[2].removesuffix("_"), None)
    return getattr(packet, target._overloadname, None)


def check_rank(node: fx.Node, args: Any) -> None:
    """Refuse an image that is alone, without a batch."""
    wanted = re.search("([12])d$", name_of(node).removesuffix("_"))
    if wanted and args and isinstance(args[0], Tensor) and len(args[0].shape) != int(wanted[1]) + 2:
        raise UnsupportedError(f"an input of the shape {args[0].shape}: one with a dimension of images is supported")


def name_of(node: fx.Node) -> str:
    """As users write it."""
    target = node.target
    return target._schema.name.partition("::")[2] if isinstance(target, torch._ops.OpOverload) else str(
        getattr(target, "__name__", target))


def line_of(node: fx.Node) -> str:
    """Where the module calls it, in brackets: the layer, where it is one of torch's, else the last line of the recorded
    stack that is neither torch's nor ours.
    """
    frames = re.findall(r'File "(.+?)", line (\d+), in .*\n\s*(.*)', node.meta.get("stack_trace") or "")
    own = [one for one in frames if not one[0].startswith((TORCH, HERE))]
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    name, kind = (stack[-1][0], str(stack[-1][1])) if stack else ("", "")
    if name and (not own or kind.startswith("torch.")):
        return f" (layer '{name}', {kind.rpartition('.')[2]})"
    return " ({}, line {}: {})".format(*own[-1]) if own else ""
