# SPDX-License-Identifier: MIT
"""Networks that are no chains, as modules of torch, and as files for those that do without torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import bridge
from benchmarks.harness import data
from benchmarks.harness.workloads import Training
from tests.helpers.networks.published import ConvNext, VolumeUnet
from tests.helpers.networks.sequences import Column, FourierOperator, Gpt
from tests.helpers.real_networks import Resnet18, TwoLevelUnet

NETWORKS = {"U-Net": TwoLevelUnet, "ResNet-18": Resnet18, "ConvNeXt": ConvNext, "3-D U-Net": VolumeUnet,
            "GPT": Gpt, "LSTM": Column, "FNO": FourierOperator}


def network_of(training: Training) -> nn.Module:
    """With the weights that all frameworks begin with."""
    torch.manual_seed(1)
    network = NETWORKS[training.network](training.width)
    # `to` would drop the imaginary parts of complex parameters
    return network.double() if training.dtype == "float64" else network.float()


def write(training: dict[str, Any]) -> None:
    """The network's exchange file."""
    found = Training.of_dict(training)
    example = data.training_batch(found)[0][:1]
    network = bridge.Network.from_torch(network_of(found), loss=found.loss, example=example)
    network.save(found.path)
