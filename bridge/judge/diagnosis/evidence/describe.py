# SPDX-License-Identifier: MIT
"""The best description of an error: of the tensor itself, or of an operand that it betrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.evidence.biases import folded, without_images
from bridge.judge.diagnosis.evidence.criteria import (
    cross_entropies,
    cross_entropy_gradients,
    implied,
    is_cross_entropy,
    of_parts,
)
from bridge.judge.diagnosis.evidence.derivatives import derivatives, is_of_difference, residuals
from bridge.judge.diagnosis.evidence.groups import across_groups
from bridge.judge.diagnosis.evidence.images import image_strides, of_other_batches
from bridge.judge.diagnosis.evidence.input_parts import input_parts
from bridge.judge.diagnosis.evidence.losses import (
    STEPS,
    agreeing,
    gradients,
    losses,
    losses_at_several_steps,
    other_losses,
    with_penalty,
)
from bridge.judge.diagnosis.evidence.memory import pitches, running_sums, strides, taps
from bridge.judge.diagnosis.evidence.operands import (
    changed,
    input_in_use,
    padded,
    proportional,
    recovered,
    swapped,
    terms,
    wider,
)
from bridge.judge.diagnosis.evidence.orders import blocked, orders
from bridge.judge.diagnosis.evidence.places.borders import borders, counted, tiles
from bridge.judge.diagnosis.evidence.places.frames import frames
from bridge.judge.diagnosis.evidence.places.masks import masks
from bridge.judge.diagnosis.evidence.places.neighbours import neighbours, turned, untested
from bridge.judge.diagnosis.evidence.places.places import place
from bridge.judge.diagnosis.evidence.places.planes import planes
from bridge.judge.diagnosis.evidence.places.reach import reach
from bridge.judge.diagnosis.evidence.proportions import proportions
from bridge.judge.diagnosis.evidence.slices import copies, mixtures, moved
from bridge.judge.diagnosis.evidence.transforms import wrong_transforms
from bridge.judge.diagnosis.evidence.values import constants, functions, levels, unnamed
from bridge.judge.diagnosis.evidence.view import AXES, EXACT, MOST, Array, Seen, View, says_more
from bridge.judge.diagnosis.faults.output_faults import axis_names
from bridge.judge.diagnosis.predictions.elementwise import LossGradient, Rectified, ReluBackward, SquaredError
from bridge.judge.diagnosis.predictions.formulas import Criterion
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.predictions.step_graph import INPUT, TARGET, StepGraph
from bridge.judge.diagnosis.records import MOSTLY

Matcher = Callable[[View], Iterable[Seen]]

#: Elements of a tensor up to which other tensors of its shape are read for comparison
MANY = 2**22
#: Numbers beyond which a description of the wrong elements alone may be the simpler one
FEW = 4
#: Elements that are equally far apart by chance are fewer
MANY_EQUAL = 8
#: Different numbers up to which they are said to be few
LEVELS = 300
#: Shares of what was before in a running mean
RUNNING = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
#: What is tried of every tensor, the simple first
MATCHERS: tuple[Matcher, ...] = (
    constants, functions, levels, proportions, copies, moved, running_sums, strides, pitches, taps, turned, mixtures,
    neighbours, unnamed)
#: The same of elements that were chosen because they are wrong, where one of two numbers is (masks, what is masked):
#: that it is the other is no news
OF_TWO = (constants, moved)


def describe(case: Case, truth: Predicted, late: Callable[[], bool], later: Sequence[Case] = ()) -> Seen | None:
    """Return what is seen of an error; None where nothing is that leaves at most a tenth of it. What leaves more than
    rounding says so.

    Parameters
    ----------
    case : the wrong tensor
    truth : the right one and its bound
    late : says whether time is up
    later : the same tensor where it is wrong at later steps. A single number agrees with another by chance: what a loss
        is said to be it is at every step
    """
    found = case.found.reshape(truth.value.shape)
    if not np.isfinite(found).all():
        return None
    if isinstance(case.right, SquaredError) or (isinstance(case.right, Criterion) and not case.right.gradient):
        return _loss(case, case.right, later)
    tensors = known_tensors(case) if found.size <= MANY else {}
    others = {name: x for name, x in tensors.items() if x.shape == found.shape}
    axes = AXES[axis_names(found.shape, case.name)]
    if len(axes) != found.ndim:
        return None
    error = np.zeros(1) if truth.error is None else truth.error
    view = View(found, truth.value, error, axes, others, _operands(case), case.dimensions,
                u=case.graph.arithmetic.u)
    if view.at.size < 2 or not view.error > 0:
        return planes(case)
    # What is one number wherever it is wrong is seen at once
    one_number = _where_wrong(case, view, tensors, late, (constants,))
    whole = _best(case, view, tensors, late)
    # Any gradient of a loss has a target that gives it: what is seen of the gradient itself is the simpler
    simple = whole is not None and whole.exact and whole.numbers <= FEW and not isinstance(case.right, LossGradient)
    part = None if simple else _where_wrong(case, view, tensors, late) or one_number
    both = (part, whole) if isinstance(case.right, LossGradient) else (whole, part)
    best = chosen(one for one in both if one is not None and says_more(view, one, one is part, case.updating))
    if best is None or not best.exact:
        best = planes(case) or best
    if best is None or best.exact:
        return best
    return replace(best, said=f"roughly ({100 * best.rest:.2g} % of the error is left): {best.said}")


def _best(case: Case, view: View, tensors: dict[str, Array], late: Callable[[], bool]) -> Seen | None:
    where = place(view)
    direct = [one for one in (*masks(view, case), *blocked(view), *orders(view)) if one.exact]
    known = [one for one in direct if one.numbers <= 1]
    if known:
        # The order of all bits of a mask, or of all numbers, is no coincidence
        return known[0]
    direct += [] if case.updating is not None else _seen(view, late)
    makers = (derivatives, residuals, cross_entropy_gradients, changed, proportional,
              partial(swapped, tensors=tensors), input_parts, terms, frames, image_strides, of_other_batches, padded,
              borders, tiles, reach, counted, folded, without_images, across_groups, wrong_transforms, untested,
              wider, input_in_use)
    for maker in makers:
        for one in maker(view, case):
            direct.append(one)
            if late():
                break
    seen = [replace(one, said=f"{where}{' ' if where else ''}{one.said}") for one in direct]
    for words, operand in recovered(view, case, tensors):
        if not late() and operand.wrong.any():
            narrow = f"{where} " if where and 2 * np.count_nonzero(view.region()) <= view.right.size else ""
            narrow = "" if operand.right.shape == view.right.shape else narrow
            seen += [replace(one, said=narrow + one.said) for one in _through(words, operand, late)]
    if case.updating is not None:
        seen += [replace(one, said=f"{where}{' ' if where else ''}{one.said}") for one in _seen(view, late)]
    return chosen(seen)


def _where_wrong(case: Case, view: View, tensors: dict[str, Array], late: Callable[[], bool],
                 matchers: tuple[Matcher, ...] = ()) -> Seen | None:
    """Of the wrong elements alone, where many of the part that holds them are right."""
    wrong = np.flatnonzero(view.wrong)
    size = np.count_nonzero(view.region())
    most = 0.98 if isinstance(case.right, LossGradient) else 0.9
    if not 8 <= wrong.size < size or late():
        return None
    where = _among(view)
    if wrong.size > MOST:
        wrong = np.sort(np.random.default_rng(0).choice(wrong, MOST, replace=False))
    part = View(view.found, view.right, view.bound, view.axes, view.others, view.operands, view.dimensions, wrong,
                u=view.u)
    # Of few that are spared only zeros are told from what is said of all
    every = _of_wrong(part) if wrong.size < most * size else (constants,)
    best = chosen(_seen(part, late, matchers or every))
    return None if best is None else replace(best, said=f"{where} {best.said}")


def _among(view: View) -> str:
    """Where the wrong elements are, of which alone something is said: others of their rows or channels may be right."""
    wrong, size = np.flatnonzero(view.wrong), view.right.size
    count, where = f"in {wrong.size} of {size} elements", place(view)
    indices_alone = where.startswith("in ") and not any(word in where for word in ("where", "border", "single"))
    if indices_alone and wrong.size < np.count_nonzero(view.region()):
        where = f"{count}, {where},"
    return _run(wrong, size) or where or _every(wrong) or count


def _run(wrong: Array, size: int) -> str:
    """Elements that are next to each other in memory, in words; empty where they are not.

    >>> _run(np.arange(6, 9), 9), _run(np.arange(2, 5), 9), _run(np.array([2, 4]), 9)
    ('in the last 3 elements in memory', 'in elements 2 to 4 in memory', '')
    """
    first, last = int(wrong[0]), int(wrong[-1])
    if last - first >= wrong.size:
        return ""
    if first == 0 or last == size - 1:
        return f"in the {'first' if first == 0 else 'last'} {wrong.size} elements in memory"
    return f"in elements {first} to {last} in memory"


def _every(wrong: Array) -> str:
    """Elements that are equally far from each other in memory, in words; empty where they are not.

    >>> _every(np.arange(3, 80, 7)), _every(np.array([3, 4, 6]))
    ('in every 7th element in memory, from element 3 on', '')
    """
    apart = np.diff(wrong)
    if wrong.size < MANY_EQUAL or np.ptp(apart):
        return ""
    return f"in every {apart[0]}th element in memory, from element {wrong[0]} on"


def _of_wrong(part: View) -> tuple[Matcher, ...]:
    """What says something of elements that were chosen because they are wrong."""
    binary = all(np.unique(np.round(x, 4)).size <= 2 for x in (part.f, part.r))
    # Either the wrong or the right number is 0: a difference of two tensors tells them apart whatever the cause
    masked = bool(part.f.any() and part.r.any() and (part.f * part.r == 0).all())
    return OF_TWO if binary or masked else MATCHERS


def _seen(view: View, late: Callable[[], bool], matchers: tuple[Matcher, ...] = MATCHERS) -> Iterator[Seen]:
    with np.errstate(all="ignore"):
        for matcher in matchers:
            if late():
                return
            for one in matcher(view):
                yield one
                if late():
                    return


def chosen(seen: Iterable[Seen]) -> Seen | None:
    """Return the simplest description that holds to rounding, else the one that leaves least, if that is little."""
    known = [one for one in seen if one.rest <= MOSTLY]
    least = min((one.rest for one in known), default=0.0)
    # Of those that hold to rounding a far better one is another one
    exact = [one for one in known if one.exact and one.rest <= max(100 * least, 1e-6)]
    if exact:
        return min(exact, key=lambda one: one.numbers)
    return min(known, key=lambda one: one.rest, default=None)


def _through(words: str, operand: View, late: Callable[[], bool]) -> Iterator[Seen]:
    """What is seen of an operand."""
    where = place(operand)
    best = chosen(_seen(operand, late)) if operand.error > 0 else None
    wrong = np.flatnonzero(operand.wrong)
    if (best is None or not best.exact) and 8 <= wrong.size < operand.at.size:
        part = View(operand.found, operand.right, operand.bound, operand.axes, operand.others, operand.operands,
                    operand.dimensions, wrong[:MOST])
        # Of few that are spared only zeros are told from what is said of all
        few = wrong.size < 0.9 * operand.at.size
        of_part = chosen(one for one in _seen(part, late, _of_wrong(part) if few else (constants,))
                         if says_more(operand, one, True))
        if (of_part is not None and of_part.exact) or (best is None and few):
            best, where = of_part, _among(operand)
    if best is not None:
        said = f"right but for {words}: {where}{' ' if where else ''}{best.said}"
        # A factor of the kernel is one of what it meets
        also = ", or what it is multiplied with" if words == "the kernel" else ""
        yield replace(best, said=said, look_at=f"{words}{also}: {best.look_at}")
    elif words == "the input":
        yield Seen(f"it is what another input gives{_levels(operand.found)}",
                   "how the input is read, and what is done to it before it is used", EXACT, 100)
    elif where and words in ("the kernel", "the bias"):
        # Few numbers give all of the result. Any result has a target, a mask, a step that give it
        yield Seen(f"right but for {words}, which is wrong {where}", f"{words} {where}", operand.left, 100)


def _levels(x: Array) -> str:
    """How many values numbers take, where they are few; they are known to some digits."""
    apart = np.diff(np.sort(x.ravel())) > 1e-4 * float(np.abs(x).max())
    levels = 1 + int(np.count_nonzero(apart))
    return f", whose pixels are {levels} different numbers only" if 4 * levels <= x.size and levels <= LEVELS else ""


def _loss(case: Case, right: SquaredError | Criterion, later: Sequence[Case]) -> Seen | None:
    steps = 1 + len(later)
    seen = list(_losses(case, right, steps))
    for other in later:
        if isinstance(other.right, SquaredError | Criterion) and np.isfinite(other.found).all():
            said = {one.said for one in _losses(other, other.right, steps)}
            seen = [one for one in seen if one.said in said]
    return chosen([*seen, *_factor(case, later)])


def _factor(case: Case, later: Sequence[Case]) -> Iterator[Seen]:
    """A factor by which the loss is wrong at every step at which it is wrong."""
    truths = [one.right.full(one.graph.arithmetic) for one in (case, *later)]
    right = np.array([one.value.reshape(-1)[0] for one in truths])
    error = np.array([0.0 if one.error is None else one.error.reshape(-1)[0] for one in truths])
    found = np.array([one.found.reshape(-1)[0] for one in (case, *later)])
    if not later or not right.all() or not np.isfinite(found).all():
        return
    times, off = found / right, np.abs(found / right) * (error / np.abs(right) + 2.0**-23)
    one = float(times.mean())
    if (np.abs(times - one) <= off).all() and abs(one - 1) > 1e-3 and one:
        # Its own digits, of which rounding may have changed the last
        known = (f"{value:.6g} ({said})" for said, value in CONSTANTS.items() if abs(value - one) <= float(off.max()))
        yield Seen(f"it is the right loss times {next(known, f'{one:.6g}')} at each of these {len(times)} steps",
                   "a factor of the loss: which mean, which logarithm, which unit", 0.0, FEW)


#: Factors that are no product of dimensions
CONSTANTS = {"1/log(2): the binary logarithm": 1 / math.log(2), "log(2)": math.log(2),
             "1/log(10): the decimal logarithm": 1 / math.log(10), "pi": math.pi, "1/pi": 1 / math.pi}


def _losses(case: Case, right: SquaredError | Criterion, steps: int) -> Iterator[Seen]:
    others = {}
    graph = case.graph
    for k in range(graph.step):
        other = StepGraph(graph.pair, k, graph.pair.start)
        # What is written may be late itself
        known = other.own(other.inputs("loss")[0]) is not None
        value = other.operation("loss").values() if known else other.own("loss")
        if value is not None:
            said = "the loss of the step before" if k == graph.step - 1 else f"the loss of step {k}"
            others[said] = float(value.reshape(-1)[0])
    targets = {name: x for name, x in known_tensors(case).items() if x.shape == right.target.shape}
    targets["the target 0"] = np.zeros_like(right.target)
    if right.target.ndim == 4:
        targets["the target turned upside down"] = right.target[:, :, ::-1]
        targets["the target mirrored"] = right.target[..., ::-1]
    for by in range(1, len(right.target)):
        targets[f"the targets of other images ({by} further)"] = np.roll(right.target, by, 0)
    expected = float(right.full(graph.arithmetic).value.reshape(-1)[0])
    others |= with_penalty(expected, graph.weights, graph.pair.optimizer.weight_decay)
    others |= _of_other_times(graph, expected)
    found = float(case.found.reshape(-1)[0])
    if isinstance(right, Criterion):
        others |= {f"the loss by {name}": float(right.replaced(target=t).at(np.zeros(1, int))[0])
                   for name, t in targets.items()}
        others |= cross_entropies(right) if is_cross_entropy(right) else (
            other_losses(right) if right.y.value.ndim == 4 else {})
        yield from agreeing(found, others | of_parts(right))
    else:
        yield from losses(right, found, others, targets)
        if steps >= STEPS:
            yield from losses_at_several_steps(right, found)
    yield from agreeing(found, implied(case, right), "what is said of the gradient of the loss")


def _of_other_times(graph: StepGraph, loss: float) -> dict[str, float]:
    """Losses over several steps, and of the weights after the update; of images that are not large."""
    if math.prod(graph.pair.batch_shape) > MANY:
        return {}
    found: dict[str, float] = {}
    before = [StepGraph(graph.pair, k, graph.pair.start) for k in range(graph.step)]
    if before and all(one.own(one.inputs("loss")[0]) is not None for one in before):
        so_far = [float(one.operation("loss").values().reshape(-1)[0]) for one in before]
        found["the mean of the losses so far"] = float(np.mean([*so_far, loss]))
        found["the sum of the losses so far"] = float(np.sum([*so_far, loss]))
        last = before[-1].own("loss")
        for share in RUNNING:
            if last is None:
                break
            said = f"the running mean of the losses, {share:g} of the one before and {1 - share:g} of this one"
            found[said] = float(share * last.reshape(-1)[0] + (1 - share) * loss)
    after = graph.pair.parameters(graph.pair.candidate, graph.step + 1)
    if after is not None and all(np.isfinite(w).all() for w in after.values()):
        wide = {name: w.astype(np.float64) for name, w in after.items()}
        again = StepGraph(graph.pair, graph.step, wide, ignored=frozenset(graph.pair.shapes), bounded=False)
        found["the loss of this batch after the update"] = float(again.operation("loss").values().reshape(-1)[0])
    return found


def _operands(case: Case) -> dict[str, Array]:
    """What the right tensor is made of, element by element."""
    right = case.right
    if isinstance(right, Rectified):
        return {"z": right.z.value}
    if isinstance(right, ReluBackward):
        return {"da": right.da.value, "z": right.source.value}
    if isinstance(right, LossGradient) or (isinstance(right, Criterion) and is_of_difference(right)):
        return gradients(right)
    return {}


def known_tensors(case: Case) -> dict[str, Array]:
    """Return the candidate's tensors of this step and the one before, the batches of both, weights and gradients."""
    found: dict[str, Array] = {}
    for graph, when in ((case.graph, ""), (case.before, " of the step before")):
        if graph is None:
            continue
        for name in (INPUT, TARGET):
            found[f"{name}{when}"] = graph.value(name).value
        names = list(graph.pair.shapes)
        if not when and case.name in names:
            # What is computed from this tensor explains nothing of it
            names = names[: names.index(case.name)]
        for name in names:
            own = graph.own(name) if name != "loss" else None
            if own is not None and own.size <= MANY:
                found[f"{name}{when}"] = own
    if case.graph.step + 1 < case.graph.pair.steps:
        later = StepGraph(case.graph.pair, case.graph.step + 1, case.graph.pair.start)
        found |= {f"{name} of the next step": later.value(name).value for name in (INPUT, TARGET)}
    for name, w in case.graph.weights.items():
        found[f"weights/{name}"] = w
    step = case.graph.step
    before = case.graph.pair.parameters(case.graph.pair.candidate, step - 1) if step else None
    for name, w in (before or {}).items():
        found[f"weights/{name} of the step before"] = w.astype(np.float64)
    return found
