# SPDX-License-Identifier: MIT
"""Faults of the optimiser: every wrong rule is run on the candidate's own gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from bridge.exchange.optimizers import Adam, Optimizer, Sgd
from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.faults.adam_faults import adam_faults
from bridge.judge.diagnosis.faults.layouts import layouts
from bridge.judge.diagnosis.faults.output_faults import axis_names
from bridge.judge.diagnosis.predictions.hypothesis import Hypotheses, Hypothesis, hypothesis
from bridge.judge.diagnosis.predictions.operations import Given
from bridge.judge.diagnosis.predictions.updating import Updating
from bridge.judge.oracle import update
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.optimizers.sgd import Momentum
from bridge.judge.oracle.reduced_precision import round_fraction

Array = np.ndarray


#: What also weights are that are written a step late
NOT_UPDATED = "not updated"
LATE = "updated with the gradient of the step before, and with none in the first step"


def update_faults(case: Updating) -> Hypotheses:
    """Yield what an update may do instead."""
    if case.trained is not None:
        yield hypothesis("wrong_tensor", "updated, although it is frozen", case.by(case.trained))
        return
    yield hypothesis("wrong_tensor", NOT_UPDATED, Given(case.found.shape, case.weights[-1]))
    yield from _rates(case)
    if isinstance(case.settings, Adam):
        yield from adam_faults(case)
    else:
        yield from _decays(case, case.settings)
        yield from _momenta(case, case.settings)
        yield from _clipped(case, case.settings)
        yield from _clipped_by_norm(case, case.settings)
        yield from _scaled_gradients(case, case.settings)
    yield from _gradients(case)
    yield from _saved(case)


def _scaled_gradients(case: Updating, sgd: Sgd) -> Hypotheses:
    """Every gradient times a number, and the decay right; or the decay times a number."""
    if not (sgd.weight_decay and sgd.lr):
        return
    w, none = case.weights[-1], [np.zeros_like(g) for g in case.gradients]
    right, decayed = case.right(), case.by(sgd, none)
    of_gradients, of_decay = decayed.value - right.value, w - decayed.value
    for part, rest in ((of_gradients, decayed.value), (of_decay, w - of_gradients)):
        square = float(np.vdot(part, part))
        factor = float(np.vdot(part, rest - case.found)) / square if square > 0 else 1.0
        near = [one for one in (*(float(f"{factor:.{digits}g}") for digits in (1, 2, 3)), *_parts(factor))
                if abs(one - factor) <= 1e-3 * abs(factor)]
        for one in dict.fromkeys(near):
            if part is of_gradients and one not in (0.0, 1.0):
                said = f"every gradient is multiplied by {one:.6g} before it is used, the weight decay is not"
                scaled = replace(case, errors=[abs(one) * e for e in case.errors])
                yield hypothesis("scale", said, scaled.by(sgd, [one * g for g in case.gradients]), fitted=True)
            elif one not in (-1.0, 0.0, 0.5, 1.0, 2.0):
                other = case.by(replace(sgd, weight_decay=one * sgd.weight_decay))
                yield hypothesis("weight_decay", f"times {one:.6g}", other, fitted=True)


def _parts(factor: float) -> list[float]:
    """One over a whole number, as of a batch.

    >>> _parts(0.33331), _parts(0.0)
    ([0.3333333333333333], [])
    """
    return [1 / round(1 / factor)] if factor and round(1 / factor) else []


def _rates(case: Updating) -> Hypotheses:
    right = case.right()
    step, taken = case.weights[-1] - right.value, case.weights[-1] - case.found
    square = float(np.vdot(step, step))
    if not square > 0:
        return
    factor = float(np.vdot(step, taken)) / square
    if factor == 0 or not np.isfinite(factor) or abs(factor - 1) < 1e-9:
        return
    lr = case.settings.lr
    others = [(f"lr = {rate:.6g}, that of {whose}", rate / lr) for whose, rate in case.rates.items() if rate != lr]
    for said, one in (*others, *_stored_rates(lr)):
        if abs(one - factor) <= 0.01 * abs(one - 1):
            yield hypothesis("learning_rate", said, case.by(case.settings, factor=one))
            return
    rounded = [float(f"{factor:.{digits}g}") for digits in (1, 2, 3, 4)]
    rounded += _parts(factor)
    near = [one for one in rounded if one and abs(one - factor) <= 1e-3 * abs(factor)]
    uncertain = _uncertainty(step, right.error)
    for one in dict.fromkeys([*near, factor]):
        if one == -1.0:
            yield hypothesis("update_sign", "w + lr*g", case.by(case.settings, factor=-1.0))
        else:
            said = f"lr = {case.settings.lr * one:.6g}, {one:.6g} times the right one"
            taken_so = case.by(case.settings, factor=one)
            if one == factor and taken_so.error is not None:
                taken_so = Given(taken_so.shape, taken_so.value, taken_so.error + uncertain * np.abs(step))
            yield hypothesis("learning_rate", said, taken_so, fitted=True)
            if taken_so.error is not None and (np.abs(case.found - taken_so.value) <= taken_so.error).all():
                return


def _uncertainty(direction: Array, bound: Array | None) -> float:
    """Three standard deviations of a factor that is fitted to numbers with an error up to the bound."""
    square = float(np.vdot(direction, direction))
    return 0.0 if bound is None or not square > 0 else 3 * float(np.linalg.norm(direction * bound)) / square


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


def _clipped(case: Updating, sgd: Sgd) -> Hypotheses:
    """The step is taken with gradients that were clipped by value; with momentum the first one shows the limit."""
    k, lr = 0 if sgd.momentum else len(case.gradients) - 1, sgd.lr
    if not lr:
        return
    g, after = case.gradients[k], [*case.weights[1:], case.found][k]
    taken = (case.weights[k] - after) / lr - sgd.weight_decay * case.weights[k]
    taken = np.abs(taken) / (1 + sgd.momentum * sgd.nesterov)
    smaller = np.abs(g) > 1.01 * taken
    limit = float(np.median(taken[smaller])) if smaller.any() else 0.0
    for digits in (1, 2, 3, 4):
        one = float(f"{limit:.{digits}g}")
        if one and abs(one - limit) <= 1e-3 * limit:
            clipped = case.by(sgd, [np.clip(g, -one, one) for g in case.gradients])
            yield hypothesis("clipped", f"updated with the gradient clipped to {one:g}", clipped, fitted=True)
            return


def _clipped_by_norm(case: Updating, sgd: Sgd) -> Hypotheses:
    """The step is taken with gradients that were scaled to a norm, of all of them together or of each."""
    own = [float(np.linalg.norm(g)) for g in case.gradients]
    after = [*case.weights[1:], case.found]
    # With momentum the first step alone shows by how much its gradient was scaled
    k = 0 if sgd.momentum else len(own) - 1
    square = own[k] ** 2
    if not sgd.lr or not square > 0:
        return
    taken = (case.weights[k] - after[k]) / sgd.lr - sgd.weight_decay * case.weights[k]
    share = float(np.vdot(taken, case.gradients[k])) / square / (1 + sgd.momentum * sgd.nesterov)
    if not 0 < share < 0.999:
        return
    uncertain = _uncertainty(sgd.lr * case.gradients[k], case.right().error)
    for whose, norms in (("of all gradients together", case.norms), ("of each gradient", own)):
        if len(norms) == len(own):
            limit = share * norms[k]
            scaled = [g * min(1.0, limit / n) if n else g for g, n in zip(case.gradients, norms, strict=True)]
            # The limit was fitted, and the factor that follows from it is rounded
            rounded = replace(case, errors=[(4 * case.u + uncertain / share) * np.abs(g) for g in scaled])
            said = f"updated with gradients clipped to {limit:.3g}, the norm {whose}"
            yield hypothesis("clipped", said, rounded.by(sgd, scaled), fitted=True)


def _decays(case: Updating, sgd: Sgd) -> Hypotheses:
    decay = sgd.weight_decay
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
        yield from _decays_of_others(case, sgd)
        if sgd.dampening and sgd.momentum:
            undamped = [g + decay * (w if k == 0 else w / (1 - sgd.dampening))
                        for k, (g, w) in enumerate(zip(case.gradients, case.weights, strict=True))]
            yield hypothesis("momentum", "weight decay is added to v after the dampening",
                             case.by(replace(sgd, weight_decay=0.0), undamped))
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


def _decays_of_others(case: Updating, sgd: Sgd) -> Hypotheses:
    """The decay of weights that are not those before the step."""
    known, decay = case.weights, sgd.weight_decay
    if len(known) < 2:
        return
    for said, other in (("weights of the first step", [known[0]] * len(known)),
                        ("weights of the step before", [known[0], *known[:-1]])):
        gradients = [g + decay * (w - own) for g, w, own in zip(case.gradients, other, known, strict=True)]
        yield hypothesis("weight_decay", f"of the {said}", case.by(sgd, gradients))


def _decayed(plain: Given, w: Array, factor: float) -> Given:
    """New weights, and a part of the old ones taken off besides."""
    return Given(plain.shape, plain.value - factor * w, plain.error)


@dataclass
class _Stored(Momentum):
    """Momentum buffers in numbers of fewer bits, by which the step is taken, too."""

    change: Callable[[Array], Array] = np.asarray

    def direction(self, settings: Optimizer, name: str, w: Array, g: tuple[Array, Array],
                  arithmetic: Arithmetic) -> tuple[Array, Array]:
        """Return what the buffer holds after it was stored, without Nesterov's part."""
        assert isinstance(settings, Sgd)
        v, e = super().direction(replace(settings, nesterov=False), name, w, g, arithmetic)
        self.buffers[name] = self.change(v.astype(np.float32)).astype(np.float64), e
        return self.buffers[name]


