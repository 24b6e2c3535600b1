# SPDX-License-Identifier: MIT
"""Our library: `bridge.Network` with ``keep_activations=False``, `bridge.conv2d`, and the procedures under them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

import bridge
from benchmarks.frameworks.cpu import KERNEL, OURS_LAST
from benchmarks.harness import data
from benchmarks.harness.workloads import Conv, Net, OperationPass, Training
from bridge.engine.arrays.dispatch import LINE
from bridge.engine.arrays.operand import extent_of
from bridge.engine.library import extension
from bridge.engine.network.passes import kept_numbers
from bridge.exchange.model import Conv2d, Layer, Model, Relu
from bridge.operations.losses import LOSSES

Array = np.ndarray


def prepare(threads: int) -> None:
    """Load the library; it takes its number of threads from the environment."""
    if os.environ.get("OMP_NUM_THREADS") != str(threads):
        raise ValueError("OMP_NUM_THREADS is not what was asked for")
    extension.fortran_version()


def step(_: str, net: Net) -> Callable[[], float]:
    """A training step; gives the loss before the update."""
    network = network_of(net)
    x, t = data.batch(net)
    return lambda: network.step(x, t, lr=data.LR)


def training(_: str, task: Training) -> Callable[[], float]:
    """A training step of a network that is no chain; gives the loss before the update."""
    network = bridge.Network.from_file(task.path, keep_activations=False)
    x, t = data.training_batch(task)
    return lambda: network.step(x, t, lr=data.LR)


def network_of(net: Net) -> bridge.Network:
    """With the weights that all frameworks begin with."""
    layers: list[Layer] = []
    for number, one in enumerate(net.layers, 1):
        layers += [Conv2d(f"conv{number}", one.c, one.k, (one.r, one.s), padding=one.padding), Relu(f"relu{number}")]
    network = bridge.Network(Model(tuple(layers[:-1])), net.dtype, keep_activations=False)
    for number, (weight, bias) in enumerate(data.weights(net), 1):
        network.parameters[f"conv{number}.weight"][...] = weight
        network.parameters[f"conv{number}.bias"][...] = bias
    return network


def conv(name: str, task: Conv, which: str) -> Callable[[], Array]:
    """One pass of one convolution; gives its result."""
    return _prepared(task, which) if name == KERNEL else _public(name, task, which)


def _public(name: str, task: Conv, which: str) -> Callable[[], Array]:
    """As a program calls it: arguments are checked, also for NaN."""
    laid_out = _channels_last if name == OURS_LAST else _c_order
    x, w, dy = map(laid_out, data.operands(task))
    options = {"stride": task.stride, "padding": task.padding, "dilation": task.dilation, "groups": task.groups}
    if which == "forward":
        out = laid_out(np.empty(task.output, task.dtype))
        return lambda: bridge.conv2d(x, w, **options, out=out)
    mask = (which == "data", which == "filter", False)
    return lambda: bridge.conv2d_backward(dy, x, w, **options, output_mask=mask)[mask.index(True)]


def _channels_last(array: Array) -> Array:
    """The same in memory as torch's channels_last."""
    return _c_order(array.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def _c_order(array: Array) -> Array:
    """A copy in C order that begins with a cache line, as torch's tensors do."""
    memory = np.empty(array.nbytes + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    copy = memory[start:start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class _Call:
    """A procedure with its arguments; keeps alive what they point to.

    Parameters
    ----------
    procedure, arguments : of `engine.call`
    result : what it fills
    kept : arrays whose addresses are among the arguments
    """

    def __init__(self, procedure: str, arguments: tuple[object, ...], result: Array, kept: tuple[Array, ...]) -> None:
        self._procedure, self._arguments, self._result, self._kept = procedure, arguments, result, kept

    def __call__(self) -> Array:
        extension.call(self._procedure, *self._arguments)
        return self._result


def _prepared(task: Conv, which: str) -> _Call:
    """The same procedures with addresses, as `bridge.Network` uses them between its layers."""
    x, w, dy = data.operands(task)
    params = np.array([*task.stride, *task.padding, *task.dilation, task.groups], np.int32)
    operands = [part for one in (x, w) for part in (extension.address(one), extent_of(one.shape))]
    result = np.zeros({"forward": task.output, "data": task.input, "filter": task.weight}[which], task.dtype)
    to, code = extension.address(result), extension.DTYPES[task.dtype]
    if which == "forward":
        return _Call("conv2d_forward", ("cpu", code, params, extension.C_ORDER, 0, *operands, 0, to), result, (x, w))
    gradients = (to, 0, 0) if which == "data" else (0, to, 0)
    arguments = ("cpu", code, params, extension.C_ORDER, *operands, extension.address(dy), *gradients)
    return _Call("conv2d_backward", arguments, result, (x, w, dy))


def operation(_: str, work: OperationPass) -> Callable[[], Array | float]:
    """A pass of an operation, as graphs call it; gives its output or the gradient of its first input."""
    operands = {name: [_c_order(one) for one in each] for name, each in data.pass_operands(work).items()}
    x, code = operands["x"], extension.DTYPES[work.dtype]
    if work.kind in (*LOSSES, "accumulate"):
        extent = extent_of(x[0].shape)
        if work.kind == "accumulate":
            return _Call("accumulate_pass", (code, extent, *map(extension.address, x)), x[1], (x[0],))
        gradient = _c_order(np.zeros_like(x[0]))
        kept = (*x, gradient)
        return _Call("loss_pass", ("cpu", work.kind, "mean", code, x[0].ndim, extent, *map(extension.address, kept)),
                     gradient, kept)
    y, dx, dw = _c_order(np.zeros(work.output, work.dtype)), *([_c_order(np.zeros_like(one)) for one in operands[name]]
                                                              for name in ("x", "parameters"))
    kept = [np.zeros(n)] if (n := kept_numbers(work.kind, x[0].shape[1])) else []
    tensors = (*x, *dx, y, *operands["dy"], *operands["mask"], *operands["parameters"], *dw, *kept)
    table = np.array([_row(one) for one in tensors], np.int64)
    attributes = " ".join(f"{name}={_numbers(value)}" for name, value in work.options.items())
    result = dx[0] if work.backward else y
    passes = [_Call("operation_pass", ("cpu", work.kind, attributes, code, which, len(x), len(tensors),
                                       extension.address(table)), result, (*tensors, table)) for which in (0, 1)]
    # A backward pass takes the output, too
    passes[0]()
    return passes[work.backward]


def _row(array: Array) -> list[int]:
    """Address, rank and extents of a tensor."""
    return [extension.address(array), array.ndim, *map(int, extent_of(array.shape))]


def _numbers(value: Sequence[float] | float) -> str:
    """
    >>> _numbers((1, 2)), _numbers(True)
    ('1,2', '1')
    """
    return ",".join(f"{one:g}" for one in (value if isinstance(value, Sequence) else (value,)))
