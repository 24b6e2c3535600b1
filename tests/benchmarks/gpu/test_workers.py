# SPDX-License-Identifier: MIT
"""``python -m benchmarks.gpu_bench``: processes, and what a worker measures."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.frameworks.gpu_step import LR
from benchmarks.frameworks.torch_gpu import autocast, set_precision
from benchmarks.frameworks.torch_module import module_of
from benchmarks.gpu import cells, runs
from benchmarks.gpu import worker as worker_module
from benchmarks.gpu.cells import PRETENDED, Cell
from benchmarks.gpu.worker import Worker, checked
from benchmarks.harness import data, processes
from benchmarks.harness.processes import LostError, Process, TimeUpError
from benchmarks.harness.roofline import H200
from benchmarks.harness.workloads import Net
from tests.helpers.networks.measured import CELL, GRAPH, Found


def child(source: str) -> Process:
    return Process(("-c", source), os.environ)


@pytest.mark.parametrize(("left", "error"), [(60.0, LostError), (0.3, TimeUpError)])
def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, left: float, error: type[Exception]) -> None:
    monkeypatch.setattr(processes, "START_SECONDS", 0.5)
    process, begin = child("import subprocess; subprocess.run(['sleep', '100'])"), time.monotonic()
    with pytest.raises(LostError) as raised:
        process.ask("build", 0.5, left)
    assert type(raised.value) is error and time.monotonic() - begin < 20


def test_a_process_that_ends_says_why_and_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    process = child("import os; input(); os.write(2, b'Illegal instruction'); os._exit(3)")
    for _ in range(2):
        with pytest.raises(LostError, match="status 3: Illegal instruction"):
            process.ask("build", 60.0)
    process.close()


def test_a_broken_process_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "import os; input(); print('{\"failed\": \"%d\", \"broken\": true}' % os.getpid(), flush=True); input()"
    process = child(source)
    process.start()
    assert not process.used
    first, second = (process.ask("build", 60.0) for _ in range(2))
    assert not process.used
    assert first["failed"] != second["failed"] and set(first) == {"failed"}
    process.close()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Of torch: threads that wait for each other on a busy machine take seconds for tiny images."""
    import torch

    number = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(number)


@pytest.mark.usefixtures("one_thread")
def test_the_step_is_large_enough_to_show_its_gradients() -> None:
    """Four updates move parameters by much more than float32 rounds them, and training does not diverge."""
    import torch

    net = Net(size=12)
    module = module_of(net)
    before = [one.detach().clone() for one in module.parameters()]
    x, t = (torch.from_numpy(one) for one in map(np.ascontiguousarray, _images(net)))
    optimizer = torch.optim.SGD(module.parameters(), lr=LR)
    losses: list[float] = []
    for _ in range(50):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(module(x), t)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if len(losses) == 4:
            moved = [float((one.detach() - old).norm() / old.norm())
                     for one, old in zip(module.parameters(), before, strict=True)]
    assert losses[-1] < losses[0] and min(moved) > 100 * 2**-24


def _images(net: Net) -> list[np.ndarray]:
    from benchmarks.frameworks.gpu_step import batch

    return [one.numpy() for one in batch(net, "cpu")]


class Slow:
    """A step of a millisecond on a clock of its own, which counts what is asked of it."""

    clock = 0.0

    def __init__(self, loss: float = 1.0) -> None:
        self.notes: Found = {}
        self.made, self.set, self._loss = 0, 0, loss

    def settings(self) -> None:
        self.set += 1

    def run(self) -> None:
        self.made += 1
        Slow.clock += 0.001

    def loss(self) -> float:
        return self._loss

    def parameters(self) -> list[np.ndarray]:
        return [part + self.made for pair in data.weights(CELL.net) for part in pair]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    """Without a GPU, whose contestants are slow."""
    monkeypatch.setattr(Worker, "_build", lambda self, task: Slow())
    monkeypatch.setattr(worker_module, "time", SimpleNamespace(perf_counter=lambda: Slow.clock))
    return Worker("cpu")


def test_a_run_is_seconds_of_one_step(worker: Worker) -> None:
    """What was not built is built; settings are made; one step before the clock starts; what may not stay goes."""
    task = runs.task(CELL, GRAPH)
    assert worker.answer({"do": "run", "task": task, "calls": 20, "keep": True})["seconds"] == pytest.approx(0.001)
    kept = worker._steps[GRAPH]
    before = kept.made
    worker.answer({"do": "run", "task": task, "calls": 20, "keep": False})
    assert (kept.made - before, kept.set) == (21, 2) and worker._steps == {}


def test_a_run_has_as_many_steps_as_it_needs(worker: Worker) -> None:
    found = worker.answer({"do": "build", "task": runs.task(CELL, GRAPH), "seconds": 0.05})
    assert found["calls"] >= 50 and found["seconds"] == pytest.approx(0.001)
    assert found["losses"] == [1.0] * 4
    for moved in found["moved"]:
        assert np.allclose(moved, 4.0)


@pytest.mark.parametrize("request_", [{"do": "nothing"}, {"do": "build", "task": runs.task(CELL, "nobody")}])
def test_a_workers_failure_is_an_answer(request_: Found) -> None:
    found = Worker("cpu").answer(request_)
    assert set(found) == {"failed"} and "Error: " in found["failed"]


def test_a_loss_that_is_no_number_fails() -> None:
    with pytest.raises(RuntimeError, match="losses"):
        checked(Slow(math.nan), CELL.net)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_a_precision_is_set_for_convolutions_and_products(precision: str) -> None:
    """float32 means float32, though cuDNN's TF32 is PyTorch's default."""
    import torch

    backends = torch.backends
    before = backends.cudnn.allow_tf32, backends.cuda.matmul.allow_tf32, backends.cudnn.benchmark
    try:
        set_precision(precision, benchmark=precision == "bf16")
        expected = precision == "tf32"
        assert (backends.cudnn.allow_tf32, backends.cuda.matmul.allow_tf32) == (expected, expected)
        assert backends.cudnn.benchmark == (precision == "bf16")
        with autocast(precision, "cpu"):
            one = torch.ones(1, 1, 3, 3)
            assert torch.nn.functional.conv2d(one, one).dtype == (
                torch.bfloat16 if precision == "bf16" else torch.float32)
    finally:
        backends.cudnn.allow_tf32, backends.cuda.matmul.allow_tf32, backends.cudnn.benchmark = before


def test_every_pixel_of_large_images_is_set() -> None:
    """Values repeat where an image has more pixels than were drawn, and no row is another's copy."""
    net = Net(size=1100, batch=1)
    x, t = _images(net)
    assert x.shape == (1, 1, 1100, 1100) and not np.array_equal(x, t)
    assert 0.99 < x.std() < 1.01 and len(np.unique(x[0, 0, :, 0])) > 900


def test_data_sheet() -> None:
    assert H200["bf16"].arithmetic > H200["tf32"].arithmetic > H200["fp32"].arithmetic > 1e13
    assert cells.too_large(Cell(4096, 8, "fp32"), 141 * 10**9) == ""
    assert PRETENDED.mission == (12, 2)
