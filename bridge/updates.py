# SPDX-License-Identifier: MIT
"""What an SGD step must have done to the weights, in float64, with bounds.

Two questions, kept apart because together they separate faults of the optimiser from faults of the gradient:

* *optimizer*: do the new weights follow from the candidate's **own** gradients, to one unit in the last place?
* *update*: does (w0 - w1)/lr, the step that the weights really took, agree with the oracle's gradients? A small
  learning rate hides the gradient behind the last digit of the weights: where that digit is more than a quarter
  of the bound, agreement proves nothing.

Source: the update rule of torch.optim.SGD.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from bridge.exchange import Sgd

Array = np.ndarray

#: A tensor and the bound on its error
Bounded = tuple[Array, Array]


@dataclass
class Momentum:
    """Momentum buffers by parameter name; empty before the first step."""

    buffers: dict[str, Bounded] = field(default_factory=dict)

    def direction(self, sgd: Sgd, name: str, w: Array, g: Bounded, u: float) -> Bounded:
        """The vector d of ``w1 = w - lr*d``, with its bound; remembers the buffer for the next step."""
        d, e = g
        if sgd.weight_decay:
            e = (1 + 3 * u) * e + 3 * u * (np.abs(d) + sgd.weight_decay * np.abs(w))
            d = d + sgd.weight_decay * w
        if not sgd.momentum:
            return d, e
        v, e_v = d, e
        if name in self.buffers:
            old, e_old = self.buffers[name]
            keep = 1 - sgd.dampening
            v = sgd.momentum * old + keep * d
            e_v = (1 + 3 * u) * (sgd.momentum * e_old + abs(keep) * e) + 3 * u * (
                sgd.momentum * np.abs(old) + abs(keep) * np.abs(d)
            )
        self.buffers[name] = v, e_v
        if not sgd.nesterov:
            return v, e_v
        return (
            d + sgd.momentum * v,
            (1 + 3 * u) * (e + sgd.momentum * e_v) + 3 * u * (np.abs(d) + sgd.momentum * np.abs(v)),
        )


def new_weights(sgd: Sgd, w: Array, direction: Bounded, u: float) -> Bounded:
    """``w - lr*d`` and how far one rounding of each operation may take it: one ulp of the result and more.

    Where lr*d is exactly 0 nothing is rounded, and the weight must stay.

    >>> w1, e = new_weights(Sgd(0.5), np.array([1.0]), (np.array([0.5]), np.array([0.0])), 2.0**-24)
    >>> float(w1[0])
    0.75
    """
    d, e = direction
    moved = sgd.lr * (np.abs(d) + e)
    w1 = w - sgd.lr * d
    return w1, np.where(moved == 0, 0.0, 2 * u * np.abs(w1) + 3 * u * sgd.lr * np.abs(d) + (1 + 3 * u) * sgd.lr * e)


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


def taken(sgd: Sgd, w0: Array, w1: Array, direction: Bounded, u: float) -> Taken:
    """Compare the weights before and after a step with the oracle's direction; lr > 0.

    Parameters
    ----------
    w0, w1 : arrays of the precision that the candidate computes in
    direction : the oracle's d and its bound E
    """
    d, e = direction
    # The product lr*d of the update is rounded twice, whatever lr is
    e = e + 3 * u * (np.abs(d) + e)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        ulp = np.spacing(np.maximum(np.abs(w0), np.abs(w1))).astype(np.float64)
        step = (w0.astype(np.float64) - w1.astype(np.float64)) / sgd.lr
        # Where d = 0 exactly, the weight does not move: nothing is rounded
        resolution = np.where(e == 0, 0.0, ulp / (2 * sgd.lr))
        needed = np.where(e == 0, 0.0, 2 * ulp / e)
    visible = np.count_nonzero(resolution <= e / 4) / e.size
    return Taken(step, d, e + resolution, visible, _next_power_of_two(float(np.median(needed))))


def _next_power_of_two(x: float) -> float:
    """
    >>> _next_power_of_two(0.3)
    0.5
    """
    return 2.0 ** math.ceil(math.log2(x)) if 0 < x < math.inf else x
