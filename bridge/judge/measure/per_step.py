# SPDX-License-Identifier: MIT
"""The tensors of one step against the oracle."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bridge.judge.measure.error_statistics import Statistic, measure, measure_all
from bridge.judge.measure.file_pair import FilePair, Parameters
from bridge.judge.measure.walk import streams, walk
from bridge.judge.oracle.choices import Sums
from bridge.judge.oracle.graph_step import UNUSABLE
from bridge.judge.oracle.reductions import Truth

Array = np.ndarray

#: Share of a tensor, in the Euclidean norm, from which on agreement within it proves nothing: what a right one is off
#: is at most T times the bound in each element
WIDE = 0.01
#: Note of a tensor whose elements pass and whose sums do not
SUMS = "sums along the axes within which its readers choose a place for it, whichever of equal numbers takes it"


class Parts(dict[str, dict[int, Statistic]]):
    """Statistics of tensors by name, and by image; those of a whole tensor are as of one image."""

    def put(self, name: str, image: int | None, statistic: Statistic) -> None:
        """Add those of an image, of any thread."""
        self.setdefault(name, {})[image or 0] = statistic

    def merged(self) -> dict[str, Statistic]:
        """Return those of the batch: images are merged in their order, so results do not depend on threads."""
        found: dict[str, Statistic] = {}
        for name, images in self.items():
            found[name] = Statistic()
            for image in sorted(images):
                found[name].merge(images[image])
        return found


@dataclass
class StepVisitor:
    """Compares what the oracle says of a step.

    Attributes
    ----------
    candidate, local, reference, twin : statistics by tensor name, and by image
        The candidate's tensors, the same against its own inputs, PyTorch's own, and PyTorch's float64 twins.
    roundings, local_roundings : largest number of roundings in an element of `candidate` whose operands are exact, and
        of `local`, where that is counted
    gradients : of the parameters by name, and their bounds. Of a step that is taken as a whole they follow from the
        candidate's own inputs of the operation, where its file holds these
    whole : names of the parameters whose gradients are known by the whole step alone, where that may prove little
    width : the whole step's bound of a tensor as a share of it, see `width`, where it may prove little
    sums : statistics of sums that choices between equal numbers leave as they are, by tensor name
    narrow : names of tensors that the file holds in fewer bytes than the candidate computes with
    estimated : names of tensors whose bounds are estimated
    lacking : by the name of a tensor that is in `local`, those that the file lacks before it
    """

    pair: FilePair
    step: int
    candidate: Parts = field(default_factory=Parts)
    local: Parts = field(default_factory=Parts)
    reference: Parts = field(default_factory=Parts)
    twin: Parts = field(default_factory=Parts)
    roundings: dict[str, int | None] = field(default_factory=dict)
    local_roundings: dict[str, int | None] = field(default_factory=dict)
    gradients: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    width: dict[str, float] = field(default_factory=dict)
    sums: dict[str, Statistic] = field(default_factory=dict)
    narrow: set[str] = field(default_factory=set)
    estimated: set[str] = field(default_factory=set)
    lacking: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __call__(self, name: str, truth: Truth, local: Truth | None, image: int | None, /) -> Array | None:
        """Compare one tensor, see `bridge.judge.measure.walk.Look`."""
        pair, path, shape = self.pair, f"steps/{self.step}/{name}", self.pair.shapes[name]
        tensors: dict[str, Array] = {}
        if not pair.has_own_masks(self.step):
            if reference_counts(pair, self.step) and pair.reference.has(path):
                tensors["reference"] = pair.reference.read(path, shape, image)
            if twin_counts(pair, self.step) and pair.reference.has(f"oracle/{path}"):
                tensors["twin"] = pair.reference.read(f"oracle/{path}", shape, image)
        if pair.candidate.has(path):
            tensors["candidate"] = pair.candidate.read(path, shape, image)
        for kind, statistic in zip(tensors, compared([*tensors.values()], truth, image), strict=True):
            getattr(self, kind).put(name, image, statistic)
        found = tensors.get("candidate")
        if found is not None:
            self.roundings[name] = truth.n
            if not streams(pair.model):
                near = truth.alone is not None and bool((np.abs(found - truth.value) <= truth.alone).all())
                self.width[name] = 0.0 if near else width(truth.value, truth.bound)
            local = self._replayed(name, found, local, image)
        elif local is not None and (not np.isfinite(local.value).all() or self._proves_little(local)):
            local = None
        if (truth if local is None else local).estimated:
            self.estimated.add(name)
        if (parameter := name.removeprefix("grads/")) in pair.start:
            self._gradient(parameter, truth, local)
        return found if found is None or self._finite(name, found, image) else UNUSABLE

    def _replayed(self, name: str, found: Array, local: Truth | None, image: int | None) -> Truth | None:
        """Against the candidate's own inputs; None where those give what is not finite."""
        narrow = found.dtype.itemsize < self.pair.dtype.itemsize
        if narrow:
            self.narrow.add(name)
        if local is None:
            return None
        (statistic,) = compared([found], local, image)
        if statistic.nonfinite and not np.isfinite(local.value).all():
            return None
        if statistic.t <= 1 and self._proves_little(local, statistic.t):
            return None
        if local.lacking:
            self.lacking[name] = local.lacking
        # A copy of fewer bytes than the candidate computes with says nothing to the last bit
        if not (narrow or local.stored < self.pair.dtype.itemsize) or local.n:
            self.local.put(name, image, statistic)
            self.local_roundings[name] = local.n
        return local

    def _proves_little(self, local: Truth, t: float = 1.0) -> bool:
        """Whether it follows from tensors so far before it that agreement to a share t of the bound says little."""
        return bool(local.lacking) and not t * width(local.value, local.bound) <= WIDE

    def _finite(self, name: str, found: Array, image: int | None) -> bool:
        """Whether an own tensor can be computed with; the whole of a comparison says it at once, where that is."""
        return self.candidate[name][image or 0].nonfinite == 0 or bool(np.isfinite(found).all())

    def of_sums(self, name: str, readers: tuple[str, ...], right: Sums) -> None:
        """Compare sums of a gradient, see `bridge.judge.oracle.graph_step.SumsVisitor`."""
        path, shape = f"steps/{self.step}/{name}", self.pair.shapes[name]
        known = np.isfinite(right.value).all() and np.isfinite(right.bound).all()
        if known and self.pair.candidate.has(path) and self.narrow.isdisjoint((name, *readers)):
            found = self.pair.candidate.read(path, shape).sum(right.axes, dtype=np.float64)
            self.sums[name] = measure(*(np.atleast_1d(one) for one in (found, right.value, right.bound)))

    def _gradient(self, parameter: str, truth: Truth, local: Truth | None) -> None:
        if streams(self.pair.model):
            self.gradients[parameter] = truth.value, truth.bound
            return
        sharper = truth if local is None else local
        self.gradients[parameter] = sharper.value, sharper.bound
        if local is None:
            self.whole.add(parameter)


