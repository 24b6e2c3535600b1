# SPDX-License-Identifier: MIT
"""A module traced into a graph of the operations that exchange files know.

torch.fx follows the module's forward; every call becomes a layer of its own with the names of those whose outputs it
takes. What it cannot see, `reference.network.reading` refuses or proves.

Source: J. Reed et al., torch.fx, MLSys 2022.
"""

from __future__ import annotations

import inspect
import linecache
import operator
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import fx, nn

from reference.errors import InputError, one_line, own_line
from reference.network.calls import FUNCTIONS, OVERWRITING
from reference.network.hyperparameters import hyperparameters, is_operation
from reference.network.layers import INPUT, Layers, Reduce

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
TORCH = Path(torch.__file__).parent


def trace(root: nn.Module) -> Layers:
    """Return the layers of a module, with the names of their inputs.

    Parameters
    ----------
    root : nn.Module
        Its layers are returned; not run.

    Raises
    ------
    InputError
        If torch.fx cannot trace it, or it calls what is no operation of exchange files; names the call and its line.
    """
    if is_operation(root):
        raise InputError(f"the model is a single {type(root).__name__} without a name: put it into nn.Sequential or "
                         "a class of your own")
    for name, part in root.named_modules():
        if hasattr(part, "parametrizations"):
            raise InputError(f"layer '{name}' has parametrizations, expected plain weights "
                             "(torch.nn.utils.parametrize.remove_parametrizations)")
    try:
        traced = _Tracer().trace(root)
    except InputError:
        raise
    except Exception as error:  # fx raises whatever the module's control flow makes it raise
        raise InputError(f"the model cannot be traced by torch.fx: {one_line(error)}{own_line(error)}") from error
    return _Reader(root).read(traced)


class _Proxy(fx.Proxy):
    """A tensor of the model; fx would take ``y += x`` for a sum of its own."""

    def _in_place(self, target: Callable[[Any, Any], Any], other: Any) -> Any:
        name = target.__name__.removeprefix("i")
        return self.tracer.create_proxy("call_function", target, (self, other), {}, name=name)

    def __iadd__(self, other: Any) -> Any:
        return self._in_place(operator.iadd, other)

    def __isub__(self, other: Any) -> Any:
        return self._in_place(operator.isub, other)

    def __imul__(self, other: Any) -> Any:
        return self._in_place(operator.imul, other)

    def __itruediv__(self, other: Any) -> Any:
        return self._in_place(operator.itruediv, other)


