# SPDX-License-Identifier: MIT
"""Models of the self-test's fixtures, for ``reference.export --model``, beside the default one."""

from __future__ import annotations

import torch
from torch import nn

from bridge.engine.network.torch_graph import make_graph
from bridge.exchange.model import Model
from bridge.operations.pointwise import Sigmoid
from bridge.operations.spline import Spline


def strided() -> nn.Module:
    """Return strides, dilations, groups, paddings and kernels that differ in height and width; a layer without bias."""
    return nn.Sequential(
        nn.Conv2d(2, 6, (3, 5), stride=(2, 1), padding=(1, 2)),
        nn.ReLU(),
        nn.Conv2d(6, 8, (3, 3), padding=(2, 2), dilation=(2, 2), groups=2, bias=False),
        nn.ReLU(),
        nn.Conv2d(8, 3, (1, 3), stride=(1, 2), padding=(0, 1)),
    )


def wide() -> nn.Module:
    """Return kernels of 5x5 taps."""
    return nn.Sequential(nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.Conv2d(4, 2, 5, padding=2))


def pointwise() -> nn.Module:
    """Return one 1x1 convolution: little work for many pixels."""
    return nn.Sequential(nn.Conv2d(1, 1, 1))


class Branched(nn.Module):
    """A small U-Net with a gate, whose output is added to its input; images of even height and width."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6, eps=1e-3, momentum=0.25)
        self.leaky = nn.LeakyReLU(0.125)
        self.pool = nn.MaxPool2d(2)
        self.deep = nn.Conv2d(6, 6, 3, padding=1)
        self.gate = nn.Sigmoid()
        self.larger = nn.Upsample(scale_factor=2, mode="bilinear")
        self.drop = nn.Dropout(0.25)
        self.last = nn.Conv2d(12, 1, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input and what the network adds to it."""
        one = self.leaky(self.norm(self.first(x)))
        two = self.larger(self.gate(self.deep(self.pool(one))))
        return self.last(self.drop(torch.cat([one, two], 1))) + x


class Skipped(nn.Module):
    """Images whose pixels are copied, so that every window has equal numbers: what is pooled, and the largest number of
    each row, is of a tensor that a convolution and a concatenation take, too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.larger = nn.Conv2d(1, 4, 3, padding=1), nn.Upsample(scale_factor=2)
        self.pool, self.again, self.beside = nn.MaxPool2d(2), nn.Upsample(scale_factor=2), nn.Conv2d(4, 4, 1)
        self.last = nn.Conv2d(8, 1, 4, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return an image."""
        y = self.larger(self.first(x))
        largest = y.max(3, keepdim=True).values
        return self.last(torch.cat([y, self.again(self.pool(y)) + self.beside(y) - largest], 1))


class Residual(nn.Module):
    """Rectifiers that learn, normalised groups, both poolings, a gate of one number for each channel, a sum that is
    rectified, and three ways to enlarge an image; of even height and width. One bias is frozen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.prelu, self.group, self.relu = nn.PReLU(4), nn.GroupNorm(2, 4, eps=1e-3), nn.ReLU()
        self.pool, self.mean = nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1)
        self.squeeze, self.gate = nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 4, 1)
        self.inner, self.mirror = nn.Conv2d(4, 4, 3), nn.ReflectionPad2d(1)
        self.after = nn.ReLU()
        self.gelu, self.tanh = nn.GELU(), nn.GELU("tanh")
        self.transposed = nn.ConvTranspose2d(4, 4, 3, 2, 1, output_padding=1)
        self.nearest = nn.Upsample(scale_factor=2)
        self.bilinear = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.fixed = nn.BatchNorm2d(4, eps=1e-3).eval()
        self.fixed.running_mean, self.fixed.running_var = torch.tensor([[0.5, -0.25, 0.0, 0.125],
                                                                        [2.0, 0.5, 1.0, 0.25]])
        self.last = nn.Conv2d(4, 1, 3, padding=1)
        nn.init.normal_(self.group.weight)
        self.group.bias.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return an image."""
        start = self.group(self.prelu(self.first(x)))
        low, mean = self.pool(self.relu(start)), self.mean(start)
        gated = low * self.gate(self.squeeze(mean))
        total = self.after(self.inner(self.mirror(gated)) + mean)
        large = self.transposed(self.gelu(total)) - self.nearest(self.tanh(mean))
        return self.last(self.fixed(large) + self.bilinear(total).clip(0.1, 0.75))


class Classifier(nn.Module):
    """Logits of 5 classes for each of 5 x 6 pixels: rows are normalised, multiplied by matrices and by each other, and
    channels share a probability; its logarithms are of numbers whose exponentials float32 does not hold.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.pool = nn.Conv2d(1, 6, 3, stride=2), nn.AdaptiveAvgPool2d((5, 6))
        self.drop = nn.Dropout2d(0.25)
        self.silu, self.softplus, self.elu = nn.SiLU(), nn.Softplus(beta=2.0), nn.ELU(0.5)
        self.norm, self.square = nn.LayerNorm(6, eps=1e-3), nn.Linear(6, 6)
        self.softmax, self.scale, self.logs = nn.Softmax(1), nn.Conv2d(6, 6, 1), nn.LogSoftmax(1)
        self.leaky, self.tanh, self.last = nn.LeakyReLU(0.125), nn.Tanh(), nn.Conv2d(6, 5, 1)
        nn.init.normal_(self.norm.weight)
        with torch.no_grad():
            self.scale.weight.mul_(2048)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = self.drop(self.pool(self.first(x)))
        rows = self.square(self.norm(self.silu(x) + self.softplus(x)))
        mixed = rows @ (self.elu(x).transpose(2, 3) @ self.tanh(rows))
        share = self.softmax(rows)
        logs = self.logs(self.scale(share)).clip(-4, -0.5)
        return self.last(self.leaky(mixed - mixed.mean(1, keepdim=True)) + share / share.amax(1, keepdim=True) + logs)


def kan() -> nn.Module:
    """Return two KAN layers over rows of 24 pixels, of degree 2 and 3, and probabilities."""
    return _of_splines(Spline("first", 24, 6, grid=4, order=2, low=-2.0, high=2.0),
                       Spline("second", 6, 6, grid=3, scale_spline=False), Sigmoid("last"))


def spline() -> nn.Module:
    """Return a single KAN layer over rows of 24 pixels, of degree 2."""
    return _of_splines(Spline("first", 24, 24, grid=3, order=2))


def _of_splines(*layers: Spline | Sigmoid) -> nn.Module:
    """A chain whose scales are random numbers, not the ones that they begin with."""
    made, _ = make_graph(Model(layers), "float32")
    for name, parameter in made.named_parameters():
        if name.endswith("scale_spline"):
            nn.init.normal_(parameter)
    return made
