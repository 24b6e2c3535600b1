# SPDX-License-Identifier: MIT
"""Convolutions of channels_last arrays on the device cpu: exact on integers, judged on noise, for every way they go.

Many channels in the lanes, few results of many channels (lanes are the source's), few channels, depthwise; strides,
which are planes forward and parts backward; bands; filters in either order.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import bridge
from tests.helpers.cases import (
    Array,
    Case,
    channels_last,
    check,
    fortran_convolution,
    tensors,
    torch_convolution,
    truth,
)
from tests.helpers.cpu.channels_last import SHAPES
from tests.helpers.cpu.exact import ALL_DTYPES
from tests.helpers.instruction_sets import EACH_LEVEL, choose
from tests.helpers.tiers import few

ALL_SHAPES = pytest.mark.parametrize("case", few(SHAPES, 9), ids=lambda case: case.name)
RESULTS = ("y", "dx", "dw", "db")


@pytest.fixture(params=EACH_LEVEL)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The device cpu uses this instruction set."""
    choose(request.param, monkeypatch)
    return str(request.param)


def is_last(array: Array) -> bool:
    """In memory as (n, h, w, c)."""
    return array.transpose(0, 2, 3, 1).flags.c_contiguous


def integers(case: Case, dtype: str) -> dict[str, Array]:
    """Operands whose products and sums are exact in float32."""
    generator = np.random.default_rng(7)
    shapes = {"x": case.x, "w": case.w, "b": case.w[:1], "dy": case.y}
    return {name: generator.integers(-3, 4, shape).astype(dtype) for name, shape in shapes.items()}


@ALL_SHAPES
@ALL_DTYPES
@pytest.mark.parametrize("filters_too", [True, False], ids=["all", "filters in C order"])
def test_integers_are_exact(case: Case, dtype: str, level: str, *, filters_too: bool) -> None:
    def layout(array: Array) -> Array:
        return channels_last(array) if filters_too or array.shape != case.w else array

    t = integers(case, dtype)
    right = torch_convolution(case, t)
    found = fortran_convolution(case, t, layout=layout)
    assert {name: np.argwhere(found[name] != right[name])[:3].tolist() for name in right
            if not np.array_equal(found[name], right[name])} == {}
    assert is_last(found["y"]) and is_last(found["dx"])
    assert is_last(found["dw"]) or not filters_too


@ALL_SHAPES
@ALL_DTYPES
def test_noise_within_bounds(case: Case, dtype: str, level: str) -> None:
    t = tensors(case, dtype)
    check(fortran_convolution(case, t, layout=channels_last), truth(case, t), dtype)


def test_relu_and_out() -> None:
    """The ReLU is applied after the bias, and `out` is written where it lies."""
    case = SHAPES[1]
    t = integers(case, "float32")
    out = channels_last(np.full(case.y, np.nan, np.float32))
    found = bridge.conv2d(channels_last(t["x"]), t["w"], t["b"], **case.settings, relu=True, out=out)
    assert found is out
    assert np.array_equal(out, np.maximum(torch_convolution(case, t)["y"], 0))


def test_tensors_of_torch() -> None:
    """They are taken where they lie, and results are theirs, in their layout."""
    case = SHAPES[3]
    t = {name: torch.from_numpy(one) for name, one in integers(case, "float32").items()}
    for layout in (torch.channels_last, torch.contiguous_format):
        x, w, dy = (t[name].contiguous(memory_format=layout) for name in ("x", "w", "dy"))
        y = bridge.conv2d(x, w, t["b"], **case.settings)
        right = torch.nn.functional.conv2d(x, w, t["b"], **case.settings)
        assert torch.equal(y, right) and y.is_contiguous(memory_format=layout)
        assert torch.equal(bridge.conv2d(x[1:], w, t["b"], **case.settings), right[1:])
        found = bridge.conv2d_backward(dy, x, w, **case.settings)
        gradients = torch.ops.aten.convolution_backward(
            dy, x, w, [case.w[0]], case.stride, case.padding, case.dilation, False, [0, 0], case.groups, [True] * 3)
        assert all(map(torch.equal, found, gradients))
        assert found[0].is_contiguous(memory_format=layout)
    with pytest.raises(bridge.ArgumentTypeError, match=r"^input: a torch tensor that requires a gradient"):
        bridge.conv2d(t["x"].clone().requires_grad_(), t["w"])


