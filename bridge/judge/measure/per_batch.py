# SPDX-License-Identifier: MIT
"""The tensors of one step of a graph of operations, a whole batch at a time, against the oracle."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from bridge.judge.measure.error_statistics import Statistic, measure
from bridge.judge.measure.file_pair import FilePair, Parameters
from bridge.judge.measure.per_image import reference_counts, twin_counts
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.choices import Sums
from bridge.judge.oracle.graph_step import GraphStep, SumsVisitor, Visitor

Array = np.ndarray

#: In place of an infinite bound
VAST = 1e300
#: Note of a tensor whose elements pass and whose sums do not
SUMS = "sums along the axes within which its readers choose a place for it, whichever of equal numbers takes it"


@dataclass
class BatchVisitor:
    """Compares what the oracle says of a batch.

    Attributes
    ----------
    candidate, local, reference, twin : statistics by tensor name
        The candidate's tensors, the same against its own inputs, PyTorch's own, and PyTorch's float64 twins.
    gradients : of the parameters by name, and their bounds: as they follow from the candidate's own inputs of the
        operation, where its file holds these, else by the whole step
    whole : names of the parameters whose gradients are known by the whole step alone
    width : the whole step's bound of a tensor as a share of it, see `width`
    sums : statistics of sums that choices between equal numbers leave as they are, by tensor name
    narrow : names of tensors that the file holds in fewer bytes than the candidate computes with
    """

    pair: FilePair
    step: int
    candidate: dict[str, Statistic] = field(default_factory=dict)
    local: dict[str, Statistic] = field(default_factory=dict)
    reference: dict[str, Statistic] = field(default_factory=dict)
    twin: dict[str, Statistic] = field(default_factory=dict)
    gradients: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    width: dict[str, float] = field(default_factory=dict)
    sums: dict[str, Statistic] = field(default_factory=dict)
    narrow: set[str] = field(default_factory=set)

    def __call__(self, name: str, truth: Bounded, local: Bounded | None, /) -> Array | None:
        """Compare one tensor, see `bridge.judge.oracle.graph_step.Visitor`."""
        pair, path, shape = self.pair, f"steps/{self.step}/{name}", self.pair.shapes[name]
        known = local is not None and bool(np.isfinite(local.value).all())
        parameter = name.removeprefix("grads/")
        if parameter in pair.start:
            self._gradient(parameter, local if known else None, truth)
        theirs = not self.pair.has_own_masks(self.step)
        if theirs and reference_counts(pair, self.step) and pair.reference.has(path):
            self.reference[name] = _compared(pair.reference.read(path, shape), truth)
        if theirs and twin_counts(pair, self.step) and pair.reference.has(f"oracle/{path}"):
            self.twin[name] = _compared(pair.reference.read(f"oracle/{path}", shape), truth)
        if not pair.candidate.has(path):
            return None
        found = pair.candidate.read(path, shape)
        self.width[name] = width(truth.value, truth.error)
        self.candidate[name] = _compared(found, truth)
        # A copy of fewer bytes than the candidate computes with says nothing to the last bit
        if found.dtype.itemsize < pair.dtype.itemsize:
            self.narrow.add(name)
        elif local is not None and known:
            self.local[name] = _compared(found, local)
        return found if np.isfinite(found).all() else None

    def of_sums(self, name: str, readers: tuple[str, ...], right: Sums) -> None:
        """Compare sums of a gradient, see `bridge.judge.oracle.graph_step.SumsVisitor`."""
        path, shape = f"steps/{self.step}/{name}", self.pair.shapes[name]
        known = np.isfinite(right.value).all() and np.isfinite(right.bound).all()
        if known and self.pair.candidate.has(path) and self.narrow.isdisjoint((name, *readers)):
            found = self.pair.candidate.read(path, shape).sum(right.axes, dtype=np.float64)
            self.sums[name] = measure(*(np.atleast_1d(one) for one in (found, right.value, right.bound)))

    def _gradient(self, parameter: str, local: Bounded | None, truth: Bounded) -> None:
        sharper = truth if local is None else local
        self.gradients[parameter] = sharper.value, limit(sharper)
        if local is None:
            self.whole.add(parameter)


def visit_graph(pair: FilePair, step: int, weights: Parameters) -> BatchVisitor:
    """Take a batch through the oracle of the graph.

    Parameters
    ----------
    weights : float64
    """
    visitor = BatchVisitor(pair, step)
    run_graph(pair, step, weights, visitor, visitor.of_sums)
    return visitor


def run_graph(pair: FilePair, step: int, weights: Parameters, visit: Visitor, visit_sums: SumsVisitor | None = None
              ) -> None:
    """Show every tensor of a step of the oracle to `visit`, and sums to `visit_sums`; the weights are float64."""
    known = weights | pair.state(step) | pair.masks(step)
    one = GraphStep(pair.model.graph, pair.model.criterion, known, pair.arithmetic, visit, visit_sums)
    one.run(pair.whole_batch(step, "input"), pair.whole_batch(step, "target"))


def width(value: Array, bound: Array) -> float:
    """Return the bound as a share of the value, both in the Euclidean norm; infinite where the bound is.

    >>> width(np.array([3.0, -4.0]), np.array([0.5, 0.0]))
    0.1
    """
    size, room = float(np.linalg.norm(value)), float(np.linalg.norm(bound))
    found = room / size if size > 0 else room and math.inf
    return found if math.isfinite(found) else math.inf


def _compared(found: Array, truth: Bounded) -> Statistic:
    """Also of a scalar."""
    return measure(*(np.atleast_1d(array) for array in (found, truth.value, limit(truth))))


def limit(truth: Bounded) -> Array:
    """Return the bound; one that has overflowed behind many operations proves nothing: anything finite is inside it.
    """
    return np.where(np.isfinite(truth.value), np.nan_to_num(truth.error, nan=VAST, posinf=VAST), truth.error)
