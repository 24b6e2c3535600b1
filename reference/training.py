# SPDX-License-Identifier: MIT
"""One training step with every tensor shown, by plain autograd."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import nn

from reference.errors import InputError
from reference.losses import LossText
from reference.network.layers import INPUT, Layers, run
from reference.network.program import Aten

# Takes a tensor's name in the file ("forward/conv1") and the tensor, at the moment when it exists. It must
# not keep the tensor: at full size all of them together are gigabytes.
Sink = Callable[[str, torch.Tensor], None]


def run_step(layers: Layers, batch: torch.Tensor, target: torch.Tensor, reduction: str, sink: Sink,
             loss: str = "mse", *, of_input: bool = True) -> float:
    """Forward, loss and backward; the gradients stay in the layers' parameters, for the optimiser.

    Parameters
    ----------
    layers : list of (name, layer)
        Their gradients are overwritten, their weights are not touched.
    batch : float32 or float64, shape (n, c, h, w)
    target : same dtype, shape of the output
    reduction : "mean" or "sum"
    sink : callable
        Gets ``forward/<layer>``, ``state/<layer>/<buffer>`` of layers in training, ``loss``,
        ``grads/<layer>/output``, ``grads/<layer>/weight``, ``grads/<layer>/bias`` and ``grads/input``; gradients of
        frozen parameters too.
    loss : as `reference.losses` reads it
    of_input : bool
        Wants ``grads/input``. Else it is left out, unless a layer without parameters takes the input.

    Returns
    -------
    loss : float
    """
    for _, layer in layers:
        layer.zero_grad(set_to_none=True)
    of_input = of_input or any(INPUT in layers.inputs[name] and not any(True for _ in layer.parameters())
                               for name, layer in layers)
    start = batch.detach().clone().requires_grad_(of_input)
    with _all_gradients(layers):
        for (name, layer), (_, value) in zip(layers, run(layers, start), strict=True):
            sink(f"forward/{name}", value)
            if layer.training:
                for _, part, buffer in state([(name, layer)]):
                    sink(f"state/{name}/{part}", buffer.clone())
            # A hook, and not retain_grad(): the gradient is written and gone before the next one comes.
            value.register_hook(_shown(sink, f"grads/{name}/output"))  # type: ignore[no-untyped-call]
        total = LossText.read(loss).criterion(reduction, value.dtype)(value, target)
        del value
        sink("loss", total)
        total.backward()  # type: ignore[no-untyped-call]
    for name, part, parameter in parameters(layers):
        if parameter.grad is None:
            raise InputError(f"parameter '{name}.{part}' gets no gradient: whole numbers alone follow from it, or "
                             "nothing; expected one that is trained")
        sink(f"grads/{name}/{part}", parameter.grad)
    if of_input:
        # The loss has no derivative with respect to integers
        sink("grads/input", torch.zeros_like(start) if start.grad is None else start.grad)
    return total.item()


def state(layers: Iterable[tuple[str, nn.Module]]) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Yield layer's name, buffer's name, and the buffer, of all that layers keep and do not learn; counters excepted.
    """
    for name, layer in layers:
        for part, buffer in layer.named_buffers():
            if buffer.is_floating_point() or isinstance(layer, Aten):
                yield name, part, buffer


def parameters(layers: Layers) -> Iterator[tuple[str, str, nn.Parameter]]:
    """Yield layer's name, "weight" or "bias", and the parameter, for all that there are."""
    for name, layer in layers:
        for part, parameter in layer.named_parameters():
            yield name, part, parameter


@contextlib.contextmanager
def _all_gradients(layers: Layers) -> Iterator[None]:
    """Backward passes inside compute the gradients of frozen parameters too, so that a candidate's can be judged."""
    frozen = [parameter for *_, parameter in parameters(layers) if not parameter.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_()
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def un_reduced(name: str) -> bool:
    """Has the tensor of this name the size of images? Loss and parameter gradients are sums.

    >>> un_reduced("grads/conv1/output"), un_reduced("grads/conv1/weight"), un_reduced("loss")
    (True, False, False)
    """
    return name.startswith("forward/") or name.endswith("/output") or name == "grads/input"


def double_twin(layers: Layers) -> Layers:
    """Return copy of the layers in float64, with the same weights."""
    return layers.changed(lambda _, layer: copy.deepcopy(layer).double())


def _shown(sink: Sink, name: str) -> Callable[[torch.Tensor], None]:
    return lambda gradient: sink(name, gradient)
