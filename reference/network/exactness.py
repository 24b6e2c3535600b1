# SPDX-License-Identifier: MIT
"""Proof that a training step rounds nothing, in whatever order its sums are taken.

All numbers of a tensor are integer multiples of its *quantum*, a power of two. A product's quantum is the
product of the quanta. A sum of such numbers, and every partial sum in every order, is exact in float32 if the
sum of absolute values is at most 2^24 quanta: the integers up to 2^24 are float32 numbers, and nothing here
comes near the smallest or largest exponents.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

import torch
from torch import nn

from reference.errors import InputError
from reference.network.layers import Layers
from reference.training import double_twin, parameters, run_step

# Integers up to here are float32 numbers.
LIMIT = 2.0**24


class ExactSteps:
    """Proves one step after the other; knows how fine the weights have become.

    Attributes
    ----------
    operand_bits : int
        Most bits that an operand of a product has had: up to 11 fit into TF32, up to 8 into bfloat16.
    """

    def __init__(self, layers: Layers) -> None:
        self.operand_bits = 0
        self._quanta = {f"{name}/{part}": 1.0 for name, part, _ in parameters(layers)}

    def prove(
        self, layers: Layers, batch: torch.Tensor, target: torch.Tensor, scale: float, lr: float
    ) -> dict[str, torch.Tensor]:
        """Compute a step in float64, and prove that float32 gives the same numbers.

        Parameters
        ----------
        layers : list of (name, layer)
            Weights are multiples of the quanta so far: of 1 in the first step. Not modified.
        batch, target : shape (n, c, h, w) and the output's, integers
        scale : power of two, factor of the sum of squares
        lr : power of two or 0, of plain SGD

        Returns
        -------
        tensors : dict of float64 tensors by their names in the file, without ``steps/<k>``

        Raises
        ------
        InputError
            If a sum may be rounded.
        """
        twin, exact = double_twin(layers), {}
        reduction = "sum" if scale == 1 else "mean"
        run_step(twin, batch.double(), target.double(), reduction, lambda n, t: exact.update({n: t.detach()}))
        inputs, quantum = self._forward(twin, batch.double(), exact)
        output = exact[f"forward/{twin[-1][0]}"]
        wanted = target.double()
        _check("the target", torch.maximum(output.abs(), wanted.abs()), quantum)
        _check("the loss", (output - wanted).square().sum(), quantum**2)
        self._backward(twin, inputs, exact, 2 * scale * quantum, lr)
        return exact

    def _forward(
        self, layers: Layers, value: torch.Tensor, exact: dict[str, torch.Tensor]
    ) -> tuple[dict[str, tuple[torch.Tensor, float]], float]:
        """Every convolution's input with its quantum, and the output's quantum."""
        inputs, quantum = {}, 1.0
        for name, layer in layers:
            if isinstance(layer, nn.Conv2d):
                inputs[name] = value, quantum
                self._operand(value, quantum)
                self._operand(layer.weight, self._quanta[f"{name}/weight"])
                quantum = min(
                    quantum * self._quanta[f"{name}/weight"], self._quanta.get(f"{name}/bias", math.inf)
                )
                with torch.no_grad():
                    _check(f"forward/{name}", _absolute(layer)(value.abs()), quantum)
            value = exact[f"forward/{name}"]
        return inputs, quantum

    def _backward(
        self,
        layers: Layers,
        inputs: dict[str, tuple[torch.Tensor, float]],
        exact: dict[str, torch.Tensor],
        quantum: float,
        lr: float,
    ) -> None:
        """`quantum` is that of the gradient with respect to the output."""
        for name, layer in reversed(layers):
            if not isinstance(layer, nn.Conv2d):
                continue
            upstream, (value, fine) = exact[f"grads/{name}/output"], inputs[name]
            self._operand(upstream, quantum)
            quanta = {"weight": fine * quantum, "bias": quantum}
            after = quantum * self._quanta[f"{name}/weight"]
            sums = _absolute_gradients(layer, value, upstream)
            _check(f"the input gradient of {name}", next(sums), after)
            for (part, parameter), absolute in zip(layer.named_parameters(), sums, strict=True):
                _check(f"grads/{name}/{part}", absolute, quanta[part])
                if parameter.requires_grad:
                    self._update(f"{name}/{part}", parameter.detach(), absolute, quanta[part], lr)
            quantum = after

    def _update(
        self, name: str, weight: torch.Tensor, gradient: torch.Tensor, quantum: float, lr: float
    ) -> None:
        if lr > 0:
            self._quanta[name] = min(self._quanta[name], lr * quantum)
            _check(f"the update of {name}", weight.abs() + lr * gradient, self._quanta[name])

    def _operand(self, tensor: torch.Tensor, quantum: float) -> None:
        largest = int(float(tensor.detach().abs().max()) / quantum)
        self.operand_bits = max(self.operand_bits, largest.bit_length())


def _absolute(layer: nn.Conv2d) -> nn.Conv2d:
    """The layer with absolute values of its weights."""
    found = copy.deepcopy(layer).requires_grad_()
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.abs_()
    return found


def _absolute_gradients(
    layer: nn.Conv2d, value: torch.Tensor, upstream: torch.Tensor
) -> Iterator[torch.Tensor]:
    """The sums of a convolution's backward pass in absolute values: of the input, the weight, the bias."""
    absolute, start = _absolute(layer), value.abs().requires_grad_()
    yield from torch.autograd.grad(absolute(start), [start, *absolute.parameters()], upstream.abs())


def _check(what: str, absolute: torch.Tensor, quantum: float) -> None:
    found = float(absolute.max()) / quantum
    if not found <= LIMIT:
        raise InputError(
            f"the probe would not be exact: {what} sums up to 2^{math.log2(found):.1f} units, 2^24 are exact in "
            "float32 (a smaller --size, --batch or --steps; without --lr the probe chooses one)"
        )
