# SPDX-License-Identifier: MIT
"""Legal orders of evaluation are rounding, or named for the digits that they lose; directed rounding is no TF32."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from bridge.exchange.model import Conv2d
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.healthy import KerasMomentum, OtherLoss
from bridge.validate.self_test.operations import Operations, replace
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.candidates import plant

Tensor = torch.Tensor
undiagnosed = partial(judge, diagnosing=False)


def far_from_zero() -> nn.Module:
    """Outputs of about 100."""
    torch.manual_seed(1)
    made = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1))
    with torch.no_grad():
        for parameter in made[2].parameters():
            parameter.fill_(100.0) if parameter.ndim == 1 else None
    return made


def cancelling() -> nn.Module:
    """Outputs of both signs, some far smaller than the bias of 30."""
    made = far_from_zero()
    with torch.no_grad():
        made[2].weight *= 300.0
        made[2].bias *= 0.3
    return made


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return near_targets(tmp_path_factory.mktemp("order") / "near.h5", far_from_zero)


def near_targets(path: Path, model: Callable[[], nn.Module]) -> Path:
    """Outputs near their targets: what the reference wrote for other targets is taken out."""
    export(path, ExportSettings(height=12, width=18, batch=2, steps=3, threads=1, oracle_steps=1, lr=0.1,
                                model=model))
    with h5py.File(path, "r+") as file:
        del file["oracle"]
        for k in range(3):
            y = file[f"steps/{k}/forward/2"][()]
            noise = 0.01 * np.random.default_rng(k).standard_normal(y.shape)
            file[f"batches/{k}/target"][...] = (y + noise).astype(np.float32)
            for name in ("loss", "grads", "forward"):
                del file[f"steps/{k}/{name}"]
    return path


def products(self: Operations, y: Tensor, target: Tensor) -> Tensor:
    c = 2 / y.numel()
    return c * y - c * target


def quotients(self: Operations, y: Tensor, target: Tensor) -> Tensor:
    return 2 * y / y.numel() - 2 * target / y.numel()


def fused(self: Operations, y: Tensor, target: Tensor) -> Tensor:
    c = float(np.float32(2 / y.numel()))
    return (c * y.double() - (c * target).double()).float()


def test_a_difference_of_products_is_named(near: Path, tmp_path: Path) -> None:
    for order in (products, quotients, fused):
        result = train(near, tmp_path / f"{order.__name__}.h5", replace(loss_gradient=order))
        comparison, verdict = judge(near, result, adequacy=False)
        assert verdict.outcome is Outcome.PRECISION, (order, verdict.words)
        assert "computed as c*y - c*t: legal, but it loses 3." in verdict.words
        assert "c*(y - t)" in verdict.hints[0]
        assert all(one.outcome is Outcome.PRECISION for one in comparison.failures)


def test_where_nothing_is_lost_nothing_is_named(tmp_path: Path) -> None:
    """Of a mean over a power of two all ways to write it give the same bits."""
    fixture = export(tmp_path / "fixture.h5", ExportSettings(
        height=8, width=16, batch=2, steps=1, threads=1, oracle_steps=1, model=far_from_zero)).path
    for kind in (Operations, replace(loss_gradient=products)):
        verdict = undiagnosed(fixture, train(fixture, tmp_path / "result.h5", kind)).verdict
        assert verdict.outcome is Outcome.ROUNDING, verdict.words


def written_later(of_bias: bool = False) -> dict[str, object]:
    """The last convolution hands y - t on before y is rounded, and in place of (acc + b) - t, acc + (b - t)."""

    def conv(self: Operations, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        if layer.name != "2" or b is None:
            return Operations.conv(self, layer, x, w, b)
        shift = b[:, None, None]
        acc = torch.conv2d(x, w, padding=layer.padding) if of_bias else torch.conv2d(
            x.double(), w.double(), padding=layer.padding)
        self.kept = acc, shift  # type: ignore[attr-defined]
        return (acc + shift).float()

    def gradient(self: Operations, y: Tensor, target: Tensor) -> Tensor:
        acc, shift = self.kept  # type: ignore[attr-defined]
        d = acc + (shift - target) if of_bias else (acc + shift) - target
        return (2 * d / y.numel()).float()

    return {"conv": conv, "loss_gradient": gradient}


def test_an_output_that_is_used_before_it_is_rounded_is_right(near: Path, tmp_path: Path) -> None:
    verdict = undiagnosed(near, train(near, tmp_path / "wide.h5", replace(**written_later()))).verdict
    assert verdict.outcome is Outcome.ROUNDING, verdict.words


def test_a_bias_less_the_target_is_named(tmp_path: Path) -> None:
    near = near_targets(tmp_path / "near.h5", cancelling)
    result = train(near, tmp_path / "bias.h5", replace(**written_later(of_bias=True)))
    verdict = undiagnosed(near, result).verdict
    assert verdict.outcome is Outcome.PRECISION, verdict.words
    assert "computed from acc + (b - t)" in verdict.words
    wrong = plant(result, tmp_path / "wrong.h5", {"steps/1/grads/2/output": lambda g: g * np.float32(1.01)})
    assert undiagnosed(near, wrong).verdict.outcome is Outcome.BUG


def test_it_excuses_nothing_else(near: Path, tmp_path: Path) -> None:
    def plus(self: Operations, y: Tensor, target: Tensor) -> Tensor:
        return products(self, y, -target)

    def first_image(self: Operations, layer: Conv2d, dz: Tensor) -> Tensor:
        return dz[:1].sum((0, 2, 3))

    def swapped(self: Operations, y: Tensor, target: Tensor) -> Tensor:
        return products(self, target, y)

    for methods in ({"loss_gradient": plus}, {"loss_gradient": swapped},
                    {"loss_gradient": products, "bias_gradient": first_image}):
        verdict = undiagnosed(near, train(near, tmp_path / "wrong.h5", replace(**methods))).verdict
        assert verdict.outcome is Outcome.BUG, methods
    # One number of the gradient is another, by more than the rounding of the output
    result = train(near, tmp_path / "right.h5", replace(loss_gradient=products))
    one = plant(result, tmp_path / "one.h5", {"steps/1/grads/2/output": lambda g: np.where(
        np.arange(g.size).reshape(g.shape) == 7, g + np.float32(2.0**-23), g)})
    assert undiagnosed(near, one).verdict.outcome is Outcome.BUG


def scaled(self: Operations, y: Tensor, target: Tensor) -> Tensor:
    return (y - target) / (y.numel() / 2)


def reciprocal(self: Operations, y: Tensor, target: Tensor) -> Tensor:
    return 2 * (y - target) * float(np.float32(1) / np.float32(y.numel()))


def test_other_orders_are_rounding(near: Path, tmp_path: Path) -> None:
    """Where y is near t, and with momentum, decay and Nesterov's rule."""
    decayed = tmp_path / "decayed.h5"
    export(decayed, ExportSettings(height=12, width=18, batch=2, steps=3, threads=1, oracle_steps=1, lr=0.1,
                                   momentum=0.9, weight_decay=0.01, nesterov=True))
    orders = {"scaled": replace(loss_gradient=scaled), "reciprocal": replace(loss_gradient=reciprocal),
              "loss": OtherLoss, "keras": KerasMomentum}
    for fixture in (near, decayed):
        for name, kind in orders.items():
            verdict = undiagnosed(fixture, train(fixture, tmp_path / "result.h5", kind)).verdict
            assert verdict.outcome is Outcome.ROUNDING, (name, verdict.words)


