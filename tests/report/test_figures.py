# SPDX-License-Identifier: MIT
"""The figures of the HTML report: nothing that is wrong gets lost on the way to a pixel."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from bridge.judge.measure.findings import Judged
from bridge.report.drawing.colours import FIRST, LAST, MIDDLE, NOT_FINITE, NOTHING, PALETTE, decades_above, indices
from bridge.report.drawing.dots import dots
from bridge.report.drawing.error_map import ErrorMap
from bridge.report.drawing.figures import curve, losses, scatter
from bridge.report.drawing.pictures import pictures
from bridge.report.drawing.png import png, pooled
from tests.helpers.judged.judgements import stat
from tests.helpers.judged.report_reader import decoded, unpacked
from tests.helpers.loops import looped

Array = np.ndarray


def test_a_png_comes_back() -> None:
    image = np.random.default_rng(1).integers(0, 256, (7, 11), dtype=np.uint8)
    assert np.array_equal(unpacked(png(image)), image)
    assert len(PALETTE) == 256 and len(set(PALETTE)) > 200 and all(0 <= v <= 255 for c in PALETTE for v in c)


def test_pooling_and_colours_lose_nothing_that_is_wrong() -> None:
    """Above the bound is yellow or red, and NaN is NaN, however large the image was."""
    ratio = np.random.default_rng(2).random((301, 517))
    ratio[300, 516], ratio[7, 9] = 1.0000001, np.nan
    small, side = pooled(ratio, 100)
    assert side == 6 and max(small.shape) <= 100
    places = indices(small)
    assert places[300 // 6, 516 // 6] == MIDDLE and places[1, 1] == NOT_FINITE
    assert np.count_nonzero(places >= MIDDLE) == 2 and not np.any(places == NOTHING)
    assert indices(np.array([np.inf])) == LAST


def test_the_scale_shows_the_structure_of_a_large_error() -> None:
    ratio = np.array([1e-9, 1.0, 1.5, 1e3, 1e6, 1e7])
    top = decades_above(ratio)
    places = indices(ratio, top)
    assert top == 7 and places[1] == MIDDLE - 1 and places[2] >= MIDDLE and places[5] == LAST
    assert len(set(places.tolist())) == 6


def drawn(ratio: Array, image: int | None = None, at: tuple[int, ...] = (0,)) -> ErrorMap:
    """The right numbers are 0, and E is 1."""
    return ErrorMap(Judged("grads/conv1/weight", 0, replace(stat(1.0), at=at)), image, ratio, np.zeros(ratio.shape),
                    np.ones(ratio.shape))


#: Images of a tensor in the page: each picture is followed by its colours
RIGHT, FOUND, DIFFERENCE, RATIO = 0, 2, 4, 6


def test_kernels_stand_side_by_side() -> None:
    """Output channels go down, input channels to the right; a clear line between; each tap is a pixel."""
    ratio = np.full((3, 2, 2, 3), 0.01)
    ratio[2, 1, 0, 2] = 50.0
    page = pictures(drawn(ratio), "kcrs")
    places = decoded(page, RATIO)
    assert places.shape == (3 * 3 - 1, 2 * 4 - 1) and not places[2].any() and not places[:, 3].any()
    assert np.argwhere(places >= MIDDLE).tolist() == [[2 * 3 + 0, 1 * 4 + 2]]
    assert "<i>0</i><i>k</i><i>2</i>" in page and "<i>0</i><i>c</i><i>1</i>" in page
    # Too many kernels: the largest of each
    many = np.full((300, 3, 2, 2), 0.01)
    many[299, 2, 1, 1] = 50.0
    assert np.argwhere(decoded(pictures(drawn(many), "kcrs"), RATIO) >= MIDDLE).tolist() == [[299, 2]]


@pytest.mark.parametrize(("shape", "axes", "wrong", "size", "at", "label"), [
    ((16, 1, 3, 3), "kcrs", (6, 0, 1, 2), (15, 18), (2 * 4 + 1, 5 + 2), "k=12"),
    ((1, 16, 3, 3), "kcrs", (0, 6, 1, 2), (15, 18), (2 * 4 + 1, 5 + 2), "c=12"),
    ((9,), "k", (4,), (3, 5), (1, 2), "k=6"),
])
def test_no_tensor_is_a_strip(shape: tuple[int, ...], axes: str, wrong: tuple[int, ...], size: tuple[int, int],
                              at: tuple[int, int], label: str) -> None:
    """A long row of kernels, or of numbers, is folded, and each column says where it begins."""
    ratio = np.full(shape, 0.01)
    ratio[wrong] = 50.0
    page = pictures(drawn(ratio), axes)
    places = decoded(page, RATIO)
    assert places.shape == size and np.argwhere(places >= MIDDLE).tolist() == [list(at)] and label in page


def test_right_and_found_have_one_scale() -> None:
    """And the difference its own, with 0 in the middle."""
    right = np.array([[0.0, 1.0], [2.0, 3.0]])
    found = right + np.array([[-1.0, 0.2], [-0.5, 1.0]])
    error = ErrorMap(Judged("forward/x", 0, stat(1.0)), None, found, right, np.ones((2, 2)))
    pages = pictures(error, "nc")
    assert decoded(pages, RIGHT)[[0, 1], [0, 1]].tolist() == [FIRST, LAST]
    assert decoded(pages, FOUND).tolist() == [[FIRST, FIRST + 101], [FIRST + 126, LAST]]
    assert decoded(pages, DIFFERENCE).tolist() == [[FIRST, FIRST + 152], [FIRST + 63, LAST]]
    assert "Found from -1 to 4: beyond the grey levels is black or white." in pages


def test_what_is_picked_of_a_large_image_is_what_is_wrong() -> None:
    """One element of each square, the same in all pictures; E of another channel is not lost either."""
    found = np.zeros((2, 1030, 1030))
    found[1, 700, 701], found[0, 5, 5], found[1, 10, 11] = 3.0, 7.0, np.nan
    page = pictures(drawn(found, image=4, at=(4, 1, 700, 701)), "nchw")
    assert decoded(page, RATIO).shape == (344, 344) and "Image n = 4, channel c = 1; of each 3 x 3 pixels" in page
    assert sorted(map(tuple, np.argwhere(decoded(page, RATIO) >= MIDDLE))) == [(1, 1), (3, 3), (233, 233)]
    assert sorted(map(tuple, np.argwhere(decoded(page, DIFFERENCE) > 128))) == [(3, 3), (233, 233)]
    assert decoded(page, FOUND)[3, 3] == NOT_FINITE and "Violet: 1 that are not finite." in page


@looped("value", [0.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324])
@looped("shape", [(1,), (1, 1), (2, 3, 4), (2, 2, 2, 2), (600, 2), (1, 700, 3, 3), (1, 1, 1, 1)])
def test_any_numbers_can_be_drawn(value: float, shape: tuple[int, ...]) -> None:
    for right in (0.0, value, 1e308):
        error = ErrorMap(Judged("forward/x", 0, stat(1.0)), None, np.full(shape, value), np.full(shape, right),
                         np.zeros(shape))
        assert pictures(error, "").count("<img") == 8


def test_the_scatter_plot() -> None:
    """What is outside its bound is drawn as such, above the line; what is exact is counted."""
    error = np.full(5000, 0.5)
    error[:10], error[10], error[11] = 0.0, 4.0, np.nan
    svg, caption = scatter(drawn(error))
    outside = re.search(r'class="out" d="([^"]*)"', svg)[1]
    assert outside.count("M") == 1 and "1500 of 5000 elements" in caption and "11 that are exact" in caption
    line = [float(v) for v in re.findall(r"[\d.]+", re.search(r'class="limit" d="([^"]*)"', svg)[1])]
    assert line[1] > line[3] and float(outside.split()[1].split("h")[0]) < line[1]
    assert scatter(drawn(np.zeros(5))) is None


def test_the_curve() -> None:
    assert curve([]) is None and curve([1e-6]) is None and curve([0.0, 0.0, math.nan]) is None
    svg = curve([1e-6, 0.0, 1e-4])
    assert svg is not None and "over 3 steps" in svg and re.search(r'class="curve" d="([^"]*)"', svg)[1].count("L") == 1


@pytest.mark.parametrize(("found", "drawn"), [
    ([], False), ([1.0], False), ([math.nan, 1.0], False), ([1.0, 0.5], True), ([1.0, 1.0], True), ([-1.0, 0.0], True),
    ([1e300, 1e-300], True), ([1e308, -1e308], False), ([math.inf, 2.0, 1.0], True)])
def test_losses(found: list[float], drawn: bool) -> None:
    """Found and right, in a common frame; what is not finite is left out."""
    points = list(enumerate(found))
    svg = losses(points, points)
    assert (svg is not None) == drawn
    assert svg is None or (len(re.findall(r'class="(?:limit|curve)"', svg)) == 2 and "nan" not in svg)


# --- T of all tensors ---------------------------------------------------------------------------------------


def places(svg: str) -> dict[str, tuple[float, float]]:
    """Where each dot stands: percent of the width, pixels from the top."""
    found = re.findall(r'<circle class="dot (\w+)" cx="([\d.]+)%" cy="([\d.]+)"[^>]*><title>([^:]+): T = ', svg)
    return {name: (float(x), float(y)) for _, x, y, name in found}


def test_a_dot_for_each_tensor_and_step() -> None:
    """From left to right by T, with what is wrong beyond the line; a row for each tensor, the later step lower."""
    ts = {("forward/a", 0): 0.5, ("forward/a", 1): 0.05, ("loss", 0): 2.0, ("loss", 1): 3e5}
    svg = dots([Judged(*key, stat(t)) for key, t in ts.items()])
    found = places(svg)
    line = float(re.search(r'class="limit" x1="([\d.]+)%"', svg)[1])
    assert [found[f"{name}, step {k}"][0] > line for name, k in ts] == [False, False, True, True]
    heights = [found[f"{name}, step {k}"][1] for name, k in ts]
    assert heights == sorted(heights) and len(set(heights)) == 4
    assert re.findall(r'"dot (\w+)"[^>]*><title>', svg) == ["rounding", "rounding", "cannot_tell", "bug"]
    assert ">forward/a</text>" in svg and ">step 0</text>" in svg and ">step 1</text>" in svg


def test_what_no_decade_holds_stands_aside() -> None:
    """0 to the left of all, infinity and NaN to the right, each with its label."""
    svg = dots([Judged(f"t{i}", 0, stat(t)) for i, t in enumerate((0.0, 1e-3, 1.0, 1e4, math.inf, math.nan))])
    x = [place for place, _ in places(svg).values()]
    assert x[:4] == sorted(set(x[:4])) and x[4] == x[5] > x[3]
    assert ">0</text>" in svg and ">\u221e</text>" in svg
    tiny = dots([Judged("a", 0, stat(1e-9)), Judged("b", 0, stat(1e30))])
    assert ">&lt;1e-06</text>" in tiny and ">&gt;1e+12</text>" in tiny


def test_of_many_steps_the_largest_t_is_there() -> None:
    judged = [Judged("forward/a", k, stat(50.0 if k == 333 else 0.1)) for k in range(1000)]
    found = places(dots(judged))
    assert len(found) == 12 and "forward/a, step 333" in found


def test_a_long_name_is_shortened_and_told() -> None:
    name = "grads/<b>" + "long" * 20
    svg = dots([Judged(name, 0, stat(0.5))])
    assert "<b>" not in svg and "\u2026" in svg and name.replace("<", "&lt;").replace(">", "&gt;") in svg
