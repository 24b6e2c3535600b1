# SPDX-License-Identifier: MIT
"""The current device of each thread on the software device, and the context that is current to it, or is not."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_int, c_void_p
from typing import TypeVar

import pytest

from tests.software_device.calls import Calls
from tests.software_device.convolutions import CASES
from tests.software_device.patterns import PLAIN, Pattern

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep

T = TypeVar("T")
INVALID_CONTEXT = 201


@pytest.fixture(autouse=True)
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRICT_DEVICES", "2")


def in_a_thread(work: Callable[[], T]) -> T:
    """What it gives, in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def device_now(cuda: Calls) -> int:
    index = c_int(-1)
    cuda.ok("cudaGetDevice", byref(index))
    return index.value


def test_a_thread_has_a_device_of_its_own(cuda: Calls) -> None:
    """The first one, until it chooses another."""
    def work() -> tuple[int, int]:
        before = device_now(cuda)
        cuda.ok("cudaSetDevice", 1)
        return before, device_now(cuda)

    assert in_a_thread(work) == (0, 1) and device_now(cuda) == 0 and in_a_thread(lambda: device_now(cuda)) == 0


def test_a_pushed_context_is_taken_off_again(cuda: Calls) -> None:
    """It is there for its thread alone, and what was before comes back; a context is made once for a device."""
    cuda.ok("cuInit", 0)
    context, made = cuda.make("cuDevicePrimaryCtxRetain", 1), cuda.counter("contexts made")
    cuda.ok("cuCtxPushCurrent_v2", context)
    assert device_now(cuda) == 1 and in_a_thread(lambda: device_now(cuda)) == 0
    assert "1 contexts pushed and never popped" in cuda.report() and "1 contexts retained" in cuda.report()
    cuda.ok("cuCtxPopCurrent_v2", byref(c_void_p()))
    cuda.ok("cuDevicePrimaryCtxRelease_v2", 1)
    assert device_now(cuda) == 0 and cuda.counter("contexts made") == made and "contexts" not in cuda.report()


@pytest.mark.parametrize(("name", "argument", "complaint"), [
    ("cuCtxPopCurrent_v2", None, "nothing was pushed by this thread"),
    ("cuCtxPushCurrent_v2", None, "this is no context"), ("cuCtxPushCurrent_v2", c_void_p(64), "this is no context"),
    ("cuDevicePrimaryCtxRelease_v2", 1, "more often than it was retained")])
def test_contexts_are_checked(cuda: Calls, name: str, argument: object, complaint: str) -> None:
    cuda.ok("cuInit", 0)
    assert cuda.status(name, argument) == INVALID_CONTEXT and complaint in cuda.report()
    for device in (-1, 2):
        assert cuda.status("cuDevicePrimaryCtxRetain", byref(c_void_p()), device) == 101


@pytest.mark.parametrize(("name", "argument"), [("cudaSetDevice", 0), ("cudaFree", None)])
def test_a_plan_wants_a_context(cuda: Calls, name: str, argument: object) -> None:
    """Of the thread that makes it: to ask for the current device is not enough, nor is a call that needs no device."""
    pattern = Pattern(cuda, "forward", CASES[0])
    engine = pattern.engines()[PLAIN]

    def status() -> tuple[int, int]:
        device_now(cuda)
        without = pattern.g.finalize(pattern.g.plan(engine, handle=cuda.handle))
        cuda.ok(name, argument)
        return without, pattern.g.finalize(pattern.g.plan(engine, handle=cuda.handle))

    without, later = in_a_thread(status)
    assert without == 4000 and "no context is current to this thread" in cuda.report()
    assert (later == 0) == (name == "cudaSetDevice")
    pattern.g.destroy()
