# SPDX-License-Identifier: MIT
"""What the data at hand can show: every fault planted in the oracle, and its deviation measured in units of E.

A deviation below 3 E could hide behind rounding: these data cannot see that fault in that tensor. Of large images a
part is taken, and the ratios of its sums are scaled by the share of the terms, as if all deviations were incoherent.
That is an estimate: deviations of the border only shrink faster, and what depends on a few small numbers (underflow)
differs from one part of the images to another.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from bridge.common.threads import one_core
from bridge.judge.diagnosis.altered.formulas import OF_OPERATIONS
from bridge.judge.diagnosis.candidates import Case, base_of, operation_faults
from bridge.judge.diagnosis.catalogue import BEYOND_CHAINS, KINDS, kind
from bridge.judge.diagnosis.faults.crop import Crop
from bridge.judge.diagnosis.faults.other_faults import sequential_losses
from bridge.judge.diagnosis.faults.output_faults import changed_numbers, moved, read_wrongly
from bridge.judge.diagnosis.faults.update_faults import update_faults
from bridge.judge.diagnosis.predictions.convolutions import Filter
from bridge.judge.diagnosis.predictions.elementwise import SquaredError
from bridge.judge.diagnosis.predictions.hypothesis import Hypothesis, hypothesis
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.diagnosis.predictions.step_graph import StepGraph
from bridge.judge.diagnosis.predictions.updating import Updating
from bridge.judge.diagnosis.records import Adequacy, Kind, Sight
from bridge.judge.diagnosis.sampling import few_channels, sample
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.oracle.error_model import Arithmetic

Array = np.ndarray

#: Ratios above it say no more
LARGEST = 1e16
#: So many elements of a sample will do
FEW = 1024
#: Seconds of computing after which no further tensor is begun
MOST_SECONDS = 20.0
#: Faults that need two steps, and those that no data show, but a second run or a look at memory
MEMORY = ("accumulated", "state", "previous_step")
BESIDE = {
    "race": "only a second run shows it: --again",
    "uninitialised": "seen wherever a tensor is judged; poison outputs with NaN to be sure",
    "overwritten": "seen wherever a tensor is judged",
    "library_constant": "seen where the fault of the single layers is",
}


def compute_adequacy(crop: Crop, long_sums: Sequence[Sight] = ()) -> Adequacy:
    """Return what a fixture can show of a candidate that writes what its result holds.

    Parameters
    ----------
    crop : of the two files; of the result only the names of its tensors and its precision count
    long_sums : what `in_long_sums` found
    """
    with np.errstate(all="ignore"), one_core():
        return _Computation(crop, long_sums).run()


def in_long_sums(pair: FilePair) -> list[Sight]:
    """Return a sequential sum of the loss, tried on all its terms, the candidate's own: it goes wrong by its length."""
    with np.errstate(all="ignore"):
        weights = {name: w.astype(np.float64) for name, w in pair.start.items()}
        graph = StepGraph(pair, 0, weights)
        if not graph.given("loss") or graph.own(graph.inputs("loss")[0]) is None:
            return []
        right = graph.operation("loss")
        if not isinstance(right, SquaredError):
            return []
        truth = right.full(graph.arithmetic)
        return [_sight(one, "loss", _ratio(one.operation, truth, np.arange(1), pair.u))
                for one in sequential_losses(right)]