#: Which argument of which function is spoiled
SPOILED = [("input", "forward"), ("weight", "forward"), ("grad_output", "data"), ("weight", "data"),
           ("input", "filter"), ("grad_output", "filter"), ("grad_output", "bias")]


@pytest.mark.parametrize("name", ["16 to 16", "one result", "few of both", "depthwise", "one channel", "in groups",
                                  "in small groups", "many small groups", "1x1", "1x1 in a frame", "without padding",
                                  "small images of many channels", "small images as they lie"])
def test_what_is_not_finite_is_refused(name: str) -> None:
    case = next(one for one in SHAPES if one.name == name)
    t = {key: channels_last(one) if one.ndim == 4 else one for key, one in integers(case, "float32").items()}
    for (spoiled, which), value in itertools.product(SPOILED, (np.nan, np.inf, -np.inf)):
        operand = t[{"input": "x", "weight": "w", "grad_output": "dy"}[spoiled]]
        # A pixel that is read, whatever the padding
        place = (-1, -1, *(min(2, length - 1) for length in operand.shape[2:]))
        right, operand[place] = operand[place], value
        with pytest.raises(bridge.ArgumentError, match=rf"^{spoiled}: holds NaN or infinity, expected finite values$"):
            if which == "forward":
                bridge.conv2d(t["x"], t["w"], **case.settings)
            else:
                mask = (which == "data", which == "filter", which == "bias")
                bridge.conv2d_backward(t["dy"], t["x"], t["w"], **case.settings, output_mask=mask)
        operand[place] = right


def test_what_no_tap_reads_may_be_anything() -> None:
    """The frame of a gradient that saw only padding, and the pixels between strides."""
    case = next(one for one in SHAPES if one.name == "1x1 in a frame")
    t = {key: channels_last(one) if one.ndim == 4 else one for key, one in integers(case, "float32").items()}
    data = (True, False, False)
    right = bridge.conv2d_backward(t["dy"], t["x"], t["w"], **case.settings, output_mask=data)[0]
    for frame in (np.s_[..., 0], np.s_[..., -1], np.s_[:, :, 0], np.s_[:, :, -1]):
        t["dy"][frame] = np.nan
    assert np.array_equal(bridge.conv2d_backward(t["dy"], t["x"], t["w"], **case.settings, output_mask=data)[0], right)
    right = bridge.conv2d(t["x"], t["w"], stride=2)
    t["x"][:, :, 1::2] = t["x"][..., 1::2] = np.inf
    assert np.array_equal(bridge.conv2d(t["x"], t["w"], stride=2), right)


@pytest.mark.parametrize("which", ["forward", "filter"])
def test_nothing_is_left_out_of_the_search(which: str) -> None:
    """What is read where it lies shows in sums of products: each element in one at least."""
    case = next(one for one in SHAPES if one.name == "without padding")
    t = {key: channels_last(one) if one.ndim == 4 else one for key, one in integers(case, "float32").items()}
    x = t["x"].transpose(0, 2, 3, 1).reshape(-1)
    assert np.shares_memory(x, t["x"])
    for place in np.linspace(0, x.size - 1, 101).astype(int):
        before, x[place] = x[place], np.nan
        with pytest.raises(bridge.ArgumentError, match=r"^input: holds NaN"):
            if which == "forward":
                bridge.conv2d(t["x"], t["w"], **case.settings)
            else:
                bridge.conv2d_backward(t["dy"], t["x"], t["w"], **case.settings, output_mask=(False, True, False))
        x[place] = before


def test_a_relu_hides_no_infinity() -> None:
    """Sums of minus infinity are found before the ReLU makes zeros of them."""
    x = channels_last(np.ones((1, 16, 5, 40), np.float32))
    x[0, 3, 2, 7] = -np.inf
    for kernel, padding in ((1, 0), (3, 0), (3, 1)):
        with pytest.raises(bridge.ArgumentError, match=r"^input: holds NaN or infinity"):
            bridge.conv2d(x, np.ones((16, 16, kernel, kernel), np.float32), padding=padding, relu=True)


def test_what_overflows_is_not_refused() -> None:
    """The numbers are finite; their sums are the caller's."""
    x = channels_last(np.full((1, 16, 4, 4), 3e38, np.float32))
    w = np.ones((16, 16, 3, 3), np.float32)
    assert np.isinf(bridge.conv2d(x, w)).all()
    assert np.isinf(bridge.conv2d_backward(x[:, :, :2, :2].copy("K"), x, w, output_mask=(False, True, False))[1]).all()


