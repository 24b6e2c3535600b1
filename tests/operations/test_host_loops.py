# SPDX-License-Identifier: MIT
"""Loops over host tensors: functions within their units in the last place, special numbers as torch's, any threads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional

import bridge
from benchmarks.frameworks import bridge_cpu
from benchmarks.harness import data
from benchmarks.harness.workloads import OperationPass
from tests.helpers.instruction_sets import LEVELS, choose
from tests.helpers.loops import looped

Array = np.ndarray
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
#: Units in the last place
MOST = {"elu": 2.0, "exp": 1.1, "sigmoid": 2.5, "tanh": 3.0, "sin": 1.5, "cos": 1.5}


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    choose(request.param, monkeypatch)
    return str(request.param)


def computed(kind: str, x: Array, monkeypatch: pytest.MonkeyPatch) -> Array:
    """The output of an operation without hyperparameters."""
    monkeypatch.setattr(data, "pass_operands", lambda _: {"x": [x], "dy": [x], "mask": [x], "parameters": []})
    work = OperationPass(kind, False, (x.shape,), x.shape, dtype=x.dtype.name)
    found = bridge_cpu.operation("", work)()
    assert isinstance(found, np.ndarray)
    return found


def numbers(dtype: str) -> Array:
    """Of all sizes and both signs, most of them where the functions are neither 0 nor 1."""
    rng = np.random.default_rng(0)
    size = 4.0 ** rng.uniform(-60, 6, 200_000)
    near = rng.uniform(-30, 30, 800_000)
    x = np.concatenate([size, -size, near, [0.0, -0.0, 1e-300, 5.0, -5.0]])
    return x.astype(dtype).reshape(1, -1)


@DTYPES
@pytest.mark.parametrize(("kind", "exact"), [
    ("sigmoid", lambda x: 1 / (1 + np.exp(-x))), ("tanh", np.tanh), ("exp", np.exp), ("sin", np.sin), ("cos", np.cos),
    ("elu", lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
])
def test_functions_are_right_to_the_last_places(kind: str, exact: Callable[[Array], Array], dtype: str, level: str,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """In the next larger precision, which has 29 or 11 bits more."""
    x = numbers(dtype)
    with np.errstate(over="ignore"):
        truth = exact(x.astype(np.float64 if dtype == "float32" else np.longdouble))
        found = computed(kind, x, monkeypatch)
        assert np.array_equal(np.isinf(found), np.isinf(truth.astype(dtype)))
    some = np.isfinite(found)
    ulp = np.spacing(np.maximum(np.abs(found[some]), np.finfo(dtype).tiny)).astype(truth.dtype)
    error = float((np.abs(found[some] - truth[some]) / ulp).max())
    print(kind, dtype, level, error)
    assert error <= MOST[kind]


@DTYPES
def test_special_numbers_are_torchs(dtype: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.array([[np.nan, np.inf, -np.inf, 0.0, -0.0, 1e4, -1e4]], dtype)
    for kind in ("sigmoid", "tanh", "elu", "exp", "sqrt", "abs", "silu", "mish", "softplus", "log", "log2",
                 "log10", "square", "reciprocal", "rsqrt", "hardsigmoid", "hardswish", "sin", "cos"):
        function = getattr(torch, kind, None) or getattr(functional, kind)
        with np.errstate(over="ignore"):
            right = function(torch.from_numpy(x.astype("float64"))).numpy().astype(dtype)
        np.testing.assert_allclose(computed(kind, x, monkeypatch), right, rtol=2 * np.finfo(dtype).eps, err_msg=kind)
    assert np.signbit(computed("tanh", x, monkeypatch)[0, 4])
    for shape in ((2, 5, 1, 1), (1, 5, 2, 1)):
        images = np.random.default_rng(1).standard_normal((10,)).astype(dtype)
        images[:5] = [np.nan, -np.inf, 1.0, np.inf, -1e30]
        y = images.reshape(shape)
        for kind in ("softmax", "log_softmax"):
            expected = getattr(torch, kind)(torch.from_numpy(y), 1).numpy()
            np.testing.assert_allclose(computed(kind, y, monkeypatch), expected, rtol=1e-5, equal_nan=True)


@DTYPES
@pytest.mark.parametrize(("size", "kernel", "stride", "padding"), [
    ((37, 41), (2, 2), (2, 2), (0, 0)), ((8, 50), (3, 3), (2, 2), (1, 1)), ((9, 40), (3, 5), (1, 1), (0, 2)),
    ((11, 33), (2, 4), (3, 3), (1, 2)), ((3, 3), (3, 3), (1, 1), (1, 1)),
])
def test_maxima_are_torchs_to_the_bit(size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int],
                                      padding: tuple[int, int], dtype: str, level: str,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """Among many equal numbers, NaN and infinities; gradients are integers, whose sums are exact."""
    rng = np.random.default_rng(2)
    x = rng.integers(-3, 4, (2, 3, *size)).astype(dtype)
    x[rng.random(x.shape) < 0.05] = np.nan
    x[rng.random(x.shape) < 0.2] = -np.inf
    image = torch.from_numpy(x).requires_grad_()
    y = torch.nn.functional.max_pool2d(image, kernel, stride, padding)
    dy = rng.integers(-9, 10, y.shape).astype(dtype)
    (dx,) = torch.autograd.grad(y, image, torch.from_numpy(dy))
    monkeypatch.setattr(data, "pass_operands", lambda _: {"x": [x], "dy": [dy], "mask": [dy], "parameters": []})
    options = {"kernel_size": kernel, "stride": stride, "padding": padding}
    for backward, expected in ((False, y.detach()), (True, dx)):
        work = OperationPass("max_pool2d", backward, (x.shape,), dy.shape, options=options, dtype=dtype)
        assert np.array_equal(bridge_cpu.operation("", work)(), expected.numpy(), equal_nan=True), backward


#: Of windows that overlap, meet and leave pixels out, and of images in which no two columns go together
SIZES = [(37, 41), (8, 50), (3, 5), (4, 4), (1, 33)]


def passes_of(kind: str, options: dict[str, object], x: Array, dy: Array, monkeypatch: pytest.MonkeyPatch,
              parameters: tuple[Array, ...] = ()) -> tuple[Array, Array]:
    """Output and gradient of the input."""
    monkeypatch.setattr(data, "pass_operands", lambda _: {"x": [x], "dy": [dy], "mask": [dy],
                                                          "parameters": list(parameters)})
    found = [bridge_cpu.operation("", OperationPass(kind, backward, (x.shape,), dy.shape, options=options,
                                                    dtype=x.dtype.name))() for backward in (False, True)]
    assert isinstance(found[0], np.ndarray) and isinstance(found[1], np.ndarray)
    return found[0], found[1]


def assert_torchs(kind: str, options: dict[str, object], function: Callable[[torch.Tensor], torch.Tensor],
                  shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both passes, as torch in float64: places between pixels are rounded, the further from the first the more."""
    rng = np.random.default_rng(7)
    x = rng.uniform(0.5, 2, shape).astype(dtype)
    image = torch.from_numpy(x.astype("float64")).requires_grad_()
    y = function(image)
    dy = rng.uniform(0.5, 2, tuple(y.shape)).astype(dtype)
    (dx,) = torch.autograd.grad(y, image, torch.from_numpy(dy.astype("float64")))
    for found, expected in zip(passes_of(kind, options, x, dy, monkeypatch), (y.detach(), dx), strict=True):
        np.testing.assert_allclose(found, expected.numpy(), rtol=64 * np.finfo(dtype).eps)


