# SPDX-License-Identifier: MIT
"""Candidates to judge: those of the self-test, files with only some of their tensors, and what is said of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import h5py
import torch

from bridge import compare
from bridge.judge.oracle.reduced_precision import round_fraction
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.edits import plant
from bridge.validate.self_test.operations import Operations

__all__ = ["Answer", "Operations", "ask", "keep", "plant", "result_of", "train"]


@dataclass
class Answer:
    """What ``python -m bridge.compare`` said."""

    code: int
    words: str
    errors: str


def ask(fixture: Path, result: Path, *options: str, diagnosing: bool = False) -> Answer:
    """Run bridge.compare in this process; it looks for the fault, which takes most of the time, only when asked to."""
    out, errors = StringIO(), StringIO()
    if not diagnosing:
        options = (*options, "--no-diagnosis")
    with redirect_stdout(out), redirect_stderr(errors):
        code = compare.main([str(fixture), str(result), *options])
    return Answer(code, " ".join(out.getvalue().split()), errors.getvalue())


def keep(result: Path, path: Path, wanted: Callable[[str], bool], *, head: bool = True) -> Path:
    """A copy of a result that holds only some of its datasets; without `head`, only format and version besides."""
    with h5py.File(result) as source, h5py.File(path, "w") as file:
        for name, value in source.attrs.items():
            if head or name.startswith("format"):
                file.attrs[name] = value
        if head:
            source.copy("optimizer", file)

        def take(name: str, node: Any) -> None:
            if isinstance(node, h5py.Dataset) and (wanted(name) if name != "model" else head):
                file[name] = node[()]

        source.visititems(take)
    return path


def result_of(fixture: Path, edit: Callable[[h5py.File], None] = lambda file: None) -> Path:
    """The fixture's numbers as those of another program, changed by `edit`."""
    path = fixture.with_name(f"result-{fixture.name}")
    shutil.copy(fixture, path)
    with h5py.File(path, "r+") as file:
        file.attrs["role"], file.attrs["producer"] = "candidate", "another program"
        del file["oracle"], file["batches"]
        edit(file)
    return path


class LowOperands(Operations):
    """Operands of every product are rounded first."""

    bits = 0

    def low(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        return [torch.from_numpy(round_fraction(t.numpy(), self.bits)) for t in tensors]

    def conv(self, layer: Any, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
        return super().conv(layer, *self.low(x, w), b)

    def data_gradient(self, layer: Any, dz: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return super().data_gradient(layer, *self.low(dz, x, w))

    def filter_gradient(self, layer: Any, dz: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return super().filter_gradient(layer, *self.low(dz, x, w))
