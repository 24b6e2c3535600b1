# SPDX-License-Identifier: MIT
"""Another operation or loss in the place of the right one, the same with other settings, or of another input."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, replace
from typing import Any

import numpy as np

from bridge.common.errors import BridgeError
from bridge.judge.diagnosis.altered.calls import word_of
from bridge.judge.diagnosis.evidence.view import AXES
from bridge.judge.diagnosis.evidence.words import indices, several
from bridge.judge.diagnosis.faults.convolution_faults import order_detail
from bridge.judge.diagnosis.faults.output_faults import axis_names
from bridge.judge.diagnosis.wrong_operations.change import changed
from bridge.operations import OPERATIONS
from bridge.operations.hyperparameters import FROM_ZERO, SEVERAL
from bridge.operations.losses import LOSSES, Loss
from bridge.operations.normalization import BatchNorm2d
from bridge.operations.operation import Gradients, Number, Operation, Shape
from bridge.operations.rearrangement import TO_THE_END, Permute, Reshape, Slice, Transpose
from bridge.operations.reductions import Amax, Mean, Sum

#: What exactly, and the operation or the loss that has it
Others = Iterator[tuple[str, Any]]
#: Real settings that are often taken, and those of what is added to a divisor
USUAL, SMALL = (0.0, 1.0, 0.1, 1e-2), (1e-3, 1e-5, 1e-6, 1e-7, 1e-8, 1e-12)
#: Dimensions of images
RANK = 4
#: Inputs that are tried in every order
MOST_JOINED = 4
#: Parts that are tried in the place of one, and those that go on by other steps
MOST_PARTS, MOST_STEPS = 128, 8
#: Operations that move what may lie in other blocks
MOVING = (Permute, Reshape, Slice, Transpose)
#: Modules of operations that do another thing with other signs, and of those that are not linear
OF_SIGNS = ("arithmetic", "pointwise", "pooling", "reductions")
OF_FUNCTIONS = ("normalization", "pointwise", "softmax", "spline")
#: Multiples of an input
MULTIPLES = ((2.0, "twice its input"), (0.5, "half its input"), (-1.0, "its input with the other sign"))
#: What outputs may go through before a loss
BEFORE_LOSSES = ("sigmoid", "softmax", "log_softmax", "tanh")
#: Operations and losses that are most often in a program
COMMON = ("relu", "sigmoid", "tanh", "leaky_relu", "batch_norm2d", "layer_norm", "mse", "l1")
#: How words begin of what is possible only where the output has the shape of the input
OF_SHAPE = ("no ", "the derivative at the output", "along ")


def other_settings(right: Operation | Loss, shapes: Sequence[Shape] = ()) -> Others:
    """Yield the same with one setting changed: torch's own, its opposite, another order, one more or less.

    Parameters
    ----------
    shapes : of the inputs of an operation, where a setting may stand for a number that follows from them

    >>> from bridge.operations.pointwise import Elu
    >>> [said for said, _ in other_settings(Elu("a", alpha=0.5))][:4]
    ['alpha is 1 in place of 0.5', 'alpha is 0 in place of 0.5', 'alpha is 0.1 in place of 0.5', \
'alpha is 0.01 in place of 0.5']
    """
    numbers = {value for one in fields(right) if type(value := getattr(right, one.name)) is int}
    for one in fields(right):
        value = getattr(right, one.name)
        # There are no windows of no pixels, and none that go on by none
        lowest = 1 if str(one.type) in SEVERAL and one.name not in FROM_ZERO else None
        if one.name not in ("name", "inputs"):
            for other in dict.fromkeys((*_default(one), *_like(value, numbers))):
                if other != value and (lowest is None or min(other) >= lowest):
                    made = replace(right, **{one.name: other})
                    wrong, known = (in_words(owner, one.name, shapes) for owner in (made, right))
                    yield f"{one.name} is {wrong} in place of {known}", made


def others_in_its_place(right: Operation | Loss) -> Others:
    """Yield nothing in its place, and all others that take the same settings, the rest as torch has it."""
    given = {one.name: getattr(right, one.name) for one in fields(right)}
    types = {one.name: one.type for one in fields(right)}
    if isinstance(right, Operation):
        of_one = f"no {right.kind}" + (f", {right.inputs[0]} alone" if len(right.inputs) > 1 else "")
        yield of_one, changed(
            right, forward=lambda xs, w: xs[0], backward=lambda dy, xs, w: ([dy, *xs[1:]], {}))
    of_all: Mapping[str, type[Any]] = OPERATIONS if isinstance(right, Operation) else LOSSES
    # What is common comes before what comes to the same on these data
    for kind, other in sorted(of_all.items(), key=lambda item: item[0] not in COMMON):
        # A dimension is not several, though both are called so
        same = {one.name: given[one.name] for one in fields(other) if types.get(one.name) == one.type}
        needed = {one.name for one in fields(other) if not list(_default(one))} - {"inputs"}
        if kind == right.kind or not needed <= same.keys():
            continue
        yield f"{kind} in place of {right.kind}", other(**same)
        for one in fields(other):
            for name, value in given.items():
                if one.name not in same and isinstance(one.default, float) and type(value) is float:
                    yield f"{kind} with {one.name} = {name} in place of {right.kind}", other(**same, **{
                        one.name: value})


def of_another_input(right: Operation) -> Others:
    """Yield what an operation with one input makes of a multiple of it, and derivatives at the output."""
    if len(right.inputs) > 1:
        return
    # What is linear gives a factor, which says as much
    module = type(right).__module__.rpartition(".")[2]
    for factor, said in MULTIPLES if module in OF_FUNCTIONS else ():
        def forward(xs: Sequence[Number], w: Mapping[str, Number], factor: float = factor) -> Number:
            return right.forward([xs[0] * factor], w)

        def backward(dy: Number, xs: Sequence[Number], w: Mapping[str, Number], factor: float = factor) -> Gradients:
            (dx,), of_parameters = right.backward(dy, [xs[0] * factor], w)
            return [dx * factor], of_parameters

        def at(dy: Number, xs: Sequence[Number], w: Mapping[str, Number], factor: float = factor) -> Gradients:
            return right.backward(dy, [xs[0] * factor], w)

        yield f"{right.kind} of {said}", changed(right, forward=forward, backward=backward)
        yield f"the derivative at {said}", changed(right, backward=at)
    if module in OF_SIGNS:
        yield f"-{right.kind}(-x), not {right.kind}(x)", changed(
            right, forward=lambda xs, w: -right.forward([-xs[0]], w),
            backward=lambda dy, xs, w: right.backward(dy, [-xs[0]], w))
    if module in OF_FUNCTIONS:
        yield "the derivative at the output, not at the input", changed(
            right, backward=lambda dy, xs, w: right.backward(dy, [right.forward(xs, w)], w))


def along_other_axes(right: Operation, shape: tuple[int, ...]) -> Others:
    """Yield an operation of a tensor of this shape with two axes exchanged, and its result with them put back."""
    rank = len(shape)
    for axes in itertools.combinations(range(rank), 2) if (
            len(right.inputs) < 2 and not right.has_mask and not right.follows_itself) else ():
        order = tuple({axes[0]: axes[1], axes[1]: axes[0]}.get(i, i) for i in range(rank))
        given = tuple(shape[i] for i in order)
        if not (fits(right, right, [given])
                and _exchanged(right.output_shape(given), right.output_shape(shape), order)):
            continue

        def forward(xs: Sequence[Number], w: Mapping[str, Number], order: tuple[int, ...] = order) -> Number:
            return right.forward([xs[0].transpose(order)], w).transpose(order)

        def backward(dy: Number, xs: Sequence[Number], w: Mapping[str, Number], order: tuple[int, ...] = order
                     ) -> Gradients:
            (dx,), of_parameters = right.backward(dy.transpose(order), [xs[0].transpose(order)], w)
            return [dx.transpose(order)], of_parameters

        first, second = (several(word_of(axis, rank)) for axis in axes)
        yield f"along exchanged axes: {first} for {second}, and {second} for {first}", changed(
            right, forward=forward, backward=backward)


def other_parts(right: Operation, shape: Shape) -> Iterator[tuple[str, str, Operation]]:
    """Yield the kind of a mistake, what is taken of a tensor of this shape in place of a part, and what takes it.

    >>> [said for _, said, _ in other_parts(Slice("a", 1, 0, 2), (3, 6))][:2]
    ['features 1 to 2 of 6 in place of features 0 to 1 of 6', 'features 2 to 3 of 6 in place of features 0 to 1 of 6']
    """
    if not isinstance(right, Slice):
        return
    *before, chosen = right.index(len(shape))
    axis, n = len(before), shape[len(before)]
    own, names = range(*chosen.indices(n)), AXES.get(axis_names(shape, ""), ())
    word = names[axis] if len(names) == len(shape) else word_of(axis, len(shape))
    taken = indices(np.array(own), n, word)
    for other in _parts(own, n):
        stop = other.stop if other.stop < n else TO_THE_END
        yield "index", f"{indices(np.array(other), n, word)} in place of {taken}", replace(
            right, start=other.start, stop=stop, step=other.step)
    if len(own) == 1 < n:
        for said, reduction in (("mean", Mean), ("sum", Sum), ("largest", Amax)):
            yield "summed_axes", f"the {said} of all {several(word)} in place of {taken}", reduction(
                right.name, (axis,), True, inputs=right.inputs)


def in_other_blocks(right: Operation, shape: Shape) -> Iterator[tuple[str, str, Operation]]:
    """Yield the kind of a mistake, in which blocks an axis of this shape is taken that is moved, and what takes it so.

    >>> [said for _, said, _ in in_other_blocks(Reshape("a", (2, 2, 2)), (3, 8))][:2]
    ['the 8 features are taken as 2 by 2 by 2, the first two of which are exchanged', \
'the 8 features are taken as 2 by 4, not as 4 by 2']
    """
    if not isinstance(right, MOVING):
        return
    for axis in range(1, len(shape)):
        n, names = shape[axis], AXES.get(axis_names(shape, ""), ())
        word = several(names[axis] if len(names) == len(shape) else word_of(axis, len(shape)))
        divisors = [one for one in range(2, n) if n % one == 0]
        pairs = ((p, q) for p, q in itertools.product(divisors, divisors) if n % (p * q) == 0)
        for p, q in itertools.islice(pairs, MOST_PARTS):
            of = (p, q) if p * q == n else (p, q, n // (p * q))
            wrong, known = (" by ".join(map(str, one)) for one in (of, (q, p, *of[2:])))
            said = f"not as {known}" if p != q else "the first two of which are exchanged"
            yield "channels_permuted", f"the {n} {word} are taken as {wrong}, {said}", _of_blocks(right, axis, p, q)


def _of_blocks(right: Operation, axis: int, p: int, q: int) -> Operation:
    """The operation with two parts exchanged of an axis that is p by q by what is left."""
    def of(a: np.ndarray, p: int, q: int) -> np.ndarray:
        parts = a.reshape((*a.shape[:axis], p, q, a.shape[axis] // (p * q), *a.shape[axis + 1:]))
        return parts.swapaxes(axis, axis + 1).reshape(a.shape)

    def backward(dy: Number, xs: Sequence[Number], w: Mapping[str, Number]) -> Gradients:
        (dx,), found = right.backward(dy, [xs[0].moved(lambda a: of(a, p, q))], w)
        return [dx.moved(lambda a: of(a, q, p))], found

    return changed(right, forward=lambda xs, w: right.forward([xs[0].moved(lambda a: of(a, p, q))], w),
                   backward=backward)


def _parts(own: range, n: int) -> list[range]:
    """Parts of as many indices of n, that begin elsewhere or go on by other steps; of very many some are left out."""
    def of(start: int, step: int) -> range:
        return range(start, start + step * len(own), step)

    last = n - 1 - own.step * (len(own) - 1)
    every = sorted(range(last + 1), key=lambda start: abs(start - own.start))
    if len(every) > MOST_PARTS:
        whole = [start for start in every if start % len(own) == own.start % len(own)]
        every = [0, last, *whole[:MOST_PARTS], *every[:MOST_PARTS]]
    steps = {1, n // len(own)} if len(own) > 1 else set()
    found = [of(start, own.step) for start in every]
    found += [of(start, step) for step in sorted(steps) for start in (own.start, *range(min(step, MOST_STEPS)))]
    return [one for one in dict.fromkeys(found) if one != own and one[-1] < n]


def _exchanged(found: tuple[int, ...], wanted: tuple[int, ...], order: tuple[int, ...]) -> bool:
    """Whether one shape is another whose axes are in this order."""
    return len(found) == len(order) and tuple(found[i] for i in order) == wanted


def in_other_orders(right: Operation, shapes: Sequence[tuple[int, ...]]) -> Others:
    """Yield an operation that takes its inputs, of these shapes, in another order, of few all orders."""
    for order in orders(len(right.inputs)):
        if not fits(right, right, [shapes[i] for i in order]) or (
                right.output_shape(*(shapes[i] for i in order)) != right.output_shape(*shapes)):
            continue

        def forward(xs: Sequence[Number], w: Mapping[str, Number], order: tuple[int, ...] = order) -> Number:
            return right.forward([xs[i] for i in order], w)

        def backward(dy: Number, xs: Sequence[Number], w: Mapping[str, Number], order: tuple[int, ...] = order
                     ) -> Gradients:
            of_inputs, of_parameters = right.backward(dy, [xs[i] for i in order], w)
            return [of_inputs[order.index(i)] for i in range(len(xs))], of_parameters

        yield order_detail("inputs", order), changed(right, forward=forward, backward=backward)


def orders(count: int) -> Iterator[tuple[int, ...]]:
    """Yield orders of inputs other than theirs: all of a few, else two exchanged, and all reversed.

    >>> list(orders(2)), len(list(orders(4))), len(list(orders(6)))
    ([(1, 0)], 23, 16)
    """
    right = tuple(range(count))
    if count <= MOST_JOINED:
        yield from itertools.islice(itertools.permutations(right), 1, None)
        return
    yield right[::-1]
    for i, j in itertools.combinations(right, 2):
        yield tuple({i: j, j: i}.get(k, k) for k in right)


def of_another_output(right: Loss) -> Others:
    """Yield a loss of what an activation makes of the output, with and without its derivative."""
    for kind in BEFORE_LOSSES:
        before = OPERATIONS[kind]("")

        def forward(y: Number, t: Number, before: Operation = before) -> Number:
            return right.forward(before.forward([y], {}), t)

        def at(y: Number, t: Number, before: Operation = before) -> Number:
            return right.backward(before.forward([y], {}), t)

        def backward(y: Number, t: Number, before: Operation = before) -> Number:
            (dy,), _ = before.backward(right.backward(before.forward([y], {}), t), [y], {})
            return dy

        yield f"the loss of {kind} of the outputs", changed(right, forward=forward, backward=backward)
        yield f"the derivative at {kind} of the outputs", changed(right, backward=at)


def with_state_twice(right: Operation) -> Others:
    """Yield an operation that takes each batch into what it keeps twice."""
    if right.new_state_shapes():
        yield "what is kept takes in the batch twice", changed(right, new_state=lambda xs, w: right.new_state(
            xs, {**w, **right.new_state(xs, w)}))


def by_running_statistics(right: BatchNorm2d) -> Others:
    """Yield a normalisation by what is kept and not by the batch's, its gradient with and without the means."""
    if not right.track_running_stats:
        return
    kept = replace(right, training=False)
    for new, words in ((False, "the running statistics"), (True, "the running statistics that it has just changed")):
        def known(x: Number, w: Mapping[str, Number], new: bool = new) -> Mapping[str, Number]:
            return {**w, **right.new_state([x], w)} if new else w

        said = f"normalised by {words}, not by those of the batch"
        yield said, changed(right, _mean=lambda x, w, known=known: kept._mean(x, known(x, w)),
                            _normalised=lambda x, w, known=known: kept._normalised(x, known(x, w)))
        yield f"{said}, which are constant", changed(
            right, forward=lambda xs, w, known=known: kept.forward(xs, known(xs[0], w)),
            backward=lambda dy, xs, w, known=known: kept.backward(dy, xs, known(xs[0], w)))


