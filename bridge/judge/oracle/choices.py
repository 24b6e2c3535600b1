# SPDX-License-Identifier: MIT
"""What an operation that chooses sends back, whichever of equal numbers takes it.

Elements of the gradient of a maximum are judged by bounds that let any of equal numbers be the largest, as other
programs than PyTorch choose another one. That the whole gradient goes to each of them would pass, too, but for the
sums: along the axes within which it is chosen a tensor gets back what its readers were given, no more and no less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from bridge.judge.oracle.bounded import Bounded
from bridge.operations.operation import Operation

Array = np.ndarray

#: Roundings in which the gradients of several readers are added to each other, at the size of any of them
JOINING = 3
#: Relative error of two of our own float64 sums, the candidate's numbers' and the right ones': numpy adds pairwise
OWN_SUMS = 64 * 2.0**-53


@dataclass(frozen=True)
class Sent:
    """What one reader of a tensor sends back to it, of the tensor's shape.

    Attributes
    ----------
    value : the gradient
    absolute : at least as large as its summands are, summed along the axes of `axes`
    error : a bound of its error, summed along these
    axes : along which the reader chooses
    """

    value: Array
    absolute: Array
    error: Array
    axes: frozenset[int] = frozenset()


def sent(node: Operation, part: Bounded, dy: Bounded, inputs: Sequence[Bounded]) -> Sent:
    """Return what a reader sends back.

    Parameters
    ----------
    node : the reader
    part : its gradient with respect to the tensor
    dy, inputs : what it follows from
    """
    axes, n = node.choices(part.shape)
    if not axes:
        return Sent(part.value, np.abs(part.value), part.error)
    arithmetic = replace(part.arithmetic, decided=True)
    first = [Bounded(x.value, x.error, arithmetic) for x in inputs]
    (at_once,), _ = node.backward(Bounded(np.abs(dy.value), dy.error, arithmetic), first, {})
    # Equal numbers may get a part each, which is rounded; windows that overlap are added
    error = at_once.error + arithmetic.factor(n) * at_once.value
    return Sent(part.value, at_once.value, arithmetic.with_underflow(error, n * n), frozenset(axes))


@dataclass(frozen=True)
class Sums:
    """Sums of a gradient, which no choice changes.

    Attributes
    ----------
    axes : along which
    value, bound : the right sums, and how far those of the candidate may be from them
    """

    axes: tuple[int, ...]
    value: Array
    bound: Array


def sums(readers: Sequence[Sent], u: float) -> Sums | None:
    """Return the sums of what all readers of a tensor send back; None where none of them chooses.

    Parameters
    ----------
    u : unit roundoff of the candidate, by which it adds what several readers send back

    Examples
    --------
    >>> one = Sent(np.array([1.0, 0.0]), np.array([1.0, 0.0]), np.array([2.0**-22, 0.0]), frozenset({0}))
    >>> other = Sent(np.array([3.0, 2.0]), np.array([3.0, 2.0]), np.zeros(2))
    >>> float(sums([one, other], 2.0**-24).value)
    6.0
    >>> sums([other], 2.0**-24) is None
    True
    """
    axes = tuple(sorted(frozenset().union(*(one.axes for one in readers))))
    if not axes:
        return None
    value, absolute, bound = (reduce(add, parts).sum(axes) for parts in (
        [one.value for one in readers], [one.absolute for one in readers], [one.error for one in readers]))
    added = JOINING * u if len(readers) > 1 else 0.0
    return Sums(axes, value, bound + (added + OWN_SUMS) * absolute)
