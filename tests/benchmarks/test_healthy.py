# SPDX-License-Identifier: MIT
"""Random right programs: drawn alike every time, counted by program; what a verdict that is not theirs does."""

from __future__ import annotations

import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from benchmarks.validator import healthy, trained
from bridge.common import cli
from bridge.common.errors import FileError
from bridge.exchange.optimizers import Adam
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.operations import OPERATIONS
from bridge.operations.losses import LOSSES as KNOWN_LOSSES
from bridge.operations.losses import settings
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.graph_candidate import train_graph
from bridge.validate.self_test.healthy import Healthy
from bridge.validate.self_test.operations import only
from bridge.validate.self_test.run_case import Healthily
from reference.export import export
from reference.network.hyperparameters import hyperparameters
from reference.network.trace import trace
from reference.settings import ExportSettings
from tests.helpers.torch_graphs import (
    Activations,
    Attention,
    Everything,
    Gated,
    Kan,
    Normalised,
    Pooled,
    Reduced,
    Resnet,
)


def test_a_configuration_depends_on_its_number_alone() -> None:
    first, again, other = (healthy.draw(np.random.default_rng(number)) for number in ((1, 2), (1, 2), (1, 3)))
    assert first == again != other


def test_alarms_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A verdict that a program may not get is one, and is written with what made it."""
    # A sequence of torch names its layers by number
    wrong = only("0", "conv", lambda z, *_: 2 * z)
    programs = (
        healthy.PROGRAMS[0],
        Healthy("wrong", lambda fixture, result: train(fixture, result, wrong)),
        Healthy("wrong, and expected", lambda fixture, result: train(fixture, result, wrong), (1,)),
    )
    monkeypatch.setattr(healthy, "PROGRAMS", programs)
    layers = ({"in_channels": 1, "out_channels": 2, "kernel_size": (3, 3)},)
    settings = {"height": 8, "width": 9, "batch": 2, "steps": 1, "seed": 0, "reduction": "mean", "lr": 0.0625}
    chosen = iter(healthy.Configuration(layers, settings, i, 0.5) for i in range(3))
    monkeypatch.setattr(healthy, "draw", lambda rng: next(chosen))
    assert healthy.main(["--count", "3", "--json", str(tmp_path / "out.json")]) == 1
    said = json.loads((tmp_path / "out.json").read_text())
    assert {name: row["false_alarms"] for name, row in said["programs"].items()} == {
        "torch": 0, "wrong": 1, "wrong, and expected": 0, "all": 1}
    assert said["programs"]["all"]["exit_codes"] == {"0": 1, "1": 2}
    assert "scale=0.5" in said["alarms"][0]["data"] and said["alarms"][0]["name"] == "wrong"
    assert "1 false alarms in 3 right programs" in capsys.readouterr().out


def _dies_at_one(number: tuple[int, int]) -> tuple[int, int]:
    """In place of a judgement, in a process of its own."""
    if number[1] == 1:
        os._exit(139)
    return number


@pytest.mark.deep
def test_a_crash_ends_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those after it are asked by a new one, and it is counted apart."""
    monkeypatch.setattr(healthy, "_one", _dies_at_one)
    found = list(healthy._in_processes([(7, i) for i in range(4)], 1))
    assert found == [(7, 0), healthy.Crash(7, 1), (7, 2), (7, 3)]


def test_a_fixture_in_which_pytorch_is_wrong_is_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no alarm; what else is wrong with a file is an error."""
    def ask(said: str) -> None:
        def refuse(*_: object) -> None:
            raise FileError(f"fixture.h5: {said}")

        monkeypatch.setattr(healthy, "ask", refuse)

    said = "PyTorch's steps/0/grads/a/weight disagrees"
    ask(said)
    assert healthy._one((706, 75, healthy.GRAPH)) == healthy.Crash(706, 75, said)
    ask("no such file")
    with pytest.raises(FileError):
        healthy._one((706, 75, healthy.GRAPH))


def test_an_alarm_is_said_when_it_comes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What ends the run after it cannot take it back; a crash has no verdict."""
    told = iter([Healthily("torch", "data 0", "random", 1), healthy.Crash(7, 1)])
    monkeypatch.setattr(healthy, "_in_processes", lambda numbers, jobs: told)
    found, crashes = healthy.run(2, 7, cli.Output(stderr=True), 1)
    said = capsys.readouterr().err
    assert said.index("FALSE ALARM 1") < said.index("CRASH of configuration 1") and len(found) == len(crashes) == 1


