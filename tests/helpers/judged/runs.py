# SPDX-License-Identifier: MIT
"""Whole runs of a small network that are wrong on purpose, and what the diagnosis says of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bridge.judge.diagnosis import Diagnosis
from tests.helpers.judged.opened import diagnosed

Array = np.ndarray

SETTINGS = {
    "plain": {},
    "momentum": {"momentum": 0.9, "dampening": 0.25, "weight_decay": 0.01},
    "nesterov": {"momentum": 0.9, "nesterov": True},
}


def said(fixture: Path, result: Path, budget: float = 60.0) -> Diagnosis:
    return diagnosed(fixture, result, budget)


def given_by(value: Any) -> Callable[[Array], Array]:
    return lambda x: value
