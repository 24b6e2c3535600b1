# SPDX-License-Identifier: MIT
"""Convolutions of arrays in C order on the device cpu with channels in the vector lanes, not pixels.

They are computed as those of channels_last arrays are: turned as they are packed, and turned back as they are stored.
The shapes choose; ``CNN_CPU_LANES`` lets outputs and data gradients go one way.
"""

from __future__ import annotations

import numpy as np
import pytest

from bridge.engine.arrays.operand import extent_of
from bridge.engine.library import extension
from bridge.exchange.model import Model
from tests.helpers.cases import Case, check, fortran_convolution, tensors, torch_convolution, truth
from tests.helpers.cpu.channels_last import SHAPES as OF_CHANNELS_LAST
from tests.helpers.cpu.exact import ALL_DTYPES, ALL_GROUPS, assert_exact
from tests.helpers.cpu.fused_sequences import conv, sequence
from tests.helpers.instruction_sets import EACH_LEVEL, GROUPS, LANES_VARIABLE, choose, integers, ways
from tests.helpers.networks.network_pairs import assert_same_gradients, batch, networks
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
    Case("25 taps of more channels than are turned at once", (2, 20, 7, 6), (33, 20, 5, 5), padding=(2, 2)),
    Case("in steps", (2, 6, 15, 12), (17, 6, 3, 5), (2, 3), (1, 2)),
    Case("in steps, beyond the last pixel", (2, 20, 8, 10), (33, 20, 3, 3), (3, 4)),
    Case("in steps, groups", (2, 12, 9, 11), (51, 4, 3, 3), (2, 2), (1, 1), groups=3),
    Case("as it lies, in steps", (2, 18, 9, 13), (20, 18, 3, 3), (2, 2)),
    Case("parts of rows", (1, 20, 3, 700), (18, 20, 3, 3), (1, 2), (1, 1)),
    *OF_CHANNELS_LAST,
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


@pytest.mark.parametrize("case", few(SHAPES, 9), ids=lambda case: case.name)
@pytest.mark.parametrize("wanted", ["channels", ""], ids=["forced", "chosen"])
@ALL_DTYPES
def test_each_shape_is_exact_and_within_bounds(case: Case, dtype: str, wanted: str, level: str,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Filter gradients are computed so where that is chosen."""
    monkeypatch.setenv(LANES_VARIABLE, wanted)
    if wanted:
        assert channels(case, dtype) == [one > 1 for one in (case.w[1], case.w[0] // case.groups)]
    t = integers(case, dtype)
    right = torch_convolution(case, t)
    found = fortran_convolution(case, t)
    assert [name for name in right if not np.array_equal(found[name], right[name])] == []
    t = tensors(case, dtype)
    check(fortran_convolution(case, t), truth(case, t), dtype)


def test_shapes_choose_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few pixels and many products each, or pixels."""
    monkeypatch.delenv(LANES_VARIABLE, raising=False)
    resnet = Case("of a ResNet", (1, 256, 14, 14), (256, 256, 3, 3), padding=(1, 1))
    down = Case("of a ResNet, in steps", (1, 64, 32, 32), (128, 64, 3, 3), (2, 2), (1, 1))
    narrow = Case("narrow", (9, 16, 8, 8), (32, 16, 1, 1))
    mission = Case("of the default model", (2, 16, 1024, 1024), (16, 16, 3, 3), padding=(1, 1))
    depthwise = Case("depthwise", (2, 64, 14, 14), (64, 1, 3, 3), padding=(1, 1), groups=64)
    assert channels(resnet) == channels(down) == channels(narrow) == [True, True]
    assert channels(mission) == channels(depthwise) == [False, False]
    turned = ["all of dy turned" in ways(case, "float32")[2] for case in (resnet, down, narrow, mission, depthwise)]
    assert turned == [True, True, False, False, False]


def test_what_cannot_go_this_way_goes_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """One filter over one channel, and more planes than are packed."""
    monkeypatch.setenv(LANES_VARIABLE, "channels")
    assert channels(Case("steps", (1, 8, 30, 30), (40, 8, 3, 3), (5, 5), (1, 1))) == [False, False]
    assert channels(Case("depthwise", (1, 9, 9, 9), (9, 1, 3, 3), padding=(1, 1), groups=9)) == [False, False]


@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (1, 3)], ids=str)
@ALL_DTYPES
def test_fused_steps_are_those_of_a_plain_network(dtype: str, level: str, stride: tuple[int, int],
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """Bias, ReLU, its mask in the place of the result, and the sums of the bias gradient."""
    monkeypatch.setenv(LANES_VARIABLE, "channels")
    model = Model(sequence(conv("a", 3, 33, padding=(1, 1)), conv("b", 33, 70, padding=(1, 1), stride=stride),
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
                   extension.C_ORDER, 0, x.ctypes.data, extent_of(x.shape), w.ctypes.data,
                   extent_of(w.shape), 0, y.ctypes.data)
    expected = np.zeros(y.shape, bool)
    expected[0, :, 3:6, 9:] = True
    assert np.array_equal(np.isnan(y), expected)
