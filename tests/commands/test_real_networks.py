# SPDX-License-Identifier: MIT
"""Networks that people train, from PyTorch to the verdict: ``cnn_step`` computes every tensor of a step rightly."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from bridge.engine.library.programs import cnn_step
from bridge.judge.judge import Judgement, judge
from bridge.judge.measure.outcome import Outcome
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.cuda.children import environment
from tests.helpers.real_networks import REAL, ImageClassifier, Resnet18, TwoLevelUnet
from tests.helpers.tiers import few_rows
from tests.helpers.torch_graphs import Kan

#: More than a period of the schedule
STEPS = 5
#: The rates let the steps change the weights by some per cent, and no training diverges
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "momentum": {"lr": 2.0**-6, "momentum": 0.9, "weight_decay": 1e-4},
    "adam": {"optimizer": "adam", "lr": 2.0**-8, "schedule": "StepLR(step_size=2, gamma=0.5)"},
}


def run(folder: Path, device: str = "cpu", **settings: Any) -> Judgement:
    """A training in PyTorch, the same by ``cnn_step``, and the judgement."""
    fixture, result = folder / "fixture.h5", folder / "result.h5"
    export(fixture, ExportSettings(**settings))
    done = subprocess.run([cnn_step(), fixture, result, "--device", device], capture_output=True, text=True,
                          check=False, timeout=300, env=environment() if device == "cuda" else None)
    assert (done.returncode, done.stderr) == (0, "")
    return judge(fixture, result, adequacy=False)


def assert_right(judgement: Judgement, steps: int) -> None:
    """Every tensor is right by its own inputs; behind many operations the weights' way has a bound of its own size."""
    comparison, verdict = judgement
    assert verdict.outcome is Outcome.ROUNDING, verdict.words
    assert all(one.name.startswith("update/") for one in comparison.not_judged)
    seen = {one.name for one in comparison.judged if one.step == steps - 1}
    graph = comparison.model.graph
    outputs = [node.name for node in graph.nodes]
    expected = {f"forward/{name}" for name in outputs} | {f"grads/{name}/output" for name in outputs}
    expected |= {f"{kind}/{name}" for name in graph.parameter_shapes() for kind in ("grads", "optimizer")}
    assert expected | {f"state/{name}" for name in graph.state_shapes()} | {"loss", "grads/input"} <= seen


def test_a_step_is_right(tmp_path: Path) -> None:
    assert_right(run(tmp_path, model=TwoLevelUnet, steps=1, **REAL[TwoLevelUnet], **OPTIMIZERS["momentum"]), 1)


@pytest.mark.deep
@pytest.mark.parametrize(("optimizer", "device"), [("momentum", "cpu"), ("adam", "cuda")])
@pytest.mark.parametrize("network", REAL)
def test_steps_are_right(network: type[nn.Module], optimizer: str, device: str, tmp_path: Path) -> None:
    """On the device ``cuda`` by the software device."""
    assert_right(run(tmp_path, device, model=network, steps=STEPS, **REAL[network], **OPTIMIZERS[optimizer]), STEPS)


@pytest.mark.parametrize(("optimizer", "device"), few_rows([("momentum", "cpu"), ("adam", "cuda")], 1))
def test_steps_of_splines_are_right(optimizer: str, device: str, tmp_path: Path) -> None:
    """A KAN of two layers, with targets of 6 columns for images of 10."""
    settings: dict[str, Any] = {"height": 4, "width": 10, "batch": 3} | OPTIMIZERS[optimizer]
    assert_right(run(tmp_path, device, model=Kan, steps=STEPS, **settings), STEPS)


@pytest.mark.deep
def test_a_residual_network_of_full_width_is_right(tmp_path: Path) -> None:
    """ResNet-18 of 11 million parameters."""
    judgement = run(tmp_path, model=partial(Resnet18, 64), steps=1, oracle_steps=0, **REAL[Resnet18],
                    **OPTIMIZERS["momentum"])
    assert_right(judgement, 1)
    assert sum(one.statistic.elements for one in judgement.comparison.judged
               if one.name.startswith("optimizer/")) == 11173962


@pytest.mark.deep
@pytest.mark.parametrize(("network", "options"), [
    (TwoLevelUnet, ["--momentum", "0.9"]),
    (ImageClassifier, ["--loss", "cross_entropy", "--optimizer", "adam", "--device", "cuda"]),
])
def test_the_command_says_so(network: type[nn.Module], options: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bridge.validate", "--model", f"{network.__module__}:{network.__name__}", "--size", "16",
         "--steps", str(STEPS), *options], cwd=tmp_path, text=True, capture_output=True, check=False,
        env=environment())
    assert done.returncode == 0, done.stderr
    assert "RIGHT: every difference is rounding" in " ".join(done.stdout.split())
