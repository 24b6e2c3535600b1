# SPDX-License-Identifier: MIT
"""Faults of Adam and AdamW: corrections, eps, decay, and what is remembered from step to step."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import numpy as np

from bridge.exchange.optimizers import Adam, AdamW
from bridge.judge.diagnosis.predictions.hypothesis import Hypotheses, hypothesis
from bridge.judge.diagnosis.predictions.operations import Given
from bridge.judge.diagnosis.predictions.updating import Updating
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.optimizers.adam import Moments, Rule
from bridge.judge.oracle.optimizers.sgd import Bounded

Array = np.ndarray

#: Numbers of the step that are tried in the bias correction, elements by which, and how near the step must be
MOST_STEPS, FEW, NEAR = 2000, 256, 0.01
#: Of what it should be, the largest average of squares that says something was clipped; elements that must say so;
#: halvings of an interval
CLIPPED, ENOUGH, HALVINGS = 0.99, 4, 50

RULES = {
    "without bias correction": Rule(first=False, second=False),
    "without the correction of the average of the gradient, 1 - beta1**t": Rule(first=False),
    "without the correction of the average of its square, 1 - beta2**t": Rule(second=False),
    "the bias correction is that of the step after, t + 1": Rule(ahead=1),
    "eps inside the root": Rule(eps="square"),
    "eps added to the root before its correction": Rule(eps="before"),
}


def adam_faults(case: Updating) -> Hypotheses:
    """Yield what an update by Adam may do instead."""
    adam = case.settings
    assert isinstance(adam, Adam)
    for said, rule in RULES.items():
        yield hypothesis("adam", said, case.by(adam, memory=Moments(rule)))
    yield from _counters(case, adam)
    yield from _clipped_squares(case, adam)
    for said, memory in (("the average of the gradient is that of the step before: used, then updated", _Late(late=0)),
                         ("the average of its square is that of the step before: used, then updated", _Late(late=1)),
                         ("both averages are corrected by beta1", _Corrected(beta2=adam.beta1)),
                         ("both averages are corrected by beta2", _Corrected(beta1=adam.beta2)),
                         ("the averages are corrected by each other's beta",
                          _Corrected(beta1=adam.beta2, beta2=adam.beta1)),
                         ("the largest average of the square so far (AMSGrad)", _Largest()),
                         ("without the root: divided by the average of the square", _Rootless())):
        yield hypothesis("adam", said, case.by(adam, memory=memory))
    for name, own, others in (("beta1", adam.beta1, (0.0, 0.5, 0.8, 0.9, 0.95, 0.99)),
                              ("beta2", adam.beta2, (0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999))):
        for other in others:
            if other not in (own, adam.beta1, adam.beta2):
                yield hypothesis("adam", f"{name} = {other:g}, not {own:g}", case.by(replace(adam, **{name: other})))
    yield hypothesis("adam", "beta1 and beta2 exchanged", case.by(replace(adam, beta1=adam.beta2, beta2=adam.beta1)))
    if case.number > 1:
        yield hypothesis("adam", "the averages are forgotten before each step", case.by(adam, last_alone=True))
        counted = Moments(Rule(ahead=case.number - 1))
        yield hypothesis("adam", "the averages are forgotten before each step, the number of the step is not",
                         case.by(adam, memory=counted, last_alone=True))
    for said, eps in (("eps 1e-7", 1e-7), ("eps 1e-6", 1e-6), ("without eps", 0.0)):
        yield hypothesis("adam", f"{said}, not {adam.eps:g}", case.by(replace(adam, eps=eps)))
    yield from _decays(case, adam)


def _decays(case: Updating, adam: Adam) -> Hypotheses:
    decay = adam.weight_decay
    if not decay:
        return
    yield hypothesis("weight_decay", "left out of this parameter's update", case.by(replace(adam, weight_decay=0.0)))
    numbers = {one.name: getattr(adam, one.name) for one in fields(adam)}
    if isinstance(adam, AdamW):
        yield hypothesis("weight_decay", "in the gradient, as Adam's and not AdamW's", case.by(Adam(**numbers)))
        plain, rate = case.by(replace(adam, weight_decay=0.0)), 1 - adam.lr * decay
        yield hypothesis("weight_decay", "of the new weights, after the step and not before it",
                         Given(plain.shape, rate * plain.value, case.right().error))
        for whose, rate in case.rates.items():
            if adam.lr and rate != adam.lr:
                of_other = case.by(replace(adam, weight_decay=decay * rate / adam.lr))
                yield hypothesis("weight_decay", f"by lr = {rate:g}, that of {whose}", of_other)
        if adam.lr:
            larger = case.by(replace(adam, weight_decay=decay / adam.lr))
            yield hypothesis("weight_decay", "w*(1 - decay), without lr", larger)
    else:
        yield hypothesis("weight_decay", "decoupled, as AdamW's and not Adam's", case.by(AdamW(**numbers)))
    for factor in (2.0, 0.5, -1.0):
        yield hypothesis("weight_decay", f"times {factor:g}", case.by(replace(adam, weight_decay=factor * decay)))


def _counters(case: Updating, adam: Adam) -> Hypotheses:
    """Another number of the step in the bias correction: the one whose factor fits the step that was taken."""
    t, known = case.number, Moments()
    case.by(adam, memory=known)
    if not adam.lr or case.name not in known.averages:
        return
    w, found = case.weights[-1].reshape(-1), case.found.reshape(-1)
    few = np.linspace(0, w.size - 1, min(w.size, FEW)).astype(int)
    _, m, v = (one if isinstance(one, int) else one[0].reshape(-1)[few] for one in known.averages[case.name])
    decay = adam.lr * adam.weight_decay if isinstance(adam, AdamW) else 0.0
    taken = (w[few] * (1 - decay) - found[few]) / adam.lr
    numbers = np.arange(1, MOST_STEPS)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = m / (1 - adam.beta1**numbers) / (np.sqrt(v / (1 - adam.beta2**numbers)) + adam.eps)
    off = np.linalg.norm(steps - taken, axis=1)
    n = 1 + int(np.argmin(off))
    if not off[n - 1] <= NEAR * float(np.linalg.norm(taken)):
        return
    corrected = case.by(adam, memory=Moments(Rule(ahead=n - t)))
    said = []
    if (t - 1) * case.parameters < n <= t * case.parameters:
        said.append(f"is counted for each of the {case.parameters} parameters, not once in each step")
    if n % t == 0 and n > t:
        said.append(f"is counted {n // t} times in each step")
    if n == 1 < t:
        said.append("stays at 1")
    if n not in (t, t + 1):
        said.append(f"is {abs(n - t)} {'ahead' if n > t else 'behind'}")
    for one in said:
        yield hypothesis("adam", f"the number of the step in the bias correction {one}", corrected)


def _clipped_squares(case: Updating, adam: Adam) -> Hypotheses:
    """The average of the square is of clipped gradients: of some elements the step tells, at which number."""
    if case.remembered is not None or not adam.lr or (adam.weight_decay and not isinstance(adam, AdamW)):
        return
    t, known = len(case.gradients), Moments()
    case.by(adam, memory=known)
    if case.name not in known.averages:
        return
    size = case.found.size
    few = np.linspace(0, size - 1, min(size, FEW)).astype(int)
    w, found, m, v = (one.reshape(-1)[few] for one in (
        case.weights[-1], case.found, known.averages[case.name][1][0], known.averages[case.name][2][0]))
    g = np.abs([one.reshape(-1)[few] for one in case.gradients])
    decay = adam.lr * adam.weight_decay if isinstance(adam, AdamW) else 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        root = m / (1 - adam.beta1**t) / ((w * (1 - decay) - found) / adam.lr) - adam.eps
        kept = np.square(root) * (1 - adam.beta2**t)
    limits = _limits(g, kept, adam.beta2)[(kept < CLIPPED * v) & (root > 0)]
    if limits.size < ENOUGH:
        return
    limit = float(np.median(limits))
    if np.mean(np.abs(limits - limit) <= NEAR * limit) < 1 - NEAR:
        return
    near = [one for one in (float(f"{limit:.{digits}g}") for digits in (1, 2, 3)) if abs(one - limit) <= NEAR * limit]
    for one in dict.fromkeys([*near, limit]):
        yield hypothesis("adam", f"the average of the square is of gradients that are clipped at {one:.4g}",
                         case.by(adam, memory=_Clipped(limit=one)), fitted=True)


def _limits(g: Array, wanted: Array, beta2: float) -> Array:
    """At which number gradients of all steps (t, n) must be clipped for the average of their squares to be this one."""
    shares = (1 - beta2) * beta2 ** np.arange(len(g))[::-1, None]
    low, high = np.zeros(wanted.shape), g.max(0)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = (shares * np.minimum(g, middle) ** 2).sum(0) < wanted
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return high


@dataclass
class _Clipped(Moments):
    """The squares are of gradients between -limit and limit."""

    limit: float = np.inf

    def _squared(self, g: Bounded, arithmetic: Arithmetic) -> Bounded:
        return super()._squared((np.clip(g[0], -self.limit, self.limit), g[1]), arithmetic)


@dataclass
class _Late(Moments):
    """One of the two averages is used as it was before the step; 0 is that of the gradient."""

    late: int = 0
    before: tuple[Bounded, Bounded] | None = None

    def _quotient(self, adam: Adam, t: int, m: Bounded, v: Bounded, arithmetic: Arithmetic) -> Bounded:
        zero = np.zeros_like(m[0]), np.zeros_like(m[0])
        old, self.before = self.before or (zero, zero), (m, v)
        return super()._quotient(adam, t, *((old[0], v) if self.late == 0 else (m, old[1])), arithmetic)


@dataclass
class _Corrected(Moments):
    """The corrections are by other betas than the averages."""

    beta1: float | None = None
    beta2: float | None = None

    def _quotient(self, adam: Adam, t: int, m: Bounded, v: Bounded, arithmetic: Arithmetic) -> Bounded:
        beta1, beta2 = adam.beta1 if self.beta1 is None else self.beta1, adam.beta2
        return super()._quotient(replace(adam, beta1=beta1, beta2=beta2 if self.beta2 is None else self.beta2),
                                 t, m, v, arithmetic)


@dataclass
class _Largest(Moments):
    """AMSGrad: of the averages of the square the largest so far."""

    largest: Bounded | None = field(default=None)

    def _quotient(self, adam: Adam, t: int, m: Bounded, v: Bounded, arithmetic: Arithmetic) -> Bounded:
        old = self.largest or v
        self.largest = np.maximum(old[0], v[0]), np.maximum(old[1], v[1])
        return super()._quotient(adam, t, m, self.largest, arithmetic)


@dataclass
class _Rootless(Moments):
    """The average of the square in place of its root."""

    def _quotient(self, adam: Adam, t: int, m: Bounded, v: Bounded, arithmetic: Arithmetic) -> Bounded:
        top, below = m[0] / (1 - adam.beta1**t), v[0] / (1 - adam.beta2**t) + adam.eps
        with np.errstate(divide="ignore", invalid="ignore"):
            d = np.where(below > 0, top / below, 0.0)
            off = m[1] / (1 - adam.beta1**t) / below + np.abs(d) * v[1] / (1 - adam.beta2**t) / below
        return d, np.where(below > 0, off, np.inf) + arithmetic.u * (16 + 2 / (1 - adam.beta2)) * np.abs(d)