def directed(x: Tensor, direction: str) -> Tensor:
    """Float64 numbers, rounded to float32 in one direction."""
    right = x.numpy()
    near = right.astype(np.float32)
    limit, wrong = {
        "toward zero": (np.float32(0), np.abs(near) > np.abs(right)),
        "up": (np.float32(np.inf), near < right),
        "down": (np.float32(-np.inf), near > right),
    }[direction]
    return torch.from_numpy(np.where(wrong, np.nextafter(near, limit), near))


def rounding(direction: str) -> type[Operations]:
    """Operations that round results of convolutions, gradients and weights in one direction."""

    def one(name: str) -> object:
        def method(self: Operations, *given: object) -> Tensor:
            operands = [g.double() if isinstance(g, Tensor) else g for g in given]
            return directed(getattr(Operations, name)(self, *operands), direction)
        return method

    names = ("conv", "data_gradient", "filter_gradient", "bias_gradient", "update")
    return replace(**{name: one(name) for name in names})


@pytest.mark.deep
def test_directed_rounding_is_no_other_precision(tmp_path: Path) -> None:
    fixture, named = tmp_path / "fixture.h5", set()
    export(fixture, ExportSettings(height=24, width=24, batch=2, steps=3, threads=1, oracle_steps=1, lr=0.1))
    for direction in ("toward zero", "up", "down"):
        result = train(fixture, tmp_path / "result.h5", rounding(direction))
        verdict = undiagnosed(fixture, result).verdict
        if verdict.outcome is not Outcome.ROUNDING:
            assert verdict.outcome is Outcome.PRECISION and f"it rounds {direction}" in verdict.words, verdict.words
            named.add(direction)
    assert "down" in named
