# SPDX-License-Identifier: MIT
"""Faults that happen to a tensor after it was computed: its memory, its numbers, its scale, its old contents."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from bridge.judge.diagnosis.faults.convolution_faults import SHIFTS, moved_detail, order_detail, shifts
from bridge.judge.diagnosis.faults.factors import divisors, factor_detail, fitted, is_count, is_named
from bridge.judge.diagnosis.faults.layouts import AxisLayout, SliceOrder, layouts
from bridge.judge.diagnosis.predictions.elementwise import LossGradient, SquaredError
from bridge.judge.diagnosis.predictions.hypothesis import (
    Added,
    Hypotheses,
    Hypothesis,
    Moved,
    Passed,
    Read,
    Scaled,
    hypothesis,
    join,
    joined,
)
from bridge.judge.diagnosis.predictions.operations import Given, Prediction
from bridge.judge.diagnosis.predictions.step_graph import StepGraph
from bridge.judge.oracle.reduced_precision import round_fraction

Array = np.ndarray
Change = Callable[[Array], Array]
#: Rounding aside, in the Euclidean norm: what a tensor is off by that was computed of the right one
FOLLOWS = 1e-3


def axis_names(shape: tuple[int, ...], name: str) -> str:
    """Return the letters of a tensor's axes.

    >>> axis_names((16, 1, 3, 3), "grads/conv1/weight"), axis_names((2, 1, 8, 8), "forward/conv1")
    ('kcrs', 'nchw')
    """
    filters = {2: "kc", 4: "kcrs", 5: "kcdrs"} if name.endswith("/weight") else {2: "nc", 4: "nchw", 5: "ncdhw"}
    return {3: "nlc", **filters}.get(len(shape), "k")


def how_many(names: str) -> str:
    """Return which layouts of a tensor are tried: images are large, and five axes have thousands."""
    return "often" if names[0] == "n" or len(names) > 4 else "all"


def read_wrongly(base: Hypothesis, name: str) -> Hypotheses:
    """Yield the tensor in every layout; of a large one those that are often met."""
    shape = base.operation.shape
    names = axis_names(shape, name)
    # Axes of more have no names
    for layout in () if len(shape) > len(names) else layouts(shape, names, how_many(names)):
        yield from read_in(base, layout)


def read_in(base: Hypothesis, layout: AxisLayout) -> Hypotheses:
    """Yield the tensor in one layout."""
    read = Read(base.operation.shape, base.operation, layout)
    yield Hypothesis(join(base.kinds, layout.kinds), joined(base.detail, layout.detail), read, base.fitted, layout)


def scaled(base: Hypothesis, predicted: Array, found: Array, dimensions: dict[str, int]) -> Hypothesis | None:
    """Return the tensor times the factor that fits best; None where that is 1, or nothing."""
    of = base.operation
    known = divisors(of.y.value.shape) if isinstance(of, SquaredError | LossGradient) and of.is_mean else {}
    factor = fitted(predicted, found, dimensions, known)
    if factor is None or factor == 1.0:
        return None
    key = "count" if is_count(factor, dimensions) else "scale"
    if isinstance(base.operation, LossGradient) and factor == 0.5:
        key = "factor_two"
    named = factor in known or is_named(factor, dimensions)
    words = known.get(factor) or factor_detail(factor, dimensions)
    return base.then(key, words, Scaled(of.shape, of, factor), fitted=not named)


def moved(base: Hypothesis, name: str) -> Hypotheses:
    """Yield the tensor with images moved by a pixel, of a convolution's by up to half its window."""
    shape = base.operation.shape
    if axis_names(shape, name) != "nchw":
        return
    key = "padding_width" if name.startswith("forward/") else "shifted_gradient"
    layer = getattr(base.operation, "layer", None)
    for shift in SHIFTS if layer is None else shifts(layer):
        for circular, how in ((False, "zeros come in"), (True, "around the border")):
            yield base.then(key, f"{moved_detail(shift)}, {how}", Moved(shape, base.operation, shift, circular))


