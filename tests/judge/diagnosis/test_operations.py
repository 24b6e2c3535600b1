# SPDX-License-Identifier: MIT
"""Operations of the diagnosis: a few elements, all of them, torch and plain numpy say the same, for every fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from bridge.exchange.model import Conv2d
from bridge.judge.diagnosis.faults.layouts import SliceOrder, layouts
from bridge.judge.diagnosis.faults.padding import MODES, window
from bridge.judge.diagnosis.faults.value_faults import Kept
from bridge.judge.diagnosis.predictions.convolutions import Data, Filter, Forward
from bridge.judge.diagnosis.predictions.elementwise import (
    BiasGradient,
    LossGradient,
    Rectified,
    ReluBackward,
    SquaredError,
)
from bridge.judge.diagnosis.predictions.hypothesis import (
    Added,
    Framed,
    Moved,
    Passed,
    Read,
    Scaled,
    with_layer,
    with_operand,
)
from bridge.judge.diagnosis.predictions.operations import Given, Predicted, Prediction
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff

Array = np.ndarray

FLOAT32 = Arithmetic(total_roundoff("float32"))
#: n, c, h, w, k, r, s are all different, and so are strides, paddings and dilations of the two axes
LAYERS = {
    "plain": Conv2d("a", 4, 6, (3, 2), padding=(1, 1)),
    "strided": Conv2d("a", 4, 6, (3, 2), stride=(2, 3), padding=(2, 1)),
    "dilated": Conv2d("a", 4, 6, (3, 2), padding=(2, 3), dilation=(2, 3)),
    "grouped": Conv2d("a", 4, 6, (3, 2), padding=(1, 0), groups=2),
    "all": Conv2d("a", 4, 6, (3, 2), stride=(3, 2), padding=(1, 2), dilation=(2, 3), groups=2, bias=False),
}
SHAPE = (5, 4, 9, 11)
SHIFTS = [(1, 0), (0, -1), (-1, 1)]


def numbers(shape: tuple[int, ...], seed: int = 0) -> Array:
    """Float32 numbers in float64."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32).astype(np.float64)


def forward(layer: Conv2d) -> Forward:
    b = numbers((layer.out_channels,), 2) if layer.bias else None
    return Forward(layer.output_shape(SHAPE), layer, Predicted(numbers(SHAPE)), numbers(layer.weight_shape, 1), b)


def data(layer: Conv2d) -> Data:
    return Data(SHAPE, layer, Predicted(numbers(layer.output_shape(SHAPE), 3)), numbers(layer.weight_shape, 1))


def filter_(layer: Conv2d) -> Filter:
    dz = Predicted(numbers(layer.output_shape(SHAPE), 3))
    return Filter(layer.weight_shape, layer, Predicted(numbers(SHAPE)), dz)


