# SPDX-License-Identifier: MIT
"""A network with operations that the table lacks: exported, judged by estimated bounds, and refused by the library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from bridge import Network
from bridge.common.errors import BridgeError
from bridge.engine.library.extension import run_file
from bridge.exchange.file import ExchangeFile
from bridge.judge.judge import Judgement, judge
from bridge.judge.measure.comparison import ESTIMATED
from bridge.judge.measure.file_pair import open_pair
from bridge.judge.verdict import Outcome
from bridge.report.html_page import run_of_several
from bridge.report.json_report import to_dict
from reference.errors import InputError
from reference.export import ExportSettings, export
from reference.network.layers import Layers
from reference.network.program import Aten
from reference.network.reading import read
from reference.training import double_twin, parameters, run_step
from tests.helpers.tiers import few

Plant = Callable[[str, np.ndarray], np.ndarray]
SHAPE = (3, 1, 8, 8)


class Foreign(nn.Module):
    """Rolled, cumulated, chosen by a comparison and a mask; a parameter as an operand, and one of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 1, 3, padding=1)
        self.gamma, self.tied = nn.Parameter(torch.full((4, 1, 1), 0.3)), nn.Parameter(torch.randn(4, 4))
        self.register_buffer("mask", torch.arange(64).view(8, 8) % 3 > 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.roll(self.first(x), 1, 2) * self.gamma
        y = torch.where(y > 0, y, y.asinh().atan().exp()).masked_fill(self.mask, 0.0)
        p, q = functional.linear(y.transpose(1, 3), self.tied).transpose(1, 3).chunk(2, 1)
        y = torch.cat([q.logcumsumexp(-1), p], 1)
        return self.last(functional.linear(y.permute(0, 2, 3, 1), self.tied.t()).permute(0, 3, 1, 2))


def layers() -> Layers:
    torch.manual_seed(0)
    return read(Foreign(), lambda _: [SHAPE], SHAPE, foreign=True)


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("foreign") / "fixture.h5"
    export(path, ExportSettings(model=Foreign, height=8, width=8, batch=3, steps=2, lr=0.0625))
    return path


def write_result(fixture: Path, path: Path, plant: Plant | None = None) -> Path:
    """A step by PyTorch in float64, of which float32 is written."""
    net = double_twin(layers())
    with h5py.File(fixture) as given, h5py.File(path, "w") as file:
        file.attrs.update({"format": "cnn-exchange", "format_version": 2, "role": "candidate", "producer": "a test"})
        for k in range(2):
            with torch.no_grad():
                for name, part, one in parameters(net):
                    weights = f"steps/{k}/weights/{name}/{part}"
                    one.copy_(torch.from_numpy((given if k == 0 else file)[weights][()]))
                    if k == 0:
                        file[weights] = one.float().numpy()

            def sink(name: str, tensor: torch.Tensor, step: int = k) -> None:
                found = tensor.detach().numpy()
                file[f"steps/{step}/{name}"] = (found if plant is None else plant(name, found)).astype(np.float32)

            batch = (torch.from_numpy(given[f"batches/{k}/{name}"][()]).double() for name in ("input", "target"))
            run_step(net, *batch, "mean", sink)
            for name, part, one in parameters(net):
                assert one.grad is not None
                file[f"steps/{k + 1}/weights/{name}/{part}"] = (one - 0.0625 * one.grad).detach().float().numpy()
    return path


def judged(fixture: Path, path: Path, plant: Plant | None = None) -> Judgement:
    return judge(fixture, write_result(fixture, path, plant), adequacy=False, seconds=5)


def test_it_is_read_with_one_layer_for_each_call_that_gives_real_numbers() -> None:
    found = layers()
    programs = {name: [str(operation) for operation, *_ in layer.calls] for name, layer in found
                if isinstance(layer, Aten)}
    assert programs == {
        "tied.shared": ["aten.alias.default"],
        "where": ["aten.gt.Scalar", "aten.where.self"], "masked_fill": ["aten.masked_fill.Scalar"],
        "asinh": ["aten.asinh.default"], "atan": ["aten.atan.default"], "linear": ["aten.linear.default"],
        "logcumsumexp": ["aten.logcumsumexp.default"], "t": ["aten.t.default"],
        "linear_1": ["aten.linear.default"]}
    assert found.sources == {"tied.shared.tied": "tied", "gamma.weight": "gamma", "masked_fill.mask": "mask"}
    assert found.inputs["linear"][1] == found.inputs["t"][0] == "tied.shared"


def test_a_right_result_is_right_by_estimated_bounds(fixture: Path, tmp_path: Path) -> None:
    result = tmp_path / "result.h5"
    found = judged(fixture, result)
    comparison, verdict = found
    assert verdict.outcome is Outcome.ROUNDING and not comparison.not_judged and not verdict.missing
    assert "are estimated: PyTorch computes what the table of operations lacks (aten." in verdict.words
    estimated = {one.name for one in comparison.estimated}
    assert {one.name for one in comparison.judged if ESTIMATED in one.note} == {
        name for name in estimated if not name.startswith("update/")}
    assert {"forward/where", "forward/asinh", "grads/logcumsumexp/output"} - estimated == {"grads/logcumsumexp/output"}
    assert not {"forward/mul", "grads/gamma/weight", "forward/first", "forward/roll", "forward/masked_fill",
                "grads/last/weight"} & estimated
    with open_pair(fixture, result) as pair:
        told = to_dict(found, pair)
        assert {one["name"] for one in told["tensors"] if one["estimated"]} == estimated
        assert "rounding, estimated" in run_of_several(found, pair)


PLANTS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "rolled once more": ("forward/roll", lambda a: np.roll(a, 1, 2)),
    "another function": ("forward/asinh", lambda a: np.arctan(a)),
    "a sum that stops": ("forward/logcumsumexp", lambda a: np.concatenate([a[..., :-1], a[..., -2:-1]], -1)),
    "a share of a gradient": ("grads/gamma/weight", lambda a: a * 2 / 3),
    "a gradient of one use": ("grads/tied.shared/tied", lambda a: a / 2),
}


