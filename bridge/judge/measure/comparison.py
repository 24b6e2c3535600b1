# SPDX-License-Identifier: MIT
"""Measure a candidate's file: every tensor of every step against float64 truth and its bound.

Steps are *teacher-forced*: the oracle of step k starts from the candidate's own weights before step k, so the
bounds stay those of one step, and a fault shows at the step where it happens.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from bridge.common.errors import FileError
from bridge.common.number_format import short
from bridge.common.progress import Report
from bridge.judge.measure.error_statistics import Statistic, measure
from bridge.judge.measure.file_pair import FilePair, Parameters, refuse_copy
from bridge.judge.measure.findings import NOT_IN_FILE, Comparison, Judged, bug_above, sharper
from bridge.judge.measure.per_step import SUMS, WIDE, StepVisitor, visit_step
from bridge.judge.measure.unjudged import list_unjudged, list_unknown
from bridge.judge.measure.updates import UpdateCheck
from bridge.judge.oracle.error_model import total_roundoff
from bridge.operations.pointwise import Dropout

Array = np.ndarray

#: Note of a tensor whose bound is no theorem
ESTIMATED = "its bound is estimated"
#: Roundings of an operation whose formula does not count them: above its bound it is in doubt before it is a bug
MANY = 10**6

#: Standard deviations that the number of kept elements may be off: once in 10**9
SIGMAS = 6

#: Torch's float64 and ours differ by float64 rounding, far below a float32 bound
TWIN_LIMIT = {"float32": 1e-3, "float64": 1.0}


def compare(pair: FilePair, progress: Report | None = None) -> Comparison:
    """Compare a result with its fixture, by the precision of the pair.

    Parameters
    ----------
    pair : the two files
    progress : called as ``progress(done, total)`` after every image

    Raises
    ------
    FileError
        If nothing can be compared, or the fixture disagrees with its own float64 oracle.
    """
    # A candidate's NaN and infinity are judged, not warned of
    with np.errstate(over="ignore", invalid="ignore"):
        refuse_copy(pair)
        comparison = _Comparer(pair, progress).run()
    if not comparison.says_something:
        raise FileError(
            f"{pair.candidate.path}: no tensor that {pair.reference.path} asks for was computed: "
            "nothing was compared" + _listed(comparison)
        )
    return comparison


def _listed(comparison: Comparison) -> str:
    unknown = [skipped.name for skipped in comparison.not_judged if skipped.unknown]
    return f" (names that are unknown: {', '.join(unknown[:4])})" if unknown else ""


class _Comparer:
    """The state of one comparison: two files, the steps done so far."""

    def __init__(self, pair: FilePair, progress: Report | None) -> None:
        self.pair, self.progress = pair, progress
        self.comparison = Comparison(
            pair.model,
            pair.candidate.precision,
            pair.steps,
            pair.batch_shape,
            declared="precision" in pair.candidate.attributes,
        )
        self.updates = UpdateCheck(pair, self.comparison)

    def run(self) -> Comparison:
        self._first_weights()
        for k in range(self.pair.steps):
            weights = self._weights(k)
            if weights is None:
                self.updates.forget()
                continue
            visitor = self._step(k, weights)
            self.updates.run(k, weights, visitor.gradients, visitor.whole)
            for judged in self.comparison.judged:
                # Steps follow from gradients
                judged.estimated |= judged.step == k and judged.name.replace("update", "grads", 1) in visitor.estimated
        list_unjudged(self.pair, self.comparison)
        list_unknown(self.pair, self.comparison)
        self._divergence()
        self.comparison.judged.sort(key=self._order)
        return self.comparison

    def _step(self, k: int, weights: Parameters) -> StepVisitor:
        """Judge the tensors of a step, and check the fixture by its own oracle at step 0."""
        self._masks(k)
        visitor = visit_step(self.pair, k, weights, partial(self._report, k))
        candidate, local = visitor.candidate.merged(), visitor.local.merged()
        for name in self.pair.shapes:
            if name not in candidate:
                if not self.pair.candidate.has(f"steps/{k}/{name}"):
                    self.comparison.skip(name, k, NOT_IN_FILE)
                continue
            judged, summed = Judged(name, k, candidate[name]), visitor.sums.get(name)
            if (n := visitor.roundings[name]) is not None:
                judged.bug_above = bug_above(n)
            odd = summed is not None and not summed.t <= 1
            wide = visitor.width.get(name, 0.0)
            if judged.passed and not odd and name not in local and not judged.t * wide <= WIDE:
                self.comparison.skip(name, k, f"after so many operations rounding may be {wide:.2g} of it: the inputs "
                                     "of its operation, which would show more, are not in the file",
                                     hidden=True, measured=True)
                continue
            n = visitor.local_roundings.get(name)
            judged = sharper(judged, local.get(name), MANY if n is None else n, visitor.lacking.get(name, ()))
            # Also where the whole step is wrong already: it is so by its own inputs
            if odd and summed is not None and (judged.passed or (name in local and local[name].t <= 1)):
                judged = Judged(name, k, summed, note=SUMS)
            if name in visitor.estimated:
                judged.estimated, judged.note = True, "; ".join(filter(None, [judged.note, ESTIMATED]))
            self.comparison.judged.append(judged)
        reference, twins = visitor.reference.merged(), visitor.twin.merged()
        self._check_fixture("PyTorch's", reference, 1.0)
        self._check_twins(k, weights, twins)
        self.comparison.note_reference(reference.values())
        if twins:
            self.comparison.twin_t = max(s.t for s in twins.values())
        return visitor

    def _masks(self, k: int) -> None:
        """The candidate's own masks keep as many as they should."""
        for node in self.pair.model.graph.nodes:
            path = f"steps/{k}/masks/{node.name}"
            if isinstance(node, Dropout) and self.pair.candidate.has(path):
                mask = self.pair.masks(k)[f"{node.name}/mask"]
                sigma = math.sqrt(mask.size * node.p * (1 - node.p))
                found, expected = np.array([mask.sum()]), np.array([mask.size * (1 - node.p)])
                statistic = measure(found, expected, np.array([SIGMAS * sigma]))
                self.comparison.judged.append(
                    Judged(f"masks/{node.name}", k, statistic, 1.0, f"how many are kept, within {SIGMAS} sigma"))

    def _report(self, step: int, images: int) -> None:
        if self.progress:
            batch = self.pair.batch_shape[0]
            self.progress(step * batch + images, self.pair.steps * batch)

    def _first_weights(self) -> None:
        """The candidate must start from the fixture's weights, to the bit."""
        for name, w in self.pair.start.items():
            path = f"steps/0/weights/{name}"
            if not self.pair.candidate.has(path):
                self.comparison.skip(f"weights/{name}", 0, NOT_IN_FILE)
                continue
            found = self.pair.candidate.read(path, w.shape)
            statistic = measure(found, w.astype(np.float64), np.zeros(1))
            self.comparison.judged.append(
                Judged(f"weights/{name}", 0, statistic, bug_above=1.0, note="must be the fixture's, to the bit")
            )

    def _weights(self, k: int) -> Parameters | None:
        """Float64 weights of step k: the fixture's at first, then the candidate's own."""
        candidate = self.pair.candidate
        before = self.pair.start if k == 0 else self.pair.parameters(candidate, k)
        if before is None:
            self.comparison.skip("all tensors", k, "the weights before this step are not in the file")
            return None
        if not any(candidate.has(f"steps/{k}/{name}") for name in self.pair.shapes) and not any(
            candidate.has(f"steps/{k + 1}/weights/{name}") for name in before
        ):
            self.comparison.skip("all tensors", k, NOT_IN_FILE)
            return None
        if not all(np.isfinite(w).all() for w in before.values()):
            # Judged where they came from: the update of the step before
            self.comparison.skip("all tensors", k, "the weights before this step are not finite")
            return None
        return {name: w.astype(np.float64) for name, w in before.items()}

    def _check_twins(self, k: int, weights: Parameters, twins: dict[str, Statistic]) -> None:
        """Of equal numbers torch's float64 may have chosen another than the oracle. A bound of float32 holds that whole
        choice; one of float64 tells whether float64's rounding left it open."""
        limit = TWIN_LIMIT[self.pair.precision]
        if self.pair.precision == "float32" and any(not s.t <= limit for s in twins.values()):
            pair = self.pair.judged_with(u=total_roundoff("float64"))
            twins, limit = visit_step(pair, k, weights).twin.merged(), TWIN_LIMIT["float64"]
        self._check_fixture("PyTorch's float64 twin", twins, limit)

    def _check_fixture(self, what: str, statistics: dict[str, Statistic], limit: float) -> None:
        for name, statistic in statistics.items():
            if not statistic.t <= limit:
                wrong = "holds NaN or infinity" if statistic.nonfinite else f"disagrees (T = {short(statistic.t)})"
                raise FileError(
                    f"{self.pair.reference.path}: {what} steps/0/{name} {wrong} at {statistic.at}, judged "
                    "by the float64 oracle: this fixture cannot judge anybody"
                )

    def _order(self, judged: Judged) -> tuple[int, int]:
        names = list(self.pair.shapes)
        kind = judged.name.partition("/")[0]
        place = {"weights": -1, "masks": -1, "optimizer": len(names), "update": len(names) + 1,
                 "memory": len(names) + 2}.get(kind)
        return judged.step, names.index(judged.name) if place is None else place

    def _divergence(self) -> None:
        """Free-running distance after every step; none where weights were not judged."""
        if any(skipped.name.startswith("weights/") and skipped.hidden for skipped in self.comparison.not_judged):
            return
        found = [self._distance(k) for k in range(1, self.pair.steps + 1)]
        known = [distance for distance in found if math.isfinite(distance)]
        self.comparison.divergences = found if known else []
        self.comparison.divergence = known[-1] if known else None

    def _distance(self, k: int) -> float:
        """|w_k - w_k*| / |w_k* - w_0|; NaN where a file lacks weights, they are not finite, or w* has not moved."""
        ours, theirs = (self.pair.parameters(file, k) for file in (self.pair.candidate, self.pair.reference))
        if ours is None or theirs is None:
            return math.nan
        flat = [
            np.concatenate([d[name].astype(np.float64).ravel() for name in self.pair.start])
            for d in (ours, theirs, self.pair.start)
        ]
        moved = float(np.linalg.norm(flat[1] - flat[2]))
        return float(np.linalg.norm(flat[0] - flat[1])) / moved if moved > 0 else math.nan
