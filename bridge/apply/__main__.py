# SPDX-License-Identifier: MIT
"""``python -m bridge.apply CHECKPOINT INPUTS... --output FOLDER``: apply a trained network to image files."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from bridge.apply.files import Job, check_record, jobs, open_output
from bridge.apply.network import MEMORY, TiledNetwork
from bridge.apply.normalization import normalized, restored, scale_of
from bridge.apply.outputs import ImageOutput as OutputFile
from bridge.apply.trained import load
from bridge.common.atomic_file import replacing
from bridge.common.cli import BAD_INPUT, Output, complain, new_parser, run
from bridge.common.command_files import size_text
from bridge.common.errors import ArgumentError, DivergenceError, FileError
from bridge.common.threads import return_freed_memory
from bridge.data.images import Images
from bridge.data.normalization import Scale
from bridge.engine.arrays.transfer import to_host
from bridge.engine.library import extension
from bridge.engine.network.network import Network

ABOUT = """Apply a trained network to image files of any size.

Images are computed in tiles, each from a crop with all around it that it depends on, so that the result is that of the
whole image, in bounded memory. Inputs are normalised as in training, and outputs are in the units of the inputs. Each
output has the name of its input, in the folder OUTPUT, and takes it when it is complete; MRC headers are kept, with
pixel size, origin and extended header.

INPUTS are files (MRC, TIFF, HDF5, npy), folders or patterns. CHECKPOINT is one of bridge.train, or any exchange file
with a network, which does not say how inputs are normalised."""

EPILOG = """exit codes:
  0    all outputs are written
  1    an output is not finite: the image is named, its file is not written
  2    bad input or usage; with --on-bad skip the other files are written
  130  interrupted; finished outputs stay, and no half ones

