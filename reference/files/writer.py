# SPDX-License-Identifier: MIT
"""The exchange file, written with plain h5py: whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import torch

from reference.errors import InputError, one_line
from reference.files.disk import check_place, disk_errors
from reference.files.part_file import PartFile
from reference.losses import LossText
from reference.network.hyperparameters import hyperparameters
from reference.network.layers import Layers
from reference.settings import ExportSettings
from reference.training import parameters, state
from reference.version import version

FORMAT = "cnn-exchange"
FORMAT_VERSION = 2
# Bytes of a tensor that is written behind the computation, and of what is checked and written at a time.
LARGE, PIECE = 1 << 24, 1 << 20
# Arithmetic of the products. On the CPU that is the precision itself; export() sees to it.
MATH_MODES = {"float32": "fp32", "float64": "fp64"}


class NewFile(h5py.File):  # type: ignore[misc]  # h5py has no types
    """A file that is being written, with at most one large tensor on its way into it, by a thread of its own.

    The kernel takes as long to find room for a tensor as torch to compute the next one. It lets one thread at a time
    into a file, and those that wait keep a core busy.
    """

    def __init__(self, path: Path) -> None:
        # The oldest format: HDF5 1.10 and before must read it.
        super().__init__(path, "x", libver=("earliest", "v110"))
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="reference-writer")
        self._on_its_way: tuple[str, torch.Tensor, Future[bool]] | None = None

    def write_behind(self, name: str, tensor: torch.Tensor) -> None:
        """Begin to write a contiguous tensor, which nobody may change before the next call or `settle`."""
        self.settle()
        handle, start = _created(self, name, tensor.numpy())
        self._on_its_way = name, tensor, self._writer.submit(_write_large, handle, start, tensor.numpy().reshape(-1))

    def settle(self) -> None:
        """Wait until everything is written.

        Raises
        ------
        InputError
            If a value was not finite.
        """
        waiting, self._on_its_way = self._on_its_way, None
        if waiting is None:
            return
        name, tensor, finite = waiting
        if not finite.result():
            check_finite(name, tensor)

    def close(self) -> None:
        """Also where something went wrong: the thread is not in the middle of a tensor then."""
        self._writer.shutdown()
        super().close()


@contextlib.contextmanager
def new_file(path: str | Path, expected_bytes: int = 0) -> Iterator[NewFile]:
    """HDF5 file that takes its name only when it is complete and on the disk.

    Until then it is ``.NAME.PID.part`` in the same folder; on any failure, also Ctrl-C, that is removed, and
    a file that was there before stays. Of a symbolic link the file that it leads to is replaced.

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
    goal = check_place(path, expected_bytes)
    with disk_errors(goal), PartFile(goal) as part:
        file = NewFile(part.path)
        try:
            part.hold()
            yield file
            file.settle()
        except BaseException:
            # On a full disk closing fails too, and its complaint would hide the first one.
            with contextlib.suppress(Exception):
                file.close()
            raise
        _close(file)
        part.put_in_place()


