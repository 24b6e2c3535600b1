# SPDX-License-Identifier: MIT
"""The same numbers for every framework, so that their results can be compared."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.harness.workloads import Conv, Net, OperationPass, Training

Array = np.ndarray
#: Of the steps; small, so that no framework diverges while it is timed
LR = 2.0**-10


def _normal(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    return generator.standard_normal(shape, dtype=np.dtype(dtype))


def weights(net: Net) -> list[tuple[Array, Array]]:
    """Filters (k, c, r, s) and biases (k,) of every layer, of torch's default size."""
    generator, found = np.random.default_rng(1), []
    for layer in net.layers:
        largest = 1 / math.sqrt(layer.c * layer.r * layer.s)
        filters, biases = (generator.uniform(-largest, largest, shape).astype(net.dtype)
                           for shape in (layer.weight, (layer.k,)))
        found.append((filters, biases))
    return found


def batch(net: Net) -> tuple[Array, Array]:
    """Images and targets, (n, c, h, w)."""
    generator = np.random.default_rng(2)
    return (_normal(generator, (net.batch, net.channels[0], net.size, net.size), net.dtype),
            _normal(generator, (net.batch, net.channels[-1], net.size, net.size), net.dtype))


def training_batch(training: Training) -> tuple[Array, Array]:
    """Images or words, and what the output should be: numbers, or one class for each image or place."""
    generator = np.random.default_rng(2)
    x = generator.integers(training.words, size=training.input) if training.words else \
        _normal(generator, training.input, training.dtype)
    if training.loss == "mse":
        return x, _normal(generator, training.output, training.dtype)
    number, classes, *places = training.output
    chosen = np.eye(classes, dtype=training.dtype)[generator.integers(classes, size=(number, *places))]
    return x, np.ascontiguousarray(np.moveaxis(chosen, -1, 1))


def operands(conv: Conv) -> tuple[Array, Array, Array]:
    """Input, filters, and the gradient of the output."""
    generator = np.random.default_rng(3)
    x, w, dy = (_normal(generator, shape, conv.dtype) for shape in (conv.input, conv.weight, conv.output))
    return x, w, dy


def pass_operands(work: OperationPass) -> dict[str, list[Array]]:
    """Inputs ``x``, the gradient of the output ``dy`` and a mask, parameters, all of size 1.

    A loss has its output and what that should be as ``x``; of a cross entropy these are probabilities, and of a binary
    one both lie between 0 and 1. Logarithms and roots are of positive numbers, and so are divisors; rows are chosen by
    whole numbers.
    """
    generator = np.random.default_rng(4)
    x, parameters = ([_normal(generator, shape, work.dtype) for shape in shapes]
                     for shapes in (work.inputs, work.parameters))
    if work.kind == "cross_entropy":
        x[1] = np.abs(x[1])
        x[1] /= x[1].sum(1, keepdims=True)
    if work.kind in ("log", "sqrt"):
        x[0] = np.abs(x[0]) + 0.25
    if work.kind == "gather_rows":
        x[1] = np.abs(x[1] * 1e6) // 1 % x[0].shape[1]
    if work.kind == "divide":
        # Among so many numbers one is 0
        x[1] = np.abs(x[1]) + 0.25
    if work.kind == "bce":
        x = [1 / (1 + np.exp(-one)) for one in x]
    if work.kind == "bce_with_logits":
        x[1] = 1 / (1 + np.exp(-x[1]))
    dy, mask = (_normal(generator, work.output, work.dtype) for _ in range(2))
    return {"x": x, "dy": [dy], "mask": [(mask > 0).astype(work.dtype)], "parameters": parameters}
