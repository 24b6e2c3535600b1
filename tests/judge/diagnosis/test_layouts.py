# SPDX-License-Identifier: MIT
"""Layouts against plain numpy: transposes, reshapes and flips, what they are called, and which are the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bridge.judge.diagnosis.faults.layouts import AxisLayout, SliceOrder, layouts
from tests.helpers.loops import looped

Array = np.ndarray

KCRS = (5, 4, 3, 2)
#: All distinct
W = np.arange(120.0).reshape(KCRS)


def flipped(x: Array, axes: tuple[int, ...]) -> Array:
    return np.flip(x, axes) if axes else x


@looped("flips", [(), (2,), (3,), (2, 3), (0,), (1, 3)])
@looped("axes", list(itertools.permutations(range(4))))
def test_maps_are_numpy(axes: tuple[int, ...], flips: tuple[int, ...]) -> None:
    """Reversed; then written as the permuted shape and read as the declared one, or the other way."""
    turned = flipped(W, flips)
    written = np.ascontiguousarray(turned.transpose(axes)).reshape(KCRS)
    np.testing.assert_array_equal(AxisLayout(axes, True, flips, "kcrs")(W), written)
    # Memory in the declared order, read as if it held the permuted one, put back under the names of the axes
    read = turned.reshape([KCRS[axis] for axis in axes]).transpose(np.argsort(axes))
    np.testing.assert_array_equal(AxisLayout(axes, False, flips, "kcrs")(W), read)


def test_source_of_a_few_elements() -> None:
    layout, few = AxisLayout((2, 0, 3, 1), True, (1,), "kcrs"), np.array([7, 99, 0, 7, 119])
    np.testing.assert_array_equal(layout.source(few, KCRS), layout.source(np.arange(120), KCRS)[few])


def test_layouts_compose() -> None:
    """One that is read, then another: their maps one after the other."""
    one, other = AxisLayout((0, 1, 3, 2), True, (2,), "kcrs"), AxisLayout((3, 2, 1, 0), False, (), "kcrs")
    both = one.source(other.source(np.arange(120), KCRS), KCRS)
    np.testing.assert_array_equal(other(one(W)).ravel(), W.ravel()[both])


def found(wrong: Array, shape: tuple[int, ...] = KCRS, names: str = "kcrs", which: str = "all") -> list[AxisLayout]:
    """The layouts that make it of the right tensor."""
    right = np.arange(float(np.prod(shape))).reshape(shape)
    return [layout for layout in layouts(shape, names, which) if np.array_equal(layout(right), wrong)]


C_ORDER_READ_BY_FORTRAN = (
    "memory in C's order (k,c,r,s), read column-major: declare it (s,r,c,k) in Fortran, not (k,c,r,s)"
)
NAMES = [
    (W[:, :, ::-1], "kernel_flipped", "reversed along r"),
    (W[..., ::-1], "kernel_flipped", "reversed along s"),
    (W[:, :, ::-1, ::-1], "kernel_flipped", "reversed along r and s"),
    (W.transpose(0, 1, 3, 2).reshape(KCRS), "taps_transposed", "memory in the order (k,c,s,r), read as (k,c,r,s)"),
    (W.transpose(1, 0, 2, 3).reshape(KCRS), "in_out_swapped", "memory in the order (c,k,r,s), read as (k,c,r,s)"),
    (W.ravel().reshape(KCRS, order="F"), "column_major", C_ORDER_READ_BY_FORTRAN),
    (
        W.ravel(order="F").reshape(KCRS),
        "column_major",
        "memory that Fortran wrote as (k,c,r,s), column-major, read in C's order",
    ),
    (W.transpose(0, 2, 3, 1).reshape(KCRS), "nhwc", "memory in the order (k,r,s,c), read as (k,c,r,s)"),
    (W.transpose(2, 3, 1, 0).reshape(KCRS), "nhwc", "memory in the order (r,s,c,k), read as (k,c,r,s)"),
    (W[::-1], "channels_permuted", "reversed along k"),
    (W[:, ::-1], "channels_permuted", "reversed along c"),
]


@pytest.mark.parametrize(("wrong", "key", "detail"), NAMES, ids=[name[2] for name in NAMES])
def test_filters_are_named(wrong: Array, key: str, detail: str) -> None:
    (layout,) = found(wrong)
    assert [one.key for one in layout.kinds] == [key]
    assert layout.detail == detail


def test_column_major_is_what_fortran_sees() -> None:
    """Element A(k,c,r,s) of a Fortran array over memory that C wrote: the first index runs fastest."""
    (layout,) = found(W.ravel().reshape(KCRS, order="F"))
    wrong, memory = layout(W), W.ravel()
    for k, c, r, s in ((1, 0, 0, 0), (0, 1, 0, 0), (4, 3, 2, 1), (2, 1, 0, 1)):
        assert wrong[k, c, r, s] == memory[k + 5 * (c + 4 * (r + 3 * s))]


def test_two_faults_are_two_kinds() -> None:
    (layout,) = found(W[:, :, ::-1, ::-1].ravel().reshape(KCRS, order="F"))
    assert [one.key for one in layout.kinds] == ["kernel_flipped", "column_major"]
    assert layout.detail == f"reversed along r and s, then {C_ORDER_READ_BY_FORTRAN}"
    (layout,) = found(W[::-1, :, ::-1])
    assert [one.key for one in layout.kinds] == ["kernel_flipped", "channels_permuted"]


def test_images_are_named() -> None:
    shape = (2, 3, 5, 4)
    x = np.arange(120.0).reshape(shape)
    for wrong, key, detail in (
        (x[..., ::-1], "image_transposed", "reversed along w"),
        (x[:, :, ::-1, ::-1], "image_transposed", "reversed along h and w"),
        (
            x.transpose(0, 1, 3, 2).reshape(shape),
            "image_transposed",
            "memory in the order (n,c,w,h), read as (n,c,h,w)",
        ),
        (x.transpose(0, 2, 3, 1).reshape(shape), "nhwc", "memory in the order (n,h,w,c), read as (n,c,h,w)"),
        (x[::-1], "channels_permuted", "reversed along n"),
    ):
        for which in ("often", "common"):
            (layout,) = found(wrong, shape, "nchw", which)
            assert ([one.key for one in layout.kinds], layout.detail) == ([key], detail)


def test_biases_can_only_be_reversed() -> None:
    assert [layout.detail for layout in layouts((5,), "k")] == ["reversed along k"]
    assert layouts((1,), "k") == ()


@pytest.mark.parametrize(
    "shape", [KCRS, (1, 4, 3, 3), (4, 1, 3, 2), (3, 3, 3, 3), (1, 1, 3, 3), (2, 2, 1, 1), (1, 1, 1, 1)]
)
def test_each_is_another_and_none_is_missing(shape: tuple[int, ...]) -> None:
    """No two that these data cannot tell apart; and all that permuting and reversing can make."""
    right = np.arange(float(np.prod(shape))).reshape(shape)
    chosen = {layout(right).tobytes() for layout in layouts(shape, "kcrs")}
    assert len(chosen) == len(layouts(shape, "kcrs")) and right.tobytes() not in chosen
    every = set()
    for axes in itertools.permutations(range(4)):
        for count in range(5):
            for flips in itertools.combinations(range(4), count):
                turned = flipped(right, flips)
                every.add(np.ascontiguousarray(turned.transpose(axes)).reshape(shape).tobytes())
                every.add(turned.reshape([shape[a] for a in axes]).transpose(np.argsort(axes)).tobytes())
    assert chosen == every - {right.tobytes()}


def test_one_input_channel_has_the_simpler_name() -> None:
    """(k,1,r,s): what swaps in and out changes nothing, and the filters' own axes keep their names."""
    details = [layout.detail for layout in layouts((4, 1, 3, 3), "kcrs")]
    assert "memory in the order (c,k,r,s), read as (k,c,r,s)" not in details
    square = layouts((3, 3, 3, 3), "kcrs")
    by_key = {layout.kinds[0].key for layout in square if len(layout.kinds) == 1 and not layout.flips}
    assert {"taps_transposed", "in_out_swapped", "column_major", "nhwc"} <= by_key
    swapped = np.arange(81.0).reshape(3, 3, 3, 3).transpose(2, 3, 0, 1)
    (layout,) = found(swapped, (3, 3, 3, 3))
    assert [one.key for one in layout.kinds] == ["column_major"]


def test_large_tensors_are_told_apart_by_a_part() -> None:
    shape = (2, 16, 40, 44)
    often = layouts(shape, "nchw", "often")
    right = np.arange(float(np.prod(shape)))
    maps = [layout(right.reshape(shape)).tobytes() for layout in often]
    assert len(set(maps)) == len(maps) > 40


def test_slices_in_another_order() -> None:
    order = SliceOrder(axis=1, order=(2, 0, 3, 1))
    np.testing.assert_array_equal(order(W), W[:, [2, 0, 3, 1]])
    assert order != SliceOrder(axis=1, order=(0, 2, 3, 1))
