# SPDX-License-Identifier: MIT
"""How a network is trained: what is said once, and stands in every checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from bridge.common.errors import ArgumentError
from bridge.exchange.optimizers import KINDS, OPTIMIZERS, Adam, Optimizer
from bridge.train.schedules import Constant, Schedule


@dataclass(frozen=True)
class TrainSettings:
    """Of `bridge.train.Trainer`.

    Parameters
    ----------
    steps : int
        Updates of the whole training.
    optimizer : Sgd, Adam or AdamW
        With the learning rate that the schedule multiplies.
    schedule : Schedule
    clip : float or None
        The largest norm of all gradients together; longer ones are scaled to it as
        ``torch.nn.utils.clip_grad_norm_`` does.
    accumulate : int
        Batches that make one update, as one batch of all their images would: their mean gradient (each by what its
        loss's mean counts), or of a loss that is a sum their sum. Batch normalisations take each by itself.
    average : float or None
        Decay of the exponential moving average of the weights, 0.999 say; None: there is none.
    validate_every, patience : int
        Steps between validations, and validations without a better loss after which the training ends; 0: never.
    checkpoint_every, keep : int
        Steps between checkpoints, and how many of the last stay.
    audit_every : int
        Steps between those that are judged while the training runs, from the first on; 0: none is.
    reproducible : bool
        Add up the gradients of each image by itself, in the order of images, so that any number of ranks gives the same
        bits. Slower; only for networks in which images have nothing to do with each other.

    Raises
    ------
    ArgumentError
        If a setting is out of its range.

    Examples
    --------
    >>> settings = TrainSettings(steps=10, clip=1.0)
    >>> TrainSettings.of_text(settings.text) == settings
    True
    >>> settings.optimizer_at(3)
    Adam(lr=0.001, beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0.0)
    """

    steps: int
    optimizer: Optimizer = field(default_factory=lambda: Adam(1e-3))
    schedule: Schedule = field(default_factory=Constant)
    clip: float | None = None
    accumulate: int = 1
    average: float | None = None
    validate_every: int = 0
    patience: int = 0
    checkpoint_every: int = 1000
    keep: int = 2
    audit_every: int = 0
    reproducible: bool = False

    def __post_init__(self) -> None:
        least = {"steps": 0, "accumulate": 1, "validate_every": 0, "patience": 0, "checkpoint_every": 1, "keep": 1,
                 "audit_every": 0}
        for name, limit in least.items():
            if getattr(self, name) < limit:
                raise ArgumentError(f"{name}: {getattr(self, name)}, expected {limit} or more")
        if self.clip is not None and not (math.isfinite(self.clip) and self.clip > 0):
            raise ArgumentError(f"clip: {self.clip}, expected more than 0")
        if self.average is not None and not 0 <= self.average < 1:
            raise ArgumentError(f"average: {self.average}, expected 0 or more and less than 1")
        if not isinstance(self.reproducible, bool):
            raise ArgumentError(f"reproducible: {self.reproducible!r}, expected true or false")
        if self.audit_every and self.reproducible:
            raise ArgumentError(f"audit_every: {self.audit_every} with reproducible, which computes each image by "
                                "itself, expected one of them")
        if self.patience and not self.validate_every:
            raise ArgumentError(f"patience: {self.patience} without validations, expected validate_every, too")

    def optimizer_at(self, step: int) -> Optimizer:
        """Return the optimiser with the learning rate of a step, counted from 0."""
        return replace(self.optimizer, lr=self.optimizer.lr * self.schedule.factor(step))

    @property
    def text(self) -> str:
        """Return them as JSON."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        optimizer = {"type": KINDS[type(self.optimizer)], **asdict(self.optimizer)}
        return json.dumps(plain | {"optimizer": optimizer, "schedule": self.schedule.text})

    @classmethod
    def of_text(cls, text: str) -> TrainSettings:
        """Return the settings that `text` was made of.

        Raises
        ------
        ArgumentError
            If it is no JSON of settings.
        """
        try:
            found: Mapping[str, Any] = json.loads(text)
            optimizer = dict(found["optimizer"])
            made = OPTIMIZERS[optimizer.pop("type")](**optimizer)
            return cls(**dict(found) | {"optimizer": made, "schedule": Schedule.of_text(found["schedule"])})
        except (ValueError, KeyError, TypeError) as error:
            raise ArgumentError(f"settings of a training: {error}, expected JSON as TrainSettings.text") from None
