# SPDX-License-Identifier: MIT
"""The kernels of the device cpu, with each instruction set of this machine, against the plain loops and PyTorch.

Integers are the sharpest test: no sum is rounded, so one pixel too many or too few is a difference, at every place and
in every shape. Rounding is judged by the bounds of test_conv2d.
"""

from __future__ import annotations

import functools
import itertools
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bridge
from bridge.engine.arrays.operand import extent_of
from bridge.engine.library import extension
from bridge.exchange.model import Conv2d, Model, Relu
from tests.helpers.cases import Array, Case, check, fortran_convolution, tensors, truth
from tests.helpers.cpu.exact import ALL_DTYPES, ALL_GROUPS, DTYPES, assert_exact
from tests.helpers.instruction_sets import EACH_LEVEL, GROUPS, UNFOLDED, choose, integers, ways


@pytest.fixture(params=EACH_LEVEL)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The device cpu uses this instruction set."""
    choose(request.param, monkeypatch)
    return str(request.param)


@ALL_GROUPS
@ALL_DTYPES
def test_integers_are_exact(group: str, dtype: str, level: str) -> None:
    for case in GROUPS[group]:
        assert_exact(case, dtype)


def test_the_shapes_take_the_paths_that_they_are_for() -> None:
    """Several bands down with a shorter one at the end, several across, and im2col where packing is worth nothing."""
    def band(group: str, name: str) -> tuple[int, int]:
        (case,) = (one for one in GROUPS[group] if one.name == name)
        rows, pixels = re.findall(r"\d+", ways(case, "float64")[0])
        return int(rows), int(pixels)

    assert band("heights", "height 1")[0] == 1 and 37 % band("heights", "height 37")[0] > 0
    assert band("bands across", "width 3000")[1] < 1500 and band("bands across", "many channels")[1] < 300
    for case in UNFOLDED:
        assert set(ways(case, "float32")) == {"im2col"}, case
    for group, dtype in itertools.product(GROUPS, DTYPES):
        # Their filter gradients are direct where channels are few: see test_matrix_products
        begins = ("as a matrix product", "direct") if group == "matrix products" else ("direct",)
        assert all(way.startswith(begins) for case in GROUPS[group] for way in ways(case, dtype)), group


@ALL_DTYPES
def test_im2col_is_exact(dtype: str, level: str) -> None:
    for case in UNFOLDED:
        assert_exact(case, dtype)


def test_the_widest_packed_band_is_exact(level: str) -> None:
    """Just below the limit above which im2col takes over: offsets of millions of elements."""
    case = Case("far apart, but packed", (1, 1, 1, 1), (1, 1, 2, 2), padding=(2000, 2000), dilation=(4000, 4000))
    assert all(way.startswith("direct") for way in ways(case, "float32"))
    assert_exact(case, "float32")


#: One of each kind; the rest of rounding is test_conv2d's
ROUNDED = (*(GROUPS[name][-1] for name in GROUPS), GROUPS["many pixels"][0], GROUPS["strides"][6], GROUPS["widths"][20],
           UNFOLDED[0])


@ALL_DTYPES
def test_rounding_stays_within_its_bounds(dtype: str, level: str) -> None:
    for case in ROUNDED:
        t = tensors(case, dtype)
        check(fortran_convolution(case, t), _truth(case, dtype), dtype)


@functools.cache
def _truth(case: Case, dtype: str) -> dict[str, tuple[Array, Array]]:
    return truth(case, tensors(case, dtype))


@st.composite
def random_cases(draw: st.DrawFn) -> Case:
    """Any convolution of up to 20 channels and filters and rows of up to 300 pixels that has an output."""
    number = st.integers
    groups, taps = draw(number(1, 3)), (draw(number(1, 5)), draw(number(1, 7)))
    pad, dilation = (draw(number(0, 9)), draw(number(0, 20))), (draw(number(1, 4)), draw(number(1, 9)))
    least = [max(1, d * (t - 1) + 1 - 2 * p) for d, t, p in zip(dilation, taps, pad, strict=True)]
    size = (least[0] + draw(number(0, 9)), least[1] + draw(number(0, 300)))
    c, k = draw(number(1, 20)) // groups + 1, draw(number(1, 20)) // groups + 1
    return Case("random", (draw(number(1, 3)), c * groups, *size), (k * groups, c, *taps),
                (draw(number(1, 5)), draw(number(1, 5))), pad, dilation, groups, draw(st.booleans()))


@settings(max_examples=150, deadline=None, derandomize=True, database=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=random_cases(), dtype=st.sampled_from(DTYPES))
def test_random_shapes_are_exact(case: Case, dtype: str, level: str) -> None:
    assert_exact(case, dtype)


@pytest.mark.parametrize("group", ["filters", "channels", "strides", "heights", "bands across", "channel groups",
                                   "depthwise", "split columns"])
@ALL_DTYPES
def test_vectors_of_another_length_give_the_same_outputs(group: str, dtype: str,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """A result adds its products in one order, whatever the tile: avx2 and avx512 agree to the bit."""
    for case in GROUPS[group]:
        t, found = tensors(case, dtype), []
        for one in ("avx2", "avx512"):
            choose(one, monkeypatch)
            found.append(fortran_convolution(case, t))
        for name in ("y", "dx"):
            assert np.array_equal(found[0][name], found[1][name]), (case, name)


def _raw(case: Case, t: dict[str, Array], device: str) -> tuple[Array, Array]:
    """y and dx by calls that look for no NaN in what they are given."""
    params = np.array([*case.stride, *case.padding, *case.dilation, case.groups], np.int32)
    y, dx = np.empty_like(t["dy"]), np.empty_like(t["x"])
    dtype = extension.dtype_code("dtype", y.dtype.name)
    ex, ew = (extent_of(tuple(shape)) for shape in (case.x, case.w))
    x, w, b, dy = (t[name].ctypes.data for name in ("x", "w", "b", "dy"))
    extension.call("conv2d_forward", device, dtype, params, extension.C_ORDER, 0, x, ex, w, ew, b, y.ctypes.data)
    extension.call("conv2d_backward", device, dtype, params, extension.C_ORDER, x, ex, w, ew, dy, dx.ctypes.data, 0, 0)
    return y, dx


@ALL_DTYPES
def test_nan_and_infinity_reach_what_the_plain_loops_say(dtype: str, level: str) -> None:
    """Depthwise, where vectors and rows are computed twice and stand beside what another row needs."""
    for k, stride in itertools.product((3, 5, 7), (1, 2)):
        case = Case(f"{k}x{k}", (2, 3, 19, 90), (3, 1, k, k), (stride, stride), (k // 2, k // 2), groups=3)
        t = integers(case, dtype)
        t["x"][[0, 1, 1], [1, 2, 0], [4, 3, 0], [5, 89, 0]] = np.nan, np.inf, -np.inf
        t["dy"][[0, 1], [1, 2], [2, 1], [3, 0]] = np.nan, np.inf
        for found, right in zip(_raw(case, t, "cpu"), _raw(case, t, "naive"), strict=True):
            assert np.isnan(right).any() and not np.isnan(right[0, 0]).any()
            assert np.array_equal(found, right, equal_nan=True), case


# --- ReLU, and gradients in the memory of outputs


def _small_weights(net: bridge.Network, rng: np.random.Generator) -> None:
    for values in net.parameters.values():
        values[...] = rng.integers(-1, 2, values.shape)


def _gradients(case: Case, dtype: str, device: str, keep: bool) -> dict[str, Array]:
    """Of a 1x1 convolution, a ReLU, the case's convolution, another ReLU: integers, so nothing is rounded."""
    c, k = case.x[1], case.w[0]
    layers = (Conv2d("a", c, c, (1, 1)), Relu("r"),
              Conv2d("b", c, k, case.w[2:], case.stride, case.padding, case.dilation, case.groups), Relu("s"))
    net, rng = bridge.Network(Model(layers, mean=False), dtype, device, keep_activations=keep), np.random.default_rng(4)
    _small_weights(net, rng)
    x = rng.integers(-1, 2, case.x).astype(dtype)
    y = net.forward(x)
    net.loss((y - rng.integers(-1, 2, y.shape)).astype(dtype))
    net.backward()
    return {"y": y} | {name: array.copy() for name, array in net.gradients.items()}


