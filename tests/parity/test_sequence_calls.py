# SPDX-License-Identifier: MIT
"""What transformers and recurrent networks of public packages call, trained beside torch by the library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
from torch import nn
from torch.nn import functional

import bridge
from reference.errors import InputError
from reference.export import export
from reference.network.aten.einsum import letters_of
from reference.network.aten.writing import UnsupportedError
from reference.settings import ExportSettings
from tests.helpers.networks.beside_torch import assert_right, train_beside
from tests.helpers.networks.exported_networks import Written

SHAPE = (2, 4, 6)


def least(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(torch.finfo(x.dtype).min, dtype=x.dtype)


def mask(x: torch.Tensor) -> torch.Tensor:
    """Of those behind each one, added twice, as packages do: the sum of both is infinite."""
    one = torch.full((4, 4), torch.finfo(x.dtype).min, dtype=x.dtype).triu(1)
    return (x @ x.mT + one + one).softmax(-1) @ x


def heads(x: torch.Tensor) -> torch.Tensor:
    """Two of each image, as images."""
    return x.view(-1, 4, 2, 3).transpose(1, 2).reshape(-1, 4, 3)


def biased(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Attention whose bias is made for as many heads as all images have."""
    slopes = torch.arange(1.0, 3.0, dtype=x.dtype).repeat(x.size(0)).view(-1, 1, 1) * torch.arange(4, dtype=x.dtype)
    y = torch.baddbmm(slopes, heads(x), heads(x).mT, beta=0.5, alpha=2)
    return (y.softmax(-1) @ heads(x)).view(-1, 2, 4, 3).transpose(1, 2).reshape(x.shape)


def turned(x: torch.Tensor) -> torch.Tensor:
    """Numbers of each row in an order of its own, which is that of all images."""
    places = (torch.arange(6) * torch.tensor([[1], [5], [-1], [2]])) % 6
    return x.gather(-1, places.expand(x.size(0), -1, -1))


CALLS: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "einsum with a parameter": lambda m, x: torch.einsum("bnd,nk->bkd", x, m.places),
    "einsum of three": lambda m, x: torch.einsum("bid,bjd,jk->bik", x, x.tanh(), m.rows[:4, :6]),
    "einsum of heads and places": lambda m, x: torch.einsum(
        "b h n d, n r d -> b h n r", x.view(-1, 4, 2, 3).transpose(1, 2), m.cube).flatten(1).view(x.shape[0], 4, 6),
    "einsum of images behind": lambda m, x: torch.einsum("ibd,dk->kbi", x.transpose(0, 1), m.rows).permute(1, 2, 0),
    "einsum with dots": lambda m, x: torch.einsum("... d, d k -> ... k", x, m.rows),
    "einsum without a sum": lambda m, x: torch.einsum("bnd,nd->bnd", x, m.places[:, :1] * m.scale),
    "einsum that is a sum": lambda m, x: x * torch.einsum("bnd,d->b", x, m.scale)[:, None, None],
    "einsum of words alone": lambda m, x: x * torch.einsum("bnd->bn", x)[..., None],
    "addmm": lambda m, x: torch.addmm(m.scale, x.reshape(-1, 6), m.rows).view(x.shape),
    "addmm of parts": lambda m, x: torch.addmm(x.reshape(-1, 6), x.reshape(-1, 6), m.rows, beta=2, alpha=0.5).view(
        x.shape),
    "mm": lambda m, x: (x.reshape(-1, 6) @ m.rows.tanh()).view(x.shape),
    "baddbmm": biased,
    "a vector": lambda m, x: x * (x @ m.scale)[..., None],
    "a computed vector": lambda m, x: x * (x @ (m.scale.tanh() * m.scale))[..., None],
    "joined with what is alike": lambda m, x: torch.cat([x, torch.linspace(0, 1, 4, dtype=x.dtype).view(
        1, 4, 1).expand(x.size(0), -1, -1), m.places.expand(x.size(0), -1, -1)], -1)[..., 1:7],
    "words of places": lambda m, x: x + m.words(torch.arange(4).expand(x.size(0), -1)),
    "the larger one of the least": lambda m, x: torch.max(x, least(x)) + torch.maximum(x, least(x)),
    "a mask twice": lambda m, x: mask(x),
    "a part without numbers": lambda m, x: torch.cat([x[..., :6].tanh(), x[..., 6:]], -1),
    "gathered": lambda m, x: turned(x),
    "sums so far": lambda m, x: x.cumsum(1) + x.flip(-1).cumsum(-1),
    "windows of rows": lambda m, x: (x.unfold(1, 3, 1) * m.scale[:3]).sum(-1),
    "rows by their squares": lambda m, x: functional.rms_norm(x, (6,), m.scale, 1e-5) + functional.rms_norm(x, (6,)),
    "what is alike in a choice": lambda m, x: x + torch.where(
        torch.ones(4, 6, dtype=torch.bool).tril().expand(x.size(0), -1, -1), m.places[None], 0.5),
    "one matrix in the images' place": lambda m, x: x @ (m.rows / torch.tensor(2.0).sqrt())[None],
    "parameters behind each other": lambda m, x: (heads(x) @ m.cube[:2].repeat(x.size(0), 1, 1)).reshape(x.shape),
    "angles": lambda m, x: x * (torch.arange(4).float()[:, None] * torch.arange(6).float().div(7).exp()).sin(),
}