def changed_numbers(base: Hypothesis, found: Array | None = None) -> Hypotheses:
    """Yield the tensor rounded, underflown, or printed and read again; only what leaves the numbers that were found as
    they are.

    Parameters
    ----------
    found : what the candidate has; None tries all but printing
    """
    shape = base.operation.shape
    changes = _CHANGES if found is None else [*_CHANGES, *_printed()]
    for key, detail, change, relative, absolute in changes:
        if found is None or _leaves(change, found[:4096]):
            yield base.then(key, detail, Passed(shape, base.operation, change, relative, absolute))


def _leaves(change: Change, found: Array) -> bool:
    """Numbers that went through a change come out of it once more as they are."""
    return bool(np.array_equal(np.asarray(change(found), dtype=np.float32), found.astype(np.float32)))


def _printed() -> Iterator[tuple[str, str, Change, float, float]]:
    """With few digits after the point, or of the fraction."""
    for digits in (3, 4, 5, 6, 7):
        yield "storage", f"printed as %.{digits}f", _decimal(digits, "f"), 0.0, 10.0**-digits
    for digits in (2, 3, 4, 5):
        yield "storage", f"printed as %.{digits}e", _decimal(digits, "e"), 10.0**-digits, 0.0


def from_memory(base: Hypothesis, before: dict[str, Array]) -> Hypotheses:
    """Yield old contents, by description: added to, or in place of, what is computed."""
    shape = base.operation.shape
    for what, old in before.items():
        if old.size != np.prod(shape):
            continue
        if what == "the step before":
            yield base.then("accumulated", "added to the result of the step before", Added(shape, base.operation, old))
            copy = Given(shape, old.reshape(shape))
            yield hypothesis("previous_step", "the result of the step before", copy)
            yield hypothesis("stale", "the result of the step before was written again", copy)
        elif what == "all steps before":
            yield base.then("accumulated", "added to the sum of all steps before", Added(shape, base.operation, old))
        else:
            yield hypothesis("stale", f"a copy of {what}", Given(shape, old.reshape(shape)))
    yield hypothesis("stale", "all zero", Given(shape, np.zeros(shape)))


def worked_in_place(base: Hypothesis, graph: StepGraph, name: str, found: Array) -> Hypotheses:
    """Yield what is computed after this tensor, whose numbers are in its place: its operation overwrote them."""
    shapes = graph.pair.shapes
    names = list(shapes)
    # Zeros are everywhere the same
    if not ((name.startswith("forward/") or name.endswith("/output")) and found.any()):
        return
    for other in names[names.index(name) + 1 :]:
        if shapes[other] == shapes[name] and graph.given(other):
            own = graph.own(other)
            if own is not None and np.array_equal(own.reshape(-1), found.reshape(-1)) and _overwrote(
                    base.operation, graph, name, other):
                said = f"it holds {other}: that was computed in its place before it was written"
                yield base.then("other_layer", said, Given(base.operation.shape, own))
                return


def _overwrote(right: Prediction, graph: StepGraph, name: str, other: str) -> bool:
    """Whether another tensor is what follows from the right one of this tensor, and is not the same.

    A sum sends its gradient on: they are equal. And an operation that hands on what it is given, by another mistake,
    has made the other one of what is here. What is between them may be wrong by this tensor, and shows nothing.
    """
    ignored = frozenset(graph.after(name))
    after = StepGraph(graph.pair, graph.step, graph.weights, ignored=ignored).operation(other)
    one, following = right.full(graph.arithmetic), after.full(graph.arithmetic)
    room = sum(0.0 if each.error is None else each.error for each in (one, following))
    same = (np.abs(one.value.reshape(-1) - following.value.reshape(-1)) <= np.ravel(room)).all()
    own = graph.own(other)
    assert own is not None
    off = np.linalg.norm(own.reshape(-1) - following.value.reshape(-1))
    return bool(not same and off <= FOLLOWS * np.linalg.norm(following.value))


def permuted(base: Hypothesis, predicted: Array, found: Array, name: str) -> Iterator[Hypothesis]:
    """Yield the tensor with channels or images in another order, or some repeated; found by matching each with each."""
    shape = base.operation.shape
    for axis in range(min(2, len(shape))):
        order = matching(predicted.reshape(shape), found.reshape(shape), axis)
        if order is not None:
            what = "images" if axis_names(shape, name) == "nchw" and axis == 0 else "channels"
            read = Read(shape, base.operation, SliceOrder(axis, tuple(order)))
            # A factor on top of one number that is repeated gives every constant
            repeated = len(set(order)) == 1 and shape[axis] == int(np.prod(shape))
            yield base.then("channels_permuted", order_detail(what, order), read, fitted=repeated)


