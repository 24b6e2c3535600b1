# SPDX-License-Identifier: MIT
"""examples/11_tomogram in small, and mistakes in it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.validator.programs.mistakes import Mistake, Program, every, of_weights, right, with_gradient
from benchmarks.validator.programs.optimizers import Uncorrected
from bridge.validate.self_test.graph_candidate import GraphOperations, layer, replaced
from reference.settings import ExportSettings

Tensor = torch.Tensor
WIDTH, BATCH, SHAPE = 3, 2, (1, 6, 6, 4)


class UNet(nn.Module):
    """Volumes at two resolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Conv3d(1, WIDTH, 3, padding=1)
        self.coarse1, self.coarse2 = (nn.Conv3d(n * WIDTH, 2 * WIDTH, 3, padding=1) for n in (1, 2))
        self.up = nn.ConvTranspose3d(2 * WIDTH, WIDTH, 2, stride=2)
        self.joined, self.out = nn.Conv3d(2 * WIDTH, WIDTH, 3, padding=1), nn.Conv3d(WIDTH, 1, 1)
        # So that windows of the pooling have several 0 and nothing larger
        self.fine.bias = nn.Parameter(torch.full((WIDTH,), -0.5))

    def forward(self, x: Tensor) -> Tensor:
        fine = self.fine(x).relu()
        coarse = self.coarse2(self.coarse1(functional.max_pool3d(fine, 2)).relu()).relu()
        found: Tensor = self.out(self.joined(torch.cat([fine, self.up(coarse)], 1)).relu())
        return found


def settings() -> ExportSettings:
    """Two batches of random numbers."""
    return ExportSettings(model=UNet, shape=SHAPE, batch=BATCH, steps=2, optimizer="adam", lr=1e-2, threads=1)


def to_all(_: GraphOperations, node: Any, inputs: list[Tensor], p: dict[str, Tensor]) -> Tensor:
    """A pooling whose gradient goes to each element that is as large as the largest."""
    y = right(node, inputs, p).detach()

    def formula(dy: Tensor, x: Tensor) -> tuple[Tensor]:
        largest, dx = (functional.interpolate(one, scale_factor=2) for one in (y, dy))
        return (torch.where(x == largest, dx, 0.0),)

    return with_gradient(y, formula, inputs[0])


def of_last_image(_: GraphOperations, node: Any, inputs: list[Tensor], p: dict[str, Tensor]) -> Tensor:
    """A convolution whose weight has the gradient of the last image alone."""
    fixed = {name: one.detach() for name, one in p.items()}
    return torch.cat([right(node, [inputs[0][:-1]], {**p, "weight": fixed["weight"]}), right(
        node, [inputs[0][-1:]], p)])


def copied_border(_: GraphOperations, node: Any, inputs: list[Tensor], p: dict[str, Tensor]) -> Tensor:
    """A convolution beyond whose border are copies of it."""
    pad = [one for one in node.padding[::-1] for _ in range(2)]
    return functional.conv3d(functional.pad(inputs[0], pad, mode="replicate"), p["weight"], p["bias"])


def without_last_slice(_: GraphOperations, node: Any, inputs: list[Tensor], p: dict[str, Tensor]) -> Tensor:
    """A convolution whose loop over slices ends one too early."""
    y = right(node, inputs, p)
    return torch.cat([y[:, :, :-1], 0 * y[:, :, -1:]], 2)


MISTAKES = (
    Mistake("The gradient of the pooling goes to all elements that are as large", every("max_pool3d", to_all),
            "grads/relu/output", said="the gradient goes to all that are equal to the largest"),
    Mistake("The kernel of the transposed convolution is flipped", of_weights(
        "conv_transpose3d", lambda w: w.flip(2, 3, 4)), "forward/up",
            said="kernel reversed along d and r and s"),
    Mistake("The skip connection is joined behind what comes from below, not before it", layer(
        "cat", lambda self, node, inputs, p: torch.cat(inputs[::-1], 1)), "forward/cat",
            said="inputs in the order 1, 0"),
    Mistake("Kernels are read with depth and width swapped", of_weights("conv3d", lambda w: w.transpose(2, 4)),
            "forward/fine",
            said="read as (k,c,s,r,d)"),
    Mistake("The convolutions pad with copies of the border", every("conv3d", copied_border), "forward/fine",
            said="replicate padding"),
    Mistake("The gradient does not go through the skip connection", layer(
        "cat", lambda self, node, inputs, p: torch.cat([inputs[0].detach(), inputs[1]], 1)), "grads/relu/output",
            said="the gradient through cat is missing"),
    Mistake("Gradients of kernels are those of the last image alone", every("conv3d", of_last_image),
            "grads/out/weight",
            said="only image 1 of the batch"),
    Mistake("The loop of the convolutions over slices ends one too early", every("conv3d", without_last_slice),
            "forward/fine", said="the last plane of outputs is not computed"),
    Mistake("The loss is averaged over the images alone", replaced(
        loss=lambda self, y, target: (y - target).square().sum() / len(y)), "loss",
            said="divided by n = 2 in place of n c d h w = 288"),
    Mistake("Adam's averages are not corrected for their beginning with 0", Uncorrected, "optimizer/fine/weight",
            said="without bias correction"),
)


def program() -> Program:
    """Return the program."""
    return Program("tomogram", settings(), MISTAKES)
