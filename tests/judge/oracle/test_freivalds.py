# SPDX-License-Identifier: MIT
"""The oracle's fast convolutions: each is checked by a random projection, which must see every planted mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bridge.common.errors import ArgumentError, OracleError
from bridge.common.parallel import BLOCK, GRAIN
from bridge.compare import main
from bridge.engine.library import extension
from bridge.exchange.model import Conv2d, Model
from bridge.judge.oracle import convolution, fast_convolution, freivalds
from bridge.judge.oracle.error_model import rounding_factor

Array = np.ndarray
U = 2.0**-24

LAYERS = {
    "default": (Conv2d("a", 3, 4, (3, 3), (1, 1), (1, 1)), (40, 50)),
    "one pixel": (Conv2d("a", 1, 1, (1, 1)), (1, 1)),
    "strided": (Conv2d("a", 2, 3, (3, 2), (2, 3), (2, 1), (1, 2)), (17, 23)),
    "grouped": (Conv2d("a", 4, 6, (2, 3), (1, 2), (0, 2), (2, 1), 2), (14, 19)),
    "wide padding": (Conv2d("a", 2, 2, (3, 3), (1, 1), (5, 4)), (4, 3)),
    "gaps": (Conv2d("a", 2, 2, (2, 2), (3, 3)), (12, 11)),
}


@pytest.fixture(params=LAYERS)
def case(request: pytest.FixtureRequest) -> tuple[Conv2d, dict[str, Array]]:
    """A layer, and its arrays in float64 by numpy's oracle."""
    layer, size = LAYERS[request.param]
    return layer, arrays(layer, size)


def arrays(layer: Conv2d, size: tuple[int, int]) -> dict[str, Array]:
    """Like a network's: an image after a ReLU, a sparse gradient, channels of different sizes."""
    rng = np.random.default_rng(5)
    shape = layer.output_shape((1, layer.in_channels, *size))[1:]
    x = np.maximum(rng.standard_normal((layer.in_channels, *size)), 0)
    x[0, 0, 0] = 1.0
    x *= 10.0 ** rng.uniform(-1, 1, (layer.in_channels, 1, 1))
    w, dy = rng.standard_normal(layer.weight_shape), rng.standard_normal(shape)
    dy *= (rng.random(shape) < 0.7) * 1e-6
    dy[0, 0, 0] = 1e-6
    found = {"x": x, "w": w, "dy": dy, "y": convolution.forward(x, [w], layer)[0]}
    found["dx"] = convolution.backward_data(dy, w, layer, size)
    found["dw"] = convolution.backward_filter(x, [dy], layer)[0]
    return found


def check(layer: Conv2d, a: dict[str, Array], name: str) -> bool:
    """The projection that belongs to a result."""
    if name == "y":
        return freivalds.agrees_forward(a["x"], [a["w"]], [a["y"]], layer, "y")
    if name == "dx":
        return freivalds.agrees_data(a["dy"], a["w"], a["dx"], layer, "dx")
    return freivalds.agrees_filter(a["x"], [a["dy"]], [a["dw"]], layer, "dw")


@pytest.mark.parametrize("name", ["y", "dx", "dw"])
def test_right_results_agree(case: tuple[Conv2d, dict[str, Array]], name: str) -> None:
    assert check(*case, name)


@pytest.mark.parametrize("name", ["y", "dx", "dw"])
def test_one_element_off_by_a_tenth_of_a_float32_bound_is_seen(
    case: tuple[Conv2d, dict[str, Array]], name: str
) -> None:
    """E = s(n)*c is what the candidate may be off; the truth must be known far better than that."""
    layer, a = case
    absolute = {key: np.abs(a[key]) for key in ("x", "w", "dy")}
    size, out = a["x"].shape[1:], a["dy"].shape[1:]
    n, c = {
        "y": lambda: (
            convolution.products_forward(layer, size, out),
            convolution.forward(absolute["x"], [absolute["w"]], layer),
        ),
        "dx": lambda: (
            convolution.products_data(layer, size, out),
            [convolution.backward_data(absolute["dy"], absolute["w"], layer, size)],
        ),
        "dw": lambda: (
            convolution.products_filter(layer, size, out),
            convolution.backward_filter(absolute["x"], [absolute["dy"]], layer),
        ),
    }[name]()
    bound = np.broadcast_to(rounding_factor(n, U), a[name].shape) * c[0]
    rng = np.random.default_rng(1)
    places = rng.permutation(np.flatnonzero(bound > 0))[:20]
    assert places.size
    for place in places:
        wrong = a[name].copy()
        wrong.reshape(-1)[place] += rng.choice([-0.1, 0.1]) * bound.reshape(-1)[place]
        with pytest.raises(OracleError, match=f"kernel is wrong in {name}"):
            check(layer, a | {name: wrong}, name)


