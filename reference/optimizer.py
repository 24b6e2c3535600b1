# SPDX-License-Identifier: MIT
"""torch's optimisers and schedules of the learning rate, to the bit."""

from __future__ import annotations

import ast
import math
from typing import Any

import torch
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from reference.errors import InputError, one_line
from reference.network.layers import Layers
from reference.settings import ExportSettings
from reference.training import parameters


class Optimizer:
    """An optimiser over all parameters that are not frozen: what torch's classes call in ``step``.

    The classes themselves import the compiler of torch when one is made, two seconds for nothing.

    Attributes
    ----------
    rates : learning rate of every step

    Raises
    ------
    InputError
        If the schedule is none of torch's, or one that changes more than the learning rate.
    """

    def __init__(self, layers: Layers, settings: ExportSettings) -> None:
        self._settings, self._taken = settings, 0
        assert settings.lr is not None
        self.rates = rates_of(settings.schedule, settings.lr, settings.steps)
        self._parameters: list[torch.Tensor] = [one for _, _, one in parameters(layers) if one.requires_grad]
        self._buffers: list[torch.Tensor | None] = [None] * len(self._parameters)
        self._averages, self._squares = ([torch.zeros_like(one) for one in self._parameters] for _ in range(2))
        self._steps = [torch.tensor(0.0) for _ in self._parameters]

    @torch.no_grad()
    def step(self) -> None:
        """Change the parameters by their gradients."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        assert len(gradients) == len(self._parameters)
        settings, lr = self._settings, self.rates[self._taken]
        self._taken += 1
        common: dict[str, Any] = {"lr": lr, "weight_decay": settings.weight_decay, "foreach": False, "fused": False,
                                  "maximize": False}
        if settings.optimizer == "sgd":
            sgd(self._parameters, gradients, self._buffers, momentum=settings.momentum, dampening=settings.dampening,
                nesterov=settings.nesterov, **common)
            return
        beta1, beta2 = settings.betas
        if settings.optimizer == "adamw" and settings.weight_decay:
            # Older versions have no argument for it; this is what theirs and the newer ones do first
            for parameter in self._parameters:
                parameter.mul_(1 - lr * settings.weight_decay)
            common["weight_decay"] = 0.0
        adam(self._parameters, gradients, self._averages, self._squares, [], self._steps, amsgrad=False,
             beta1=beta1, beta2=beta2, eps=settings.eps, **common)


def rates_of(schedule: str | None, lr: float, steps: int) -> tuple[float, ...]:
    """Return the learning rate of every step.

    Parameters
    ----------
    schedule : a class of ``torch.optim.lr_scheduler`` with its arguments, as a call; None for a constant rate

    Raises
    ------
    InputError
        If that is no such call, or the schedule needs or changes something else.

    Examples
    --------
    >>> rates_of("StepLR(step_size=2, gamma=0.5)", 1.0, 5)
    (1.0, 1.0, 0.5, 0.5, 0.25)
    """
    if schedule is None:
        return (lr,) * steps
    name, arguments, options = _call(schedule)
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=lr)
    found = []
    try:
        scheduler = getattr(torch.optim.lr_scheduler, name)(optimizer, *arguments, **options)
        for _ in range(steps):
            found.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            scheduler.step()
    except Exception as error:  # whatever torch raises for these arguments
        raise InputError(f"schedule '{schedule}': {one_line(error)}") from error
    if not all(0 <= rate < math.inf for rate in found):
        raise InputError(f"schedule '{schedule}': its rates are {found}, expected finite numbers from 0 on")
    if optimizer.param_groups[0]["momentum"]:
        raise InputError(f"schedule '{schedule}': it changes the momentum, expected one that changes only the rate")
    return tuple(found)


def _call(schedule: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Name and arguments of a call whose arguments are constants."""
    expected = "expected a class of torch.optim.lr_scheduler as in StepLR(step_size=2, gamma=0.5)"
    try:
        call = ast.parse(schedule.strip(), mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise ValueError("no call")
        arguments = [ast.literal_eval(one) for one in call.args]
        options = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
        raise InputError(f"schedule '{schedule}': {one_line(error)}; {expected}") from error
    kind = getattr(torch.optim.lr_scheduler, call.func.id, None)
    known = isinstance(kind, type) and issubclass(kind, torch.optim.lr_scheduler.LRScheduler)
    if not known or call.func.id in ("LRScheduler", "ReduceLROnPlateau"):
        raise InputError(f"schedule '{schedule}': {call.func.id} is no schedule of steps; {expected}")
    return call.func.id, arguments, options