def _half(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return x.astype(np.float16)


def _brain(x: Array) -> Array:
    return round_fraction(x, 7)


def _momenta(case: Updating, sgd: Sgd) -> Hypotheses:
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
    if case.remembered is not None:
        yield hypothesis("momentum", "the buffer is that of the step before: used, then updated", _late(case, sgd))
    if len(set(case.own_rates)) > 1 and sgd.lr:
        shares = [lr / sgd.lr for lr in case.own_rates]
        inside = replace(case, errors=[share * e for share, e in zip(shares, case.errors, strict=True)])
        stepped = [share * (g + sgd.weight_decay * w)
                   for share, g, w in zip(shares, case.gradients, case.weights, strict=True)]
        said = "the learning rate of each step is in the buffer: v = mu*v + lr*g, w = w - v: other once it has changed"
        yield hypothesis("momentum", said, inside.by(replace(sgd, weight_decay=0.0), stepped))
    for name in case.before:
        yield hypothesis("momentum", f"the buffer is that of {name}", case.with_memory_of(name))
    for name in case.others_weights:
        if len(case.before.get(name, ())) == len(case.weights) - 1:
            for after in (True, False):
                said = f"one buffer with {name}, which is updated {'before' if after else 'after'} it"
                yield hypothesis("momentum", said, case.sharing_memory_with(name, after=after))
    if sgd.dampening:
        damped = case.by(sgd, first=1 - sgd.dampening)
        yield hypothesis("momentum", "dampening in the first step too", damped)
    for said, stored in (("fp16", _half), ("bf16", _brain)):
        memory = _Stored(change=stored)
        yield hypothesis("momentum", f"the buffer is stored in {said}", case.by(sgd, memory=memory))
    # Started from 0, these are multiples of torch's
    mu, undamped = sgd.momentum, replace(sgd, dampening=0.0)
    yield hypothesis("momentum", "v = mu*v + (1 - mu)*g", case.by(undamped, factor=1 - mu))
    yield hypothesis("momentum", "v = mu*(v + g)", case.by(undamped, factor=mu))
    if mu < 1:
        corrected = case.by(sgd, factor=1 / (1 - mu ** case.number))
        yield hypothesis("momentum", "the step is divided by 1 - mu**t, as Adam's average is", corrected)


def _late(case: Updating, sgd: Sgd) -> Given:
    """New weights by the buffer before the last step."""
    memory = case.memory(sgd)
    for w, g, e in zip(case.weights[:-1], case.gradients, case.errors, strict=False):
        memory.direction(sgd, case.name, w, (g, e), case.arithmetic)
    taken = memory.bounded(case.name)["momentum"]
    return Given(case.found.shape, *update.new_weights(sgd, case.weights[-1], taken, case.arithmetic))


def _gradients(case: Updating) -> Hypotheses:
    """The step is taken with something else than this parameter's gradient of this step."""
    settings, own = case.settings, case.gradients
    for name, other in case.others.items():
        yield hypothesis("wrong_tensor", f"updated with the gradient of {name}", case.by(settings, [*own[:-1], other]))
    for said, stored in (("fp16", _half), ("bf16", _brain)):
        rounded = [stored(g.astype(np.float32)).astype(np.float64) for g in own]
        yield hypothesis("precision", f"updated with the gradient rounded to {said}", case.by(settings, rounded))
    late = [np.zeros_like(own[0]), *own[:-1]]
    yield hypothesis("previous_step", LATE, case.by(settings, late))
    # Without a memory and decay it is a learning rate
    alone = isinstance(settings, Sgd) and not (settings.momentum or settings.weight_decay)
    for times, why in {} if alone else {2: "", case.images: ", once for each image of the batch"}.items():
        if times > 1:
            yield hypothesis("wrong_tensor", f"updated {times} times in each step{why}", case.repeated(times))
    if len(own) > 1:
        yield hypothesis(
            "previous_step", "updated with the gradient of the step before", case.by(settings, [*own[:-1], own[-2]])
        )
        yield hypothesis(
            "accumulated", "the gradient of the step before is added", case.by(settings, [*own[:-1], own[-1] + own[-2]])
        )
    names = axis_names(own[-1].shape, case.name)
    for layout in layouts(own[-1].shape, names):
        if len(layout.kinds) == 1:
            read = case.by(settings, [layout(g) for g in own])
            yield Hypothesis(layout.kinds, f"updated with the gradient: {layout.detail}", read, layout=layout)


def _saved(case: Updating) -> Hypotheses:
    """The update is right, and the new weights are stored in another order."""
    right = case.right()
    names = axis_names(right.shape, case.name)
    for layout in layouts(right.shape, names):
        error = None if right.error is None else layout(right.error)
        stored = Given(right.shape, layout(right.value), error)
        yield Hypothesis((kind("saved_weights"),), f"stored: {layout.detail}", stored, layout=layout)