def module(name: str) -> nn.Module:
    torch.manual_seed(0)
    return Written(lambda m, x: m.last(CALLS[name](m, m.first(x))), first=nn.Linear(6, 6), last=nn.LazyLinear(3),
                   rows=nn.Parameter(torch.randn(6, 6)), places=nn.Parameter(torch.randn(4, 6)),
                   cube=nn.Parameter(torch.randn(4, 3, 3)), scale=nn.Parameter(torch.randn(6)),
                   words=nn.Embedding(5, 6))


def ready(name: str) -> nn.Module:
    """With the features that it has."""
    made = module(name)
    made(torch.zeros(SHAPE))
    return made


@pytest.mark.parametrize("name", CALLS)
def test_three_steps_are_torchs(name: str, device: str) -> None:
    train_beside(ready(name), SHAPE, device, "float32")
    assert "aten" not in {one.kind for one in bridge.Network.from_torch(ready(name), example=SHAPE).model.layers}


@pytest.mark.parametrize("name", ["einsum of heads and places", "baddbmm", "a mask twice", "gathered"])
def test_they_are_judged_right(name: str, device: str, tmp_path: Path) -> None:
    x = torch.randn(SHAPE).numpy()
    target = torch.randn(ready(name)(torch.zeros(SHAPE)).shape).numpy()
    export(tmp_path / "fixture.h5", ExportSettings(model=lambda: ready(name), input=x, target=target, steps=1))
    assert_right(tmp_path / "fixture.h5", tmp_path / "result.h5", device)


def test_a_softmax_in_the_networks_own_type_is_one(device: str) -> None:
    made = Written(lambda m, x: m.a(x).softmax(-1, dtype=torch.float32), a=nn.Linear(6, 6))
    train_beside(made, SHAPE, device, "float32")
    with pytest.raises(bridge.ArgumentError, match=r"softmax: it computes in torch\.float32 and torch\.float64"):
        bridge.Network.from_torch(Written(lambda m, x: m.a(x).softmax(-1, dtype=torch.float64).float(), a=nn.Linear(
            6, 6)), example=SHAPE)


def test_what_no_output_needs_is_no_obstacle(device: str) -> None:
    """Of a module of several outputs one is read."""
    made = Written(lambda m, x: (m.a(x), m.a(x)[:, x[0, :, 0].argmax()]), a=nn.Linear(6, 6))
    assert bridge.Network.from_torch(made, example=SHAPE, output=0).model.layers
    with pytest.raises(bridge.ArgumentError, match="argmax"):
        bridge.Network.from_torch(made, example=SHAPE, output=1)


@pytest.mark.parametrize(("what", "said"), [
    (lambda m, x: x * torch.einsum("bnd,bnd->n", x, x).view(1, 4, 1), "over the images"),
    (lambda m, x: torch.maximum(x, torch.tensor(0.0)), "maximum: the larger one"),
    (lambda m, x: x.gather(-1, (x > 0).long()), "gather: an index that depends on the input"),
    (lambda m, x: torch.addmm(x[:, 0], x[:, 1], x.flatten(0, 1).T @ x.flatten(0, 1)), "a product of other than")])
def test_others_are_refused(what: Any, said: str) -> None:
    made = Written(lambda m, x: what(m, m.a(x)), a=nn.Linear(6, 6), rows=nn.Parameter(torch.randn(6, 6)))
    with pytest.raises(bridge.ArgumentError, match=said):
        bridge.Network.from_torch(made, example=SHAPE)


def test_letters_that_are_no_products_are_refused() -> None:
    for equation, ranks in (("ii,j->ij", [2, 1]), ("ij,jk", [2, 2, 2]), ("ij,jk", [3, 2])):
        with pytest.raises(UnsupportedError):
            letters_of(equation, ranks)


def test_marks_made_by_operators_are_calls_that_files_know(tmp_path: Path) -> None:
    """Python's & of what the input says has another name there."""
    made = Written(lambda m, x: m.a(x).masked_fill((x > 0) & (x < 1), 0.0), a=nn.Linear(6, 6))
    x, target = torch.randn(SHAPE).numpy(), torch.randn(SHAPE).numpy()
    export(tmp_path / "fixture.h5", ExportSettings(model=lambda: made, input=x, target=target, steps=1))
    with h5py.File(tmp_path / "fixture.h5") as file:
        said = "".join(str(one.attrs.get("calls", "")) for one in file["model/layers"].values())
    assert "__and__" not in said


def test_an_operator_takes_what_is_no_layer(tmp_path: Path) -> None:
    """Which the judge's reading has, and a constant beside it."""
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.a(x) * torch.einsum("n,d->nd", torch.cumsum((x[0, :, 0] > 9).to(x.dtype), 0), m.numbers).cos()

    made = Written(forward, a=nn.Linear(6, 6), numbers=nn.Buffer(torch.arange(6.0)))
    x, target = torch.randn(SHAPE), torch.randn(SHAPE)
    export(tmp_path / "fixture.h5", ExportSettings(model=lambda: made, input=x.numpy(), target=target.numpy(), steps=1))
    with pytest.raises((InputError, bridge.ArgumentError)):
        bridge.Network.from_torch(made, example=SHAPE)
