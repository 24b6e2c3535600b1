# SPDX-License-Identifier: MIT
"""Operations of random networks that only go together: chosen rows, recurrent layers, windows as images."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from reference.network import layers as own_layers
from reference.network import pointwise


def _numbers(channels: int) -> nn.Module:
    """How many of the channels are positive, which no rounding changes but that of a number next to 0."""
    return nn.Sequential(pointwise.LAYERS["affine"][0](scale=1e8, shift=0.0), pointwise.LAYERS["clip"][0](0.0, 1.0),
                         own_layers.Reduce("sum", (1,), False))


class _Chosen(nn.Module):
    """Rows of each image's own numbers, which they choose themselves."""

    def __init__(self, shape: tuple[int, int], channels: int, padding_idx: int) -> None:
        super().__init__()
        self.table, self.numbers = own_layers.Reshape(shape), _numbers(channels)
        self.rows = own_layers.GatherRows(padding_idx)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.rows(self.table(x), self.numbers(x))
        return found


def _recurrent(shape: tuple[int, ...], kind: str, hidden_size: int, bias: bool, reverse: bool, relu: bool) -> nn.Module:
    times = (shape[0], math.prod(shape[1:]))
    made = own_layers.Recurrent(kind, hidden_size, bias, reverse, relu)
    for one in made.parameters():
        nn.init.uniform_(one, -hidden_size**-0.5, hidden_size**-0.5)
    return nn.Sequential(own_layers.Reshape(times), nn.Linear(times[1], own_layers.GATES[kind] * hidden_size), made)


class _Words(nn.Module):
    """Rows that numbers choose, times their sum, through which gradients flow."""

    def __init__(self, channels: int, width: int, padding_idx: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.numbers, self.sum = _numbers(channels), own_layers.Reduce("sum", (1,), False)
        self.rows, self.wide = own_layers.Embedding(channels + 1, width, padding_idx), own_layers.Reshape((*shape, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rows(self.numbers(x)) * self.wide(self.sum(x))


def _of_windows(shape: tuple[int, ...], dim: int) -> nn.Module:
    """Parts of each image, as images, normalised by themselves, and back."""
    times = shape[0]
    inner = (math.prod(shape[1:dim]) or 1, math.prod(shape[dim:]))
    return nn.Sequential(own_layers.Reshape(inner, images=times), nn.LayerNorm(inner[1:], 1e-3),
                         own_layers.Reshape(shape, images=-times))


class _Attending(nn.Module):
    """Rows of each image's numbers, which attend to each other."""

    def __init__(self, shape: tuple[int, int], is_causal: bool, scale: float) -> None:
        super().__init__()
        self.rows = own_layers.Reshape(shape)
        self.query, self.key = nn.Linear(shape[1], shape[1]), nn.Linear(shape[1], shape[1])
        self.attention = own_layers.Attention(is_causal, scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.rows(x)
        found: torch.Tensor = self.attention(self.query(rows), self.key(rows), rows)
        return found


def _complex(channels: int, places: int, out_channels: int) -> nn.Module:
    return nn.Sequential(own_layers.Reshape((channels, places, 2)),
                         own_layers.ComplexLinear(channels, out_channels, places))


#: Operations that only go together
COMPOSED: dict[str, Callable[..., nn.Module]] = {
    "windows": _of_windows, "recurrent": _recurrent, "words": _Words, "chosen": _Chosen,
    "attending": _Attending, "complex": _complex}
