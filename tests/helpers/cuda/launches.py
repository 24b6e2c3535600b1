# SPDX-License-Identifier: MIT
"""Some steps of a network on the strict software device: what each launches, and what comes out, to the bit.

``python -m tests.helpers.cuda.launches NETWORK DEVICE KEEP`` runs one in a process of its own, on the device
that ``CNN_CUDA_PATH`` names, and prints JSON; `Run` is that, read. KEEP is Python's: ``True`` or ``False``.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from bridge import DeviceArray, Network
from reference.model import ThreeLayerCNN
from tests.helpers.cuda.children import environment
from tests.helpers.real_networks import ImageClassifier, Resnet18, TwoLevelUnet
from tests.software_device import SoftwareDevice

#: What the host launches, by kind: functions of CUDA and cuDNN, each of which may launch several kernels of its own
KINDS = {"graphs": ("cudaGraphLaunch",), "kernels": ("cuLaunchKernel",), "cuDNN": ("cudnnBackendExecute",),
         "copies": ("cudaMemcpyAsync", "cudaMemsetAsync")}  # fmt: skip
#: The first is run call by call, the second captured, the third replayed
STEPS = 3


@dataclass(frozen=True)
class Case:
    """A network, the shapes of its input and its target, its loss."""

    module: Callable[[], nn.Module]
    input: tuple[int, ...]
    target: tuple[int, ...]
    loss: str = "mse"


#: By the names that docs/cuda.md has for them
CASES = {
    "default net": Case(ThreeLayerCNN, (2, 1, 12, 16), (2, 1, 12, 16)),
    "U-Net": Case(functools.partial(TwoLevelUnet, 16), (2, 1, 8, 12), (2, 1, 8, 12)),
    "ResNet-18": Case(functools.partial(Resnet18, 16), (2, 3, 32, 32), (2, 10), "cross_entropy"),
    "classifier": Case(ImageClassifier, (4, 1, 16, 16), (4, 5), "cross_entropy"),
    "classes": Case(ImageClassifier, (4, 1, 16, 16), (4, 5), "cross_entropy class_indices=1"),
}


@dataclass(frozen=True)
class Run:
    """What some steps were.

    Attributes
    ----------
    launches : of the last step, by kind, as in `KINDS`
    nodes : of the CUDA graph that it replayed; 0 where it did not
    captured : whether each step was the replay of a captured one
    waits : how often the host waited in the last step, whose loss nobody read
    losses : of each step
    digest : of all parameters and buffers after the last
    """

    launches: dict[str, int]
    nodes: int
    captured: list[bool]
    waits: int
    losses: list[float]
    digest: str


@functools.cache
def run(network: str, device: str, *, keep: bool = False) -> Run:
    """One of `CASES` in a process of its own.

    Raises
    ------
    AssertionError
        If it ends with an error, or the device complains.
    """
    command = [sys.executable, "-m", "tests.helpers.cuda.launches", network, device, str(keep)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300,
                          env=environment(STRICT_AT_EXIT="2"))
    assert (done.returncode, done.stderr) == (0, "")
    return Run(**json.loads(done.stdout))


def targets(case: Case, random: np.random.Generator) -> np.ndarray:
    """Of a regression random numbers, of a classification the probabilities 0 and 1."""
    if case.loss == "mse":
        return random.standard_normal(case.target, dtype=np.float32)
    return np.eye(case.target[1], dtype=np.float32)[random.integers(case.target[1], size=case.target[0])]


def main(network: str, device: str, keep: str) -> dict[str, Any]:
    """Make the steps, each on a batch of its own."""
    strict = SoftwareDevice(Path(os.environ["CNN_CUDA_PATH"]))
    case, random = CASES[network], np.random.default_rng(1)
    torch.manual_seed(1)
    net = Network.from_torch(case.module(), device=device, loss=case.loss, keep_activations=keep == "True",
                             example=(1, *case.input[1:]))
    net.masks.generator = np.random.default_rng(1)
    found: dict[str, Any] = {"captured": [], "losses": []}
    for _ in range(STEPS):
        x = DeviceArray.from_numpy(random.standard_normal(case.input, dtype=np.float32), "cuda")
        y = DeviceArray.from_numpy(targets(case, random), "cuda")
        names = [name for kind in KINDS.values() for name in kind]
        before = {name: strict.counter(name) for name in [*names, "host synchronisations", "nodes replayed"]}
        net.step(x, y, lr=0.125, momentum=0.5, read_loss=False)
        after = {name: strict.counter(name) - count for name, count in before.items()}
        found["captured"].append(net.captured)
        found["losses"].append(net.read_loss())
    found["launches"] = {kind: sum(after[name] for name in members) for kind, members in KINDS.items()}
    found |= {"nodes": after["nodes replayed"], "waits": after["host synchronisations"]}
    digest = hashlib.sha256()
    for one in (*net.parameters.values(), *net.buffers.values()):
        digest.update(one.numpy().tobytes())
    return found | {"digest": digest.hexdigest()}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
