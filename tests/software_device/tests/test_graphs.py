# SPDX-License-Identifier: MIT
"""The graphs of a training step on the strict software device: numbers against PyTorch, engines, plans.

As in test_convolution.py the device sums in float64 and rounds once, so the bound is half a unit in the last place.
"""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import c_size_t

import pytest
import torch

from tests.helpers.loops import looped
from tests.software_device import build
from tests.software_device import graphs as names
from tests.software_device.calls import CONVOLUTION, DOUBLE, FLOAT, HALF, NCHW, NHWC, Calls
from tests.software_device.convolutions import CASES, TYPES, Case, is_rounded, put
from tests.software_device.graphs import BIAS, FALLBACK, MASK, Engine, W, X, Y
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


@pytest.fixture(autouse=True)
def nothing_is_left(cuda: Calls) -> Iterator[None]:
    """No complaints."""
    before = cuda.counter("complaints")
    yield
    assert cuda.counter("complaints") == before, cuda.report()


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


OFFERS = {
    ("forward", NCHW): [TF32, NO_PLAN, RANDOM, WINOGRAD, FFT, SPACE, PLAIN],
    ("forward", NHWC): [TF32, NO_PLAN, RANDOM, SPACE, PLAIN],
    ("bias, relu", NCHW): [TF32, NO_PLAN, RANDOM, WINOGRAD, FFT, SPACE, PLAIN, COMPILED],
    ("filter", NCHW): [TF32, NO_PLAN, RANDOM, WINOGRAD, FFT, SILENT_WINOGRAD, SPACE, PLAIN],
    ("mask", NHWC): [COMPILED],
}


@pytest.mark.parametrize(("name", "layout"), OFFERS)
def test_traps_are_offered_first(cuda: Calls, name: str, layout: int) -> None:
    """TF32, an engine without a plan, jitter, transforms; what is left is plain, or compiled later."""
    pattern = Pattern(cuda, name, CASES[0], layout=layout)
    assert list(pattern.engines()) == OFFERS[name, layout]
    assert list(pattern.engines(FALLBACK)) == ([] if name == "mask" else [RANDOM, PLAIN])


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


def test_an_engine_by_its_number(cuda: Calls) -> None:
    """Chosen without a heuristic."""
    pattern = Pattern(cuda, "data", CASES[0])
    g = pattern.g
    chosen = g.finalized(names.ENGINE, [(1300, names.PART, [pattern.graph]), (1301, names.INT64, [WINOGRAD])])
    configuration = g.finalized(names.ENGINECFG, [(300, names.PART, [chosen])])
    engine = g.engine(configuration)
    assert engine == Engine(configuration, WINOGRAD, (names.WINOGRAD, names.WINOGRAD_4X4), ())
    assert is_rounded(pattern.run(engine), pattern.exact(), FLOAT)


