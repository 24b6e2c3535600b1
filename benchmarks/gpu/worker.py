# SPDX-License-Identifier: MIT
"""The process of some frameworks on a GPU: ``python -m benchmarks.gpu.worker DEVICE``, which `.runs` starts.

Its requests, where a task is ``{"framework": name, "net": ..., "precision": ...}``:

``{"do": "facts"}``
    of the GPU and of what is installed
``{"do": "rates", "precisions": [...], "small": false}``
    bandwidth and arithmetic that this GPU reaches
``{"do": "build", "task": ..., "seconds": S}``
    make a step that is ready; run it a few times: losses, how far each parameter has moved, memory, and how many calls
    of it last S seconds
``{"do": "run", "task": ..., "calls": N, "keep": true}``
    seconds of one of N steps that are queued one after the other; what is not there is built first, what is not to be
    kept goes afterwards
``{"do": "driver", "task": ...}``
    bytes that the driver has handed out for a step, for which nothing else may be on the GPU
``{"do": "forget"}``
    everything that was built

What fails is answered with ``{"failed": reason}``, and ``"broken": true`` where this process is of no more use.
"""

from __future__ import annotations

import gc
import json
import math
import sys
import time
from typing import Any

import numpy as np
import torch

from benchmarks.frameworks.gpu import framework
from benchmarks.frameworks.gpu_step import Step
from benchmarks.frameworks.torch_gpu import OPTIMIZERS, TorchStep
from benchmarks.gpu import rates
from benchmarks.harness.worker import handle, main
from benchmarks.harness.workloads import Net

Answer = dict[str, Any]
#: Steps whose losses and updates are compared
CHECKED = 4
#: Queued steps in a run, at most
MOST_CALLS = 4096
WARM, TRIED = 3, 10