@pytest.mark.parametrize("name", few(PLANTS, 2))
def test_a_wrong_result_is_a_bug(name: str, fixture: Path, tmp_path: Path) -> None:
    where, change = PLANTS[name]
    comparison, verdict = judged(fixture, tmp_path / "result.h5", lambda one, a: change(a) if one == where else a)
    assert verdict.outcome is Outcome.BUG and not verdict.missing
    assert comparison.failures[0].name == where and comparison.failures[0].t > 10


def test_between_one_and_ten_nobody_can_tell(fixture: Path, tmp_path: Path) -> None:
    """Not even where a known fault explains it: the bound may be too small."""
    comparison, verdict = judged(fixture, tmp_path / "result.h5",
                                 lambda name, a: a * (1 + 3e-6) if name == "forward/asinh" else a)
    assert verdict.outcome is Outcome.CANNOT_TELL and "estimated bound" in verdict.hints[-1]
    assert {one.name for one in comparison.failures} <= {"forward/asinh", "forward/atan", "grads/asinh/output"}
    assert comparison.failures and all(one.estimated and 1 < one.t < 10 for one in comparison.failures)


def test_the_library_says_what_it_lacks(fixture: Path, tmp_path: Path) -> None:
    for call in (lambda: Network.from_file(fixture), lambda: run_file(str(fixture), str(tmp_path / "r.h5"), "cpu", "")):
        with pytest.raises(BridgeError) as error:
            call()
        text = str(error.value)
        assert all(f"{one} (layer {layer})" in text for one, layer in (
            ("aten.asinh.default", "asinh"), ("aten.gt.Scalar", "where"), ("aten.where.self", "where"),
            ("aten.logcumsumexp.default", "logcumsumexp")))


def test_a_file_says_what_is_wrong_with_its_calls(fixture: Path, tmp_path: Path) -> None:
    with h5py.File(fixture) as given, h5py.File(tmp_path / "wrong.h5", "w") as file:
        for name in given:
            given.copy(name, file)
        file.attrs.update(given.attrs)
        file["model/layers/asinh"].attrs["program"] = '{"calls": [["os.system", []]], "shape": [1]}'
    with pytest.raises(BridgeError, match=r"layer asinh \(aten\): program: 'os.system' is no operation's name"):
        ExchangeFile(tmp_path / "wrong.h5")


class Drawn(Foreign):
    """Random numbers in its forward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x + torch.randn_like(x))


def test_random_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"1 obstacle: randn_like: it draws random numbers .*test_estimated"):
        export(tmp_path / "drawn.h5", ExportSettings(model=Drawn, height=8, width=8))
