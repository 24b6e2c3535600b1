# SPDX-License-Identifier: MIT
"""A convolution by Winograd whose input something else takes, too: its data gradient is a part of a sum."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bridge.judge.judge import judge
from bridge.judge.oracle.algorithm import transposed, turned_kernels
from bridge.judge.oracle.algorithms import known
from bridge.validate.self_test.graph_candidate import GraphOperations, _Backward, train_graph
from reference.export import export
from reference.settings import ExportSettings

F6 = next(one for one in known() if one.name == "Winograd F(6x6)")


class Skip(nn.Module):
    """An activation that a convolution and a concatenation take."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.relu = nn.Conv2d(1, 8, 3, padding=1), nn.ReLU()
        self.inner, self.last = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(16, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return an image."""
        y = self.relu(self.first(x))
        return self.last(torch.cat([self.inner(y), y], 1))


def by_winograd(factor: float) -> type[GraphOperations]:
    """The inner convolution by F(6x6), forward and backward; of the gradient the last channel times a factor."""

    class Fast(GraphOperations):
        def forward(self, node: Any, inputs: list[Tensor], parameters: dict[str, Tensor]) -> Tensor:
            if node.name != "inner":
                return super().forward(node, inputs, parameters)
            x, w, b = inputs[0].detach(), parameters["weight"], parameters["bias"]
            z = functional.conv2d(x, w, b, padding=1)
            fast = np.stack([F6.forward(one.numpy(), w.detach().numpy(), node) for one in x])
            z = torch.from_numpy(fast) + b.detach()[:, None, None] + (z - z.detach())

            def back(dz: Tensor, _: Tensor) -> list[Tensor]:
                turned, kernels = transposed(node), turned_kernels(w.detach().numpy(), 1)
                assert turned is not None
                dx = torch.from_numpy(np.stack([F6.forward(one.numpy(), kernels, turned) for one in dz]))
                dx[:, -1] *= factor
                return [dx]

            found: Tensor = _Backward.apply(back, z, inputs[0])
            return found

    return Fast


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("skip") / "fixture.h5"
    return export(path, ExportSettings(height=24, width=24, batch=1, steps=1, model=Skip, threads=1)).path


undiagnosed = partial(judge, diagnosing=False)


def test_the_algorithm_is_looked_for_in_what_it_makes_of_a_sum(fixture: Path, tmp_path: Path) -> None:
    found = undiagnosed(fixture, train_graph(fixture, tmp_path / "result.h5", by_winograd(1.0))).verdict
    assert found.exit_code == 3 and found.algorithms[0].algorithm.family == "winograd", found.words


def test_its_wider_bound_hides_no_fault_of_the_sum(fixture: Path, tmp_path: Path) -> None:
    """A channel that is a little too large is inside the bound of F(6x6), and does not look like its errors."""
    result = train_graph(fixture, tmp_path / "result.h5", by_winograd(1.0003))
    found = undiagnosed(fixture, result, allow=("winograd",))
    assert found.verdict.exit_code == 1 and "grads/relu/output" in found.verdict.words, found.verdict.words
