# SPDX-License-Identifier: MIT
"""Outputs and data gradients of the device cpu with channels of the result in the vector lanes, not pixels.

The shapes choose; ``CNN_CPU_LANES`` lets every convolution go one way, as far as it can.
"""

from __future__ import annotations

import numpy as np
import pytest

from bridge.engine.library import extension
from bridge.exchange.model import Model
from tests.helpers.cases import Array, Case, fortran_convolution, tensors
from tests.helpers.exact import ALL_DTYPES, ALL_GROUPS, assert_exact
from tests.helpers.fused_sequences import conv, sequence
from tests.helpers.instruction_sets import EACH_LEVEL, GROUPS, LANES_VARIABLE, choose, ways
from tests.helpers.network_pairs import assert_same_gradients, batch, networks
from tests.helpers.tiers import few

#: Panels of 4, 3, 2 and 1 vectors and results that fill none, several strips of pixels, groups, bands of rows
SHAPES = (
    *(Case(f"{k} of {c} channels", (2, c, 5, 7), (k, c, 3, 2), padding=(1, 1))
      for c, k in ((5, 8), (16, 9), (17, 31), (33, 48), (64, 65), (70, 129), (2, 200))),
    Case("several strips", (2, 9, 19, 23), (18, 9, 3, 3), padding=(1, 1)),
    Case("several bands", (1, 40, 90, 60), (20, 40, 3, 3), padding=(1, 1)),
    Case("one strip", (1, 8, 8, 12), (8, 8, 1, 1)), Case("one more", (1, 8, 1, 97), (8, 8, 1, 1)),
    Case("in groups", (3, 15, 6, 7), (51, 5, 3, 3), padding=(1, 1), groups=3),
    Case("in groups, in place", (3, 15, 6, 7), (51, 5, 2, 3), groups=3),
    Case("padding", (2, 20, 4, 5), (9, 20, 2, 2), padding=(3, 4), dilation=(2, 1)),
    Case("forward in steps", (2, 6, 15, 12), (17, 6, 3, 5), (2, 3), (1, 2)),
)


@pytest.fixture(params=EACH_LEVEL)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The device cpu uses this instruction set."""
    choose(request.param, monkeypatch)
    return str(request.param)


def channels(case: Case, dtype: str = "float32") -> list[bool]:
    """Whether channels are in the lanes in the output, in the data gradient."""
    return ["channels in the lanes" in way for way in ways(case, dtype)[:2]]


@ALL_GROUPS
@ALL_DTYPES
@pytest.mark.parametrize("way", ["pixels", "channels"])
def test_integers_are_exact_each_way(way: str, group: str, dtype: str, level: str,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LANES_VARIABLE, way)
    for case in GROUPS[group]:
        assert_exact(case, dtype)


@pytest.mark.parametrize("case", few(SHAPES, 5), ids=lambda case: case.name)
@ALL_DTYPES
def test_both_ways_give_the_same_bits(case: Case, dtype: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result adds its products in the same order, whatever is in the lanes."""
    found: list[dict[str, Array]] = []
    for way in ("pixels", "channels"):
        monkeypatch.setenv(LANES_VARIABLE, way)
        assert channels(case, dtype) == [way == "channels", way == "channels" and case.stride == (1, 1)]
        found.append(fortran_convolution(case, tensors(case, dtype)))
    for name in ("y", "dx"):
        assert found[0][name].tobytes() == found[1][name].tobytes(), name


def test_shapes_choose_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few pixels and many products each, or pixels."""
    monkeypatch.delenv(LANES_VARIABLE, raising=False)
    resnet = Case("of a ResNet", (1, 256, 14, 14), (256, 256, 3, 3), padding=(1, 1))
    mission = Case("of the default model", (2, 16, 1024, 1024), (16, 16, 3, 3), padding=(1, 1))
    depthwise = Case("depthwise", (2, 64, 14, 14), (64, 1, 3, 3), padding=(1, 1), groups=64)
    assert channels(resnet) == [True, True]
    assert channels(mission) == channels(depthwise) == [False, False]


def test_what_cannot_go_this_way_goes_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data gradients of strides, bands of parts of rows, one filter over one channel."""
    monkeypatch.setenv(LANES_VARIABLE, "channels")
    assert channels(Case("stride", (1, 8, 9, 9), (40, 8, 3, 3), (2, 2), (1, 1))) == [True, False]
    assert channels(Case("wide", (1, 2, 3, 3000), (3, 2, 3, 3), padding=(1, 1))) == [False, False]
    assert channels(Case("depthwise", (1, 9, 9, 9), (9, 1, 3, 3), padding=(1, 1), groups=9)) == [False, False]


@ALL_DTYPES
def test_fused_steps_are_those_of_a_plain_network(dtype: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bias, ReLU, its mask in the place of the result, and the sums of the bias gradient."""
    monkeypatch.setenv(LANES_VARIABLE, "channels")
    model = Model(sequence(conv("a", 3, 33, padding=(1, 1)), conv("b", 33, 70, padding=(1, 1)),
                           conv("c", 70, 2, (2, 3))))
    shape = (3, 3, 13, 17)
    plain, efficient = networks(model, dtype)
    assert not any("depth first" in way for way in efficient.plan(shape))
    x, target = batch(model, shape, dtype, 1)
    assert np.array_equal(plain.forward(x), efficient.forward(x))
    assert all(np.array_equal(plain.output(layer), efficient.output(layer)) for layer in ("r0", "r1", "c"))
    assert plain.loss(target) == efficient.loss(target)
    plain.backward()
    efficient.backward()
    assert_same_gradients(plain, efficient, x)


@ALL_DTYPES
def test_nan_reaches_what_reads_it(dtype: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else: there are no zeros between rows that another pixel would be multiplied with."""
    monkeypatch.setenv(LANES_VARIABLE, "channels")
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(1, 6, 9, 11)).astype(dtype), rng.normal(size=(20, 6, 3, 3)).astype(dtype)
    x[0, 2, 4, 10] = np.nan
    y = np.zeros((1, 20, 9, 11), dtype)
    extension.call("conv2d_forward", "cpu", extension.DTYPES[dtype], np.array([1, 1, 1, 1, 1, 1, 1], np.int32),
                   extension.C_ORDER, 0, x.ctypes.data, np.array(x.shape[::-1], np.int32), w.ctypes.data,
                   np.array(w.shape[::-1], np.int32), 0, y.ctypes.data)
    expected = np.zeros(y.shape, bool)
    expected[0, :, 3:6, 9:] = True
    assert np.array_equal(np.isnan(y), expected)
