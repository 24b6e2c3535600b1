# SPDX-License-Identifier: MIT
"""Checks of streams, waits and devices, each in a process of its own.

``python -m tests.helpers.cuda.stream_checks NAME FIXTURE`` runs one.
``CNN_CUDA_PATH`` names a strict software device; with ``STRICT_AT_EXIT`` it ends the process with 99 if two streams
touched the same memory in an order that nothing fixes, or anything leaked. Streams are made, and destroyed, behind the
library's back, as another library would.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from ctypes import byref, c_int, c_uint, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridge import ArgumentError, DeviceArray, EngineError, Network, conv2d, conv2d_backward
from bridge.engine.arrays.operand import extent_of
from bridge.engine.library import extension
from tests.helpers.cuda.children import CUDNN
from tests.helpers.cuda.failing_runs import status_of
from tests.software_device import SoftwareDevice

#: Shapes of a batch of the fixture's network
X = (2, 1, 6, 7)
SETTINGS = ("sgd", np.array([0.25, 0.9, 0.0, 0.01, 1, 0, 0, 0]))
WAITS, LAUNCHES = "host synchronisations", "kernel launches"
OWN = -1

strict = SoftwareDevice(Path(os.environ["CNN_CUDA_PATH"]))
fixture = ""


def batch(seed: int, shape: tuple[int, ...] = X, dtype: str = "float32") -> np.ndarray:
    """Random numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def made_stream() -> int:
    """A stream of somebody else's."""
    stream = c_void_p()
    assert strict.api.cudaStreamCreateWithFlags(byref(stream), c_uint(1)) == 0
    assert stream.value
    return stream.value


def destroy(*streams: int) -> None:
    for stream in streams:
        assert strict.api.cudaStreamDestroy(c_void_p(stream)) == 0


def use(stream: int, device: str = "cuda") -> None:
    extension.call("device_stream", device, stream)


def device_now() -> int:
    """The calling thread's CUDA device."""
    index = c_int()
    assert strict.api.cudaGetDevice(byref(index)) == 0
    return index.value


class Training:
    """A network that trains on the stream that was chosen last."""

    def __init__(self, device: str = "cuda", seed: int = 1, dtype: str = "float32", **given: Any) -> None:
        self.net = Network.from_file(fixture, dtype=dtype, device=device, **given)
        self.device = device
        home = device.partition(",")[0]
        self.x, self.y = (DeviceArray.from_numpy(batch(one, X, dtype), home) for one in (seed, seed + 100))
        self.losses: list[float] = []

    def forward(self) -> None:
        extension.call("network_forward", self.net._handle, self.x.operand.address, self.x.operand.extent, 4)

    def step(self, *, read: bool = True) -> None:
        """The loss is kept if it is read."""
        x, y = self.x.operand, self.y.operand
        loss = extension.call("network_step", self.net._handle, x.address, x.extent, 4, y.address, y.extent,
                              *SETTINGS, int(read))
        self.losses += [loss] if read else []

    def result(self) -> bytes:
        """Losses and weights, to the bit."""
        return repr(self.losses).encode() + b"".join(one.numpy().tobytes() for one in self.net.parameters.values())


def trained(device: str = "cuda", seed: int = 1, steps: int = 3, **given: Any) -> bytes:
    """What some steps on our own stream give."""
    use(OWN, device)
    training = Training(device, seed, **given)
    for _ in range(steps):
        training.step()
    return training.result()


def counts(names: Iterable[str]) -> dict[str, int]:
    return {name: strict.counter(name) for name in names}


def steady_steps(training: Training, *, read: bool = True) -> dict[str, int]:
    """What a step calls, and how often, from the third on: always the same."""
    from tests.helpers.cuda.children import functions

    names = [*functions(), WAITS, LAUNCHES, "device synchronisations", "bytes to host", "bytes to device"]
    training.step()
    training.step()
    seen = []
    for _ in range(3):
        before = counts(names)
        training.step(read=read)
        seen.append({name: value - before[name] for name, value in counts(names).items() if value != before[name]})
    assert seen[0] == seen[1] == seen[2], seen
    return seen[0]


