# SPDX-License-Identifier: MIT
"""What is known of one parameter's last update, and the new weights by any rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bridge.exchange.optimizers import Optimizer
from bridge.judge.diagnosis.predictions.operations import Given
from bridge.judge.oracle import update
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.optimizers.sgd import Momentum

Array = np.ndarray


@dataclass(frozen=True)
class Updating:
    """One parameter's last update.

    Attributes
    ----------
    settings : the right ones, with the learning rate of this step
    name : of the parameter
    weights : before each step up to this one
    gradients : of each step up to this one
    errors : bounds on the gradients
    others : gradients of this step of parameters of the same shape, by name
    found : the weights after the step
    arithmetic : of the candidate
    trained : of a frozen parameter, the settings that all others are updated with
    rates : the learning rates of other steps, by words for them
    own_rates : the learning rate of each step up to this one
    norms : Euclidean norms of the gradients of all parameters together, of each step; empty where one is not known
    images : in a batch
    parameters : how many are updated in each step
    before : weights and gradients of other parameters of the same shape at the steps before this one, by name; as many
        as of this parameter, or none
    others_weights : weights of this step of the parameters in `others`
    remembered : what the optimiser remembers before the first of these steps; None: nothing
    rate_error : see `bridge.judge.measure.file_pair.FilePair.rate_error_at`
    """

    settings: Optimizer
    name: str
    weights: list[Array]
    gradients: list[Array]
    errors: list[Array]
    others: dict[str, Array]
    found: Array
    arithmetic: Arithmetic
    trained: Optimizer | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    own_rates: tuple[float, ...] = ()
    norms: tuple[float, ...] = ()
    images: int = 1
    parameters: int = 1
    before: Mapping[str, list[tuple[Array, Array]]] = field(default_factory=dict)
    others_weights: Mapping[str, Array] = field(default_factory=dict)
    remembered: update.Remembered | None = None
    rate_error: float = 0.0

    @property
    def u(self) -> float:
        """Return the unit roundoff."""
        return self.arithmetic.u

    @property
    def number(self) -> int:
        """Return the number of the last step, counted from 1."""
        return len(self.gradients) + (self.remembered.updates if self.remembered else 0)

    def memory(self, settings: Optimizer) -> update.Memory:
        """Return what the optimiser remembers before the first of the steps."""
        return self._begun(update.memory_of(settings))

    def _begun(self, memory: update.Memory) -> update.Memory:
        if self.remembered is not None:
            memory.remember(self.name, self.remembered.tensors, self.remembered.updates)
        return memory

    def right(self) -> Given:
        """Return the new weights by the right rule."""
        return self.by(self.settings)

    def by(
        self,
        settings: Optimizer,
        gradients: list[Array] | None = None,
        factor: float = 1.0,
        first: float = 1.0,
        last: tuple[Array, Array] | None = None,
        memory: update.Memory | None = None,
        *,
        last_alone: bool = False,
    ) -> Given:
        """Return the new weights by another rule, or from other gradients.

        Parameters
        ----------
        factor : of the last step that is taken
        first : of the momentum buffer after the first step
        last : another gradient of the last step, and its bound
        memory : of another rule; empty, and begun with what is remembered before the first step
        last_alone : nothing is remembered of the steps before
        """
        memory = memory or update.memory_of(settings)
        if not last_alone:
            self._begun(memory)
        d, e = np.zeros(1), np.zeros(1)
        known = list(zip(gradients or self.gradients, self.errors, strict=True))
        if last is not None:
            known[-1] = last
        every = list(zip(self.weights, known, strict=True))
        for k, (w, bounded) in enumerate(every[-1:] if last_alone else every):
            d, e = memory.direction(settings, self.name, w, bounded, self.arithmetic)
            if k == 0 and first != 1.0 and isinstance(memory, Momentum) and self.name in memory.buffers:
                memory.buffers[self.name] = d, e = first * d, abs(first) * e + 4 * self.u * np.abs(d)
        off = self.rate_error + (0.0 if factor == 1.0 else 4 * self.u)
        taken = factor * d, abs(factor) * e + off * np.abs(factor * d)
        value, bound = update.new_weights(settings, self.weights[-1], taken, self.arithmetic)
        return Given(value.shape, value, bound)

    def repeated(self, times: int) -> Given:
        """Return the new weights after every step was taken several times, with the same gradient."""
        memory, w, error = self.memory(self.settings), self.weights[0], np.zeros(1)
        for before, gradient, bound in zip(self.weights, self.gradients, self.errors, strict=True):
            w, error = before, np.zeros(1)
            for _ in range(times):
                direction = memory.direction(self.settings, self.name, w, (gradient, bound), self.arithmetic)
                w, rounded = update.new_weights(self.settings, w, direction, self.arithmetic)
                error = error + rounded
        return Given(w.shape, w, error)

    def sharing_memory_with(self, other: str, *, after: bool) -> Given:
        """Return the new weights if both parameters use one momentum buffer.

        Parameters
        ----------
        after : this one is updated after the other
        """
        memory, taken = Momentum(), (np.zeros(1), np.zeros(1))
        theirs = [*self.before.get(other, []), (self.others_weights[other], self.others[other])]
        own = list(zip(self.weights, self.gradients, self.errors, strict=True))
        for (w, gradient, error), (w_other, g_other) in zip(own, theirs, strict=True):
            if after:
                memory.direction(self.settings, self.name, w_other, (g_other, np.zeros(1)), self.arithmetic)
            taken = memory.direction(self.settings, self.name, w, (gradient, error), self.arithmetic)
            if not after:
                memory.direction(self.settings, self.name, w_other, (g_other, np.zeros(1)), self.arithmetic)
        value, bound = update.new_weights(self.settings, self.weights[-1], taken, self.arithmetic)
        return Given(value.shape, value, bound)

    def with_memory_of(self, other: str) -> Given:
        """Return the new weights if the optimiser finds what it remembers of another parameter; it is momentum."""
        memory = Momentum()
        for w, gradient in self.before[other]:
            memory.direction(self.settings, self.name, w, (gradient, np.zeros(1)), self.arithmetic)
        given = self.gradients[-1], self.errors[-1]
        taken = memory.direction(self.settings, self.name, self.weights[-1], given, self.arithmetic)
        value, bound = update.new_weights(self.settings, self.weights[-1], taken, self.arithmetic)
        return Given(value.shape, value, bound)
