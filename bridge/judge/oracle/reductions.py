# SPDX-License-Identifier: MIT
"""What a step hands out image by image, and what it sums over the batch: loss and gradients, and their bounds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from bridge.judge.oracle.error_model import Arithmetic, rounding_factor

Array = np.ndarray


@dataclass(frozen=True)
class Truth:
    """What a tensor should be, and how far a right one may be from that.

    Attributes
    ----------
    value, bound : arrays
    n : int or None
        Largest number of roundings where nothing is propagated, E = s(n)*c; an error above n*u*c is a bug by theorem. 0
        where numbers are only copied. None where that is not counted.
    stored : int
        Bytes of a number of the inputs as the candidate's file stores them; a copy of fewer bytes than the candidate
        computes with says nothing to the last bit.
    estimated : bool
        The bound is no theorem, but what runs of PyTorch show (`bridge.operations.aten.estimate`).
    alone : array or None
        Of a bias gradient the bound of its own sum: what is as near as that is right, however far off its terms may be.
    lacking : tuple of str
        Names of tensors that the candidate's file lacks between this one and those that it was computed from.
    """

    value: Array
    bound: Array
    n: int | None = None
    stored: int = 8
    estimated: bool = False
    lacking: tuple[str, ...] = ()
    alone: Array | None = None


class ImageVisitor(Protocol):
    """Receives un-reduced tensors of one image."""

    def __call__(self, name: str, value: Array, bound: Array, /, *local: Truth) -> Array | None:
        """Take a tensor by its name under /steps/<k>, with its value and bound.

        The arrays are used again after the call. It may give back the candidate's own tensor; what one operation makes
        of that comes as `local`.
        """


@dataclass
class GradientSums:
    """One parameter's gradient, summed over images.

    Attributes
    ----------
    value : the gradient
    absolute : c, the same sum with absolute values
    propagated : what errors of the inputs may change
    n : number of terms in each element
    own : the gradient from the candidate's own inputs of the operation; None where its file lacks them
    products : the terms are products (filter) and not numbers (bias)
    noise : what the algorithm of the convolution adds to the bound; 0 for sums of products
    """

    value: Array
    absolute: Array
    propagated: Array
    n: Array
    own: Array | None = None
    products: bool = True
    noise: Array | float = 0.0

    def __add__(self, other: GradientSums) -> GradientSums:
        own = None if self.own is None or other.own is None else self.own + other.own
        return GradientSums(
            self.value + other.value,
            self.absolute + other.absolute,
            self.propagated + other.propagated,
            self.n + other.n,
            own,
            self.products,
            self.noise + other.noise,
        )


@dataclass
class StepSums:
    """Loss and gradients; parts of images are added in their order, so results do not depend on threads.

    Attributes
    ----------
    loss : sum of squared differences
    loss_propagated : what errors of the output may change in it
    local_loss : the same sum over the candidate's own output; None where its file lacks a part of that
    local_propagated : what may change in it if the output is used before it is rounded
    gradients : by parameter name
    """

    loss: float = 0.0
    loss_propagated: float = 0.0
    local_loss: float | None = 0.0
    local_propagated: float = 0.0
    gradients: dict[str, GradientSums] = field(default_factory=dict)

    def add(self, other: StepSums) -> None:
        """Add another image's part."""
        self.loss += other.loss
        self.loss_propagated += other.loss_propagated
        mine, its = self.local_loss, other.local_loss
        self.local_loss = None if mine is None or its is None else mine + its
        self.local_propagated += other.local_propagated
        for name, part in other.gradients.items():
            self.gradients[name] = self.gradients[name] + part if name in self.gradients else part


def loss_bound(sums: StepSums, scale: float, elements: int, arithmetic: Arithmetic) -> tuple[float, float]:
    """Return the loss of the batch and its bound; `elements` terms, each from 3 roundings (y - t, square, scale).

    Each square may underflow, and each product with the scale.
    """
    bound = scale * (_factor(elements, arithmetic.u) * sums.loss + sums.loss_propagated)
    return scale * sums.loss, float(arithmetic.with_underflow(np.atleast_1d(bound), _tiny(elements, scale))[0])


def local_loss_bound(sums: StepSums, scale: float, elements: int, arithmetic: Arithmetic) -> Truth | None:
    """Return the loss that follows from the candidate's own output; None where its file lacks that."""
    if sums.local_loss is None:
        return None
    rounded = _factor(elements, arithmetic.u) * sums.local_loss
    bound = np.atleast_1d(scale * (rounded + sums.local_propagated))
    bound = arithmetic.with_underflow(bound, _tiny(elements, scale))
    return Truth(np.asarray(scale * sums.local_loss), bound, elements)


def _factor(elements: int, u: float) -> float:
    return float(rounding_factor(elements, u)) + 3 * u


def _tiny(elements: int, scale: float) -> float:
    """Underflows of a loss, scaled term by term or at the end."""
    return elements * (1 + scale) + 1


def gradient_bound(parts: GradientSums, arithmetic: Arithmetic) -> tuple[Array, Array]:
    """Return a parameter gradient of the batch and its bound, s(n)*c + propagated."""
    arithmetic = _of_terms(parts, arithmetic)
    s = arithmetic.factor(parts.n)
    bound = s * parts.absolute + (1 + s) * parts.propagated + parts.noise
    return parts.value, arithmetic.with_underflow(bound, parts.n)


def _of_terms(parts: GradientSums, arithmetic: Arithmetic) -> Arithmetic:
    """Numbers that are only added are no operands of products."""
    return arithmetic if parts.products else replace(arithmetic, operand=0.0)


def local_gradient_bound(parts: GradientSums, arithmetic: Arithmetic) -> Truth | None:
    """Return the gradient that follows from the candidate's own inputs; None where its file lacks them."""
    if parts.own is None:
        return None
    arithmetic = _of_terms(parts, arithmetic)
    bound = arithmetic.factor(parts.n) * (parts.absolute + parts.propagated) + parts.noise
    return Truth(parts.own, arithmetic.with_underflow(bound, parts.n), int(np.max(parts.n)))