def fits(other: Operation, right: Operation, shapes: Sequence[tuple[int, ...]]) -> bool:
    """Return whether an operation can be computed of the same inputs and parameters, and gives the same shapes."""
    try:
        other.check()
        return (other.output_shape(*shapes) == right.output_shape(*shapes) and other.has_mask == right.has_mask
                and other.parameter_shapes() == right.parameter_shapes()
                and (other.arity or 2) in (right.arity or 2, len(shapes))
                and other.state_shapes().keys() <= right.state_shapes().keys())
    except (BridgeError, ArithmeticError, LookupError, ValueError):
        return False


def _default(one: Field[Any]) -> Iterator[Any]:
    if one.default is not MISSING:
        yield one.default


def _like(value: Any, numbers: set[int]) -> Iterator[Any]:
    """Values of the same type."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value - 1, value + 1, 2 * value, value // 2, 1, *sorted(numbers))
    elif isinstance(value, float):
        yield from (*USUAL, *(SMALL if 0 < value <= max(SMALL) * 10 else ()))
        yield from (1 - value, 2 * value, value / 2, *([1 / value] if value else []))
    elif isinstance(value, tuple) and 0 < len(value) <= RANK and all(type(one) is int for one in value):
        yield from itertools.permutations(value)
        yield from itertools.combinations(range(RANK), len(value))
        yield from (tuple(one + by for one in value) for by in (-1, 1))
        yield from ((one,) * len(value) for one in value)


def in_words(owner: Operation | Loss, name: str, shapes: Sequence[Shape]) -> str:
    """Return a setting, or what it stands for."""
    value = getattr(owner, name)
    known = owner.in_words(name, *shapes) if isinstance(owner, Operation) and shapes else ""
    return known or (f"{value:.6g}" if isinstance(value, float) else str(value))
