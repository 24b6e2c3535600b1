# SPDX-License-Identifier: MIT
"""Let calls of CUDA functions fail in turn, in a process of its own, and say what came of it, as JSON.

``python -m tests.helpers.cuda.failing_runs RUN DEVICE FIXTURE FOLDER FUNCTION...``, with ``CNN_CUDA_PATH`` naming a
strict software device. Of each function, the first two calls, one in the middle, and the last fail; all of cudaMalloc.
What is right is for cuda/test_failures.py to say.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bridge import DeviceArray, EngineError, Network
from bridge.engine.library import extension
from tests.software_device import SoftwareDevice

#: Statuses that these functions give; 4000, an internal error, for those of cuDNN
STATUSES = {"cudaMalloc": 2, "cudaMallocHost": 2, "cuModuleLoadData": 218}


def status_of(function: str) -> int:
    """A status that is an error, and does not stay as that of a broken context would."""
    return 4000 if function.startswith("cudnn") else STATUSES.get(function, 999)


@dataclass
class Attempt:
    """What happened when the `call`-th call of `function` failed."""

    function: str
    call: int
    calls: int
    #: The message; None when the run went through
    error: str | None
    #: A run that went through gave the right bits; or numbers close to them, as by another algorithm
    right: bool
    close: bool
    #: Files that a failed run left
    left: list[str]
    #: The next run, on the same device, gave the right bits; or numbers close to them
    recovered: bool
    recovered_close: bool
    #: What the device reported after it was closed
    report: str


def file_run(device: str, fixture: Path, folder: Path) -> np.ndarray:
    """The steps of the fixture; all of the result."""
    result = folder / "result.h5"
    try:
        extension.run_file(fixture, result, device)
        return numbers_of(result)
    finally:
        result.unlink(missing_ok=True)


def numbers_of(result: Path) -> np.ndarray:
    """Of every tensor of an exchange file."""
    found: list[np.ndarray] = []

    def add(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind == "f":
            found.append(item[()])

    with h5py.File(result) as file:
        file.visititems(add)
    return joined(found)


def joined(arrays: Iterable[Any]) -> np.ndarray:
    """All numbers, in which float32 keeps its bits."""
    return np.concatenate([np.asarray(one, np.float64).ravel() for one in arrays])


def memory_efficient_run(device: str, fixture: Path, folder: Path) -> np.ndarray:
    """`step_run` of a memory-efficient network."""
    return step_run(device, fixture, folder, keep=False)


def step_run(device: str, fixture: Path, folder: Path, *, keep: bool | str = "after_relu") -> np.ndarray:
    """Steps of a network whose ReLUs are in its convolutions, from Python; losses and weights."""
    net = Network.from_file(fixture, device=device, keep_activations=keep)
    shape = (2, 1, 6, 7)
    x, target = (DeviceArray.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), device)
                 for seed in (1, 2))
    losses = [net.step(x, target, lr=0.02, momentum=0.9, nesterov=True) for _ in range(4)]
    return joined([losses, *(array.numpy() for array in net.parameters.values())])


def fed_run(device: str, fixture: Path, folder: Path) -> np.ndarray:
    """Steps on batches from the host, whose losses nobody reads, of growing size; the weights."""
    net = Network.from_file(fixture, device=device, keep_activations=False)
    for i in range(6):
        shape = (2, 1, 6, 7 + i//4)
        net.feed(*(np.random.default_rng(seed).standard_normal(shape).astype(np.float32) for seed in (i, i + 10)))
        net.step(lr=0.5, momentum=0.9, read_loss=False)
    return joined(array.numpy() for array in net.parameters.values())


RUNS: dict[str, Callable[[str, Path, Path], np.ndarray]] = {
    "file": file_run, "step": step_run, "memory-efficient step": memory_efficient_run, "fed step": fed_run}


def attempts(strict: SoftwareDevice, functions: list[str], run: Callable[[], np.ndarray], folder: Path,
             tolerance: float) -> list[Attempt]:
    """Several of every function; the device is opened anew for each."""
    def close(found: np.ndarray | None) -> bool:
        return found is not None and np.allclose(found, right, rtol=tolerance, atol=tolerance)

    right = run()
    extension.close_devices()
    before = {name: strict.counter(name) for name in functions}
    assert np.array_equal(run(), right)
    extension.close_devices()
    calls = {name: strict.counter(name) - before[name] for name in functions}
    found = []
    for name in functions:
        every = range(1, calls[name] + 1)
        for call in every if name == "cudaMalloc" else sorted({1, 2, calls[name] // 2, calls[name]} & set(every)):
            strict.fail(name, status_of(name), call=call)
            result, error = attempt(run)
            strict.fail_no_more()
            left = sorted(os.listdir(folder))
            again, _ = attempt(run)
            attempt(extension.close_devices)
            found.append(Attempt(name, call, calls[name], error, np.array_equal(result, right), close(result), left,
                                 np.array_equal(again, right), close(again), strict.report()))
            strict.forget()
    return found


def attempt(run: Callable[[], Any]) -> tuple[Any, str | None]:
    """What it gave, or the message of its error."""
    try:
        return run(), None
    except EngineError as error:
        return None, str(error)
    finally:
        gc.collect()


def main(run: str, device: str, fixture: str, folder: str, *functions: str) -> None:
    """Print all attempts."""
    strict, work = SoftwareDevice(Path(os.environ["CNN_CUDA_PATH"])), Path(folder)
    tolerance = 2e-3 if "bf16" in device else 1e-5
    found = attempts(strict, list(functions), lambda: RUNS[run](device, Path(fixture), work), work, tolerance)
    sys.stdout.write(json.dumps([asdict(one) for one in found]))


if __name__ == "__main__":
    main(*sys.argv[1:])
