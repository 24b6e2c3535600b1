# SPDX-License-Identifier: MIT
"""The kernels of the device cpu are fast: ratios of times of one run, with margins that no busy machine takes.

The shortest of several alternating runs counts, on one thread. Absolute times are the business of ``benchmarks``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import bridge
from tests.helpers.instruction_sets import LEVELS, VARIABLE, best

# Ratios of times want a quiet machine
pytestmark = pytest.mark.deep

#: n, c, h, w and k, c, r, s of the layer in the middle of the default model, smaller
X, W = (1, 16, 96, 96), (16, 16, 3, 3)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Also in numpy's BLAS, which looks for NaN in the inputs: its threads would wait for cores that others use."""
    with threadpool_limits(1):
        yield


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    """x, w, dy with padding 1."""
    rng = np.random.default_rng(2)
    shapes = {"x": X, "w": W, "dy": (X[0], W[0], *X[2:])}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def shortest(works: Sequence[Callable[[], object]], enough: Callable[[list[float]], bool],
             turns: int = 60) -> list[float]:
    """Seconds of each work, taken in turns until they are `enough`: what another program slowed does not count."""
    found = [float("inf")] * len(works)
    for turn in range(turns):
        for number, work in enumerate(works):
            start = time.perf_counter()
            work()
            found[number] = min(found[number], time.perf_counter() - start)
        if turn >= 2 and enough(found):
            break
    return found


def passes(t: dict[str, np.ndarray], device: str = "cpu") -> dict[str, Callable[[], object]]:
    """Forward, data gradient and filter gradient."""
    def backward(*mask: bool) -> Callable[[], object]:
        return lambda: bridge.conv2d_backward(t["dy"], t["x"], t["w"], padding=1, output_mask=mask, device=device)

    return {"y": lambda: bridge.conv2d(t["x"], t["w"], padding=1, device=device), "dx": backward(True, False, False),
            "dw": backward(False, True, False)}


@pytest.mark.parametrize("name", ["y", "dx", "dw"])
def test_each_pass_is_faster_than_the_plain_loops(name: str, arrays: dict[str, np.ndarray],
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """5 times with SSE2 and 10 times with AVX2 at the least: measured 20 and 60."""
    factor = 5 if best(monkeypatch) == "baseline" else 10
    plain, fast = shortest([passes(arrays, "naive")[name], passes(arrays)[name]], lambda t: t[0] > factor * t[1])
    assert plain > factor * fast


@pytest.mark.parametrize("name", ["y", "dx", "dw"])
def test_longer_vectors_are_faster(name: str, arrays: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """The best level against the baseline: 1.5 times, where vectors are 2 and 4 times as long."""
    highest = best(monkeypatch)
    if highest == LEVELS[0]:
        pytest.skip("this machine has the baseline only")

    def at(level: str) -> Callable[[], object]:
        def work() -> None:
            monkeypatch.setenv(VARIABLE, level)
            passes(arrays)[name]()
        return work

    low, high = shortest([at(LEVELS[0]), at(highest)], lambda t: t[0] > 1.5 * t[1])
    assert low > 1.5 * high


def test_float64_costs_about_twice_float32(arrays: dict[str, np.ndarray]) -> None:
    """Not more than 4 times: there is one source for both."""
    double = {name: array.astype(np.float64) for name, array in arrays.items()}
    single, twice = shortest([passes(arrays)["y"], passes(double)["y"]], lambda t: t[1] < 4 * t[0])
    assert twice < 4 * single


def test_relu_with_the_convolution_costs_little(arrays: dict[str, np.ndarray]) -> None:
    """Less than half a convolution more."""
    plain, fused = shortest([lambda: bridge.conv2d(arrays["x"], arrays["w"], padding=1),
                             lambda: bridge.conv2d(arrays["x"], arrays["w"], padding=1, relu=True)],
                            lambda t: t[1] < 1.5 * t[0])
    assert fused < 1.5 * plain


def test_four_times_the_rows_cost_about_four_times(arrays: dict[str, np.ndarray]) -> None:
    """Cost grows with the image, not with its square."""
    tall = np.concatenate([arrays["x"]] * 4, axis=2)
    one, four = shortest([passes(arrays)["y"], lambda: bridge.conv2d(tall, arrays["w"], padding=1)],
                         lambda t: t[1] < 8 * t[0])
    assert four < 8 * one
