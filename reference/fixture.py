# SPDX-License-Identifier: MIT
"""Write a fixture: train a CNN in PyTorch for a few steps and keep every tensor.

`reference.export` has :func:`export` for others, and the command.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from reference.batches.drawn import DrawnSource
from reference.batches.images import image_file
from reference.batches.micrograph import Source, fit_target, make_source, target_text
from reference.batches.own_batches import OwnSource, file_of, rounded
from reference.files.disk import check_place, check_separate, size_text
from reference.files.writer import (
    NewFile,
    check_finite,
    link_twin,
    mark_probe,
    new_file,
    write_header,
    write_state,
    write_tensor,
    write_weights,
)
from reference.losses import LossText
from reference.model import build_layers, first_channels, model_file, output_shapes
from reference.network.layers import Layers, MaskedDropout
from reference.network.strips import in_strips
from reference.optimizer import Optimizer
from reference.probe import Probe, ProbeSource, check_chain, settled
from reference.progress import Stages
from reference.settings import ExportSettings
from reference.training import double_twin, parameters, run_step, un_reduced

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class ExportReport:
    """What was written.

    Attributes
    ----------
    path : Path
    size : int, in bytes
    seconds : float
    losses : tuple of float
        One for every step.
    left_out : tuple of str
        Running statistics of the model that are not in the file: normalisations change them that several calls take.
    """

    path: Path
    size: int
    seconds: float
    losses: tuple[float, ...]
    left_out: tuple[str, ...] = ()


def export(path: str | Path, settings: ExportSettings | None = None, *, quiet: bool = True) -> ExportReport:
    """Train for a few steps and write every tensor into an exchange file.

    Parameters
    ----------
    path : path
        Of the fixture. It appears when it is complete; until then an older file of that name stays.
    settings : ExportSettings, optional
        The defaults are the three-layer CNN on 3 batches of 2 images of 1024 x 1024 pixels, in float32.
    quiet : bool
        Show no progress.

    Returns
    -------
    report : ExportReport

    Raises
    ------
    reference.errors.InputError
        If something that was asked for cannot be done; nothing is written then.

    Notes
    -----
    The same settings, thread count and versions give the same values bit for bit.
    """
    settings = settings or ExportSettings()
    begin = time.perf_counter()
    check_separate(path, {"--image": image_file(settings.image), "--input": file_of(settings.input),
                          "--target": file_of(settings.target), "--model": model_file(settings.model)})
    check_place(path)
    with _computing(settings.threads):
        work = _Work(settings)
        needed = work.expected_bytes()
        goal = check_place(path, needed)
        if not quiet:
            print(f"will write {size_text(needed)} to {goal}", flush=True)
        with (
            new_file(path, needed) as file,
            Stages(settings.steps + work.computed_twins, quiet) as stages,
        ):
            losses = work.write(file, stages)
    size = Path(path).stat().st_size
    return ExportReport(Path(path), size, time.perf_counter() - begin, tuple(losses),
                        tuple(sorted(work.layers.left_out)))


class _Work:
    """Model and images of one export."""

    def __init__(self, settings: ExportSettings) -> None:
        self.settings = settings
        self.dtype = _DTYPES[settings.precision]
        self.own: OwnSource | DrawnSource | None = None
        if settings.input is not None and settings.target is not None:
            self.own = OwnSource(settings.input, settings.target, settings.steps)
        elif settings.drawn is not None:
            self.own = DrawnSource(settings.drawn, settings.batch, settings.seed)
        size = settings.height, settings.width
        self.layers: Layers = build_layers(settings.model, settings.seed, self.dtype, size,
                                           settings.image_shape if self.own is None else self.own.shape[1:],
                                           settings.batch if self.own is None else self.own.shape[0],
                                           0 if self.own is None else self.own.integers, settings.output,
                                           None if self.own is None else self.own.inputs)
        channels = first_channels(self.layers) if settings.image_shape is None else settings.image_shape[0]
        self.input_shape: tuple[int, ...] = (settings.batch, channels, *size) if self.own is None else self.own.shape
        self.shapes = output_shapes(self.layers, self.input_shape)
        self.twins = settings.twins(math.prod(self.input_shape) // (*self.input_shape, 1)[1])
        # A float64 step is its own twin.
        self.computed_twins = self.twins if settings.precision == "float32" else 0
        self.layers = self.layers.changed(
            lambda _, layer: MaskedDropout(layer.p, isinstance(layer, torch.nn.Dropout2d))
            if isinstance(layer, (torch.nn.Dropout, torch.nn.Dropout2d)) else layer)
        self.probe: Probe | None = None
        if settings.probe:
            check_chain(self.layers)
            output = self.shapes[self.layers[-1][0]]
            self.settings = settled(settings, output)
            self.source: Source = ProbeSource(settings, (settings.batch, channels, *size), output)
            self.probe = Probe(self.layers, self.settings, output)
        else:
            self.source = self.own or make_source(settings, channels)

    def expected_bytes(self) -> int:
        """Return the size of the file, but for HDF5's own few kilobytes."""
        one_pass = [math.prod(shape) for shape in self.shapes.values()]
        twice = 2 * sum(one_pass)  # forward, and gradients
        pixels = math.prod(self.input_shape)
        masks = sum(math.prod(self.shapes[name]) for name, one in self.layers if isinstance(one, MaskedDropout))
        weights = sum(parameter.numel() for _, _, parameter in parameters(self.layers))
        step = twice + pixels + weights
        steps = self.settings.steps * (pixels + one_pass[-1] + masks + 2 * weights) + weights
        steps += self.settings.whole * (twice + pixels)
        return steps * self.dtype.itemsize + self.computed_twins * step * torch.float64.itemsize

    def write(self, file: NewFile, stages: Stages) -> list[float]:
        """Write all steps, one after the other: no more than one is in memory."""
        settings, losses = self.settings, []
        output_shape = self.shapes[self.layers[-1][0]]
        target = self.own.target if self.own else target_text(self.source, self.input_shape, output_shape)
        write_header(file, settings, self.layers, self.source.data, target)
        if self.own and self.own.inputs:
            file["model"].attrs["inputs"] = self.own.inputs.text
        write_state(file, self.layers)
        optimizer = Optimizer(self.layers, settings)
        for k in range(settings.steps):
            stages.begin(f"step {k + 1} of {settings.steps}")
            batch = self._write_batch(file, k, output_shape)
            write_weights(file, k, self.layers)
            if settings.schedule:
                file[f"steps/{k}"].attrs["lr"] = optimizer.rates[k]
            self._write_masks(file, k)
            whole = k < settings.whole
            losses.append(self._write_step(file, f"steps/{k}", self.layers, *batch, whole=whole))
            if k < self.twins:
                self._write_twin(file, k, batch, stages)
            # Weights are changed in place
            file.settle()
            optimizer.step()
        write_weights(file, settings.steps, self.layers)
        if self.probe:
            mark_probe(file, self.probe.operand_bits)
        return losses

    def _write_batch(
        self, file: h5py.File, k: int, output_shape: tuple[int, ...]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        given, images = self.source.batch(k)
        batch, loss = rounded("input", given, self.dtype), LossText.read(self.settings.loss)
        wanted = torch.from_numpy(np.require(images, requirements=["C", "W"]))
        if self.own:
            target = self.own.fitted(k, output_shape, loss, self.dtype)
        elif self.probe:
            target = loss.target(self.probe.target(batch, wanted))
        else:
            target = loss.target(fit_target(wanted, output_shape).to(self.dtype))
        write_tensor(file, f"batches/{k}/input", batch)
        write_tensor(file, f"batches/{k}/target", target)
        return batch, target

    def _write_masks(self, file: h5py.File, k: int) -> None:
        """Draw the masks of a step: they are data, which a candidate reads."""
        for index, (name, layer) in enumerate(self.layers):
            if isinstance(layer, MaskedDropout):
                rng = np.random.default_rng([self.settings.seed, k, index])
                shape = (*self.shapes[name][:2], 1, 1) if layer.of_channels else self.shapes[name]
                layer.mask = torch.from_numpy(rng.random(shape) >= layer.p).to(self.dtype)
                write_tensor(file, f"steps/{k}/masks/{name}", layer.mask)

    def _write_step(
        self, file: h5py.File, group: str, layers: Layers, batch: torch.Tensor, target: torch.Tensor, *,
        whole: bool = True,
    ) -> float:
        is_twin = group.startswith("oracle/")

        def sink(name: str, tensor: torch.Tensor) -> None:
            if is_twin and name.startswith("state/"):
                # It does not begin with the state of before the step
                return
            if self.probe:
                self.probe.check(name, tensor)
            if whole or not un_reduced(name):
                write_tensor(file, f"{group}/{name}", tensor)
            else:
                check_finite(f"{group}/{name}", tensor)

        return run_step(layers, batch, target, self.settings.reduction, sink, self.settings.loss, of_input=whole)

    def _write_twin(
        self, file: h5py.File, k: int, batch: tuple[torch.Tensor, torch.Tensor], stages: Stages
    ) -> None:
        if not self.computed_twins:
            link_twin(file, k)
            return
        stages.begin(f"step {k + 1} of {self.settings.steps}, float64 twin")
        images, target = (tensor.double() for tensor in batch)
        self._write_step(file, f"oracle/steps/{k}", in_strips(double_twin(self.layers)), images, target)


@contextlib.contextmanager
def _computing(threads: int | None) -> Iterator[None]:
    """Thread count as asked for, and no bfloat16 or TF32 inside float32 convolutions; both put back after."""
    # Torch before 2.9 has no such switch on the CPU, and never uses them there.
    conv: Any = getattr(torch.backends.mkldnn, "conv", None)
    before = torch.get_num_threads(), getattr(conv, "fp32_precision", None)
    torch.set_num_threads(threads or before[0])
    if before[1] is not None:
        conv.fp32_precision = "ieee"
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        if before[1] is not None:
            conv.fp32_precision = before[1]
