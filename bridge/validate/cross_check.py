# SPDX-License-Identifier: MIT
"""The steps of a result once more, through the Python face: every tensor must come out the same, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bridge.common.parallel import blocks, in_order, runs
from bridge.common.progress import Report
from bridge.engine.arrays.transfer import to_device, to_host
from bridge.engine.network.network import Network
from bridge.exchange.file import ExchangeFile
from bridge.exchange.model import Conv2d
from bridge.exchange.optimizers import Sgd
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
        for name, found in _step(network, pair.reference, k):
            compared, array = compared + 1, to_host(found)
            if not _same_bits(array, pair.candidate.read(f"steps/{k}/{name}", array.shape)):
                differing.append(NotJudged(name, k, "differs between cnn_step and the extension"))
        if progress:
            progress(k + 1, pair.steps)
    for name, found in _weights(network):
        compared, array = compared + 1, to_host(found)
        if not _same_bits(array, pair.candidate.read(f"steps/{pair.steps}/{name}", array.shape)):
            differing.append(NotJudged(name, pair.steps, "differs between cnn_step and the extension"))
    return compared, differing


def is_possible(pair: FilePair) -> bool:
    """Return whether the extension has what the fixture asks for: a chain, trained by SGD with one learning rate."""
    rates = {pair.optimizer_at(k).lr for k in range(pair.steps)}
    return pair.model.is_chain and isinstance(pair.optimizer, Sgd) and len(rates) == 1


def _network(pair: FilePair, device: str) -> Network:
    """The fixture's model with its first weights, in the result's precision."""
    network = Network(pair.model, pair.candidate.precision, device)
    for name, w in pair.start.items():
        network.parameters[name.replace("/", ".")][...] = to_device(w, device)
    network.frozen = [name.replace("/", ".") for name in pair.frozen]
    return network


def _step(network: Network, source: ExchangeFile, k: int) -> Iterator[tuple[str, Any]]:
    """Every tensor of step k by its name in the file, one after the other, where the network has it."""
    assert isinstance(source.optimizer, Sgd)
    batch = (
        source.read(f"batches/{k}/{name}", source.shape(f"batches/{k}/{name}")).astype(network.dtype)
        for name in ("input", "target")
    )
    x, target = (to_device(array, network.device) for array in batch)
    yield from _weights(network)
    network.forward(x)
    for layer in network.model.layers:
        yield f"forward/{layer.name}", network.output(layer.name)
    yield "loss", np.asarray(network.loss(target))
    yield "grads/input", network.backward()
    for layer in network.model.layers:
        yield f"grads/{layer.name}/output", network.output_gradient(layer.name)
        if isinstance(layer, Conv2d):
            yield f"grads/{layer.name}/weight", network.gradients[f"{layer.name}.weight"]
            if layer.bias:
                yield f"grads/{layer.name}/bias", network.gradients[f"{layer.name}.bias"]
    network.update(**vars(source.optimizer))


def _weights(network: Network) -> Iterator[tuple[str, Any]]:
    for name, array in network.parameters.items():
        layer, _, kind = name.rpartition(".")
        yield f"weights/{layer}/{kind}", array


def _same_bits(a: Array, b: Array) -> bool:
    """Equal bit patterns, so that -0 differs from 0 and NaN equals itself."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    kind = np.uint32 if a.dtype.itemsize == 4 else np.uint64
    ours, theirs = (np.ascontiguousarray(array).reshape(-1).view(kind) for array in (a, b))
    return all(in_order(lambda run: all(_equal(ours[part], theirs[part]) for part in blocks(run)), runs(a.size)))


def _equal(a: Array, b: Array) -> bool:
    return bool(np.array_equal(a, b))