def write_header(file: h5py.File, settings: ExportSettings, layers: Layers, data: str, target: str) -> None:
    """Root attributes, ``/model`` and ``/optimizer``."""
    file.attrs.update(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "producer": f"reference.export {version()}",
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
    _write_model(file.create_group("model"), layers, settings)
    optimizer = file.create_group("optimizer").attrs
    optimizer["type"] = settings.optimizer
    optimizer["lr"], optimizer["weight_decay"] = np.float64(settings.lr), np.float64(settings.weight_decay)
    if settings.optimizer == "sgd":
        optimizer["momentum"], optimizer["dampening"] = np.float64(settings.momentum), np.float64(settings.dampening)
        optimizer["nesterov"] = int(settings.nesterov)
    else:
        optimizer["beta1"], optimizer["beta2"] = (np.float64(beta) for beta in settings.betas)
        optimizer["eps"] = np.float64(settings.eps)
    if settings.schedule:
        optimizer["schedule"] = settings.schedule


def _write_model(group: h5py.Group, layers: Layers, settings: ExportSettings) -> None:
    """``/model``: a group for each layer, with its type, inputs and hyperparameters as attributes."""
    for index, (name, layer) in enumerate(layers):
        kind, found = hyperparameters(name, layer)
        attributes = group.create_group(f"layers/{name}").attrs
        attributes["index"] = index
        attributes["type"] = kind
        attributes["inputs"] = ",".join(layers.inputs[name])
        for key, value in found.items():
            attributes[key] = value
    loss, said = group.create_group("loss").attrs, LossText.read(settings.loss)
    loss["type"], loss["reduction"] = said.kind, settings.reduction
    for key, value in said.given.items():
        loss[key] = value


def mark_probe(file: h5py.File, operand_bits: int) -> None:
    """Root attributes of an exact probe: nothing in it is rounded, its operands have so many bits at most."""
    file.attrs.update({"probe": 1, "probe_operand_bits": operand_bits})


def write_state(file: h5py.File, layers: Layers) -> None:
    """``/state``: what layers keep and do not learn, before the first step."""
    for name, part, buffer in state(layers):
        if buffer.is_floating_point() and bool(buffer.isfinite().all()):
            write_tensor(file, f"state/{name}/{part}", buffer.clone())
        else:
            # Integers of calls of ATen, and masks, which may be infinite
            file.create_dataset(f"state/{name}/{part}", data=buffer.double().numpy())


def write_weights(file: h5py.File, step: int, layers: Layers) -> None:
    """``/steps/<step>/weights``: those before that step, and which of them are frozen."""
    for name, part, parameter in parameters(layers):
        write_tensor(file, f"steps/{step}/weights/{name}/{part}", parameter)
        if not parameter.requires_grad:
            file[f"steps/{step}/weights/{name}/{part}"].attrs["frozen"] = 1


def write_tensor(file: h5py.File, name: str, tensor: torch.Tensor) -> None:
    """One dataset, contiguous, in the tensor's own precision and C order; a large one behind, see `NewFile`.

    Raises
    ------
    InputError
        If a value is not finite, of this tensor or of a large one before it.
    """
    tensor = tensor.detach().contiguous()
    if tensor.nbytes >= LARGE and isinstance(file, NewFile):
        file.write_behind(name, tensor)
        return
    try:
        check_finite(name, tensor)
    except InputError:
        # What was wrong before it is the one to name
        if isinstance(file, NewFile):
            file.settle()
        raise
    file.create_dataset(name, data=tensor.numpy())


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


def _created(file: h5py.File, name: str, values: np.ndarray) -> tuple[int, int]:
    """The dataset that `create_dataset` makes, but for its values: where they are to be written."""
    created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    created.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    created.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    kind, space = h5py.h5t.py_create(values.dtype, logical=True), h5py.h5s.create_simple(values.shape)
    dataset = h5py.h5d.create(file.id, name.encode(), kind, space, created, links)
    return file.id.get_vfd_handle(), dataset.get_offset()


def _write_large(handle: int, start: int, values: np.ndarray) -> bool:
    """Write a vector; False where they may not be finite: the sums of all pieces are finite only if they all are."""
    finite = True
    step = max(1, PIECE // values.itemsize)
    for first in range(0, values.size, step):
        piece = values[first : first + step]
        with np.errstate(over="ignore", invalid="ignore"):
            finite = finite and bool(np.isfinite(piece.sum()))
        data, written = piece.view(np.uint8).data, 0
        while written < len(data):
            written += os.pwrite(handle, data[written:], start + first * values.itemsize + written)
    return finite


def link_twin(file: h5py.File, step: int) -> None:
    """In a float64 fixture a step is its own float64 twin: hard links, no second copy."""
    for part in ("forward", "loss", "grads"):
        file[f"oracle/steps/{step}/{part}"] = file[f"steps/{step}/{part}"]


def _close(file: h5py.File) -> None:
    try:
        file.close()
    except RuntimeError as error:  # what h5py raises where the last write, at closing, fails
        raise OSError(one_line(error)) from error