def check_steady(device: str = "cuda", **given: Any) -> None:
    """Step by step: one wait, the same launches, nothing made, freed or looked for."""
    seen = steady_steps(Training(f"{device},capture=no", **given))
    work = {"cudaGetDevice", "cudaSetDevice", "cuLaunchKernel", LAUNCHES, "cudaMemcpyAsync",
            "cudaStreamSynchronize", WAITS, "bytes to host", "cudnnBackendExecute"}
    assert set(seen) <= work, set(seen) - work
    assert seen[WAITS] == 1 and seen["cudaStreamSynchronize"] == 1
    assert seen["bytes to host"] == 8


def captured_steps() -> None:
    """Input and target are copied, one graph and the update launched; who asks for the loss waits, once."""
    for device, given in (("cuda", {}), ("cuda", {"keep_activations": "after_relu"}),
                          ("cuda,math=bf16", {"keep_activations": False}),
                          ("cuda", {"dtype": "float64"})):
        seen = steady_steps(Training(device, **given))
        assert {name: seen[name] for name in ("cudaGraphLaunch", "cuLaunchKernel", "cudaMemcpyAsync", WAITS)} == {
            "cudaGraphLaunch": 1, "cuLaunchKernel": 1, "cudaMemcpyAsync": 3, WAITS: 1}
        assert seen["bytes to host"] == 8
        training = Training(device, **given)
        seen = steady_steps(training, read=False)
        assert training.net.captured
        assert seen["cudaMemcpyAsync"] == 2 and not {WAITS, "cudaStreamSynchronize", "bytes to host"} & set(seen)
        assert set(seen) <= {"cudaGetDevice", "cudaSetDevice", "cudaGraphLaunch", "cuLaunchKernel", "cudaMemcpyAsync",
                             LAUNCHES}, seen


def captured_steps_are_steps() -> None:
    """The same bits, whatever is between: a larger workspace of others, other streams, a forward alone."""
    right = trained("cuda,capture=no", steps=8)
    training, other = Training(), made_stream()
    for i in range(8):
        if i == 3:  # the device's workspace moves
            # Roundings take room there, and so does a transform
            net = Network.from_file(fixture, device=f"{CUDNN},math=fp16")
            net.forward(DeviceArray.from_numpy(batch(1, (2, 1, 90, 90))))
        # Never in the first step, nor after another shape
        assert training.net.captured == (i > 1)
        if i == 5:
            training.forward()
        use(0 if i == 4 else other if i == 6 else OWN)
        training.step(read=i != 5)
        if i == 5:
            training.losses.append(extension.call("network_read_loss", training.net._handle))
    assert training.result() == right
    # Once in the beginning, once after the workspace had moved
    assert strict.counter("cudaGraphInstantiate") == 2
    use(OWN)
    destroy(other)


def captured_graphs_follow_memory() -> None:
    """The workspace that a captured graph has the address of moves, then outputs do, by a forward of another shape."""
    right = trained("cuda,capture=no", steps=10)
    training, larger = Training(), DeviceArray.from_numpy(batch(3, (4, 1, 30, 30)))
    for i in range(10):
        before = strict.counter("cudaFree")
        if i == 4:  # operands are rounded there
            x, w = DeviceArray.from_numpy(batch(1, (2, 8, 60, 60))), DeviceArray.from_numpy(batch(2, (8, 8, 3, 3)))
            conv2d(x, w, device="cuda,math=bf16")
        if i == 7:
            extension.call("network_forward", training.net._handle, larger.operand.address, larger.operand.extent,
                           4)
        assert (strict.counter("cudaFree") > before) == (i in (4, 7))
        training.step()
    assert training.result() == right


def steps_go_on_after_failures() -> None:
    """One failed call, each in turn, spoils one step at most: the same network goes on, captured as before."""
    use_device: Callable[[int], int] = strict.api.cudaSetDevice
    for device, name in (("cuda", "cudaMalloc"), ("cuda", "cudaSetDevice"), ("cuda:1", "cuCtxPushCurrent_v2"),
                         ("cuda:1", "cuCtxPopCurrent_v2")):
        right, met, call = trained(device), True, 0
        while met:
            call += 1
            training, before = Training(device), strict.counter(name)
            strict.fail(name, status_of(name), call=call)
            with suppress(EngineError):
                for _ in range(3):
                    training.step()
            met = strict.counter(name) >= before + call
            strict.fail_no_more()
            assert use_device(0) == 0
            while len(training.losses) < 3:
                training.step()
            # After an update whose end failed the weights are others
            assert name != "cudaMalloc" or training.result() == right, call
        assert call > 10


