# SPDX-License-Identifier: MIT
"""What a step of an optimiser must have done to the weights, in float64, with bounds.

Two questions, kept apart because together they separate faults of the optimiser from faults of the gradient:

* *optimizer*: do the new weights follow from the candidate's **own** gradients, up to the few roundings that the
  usual ways of writing the update have?
* *update*: does (w0 - w1)/lr, the step that the weights really took, agree with the oracle's gradients? A small
  learning rate hides the gradient behind the last digit of the weights: where that digit is more than a quarter
  of the bound, agreement proves nothing.

Every optimiser here moves the weights by ``w1 = w - lr*d``; the modules of `bridge.judge.oracle.optimizers`
have its direction d. The order of operations is the candidate's business. Allowed for are, besides the roundings of d
(u is the unit roundoff, settings may be rounded too):

* ``w1 = (w - lr*a) - lr*b`` with momentum: the intermediate result is rounded, u*|w0| more;
* ``w1 = (1 - lr*wd)*w - lr*g``: the factor and the product are rounded, 2u*|w0|*(1 + lr*wd) more.

Another order may leave more, so that slightly larger errors prove no bug (`measure.updates.OTHER_ORDER`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from bridge.exchange.optimizers import Adam, Optimizer, Sgd
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.optimizers.adam import Moments
from bridge.judge.oracle.optimizers.sgd import Momentum

Array = np.ndarray

#: A tensor and the bound on its error
Bounded = tuple[Array, Array]


@dataclass(frozen=True)
class Remembered:
    """What an optimiser remembers of a parameter, as numbers.

    Attributes
    ----------
    tensors : by the names of `bridge.exchange.optimizers`, of the parameter's shape, float64
    updates : of how many steps they are
    """

    tensors: Mapping[str, Array] = field(default_factory=dict)
    updates: int = 1


class Memory(Protocol):
    """What an optimiser remembers of all parameters from step to step."""

    def direction(self, settings: Optimizer, name: str, w: Array, g: Bounded, arithmetic: Arithmetic) -> Bounded:
        """Return the vector d of ``w1 = w - lr*d``, with its bound; remembers what the next step needs."""
        ...

    def bounded(self, name: str) -> dict[str, Bounded]:
        """Return what it remembers of a parameter, by the names of `bridge.exchange.optimizers`, with bounds."""
        ...


    def remember(self, name: str, tensors: Mapping[str, Array], updates: int) -> None:
        """Begin with what is known of a parameter, as `Remembered` has it, in place of nothing."""
        ...


def memory_of(optimizer: Optimizer, remembered: Mapping[str, Remembered] | None = None) -> Memory:
    """Return what an optimiser remembers before a step.

    Parameters
    ----------
    remembered : by the parameter; where one is missing nothing is remembered of it, as before the first step

    >>> memory = memory_of(Sgd(0.1, 0.5), {"w": Remembered({"momentum": np.array([2.0])})})
    >>> none = np.zeros(1)
    >>> float(memory.direction(Sgd(0.1, 0.5), "w", none, (none + 1, none), Arithmetic(0.0))[0][0])
    2.0
    """
    memory: Memory = Moments() if isinstance(optimizer, Adam) else Momentum()
    for name, one in (remembered or {}).items():
        memory.remember(name, one.tensors, one.updates)
    return memory


def _roundings_of_the_weight(optimizer: Optimizer) -> int:
    """Roundings of the size of w0 besides that of the result, in the orders that the module names."""
    return 2 * (optimizer.weight_decay > 0) + (not isinstance(optimizer, Sgd) or optimizer.momentum > 0)


def _lost_of_the_weight(arithmetic: Arithmetic, d: Array) -> Array:
    """By underflow: of ``lr*d`` in two parts, of the decayed weight, of lr itself, and where sums may be flushed."""
    return arithmetic.lost(3, 2) + arithmetic.lost(1) * np.abs(d)


def new_weights(optimizer: Optimizer, w: Array, direction: Bounded, arithmetic: Arithmetic) -> Bounded:
    """``w - lr*d`` and how far the roundings of any order that the module names may take it.

    Where lr*d is exactly 0 nothing is rounded, and the weight must stay.

    >>> w1, e = new_weights(Sgd(0.5), np.array([1.0]), (np.array([0.5]), np.array([0.0])), Arithmetic(2.0**-24))
    >>> float(w1[0])
    0.75
    """
    (d, e), u = direction, arithmetic.u
    moved = optimizer.lr * (np.abs(d) + e)
    w1 = w - optimizer.lr * d
    weight = _roundings_of_the_weight(optimizer) * (1 + optimizer.lr * optimizer.weight_decay) * np.abs(w)
    bound = u * (2 * np.abs(w1) + weight + 3 * optimizer.lr * np.abs(d)) + (1 + 3 * u) * optimizer.lr * e
    return w1, np.where(moved == 0, 0.0, bound + _lost_of_the_weight(arithmetic, d))


@dataclass(frozen=True)
class Taken:
    """The step that the weights took, seen through their last digit.

    Attributes
    ----------
    step : (w0 - w1)/lr
    expected, bound : the oracle's direction, and its bound with the resolution; no right step is further away
    visible : share of the elements, 0 .. 1, whose last digit lets the gradient be seen
    lr_needed : a learning rate, a power of two, at which half of the elements can be seen; infinite if none is
    """

    step: Array
    expected: Array
    bound: Array
    visible: float
    lr_needed: float


def taken(optimizer: Optimizer, w0: Array, w1: Array, direction: Bounded, arithmetic: Arithmetic, *, given: bool = False
          ) -> Taken:
    """Compare the weights before and after a step with the oracle's direction; lr > 0.

    Weights of a program with wider numbers are in use before they are rounded for the file, on both sides of the step.
    What decides whether the gradient can be seen is the last digit of what is compared.

    Parameters
    ----------
    w0, w1 : arrays of the precision that the candidate computes in
    direction : the oracle's d and its bound E
    given : w0 are the first weights, which no program has rounded
    """
    (d, e), u = direction, arithmetic.u
    roundings = _roundings_of_the_weight(optimizer)
    # The product lr*d of the update is rounded twice, whatever lr is
    e = e + 3 * u * (np.abs(d) + e) + u * roundings * optimizer.weight_decay * np.abs(w0.astype(np.float64))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        ulp = np.spacing(np.maximum(np.abs(w0), np.abs(w1))).astype(np.float64)
        step = (w0.astype(np.float64) - w1.astype(np.float64)) / optimizer.lr
        # Where d = 0 exactly, the weight does not move, and exact arithmetic rounds nothing
        last = ulp / 2 + u * roundings * np.abs(w0.astype(np.float64)) + _lost_of_the_weight(arithmetic, d)
        still = (e == 0) & (d == 0) if u else e == 0
        resolution = np.where(still, 0.0, last / optimizer.lr)
        needed = float(np.median(np.where(still, 0.0, 4 * last / e)))
    visible = np.count_nonzero(resolution <= e / 4) / e.size
    unwritten = np.where(resolution > 0, np.spacing(np.abs(w0)).astype(np.float64) / 2 / optimizer.lr, 0.0)
    bound = e + resolution + (0.0 if given else unwritten)
    return Taken(step, d, bound, visible, _next_power_of_two(needed))


def _next_power_of_two(x: float) -> float:
    """
    >>> _next_power_of_two(0.3)
    0.5
    """
    return 2.0 ** math.ceil(math.log2(x)) if 0 < x < math.inf else x
