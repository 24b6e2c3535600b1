# SPDX-License-Identifier: MIT
"""Faults of graphs are named; each is planted by PyTorch, not by the formulas of the search.

Only those are here that the self-test does not plant: all others are in `bridge.validate.self_test.plants`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bridge.common.errors import FileError
from bridge.gradcheck.cases import CASES
from bridge.judge.diagnosis.candidates import Case, base_of, operation_faults
from bridge.judge.diagnosis.faults.factors import factor_detail
from bridge.judge.diagnosis.faults.graph_faults import sum_faults
from bridge.judge.diagnosis.faults.output_faults import worked_in_place
from bridge.judge.diagnosis.predictions.formulas import Formula, Joined
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.predictions.step_graph import StepGraph
from bridge.judge.diagnosis.search import Search
from bridge.judge.diagnosis.wrong_operations import wrong_operations
from bridge.judge.judge import judge, judge_pair
from bridge.judge.measure.file_pair import open_pair
from bridge.judge.measure.outcome import Outcome
from bridge.operations.operation import Operation
from bridge.operations.pointwise import Tanh
from bridge.operations.resizing import UpsampleNearest2d
from bridge.validate.self_test.graph_candidate import GraphOperations, Parameters, train_graph
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.judged.graph_mistakes import MISTAKES, OF_NETWORKS, Tensors
from tests.helpers.loops import looped
from tests.helpers.networks.exported_networks import Written, conv
from tests.helpers.tiers import deep
from tests.helpers.torch_graphs import (
    Dropped,
    Evaluated,
    Everything,
)


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "fixture.h5"
    export(path, ExportSettings(model=Everything, height=8, width=10, batch=3, steps=2, momentum=0.5))
    return path


STEP = "steps/0/"


def tensors(path: Path) -> Tensors:
    found: Tensors = {}
    with h5py.File(path) as file:
        file[STEP].visititems(lambda name, one: found.update(
            {name: torch.from_numpy(one[...])} if isinstance(one, h5py.Dataset) and one.shape else {}))
        found["input"] = torch.from_numpy(file["batches/0/input"][...])
        for name, mask in file.get("steps/1/masks", {}).items():
            found[f"after/{name}"] = torch.from_numpy(mask[...])
    return found


def written(fixture: Path, wrong: dict[str, np.ndarray]) -> Path:
    """The fixture's numbers as a result, with some tensors that are others."""
    path = fixture.with_name("result.h5")
    shutil.copy(fixture, path)
    with h5py.File(path, "r+") as file:
        file.attrs["role"], file.attrs["producer"] = "candidate", "another program"
        del file["oracle"], file["batches"]
        for name, values in wrong.items():
            file[STEP + name][...] = values
    return path


@pytest.mark.deep
def test_mistakes_of_operations_are_named(fixture: Path) -> None:
    assert not unnamed(fixture, MISTAKES)


@pytest.mark.parametrize(("network", "height", "width", "mistakes"), [
    *((*row, mistakes[::8]) for *row, mistakes in OF_NETWORKS),
    *(deep(*row, [one for i, one in enumerate(mistakes) if i % 8]) for *row, mistakes in OF_NETWORKS),
], ids=lambda one: getattr(one, "__name__", ""))
def test_mistakes_of_further_operations_are_named(
    network: type[nn.Module], height: int, width: int, mistakes: list[tuple[str, Callable[[Tensors], Tensor], str]],
    tmp_path: Path,
) -> None:
    fixture = tmp_path / "fixture.h5"
    export(fixture, ExportSettings(model=network, height=height, width=width, batch=2, steps=2))
    assert not unnamed(fixture, mistakes)


