# SPDX-License-Identifier: MIT
"""Models for ``--model``: with every option of a convolution that the default net does not use, and with nothing to
train."""

from __future__ import annotations

from torch import nn


def awkward() -> nn.Module:
    """Strides, dilations, groups, paddings that differ in height and width; a layer without bias."""
    return nn.Sequential(
        nn.Conv2d(1, 6, (3, 5), stride=(2, 1), padding=(0, 3), dilation=(2, 1)),
        nn.ReLU(),
        nn.Conv2d(6, 9, (2, 3), stride=(1, 2), padding=(2, 1), groups=3, bias=False),
        nn.ReLU(),
        nn.Conv2d(9, 2, 1),
    )


def without_parameters() -> nn.Module:
    return nn.Sequential(nn.Tanh())
