# SPDX-License-Identifier: MIT
"""``python -m benchmarks.gpu.networks`` and ``layers``: what they say where there is no GPU, and what is compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import layers, networks


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, and it would take minutes")
@pytest.mark.parametrize("main", [networks.main, layers.main])
def test_without_a_gpu_one_line_says_so(main: Callable[[list[str]], int], tmp_path: Path,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output", str(tmp_path/"found.json")]) == 0
    said = capsys.readouterr().out
    assert "skipped: PyTorch" in said and said.count("\n") == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("main", [networks.main, layers.main])
def test_a_folder_that_is_not_there_is_said_before_anything_is_measured(
        main: Callable[[list[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output", str(tmp_path/"none"/"found.json")]) == 2
    assert "--output" in capsys.readouterr().err


def test_what_is_checked_is_how_far_parameters_move() -> None:
    class Descent:
        """Each step halves the only parameter; its loss is the parameter before."""

        def __init__(self) -> None:
            self.value = torch.tensor([8.0])
            self.before = 0.0

        def run(self) -> None:
            self.before = float(self.value)
            self.value = self.value/2

        def loss(self) -> float:
            return self.before

        def parameters(self) -> list[Any]:
            return [self.value.numpy()]

    found = networks.checked(Descent())
    assert found["losses"] == [8.0, 4.0, 2.0, 1.0]
    assert [one.tolist() for one in found["moved"]] == [[-7.5]]