def reference_counts(pair: FilePair, step: int) -> bool:
    """Return whether the reference's own tensors belong to these weights (step 0) and this bound (its precision)."""
    return step == 0 and pair.reference.precision == pair.precision


def twin_counts(pair: FilePair, step: int) -> bool:
    """Return whether the twins belong to these weights and images, which may be rounded for the candidate."""
    return step == 0 and (pair.reference.precision == "float32" or pair.precision == "float64")


def visit_step(pair: FilePair, step: int, weights: Parameters, done: Callable[[int], None] | None = None
               ) -> StepVisitor:
    """Compare a step; the weights are float64, and `done` is called with the number of finished images."""
    visitor = StepVisitor(pair, step)
    walk(pair, step, weights, visitor, sums=visitor.of_sums, done=done)
    return visitor


def width(value: Array, bound: Array) -> float:
    """Return the bound as a share of the value, both in the Euclidean norm; infinite where the bound is.

    >>> width(np.array([3.0, -4.0]), np.array([0.5, 0.0]))
    0.1
    """
    size, room = float(np.linalg.norm(value)), float(np.linalg.norm(bound))
    found = room / size if size > 0 else room and math.inf
    return found if math.isfinite(found) else math.inf


def compared(tensors: list[Array], truth: Truth, image: int | None = None) -> list[Statistic]:
    """Compare tensors of one value, also scalars."""
    value, bound = np.atleast_1d(truth.value), np.atleast_1d(truth.bound)
    return measure_all([np.atleast_1d(one) for one in tensors], value, bound, image=image)
