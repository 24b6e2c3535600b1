# SPDX-License-Identifier: MIT
"""One training step with every tensor shown, by plain autograd."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional

from reference.chain import Layers
from reference.settings import ExportSettings

# Takes a tensor's name in the file ("forward/conv1") and the tensor, at the moment when it exists. It must
# not keep the tensor: at full size all of them together are gigabytes.
Sink = Callable[[str, torch.Tensor], None]


def run_step(layers: Layers, batch: torch.Tensor, target: torch.Tensor, reduction: str, sink: Sink) -> float:
    """Forward, loss and backward; the gradients stay in the layers' parameters, for the optimiser.

    Parameters
    ----------
    layers : list of (name, layer)
        Their gradients are overwritten, their weights are not touched.
    batch : float32 or float64, shape (n, c, h, w)
    target : same dtype, shape of the output
    reduction : "mean" or "sum"
    sink : callable
        Gets ``forward/<layer>``, ``loss``, ``grads/<layer>/output``, ``grads/<layer>/weight``,
        ``grads/<layer>/bias`` and ``grads/input``.

    Returns
    -------
    loss : float
    """
    for _, layer in layers:
        layer.zero_grad(set_to_none=True)
    start = batch.detach().clone().requires_grad_()
    value = start
    for name, layer in layers:
        value = layer(value)
        sink(f"forward/{name}", value)
        # A hook, and not retain_grad(): the gradient is written and gone before the next one comes.
        value.register_hook(_shown(sink, f"grads/{name}/output"))
    loss = functional.mse_loss(value, target, reduction=reduction)
    del value
    sink("loss", loss)
    loss.backward()
    for name, part, parameter in parameters(layers):
        sink(f"grads/{name}/{part}", parameter.grad)
    sink("grads/input", start.grad)
    return loss.item()


def parameters(layers: Layers) -> Iterator[tuple[str, str, nn.Parameter]]:
    """Layer's name, "weight" or "bias", and the parameter, for all that there are."""
    for name, layer in layers:
        for part, parameter in layer.named_parameters():
            yield name, part, parameter


def double_twin(layers: Layers) -> Layers:
    """Copy of the layers in float64, with the same weights."""
    return [(name, copy.deepcopy(layer).double()) for name, layer in layers]


def make_optimizer(layers: Layers, settings: ExportSettings) -> torch.optim.SGD:
    """torch's SGD over all parameters."""
    return torch.optim.SGD(
        [p for _, _, p in parameters(layers)],
        lr=settings.lr,
        momentum=settings.momentum,
        dampening=settings.dampening,
        weight_decay=settings.weight_decay,
        nesterov=settings.nesterov,
    )


def _shown(sink: Sink, name: str) -> Callable[[torch.Tensor], None]:
    return lambda gradient: sink(name, gradient)