class Transformer(nn.Module):
    """One block over the pixels of patches: bounds of the whole step are 30 times as wide as gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm, self.second = nn.Conv2d(1, 8, 2, stride=2), nn.LayerNorm(8), nn.LayerNorm(8)
        self.query, self.key, self.value, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.wide, self.narrow, self.head = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).reshape(-1, 8, 36).transpose(1, 2)
        h = self.norm(x)
        scores = self.query(h) @ self.key(h).transpose(1, 2)
        x = x + self.out(scores.transpose(1, 2).softmax(1).transpose(1, 2) @ self.value(h))
        x = x + self.narrow(functional.gelu(self.wide(self.second(x))))
        found: Tensor = self.head(x.mean(1))
        return found


class TwoMistakes(GraphOperations):
    """The last values are the keys', in a buffer that autograd does not see, and a gradient is doubled."""

    def forward(self, node: Operation, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        y = super().forward(node, inputs, parameters)
        if node.name == "value":
            y = y + (torch.cat([y[..., :6], self.known["key"][..., 6:]], -1) - y).detach()
        return y

    def gradient(self, name: str, g: Tensor) -> Tensor:
        return 2 * g if name == "query/weight" else g


def test_a_second_mistake_is_told_where_the_bound_is_wider_than_its_tensor(tmp_path: Path) -> None:
    """By the right inputs anything is inside the bound of that gradient."""
    fixture, result = tmp_path / "fixture.h5", tmp_path / "result.h5"
    export(fixture, ExportSettings(model=Transformer, height=12, width=12, batch=3, steps=1, loss="cross_entropy"))
    train_graph(fixture, result, TwoMistakes)
    with open_pair(fixture, result) as pair:
        found = judge_pair(pair, adequacy=False).verdict
    assert found.exit_code == 1 and found.diagnosis is not None
    told = {one.name: one for one in found.diagnosis.findings}
    assert {"forward/value", "grads/query/weight"} <= told.keys(), told.keys()


def test_a_layer_of_the_same_type_is_near(tmp_path: Path) -> None:
    """One buffer for what every normalisation keeps: the input of the first one, many operations before."""
    fixture = tmp_path / "fixture.h5"
    export(fixture, ExportSettings(model=Transformer, height=12, width=12, batch=3, steps=1, loss="cross_entropy"))
    with open_pair(fixture, written(fixture, {})) as pair:
        graph = StepGraph(pair, 0, {name: w.astype(np.float64) for name, w in pair.start.items()})
        name = "grads/second/weight"
        case = Case(name, graph, graph.operation(name), graph.found(name))
        first = next(node for node in graph.model.graph.nodes if node.name == "norm").inputs[0]
        assert any(one.detail.startswith(f"forward/{first} in place of") for one in operation_faults(case))


def test_an_operation_s_own_window_names_a_factor() -> None:
    """A mean of copies in the place of their sum, where there are as many channels."""
    right = Formula((2, 4, 6, 6), UpsampleNearest2d("it", (2, 2)), (Predicted(np.ones((2, 4, 3, 3))),), {})
    pair: Any = SimpleNamespace(batch_shape=(2, 4, 3, 3), output_shape=(2, 4, 6, 6))
    graph: Any = SimpleNamespace(pair=pair)
    dimensions = Case("grads/first/output", graph, right, np.ones(1)).dimensions
    assert factor_detail(0.25, dimensions) == "times 0.25 (1/scale_factor, scale_factor = 4)"


def test_an_output_that_is_overwritten_is_told(fixture: Path) -> None:
    """A sum in the place of what it adds."""
    with h5py.File(fixture) as file:
        result = written(fixture, {"forward/tanh": file[STEP + "forward/add"][()]})
    verdict = judge(fixture, result, adequacy=False).verdict
    assert verdict.diagnosis is not None
    first = verdict.diagnosis.findings[0]
    assert first.name == "forward/tanh"
    assert "it holds forward/add: that was computed in its place" in first.explanations[0].detail


def rectified() -> nn.Module:
    """Without a bias, and with padding: outputs that are exactly 0."""
    return nn.Sequential(nn.Conv2d(1, 2, (1, 3), padding=1, bias=False), nn.LeakyReLU(0.25), nn.Conv2d(2, 1, 3))


def test_the_derivative_at_0_is_torchs(tmp_path: Path) -> None:
    fixture = tmp_path / "fixture.h5"
    export(fixture, ExportSettings(model=rectified, height=8, width=10, batch=2, steps=2))
    assert not unnamed(fixture, [(
        "grads/0/output", lambda t: torch.where(t["forward/0"] >= 0, 1.0, 0.25) * t["grads/1/output"],
        "the input >= 0 in place of >")])


def test_a_program_may_draw_its_own_mask(tmp_path: Path) -> None:
    """It is judged by it, and it must keep as many as it should; what is no mask is refused."""
    fixture = tmp_path / "fixture.h5"
    export(fixture, ExportSettings(model=Dropped, height=16, width=16, batch=2, steps=1))
    known = tensors(fixture)
    for share, outcome in ((0.7, Outcome.ROUNDING), (0.5, Outcome.BUG)):
        mask = (torch.rand(known["masks/drop"].shape, generator=torch.Generator().manual_seed(1)) < share).float()
        result = own_mask(fixture, known, mask)
        comparison, verdict = judge(fixture, result, adequacy=False)
        assert verdict.outcome is outcome, verdict.words
        assert [one.name for one in comparison.failures] == ([] if share == 0.7 else ["masks/drop"])
        if share == 0.5:
            assert verdict.diagnosis is not None and not verdict.diagnosis.missing
            (found,) = verdict.diagnosis.findings
            assert re.fullmatch(r"the mask keeps (49|50|51)\.\d% of the elements, expected 70.0%",
                                found.explanations[0].detail)
    mask[0, 0, 0, 0] = 0.25
    with pytest.raises(FileError, match=r"result.h5: steps/0/masks/drop holds 0.25, expected 0 and 1 alone"):
        judge(fixture, own_mask(fixture, known, mask), adequacy=False)


def own_mask(fixture: Path, known: Tensors, mask: Tensor) -> Path:
    """A step by PyTorch with another mask."""
    module = Dropped()
    module.load_state_dict({f"{name}.{part}": known[f"weights/{name}/{part}"] for name in ("first", "last")
                            for part in ("weight", "bias")})
    with h5py.File(fixture) as file:
        x, target = (torch.from_numpy(file[f"batches/0/{name}"][()]) for name in ("input", "target"))
        lr = file["optimizer"].attrs["lr"]
    x.requires_grad_()
    seen = {"first": module.first(x)}
    seen["drop"] = seen["first"] * (mask / 0.7)
    seen["last"] = module.last(seen["drop"])
    for one in seen.values():
        one.retain_grad()
    loss = functional.mse_loss(seen["last"], target)
    loss.backward()
    path = written(fixture, {"forward/first": seen["first"].detach().numpy()})
    with h5py.File(path, "r+") as file:
        file[STEP + "masks/drop"][...] = mask
        file[STEP + "loss"][...], file[STEP + "grads/input"][...] = loss.item(), x.grad
        for name, one in seen.items():
            file[f"{STEP}forward/{name}"][...] = one.detach()
            file[f"{STEP}grads/{name}/output"][...] = one.grad
        for name in ("first", "last"):
            for part, w in getattr(module, name).named_parameters():
                file[f"{STEP}grads/{name}/{part}"][...] = w.grad
                file[f"steps/1/weights/{name}/{part}"][...] = w.detach() - lr * w.grad
    return path


def test_running_statistics_without_those_before_are_not_judged(tmp_path: Path) -> None:
    fixture = tmp_path / "fixture.h5"
    export(fixture, ExportSettings(model=Evaluated, height=8, width=10, batch=2, steps=2))
    right = written(fixture, {})
    with h5py.File(right, "r+") as file:
        del file["steps/0/state"], file["state"]
    comparison, verdict = judge(fixture, right, adequacy=False)
    assert verdict.outcome is Outcome.CANNOT_TELL
    assert {one.name for one in comparison.not_judged if one.step == 1} >= {"state/moving/running_mean"}
    with h5py.File(right, "r+") as file:
        del file["steps/1/state"]
    assert judge(fixture, right, adequacy=False).verdict.outcome is Outcome.ROUNDING


#: Mistakes that are planted together, each in a tensor of its own; in a network with so few tensors one at a time
TOGETHER, FEW = 8, 24


def unnamed(fixture: Path, mistakes: list[tuple[str, Callable[[Tensors], Tensor], str]]) -> list[Any]:
    """Those that are not named, in one of the ways that " | " separates; some are planted together, and what is not
    named so is planted alone.
    """
    known, left = tensors(fixture), list[Any]()
    waiting = list(mistakes)
    most = TOGETHER if sum(name.startswith(("forward/", "grads/")) for name in known) > FEW else 1
    while waiting:
        together = list({name: (name, wrong, words) for name, wrong, words in reversed(waiting)}.values())[-most:]
        waiting = [one for one in waiting if one not in together]
        alone = together if most == 1 or _missed(fixture, known, together) else []
        left += [found for one in alone for found in _missed(fixture, known, [one])]
    return left


def _missed(fixture: Path, known: Tensors, mistakes: list[tuple[str, Callable[[Tensors], Tensor], str]]) -> list[Any]:
    """Those of the planted mistakes that findings do not name, and all of them where there is another finding."""
    result = written(fixture, {name: wrong(known).numpy() for name, wrong, _ in mistakes})
    verdict = judge(fixture, result, adequacy=False).verdict
    assert verdict.outcome is Outcome.BUG and not verdict.missing, (mistakes, verdict.missing)
    said = {one.name: [e.detail for e in one.explanations] for one in (
        verdict.diagnosis.findings if verdict.diagnosis else [])}
    if said.keys() != {name for name, _, _ in mistakes}:
        return [(name, words, said) for name, _, words in mistakes]
    return [(name, words, said[name]) for name, _, words in mistakes
            if not any(way in one for one in said[name] for way in words.split(" | "))]


def test_right_tensors_need_no_explanation(fixture: Path) -> None:
    """What every operation computes from the candidate's own tensors is what PyTorch has computed."""
    with open_pair(fixture, written(fixture, {})) as pair:
        weights = {name: w.astype(np.float64) for name, w in pair.start.items()}
        graph = StepGraph(pair, 0, weights)
        for name in pair.shapes:
            assert Search(Case(name, graph, graph.operation(name), graph.found(name))).t <= 1, name


@looped("kind", sorted(CASES))
def test_a_faulty_operation_may_have_a_second_fault(kind: str) -> None:
    """As the search of two faults asks: whatever an operation is instead, its own faults can be had."""
    for case in CASES[kind]:
        for _, _, other in wrong_operations(case.node):
            for _, said, _ in wrong_operations(other):
                assert said


def test_a_sum_that_lacks_a_part_may_have_a_second_fault() -> None:
    x = Predicted(np.ones((2, 3)))
    parts = tuple(Formula((2, 3), Tanh("it"), (x,), {}, dy=x, gradient=0) for _ in range(3))
    right = Joined((2, 3), parts, ("first", "second", "third"))
    once = list(sum_faults(right, lambda part: iter(())))
    assert [one.detail for one in once][:2] == ["the gradient through first is missing",
                                                "the gradient through first is added twice"]
    for one in once:
        assert isinstance(one.operation, Joined) and len(one.operation.parts) == len(one.operation.through)
        assert list(sum_faults(one.operation, lambda part: iter(())))


def test_a_gradient_that_a_sum_sends_on_is_not_overwritten(fixture: Path, tmp_path: Path) -> None:
    """Both inputs of a sum have its gradient, right or wrong: that says nothing of where it was written."""
    shutil.copy(fixture, path := tmp_path / "wrong.h5")
    with h5py.File(path, "r+") as file:
        file.attrs["role"] = "candidate"
        wrong = 1.01 * file[STEP + "grads/add/output"][()] + 0.25
        for name in ("add", "tanh", "sigmoid"):
            file[f"{STEP}grads/{name}/output"][...] = wrong
    with open_pair(fixture, path) as pair:
        graph = StepGraph(pair, 0, pair.start)
        found = graph.found("grads/add/output")
        assert not list(worked_in_place(base_of(graph.operation("grads/add/output")), graph, "grads/add/output", found))


def averaged() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 1, 1))


