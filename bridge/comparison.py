# SPDX-License-Identifier: MIT
"""Measure a candidate's file: every tensor of every step against float64 truth and its bound.

Steps are *teacher-forced*: the oracle of step k starts from the candidate's own weights before step k, so the
bounds stay those of one step, and a fault shows at the step where it happens.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from bridge import bounds, updates
from bridge.errors import FileError
from bridge.exchange import ExchangeFile
from bridge.judged import Comparison, Judged, NotJudged
from bridge.memory import shared_cores
from bridge.model import Shape
from bridge.progress import Report
from bridge.statistic import Statistic, measure


def compare(fixture: str | os.PathLike[str], result: str | os.PathLike[str],
            progress: Report | None = None) -> Comparison:
    """Compare a result with its fixture.

    Parameters
    ----------
    fixture : exchange file of the reference
    result : exchange file of the candidate, complete or partial
    progress : called as ``progress(done, total)`` after every image

    Raises
    ------
    FileError
        If a file is unreadable, the two do not belong together, nothing can be compared, or the fixture
        disagrees with its own float64 oracle.
    """
    if os.path.exists(result) and os.path.samefile(fixture, result):
        raise FileError(f"{os.fspath(result)}: the result is the fixture itself, there is nothing to compare")
    with ExchangeFile(fixture) as reference, ExchangeFile(result) as candidate:
        comparison = _Comparer(reference, candidate, progress).run()
    if not comparison.judged:
        raise FileError(f"{os.fspath(result)}: no tensor that belongs to {os.fspath(fixture)}: nothing was compared")
    return comparison


class _Comparer:
    """The state of one comparison: two files, the steps done so far, the optimiser's memory."""

    def __init__(self, reference: ExchangeFile, candidate: ExchangeFile, progress: Report | None) -> None:
        if reference.model is None or reference.sgd is None:
            raise FileError(f"{reference.path}: /model or /optimizer is missing, a fixture has both")
        for name in ("model", "sgd"):
            if getattr(candidate, name) not in (None, getattr(reference, name)):
                raise FileError(f"{candidate.path}: its {'model' if name == 'model' else 'optimizer'} is not "
                                f"that of {reference.path}")
        self.reference, self.candidate, self.progress = reference, candidate, progress
        self.model, self.sgd = reference.model, reference.sgd
        self.u = bounds.total_roundoff(candidate.precision)
        self.steps = reference.batches()
        if self.steps == 0:
            raise FileError(f"{reference.path}: /batches/0/input is missing")
        shape = reference.shape("batches/0/input")
        if len(shape) != 4:
            raise FileError(f"{reference.path}: batches/0/input has the shape {shape}, expected (n, c, h, w)")
        self.batch_shape: Shape = (shape[0], shape[1], shape[2], shape[3])
        self.shapes = self._shapes()
        self.own, self.oracle = updates.Momentum(), updates.Momentum()
        self.own_known = self.oracle_known = True
        self.comparison = Comparison(self.model, self.sgd, candidate.precision, self.steps, self.batch_shape)

    def run(self) -> Comparison:
        self._first_weights()
        for k in range(self.steps):
            weights = self._weights(k)
            if weights is None:
                self.own_known = self.oracle_known = False
                continue
            sums, scale = self._images(k, weights)
            self._summed(k, sums, scale)
            self._updates(k, weights, sums)
        self._divergence()
        self.comparison.judged.sort(key=self._order)
        return self.comparison

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor of a step, in data-flow order."""
        outputs = self.model.output_shapes(self.batch_shape)
        layers = list(zip(self.model.layers, outputs, strict=True))
        parameters = self.model.parameter_shapes()
        shapes: dict[str, tuple[int, ...]] = {f"forward/{layer.name}": shape for layer, shape in layers}
        shapes["loss"] = ()
        for layer, shape in reversed(layers):
            shapes[f"grads/{layer.name}/output"] = shape
            for kind in ("weight", "bias"):
                if f"{layer.name}/{kind}" in parameters:
                    shapes[f"grads/{layer.name}/{kind}"] = parameters[f"{layer.name}/{kind}"]
        shapes["grads/input"] = self.batch_shape
        return shapes

    def _judge(self, name: str, step: int, statistic: Statistic, *, certain: bool = False, note: str = "") -> None:
        self.comparison.judged.append(Judged(name, step, statistic, certain, note))

    def _skip(self, name: str, step: int, reason: str) -> None:
        self.comparison.not_judged.append(NotJudged(name, step, reason))

    def _parameters(self, file: ExchangeFile, k: int) -> dict[str, np.ndarray] | None:
        """All parameters before step k as they are in a file; None when one is missing."""
        shapes = self.model.parameter_shapes()
        if not all(file.has(f"steps/{k}/weights/{name}") for name in shapes):
            return None
        return {name: file.read(f"steps/{k}/weights/{name}", shape) for name, shape in shapes.items()}

    def _first_weights(self) -> None:
        """The candidate must start from the fixture's weights, to the bit."""
        start = self._parameters(self.reference, 0)
        if start is None:
            raise FileError(f"{self.reference.path}: /steps/0/weights is missing or incomplete")
        if not all(np.isfinite(w).all() for w in start.values()):
            raise FileError(f"{self.reference.path}: /steps/0/weights holds NaN or infinity")
        self.start = start
        for name, w in start.items():
            path = f"steps/0/weights/{name}"
            if not self.candidate.has(path):
                self._skip(f"weights/{name}", 0, "not in the file")
                continue
            found = self.candidate.read(path, w.shape)
            self._judge(f"weights/{name}", 0, measure(found, w.astype(found.dtype).astype(np.float64), np.zeros(1)),
                        certain=True, note="must be the fixture's, to the bit")

    def _weights(self, k: int) -> dict[str, np.ndarray] | None:
        """Float64 weights of step k: the fixture's at first, then the candidate's own."""
        names = [name for name in self.shapes if self.candidate.has(f"steps/{k}/{name}")]
        after = self._parameters(self.candidate, k + 1)
        before = self.start if k == 0 else self._parameters(self.candidate, k)
        if before is None:
            self._skip("all tensors", k, "the weights before this step are not in the file")
            return None
        if not names and after is None:
            self._skip("all tensors", k, "not in the file")
            return None
        if not all(np.isfinite(w).all() for w in before.values()):
            # Judged where they came from: the update of the step before
            self._skip("all tensors", k, "the weights before this step are not finite")
            return None
        return {name: w.astype(np.float64) for name, w in before.items()}

    def _images(self, k: int, weights: dict[str, np.ndarray]) -> tuple[bounds.Sums, float]:
        """All images of a batch through the oracle; un-reduced tensors are judged on the way."""
        x_shape, y_shape = self.batch_shape, self.shapes[f"forward/{self.model.layers[-1].name}"]
        scale = 1.0 / np.prod(y_shape, dtype=float) if self.model.mean else 1.0

        def one(image: int) -> tuple[bounds.Sums, _Visitor]:
            visitor = _Visitor(self, k, image)
            x = self._batch(k, "input", x_shape, image)
            target = self._batch(k, "target", y_shape, image)
            sums = bounds.step_of_image(self.model, weights, x, target, scale, self.u, visitor)
            if self.progress:
                self.progress(k * x_shape[0] + image + 1, self.steps * x_shape[0])
            return sums, visitor

        total = bounds.Sums()
        merged = _Visitor(self, k, 0)
        workers = min(x_shape[0], os.cpu_count() or 1)
        with shared_cores(workers), ThreadPoolExecutor(workers) as pool:
            for sums, visitor in pool.map(one, range(x_shape[0])):
                total.add(sums)
                merged.merge(visitor)
        self._unreduced(k, merged)
        return total, scale

    def _batch(self, k: int, name: str, shape: tuple[int, ...], image: int) -> np.ndarray:
        path = f"batches/{k}/{name}"
        values = self.reference.read(path, shape, image).astype(np.float64)
        if not np.isfinite(values).all():
            raise FileError(f"{self.reference.path}: {path} holds NaN or infinity")
        return values

    def _unreduced(self, k: int, visitor: _Visitor) -> None:
        """Judge what was compared image by image, and check the fixture by its own oracle at step 0."""
        first = self.model.layers[0].name
        few = self.model.convolutions[0]
        few_products = np.prod(few.weight_shape[1:]) + 1 <= 81
        for name, statistic in visitor.candidate.items():
            self._judge(name, k, statistic, certain=name == f"forward/{first}" and bool(few_products))
        self._check_fixture("PyTorch's tensor", visitor.reference, 1.0)
        self._check_fixture("PyTorch's float64 twin", visitor.twin, self._twin_limit())
        if visitor.reference:
            self.comparison.reference_t = max(s.t for s in visitor.reference.values())
        if visitor.twin:
            self.comparison.twin_t = max(s.t for s in visitor.twin.values())

    def _twin_limit(self) -> float:
        """Torch's float64 and ours differ by float64 rounding: far below a float32 bound."""
        return 1e-3 if self.candidate.precision == "float32" else 1.0

    def _check_fixture(self, what: str, statistics: dict[str, Statistic], limit: float) -> None:
        for name, statistic in statistics.items():
            if not statistic.t <= limit:
                raise FileError(
                    f"{self.reference.path}: {what} steps/0/{name} disagrees with the float64 oracle "
                    f"(T = {statistic.t:.3g} at {statistic.at}): this fixture cannot judge anybody")

    def _summed(self, k: int, sums: bounds.Sums, scale: float) -> None:
        """Judge the loss and the parameter gradients."""
        elements = int(np.prod(self.shapes[f"forward/{self.model.layers[-1].name}"]))
        values = {"loss": bounds.loss_bound(sums, scale, elements, self.u)}
        for name, parts in sums.gradients.items():
            values[f"grads/{name}"] = bounds.gradient_bound(parts, self.u)
        for name, (value, bound) in values.items():
            for file, judge in ((self.candidate, True), (self.reference, False)):
                if not file.has(f"steps/{k}/{name}") or (not judge and not self._reference_counts(k)):
                    continue
                found = np.atleast_1d(file.read(f"steps/{k}/{name}", self.shapes[name]))
                statistic = measure(found, np.atleast_1d(value), np.atleast_1d(bound))
                if judge:
                    self._judge(name, k, statistic)
                else:
                    self._check_fixture("PyTorch's tensor", {name: statistic}, 1.0)
                    self.comparison.reference_t = max(self.comparison.reference_t or 0.0, statistic.t)
        for name in self.shapes:
            if not self.candidate.has(f"steps/{k}/{name}"):
                self._skip(name, k, "not in the file")

    def _reference_counts(self, k: int) -> bool:
        """The reference's own tensors belong to these weights only at step 0, to this bound only at its precision."""
        return k == 0 and self.reference.precision == self.candidate.precision

    def _order(self, judged: Judged) -> tuple[int, int]:
        names = list(self.shapes)
        kind = judged.name.partition("/")[0]
        place = {"weights": -1, "optimizer": len(names), "update": len(names) + 1}.get(kind)
        return judged.step, names.index(judged.name) if place is None else place

    def _updates(self, k: int, weights: dict[str, np.ndarray], sums: bounds.Sums) -> None:
        """Judge the weights after step k."""
        after = self._parameters(self.candidate, k + 1)
        for name, w in weights.items():
            oracle = self.oracle.direction(self.sgd, name, w, bounds.gradient_bound(sums.gradients[name], self.u), self.u)
            own = None
            path = f"steps/{k}/grads/{name}"
            if self.candidate.has(path):
                g = self.candidate.read(path, w.shape).astype(np.float64)
                own = self.own.direction(self.sgd, name, w, (g, np.zeros_like(g)), self.u)
            elif self.sgd.momentum:
                self.own_known = False
            if after is None:
                continue
            if own is not None and self.own_known:
                value, bound = updates.new_weights(self.sgd, w, own, self.u)
                self._judge(f"optimizer/{name}", k, measure(after[name], value, bound), certain=True)
            if self.oracle_known:
                before = self.start[name] if k == 0 else self.candidate.read(f"steps/{k}/weights/{name}", w.shape)
                self._taken(k, name, before, after[name], oracle, own is None)
        if after is None:
            self._skip("updated weights", k, "not in the file")

    def _taken(self, k: int, name: str, before: np.ndarray, after: np.ndarray, oracle: updates.Bounded,
               alone: bool) -> None:
        """The update against the oracle's gradient, where the learning rate lets it be seen."""
        if self.sgd.lr <= 0:
            self._skip(f"update/{name}", k, "lr = 0: the weights do not move")
            return
        found = updates.taken(self.sgd, before.astype(after.dtype), after, oracle, self.u)
        seen = found.visible | ~np.isfinite(found.step)
        share = np.count_nonzero(seen) / seen.size
        if share < 0.5:
            reason = (f"lr = {self.sgd.lr:g} is too small: the last digit of the weights hides the gradient; "
                      f"lr >= {found.lr_needed:.2g} would do")
            self._skip(f"update/{name}", k, reason + (" (and the gradient is not in the file)" if alone else ""))
            return
        statistic = measure(found.step[seen], found.expected[seen], found.bound[seen])
        where = np.argwhere(seen)[statistic.at[0]]
        statistic.at = tuple(int(i) for i in where)
        note = "" if share == 1 else f"{share:.0%} of the elements can be seen at this lr"
        self._judge(f"update/{name}", k, statistic, note=note)

    def _divergence(self) -> None:
        """Free-running distance of the last weights that both files have."""
        for k in range(self.steps, 0, -1):
            ours, theirs = self._parameters(self.candidate, k), self._parameters(self.reference, k)
            if ours is None or theirs is None:
                continue
            flat = [np.concatenate([d[name].astype(np.float64).ravel() for name in self.start])
                    for d in (ours, theirs, self.start)]
            moved = float(np.linalg.norm(flat[0] - flat[2]))
            if moved > 0:
                self.comparison.divergence = float(np.linalg.norm(flat[0] - flat[1])) / moved
            return


class _Visitor:
    """Compares the un-reduced tensors of one image; parts of a batch are merged."""

    def __init__(self, comparer: _Comparer, step: int, image: int) -> None:
        self.comparer, self.step, self.image = comparer, step, image
        self.candidate: dict[str, Statistic] = {}
        self.reference: dict[str, Statistic] = {}
        self.twin: dict[str, Statistic] = {}

    def __call__(self, name: str, value: np.ndarray, bound: np.ndarray) -> None:
        comparer, path = self.comparer, f"steps/{self.step}/{name}"
        sources = [(comparer.candidate, path, self.candidate)]
        if comparer._reference_counts(self.step):
            sources.append((comparer.reference, path, self.reference))
        if self.step == 0:
            sources.append((comparer.reference, f"oracle/{path}", self.twin))
        for file, source, statistics in sources:
            if file.has(source):
                found = file.read(source, comparer.shapes[name], self.image)
                statistics[name] = measure(found, value, bound, image=self.image)

    def merge(self, other: _Visitor) -> None:
        for mine, theirs in ((self.candidate, other.candidate), (self.reference, other.reference),
                             (self.twin, other.twin)):
            for name, statistic in theirs.items():
                mine.setdefault(name, Statistic()).merge(statistic)
