# SPDX-License-Identifier: MIT
"""Train a network on data of any size: schedules, checkpoints that resume to the bit, validation; see docs/train.md."""

from bridge.train.checkpoints import Checkpoints
from bridge.train.schedules import Schedule
from bridge.train.settings import TrainSettings
from bridge.train.trainer import Trainer

__all__ = ["Checkpoints", "Schedule", "TrainSettings", "Trainer"]
