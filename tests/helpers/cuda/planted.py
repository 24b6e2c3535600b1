# SPDX-License-Identifier: MIT
"""Mistakes that a wrapper of cuDNN can make, each one change of the sources in fortran/cuda/.

They are changes of text, so that what is tested is what is built. `cuda/test_planted_mistakes.py` builds each one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from bridge.judge.measure.outcome import Outcome


@dataclass(frozen=True)
class Plant:
    """One change.

    Attributes
    ----------
    name : what is wrong then
    changes : pairs of an old text, which occurs once in the sources, and a new one
    said : part of the error, or of the device's complaint, that ends the program; none: a verdict catches it
    outcome : that verdict
    harmless : it is no mistake
    precision : the run that shows it
    nesterov : whether the fixture's optimiser is with Nesterov momentum, else with dampening
    """

    name: str
    changes: tuple[tuple[str, str], ...]
    said: str = ""
    outcome: Outcome = Outcome.BUG
    harmless: bool = False
    precision: str = "float32"
    nesterov: bool = False


def one(name: str, old: str, new: str, **more: object) -> Plant:
    """A plant of one change."""
    return Plant(name, ((old, new),), **more)  # type: ignore[arg-type]


def model() -> nn.Module:
    """What a square network would not show: everything differs in height and width, and two layers in width only."""
    return nn.Sequential(
        nn.Conv2d(1, 6, (3, 5), stride=(2, 1), padding=(0, 3), dilation=(1, 2)), nn.ReLU(),
        nn.Conv2d(6, 6, 3, padding=1), nn.ReLU(),
        nn.Conv2d(6, 4, 3, padding=1, bias=False), nn.ReLU(),
        nn.Conv2d(4, 2, (2, 5), stride=(1, 2), padding=(2, 1), dilation=(3, 1), groups=2))


WAIT = "call device%synchronize(error)\n"
COPIED = '"copy from a tensor "//shape_text(tensor%extent), error)\n         if (allocated(error)) return\n'
LOSS = '"reading the loss", error)\n      if (allocated(error)) return\n'
FILLED = "call c_memcpy(device%buffers%staging, address_after(host, done), piece)\n"

FREED = "         call free_graph_plan(self%dnn, self%plans(i)%graph)\n"

PLANTS = (
    # No mistakes: what is planted below is caught for what it is, not because something was built again
    Plant("nothing changed", (), outcome=Outcome.ROUNDING, harmless=True),
    # Graphs
    one("kernels flipped", "CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION",
        "CUDNN_TYPE_CONVOLUTION_MODE, 0_c_int"),
    one("height and width of padding swapped", "[int(conv%pad_h, i8), int(conv%pad_w, i8)]",
        "[int(conv%pad_w, i8), int(conv%pad_h, i8)]", said="output is 2 6 9 9, its tensor says 2 6 6 15"),
    one("stride and dilation swapped", "[int(conv%dilation_h, i8)", "[int(conv%stride_h, i8)",
        said="output is 2 6 5 15, its tensor says 2 6 6 15"),
    one("sums of doubles in float", "compute_type = CUDNN_DATA_DOUBLE", "compute_type = CUDNN_DATA_FLOAT",
        precision="float64", said="found 0 offers"),
    one("engines with tensor cores for float32", "allowed = allowed .and. .not. engine%tensor_cores",
        "allowed = allowed .and. .true.", outcome=Outcome.PRECISION),
    one("adds to old results", "beta_of(operation), 0.0_dp", "beta_of(operation), 1.0_dp"),
    one("x and dy swapped", "conv_filter, conv, x, dw, dy, error", "conv_filter, conv, dy, dw, x, error",
        said="cuDNN: graph: an operation, filter gradient"),
    one("dw and dx swapped", "conv_data, conv, dx, w, dy, error", "conv_data, conv, w, dx, dy, error",
        said="cuDNN: graph: an operation, data gradient"),
    one("no workspace", "device%reserve(bytes + device%plans(i)%graph%workspace_bytes, base,",
        "device%reserve(bytes, base,", said="orkspace"),
    one("workspace smaller than said", "device%reserve(bytes + device%plans(i)%graph%workspace_bytes, base,",
        "device%reserve(bytes + min(device%plans(i)%graph%workspace_bytes, 64_c_size_t), base,",
        said="workspace: 67584 bytes at byte 0 of an allocation of"),
    one("plans found by the input alone", "key(13:20) = [request%x, request%w]", "key(13:20) = [request%x, request%x]"),
    # Streams
    one("loss read before it is there", f"{LOSS}      {WAIT}", LOSS),
    one("results read before they are there", f"{COPIED}         {WAIT}", COPIED),
    one("buffer filled again too early", f"{FILLED}         device%buffers%staging_busy = .true.\n", FILLED),
    one("cuDNN on the default stream", "self%dnn%check(self%dnn%set_stream(self%dnn_handle, self%stream)",
        "self%dnn%check(self%dnn%set_stream(self%dnn_handle, c_null_ptr)",
        said="touch the same memory from two streams"),
    # The rest of a step
    one("half the slope", "slope_f64 = 2.0_dp*scale", "slope_f64 = scale"),
    one("ReLU masked by its gradient", "c_loc(batch), c_loc(z_address)", "c_loc(batch), c_loc(da_address)"),
    one("the bias gradient of one image", "batch = dy%extent(4)", "batch = 1"),
    one("no bias gradient behind a ReLU", "address = db%address\n      call device%kernels%launch_typed(",
        "address = totals\n      call device%kernels%launch_typed(",
        said="which another thread has read"),
    # Kernels
    one("arguments of a kernel in another order", "c_loc(batch), c_loc(address), c_loc(partial)",
        "c_loc(address), c_loc(batch), c_loc(partial)",
        said="cnn_bias_gradient_f32: argument 4: 0x2 is not a multiple of 4"),
    one("a kernel that goes on behind its array", "pixels = product(int(dy%extent(1:2), i8))",
        "pixels = product(int(dy%extent(1:2), i8)) + 1", said="cnn_bias_gradient_f32: thread"),
    one("dampening for what it leaves", "sgd%momentum, 1.0_dp - sgd%dampening", "sgd%momentum, sgd%dampening"),
    one("every step the first", "merge(flag_first, 0_c_int, first)", "flag_first"),
    one("Nesterov forgotten", "merge(flag_nesterov, 0_c_int, sgd%nesterov)", "0_c_int", nesterov=True),
    # Ends
    one("plans left", FREED, "", said="graph descriptor alive"),
)


def plant(sources: Path, change: Plant) -> dict[Path, str]:
    """Make the change in a copy of fortran/cuda/; the files as they were.

    Raises
    ------
    AssertionError
        If an old text is not there exactly once: the sources have moved on, and so must the plant.
    """
    before: dict[Path, str] = {}
    for old, new in change.changes:
        texts = {path: path.read_text(encoding="utf-8") for path in sorted(sources.rglob("*.f90"))}
        found = [path for path, text in texts.items() for _ in range(text.count(old))]
        assert len(found) == 1, f"{change.name}: {old!r} occurs {len(found)} times, expected once"
        before.setdefault(found[0], texts[found[0]])
        found[0].write_text(texts[found[0]].replace(old, new), encoding="utf-8")
    return before
