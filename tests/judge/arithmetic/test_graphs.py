# SPDX-License-Identifier: MIT
"""Other arithmetic in networks that are no chains: named, allowed, and no hiding place for a bug."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bridge.exchange.model import Conv2d
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.judge.oracle.algorithm import Algorithm, transposed, turned_kernels
from bridge.judge.oracle.algorithms import known
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.candidates import result_of
from tests.helpers.tiers import deep
from tests.helpers.torch_graphs import Resnet, Unet

CONV2D = torch.nn.functional.conv2d
SETTINGS = {"height": 24, "width": 20, "batch": 2, "steps": 2, "momentum": 0.5, "threads": 1}
NAMED = {one.name: one for one in known()}
undiagnosed = partial(judge, diagnosing=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    for network in (Unet, Resnet):
        export(folder / f"{network.__name__}.h5", ExportSettings(model=network, **SETTINGS))
    return folder


def by(algorithm: Algorithm) -> Callable[..., Tensor]:
    """Torch's convolution, computed by an algorithm where it applies; so is its data gradient."""

    class Fast(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor | None, *geometry: Any) -> Tensor:
            ctx.save_for_backward(x, w)
            ctx.geometry, ctx.layer = geometry, layer_of(w, *geometry)
            if x.dtype == torch.float64 or not algorithm.applies(ctx.layer):
                return CONV2D(x, w, b, *geometry)
            z = of_images(algorithm, x, w.detach().numpy(), ctx.layer)
            return z if b is None else z + b[:, None, None]

        @staticmethod
        def backward(ctx: Any, *dys: Tensor) -> Any:
            (x, w), (dy,) = ctx.saved_tensors, dys
            dx = torch.nn.grad.conv2d_input(x.shape, w, dy, *ctx.geometry)
            turned = transposed(ctx.layer)
            if turned is not None and x.dtype == torch.float32 and algorithm.applies(ctx.layer):
                dx = of_images(algorithm, dy, turned_kernels(w.detach().numpy(), ctx.layer.groups), turned)
            dw = torch.nn.grad.conv2d_weight(x, w.shape, dy, *ctx.geometry)
            return dx, dw, dy.sum((0, 2, 3)) if ctx.needs_input_grad[2] else None, None, None, None, None

    return Fast.apply


def of_images(algorithm: Algorithm, x: Tensor, w: np.ndarray, layer: Conv2d) -> Tensor:
    return torch.from_numpy(np.stack([algorithm.forward(one.detach().numpy(), w, layer) for one in x]))


def layer_of(w: Tensor, stride: Any, padding: Any, dilation: Any, groups: int) -> Conv2d:
    k, c, *kernel = w.shape
    return Conv2d("", c * groups, k, tuple(kernel), tuple(stride), tuple(padding), tuple(dilation), groups)


def computed(
    network: type[nn.Module], conv: Callable[..., Tensor], path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A result of torch with another convolution."""
    with monkeypatch.context() as patched:
        patched.setattr(torch.nn.functional, "conv2d", conv)
        export(path, ExportSettings(model=network, **SETTINGS))
    return result_of(path)


#: FFT of the few pixels of the ResNet's inner images is as exact as sums of products
ALGORITHMS = [(Unet, "Winograd F(4x4)"), *(deep(network, name) for network, name in (
    (Resnet, "Winograd F(4x4)"), (Unet, "Winograd F(6x6)"), (Resnet, "Winograd F(6x6)"),
    (Unet, "FFT, tiles of 16 x 16"), (Unet, "FFT of the whole image"), (Unet, "three bf16 products"),
    (Resnet, "three bf16 products")))]


@pytest.mark.parametrize(("network", "name"), ALGORITHMS)
def test_an_algorithm_is_named_allowed_and_hides_no_bug(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: type[nn.Module], name: str
) -> None:
    algorithm, fixture = NAMED[name], folder / f"{network.__name__}.h5"
    result = computed(network, by(algorithm), tmp_path / "torch.h5", monkeypatch)
    verdict = undiagnosed(fixture, result).verdict
    assert verdict.outcome is Outcome.PRECISION, verdict.words
    assert verdict.algorithms[0].algorithm.family == algorithm.family
    allowed = undiagnosed(fixture, result, allow=(algorithm.family,))
    assert allowed.verdict.outcome is Outcome.ROUNDING and not allowed.comparison.failures
    with h5py.File(result, "r+") as file:
        last = file["steps/0/grads/last/weight"]
        last[...] *= np.float32(1.01)
    wrong = undiagnosed(fixture, result, allow=(algorithm.family,))
    assert wrong.verdict.outcome is Outcome.BUG
    assert {one.name for one in wrong.comparison.failures} == {"grads/last/weight", "optimizer/last/weight"}


def test_a_loss_gradient_by_rounded_products(folder: Path, tmp_path: Path) -> None:
    """c*y - c*t is legal, and loses digits where y is near t."""
    fixture = tmp_path / "near.h5"
    settings = ExportSettings(model=Far, **SETTINGS | {"steps": 1, "batch": 3})
    export(fixture, settings)
    with h5py.File(fixture, "r+") as file:
        y = file["steps/0/forward/add"][()]
        noise = 0.01 * np.random.default_rng(1).standard_normal(y.shape)
        file["batches/0/target"][...] = target = (y + noise).astype(np.float32)
        del file["oracle"], file["steps/0/loss"], file["steps/0/grads"], file["steps/1"]
    c = np.float32(2 / y.size)
    for found, outcome in ((c * (y - target), Outcome.ROUNDING), (c * y - c * target, Outcome.PRECISION),
                           (c * y - c * target * np.float32(1.000001), Outcome.BUG)):
        with h5py.File(result := result_with(fixture, y), "r+") as file:
            file["steps/0/grads/add/output"] = found.astype(np.float32)
        assert undiagnosed(fixture, result).verdict.outcome is outcome


def result_with(fixture: Path, y: np.ndarray) -> Path:
    path = fixture.with_name("result.h5")
    path.unlink(missing_ok=True)
    with h5py.File(fixture) as source, h5py.File(path, "w") as file:
        for name, value in source.attrs.items():
            file.attrs[name] = value
        file.attrs["role"], file.attrs["producer"] = "candidate", "another program"
        file["steps/0/forward/add"] = y
    return path


class Far(nn.Module):
    """Outputs of about 100, the sum of two branches."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(1, 2, 1)
        nn.init.constant_(self.one.bias, 100.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.one(x) + self.two(x)