def fed_steps() -> None:
    """Each batch is there before the step that takes it, and after the one before it: whichever streams they are on."""
    given = [[batch(seed, X), batch(seed + 50, X)] for seed in range(6)]
    a, right = made_stream(), b""
    for device in ("cuda,capture=no", "cuda"):
        training = Training(device)
        for i, (x, y) in enumerate(given):
            use((OWN, a, 0)[i % 3])
            extension.call("network_feed", training.net._handle, x.ctypes.data, extent_of(X), 4,
                           y.ctypes.data, extent_of(X))
            training.losses.append(extension.call("network_step_fed", training.net._handle, *SETTINGS, int(i == 3)))
        right = right or training.result()
        assert training.result() == right
    use(OWN)
    destroy(a)


def feeding_does_not_wait_for_a_step() -> None:
    """The host waits for the copy before, on the device's other stream, and for nothing else."""
    training, host = Training(), batch(1, X)
    extent = extent_of(X)
    for i in range(6):
        before = counts(("cudaStreamSynchronize", "device synchronisations", WAITS))
        extension.call("network_feed", training.net._handle, host.ctypes.data, extent, 4, host.ctypes.data,
                       extent)
        extension.call("network_step_fed", training.net._handle, *SETTINGS, 0)
        after = counts(before)
        if i > 2:
            assert {name: after[name] - before[name] for name in before} == {
                "cudaStreamSynchronize": 0, "device synchronisations": 0, WAITS: 1}


def efficient_steps_are_fused_steps() -> None:
    """In place or not, the same bits."""
    assert trained(keep_activations=False) == trained(keep_activations="after_relu")


def masks_may_be_refused() -> None:
    """A plan with a ReLU's mask that cuDNN does not support when it runs is asked once; our kernel does its work."""
    device = f"{CUDNN},math=tf32,capture=no,compile=yes"
    right = Training(device, keep_activations=False)
    for _ in range(3):
        right.step()
    training = Training(device, keep_activations=False)
    # Behind three of forward and a filter gradient
    strict.fail("cudnnBackendExecute", 3000, call=5)
    masked = []
    for _ in range(3):
        before = strict.counter("graph engine 6")
        training.step()
        masked.append(strict.counter("graph engine 6") - before)
    assert masked == [1, 1, 1] and training.losses == pytest.approx(right.losses, rel=2e-3)
    assert right.losses[0] == training.losses[0]


def two_networks_captured() -> None:
    """Side by side on one device: each has its own loss and its own captured graph."""
    right = [trained(seed=seed, steps=5) for seed in (1, 2)]
    both = [Training(seed=seed) for seed in (1, 2)]
    for _ in range(5):
        for training in both:
            training.step(read=False)
        for training in reversed(both):
            training.losses.append(extension.call("network_read_loss", training.net._handle))
    assert [training.result() for training in both] == right


def what_cannot_be_captured() -> None:
    """Is run call by call; here cuDNN cannot be captured."""
    os.environ["STRICT_CAPTURE"] = "0"
    plain, training = trained(f"{CUDNN},capture=no", steps=5), Training(CUDNN)
    launches = strict.counter("cudaGraphLaunch")
    for _ in range(5):
        training.step()
        assert not training.net.captured
    assert training.result() == plain and strict.counter("cudaGraphLaunch") == launches
    assert strict.counter("cudaStreamBeginCapture") == 1
    del os.environ["STRICT_CAPTURE"]


def steady() -> None:
    """A step makes nothing, and waits once."""
    for device in ("cuda", CUDNN, "cuda,math=bf16", "cuda,algorithm=measured,workspace=1"):
        for keep in (True, "after_relu"):
            check_steady(device, keep_activations=keep)
    check_steady(dtype="float64")


def first_step() -> None:
    """It waits once too, but for the copies before it."""
    training = Training()
    extension.call("device_wait", "cuda")
    before = strict.counter(WAITS)
    training.step()
    assert strict.counter(WAITS) - before == 1