class _Tracer(fx.Tracer):
    """Every module of torch.nn that is no container is one operation."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_operation(m) or super().is_leaf_module(m, module_qualified_name)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def create_node(self, *given: Any, **more: Any) -> fx.Node:
        """Note where the module calls it. To record the stack, fx would import torch's compilers, which takes longer
        than torch itself.
        """
        node = super().create_node(*given, **more)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not trace.__code__:
            file = frame.f_code.co_filename
            if not file.startswith((str(TORCH), __file__)):
                node.meta["called_at"] = file, frame.f_lineno
                break
            frame = frame.f_back
        return node


class _Reader:
    """Turns the calls that fx has recorded into layers."""

    def __init__(self, root: nn.Module) -> None:
        self._modules = dict(root.named_modules())
        # One object may stand in several places
        self._paths: dict[nn.Module, list[str]] = {}
        for name, one in root.named_modules(remove_duplicate=False):
            self._paths.setdefault(one, []).append(name)
        self._names: dict[fx.Node, str] = {}
        self._layers: list[tuple[str, nn.Module]] = []
        self._inputs: dict[str, tuple[str, ...]] = {}
        self._used: set[str] = set()
        self._shapes: set[fx.Node] = set()
        self._batches: set[fx.Node] = set()
        self._pairs: set[fx.Node] = set()
        self._overwritten: dict[str, str] = {}

    def read(self, graph: fx.Graph) -> Layers:
        for node in graph.nodes:
            if node.op == "placeholder":
                if INPUT in self._names.values():
                    raise InputError(f"the model takes a second input, '{node.name}'; give the shapes of all "
                                     f"(example=[...]; of commands --shape \"x=1,64,64 {node.name}=\")")
                self._names[node] = INPUT
            elif node.op == "output":
                self._check_output(node)
            elif node.op == "get_attr":
                raise InputError(f"the model uses its tensor '{node.target}' outside of a layer{_line(node)}")
            elif self._is_values(node):
                self._names[node] = self._names[node.args[0]]
            elif not self._asks_for_size(node):
                self._call(node)
        return Layers(self._layers, self._inputs)

    def _is_values(self, node: fx.Node) -> bool:
        """Whether it is the first of two things that a call gives, of which we have that alone."""
        of = node.args[0] if node.args else None
        taken = (node.target, *node.args[1:]) in ((getattr, "values"), (operator.getitem, 0))
        return taken and isinstance(of, fx.Node) and of in self._pairs

    def _asks_for_size(self, node: fx.Node) -> bool:
        """Whether it is a shape, or the number of images in one; to reshape, the latter is what is left."""
        asked, *rest = node.args or (None,)
        if (node.target, rest) in ((getattr, ["shape"]), ("size", [])):
            self._shapes.add(node)
        elif (node.target, rest) == ("size", [0]) or (node.target is operator.getitem and rest == [0]
                                                      and asked in self._shapes):
            self._batches.add(node)
        return node in self._shapes or node in self._batches

    def _check_output(self, node: fx.Node) -> None:
        (found,) = node.args
        if not self._layers:
            raise InputError("the model has no layers that exchange files know")
        if not isinstance(found, fx.Node) or self._names[found] != self._layers[-1][0] or found in self._pairs:
            raise InputError("the model's output is not what its last layer gives: supported is one tensor")

    def _call(self, node: fx.Node) -> None:
        layer, inputs = self._module(node) if node.op == "call_module" else _function(node, self._batches)
        for one in inputs:
            if call := self._overwritten.get(self._names[one]):
                raise InputError(f"the model calls {call}, which changes a tensor in place that is used later; "
                                 "supported are new tensors (inplace=False, y = y + x)")
        if isinstance(layer, nn.Identity) or (isinstance(layer, (nn.Dropout, nn.Dropout2d)) and not (
                layer.training and layer.p)):
            self._names[node] = self._names[inputs[0]]
            return
        names = self._paths[layer] if node.op == "call_module" else [node.name]
        if any(True for _ in layer.parameters()):
            if names[0] in self._used:
                raise InputError(f"layer '{names[0]}' is used twice{_line(node)}; supported is each once")
            name = names[0]
        else:
            name = next(one for one in (*names, node.name, f"{node.name}_") if one not in {*self._used, INPUT})
        if not NAME.fullmatch(name) or name == INPUT:
            raise InputError(f"layer '{name}': a name has 1 to 64 letters, digits, '_', '.', '-', and is not '{INPUT}'")
        self._used.add(name)
        hyperparameters(name, layer)
        if _works_in_place(node, layer):
            self._overwritten[self._names[inputs[0]]] = f"{node.name}{_line(node)}"
        self._names[node] = name
        self._layers.append((name, layer))
        if isinstance(layer, Reduce) and layer.kind in ("max", "min"):
            self._pairs.add(node)
        self._inputs[name] = tuple(self._names[one] for one in inputs)

    def _module(self, node: fx.Node) -> tuple[nn.Module, list[fx.Node]]:
        layer = self._modules[str(node.target)]
        if not is_operation(layer) and not isinstance(layer, nn.Identity):
            hyperparameters(str(node.target), layer)
        return layer, _nodes(node, [*node.args, *node.kwargs.values()])


def _function(node: fx.Node, batches: set[fx.Node]) -> tuple[nn.Module, list[fx.Node]]:
    """A function or method of torch as a layer; numbers of images are -1 to it."""
    target = node.target if node.op == "call_function" else getattr(torch.Tensor, str(node.target), None)
    make = FUNCTIONS.get(target)
    if make is None:
        called = getattr(target, "__name__", node.target)
        raise InputError(f"the model calls {called}{_line(node)}, which is no operation of exchange files")
    try:
        given_args: Any = fx.node.map_arg((node.args, node.kwargs), lambda at: -1 if at in batches else at)
        args, kwargs = given_args
        # Its message is without the name of our function
        inspect.signature(make).bind(*args, **kwargs)
        layer, given = make(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise InputError(f"the model calls {node.name} with other arguments than supported{_line(node)}: "
                         f"{one_line(error)}") from None
    return layer, _nodes(node, given)


def _works_in_place(node: fx.Node, layer: nn.Module) -> bool:
    """Whether what a call gives is written over its first input."""
    if node.op == "call_module":
        return bool(getattr(layer, "inplace", False))
    if node.target in OVERWRITING:
        return True
    try:
        given = inspect.signature(node.target).bind(*node.args, **node.kwargs)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # a method, or a function of C++: those that overwrite are no operations
        return False
    return bool(given.arguments.get("inplace", False))


def _nodes(node: fx.Node, given: list[Any]) -> list[fx.Node]:
    if not given or not all(isinstance(one, fx.Node) for one in given):
        raise InputError(f"the model calls {node.name}{_line(node)}: supported are tensors that it has computed")
    return given


def _line(node: fx.Node) -> str:
    """Where the module calls it: the innermost line that is neither torch's nor ours."""
    file, line = node.meta.get("called_at", ("", 0))
    return f" ({file}, line {line}: {linecache.getline(file, line).strip()})" if file else ""
