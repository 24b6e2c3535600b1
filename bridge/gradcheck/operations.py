# SPDX-License-Identifier: MIT
"""Every differentiable operation, loss and function of the package, and how its gradient is checked.

An operation or a loss needs a case in `bridge.gradcheck.cases`, a function with a ``_backward`` partner a row here. A
test compares this with what the package offers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bridge.common.errors import ArgumentError
from bridge.engine.arrays.transfer import with_numpy
from bridge.engine.network.functional import conv2d, conv2d_backward
from bridge.engine.network.functional_spline import spline, spline_backward
from bridge.engine.network.network import Network
from bridge.exchange.file import ExchangeFile
from bridge.exchange.model import Conv2d, Model, Relu
from bridge.gradcheck.cases import CASES, LOSS_CASES
from bridge.gradcheck.check import gradcheck
from bridge.gradcheck.networks import NetworkFunctions
from bridge.gradcheck.results import GradcheckReport
from bridge.gradcheck.settings import Settings
from bridge.gradcheck.single import check_loss, check_operation

Array = np.ndarray


@dataclass(frozen=True)
class Check:
    """What it is of, and how it is done."""

    about: str
    run: Callable[[Settings], list[GradcheckReport]]


#: Input, weight and settings of the convolutions to check; no two dimensions alike, so that no permutation survives
CONVOLUTIONS: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 3, 7, 6), (4, 3, 3, 2), {"padding": (1, 0)}),
    ((2, 3, 9, 8), (5, 3, 2, 3), {"stride": (3, 2), "padding": (1, 2)}),
    ((1, 2, 9, 10), (3, 2, 3, 2), {"dilation": (2, 3), "padding": (0, 1)}),
    ((2, 6, 5, 7), (9, 2, 2, 3), {"stride": (1, 2), "padding": 1, "groups": 3}),
)


def check_conv2d(settings: Settings) -> list[GradcheckReport]:
    """Check the convolution, linear in each argument: by steps of the size of the numbers, exact but for rounding."""
    return [_convolution(settings, x, w, given) for x, w, given in CONVOLUTIONS]


def _convolution(settings: Settings, x: tuple[int, ...], w: tuple[int, ...],
                 given: dict[str, Any]) -> GradcheckReport:
    device = settings.device

    def forward(x: Array, w: Array, b: Array) -> Array:
        return with_numpy(conv2d, device)(x, w, b, **given)

    def backward(dy: Array, x: Array, w: Array, b: Array) -> tuple[Array | None, ...]:
        return with_numpy(conv2d_backward, device)(dy, x, w, **given)

    names = ["input", "weight", "bias"]
    inputs = [settings.random(name, shape) for name, shape in zip(names, (x, w, w[:1]), strict=True)]
    words = ", ".join(f"{key} {value}" for key, value in given.items())
    return gradcheck(forward, backward, inputs, names=names, linear=True, title=f"bridge.conv2d, {words}",
                     **settings.counts)


#: Degrees of splines, with scales and without, and whether what is checked is a row or several
SPLINES: tuple[tuple[int, bool, tuple[int, ...]], ...] = (
    (2, True, (1, 3)), (3, False, (6, 3)), (4, True, (2, 4, 3)), (5, True, (2, 2, 3, 3)))


def check_spline(settings: Settings) -> list[GradcheckReport]:
    """Check the KAN layer: input, coefficients and scales; inputs beyond the grid, and beyond all knots, too."""
    return [_spline(settings, order, scaled, shape) for order, scaled, shape in SPLINES]


def _spline(settings: Settings, order: int, scaled: bool, shape: tuple[int, ...]) -> GradcheckReport:
    given: dict[str, Any] = {"order": order, "low": -0.75, "high": 1.25}

    def forward(*inputs: Array) -> Array:
        return with_numpy(spline, settings.device)(*inputs, **given)

    def backward(dy: Array, *inputs: Array) -> tuple[Array | None, ...]:
        return with_numpy(spline_backward, settings.device)(dy, *inputs, **given)[: len(inputs)]

    names = ["input", "coefficient", "scale_base", "scale_spline"][: 3 + scaled]
    shapes = [shape, (4, 3, 6 + order), (4, 3), (4, 3)]
    inputs = [settings.random(name, one) for name, one in zip(names, shapes, strict=False)]
    return gradcheck(forward, backward, inputs, names=names, title=f"bridge.spline, order {order}", **settings.counts)


def check_step(settings: Settings) -> list[GradcheckReport]:
    """Check a small network as a whole: forward, loss, backward; all parameters and the input."""
    layers = (Conv2d("conv1", 1, 3, (3, 2), padding=(1, 1)), Relu("relu1"),
              Conv2d("conv2", 3, 4, (2, 3), stride=(2, 1)), Relu("relu2"), Conv2d("conv3", 4, 2, (1, 2)))
    model, shape = Model(layers), (2, 1, 8, 9)
    network = Network(model, settings.dtype, settings.device)
    for name, array in network.parameters.items():
        # Of a size that keeps outputs near 1
        array[...] = settings.random(name, array.shape) / np.sqrt(math.prod(array.shape[1:]))
    target = settings.random("target", model.output_shapes(shape)[-1])
    return [_functions_check(NetworkFunctions(network, target), settings.random("input", shape), "network", settings)]


def _functions_check(functions: NetworkFunctions, x: Array, title: str, settings: Settings) -> GradcheckReport:
    return gradcheck(functions.forward, functions.backward, functions.inputs(x), names=functions.names,
                     kinks=functions.kinks, title=title, **settings.counts)


def check_fixture(path: str, settings: Settings) -> GradcheckReport:
    """Check the network of an exchange file on its first batch, as a whole.

    Raises
    ------
    FileError, EngineError
        If the file has no model, weights or batch, or does not fit itself.
    """
    network = Network.from_file(path, dtype=settings.dtype, device=settings.device)
    name = {part: f"batches/0/{part}" for part in ("input", "target")}
    with ExchangeFile(path) as file:
        shape = file.shape(name["input"])
        if len(shape) != 4:
            raise ArgumentError(f"{path}: {name['input']} has the shape {shape}, expected (n, c, h, w)")
        x = file.read(name["input"], shape).astype(settings.dtype)
        target = file.read(name["target"], network.model.output_shapes(x.shape)[-1]).astype(settings.dtype)
    return _functions_check(NetworkFunctions(network, target), x, path, settings)


def _of_operation(kind: str) -> Check:
    names = dict.fromkeys(name for case in CASES[kind]
                          for name in (*(case.node.inputs or ("input",)), *case.node.parameter_shapes()))
    return Check(", ".join(names), lambda settings: [check_operation(case, settings) for case in CASES[kind]])


def _of_loss(kind: str) -> Check:
    return Check("output", lambda settings: [check_loss(text, mean, settings) for text in LOSS_CASES[kind]
                                             for mean in (True, False)])


#: By name: operations and losses by their types in an exchange file, functions of this package, and a network
CHECKS: dict[str, Check] = {
    **{kind: _of_operation(kind) for kind in CASES},
    **{kind: _of_loss(kind) for kind in LOSS_CASES},
    "bridge.conv2d": Check("input, weight, bias of the function: stride, padding, dilation, groups", check_conv2d),
    "bridge.spline": Check("input, coefficient, scale_base, scale_spline of the function: degrees 2 to 5",
                           check_spline),
    "network": Check("forward, loss and backward of three convolutions: input, all parameters", check_step),
}