def test_a_factor_gives_way_to_what_makes_it(tmp_path: Path) -> None:
    """A mean over one number less is no factor of unknown meaning."""
    fixture = tmp_path / "fixture.h5"
    export(fixture, ExportSettings(model=averaged, height=9, width=8, batch=2, steps=1))
    with h5py.File(fixture) as file:
        result = written(fixture, {"forward/1": file[STEP + "forward/1"][()] * np.float64(42 / 41)})
    verdict = judge(fixture, result, adequacy=False).verdict
    assert verdict.diagnosis is not None
    first = verdict.diagnosis.findings[0].explanations[0]
    assert [one.key for one in first.kinds] == ["count"] and "42 - 1 = 41 in place of 42" in first.detail


def halved() -> nn.Module:
    return Written(lambda m, x: m.b(torch.softmax(0.5 * m.a(x), -1)), a=conv(1, 2), b=conv(2, 1))


def test_what_is_handed_on_is_not_in_the_place_of_another(tmp_path: Path) -> None:
    """Two mistakes: the softmax's derivative lacks its sum, and that of the product by 0.5 is missing."""
    fixture = tmp_path / "fixture.h5"
    export(fixture, ExportSettings(model=halved, height=9, width=8, batch=2, steps=1))
    with h5py.File(fixture) as file:
        dy, y = (file[STEP + name][()] for name in ("grads/softmax/output", "forward/softmax"))
    result = written(fixture, dict.fromkeys(("grads/mul/output", "grads/a/output"), dy * y))
    verdict = judge(fixture, result, adequacy=False).verdict
    assert verdict.diagnosis is not None
    said = {one.name: one.explanations[0].detail for one in verdict.diagnosis.findings if one.explanations}
    assert "in its place" not in said["grads/mul/output"] and "is missing" in said["grads/a/output"], said


def normalised() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 1, 3))


def test_what_holds_at_the_first_step_alone_is_said_so_of_statistics(tmp_path: Path) -> None:
    """One step late: at step 0 that is a momentum of 0, which later steps have not."""
    fixture = tmp_path / "fixture.h5"
    export(fixture, ExportSettings(model=normalised, height=9, width=8, batch=3, steps=4))
    result = train_graph(fixture, tmp_path / "result.h5")
    with h5py.File(result, "r+") as file:
        right = [file[f"steps/{k}/state/1/running_var"][()] for k in range(4)]
        for k, late in enumerate([np.ones_like(right[0]), *right[:3]]):
            file[f"steps/{k}/state/1/running_var"][...] = late
    verdict = judge(fixture, result, adequacy=False).verdict
    assert verdict.diagnosis is not None
    said = [one.detail for found in verdict.diagnosis.findings for one in found.explanations[:1]]
    assert any("momentum is 0" in one for one in said), said
    assert all(one.startswith("at step 0, but not at each later one") for one in said if "momentum is 0" in one), said