@DTYPES
@looped(("kernel", "stride", "padding"), [
    ((2, 2), (2, 2), (0, 0)), ((3, 3), (2, 2), (1, 1)), ((1, 5), (1, 1), (0, 2)), ((1, 4), (3, 3), (0, 2)),
    ((1, 2), (4, 5), (0, 0)), ((3, 4), (1, 4), (1, 2)),
])
def test_means_are_torchs(kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int], dtype: str,
                          level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"kernel_size": kernel, "stride": stride, "padding": padding}
    for size in SIZES:
        if all(n + 2 * pad >= k for n, pad, k in zip(size, padding, kernel, strict=True)):
            assert_torchs("avg_pool2d", options, lambda x: torch.nn.functional.avg_pool2d(x, kernel, stride, padding),
                          (2, 3, *size), dtype, monkeypatch)


@DTYPES
@pytest.mark.parametrize("factor", [(1, 1), (2, 2), (3, 2), (2, 3), (1, 5)])
def test_larger_images_are_torchs(factor: tuple[int, int], dtype: str, level: str, monkeypatch: pytest.MonkeyPatch
                                  ) -> None:
    for size in SIZES:
        for kind, options in (("nearest", {}), ("bilinear", {"align_corners": False}),
                              ("bilinear", {"align_corners": True})):
            assert_torchs(f"upsample_{kind}2d", {"scale_factor": factor, **options},
                          lambda x, kind=kind, options=options: torch.nn.functional.interpolate(
                              x, scale_factor=factor, mode=kind, **options), (2, 2, *size), dtype, monkeypatch)


@DTYPES
@pytest.mark.parametrize("wanted", [(1, 2), (3, 5), (7, 7), (5, 41), (37, 1)])
def test_adaptive_means_are_torchs(wanted: tuple[int, int], dtype: str, level: str, monkeypatch: pytest.MonkeyPatch
                                   ) -> None:
    """Windows of equal sizes and of two, that meet and that overlap, and of more windows than pixels."""
    for size in (*SIZES, (14, 21)):
        assert_torchs("adaptive_avg_pool2d", {"output_size": wanted},
                      lambda x: torch.nn.functional.adaptive_avg_pool2d(x, wanted), (2, 3, *size), dtype, monkeypatch)


