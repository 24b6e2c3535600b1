# SPDX-License-Identifier: MIT
"""Names and edits of the tensors that the search is tried with."""

from __future__ import annotations

import numpy as np

from tests.helpers.judged.diagnosed import Lab

Array = np.ndarray

DW, DX, Z = "grads/two/weight", "grads/relu/output", "forward/two"


def flipped(w: Array) -> Array:
    return w[:, :, ::-1, ::-1]


def fortran(w: Array) -> Array:
    return w.ravel().reshape(w.shape, order="F")


def hwcn(w: Array) -> Array:
    return w.transpose(2, 3, 1, 0).reshape(w.shape)


def changed(lab: Lab, name: str, **change: object) -> Array:
    """What the operation makes with other operands or geometry."""
    return lab.graph().operation(name).replaced(**change).values()