def test_settings_take_engines_away(cuda: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a program's other ways are tested. A plan of an engine that is gone is none."""
    fused, single, total = (Pattern(cuda, name, CASES[0], layout=NHWC) for name in ("relu", "data", "sum"))
    engine = fused.engines()[PLAIN]
    monkeypatch.setenv("STRICT_GRAPH_FUSION", "0")
    assert not fused.engines() and not fused.engines(FALLBACK)
    assert single.engines() and total.engines()
    assert fused.g.finalize(fused.g.plan(engine, handle=cuda.handle)) == 3000
    monkeypatch.setenv("STRICT_GRAPHS", "0")
    assert not single.engines() and not total.engines() and not single.engines(FALLBACK)


def test_who_makes_room_for_none_is_told_of_none(cuda: Calls) -> None:
    """The count is of what was given, as cuDNN 9.19 has it: it does not say how many there are."""
    pattern = Pattern(cuda, "forward", CASES[0])
    heuristic = pattern.g.heuristic(pattern.graph)
    for room, given in ((0, 0), (3, 3), (40, 7)):
        parts = [pattern.g.create(names.ENGINECFG) for _ in range(room)]
        assert pattern.g.fill(heuristic, names.RESULTS, parts) == (0, given)
    x = pattern.g.tensor(X, (2, 3, 4, 5))
    assert [pattern.g.get(x, 902, names.INT64, room) for room in (0, 2, 8)] == [
        (0, 0, []), (0, 2, [2, 3]), (0, 4, [2, 3, 4, 5])]  # fmt: skip


def test_nothing_offered_is_no_error(cuda: Calls) -> None:
    """As cuDNN has it: the heuristic is finalized, and has no results."""
    pattern = Pattern(cuda, "sum", CASES[0])
    heuristic = pattern.g.heuristic(pattern.graph)
    assert pattern.g.get(heuristic, names.RESULTS, names.PART, 0)[:2] == (0, 0)
    assert pattern.g.fill(heuristic, names.RESULTS, [pattern.g.create(names.ENGINECFG)]) == (0, 0)


@pytest.mark.parametrize("name", ["forward", "data", "filter"])
def test_factors_and_mode(cuda: Calls, name: str) -> None:
    """alpha times the convolution plus beta times what was there; CONVOLUTION flips the filter."""
    pattern = Pattern(cuda, name, CASES[1], alpha=0.5, beta=-2)
    exact = 0.5 * pattern.exact() - 2 * pattern.values[pattern.result].double()
    assert is_rounded(pattern.run(pattern.engines()[PLAIN]), exact, FLOAT, units=8)
    pattern = Pattern(cuda, name, CASES[1], mode=CONVOLUTION)
    flipped = pattern.values | {W: pattern.values[W].flip(2, 3)}
    exact = pattern.exact(flipped).flip(2, 3) if name == "filter" else pattern.exact(flipped)
    assert is_rounded(pattern.run(pattern.engines()[PLAIN]), exact, FLOAT)


@pytest.mark.parametrize("nan", [0, 1])
def test_relu_and_nan(cuda: Calls, nan: int) -> None:
    """NaN passes on with CUDNN_PROPAGATE_NAN, and is 0 without."""
    pattern = Pattern(cuda, "bias, relu", CASES[0], nan=nan)
    pattern.data[BIAS] = put(cuda, torch.full((1, 4, 1, 1), float("nan")))
    got = pattern.run(pattern.engines()[PLAIN])
    assert bool(got.isnan().all()) == bool(nan) and bool((got == 0).all()) != bool(nan)


def test_mask_of_nan_is_no_mask(cuda: Calls) -> None:
    """dx is 0 where the mask is NaN, and the gradient where it is above 0, NaN or not."""
    pattern = Pattern(cuda, "mask", CASES[0], layout=NHWC)
    mask = torch.ones_like(pattern.values[MASK])
    mask[0] = float("nan")
    pattern.data[MASK] = put(cuda, mask, NHWC)
    pattern.data[Y] = put(cuda, torch.full_like(pattern.values[Y], float("nan")), NHWC)
    got = pattern.run(pattern.engines()[COMPILED])
    assert bool((got[0] == 0).all()) and bool(got[1].isnan().any())


def test_random_engine_differs_from_run_to_run(cuda: Calls) -> None:
    """In last bits; the plain one does not. The result of before is not read."""
    pattern = Pattern(cuda, "filter", CASES[0])
    engines = pattern.engines()
    first, second = (pattern.run(engines[RANDOM]) for _ in range(2))
    assert not torch.equal(first, second) and torch.allclose(first, second)
    assert torch.equal(*(pattern.run(engines[PLAIN]) for _ in range(2)))


@pytest.mark.parametrize(("name", "number"), [("bias", SPACE), ("sum", COMPILED), ("data", FFT)])
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


@pytest.mark.parametrize("name", PATTERNS)
def test_plan_as_text(cuda: Calls, name: str) -> None:
    """A plan made from another's text does the same, without its graph."""
    pattern = Pattern(cuda, name, CASES[0], HALF, NHWC)
    engine = pattern.engines()[COMPILED if name in ("mask", "sum") else SPACE]
    plan, size = pattern.plan(engine)
    room = pattern.g.get(plan, names.JSON, names.CHAR, 0)[1]
    text = bytes(pattern.g.values(plan, names.JSON, names.CHAR, room))  # type: ignore[arg-type]
    expected = pattern.execute(plan, size)
    pattern.g.destroy()
    again = pattern.g.finalized(names.EXECUTION_PLAN, [(400, names.HANDLE, [cuda.handle]), (405, names.CHAR, text)])
    assert pattern.g.values(again, names.WORKSPACE_SIZE, names.INT64, 1) == (size,)
    pattern.data[pattern.result] = put(cuda, torch.zeros_like(pattern.values[pattern.result]), NHWC)
    assert torch.equal(pattern.execute(again, size), expected)