class _Computation:
    """The first step of a fixture in float64, with every fault planted in every operation."""

    def __init__(self, crop: Crop, long_sums: Sequence[Sight]) -> None:
        self.crop, self.long_sums = crop, long_sums
        weights = {name: w.astype(np.float64) for name, w in crop.start.items()}
        everything = frozenset(self.crop.shapes)
        self.graph = StepGraph(self.crop, 0, weights, ignored=everything)  # type: ignore[arg-type]
        self.adequacy = Adequacy()

    def run(self) -> Adequacy:
        self._known_inputs()
        begun, late = time.process_time(), list[str]()
        for name in self.crop.shapes:
            if time.process_time() - begun > MOST_SECONDS:
                late.append(name)
            elif self.crop.candidate.has(f"steps/0/{name}"):
                self._tensor(name)
            else:
                self.adequacy.remarks.append(f"{name} is not in the file: faults of it show only in what follows")
        self.adequacy.sights += self.long_sums
        if late:
            self.adequacy.remarks.append(f"{len(late)} tensors and the updates were not looked at, from {late[0]} on: "
                                         f"it took more than {MOST_SECONDS:g} s")
        else:
            self._updates()
            self._not_applicable()
        if self.crop.share < 1:
            n, _, *size = self.crop.batch_shape
            what = f"{n} x {size[0]} x {size[1]} pixels" if len(size) == 2 else f"{n} samples"
            self.adequacy.remarks.append(f"computed on {what} of the batch")
        return self.adequacy

    def _known_inputs(self) -> None:
        """Where the file holds a tensor, what follows is judged from that: it has no error there."""
        for name in self.crop.shapes:
            value = self.graph.value(name)
            if self.crop.candidate.has(f"steps/0/{name}"):
                self.graph.known[name] = Predicted(value.value)

    def _tensor(self, name: str) -> None:
        right = self.graph.operation(name)
        truth = right.full(self.graph.arithmetic)
        case = Case(name, self.graph, right, truth.value)
        indices = few_channels(right.shape) if isinstance(right, Filter) else _thinned(sample(right.shape))
        # Of a sum over all pixels the crop has fewer terms
        scale = self.crop.share if len(right.shape) < 4 or name.endswith("/weight") else 1.0
        base = base_of(right)
        for one in (*_common(operation_faults(case)), *_common(_of_output(case, base))):
            # A sequential sum goes wrong by its length: what a part of it shows, the whole shows
            long = one.kinds[0].key == "naive_sum"
            # By how much a moved target changes one sum is chance; the gradient of the loss shows every element
            by_chance = name == "loss" and one.kinds[0].key == "padding_width"
            if len(one.kinds) == 1 and not by_chance and not (long and name == "loss" and self.crop.share < 1):
                ratio = _ratio(one.operation, truth, indices, self.graph.arithmetic.u)
                self._note(one, name, ratio if long else scale * ratio)
        self._scaled(name, truth, scale)

    def _scaled(self, name: str, truth: Predicted, scale: float) -> None:
        """Factors: the deviation is a multiple of the tensor; all zero is the factor 0, a bit of one element 1 %."""
        largest = _largest(truth.value, truth.error)
        n = self.crop.whole_output_shape
        self._add(kind("scale"), "times 2", name, scale * largest)
        self._add(kind("stale"), "all zero", name, scale * largest)
        self._add(kind("corrupted"), "one element 1 % off", name, scale * 0.01 * largest)
        if truth.value.size > 1:
            self._add(kind("clipped"), "the largest element clipped to half of it", name, scale * largest / 2)
            self._add(kind("dropout"), "every second element 0", name, scale * largest)
        last = self.crop.model.layers[-1].name
        if name in ("loss", f"grads/{last}/output"):
            # E of the whole sum, not of the crop
            self._add(kind("count"), "N off by one", name, (scale if name == "loss" else 1.0) * largest / np.prod(n))
        if name == f"grads/{last}/output":
            self._add(kind("factor_two"), "times 1/2", name, largest / 2)

    def _updates(self) -> None:
        """The optimiser's faults, on the fixture's own weights and gradients of the first two steps."""
        for name in self.crop.start:
            if name in self.crop.frozen:
                continue
            steps = [k for k in (0, 1) if self.crop.candidate.has(f"steps/{k + 1}/weights/{name}")]
            if steps != list(range(min(2, self.crop.steps))):
                continue
            if not self._known_update(name, steps):
                self.adequacy.remarks.append(f"optimizer/{name} is not computed: the fixture lacks its own gradients")
                continue
            case = self._updating(name, len(steps))
            truth = case.right().full(self.graph.arithmetic)
            right = case.settings
            decay = case.by(replace(right, weight_decay=right.weight_decay + 0.01))
            more = [
                hypothesis("learning_rate", "lr 1 % too large", case.by(right, factor=1.01)),
                hypothesis("update_sign", "w + lr*g", case.by(right, factor=-1.0)),
                hypothesis("weight_decay", "0.01 too much", decay),
            ]
            for one in (*_common(update_faults(case)), *more):
                if len(one.kinds) == 1 and not one.fitted:
                    ratio = _ratio(one.operation, truth, np.arange(case.found.size), self.crop.u)
                    self._note(one, f"optimizer/{name}", ratio)

    def _known_update(self, name: str, steps: list[int]) -> bool:
        """The fixture holds what the updates were computed from, and what they gave."""
        needed = [f"steps/{k}/grads/{other}" for k in steps for other in self.crop.start]
        needed += [f"steps/{k + 1}/weights/{name}" for k in steps]
        return all(one in self.crop.updates for one in needed)

    def _updating(self, name: str, steps: int) -> Updating:
        known, shape = self.crop.updates, self.crop.start[name].shape
        weights = [known[f"steps/{k}/weights/{name}"] for k in range(steps + 1)]
        gradients = [known[f"steps/{k}/grads/{name}"] for k in range(steps)]
        last = f"steps/{steps - 1}/grads"
        others = {other: known[f"{last}/{other}"] for other, x in self.crop.start.items()
                  if x.shape == shape and other != name}
        exact = [np.zeros(shape)] * steps
        return Updating(self.crop.optimizers[steps - 1], name, weights[:-1], gradients, exact, others, weights[-1],
                        Arithmetic(self.crop.u))

    def _note(self, one: Hypothesis, name: str, ratio: float) -> None:
        self.adequacy.sights.append(_sight(one, name, ratio))

    def _add(self, which: Kind, detail: str, name: str, ratio: float) -> None:
        self.adequacy.sights.append(Sight(which, detail, name, float(min(ratio, LARGEST))))

    def _not_applicable(self) -> None:
        """Kinds that met nothing to be planted in."""
        seen = {sight.kind.number for sight in self.adequacy.sights}
        for one in KINDS:
            if one.number in seen or one.key in BEYOND_CHAINS:
                continue
            if one.key in BESIDE:
                self.adequacy.remarks.append(f"{one.title}: {BESIDE[one.key]}")
            elif one.key in MEMORY:
                enough = self.crop.steps > 1 and self.crop.candidate.has("steps/1/loss")
                self._add(one, "from the second step on", "", LARGEST if enough else 0.0)
            else:
                self._add(one, "there is nothing to show it on", "", 0.0)


