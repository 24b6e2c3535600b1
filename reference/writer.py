# SPDX-License-Identifier: MIT
"""The exchange file, written with plain h5py: whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import h5py
import numpy as np
import torch

from reference.chain import Layers, model_json
from reference.errors import InputError, one_line
from reference.settings import ExportSettings
from reference.training import parameters

FORMAT = "cnn-exchange"
FORMAT_VERSION = 1
# Bytes of a tensor that is checked while it is written, and of what is written at a time.
LARGE, PIECE = 1 << 24, 1 << 24
# Arithmetic of the products. On the CPU that is the precision itself; export() sees to it.
MATH_MODES = {"float32": "fp32", "float64": "fp64"}


@contextlib.contextmanager
def new_file(path: str | Path, expected_bytes: int = 0) -> Iterator[h5py.File]:
    """HDF5 file that takes its name only when it is complete and on the disk.

    Until then it is ``.NAME.PID.part`` in the same folder; on any failure, also Ctrl-C, that is removed, and
    a file that was there before stays.

    Parameters
    ----------
    path : path
        An existing file is replaced.
    expected_bytes : int
        Refused at once where the disk has less room than this.

    Raises
    ------
    InputError
        If the folder is missing or not writable, the path is no regular file, or the disk is full.
    """
    goal = Path(os.path.realpath(path))
    _check_place(goal, expected_bytes)
    part = goal.with_name(f".{goal.name}.{os.getpid()}.part")
    try:
        with _disk_errors(goal):
            # The oldest format: HDF5 1.10 and before must read it.
            file = h5py.File(part, "w", libver=("earliest", "v110"))
            try:
                yield file
            except BaseException:
                # On a full disk closing fails too, and its complaint would hide the first one.
                with contextlib.suppress(Exception):
                    file.close()
                raise
            _close(file)
            _to_disk(part)
            os.replace(part, goal)
            _to_disk(goal.parent)
    finally:
        part.unlink(missing_ok=True)


def write_header(file: h5py.File, settings: ExportSettings, layers: Layers, data: str, target: str) -> None:
    """Root attributes, ``/model`` and ``/optimizer``."""
    file.attrs.update(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "producer": _producer(),
            "role": "reference",
            "precision": settings.precision,
            "math_mode": MATH_MODES[settings.precision],
            "device": "cpu",
            "torch_version": str(torch.__version__),
            "numpy_version": np.__version__,
            "h5py_version": h5py.__version__,
            "seed": settings.seed,
            "threads": torch.get_num_threads(),
            "data": data,
            "target": target,
        }
    )
    file["model"] = model_json(layers, settings.reduction)
    optimizer = file.create_group("optimizer").attrs
    optimizer["type"] = "sgd"
    for name in ("lr", "momentum", "dampening", "weight_decay"):
        optimizer[name] = np.float64(getattr(settings, name))
    optimizer["nesterov"] = int(settings.nesterov)


def mark_probe(file: h5py.File, operand_bits: int) -> None:
    """Root attributes of an exact probe: nothing in it is rounded, its operands have so many bits at most."""
    file.attrs.update({"probe": 1, "probe_operand_bits": operand_bits})


def write_weights(file: h5py.File, step: int, layers: Layers) -> None:
    """``/steps/<step>/weights``: those before that step."""
    for name, part, parameter in parameters(layers):
        write_tensor(file, f"steps/{step}/weights/{name}/{part}", parameter)


def write_tensor(file: h5py.File, name: str, tensor: torch.Tensor) -> None:
    """One dataset, contiguous, in the tensor's own precision and C order.

    Raises
    ------
    InputError
        If a value is not finite.
    """
    tensor = tensor.detach().contiguous()
    if tensor.nbytes < LARGE:
        check_finite(name, tensor)
        file.create_dataset(name, data=tensor.numpy())
    elif not _write_large(file, name, tensor.numpy()):
        check_finite(name, tensor)


def check_finite(name: str, tensor: torch.Tensor) -> None:
    """Refuse a tensor with NaN or infinity.

    Raises
    ------
    InputError
    """
    tensor = tensor.detach()
    # The sum is finite only if all values are, and cheap; it may overflow by itself, so ask again.
    if not bool(torch.isfinite(tensor.sum())) and not bool(torch.isfinite(tensor).all()):
        raise InputError(f"/{name} has values that are not finite: the training diverges (a smaller --lr?)")


def _write_large(file: h5py.File, name: str, values: np.ndarray) -> bool:
    """The dataset that `create_dataset` makes; False where its values may not be finite.

    Their sum, which is finite only if they all are, is formed by another thread while this one hands the bytes over.
    """
    created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    created.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    created.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    kind, space = h5py.h5t.py_create(values.dtype, logical=True), h5py.h5s.create_simple(values.shape)
    dataset = h5py.h5d.create(file.id, name.encode(), kind, space, created, links)
    start, handle, data = dataset.get_offset(), file.id.get_vfd_handle(), memoryview(values).cast("B")
    with ThreadPoolExecutor(1) as pool:
        finite = pool.submit(_finite_sum, values.reshape(-1))
        written = 0
        while written < len(data):
            written += os.pwrite(handle, data[written : written + PIECE], start + written)
        return finite.result()


def _finite_sum(values: np.ndarray) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()))


def link_twin(file: h5py.File, step: int) -> None:
    """In a float64 fixture a step is its own float64 twin: hard links, no second copy."""
    for part in ("forward", "loss", "grads"):
        file[f"oracle/steps/{step}/{part}"] = file[f"steps/{step}/{part}"]


def _producer() -> str:
    try:
        return f"reference.export {metadata.version('fortran-torch-bridge')}"
    except metadata.PackageNotFoundError:
        return "reference.export (source tree, not installed)"


def _check_place(goal: Path, expected_bytes: int) -> None:
    if not goal.parent.is_dir():
        raise InputError(f"cannot write {goal}: the folder {goal.parent} does not exist")
    if goal.exists() and not goal.is_file():
        raise InputError(f"cannot write {goal}: it is there and is not a regular file")
    if not os.access(goal.parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {goal}: no permission to write into {goal.parent}")
    free = shutil.disk_usage(goal.parent).free
    if free < expected_bytes:
        raise InputError(
            f"cannot write {goal}: {expected_bytes / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free "
            "(--size, --batch, --steps and --oracle-steps make it smaller)"
        )


@contextlib.contextmanager
def _disk_errors(goal: Path) -> Iterator[None]:
    """What the disk refuses, as one sentence."""
    try:
        yield
    except OSError as error:
        # The number says "no space left on device"; HDF5's own text is addresses and offsets.
        reason = os.strerror(error.errno) if error.errno else one_line(error)
        raise InputError(f"cannot write {goal}: {reason}") from error


def _close(file: h5py.File) -> None:
    try:
        file.close()
    except RuntimeError as error:  # what h5py raises where the last write, at closing, fails
        raise OSError(one_line(error)) from error


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
