# SPDX-License-Identifier: MIT
"""What a planted fault is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.edits import Edit, plant
from bridge.validate.self_test.operations import Operations


@dataclass(frozen=True)
class Scene:
    """Where a fault is planted.

    Attributes
    ----------
    fixture : exchange file of the reference
    right : a right result
    path : of the wrong result to write
    setting : of the fixture
    """

    fixture: Path
    right: Path
    path: Path
    setting: str = "plain"


@dataclass(frozen=True)
class Plant:
    """A wrong candidate, and what must be said of it.

    Attributes
    ----------
    kind : number of it, as in `bridge.judge.diagnosis.catalogue`
    name : what somebody did wrong, unique
    make : writes the wrong result
    setting : of the fixture, see `bridge.validate.self_test.fixtures.SETTINGS`
    codes : exit codes that count as caught: a bug, or (of small faults) cannot tell, which is never a pass
    precision : the lower precision that the verdict must name, in place of a diagnosis
    runs : the fault shows between two runs: the result is compared with the right one
    """

    kind: int
    name: str
    make: Callable[[Scene], object]
    setting: str = "plain"
    codes: tuple[int, ...] = (1, 4)
    precision: str = ""
    runs: bool = False


def wrong(kind: int, name: str, operations: type[Operations], setting: str = "plain", **more: object) -> Plant:
    """A wrong program, with its consequences in everything that follows."""
    return Plant(kind, name, lambda scene: train(scene.fixture, scene.path, operations), setting, **more)  # type: ignore[arg-type]


def stored(kind: int, name: str, tensor: str, edit: Edit, setting: str = "plain", **more: object) -> Plant:
    """A right program, of whose file one tensor is wrong. `tensor` is a name under ``steps``."""
    edits = {f"steps/{tensor}": edit}
    said = f"{name} @ {tensor}"
    return Plant(kind, said, lambda scene: plant(scene.right, scene.path, edits), setting, **more)  # type: ignore[arg-type]
