# SPDX-License-Identifier: MIT
"""Filter gradients of the device cpu, each way that they can go: pixels in the vector lanes, or channels.

The shapes choose the way; ``CNN_CPU_LANES`` sends all of them one way, so that each is held against the plain loops
in shapes that are not its own, too.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

import bridge
from bridge.common.errors import EngineError
from bridge.engine.arrays.operand import extent_of
from bridge.engine.library import extension
from tests.helpers.cases import GUARD, Array, Case, tensors, truth
from tests.helpers.instruction_sets import EACH_LEVEL, GROUPS, LANES_VARIABLE, UNFOLDED, choose, integers, ways

ALL_DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
ALL_WAYS = pytest.mark.parametrize("way", ["pixels", "channels"])
LANES = ("lanes", "lanes in bands", "lanes in steps")


@pytest.fixture(params=EACH_LEVEL)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The device cpu uses this instruction set."""
    choose(request.param, monkeypatch)
    return str(request.param)


def gradient(case: Case, t: dict[str, Array], device: str = "cpu") -> Array:
    """dw and nothing else, in memory full of NaN; what lies beside it must stay as it was."""
    size = int(np.prod(case.w))
    room = np.full(size + 2 * GUARD, np.nan, t["x"].dtype)
    dw = room[GUARD:GUARD + size].reshape(case.w)
    params = np.array([*case.stride, *case.padding, *case.dilation, case.groups], np.int32)
    extents = [extent_of(tuple(shape)) for shape in (case.x, case.w)]
    extension.call("conv2d_backward", device, extension.dtype_code("dtype", dw.dtype.name), params, extension.C_ORDER,
                   t["x"].ctypes.data, extents[0], dw.ctypes.data, extents[1], t["dy"].ctypes.data, 0, dw.ctypes.data,
                   0)
    assert np.isnan(room[:GUARD]).all() and np.isnan(room[-GUARD:]).all()
    return dw


@functools.cache
def _plain(case: Case) -> Array:
    return gradient(case, integers(case, "float64"), "naive")


def _lanes(case: Case, dtype: str = "float32") -> str:
    """What is in the lanes in the filter gradient."""
    return "channels" if "channels in the lanes" in ways(case, dtype)[2] else "pixels"


@pytest.mark.parametrize("group", GROUPS)
@ALL_DTYPES
@ALL_WAYS
def test_each_way_is_exact(way: str, group: str, dtype: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LANES_VARIABLE, way)
    for case in GROUPS[group]:
        assert _lanes(case, dtype) == way, case
        assert np.array_equal(gradient(case, integers(case, dtype)), _plain(case)), case


def test_shapes_choose_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many channels of few pixels beside each other, few channels of many pixels not."""
    monkeypatch.delenv(LANES_VARIABLE, raising=False)
    for case in (one for group in LANES for one in GROUPS[group]):
        assert _lanes(case) == "channels", case
    mission = Case("of the default model", (2, 16, 1024, 1024), (16, 16, 3, 3), padding=(1, 1))
    for case in (*GROUPS["one wide filter"], *GROUPS["many pixels"], mission):
        assert _lanes(case) == "pixels", case
    resnet = Case("of a ResNet", (1, 256, 14, 256), (256, 256, 3, 3), padding=(1, 1))
    assert ways(resnet, "float32")[2].startswith("direct, channels in the lanes, in bands of 1 x ")


@ALL_WAYS
def test_what_does_not_fit_is_still_unfolded(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LANES_VARIABLE, way)
    for case in UNFOLDED:
        assert ways(case, "float32")[2] == "im2col", case
        assert np.array_equal(gradient(case, integers(case, "float32")), _plain(case)), case


@pytest.mark.parametrize("name", ["pixel", "CHANNELS", "pixels channels"])
def test_an_unknown_way_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LANES_VARIABLE, name)
    case = GROUPS["lanes"][0]
    for use in (lambda: ways(case, "float32"), lambda: bridge.conv2d(*(np.ones((1, 1, 3, 3), np.float32),) * 2)):
        with pytest.raises(EngineError, match=f'^{LANES_VARIABLE} is "{name}", expected pixels or channels$'):
            use()


@ALL_DTYPES
@ALL_WAYS
def test_rounding_stays_within_its_bounds(way: str, dtype: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LANES_VARIABLE, way)
    for case in (*(GROUPS[group][-1] for group in (*LANES, "strides", "channel groups")), GROUPS["many pixels"][1]):
        t = tensors(case, dtype)
        right, bound = truth(case, t)["dw"]
        assert (np.abs(gradient(case, t) - right) <= bound).all(), case


def test_many_equal_terms_are_summed_in_blocks(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, equal terms would lose much more: many additions round the same way."""
    monkeypatch.setenv(LANES_VARIABLE, "channels")
    case = Case("constant", (4, 3, 48, 48), (33, 3, 1, 1))
    t = {"x": np.full(case.x, np.float32(1.1)), "dy": np.full(case.y, np.float32(0.7))}
    right = float(t["x"][0, 0, 0, 0]) * float(t["dy"][0, 0, 0, 0]) * 9216
    assert np.abs(gradient(case, t) / right - 1).max() < 20 * 2.0**-24


