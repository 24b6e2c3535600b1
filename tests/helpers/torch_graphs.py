# SPDX-License-Identifier: MIT
"""Networks that are no chains, as a user would write them in PyTorch."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from reference.network import pointwise
from reference.spline import Spline


class Unet(nn.Module):
    """One level: down by pooling, up by a concatenation with what was before; leaky ReLUs, no upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(1, 4, 3, padding=1)
        self.pool = nn.MaxPool2d(3, 1, 1)
        self.middle = nn.Conv2d(4, 4, 3, padding=1)
        self.up = nn.Conv2d(8, 4, 3, padding=1)
        self.last = nn.Conv2d(4, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = functional.leaky_relu(self.down(x), 0.2)
        two = functional.leaky_relu(self.middle(self.pool(one)), 0.2)
        return self.last(functional.leaky_relu(self.up(torch.cat([one, two], dim=1)), 0.2))


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + x)


class Resnet(nn.Module):
    """A residual classifier: two blocks, global mean, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 6, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Block(6), Block(6))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.last = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.first(x))
        return self.last(torch.flatten(self.pool(x), 1))


class Mlp(nn.Sequential):
    """Three linear layers on the pixels of 12 x 10."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(120, 16), nn.Tanh(), nn.Linear(16, 8), nn.Sigmoid(), nn.Linear(8, 3))