MISTAKES: dict[str, tuple[str, Callable[[Conv2d, dict[str, Array]], Array]]] = {
    "kernel flipped": ("y", lambda one, a: convolution.forward(a["x"], [a["w"][..., ::-1, ::-1]], one)[0]),
    "taps transposed": ("y", lambda one, a: convolution.forward(a["x"], [a["w"].swapaxes(2, 3)], one)[0]),
    "channels reversed": ("y", lambda _, a: a["y"][::-1]),
    "pixel moved": ("y", lambda _, a: np.roll(a["y"], 1, axis=2)),
    "row moved": ("y", lambda _, a: np.roll(a["y"], 1, axis=1)),
    "wrong padding": ("y", lambda one, a: convolution.forward(np.pad(a["x"], ((0, 0), (1, 1), (1, 1)), "edge"),
                                                              [a["w"]], unpadded(one))[0]),
    "two rows swapped": ("y", lambda _, a: a["y"][:, [1, 0, *range(2, a["y"].shape[1])]]),
    "one row twice": ("y", lambda _, a: a["y"][:, [0, 0, *range(2, a["y"].shape[1])]]),
    "float32 inside": ("y", lambda one, a: convolution.forward(a["x"].astype(np.float32), [a["w"]], one)[0]),
    "gradient not turned": (
        "dx", lambda one, a: convolution.backward_data(a["dy"], a["w"][..., ::-1, ::-1], one, (40, 50))
    ),
    "gradient moved": ("dx", lambda _, a: np.roll(a["dx"], 1, axis=2)),
    "gradient scaled": ("dx", lambda _, a: a["dx"] * (1 + 1e-9)),
    "filter flipped": ("dw", lambda _, a: a["dw"][..., ::-1, ::-1]),
    "filter transposed": ("dw", lambda _, a: a["dw"].swapaxes(2, 3)),
    "filter channels swapped": ("dw", lambda _, a: a["dw"][:, ::-1]),
    "filter of a part": (
        "dw", lambda one, a: convolution.backward_filter(a["x"], [a["dy"] * (np.arange(50) < 49)], one)[0]
    ),
    "filter scaled": ("dw", lambda _, a: a["dw"] * (1 + 1e-9)),
}


def unpadded(layer: Conv2d) -> Conv2d:
    return Conv2d(layer.name, layer.in_channels, layer.out_channels, layer.kernel_size)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_of_a_kernel_are_seen(mistake: str) -> None:
    layer, size = LAYERS["default"]
    name, wrong = MISTAKES[mistake]
    a = arrays(layer, size)
    # Only what the mistake does is wrong: small dy would hide nothing
    with pytest.raises(OracleError, match=r"says nothing about the candidate; CNN_ORACLE=numpy"):
        check(layer, a | {name: np.ascontiguousarray(wrong(layer, a))}, name)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("given", "name"), [("x", "y"), ("y", "y"), ("dy", "dx"), ("dx", "dx"), ("x", "dw"), ("dy", "dw")]
)
def test_what_is_not_finite_cannot_be_told(value: float, given: str, name: str) -> None:
    layer, size = LAYERS["default"]
    a = arrays(layer, size)
    a[given][0, 3, 4] = value
    assert not check(layer, a, name)


def test_images_of_several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As large ones are divided: several parts, the last one shorter."""
    monkeypatch.setattr(freivalds, "PART", 128)
    layer, size = LAYERS["strided"]
    a = arrays(layer, size)
    assert all(check(layer, a, name) for name in ("y", "dx", "dw"))
    a["y"][2, -1, -1] *= 1 + 1e-9
    with pytest.raises(OracleError):
        check(layer, a, "y")


# --- the kernels -------------------------------------------------------------------------------------------------


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let everything be large enough for our own kernels."""
    monkeypatch.setattr(fast_convolution, "LARGE", 0)
    monkeypatch.delenv(fast_convolution.CHOICE, raising=False)


def results(layer: Conv2d, a: dict[str, Array]) -> dict[str, Array]:
    return {
        "y": fast_convolution.forward(a["x"], [a["w"], 2 * a["w"]], layer)[0],
        "dx": fast_convolution.backward_data(a["dy"], a["w"], layer, a["x"].shape[1:]),
        "dw": fast_convolution.backward_filter(a["x"], [2 * a["dy"], a["dy"]], layer)[1],
    }


