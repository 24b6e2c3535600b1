# SPDX-License-Identifier: MIT
"""A cause does not lie behind its effect."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
from torch import Tensor, nn

from bridge.judge.diagnosis.candidates import base_of
from bridge.judge.diagnosis.faults.output_faults import worked_in_place
from bridge.judge.diagnosis.predictions.step_graph import StepGraph
from bridge.judge.measure.file_pair import open_pair
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.networks.exported_networks import Written, conv

GRADIENTS = "steps/0/grads"


def rolled() -> nn.Module:
    """A sum whose gradient comes as it is through two operations."""
    def forward(m: Written, x: Tensor) -> Tensor:
        found: Tensor = m.b(m.a(x) + m.c(x).roll(1, 2).roll(-1, 2))
        return found

    return Written(forward, a=conv(1, 2), b=conv(2, 1), c=conv(1, 2))


def test_a_wrong_gradient_that_is_sent_on_is_not_overwritten(tmp_path: Path) -> None:
    """What stands between two tensors in the file is as wrong as they are, and shows nothing."""
    fixture = export(tmp_path / "fixture.h5", ExportSettings(model=rolled, height=9, width=8, batch=2, steps=1)).path
    shutil.copy(fixture, path := tmp_path / "wrong.h5")
    with h5py.File(path, "r+") as file:
        file.attrs["role"] = "candidate"
        sent = [name for name in file[GRADIENTS] if name not in ("b", "input")]
        assert {"add", "a", "c"} < set(sent)
        for name in sent:
            file[f"{GRADIENTS}/{name}/output"][...] *= 1.01
    with open_pair(fixture, path) as pair:
        graph = StepGraph(pair, 0, pair.start)
        for name in ("grads/add/output", "grads/c/output"):
            assert not list(worked_in_place(base_of(graph.operation(name)), graph, name, graph.found(name)))
