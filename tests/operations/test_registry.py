# SPDX-License-Identifier: MIT
"""The registries have no holes: whatever an operation or a loss may lack is asked of each, by doing it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from bridge import Model, Network, operations
from bridge.engine.network import torch_graph
from bridge.gradcheck import cases, single
from bridge.gradcheck.operations import CHECKS
from bridge.gradcheck.oracle import LossOracle, OperationOracle, ratios
from bridge.gradcheck.results import Verdict
from bridge.gradcheck.settings import Settings
from bridge.gradcheck.single import OperationFunctions
from bridge.judge.diagnosis.predictions.hypothesis import Hypothesis
from bridge.judge.oracle.bounded import Bounded
from bridge.operations import OPERATIONS, Sigmoid
from bridge.operations.losses import LOSSES, Huber, loss_from
from bridge.operations.products import Conv2d
from reference import losses as reference_losses
from tests import ROOT
from tests.helpers import operations_table
from tests.helpers.judged import named_faults
from tests.helpers.judged.operation_networks import network
from tests.helpers.operations_table import DEVICES, DTYPES

#: Operations and losses without which no usual network can be trained, by the types that they have here
USUAL = {
    "abs", "add", "avg_pool2d", "bce", "bce_with_logits", "clip", "conv2d", "cross_entropy", "divide", "dropout",
    "dropout2d", "elu", "exp", "gelu", "gelu_tanh", "leaky_relu", "linear", "log", "log10", "log2", "matmul", "max",
    "max_pool2d", "mean", "min", "mish", "mse", "multiply", "prelu", "relu", "sigmoid", "silu", "softmax", "sqrt",
    "subtract", "sum", "tanh", "transpose"}
SHAPE = (2, 2, 16, 16)


@dataclass(frozen=True)
class Place:
    """Where pieces are tried: a folder for files, the device cuda."""

    folder: Path
    cuda: str

    def __repr__(self) -> str:
        return "place"


@pytest.fixture
def place(tmp_path: Path, cuda: str) -> Place:
    return Place(tmp_path, cuda)


Piece = Callable[[str, Place], None]


def missing(pieces: dict[str, Piece], kind: str, place: Place) -> list[str]:
    """The names of the pieces that it lacks, each with the reason."""
    found = []
    for name, has in pieces.items():
        try:
            has(kind, place)
        except Exception as error:
            found.append(f"{name}: {type(error).__name__}: {error}")
    return found


# --- what both have ----------------------------------------------------------------------------------------------


def gradients(device: str, dtype: str) -> Piece:
    """Right by central differences with respect to all that there is, and by the oracle, both passes."""
    def check(kind: str, place: Place) -> None:
        reports = CHECKS[kind].run(Settings(dtype, place.cuda if device == "cuda" else device, points=16, directions=1))
        assert reports
        for report in reports:
            assert report.verdict is Verdict.RIGHT, str(report)
            assert len(report.not_checked) == len(getattr(OPERATIONS.get(kind), "without_gradient", ())), str(report)
            assert all(one.resolution < (1e-5 if dtype == "float64" else 0.1) for one in report.inputs), str(report)
            assert not any(one.left_out for one in report.inputs), str(report)
            assert len(report.oracle) == 1 + len(report.inputs) + len(report.not_checked) > 1, str(report)
        if kind in OPERATIONS:
            for report, case in zip(reports, cases.CASES[kind], strict=True):
                wanted = [*(case.node.inputs or ("input",)), *case.node.parameter_shapes()]
                found = [*report.not_checked, *(one.name for one in report.inputs)]
                assert sorted(found) == sorted(wanted) and {one.dtype for one in report.inputs} == {dtype}
    return check


def documented(path: str, row: str) -> Piece:
    """A document has its row."""
    def check(kind: str, place: Place) -> None:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(row.format(kind), text, re.MULTILINE), f"{path} has no row of {kind}"
    return check


EVERYWHERE: dict[str, Piece] = {
    **{f"{dtype} on {device}": gradients(device, dtype) for device in DEVICES for dtype in DTYPES},
    "a row in operations.md": documented("docs/operations.md", r"^\| `{}` \|"),
}


# --- operations --------------------------------------------------------------------------------------------------


def torchs(kind: str, place: Place) -> None:
    """Both passes of torch's counterpart are inside the bounds of the oracle, which are finite, in both precisions."""
    for case in cases.CASES[kind]:
        for dtype in DTYPES:
            one = OperationFunctions(case, Settings(dtype))
            inputs, parameters = one._given(one.arguments)
            oracle = OperationOracle(case.node)
            right = [oracle.forward(inputs, parameters), *oracle.backward(one.dy, inputs, parameters)]
            leaves = [torch.from_numpy(array.copy()).requires_grad_() for array in one.arguments]
            learned = dict(zip(case.node.parameter_shapes(), leaves[len(inputs):], strict=True))
            fixed = {name: torch.from_numpy(array.copy()) for name, array in parameters.items() if name not in learned}
            y = case.node.torch_forward(leaves[:len(inputs)], learned | fixed)
            found = [y.detach(), *torch.autograd.grad(y, leaves, torch.from_numpy(one.dy), materialize_grads=True)]
            assert_inside([array.numpy() for array in found], right)


