# SPDX-License-Identifier: MIT
"""Recurrent layers that are other ones: gates in another order, times backwards, other kinds of a GRU."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bridge.judge.diagnosis.altered.others import Others
from bridge.judge.diagnosis.wrong_operations.change import changed
from bridge.operations.operation import Gradients, Number, Operation, Shape
from bridge.operations.recurrence import Gru

#: Of recurrent layers what their gates are called, in torch's order
GATES = {"lstm": ("input", "forget", "proposal", "output"), "gru": ("reset", "update", "proposal")}

#: Times at either end that a gradient may be cut at, and at whose multiples it may be
MOST_CUTS = 16
LENGTHS = (*range(2, 17), 20, 24, 25, 30, 32, 35, 40, 50, 60, 64, 100, 128)


def in_other_gates(right: Operation) -> Others:
    """Yield a recurrent layer that reads its gates in another order, those of the input and of the weights alike."""
    names = GATES.get(right.kind, ())
    for order in itertools.permutations(range(len(names))) if names else ():
        if order == tuple(range(len(names))):
            continue
        back = tuple(order.index(k) for k in range(len(names)))

        def of(x: Number, axis: int, order: tuple[int, ...]) -> Number:
            def move(a: Any) -> Any:
                parts = np.split(a, len(order), axis)
                return np.concatenate([parts[k] for k in order], axis)

            return x.moved(move)

        def known(w: Mapping[str, Number], order: tuple[int, ...]) -> Mapping[str, Number]:
            return {name: one if name == "output" else of(one, 2 if name == "input_gradient" else 0, order)
                    for name, one in w.items()}

        def forward(xs: Sequence[Number], w: Mapping[str, Number], order: tuple[int, ...] = order) -> Number:
            return right.forward([of(xs[0], 2, order)], known(w, order))

        def backward(dy: Number, xs: Sequence[Number], w: Mapping[str, Number], order: tuple[int, ...] = order,
                     back: tuple[int, ...] = back) -> Gradients:
            (dx,), found = right.backward(dy, [of(xs[0], 2, order)], known(w, order))
            return [of(dx, 2, back)], {name: of(one, 0, back) for name, one in found.items()}

        said = ", ".join(names[back[k]] for k in range(len(names)))
        yield f"the gates are in the order {said}, not {', '.join(names)}", changed(
            right, forward=forward, backward=backward)


def in_other_times(right: Operation) -> Others:
    """Yield a recurrent layer whose outputs come in the other order of times."""
    def forward(xs: Sequence[Number], w: Mapping[str, Number]) -> Number:
        # From its own outputs, in their order, all would be wrong
        weights = {name: w[name] for name in right.parameter_shapes()}
        return right.forward(xs, weights).moved(lambda a: a[:, ::-1])

    if right.follows_itself:
        yield "the last time comes first in the output", changed(right, forward=forward)


def in_other_gradients(right: Operation, shape: Shape) -> Others:
    """Yield a recurrent layer whose gradients take outputs of the same time, or go back through a part of its times.
    """
    if right.follows_itself:
        yield "the output of the same time in place of the output before", changed(
            right, _of_weight=lambda known: known["y"])
    times = shape[1] if right.follows_itself else 0
    counted = f"(times count from 0 to {times - 1})"
    cuts = {f"the gradient does not go back from time {_row(right, t, times)} to the time before {counted}": {t}
            for t in (*range(1, min(times, MOST_CUTS)), *range(max(times - MOST_CUTS, MOST_CUTS), times))}
    cuts |= {f"the gradient goes back through {n} times at most: it is cut behind every {n} {counted}": {
        *range(n, times, n)} for n in LENGTHS if 2 * n < times}
    if times > 2:
        cuts["the gradient does not go back from any time to the time before"] = {*range(1, times)}
    for words, where in cuts.items():
        def passed(x: Number, start: int = 0, where: set[int] = where) -> Number:
            kept = np.array([start + i + 1 not in where for i in range(x.shape[1])])
            return x.moved(lambda a: np.where(kept[:, None], a, 0.0))

        yield words, changed(right, _passed_back=passed)


def _row(right: Operation, time: int, times: int) -> int:
    """Where a time stands."""
    return times - 1 - time if getattr(right, "reverse", False) else time


def other_grus(right: Operation) -> Others:
    """Yield a GRU whose reset gate stands elsewhere."""
    if not isinstance(right, Gru):
        return
    n = right.hidden_size
    for inside, said in ((True, "the reset gate multiplies the output before, not its product with the weights"),
                         (False, "the reset gate does not multiply the bias of the proposal")):
        def known(z: Number, before: Number, w: Mapping[str, Number], state: Number | None = None,
                  inside: bool = inside) -> Mapping[str, Number]:
            found = right._known(z, before, w, state)
            r, weight = found["r"], w["weight"][2 * n:].transpose((1, 0))
            rows = (r * before if inside else before).reshape((-1, n)) @ weight
            product = rows.reshape(before.shape) if inside else r * rows.reshape(before.shape)
            shifted = product + w["bias"][2 * n:] if right.bias else product
            return {**found, "n": (z[:, :, 2 * n:] + shifted).tanh()}

        if inside or right.bias:
            yield said, changed(right, forward=changed(right, _known=known).forward)
