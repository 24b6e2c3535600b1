# SPDX-License-Identifier: MIT
"""What the judge describes of a tensor that was made wrong on purpose."""

from __future__ import annotations

import numpy as np

from bridge.judge.diagnosis.evidence.describe import describe
from bridge.judge.diagnosis.evidence.view import Seen
from tests.helpers.judged.diagnosed import Lab

Array = np.ndarray

Z, DX, DW, DB, DY, A, DZ = (
    "forward/two", "grads/relu/output", "grads/two/weight", "grads/two/bias", "grads/three/output", "forward/relu",
    "grads/two/output")
FIRST = "grads/one/weight"


def seen(lab: Lab, name: str, found: Array, step: int = 0) -> Seen | None:
    case = lab.case(name, found, step)
    return describe(case, case.right.full(lab.arithmetic), lambda: False)


def with_operand(lab: Lab, name: str, **operands: Array) -> Array:
    """What the operation makes of another operand."""
    return lab.graph().operation(name).replaced(**operands).values()


def at(x: Array, place: object, value: object) -> Array:
    x = x.copy()
    x[place] = value
    return x


def without(g: Array, dz: Array, lost: tuple[tuple[int, int], ...]) -> Array:
    """A bias gradient in which a channel lacks an image."""
    g = g.copy()
    for channel, image in lost:
        g[channel] -= dz[image, channel].sum()
    return g
