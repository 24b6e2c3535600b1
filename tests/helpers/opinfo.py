# SPDX-License-Identifier: MIT
"""PyTorch's own samples of its operations (OpInfo): each computed by the library, and judged by the oracle.

`torch.testing._internal` has for every operation of PyTorch the inputs with which it is tested: shapes, broadcasts,
options, empty tensors. A sample is read as a user's module is, by torch.fx, and run with its own numbers and a random
upstream gradient. Output, gradients and state must lie within the bounds of the oracle, whose values must be those of
PyTorch in float64; or the library refuses the sample, with one of its own errors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import bridge
from bridge.engine.arrays.transfer import to_device, to_host
from bridge.engine.library import extension
from bridge.engine.network.passes import OperationPasses
from bridge.judge.measure.error_statistics import measure
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff
from bridge.operations import OPERATIONS, Operation
from bridge.operations.hyperparameters import described
from reference.errors import InputError
from reference.network import reading
from reference.network.hyperparameters import hyperparameters
from reference.network.pointwise import Clip
from reference.network.trace import trace

Array = np.ndarray
Tensors = dict[str, Array]

#: Why a sample is refused, and what of the messages says so. A message that is none of these fails the tests
REASONS: dict[str, tuple[str, str]] = {
    "empty": ("a tensor without elements", r"empty, shape|shape \(.*\b0\b.*\), expected integers from 1"),
    "dimensions": ("a scalar, or more than eight dimensions", r"\d dimensions, shape .*, expected 1 to 8"),
    "order": ("not C-contiguous; nothing is copied to fit", r"strides .* expected a C-contiguous"),
    "call": ("another function, which exchange files do not have", r"which is no operation of exchange files"),
    "option": ("an option that they do not have: `alpha`, `rounding_mode`, `dtype`, `weight`, another `dim`, "
               "`reduction` or padding, another mode or size of signals and volumes, a tensor for a number",
               r"with other arguments than supported|(is|are) supported|supported is one tensor|unknown attribute"
               r"|^reduction: 'none'"),
    "below 0": ("a hyperparameter below 0, which is PyTorch's to try", r"numbers? from 0 on"),
    "nothing": ("the identity: no layer is left", r"has no layers that exchange files know"),
    "shape": ("inputs of other numbers of dimensions than the operation takes here", r"expected (a shape|shapes) \("
              r"|expected (\d+ )?features|in each image|of ones in their place|behind another axis"
              r"|differ in (their channels|dimension)"),
    "batch": ("the first dimension, the batch's, would change, or none remain",
              r"nothing that it has computed of its input|keep the first dimension"
              r"|The expanded size of the tensor|others than the batch|two dimensions or more|the images"
              r"|one that remains|dimension -?\d of \d, expected"),
    "device": ("what a device does not have, though the CPU has it", r"on the device"),
}
#: What torch.export alone reads
EXPORTED = {"expand", "flip", "index_select", "narrow", "nn.functional.adaptive_max_pool2d",
            "nn.functional.pad circular", "nn.functional.pad constant",
            "nn.functional.pad replicate_negative", "nn.functional.pixel_shuffle", "nn.functional.pixel_unshuffle",
            "permute", "roll"}
#: Losses by PyTorch's names of their functions
LOSSES = {f"nn.functional.{name}": kind for name, kind in {
    "binary_cross_entropy": "bce", "binary_cross_entropy_with_logits": "bce_with_logits",
    "cross_entropy": "cross_entropy", "huber_loss": "huber", "l1_loss": "l1", "mse_loss": "mse",
    "smooth_l1_loss": "smooth_l1"}.items()}


class Call(nn.Module):
    """A call of torch with a sample's settings. To be traced it has one input, which stands for each of the tensors."""

    def __init__(self, function: Callable[..., Any], sample: Any) -> None:
        super().__init__()
        self.function, self.given = function, ((sample.input, *sample.args), sample.kwargs)
        self.inputs = list(_tensors(self.given))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.compute([x] * len(self.inputs))

    def compute(self, tensors: Iterable[torch.Tensor]) -> torch.Tensor:
        """The same of other tensors."""
        args, kwargs = _with_tensors(self.given, iter(tensors))
        if self.function in (functional.dropout, functional.dropout2d):
            # A dropout that drops in evaluation, too, is refused
            kwargs = kwargs | {"training": self.training and kwargs.get("training", True)}
        return self.function(*args, **kwargs)


def _tensors(given: Any) -> Iterator[torch.Tensor]:
    """All in tuples, lists and dictionaries of arguments, in their order."""
    if isinstance(given, torch.Tensor):
        yield given
    elif isinstance(given, (tuple, list, dict)):
        for one in given.values() if isinstance(given, dict) else given:
            yield from _tensors(one)


