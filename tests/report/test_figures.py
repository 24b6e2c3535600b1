# SPDX-License-Identifier: MIT
"""The figures of the HTML report: nothing that is wrong gets lost on the way to a pixel."""

from __future__ import annotations

import math
import re

import numpy as np

from bridge.judge.measure.findings import Judged
from bridge.report.colours import LAST, MIDDLE, NOT_FINITE, NOTHING, PALETTE, decades_above, indices
from bridge.report.error_map import ErrorMap
from bridge.report.figures import curve, map_figure, scatter
from bridge.report.png import png, pooled
from tests.helpers.judgements import stat
from tests.helpers.report_reader import decoded, unpacked

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


def drawn(ratio: Array, image: int | None = None) -> ErrorMap:
    return ErrorMap(Judged("grads/conv1/weight", 0, stat(1.0)), image, ratio, np.ones(ratio.shape))


def test_kernels_stand_side_by_side() -> None:
    """Output channels go down, input channels to the right; a clear line between."""
    ratio = np.full((3, 2, 2, 3), 0.01)
    ratio[2, 1, 0, 2] = 50.0
    places = decoded(map_figure(drawn(ratio))[0])
    assert places.shape == (3 * 3 - 1, 2 * 4 - 1) and not places[2].any() and not places[:, 3].any()
    assert np.argwhere(places >= MIDDLE).tolist() == [[2 * 3 + 0, 1 * 4 + 2]]
    # Too many kernels: the largest of each
    many = np.full((300, 3, 2, 2), 0.01)
    many[299, 2, 1, 1] = 50.0
    assert np.argwhere(decoded(map_figure(drawn(many))[0]) >= MIDDLE).tolist() == [[299, 2]]
    assert decoded(map_figure(drawn(np.ones(5)))[0]).shape == (5, 1)


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
