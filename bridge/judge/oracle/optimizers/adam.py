# SPDX-License-Identifier: MIT
"""The direction of a step of Adam and AdamW, in float64, with bounds.

In step t = 1, 2, ..., with g + wd*w for g where the decay is not decoupled::

    m = beta1*m + (1 - beta1)*g,  v = beta2*v + (1 - beta2)*g**2
    d = (m/(1 - beta1**t)) / (sqrt(v/(1 - beta2**t)) + eps),  and wd*w added where it is

The order of operations is the candidate's business: averages as written or as ``m + (1 - beta1)*(g - m)``, corrections
applied to m and v, to their roots or to lr, powers or running products, settings rounded to the candidate's precision
(of which 1 - beta2 loses three digits).

Where a gradient is not above its own error, its sign is not known and neither is that of the step, which is as long as
any other. But no step is longer than its Cauchy-Schwarz bound,
``|m| <= sqrt(sum (1-b1)^2 b1^2i / ((1-b2) b2^i)) sqrt(v)``.

Source: D. Kingma and J. Ba, Adam, ICLR 2015, algorithm 1 and section 2.1; I. Loshchilov and F. Hutter, Decoupled Weight
Decay Regularization, ICLR 2019; torch.optim.Adam, AdamW.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bridge.exchange.optimizers import Adam, AdamW, Optimizer
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.optimizers.sgd import Bounded, lost_of_direction, where_any, with_decay

Array = np.ndarray


@dataclass(frozen=True)
class Rule:
    """How a step is made of the averages: the right way, and what programs do instead.

    Attributes
    ----------
    first, second : the averages of the gradient, and of its square, are corrected for their start at 0
    ahead : added to the number of the step in these corrections
    eps : where it is added: to the "root", to the "square" below it, or to the root "before" it is corrected
    """

    first: bool = True
    second: bool = True
    ahead: int = 0
    eps: str = "root"


RIGHT = Rule()


@dataclass
class Moments:
    """Averages of the gradients and of their squares by parameter name, and how many steps they are of."""

    rule: Rule = RIGHT
    averages: dict[str, tuple[int, Bounded, Bounded]] = field(default_factory=dict)

    def direction(self, settings: Optimizer, name: str, w: Array, g: Bounded, arithmetic: Arithmetic) -> Bounded:
        """Return the vector d of ``w1 = w - lr*d``, with its bound; remembers the averages for the next step."""
        assert isinstance(settings, Adam)
        decoupled, u = isinstance(settings, AdamW), arithmetic.u
        if settings.weight_decay and not decoupled:
            g = with_decay(settings.weight_decay, w, g, u, arithmetic.lost(1, 1))
        zero = np.zeros_like(w), np.zeros_like(w)
        t, m, v = self.averages.get(name, (0, zero, zero))
        m = _average(settings.beta1, m, g, arithmetic)
        t, v = t + 1, _average(settings.beta2, v, self._squared(g, arithmetic), arithmetic)
        self.averages[name] = t, m, v
        d, e = self._quotient(settings, t, m, v, arithmetic)
        if decoupled and settings.weight_decay:
            return with_decay(settings.weight_decay, w, (d, e), u, lost_of_direction(settings, arithmetic))
        return d, e

    def bounded(self, name: str) -> dict[str, Bounded]:
        """Return both averages of a parameter with their bounds, if it has them."""
        if name not in self.averages:
            return {}
        _, first, second = self.averages[name]
        return {"exp_avg": first, "exp_avg_sq": second}

    def remember(self, name: str, tensors: Mapping[str, Array], updates: int) -> None:
        """Begin with averages that are known, of so many updates."""
        first, second = ((tensors[kind], np.zeros_like(tensors[kind])) for kind in ("exp_avg", "exp_avg_sq"))
        self.averages[name] = updates, first, second

    def _squared(self, g: Bounded, arithmetic: Arithmetic) -> Bounded:
        return _square(g, arithmetic)

    def _quotient(self, adam: Adam, t: int, m: Bounded, v: Bounded, arithmetic: Arithmetic) -> Bounded:
        rule, t, u = self.rule, max(1, t + self.rule.ahead), arithmetic.u
        first = _correction(adam.beta1, t, u) if rule.first else (1.0, 0.0)
        second = _correction(adam.beta2, t, u) if rule.second else (1.0, 0.0)
        (top, e_top), (square, e_square) = _divided(m, first, arithmetic), _divided(v, second, arithmetic)
        # The average may be multiplied by lr before it is divided by the root, which may be small
        lost = where_any(lost_of_direction(adam, arithmetic), top, e_top)
        e_top = e_top + lost

        def root(x: Array) -> Array:
            x = np.maximum(x, 0.0)
            if rule.eps == "square":
                return np.sqrt(x + adam.eps)
            return np.sqrt(x) + adam.eps / (math.sqrt(second[0]) if rule.eps == "before" else 1.0)

        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            d = top / root(square)
            ends = [(top + i * e_top) / root(square + j * e_square) for i in (-1, 1) for j in (-1, 1)]
            e = np.max([np.abs(end - d) for end in ends], axis=0)
            # Root, sum, quotient, and where the corrections are applied
            e = e * (1 + 8 * u) + 8 * u * np.abs(d) + lost
        if rule == RIGHT:
            # What rounded settings and corrections do to it
            longer = first[1] + second[1] + u * (16 + sum(beta / (1 - beta) for beta in (adam.beta1, adam.beta2)))
            e = np.fmin(np.where(np.isnan(e), np.inf, e), np.abs(d) + _longest(adam, t) * (1 + longer))
        # Without eps, 0/0 of a weight that has never had a gradient
        return np.where(np.isfinite(d), d, 0.0), np.where(np.isfinite(d), e, np.inf)


def _square(g: Bounded, arithmetic: Arithmetic) -> Bounded:
    (value, error), u = g, arithmetic.u
    lost = where_any(arithmetic.lost(1), value, error)
    return value * value, error * (2 * np.abs(value) + error) * (1 + u) + u * value * value + lost


def _average(beta: float, old: Bounded, new: Bounded, arithmetic: Arithmetic) -> Bounded:
    (a, e_a), (b, e_b) = old, new
    keep, u = 1 - beta, arithmetic.u
    # Roundings: of sums, products and settings; keep is a difference, whose operand is rounded too
    own = 5 * np.abs(a) + (5 * keep + beta) * np.abs(b)
    lost = where_any(arithmetic.lost(2, 1), a, e_a, b, e_b)
    return beta * a + keep * b, (1 + 6 * u) * (beta * e_a + keep * e_b) + u * own + lost


def _correction(beta: float, t: int, u: float) -> tuple[float, float]:
    """``1 - beta**t`` and its relative error: beta is rounded, its power is one or a product."""
    power = beta**t
    found = 1 - power
    return found, u * (1 + (2 * t - 1 + (t > 1)) * power / found)


def _divided(x: Bounded, by: tuple[float, float], arithmetic: Arithmetic) -> Bounded:
    value, error = x
    factor, relative = by
    quotient, lost = value / factor, where_any(arithmetic.lost(1), value, error)
    return quotient, error / factor * (1 + 2 * relative) + (2 * relative + arithmetic.u) * np.abs(quotient) + lost


def _longest(adam: Adam, t: int) -> float:
    """The largest |d| that t gradients can give; see the module's text."""
    b1, b2 = adam.beta1, adam.beta2
    if b2 == 0:
        return math.inf if b1 else 1.0
    total = math.fsum((b1 * b1 / b2) ** i for i in range(min(t, 10000)))
    return (1 - b1) / math.sqrt(1 - b2) * math.sqrt(total) * math.sqrt(1 - b2**t) / (1 - b1**t)