@DTYPES
@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (0, 3, 2, 0), (3, 2, 0, 0), (0, 0, 0, 0)])
def test_borders_are_torchs(padding: tuple[int, int, int, int], dtype: str, level: str,
                            monkeypatch: pytest.MonkeyPatch) -> None:
    for size in SIZES[:4]:
        for kind, mode in (("zero", "constant"), ("reflection", "reflect"), ("replication", "replicate")):
            if kind != "reflection" or min(size) > max(padding):
                assert_torchs(f"{kind}_pad2d", {"padding": padding},
                              lambda x, mode=mode: torch.nn.functional.pad(x, padding, mode), (2, 2, *size), dtype,
                              monkeypatch)


@DTYPES
@pytest.mark.parametrize("shape", [(3, 7, 30, 41), (2, 3, 1, 513), (5, 40, 1, 1), (1, 1, 2, 3)])
def test_probabilities_are_torchs(shape: tuple[int, ...], dtype: str, level: str, monkeypatch: pytest.MonkeyPatch
                                  ) -> None:
    """Of more pixels than are gone through together, and of one."""
    rng = np.random.default_rng(8)
    x, dy = (rng.normal(size=shape).astype(dtype) for _ in range(2))
    for kind in ("softmax", "log_softmax"):
        inputs = torch.from_numpy(x.astype("float64")).requires_grad_()
        y = getattr(torch, kind)(inputs, 1)
        # Both passes of ours begin with the input
        found, gradient = passes_of(kind, {}, x, dy, monkeypatch)
        (dx,) = torch.autograd.grad(y, inputs, torch.from_numpy(dy.astype("float64")))
        for one, right in ((found, y.detach().numpy()), (gradient, dx.numpy())):
            assert (np.abs(one - right) <= 40 * np.finfo(dtype).eps * np.abs(right).max()).all()


