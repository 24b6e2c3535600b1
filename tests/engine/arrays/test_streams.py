# SPDX-License-Identifier: MIT
"""On which CUDA stream work is queued, and that it comes before and after what others queue."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bridge
from bridge import DeviceArray
from tests.helpers.arrays.foreign_doubles import Capsules, CupyArray, Interface, TorchTensor, put_cupy, put_torch
from tests.helpers.cases import batch
from tests.helpers.cuda.arrays import CASE, new_stream, on_device, read, recorded, wait_for, zero_on


def test_work_goes_to_the_callers_stream(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current stream of torch and cupy, the one that is named, else our own; nothing waits for torch and cupy."""
    t, mine, other = on_device(CASE), new_stream(), new_stream()
    torch_streams, cupy_streams = put_torch(monkeypatch, mine), put_cupy(monkeypatch, mine)
    seen = recorded(monkeypatch)

    def streams_of(kind: Callable[[DeviceArray], Any]) -> list[Any]:
        x, w = kind(t["x"]), kind(t["w"])
        seen.clear()
        bridge.conv2d(x, w, device=cuda)
        return list(seen)

    assert streams_of(lambda a: a) == [-1, "conv2d_forward"]
    assert streams_of(TorchTensor) == streams_of(CupyArray) == [mine, "conv2d_forward"]
    torch_streams.number, cupy_streams.number = other, 0
    assert streams_of(TorchTensor) == [other, "conv2d_forward"]
    assert streams_of(CupyArray) == [0, "conv2d_forward"]
    assert streams_of(lambda a: Interface(a, stream=mine)) == [mine, "conv2d_forward", -1, "wait"]
    assert streams_of(lambda a: Interface(a, stream=1)) == [0, "conv2d_forward", -1, "wait"]
    assert streams_of(Interface) == [-1, "conv2d_forward", -1, "wait"]
    assert streams_of(Capsules) == [0, "conv2d_forward", -1, "wait"]


def test_who_takes_an_array_waits_for_it_on_the_device(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The taker's stream comes after our work; only the array interface, which names no stream, makes the host wait."""
    a, other = DeviceArray.from_numpy(batch((2, 3), "float32", 1), cuda), new_stream()
    seen = recorded(monkeypatch)
    for stream, expected in ((other, [other, -1]), (None, [0, -1]), (1, [0, -1]), (2, [2, -1]), (-1, [])):
        seen.clear()
        a.__dlpack__(stream=stream)
        assert seen == expected
    a.__cuda_array_interface__  # noqa: B018
    assert seen == ["wait"]


class Stream:
    """A stream that is destroyed with its last reference, as cupy's are."""

    def __init__(self) -> None:
        self.ptr = new_stream()


def test_a_stream_is_kept_while_work_may_be_on_it(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    t, current = on_device(CASE), [Stream()]
    alive = weakref.ref(current[0])
    put_cupy(monkeypatch)
    monkeypatch.setattr(sys.modules["cupy"].cuda, "get_current_stream", lambda: current[0])
    bridge.conv2d(CupyArray(t["x"]), CupyArray(t["w"]))
    current[0] = Stream()
    gc.collect()
    assert alive() is not None
    bridge.conv2d(CupyArray(t["x"]), CupyArray(t["w"]))
    gc.collect()
    assert alive() is None


def test_arrays_of_several_streams(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one's stream is used, the others come before and after it, without a wait of the host."""
    t, mine, other = on_device(CASE), new_stream(), new_stream()
    put_torch(monkeypatch, mine)
    put_cupy(monkeypatch, other)
    seen = recorded(monkeypatch)
    y = bridge.conv2d(TorchTensor(t["x"]), CupyArray(t["w"]), t["b"], padding=(1, 2))
    assert seen == [-1, other, mine, "conv2d_forward", other]
    right = bridge.conv2d(t["x"], t["w"], t["b"], padding=(1, 2)).numpy()
    assert np.array_equal(y.memory.numpy(), right)
    seen.clear()
    bridge.conv2d(t["x"], TorchTensor(t["w"]))
    assert seen == [-1, mine, -1, "conv2d_forward", mine]
    capsules = Capsules(t["w"])
    bridge.conv2d(TorchTensor(t["x"]), capsules)
    assert capsules.asked == [mine]
    capsules = Capsules(t["w"])
    bridge.conv2d(t["x"], capsules)
    assert capsules.asked == [1]


def test_work_comes_after_what_others_have_queued(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the first argument's stream and on the others, where nothing has run yet."""
    t, mine, other = on_device(CASE), new_stream(), new_stream()
    put_torch(monkeypatch, mine)
    put_cupy(monkeypatch, other)
    for changed, stream, first, second in (("x", mine, TorchTensor, CupyArray), ("w", other, TorchTensor, CupyArray),
                                           ("w", mine, lambda a: a, TorchTensor)):
        zero_on(stream, t[changed])
        y = bridge.conv2d(first(t["x"]), second(t["w"]), t["b"], padding=(1, 2))
        assert np.array_equal(read(y), np.broadcast_to(t["b"].numpy()[:, None, None], CASE.y)), changed
        t = on_device(CASE)


def test_what_others_queue_comes_after_our_work(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On their own stream, at once, and even if it is run first."""
    t, mine, other = on_device(CASE), new_stream(), new_stream()
    right = bridge.conv2d(t["x"], t["w"], t["b"], padding=(1, 2)).numpy()
    put_torch(monkeypatch, mine)
    put_cupy(monkeypatch, other)
    for first, second in ((TorchTensor, CupyArray), (CupyArray, TorchTensor), (lambda a: a, CupyArray)):
        y = bridge.conv2d(first(t["x"]), second(t["w"]), t["b"], padding=(1, 2))
        zero_on(other if second is CupyArray else mine, t["w"])
        wait_for(other if second is CupyArray else mine)
        assert np.array_equal(read(y), right)
        t = on_device(CASE)
    taken = DeviceArray.empty((2, 3), "float32", cuda)
    taken.fill(7)
    copy = taken.astype("float32")
    taken.__dlpack__(stream=other)
    zero_on(other, taken)
    wait_for(other)
    assert np.array_equal(copy.numpy(), np.full((2, 3), 7, np.float32))