def _with_tensors(given: Any, others: Iterator[torch.Tensor]) -> Any:
    """The same with others in their places."""
    if isinstance(given, torch.Tensor):
        return next(others)
    if isinstance(given, dict):
        return {name: _with_tensors(one, others) for name, one in given.items()}
    return type(given)(_with_tensors(one, others) for one in given) if type(given) in (tuple, list) else given


# What has parameters is a layer with the sample's: its module of torch.nn, and the input as it takes it


def _layer(layer: nn.Module, x: torch.Tensor, **parameters: torch.Tensor | None) -> tuple[nn.Module, torch.Tensor]:
    for name, value in parameters.items():
        if value is not None:
            setattr(layer, name, nn.Parameter(value.detach().clone()))
    return layer, x


def conv2d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
           groups: int = 1) -> Any:
    made = nn.Conv3d if weight.ndim == 5 else nn.Conv2d
    return _layer(made(weight.shape[1] * groups, weight.shape[0], weight.shape[2:], stride, padding, dilation,
                       groups, bias is not None), input, weight=weight, bias=bias)


def conv_transpose2d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
                     output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Any:
    made = nn.ConvTranspose3d if weight.ndim == 5 else nn.ConvTranspose2d
    return _layer(made(weight.shape[0], weight.shape[1] * groups, weight.shape[2:], stride, padding, output_padding,
                       groups, bias is not None, dilation), input, weight=weight, bias=bias)


def batch_norm(input: Any, mean: Any, variance: Any, weight: Any = None, bias: Any = None, training: bool = False,
               momentum: float = 0.1, eps: float = 1e-5) -> Any:
    """That of vectors and of rows is that of images of one pixel, and of one column."""
    x = input.reshape(*input.shape, *[1] * (4 - input.ndim)) if input.ndim > 1 else input
    layer = nn.BatchNorm2d(x.shape[min(1, x.ndim - 1)], eps, momentum, weight is not None, mean is not None)
    if mean is not None:
        layer.running_mean, layer.running_var = mean.detach().clone(), variance.detach().clone()
    return _layer(layer.train(training), x, weight=weight, bias=bias)


