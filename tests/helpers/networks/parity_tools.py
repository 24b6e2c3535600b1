# SPDX-License-Identifier: MIT
"""What the parity tests share: operations and networks of numpy arrays on any device."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

import bridge
from bridge.engine.arrays.transfer import to_device, to_host, with_numpy
from tests.helpers import graphs
from tests.helpers.cases import Array, Case

#: The software device is slow; a GPU takes images at which every algorithm has full tiles
LARGE = os.environ.get("CNN_TEST_CUDA") == "real"
GRADIENTS = ("dx", "dw", "db")


def sized(small: tuple[int, ...], large: tuple[int, ...]) -> tuple[int, ...]:
    """A shape for this run."""
    return large if LARGE else small


def convolution(case: Case, t: dict[str, Array], device: str) -> dict[str, Array]:
    """y, dx, dw, db by the library on `device`; no db without bias."""
    found = {"y": forward(case, t, device)} | backward(case, t, device)
    return {name: array for name, array in found.items() if case.bias or name != "db"}


def forward(case: Case, t: dict[str, Array], device: str, *, relu: bool = False) -> Array:
    """The library's y."""
    return with_numpy(bridge.conv2d, device)(t["x"], t["w"], t.get("b"), **case.settings, relu=relu)


def backward(case: Case, t: dict[str, Array], device: str, wanted: Iterable[str] = GRADIENTS) -> dict[str, Array]:
    """Those of the library's dx, dw, db that are wanted."""
    mask = tuple(name in set(wanted) for name in GRADIENTS)
    found = with_numpy(bridge.conv2d_backward, device)(t["dy"], t["x"], t["w"], **case.settings, output_mask=mask)
    return {name: array for name, array in zip(GRADIENTS, found, strict=True) if array is not None}


def on_host(net: bridge.Network) -> bridge.Network:
    """The same network with the same weights on the CPU, for what is computed from them."""
    return bridge.Network.from_torch(net.to_torch(), reduction="mean" if net.model.mean else "sum")


def loss_and_gradients(net: bridge.Network, x: Array, target: Array) -> tuple[float, dict[str, Array]]:
    """Forward, loss and backward, and what the network has then, by the names of `cases.torch_step`.

    With ``keep_activations="after_relu"`` the outputs of convolutions before a ReLU do not exist, and are left out.
    """
    net.forward(to_device(x, net.device))
    loss = net.loss(to_device(target, net.device))
    net.backward()
    found = {f"output/{one.name}": net.output(one.name) for one in net.model.layers if one.name not in fused(net)}
    found |= {f"gradient/{name}": net.output_gradient(name) for name in
              [*(one.name for one in net.model.layers), "input"]}
    return loss, {name: to_host(array).copy() for name, array in (found | dict(net.gradients)).items()}


def case_of(net: bridge.Network, x: Array, target: Array) -> graphs.Case:
    """A step of a network as it is now, for the oracle and for PyTorch."""
    kept = {name: to_host(array).copy() for name, array in (*net.parameters.items(), *net.buffers.items())}
    return graphs.Case(net.model.graph, net.model.criterion, {_slashed(name): one for name, one in kept.items()}, x,
                       target, net.dtype)


def step_tensors(net: bridge.Network, x: Array, target: Array) -> dict[str, Array]:
    """Forward, loss and backward of a network, and what it has then, by the names of a step in an exchange file."""
    loss, found = loss_and_gradients(net, x, target)
    names = {"output": "forward/{}", "gradient": "grads/{}/output"}
    tensors = {"loss": np.array(loss), "grads/input": found.pop("gradient/input")}
    for name, array in found.items():
        kind, _, layer = name.partition("/")
        tensors[names[kind].format(layer) if layer else f"grads/{_slashed(name)}"] = array
    for layer in net.model.layers:
        for name in layer.new_state_shapes():
            tensors[f"state/{layer.name}/{name}"] = to_host(net.buffers[f"{layer.name}.{name}"]).copy()
    return tensors


def _slashed(name: str) -> str:
    """``conv1/weight`` of torch's ``conv1.weight``."""
    return "/".join(name.rsplit(".", 1))


def fused(net: bridge.Network) -> set[str]:
    """Convolutions whose own outputs do not exist, because a ReLU was computed with them."""
    pairs = pairwise(net.model.layers) if net.keep_activations is not True else ()
    return {one.name for one, after in pairs if isinstance(one, bridge.Conv2d) and isinstance(after, bridge.Relu)}


def parameters(net: bridge.Network) -> dict[str, Array]:
    """Copies of the weights."""
    return {name: to_host(array).copy() for name, array in net.parameters.items()}
