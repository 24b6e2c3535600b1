# SPDX-License-Identifier: MIT
"""examples/9_gpt in small, and mistakes in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.validator.programs.mistakes import Mistake, Program, attention, every, right, with_gradient
from benchmarks.validator.programs.optimizers import Coupled
from bridge.validate.self_test.graph_candidate import GraphOperations, layer, replaced
from reference.settings import ExportSettings

Tensor = torch.Tensor
BYTES, LENGTH, WIDTH, HEADS, BATCH = 11, 6, 8, 2, 3
ATTENTION = "blocks.0.scaled_dot_product_attention"


class Block(nn.Module):
    """Attention to what is before, and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in self.attention(self.norm1(x)).chunk(3, -1))
        found = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(found.transpose(1, 2).flatten(2))
        y: Tensor = x + self.narrow(functional.gelu(self.wide(self.norm2(x)), approximate="tanh"))
        return y


class Gpt(nn.Module):
    """Bytes to logits; the embedding is the last layer, too."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(BYTES, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.norm = nn.Sequential(Block()), nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, BYTES, bias=False)
        self.out.weight = self.bytes.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.bytes(x) + self.places(torch.arange(x.shape[1]))
        found: Tensor = self.out(self.norm(self.blocks(x))).transpose(1, 2)
        return found


def settings() -> ExportSettings:
    """Two batches of random bytes, with those that follow."""
    words = np.random.default_rng(0).integers(0, BYTES, (2, BATCH, LENGTH + 1))
    return ExportSettings(model=Gpt, input=list(words[..., :-1]), target=list(words[..., 1:]), loss="cross_entropy",
                          optimizer="adamw", lr=1e-2, threads=1)


def deviation_of_sample(_: GraphOperations, node: Any, inputs: list[Tensor], p: dict[str, Tensor]) -> Tensor:
    """A layer norm whose variance has n - 1 below."""
    (x,) = inputs
    normal = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + node.eps).sqrt()
    found: Tensor = normal * p["weight"] + p["bias"]
    return found


def swapped(self: GraphOperations, node: Any, inputs: list[Tensor], p: dict[str, Tensor]) -> Tensor:
    """Keys lie before queries."""
    if node.name not in ("blocks.0.chunk", "blocks.0.chunk_1"):
        return right(node, inputs, p)
    found: Tensor = inputs[0].chunk(3, -1)[node.name == "blocks.0.chunk"]
    return found


def overwritten(_: GraphOperations, node: Any, inputs: list[Tensor], p: dict[str, Tensor]) -> Tensor:
    """Rows whose gradients are assigned: of bytes that come twice in a sequence the last one counts."""
    table, x = inputs

    def formula(dy: Tensor, table: Tensor) -> tuple[Tensor]:
        found = torch.zeros_like(table)
        for i in range(len(x)):
            for j in range(x.shape[1]):
                found[i, int(x[i, j])] = dy[i, j]
        return (found,)

    return with_gradient(right(node, inputs, p), formula, table)


def last_alone(_: GraphOperations, node: Any, inputs: list[Tensor], p: dict[str, Tensor]) -> Tensor:
    """Rows that send nothing back to the table, which has the gradient of the last layer all the same."""
    return with_gradient(right(node, inputs, p), lambda dy, table: (torch.zeros_like(table),), inputs[0])


MISTAKES = (
    Mistake("The attention sees one byte too many", layer(ATTENTION, attention(torch.ones(LENGTH, LENGTH).tril(1))),
            f"forward/{ATTENTION}",
            said="the mask lets one number more through"),
    Mistake("The scores are divided by d, not by its root", layer(
        ATTENTION, lambda self, node, inputs, p: right(replace(node, scale=HEADS / WIDTH), inputs, p)),
            f"forward/{ATTENTION}",
            said="scale is 0.25 in place of 1/sqrt(d)"),
    Mistake("The softmax goes over the queries, not over the keys", layer(ATTENTION, attention(dim=-2)),
            f"forward/{ATTENTION}",
            said="along the queries, not along the keys"),
    Mistake("The heads are joined without the transposition", layer(
        "blocks.0.transpose_3", lambda self, node, inputs, p: inputs[0].reshape(-1, LENGTH, HEADS, WIDTH // HEADS)),
        "forward/blocks.0.transpose_3",
            said="memory in the order (n,h,c,w), read as (n,c,h,w)"),
    Mistake("Keys lie before queries in the product of the attention layer", replaced(forward=swapped),
            "forward/blocks.0.chunk",
            said="features 8 to 15 of 24 in place of features 0 to 7"),
    Mistake("The variance of layer norms is that of a sample, with n - 1", every("layer_norm", deviation_of_sample),
            "forward/blocks.0.norm1",
            said="divided by 8 - 1 = 7 in place of 8"),
    Mistake("GELU is the exact one, not that by the tangent", every(
        "gelu_tanh", lambda self, node, inputs, p: functional.gelu(inputs[0])), "forward/blocks.0.gelu",
            said="gelu in place of gelu_tanh"),
    Mistake("The tied weight has the gradient of the last layer alone", layer("bytes_1", last_alone),
            "grads/bytes/output",
            said="the gradient through bytes_1 is missing"),
    Mistake("Of bytes that come twice in a sequence one gradient is kept", layer("bytes_1", overwritten),
            "grads/bytes/output",
            said="the last is stored, and none is added"),
    Mistake("The weight decay of AdamW is added to the gradient", Coupled, "optimizer/bytes/weight",
            said="in the gradient, as Adam's and not AdamW's"),
)


def program() -> Program:
    """Return the program."""
    return Program("gpt", settings(), MISTAKES)
