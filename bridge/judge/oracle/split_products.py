# SPDX-License-Identifier: MIT
"""Products of float32 operands from those of their parts in bfloat16, as tensor cores multiply them.

Source: G. Henry, P. T. P. Tang and A. Heinecke, IEEE ARITH 2019 (combinations of bfloat16).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bridge.exchange.model import Conv2d, Pair
from bridge.judge.oracle import convolution
from bridge.judge.oracle.algorithm import Algorithm
from bridge.judge.oracle.reduced_precision import round_fraction

Array = np.ndarray


@dataclass(frozen=True)
class Split(Algorithm):
    """Three products of operands in two parts of `bits` bits of fraction; that of both small parts is left out.

    Of a, a1 + a2 has 2*bits + 3 bits or more (the sign of a2 is one), and a2 is at most 2**-(bits + 1) of a.
    """

    bits: int = 7

    def forward(self, x: Array, w: Array, layer: Conv2d, *, noise: bool = False) -> Array:
        return self._thrice(x, w, lambda a, b: convolution.forward(a, [b], layer)[0], noise)

    def backward_data(self, dy: Array, w: Array, layer: Conv2d, size: Pair, *, noise: bool = False) -> Array:
        return self._thrice(dy, w, lambda a, b: convolution.backward_data(a, b, layer, size), noise)

    def backward_filter(self, x: Array, dy: Array, layer: Conv2d, *, noise: bool = False) -> Array:
        return self._thrice(x, dy, lambda a, b: convolution.backward_filter(a, [b], layer)[0], noise)

    def _thrice(self, a: Array, b: Array, act: Callable[[Array, Array], Array], noise: bool) -> Array:
        if noise:
            lost = 2 * 2.0 ** (-2 * self.bits - 2) + 2.0 ** (-2 * self.bits - 2)
            return 2.0**24 * lost * act(np.abs(a), np.abs(b))
        (a1, a2), (b1, b2) = (self._parts(one) for one in (a, b))
        return act(a1, b1) + (act(a1, b2) + act(a2, b1))

    def _parts(self, x: Array) -> tuple[Array, Array]:
        x = np.asarray(x, np.float32)
        high = round_fraction(x, self.bits)
        return high, round_fraction(x - high, self.bits)
