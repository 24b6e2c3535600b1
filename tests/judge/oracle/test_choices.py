# SPDX-License-Identifier: MIT
"""Of equal numbers in a window any may take the gradient, and together they take it once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

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


class Skipped(nn.Module):
    """What is pooled is taken by a second convolution and by two joins, too, as in a U-Net."""

    window: ClassVar = {"kernel_size": 2, "stride": 2, "padding": 0}

    def __init__(self) -> None:
        super().__init__()
        self.first, self.relu, self.pool = nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(**self.window)
        self.large, self.beside = nn.Upsample(scale_factor=2), nn.Conv2d(4, 4, 1)
        self.last = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return an image."""
        y = self.relu(self.first(x))
        return self.last(torch.cat([y, self.large(self.pool(y)) + self.beside(y)], 1))


class Extreme(nn.Module):
    """The largest number of each row, which is subtracted from all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return an image."""
        y = self.first(x).clip(-0.25, 0.25)
        return self.last(y - y.max(3, keepdim=True).values)


class ExtremeAlone(Extreme):
    """The largest number of each row, and no other."""

    def forward(self, x: Tensor) -> Tensor:
        """Return an image of one column."""
        return self.last(self.first(x).clip(-0.25, 0.25).max(3, keepdim=True).values)


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


def largest(dy: Tensor, x: Tensor, share: str) -> Tensor:
    """The same of the largest numbers of rows."""
    columns = x.shape[-1]
    equal = (x == x.amax(-1, keepdim=True)).to(dy.dtype)
    if share in ("first", "last"):
        at = equal.argmax(-1) if share == "first" else columns - 1 - equal.flip(-1).argmax(-1)
        equal = functional.one_hot(at, columns).to(dy.dtype)
    return dy * (equal / equal.sum(-1, keepdim=True) if share == "parts" else equal)


@pytest.mark.parametrize(("network", "layer", "wrong"), [
    (Separate, "2", "grads/1/output"), (Overlapping, "2", "grads/1/output"), (Skipped, "pool", "grads/relu/output"),
    (Extreme, "max_1", "grads/clip/output"), (ExtremeAlone, "max_1", "grads/clip/output"),
])
def test_the_gradient_of_a_maximum_is_handed_on_once(network: type[nn.Module], layer: str, wrong: str, tmp_path: Path
                                                     ) -> None:
    fixture = export(tmp_path / "fixture.h5", ExportSettings(
        model=network, batch=2, height=6, width=8, steps=1, threads=1)).path

    def verdict(share: str) -> Verdict:
        def back(self: Any, dy: Tensor, xs: list[Tensor], w: Any) -> list[Tensor]:
            window = getattr(network, "window", None)
            return [largest(dy, xs[0], share) if window is None else each(dy, xs[0], window, share)]

        return judge(fixture, train_graph(fixture, tmp_path / "result.h5", backward(layer, back)),
                     diagnosing=share == "all").verdict

    for legal in ("first", "last", "parts"):
        assert verdict(legal).outcome is Outcome.ROUNDING, legal
    found = verdict("all")
    assert found.outcome is Outcome.BUG and found.diagnosis is not None
    first = found.diagnosis.findings[0]
    assert first.name == wrong
    assert first.explanations[0].detail.endswith("to all that are equal to the largest")


def test_so_it_is_where_the_gradient_is_wrong_already(tmp_path: Path) -> None:
    """Each mistake is told, also behind another one: the loss is not divided by the number of pixels."""
    fixture = export(tmp_path / "fixture.h5", ExportSettings(
        model=Skipped, batch=2, height=6, width=8, steps=1, threads=1)).path

    def back(self: Any, dy: Tensor, xs: list[Tensor], w: Any) -> list[Tensor]:
        return [each(dy, xs[0], Skipped.window, "all")]

    both = type("Both", (backward("pool", back),), {"loss": lambda self, y, t: functional.mse_loss(y, t) * 3})
    found = judge(fixture, train_graph(fixture, tmp_path / "result.h5", both)).verdict
    assert found.diagnosis is not None
    said = {one.name: [why.detail for why in one.explanations] for one in found.diagnosis.findings}
    assert list(said)[:1] == ["loss"]
    assert said["grads/relu/output"][0].endswith("to all that are equal to the largest")
