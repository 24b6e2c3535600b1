# SPDX-License-Identifier: MIT
"""The tensors of a pair of files as cases for the search."""

from __future__ import annotations

import math

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.predictions.step_graph import INPUT, TARGET, StepGraph
from bridge.judge.diagnosis.predictions.update_cases import new_weights_case
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison, Judged

Array = np.ndarray

#: Pixels below which products are too small to be shared by cores, and whole steps are computed once more
SMALL_BATCH = 2**17


class Cases:
    """Makes the case of any tensor of any step.

    Parameters
    ----------
    pair, comparison : the files, and what was found
    deadline : on the clock of a search, when that for the fault of the tensor that is looked at ends; it is moved
    """

    def __init__(self, pair: FilePair, comparison: Comparison, deadline: float) -> None:
        self.pair, self.comparison, self.deadline = pair, comparison, deadline
        #: images are not large: a whole step may be computed for one tensor
        self.small = math.prod(pair.batch_shape) < SMALL_BATCH
        #: right steps of which nothing is in the file, by number
        self.recomputed: dict[int, StepGraph] = {}
        self._graphs: dict[int, StepGraph] = {}

    def later(self, judged: Judged) -> list[Judged]:
        """Return the same tensor at the later steps at which it is wrong; a run that diverges tells nothing more."""
        return [one for one in self.comparison.failures
                if one.name == judged.name and one.step > judged.step and not one.statistic.nonfinite]

    def case_of(self, judged: Judged) -> Case | None:
        """Return the case of a tensor of a step, or of new weights; None of what the optimiser remembers."""
        if judged.name.startswith("memory/"):
            return None
        updated = judged.name.startswith(("optimizer/", "update/"))
        return self.update_case(judged) if updated else self.case(judged.name, judged.step)

    def graph(self, step: int) -> StepGraph | None:
        """Return the graph of a step; None where its weights are not known."""
        if step < 0:
            return None
        if step not in self._graphs:
            weights = self.pair.start if step == 0 else self.pair.parameters(self.pair.candidate, step)
            if weights is None or not all(np.isfinite(w).all() for w in weights.values()):
                return None
            # One step at a time: its tensors may be gigabytes
            wide = {name: w.astype(np.float64) for name, w in weights.items()}
            self._graphs = {step: StepGraph(self.pair, step, wide)}
        return self._graphs[step]

    def recompute(self, graph: StepGraph) -> StepGraph:
        """Return the right step from the same weights, of which nothing is in the file; its images are not large."""
        if graph.step not in self.recomputed:
            self.recomputed[graph.step] = StepGraph(self.pair, graph.step, graph.weights,
                                                    ignored=frozenset(self.pair.shapes))
        return self.recomputed[graph.step]

    def case(self, name: str, step: int) -> Case | None:
        """Return a tensor of a step as a case; None where its inputs are garbage.

        NaN is the fault of the first tensor that has it.
        """
        graph = self.graph(step)
        if graph is None:
            return None
        given = [other for other in graph.inputs(name) if other not in (INPUT, TARGET) and graph.given(other)]
        if not all(np.isfinite(graph.found(other)).all() for other in given):
            return None
        before = StepGraph(self.pair, step - 1, self.pair.start) if step else None
        return Case(name, graph, graph.operation(name), graph.found(name), before, self._earlier(name, step))

    def update_case(self, judged: Judged) -> Case | None:
        """Return new weights, ``optimizer/...`` or ``update/...``; None where what they follow from is not known."""
        sort, _, parameter = judged.name.partition("/")
        graph = self.graph(judged.step)
        own = sort == "optimizer"
        return None if graph is None else new_weights_case(self.pair, graph, judged.step, parameter, own, self.graph)

    def _earlier(self, name: str, step: int) -> dict[str, Array]:
        """What the memory of a tensor held at earlier steps, by description."""
        if name == "loss":
            return {}
        graphs = [StepGraph(self.pair, k, self.pair.start) for k in range(step)]
        olds = [graph.own(name) for graph in graphs]
        known = [old for old in olds if old is not None]
        found: dict[str, Array] = {}
        if step and olds[-1] is not None:
            found["the step before"] = olds[-1]
        if len(known) > 1 and len(known) == step:
            found["all steps before"] = np.sum(known, axis=0)
        for k, old in enumerate(olds[:-1]):
            if old is not None:
                found[f"step {k}"] = old
        return found
