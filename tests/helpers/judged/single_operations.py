# SPDX-License-Identifier: MIT
"""Single operations of known tensors, and what altered formulas alone say of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.clock import now
from bridge.judge.diagnosis.faults.convolution_faults import data_faults
from bridge.judge.diagnosis.faults.graph_faults import formula_faults
from bridge.judge.diagnosis.predictions.convolutions import Data
from bridge.judge.diagnosis.predictions.formulas import Formula
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.diagnosis.records import Explanation
from bridge.judge.diagnosis.search import Search
from bridge.judge.oracle.error_model import Arithmetic
from bridge.operations.operation import Operation as Node

Array = np.ndarray

RNG = np.random.default_rng(1)
SHAPE = (3, 4, 6, 5)
X, DY, TARGET = (RNG.normal(size=SHAPE).astype(np.float32) + shift for shift in (0.25, 0.0, 0.0))
WEIGHT, BIAS = (RNG.normal(size=4).astype(np.float32) for _ in range(2))
LAYERS = {"weight": RNG.normal(size=5).astype(np.float32), "bias": RNG.normal(size=5).astype(np.float32)}


def formula(node: Node, x: Array, parameters: dict[str, Array] | None = None, dy: Array | None = None,
            gradient: int | str | None = None, state: str = "") -> Formula:
    """An operation of known tensors."""
    made = Formula((), node, (Predicted(x.astype(float)),),
                   {name: np.asarray(w, float) for name, w in (parameters or {}).items()},
                   None if dy is None else Predicted(dy.astype(float)), gradient, state)
    shaped: Formula = made.replaced(shape=made._values.shape)
    return shaped


def explained(right: Prediction, found: Array) -> list[Explanation]:
    """What altered formulas alone say of a tensor."""
    graph: Any = SimpleNamespace(arithmetic=Arithmetic(2.0**-24))
    search = Search(Case("forward/it", graph, right, np.asarray(found, np.float32).astype(float)), now() + 120)
    assert search.t > 1
    with np.errstate(all="ignore"):
        search._altered()
        return search._accepted()


def of_faults(right: Formula | Data, found: Any) -> list[str]:
    """What the faults of an operation itself say of a tensor."""
    graph: Any = SimpleNamespace(arithmetic=Arithmetic(2.0**-24))
    search = Search(Case("forward/it", graph, right, np.asarray(found, np.float32).astype(float)), now() + 120)
    assert search.t > 1
    with np.errstate(all="ignore"):
        search._try(data_faults(right) if isinstance(right, Data) else formula_faults(right))
        return [one.detail for one in search._accepted()]
