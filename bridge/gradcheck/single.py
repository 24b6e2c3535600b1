# SPDX-License-Identifier: MIT
"""One operation or loss by itself: its gradients by central differences, and all that it computes by the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bridge.engine.network.passes import OperationPasses, loss_pass
from bridge.gradcheck.cases import LOSS_SHAPE, Setup, draw_loss
from bridge.gradcheck.check import gradcheck
from bridge.gradcheck.oracle import LossOracle, OperationOracle, ratios
from bridge.gradcheck.results import GradcheckReport
from bridge.gradcheck.settings import Settings
from bridge.operations.losses import loss_from

Array = np.ndarray


class OperationFunctions:
    """The passes of an operation as functions of numpy arrays (input, ..., parameter, ...).

    Parameters
    ----------
    case : the operation and its inputs
    settings : device, precision, and seed of all numbers

    Attributes
    ----------
    names : "input", or those of several, and the names of the parameters, in the order of the arguments
    arguments : the point
    """

    def __init__(self, case: Setup, settings: Settings) -> None:
        node, rng = case.node, settings.generator(case.title)
        self._passes, self._oracle = OperationPasses(node, settings.device), OperationOracle(node)
        shape = node.output_shape(*case.shapes)
        inputs = [case.draw(rng, one).astype(settings.dtype) for one in case.shapes]
        self._learned = {name: rng.standard_normal(one).astype(settings.dtype)
                         for name, one in node.parameter_shapes().items()}
        # A variance is positive
        self._fixed = {name: rng.uniform(0.5, 1.5, one).astype(settings.dtype)
                       for name, one in node.state_shapes().items()}
        if node.has_mask:
            self._fixed["mask"] = (rng.random(node.mask_shape(shape)) > 0.4).astype(settings.dtype)
        self.dy = rng.standard_normal(shape).astype(settings.dtype)
        self._count = len(inputs)
        self.names = [*(node.inputs or ("input",)), *self._learned]
        self.arguments = [*inputs, *self._learned.values()]

    def forward(self, *arguments: Array) -> Array:
        """Return the output."""
        return self._passes.forward(*self._given(arguments))

    def backward(self, dy: Array, *arguments: Array) -> tuple[Array, ...]:
        """Return the gradients with respect to all arguments."""
        dx, dw = self._passes.backward(dy, *self._given(arguments))
        return (*dx, *dw.values())

    def forward_bound(self, *arguments: Array) -> Array:
        """Return the oracle's bound on the rounding of each element of `forward`."""
        return self._oracle.forward(*self._given(arguments)).error

    def backward_bound(self, dy: Array, *arguments: Array) -> tuple[Array, ...]:
        """Return the same of `backward`."""
        return tuple(one.error for one in self._oracle.backward(dy, *self._given(arguments)))

    def beside_oracle(self) -> dict[str, float]:
        """Return T of the output and of every gradient at the point, for a random gradient of the output."""
        given = self._given(self.arguments)
        found = [self.forward(*self.arguments), *self.backward(self.dy, *self.arguments)]
        right = [self._oracle.forward(*given), *self._oracle.backward(self.dy, *given)]
        return dict(zip(("output", *self.names), ratios(found, right), strict=True))

    def _given(self, arguments: Sequence[Array]) -> tuple[list[Array], dict[str, Array]]:
        learned = dict(zip(self._learned, arguments[self._count:], strict=True))
        return list(arguments[:self._count]), learned | self._fixed


def check_operation(case: Setup, settings: Settings) -> GradcheckReport:
    """Check one case of an operation."""
    one = OperationFunctions(case, settings)

    def backward(dy: Array, *arguments: Array) -> tuple[Array | None, ...]:
        found = one.backward(dy, *arguments)
        return tuple(None if i in case.node.without_gradient else dx for i, dx in enumerate(found))

    report = gradcheck(one.forward, backward, one.arguments, names=one.names, title=case.title,
                       bounds=(one.forward_bound, one.backward_bound), **settings.counts)
    return replace(report, oracle=one.beside_oracle())


def check_loss(text: str, mean: bool, settings: Settings) -> GradcheckReport:
    """Check a loss, whose only gradient is that of the output."""
    loss = loss_from(text, mean)
    title = f"{text}, {loss.reduction}"
    output, target = (one.astype(settings.dtype) for one in draw_loss(text, settings.generator(title), LOSS_SHAPE))
    oracle = LossOracle(loss, target)

    def both(y: Array) -> tuple[float, Array]:
        return loss_pass(loss, y, target, settings.device)

    def backward(dy: Array, y: Array) -> Array:
        return (float(dy) * both(y)[1]).astype(y.dtype)

    def backward_bound(dy: Array, y: Array) -> Array:
        found = oracle.backward(y)
        # The product is rounded, too
        return abs(float(dy)) * (found.error * (1 + found.arithmetic.u) + found.arithmetic.u * np.abs(found.value))

    report = gradcheck(lambda y: both(y)[0], backward, [output], names=["output"], title=title,
                       bounds=(lambda y: oracle.forward(y).error, backward_bound), **settings.counts)
    t = ratios(map(np.asarray, both(output)), [oracle.forward(output), oracle.backward(output)])
    return replace(report, oracle=dict(zip(("loss", "output"), t, strict=True)))
