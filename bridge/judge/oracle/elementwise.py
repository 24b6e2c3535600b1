# SPDX-License-Identifier: MIT
"""What `bridge.judge.oracle.step` does to whole images element by element, several operations in one pass over memory.

Arrays are (channels, height, width), float64 unless said otherwise, and changed in place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bridge.common.parallel import anything, blockwise, keep
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.reductions import Truth

Array = np.ndarray


@dataclass
class ConvolutionParts:
    """What a convolution's value and bound are made of.

    Attributes
    ----------
    value : of the convolution
    absolute : the same sum with absolute values; becomes E
    propagated : what errors of the inputs may change; None where inputs are exact
    own : the value from the candidate's own inputs; None where its file lacks them
    """

    value: Array
    absolute: Array
    propagated: Array | None
    own: Array | None


def finish(parts: ConvolutionParts, n: Array, arithmetic: Arithmetic, bias: Array | None = None) -> tuple[Truth, ...]:
    """Put ``E = s(n)*c + propagated`` in the place of c; return the bound of the candidate's own inputs.

    Wrong inputs are rounded too, hence a factor 1 + s(n) of what is propagated. With the candidate's own inputs c is at
    most c + propagated: they are inside their bounds, or fail themselves.

    Parameters
    ----------
    parts : changed in place; what `propagated` held is lost
    n : number of roundings in each element, (height, width)
    bias : (channels, 1, 1), added to the values
    """
    factor, most = arithmetic.factor(n), int(np.max(n))
    spread = 1 + factor.max()
    b = np.zeros((1, 1, 1)) if bias is None else bias
    shape = parts.value.shape
    given = [parts.value, parts.absolute, np.broadcast_to(b, (shape[0], 1, 1)), factor[None]]

    def bounds(z: Array, e: Array, shift: Array, f: Array, p: Array | None = None) -> None:
        if bias is not None:
            z += shift
            e += np.abs(shift)
        e *= f
        # Both bounds are at least this
        tiny = arithmetic.may_underflow(e, most)
        if p is not None:
            wide = p * spread
            p *= f
            p += e
            e += wide
            if tiny:
                arithmetic.with_underflow(p, most)
        if tiny:
            arithmetic.with_underflow(e, most)

    blockwise(bounds, shape, *given, *([] if parts.propagated is None else [parts.propagated]))
    if parts.own is None:
        return ()
    if bias is not None:
        blockwise(lambda y, shift: np.add(y, shift, out=y), shape, parts.own, given[2])
    bound = parts.absolute if parts.propagated is None else parts.propagated
    return (Truth(parts.own, bound, most),)


def rectify(value: Array, error: Array) -> tuple[Array, Array]:
    """Apply a ReLU, and return where the input is positive, and where rounding may have decided that.

    `error` has the shape of `value`, or is one zero.
    """
    positive, unsure = np.empty(value.shape, bool), np.zeros(value.shape, bool)
    exact = not anything(error)

    def one(z: Array, above: Array, doubt: Array, e: Array) -> None:
        np.greater(z, 0, out=above)
        if not exact:
            np.less_equal(np.abs(z), e, out=doubt)
            doubt &= e > 0
            keep(e, above | doubt)
        np.maximum(z, 0.0, out=z)

    blockwise(one, value.shape, value, positive, unsure, error)
    return positive, unsure


def stop(positive: Array, unsure: Array, da: Array, e_da: Array) -> None:
    """The gradient of a ReLU's output becomes that of its input."""

    def one(above: Array, doubt: Array, g: Array, e: Array) -> None:
        # They are few, and found once; numpy finds them fast in one dimension alone
        places = np.divmod(np.flatnonzero(doubt), doubt.shape[1])
        either = np.abs(g[places])
        either += e[places]
        keep(g, above)
        keep(e, above)
        e[places] += either

    blockwise(one, da.shape, positive, unsure, da, e_da)


def passed(gradient: Array, z: Array) -> Array:
    """Return a gradient where z > 0, else 0; a new array of the gradient's element type."""
    found = np.empty(gradient.shape, gradient.dtype)

    def one(g: Array, a: Array, y: Array) -> None:
        np.copyto(y, g)
        keep(y, a > 0)

    blockwise(one, gradient.shape, gradient, z, found)
    return found


def positive_part(z: Array) -> Array:
    """Return ``max(z, 0)`` as a new array of z's element type."""
    found = np.empty(z.shape, z.dtype)
    blockwise(lambda a, y: np.maximum(a, 0.0, out=y), z.shape, z, found)
    return found
