# SPDX-License-Identifier: MIT
"""The graphs of a training step on the strict software device: numbers against PyTorch, engines, plans.

The device sums in float64 and rounds once, so the bound is half a unit in the last place.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_size_t
from pathlib import Path

import pytest
import torch

from tests.helpers.loops import looped
from tests.software_device import SoftwareDevice, build
from tests.software_device import graphs as names
from tests.software_device.calls import DOUBLE, FLOAT, HALF, NCHW, NHWC, Calls, moved
from tests.software_device.convolutions import CASES, TYPES, Case, is_rounded, put
from tests.software_device.graph_misuse import Small, refused
from tests.software_device.graphs import BIAS, W, X, Y
from tests.software_device.patterns import (
    COMPILED,
    FFT,
    NO_PLAN,
    PATTERNS,
    PLAIN,
    RANDOM,
    SILENT_WINOGRAD,
    SPACE,
    TF32,
    WINOGRAD,
    Pattern,
)

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def cuda() -> Calls:
    """The device."""
    return Calls(build())


@looped("dtype", TYPES)
@looped("layout", [NCHW, NHWC])
@looped("case", CASES)
@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_are_pytorchs_rounded(cuda: Calls, name: str, case: Case, layout: int, dtype: int) -> None:
    """Every pattern, case, layout, type and engine."""
    pattern = Pattern(cuda, name, case, dtype, layout)
    engines = pattern.engines()
    if name in ("mask", "sum"):  # 1 x 1 images lie the same in both layouts
        either = layout == NHWC or (name == "sum" and pattern.values[Y].shape[2:] == (1, 1))
        assert list(engines) == ([COMPILED] if either and dtype != DOUBLE else [])
    else:
        assert {RANDOM, PLAIN, SPACE, NO_PLAN} <= set(engines)
        assert (TF32 in engines) == (dtype != DOUBLE)
        assert (COMPILED in engines) == (dtype != DOUBLE and ("bias" in name or "relu" in name))
    exact = pattern.exact()
    short = {i: t if dtype != FLOAT or i == BIAS else ((t.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
             for i, t in pattern.values.items()}  # fmt: skip
    for number, engine in engines.items():
        if number == NO_PLAN:
            continue
        expected = pattern.exact(short) if number == TF32 else exact
        stored = FLOAT if name == "sum" and dtype != DOUBLE else dtype
        assert is_rounded(pattern.run(engine), expected, stored, 4 if number == RANDOM else 1), f"engine {number}"
        if number == TF32 and dtype == FLOAT:
            assert not is_rounded(pattern.run(engine), exact, FLOAT, units=100)
    pattern.g.destroy()


def test_traps_are_offered_first(cuda: Calls) -> None:
    """TF32, an engine without a plan, jitter, transforms; what is left is plain, or compiled later."""
    assert list(Pattern(cuda, "filter", CASES[0]).engines()) == [
        TF32, NO_PLAN, RANDOM, WINOGRAD, FFT, SILENT_WINOGRAD, SPACE, PLAIN]
    assert list(Pattern(cuda, "bias, relu", CASES[0]).engines()) == [
        TF32, NO_PLAN, RANDOM, WINOGRAD, FFT, SPACE, PLAIN, COMPILED]


def test_engines_say_what_they_are(cuda: Calls) -> None:
    """Notes, behaviors, workspaces, and the one that never becomes a plan."""
    pattern = Pattern(cuda, "bias", CASES[0])
    engines = pattern.engines()
    assert {number: engine.notes for number, engine in engines.items()} == {
        TF32: (names.TENSOR_CORE,), RANDOM: (names.NONDETERMINISTIC,), FFT: (names.FFT,),
        WINOGRAD: (names.WINOGRAD, names.WINOGRAD_4X4), PLAIN: (names.STRICT_NAN,), SPACE: (), COMPILED: (),
        NO_PLAN: ()}  # fmt: skip
    assert [n for n, engine in engines.items() if engine.behaviors == (names.RUNTIME_COMPILATION,)] == [COMPILED]
    plan = pattern.g.plan(engines.pop(NO_PLAN), handle=cuda.handle)
    assert pattern.g.finalize(plan) == 3000
    sizes = {number: pattern.plan(engine)[1] for number, engine in engines.items()}
    assert {number for number, size in sizes.items() if size == 0} == {PLAIN, RANDOM}
    assert sizes[FFT] == max(sizes.values()) and all(size % 256 == 0 for size in sizes.values())


@looped("nan", [0, 1])
def test_relu_and_nan(cuda: Calls, nan: int) -> None:
    """NaN passes on with CUDNN_PROPAGATE_NAN, and is 0 without."""
    pattern = Pattern(cuda, "bias, relu", CASES[0], nan=nan)
    pattern.data[BIAS] = put(cuda, torch.full((1, 4, 1, 1), float("nan")))
    got = pattern.run(pattern.engines()[PLAIN])
    assert bool(got.isnan().all()) == bool(nan) and bool((got == 0).all()) != bool(nan)


@looped(("name", "number"), [("bias", SPACE), ("sum", COMPILED), ("data", FFT)])
def test_workspace_is_overwritten(cuda: Calls, name: str, number: int) -> None:
    """So sharing it with data would show; nothing behind its end is touched. Execution waits for nothing."""
    pattern = Pattern(cuda, name, CASES[0], layout=NHWC if name == "sum" else NCHW)
    plan, size = pattern.plan(pattern.engines()[number])
    space = cuda.malloc(size + 256)
    cuda.ok("cudaMemsetAsync", space, 0, c_size_t(size + 256), cuda.stream)
    counters = ("host synchronisations", "operations", f"graph engine {number}", "default stream operations")
    before = [cuda.counter(each) for each in counters]
    cuda.ok("cudnnBackendExecute", cuda.handle, plan, pattern.g.pack(pattern.data, space))
    assert [cuda.counter(each) - n for each, n in zip(counters, before, strict=True)] == [0, 1, 1, 0]
    assert cuda.get(space, size + 256) == b"\xff" * size + bytes(256)


#: Status, a part of the reason, and what is wrong with an execution
EXECUTIONS: list[tuple[int, str, Callable[[Small], int]]] = [
    (2000, "was destroyed", lambda s: s.execute(plan=s.gone(s.plan))),
    (2000, "tensor 4 (bias) is missing", lambda s: s.execute(pack=s.g.pack({i: s.data[i] for i in (X, W, Y)}))),
    (2000, "no tensor 5", lambda s: s.execute(pack=s.g.pack(s.data | {5: s.data[X]}))),
    (2000, "x: found pinned host memory", lambda s: s.execute(x=s.cuda.pinned(384))),
    (2000, "was freed", lambda s: s.execute(w=s.freed(540))),
    (2000, "y: 640 bytes at byte 0 of an allocation of 639", lambda s: s.execute(y=s.cuda.malloc(639))),
    (2003, "multiple of 16", lambda s: s.execute(x=moved(s.cuda.malloc(400), 8))),
    (2000, "overlaps", lambda s: s.execute(x=s.data[Y])), (2000, "overlaps", lambda s: s.overlapping()),
    (2002, "workspace == nullptr", lambda s: s.execute(plan=s.spacious)),
    (2000, "workspace: 66304 bytes at byte 0 of an allocation of 66303",
     lambda s: s.execute(plan=s.spacious, space=s.cuda.malloc(66303))),
    (2000, "overlaps", lambda s: s.execute(plan=s.spacious, space=s.space, x=s.space)),
    # Graphs
    (2008, "output is 2 5 4 4", lambda s: s.convolved(s.t[X], s.t[W], s.g.tensor(Y, (2, 5, 4, 3)))),
    (2008, "3 channels, filter of 2", lambda s: s.convolved(s.t[X], s.g.tensor(W, (5, 2, 3, 3)), s.t[Y])),
    (2008, "dimensions", lambda s: s.pointwise(0, a751=s.t[7], a752=s.t[W], a753=s.t[Y])),
    (2000, "was not set", lambda s: s.lacking(names.FORWARD, [(702, names.PART, [s.conv])])),
    (2000, "attribute 104 is none", lambda s: s.g.set(s.g.create(names.TENSOR), 104, names.INT64, [1])),
    (2010, "type 5, expected 3", lambda s: s.g.set(s.g.create(names.TENSOR), 902, names.REAL8, [1, 2, 3, 4])),
    (2012, "of the kind convolution, expected tensor",
     lambda s: s.g.set(s.g.create(names.FORWARD), 704, names.PART, [s.conv])),
]


@looped(("status", "reason", "call"), EXECUTIONS)
def test_what_is_refused(folder: Path, status: int, reason: str, call: Callable[[Small], int]) -> None:
    """Each wrong argument gets its status and a reason, and nothing is queued."""
    device = Calls(folder)
    refused(device, status, reason, call)
    SoftwareDevice(folder).forget()
    device.give_streams_back()


@looped("changes", [{"w_layout": NHWC}, {"w_type": HALF}, {"compute": DOUBLE}, {}])
def test_what_no_engine_takes(folder: Path, changes: dict[str, int]) -> None:
    """Layouts or types that differ: nothing is offered; without the change something is."""
    device = Calls(folder)
    g = names.Graphs(device.c)
    conv = g.convolution(padding=(1, 1), compute=changes.get("compute", FLOAT))
    w = g.tensor(W, (5, 3, 3, 3), changes.get("w_type", FLOAT), changes.get("w_layout", NCHW))
    graph = g.graph(g.convolve(names.FORWARD, conv, (g.tensor(X, (2, 3, 4, 4)), w, g.tensor(Y, (2, 5, 4, 4)))))
    assert bool(g.engines(graph)) == (not changes)
    device.give_streams_back()
