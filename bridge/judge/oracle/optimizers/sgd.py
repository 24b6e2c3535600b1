# SPDX-License-Identifier: MIT
"""The direction of a step of stochastic gradient descent, in float64, with bounds.

The order of operations is the candidate's business. Allowed for are (settings may be rounded too):

* ``d = g + wd*w``, ``v = mu*v + (1 - damp)*d``: torch's;
* ``v`` kept as ``lr*v``: two more roundings of each new term, none of the product ``lr*v``; what such a ``lr*v`` loses
  among subnormal numbers is 1/lr times as much of v.

Source: the update rule of torch.optim.SGD.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from bridge.exchange.optimizers import Optimizer, Sgd
from bridge.judge.oracle.error_model import Arithmetic

Array = np.ndarray

#: A tensor and the bound on its error
Bounded = tuple[Array, Array]


@dataclass
class Momentum:
    """Momentum buffers by parameter name; empty before the first step."""

    buffers: dict[str, Bounded] = field(default_factory=dict)

    def direction(self, settings: Optimizer, name: str, w: Array, g: Bounded, arithmetic: Arithmetic) -> Bounded:
        """Return the vector d of ``w1 = w - lr*d``, with its bound; remembers the buffer for the next step."""
        assert isinstance(settings, Sgd)
        sgd, (d, e), u, lost = settings, g, arithmetic.u, lost_of_direction(settings, arithmetic)
        if sgd.weight_decay:
            d, e = with_decay(sgd.weight_decay, w, g, u, lost)
        if not sgd.momentum:
            return d, e
        v, e_v = d, e
        if name in self.buffers:
            old, e_old = self.buffers[name]
            keep = 1 - sgd.dampening
            v = sgd.momentum * old + keep * d
            # Roundings: of the sums, the products, the settings; keep is a difference, whose operand is rounded too
            own = 4 * sgd.momentum * np.abs(old) + (5 * abs(keep) + abs(sgd.dampening)) * np.abs(d)
            e_v = (1 + 5 * u) * (sgd.momentum * e_old + abs(keep) * e) + u * own + where_any(2 * lost, d, e, old, e_old)
        self.buffers[name] = v, e_v
        if not sgd.nesterov:
            return v, e_v
        return (
            d + sgd.momentum * v,
            (1 + 3 * u) * (e + sgd.momentum * e_v) + 3 * u * (np.abs(d) + sgd.momentum * np.abs(v))
            + where_any(lost, v, e_v),
        )

    def bounded(self, name: str) -> dict[str, Bounded]:
        """Return the buffer of a parameter with its bound, if it has one."""
        return {"momentum": self.buffers[name]} if name in self.buffers else {}

    def remember(self, name: str, tensors: Mapping[str, Array], updates: int) -> None:
        """Begin with a buffer that is known."""
        self.buffers[name] = tensors["momentum"], np.zeros_like(tensors["momentum"])


def with_decay(decay: float, w: Array, g: Bounded, u: float, lost: float) -> Bounded:
    """Return the gradient ``g + decay*w`` with its bound; `lost`: what product and sum may lose by underflow."""
    d, e = g
    return d + decay * w, (1 + 3 * u) * e + 3 * u * (np.abs(d) + decay * np.abs(w)) + where_any(lost, w)


def lost_of_direction(settings: Optimizer, arithmetic: Arithmetic) -> float:
    """Return what a product and a sum of a direction d may lose by underflow, in d and in ``lr*d``."""
    return arithmetic.lost(1, 1) / min(1.0, settings.lr or 1.0)


def where_any(number: float, *arrays: Array) -> Array:
    """Return a number where one of the arrays is not 0, and 0 elsewhere: there nothing is rounded.

    >>> where_any(0.5, np.array([0.0, 0.0, 2.0]), np.array([0.0, -1.0, 0.0]))
    array([0. , 0.5, 0.5])
    """
    found: Array = number * reduce(np.logical_or, [one != 0 for one in arrays])
    return found
