# SPDX-License-Identifier: MIT
"""Which file becomes of each input, and what is there already: nothing is overwritten, and what is finished is skipped.

An output takes its name when it is complete (`bridge.common.atomic_file`). So a file of that name is one that an
earlier run has finished, if it has the images that would be written; and ``apply.json`` in the folder says what made
it, so that outputs of two networks do not come together.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bridge.apply.network import TiledNetwork
from bridge.apply.outputs import ImageOutput, output_of
from bridge.common.atomic_file import write_json
from bridge.common.command_files import check_files, image_file
from bridge.common.errors import ArgumentError, BridgeError, FileError
from bridge.data.images import BadFile, Images
from bridge.data.sources.formats import scan_file
from bridge.data.sources.stack import Stack

#: Says in a folder of outputs what made them
RECORD = "apply.json"


@dataclass(frozen=True)
class Job:
    """A file that is to be made.

    Attributes
    ----------
    stack : Stack
        Its source.
    first : number of the first image in `Images`
    path : of the output
    finished : an earlier run has made it
    """

    stack: Stack
    first: int
    path: Path
    finished: bool


def jobs(images: Images, network: TiledNetwork, folder: Path, reads: Sequence[tuple[str, str]], *,
         resume: bool) -> tuple[list[Job], list[BadFile]]:
    """Return what is to be done, after all checks that need no work, and the files that the network cannot take.

    Parameters
    ----------
    images : the inputs
    network : what they are given to
    folder : of the outputs
    reads : files that are read beside the inputs, and must not be written either; each with what it is
    resume : files that are there may be finished outputs

    Raises
    ------
    BridgeError
        If an output would replace an input or another output, or is there already.
    """
    sources = [image_file(stack.name) or "" for stack in images.stacks]
    paths = [folder / os.path.basename(source) for source in sources]
    check_files([*reads, *(("input", source) for source in sources)], [("output", path) for path in paths])
    found, bad, first = list[Job](), list[BadFile](), 0
    for stack, path in zip(images.stacks, paths, strict=True):
        try:
            plan = network.plan(stack.shape)
            if plan.output[0] > output_of(stack).most_channels:
                raise ArgumentError(f"{plan.output[0]} channels would come of its images, and MRC holds one: expected "
                                    "a network with one, or images in npy, TIFF or HDF5")
        except BridgeError as error:
            bad.append(BadFile(stack.name, f"{stack.name}: {error}"))
        else:
            found.append(Job(stack, first, path, _finished(stack, path, plan.output, network.dtype, resume=resume)))
        first += stack.count
    return found, bad


def open_output(job: Job, part: str, network: TiledNetwork) -> ImageOutput:
    """Return the file that a job writes, under the name of its part."""
    plan = network.plan(job.stack.shape)
    channels, height, width = plan.output
    return output_of(job.stack)(part, job.stack, (channels, height, width), network.dtype, plan.scales)


def _finished(stack: Stack, path: Path, shape: Sequence[int], dtype: np.dtype, *, resume: bool) -> bool:
    if not os.path.lexists(path):
        return False
    if not resume:
        raise ArgumentError(f"{path}: exists already, expected --resume, which skips what an earlier run has made, or "
                            "another folder")
    try:
        there = scan_file(str(path))
    except FileError as error:
        raise FileError(f"{error}; it is in the way, expected an output of an earlier run") from None
    wanted = stack.count, *shape
    if (there.count, *there.shape) != wanted or there.dtype.newbyteorder("=") not in (dtype, np.dtype(np.float32)):
        raise FileError(f"{path}: is in the way: {there.count} images {there.shape} of {there.dtype.name} found, "
                        f"expected an output of an earlier run, {stack.count} images {tuple(shape)}")
    return True


def check_record(folder: Path, made_by: Mapping[str, object]) -> None:
    """Write down what makes the outputs of a folder.

    Raises
    ------
    ArgumentError
        If something else has made those that are there.
    """
    path = folder / RECORD
    if not path.exists():
        write_json(path, dict(made_by))
        return
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: {error}, expected what an earlier run has written") from None
    for name in made_by:
        if not isinstance(before, dict) or before.get(name) != made_by[name]:
            there = before.get(name) if isinstance(before, dict) else before
            raise ArgumentError(f"{folder}: holds outputs of another {name}: {there!r:.80} found in {RECORD}, expected "
                                f"{made_by[name]!r:.80}, or another folder")
