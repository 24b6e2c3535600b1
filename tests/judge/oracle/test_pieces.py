# SPDX-License-Identifier: MIT
"""Large operations in pieces: the same numbers and bounds as of the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bridge.judge.oracle import pieces
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.primitives import watched
from bridge.operations import Attention, GeluTanh, Relu, Softmax
from bridge.operations.operation import Operation

ARITHMETIC = Arithmetic(2.0**-24)


def numbers(seed: int, *shape: int) -> Bounded:
    """With errors, some of which are large enough to leave choices in doubt."""
    rng = np.random.default_rng(seed)
    return Bounded(rng.standard_normal(shape), 2.0**-20 * rng.random(shape), ARITHMETIC, terms=seed + 1)


CASES: list[tuple[Operation, tuple[Bounded, ...]]] = [
    (Attention("a", inputs=("x", "x", "x"), is_causal=True),
     tuple(numbers(i, 2, 3, 40, 8 + (i == 2)) for i in range(3))),
    (Attention("a", inputs=("x", "x", "x")), tuple(numbers(i, 5, 40, 8) for i in range(3))),
    (GeluTanh("a"), (numbers(0, 3, 70, 50),)),
    (Relu("a"), (Bounded(numbers(0, 3, 70, 50).value, 0.0, ARITHMETIC),)),
]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of what operations are given, with pieces that begin at small arrays."""
    monkeypatch.setattr(pieces, "LARGE", 1 << 10)
    monkeypatch.setattr(pieces, "PIECE", 1 << 12)
    seen: list[tuple[int, ...]] = []
    for kind in (Attention, GeluTanh, Relu):
        plain = kind.forward

        def forward(self: Any, inputs: Any, parameters: Any, plain: Any = plain) -> Any:
            seen.append(inputs[0].shape)
            return plain(self, inputs, parameters)

        monkeypatch.setattr(kind, "forward", forward)
    return seen


@pytest.mark.parametrize(("node", "inputs"), CASES)
def test_pieces_are_as_the_whole(node: Operation, inputs: tuple[Bounded, ...], calls: list[tuple[int, ...]]) -> None:
    """To the bit: an output, the gradients of all inputs, their bounds and how many terms were added last."""
    whole, found = node.forward(inputs, {}), pieces.forward(node, inputs, {})
    assert calls[0] == inputs[0].shape and len(calls) > 2 and calls[1] != calls[0]
    dy = numbers(7, *whole.shape)
    pairs = [(whole, found), *zip(node.backward(dy, inputs, {})[0], pieces.backward(node, dy, inputs, {})[0],
                                  strict=True)]
    for right, one in pairs:
        assert one.shape == right.shape and one.terms == right.terms
        assert (one.value == right.value).all() and (one.error == right.error).all()


def test_what_cannot_be_in_pieces_is_whole(calls: list[tuple[int, ...]]) -> None:
    """Small arrays, operations that mix all numbers, those that somebody has altered, and formulas that are watched."""
    large, relu = numbers(0, 3, 70, 50), Relu("a")

    class Mixed(Relu):
        """A mistake: each number is taken from its neighbour."""

        def forward(self, inputs: Any, parameters: Any) -> Any:
            return inputs[0].moved(lambda a: np.roll(a, 1))

    assert (pieces.forward(Mixed("a"), [large], {}).value == np.roll(large.value, 1)).all()
    assert pieces.forward(Softmax("a", dim=1), [large], {}).value.sum(1) == pytest.approx(1.0)
    pieces.forward(relu, [numbers(0, 3, 5)], {})
    with watched(lambda method, *given, **named: method(*given, **named)):  # type: ignore[arg-type]
        pieces.forward(relu, [large], {})
    assert calls == [(3, 5), large.shape]