examples:
  python -m bridge.apply run/step-000010000.h5 'in/*.mrc' --output denoised
  python -m bridge.apply run/best.h5 in --output denoised --resume
  python -m bridge.apply net.h5 stack.npy --output out --normalization image
                         --tile 1024,1024"""

UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    p = new_parser("bridge.apply", ABOUT, EPILOG)
    p.add_argument("checkpoint", metavar="CHECKPOINT", help="exchange file with the network")
    p.add_argument("inputs", metavar="INPUTS", nargs="+", help="image files, folders, patterns, FILE.h5:/dataset")
    p.add_argument("--output", metavar="FOLDER", required=True, help="where outputs go; is made where it is not")
    p.add_argument("--resume", action="store_true", help="skip outputs that an earlier run has finished")
    p.add_argument("--on-bad", choices=("refuse", "skip"), default="refuse", help="what becomes of a file that cannot "
                   "be read: refuse all (default), or go on with the others")
    p.add_argument("--normalization", metavar="HOW", help="none, image (each by its own mean and standard deviation), "
                   "or MEAN,STD; the default is the training's")
    p.add_argument("--average", action="store_true", help="take the averaged weights of the checkpoint")
    p.add_argument("--tile", metavar="H,W", help="size of a tile in pixels of the output")
    p.add_argument("--memory", metavar="SIZE", help="what a tile may need, as 500MB or 2GB, in place of its size "
                   f"(default {size_text(MEMORY)})")
    p.add_argument("--whole", action="store_true", help="compute whole images, of networks that need them")
    p.add_argument("--device", default="cpu", help="cpu (default), or cuda, cuda:N")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    a = parser().parse_args(arguments)
    return run("bridge.apply", lambda: _apply(a))


def _apply(a: argparse.Namespace) -> int:
    sizes = _sizes(a)
    extension.check_device(a.device)
    return_freed_memory()
    network, normalization = load(a.checkpoint, a.device, average=a.average, normalization=a.normalization)
    tiled = TiledNetwork(network, **sizes)
    with Images(a.inputs, on_bad=a.on_bad) as images:
        folder = _folder(a.output)
        todo, refused = jobs(images, tiled, folder, [("CHECKPOINT", a.checkpoint)], resume=a.resume)
        bad = [one.reason for one in (*images.bad, *refused)]
        if refused and a.on_bad == "refuse":
            raise FileError("; ".join(one.reason for one in refused))
        # As JSON has it
        how = list(normalization) if isinstance(normalization, tuple) else normalization
        check_record(folder, {"network": _digest(network), "normalization": how})
        work = _Work(images, scale_of(images, normalization), tiled)
        try:
            bad += work.do(todo, go_on=a.on_bad == "skip")
        except DivergenceError as error:
            return complain("bridge.apply", str(error), 1)
    for reason in bad:
        complain("bridge.apply", reason)
    total = len(images.stacks) + len(images.bad)
    before = sum(job.finished for job in todo)
    said = (f"{work.written} of {total} files written to {folder}" + f", {before} there already" * bool(before)
            + f", {len(bad)} bad" * bool(bad))
    Output().print(said, highlight=False, soft_wrap=True)
    return BAD_INPUT if bad else 0


class _Work:
    """Makes the outputs, and tells who looks on.

    Attributes
    ----------
    written : files so far
    """

    def __init__(self, images: Images, scale: Scale, network: TiledNetwork) -> None:
        self._images, self._scale, self._network, self._console = images, scale, network, Output(stderr=True)
        self._bar = Progress(TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(),
                             console=self._console, disable=not self._console.is_terminal)
        self.written = 0

    def do(self, todo: Sequence[Job], *, go_on: bool) -> list[str]:
        """Make what is not finished; return what was wrong with files that are left out, if it is to go on then."""
        bad = []
        total = sum(_pixels(job) for job in todo if not job.finished)
        with self._bar:
            task = self._bar.add_task("", total=total)
            for job in todo:
                if job.finished:
                    continue
                try:
                    self._make(job, task)
                except FileError as error:
                    if not go_on:
                        raise
                    bad.append(str(error))
        return bad

    def _make(self, job: Job, task: TaskID) -> None:
        start, stack = time.monotonic(), job.stack
        self._bar.update(task, description=os.path.basename(stack.name))
        with replacing(job.path) as part, open_output(job, part, self._network) as output:
            for number in range(stack.count):
                image = job.first + number
                try:
                    self._compute(image, number, output, task)
                except DivergenceError as error:
                    raise DivergenceError(f"{self._images.name(image)}: {error}") from None
                except ArgumentError as error:
                    raise FileError(f"{self._images.name(image)}: {error}") from None
        self.written += 1
        if not self._console.is_terminal:
            seconds = time.monotonic() - start
            said = (f"{job.path}: {stack.count} x {stack.height} x {stack.width} pixels in {seconds:.1f} s, "
                    f"{_pixels(job) / max(seconds, 1e-9) / 1e6:.3g} million/s")
            self._console.print(said, highlight=False, style="dim")

    def _compute(self, image: int, number: int, output: OutputFile, task: TaskID) -> None:
        """One image of a file."""
        mean, std = self._scale.of(image)
        shape, dtype = self._images.shape(image), self._network.dtype

        def read(rows: slice, columns: slice) -> np.ndarray:
            return normalized(self._images.read(image, rows, columns), mean, std, dtype)

        pixels = shape[1] * shape[2] / len(self._network.plan(shape).tiles)
        for tile, part in self._network.parts(shape, read):
            output.write(number, tile.rows, tile.columns, restored(part, mean, std))
            self._bar.advance(task, pixels)


def _pixels(job: Job) -> int:
    return job.stack.count * job.stack.height * job.stack.width


def _folder(path: str) -> Path:
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"--output {path}: {error.strerror}, expected a folder") from None
    return folder


def _sizes(a: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `TiledNetwork`; at most one of the three options."""
    given = [f"--{name}" for name in ("tile", "memory", "whole") if getattr(a, name)]
    if len(given) > 1:
        raise ArgumentError(f"{' and '.join(given)}: given together, expected one of them")
    if a.tile:
        match = re.fullmatch(r"(\d+)[,x](\d+)", a.tile)
        if not match or min(map(int, match.groups())) < 1:
            raise ArgumentError(f"--tile {a.tile}: expected H,W of 1 or more")
        return {"tile": (int(match[1]), int(match[2]))}
    if a.memory:
        match = re.fullmatch(r"(\d+(?:\.\d+)?) *(|[kmg]b)", a.memory.lower())
        if not match or float(match[1]) * UNITS[match[2]] < 1:
            raise ArgumentError(f"--memory {a.memory}: expected bytes, as 500MB or 2GB")
        return {"memory": int(float(match[1]) * UNITS[match[2]])}
    return {"whole": a.whole}


def _digest(network: Network) -> str:
    """What tells a network from others: its layers and all their numbers."""
    found = hashlib.sha256(repr((network.dtype, network.model.graph.nodes)).encode())
    for views in (network.parameters, network.buffers):
        for name, array in views.items():
            found.update(name.encode())
            found.update(np.ascontiguousarray(to_host(array)).data)
    return f"sha256:{found.hexdigest()}"


if __name__ == "__main__":
    sys.exit(main())
