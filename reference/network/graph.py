# SPDX-License-Identifier: MIT
"""A module traced into a graph of the operations that exchange files know (format 2).

torch.fx follows the module's forward; every call becomes a layer of its own with the names of those whose outputs it
takes. What it cannot see, `reference.network.reading` refuses or proves.

Source: J. Reed et al., torch.fx, MLSys 2022; docs/exchange-file.md lists the operations and their hyperparameters.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from reference import pointwise
from reference.errors import InputError, one_line, own_line
from reference.network.chain import NAME, Layers, padding_of, pair
from reference.spline import Spline

INPUT = "input"
TORCH = Path(torch.__file__).parent
Hyperparameters = dict[str, Any]


class Add(nn.Module):
    """The sum of two tensors."""

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one + other


class Subtract(nn.Module):
    """The difference of two tensors."""

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one - other


class Multiply(nn.Module):
    """The product of each two elements."""

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one * other


class Divide(nn.Module):
    """The quotient of each two elements."""

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one / other


class Concat(nn.Module):
    """Tensors one behind the other along the channels."""

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return torch.cat(tensors, dim=1)


class Matmul(nn.Module):
    """The matrix product of two tensors."""

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one @ other


class Reshape(nn.Module):
    """The numbers of each image in another shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0], *self.shape)


class Transpose(nn.Module):
    """Two dimensions exchanged."""

    def __init__(self, dim0: int, dim1: int) -> None:
        super().__init__()
        self.dims = dim0, dim1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(*self.dims)


class Reduce(nn.Module):
    """One number of all along some dimensions: what a method of tensors gives, or of two things the first."""

    def __init__(self, kind: str, dim: tuple[int, ...], keepdim: bool) -> None:
        super().__init__()
        self.kind, self.dim, self.keepdim = kind, dim, keepdim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        method = getattr(x, self.kind)
        found: torch.Tensor = (method(self.dim[0], self.keepdim).values if self.kind in ("max", "min") else
                               method(self.dim, self.keepdim))
        return found


class MaskedDropout(nn.Module):
    """A dropout whose mask is given: 0 and 1, of the input's shape, of whole channels (n, c, 1, 1)."""

    def __init__(self, p: float, of_channels: bool) -> None:
        super().__init__()
        self.p, self.of_channels = p, of_channels
        self.mask = torch.ones(())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (self.mask.to(x.dtype) / (1 - self.p))


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
    try:
        tracer = _Tracer()
        tracer.record_stack_traces = True
        traced = tracer.trace(root)
    except InputError:
        raise
    except Exception as error:  # fx raises whatever the module's control flow makes it raise
        raise InputError(f"the model cannot be traced by torch.fx: {one_line(error)}{own_line(error)}") from error
    return _Reader(root).read(traced).joined_as_chain()


def is_operation(layer: nn.Module) -> bool:
    """Return whether it is a layer that exchange files know, and no class made from one."""
    return type(layer) in _LAYERS


def hyperparameters(name: str, layer: nn.Module) -> tuple[str, Hyperparameters]:
    """Return the type and the hyperparameters of a layer as format 2 of an exchange file has them.

    Raises
    ------
    InputError
        If it is no operation of exchange files, or has an option that they do not know.
    """
    describe = _LAYERS.get(type(layer))
    if describe is None:
        known = ", ".join(sorted(one.__name__ for one in _LAYERS))
        raise InputError(f"layer '{name}' is {type(layer).__name__}; supported are {known}")
    try:
        return describe(name, layer)
    except InputError:
        raise
    except (TypeError, ValueError) as error:  # what is no number where one is expected
        raise InputError(f"layer '{name}' ({type(layer).__name__}): {one_line(error)}") from None