@pytest.mark.parametrize("group", ["filters", "channels", "widths", "heights", "bands across", "strides", "padding",
                                   "channel groups", "whole vectors", "many filters", "depthwise", "split columns"])
@ALL_DTYPES
def test_gradients_through_a_relu_are_exact(group: str, dtype: str, level: str) -> None:
    """The mask and the bias gradient come with the data gradient, which overwrites the output."""
    seen = 0
    for case in (*GROUPS[group], *UNFOLDED[:2]):
        found, right = (_gradients(case, dtype, device, keep) for device, keep in (("cpu", False), ("naive", True)))
        for name, array in right.items():
            assert np.array_equal(found[name], array), (case, name)
        seen += int(np.any(right["a.weight"])) + int(np.any(right["a.bias"]))
    assert seen > len(GROUPS[group])


@ALL_DTYPES
def test_relu_with_the_convolution_is_relu_after_it(dtype: str, level: str) -> None:
    for case in (*GROUPS["filters"], *GROUPS["strides"], *GROUPS["depthwise"], *UNFOLDED[:2]):
        t = tensors(case, dtype)
        plain = bridge.conv2d(t["x"], t["w"], t["b"], **case.settings)
        assert (plain < 0).any()
        fused = bridge.conv2d(t["x"], t["w"], t["b"], **case.settings, relu=True)
        assert np.array_equal(fused, np.maximum(plain, 0)), case
