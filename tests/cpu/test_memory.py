# SPDX-License-Identifier: MIT
"""What the kernels of the device cpu read and write: no other pixel, no other memory, and the same with any threads."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bridge
from bridge.engine.library import extension
from tests.helpers.cases import Array, Case, channels_last, fortran_convolution, tensors
from tests.helpers.cpu.cpu_memory import PICTURES
from tests.helpers.instruction_sets import EACH_LEVEL, GROUPS, LANES_VARIABLE, LEVELS, VARIABLE, best, choose, integers
from tests.helpers.tiers import few

ALL_DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])

@pytest.fixture(params=EACH_LEVEL)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The device cpu uses this instruction set."""
    choose(request.param, monkeypatch)
    return str(request.param)


# --- NaN and infinity


@pytest.fixture
def anything_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs are not refused for NaN: a network may make some on its way."""
    monkeypatch.setattr(extension, "check_finite", lambda name, array: None)


def _with(array: Array, at: tuple[int, ...], value: float) -> Array:
    changed = array.copy()
    changed[at] = value
    return changed


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@ALL_DTYPES
def test_a_value_reaches_what_depends_on_it_and_nothing_else(value: float, dtype: str, level: str,
                                                             anything_goes: None) -> None:
    """Outputs and data gradients are sums over few pixels: a bad pixel is in these, at no other place."""
    for case in PICTURES:
        rng = np.random.default_rng(3)
        t = integers(case, dtype)
        t["w"][t["w"] == 0] = 1
        ones = {name: np.ones_like(array) for name, array in t.items()} | {"b": np.zeros_like(t["b"])}
        for one, other in (("x", "y"), ("dy", "dx")):
            at = tuple(int(rng.integers(n)) for n in t[one].shape)
            spike = _with(np.zeros_like(t[one]), at, 1)
            reached = fortran_convolution(case, ones | {one: spike}, "naive")[other] != 0
            clean = fortran_convolution(case, t | {one: _with(t[one], at, 0)})[other]
            found = fortran_convolution(case, t | {one: _with(t[one], at, value)})[other]
            assert np.array_equal(~np.isfinite(found), reached), (case, one)
            assert np.array_equal(found[~reached], clean[~reached]), (case, one)


@ALL_DTYPES
def test_nan_passes_relu(dtype: str, level: str, anything_goes: None) -> None:
    """As in torch: a ReLU with the convolution hides no NaN."""
    case = GROUPS["filters"][14]
    t = integers(case, dtype)
    t["x"][0, 1, 2, 9] = np.nan
    plain, fused = (bridge.conv2d(t["x"], t["w"], t["b"], **case.settings, relu=relu) for relu in (False, True))
    assert 0 < np.isnan(plain).sum() < plain.size
    assert np.array_equal(np.isnan(fused), np.isnan(plain))


@ALL_DTYPES
def test_nan_reaches_the_filter_gradient(dtype: str, level: str, anything_goes: None) -> None:
    """Every filter of the channel that sees the pixel; other channels of x do not."""
    case = Case("plain", (2, 5, 9, 33), (7, 5, 3, 3))
    t = integers(case, dtype)
    dw = fortran_convolution(case, t | {"x": _with(t["x"], (1, 3, 4, 16), np.nan)})["dw"]
    assert np.isnan(dw[:, 3]).all()
    assert np.array_equal(np.delete(dw, 3, 1), np.delete(fortran_convolution(case, t)["dw"], 3, 1))


# --- memory


@ALL_DTYPES
def test_nothing_is_written_outside_of_out(dtype: str, level: str) -> None:
    """`out` in the middle of a larger array, at every place of a vector."""
    for case, before in zip((*PICTURES, *PICTURES), range(1, 33), strict=True):
        t, size = tensors(case, dtype), int(np.prod(case.y))
        for relu in (False, True):
            room = np.full(before + size + 65, 7.5, dtype)
            out = room[before:before + size].reshape(case.y)
            bridge.conv2d(t["x"], t["w"], t["b"], **case.settings, relu=relu, out=out)
            assert (room[:before] == 7.5).all() and (room[before + size:] == 7.5).all(), case
            assert np.array_equal(out, bridge.conv2d(t["x"], t["w"], t["b"], **case.settings, relu=relu)), case


@ALL_DTYPES
@pytest.mark.parametrize("layout", [np.ascontiguousarray, channels_last], ids=["C order", "channels_last"])
def test_what_a_call_leaves_is_not_read(layout: Callable[[Array], Array], dtype: str, level: str,
                                        anything_goes: None) -> None:
    """Scratch memory is that of the call before, here full of NaN."""
    nothing = np.full((1, 16, 96, 96), np.nan, dtype), np.ones((16, 16, 3, 3), dtype)
    masks = ((True, False, False), (False, True, False))

    def passes(case: Case, t: dict[str, Array], before: Callable[[], object]) -> list[Array]:
        x, w, dy = (layout(t[name]) for name in ("x", "w", "dy"))
        before()
        found = [bridge.conv2d(x, w, t["b"], **case.settings)]
        for mask in masks:
            before()
            found.append(bridge.conv2d_backward(dy, x, w, **case.settings, output_mask=mask)[mask.index(True)])
        return found

    assert np.isnan(bridge.conv2d(*nothing)).all()
    for case in PICTURES:
        t = integers(case, dtype)
        clean = passes(case, t, lambda: None)
        for one, other in zip(clean, passes(case, t, lambda: bridge.conv2d(*nothing)), strict=True):
            assert np.array_equal(one, other), case


def child(code: str, *arguments: str, **environment: str) -> str:
    """What a Python of its own prints."""
    # Threads that wait for others on busy cores must not keep these from working
    known = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), OMP_WAIT_POLICY="passive")
    begin = "import sys; from tests.helpers.cpu import cpu_memory as t"
    done = subprocess.run([sys.executable, "-c", f"{begin}; {code}", *arguments], capture_output=True,
                          text=True, check=False, env=known | environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


DIGESTS = "sys.stdout.write(t.digests(*sys.argv[1:]))"
#: An element of memory that numpy did not clear
FRESH = "import numpy; print(numpy.empty(100000)[50000])"


@pytest.fixture(scope="module", ids="-".join, params=few(
    [("avx2", ""), ("baseline avx512", ""), ("baseline avx2 avx512", "channels")], 1))
def right(request: pytest.FixtureRequest) -> tuple[str, str]:
    """What is asked to be in the vector lanes, and the digests with one thread at levels that this machine has."""
    levels, way = request.param
    with pytest.MonkeyPatch.context() as environment:
        highest = LEVELS.index(best(environment))
        environment.setenv(VARIABLE, "")
        known = [level for level in levels.split() if LEVELS.index(level) <= highest]
        if not known:
            pytest.skip(f"{levels} is not tested: this processor, or this build, has nothing above {LEVELS[highest]}")
        return way, child(DIGESTS, *known, **{"OMP_NUM_THREADS": "1", LANES_VARIABLE: way})


def again(right: tuple[str, str], threads: str, **environment: str) -> str:
    """The digests once more."""
    levels = [line.split()[0] for line in right[1].splitlines()]
    return child(DIGESTS, *levels, **{"OMP_NUM_THREADS": threads, LANES_VARIABLE: right[0]}, **environment)


@pytest.mark.parametrize("threads", few(["2", "5"], lambda threads: threads == "5"))
def test_threads_do_not_change_a_bit(threads: str, right: tuple[str, str]) -> None:
    assert again(right, threads) == right[1]


@pytest.mark.deep
def test_memory_that_nobody_wrote_reaches_no_result(right: tuple[str, str], root: Path, tmp_path: Path) -> None:
    """New memory is full of NaN: the same bits."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if platform.libc_ver()[0] != "glibc" or compiler is None:
        pytest.skip("needs glibc and a C compiler")
    library = tmp_path / "unwritten.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-fno-builtin",
                    root / "tests/helpers/programs/unwritten_memory.c", "-o",
                    library], check=True)
    assert np.isnan(float(child(FRESH, OMP_NUM_THREADS="1", LD_PRELOAD=str(library))))
    assert again(right, "1", LD_PRELOAD=str(library)) == right[1]


@pytest.mark.parametrize("way", ["", "channels"])
def test_nothing_is_read_outside_of_the_inputs(way: str, level: str) -> None:
    """Pages that cannot be read lie at the end, or the beginning, of every input."""
    if not sys.platform.startswith("linux"):
        pytest.skip("mprotect as Linux has it")
    assert child("t.compute_between_fences()", **{"OMP_NUM_THREADS": "1", LANES_VARIABLE: way}) == "done\n"