@DTYPES
@looped(("shape", "groups", "affine"), [
    ((3, 7, 5, 9), 0, True), ((40, 1300), 0, True), ((2, 2, 70, 90), 0, True), ((5, 4, 3), 0, False),
    ((3, 6, 9, 5), 2, True), ((2, 12, 1, 1), 3, True), ((2, 2, 70, 90), 1, False), ((4, 12), 2, True),
])
def test_rows_are_normalised_as_torchs(shape: tuple[int, ...], groups: int, affine: bool, dtype: str, level: str,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """Of short rows and of long ones, about a mean that is far from 0 where torch has the digits; gradients of factors
    by a network."""
    rng = np.random.default_rng(9)
    x, dy = (rng.normal(offset, 1, shape).astype(dtype) for offset in (10 * (dtype == "float32"), 0))
    last = shape[1:] if len(shape) > 2 else shape[-1:]
    layer = (torch.nn.GroupNorm(groups, shape[1], affine=affine) if groups else
             torch.nn.LayerNorm(last, elementwise_affine=affine)).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    inputs = torch.from_numpy(x.astype("float64")).requires_grad_()
    y = layer(inputs)
    y.backward(torch.from_numpy(dy.astype("float64")))
    options: dict[str, object] = {"num_groups": groups, "num_channels": shape[1], "affine": affine} if groups else {
        "normalized_shape": last, "elementwise_affine": affine}
    given = tuple(one.detach().numpy().astype(dtype) for one in layer.parameters())
    found = passes_of("group_norm" if groups else "layer_norm", options, x, dy, monkeypatch, given)
    assert inputs.grad is not None
    wanted = [y.detach().numpy(), inputs.grad.numpy()]
    if affine and len(shape) == 4:
        wanted += [one.grad.numpy() for one in layer.parameters() if one.grad is not None]
        # The gradient of the loss is 2 * (output - target)
        target = (wanted[0] - dy / 2).astype(dtype)
        module = torch.nn.Sequential(layer.to(getattr(torch, dtype)))
        net = bridge.Network.from_torch(module, reduction="sum", example=shape)
        net.forward(x)
        net.loss(target)
        net.backward()
        found += tuple(net.gradients.values())
    for one, right in zip(found, wanted, strict=True):
        assert (np.abs(one - right) <= 40 * np.finfo(dtype).eps * np.abs(right).max()).all()


@DTYPES
@pytest.mark.parametrize("dims", [(1, 2), (1, 3), (2, 3), (3, 2), (2, 2)])
def test_dimensions_are_exchanged_as_torchs(dims: tuple[int, int], dtype: str, level: str,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more and of fewer numbers than are exchanged together, to the bit."""
    for shape in ((3, 17, 40, 23), (1, 2, 3, 5), (2, 33, 1, 16)):
        x = np.random.default_rng(1).normal(size=shape).astype(dtype)
        y = np.swapaxes(x, *dims)
        found, back = passes_of("transpose", {"dim0": dims[0], "dim1": dims[1]}, x, y.copy(), monkeypatch)
        assert np.array_equal(found, y) and np.array_equal(back, x)


@DTYPES
@looped("shape", [(2, 16, 272, 256), (2, 16, 272, 259)])
def test_moves_past_the_caches_are_torchs(shape: tuple[int, ...], dtype: str, level: str,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit: of more bytes than stay there, in rows that are whole lines of the cache and in others."""
    x = np.random.default_rng(1).normal(size=shape).astype(dtype)
    for kind, options, moved in (
            ("transpose", {"dim0": 2, "dim1": 3}, lambda x: x.transpose(2, 3)),
            ("transpose", {"dim0": 1, "dim1": 3}, lambda x: x.transpose(1, 3)),
            ("permute", {"dims": (0, 2, 3, 1)}, lambda x: x.permute(0, 2, 3, 1)),
            ("flip", {"dims": (3,)}, lambda x: x.flip(3)), ("flip", {"dims": (1, 2)}, lambda x: x.flip(1, 2)),
            ("flip", {"dims": (1, 2, 3)}, lambda x: x.flip(1, 2, 3)),
            ("roll", {"shifts": (16, 5), "dims": (3, 2)}, lambda x: x.roll((16, 5), (3, 2))),
            ("pixel_shuffle", {"upscale_factor": 2}, lambda x: functional.pixel_shuffle(x, 2)),
            ("pixel_shuffle", {"upscale_factor": 4}, lambda x: functional.pixel_shuffle(x, 4)),
            ("slice", {"dim": 2, "start": 1, "stop": 271}, lambda x: x[:, :, 1:271]),
            ("slice", {"dim": 3, "step": 2}, lambda x: x[..., ::2])):
        y = moved(torch.from_numpy(x)).numpy().copy()
        found, back = passes_of(kind, options, x, y.copy(), monkeypatch)
        right = torch.from_numpy(x if kind != "slice" else np.zeros_like(x))
        if kind == "slice":
            moved(right)[...] = torch.from_numpy(y)
        assert np.array_equal(found, y) and np.array_equal(back, right.numpy()), kind


@DTYPES
@looped("dim", [(1,), (2,), (3,), (0,), (2, 3), (1, 2), (0, 2), (0, 1, 2, 3)])
def test_reductions_are_torchs(dim: tuple[int, ...], dtype: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more numbers than are gone through together; extremes to the bit, among many equal ones and NaN."""
    for shape in ((2, 3, 19, 530), (3, 2, 1, 5), (1, 4, 33, 1)):
        options: dict[str, object] = {"dim": dim, "keepdim": True}
        for kind in ("sum", "mean"):
            assert_torchs(kind, options, lambda x, kind=kind: getattr(x, kind)(dim, True), shape, dtype, monkeypatch)
        rng = np.random.default_rng(2)
        x = rng.integers(-3, 4, shape).astype(dtype)
        for kind in ("amax", "amin", "max", "min"):
            if kind in ("max", "min") and len(dim) > 1:
                continue
            image = torch.from_numpy(x).requires_grad_()
            y = getattr(image, kind)(dim, True) if kind[0] == "a" else getattr(image, kind)(dim[0], True).values
            dy = rng.integers(-9, 10, tuple(y.shape)).astype(dtype)
            (dx,) = torch.autograd.grad(y, image, torch.from_numpy(dy))
            found, back = passes_of(kind, options, x, dy, monkeypatch)
            assert np.array_equal(found, y.detach().numpy()) and np.array_equal(back, dx.numpy()), kind
            odd = np.where(rng.random(shape) < 0.1, np.array(np.nan, dtype), x)
            found, _ = passes_of(kind, options, odd, dy, monkeypatch)
            assert np.array_equal(found, np.max(odd, dim, keepdims=True) if "x" in kind else
                                  np.min(odd, dim, keepdims=True), equal_nan=True), kind


@DTYPES
def test_sums_lose_no_digits(dtype: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Along either kind of dimension, of numbers that cancel but for a small one; float32 ones within float64."""
    x = np.ones((1, 3, 4, 6), dtype)
    x[:, 0], x[:, 2] = (large := 2.0**52 if dtype == "float32" else 1e17), -large
    found, _ = passes_of("sum", {"dim": (1,)}, x, np.ones((1, 4, 6), dtype), monkeypatch)
    assert np.array_equal(found, np.ones((1, 4, 6)))
    turned = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    found, _ = passes_of("sum", {"dim": (3,)}, turned, np.ones((1, 4, 6), dtype), monkeypatch)
    assert np.array_equal(found, np.ones((1, 4, 6)))
