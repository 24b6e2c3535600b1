# SPDX-License-Identifier: MIT
"""examples/12_vit in small, and mistakes in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.validator.programs.mistakes import Mistake, Program, attention, every, of_weights, right, with_gradient
from bridge.validate.self_test.graph_candidate import GraphOperations, layer, replaced
from reference.settings import ExportSettings

Tensor = torch.Tensor
EDGE, PATCH, WIDTH, HEADS, CLASSES, BATCH = 6, 2, 8, 2, 4, 3
TOKENS = (EDGE // PATCH)**2
ATTENTION = "layers.0.self_attn"


class Vit(nn.Module):
    """Images to logits, by a token of the class beside those of the patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, PATCH, stride=PATCH)
        self.token = nn.Parameter(0.5 * torch.randn(1, 1, WIDTH))
        self.places = nn.Parameter(0.5 * torch.randn(1, TOKENS + 1, WIDTH))
        self.layers = nn.Sequential(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True))
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        found: Tensor = self.out(self.norm(self.layers(x)[:, 0]))
        return found


def settings() -> ExportSettings:
    """Two batches of random images."""
    return ExportSettings(model=Vit, shape=(1, EDGE, EDGE), batch=BATCH, steps=2, loss="cross_entropy",
                          optimizer="adamw", lr=1e-2, threads=1)


def by_heads(_: GraphOperations, node: Any, inputs: list[Tensor], p: dict[str, Tensor]) -> Tensor:
    """Queries, keys and values of each head lie together."""
    x = inputs[0].reshape(*inputs[0].shape[:2], HEADS, 3, WIDTH // HEADS)
    return x.transpose(2, 3).flatten(3)


def other_eps(_: GraphOperations, node: Any, inputs: list[Tensor], p: dict[str, Tensor]) -> Tensor:
    """A layer norm with the eps of BERT."""
    return right(replace(node, eps=1e-12), inputs, p)


def diagonal(scores: Tensor) -> Tensor:
    """A softmax whose derivative is that of each element by itself."""
    y = scores.softmax(-1).detach()
    return with_gradient(y, lambda dy, x: (dy * y * (1 - y),), scores)


def without_means(_: GraphOperations, node: Any, inputs: list[Tensor], p: dict[str, Tensor]) -> Tensor:
    """A layer norm whose gradient takes mean and deviation for constants."""
    (x,) = inputs
    mean, variance = x.mean(-1, keepdim=True).detach(), x.var(-1, unbiased=False, keepdim=True).detach()
    found: Tensor = (x - mean) / (variance + node.eps).sqrt() * p["weight"] + p["bias"]
    return found


MISTAKES = (
    Mistake("Kernels of the patches are read with height and width swapped", of_weights(
        "conv2d", lambda w: w.transpose(2, 3)), "forward/patches",
            said="kernel memory in the order (k,c,r,s), read as (k,c,s,r)"),
    Mistake("The patches are counted down the columns, not along the rows", layer(
        "flatten", lambda self, node, inputs, p: inputs[0].transpose(2, 3).flatten(2)), "forward/flatten",
            said="rows and columns exchanged in memory"),
    Mistake("The class is taken from the mean of all tokens, not from the first", layer(
        "select_3.slice", lambda self, node, inputs, p: inputs[0].mean(1, keepdim=True)), "forward/select_3.slice",
            said="the mean of all rows in place of the first row"),
    Mistake("The embedding of places is not learned", replaced(update=lambda self, name, w, g: (
        w if name == "places/weight" else GraphOperations.update(self, name, w, g))), "optimizer/places/weight",
            said="not updated"),
    Mistake("The eps of layer norms is 1e-12, not 1e-5", every("layer_norm", other_eps), "forward/layers.0.norm1",
            said="eps is 1e-12 in place of 1e-05"),
    Mistake("GELU is the one by the tangent, not the exact one", every(
        "gelu", lambda self, node, inputs, p: functional.gelu(inputs[0], approximate="tanh")), "forward/layers.0.gelu",
            said="gelu_tanh in place of gelu"),
    Mistake("Queries, keys and values are taken head by head from the layer that makes all", layer(
        f"{ATTENTION}.unflatten.reshape", by_heads), f"forward/{ATTENTION}.unflatten.reshape",
            said="the 24 features are taken as 2 by 3 by 4, not as 3 by 2 by 4"),
    Mistake("The derivative of the softmax is p (1 - p), without the other elements", every(
        "attention", attention(weigh=diagonal)),
            f"grads/{ATTENTION}.view_4/output",
            said="y * (1 - y), without the other weights"),
    Mistake("The gradient of layer norms takes mean and deviation for constants", every("layer_norm", without_means),
            "grads/select_3/output",
            said="is not subtracted from dy times the weight"),
    Mistake("The loss is averaged over the classes, too", replaced(
        loss=lambda self, y, target: GraphOperations.loss(self, y, target) / CLASSES), "loss",
            said="in place of 3"),
)


def program() -> Program:
    """Return the program."""
    return Program("vit", settings(), MISTAKES)
