# SPDX-License-Identifier: MIT
"""Which hypothesis explains a wrong tensor: rejected by a sample, confirmed by all elements and the bound.

One fault is tried before two. Everything that brings T to 1 or below is accepted; what these data cannot tell apart is
named together, the simplest first.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bridge.judge.diagnosis.altered.engine import altered_formulas
from bridge.judge.diagnosis.altered.formulas import Altered, formulas_of
from bridge.judge.diagnosis.altered.numbers import Target
from bridge.judge.diagnosis.altered.parts import Cropped, cropped
from bridge.judge.diagnosis.altered.updates import Update
from bridge.judge.diagnosis.candidates import Case, base_of, operation_faults, rare_operation_faults
from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.clock import now
from bridge.judge.diagnosis.error_location import Place, locate
from bridge.judge.diagnosis.evidence.view import AXES
from bridge.judge.diagnosis.evidence.words import indices
from bridge.judge.diagnosis.faults import output_faults
from bridge.judge.diagnosis.faults.layouts import layouts
from bridge.judge.diagnosis.faults.overflow import overflow
from bridge.judge.diagnosis.faults.value_faults import value_faults
from bridge.judge.diagnosis.information import says_enough
from bridge.judge.diagnosis.last_place import moves
from bridge.judge.diagnosis.predictions.convolutions import Filter
from bridge.judge.diagnosis.predictions.formulas import Criterion, EachPart, Formula, Joined
from bridge.judge.diagnosis.predictions.hypothesis import Hypothesis, Read, Within, join, joined
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.records import MOSTLY, NEARLY, Explanation
from bridge.judge.diagnosis.sampling import SAMPLE, SMALL, few_channels, sample
from bridge.judge.measure.error_statistics import measure
from bridge.judge.measure.per_step import WIDE, width

Array = np.ndarray

#: T on the sample above which a hypothesis is rejected: the sample's bound is coarser than that of all elements
REJECTED = 16.0
#: Hypotheses that are confirmed although all were rejected, and numbers from which on that waits for the end
NEAREST, LARGE = 3, 2**17
#: A hypothesis must explain most of the error, also where that is hardly above the bound
FRACTION = 1 / 3
#: Multiplications of a filter gradient from which on hypotheses are tried on few channels first
COSTLY = 2**28
#: Explanations that are named together, and hypotheses that are confirmed; more would say no more
MOST_NAMED, MOST_CONFIRMED = 12, 48
#: Seconds for what is confirmed at a time, of a formula that takes long fewer
CONFIRMING = 4.0
#: Numbers from which on a prediction is not near all of them by chance
MANY = 16
#: Rules of optimisers, which explain more than this share of the error, or nothing
RULES_OF_UPDATES, HALF = {"adam", "momentum", "weight_decay", "learning_rate", "term", "factor", "constant",
                          "function"}, 0.5
#: Seconds for formulas that are altered
ALTERING = 20.0
#: Seconds for the search of two faults; with what is tried before them less than a tensor gets of the usual time
TWO_FAULTS = 20.0
#: Pairs of faults that are kept
PAIRS = 16
#: Faults that strike all elements alike, or whose part is said better by what is there; and those of where pixels are,
#: which in a few rows or columns are others by chance
ANYWHERE = ("precision", "naive_sum", "stale")
GEOMETRIC = ("geometry", "same_pixel", "shifted_gradient", "padding_width")
#: Operations of networks that are no chains, their losses, and what optimisers remember
OF_GRAPHS = (Formula, EachPart, Joined, Criterion, Update)
#: Share of the time in which hypotheses are made; in the rest the nearest are confirmed
TRYING = 5 / 6


@dataclass
class Tried:
    """A hypothesis, its T on the sample (of all elements once it is confirmed), what it predicts there, and what it
    leaves of the error there.

    Attributes
    ----------
    confirmed : it was compared with all elements
    enough : all of them say so
    """

    hypothesis: Hypothesis
    t: float
    predicted: Array
    rest: float
    confirmed: bool = False
    enough: bool = False


@dataclass
class Search:
    """For the faults that made one tensor.

    Attributes
    ----------
    case : the tensor
    deadline : on the clock `bridge.judge.diagnosis.clock.now`, when the search ends
    given : the same of making hypotheses
    trying : the same; of making pairs of hypotheses it is earlier, see `TWO_FAULTS`
    cut : something was left out because the time that was asked for was up
    last : nothing else will be tried
    most : hypotheses that are confirmed at a time
    t : T of the candidate
    truth : the right tensor
    place : where it is wrong
    tried : hypotheses about the operation and what came out of it
    elsewhere : what was rejected of operations before this one
    count : their number, and those of layouts that were tried all at once
    limit : T up to which a hypothesis is accepted
    """

    case: Case
    deadline: float = math.inf
    tried: list[Tried] = field(default_factory=list)
    elsewhere: list[Explanation] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        start = now()
        self.given = self.trying = start + TRYING * (self.deadline - start)
        self.cut = self.last = False
        case = self.case
        self.arithmetic = case.graph.arithmetic
        self.truth: Predicted = case.right.full(self.arithmetic)
        self.most = max(NEAREST, min(MOST_CONFIRMED, int(CONFIRMING / max(now() - start, 1e-9))))
        self.found = case.found.reshape(-1)
        self.t = self.t_of(self.truth)
        self.limit = min(1.0, self.t * FRACTION)
        self.sample = few_channels(case.right.shape) if self.costly else sample(case.right.shape)
        self.target = self.found[self.sample]
        error = np.zeros(1) if self.truth.error is None else self.truth.error
        self.bound = np.broadcast_to(error, self.truth.value.shape).reshape(-1)[self.sample]
        self.right = self.truth.value.reshape(-1)[self.sample]
        self.sampled = Target(self.sample, self.target, self.right, self.bound, self.arithmetic.u, lambda: self.late)

    @property
    def wrong(self) -> Array:
        """Return which elements are outside of their bounds, in the shape of the tensor."""
        right = self.truth.value
        error = np.zeros(1) if self.truth.error is None else self.truth.error
        return np.asarray(~(np.abs(self.case.found.reshape(right.shape) - right) <= error))

    @property
    def _in_graph(self) -> bool:
        """Return whether the operation is one of graphs, whose own faults say more than those of any tensor."""
        return isinstance(self.case.right, OF_GRAPHS)

    @property
    def place(self) -> Place:
        """Return where the tensor is wrong."""
        return locate(self.case.found, self.truth, self.case.earlier.get("the step before"), self.arithmetic.u)

    def run(
        self, place: Place, unobserved: Callable[[Search], list[Explanation]] | None = None
    ) -> tuple[list[Explanation], Explanation | None]:
        """Return accepted explanations, and the best that was rejected.

        One fault of the whole tensor; then the place, if it betrays its fault; then operations before this one whose
        results the file lacks; then two faults.

        Parameters
        ----------
        unobserved : searches those operations
        """
        accepted: list[Explanation] = []
        # A hypothesis that overflows is rejected
        with np.errstate(all="ignore"):
            if swapped := self._undone():
                return [swapped], None
            # Where NaN is, nothing can be predicted but where it is
            if not np.isfinite(self.found).all():
                self.count += 1
                made = overflow(self.case.right, self.truth, self.found, self.arithmetic.u)
                accepted = [] if made is None else [made]
            elif np.isfinite(self.target).all():
                accepted = self._after(self._one_fault) or self._after(self._rare_fault)
                if all(_is_a_factor(one) for one in accepted):
                    accepted = self._after(self._altered) or accepted
                accepted = accepted or self._after(self._one_fault_and_a_factor)
            if not accepted and np.isfinite(self.target).all() and _may_be_more(place):
                accepted = self._after(self._in_a_part)
            if not accepted and place.explanation is not None and self.says_enough(
                    Predicted(self.case.found, self.truth.error), 0.0):
                accepted = [place.explanation]
            if not accepted and np.isfinite(self.target).all():
                accepted = (unobserved(self) if unobserved else []) or self._after(self._two_faults)
                self.last = True
                accepted = accepted or self._accepted()
        return accepted, self._runner_up(accepted)

    @property
    def late(self) -> bool:
        """Return whether no further hypotheses are made."""
        time = now()
        self.cut = self.cut or time > self.given
        return self.cut or time > self.trying

    def _after(self, stage: Callable[[], None]) -> list[Explanation]:
        stage()
        return self._accepted()

    @property
    def costly(self) -> bool:
        """Return whether a hypothesis about the operation costs seconds."""
        return isinstance(self.case.right, Filter) and self.case.right.products > COSTLY

    def _one_fault(self) -> None:
        """Of what came out first; of the operation too, unless that costs much and is not needed."""
        base = base_of(self.case.right)
        self._try(output_faults.worked_in_place(base, self.case.graph, self.case.name, self.found))
        # What a layer does wrongly may come to the same
        if self.tried and not self._in_graph:
            return
        self._try(output_faults.underflown(base, self.right, self.found))
        self._try(output_faults.changed_numbers(base, self.found))
        self._try(output_faults.quantised(base, self.truth.value, self.found))
        self._try(value_faults(base, self.truth.value, self.found))
        if self.case.updating is None:
            self._try(_maybe(self._scaled(base, self.right)))
            self._try(output_faults.read_wrongly(base, self.case.name))
            self._try(output_faults.from_memory(base, self.case.earlier))
            self._try(output_faults.moved(base, self.case.name))
            self._try(output_faults.permuted(base, self.truth.value, self.found, self.case.name))
        if not (self.costly and any(one.t <= REJECTED for one in self.tried)):
            self._try(operation_faults(self.case))

    def _rare_fault(self) -> None:
        self._try(rare_operation_faults(self.case))

    def _undone(self) -> Explanation | None:
        """Bytes that were mixed up are put right."""
        right = self.truth.value.reshape(-1)
        error = np.zeros(1) if self.truth.error is None else self.truth.error
        bound = np.broadcast_to(error, self.truth.value.shape).reshape(-1)
        for detail, first in output_faults.undone(self.found):
            self.count += 1
            # A NaN that was converted has lost its bytes
            known = np.flatnonzero(np.isfinite(self.found)) if first.size == self.found.size else np.arange(first.size)
            if 2 * known.size < first.size:
                continue
            start = measure(first[known[:SAMPLE]], right[known[:SAMPLE]], bound[known[:SAMPLE]]).t
            t = start if start > 1 else measure(first[known], right[known], bound[known]).t
            # Small numbers are next to 0 then, which says nothing of a tensor that may be 0
            if t <= 1 and not measure(0 * right[known], right[known], bound[known]).t <= 1:
                return Explanation((kind("storage"),), detail, t)
        return None

    def _one_fault_and_a_factor(self) -> None:
        if self.case.updating is not None:
            return
        for one in [one for one in self.tried if not (one.hypothesis.fitted or one.hypothesis.altered)]:
            self._try(_maybe(self._scaled(one.hypothesis, one.predicted)))

    def _altered(self) -> None:
        """The formula of the operation with a call altered; of those that come to the same, the first is the simplest.
        """
        formulas = formulas_of(self.case.right, self.case.updating)
        limit, self.trying = self.trying, min(self.trying, now() + ALTERING)
        error = np.zeros(1) if self.truth.error is None else self.truth.error
        every = replace(self.sampled, sample=np.arange(self.found.size), found=self.found,
                        right=self.truth.value.reshape(-1),
                        bound=np.broadcast_to(error, self.truth.value.shape).reshape(-1))
        parts = [cropped(one, self.truth.value.reshape(self.case.right.shape), self.wrong, every) for one in formulas]
        if not self._alter([one for one in parts if one is not None]):
            self._alter(formulas)
        self.trying = limit

    def _alter(self, formulas: Sequence[Altered | Cropped]) -> bool:
        """Return whether something explains more than a factor."""
        made = [altered_formulas(one, one.target if isinstance(one, Cropped) else self.sampled) for one in formulas]
        # The simplest things of every part of a sum come before less simple ones of the first
        for stages in itertools.zip_longest(*made, fillvalue=()):
            for formula, stage in zip(formulas, stages, strict=True):
                self._try(self._seen_in(formula, stage) if isinstance(formula, Cropped) else stage)
            self.tried = _without_the_same(self.tried)
            if not all(_is_a_factor(one) for one in self._accepted()):
                return True
            if self.late:
                break
        return False

    def _seen_in(self, part: Cropped, hypotheses: Iterable[Hypothesis]) -> Iterator[Hypothesis]:
        """What a part of the tensor does not reject."""
        for near, one in part.seen(iter(hypotheses), REJECTED):
            if self.late:
                return
            if near:
                yield one
            else:
                self.count += 1

    def _in_a_part(self) -> None:
        """A fault of some images, channels, rows or columns alone; all that is outside of them is right."""
        right, wrong = self.truth.value, self.wrong
        axes = AXES.get(output_faults.axis_names(right.shape, self.case.name), ())
        if right.ndim < 2 or len(axes) != right.ndim or np.count_nonzero(wrong) < MANY:
            return
        used = [np.flatnonzero(wrong.any(axis=tuple(b for b in range(right.ndim) if b != a)))
                for a in range(right.ndim)]
        part = np.zeros(right.shape, bool)
        part[np.ix_(*used)] = True
        inside = part.reshape(-1)[self.sample]
        if not right[~part].any() or np.count_nonzero(inside) < MANY:
            return
        # Where all is 0 nothing can be wrong
        where = ", ".join(indices(one, size, word)
                          for axis, (one, size, word) in enumerate(zip(used, right.shape, axes, strict=True))
                          if one.size < size and np.delete(right, one, axis).any())
        base = base_of(self.case.right).operation
        narrow = any(4 * one.size <= size for one, size, word in zip(used, right.shape, axes, strict=True)
                     if word in ("row", "column"))
        spared = (*ANYWHERE, *GEOMETRIC) if narrow else ANYWHERE
        for one in [one for one in self.tried if not one.hypothesis.fitted and len(one.hypothesis.kinds) == 1]:
            predicted = np.where(inside, one.predicted, self.right)
            said = one.hypothesis.kinds[0].key not in spared
            if said and self.near(predicted, one.hypothesis.operation.slack(predicted)) <= REJECTED:
                operation = Within(right.shape, one.hypothesis.operation, base, part)
                self._try([Hypothesis(one.hypothesis.kinds, f"in {where} alone: {one.hypothesis.detail}", operation)])

    def _two_faults(self) -> None:
        """Faults of the operation, each with every layout of what comes out, or with a second one of its own."""
        self.trying = min(self.trying, now() + TWO_FAULTS)
        single = [one for one in self.tried if len(one.hypothesis.kinds) == 1
                  and not (one.hypothesis.fitted or one.hypothesis.altered)]
        if self.case.updating is not None:
            return
        if len(self.found) <= SMALL:
            self._all_layouts(base_of(self.case.right), self.right)
            for one in single:
                # Layouts of what was read in a layout are layouts
                if _is_common(one.hypothesis) and not isinstance(one.hypothesis.operation, Read):
                    self._all_layouts(one.hypothesis, one.predicted)
        self._twice([one.hypothesis for one in single if _is_common(one.hypothesis)])

    def _all_layouts(self, base: Hypothesis, predicted: Array) -> None:
        """Every layout of a small tensor at once; the best, and the best with a factor or old contents, are tried."""
        shape, name = self.case.right.shape, self.case.name
        names = output_faults.axis_names(shape, name)
        # Axes of more have no names
        if self.late or len(shape) > len(names) or not np.isfinite(predicted).all():
            return
        if len(predicted) != len(self.found):
            predicted = base.operation.at(np.arange(len(self.found)))
        every = layouts(shape, names, output_faults.how_many(names))
        if not every:
            return
        read = predicted[_sources(shape, names)]
        self.count += len(every)
        old = [None, self.case.earlier.get("the step before"), self.case.earlier.get("all steps before")]
        rests = np.stack([self.found if one is None else self.found - one.reshape(-1) for one in old], 1)
        # |read - rest|^2 without |rest|^2, and what is left of |found|^2 by the best factor: one product for all
        size, along = np.einsum("ij,ij->i", read, read), read @ rests
        for before, distance in zip(old, (size[:, None] - 2 * along).T, strict=True):
            one = next(output_faults.read_in(base, every[_first_of_smallest(distance, size)]))
            self._try([one] if before is None else output_faults.from_memory(one, self.case.earlier))
        best = _first_of_smallest(-along[:, 0] ** 2 / np.maximum(size, np.finfo(float).tiny), size)
        one = next(output_faults.read_in(base, every[best]))
        self._try(_maybe(self._scaled(one, read[best][self.sample])))

    def _twice(self, first: list[Hypothesis]) -> None:
        """A second fault of the operation on top of a simple first one."""
        nearest, done, first_pair = math.inf, set(), len(self.tried)
        for base in [base for base in first if isinstance(base.operation, type(self.case.right))]:
            if self.late or nearest <= self.limit:
                return
            case = Case(self.case.name, self.case.graph, base.operation, self.case.found, self.case.before)
            for one in (one for one in operation_faults(case) if _is_common(one) and not one.altered):
                both = Hypothesis(join(base.kinds, one.kinds), joined(base.detail, one.detail), one.operation)
                pair = frozenset((base.detail, one.detail))
                # Faults of an operation are changes of different operands: their order does not matter
                if len(both.kinds) == 2 and pair not in done:
                    done.add(pair)
                    self._try([both])
                    nearest = min(nearest, self.tried[-1].t)
                    if len(self.tried) > first_pair + 2 * PAIRS:
                        # There are thousands, each with tensors of its own
                        self.tried[first_pair:] = sorted(self.tried[first_pair:], key=lambda one: one.t)[:PAIRS]

    def _try(self, hypotheses: Iterable[Hypothesis]) -> None:
        for one in hypotheses:
            if self.late:
                return
            self.count += 1
            predicted = one.operation.at(self.sample)
            near = self.near(predicted, one.operation.slack(predicted))
            self.tried.append(Tried(one, near, predicted, self.rest(predicted)))

    def _scaled(self, base: Hypothesis, predicted: Array) -> Hypothesis | None:
        """The hypothesis times a fitted factor; `predicted` is what it gives at the sample."""
        return output_faults.scaled(base, predicted, self.target, self.case.dimensions)

    def near(self, predicted: Array, slack: Array | float = 0.0) -> float:
        """Return T on the sample."""
        return self.sampled.near(predicted, slack)

    def rest(self, predicted: Array) -> float:
        """Return what a prediction at the sample leaves of the error there, in the Euclidean norm."""
        error = float(np.linalg.norm(self.target - self.right))
        left = float(np.linalg.norm(self.target - predicted))
        rest = left / error if error > 0 else math.inf
        return rest if not math.isnan(rest) else math.inf

    def _accepted(self) -> list[Explanation]:
        """Confirmed by every element, the simplest first.

        One whose own bound is so wide that most of the error is left inside it gives way to one that leaves little.
        """
        accepted: list[Explanation] = []
        for one in self._likely():
            if len(accepted) == MOST_NAMED or (accepted and len(one.hypothesis.kinds) > len(accepted[0].kinds)):
                break
            if not one.confirmed:
                if now() > self.deadline:
                    self.cut = True
                    break
                predicted = one.hypothesis.operation.full(self.arithmetic)
                one.t, one.confirmed = self.explained(predicted), True
                one.enough = one.t <= self.limit and not self._says_nothing(one) and self.says_enough(
                    predicted, one.t, fitted=one.hypothesis.fitted)
            if one.enough:
                accepted.append(Explanation(one.hypothesis.kinds, self._detail(one.hypothesis), one.t, rest=one.rest))
        best = min((one.rest for one in accepted), default=0.0)
        return [one for one in accepted if one.rest <= MOSTLY or one.rest <= 3 * best]

    def _says_nothing(self, one: Tried) -> bool:
        """A rule of the optimiser that predicts the right step: only its bound is wider."""
        return (self.case.updating is not None and one.rest > HALF
                and {kind.key for kind in one.hypothesis.kinds} <= RULES_OF_UPDATES)

    def says_enough(self, predicted: Predicted, t: float, *, fitted: bool = False) -> bool:
        """Return whether the data say more than a prediction chooses among all that were tried."""
        updating = self.case.updating
        return says_enough(self.found, self.truth, predicted, t, tried=self.count, fitted=fitted,
                           base=0.0 if updating is None else updating.weights[-1])

    def _detail(self, hypothesis: Hypothesis) -> str:
        """A precision of which nothing is left says so."""
        lost = not self.found.any() and self.truth.value.any() and hypothesis.kinds == (kind("precision"),)
        return f"{hypothesis.detail}; all of it is below their range and became 0" if lost else hypothesis.detail

    def _likely(self) -> list[Tried]:
        """What the sample does not reject, the simplest first; when time is up, only the nearest few."""
        known = sorted((one for one in self.tried if math.isfinite(one.t)), key=lambda one: one.t)
        likely = [one for one in known if one.t <= REJECTED][:self.most]
        # Where bounds differ much between elements, those of the right places say little of other places
        if (not likely and (self.last or self.found.size <= LARGE)) or self.late:
            likely = known[:NEAREST]
        if self.late and self.costly:
            # To confirm one takes seconds, and there the bounds of a sample are those of all
            likely = [one for one in likely if one.t <= REJECTED]
        chosen = {id(one) for one in likely}
        # Of faults that are as simple a precision comes first: it is the only one that many operations share. A layer
        # that does something else says more than a factor, or an order of channels, that comes to the same
        return sorted(
            (one for one in self.tried if id(one) in chosen),
            key=lambda one: (*one.hypothesis.complexity, one.hypothesis.kinds != (kind("precision"),),
                             self._in_graph and one.hypothesis.kinds == (kind("scale"),),
                             self._in_graph and not isinstance(one.hypothesis.operation, OF_GRAPHS)),
        )

    def explained(self, predicted: Predicted) -> float:
        """Return T of the candidate against a prediction; infinite where only its last place is not right."""
        other = np.broadcast_to(predicted.value, self.truth.value.shape)
        return self.t_of(predicted) if moves(self.truth.value, other, self.wrong, self.arithmetic.u) else math.inf

    def t_of(self, predicted: Predicted, found: Array | None = None) -> float:
        """Return T of the candidate, or of other numbers, against a prediction."""
        error = np.zeros(1) if predicted.error is None else predicted.error
        value = predicted.value.reshape(-1)
        numbers = self.found if found is None else found.reshape(-1)
        return measure(numbers, value, np.broadcast_to(error, predicted.value.shape).reshape(-1)).t

    def follows(self, otherwise: Array) -> bool:
        """Return whether the tensor is right, inside a bound that shows something.

        That is a hundredth of it, or what would be right otherwise is outside of it. A wider one acquits nothing.

        Parameters
        ----------
        otherwise : what other inputs make, by which the tensor is wrong
        """
        error = np.zeros(1) if self.truth.error is None else self.truth.error
        narrow = self.case.updating is None and width(self.truth.value, error) <= WIDE
        return self.t <= 1 and (narrow or self.t_of(self.truth, otherwise) > 1)

    def _runner_up(self, accepted: list[Explanation]) -> Explanation | None:
        """Of what was rejected that which leaves the least of the error. Where nothing is accepted it is a claim, which
        must hold for nearly all of the error, as no other does, and of more than a few numbers: one of many predictions
        is near those.
        """
        said = {one.kinds for one in accepted}
        tried = [Explanation(one.hypothesis.kinds, one.hypothesis.detail, one.t, rest=one.rest) for one in self.tried]
        rest = [one for one in (*tried, *self.elsewhere) if one.kinds not in said and math.isfinite(one.t)]
        if not accepted:
            near = [one for one in rest if one.rest <= NEARLY and self.found.size >= MANY]
            rest = [one for one in near if all(set(one.kinds) <= set(other.kinds) for other in near)]
        return min(rest, key=lambda one: (one.rest, one.t), default=None)


def _without_the_same(tried: list[Tried]) -> list[Tried]:
    """Without altered formulas that come to what was tried before; a mere factor says less than they do."""
    kept, known = [], set[bytes]()
    for one in tried:
        made = one.predicted.astype(np.float32).tobytes()
        if not (one.hypothesis.altered and made in known):
            kept.append(one)
        if one.hypothesis.kinds != (kind("scale"),):
            known.add(made)
    return kept


def _is_a_factor(one: Explanation) -> bool:
    """Whether it says no more than how large a tensor is."""
    return {kind.key for kind in one.kinds} == {"scale"}


def _may_be_more(place: Place) -> bool:
    """Whether a place that betrays nothing, or that something wrote over numbers, may be that of a known fault."""
    return place.explanation is None or place.explanation.kinds[0].key in ("corrupted", "overwritten")


def _is_common(one: Hypothesis) -> bool:
    """Of layouts those that somebody is likely to write."""
    return one.layout is None or one.layout.common


def _maybe(one: Hypothesis | None) -> Iterator[Hypothesis]:
    if one is not None:
        yield one


def _first_of_smallest(distances: Array, scale: Array) -> int:
    """The first of the smallest numbers, equal but for the rounding of sums of this scale: layouts may be the same."""
    return int(np.argmax(distances <= distances.min() + 1e-12 * scale.max()))


@functools.lru_cache(maxsize=4)
def _sources(shape: tuple[int, ...], names: str) -> Array:
    """Index maps of all layouts, (layouts, elements)."""
    indices = np.arange(int(np.prod(shape)))
    return np.stack([layout.source(indices, shape) for layout in layouts(shape, names, output_faults.how_many(names))])