def test_layouts_must_agree() -> None:
    """Messages name the argument, what was found and what was expected."""
    x, w = np.zeros((2, 8, 5, 6), np.float32), np.zeros((4, 8, 3, 3), np.float32)
    dy = np.zeros((2, 4, 3, 4), np.float32)
    with pytest.raises(bridge.ArgumentError, match=r"^weight: channels_last, expected in C order as input is$"):
        bridge.conv2d(x, channels_last(w))
    with pytest.raises(bridge.ArgumentError, match=r"^out: in C order, expected channels_last as input is$"):
        bridge.conv2d(channels_last(x), w, out=dy)
    with pytest.raises(bridge.ArgumentError, match=r"^grad_output: in C order, expected channels_last as input is$"):
        bridge.conv2d_backward(dy, channels_last(x), w)
    with pytest.raises(bridge.ArgumentError, match=r"^input: strides .* expected a C-contiguous or channels_last"):
        bridge.conv2d(x[:, ::2], w)
    # Gaps between channels, rows, columns, images, and where there is one image, or one row of one
    for part in (np.s_[:, ::2], np.s_[:, :, ::2], np.s_[..., ::2], np.s_[:, :, :4], np.s_[..., :5], np.s_[:1, :, ::2],
                 np.s_[:1, :, :1, ::2]):
        with pytest.raises(bridge.ArgumentError, match=r"^input: strides .* expected a C-contiguous or channels_last"):
            bridge.conv2d(channels_last(x)[part], w[:, :channels_last(x)[part].shape[1]])
    with pytest.raises(bridge.EngineError, match=r"^device naive: conv2d of channels_last arrays, expected C order$"):
        bridge.conv2d(channels_last(x), w, device="naive")


def test_filters_say_how_one_pixel_lies() -> None:
    """It lies in either order; the result, of more pixels, is channels_last as the filters are."""
    rng = np.random.default_rng(1)
    x, w, dy = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((1, 3, 1, 1), (2, 3, 3, 3), (1, 2, 1, 1)))
    y = bridge.conv2d(x, channels_last(w), padding=2)
    right = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w), padding=2)
    assert np.array_equal(y, right.numpy()) and y.transpose(0, 2, 3, 1).flags.c_contiguous
    # Where all tensors are of one pixel, and only filters have an order
    y = bridge.conv2d(x, channels_last(w), padding=1)
    right = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w), padding=1)
    assert np.array_equal(y, right.numpy())
    found = bridge.conv2d_backward(dy, x, channels_last(w), padding=1)
    for one, other in zip(found, bridge.conv2d_backward(dy, x, w, padding=1), strict=True):
        assert np.array_equal(one, other)


def test_arrays_that_are_both() -> None:
    """Images of one channel lie in both orders: the other arrays, else their strides, say what is meant."""
    x = np.ones((2, 1, 5, 6), np.float32)
    w, dy = np.ones((4, 1, 3, 3), np.float32), np.ones((2, 4, 3, 4), np.float32)
    nhwc = np.ones((2, 5, 6, 1), np.float32).transpose(0, 3, 1, 2)
    assert bridge.conv2d(x, w).flags.c_contiguous
    assert is_last(bridge.conv2d(nhwc, w))
    assert is_last(bridge.conv2d(x, w, out=channels_last(np.empty_like(dy))))
    for image in (x, nhwc):
        for gradient in (dy, channels_last(dy)):
            dx, dw, db = bridge.conv2d_backward(gradient, image, w)
            assert np.array_equal(dw, np.full_like(w, 24)) and np.array_equal(db, np.full(4, 24, np.float32))
            assert dx.sum() == dy.size * 9
    # Another array says that all are in C order, where no kernel looks for NaN
    spoiled = np.full((2, 5, 6, 1), np.nan, np.float32).transpose(0, 3, 1, 2)
    with pytest.raises(bridge.ArgumentError, match=r"^input: holds NaN"):
        bridge.conv2d_backward(dy, spoiled, w)
    with pytest.raises(bridge.ArgumentError, match=r"^input: holds NaN"):
        bridge.conv2d(spoiled, w, out=np.empty_like(dy))
