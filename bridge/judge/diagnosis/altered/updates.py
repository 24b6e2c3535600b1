# SPDX-License-Identifier: MIT
"""The rules of optimisers as formulas whose calls can be altered.

The oracle's rules (`bridge.judge.oracle.optimizers`) have bounds for every order of operations;
these have the usual order, and the oracle's bound on top. A mistake is made at every step alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from bridge.exchange.optimizers import Adam, AdamW, Optimizer, Sgd
from bridge.judge.diagnosis.altered.alteration import Extents
from bridge.judge.diagnosis.altered.calls import Altering, Call, Change, Instead, Recorder, settings_of
from bridge.judge.diagnosis.predictions.formulas import NUMBERS
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.diagnosis.predictions.updating import Updating
from bridge.judge.oracle import bounded
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.primitives import Watcher, watched

Array = np.ndarray
#: What is remembered from step to step, by name, and after how many updates
Memory = dict[str, bounded.Bounded]


def step(settings: Optimizer, w: bounded.Bounded, g: bounded.Bounded, memory: Memory, number: int
         ) -> tuple[bounded.Bounded, Memory]:
    """Return the weights after an update, and what is remembered.

    Parameters
    ----------
    number : of the update, from 1
    """
    if isinstance(settings, Adam):
        return _adam(settings, w, g, memory, number)
    assert isinstance(settings, Sgd)
    decayed = (g + w * settings.weight_decay).named("the gradient with the decay") if settings.weight_decay else g
    if not settings.momentum:
        return w - decayed * settings.lr, {}
    # The first step has the same calls as all others
    old, share = (memory["momentum"], 1 - settings.dampening) if memory else (g.exact(np.zeros(g.shape)), 1.0)
    old = old.named("the momentum buffer before")
    buffer = (old * settings.momentum + decayed * share).named("the momentum buffer")
    d = decayed + buffer * settings.momentum if settings.nesterov else buffer
    return w - d * settings.lr, {"momentum": buffer}


def _adam(settings: Adam, w: bounded.Bounded, g: bounded.Bounded, memory: Memory, number: int
          ) -> tuple[bounded.Bounded, Memory]:
    decoupled = isinstance(settings, AdamW)
    if settings.weight_decay and not decoupled:
        g = (g + w * settings.weight_decay).named("the gradient with the decay")
    none = g.exact(np.zeros(g.shape))
    m, v = (memory.get(name, none).named(f"the {words} before") for name, words in (
        ("exp_avg", "average of gradients"), ("exp_avg_sq", "average of squared gradients")))
    first = m * settings.beta1 + g * (1 - settings.beta1)
    second = v * settings.beta2 + g.squared() * (1 - settings.beta2)
    first, second = first.named("the average of gradients"), second.named("the average of squared gradients")
    top = (first / (1 - settings.beta1**number)).named("the corrected average of gradients")
    square = (second / (1 - settings.beta2**number)).named("the corrected average of squared gradients")
    d = top / (square.sqrt() + settings.eps)
    if settings.weight_decay and decoupled:
        d = d + w * settings.weight_decay
    return w - d.named("the direction") * settings.lr, {"exp_avg": first, "exp_avg_sq": second}


@dataclass(frozen=True)
class Update(Prediction):
    """New weights, or what is remembered, by a rule some of whose calls do something else.

    Attributes
    ----------
    updating : what is known of the update
    changes : by the place of the call
    settings : other ones than the right ones; None: these
    memory : the name of what is remembered; empty: the new weights
    """

    updating: Updating
    changes: Mapping[int, Change | Instead] = field(default_factory=dict)
    settings: Optimizer | None = None
    memory: str = ""

    def at(self, indices: Array) -> Array:
        return self.run(NUMBERS).value.reshape(-1)[indices]

    def full(self, arithmetic: Arithmetic) -> Predicted:
        found, right = self.run(arithmetic), self.updating.right()
        more = None if self.memory else right.error
        return Predicted(found.value, found.error if more is None else found.error + more)

    def run(self, arithmetic: Arithmetic, recorder: Recorder | None = None) -> bounded.Bounded:
        """Return the new weights, or the memory; `recorder` watches the last step, all others are altered."""
        known, u = self.updating, arithmetic.u
        remembered = known.remembered
        memory = {} if remembered is None else {
            name: bounded.Bounded(x, 0.0, arithmetic).named(f"the {name}") for name, x in remembered.tensors.items()}
        before = 0 if remembered is None else remembered.updates
        found = bounded.Bounded(known.weights[-1], 0.0, arithmetic)
        for k, (w, g, error) in enumerate(zip(known.weights, known.gradients, known.errors, strict=True)):
            last = k == len(known.gradients) - 1
            watcher: Watcher = recorder if recorder is not None and last else Altering(self.changes)
            for one in memory.values():
                one.call = None
            with watched(watcher):
                found, memory = step(
                    self.settings or known.settings, bounded.Bounded(w, 0.0, arithmetic).named("the weights"),
                    bounded.Bounded(g, error if u else 0.0, arithmetic).named("the gradient"), memory, before + k + 1)
        return memory[self.memory] if self.memory else found


@dataclass(frozen=True)
class UpdateFormula:
    """The rule of an update, to be evaluated with changes; as `bridge.judge.diagnosis.altered.formulas.Evaluated`.

    Attributes
    ----------
    updating, memory : as of `Update`
    """

    updating: Updating
    memory: str = ""

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.updating.found.shape

    def altered(self, made: Mapping[int, Change | Instead], other_way: bool = False) -> Prediction:
        """Return what makes the new weights when some calls do something else at every step."""
        return Update(self._shape, self.updating, made, memory=self.memory)

    def calls(self, *, other_way: bool = False) -> list[Call]:
        """Return the calls of the last step."""
        if other_way:
            return []
        settings, number = self.updating.settings, self.updating.number
        names = settings_of(settings)
        if isinstance(settings, Adam) and number > 1:
            names |= {1 - beta**number: f"1 - {name}**t" for name, beta in (
                ("beta1", settings.beta1), ("beta2", settings.beta2))}
        recorder = Recorder(names)
        return recorder.before(Update(self._shape, self.updating, memory=self.memory).run(Arithmetic(0.0), recorder))

    @property
    def extents(self) -> Extents:
        """Return no numbers: a rule has no counts."""
        return Extents({})

    @property
    def numbers(self) -> dict[str, float]:
        """Return the settings that are real numbers."""
        return {name: value for name, value in vars(self.updating.settings).items()
                if isinstance(value, float)}

    def in_words(self, name: str) -> str:
        """Return a setting."""
        return f"{self.numbers[name]:.6g}"

    def with_number(self, name: str, number: float) -> Prediction:
        """Return the new weights by another setting."""
        settings = replace(self.updating.settings, **{name: number})  # type: ignore[arg-type]
        return Update(self._shape, self.updating, settings=settings, memory=self.memory)

    @property
    def given(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return nothing: what a rule takes is among the operands of its calls."""
        return []

    @property
    def family(self) -> str:
        """Return the kind of another rule."""
        return "adam" if isinstance(self.updating.settings, Adam) else "momentum"

    def others(self) -> list[tuple[str, Prediction]]:
        """Return nothing: other rules are among the faults of updates."""
        return []

    def operands(self) -> list[tuple[str, str, Prediction]]:
        """Return nothing: other gradients are among the faults of updates."""
        return []
