# SPDX-License-Identifier: MIT
"""A trained network, and how its training normalised what it was given."""

from __future__ import annotations

import json
from typing import Any

import h5py

from bridge.apply.normalization import EXPECTED, of_text
from bridge.common.errors import ArgumentError, FileError
from bridge.data.normalization import Normalization
from bridge.engine.arrays.transfer import to_device
from bridge.engine.network.network import Network
from bridge.exchange.file import ExchangeFile
from bridge.exchange.file_locks import lock_hint
from bridge.exchange.hdf5_values import HDF5_ERRORS, one_line
from bridge.train import checkpoints


def load(path: str, device: str, *, average: bool, normalization: str | None) -> tuple[Network, Normalization]:
    """Return the network of a checkpoint, or of any exchange file with a model, and the normalisation of its inputs.

    Parameters
    ----------
    path : exchange file
    device : as of `Network`
    average : take the averaged weights of a checkpoint
    normalization : text of the option; None: what the checkpoint says

    Raises
    ------
    FileError
        If it cannot be read.
    ArgumentError
        If there are no averaged weights, or nothing says how inputs are normalised.
    """
    if not _has_training(path):
        if average:
            raise ArgumentError(f"--average: {path} has no averaged weights, expected a checkpoint of bridge.train")
        with ExchangeFile(path):
            pass  # it is one, so that the option is all that is missing
        if normalization is None:
            raise ArgumentError(f"{path}: is no checkpoint of bridge.train and does not say how inputs are normalised, "
                                f"expected --normalization, {EXPECTED}")
        return Network.from_file(path, device=device, keep_activations=False), of_text(normalization)
    network, progress = checkpoints.load(path, device, keep_activations=False)
    if average:
        if not progress.average:
            raise ArgumentError(f"--average: {path} has no averaged weights, expected those of a training with average")
        for name, weight in progress.average.items():
            network.parameters[name][...] = to_device(weight.astype(network.dtype), network.device)
    if normalization is not None:
        return network, of_text(normalization)
    return network, _recorded(path, progress.used.data)


def _has_training(path: str) -> bool:
    """Whether it is a checkpoint.

    Raises
    ------
    FileError
        If the file system has no locks. What else is no HDF5 file is refused by who reads it.
    """
    try:
        with h5py.File(path) as file:
            return checkpoints.GROUP in file
    except HDF5_ERRORS as error:
        if hint := lock_hint(path):
            raise FileError(f"{path}: {one_line(error)}{hint}") from None
        return False


def _recorded(path: str, text: str) -> Normalization:
    """The normalisation that a checkpoint's data had, from their JSON."""
    try:
        data: Any = json.loads(text)
    except ValueError:
        raise FileError(f"{path}: /training: data {text!r:.60}, expected JSON") from None
    if not isinstance(data, dict) or "inputs" not in data:
        raise ArgumentError(f"{path}: does not say how the inputs of its training were normalised, expected "
                            f"--normalization, {EXPECTED}")
    found = data.get("normalization")
    if found is None:
        return None
    return of_text(found if isinstance(found, str) else ",".join(map(repr, found)))
