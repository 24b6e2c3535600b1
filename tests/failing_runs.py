# SPDX-License-Identifier: MIT
"""Let calls of CUDA functions fail in turn, in a process of its own, and say what came of it, as JSON.

``python failing_runs.py RUN DEVICE FIXTURE FOLDER FUNCTION...``, with ``CNN_CUDA_PATH`` naming a strict software
device. Of each function, the first two calls, one in the middle, and the last fail; all of cudaMalloc. What is right
is for test_cuda_failures.py to say.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import h5py
import numpy as np
from software_device import SoftwareDevice

from bridge import DeviceArray, EngineError, Network, engine

#: Statuses that these functions give; 4000, an internal error, for those of cuDNN and 13, a failed launch, of cuBLAS
STATUSES = {"cudaMalloc": 2, "cudaMallocHost": 2, "cudaLibraryLoadData": 218}


def status_of(function: str) -> int:
    """A status that is an error, and does not stay as that of a broken context would."""
    if function.startswith("cudnn"):
        return 4000
    return 13 if function.startswith("cublas") else STATUSES.get(function, 999)


@dataclass
class Attempt:
    """What happened when the `call`-th call of `function` failed."""

    function: str
    call: int
    calls: int
    #: The message; None when the run went through
    error: str | None
    #: A run that went through gave the right bits
    right: bool
    #: Files that a failed run left
    left: list[str]
    #: The next run, on the same device, gave the right bits
    recovered: bool
    #: What the device reported after it was closed
    report: str


def file_run(device: str, fixture: Path, folder: Path) -> str:
    """The steps of the fixture; a digest of the result."""
    result = folder / "result.h5"
    try:
        engine.run_file(fixture, result, device)
        return digest(result)
    finally:
        result.unlink(missing_ok=True)


def digest(result: Path) -> str:
    """Of every tensor of an exchange file."""
    found = hashlib.sha256()

    def add(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind == "f":
            found.update(name.encode() + item[()].tobytes())

    with h5py.File(result) as file:
        file.visititems(add)
    return found.hexdigest()


def lean_run(device: str, fixture: Path, folder: Path) -> str:
    """`step_run` of a lean network."""
    return step_run(device, fixture, folder, lean=True)


def step_run(device: str, fixture: Path, folder: Path, *, lean: bool = False) -> str:
    """Steps of a network whose ReLUs are in its convolutions, from Python; a digest of weights and losses."""
    net = Network.from_file(fixture, device=device, fuse=True, lean=lean)
    shape = (2, 1, 6, 7)
    x, target = (DeviceArray.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), device)
                 for seed in (1, 2))
    found = hashlib.sha256()
    for _ in range(4):
        found.update(repr(net.step(x, target, lr=0.5, momentum=0.9, nesterov=True)).encode())
    for array in net.parameters.values():
        found.update(array.numpy().tobytes())
    return found.hexdigest()


def fed_run(device: str, fixture: Path, folder: Path) -> str:
    """Steps on batches from the host, whose losses nobody reads, of growing size; a digest of the weights."""
    net = Network.from_file(fixture, device=device, lean=True)
    for i in range(6):
        shape = (2, 1, 6, 7 + i//4)
        net.feed(*(np.random.default_rng(seed).standard_normal(shape).astype(np.float32) for seed in (i, i + 10)))
        net.step(lr=0.5, momentum=0.9, read_loss=False)
    found = hashlib.sha256()
    for array in net.parameters.values():
        found.update(array.numpy().tobytes())
    return found.hexdigest()


RUNS: dict[str, Callable[[str, Path, Path], str]] = {"file": file_run, "step": step_run, "lean step": lean_run,
                                                     "fed step": fed_run}


def attempts(strict: SoftwareDevice, functions: list[str], run: Callable[[], str], folder: Path) -> list[Attempt]:
    """Several of every function; the device is opened anew for each."""
    right = run()
    engine.close_devices()
    before = {name: strict.counter(name) for name in functions}
    assert run() == right
    engine.close_devices()
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
            attempt(lambda: engine.close_devices() or "")
            found.append(Attempt(name, call, calls[name], error, result == right, left, again == right,
                                 strict.report()))
            strict.forget()
    return found


def attempt(run: Callable[[], str]) -> tuple[str | None, str | None]:
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
    found = attempts(strict, list(functions), lambda: RUNS[run](device, Path(fixture), work), work)
    sys.stdout.write(json.dumps([asdict(one) for one in found]))


if __name__ == "__main__":
    main(*sys.argv[1:])
