# SPDX-License-Identifier: MIT
"""The instruction sets of the device cpu, and convolutions that take every path through its kernels."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from bridge.engine.arrays.operand import extent_of
from bridge.engine.library import extension
from tests.helpers.cases import Array, Case
from tests.helpers.tiers import few

VARIABLE = "CNN_CPU_LEVEL"
#: The highest level that this processor is said to have, see fortran/cpu/instruction_sets.f90
CAP_VARIABLE = "CNN_CPU_CAP"
#: As they are numbered in fortran/cpu/instruction_sets.f90
LEVELS = ("baseline", "avx2", "avx512")
X86 = platform.machine().lower() in ("x86_64", "amd64")


def facts() -> dict[str, str]:
    """What the library says of itself: level, best, threads."""
    text = extension.call("cpu_facts")
    text = text.decode() if isinstance(text, bytes) else str(text)
    return dict(word.split("=") for word in text.split())


def best(environment: pytest.MonkeyPatch) -> str:
    """The best level of this machine."""
    environment.delenv(VARIABLE, raising=False)
    return facts()["best"]


_FAST = "avx2" if X86 and os.environ.get(CAP_VARIABLE) != "baseline" else "baseline"
#: For a test of each level: one is for the fast tier, in which all else runs with the best of the machine
EACH_LEVEL = few(LEVELS, _FAST.__eq__)


def choose(level: str, environment: pytest.MonkeyPatch) -> None:
    """Let devices that are opened from now on use this level; skip the test where the machine lacks it."""
    highest = best(environment)
    if LEVELS.index(level) > LEVELS.index(highest):
        pytest.skip(f"{level} is not tested: this processor, or this build, has nothing above {highest}")
    environment.setenv(VARIABLE, level)


def ways(case: Case, dtype: str) -> list[str]:
    """How the device cpu computes y, dx and dw."""
    params = np.array([*case.stride, *case.padding, *case.dilation, case.groups], np.int32)
    extents = map(extent_of, (case.x, case.w))
    text = extension.call("conv2d_algorithms", extension.dtype_code("dtype", dtype), params, *extents)
    return (text.decode() if isinstance(text, bytes) else str(text)).strip().split("; ")


#: As fortran/cpu/plan/choice.f90 reads it: what is in the vector lanes
LANES_VARIABLE = "CNN_CPU_LANES"


def _around(*middles: int) -> Iterator[int]:
    for middle in middles:
        yield from range(middle - 1, middle + 2)


def _kernel(size: tuple[int, int], image: tuple[int, int], **more: tuple[int, int]) -> Case:
    return Case(f"kernel {size}", (2, 3, *image), (6, 3, *size), **more)


#: Every group goes round one kind of edge; c = 1 .. 19 goes round the filters of the data gradient
GROUPS: dict[str, tuple[Case, ...]] = {
    "filters": tuple(Case(f"{k} filters", (1, 2, 5, 21), (k, 2, 3, 3), padding=(1, 1)) for k in range(1, 20)),
    "channels": tuple(Case(f"{c} channels", (1, c, 5, 21), (3, c, 3, 2), padding=(1, 1)) for c in range(1, 20)),
    # 7 filters are blocks of 4, 2 and 1
    "points": tuple(Case(f"{c} points", (1, c, 3, 18), (7, c, 1, 1)) for c in range(1, 31)),
    "widths": tuple(Case(f"width {w}", (1, 3, 4, w), (11, 3, 3, 3), padding=(1, 1)) for w in
                    _around(2, 16, 32, 48, 49, 64, 96, 97, 128, 192, 193, 256, 257)),
    # 15 filters are blocks of 8, 4, 2 and 1; of 37 rows 12 are a band, and 1 is left
    "heights": tuple(Case(f"height {h}", (1, 2, h, 98), (15, 2, 3, 3), padding=(1, 1)) for h in
                     (1, 2, 11, 12, 13, 23, 24, 25, 36, 37, 49)),
    "one wide filter": tuple(Case(f"width {w}", (1, 1, 9, w), (1, 1, 3, 3), padding=(1, 1)) for w in _around(384, 768)),
    "bands across": (
        *(Case(f"width {w}", (1, 2, 3, w), (3, 2, 3, 3), padding=(1, 1)) for w in (*_around(1024, 2048), 1500, 3000)),
        *(Case(f"width {w} stride", (1, 2, 4, w), (3, 2, 3, 4), (2, 2), (1, 2)) for w in (2047, 2048, 2200, 4097)),
        Case("many channels", (1, 72, 6, 300), (3, 72, 3, 3), padding=(1, 1)),
        Case("many filters", (1, 3, 6, 300), (72, 3, 3, 3), padding=(1, 1))),
    "strides": tuple(Case(f"stride {s}", (2, 3, 13, 23), (5, 3, 3, 5), s, (1, 2), (1, 2 if sum(s) % 2 else 1))
                     for s in product(range(1, 5), repeat=2)),
    "padding": tuple(Case(f"padding {p} kernel {k}", (2, 2, 6, 17), (3, 2, k, k), (1 + p % 2, 1), (p, 7 - p))
                     for p, k in product(range(8), (1, 2, 3))),
    "dilation": tuple(Case(f"dilation {d}", (1, 3, 12, 37), (5, 3, 3, 4), (1, 1 + d[0] % 3), (3, 7), d)
                      for d in product((1, 2, 5), (1, 3, 4))),
    "channel groups": (
        *(Case(f"{g} groups of {k}", (2, 2 * g, 6, 19), (k * g, 2, 3, 3), padding=(1, 1), groups=g)
          for g, k in product((2, 3, 5), (1, 3, 8))),
        *(Case(f"depthwise times {k}", (2, 5, 7, 33), (5 * k, 1, 3, 3), padding=(1, 1), groups=5)
          for k in range(1, 10)),
        Case("depthwise, stride", (3, 9, 11, 35), (9, 1, 5, 3), (2, 3), (2, 1), groups=9)),
    "kernels": (*(_kernel((k, k), (9, 20), padding=(k // 2, k // 2)) for k in range(1, 8)),
                _kernel((1, 7), (5, 29), padding=(0, 3)), _kernel((7, 1), (11, 18), padding=(3, 0)),
                _kernel((1, 7), (3, 7)), _kernel((7, 1), (7, 3))),
    # Rows of dy that need no zeros behind them, with every vector length of both precisions
    "whole vectors": (
        *(Case(f"width {w}", (2, 2, 29, w), (7, 2, 3, 3), padding=(1, 1)) for w in (32, 64, 128, 256, 272, 1024)),
        *(Case(f"width {w} stride", (1, 3, 9, w), (5, 3, 3, 4), (2, 2), (1, 1)) for w in (256, 512)),
        Case("in groups", (2, 6, 14, 256), (9, 2, 3, 3), padding=(1, 1), groups=3),
        Case("depthwise", (1, 5, 31, 256), (5, 1, 5, 5), padding=(2, 2), groups=5)),
    # Sums of a filter gradient that must be added before the end
    "many pixels": (Case("large image", (1, 1, 420, 400), (2, 1, 3, 3), padding=(1, 1)),
                    Case("large images", (3, 2, 300, 256), (5, 2, 3, 3), padding=(1, 1)),
                    Case("many images", (70, 3, 9, 21), (4, 3, 2, 2))),
    # Filter gradients that do not fit a cache; more filters than threads have bands
    "many filters": (Case("96 of 64 channels", (1, 64, 5, 6), (96, 64, 3, 3), padding=(1, 1)),
                     Case("200 of 130 channels", (1, 130, 3, 5), (200, 130, 1, 1)),
                     Case("67 in groups", (2, 6, 7, 18), (134, 3, 3, 3), padding=(1, 1), groups=2)),
    # One filter over one channel, several rows at once: heights round multiples of 4, and what goes the general way
    "depthwise": (
        *(Case(f"{k}x{k} height {h} width {w}", (2, 3, h, w), (3, 1, k, k), padding=(k // 2, k // 2), groups=3)
          for k, (h, w) in product((3, 5, 7), ((7, 7), (8, 16), (9, 33), (14, 15), (3, 64)))),
        *(Case(f"{k}x{k} padding {p}", (1, 3, 9, 19), (3, 1, k, k), padding=p, groups=3)
          for k, p in product((3, 5, 7), ((0, 3), (5, 0), (7, 7)))),
        *(Case(f"kernel {k}", (2, 3, 9, 21), (3, 1, *k), padding=(1, 2), groups=3)
          for k in ((3, 5), (5, 3), (1, 3), (4, 4))),
        *(Case(f"{k}x{k} stride 2 height {h} width {w}", (2, 3, h, w), (3, 1, k, k), (2, 2), (p, p), groups=3)
          for (k, p), (h, w) in product(((3, 0), (3, 1), (5, 2), (5, 3), (7, 3), (7, 6)),
                                        ((7, 9), (12, 32), (19, 71), (22, 98)))),
        *(Case(f"{k}x{k} width {w}", (1, 2, 6, w), (2, 1, k, k), padding=(k // 2, k // 2), groups=2)
          for k, w in product((5, 7), _around(16, 32, 48))),
        Case("stride 2, wide", (1, 2, 5, 4200), (2, 1, 3, 3), (2, 2), (1, 1), groups=2),
        Case("stride 2, tall", (1, 2, 400, 40), (2, 1, 5, 5), (2, 2), (2, 2), groups=2),
        Case("stride 2, dilation", (2, 3, 19, 40), (3, 1, 3, 3), (2, 2), (3, 3), (3, 3), groups=3),
        Case("stride and dilation", (2, 3, 19, 70), (3, 1, 3, 3), (2, 2), (2, 2), (2, 2), groups=3),
        Case("dilation", (2, 3, 13, 21), (3, 1, 3, 3), padding=(2, 2), dilation=(2, 2), groups=3),
        Case("one channel", (2, 1, 23, 70), (1, 1, 5, 5), padding=(2, 2)),
        Case("wide", (1, 2, 6, 2100), (2, 1, 3, 3), padding=(1, 1), groups=2),
        Case("many pixels", (1, 2, 150, 200), (2, 1, 3, 3), padding=(1, 1), groups=2)),
    # Columns of strides of 2 and 3 are split, and joined again in data gradients; some phases have no tap
    "split columns": (
        *(Case(f"stride {s} kernel {k} padding {p}", (2, 3, 9, 35), (9, 3, k, k), (s, s), (p, p))
          for s, k, p in product((2, 3), (1, 2, 3, 5), (0, 1, 4))),
        *(Case(f"stride {s} width {w}", (1, 2, 7, w), (3, 2, 3, 3), (1, s), (1, 1)) for s, w in
          product((2, 3), (1, 2, 3, 6, 31, 32, 33, 64, 97, 193))),
        *(Case(f"stride {s} dilation {d}", (1, 2, 13, 41), (3, 2, 3, 3), (s, s), (2, 3), (d, d))
          for s, d in product((2, 3), (2, 3))),
        *(Case(f"depthwise stride {s} kernel {k}", (2, 3, 15, 29), (3, 1, k, k), (s, s), (k // 2, k // 2), groups=3)
          for s, k in product((2, 3), (3, 5, 7))),
        *(Case(f"across, stride {s}", (1, 2, 4, 3300), (3, 2, 3, 3), (s, s), (1, 1)) for s in (2, 3))),
    # Filter gradients with channels in the lanes: vectors, panels of vectors and the lanes that are left
    "lanes": (
        *(Case(f"{k} of {c} channels", (2, c, 5, 7), (k, c, 3, 2), padding=(1, 1))
          for c, k in ((5, 8), (6, 15), (9, 16), (2, 17), (7, 31), (13, 33), (8, 48), (3, 63), (4, 66), (1, 80),
                       (11, 129), (33, 9), (70, 12))),
        Case("one stretch", (1, 12, 1, 96), (20, 12, 1, 1)), Case("two stretches", (1, 5, 1, 97), (20, 5, 1, 3)),
        Case("many pairs", (3, 700, 2, 3), (750, 700, 1, 1))),
    # Bands of several images, and of rows of one
    "lanes in bands": (
        Case("seven images, two in a band", (7, 5, 20, 20), (29, 5, 3, 3), padding=(1, 1)),
        Case("23 images, some in a band", (23, 17, 7, 7), (16, 17, 3, 3), padding=(1, 1)),
        Case("rows of an image", (2, 3, 76, 40), (34, 3, 3, 3), padding=(1, 1)),
        Case("more bands than chunks", (18, 4, 33, 32), (64, 4, 2, 3), padding=(1, 1))),
    "lanes in steps": (
        *(Case(f"stride {s}", (3, 6, 11, 12), (17, 6, 3, 2), s, (1, 2), (1, 2))
          for s in ((1, 2), (2, 1), (2, 2), (3, 4))),
        Case("1x1 stride", (3, 7, 9, 10), (24, 7, 1, 1), (2, 3)),
        Case("1x3 stride", (2, 7, 9, 10), (24, 7, 1, 3), (3, 2)),
        Case("padding without stride", (2, 20, 4, 5), (9, 20, 2, 2), padding=(3, 4), dilation=(2, 1)),
        Case("padding within the kernel", (2, 20, 4, 9), (8, 20, 4, 4), dilation=(1, 2)),
        Case("in groups", (2, 12, 6, 7), (51, 4, 3, 3), padding=(1, 1), groups=3),
        Case("in groups, from many", (2, 54, 6, 7), (27, 18, 3, 3), padding=(1, 1), groups=3)),
    # Images of one pixel: panels of rows and columns, blocks and units of them, blocks and chunks of images
    "matrix products": (
        *(Case(f"{n} times {k} of {c}", (n, c, 1, 1), (k, c, 1, 1)) for n, c, k in (
            (1, 1, 1), (1, 7, 49), (7, 97, 3), (8, 48, 16), (9, 257, 33), (64, 255, 193), (65, 512, 25), (3, 769, 385),
            (70, 30, 21), (5, 9, 40), (513, 10, 9), (1030, 3, 70), (257, 2, 600), (4097, 5, 9), (70001, 3, 2),
            (128, 16, 8), (129, 17, 9), (300, 50, 11), (2100, 260, 9))),
        Case("a stride", (9, 20, 1, 1), (12, 20, 1, 1), (3, 2)),),
    "batch": tuple(Case(f"batch {n}", (n, 3, 9, 26), (10, 3, 3, 3), padding=(1, 1)) for n in range(1, 6)),
}

#: Products of strides above 16, and packed rows beyond 2**24 elements: im2col
UNFOLDED = (
    *(Case(f"stride {s}", (2, 3, 21, 37), (5, 3, 3, 4), s, (2, 1)) for s in ((5, 4), (4, 5), (17, 1), (1, 18), (9, 9))),
    Case("far apart", (1, 1, 1, 1), (2, 1, 2, 2), padding=(4200, 4200), dilation=(8400, 8400)),
    Case("stride in groups", (2, 4, 21, 37), (6, 2, 3, 4), (5, 4), (2, 1), groups=2))


def integers(case: Case, dtype: str, seed: int = 0) -> dict[str, Array]:
    """x, w, b, dy in -2 .. 2, for which no sum is rounded."""
    rng = np.random.default_rng([seed, case.w[0], case.x[1], case.x[3]])
    shapes = {"x": case.x, "w": case.w, "b": case.w[:1], "dy": case.y}
    return {name: rng.integers(-2, 3, shape).astype(dtype) for name, shape in shapes.items()
            if case.bias or name != "b"}