def assert_inside(found: list[np.ndarray], right: list[Bounded]) -> None:
    assert all(np.isfinite(one.error).all() for one in right)
    t = ratios(found, right)
    assert all(one <= 1 for one in t), t


def comes_back(kind: str, place: Place) -> None:
    """From an exchange file of its type, with every hyperparameter and every bit, and from torch."""
    net = Network(Model(network(kind).nodes))
    for number, array in enumerate(net.parameters.values()):
        array[...] = np.random.default_rng(number).uniform(-0.5, 0.5, array.shape)
    net.save(place.folder / "net.h5")
    with h5py.File(place.folder / "net.h5") as file:
        assert kind in [layer.attrs["type"].decode() for layer in file["model/layers"].values()]
    again = Network.from_file(place.folder / "net.h5")
    assert again.model == net.model.joined()
    assert all(again.parameters[name].tobytes() == array.tobytes() for name, array in net.parameters.items())
    module = net.to_torch()
    made = Network.from_torch(module, example=SHAPE)
    assert [one.kind for one in made.model.layers] == [one.kind for one in net.model.layers]
    hyperparameters = [operations.hyperparameters.numbers(one) for one in made.model.layers]
    assert hyperparameters == [operations.hyperparameters.numbers(one) for one in net.model.layers]


def has_faults(kind: str, place: Place) -> None:
    """A mistake in its output, and in each gradient, has hypotheses of its own."""
    assert_named(named_faults.of_operation(kind, place.folder))


def assert_named(found: dict[str, list[Hypothesis]]) -> None:
    assert len(found) >= 2 and all(found.values()), {name: len(one) for name, one in found.items()}


OF_OPERATIONS: dict[str, Piece] = EVERYWHERE | {
    "torch's counterpart": torchs,
    "a round trip": comes_back,
    "faults": has_faults,
}


def by_tier(pieces: dict[str, Piece]) -> list[Any]:
    """All pieces in two parts: each device and each precision is in the fast one, but not all pairs of them.

    Faults are asked for where the document needs all of them.
    """
    rest = {f"{DTYPES[1 - i]} on {device}" for i, device in enumerate(DEVICES)}
    return [pytest.param({name: one for name, one in pieces.items() if name not in (*rest, "faults")}, id=""),
            pytest.param({name: pieces[name] for name in rest}, id="other pairs", marks=pytest.mark.deep)]


@pytest.mark.parametrize("pieces", by_tier(OF_OPERATIONS))
@pytest.mark.parametrize("kind", OPERATIONS)
def test_an_operation_lacks_nothing(kind: str, pieces: dict[str, Piece], place: Place) -> None:
    assert missing(pieces, kind, place) == []


# --- losses ------------------------------------------------------------------------------------------------------


def torchs_loss(kind: str, place: Place) -> None:
    """As `torchs`, of a mean and of a sum."""
    for text in cases.LOSS_CASES[kind]:
        for dtype in DTYPES:
            for mean in (True, False):
                loss = loss_from(text, mean)
                given = cases.draw_loss(text, np.random.default_rng(1), cases.LOSS_SHAPE)
                output, target = (one.astype(dtype) for one in given)
                oracle, leaf = LossOracle(loss, target), torch.from_numpy(output.copy()).requires_grad_()
                value = loss.torch_forward(leaf, torch.from_numpy(target))
                (gradient,) = torch.autograd.grad(value, leaf)
                assert_inside([value.detach().numpy(), gradient.numpy()],
                              [oracle.forward(output), oracle.backward(output)])


def loss_comes_back(kind: str, place: Place) -> None:
    """From a file of its type, with its settings, and from torch's name of it in the reference."""
    assert kind in reference_losses.LOSSES
    for text in cases.LOSS_CASES[kind]:
        net = Network(Model((Conv2d("conv", 1, 4, (1, 1)),), False, text))
        net.save(place.folder / "net.h5")
        with h5py.File(place.folder / "net.h5") as file:
            assert file["model/loss"].attrs["type"].decode() == kind
        assert Network.from_file(place.folder / "net.h5").model.criterion == loss_from(text, False)
        assert Network.from_torch(net.to_torch(), loss=text).model.criterion == loss_from(text)


