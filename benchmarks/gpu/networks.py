# SPDX-License-Identifier: MIT
"""``python -m benchmarks.gpu.networks``: training steps of a U-Net and of ResNet-18 on a GPU, ours beside PyTorch's.

Runs are interleaved in one process. Everybody begins with the same weights, and what their losses and updates are apart
from PyTorch's in float32 stands beside the times. The kernels of a step are those that PyTorch's profiler sees.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

import bridge
from benchmarks.frameworks.gpu import PRECISIONS
from benchmarks.frameworks.torch_gpu import BEFORE_CAPTURE, autocast, set_precision
from benchmarks.frameworks.torch_networks import network_of
from benchmarks.gpu.agreement import differences
from benchmarks.gpu.kernels import add_output, head, kernels
from benchmarks.harness import data
from benchmarks.harness.interleaved import interleaved
from benchmarks.harness.options import some_of
from benchmarks.harness.workloads import Training
from bridge.common.atomic_file import write_json
from bridge.common.cli import new_parser, run
from bridge.engine.arrays.transfer import to_host
from bridge.operations.losses import LOSSES

EPILOG = """
examples:
  python -m benchmarks.gpu.networks --output networks.json
  python -m benchmarks.gpu.networks --networks U-Net --precisions bf16 \\
      --frameworks "bridge,torch CUDA graph" --output networks.json

