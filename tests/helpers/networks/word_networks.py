# SPDX-License-Identifier: MIT
"""Networks that take whole numbers: words, bytes, classes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from tests.helpers.networks.exported_networks import Written

#: How many there are
WORDS = 11


class Words(nn.Module):
    """A language model: an embedding that is the last layer's weight, too, places, causal attention."""

    def __init__(self, padding_idx: int | None = None) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 8, padding_idx), nn.Embedding(5, 8)
        self.qkv, self.norm, self.out = nn.Linear(8, 24), nn.LayerNorm(8), nn.Linear(8, WORDS, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.words(x) + self.places(torch.arange(x.shape[1]))
        q, k, v = (one.view(*one.shape[:2], 2, -1).transpose(1, 2) for one in self.qkv(self.norm(y)).chunk(3, -1))
        y = y + functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.out(y).transpose(1, 2)


def written(forward: Callable[[Written, torch.Tensor], torch.Tensor], **settings: int) -> Callable[[], nn.Module]:
    return lambda: Written(forward, e=nn.Embedding(WORDS, 4, **settings), out=nn.Linear(4, 3))


#: With the shape of an input, and the operations that they are read as, among others
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], set[str]]] = {
    "a table": (lambda: nn.Sequential(nn.Embedding(WORDS, 4), nn.Linear(4, 3)), (2, 5), {"embedding"}),
    "padding": (written(lambda m, x: m.out(m.e(x).tanh()), padding_idx=2), (2, 5), {"embedding"}),
    "one each": (written(lambda m, x: m.out(m.e(x))), (3,), {"embedding"}),
    "images": (written(lambda m, x: m.out(m.e(x)).mean((1, 2))), (2, 3, 4), {"embedding"}),
    "length first": (written(lambda m, x: m.out(m.e(x.T).mean(0))), (2, 5), {"embedding"}),
    "twice": (written(lambda m, x: m.out(m.e(x[:, :2]) * m.e(x[:, 2:]))), (2, 4), {"gather_rows", "parameter"}),
    "computed": (written(lambda m, x: m.out(functional.embedding(x, m.e.weight.tanh() / 2))), (2, 4), {"gather_rows"}),
    "tied": (Words, (3, 5), {"gather_rows", "index_select"}),
    "tied, padding": (lambda: Words(4), (3, 5), {"gather_rows", "index_select"}),
}
