# SPDX-License-Identifier: MIT
"""Networks and Python's threads: others run while a step computes, and a network is one thread's at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from bridge import EngineError, Network
from bridge.engine.library import extension
from bridge.exchange.model import Conv2d, Model, Relu

LAYERS = (Conv2d("a", 1, 16, (3, 3), padding=(1, 1)), Relu("b"), Conv2d("c", 16, 16, (3, 3), padding=(1, 1)), Relu("d"),
          Conv2d("e", 16, 1, (3, 3), padding=(1, 1)))


def network() -> Network:
    net, draw = Network(Model(LAYERS)), np.random.default_rng(1)
    for value in net.parameters.values():
        value[...] = draw.standard_normal(value.shape).astype(np.float32) / 8
    return net


def image(size: int) -> np.ndarray:
    return np.random.default_rng(2).standard_normal((2, 1, size, size)).astype(np.float32)


@contextmanager
def meanwhile(work: Callable[[], Any]) -> Iterator[None]:
    """Do it in another thread, again and again until the block is done."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.is_set():
            work()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_other_threads_run_during_a_step() -> None:
    """Many times in one call, which does not come back to Python in between."""
    net, x, counts = network(), image(256), list[int]()
    steps = 0

    def step() -> None:
        nonlocal steps
        net.step(x, x, lr=1e-3)
        steps += 1

    with meanwhile(step):
        while steps < 3:
            before, count = steps, 0
            while steps == before:
                count += 1
            counts.append(count)
    assert max(counts) > 1000


def test_two_networks_compute_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call begins while another is at work; each has its own numbers."""
    x, running, met = image(128), set[str](), threading.Event()
    call = extension.call

    def watched(name: str, *arguments: Any) -> Any:
        if name != "network_step":
            return call(name, *arguments)
        me = threading.current_thread().name
        running.add(me)
        if len(running) == 2:
            met.set()
        try:
            return call(name, *arguments)
        finally:
            running.discard(me)

    monkeypatch.setattr(extension, "call", watched)
    one, two, alone = network(), network(), network()
    steps = 0

    def step() -> None:
        nonlocal steps
        two.step(x, x, lr=1e-3)
        steps += 1

    mine = 0
    with meanwhile(step):
        while not met.is_set() or mine < 3:
            one.step(x, x, lr=1e-3)
            mine += 1
    for _ in range(mine):
        alone.step(x, x, lr=1e-3)
    assert all(one.parameters[name].tobytes() == alone.parameters[name].tobytes() for name in alone.parameters)
    for _ in range(steps - mine):
        alone.step(x, x, lr=1e-3)
    if steps >= mine:
        assert all(two.parameters[name].tobytes() == alone.parameters[name].tobytes() for name in alone.parameters)


def test_a_network_that_threads_share() -> None:
    """The second thread is refused, and the first one's numbers are right."""
    net, alone, x = network(), network(), image(128)
    taken, refused = [0, 0], list[str]()

    def step(thread: int) -> None:
        try:
            net.step(x, x, lr=1e-3)
            taken[thread] += 1
        except EngineError as error:
            refused.append(str(error))

    with meanwhile(lambda: step(0)):
        while not refused or sum(taken) < 3:
            step(1)
    assert set(refused) == {"step: another thread is at work on this network, expected one at a time (a lock of yours, "
                            "or a network for each)"}
    assert net.steps == sum(taken)
    for _ in range(sum(taken)):
        alone.step(x, x, lr=1e-3)
    assert all(net.parameters[name].tobytes() == alone.parameters[name].tobytes() for name in alone.parameters)
