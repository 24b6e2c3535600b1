# SPDX-License-Identifier: MIT
"""What is read as calls of ATen, where exchange files lack an operation; each reading is proved beside the module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from reference.errors import InputError
from reference.export import ExportSettings, export
from reference.network.hyperparameters import hyperparameters
from reference.network.layers import Layers
from reference.network.reading import read
from tests.helpers.networks.exported_networks import Written, conv
from tests.helpers.networks.word_networks import WORDS, Words


def calls_of(module: nn.Module, shape: tuple[int, ...], integers: int = 0) -> Layers:
    return read(module, lambda _: [shape], shape, foreign=True, integers=integers)


def kinds(layers: Layers) -> set[str]:
    return {hyperparameters(*one)[0] for one in layers}


def overwritten(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = m.a(x).clone()
    y[:, 0] = y[:, 1] * 2
    return y


def largest(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Both outputs of one call: the numbers, and their places."""
    values, places = m.a(x).max(0, keepdim=True)
    return values * places.float()


def rounded(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Whose gradient with respect to the input is 0, and that with respect to its output is not."""
    return m.a(x.floor()) * x


def masked(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = m.a(x)
    return functional.scaled_dot_product_attention(y, y, y, x @ x.mT > 0)


class Recurrent(nn.Module):
    """Two layers of an LSTM with projections, which exchange files lack."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(3, 4, 2, batch_first=True, proj_size=2), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(x)[0])


def volumes() -> nn.Module:
    return nn.Sequential(nn.Conv3d(1, 2, 3, padding=1), nn.BatchNorm3d(2), nn.ReLU(), nn.ConvTranspose3d(2, 1, 2, 2))


IMAGE = (2, 2, 6, 6)
READ: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], set[str]]] = {
    "volumes": (volumes, (2, 1, 4, 4, 4), {"conv3d", "batch_norm2d", "conv_transpose3d"}),
    "recurrent": (Recurrent, (3, 5, 3), {"aten", "linear"}),
    "overwritten": (lambda: Written(overwritten, a=conv(2, 2)), IMAGE, {"aten", "conv2d"}),
    "both outputs": (lambda: Written(largest, a=conv(2, 2)), IMAGE, {"aten", "conv2d"}),
    "without a derivative": (lambda: Written(rounded, a=conv(2, 2)), IMAGE, {"aten", "conv2d"}),
    "a mask": (lambda: Written(masked, a=conv(2, 2)), IMAGE, {"aten", "conv2d"}),
    "twice": (lambda: Written(lambda m, x: m.a(m.a(x).tanh()), a=nn.ConvTranspose2d(2, 2, 1)), IMAGE,
              {"aten", "tanh"}),
    "over the images": (lambda: Written(lambda m, x: m.a(x).std(0), a=conv(2, 2)), IMAGE, {"aten", "conv2d"}),
}


@pytest.mark.parametrize("name", READ)
def test_it_is_read(name: str) -> None:
    make, shape, expected = READ[name]
    layers = calls_of(make(), shape)
    assert expected <= kinds(layers)


class Sequence(nn.Module):
    """Words through an LSTM with projections."""

    def __init__(self) -> None:
        super().__init__()
        self.e, self.out = nn.Embedding(WORDS, 4), nn.Linear(3, WORDS)
        self.lstm = nn.LSTM(4, 5, batch_first=True, proj_size=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(self.e(x))[0])


def test_words_are_taken_with_what_exchange_files_lack() -> None:
    """Their integers are none of the real numbers that torch.export is asked for first."""
    assert {"aten", "linear"} <= kinds(calls_of(Sequence(), (3, 5), WORDS))


def test_words_are_integers(tmp_path: Path) -> None:
    """In the file they are real numbers, the gradient with respect to them is 0, and tied weights are one."""
    found = kinds(calls_of(Words(), (3, 5), WORDS))
    assert {"gather_rows", "parameter", "index_select"} < found and "aten" not in found
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, WORDS, (3, 5)) for _ in range(2))
    export(tmp_path / "words.h5", ExportSettings(model=Words, input=x, target=y, loss="cross_entropy", steps=1))
    with h5py.File(tmp_path / "words.h5") as file:
        assert (file["batches/0/input"][()] == x).all() and not file["steps/0/grads/input"][()].any()
        assert set(file["steps/0/weights"]) == {"norm", "places", "qkv", "words"}
        assert file["steps/0/grads/words/weight"][()].any(1).all()


@pytest.mark.parametrize("call", [
    lambda m, x: m.norm(m.norm(m.a(x)).relu()),
    lambda m, x: functional.instance_norm(m.a(x), m.norm.running_mean, m.norm.running_var, m.norm.weight),
], ids=["batch norm", "instance norm"])
def test_running_statistics_of_several_calls_are_left_out(
    call: Callable[[nn.Module, torch.Tensor], torch.Tensor], tmp_path: Path,
) -> None:
    """What training computes does not depend on them; the report names them."""
    def make() -> nn.Module:
        return Written(call, a=conv(2, 2), norm=nn.BatchNorm2d(2))

    assert {"aten", "conv2d"} <= kinds(calls_of(make(), IMAGE))
    report = export(tmp_path / "it.h5", ExportSettings(model=make, shape=IMAGE[1:], steps=2))
    assert report.left_out == ("norm.running_mean", "norm.running_var")
    assert not export(tmp_path / "other.h5", ExportSettings(model=volumes, shape=(1, 4, 4, 4), steps=1)).left_out
    model = make()
    with h5py.File(tmp_path / "it.h5") as file:
        step = file["steps/0"]
        with torch.no_grad():
            for name, one in model.named_parameters():
                layer, part = name.split(".")
                stored = step["weights"].get(f"{layer}/{part}") or step["weights"].get(f"{name}.shared/{part}")
                # An instance normalisation without weights has none
                one.copy_(one if stored is None else torch.from_numpy(stored[()]))
        x, y = (torch.from_numpy(file[f"batches/0/{one}"][()]) for one in ("input", "target"))
        with torch.no_grad():
            assert float(functional.mse_loss(model(x), y)) == pytest.approx(step["loss"][()], rel=1e-6)


REFUSED: dict[str, tuple[Callable[[nn.Module, torch.Tensor], torch.Tensor], str]] = {
    "random numbers": (lambda m, x: m.a(x) + torch.rand_like(x), "rand_like: it draws random numbers"),
    "in place": (lambda m, x: m.a(x) * x.new_zeros(1).bernoulli_(1.0), "it draws random numbers"),
    "a dropout of an attention": (lambda m, x: functional.scaled_dot_product_attention(m.a(x), x, x, x @ x.mT > 0, 0.5),
                                 "it draws random numbers"),
    "another type": (lambda m, x: m.a(x).double().sin().float(), "it computes in torch.float64, supported is one type"),
    "a buffer": (lambda m, x: m.a(x) * m.mean.add_(1).sum(), "it changes 'mean'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str) -> None:
    forward, why = REFUSED[name]
    with pytest.raises(InputError, match=why):
        calls_of(Written(forward, a=conv(2, 2), mean=nn.Buffer(torch.zeros(2)),
                         var=nn.Buffer(torch.ones(2))), IMAGE)
