# SPDX-License-Identifier: MIT
"""Our training step on a GPU: `bridge.Network`, steps queued one after the other."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch

import bridge
from benchmarks.frameworks.gpu import device_text
from benchmarks.frameworks.gpu_step import LR, batch
from benchmarks.frameworks.torch_module import module_of
from benchmarks.harness.workloads import Net
from bridge.engine.arrays.transfer import to_host


class OurStep:
    """See `benchmarks.frameworks.gpu_step.Step`.

    Parameters
    ----------
    net : what is trained
    precision : "fp32", "tf32" or "bf16"
    device : "cuda:0"; "cpu" where the libraries are a software device, whose arrays torch does not know
    how : of `benchmarks.frameworks.gpu`
    """

    def __init__(self, net: Net, precision: str, device: str, how: dict[str, Any]) -> None:
        number = torch.device(device).index or 0
        text = device_text(f"cuda:{number}", precision, how)
        self._waits = how["waits"]
        # A stream of its own: the default stream cannot be captured
        self._stream = None if device == "cpu" else torch.cuda.Stream(number)
        with self._working():
            self._network = bridge.Network.from_torch(module_of(net), device=text,
                                                             keep_activations=how["keep_activations"])
            x, t = batch(net, device)
            self._x, self._t = ((bridge.DeviceArray.from_numpy(one.numpy(), "cuda") for one in (x, t))
                                if device == "cpu" else (x, t))
        if self._stream is not None:
            self._stream.synchronize()
        self._last = 0.0
        self._how = {"device": text, "keep_activations": how["keep_activations"], "loss read": self._waits}

    @property
    def notes(self) -> dict[str, Any]:
        """How it is done; after some steps also whether they were replayed."""
        return self._how | {"captured": self._network.captured, "plan": self._network.plan(tuple(self._x.shape))}

    def settings(self) -> None:
        """There are none of the process."""

    def _working(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def run(self) -> None:
        """Queue one step; one that reads the loss waits."""
        with self._working():
            if self._waits:
                self._last = self._network.step(self._x, self._t, lr=LR)
            else:
                self._network.step(self._x, self._t, lr=LR, read_loss=False)

    def loss(self) -> float:
        """Of the last step."""
        with self._working():
            return self._last if self._waits else float(self._network.read_loss())

    def parameters(self) -> list[np.ndarray]:
        """On the host."""
        with self._working():
            return [np.array(to_host(one)) for one in self._network.parameters.values()]
