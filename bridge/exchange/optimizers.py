# SPDX-License-Identifier: MIT
"""The settings of optimisers, with torch's names and meaning, and how exchange files have them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from bridge.common.errors import FileError
from bridge.exchange.hdf5_values import shortened

Value = str | float | int | None


@dataclass(frozen=True)
class Sgd:
    """Settings of stochastic gradient descent, with the names of ``torch.optim.SGD``."""

    lr: float
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    @property
    def remembers(self) -> bool:
        """Return whether a step depends on the gradients of steps before it."""
        return bool(self.momentum)

    @property
    def memory(self) -> tuple[str, ...]:
        """Return the names of what it remembers of a parameter, as exchange files have them."""
        return ("momentum",)


@dataclass(frozen=True)
class Adam:
    """Settings of Adam (Kingma and Ba, ICLR 2015), with the names of ``torch.optim.Adam``."""

    lr: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    @property
    def remembers(self) -> bool:
        """Return True: a step depends on all gradients before it."""
        return True

    @property
    def memory(self) -> tuple[str, ...]:
        """Return the names of what it remembers of a parameter, as exchange files have them."""
        return ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with the decay taken off the weights, not added to the gradient (Loshchilov and Hutter, ICLR 2019)."""

    weight_decay: float = 0.01


Optimizer = Sgd | Adam

#: By their names in exchange files
OPTIMIZERS: dict[str, type[Sgd] | type[Adam]] = {"sgd": Sgd, "adam": Adam, "adamw": AdamW}
KINDS = {one: name for name, one in OPTIMIZERS.items()}


def read_optimizer(found: Mapping[str, Value]) -> Optimizer:
    """Return the optimiser that the attributes of ``/optimizer`` describe.

    Raises
    ------
    FileError
        If a setting is missing or out of its range.

    Examples
    --------
    >>> read_optimizer({"type": "adam", "lr": 0.5, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0})
    Adam(lr=0.5, beta1=0.9, beta2=0.99, eps=1e-08, weight_decay=0.0)
    """
    made = OPTIMIZERS.get(str(found.get("type")))
    if made is None:
        expected = ", ".join(repr(one) for one in OPTIMIZERS)
        raise FileError(f"attribute type of /optimizer is {shortened(found.get('type'))}, expected one of {expected}")
    numbers = {one.name: _number(found, one.name) for one in fields(made)}
    for name, value in numbers.items():
        if name != "dampening" and value < 0:
            raise FileError(f"attribute {name} of /optimizer is {value:g}, expected 0 or more")
        if name in ("beta1", "beta2") and value >= 1:
            raise FileError(f"attribute {name} of /optimizer is {value:g}, expected less than 1")
    nesterov = numbers.pop("nesterov", 0.0)
    return made(**numbers) if issubclass(made, Adam) else Sgd(**numbers, nesterov=bool(nesterov))


def _number(found: Mapping[str, Value], name: str) -> float:
    value = found.get(name)
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise FileError(f"attribute {name} of /optimizer is {shortened(value)}, expected a number")
    return float(value)