def copies() -> None:
    """Those to the host wait once, those to the device not, but for the one before them."""
    a, host = DeviceArray.empty((5, 7)), batch(1, (5, 7))
    extension.call("device_wait", "cuda")
    for work, waits in ((lambda: a._copy_in(host), 0), (lambda: a._copy_in(2 * host), 1), (a.numpy, 1),
                        (lambda: a._copy_in(host), 0), (lambda: extension.call("device_wait", "cuda"), 1),
                        (lambda: a._copy_in(3 * host), 0)):  # fmt: skip
        before = strict.counter(WAITS)
        work()
        assert strict.counter(WAITS) - before == waits
    assert np.array_equal(a.numpy(), 3 * host)


def large_copies() -> None:
    """In pieces of 16 MiB through the one buffer, there and back."""
    host = np.arange(9 * 2**20 + 3, dtype=np.float32)
    a = DeviceArray.from_numpy(host)
    b = a.astype("float32")
    assert np.array_equal(b.numpy(), host)


def streams_in_order() -> None:
    """Each step on another stream, ours and the legacy default one among them: as if on one."""
    right = trained(steps=6)
    a, b = made_stream(), made_stream()
    training = Training()
    for stream in (a, b, 0, a, OWN, b):
        use(stream)
        training.step()
    assert training.result() == right
    use(OWN)
    destroy(a, b)


def chain_over_streams() -> None:
    """Not a single wait between: a stream reads what the one before has queued."""
    a, b = made_stream(), made_stream()
    x, w = DeviceArray.from_numpy(batch(1, (1, 1, 9, 9))), DeviceArray.from_numpy(batch(2, (1, 1, 3, 3)))
    places = [x, *(DeviceArray.empty((1, 1, 9, 9)) for _ in range(4))]
    params = np.array([1, 1, 1, 1, 1, 1, 1], np.int32)
    before = strict.counter(WAITS)
    for stream, source, to in zip((a, b, 0, OWN), places, places[1:], strict=False):
        use(stream)
        extension.call("conv2d_forward", "cuda", 1, params, extension.C_ORDER, 0, source.operand.address,
                       source.operand.extent, w.operand.address, w.operand.extent, 0, to.operand.address)
    assert strict.counter(WAITS) == before
    expected = batch(1, (1, 1, 9, 9))
    for _ in range(4):
        expected = conv2d(expected, batch(2, (1, 1, 3, 3)), padding=1)
    assert np.allclose(places[4].numpy(), expected, rtol=1e-4, atol=1e-4)
    destroy(a, b)


def two_networks() -> None:
    """In turns on two streams, with one workspace: the bits of one after the other."""
    right = [trained(seed=seed) for seed in (1, 2)]
    streams = [made_stream(), made_stream()]
    both = [Training(seed=1), Training(seed=2)]
    for _ in range(3):
        for training, stream in zip(both, streams, strict=True):
            use(stream)
            training.step()
    assert [training.result() for training in both] == right
    # Forward passes, which nobody waits for
    for _ in range(3):
        for training, stream in zip(both, streams, strict=True):
            use(stream)
            training.forward()
    use(OWN)
    extension.call("device_wait", "cuda")
    destroy(*streams)


def destroyed_streams() -> None:
    """Once its work is queued, a stream that its owner destroys is not touched by what queues nothing, a change to
    another stream, or the end."""
    right = trained(steps=2)
    a, b, c = made_stream(), made_stream(), made_stream()
    training = Training()
    use(a)
    training.step()
    training.forward()
    destroy(a)
    spare = DeviceArray.empty((3,))
    del spare
    gc.collect()
    use(b)
    training.step()
    destroy(b)
    assert training.result() == right
    use(c)
    training.forward()
    destroy(c)
    del training
    gc.collect()
    extension.close_devices()


def chosen_again() -> None:
    """A stream may be a new one at the old address: it waits for what was queued, each time it is chosen."""
    a = made_stream()
    use(a)
    before = strict.counter("cudaStreamWaitEvent")
    use(a)
    assert strict.counter("cudaStreamWaitEvent") == before + 1
    use(OWN)
    before = strict.counter("cudaStreamWaitEvent")
    use(OWN)
    assert strict.counter("cudaStreamWaitEvent") == before
    destroy(a)


def errors_are_marked() -> None:
    """What was queued before an error is waited for as well, from the next stream on."""
    a, b = made_stream(), made_stream()
    right = trained(CUDNN, steps=1)
    for name in ("cudnnBackendExecute", "cuLaunchKernel"):
        training = Training(CUDNN)
        use(a)
        strict.fail(name, status_of(name), call=2)
        with pytest.raises(EngineError, match=rf"\b{status_of(name)}\b"):
            training.step()
        strict.fail_no_more()
        use(b)
        training.forward()
        use(OWN)
        training.step()
        assert training.result() == right, name
    destroy(a, b)