def group_norm(input: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return _layer(nn.GroupNorm(groups, input.shape[1], eps, weight is not None), input, weight=weight, bias=bias)


def layer_norm(input: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return _layer(nn.LayerNorm(shape, eps, weight is not None, bias is not None), input, weight=weight, bias=bias)


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    return _layer(nn.Linear(weight.shape[1], weight.shape[0], bias is not None), input, weight=weight, bias=bias)


def embedding(weight: Any, input: Any, padding_idx: Any = None, max_norm: Any = None, norm_type: float = 2.0,
              scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    return _layer(nn.Embedding(*weight.shape, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse), input,
                  weight=weight)


def prelu(input: Any, weight: Any) -> Any:
    return _layer(nn.PReLU(weight.numel()), input, weight=weight.reshape(-1))


LAYERS: Mapping[str, Callable[..., tuple[nn.Module, torch.Tensor]]] = {
    f"nn.functional.{make.__name__}": make
    for make in (conv2d, conv_transpose2d, batch_norm, group_norm, layer_norm, linear, prelu, embedding)} | {
        "nn.functional.conv3d": conv2d, "nn.functional.conv_transpose3d": conv_transpose2d}
#: What PyTorch's samples call with a seed of their own, or give two tensors of which ours is the first
CALLS: Mapping[str, Callable[..., Any]] = {
    "nn.functional.dropout": functional.dropout, "nn.functional.dropout2d": functional.dropout2d,
    "max reduction_with_dim": lambda *args, **kwargs: torch.max(*args, **kwargs).values,
    "min reduction_with_dim": lambda *args, **kwargs: torch.min(*args, **kwargs).values}


@dataclass
class Pass:
    """One operation forward and backward: its inputs, and all that the library has made of them.

    Attributes
    ----------
    parameters : those of the formulas, with state before the pass, and a mask
    found : ``output``, the gradients of the inputs, ``input 0``, and of parameters by name, and the new state
    torch : what PyTorch in float64 has for the same names
    """

    node: Operation
    inputs: list[Array]
    parameters: Tensors
    dy: Array
    found: Tensors
    torch: Tensors

    def largest_error(self) -> tuple[float, str]:
        """T of what is furthest from the oracle, and what it is; of PyTorch's float64, too."""
        arithmetic = Arithmetic(total_roundoff(self.dy.dtype.name))
        x, w = [Bounded(one, 0.0, arithmetic) for one in self.inputs], {
            name: Bounded(one, 0.0, arithmetic) for name, one in self.parameters.items()}
        y = self.node.forward(x, w)
        inputs, truth = self.node.backward(Bounded(self.dy.reshape(y.shape), 0.0, arithmetic), x, w)
        truth = truth | {f"input {i}": one for i, one in enumerate(inputs)} | self.node.new_state(x, w) | {"output": y}
        return furthest(truth, self.found, self.torch)


def furthest(truth: dict[str, Bounded], found: Tensors, by_torch: Tensors) -> tuple[float, str]:
    """The largest T, and what has it; every tensor has PyTorch's shape."""
    assert truth.keys() == found.keys() == by_torch.keys(), (truth.keys(), found.keys(), by_torch.keys())
    seen = []
    for name, right in truth.items():
        assert found[name].shape == by_torch[name].shape and by_torch[name].dtype == np.float64, name
        for whose, tensor in (("", found[name]), ("torch's ", by_torch[name])):
            value, error = (one.reshape(-1) for one in (right.value, right.error))
            seen.append((measure(tensor.reshape(-1), value, error).t, whose + name))
    return max(seen)


def run_layer(module: nn.Module, x: torch.Tensor, device: str) -> Pass:
    """A module of one operation with one input, as `bridge.Network.from_torch` makes a network of it."""
    real = x.dtype if x.is_floating_point() else next(module.parameters()).dtype
    given = x.detach().to(real).numpy()
    net = bridge.Network.from_torch(module if isinstance(module, Call) else nn.Sequential(module),
                                    dtype=given.dtype.name, reduction="sum", example=given.shape, device=device)
    (node,) = (one for one in net.model.layers if not getattr(one, "fixed", False))
    views = {name.rpartition(".")[2]: array for name, array in (*net.parameters.items(), *net.buffers.items())}
    before = {name: to_host(array).copy() for name, array in views.items()}
    moved = to_device(given, device)
    y = to_host(net.forward(moved))
    # The gradient of the sum of squares is 2 * (y - target)
    net.loss(to_device(y - (np.random.default_rng(0).standard_normal(y.shape) / 2).astype(y.dtype), device))
    found = {"output": y, "input 0": to_host(net.backward())}
    dy = to_host(net.output_gradient(node.name))
    found |= {name.rpartition(".")[2]: to_host(array).copy() for name, array in net.gradients.items()}
    found |= {name: to_host(views[name]).copy() for name in node.new_state_shapes()}
    before |= dict.fromkeys(["mask"][:node.has_mask], *net.masks.values())
    batch = given[None] if given.ndim == net.model.sample_rank else given
    return Pass(node, [batch], before, dy, found, torch_layer(module, node, x, dy, before))


def torch_layer(module: nn.Module, node: Operation, x: torch.Tensor, dy: Array, parameters: Tensors) -> Tensors:
    """The same by PyTorch in float64, with the same mask."""
    wide, image = module.double(), x.detach().double().requires_grad_()
    y = wide(image if x.is_floating_point() else x)
    if node.has_mask:
        mask = torch.from_numpy(parameters["mask"])
        y = node.torch_forward([image.reshape(-1, *image.shape[1 - mask.ndim:])], {"mask": mask}).reshape(image.shape)
    names, learned = zip(*wide.named_parameters(), strict=True) if list(wide.parameters()) else ((), ())
    gradients = torch.autograd.grad(y, [image, *learned], torch.from_numpy(dy).double(), materialize_grads=True)
    found = {"output": y, **dict(zip(("input 0", *names), gradients, strict=True))}
    found |= {name: getattr(wide, name) for name in node.new_state_shapes()}
    return {name: one.detach().numpy() for name, one in found.items()}


def run_call(call: Call, device: str) -> Pass:
    """An operation of several inputs, read from a module, checked as inputs of networks are, and run by itself."""
    layers = trace(call)
    ((name, layer),) = layers
    kind, given = hyperparameters(name, layer)
    node = described(OPERATIONS[kind], name, layers.inputs[name], given)
    bridge.Model((node,)).joined()
    inputs = [extension.check_array("input", one.detach().numpy(), ndim=extension.DIMENSIONS) for one in call.inputs]
    passes = OperationPasses(node, device)
    y = passes.forward(inputs, {})
    dy = np.random.default_rng(0).standard_normal(y.shape).astype(y.dtype)
    dx, _ = passes.backward(dy, inputs, {})
    wide = [one.detach().double().requires_grad_() for one in call.inputs]
    right = call.compute(wide)
    gradients = torch.autograd.grad(right, wide, torch.from_numpy(dy).double())
    by_torch = {"output": right, **{f"input {i}": one for i, one in enumerate(gradients)}}
    return Pass(node, inputs, {}, dy, {"output": y, **{f"input {i}": one for i, one in enumerate(dx)}},
                {name: one.detach().numpy() for name, one in by_torch.items()})


@dataclass
class Counts:
    """What has become of all samples of an operation of PyTorch: agreed, by our operation; refused, by the reason."""

    samples: int = 0
    agreed: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def row(self, name: str) -> str:
        """The row of docs/opinfo.md."""
        agreed, refused = (", ".join(f"{one} {n}" for one, n in sorted(counts.items()))
                           for counts in (self.agreed, self.refused))
        return f"| `{name}` | {self.samples} | {agreed} | {refused} |"


def judge_samples(info: Any, dtype: torch.dtype, device: str = "cpu") -> Counts:
    """Run every sample of an OpInfo: it agrees, or it is refused for one of REASONS, or this is an assertion."""
    name, counts = full_name(info), Counts()
    judge = _judge_loss if info.name in LOSSES else _judge_operation
    # Of one operation each: what torch.export would make of several is tested with whole modules
    exported = reading._exported if name in EXPORTED else _refused
    with torch.random.fork_rng(devices=[]), mock.patch.object(reading, "_exported", exported):
        torch.manual_seed(0)
        for sample in info.sample_inputs("cpu", dtype, requires_grad=True):
            counts.samples += 1
            try:
                kind, (t, where) = judge(info, sample, device)
            except (bridge.BridgeError, InputError) as error:
                counts.refused[reason_of(name, str(error))] += 1
                continue
            assert t <= 1, f"{name}, sample {counts.samples}, {dtype}: {where} has T = {t}"
            counts.agreed[kind] += 1
    return counts


def _refused(module: Any, shapes: Any, example: Any, refused: InputError, integers: int) -> Any:
    raise refused


def reason_of(name: str, message: str) -> str:
    """The reason of a refusal, which is one line."""
    found = [reason for reason, (_, pattern) in REASONS.items() if re.search(pattern, message)]
    assert found and "\n" not in message, f"{name} is refused for no reason that is known: {message}"
    return found[0]


def _judge_operation(info: Any, sample: Any, device: str) -> tuple[str, tuple[float, str]]:
    """Our operation, T of what is furthest from the oracle, and what that is."""
    if make := LAYERS.get(info.name):
        done = run_layer(*make(sample.input, *sample.args, **sample.kwargs), device)
    else:
        call = Call(CALLS.get(full_name(info), info.op), sample)
        done = run_layer(call, call.inputs[0], device) if len(call.inputs) == 1 else run_call(call, device)
    return done.node.kind, done.largest_error()


def _judge_loss(info: Any, sample: Any, device: str) -> tuple[str, tuple[float, str]]:
    """The same of a loss; the network before it is the identity."""
    kind, (y, target) = LOSSES[info.name], (sample.input, sample.args[0])
    settings = {name: value for name, value in sample.kwargs.items() if name != "reduction"}
    words = [f"{name}={','.join(map(repr, np.ravel(_array(value)).tolist()))}" for name, value in settings.items()]
    classes = [] if target.is_floating_point() else ["class_indices=1"]
    net = bridge.Network.from_torch(
        nn.Sequential(Clip()), loss=" ".join([kind, *words, *classes]), dtype=_array(y).dtype.name,
        reduction=sample.kwargs.get("reduction", "mean"), example=tuple(y.shape), device=device)
    by_torch = _torch_loss(info.op, y, target, sample.kwargs)
    if classes:
        target = functional.one_hot(target, y.shape[1]).movedim(-1, 1).to(y.dtype)
    given, aim = _array(y), np.ascontiguousarray(_array(target))
    net.forward(to_device(given, device))
    found = {"loss": np.array(net.loss(to_device(aim, device))), "input": to_host(net.backward())}
    output, wanted = (Bounded(one, 0.0, Arithmetic(total_roundoff(net.dtype))) for one in (given, aim))
    truth = {"loss": net.model.criterion.forward(output, wanted), "input": net.model.criterion.backward(output, wanted)}
    return kind, furthest(truth, found, by_torch)


def _torch_loss(function: Callable[..., torch.Tensor], y: torch.Tensor, target: torch.Tensor,
                settings: Mapping[str, Any]) -> Tensors:
    """In float64."""
    wide = y.detach().double().requires_grad_()
    aim, *others = (one.double() if isinstance(one, torch.Tensor) and one.is_floating_point() else one
                    for one in (target, *settings.values()))
    loss = function(wide, aim, **dict(zip(settings, others, strict=True)))
    (gradient,) = torch.autograd.grad(loss, wide)
    return {"loss": _array(loss), "input": gradient.numpy()}


def _array(value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value


def full_name(info: Any) -> str:
    """Name and variant."""
    return f"{info.name} {info.variant_test_name}".rstrip()


def op_db() -> dict[str, Any]:
    """PyTorch's samples by `full_name`.

    Raises
    ------
    ModuleNotFoundError
        If the package expecttest is missing, which they need.
    """
    # Else its import would freeze the switches of torch.backends, for all tests of this process
    with mock.patch.object(torch.backends, "disable_global_flags"):
        from torch.testing._internal.common_methods_invocations import op_db as found

    return {full_name(one): one for one in found}
