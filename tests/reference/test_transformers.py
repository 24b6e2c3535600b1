# SPDX-License-Identifier: MIT
"""Transformers as PyTorch has them, with the dropouts that they have unless told otherwise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import bridge
from tests.helpers.networks.exported_networks import Written


def encoder(lengths_first: bool) -> nn.Module:
    """Of images (n, length, features); within it, lengths may come first."""
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = m.a(x.transpose(0, 1)).transpose(0, 1) if lengths_first else m.a(x)
        return y

    return Written(forward, a=nn.TransformerEncoderLayer(8, 2, 16, dropout=0.25, batch_first=not lengths_first))


@pytest.mark.parametrize("lengths_first", [False, True])
def test_dropouts_are_read_whatever_the_order_in_memory(lengths_first: bool) -> None:
    net = bridge.Network.from_torch(encoder(lengths_first), example=(3, 5, 8))
    found = [one for one in net.model.layers if one.kind == "dropout"]
    assert [one.p for one in found] == [0.25] * 4  # type: ignore[attr-defined]
    names = {name for name, _ in net.to_torch().named_parameters()}
    assert {"a.self_attn.in_proj_weight", "a.norm2.bias"} <= names and "a.self_attn.in_proj.weight" in net.parameters


@pytest.mark.parametrize("lengths_first", [False, True])
def test_another_share_of_dropped_numbers_is_refused(lengths_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it read wrongly, the proof would tell."""
    module, make = encoder(lengths_first), nn.Dropout.__init__
    monkeypatch.setattr(nn.Dropout, "__init__", lambda self, p=0.5, inplace=False: make(self, 0.9 * p, inplace))
    with pytest.raises(bridge.ArgumentError, match="output differs"):
        bridge.Network.from_torch(module, example=(3, 5, 8))


def test_who_asks_for_the_mode_of_inference_is_refused_with_dropouts_too() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    module = Written(lambda m, x: m.a(x) * (2 if torch.is_inference_mode_enabled() else 1), a=layer)
    with pytest.raises(bridge.ArgumentError, match="output differs in evaluation without gradients"):
        bridge.Network.from_torch(module, example=(3, 5, 8))


@pytest.mark.parametrize("name", ["_weight", "own_weight", "w_"])
def test_parameters_of_any_name_give_layers_names(name: str) -> None:
    module = Written(lambda m, x: functional.linear(x, getattr(m, name)), a=nn.Identity())
    setattr(module, name, nn.Parameter(torch.ones(3, 8)))
    (found,) = bridge.Network.from_torch(module, example=(2, 8)).parameters
    assert found == ("own.weight" if name == "own_weight" else "linear.weight")