def loss_has_faults(kind: str, place: Place) -> None:
    """A mistake in its number, and in the gradient, has hypotheses."""
    for text in cases.LOSS_CASES[kind]:
        assert_named(named_faults.of_loss(text, place.folder))


OF_LOSSES: dict[str, Piece] = EVERYWHERE | {
    "torch's counterpart": torchs_loss,
    "a round trip": loss_comes_back,
    "faults": loss_has_faults,
}


@pytest.mark.parametrize("pieces", by_tier(OF_LOSSES))
@pytest.mark.parametrize("kind", LOSSES)
def test_a_loss_lacks_nothing(kind: str, pieces: dict[str, Piece], place: Place) -> None:
    assert missing(pieces, kind, place) == []


# --- the registries, and this test itself ------------------------------------------------------------------------


def test_what_is_usual_is_there() -> None:
    assert {*OPERATIONS, *LOSSES} >= USUAL


def test_the_document_is_what_the_registries_say(tmp_path: Path) -> None:
    """`python -m tests.helpers.operations_table` writes it anew. And no tensor of an operation or a loss is without."""
    found = operations_table.all_faults(tmp_path)
    for of_one in found.values():
        for of_tensors in of_one:
            assert_named(of_tensors)
    assert operations_table.PATH.read_text(encoding="utf-8") == operations_table.document(found)


def refuse(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("taken away")


def without(self: Any, dy: Any, inputs: Any, parameters: Any) -> Any:
    return [], {}


class Half(single.OperationPasses):
    """Passes that know float64 and the host alone."""

    def _run(self, dy: Any, inputs: Any, parameters: Any) -> Any:
        if inputs[0].dtype != np.float64 or self._device != "cpu":
            refuse()
        return super()._run(dy, inputs, parameters)


GRADIENTS = [f"{dtype} on {device}" for device in DEVICES for dtype in DTYPES]
#: What is taken away: a name in a mapping, or an attribute and what stands in its place; and what is missing then
TAKEN: list[tuple[str, Any, str, Any, list[str]]] = [
    ("sigmoid", cases.CASES, "sigmoid", None, [*GRADIENTS, "torch's counterpart"]),
    ("sigmoid", CHECKS, "sigmoid", None, GRADIENTS),
    ("sigmoid", single, "OperationPasses", Half, ["float32 on cpu", "float32 on cuda", "float64 on cuda"]),
    ("sigmoid", Sigmoid, "backward", without, [*GRADIENTS, "torch's counterpart", "faults"]),
    ("sigmoid", Sigmoid, "torch_forward", refuse, ["torch's counterpart", "faults"]),
    ("sigmoid", torch_graph._MAKERS, "sigmoid", None, ["a round trip", "faults"]),
    ("huber", cases.LOSS_CASES, "huber", None, [*GRADIENTS, "torch's counterpart", "a round trip", "faults"]),
    ("huber", CHECKS, "huber", None, GRADIENTS),
    ("huber", Huber, "backward", refuse, [*GRADIENTS, "torch's counterpart", "faults"]),
    ("huber", Huber, "torch_forward", refuse, ["torch's counterpart", "faults"]),
    ("huber", reference_losses.LOSSES, "huber", None, ["a round trip", "faults"]),
]


@pytest.mark.parametrize(("kind", "owner", "name", "instead", "expected"), TAKEN,
                         ids=[f"{kind}, {name}, {number}" for number, (kind, _, name, *_) in enumerate(TAKEN)])
def test_what_is_taken_away_is_missed(kind: str, owner: Any, name: str, instead: Any, expected: list[str],
                                      place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    if instead is None:
        monkeypatch.delitem(owner, name)
    else:
        monkeypatch.setattr(owner, name, instead)
    found = missing(OF_OPERATIONS if kind in OPERATIONS else OF_LOSSES, kind, place)
    assert [one.partition(":")[0] for one in found] == expected, found


def test_a_row_that_is_taken_away_is_missed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda *given, **named: re.sub(
        r"`(sigmoid|huber)`", "", read(*given, **named)))
    pieces = {name: has for name, has in OF_OPERATIONS.items() if ".md" in name}
    assert len(missing(pieces, "sigmoid", place)) == len(pieces) == 1
    pieces = {name: has for name, has in OF_LOSSES.items() if ".md" in name}
    assert len(missing(pieces, "huber", place)) == len(pieces) == 1