class Denoiser(nn.Module):
    """The noise is what the network computes; the output is the input and it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.conv2 = nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv2(functional.relu(self.conv1(x)))


class Everything(nn.Module):
    """A normalised convolution, both poolings, linear layers, and branches that are joined, on images of 8 x 10."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4, eps=0.01)
        self.leaky = nn.LeakyReLU(0.2)
        self.largest = nn.MaxPool2d(3, 1, 1)
        self.mean = nn.AvgPool2d(2, 2, 1)
        self.square = nn.Linear(6, 6)
        self.tanh, self.sigmoid, self.flatten = nn.Tanh(), nn.Sigmoid(), nn.Flatten()
        self.last = nn.Linear(240, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.leaky(self.norm(self.first(x)))
        x = torch.cat([self.largest(x), x], 1)
        x = self.square(self.mean(x))
        x = self.tanh(x) + self.sigmoid(x)
        return self.last(self.flatten(x))


class Activations(nn.Sequential):
    """Every function of each number, each behind a convolution; what is no activation, of numbers between 0 and 1."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(1, 4, 3), *(
            one for kind in pointwise.LAYERS for one in (*self.function(kind), nn.Conv2d(4, 4, 1))))

    @staticmethod
    def function(kind: str) -> list[nn.Module]:
        """What stands for a function; without settings some would do nothing."""
        layer, _ = pointwise.LAYERS[kind]
        settings = {"affine": (-0.7, 0.3), "clip": (-0.3, 0.3)}.get(kind, ())
        return [nn.Sigmoid()] * (kind in pointwise.ELEMENTARY) + [layer(*settings)]


class Gated(nn.Module):
    """Products, quotients and differences of images and of one number for each channel; rectifiers that learn."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3), nn.Conv2d(1, 4, 3)
        self.channels, self.one = nn.PReLU(4), nn.PReLU()
        self.pool, self.gate, self.exp = nn.AdaptiveAvgPool2d(1), nn.Sigmoid(), pointwise.Exp()
        self.last = nn.Conv2d(4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        image, other = self.channels(self.first(x)), self.second(x)
        gate = self.gate(self.pool(other))
        gated = image * gate - gate
        quotient = other / self.exp(gate)
        return self.last(self.one(gated * other - quotient / (gate + gate)))


class Segmenter(nn.Module):
    """Probabilities of three classes at three times the width and twice the height, and their logarithms."""

    def __init__(self) -> None:
        super().__init__()
        self.smaller = nn.Conv2d(1, 4, 3, stride=(2, 1), padding=1)
        self.classes = nn.ConvTranspose2d(4, 3, 3, (2, 1), padding=1, output_padding=(1, 0))
        self.larger = nn.Upsample(scale_factor=(2, 3))
        self.share = nn.Softmax(dim=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.larger(self.classes(self.smaller(x)))
        return torch.cat([self.share(z), functional.log_softmax(z, dim=1)], dim=1)


class Resized(nn.Module):
    """Images of 8 x 10 padded in three ways, enlarged by interpolation, and multiplied as matrices of 23 x 23."""

    def __init__(self) -> None:
        super().__init__()
        self.mirrored = nn.ReflectionPad2d((1, 2, 0, 1))
        self.first = nn.Conv2d(1, 2, 3)
        self.larger = nn.Upsample(scale_factor=2, mode="bilinear")
        self.framed = nn.ZeroPad2d((0, 0, 3, 3))
        self.last = nn.Conv2d(2, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(self.mirrored(x))
        x = self.larger(x) + functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
        x = self.framed(functional.pad(x, (1, 0, 2, 1), mode="replicate"))
        return self.last(x) @ x


class Evaluated(nn.Module):
    """Two normalisations: by the batch, with running statistics that follow it, and by running statistics that stay."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.moving = nn.BatchNorm2d(4, momentum=0.25)
        self.fixed = nn.BatchNorm2d(4, eps=0.01).eval()
        self.fixed.running_mean = torch.tensor([0.5, -0.25, 0.0, 0.125])
        self.fixed.running_var = torch.tensor([2.0, 0.5, 1.0, 0.25])
        self.last = nn.Conv2d(4, 1, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.fixed(functional.relu(self.moving(self.first(x)))))


class Dropped(nn.Module):
    """A dropout of 30 % between two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Conv2d(4, 1, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.drop(self.first(x)))


class Pooled(nn.Module):
    """A dropout of channels, and means of 3 x 4 windows."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 3, padding=1)
        self.drop = nn.Dropout2d(0.3)
        self.pool = nn.AdaptiveAvgPool2d((3, 4))
        self.last = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.pool(self.drop(self.first(x))))


class Normalised(nn.Module):
    """Each image by itself: groups of channels, single channels without factors, all of a row, and the whole image."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.groups = nn.GroupNorm(2, 4, eps=0.01)
        self.rows = nn.LayerNorm(10, eps=0.1, bias=False)
        self.whole = nn.LayerNorm((4, 8, 10))
        self.channels = nn.GroupNorm(4, 4, affine=False)
        self.last = nn.Conv2d(4, 1, 3)
        for norm in (self.groups, self.rows, self.whole):
            nn.init.normal_(norm.weight)
        nn.init.normal_(self.groups.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.rows(functional.relu(self.groups(self.first(x))))
        return self.last(functional.layer_norm(self.channels(self.whole(x)), (8, 10)))


class Attention(nn.Module):
    """One head over the pixels of patches, in rows of 4; keys and queries have 4 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 4, 2, stride=2)
        self.norm = nn.LayerNorm(4)
        self.query, self.key, self.value = (nn.Linear(4, 4) for _ in range(3))
        self.back = nn.Unflatten(1, (4, -1, 4))
        self.last = nn.Conv2d(4, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = self.patches(x)
        words = self.norm(patches.view(patches.size(0), 4, -1).transpose(1, 2))
        scores = self.query(words) @ self.key(words).transpose(-2, -1)
        found = scores.transpose(1, 2).softmax(1).transpose(1, 2) @ self.value(words)
        return self.last(self.back((words + found).transpose(1, 2).flatten(1)).transpose(1, 3).transpose(1, 3))


class Reduced(nn.Module):
    """Sums, means and extremes along every dimension, of numbers many of which are equal."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.last = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.first(x))
        most, least = x.amax((2, 3), keepdim=True), x.amin(1, keepdim=True)
        rows = (x + most + least + x.mean(0, keepdim=True)).max(2, keepdim=True)[0]
        shared = x.min(-1, keepdim=True).values + x.mean((-2, 1), keepdim=True)
        return self.last((rows + shared).sum((1, 2)))


class Kan(nn.Sequential):
    """Two KAN layers over the columns of images of 10: of degree 2 with scales, and of degree 3 without."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Spline(10, 6, grid=4, order=2, low=-2, high=2)
        self.last = Spline(6, 6, scale_spline=False)
        nn.init.normal_(self.first.scale_spline)


class Whole(nn.Module):
    """Every operation at once: the networks of this file on the same images of 8 x 10, and a linear layer over them."""

    def __init__(self) -> None:
        super().__init__()
        self.of_images = nn.ModuleList(one() for one in (
            Unet, Denoiser, Segmenter, Resized, Evaluated, Dropped, Activations, Gated, Normalised, Attention, Pooled,
            Kan))
        self.of_numbers = nn.ModuleList(one() for one in (Resnet, Everything, Reduced))
        self.last = nn.Linear(33, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        images = [part(x).mean((2, 3)) for part in self.of_images]
        return self.last(torch.cat([*images, *(part(x) for part in self.of_numbers)], 1))
