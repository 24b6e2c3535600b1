# SPDX-License-Identifier: MIT
"""The exact probe: right programs are right to the bit, wrong ones differ, and what is not exact is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from bridge.engine.library import extension
from bridge.judge.judge import judge
from reference.cli import main as export_main
from reference.errors import InputError
from reference.export import export
from reference.model import VariedCNN
from reference.network.exactness import LIMIT, ExactSteps
from reference.network.layers import Layers
from reference.settings import ExportSettings
from tests.helpers.candidates import LowOperands, ask, plant, train
from tests.helpers.judged import wrong
from tests.helpers.loops import looped
from tests.helpers.tiers import few, few_rows

SIZE = {"height": 8, "width": 32, "batch": 2, "probe": True}

#: One element that is 0 in the probe, times a factor, is still 0
BLIND = {"one element 1 % off"}


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Probes by their settings, made when they are first asked for."""
    folder, made = tmp_path_factory.mktemp("probes"), {}

    def get(**given: Any) -> Path:
        key = tuple(sorted(given.items(), key=str))
        if key not in made:
            made[key] = export(folder / f"{len(made)}.h5", ExportSettings(**SIZE | {"steps": 1} | given)).path
        return made[key]

    return get


SETTINGS = [
    *({"seed": seed} for seed in range(4)),
    {"height": 64, "width": 16},
    {"height": 1, "width": 1, "batch": 1},
    {"steps": 4},
    {"precision": "float64"},
    {"reduction": "sum", "height": 7, "width": 11, "batch": 3},
    {"model": VariedCNN, "batch": 4},
    {"model": VariedCNN, "batch": 4, "height": 32, "width": 64, "seed": 5},
]


@pytest.mark.parametrize("given", few(SETTINGS, 4), ids=str)
def test_our_step_is_exact(probe: Callable[..., Path], given: dict[str, Any], tmp_path: Path) -> None:
    fixture, path = probe(**given), tmp_path / "result.h5"
    for device, precision in (("cpu", "float32"), ("naive", "float32"), ("cpu", "float64"), ("naive", "float64")):
        extension.run_file(fixture, path, device, precision)
        _, verdict = judge(fixture, path, diagnosing=False)
        assert (verdict.exit_code, verdict.words[:10]) == (0, "EXACT: all"), verdict


@pytest.mark.parametrize(("bits", "code"), few_rows([(22, 0), (10, 0), (7, 0), (1, 1)], 2))
def test_tf32_and_bfloat16_operands_are_exact(probe: Callable[..., Path], bits: int, code: int, tmp_path: Path) -> None:
    """Two bits are too few, so that the rounding does something."""
    kind = type("Low", (LowOperands,), {"bits": bits})
    _, verdict = judge(probe(), train(probe(), tmp_path / "result.h5", kind), diagnosing=False)
    assert verdict.exit_code == code, verdict


@looped("fault", [fault for fault in wrong.OPERATIONS if fault.optimizer == "plain"])
def test_a_wrong_operation_is_caught(probe: Callable[..., Path], fault: wrong.Fault, tmp_path: Path) -> None:
    """A fault with a memory needs a second step; one that this probe cannot see is in the list."""
    fixture = probe(steps=1 + fault.step)
    _, verdict = judge(fixture, train(fixture, tmp_path / "result.h5", fault.operations), diagnosing=False)
    if fault.name in BLIND:
        assert verdict.exit_code == 0
        return
    assert verdict.exit_code == 1
    assert f"{fault.first} of step {fault.step} is wrong" in verdict.words


@pytest.mark.parametrize(("name", "edit"), [
    ("steps/0/grads/conv2/weight", lambda g: np.nextafter(g, np.float32(9), dtype=np.float32)),
    ("steps/0/forward/relu1", wrong.element(np.nan)),
    ("steps/1/weights/conv3/bias", lambda w: np.nextafter(w, np.float32(9), dtype=np.float32)),
    ("steps/0/loss", lambda loss: np.nextafter(loss, np.float32(0), dtype=np.float32)),
])
def test_the_last_bit_is_a_bug(probe: Callable[..., Path], name: str, edit: Callable, tmp_path: Path) -> None:
    fixture = probe()
    extension.run_file(fixture, tmp_path / "right.h5")
    said = ask(fixture, plant(tmp_path / "right.h5", tmp_path / "wrong.h5", {name: edit}))
    assert said.code == 1
    assert f"of {name.split('/', 2)[2]} of step" in said.words
    assert "differ from PyTorch's" in said.words
    assert "exactly: nothing is rounded there" in said.words or name.endswith("relu1")
    assert "Winograd" in said.words


def test_minus_zero_is_zero(probe: Callable[..., Path], tmp_path: Path) -> None:
    fixture = probe()
    extension.run_file(fixture, tmp_path / "right.h5")
    turned = plant(tmp_path / "right.h5", tmp_path / "minus.h5", {
        "steps/0/grads/input": lambda g: np.where(g == 0, np.float32(-0.0), g)})
    assert ask(fixture, turned).code == 0


