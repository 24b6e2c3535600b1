# SPDX-License-Identifier: MIT
"""Batches of the caller's own: arrays in memory, or npy files."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reference.errors import InputError
from reference.inputs import Inputs, whole_of
from reference.losses import LossText

#: An array of one batch, or several inputs by their names, several of them, a file, or a folder of files
Batch = np.ndarray | Mapping[str, np.ndarray]
Given = str | Path | Batch | Sequence[Batch]


class OwnSource:
    """Inputs and targets of each step as they were given.

    One batch is that of every step; of several each step has the next.

    Parameters
    ----------
    input, target : array, list of arrays, or path of an npy file or of a folder of them, in natural order
        A batch of any shape (n, ...). Several inputs are a mapping of arrays by their names, or an npz file.
    steps : int >= 1

    Attributes
    ----------
    shape : of an input
    inputs : names and shapes, where there are several, which lie in one array
    integers : one more than the largest of them, where inputs are integers from 0 on, as words are; else 0
    data, target : root attributes of the fixture

    Raises
    ------
    InputError
        If a file is no array of finite numbers, shapes differ, or there are too few batches.

    Examples
    --------
    >>> source = OwnSource(np.zeros((2, 3)), np.ones((2, 1)), steps=5)
    >>> source.shape, source.batch(4)[1].tolist()
    ((2, 3), [[1.0], [1.0]])
    """

    def __init__(self, input: Given, target: Given, steps: int) -> None:
        self._pairs = [_batches("input", input), _batches("target", target)]
        if several := next((name for name, one in self._pairs[1] if isinstance(one, Mapping)), None):
            raise InputError(f"{several}: arrays by names, expected one: a network has one target")
        self.inputs = _inputs(self._pairs[0][0][1])
        if self.inputs is not None:
            self._pairs[0] = [(name, _packed(name, self.inputs, one)) for name, one in self._pairs[0]]
        counts = [len(one) for one in self._pairs]
        for (name, count), other in zip((("input", counts[0]), ("target", counts[1])), reversed(counts), strict=True):
            if count != 1 and (count < steps or other not in (1, count)):
                raise InputError(f"{name}: {count} batches found, expected one, or one for each of {steps} steps")
        self.shape: tuple[int, ...] = self._pairs[0][0][1].shape
        for name, array in self._pairs[0]:
            if array.shape != self.shape:
                raise InputError(f"{name}: shape {array.shape}, expected {self.shape}, that of the first")
        words = [array for _, array in self._pairs[0] if array.dtype.kind in "iu" and array.min() >= 0]
        self.integers = int(max(one.max() for one in words)) + 1 if len(words) == counts[0] else 0
        self.data, self.target = (
            f"{kind} of the user's own" + (f", {found[0][0]}" if isinstance(given, str | Path) else "")
            for kind, given, found in zip(("input", "target"), (input, target), self._pairs, strict=True))

    def batch(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Input and target of step k, as they were given."""
        chosen = [found[k if len(found) > 1 else 0][1] for found in self._pairs]
        return chosen[0], chosen[1]

    def fitted(self, k: int, shape: tuple[int, ...], loss: LossText, dtype: torch.dtype) -> torch.Tensor:
        """Return the target of step k for an output of a shape.

        Of a cross entropy it may be the numbers of classes, whole numbers without the output's second dimension; they
        become probabilities 0 and 1.

        Raises
        ------
        InputError
            If it has another shape, or a class that there is none of.
        """
        name, array = self._pairs[1][k if len(self._pairs[1]) > 1 else 0]
        classes = (shape[0], *shape[2:])
        if loss.kind == "cross_entropy" and array.shape == classes and array.dtype.kind in "iu":
            if array.min() < 0 or array.max() >= shape[1]:
                raise InputError(f"{name}: classes {array.min()} to {array.max()}, expected 0 to {shape[1] - 1}")
            one_hot = torch.nn.functional.one_hot(torch.from_numpy(array.astype(np.int64)), shape[1])
            return one_hot.movedim(-1, 1).to(dtype).contiguous()
        if array.shape != shape:
            more = f", or whole numbers of classes {classes}" if loss.kind == "cross_entropy" else ""
            raise InputError(f"{name}: shape {array.shape}, expected that of the model's output, {shape}{more}")
        return rounded(name, array, dtype)


def rounded(name: str, array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """Return an array as a tensor of another precision.

    Raises
    ------
    InputError
        If it holds numbers that are too large for that.
    """
    found = torch.from_numpy(np.require(array, requirements=["C", "W"])).to(dtype)
    if not torch.isfinite(found).all():
        raise InputError(f"{name}: numbers up to {np.abs(array).max():.3g}, too large for {str(dtype).split('.')[1]}")
    return found


def count(given: Given) -> int:
    """Return how many batches there are."""
    return len(_batches("input", given))


def file_of(given: object) -> Path | None:
    """Return the file, or folder, that is meant; None for arrays."""
    return Path(given) if isinstance(given, str | Path) else None


def _batches(name: str, given: Any) -> list[tuple[str, Any]]:
    """Each with what it is called in a message."""
    if isinstance(given, str | Path):
        found = [(str(path), _read(path)) for path in _files(name, Path(given))]
    elif isinstance(given, np.ndarray | Mapping):
        found = [(name, given)]
    else:
        found = [(f"{name} {k}", one if isinstance(one, Mapping) else np.asarray(one)) for k, one in enumerate(given)]
    if not all(len(one) for _, one in found if isinstance(one, Mapping)):
        raise InputError(f"{name}: no array found, expected those of the inputs by their names")
    if not found:
        raise InputError(f"{name}: no batch found, expected one or more")
    for place, one in found:
        for part, array in one.items() if isinstance(one, Mapping) else ((place, one),):
            _check(part if part == place else f"{place}, {part}", array)
    return found


def _check(place: str, array: np.ndarray) -> None:
    """Real numbers of one batch or more."""
    if array.ndim < 1 or array.size == 0 or array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise InputError(f"{place}: {array.dtype} of shape {array.shape}, expected real numbers of shape (n, ...)")
    if not np.isfinite(array).all():
        raise InputError(f"{place}: holds NaN or infinity, expected finite numbers")


def _inputs(first: Any) -> Inputs | None:
    """Names and shapes of several."""
    if not isinstance(first, Mapping):
        return None
    return Inputs(tuple(first), tuple(tuple(one.shape[1:]) for one in first.values()), whole_of(first))


def _packed(name: str, inputs: Inputs, given: Any) -> np.ndarray:
    """Several inputs as one array."""
    if not isinstance(given, Mapping):
        raise InputError(f"{name}: one array, expected {', '.join(inputs.names)}, as in the first")
    try:
        found: np.ndarray = inputs.packed({part: np.asarray(one, np.float64) for part, one in given.items()})
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    return found


def _files(name: str, path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = [one for one in path.iterdir() if one.suffix in (".npy", ".npz") and not one.name.startswith(".")]
    if not found:
        raise InputError(f"{name}: {path} has no files that end in .npy or .npz, expected one for each step")
    return sorted(found, key=lambda one: [int(part) if part.isdigit() else part
                                          for part in re.split(r"([0-9]+)", one.name)])


def _read(path: Path) -> Batch:
    try:
        found = np.load(path, allow_pickle=False, mmap_mode="r")
        if isinstance(found, np.ndarray):
            return found
        with found:
            return {name: found[name] for name in found.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
        raise InputError(f"{path}: {reason or 'unreadable'}, expected an npy or npz file") from None