def run(layers: Layers, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the outputs of all layers."""
    known = {INPUT: x}
    for name, layer in layers:
        known[name] = layer(*(known[one] for one in layers.inputs_of(name)))
    return known


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
                    raise InputError(f"the model takes a second input, '{node.name}'; supported is one")
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
    make = _FUNCTIONS.get(target)
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
    if node.target in _OVERWRITING:
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
    """Where the module calls it: the last line of the recorded stack that is neither torch's nor ours."""
    frames = re.findall(r'File "(.+?)", line (\d+), in .*\n\s*(.*)', node.stack_trace or "")
    own = [frame for frame in frames if not frame[0].startswith((str(TORCH), __file__))]
    return " ({}, line {}: {})".format(*own[-1]) if own else ""


def _conv(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    return "conv2d", {
        "in_channels": layer.in_channels, "out_channels": layer.out_channels, "kernel_size": pair(layer.kernel_size),
        "stride": pair(layer.stride), "padding": padding_of(name, layer), "dilation": pair(layer.dilation),
        "groups": layer.groups, "bias": int(layer.bias is not None)}


def _conv_transpose(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    _only(name, layer, padding_mode="zeros")
    return "conv_transpose2d", {
        "in_channels": layer.in_channels, "out_channels": layer.out_channels, "kernel_size": pair(layer.kernel_size),
        "stride": pair(layer.stride), "padding": pair(layer.padding), "output_padding": pair(layer.output_padding),
        "dilation": pair(layer.dilation), "groups": layer.groups, "bias": int(layer.bias is not None)}


def _linear(_: str, layer: Any) -> tuple[str, Hyperparameters]:
    return "linear", {"in_features": layer.in_features, "out_features": layer.out_features,
                      "bias": int(layer.bias is not None)}


def _spline(_: str, layer: Any) -> tuple[str, Hyperparameters]:
    return "spline", {"in_features": layer.in_features, "out_features": layer.out_features, "grid": layer.grid,
                      "order": layer.order, "low": float(layer.low), "high": float(layer.high),
                      "scale_spline": int(layer.scale_spline is not None)}


def _pooling(kind: str) -> Callable[[str, Any], tuple[str, Hyperparameters]]:
    def describe(name: str, layer: Any) -> tuple[str, Hyperparameters]:
        _only(name, layer, ceil_mode=False, return_indices=False, dilation=1, divisor_override=None)
        padding = pair(layer.padding)
        if any(padding):
            _only(name, layer, count_include_pad=True)
        stride = layer.kernel_size if layer.stride is None else layer.stride
        return kind, {"kernel_size": pair(layer.kernel_size), "stride": pair(stride), "padding": padding}

    return describe


def _adaptive_pool(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    size = layer.output_size if isinstance(layer.output_size, (tuple, list)) else [layer.output_size] * 2
    if None in size:
        raise InputError(f"layer '{name}': output_size {layer.output_size} found, two integers are supported")
    return ("global_avg_pool2d", {}) if list(size) == [1, 1] else ("adaptive_avg_pool2d", {"output_size": list(size)})


def _batch_norm(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    _only(name, layer, affine=True)
    found = {"num_features": layer.num_features, "eps": float(layer.eps)}
    if layer.running_mean is None:
        return "batch_norm2d", found
    _only(name, layer, track_running_stats=True)
    if layer.momentum is None:
        raise InputError(f"layer '{name}' ({type(layer).__name__}): momentum None found, a number is supported")
    return "batch_norm2d", found | {"momentum": float(layer.momentum), "track_running_stats": 1,
                                    "training": int(layer.training)}


def _layer_norm(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    return "layer_norm", {"normalized_shape": list(layer.normalized_shape), "eps": float(layer.eps),
                          "elementwise_affine": int(layer.elementwise_affine), "bias": int(layer.bias is not None)}


def _group_norm(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    return "group_norm", {"num_groups": layer.num_groups, "num_channels": layer.num_channels, "eps": float(layer.eps),
                          "affine": int(layer.affine)}


def _dropout(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    if not layer.p < 1:
        raise InputError(f"layer '{name}' ({type(layer).__name__}): p {layer.p} found, less than 1 is supported")
    of_channels = layer.of_channels if isinstance(layer, MaskedDropout) else isinstance(layer, nn.Dropout2d)
    return "dropout2d" if of_channels else "dropout", {"p": float(layer.p)}


def _flatten(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    _only(name, layer, start_dim=1, end_dim=-1)
    return "flatten", {}


def _reshape(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    shape = layer.shape if isinstance(layer, Reshape) else tuple(layer.unflattened_size)
    # How many dimensions there are is not known here: the last of two is what is usual
    if getattr(layer, "dim", 1) not in (1, -1) or not 1 <= len(shape) <= 3:
        raise InputError(f"layer '{name}' ({type(layer).__name__}): {getattr(layer, 'dim', 1)} to {shape} found, "
                         "dimension 1 to one of up to three is supported")
    return "reshape", {"shape": list(shape)}


def _transpose(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    return "transpose", {"dim0": layer.dims[0], "dim1": layer.dims[1]}


def _reduce(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    return layer.kind, {"dim": list(layer.dim), "keepdim": int(layer.keepdim)}


def _upsample(name: str, layer: Any) -> tuple[str, Hyperparameters]:
    if layer.mode not in ("nearest", "bilinear"):
        _only(name, layer, mode="nearest or bilinear")
    _only(name, layer, size=None)
    factors = layer.scale_factor if isinstance(layer.scale_factor, (tuple, list)) else [layer.scale_factor] * 2
    if any(factor is None or factor < 1 or factor != int(factor) for factor in factors):
        raise InputError(f"layer '{name}' ({type(layer).__name__}): scale_factor {layer.scale_factor} found, integers "
                         "are supported")
    scale = {"scale_factor": pair(tuple(factors))}
    if layer.mode == "nearest":
        return "upsample_nearest2d", scale
    return "upsample_bilinear2d", scale | {"align_corners": int(bool(layer.align_corners))}


def _padding(kind: str) -> Callable[[str, Any], tuple[str, Hyperparameters]]:
    def describe(name: str, layer: Any) -> tuple[str, Hyperparameters]:
        if getattr(layer, "value", 0) != 0 or len(layer.padding) != 4 or min(layer.padding) < 0:
            raise InputError(f"layer '{name}' ({type(layer).__name__}): padding {layer.padding} found, four integers "
                             "from 0 on are supported, and no other value than 0")
        return kind, {"padding": list(layer.padding)}

    return describe


def _over_channels(kind: str) -> Callable[[str, Any], tuple[str, Hyperparameters]]:
    def describe(name: str, layer: Any) -> tuple[str, Hyperparameters]:
        _only(name, layer, dim=1)
        return kind, {}

    return describe


def _only(name: str, layer: Any, **wanted: Any) -> None:
    for option, value in wanted.items():
        found = getattr(layer, option, value)
        if found != value and found != (value, value):
            raise InputError(f"layer '{name}' ({type(layer).__name__}): {option} {found} found, {value} is supported")


_LAYERS: Mapping[type, Callable[[str, Any], tuple[str, Hyperparameters]]] = {
    nn.Conv2d: _conv,
    nn.ConvTranspose2d: _conv_transpose,
    nn.Linear: _linear,
    **{layer: pointwise.describing(kind) for kind, (layer, _) in pointwise.LAYERS.items()},
    nn.Softmax: _over_channels("softmax"),
    nn.LogSoftmax: _over_channels("log_softmax"),
    nn.Upsample: _upsample,
    nn.UpsamplingNearest2d: _upsample,
    nn.UpsamplingBilinear2d: _upsample,
    nn.ZeroPad2d: _padding("zero_pad2d"),
    nn.ReflectionPad2d: _padding("reflection_pad2d"),
    nn.ReplicationPad2d: _padding("replication_pad2d"),
    nn.MaxPool2d: _pooling("max_pool2d"),
    nn.AvgPool2d: _pooling("avg_pool2d"),
    nn.AdaptiveAvgPool2d: _adaptive_pool,
    nn.BatchNorm2d: _batch_norm,
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
    nn.Flatten: _flatten,
    nn.Unflatten: _reshape,
    Reshape: _reshape,
    Transpose: _transpose,
    Reduce: _reduce,
    Add: lambda *_: ("add", {}),
    Subtract: lambda *_: ("subtract", {}),
    Multiply: lambda *_: ("multiply", {}),
    Divide: lambda *_: ("divide", {}),
    nn.PReLU: lambda _, layer: ("prelu", {"num_parameters": layer.num_parameters}),
    Concat: lambda *_: ("concat", {}),
    Matmul: lambda *_: ("matmul", {}),
    Spline: _spline,
    nn.Dropout: _dropout,
    nn.Dropout2d: _dropout,
    MaskedDropout: _dropout,
}

Made = tuple[nn.Module, list[Any]]


def _joining(layer: type[nn.Module]) -> Callable[..., Made]:
    return lambda one, other: (layer(), [one, other])


def _cat(tensors: Any, dim: int = 0) -> Made:
    if dim != 1:
        raise TypeError(f"dim={dim}, 1 (the channels) is supported")
    return Concat(), list(tensors)


def _flattened(x: Any, start_dim: int = 0, end_dim: int = -1) -> Made:
    return nn.Flatten(start_dim, end_dim), [x]


def _reshaped(x: Any, *sizes: Any, shape: Any = ()) -> Made:
    sizes = tuple(shape or sizes)
    sizes = tuple(sizes[0]) if sizes and isinstance(sizes[0], (tuple, list)) else sizes
    if not sizes:
        raise TypeError("shape=(), one dimension or more is supported")
    batch, *rest = sizes
    if not all(isinstance(one, int) for one in (batch, *rest)):
        raise TypeError(f"shape={sizes}, numbers are supported, and for the first the number of images")
    return Reshape(tuple(rest)), [x]


def _reduced(kind: str) -> Callable[..., Made]:
    def make(input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Made:
        dims = tuple(dim) if isinstance(dim, (tuple, list)) and kind not in ("max", "min") else (dim,)
        if dtype is not None or not dims or not all(isinstance(one, int) for one in dims):
            raise TypeError(f"dim={dim}, dtype={dtype}; supported are numbers, and no other type")
        return Reduce(kind, dims, keepdim), [input]

    return make


def _exchanged(x: Any, dim0: int, dim1: int) -> Made:
    return Transpose(dim0, dim1), [x]


def _probabilities(layer: type[nn.Module]) -> Callable[..., Made]:
    def make(input: Any, dim: int, dtype: Any = None, _stacklevel: int = 3) -> Made:
        if dtype is not None:
            raise TypeError(f"dtype={dtype}, none is supported")
        return layer(dim), [input]

    return make


def _interpolated(input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                  align_corners: Any = None, recompute_scale_factor: Any = None, antialias: bool = False) -> Made:
    if recompute_scale_factor or antialias:
        raise TypeError("recompute_scale_factor, or antialias, none of which is supported")
    return nn.Upsample(size, scale_factor, mode, align_corners), [input]


def _by_rows(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Made:
    if weight is not None or bias is not None:
        raise TypeError("a weight or a bias, which are supported in nn.LayerNorm")
    return nn.LayerNorm(normalized_shape, eps, elementwise_affine=False), [input]


def _dropped(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Made:
    return nn.Dropout(p).train(training), [input]


def _dropped_channels(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Made:
    return nn.Dropout2d(p).train(training), [input]


def _padded(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Made:
    layers = {"constant": nn.ZeroPad2d, "reflect": nn.ReflectionPad2d, "replicate": nn.ReplicationPad2d}
    if mode not in layers or value or len(pad) not in (2, 4):
        raise TypeError(f"mode={mode}, value={value}, pad={pad}; supported are {', '.join(layers)} with zeros, on two "
                        "or four sides")
    return layers[mode]((*pad, 0, 0)[:4]), [input]


_OVERWRITING = {operator.iadd, operator.isub, operator.imul, operator.itruediv}
_FUNCTIONS: Mapping[Any, Callable[..., Made]] = {
    **dict.fromkeys((operator.add, operator.iadd, torch.add, torch.Tensor.add), _joining(Add)),
    **dict.fromkeys((operator.sub, operator.isub, torch.sub, torch.subtract, torch.Tensor.sub, torch.Tensor.subtract),
                    _joining(Subtract)),
    **dict.fromkeys((operator.mul, operator.imul, torch.mul, torch.multiply, torch.Tensor.mul, torch.Tensor.multiply),
                    _joining(Multiply)),
    **dict.fromkeys((operator.truediv, operator.itruediv, torch.div, torch.divide, torch.true_divide, torch.Tensor.div,
                     torch.Tensor.divide), _joining(Divide)),
    **dict.fromkeys((operator.matmul, torch.matmul, torch.bmm, torch.mm, torch.Tensor.matmul, torch.Tensor.bmm,
                     torch.Tensor.mm), _joining(Matmul)),
    torch.cat: _cat, torch.concat: _cat,
    **{call: pointwise.making(kind) for kind in pointwise.LAYERS for call in pointwise.calls(kind)},
    torch.softmax: _probabilities(nn.Softmax), functional.softmax: _probabilities(nn.Softmax),
    torch.Tensor.softmax: _probabilities(nn.Softmax),
    torch.log_softmax: _probabilities(nn.LogSoftmax), functional.log_softmax: _probabilities(nn.LogSoftmax),
    torch.Tensor.log_softmax: _probabilities(nn.LogSoftmax),
    functional.interpolate: _interpolated, functional.pad: _padded,
    functional.dropout: _dropped, functional.dropout2d: _dropped_channels,
    functional.layer_norm: _by_rows,
    torch.reshape: _reshaped, torch.Tensor.reshape: _reshaped, torch.Tensor.view: _reshaped,
    **dict.fromkeys((torch.unflatten, torch.Tensor.unflatten), lambda x, dim, sizes: (nn.Unflatten(dim, sizes), [x])),
    **dict.fromkeys((torch.transpose, torch.Tensor.transpose, torch.swapaxes, torch.Tensor.swapaxes), _exchanged),
    **{call: _reduced(kind) for kind in ("amax", "amin", "max", "mean", "min", "sum")
       for call in (getattr(torch, kind), getattr(torch.Tensor, kind))},
    torch.flatten: _flattened, torch.Tensor.flatten: _flattened,
    functional.max_pool2d: lambda x, *args, **options: (nn.MaxPool2d(*args, **options), [x]),
    functional.avg_pool2d: lambda x, *args, **options: (nn.AvgPool2d(*args, **options), [x]),
    functional.adaptive_avg_pool2d: lambda x, size: (nn.AdaptiveAvgPool2d(size), [x]),
}