class Worker:
    """What is built, by framework.

    Parameters
    ----------
    device : "cuda:0", or "cpu" where nothing is a GPU
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self._steps: dict[str, Step] = {}
        # Of each task, the way to update that is faster here
        self._optimizers: dict[str, str] = {}

    def answer(self, request: dict[str, Any]) -> Answer:
        """One request; a failure is an answer, too."""
        try:
            if self._cuda and torch.cuda.is_available():
                # Not before the first request: a context takes memory, which another process may be measuring
                torch.cuda.set_device(self.device)
            return handle(self, request)
        except Exception as failure:  # whatever a library raises, the report says it and the others go on
            found = {"failed": f"{type(failure).__name__}: {' '.join(str(failure).split())[:600]}"}
        try:
            self._steps.pop(request.get("task", {}).get("framework", ""), None)
            self._clean()
        except Exception:  # an illegal access breaks all of CUDA in this process
            found["broken"] = True
        return found

    def do_facts(self) -> Answer:
        """See `rates.facts`."""
        return rates.facts(self.device)

    def do_rates(self, precisions: list[str], small: bool) -> Answer:
        """See `rates.measure`."""
        return rates.measure(self.device, precisions, small=small)

    def do_build(self, task: dict[str, Any], seconds: float) -> Answer:
        """Build, check, find out how many calls a run is."""
        name = task["framework"]
        self._steps.pop(name, None)
        self._choose(task)
        self._clean()
        before = torch.cuda.memory_allocated() if self._cuda else 0
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()
        step = self._build(task)
        found = checked(step, Net.of_dict(task["net"]))
        # Ours does not ask PyTorch for memory
        counted = self._cuda and not framework(name).ours
        allocated = torch.cuda.max_memory_allocated() - before if counted else None
        calls = self._calls(step, seconds)
        self._steps[name] = step
        return found | calls | {"notes": step.notes, "allocated": allocated}

    def do_run(self, task: dict[str, Any], calls: int, keep: bool) -> Answer:
        """A run."""
        name = task["framework"]
        if name not in self._steps:
            self._steps[name] = self._build(task)
            self._timed(self._steps[name], WARM)
        step = self._steps[name]
        step.settings()
        # Once without the clock: memory, caches and clocks are what the one before has left
        self._timed(step, 1)
        seconds = self._timed(step, calls)
        if not keep:
            del step, self._steps[name]
            self._clean()
        return {"seconds": seconds / calls}

    def do_driver(self, task: dict[str, Any]) -> Answer:
        """Memory from the driver's point of view: everything but the context itself, which is there before."""
        if not self._cuda:
            return {"driver": None}
        torch.zeros(1, device=self.device)
        torch.cuda.synchronize()
        before, _ = torch.cuda.mem_get_info()
        step = self._build(task)
        self._timed(step, CHECKED)
        after, _ = torch.cuda.mem_get_info()
        return {"driver": before - after}

    def do_forget(self) -> Answer:
        """Everything, with what torch.compile keeps for the shapes of the past."""
        self._steps.clear()
        if "torch._dynamo" in sys.modules:
            torch._dynamo.reset()
        self._clean()
        return {}

    @property
    def _cuda(self) -> bool:
        return self.device != "cpu"

    def _clean(self) -> None:
        gc.collect()
        if self._cuda:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()

    def _build(self, task: dict[str, Any]) -> Step:
        one, net, precision = framework(task["framework"]), Net.of_dict(task["net"]), task["precision"]
        if one.ours:
            from benchmarks.frameworks.bridge_gpu import OurStep

            return OurStep(net, precision, self.device, one.how)
        return TorchStep(net, precision, self.device, one.how, self._optimizers.get(json.dumps(task), "fused"))

    def _choose(self, task: dict[str, Any]) -> None:
        """Which of torch's two ways to update is faster; each is built, tried, and dropped.

        What is captured or compiled takes the one with fewer launches.
        """
        one, key, seconds = framework(task["framework"]), json.dumps(task), {}
        if one.ours or one.how["graph"] or one.how["compile"] or key in self._optimizers:
            return
        for kind in OPTIMIZERS:
            step = TorchStep(Net.of_dict(task["net"]), task["precision"], self.device, one.how, kind)
            self._timed(step, WARM)
            seconds[kind] = self._timed(step, TRIED)
            del step
        self._optimizers[key] = min(seconds, key=lambda kind: seconds[kind])

    def _timed(self, step: Step, calls: int) -> float:
        """Seconds of some steps, from an idle GPU to an idle GPU."""
        self._wait()
        begin = time.perf_counter()
        for _ in range(calls):
            step.run()
        self._wait()
        return time.perf_counter() - begin

    def _calls(self, step: Step, seconds: float) -> Answer:
        """How many last so long, and one's seconds."""
        calls, took = 1, self._timed(step, 1)
        while took < seconds and calls < MOST_CALLS:
            calls = min(MOST_CALLS, max(2 * calls, math.ceil(min(1.1 * seconds / took, 16.0) * calls)))
            took = self._timed(step, calls)
        return {"calls": calls, "seconds": took / calls}

    def _wait(self) -> None:
        """For everything that is queued."""
        if self._cuda:
            torch.cuda.synchronize()
        elif "bridge.engine.arrays.streams" in sys.modules:
            from bridge.engine.arrays import streams

            streams.wait("cuda")


def checked(step: Step, net: Net) -> Answer:
    """The losses of some steps, and by how much they have moved every parameter."""
    from benchmarks.harness import data

    before = [part for pair in data.weights(net) for part in pair]
    losses = []
    for _ in range(CHECKED):
        step.run()
        losses.append(step.loss())
    if not all(map(math.isfinite, losses)):
        raise RuntimeError(f"losses {losses}")
    moved = [new.astype(np.float64) - old for new, old in zip(step.parameters(), before, strict=True)]
    return {"losses": losses, "moved": [one.ravel().tolist() for one in moved]}


if __name__ == "__main__":
    sys.exit(main(lambda: Worker(sys.argv[1])))