@ALL_DTYPES
@ALL_WAYS
def test_the_adjoint_identity_holds(way: str, dtype: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """<conv(x, w), dy> = <w, dw>, which needs no other program of filter gradients."""
    monkeypatch.setenv(LANES_VARIABLE, way)
    for case in (one for group in LANES for one in GROUPS[group]):
        t = integers(case, dtype)
        y = bridge.conv2d(t["x"], t["w"], None, **case.settings)
        assert np.vdot(y.astype("f8"), t["dy"].astype("f8")) == np.vdot(t["w"].astype("f8"), gradient(case, t)), case


@ALL_DTYPES
def test_nan_reaches_the_taps_that_see_it(dtype: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a row of x also those beside them, where taps are shifts; other channels never. A NaN of dy meets
    zeros of the padding, too."""
    monkeypatch.setenv(LANES_VARIABLE, "channels")
    case = Case("plain", (2, 5, 9, 13), (17, 5, 3, 3), padding=(1, 1))
    ones = {name: np.ones_like(array) for name, array in integers(case, dtype).items()}
    for at in ((1, 3, 4, 6), (0, 1, 1, 1), (0, 0, 0, 0), (1, 4, 8, 12), (0, 2, 3, 12)):
        spike = np.zeros_like(ones["x"])
        spike[at] = 1
        t = integers(case, dtype)
        bad = t["x"].copy()
        bad[at] = np.nan
        t["x"][at] = 0
        reached = gradient(case, ones | {"x": spike}, "naive") != 0
        found = gradient(case, t | {"x": bad})
        assert np.isnan(found[reached]).all(), at
        if 0 < at[3] < 12:
            assert np.array_equal(np.isnan(found), reached), at
        assert np.array_equal(np.delete(found, at[1], 1), np.delete(gradient(case, t), at[1], 1)), at
    bad = integers(case, dtype)
    bad["dy"][1, 7, 0, 12] = np.inf
    found = gradient(case, bad)
    assert not np.isfinite(found[7]).any()
    assert np.isfinite(np.delete(found, 7, 0)).all()


@pytest.mark.parametrize("level", EACH_LEVEL)
def test_lanes_are_added_before_small_terms_are_lost(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One term of 2**24 and four million of 1, which float32 cannot add to it: lost are those of one lane until lanes
    are added (fewer than 8192 + 16384 pixels in at least 4 lanes), and not those of a whole chunk."""
    choose(level, monkeypatch)
    monkeypatch.setenv("CNN_CPU_LANES", "pixels")
    x = np.ones((1, 1, 2048, 2048), np.float32)
    x[0, 0, 0, 0] = 2.0**24
    _, dw, _ = bridge.conv2d_backward(np.ones_like(x), x, np.ones((1, 1, 1, 1), np.float32),
                                      output_mask=(False, True, False))
    assert dw is not None
    assert 0 <= 2.0**24 + x.size - 1 - float(dw.item()) <= 8192