def failures_to_change() -> None:
    """The stream stays the old one, for the library and for cuDNN."""
    right, a = trained(steps=4), made_stream()
    training = Training()
    training.step()
    for name in ("cudnnSetStream", "cudaStreamWaitEvent", "cudaEventRecord"):
        strict.fail(name, status_of(name))
        with pytest.raises(EngineError, match=rf"{name}: .*\({status_of(name)}\)"):
            use(a)
        strict.fail_no_more()
        if name == "cudnnSetStream":
            training.step()
    while len(training.losses) < 4:
        training.step()
    assert training.result() == right
    destroy(a)


def two_devices() -> None:
    """Side by side, whichever is the caller's, which stays so."""
    set_device: Callable[[int], int] = strict.api.cudaSetDevice
    right = trained(CUDNN)
    for mine in (0, 1):
        assert set_device(mine) == 0
        both = [Training("cuda:0,direct=no"), Training("cuda:1,direct=no")]
        assert device_now() == mine
        for _ in range(3):
            for training in both:
                training.step()
                assert device_now() == mine
        assert [training.result() for training in both] == [right, right]
        for name in ("cudnnBackendExecute", "cudaMalloc", "cuLaunchKernel"):
            for training in both:
                strict.fail(name, status_of(name))
                with pytest.raises(EngineError):
                    Training(training.device).step()
                strict.fail_no_more()
                assert device_now() == mine
        del both, training
        gc.collect()
        assert device_now() == mine
        # The caller's device cannot be given back: nobody would know of the memory
        strict.fail("cuCtxPopCurrent_v2", status_of("cuCtxPopCurrent_v2"))
        before = extension.call("devices_live")
        with pytest.raises(EngineError, match=r"cuda:.: cuCtxPopCurrent: .* 999"):
            DeviceArray.empty((3,), device=f"cuda:{1 - mine}")
        strict.fail_no_more()
        assert extension.call("devices_live") == before and set_device(mine) == 0
    extension.close_devices()
    assert device_now() == 1 and set_device(0) == 0


def trials_give_memory_back() -> None:
    """Operands to measure plans with, and room for each of them, are not kept; these plans need no workspace."""
    x, w = DeviceArray.from_numpy(batch(1, (2, 8, 60, 60))), DeviceArray.from_numpy(batch(2, (8, 8, 3, 3)))
    before, most = strict.counter("device bytes"), strict.counter("device bytes, most")
    y = conv2d(x, w, device="cuda,algorithm=measured,workspace=0")
    assert strict.counter("device bytes, most") > most
    del y
    gc.collect()
    assert strict.counter("device bytes") == before


def in_a_thread(work: Callable[[], Any]) -> Any:
    """What it gives, in a thread that has not used CUDA."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def threads() -> None:
    """In each of them our device is the current one when plans are made, and the thread's own one afterwards."""
    net = Network.from_file(fixture, device=f"{CUDNN},math=tf32", keep_activations=False)
    assert "channels last" in in_a_thread(lambda: net.plan(X))[0]

    def on_the_other() -> int:
        assert strict.api.cudaSetDevice(1) == 0
        net.plan((1, *X[1:]))
        return device_now()

    assert in_a_thread(on_the_other) == 1 and device_now() == 0


def other_devices() -> None:
    """Who uses the second device takes no memory of the first: a context there would."""
    training = Training("cuda:1")
    training.step()
    assert device_now() == 0 and strict.counter("contexts made") == 1
    del training
    gc.collect()
    extension.close_devices()
    assert device_now() == 0 and strict.counter("contexts made") == 1


def memory_of_the_other_device() -> None:
    x, w = DeviceArray.from_numpy(batch(1), "cuda:0"), DeviceArray.from_numpy(batch(2, (1, 1, 3, 3)), "cuda:1")
    message = r"^weight: .*cuda:1, expected .*cuda:0"
    with pytest.raises(ArgumentError, match=message):
        conv2d(x, w)
    net = Network.from_file(fixture, device="cuda:1")
    with pytest.raises(ArgumentError, match=r"^input: .*cuda:0, expected .*cuda:1"):
        net.forward(x)