def agree(operation: Prediction) -> None:
    """A few elements in any order, all of them, and all of them with a bound are the same numbers."""
    whole = operation.full(FLOAT32)
    assert whole.value.shape == operation.shape
    np.testing.assert_allclose(operation.replaced().values(), whole.value, rtol=0, atol=1e-12)
    indices = np.random.default_rng(4).permutation(whole.value.size)[: 1 + whole.value.size // 2]
    np.testing.assert_allclose(operation.replaced().at(indices), whole.value.reshape(-1)[indices], rtol=0, atol=1e-12)
    if whole.error is not None:
        assert (np.broadcast_to(whole.error, operation.shape) >= 0).all()


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
class TestConvolutions:
    def test_forward_is_torch(self, layer: Conv2d) -> None:
        z = forward(layer)
        b = None if z.b is None else torch.from_numpy(z.b)
        right = functional.conv2d(torch.from_numpy(z.x.value), torch.from_numpy(z.w), b, **_geometry(layer))
        np.testing.assert_allclose(z.full(FLOAT32).value, right.numpy(), atol=1e-12)

    def test_gradients_are_torch(self, layer: Conv2d) -> None:
        dx, dw = data(layer), filter_(layer)
        right = _backward(layer, dw.x.value, dx.w, dw.dz.value)
        np.testing.assert_allclose(dx.full(FLOAT32).value, right[0].numpy(), atol=1e-12)
        np.testing.assert_allclose(dw.full(FLOAT32).value, right[1].numpy(), atol=1e-12)

    def test_bounds_cover_float32(self, layer: Conv2d) -> None:
        z, dx, dw = forward(layer), data(layer), filter_(layer)
        x, w, dz = (torch.from_numpy(a.astype(np.float32)) for a in (z.x.value, z.w, dx.dz.value))
        b = None if z.b is None else torch.from_numpy(z.b.astype(np.float32))
        gradients = _backward(layer, x, w, dz)
        for operation, found in (
            (z, functional.conv2d(x, w, b, **_geometry(layer))),
            (dx, gradients[0]),
            (dw, gradients[1]),
        ):
            truth = operation.full(FLOAT32)
            error = np.abs(found.numpy() - truth.value)
            assert (error <= truth.error).all()
            # Not so wide that they would cover anything
            assert truth.error.max() < 1e-3 * np.abs(truth.value).max() and error.max() > 0

    @pytest.mark.parametrize(
        "change", [{}, *({"mode": mode} for mode in MODES), *({"shift": s} for s in SHIFTS)], ids=str
    )
    def test_forward_elements(self, layer: Conv2d, change: dict[str, Any]) -> None:
        agree(forward(layer).replaced(**change))

    @pytest.mark.parametrize("change", [{}, *({"shift": s} for s in SHIFTS)], ids=str)
    def test_data_elements(self, layer: Conv2d, change: dict[str, Any]) -> None:
        agree(data(layer).replaced(**change))

    @pytest.mark.parametrize(
        "change",
        [
            {},
            *({"mode": mode} for mode in MODES),
            *({"shift": s} for s in SHIFTS),
            *({"moved": s} for s in SHIFTS),
            {"images": (0, 3)},
            {"images": (0, 0, 3)},
            {"read_x": SliceOrder(0, (1, 1, 0, 2, 4))},
        ],
        ids=str,
    )
    def test_filter_elements(self, layer: Conv2d, change: dict[str, Any]) -> None:
        agree(filter_(layer).replaced(**change))

    def test_read_in_another_order(self, layer: Conv2d) -> None:
        for layout in layouts(SHAPE, "nchw", "common"):
            x = layout(numbers(SHAPE))
            z, dw = forward(layer).replaced(read=layout), filter_(layer).replaced(read_x=layout)
            agree(z)
            agree(dw)
            np.testing.assert_allclose(z.values(), forward(layer).replaced(x=Predicted(x)).values(), atol=1e-12)
            np.testing.assert_allclose(dw.values(), filter_(layer).replaced(x=Predicted(x)).values(), atol=1e-12)
        for layout in layouts(layer.output_shape(SHAPE), "nchw", "common"):
            dz = Predicted(layout(data(layer).dz.value))
            dx, dw = data(layer).replaced(read=layout), filter_(layer).replaced(read_dz=layout)
            agree(dx)
            agree(dw)
            np.testing.assert_allclose(dx.values(), data(layer).replaced(dz=dz).values(), atol=1e-12)
            np.testing.assert_allclose(dw.values(), filter_(layer).replaced(dz=dz).values(), atol=1e-12)

    def test_other_geometry(self, layer: Conv2d) -> None:
        for change in ({"stride": (1, 2)}, {"stride": (2, 2)}, {"dilation": (2, 1)}, {"dilation": (1, 1)},
                       {"dilation": (0, 0), "padding": (0, 0)}, {"dilation": (0, 0), "padding": (-1, 2)}):
            for operation in (forward(layer), data(layer), filter_(layer)):
                agree(with_layer(operation, **change))


def _geometry(layer: Conv2d) -> dict[str, Any]:
    return {name: getattr(layer, name) for name in ("stride", "padding", "dilation", "groups")}


def _backward(layer: Conv2d, x: Any, w: Any, dz: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, w, dz = (torch.as_tensor(a) for a in (x, w, dz))
    dx, dw, _ = torch.ops.aten.convolution_backward(
        dz, x, w, None, layer.stride, layer.padding, layer.dilation, False, [0, 0], layer.groups, [True, True, False]
    )
    return dx, dw


@pytest.mark.parametrize("mode", MODES[1:])
def test_padding_modes_are_those_of_torch(mode: str) -> None:
    x, layer = numbers(SHAPE), LAYERS["plain"]
    padded = functional.pad(torch.from_numpy(x), (3, 2, 1, 4), mode=mode).numpy()
    np.testing.assert_array_equal(window(x, (-1, -3), (9 + 5, 11 + 5), mode), padded)
    padded = functional.pad(torch.from_numpy(x), (1, 1, 1, 1), mode=mode)
    z, dw = forward(layer).replaced(mode=mode), filter_(layer).replaced(mode=mode)
    right = functional.conv2d(padded, torch.from_numpy(z.w), torch.from_numpy(z.b))
    np.testing.assert_allclose(z.values(), right.numpy(), atol=1e-12)
    none = replace(layer, padding=(0, 0))
    np.testing.assert_allclose(dw.values(), _backward(none, padded, z.w, dw.dz.value)[1].numpy(), atol=1e-12)


def shifted(x: Array, shift: tuple[int, int]) -> Array:
    """The image moved down and to the right by `shift`; zeros come in."""
    moved, (h, w) = np.zeros_like(x), x.shape[2:]
    for i in range(h):
        for j in range(w):
            if 0 <= i - shift[0] < h and 0 <= j - shift[1] < w:
                moved[:, :, i, j] = x[:, :, i - shift[0], j - shift[1]]
    return moved


@pytest.mark.parametrize("shift", SHIFTS)
def test_shifts_go_the_way_that_is_said(shift: tuple[int, int]) -> None:
    """Only the interior: a shifted window sees pixels that a moved image has lost."""
    layer, inside = LAYERS["plain"], (slice(None), slice(None), slice(2, -2), slice(2, -2))
    z, dx, dw = forward(layer), data(layer), filter_(layer)
    opposite = (-shift[0], -shift[1])
    moved = z.replaced(x=Predicted(shifted(z.x.value, opposite))).values()
    np.testing.assert_allclose(z.replaced(shift=shift).values()[inside], moved[inside], atol=1e-12)
    moved = dx.replaced(dz=Predicted(shifted(dx.dz.value, shift))).values()
    np.testing.assert_allclose(dx.replaced(shift=shift).values()[inside], moved[inside], atol=1e-12)
    moved = dw.replaced(dz=Predicted(shifted(dw.dz.value, shift))).values()
    np.testing.assert_allclose(dw.replaced(moved=shift).values(), moved, atol=1e-12)
    for circular in (False, True):
        right = np.roll(z.x.value, shift, (2, 3)) if circular else shifted(z.x.value, shift)
        one = Moved(SHAPE, Given(SHAPE, z.x.value, np.abs(z.x.value)), shift, circular)
        agree(one)
        np.testing.assert_array_equal(one.values(), right)
        np.testing.assert_array_equal(one.full(FLOAT32).error, np.abs(right))


def test_kept_elements() -> None:
    x = numbers(SHAPE)
    kept = x > 0.5
    one = Kept(SHAPE, Given(SHAPE, x, np.abs(x)), kept.reshape(-1), 2.0)
    agree(one)
    np.testing.assert_array_equal(one.values(), np.where(kept, 2 * x, 0))
    assert (one.full(FLOAT32).error[~kept] == 0).all() and (one.full(FLOAT32).error[kept] > 2 * x[kept]).all()


def test_bias_of_a_convolution() -> None:
    z = forward(LAYERS["plain"])
    without = z.replaced(b=None).values()
    for factor in (0.0, 2.0, -1.0):
        one = z.replaced(bias_factor=factor)
        agree(one)
        np.testing.assert_allclose(
            one.values() - without, np.broadcast_to(factor * z.b[:, None, None], z.shape), atol=1e-12
        )
    for axis in (0, 2, 3):
        one = z.replaced(bias_axis=axis)
        agree(one)
        along = np.resize(z.b, z.shape[axis]).reshape([-1 if a == axis else 1 for a in range(4)])
        np.testing.assert_allclose(one.values() - without, np.broadcast_to(along, z.shape), atol=1e-12)
    memory = z.replaced(bias_axis=-1)
    agree(memory)
    np.testing.assert_allclose((memory.values() - without).ravel(), np.resize(z.b, without.size), atol=1e-12)


def test_patches_of_another_image_are_not_used() -> None:
    """The cache knows its operand itself, not the place in memory that it had."""
    z, indices = forward(LAYERS["plain"]), np.arange(40)
    for seed in range(8):
        other = z.replaced(x=Predicted(numbers(SHAPE, 10 + seed)))
        np.testing.assert_allclose(other.at(indices), other.full(FLOAT32).value.reshape(-1)[indices], atol=1e-12)
        del other


def test_few_channels_of_a_filter_gradient() -> None:
    dw = filter_(Conv2d("a", 4, 6, (3, 2), padding=(1, 1)))
    indices = np.ravel_multi_index(np.ix_([5], [3], range(3), range(2)), dw.shape).ravel()
    np.testing.assert_allclose(dw.replaced().at(indices), dw.full(FLOAT32).value[5, 3].ravel(), atol=1e-12)


class TestSums:
    dz = numbers((3, 4, 6, 5), 7)

    @pytest.mark.parametrize(
        "change",
        [{}, {"images": (0, 2)}, {"part": (slice(-1), slice(None))}, {"part": (slice(1, -1), slice(2, None))}],
        ids=str,
    )
    def test_bias_gradient(self, change: dict[str, Any]) -> None:
        db = BiasGradient((4,), Predicted(self.dz, np.abs(self.dz)), **change)
        agree(db)
        rows, columns = change.get("part", (slice(None), slice(None)))
        chosen = self.dz[list(change.get("images", range(3)))][:, :, rows, columns]
        np.testing.assert_allclose(db.values(), chosen.sum((0, 2, 3)), atol=1e-12)
        # The operands' own errors are as large as the operands
        assert (db.full(FLOAT32).error >= np.abs(chosen).sum((0, 2, 3))).all()

    def test_sequential_bias_gradient_is_a_loop(self) -> None:
        db = BiasGradient((4,), Predicted(self.dz), sequential=True)
        agree(db)
        for k in range(4):
            total = np.float32(0)
            for n in range(3):
                for value in self.dz[n, k].astype(np.float32).ravel():
                    total = np.float32(total + value)
            assert db.values()[k] == total
        assert (db.values() != self.dz.sum((0, 2, 3))).all()

    @pytest.mark.parametrize("how", ["", "plain", "scaled"])
    def test_loss(self, how: str) -> None:
        y, target, scale = self.dz, numbers(self.dz.shape, 8), 1 / self.dz.size
        loss = SquaredError((1,), Predicted(y), target, scale, sequential=how)
        agree(loss)
        right = float(functional.mse_loss(torch.from_numpy(y), torch.from_numpy(target)))
        truth = SquaredError((1,), Predicted(y), target, scale).full(FLOAT32)
        assert truth.value[0] == pytest.approx(right, rel=1e-14)
        error = abs(float(functional.mse_loss(*(torch.from_numpy(a.astype(np.float32)) for a in (y, target)))) - right)
        assert error <= truth.error[0] < 1e-4 * right
        if how:
            total = np.float32(0)
            for a, b in zip(y.astype(np.float32).ravel(), target.astype(np.float32).ravel(), strict=True):
                square = np.float32(np.float32(a - b) ** 2)
                total = np.float32(total + (square * np.float32(scale) if how == "scaled" else square))
            assert loss.values()[0] == pytest.approx(float(total) * (1 if how == "scaled" else scale), rel=1e-7)
            assert loss.values()[0] != right

    def test_loss_of_some_images(self) -> None:
        y, target = self.dz, numbers(self.dz.shape, 8)
        loss = SquaredError((1,), Predicted(y), target, 0.5, images=(2, 0))
        assert loss.values()[0] == pytest.approx(0.5 * ((y - target)[[0, 2]] ** 2).sum(), rel=1e-14)

    def test_loss_gradient(self) -> None:
        y, target, scale = self.dz, numbers(self.dz.shape, 8), 1 / self.dz.size
        dy = LossGradient(y.shape, Predicted(y, np.full(y.shape, 0.5)), target, scale)
        agree(dy)
        leaf = torch.from_numpy(y.copy()).requires_grad_()
        functional.mse_loss(leaf, torch.from_numpy(target)).backward()
        np.testing.assert_allclose(dy.values(), leaf.grad.numpy(), rtol=1e-14)
        assert (dy.full(FLOAT32).error >= 2 * scale * 0.5).all()


class TestRelus:
    z, da = numbers((2, 3, 4, 5), 1), numbers((2, 3, 4, 5), 2)

    @pytest.mark.parametrize("slope", [0.0, 1.0, -1.0, 0.01, 3.0])
    def test_forward(self, slope: float) -> None:
        agree(Rectified(self.z.shape, Predicted(self.z), slope))
        right = functional.leaky_relu(torch.from_numpy(self.z), slope).numpy()
        np.testing.assert_allclose(Rectified(self.z.shape, Predicted(self.z), slope).values(), right, rtol=1e-15)

    @pytest.mark.parametrize("slope", [0.0, 1.0, -1.0, 0.01, 3.0])
    def test_errors_of_the_input_are_covered(self, slope: float) -> None:
        e = 0.3 * np.abs(numbers(self.z.shape, 3))
        truth = Rectified(self.z.shape, Predicted(self.z, e), slope).full(FLOAT32)
        for part in (-1.0, -0.5, 0.5, 1.0):
            other = Rectified(self.z.shape, Predicted(self.z + part * e), slope).values()
            assert (np.abs(other - truth.value) <= truth.error + 1e-15).all()

    @pytest.mark.parametrize("slope", [0.0, 0.01, -0.5, 3.0])
    def test_errors_of_the_mask_are_covered(self, slope: float) -> None:
        """Each of the two operands somewhere inside its bound."""
        e, f = (0.3 * np.abs(numbers(self.z.shape, seed)) for seed in (3, 4))
        truth = ReluBackward(self.z.shape, Predicted(self.da, f), Predicted(self.z, e), slope).full(FLOAT32)
        assert (truth.error >= 0).all()
        for p in (-1.0, 0.0, 1.0):
            for q in (-1.0, 1.0):
                da, z = Predicted(self.da + q * f), Predicted(self.z + p * e)
                other = ReluBackward(self.z.shape, da, z, slope).values()
                assert (np.abs(other - truth.value) <= truth.error + 1e-15).all()

    def test_backward(self) -> None:
        z = self.z.copy()
        z.flat[::7] = 0
        masks = {"positive": z > 0, "all": z < 99, "nonnegative": z >= 0, "negative": z < 0}
        for rule, mask in masks.items():
            dz = ReluBackward(z.shape, Predicted(self.da), Predicted(z), rule=rule)
            agree(dz)
            np.testing.assert_array_equal(dz.values(), np.where(mask, self.da, 0))
        leaky = ReluBackward(z.shape, Predicted(self.da), Predicted(z), slope=0.1)
        np.testing.assert_allclose(leaky.values(), np.where(z > 0, self.da, 0.1 * self.da))


class TestOutputs:
    shape = (3, 4, 6, 5)
    inner = Given(shape, numbers(shape, 1), np.abs(numbers(shape, 2)))

    def test_scaled_and_added(self) -> None:
        old = numbers(self.shape, 3)
        for one, right in (
            (Scaled(self.shape, self.inner, -3.0), -3 * self.inner.value),
            (Added(self.shape, self.inner, old, 0.5), self.inner.value + 0.5 * old),
            (Passed(self.shape, self.inner, np.floor, absolute=1.0), np.floor(self.inner.value)),
        ):
            agree(one)
            np.testing.assert_array_equal(one.values(), right)
            assert (one.full(FLOAT32).error >= self.inner.error).all()

    def test_read_takes_the_bounds_along(self) -> None:
        for layout in layouts(self.shape, "nchw", "often"):
            one = Read(self.shape, self.inner, layout)
            agree(one)
            np.testing.assert_array_equal(one.full(FLOAT32).error, layout(self.inner.error))

    def test_frames(self) -> None:
        rest = Given(self.shape, np.full(self.shape, 7.0))
        right = np.full(self.shape, 7.0)
        right[:, :, 1:-2, 0:-1] = self.inner.value[:, :, 1:-2, 0:-1]
        one = Framed(self.shape, self.inner, (1, 2, 0, 1), rest)
        agree(one)
        np.testing.assert_array_equal(one.values(), right)

    def test_operands_change_with_their_bounds(self) -> None:
        dx = data(LAYERS["plain"]).replaced(dz=Predicted(self.dz_like(3), self.dz_like(4) ** 2))
        turned = with_operand(dx, "dz", lambda x: x[..., ::-1])
        np.testing.assert_array_equal(turned.dz.value, dx.dz.value[..., ::-1])
        np.testing.assert_array_equal(turned.dz.error, dx.dz.error[..., ::-1])

    @staticmethod
    def dz_like(seed: int) -> Array:
        return numbers(LAYERS["plain"].output_shape(SHAPE), seed)
