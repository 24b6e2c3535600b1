# SPDX-License-Identifier: MIT
"""The network that is trained, as a module of torch."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.harness import data
from benchmarks.harness.workloads import Net


def module_of(net: Net) -> nn.Sequential:
    """On the host, with the weights that all frameworks begin with."""
    layers: list[nn.Module] = []
    for one, (weight, bias) in zip(net.layers, data.weights(net), strict=True):
        made = nn.Conv2d(one.c, one.k, (one.r, one.s), padding=one.padding, dtype=getattr(torch, net.dtype))
        with torch.no_grad():
            made.weight.copy_(torch.from_numpy(weight))
            made.bias.copy_(torch.from_numpy(bias))
        layers += [made, nn.ReLU()]
    return nn.Sequential(*layers[:-1])