exit codes:
  0    measured, whatever was found, or there is no GPU
  2    bad usage
  130  interrupted"""
NETWORKS = {
    "U-Net": Training("U-Net", 32, (2, 1, 512, 512), (2, 1, 512, 512), "mse"),
    "ResNet-18": Training("ResNet-18", 64, (128, 3, 32, 32), (128, 10), "cross_entropy"),
}
#: Ours, by what is added to the device's text; PyTorch's, by whether the step is a CUDA graph and channels_last
OURS = {"bridge": "", "bridge deterministic=no": ",deterministic=no",
        "bridge all algorithms": ",deterministic=no,transforms=yes", "bridge capture=no": ",capture=no"}
TORCH = {"torch eager": (False, False), "torch CUDA graph": (True, False),
         "torch CUDA graph channels_last": (True, True)}
CHECKED, PROFILED, RUNS, RUN_SECONDS = 4, 3, 7, 0.05


class OurTraining:
    """Steps of `bridge.Network`, queued one after the other.

    Parameters
    ----------
    training, precision : what is trained
    options : added to the device's text
    """

    def __init__(self, training: Training, precision: str, options: str) -> None:
        self._stream = torch.cuda.Stream()
        with torch.cuda.stream(self._stream):
            self._network = bridge.Network.from_torch(
                network_of(training), loss=training.loss, keep_activations=False,
                device=f"cuda,math={precision},algorithm=measured{options}")
            self._batch = [torch.from_numpy(one).cuda() for one in data.training_batch(training)]
        self._stream.synchronize()

    def run(self) -> None:
        """Queue a step."""
        with torch.cuda.stream(self._stream):
            self._network.step(*self._batch, lr=data.LR, read_loss=False)

    def loss(self) -> float:
        """Of the last step."""
        with torch.cuda.stream(self._stream):
            return float(self._network.read_loss())

    def parameters(self) -> list[np.ndarray]:
        """On the host."""
        with torch.cuda.stream(self._stream):
            return [np.array(to_host(one)) for one in self._network.parameters.values()]

    @property
    def notes(self) -> dict[str, Any]:
        """Whether the last step was replayed."""
        return {"captured": self._network.captured}


class TorchTraining:
    """Steps of PyTorch with fused SGD and cudnn.benchmark; see `OurTraining`.

    Parameters
    ----------
    training, precision : what is trained
    graph : whether the step is a CUDA graph
    channels_last : the memory order
    """

    def __init__(self, training: Training, precision: str, graph: bool, channels_last: bool) -> None:
        self.notes: dict[str, Any] = {}
        layout = torch.channels_last if channels_last else torch.contiguous_format
        self._precision, self._criterion = precision, LOSSES[training.loss]().torch_forward
        self._module: nn.Module = network_of(training).cuda().to(memory_format=layout)
        self._batch = [torch.from_numpy(one).cuda() for one in data.training_batch(training)]
        self._batch = [one.contiguous(memory_format=layout) if one.ndim == 4 else one for one in self._batch]
        self._optimizer = torch.optim.SGD(self._module.parameters(), lr=data.LR, fused=True)
        self.run: Callable[[], None] = self._eager
        if graph:
            self._capture()

    def loss(self) -> float:
        """Of the last step."""
        return float(self._last)

    def parameters(self) -> list[np.ndarray]:
        """On the host."""
        return [one.detach().cpu().contiguous().numpy().copy() for one in self._module.parameters()]

    def _eager(self) -> None:
        set_precision(self._precision, benchmark=True)
        self._optimizer.zero_grad(set_to_none=True)
        with autocast(self._precision, "cuda"):
            loss = self._criterion(self._module(self._batch[0]), self._batch[1])
        self._last = loss.detach()
        loss.backward()
        self._optimizer.step()

    def _capture(self) -> None:
        kept = {name: one.detach().clone() for name, one in self._module.state_dict().items()}
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(BEFORE_CAPTURE):
                self._eager()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        self._optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self._eager()
        self._module.load_state_dict(kept)
        self.run = graph.replay


def measure(training: Training, precision: str, names: Sequence[str], reference: dict[str, Any]) -> dict[str, Any]:
    """Times, agreement with PyTorch in float32, and the kernels of a step, by name.

    Parameters
    ----------
    training, precision : what is trained
    names : of `OURS` and `TORCH`
    reference : of `checked`
    """
    found: dict[str, Any] = {}
    steps: dict[str, Any] = {}
    for name in names:
        try:
            steps[name] = OurTraining(training, precision, OURS[name]) if name in OURS else \
                TorchTraining(training, precision, *TORCH[name])
            loss, update = differences(checked(steps[name]), reference)
            found[name] = {"loss_difference": loss, "update_difference": update} | steps[name].notes
        except Exception as failure:  # what a library raises is a line of the report
            steps.pop(name, None)
            found[name] = {"failed": f"{type(failure).__name__}: {failure}"[:600]}
    for name, step in steps.items():
        found[name]["kernels"] = kernels(step.run, PROFILED)
    calls = {name: max(3, round(RUN_SECONDS / _seconds(step, 3))) for name, step in steps.items()}
    times = interleaved({name: lambda step=step, name=name: _seconds(step, calls[name])  # type: ignore[misc]
                         for name, step in steps.items()}, RUNS)
    for name, some in times.items():
        found[name]["ms"] = round(1000 * statistics.median(some), 4)
    steps.clear()
    gc.collect()
    torch.cuda.empty_cache()
    return found


def checked(step: Any) -> dict[str, Any]:
    """Losses of some steps, and how far each parameter has moved."""
    begin, losses = step.parameters(), []
    for _ in range(CHECKED):
        step.run()
        losses.append(step.loss())
    return {"losses": losses, "moved": [(new - old).ravel() for old, new in zip(begin, step.parameters(), strict=True)]}


def _seconds(step: Any, calls: int) -> float:
    """Of one of so many steps, from an idle GPU to an idle GPU."""
    step.run()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        step.run()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / calls


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write; without a GPU one line says so."""
    p = new_parser("benchmarks.gpu.networks", str(__doc__), EPILOG)
    p.add_argument("--networks", metavar="N,N,...", type=some_of(NETWORKS), default=list(NETWORKS),
                   help=f"some of {', '.join(NETWORKS)} (default: all)")
    p.add_argument("--precisions", metavar="P,P,...", type=some_of(PRECISIONS), default=list(PRECISIONS),
                   help=f"some of {', '.join(PRECISIONS)} (default: all)")
    p.add_argument("--frameworks", metavar="F,F,...", type=some_of([*OURS, *TORCH]), default=[*OURS, *TORCH],
                   help=f"some of {', '.join([*OURS, *TORCH])} (default: all)")
    add_output(p)
    a = p.parse_args(arguments)
    return run("gpu.networks", lambda: _main(a))


def _main(a: argparse.Namespace) -> int:
    document = head("gpu.networks", a)
    if not document:
        return 0
    document["cases"] = []
    for network in a.networks:
        reference = checked(TorchTraining(NETWORKS[network], "fp32", graph=False, channels_last=False))
        for precision in a.precisions:
            results = measure(NETWORKS[network], precision, a.frameworks, reference)
            document["cases"].append({"training": NETWORKS[network].as_dict(), "precision": precision,
                                      "results": results})
            found = {name: one.get("ms", one.get("failed")) for name, one in results.items()}
            print(network, precision, json.dumps(found), flush=True)
            write_json(a.output, document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
