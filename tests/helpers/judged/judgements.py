# SPDX-License-Identifier: MIT
"""Judgements made by hand, for the tests of the reports."""

from __future__ import annotations

import math
from io import StringIO

from rich.console import Console

from bridge.exchange.model import Conv2d, Model, Relu
from bridge.judge.diagnosis.records import Adequacy, Diagnosis, Explanation, Finding, Kind, Sight
from bridge.judge.measure.error_statistics import Statistic
from bridge.judge.measure.findings import Comparison, Judged
from bridge.judge.verdict import Verdict
from bridge.report import print_report

Pair = tuple[Comparison, Verdict]

FLIPPED = Kind(1, "kernel_flipped", "kernel flipped", "the order in which the taps are read")
SWAPPED = Kind(3, "channels_swapped", "channels <swapped>", "the order of k & c")
EXPLAINED = Finding(
    "grads/conv2/weight", 0, "the filter gradient of conv2", 1.4e5,
    (Explanation((FLIPPED,), "in h and w", 0.2), Explanation((SWAPPED, FLIPPED), "", 0.4)),
    Explanation((SWAPPED,), "", 8e4, rest=0.98), "spread over the whole tensor")
UNKNOWN = Finding("grads/conv1/weight", 1, "the filter gradient of conv1", math.inf)
DIAGNOSIS = Diagnosis([EXPLAINED, UNKNOWN], "the same fault in every convolution", 412, 3.21)
ADEQUACY = Adequacy(
    [Sight(FLIPPED, "in h", "grads/conv2/weight", 4.2e4), Sight(FLIPPED, "in h", "loss", 0.1),
     Sight(SWAPPED, "", "loss", 1.5)], ["One input channel: nothing can be swapped."])


def assert_in_order(text: str, words: list[str]) -> None:
    """Each after the one before."""
    place = 0
    for one in words:
        place = text.find(one, place)
        assert place >= 0, f"{one!r} is missing, or too early"


def printed(pair: Pair, width: int = 80, *, every_step: bool = False) -> list[str]:
    """The lines of the terminal's report."""
    out = StringIO()
    print_report(Console(file=out, width=width), *pair, every_step=every_step)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def of(*judged: Judged) -> Comparison:
    """A comparison without files."""
    layers = (Conv2d("conv1", 1, 2, (3, 3)), Relu("relu1"), Conv2d("conv2", 2, 1, (1, 1)))
    return Comparison(Model(layers), "float32", 1, (1, 1, 5, 6), judged=list(judged))


def stat(t: float) -> Statistic:
    """Of one element with this T."""
    return Statistic(t, t, (0,), 1.0, 2.0, 1.0, 1)
