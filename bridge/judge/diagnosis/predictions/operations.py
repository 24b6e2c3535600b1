# SPDX-License-Identifier: MIT
"""The operations of a training step in float64, as objects that a fault can change.

An operation is an immutable record of its operands and its geometry. A fault makes another one of it
(`dataclasses.replace`): flipped kernels, another padding, the mask of another tensor. Each can be computed

* at some elements (`at`): a hypothesis about a tensor of millions is rejected by a few thousand of them;
* as a whole with its bound (`full`): only what explains those is confirmed by all.

Arrays are whole batches, (n, c, h, w), float64. Bounds as in `oracle.step`, with one n for all elements of a tensor.
Convolutions are in `convolutions` beside this file, formulas of graphs in `formulas`, all else in `elementwise`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bridge.judge.oracle.error_model import Arithmetic

Array = np.ndarray


@dataclass(frozen=True)
class Predicted:
    """A tensor and the bound on its error; None is exact. `terms` as `bridge.judge.oracle.bounded` has it."""

    value: Array
    error: Array | None = None
    terms: float = 1


class Remade(Predicted):
    """A tensor that a function makes of another one, which is made anew where it is asked for: a search keeps hundreds
    of them, each as large as the network's tensors.

    Parameters
    ----------
    of : the other one
    change : the function, of its values and of their errors
    """

    #: those that were asked for last, on every thread
    _last = threading.local()
    KEPT = 4

    def __init__(self, of: Predicted, change: Callable[[Array], Array]) -> None:
        for name, one in (("of", of), ("change", change), ("terms", 1)):
            object.__setattr__(self, name, one)

    @property
    def value(self) -> Array:
        """Return the values."""
        return self._found("value", lambda: self.change(self.of.value))  # type: ignore[attr-defined]

    @property
    def error(self) -> Array | None:
        """Return their errors."""
        of: Predicted = self.of  # type: ignore[attr-defined]
        error = of.error
        if error is None:
            return None
        return self._found("error", lambda: self.change(  # type: ignore[attr-defined]
            np.broadcast_to(error, of.value.shape)))

    @classmethod
    def forget(cls) -> None:
        """Give back the memory of those that were asked for last, on this thread."""
        cls._last.__dict__.pop("kept", None)

    def _found(self, name: str, make: Callable[[], Array]) -> Array:
        kept: list[tuple[Remade, str, Array]] = self._last.__dict__.setdefault("kept", [])
        for one, known, array in kept:
            if one is self and known == name:
                return array
        kept.append((self, name, make()))
        del kept[:-self.KEPT]
        return kept[-1][2]


@dataclass(frozen=True)
class Prediction(ABC):
    """What makes one tensor.

    Attributes
    ----------
    shape : of the tensor
    """

    shape: tuple[int, ...]

    @abstractmethod
    def at(self, indices: Array) -> Array:
        """Return the values at flat indices of the tensor."""

    @abstractmethod
    def full(self, arithmetic: Arithmetic) -> Predicted:
        """Return all values, with their bound."""

    def values(self) -> Array:
        """Return all values; no bound is computed, which costs twice as much again."""
        return self.at(np.arange(int(np.prod(self.shape)))).reshape(self.shape)

    def slack(self, value: Array) -> Array | float:
        """Return how far values that were predicted without a bound may be off where numbers are stored in fewer bits.
        """
        inner = getattr(self, "inner", None)
        return 0.0 if inner is None else inner.slack(value)

    def replaced(self, **changes: Any) -> Any:
        """Return the same operation with other operands or geometry."""
        return replace(self, **changes)


@dataclass(frozen=True)
class Given(Prediction):
    """Known numbers: first weights, new weights, a tensor of another step."""

    value: Array
    error: Array | None = None

    def at(self, indices: Array) -> Array:
        return self.value.reshape(-1)[indices]

    def full(self, arithmetic: Arithmetic) -> Predicted:
        return Predicted(self.value, self.error)
