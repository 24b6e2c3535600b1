# SPDX-License-Identifier: MIT
"""The layers that a module consists of, and whose outputs each takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from reference.errors import InputError

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class Layers(list[tuple[str, nn.Module]]):
    """Layers with their dotted names in the module, in the order of their calls.

    Attributes
    ----------
    inputs : names of the layers whose outputs each takes, "input" for the model's; None: a chain of convolutions and
        ReLUs
    """

    def __init__(
        self, layers: Iterable[tuple[str, nn.Module]], inputs: dict[str, tuple[str, ...]] | None = None
    ) -> None:
        super().__init__(layers)
        self.inputs = inputs

    def inputs_of(self, name: str) -> tuple[str, ...]:
        """Return the names of what a layer takes."""
        if self.inputs is not None:
            return self.inputs[name]
        names = ["input", *(one for one, _ in self)]
        return (names[names.index(name) - 1],)

    def changed(self, change: Callable[[str, nn.Module], nn.Module]) -> Layers:
        """Return the same graph of other layers."""
        return Layers([(name, change(name, layer)) for name, layer in self], self.inputs)

    def joined_as_chain(self) -> Layers:
        """Return the same layers, without the names of their inputs where they are a chain."""
        chain = Layers(self)
        is_chain = any(isinstance(layer, nn.Conv2d) for _, layer in self) and all(
            type(layer) in (nn.Conv2d, nn.ReLU) and self.inputs_of(name) == chain.inputs_of(name)
            for name, layer in self)
        return chain if is_chain else self


def padding_of(name: str, conv: nn.Conv2d) -> list[int]:
    """Zero padding (height, width) in pixels on each side; words of torch turned into numbers."""
    if conv.padding_mode != "zeros":
        raise InputError(f"layer '{name}': padding_mode '{conv.padding_mode}' found, 'zeros' is supported")
    if conv.padding == "valid":
        return [0, 0]
    if conv.padding != "same":
        return pair(conv.padding)
    both_sides = [d * (k - 1) for d, k in zip(pair(conv.dilation), pair(conv.kernel_size), strict=True)]
    if any(total % 2 for total in both_sides):
        raise InputError(
            f"layer '{name}': padding 'same' of a {conv.kernel_size[0]}x{conv.kernel_size[1]} kernel is "
            "not the same on both sides; numbers are supported"
        )
    return [total // 2 for total in both_sides]


def pair(value: Any) -> list[int]:
    """Return height and width of what torch takes as one number for both, too.

    >>> pair(3), pair((1, 2))
    ([3, 3], [1, 2])
    """
    return [int(n) for n in value] if isinstance(value, (tuple, list)) else [int(value)] * 2
