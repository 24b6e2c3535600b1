# SPDX-License-Identifier: MIT
"""Faults of Adam and AdamW: corrections, eps, decay, and what is remembered from step to step."""

from __future__ import annotations

from dataclasses import fields, replace

from bridge.exchange.optimizers import Adam, AdamW
from bridge.judge.diagnosis.hypothesis import Hypotheses, hypothesis
from bridge.judge.diagnosis.updating import Updating
from bridge.judge.oracle.adam import Moments, Rule

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
    yield hypothesis("adam", "beta1 and beta2 exchanged", case.by(replace(adam, beta1=adam.beta2, beta2=adam.beta1)))
    if len(case.gradients) > 1:
        yield hypothesis("adam", "the averages are forgotten before each step", case.by(adam, last_alone=True))
        counted = Moments(Rule(ahead=len(case.gradients) - 1))
        yield hypothesis("adam", "the averages are forgotten before each step, the number of the step is not",
                         case.by(adam, memory=counted, last_alone=True))
    for said, eps in (("eps 1e-7", 1e-7), ("eps 1e-6", 1e-6), ("without eps", 0.0)):
        yield hypothesis("adam", f"{said}, not {adam.eps:g}", case.by(replace(adam, eps=eps)))
    yield from _decays(case, adam)


def _decays(case: Updating, adam: Adam) -> Hypotheses:
    decay = adam.weight_decay
    if not decay:
        return
    yield hypothesis("weight_decay", "none", case.by(replace(adam, weight_decay=0.0)))
    numbers = {one.name: getattr(adam, one.name) for one in fields(adam)}
    if isinstance(adam, AdamW):
        yield hypothesis("weight_decay", "in the gradient, as Adam's and not AdamW's", case.by(Adam(**numbers)))
        if adam.lr:
            larger = case.by(replace(adam, weight_decay=decay / adam.lr))
            yield hypothesis("weight_decay", "w*(1 - decay), without lr", larger)
    else:
        yield hypothesis("weight_decay", "decoupled, as AdamW's and not Adam's", case.by(AdamW(**numbers)))
    for factor in (2.0, 0.5, -1.0):
        yield hypothesis("weight_decay", f"times {factor:g}", case.by(replace(adam, weight_decay=factor * decay)))
