# SPDX-License-Identifier: MIT
"""On which CUDA stream work is queued.

Work goes to the stream on which its first argument's library works now: torch's or cupy's current stream, the one that
``__cuda_array_interface__`` names, and our own for the memory of `bridge.DeviceArray`. The host waits for nothing:

* Where arguments belong to different streams, events make the work wait for what is queued on the others, and the
  others for the work.
* When the stream changes from one call to the next, the new one waits for what this package has queued (in Fortran,
  cnn_cuda_device_type).
* Only arrays of other libraries, which cannot know when we are done with their memory, make the host wait at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from bridge.common.errors import EngineError
from bridge.engine.arrays import interop
from bridge.engine.arrays.operand import OWN_STREAM, Operand
from bridge.engine.library import extension

#: What keeps the stream alive that each device works on now
_kept: dict[int, Any] = {}


@contextmanager
def working(device: str, index: int, *operands: Operand) -> Iterator[None]:
    """Queue what is called inside on the stream of the first operand.

    Parameters
    ----------
    device : the device's text, as Fortran takes it
    index : its number
    """
    streams = dict(map(stream_of, operands))
    used = next(iter(streams), OWN_STREAM)
    others = {number: keep for number, keep in streams.items() if number not in (used, OWN_STREAM)}
    waits = any(one.origin == "other" for one in operands)
    with extension.lock:
        for number, keep in others.items():
            # A stream is looked at when it is chosen anew
            _select(device, index, OWN_STREAM)
            _select(device, index, number, keep)
        _select(device, index, used, streams.get(used))
        try:
            yield
        except BaseException:
            if waits:
                with suppress(EngineError):
                    _leave(device, index)
            raise
        for number, keep in others.items():
            _select(device, index, number, keep)
        if waits:
            _leave(device, index)


def own_stream(device: str, index: int) -> None:
    """Go on with our own stream. Call it with `engine.lock` held."""
    _select(device, index, OWN_STREAM)


def wait(device: str) -> None:
    """Wait for all work that this package has queued on a device."""
    with extension.lock:
        extension.call("device_wait", device)


def ready_on(device: str, index: int, stream: int) -> None:
    """Let a stream of somebody else wait, on the device, for what this package has queued."""
    with extension.lock:
        _select(device, index, interop.DEFAULT_STREAM if stream == interop.NAMED_DEFAULT_STREAM
                else stream)
        _select(device, index, OWN_STREAM)


def stream_of(operand: Operand) -> tuple[int, Any]:
    """Return the number of the stream that an operand is ready on, and what keeps the stream alive; both names of the
    legacy default stream are one.

    >>> stream_of(Operand(None, 0, (1,), "float32", stream=1))[0]
    0
    """
    if operand.origin in ("torch", "cupy"):
        # Asked every time: a network keeps its input, and its caller may have gone on to another stream
        return interop.current_stream(operand.origin, operand.index)
    if operand.stream is None:
        return OWN_STREAM, None
    return (interop.DEFAULT_STREAM if operand.stream == interop.NAMED_DEFAULT_STREAM
            else operand.stream), None


def _leave(device: str, index: int) -> None:
    """Wait, and do not stay on a stream that its owner may destroy."""
    _select(device, index, OWN_STREAM)
    extension.call("device_wait", device)


def _select(device: str, index: int, stream: int, keep: Any = None) -> None:
    extension.call("device_stream", device, stream)
    _kept[index] = keep