def _thinned(indices: Array) -> Array:
    """A part at random: every other element of an image would leave out whole columns."""
    kept = np.random.default_rng(0).choice(indices, min(indices.size, FEW), replace=False)
    return np.sort(kept)


def _sight(one: Hypothesis, name: str, ratio: float) -> Sight:
    # In a sum of gradients a fault is that of the operation, through whichever layer it comes
    detail = one.detail.partition(": ")[2] if one.detail.startswith("through ") else one.detail
    return Sight(one.kinds[0], detail, name, float(min(ratio, LARGEST)))


def _of_output(case: Case, base: Hypothesis) -> Iterator[Hypothesis]:
    yield from read_wrongly(base, case.name)
    yield from moved(base, case.name)
    yield from changed_numbers(base)


def _common(hypotheses: Iterator[Hypothesis]) -> Iterator[Hypothesis]:
    """Without the layouts that hardly anybody writes, and other operands but parameters that are left out: the simplest
    stand for them. Other functions of a number come to the same where it is positive, whatever the data are.
    """
    for one in hypotheses:
        kept = not one.altered or one.kinds[0].key in {*OF_OPERATIONS - {"activation", "leaky"}, "factor", "bias"}
        if (one.layout is None or one.layout.common) and kept:
            yield one


def _ratio(wrong: Prediction, truth: Predicted, indices: Array, u: float) -> float:
    """Largest deviation / E."""
    right = truth.value.reshape(-1)[indices]
    error = np.zeros(1) if truth.error is None else truth.error
    bound = np.broadcast_to(error, truth.value.shape).reshape(-1)[indices]
    deviation = np.abs(wrong.at(indices) - right)
    return _worst(deviation, bound)


def _largest(value: Array, error: Array | None) -> float:
    bound = np.zeros(1) if error is None else error
    return _worst(np.abs(value), np.broadcast_to(bound, value.shape))


def _worst(deviation: Array, bound: Array) -> float:
    ratio = deviation / bound
    ratio[deviation == 0] = 0.0
    worst = float(np.max(ratio, initial=0.0))
    return worst if np.isfinite(worst) else LARGEST
