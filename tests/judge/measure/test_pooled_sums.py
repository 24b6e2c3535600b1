# SPDX-License-Identifier: MIT
"""Of equal numbers in a window any may take the gradient, and together they take it once."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict
from bridge.validate.self_test.graph_candidate import backward, train_graph
from reference.export import export
from reference.settings import ExportSettings


class Separate(nn.Sequential):
    """Windows side by side; a ReLU makes many of their numbers 0."""

    window: ClassVar = {"kernel_size": 2, "stride": 2, "padding": 0}

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(**self.window), nn.Conv2d(4, 1, 3))


class Overlapping(Separate):
    """Each number is in up to four windows."""

    window: ClassVar = {"kernel_size": 3, "stride": 2, "padding": 1}


def each(dy: Tensor, x: Tensor, window: dict[str, int], share: str) -> Tensor:
    """Hand dy back to the windows' maxima: to the first, the last, an equal part to each, or all to each."""
    rows, columns = x.shape[2:]
    k, stride, pad = window["kernel_size"], window["stride"], window["padding"]
    padded = functional.pad(x, 4 * (pad,), value=-torch.inf)
    blocks = padded.unfold(2, k, stride).unfold(3, k, stride).flatten(4)
    largest = (blocks == blocks.amax(-1, keepdim=True)).to(dy.dtype)
    if share in ("first", "last"):
        ordered = largest if share == "first" else largest.flip(-1)
        chosen = functional.one_hot(ordered.argmax(-1), k * k).to(dy.dtype)
        largest = chosen if share == "first" else chosen.flip(-1)
    elif share == "parts":
        largest = largest / largest.sum(-1, keepdim=True)
    back = (largest * dy[..., None]).permute(0, 1, 4, 2, 3).reshape(len(x), x.shape[1] * k * k, -1)
    shape = (rows + 2 * pad, columns + 2 * pad)
    folded = functional.fold(back, shape, k, stride=stride)
    return folded[:, :, pad : pad + rows, pad : pad + columns]


@pytest.mark.parametrize("network", [Separate, Overlapping])
def test_the_gradient_of_a_maximum_is_handed_on_once(network: type[Separate], tmp_path: Path) -> None:
    fixture = export(tmp_path / "fixture.h5", ExportSettings(
        model=network, batch=2, height=10, width=12, steps=1, threads=1)).path

    def verdict(share: str) -> Verdict:
        wrong = backward("2", lambda self, dy, xs, w: [each(dy, xs[0], network.window, share)])
        return judge(fixture, train_graph(fixture, tmp_path / "result.h5", wrong)).verdict

    for legal in ("first", "last", "parts"):
        assert verdict(legal).outcome is Outcome.ROUNDING, legal
    found = verdict("all")
    assert found.outcome is Outcome.BUG and found.diagnosis is not None
    first = found.diagnosis.findings[0]
    assert first.name == "grads/1/output"
    assert first.explanations[0].detail == "the gradient goes to all that are equal to the largest"
