# SPDX-License-Identifier: MIT
"""The same curves for TensorBoard, where it and PyTorch are installed."""

from __future__ import annotations

from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from bridge.train.trainer import StepRecord

FOLDER = "tensorboard"
#: What is drawn of a `StepRecord`
SCALARS = ("loss", "lr", "gradient_norm", "validation_loss", "resolution")


class TensorBoard:
    """Writes the scalars of each step; a context manager. Does nothing where a package is missing.

    Parameters
    ----------
    folder : of the training; event files go to `FOLDER` in it
    first_step : events of this step and later ones, which an interrupted run may have left, are no longer shown
    """

    def __init__(self, folder: Path, first_step: int = 0) -> None:
        self._writer: Any = None
        if find_spec("tensorboard") is not None and find_spec("torch") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder / FOLDER), purge_step=first_step or None)

    def write(self, record: StepRecord) -> None:
        """Add what is known of a step."""
        if self._writer is None:
            return
        values = asdict(record)
        for name in SCALARS:
            if values[name] is not None:
                self._writer.add_scalar(name, values[name], record.step)

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
                 ) -> None:
        if self._writer is not None:
            self._writer.close()
