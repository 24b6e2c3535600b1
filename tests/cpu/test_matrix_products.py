# SPDX-License-Identifier: MIT
"""Convolutions of images of one pixel, which the device cpu computes as matrix products."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.cases import Case, fortran_convolution, tensors, truth
from tests.helpers.cpu.exact import ALL_DTYPES
from tests.helpers.instruction_sets import EACH_LEVEL, GROUPS, LANES_VARIABLE, choose, ways
from tests.helpers.tiers import few

CASES = GROUPS["matrix products"]


@pytest.fixture(params=EACH_LEVEL)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The device cpu uses this instruction set."""
    choose(request.param, monkeypatch)
    return str(request.param)


@pytest.mark.parametrize("case", few(CASES, 5), ids=lambda case: case.name)
@ALL_DTYPES
def test_products_are_added_in_their_order(case: Case, dtype: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit what the kernels of other convolutions give, whose filter gradients are summed in other blocks."""
    t = tensors(case, dtype)
    monkeypatch.delenv(LANES_VARIABLE, raising=False)
    assert ["matrix product" in way for way in ways(case, dtype)] == [True, True, case.x[1] >= 16 and case.w[0] >= 8]
    found = fortran_convolution(case, t)
    monkeypatch.setenv(LANES_VARIABLE, "pixels")
    assert not any("matrix product" in way for way in ways(case, dtype))
    direct = fortran_convolution(case, t)
    for name in ("y", "dx"):
        assert found[name].tobytes() == direct[name].tobytes(), name
    for name, (right, bound) in truth(case, t).items():
        assert (np.abs(found[name] - right) <= bound).all(), name


def test_sums_of_many_images_lose_no_digits(level: str) -> None:
    """Of numbers of one sign, which a sum in one precision would round the same way again and again."""
    case = Case("many images", (300_000, 3, 1, 1), (2, 3, 1, 1), bias=False)
    rng = np.random.default_rng(5)
    t = {name: rng.uniform(0.5, 1.5, shape).astype("float32") for name, shape in
         (("x", case.x), ("w", case.w), ("dy", case.y))}
    right = t["dy"][:, :, 0, 0].astype("float64").T @ t["x"][:, :, 0, 0].astype("float64")
    found = fortran_convolution(case, t)["dw"][:, :, 0, 0]
    assert (np.abs(found - right) <= 4 * np.finfo("float32").eps * right).all()


def test_long_sums_of_wide_layers_keep_float64_totals(level: str) -> None:
    """One large term and 1999 ones: float32 would lose every one of them, blocks of 128 images only those beside it."""
    case = Case("a large image", (2000, 16, 1, 1), (8, 16, 1, 1), bias=False)
    assert ways(case, "float32")[2].startswith("as a matrix product")
    t = {name: np.ones(shape, "float32") for name, shape in (("x", case.x), ("w", case.w), ("dy", case.y))}
    t["x"][0] = 2**26
    lost = 2**26 + 1999 - fortran_convolution(case, t)["dw"].astype("float64")
    assert ((lost >= 0) & (lost < 128)).all()


@ALL_DTYPES
@pytest.mark.parametrize("shape", [(16_500, 96, 384), (600, 16, 700)], ids=["many images", "many channels"])
def test_no_image_of_many_is_lost(shape: tuple[int, int, int], dtype: str, level: str) -> None:
    """Of integers, whose sums are exact in any order: in chunks of images, and of more channels than go together."""
    n, c, k = shape
    case = Case("rows of a layer", (n, c, 1, 1), (k, c, 1, 1))
    rng = np.random.default_rng(6)
    t = {name: rng.integers(-2, 3, shape).astype(dtype) for name, shape in
         (("x", case.x), ("w", case.w), ("b", (k,)), ("dy", case.y))}
    found = fortran_convolution(case, t)
    dy = t["dy"][:, :, 0, 0].astype("float64")
    assert np.array_equal(found["dw"][:, :, 0, 0], dy.T @ t["x"][:, :, 0, 0])
    assert np.array_equal(found["db"].ravel(), dy.sum(0))


@ALL_DTYPES
def test_vectors_of_another_length_give_the_same_bits(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and chunks of images depend on the shapes alone: avx2 and avx512 agree, in filter gradients too."""
    monkeypatch.delenv(LANES_VARIABLE, raising=False)
    for case in CASES:
        if not ways(case, dtype)[2].startswith("as a matrix product"):
            continue
        t, found = tensors(case, dtype), []
        for one in ("avx2", "avx512"):
            choose(one, monkeypatch)
            found.append(fortran_convolution(case, t))
        for name in ("y", "dx", "dw"):
            assert found[0][name].tobytes() == found[1][name].tobytes(), (case, name)


def test_what_is_no_product_of_matrices_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups, and images of one pixel with padding around them, of which strides see the padding alone."""
    monkeypatch.delenv(LANES_VARIABLE, raising=False)
    for case in (Case("groups", (2, 6, 1, 1), (4, 3, 1, 1), groups=2), Case("pixels", (2, 3, 1, 2), (4, 3, 1, 1)),
                 Case("padding", (2, 3, 1, 1), (4, 3, 1, 1), (3, 3), (1, 1)),
                 Case("taps", (2, 3, 1, 1), (4, 3, 3, 3), padding=(1, 1))):
        assert not any("matrix product" in way for way in ways(case, "float32")), case
