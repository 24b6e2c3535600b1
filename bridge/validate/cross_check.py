# SPDX-License-Identifier: MIT
"""The steps of a result once more, through the Python face: every tensor must come out the same, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bridge.common.progress import Report
from bridge.engine.arrays.transfer import to_device, to_host
from bridge.engine.network.network import Network
from bridge.engine.network.recorded_step import recorded_step
from bridge.exchange.file import ExchangeFile
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import NotJudged

Array = np.ndarray


def differences(pair: FilePair, device: str = "cpu", progress: Report | None = None) -> tuple[int, list[NotJudged]]:
    """Repeat ``cnn_step FIXTURE RESULT`` in this process and compare with what the program wrote.

    Returns
    -------
    compared : number of tensors
    differing : those that are not equal to the bit
    """
    compared, differing = 0, []
    network = _network(pair, device)
    for k in range(pair.steps):
        for name, found in _step(network, pair, k):
            compared, array = compared + 1, to_host(found)
            if not pair.candidate.same_bits(f"steps/{k}/{name}", array):
                differing.append(NotJudged(name, k, "differs between cnn_step and the extension"))
        if progress:
            progress(k + 1, pair.steps)
    for name, found in _weights(network):
        compared, array = compared + 1, to_host(found)
        if not pair.candidate.same_bits(f"steps/{pair.steps}/{name}", array):
            differing.append(NotJudged(name, pair.steps, "differs between cnn_step and the extension"))
    return compared, differing


def _network(pair: FilePair, device: str) -> Network:
    """The fixture's model with its first weights, in the result's precision."""
    network = Network(pair.model, pair.candidate.precision, device)
    for name, w in pair.start.items():
        network.parameters[name.replace("/", ".")][...] = to_device(w, device)
    for name, array in network.buffers.items():
        layer, _, kind = name.rpartition(".")
        found = pair.reference.read(f"state/{layer}/{kind}", array.shape)
        array[...] = to_device(found.astype(network.dtype), device)
    network.frozen = [name.replace("/", ".") for name in pair.frozen]
    return network


def _step(network: Network, pair: FilePair, k: int) -> Iterator[tuple[str, Any]]:
    """Every tensor of step k by its name in the file, one after the other, where the network has it."""
    source, optimizer = pair.reference, pair.optimizer_at(k)
    x, target = (_read(source, f"batches/{k}/{name}", network.dtype) for name in ("input", "target"))
    network.masks.give({name: _read(source, f"steps/{k}/masks/{name}", network.dtype)
                        for name in network.model.graph.masked()})
    yield from _weights(network)
    yield from recorded_step(network, x, target)
    network.update(optimizer)


def _read(source: ExchangeFile, name: str, dtype: str) -> Array:
    return source.read(name, source.shape(name)).astype(dtype)


def _weights(network: Network) -> Iterator[tuple[str, Any]]:
    for name, array in network.parameters.items():
        layer, _, kind = name.rpartition(".")
        yield f"weights/{layer}/{kind}", array
