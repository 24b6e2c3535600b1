# SPDX-License-Identifier: MIT
"""Five networks as a user would write them in PyTorch: a denoiser, a U-Net, ResNet-18, a classifier, an MLP.

Channels are few, so that a step takes milliseconds; ``width`` makes them as many as in the papers.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class ResidualDenoiser(nn.Module):
    """Twelve convolutions that estimate the noise, which is added to the input with its sign learned.

    Source: K. Zhang et al., Beyond a Gaussian Denoiser, IEEE TIP 26 (2017), with 17 layers of 64 channels.
    """

    def __init__(self, width: int = 6, depth: int = 12, norm: bool = True) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, width, 3, padding=1), nn.ReLU(inplace=True)]
        for _ in range(depth - 2):
            layers.append(nn.Conv2d(width, width, 3, padding=1, bias=not norm))
            if norm:
                layers.append(nn.BatchNorm2d(width))
            layers.append(nn.ReLU(inplace=True))
        self.noise = nn.Sequential(*layers, nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.noise(x)


class PlainDenoiser(ResidualDenoiser):
    """The same without batch normalisation."""

    def __init__(self) -> None:
        super().__init__(norm=False)


class DoubleConv(nn.Sequential):
    """Two convolutions with leaky ReLUs."""

    def __init__(self, given: int, width: int) -> None:
        super().__init__(nn.Conv2d(given, width, 3, padding=1), nn.LeakyReLU(0.2, inplace=True),
                         nn.Conv2d(width, width, 3, padding=1), nn.LeakyReLU(0.2, inplace=True))


class TwoLevelUnet(nn.Module):
    """Two levels down by pooling, two up by interpolation and by copies; each level joins what it was before.

    Source: O. Ronneberger et al., U-Net, MICCAI 2015, with four levels of 64 channels and more.
    """

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.down1 = DoubleConv(1, width)
        self.down2 = DoubleConv(width, 2 * width)
        self.bottom = DoubleConv(2 * width, 4 * width)
        self.pool = nn.MaxPool2d(2)
        self.up2 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.join2 = DoubleConv(6 * width, 2 * width)
        self.up1 = nn.Upsample(scale_factor=2)
        self.join1 = DoubleConv(3 * width, width)
        self.last = nn.Conv2d(width, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.down1(x)
        two = self.down2(self.pool(one))
        x = self.bottom(self.pool(two))
        x = self.join2(torch.cat([two, self.up2(x)], dim=1))
        x = self.join1(torch.cat([one, self.up1(x)], dim=1))
        return self.last(x)


class BasicBlock(nn.Module):
    """Two convolutions beside a shortcut, which is a convolution where the shape changes."""

    def __init__(self, given: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(given, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or given != width:
            self.shortcut = nn.Sequential(nn.Conv2d(given, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        y += self.shortcut(x)
        return functional.relu(y)


class Resnet18(nn.Module):
    """ResNet-18 for images of 32 x 32: four stages of two blocks, no pooling at the start; width 64 in the paper.

    Source: K. He et al., Deep Residual Learning for Image Recognition, CVPR 2016.
    """

    def __init__(self, width: int = 4, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        stages = []
        for i in range(4):
            given, own = width * 2 ** max(i - 1, 0), width * 2**i
            stages.append(nn.Sequential(BasicBlock(given, own, 2 if i else 1), BasicBlock(own, own, 1)))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class ImageClassifier(nn.Module):
    """Convolutions with batch normalisation and pooling, then linear layers with dropout; images of 16 x 16."""

    def __init__(self, width: int = 4, classes: int = 5) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.AvgPool2d(2))
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(32 * width, 16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x))


class Perceptron(nn.Module):
    """Three linear layers on images of 12 x 12; the second is square."""

    def __init__(self, width: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.first = nn.Linear(144, width)
        self.second = nn.Linear(width, width)
        self.last = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.first(torch.flatten(x, 1)))
        return self.last(torch.sigmoid(self.second(x)))


#: Networks, with the images and the loss that suit them
REAL: dict[type[nn.Module], dict[str, object]] = {
    ResidualDenoiser: {"height": 16, "width": 20, "batch": 2},
    PlainDenoiser: {"height": 16, "width": 20, "batch": 2},
    TwoLevelUnet: {"height": 16, "width": 20, "batch": 2},
    Resnet18: {"height": 32, "width": 32, "batch": 3, "loss": "cross_entropy"},
    ImageClassifier: {"height": 16, "width": 16, "batch": 4, "loss": "cross_entropy"},
    Perceptron: {"height": 12, "width": 12, "batch": 4, "loss": "cross_entropy"},
}
