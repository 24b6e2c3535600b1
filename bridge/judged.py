# SPDX-License-Identifier: MIT
"""What a comparison finds: plain records, no decisions (those are in `bridge.verdict`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.exchange import Sgd
from bridge.model import Model, Shape
from bridge.statistic import Statistic


@dataclass
class Judged:
    """One tensor of one step.

    Attributes
    ----------
    name : as under /steps/<k>: ``forward/conv1``, ``grads/conv1/weight``, ...; also ``optimizer/conv1/weight`` (new
        weights against the candidate's own gradient) and ``update/conv1/weight`` ((w0 - w1)/lr against the oracle's)
    step : k
    statistic : what was found
    certain : the bound is a theorem (81 roundings or fewer, exact inputs), so T > 1 is a bug with certainty
    note : a remark for the reader
    """

    name: str
    step: int
    statistic: Statistic
    certain: bool = False
    note: str = ""

    @property
    def t(self) -> float:
        """max |candidate - oracle| / E."""
        return self.statistic.t

    @property
    def passed(self) -> bool:
        """T <= 1; false for NaN."""
        return self.t <= 1.0


@dataclass
class NotJudged:
    """A tensor that could not be judged, and why."""

    name: str
    step: int
    reason: str


@dataclass
class Comparison:
    """All that a comparison found; `bridge.verdict.decide` draws the conclusion."""

    model: Model
    sgd: Sgd
    precision: str
    steps: int
    batch_shape: Shape
    judged: list[Judged] = field(default_factory=list)
    not_judged: list[NotJudged] = field(default_factory=list)
    #: largest T of the reference's own tensors at step 0; None when it was not checked
    reference_t: float | None = None
    #: largest difference between torch's float64 twins and the numpy oracle at step 0, in units of E
    twin_t: float | None = None
    #: |w_K - w_K*| / |w_K - w_0| of the last weights that both files have
    divergence: float | None = None