def test_what_a_long_training_leaves_of_a_dead_filter_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is subnormal, and not 0."""
    monkeypatch.setattr(trained, "SETTINGS", (Adam(1e-4),))
    layers = ({"in_channels": 1, "out_channels": 2, "kernel_size": (3, 3)}, None,
              {"in_channels": 2, "out_channels": 1, "kernel_size": (3, 3)})
    data = {"height": 8, "width": 9, "batch": 2, "steps": 1, "seed": 0, "reduction": "mean", "lr": 0.0625}
    found = healthy.ask(healthy.Configuration(layers, data, healthy.PROGRAMS.index(trained.TRAINED)), tmp_path)
    assert found.code == 0 and not found.alarm and found.t <= 1
    with h5py.File(tmp_path / "fixture.h5") as file:
        assert 0 < np.abs(file["steps/0/optimizer/0/weight/exp_avg"][0]).max() < 2.0**-140


def test_random_graphs_are_drawn_alike_and_branch() -> None:
    drawn = [healthy.draw_graph(np.random.default_rng((1, i, healthy.GRAPH))) for i in range(80)]
    assert drawn[3] == healthy.draw_graph(np.random.default_rng((1, 3, healthy.GRAPH))) != drawn[4]
    assert all(one.layers[0].kind == "Conv2d" for one in drawn)
    assert {layer.kind for one in drawn for layer in one.layers} >= {"add", "cat", "BatchNorm2d", "MaxPool2d"}
    assert {one.settings["optimizer"] for one in drawn} == {"sgd", "adam", "adamw"}
    assert sum(one.program == 0 for one in drawn) >= 10


def test_random_graphs_have_every_operation_loss_and_optimiser() -> None:
    drawn = [healthy.draw_graph(np.random.default_rng((2, i, healthy.GRAPH))) for i in range(1000)]
    layers = [(name, layer) for one in drawn for name, layer in trace(one.model())]
    assert {hyperparameters(name, layer)[0] for name, layer in layers} == OPERATIONS.keys()
    texts = {one.settings["loss"] for one in drawn}
    assert {text.split()[0] for text in texts} == set(KNOWN_LOSSES)
    assert {word.split("=")[0] for text in texts for word in text.split()[1:]} == {
        setting.name for loss in KNOWN_LOSSES.values() for setting in settings(loss)}
    assert {one.settings["optimizer"] for one in drawn} == {"sgd", "adam", "adamw"}
    assert any(one.settings.get("nesterov") for one in drawn) and any(one.settings.get("dampening") for one in drawn)
    assert len({one.settings["schedule"] for one in drawn}) > 2 and any(
        one.fixed for network in drawn for one in network.layers)


def test_graphs_have_their_own_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The figures of chains stay where they are, and those of graphs when chains are run again."""
    file = tmp_path / "healthy.json"
    file.write_text('{"count": 7}')
    assert healthy.main(["--graphs", "--count", "2", "--json", str(file)]) == 0
    said = json.loads(file.read_text())
    assert said["count"] == 7 and said["graphs"]["programs"]["all"]["runs"] == said["graphs"]["count"] == 2
    assert healthy.main(["--count", "1", "--json", str(file)]) == 0
    again = json.loads(file.read_text())
    assert again["graphs"] == said["graphs"] and again["count"] == 1
    capsys.readouterr()


def test_jax_has_every_operation(tmp_path: Path) -> None:
    """A network of all of them is right; where JAX is not installed, nothing can be asked."""
    pytest.importorskip("jax", reason="JAX is not installed: pip install .[bench]")
    from benchmarks.validator.jax_graph import FORMULAS, LOSSES, JaxGraph

    assert set(FORMULAS) == set(OPERATIONS) and set(LOSSES) == set(KNOWN_LOSSES)
    fixture, result = tmp_path / "fixture.h5", tmp_path / "result.h5"
    for network, height, width in (
            (Everything, 8, 10), (Activations, 8, 10), (Gated, 8, 10), (Normalised, 8, 10), (Attention, 8, 8),
            (Reduced, 10, 10), (Pooled, 8, 10), (Kan, 4, 10)):
        fixture.unlink(missing_ok=True)
        export(fixture, ExportSettings(model=network, height=height, width=width, batch=3, steps=2))
        verdict = judge(fixture, train_graph(fixture, result, JaxGraph), diagnosing=False).verdict
        assert verdict.outcome is Outcome.ROUNDING, verdict.words


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_jax_has_every_setting_of_the_cross_entropy(tmp_path: Path, reduction: str) -> None:
    pytest.importorskip("jax", reason="JAX is not installed: pip install .[bench]")
    from benchmarks.validator.jax_graph import JaxGraph

    fixture, result = tmp_path / "fixture.h5", tmp_path / "result.h5"
    for loss in ("label_smoothing=0.2", "class_indices=1", "class_indices=1 ignore_index=1 label_smoothing=0.2",
                 "weight=0.5,2,1,1.5,3", "class_indices=1 ignore_index=100 weight=0.5,2,1,1.5,3"):
        fixture.unlink(missing_ok=True)
        export(fixture, ExportSettings(model=Resnet, height=12, width=10, batch=5, steps=2, reduction=reduction,
                                       lr=0.01, loss=f"cross_entropy {loss}"))
        verdict = judge(fixture, train_graph(fixture, result, JaxGraph), diagnosing=False).verdict
        assert verdict.outcome is Outcome.ROUNDING, (loss, verdict.words)