@pytest.mark.usefixtures("large")
def test_kernels_equal_numpy(case: tuple[Conv2d, dict[str, Array]], monkeypatch: pytest.MonkeyPatch) -> None:
    layer, a = case
    calls = []

    def counted(name: str, *given: object, call: Callable = extension.call) -> object:
        calls.append(name)
        return call(name, *given)

    monkeypatch.setattr(extension, "call", counted)
    for name, found in results(layer, a).items():
        np.testing.assert_allclose(found, a[name], rtol=0, atol=1e-13 * np.abs(a[name]).max() + 1e-300)
    assert calls == ["conv2d_forward"] * 2 + ["conv2d_backward"] * 3


@pytest.mark.parametrize("name", ["y", "dx", "dw"])
@pytest.mark.usefixtures("large")
def test_a_wrong_kernel_is_an_error_of_the_oracle(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its result is changed by less than a float32 bound, in one element."""
    layer, size = LAYERS["default"]
    a = arrays(layer, size)

    def wrong(called: str, *given: object, call: Callable = extension.call) -> object:
        found = call(called, *given)
        for address in [given[-1]] if called == "conv2d_forward" else [given[-3], given[-2]]:
            if address:
                first = np.frombuffer((np.ctypeslib.ctypes.c_double * 1).from_address(address))
                first *= 1 + 1e-8
        return found

    monkeypatch.setattr(extension, "call", wrong)
    said = {"y": "the output", "dx": "the data gradient", "dw": "the filter gradient"}[name]
    with pytest.raises(OracleError, match=f"our own float64 kernel is wrong in {said} of a"):
        {
            "y": lambda: fast_convolution.forward(a["x"], [a["w"]], layer),
            "dx": lambda: fast_convolution.backward_data(a["dy"], a["w"], layer, size),
            "dw": lambda: fast_convolution.backward_filter(a["x"], [a["dy"]], layer),
        }[name]()


@pytest.mark.usefixtures("large")
def test_what_is_not_finite_is_computed_by_numpy() -> None:
    layer, size = LAYERS["gaps"]
    a = arrays(layer, size)
    a["x"][0, 2, 2] = np.nan  # between the taps
    assert np.isfinite(fast_convolution.forward(a["x"], [a["w"]], layer)[0]).all()
    a["x"][0, 0, 0] = np.inf
    np.testing.assert_array_equal(
        fast_convolution.forward(a["x"], [a["w"]], layer)[0], convolution.forward(a["x"], [a["w"]], layer)[0]
    )


@pytest.mark.usefixtures("large")
def test_numpy_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extension, "call", lambda *_: pytest.fail("our kernels were called"))
    layer, size = LAYERS["default"]
    monkeypatch.setenv(fast_convolution.CHOICE, "numpy")
    results(layer, arrays(layer, size))
    monkeypatch.setenv(fast_convolution.CHOICE, "fortran")
    with pytest.raises(ArgumentError, match="CNN_ORACLE: 'fortran', expected 'numpy' or nothing"):
        results(layer, arrays(layer, size))


def test_small_images_are_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extension, "call", lambda *_: pytest.fail("our kernels were called"))
    layer, size = LAYERS["default"]
    results(layer, arrays(layer, size))
    assert not fast_convolution.wanted(Model((layer,)), (2, 3, *size))


@pytest.mark.usefixtures("large")
def test_the_same_verdict_and_numbers(
    small_fixture: Path, small_result: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Printed to the last digit; with images in parts, as large ones are."""
    monkeypatch.setattr("bridge.common.parallel.GRAIN", 512)
    monkeypatch.setattr("bridge.common.parallel.BLOCK", 128)

    def judged() -> tuple[int, list[str]]:
        code = main([str(small_fixture), str(small_result), "--all"])
        # How far PyTorch's float64 is from ours is a matter of float64's own rounding
        return code, [line for line in capsys.readouterr().out.splitlines() if "in float64" not in line]

    ours = judged()
    monkeypatch.setenv(fast_convolution.CHOICE, "numpy")
    monkeypatch.setattr("bridge.common.parallel.GRAIN", GRAIN)
    monkeypatch.setattr("bridge.common.parallel.BLOCK", BLOCK)
    assert judged() == ours
    assert ours[0] == 0


@pytest.mark.usefixtures("large")
def test_a_wrong_kernel_is_no_verdict(
    small_fixture: Path, small_result: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freivalds, "SAFETY", 1e-9)
    assert main([str(small_fixture), str(small_result)]) == 2
    assert "says nothing about the candidate" in capsys.readouterr().err