def errors_are_not_left_behind() -> None:
    """CUDA keeps the last error of a thread; it is not there for somebody else to find."""
    half = DeviceArray.from_numpy(batch(0, (1, 1, 1, 1))).astype("float16")
    for name, work in (("cudaMalloc", lambda: DeviceArray.empty((9,))), ("cuLaunchKernel", lambda: Training().step()),
                       ("cudaMemcpyAsync", lambda: DeviceArray.from_numpy(batch(1))),
                       # In float32, on copies
                       ("cuLaunchKernel",
                        lambda: conv2d_backward(half, half, half, output_mask=(False, False, True)))):  # fmt: skip
        strict.fail(name, status_of(name))
        with pytest.raises(EngineError, match=rf"\b{status_of(name)}\b"):
            work()
        strict.fail_no_more()
        assert strict.api.cudaGetLastError() == 0
    with pytest.raises(EngineError, match=r"no memory for a float32 tensor .*\(2\): out of memory"):
        DeviceArray.empty((2**28, 8))
    assert strict.api.cudaGetLastError() == 0


def more_than_all_memory() -> None:
    """Sizes in bytes that 64 bits cannot hold, and what would be left of them, 0 and 256 KiB."""
    DeviceArray.empty((1,))
    before = extension.call("devices_live")
    for shape in ((2**16,) * 4, (2**16, 50155733, 1403005)):
        with pytest.raises(EngineError, match=r"no memory for a float32 tensor .*\(2\): out of memory"):
            DeviceArray.empty(shape)
    assert extension.call("devices_live") == before


def opened_and_closed() -> None:
    """Again and again; nothing stays."""
    results = set()
    for _ in range(4):
        results.add(trained())
        gc.collect()
        extension.close_devices()
        assert strict.report() == "" and extension.call("devices_live") == 0
    assert len(results) == 1


def options_make_plans() -> None:
    """Every option that the choice of an algorithm depends on has a plan of its own, made once."""
    x, w = batch(1, (1, 2, 8, 9)), batch(2, (3, 2, 3, 3))
    variants = ({"padding": 1}, {"stride": 2}, {"stride": (1, 2)}, {"dilation": 2}, {"padding": (0, 1)})
    options = ("", ",deterministic=no", ",transforms=yes", ",workspace=1", ",math=tf32", ",math=fp16", ",math=bf16",
               ",algorithm=measured,workspace=1")  # fmt: skip
    cases: list[tuple[str, dict[str, Any]]] = [(CUDNN + option, {}) for option in options]
    cases += [(CUDNN, variant) for variant in variants]
    for again in (False, True):
        for device, given in cases:
            made = strict.counter("cudnnBackendCreateDescriptor")
            conv2d(DeviceArray.from_numpy(x), DeviceArray.from_numpy(w), device=device, **given)
            # Of a plan that is there only the list of its tensors is made, unless they are where they were: operands
            # that are rounded
            created = strict.counter("cudnnBackendCreateDescriptor") - made
            assert created == (0 if "16" in device else 1) if again else created > 1, (device, given, again)


def half_done_steps() -> None:
    """After a failure, what was half done cannot be gone on with; what came before it can."""
    training = Training(CUDNN)
    net, y = training.net, DeviceArray.from_numpy(batch(7))
    calls = {"loss": lambda: net.loss(y), "backward": net.backward, "update": lambda: net.update(lr=0.5, momentum=0.9)}
    for fails, function, refused in (("loss", "cuLaunchKernel", "backward"), ("update", "cuLaunchKernel", "update"),
                                     ("backward", "cudnnBackendExecute", "update")):
        net.forward(training.x)
        for name in ("loss", "backward"):
            calls[name]()
        strict.fail(function, status_of(function))
        with pytest.raises(EngineError, match=rf"\b{status_of(function)}\b"):
            calls[fails]()
        strict.fail_no_more()
        with pytest.raises(EngineError, match=f"^{refused}: no (loss|gradients) yet"):
            calls[refused]()
    net.forward(training.x)
    for call in calls.values():
        call()


def main(name: str, path: str) -> None:
    """Run one of the checks."""
    global fixture
    fixture = path
    globals()[name]()
    gc.collect()
    extension.close_devices()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
