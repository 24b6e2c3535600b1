# SPDX-License-Identifier: MIT
"""Faults of the optimiser: every wrong rule is run on the candidate's own gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bridge.exchange.file import Sgd
from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.hypothesis import Hypotheses, Hypothesis, hypothesis
from bridge.judge.diagnosis.layouts import layouts
from bridge.judge.diagnosis.operations import Given
from bridge.judge.diagnosis.output_faults import axis_names
from bridge.judge.oracle import sgd as updates
from bridge.judge.oracle.reduced_precision import round_fraction

Array = np.ndarray


@dataclass(frozen=True)
class Updating:
    """One parameter's last update.

    Attributes
    ----------
    sgd : the right settings
    name : of the parameter
    weights : before each step up to this one
    gradients : of each step up to this one
    errors : bounds on the gradients
    others : gradients of this step of parameters of the same shape, by name
    found : the weights after the step
    u : unit roundoff
    trained : of a frozen parameter, the settings that all others are updated with
    """

    sgd: Sgd
    name: str
    weights: list[Array]
    gradients: list[Array]
    errors: list[Array]
    others: dict[str, Array]
    found: Array
    u: float
    trained: Sgd | None = None

    def right(self) -> Given:
        """Return the new weights by the right rule."""
        return self.by(self.sgd)

    def by(
        self,
        sgd: Sgd,
        gradients: list[Array] | None = None,
        factor: float = 1.0,
        first: float = 1.0,
        last: tuple[Array, Array] | None = None,
    ) -> Given:
        """Return the new weights by another rule, or from other gradients.

        Parameters
        ----------
        factor : of the last step that is taken
        first : of the momentum buffer after the first step
        last : another gradient of the last step, and its bound
        """
        momentum, d, e = updates.Momentum(), np.zeros(1), np.zeros(1)
        known = list(zip(gradients or self.gradients, self.errors, strict=True))
        if last is not None:
            known[-1] = last
        for k, (w, bounded) in enumerate(zip(self.weights, known, strict=True)):
            d, e = momentum.direction(sgd, self.name, w, bounded, self.u)
            if k == 0 and first != 1.0 and self.name in momentum.buffers:
                momentum.buffers[self.name] = d, e = first * d, abs(first) * e + 4 * self.u * np.abs(d)
        taken = factor * d, abs(factor) * e + (0.0 if factor == 1.0 else 4 * self.u * np.abs(factor * d))
        value, bound = updates.new_weights(sgd, self.weights[-1], taken, self.u)
        return Given(value.shape, value, bound)


def update_faults(case: Updating) -> Hypotheses:
    """Yield what an update may do instead."""
    if case.trained is not None:
        yield hypothesis("wrong_tensor", "updated, although it is frozen", case.by(case.trained))
        return
    yield hypothesis("wrong_tensor", "not updated", Given(case.found.shape, case.weights[-1]))
    yield from _rates(case)
    yield from _decays(case)
    yield from _momenta(case)
    yield from _gradients(case)
    yield from _clipped(case)
    yield from _saved(case)


def _rates(case: Updating) -> Hypotheses:
    right = case.right()
    step, taken = case.weights[-1] - right.value, case.weights[-1] - case.found
    square = float(np.vdot(step, step))
    if not square > 0:
        return
    factor = float(np.vdot(step, taken)) / square
    if factor == 0 or not np.isfinite(factor) or abs(factor - 1) < 1e-9:
        return
    for said, one in _stored_rates(case.sgd.lr):
        if abs(one - factor) <= 0.01 * abs(one - 1):
            yield hypothesis("learning_rate", said, case.by(case.sgd, factor=one))
            return
    rounded = [float(f"{factor:.{digits}g}") for digits in (1, 2, 3, 4)]
    # Divided by a batch
    rounded += [1 / round(1 / factor)] if round(1 / factor) else []
    near = [one for one in rounded if one and abs(one - factor) <= 1e-3 * abs(factor)]
    for one in dict.fromkeys([*near, factor]):
        if one == -1.0:
            yield hypothesis("update_sign", "w + lr*g", case.by(case.sgd, factor=-1.0))
        else:
            said = f"lr = {case.sgd.lr * one:.6g}, {one:.6g} times the right one"
            yield hypothesis("learning_rate", said, case.by(case.sgd, factor=one), fitted=True)


def _stored_rates(lr: float) -> Iterator[tuple[str, float]]:
    """What a rate becomes in types of 16 bits, and by how much that is wrong.

    >>> [said for said, _ in _stored_rates(0.1)]
    ['lr = 0.1001, 0.1 rounded to bf16', 'lr = 0.09998, 0.1 rounded to fp16']
    """
    single = np.full(1, lr, np.float32)
    for name, stored in (("bf16", round_fraction(single, 7)), ("fp16", single.astype(np.float16))):
        rate = float(stored[0])
        if lr and rate != single[0] and np.isfinite(rate):
            yield f"lr = {rate:.4g}, {lr:g} rounded to {name}", rate / lr


def _clipped(case: Updating) -> Hypotheses:
    """The step is taken with a gradient that was clipped by value, which shows where there is no momentum."""
    g, lr = case.gradients[-1], case.sgd.lr
    if case.sgd.momentum or case.sgd.weight_decay or not lr:
        return
    taken = np.abs(case.weights[-1] - case.found) / lr
    smaller = np.abs(g) > 1.01 * taken
    limit = float(np.median(taken[smaller])) if smaller.any() else 0.0
    for digits in (1, 2, 3, 4):
        one = float(f"{limit:.{digits}g}")
        if one and abs(one - limit) <= 1e-3 * limit:
            clipped = case.by(case.sgd, [*case.gradients[:-1], np.clip(g, -one, one)])
            yield hypothesis("clipped", f"updated with the gradient clipped to {one:g}", clipped, fitted=True)
            return


def _decays(case: Updating) -> Hypotheses:
    sgd, decay = case.sgd, case.sgd.weight_decay
    if decay:
        where = " (on a bias)" if case.name.endswith("/bias") else ""
        plain = case.by(replace(sgd, weight_decay=0.0))
        yield hypothesis("weight_decay", f"none{where}", plain)
        for said, factor in (
            ("decoupled: w*(1 - lr*decay), not in the momentum", sgd.lr * decay),
            ("w*(1 - decay)", decay),
        ):
            yield hypothesis("weight_decay", said, _decayed(plain, case.weights[-1], factor))
        twice = _decayed(case.right(), case.weights[-1], decay)
        yield hypothesis("weight_decay", "twice: in the gradient, and w*(1 - decay)", twice)
        yield from _decays_of_others(case)
        for factor in (2.0, 0.5, -1.0):
            yield hypothesis("weight_decay", f"times {factor:g}", case.by(replace(sgd, weight_decay=factor * decay)))
        return
    taken = (case.weights[-1] - case.found) / sgd.lr - case.gradients[-1] if sgd.lr else np.zeros(1)
    square = float(np.vdot(case.weights[-1], case.weights[-1]))
    if taken.size > 1 and square > 0 and not sgd.momentum:
        fitted = float(np.vdot(taken, case.weights[-1])) / square
        for one in dict.fromkeys(float(f"{fitted:.{digits}g}") for digits in (1, 2, 3)):
            if one > 0:
                decayed = case.by(replace(sgd, weight_decay=one))
                yield hypothesis("weight_decay", f"{one:g} although none is asked for", decayed, fitted=True)


def _decays_of_others(case: Updating) -> Hypotheses:
    """The decay of weights that are not those before the step."""
    known, decay = case.weights, case.sgd.weight_decay
    if len(known) < 2:
        return
    for said, other in (("weights of the first step", [known[0]] * len(known)),
                        ("weights of the step before", [known[0], *known[:-1]])):
        gradients = [g + decay * (w - own) for g, w, own in zip(case.gradients, other, known, strict=True)]
        yield hypothesis("weight_decay", f"of the {said}", case.by(case.sgd, gradients))


def _decayed(plain: Given, w: Array, factor: float) -> Given:
    """New weights, and a part of the old ones taken off besides."""
    return Given(plain.shape, plain.value - factor * w, plain.error)


def _momenta(case: Updating) -> Hypotheses:
    sgd = case.sgd
    if not sgd.momentum:
        for mu in (0.9, 0.5, 0.99):
            yield hypothesis(
                "momentum", f"momentum {mu} although none is asked for", case.by(replace(sgd, momentum=mu))
            )
        return
    variants: Iterator[tuple[str, Sgd]] = iter(
        [
            ("no momentum: the buffer is empty before this step", replace(sgd, momentum=0.0, nesterov=False)),
            ("dampening ignored", replace(sgd, dampening=0.0)),
            ("v = mu*v + (1 - mu)*g, but v = g at first", replace(sgd, dampening=sgd.momentum, nesterov=False)),
            ("Nesterov missing", replace(sgd, nesterov=False)),
            ("Nesterov not asked for", replace(sgd, nesterov=True)),
        ]
    )
    for said, other in variants:
        if other != sgd:
            yield hypothesis("momentum", said, case.by(other))
    if sgd.dampening:
        damped = case.by(sgd, first=1 - sgd.dampening)
        yield hypothesis("momentum", "dampening in the first step too", damped)
    # Started from 0, these are multiples of torch's
    mu, undamped = sgd.momentum, replace(sgd, dampening=0.0)
    yield hypothesis("momentum", "v = mu*v + (1 - mu)*g", case.by(undamped, factor=1 - mu))
    yield hypothesis("momentum", "v = mu*(v + g)", case.by(undamped, factor=mu))


def _gradients(case: Updating) -> Hypotheses:
    """The step is taken with something else than this parameter's gradient of this step."""
    sgd, own = case.sgd, case.gradients
    for name, other in case.others.items():
        yield hypothesis("wrong_tensor", f"updated with the gradient of {name}", case.by(sgd, [*own[:-1], other]))
    if len(own) > 1:
        yield hypothesis(
            "previous_step", "updated with the gradient of the step before", case.by(sgd, [*own[:-1], own[-2]])
        )
        yield hypothesis(
            "accumulated", "the gradient of the step before is added", case.by(sgd, [*own[:-1], own[-1] + own[-2]])
        )
    names = axis_names(own[-1].shape, case.name)
    for layout in layouts(own[-1].shape, names):
        if len(layout.kinds) == 1:
            read = case.by(sgd, [layout(g) for g in own])
            yield Hypothesis(layout.kinds, f"updated with the gradient: {layout.detail}", read, layout=layout)


def _saved(case: Updating) -> Hypotheses:
    """The update is right, and the new weights are stored in another order."""
    right = case.right()
    names = axis_names(right.shape, case.name)
    for layout in layouts(right.shape, names):
        error = None if right.error is None else layout(right.error)
        stored = Given(right.shape, layout(right.value), error)
        yield Hypothesis((kind("saved_weights"),), f"stored: {layout.detail}", stored, layout=layout)
