# SPDX-License-Identifier: MIT
"""A language model, an emulator of a column of air and a Fourier operator; ``width`` makes them as wide."""

from __future__ import annotations

import torch
from torch import fft, nn
from torch.nn import functional

WORDS, LENGTH, LAYERS, HEADS = 256, 256, 6, 4
#: Of the Fourier operator: frequencies along each axis, and layers
MODES, OPERATORS = 12, 4
#: What is known of a level of the air
VARIABLES = 6


class Block(nn.Module):
    """Attention to what is before, and two linear layers, each behind a normalisation and beside a sum."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.attention(self.norm1(x)).chunk(3, -1)
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in heads)
        found = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(found.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """Words (n, at most LENGTH) to the logits (n, words, length) of those that follow; one table for both.

    Source: A. Radford et al., Language Models are Unsupervised Multitask Learners, 2019.
    """

    def __init__(self, width: int = 8, layers: int = LAYERS, heads: int = HEADS, words: int = WORDS) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.words(x) + self.places(torch.arange(x.shape[1]))
        return self.out(self.norm(self.blocks(x))).transpose(1, 2)


class Column(nn.Module):
    """What is known of each level (n, levels, VARIABLES) and what changes there, by two LSTMs along the levels.

    Source: S. Yu et al., ClimSim, NeurIPS 2023, whose baselines are emulators of columns of 60 levels.
    """

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.cells, self.change = nn.LSTM(VARIABLES, width, num_layers=2, batch_first=True), nn.Linear(width, VARIABLES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.change(self.cells(x)[0])


class Spectral(nn.Module):
    """The channels of each of the lowest frequencies, of both signs along the height, mixed by a complex matrix."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.low, self.high = (nn.Parameter(torch.randn(width, width, MODES, MODES, dtype=torch.cfloat) / width)
                               for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = fft.rfft2(x)
        y = torch.zeros_like(found)
        y[:, :, :MODES, :MODES] = torch.einsum("bixy,ioxy->boxy", found[:, :, :MODES, :MODES], self.low)
        y[:, :, -MODES:, :MODES] = torch.einsum("bixy,ioxy->boxy", found[:, :, -MODES:, :MODES], self.high)
        return fft.irfft2(y, s=x.shape[2:])


class FourierOperator(nn.Module):
    """A field from a field, both (n, 1, height, width).

    Source: Z. Li et al., Fourier Neural Operator for Parametric Partial Differential Equations, ICLR 2021.
    """

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.up, self.down = nn.Conv2d(1, width, 1), nn.Conv2d(width, 1, 1)
        self.spectral = nn.ModuleList(Spectral(width) for _ in range(OPERATORS))
        self.local = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(OPERATORS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.up(x)
        for spectral, local in zip(self.spectral, self.local, strict=True):
            x = functional.gelu(spectral(x) + local(x))
        return self.down(x)