def test_a_probe_that_was_tampered_with_judges_nobody(probe: Callable[..., Path], tmp_path: Path) -> None:
    """Its own tensors must be exact, too."""
    fixture = probe()
    extension.run_file(fixture, tmp_path / "right.h5")
    other = plant(fixture, tmp_path / "tampered.h5", {
        "steps/0/forward/conv2": lambda z: np.nextafter(z, np.float32(999), dtype=np.float32)})
    said = ask(other, tmp_path / "right.h5")
    assert said.code == 2
    assert "this fixture cannot judge anybody" in said.errors


def test_gradients_of_a_probe_are_not_blind(probe: Callable[..., Path]) -> None:
    """No gradient is zero or symmetric: a flip, a transpose or a permutation of the channels changes it."""
    with h5py.File(probe()) as file:
        for name in ("conv1", "conv2", "conv3"):
            g = file[f"steps/0/grads/{name}/weight"][()]
            w = file[f"steps/0/weights/{name}/weight"][()]
            for a in (g, w):
                for change in (lambda a: a[..., ::-1], lambda a: a[:, :, ::-1], lambda a: a.swapaxes(2, 3)):
                    assert not np.array_equal(a, change(a))
        g = file["steps/0/grads/conv2/weight"][()]
        assert not np.array_equal(g, g.swapaxes(0, 1))
        assert file.attrs["probe"] == 1
        assert file.attrs["probe_operand_bits"] <= 8


def test_steps_get_the_learning_rate_0_unless_asked(probe: Callable[..., Path]) -> None:
    """N = 2 * 8 * 32 elements; one unit of a gradient moves a weight by 2^-16."""
    with h5py.File(probe()) as one, h5py.File(probe(steps=4)) as four, h5py.File(probe(lr=0.5)) as asked:
        assert [f["optimizer"].attrs["lr"] for f in (one, four, asked)] == [2.0**-8, 0.0, 0.5]
        assert not np.array_equal(one["steps/0/weights/conv1/weight"], one["steps/1/weights/conv1/weight"])


@pytest.mark.parametrize(("given", "said"), [
    ({"height": 20}, "a power of two of output elements"),
    ({"batch": 3}, "a power of two of output elements"),
    ({"lr": 0.1}, "must be 0 or a power of two"),
    ({"lr": 2.0**-30}, "the update of conv"),
    ({"steps": 2, "lr": 0.5}, "would not be exact"),
    ({"momentum": 0.5}, "momentum 0.5 found"),
    ({"weight_decay": 0.5}, "weight-decay 0.5 found"),
    ({"image": "a.mrc"}, "image a.mrc found"),
    ({"oracle_steps": 0}, "oracle-steps 0 found"),
])
def test_what_would_not_be_exact_is_refused(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        export(tmp_path / "probe.h5", ExportSettings(**SIZE | {"steps": 1} | given))
    assert not list(tmp_path.iterdir())


def test_a_sum_of_more_than_2_to_24_units_is_refused() -> None:
    """One image of ones, twice: of 2^24 pixels, and of a row more."""
    layer = nn.Conv2d(1, 1, 1)
    with torch.no_grad():
        layer.weight.fill_(1)
        layer.bias.fill_(0)

    def prove(height: int) -> None:
        x = torch.full((1, 1, height, 4), LIMIT / 16)
        layers = Layers([("a", layer)])
        ExactSteps(layers).prove(layers, x, x - 1, 1.0, 0.0)

    prove(4)
    with pytest.raises(InputError, match=r"grads/a/weight sums up to 2\^24.3 units"):
        prove(5)


def test_the_proof_bounds_every_partial_sum(probe: Callable[..., Path]) -> None:
    """Float32 sums in a random order, one after the other, are those of float64."""
    rng = np.random.default_rng(1)
    with h5py.File(probe()) as file:
        a, dz = file["steps/0/forward/relu1"][()], file["steps/0/grads/conv2/output"][()]
        right = file["steps/0/grads/conv2/weight"][()]
    for k, c in ((3, 5), (7, 0), (15, 15)):
        products = (a[:, c] * dz[:, k]).ravel()
        assert np.cumsum(rng.permutation(products), dtype=np.float32)[-1] == right[k, c, 1, 1]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "probe.h5"
    assert export_main([str(path), "--probe", "--size", "4x8"]) == 0
    with h5py.File(path) as file:
        assert file["batches/0/input"].shape == (2, 1, 4, 8)
        assert list(file["steps"]) == ["0", "1"]
        assert file["oracle/steps/0/forward/conv1"].dtype == np.float64
    assert export_main([str(path), "--probe", "--size", "5x8"]) == 2
    assert "expected" not in capsys.readouterr().out
