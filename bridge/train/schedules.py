# SPDX-License-Identifier: MIT
"""Learning rates as functions of the step alone: a training that is resumed needs no state of its schedule."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

from bridge.common.errors import ArgumentError


@dataclass(frozen=True)
class Schedule:
    """What the learning rate is multiplied by at each step.

    Parameters
    ----------
    warm_up : int
        Steps at the beginning in which the factor rises evenly, from 1 / (warm_up + 1); all else is counted from their
        end. As ``torch.optim.lr_scheduler.LinearLR`` with that start_factor.

    Raises
    ------
    ArgumentError
        If a setting is out of its range.

    Examples
    --------
    >>> schedule = Schedule.of_text("step step_size=10 gamma=0.5 warm_up=1")
    >>> schedule.factor(0), schedule.factor(1), schedule.factor(21)
    (0.5, 1.0, 0.25)
    """

    name: ClassVar[str]
    warm_up: int = 0

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not (math.isfinite(value) and value >= 0) or (value == 0 and one.default is MISSING):
                raise ArgumentError(f"schedule {self.name}: {one.name}={value:g}, expected "
                                    f"{'more than 0' if one.default is MISSING else '0 or more'}")

    def factor(self, step: int) -> float:
        """Return the factor of a step, counted from 0."""
        if step < self.warm_up:
            return (step + 1) / (self.warm_up + 1)
        return self.after_warm_up(step - self.warm_up)

    def after_warm_up(self, step: int) -> float:
        """Return the factor of a step that is counted from the end of the warm-up."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        """Return what `of_text` makes the same schedule of."""
        return " ".join([self.name, *(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self)
                                      if getattr(self, one.name) != one.default)])

    @staticmethod
    def of_text(text: str) -> Schedule:
        """Return the schedule of a name and settings, "cosine steps=1000 least=0.01".

        Raises
        ------
        ArgumentError
            If there is no such schedule or setting, one is missing, or out of its range.
        """
        name, *given = text.split() or [""]
        if name not in SCHEDULES:
            raise ArgumentError(f"schedule: {name!r}, expected one of {', '.join(SCHEDULES)}")
        kind, settings = SCHEDULES[name], dict[str, Any]()
        known = {one.name: int if one.type == "int" else float for one in fields(kind)}
        for text in given:
            key, _, value = text.partition("=")
            try:
                settings[key] = known[key](value)
            except (KeyError, ValueError):
                raise ArgumentError(f"schedule {name}: {text!r}, expected numbers "
                                    f"{', '.join(f'{key}=' for key in known)}") from None
        for one in fields(kind):
            if one.default is MISSING and one.name not in settings:
                raise ArgumentError(f"schedule {name}: no {one.name}=, expected one")
        return kind(**settings)


@dataclass(frozen=True)
class Constant(Schedule):
    """The learning rate as it is."""

    name: ClassVar[str] = "constant"

    def after_warm_up(self, step: int) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True, kw_only=True)
class Step(Schedule):
    """Times gamma after every step_size steps, as ``torch.optim.lr_scheduler.StepLR``.

    >>> [Step(step_size=2, gamma=0.5).factor(step) for step in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    name: ClassVar[str] = "step"
    step_size: int
    gamma: float = 0.1

    def after_warm_up(self, step: int) -> float:
        """Return ``gamma ** (step // step_size)``."""
        return float(self.gamma ** (step // self.step_size))


@dataclass(frozen=True, kw_only=True)
class Cosine(Schedule):
    """Half a cosine from 1 down to `least` in so many steps, and `least` from then on.

    As ``torch.optim.lr_scheduler.CosineAnnealingLR`` up to T_max = steps, with eta_min = least * lr.

    >>> [round(Cosine(steps=2).factor(step), 9) for step in range(4)]
    [1.0, 0.5, 0.0, 0.0]
    """

    name: ClassVar[str] = "cosine"
    steps: int
    least: float = 0.0

    def after_warm_up(self, step: int) -> float:
        """Return ``least + (1 - least) * (1 + cos(pi * step / steps)) / 2``."""
        return self.least + (1 - self.least) * (1 + math.cos(math.pi * min(step, self.steps) / self.steps)) / 2


@dataclass(frozen=True, kw_only=True)
class OneCycle(Schedule):
    """Up from 1 / div_factor to 1 in the part pct_start of the steps, down to 1 / (div_factor * final_div_factor) in
    the rest, both by half a cosine; that from then on.

    As ``torch.optim.lr_scheduler.OneCycleLR`` with max_lr = lr, total_steps = steps and cycle_momentum=False: momentum
    and beta1 stay as they are, which torch's default lets fall and rise, too (L. N. Smith, N. Topin, Super-Convergence,
    2018). Where pct_start is that of one step or less, the learning rate begins at its top.

    >>> one = OneCycle(steps=11, pct_start=0.5)
    >>> round(one.factor(0), 9), round(one.factor(10) * 25e4, 9)
    (0.04, 1.0)
    """

    name: ClassVar[str] = "one_cycle"
    steps: int
    pct_start: float = 0.3
    div_factor: float = 25.0
    final_div_factor: float = 1e4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pct_start > 1:
            raise ArgumentError(f"schedule {self.name}: pct_start={self.pct_start:g}, expected 0 to 1")
        for name in ("div_factor", "final_div_factor"):
            if getattr(self, name) == 0:
                raise ArgumentError(f"schedule {self.name}: {name}=0, expected more than 0")

    def after_warm_up(self, step: int) -> float:
        """Return the point of the cosine that leads up, or of that which leads down."""
        top, last = self.pct_start * self.steps - 1, self.steps - 1
        first, end = 1 / self.div_factor, 1 / self.div_factor / self.final_div_factor
        if step <= top:
            return _between(first, 1.0, step / top if top else 1.0)
        return _between(1.0, end, (min(step, last) - top) / (last - top) if last > top else 1.0)


def _between(first: float, last: float, part: float) -> float:
    return last + (first - last) * (1 + math.cos(math.pi * part)) / 2


#: By the names that `Schedule.of_text` knows
SCHEDULES: dict[str, type[Schedule]] = {one.name: one for one in (Constant, Step, Cosine, OneCycle)}
