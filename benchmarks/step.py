# SPDX-License-Identifier: MIT
"""``python -m benchmarks.step``: one SGD step of the default network, ours beside PyTorch's, in one run.

The two take turns, so that a busy machine is busy for both; medians and their ratio are printed, and written
with all versions to ``benchmarks/results/step.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from bridge import Network, engine
from reference.model import ThreeLayerCNN

LR = 2.0**-4
RESULTS = Path(__file__).resolve().parent / "results"


def contestants(size: int, batch: int) -> dict[str, Callable[[], object]]:
    """Everything that makes one step (forward, loss, backward, update) on the same data, by name."""
    generator = np.random.default_rng(0)
    x, t = (generator.standard_normal((batch, 1, size, size), dtype=np.float32) for _ in range(2))
    network = Network.from_torch(ThreeLayerCNN())
    found: dict[str, Callable[[], object]] = {"fortran cpu": lambda: network.step(x, t, lr=LR)}
    for name, layout in (("torch eager", torch.contiguous_format), ("torch channels_last", torch.channels_last)):
        module = ThreeLayerCNN().to(memory_format=layout)
        data = [torch.from_numpy(a).to(memory_format=layout) for a in (x, t)]
        found[name] = _torch_step(module, *data)
    return found


def _torch_step(module: torch.nn.Module, x: torch.Tensor, t: torch.Tensor) -> Callable[[], object]:
    optimizer = torch.optim.SGD(module.parameters(), lr=LR)
    leaf = x.clone().requires_grad_()

    def step() -> float:
        optimizer.zero_grad()
        leaf.grad = None
        loss = torch.nn.functional.mse_loss(module(leaf), t)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def measure(found: dict[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """Median seconds by name; one warm-up round, then `runs` rounds in turns."""
    times: dict[str, list[float]] = {name: [] for name in found}
    for round_ in range(runs + 1):
        for name, step in found.items():
            begin = time.perf_counter()
            step()
            if round_:
                times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values) for name, values in times.items()}


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write."""
    p = argparse.ArgumentParser(prog="python -m benchmarks.step", description=__doc__)
    p.add_argument("--size", type=int, default=1024)
    p.add_argument("--batch", type=int, default=2)
    p.add_argument("--runs", type=int, default=7)
    a = p.parse_args(arguments)
    medians = measure(contestants(a.size, a.batch), a.runs)
    own = medians["fortran cpu"]
    for name, seconds in medians.items():
        print(f"{name:20} {seconds * 1000:9.1f} ms   {seconds / own:5.2f} x the time of fortran cpu")
    document = {
        "size": a.size, "batch": a.batch, "runs": a.runs, "median_seconds": medians,
        "ratio_to_fortran_cpu": {name: seconds / own for name, seconds in medians.items()},
        "versions": {"bridge": engine.fortran_version(), "torch": torch.__version__, "numpy": np.__version__,
                     "python": platform.python_version()},
        "threads": {"torch": torch.get_num_threads(), "cpus": os.cpu_count()}, "machine": platform.machine(),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "step.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
