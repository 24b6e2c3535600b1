# SPDX-License-Identifier: MIT
"""The losses of fixtures, by torch's modules: a text has their names in exchange files and their settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from reference.errors import InputError
from reference.network.table import rows

Criterion = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
#: Settings that are whole numbers; a flag is 1 or 0
WHOLE = ("ignore_index", "class_indices")
#: One of so many pixels is ignored where a class that no channel has is to be
EVERY = 7
#: Of a setting: a number, or several
Setting = float | tuple[float, ...]

class Formula(nn.Module):
    """A loss that torch has no module for: the mean or the sum of a formula of the table, of output y and target t."""

    def __init__(self, formula: str, reduction: str, **settings: Any) -> None:
        super().__init__()
        self.formula, self.reduction, self.settings = formula, reduction, settings

    def forward(self, y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = eval(self.formula, vars(torch) | self.settings, {"y": y, "t": t})
        return found.mean() if self.reduction == "mean" else found.sum()


def _module_of(kind: str, row: Mapping[str, Any]) -> Callable[..., nn.Module]:
    """Torch's module of that name (HuberLoss of huber), else one of the row's formula."""
    wanted = f"{kind.replace('_', '')}loss"
    found = [one for name, one in vars(nn).items() if name.lower() == wanted]
    return found[0] if found else partial(Formula, row["formula"])


#: By their types in exchange files: torch's module, and the names of its settings, numbers from 0 on
LOSSES: dict[str, tuple[Callable[..., nn.Module], tuple[str, ...]]] = {
    kind: (_module_of(kind, row), tuple(row.get("settings", ()))) for kind, row in rows("losses").items()}


@dataclass(frozen=True)
class LossText:
    """A loss as a text says it: its type in exchange files, and its settings by name.

    Examples
    --------
    >>> LossText.read("huber delta=0.5")
    LossText(kind='huber', given={'delta': 0.5})
    """

    kind: str
    given: Mapping[str, Setting]

    @classmethod
    def read(cls, text: object) -> LossText:
        """Return what the text says.

        Raises
        ------
        InputError
            If the type or a setting is unknown, or one is not a number from 0 on, or torch refuses it.
        """
        kind, *words = str(text).split() or [""]
        if not isinstance(text, str) or kind not in LOSSES:
            raise InputError(f"loss must be {' or '.join(LOSSES)}, perhaps with settings, found {text!r}")
        given: dict[str, Setting] = {}
        for word in words:
            name, _, value = word.partition("=")
            if name not in LOSSES[kind][1]:
                expected = " or ".join(LOSSES[kind][1]) or "none"
                raise InputError(f"loss {kind} has the setting {name!r}, expected {expected}")
            given[name] = _setting(kind, name, value)
        found = cls(kind, given)
        found.module("mean", torch.float32)
        return found

    def module(self, reduction: str, dtype: torch.dtype) -> nn.Module:
        """Return torch's module.

        Raises
        ------
        InputError
            If torch refuses a setting.
        """
        settings: dict[str, Any] = dict(self.given)
        settings.pop("class_indices", None)
        for name in {"weight", "pos_weight"} & settings.keys():
            settings[name] = torch.tensor(settings[name], dtype=dtype)
        if "weight" in settings:
            settings["weight"] = settings["weight"].reshape(-1)
        try:
            made = LOSSES[self.kind][0](reduction=reduction, **settings)
            some = torch.full((1, len(settings.get("weight", "ab"))), 0.5, dtype=dtype)
            made(some, self._for_torch(some))
        except (ValueError, TypeError, RuntimeError) as error:
            raise InputError(f"loss {self.kind}: {str(error).splitlines()[0]}") from error
        return made

    def criterion(self, reduction: str, dtype: torch.dtype) -> Criterion:
        """Return the loss as a function of output and target, both of the output's shape.

        It raises InputError where torch does not take the output.
        """
        module = self.module(reduction, dtype)

        def compute(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            try:
                found: torch.Tensor = module(output, self._for_torch(target))
            except RuntimeError as error:
                raise InputError(f"loss {self.kind}: {str(error).splitlines()[0]} (torch)") from error
            return found

        return compute

    def _for_torch(self, target: torch.Tensor) -> torch.Tensor:
        """The target as torch takes it: with `class_indices` their numbers, of zeros that of those that are ignored."""
        if not self.given.get("class_indices"):
            return target
        ignored = int(self.given.get("ignore_index", -100))  # type: ignore[arg-type]
        return target.argmax(1).where(target.sum(1) > 0, ignored)

    def target(self, images: torch.Tensor) -> torch.Tensor:
        """Return targets that the loss takes, of images: classes, probabilities some of which are 0 and 1, or as they
        are.
        """
        if self.kind == "cross_entropy":
            found = classes_of(images)
            if self.given.get("ignore_index", 0) >= found.shape[1]:  # type: ignore[operator]
                # No channel is this class: some pixels, or images, have none
                found.movedim(1, -1).reshape(-1, found.shape[1])[::EVERY] = 0
            return found
        if self.kind.startswith("bce"):
            return (0.5 + 0.5 * standardised(images)).clamp(0, 1).to(images.dtype)
        return images


def standardised(target: torch.Tensor) -> torch.Tensor:
    """Return a target less its mean, divided by its standard deviation, in float64."""
    wide = target.double()
    return (wide - wide.mean()) / (wide.std() + 1e-30)


def classes_of(target: torch.Tensor) -> torch.Tensor:
    """Return a class for each image or pixel of a target (n, k, ...), as probabilities 0 and 1 of the k channels.

    The brighter the first channel beside the rest of the batch, the higher the class.
    """
    k, share = target.shape[1], torch.special.ndtr(standardised(target[:, 0]))
    return torch.nn.functional.one_hot((share * k).long().clamp(0, k - 1), k).movedim(-1, 1).to(target.dtype)


def _setting(kind: str, name: str, value: str) -> Setting:
    try:
        numbers = tuple(float(one) for one in value.split(","))
    except ValueError:
        numbers = (-1.0,)
    if name in WHOLE and not (len(numbers) == 1 and numbers[0].is_integer()):
        numbers = (-1.0,)
    if not all(math.isfinite(one) and one >= 0 for one in numbers):
        expected = "a whole number" if name in WHOLE else "a number"
        raise InputError(f"loss {kind} has {name} {value!r}, expected {expected} from 0 on")
    if name in WHOLE:
        return int(numbers[0])
    return numbers[0] if len(numbers) == 1 else numbers