def matching(predicted: Array, found: Array, axis: int) -> list[int] | None:
    """For each slice of what was found the most similar one of what was predicted; None where these are the same."""
    a, b = (np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1) for x in (found, predicted))
    if not 1 < len(a) <= 512:
        return None
    chosen = np.random.default_rng(0).choice(a.shape[1], min(a.shape[1], 512), replace=False)
    a, b = a[:, chosen], b[:, chosen]
    distance = (a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2 * a @ b.T
    order = [int(i) for i in distance.argmin(1)]
    return order if order != list(range(len(order))) else None


def underflown(base: Hypothesis, predicted: Array, found: Array) -> Hypotheses:
    """Return the tensor rounded to fp16, where many numbers are below its smallest normal one: digits are lost, or all
    of them.

    Otherwise the same is a rounding, see `changed_numbers`.
    """
    small = (predicted != 0) & (np.abs(predicted) < 2.0**-14)
    if np.count_nonzero(small) > 0.1 * np.count_nonzero(predicted) and _leaves(_half, found[:4096]):
        passed = Passed(base.operation.shape, base.operation, _half, 2.0**-10, 2.0**-24)
        yield base.then("underflow", "fp16, whose smallest normal number (6.1e-5) is larger than many here", passed)


def _decimal(digits: int, letter: str) -> Change:
    def printed(x: Array) -> Array:
        return np.array([float(f"{v:.{digits}{letter}}") for v in x.ravel()]).reshape(x.shape)

    return printed


def _half(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return x.astype(np.float32).astype(np.float16)


def _flush(smallest: float) -> Callable[[Array], Array]:
    return lambda x: np.where(np.abs(x) < smallest, 0.0, x)


#: kind, in words, the change, and one step of it: relative, absolute
_CHANGES: list[tuple[str, str, Callable[[Array], Array], float, float]] = [
    ("storage", "rounded to fp16", _half, 2.0**-10, 2.0**-24),
    ("storage", "rounded to bf16", lambda x: round_fraction(x.astype(np.float32), 7), 2.0**-7, 0.0),
    ("storage", "rounded to TF32", lambda x: round_fraction(x.astype(np.float32), 10), 2.0**-10, 0.0),
    ("underflow", "below the smallest normal number of fp16 (6.1e-5): 0", _flush(2.0**-14), 0.0, 0.0),
    ("underflow", "below the smallest number of fp16 (6e-8): 0", _flush(2.0**-24), 0.0, 0.0),
    ("underflow", "below half the smallest number of fp16 (3e-8): 0", _flush(2.0**-25), 0.0, 0.0),
    ("underflow", "below the smallest normal number of float32 (1.2e-38): 0", _flush(2.0**-126), 0.0, 0.0),
]


def quantised(base: Hypothesis, predicted: Array, found: Array) -> Hypotheses:
    """Return the tensor with eight bits for its range; `predicted` is all of it, and so is what was `found`."""
    if found.size < 16 or np.ptp(found) == 0:
        return
    levels = (found - found.min()) / (np.ptp(found) / 255)
    if not np.abs(levels - np.rint(levels)).max() <= 0.01:
        return
    step = float(np.ptp(predicted)) / 255
    low = float(predicted.min())
    if step > 0:
        change = Passed(
            base.operation.shape, base.operation, lambda x: low + np.round((x - low) / step) * step, 0.0, step
        )
        yield base.then("storage", "quantised to 8 bits", change)


def undone(found: Array) -> Iterator[tuple[str, Array]]:
    """Yield what would be right again where bytes were mixed up: description, and the first numbers of the tensor.

    The lowest bits of a number, which rounding decides, are the highest after a swap: so it is not the right tensor
    that is swapped, but what was found.
    """
    stored = found.astype(np.float32)
    with np.errstate(all="ignore"):
        yield "byte order swapped", stored.byteswap().astype(np.float64)
        yield "byte order of float64 swapped", found.byteswap()
        if stored.size % 2 == 0 and stored.size > 2:
            yield "float64 read as float32", stored.view(np.float64)
