# SPDX-License-Identifier: MIT
"""Judge the weights after every step: by the candidate's own gradients, and by the oracle's."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import numpy as np

from bridge.judge.measure.error_statistics import measure
from bridge.judge.measure.file_pair import FilePair, Parameters
from bridge.judge.measure.findings import NOT_IN_FILE, Comparison, Judged
from bridge.judge.measure.per_step import WIDE, width
from bridge.judge.oracle import update
from bridge.operations.pointwise import Relu
from bridge.operations.products import Conv2d

#: Share of a tensor's elements that must show their gradient; below, the update is refused
ENOUGH = 0.5
#: T from which on new weights are a bug: below, an order of operations that `oracle.update` does not name may do it
OTHER_ORDER = 4.0


class UpdateCheck:
    """The optimiser's memory over the steps, once from the candidate's own gradients, once from the oracle's."""

    def __init__(self, pair: FilePair, comparison: Comparison) -> None:
        self.pair, self.comparison = pair, comparison
        self.own, self.oracle = (update.memory_of(pair.optimizer, pair.remembered) for _ in range(2))
        #: of the step that is judged
        self.settings = pair.optimizer
        #: parameters of which is known what the optimiser remembers
        self.own_known = set(pair.start)
        self.oracle_known = set(pair.start)
        #: parameters of whose remembered gradients one is known by the whole step alone
        self.whole: set[str] = set()

    def forget(self) -> None:
        """A step could not be followed: what the optimiser remembers is unknown from here on."""
        if self.pair.optimizer.remembers:
            self.own_known.clear()
            self.oracle_known.clear()

    def run(self, k: int, weights: Parameters, gradients: dict[str, update.Bounded],
            whole: AbstractSet[str] = frozenset()) -> None:
        """Judge the weights after step k.

        Parameters
        ----------
        weights : before the step, float64
        gradients : the oracle's, with their bounds
        whole : names of those behind many operations, whose bounds may say nothing
        """
        self.whole = {*whole, *(self.whole if self.pair.optimizer.remembers else ())}
        self.settings = self.pair.optimizer_at(k)
        for name, w in weights.items():
            if name in self.pair.frozen:
                self._frozen(k, name, w)
                continue
            own = self._own_direction(k, name, w)
            oracle = self.oracle.direction(self.settings, name, w, gradients[name], self.pair.arithmetic)
            path = f"steps/{k + 1}/weights/{name}"
            if not self.pair.candidate.has(path):
                self.comparison.skip(f"update/{name}", k, "the weights after this step are not in the file")
                continue
            after = self.pair.candidate.read(path, w.shape)
            off = self.pair.rate_error_at(k)
            oracle = oracle[0], oracle[1] + off * np.abs(oracle[0])
            if own is not None:
                own = own[0], own[1] + off * np.abs(own[0])
                value, bound = update.new_weights(self.settings, w, own, self.pair.arithmetic)
                self.comparison.judged.append(Judged(f"optimizer/{name}", k, measure(after, value, bound), OTHER_ORDER))
                self._remembered(k, name)
            if self.pair.applied(k, name).startswith(f"steps/{k}/applied/"):
                self.comparison.skip(f"update/{name}", k, "the optimiser was given another gradient than this step's")
            elif name in self.oracle_known:
                self._against_oracle(k, name, w, after, oracle)
            else:
                self.comparison.skip(f"update/{name}", k, "an earlier step, which it remembers, is missing")

    def _frozen(self, k: int, name: str, w: np.ndarray) -> None:
        path = f"steps/{k + 1}/weights/{name}"
        if not self.pair.candidate.has(path):
            self.comparison.skip(f"update/{name}", k, "the weights after this step are not in the file")
            return
        statistic = measure(self.pair.candidate.read(path, w.shape), w, np.zeros(1))
        self.comparison.judged.append(Judged(f"update/{name}", k, statistic, 1.0, "frozen: no step may change it"))

    def _remembered(self, k: int, name: str) -> None:
        """What the optimiser remembers after step k, where the candidate's file has it."""
        expected = self.own.bounded(name)
        found = self.pair.memory(self.pair.candidate, k + 1, name) if expected else None
        if found is None:
            return
        for kind, (value, bound) in expected.items():
            statistic = measure(found.tensors[kind], value, bound)
            self.comparison.judged.append(Judged(f"memory/{name}/{kind}", k, statistic, OTHER_ORDER))

    def _own_direction(self, k: int, name: str, w: np.ndarray) -> update.Bounded | None:
        path = self.pair.applied(k, name)
        if not self.pair.candidate.has(path):
            if self.pair.optimizer.remembers:
                self.own_known.discard(name)
            self.comparison.skip(f"optimizer/{name}", k, f"its gradient is {NOT_IN_FILE}")
            return None
        g = self.pair.candidate.read(path, w.shape).astype(np.float64)
        direction = self.own.direction(self.settings, name, w, (g, np.zeros_like(g)), self.pair.arithmetic)
        if name not in self.own_known:
            self.comparison.skip(f"optimizer/{name}", k, "an earlier gradient, which it remembers, is missing")
            return None
        return direction

    def _against_oracle(self, k: int, name: str, w: np.ndarray, after: np.ndarray, oracle: update.Bounded) -> None:
        """(w0 - w1)/lr against the oracle's gradient; agreement counts only where lr lets the gradient be seen."""
        lr = self.settings.lr
        if lr == 0:
            statistic = measure(after, w, np.zeros(1))
            self.comparison.judged.append(Judged(f"update/{name}", k, statistic, 1.0, "lr = 0: no weight may move"))
            return
        w0, w1 = w.astype(self.pair.dtype), after.astype(self.pair.dtype)
        found = update.taken(self.settings, w0, w1, oracle, self.pair.arithmetic, given=k == 0)
        statistic = measure(found.step, found.expected, found.bound)
        has_gradient = self.pair.candidate.has(f"steps/{k}/grads/{name}")
        share = width(found.expected, found.bound)
        if statistic.t <= 1 and name in self.whole and not statistic.t * share <= WIDE:
            self.comparison.skip(f"update/{name}", k, f"after so many operations rounding may be {share:.2g} of its "
                                 "gradient: the inputs of that, which would show more, are not in the file",
                                 hidden=not has_gradient, measured=True)
            return
        # A gradient that is judged by itself need not be seen to its last digit in the step that it made: beside much
        # larger weights a hundredth of it is enough
        strict = self.pair.model.graph.consists_of(Conv2d, Relu)
        if statistic.t <= 1 and found.visible < ENOUGH and (strict or share > WIDE):
            self.comparison.skip(
                f"update/{name}",
                k,
                f"lr = {lr:g} is too small: the last digit of the weights hides "
                f"the gradient; lr = {found.lr_needed:g} would do"
                f"{'' if has_gradient else ', and that gradient is not in the file'}",
                hidden=not has_gradient,
                measured=True,
            )
            return
        note = "" if found.visible == 1 else f"{found.visible:.0%} of the elements can be seen at this lr"
        self.comparison.judged.append(Judged(f"update/{name}", k, statistic, note=note))
