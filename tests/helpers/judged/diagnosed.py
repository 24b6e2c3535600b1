# SPDX-License-Identifier: MIT
"""A small network whose dimensions are all different, and single wrong tensors of its steps to be explained."""

from __future__ import annotations

import math
from collections import OrderedDict
from pathlib import Path

import numpy as np
from torch import nn

from bridge.exchange.file import ExchangeFile
from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.clock import now
from bridge.judge.diagnosis.predictions.step_graph import StepGraph
from bridge.judge.diagnosis.records import Explanation
from bridge.judge.diagnosis.search import Search
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.oracle.error_model import Arithmetic
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.operations import Operations
from reference.export import export
from reference.settings import ExportSettings

Array = np.ndarray


def distinct() -> nn.Module:
    """Channels, kernels and paddings of no layer are those of another, nor height those of width."""
    return nn.Sequential(
        OrderedDict(
            one=nn.Conv2d(3, 5, (3, 2), padding=(1, 1)),
            relu=nn.ReLU(),
            two=nn.Conv2d(5, 4, 3, padding=1),
            then=nn.ReLU(),
            three=nn.Conv2d(4, 2, 3, padding=1),
        )
    )


def make(folder: Path, kind: type[Operations] = Operations, **settings: object) -> tuple[Path, Path]:
    """A fixture of four images of 9 x 11 pixels, and a result."""
    fixture = folder / "fixture.h5"
    given = {"height": 9, "width": 11, "batch": 4, "model": distinct} | settings
    export(fixture, ExportSettings(**given))  # type: ignore[arg-type]
    return fixture, train(fixture, folder / "result.h5", kind)


class Lab:
    """A fixture and a right result, of which tensors are replaced one at a time.

    Parameters
    ----------
    fixture, result : files; open until `close`
    ignored : tensors that the result is said to lack
    """

    def __init__(self, fixture: Path, result: Path, ignored: frozenset[str] = frozenset()) -> None:
        self.files = ExchangeFile(fixture), ExchangeFile(result)
        self.pair = FilePair(*self.files)
        self.ignored = ignored
        self.arithmetic = Arithmetic(self.pair.u)

    def close(self) -> None:
        for file in self.files:
            file.__exit__(None, None, None)

    def graph(self, step: int = 0) -> StepGraph:
        weights = self.pair.start if step == 0 else self.pair.parameters(self.pair.candidate, step)
        assert weights is not None
        wide = {name: w.astype(np.float64) for name, w in weights.items()}
        return StepGraph(self.pair, step, wide, ignored=self.ignored)

    def right(self, name: str, step: int = 0) -> Array:
        """The candidate's own tensor."""
        return self.graph(step).found(name)

    def bound(self, name: str) -> Array:
        """E of a tensor of the first step, computed from the candidate's own operands."""
        truth = self.graph().operation(name).full(self.arithmetic)
        return np.broadcast_to(np.zeros(1) if truth.error is None else truth.error, truth.value.shape)

    def case(self, name: str, found: Array, step: int = 0, earlier: dict[str, Array] | None = None) -> Case:
        """A tensor as it was found, in the precision of the file."""
        graph, before = self.graph(step), self.graph(step - 1) if step else None
        found = found.astype(np.float32).astype(np.float64)
        return Case(name, graph, graph.operation(name), found, before, earlier or {})

    def search(
        self, name: str, found: Array, step: int = 0, earlier: dict[str, Array] | None = None, seconds: float = math.inf
    ) -> tuple[list[Explanation], Explanation | None]:
        """Accepted explanations and the best that was rejected."""
        search = Search(self.case(name, found, step, earlier), now() + seconds)
        return search.run(search.place)


def keys(explanation: Explanation) -> list[str]:
    """Its kinds."""
    return [one.key for one in explanation.kinds]
