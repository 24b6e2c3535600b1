# SPDX-License-Identifier: MIT
"""A right program after 1,000 steps, with filters that are dead: what is remembered of these is subnormal.

Their gradients are 0 and their memory decays, to a few times the smallest number, where it stays: 3.6 of these are
rounded to 4. The last step is computed by ``cnn_step``, and its optimiser is PyTorch's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from bridge.engine.library.programs import run_cnn_step
from bridge.engine.network.network import Network
from bridge.exchange.model import Conv2d, Model, Relu
from bridge.exchange.optimizers import Adam, AdamW, Optimizer, Sgd
from bridge.validate.self_test.healthy import Healthy
from reference.errors import InputError

#: Steps before the one that is judged, and those before filters die
STEPS, ALIVE = 1000, 5
#: For sums over so many elements the rate is so many times smaller
SETTINGS: tuple[Optimizer, ...] = (
    Sgd(1e-4, 0.9), Sgd(1e-4, 0.9, weight_decay=1e-2, nesterov=True), Sgd(1e-4, 0.5, 0.1), Adam(1e-4),
    Adam(1e-3, 0.5, 0.9), AdamW(1e-4, weight_decay=1e-2))


def _dead(model: Model) -> Iterator[str]:
    """The convolutions with a bias that a ReLU follows."""
    for layer, after in zip(model.layers, model.layers[1:], strict=False):
        if isinstance(layer, Conv2d) and layer.bias and isinstance(after, Relu):
            yield layer.name


def take(fixture: Path, result: Path) -> None:
    """Put a fixture of a chain so many steps on, of an optimiser that its data decide, and take that step.

    Raises
    ------
    InputError
        If the training diverges.
    """
    with h5py.File(fixture) as file:
        x, target = (file[f"batches/0/{name}"][:1] for name in ("input", "target"))
    rng, net = np.random.default_rng(x.size + target.size), Network.from_file(fixture)
    settings = SETTINGS[int(rng.integers(len(SETTINGS)))]
    if not net.model.mean:
        settings = type(settings)(**vars(settings) | {"lr": settings.lr / target.size})
    for k in range(STEPS):
        for name in _dead(net.model) if k == ALIVE else ():
            net.parameters[f"{name}.bias"][0] = -100
        x, target = (rng.standard_normal(one.shape).astype(np.float32) for one in (x, target))
        if not np.isfinite(net.step(x, target, settings)):
            raise InputError("the training diverges")
    net.save(fixture, settings)
    with h5py.File(fixture, "r+") as file:
        file.attrs["role"], file["batches/0/input"], file["batches/0/target"] = "reference", x, target
    run_cnn_step(fixture, result)
    with h5py.File(fixture) as before, h5py.File(result, "r+") as after:
        for name in net.model.parameter_shapes():
            _update(settings, name, before["steps/0"], after)


def _update(settings: Optimizer, name: str, before: h5py.Group, result: h5py.File) -> None:
    """New weights and memory of a parameter in the result, by PyTorch."""
    w = torch.nn.Parameter(torch.from_numpy(before[f"weights/{name}"][()]))
    w.grad = torch.from_numpy(result[f"steps/0/grads/{name}"][()])
    memory = before[f"optimizer/{name}"]
    state: dict[str, Any] = {kind: torch.from_numpy(one[()]) for kind, one in memory.items()}
    if isinstance(settings, Adam):
        kind = torch.optim.AdamW if isinstance(settings, AdamW) else torch.optim.Adam
        optimizer: torch.optim.Optimizer = kind([w], settings.lr, (settings.beta1, settings.beta2), settings.eps,
                                                settings.weight_decay)
        optimizer.state[w] = state | {"step": torch.tensor(float(memory.attrs["updates"]))}
    else:
        optimizer = torch.optim.SGD([w], settings.lr, settings.momentum, settings.dampening, settings.weight_decay,
                                    settings.nesterov)
        optimizer.state[w] = {"momentum_buffer": state["momentum"]}
    optimizer.step()
    result[f"steps/1/weights/{name}"][...] = w.detach().numpy()
    found = optimizer.state[w]
    for kind in settings.memory:
        result[f"steps/1/optimizer/{name}/{kind}"] = found["momentum_buffer" if kind == "momentum" else kind].numpy()
    if "updates" in memory.attrs:
        result[f"steps/1/optimizer/{name}"].attrs["updates"] = memory.attrs["updates"] + 1


TRAINED = Healthy("after 1000 steps, with dead filters", take)
