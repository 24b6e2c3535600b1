# SPDX-License-Identifier: MIT
"""Convolutions and data gradients that fail, computed by themselves: what an algorithm is looked for in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from bridge.exchange.model import Conv2d
from bridge.judge.arithmetic.own_inputs import sent_by_others
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.measure.file_pair import FilePair, Parameters
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.per_step import SUMS
from bridge.judge.oracle.algorithm import transposed, turned_kernels
from bridge.operations.graph import INPUT

Array = np.ndarray

#: Elements of an operand and of a result that are looked at
LOOKED_AT = 1 << 20
#: Multiples of pixels at which a part of a large image may begin
ALIGNED = 24


@dataclass(frozen=True)
class Sample:
    """A convolution of the candidate's own inputs, of the worst image or a part of it; a data gradient is one too.

    Attributes
    ----------
    name, step : the tensor that it makes
    layer : its geometry; of a data gradient that of dz's convolution
    kernel : the layer of the model
    x, w, b : operands in the candidate's precision, (c, h, w), (k, c / groups, r, s), (k, 1, 1)
    found : what is looked at of the candidate's tensor, (k, p, q)
    inside, result : rows and columns of the operands' result that it is, and of the tensor
    image : the one of the batch that x is
    spare : bound of what was taken off what the file holds, since others made it, (k, p, q) or 0
    images : reads the same part of all images, (n, c, h, w), which some algorithms compute together
    """

    name: str
    step: int
    layer: Conv2d
    kernel: Conv2d
    x: Array
    w: Array
    b: Array
    found: Array
    inside: tuple[slice, slice]
    result: tuple[slice, slice]
    image: int
    images: Callable[[], Array]
    spare: Array | float = 0.0

    def cut(self, a: Array) -> Array:
        """Return the part of a result (..., p, q) that is looked at."""
        return a[..., self.inside[0], self.inside[1]]


def samples(pair: FilePair, comparison: Comparison) -> Iterator[Sample]:
    """Convolutions and data gradients that fail, and whose inputs are known, step by step."""
    for step in sorted({judged.step for judged in comparison.failures}):
        weights = pair.start if step == 0 else pair.parameters(pair.candidate, step)
        # Where only sums of a gradient are wrong there is no element to look at
        failed = {judged.name: judged.statistic.at for judged in comparison.failures
                  if judged.step == step and judged.note != SUMS}
        if weights is not None:
            own = {name: w.astype(pair.dtype) for name, w in weights.items()}
            yield from _forward(pair, step, own, failed)
            yield from _data(pair, step, own, failed)


def _forward(pair: FilePair, step: int, weights: Parameters, failed: dict[str, tuple[int, ...]]) -> Iterator[Sample]:
    for layer in pair.model.graph.nodes:
        name = f"forward/{layer.name}"
        source = None if layer.inputs[0] == INPUT else f"forward/{layer.inputs[0]}"
        if isinstance(layer, Conv2d) and name in failed and _has(pair, step, source):
            at = failed[name]
            images = partial(_operand, pair, step, source)
            bias = weights[f"{layer.name}/bias"] if layer.bias else np.zeros(layer.out_channels, pair.dtype)
            yield _sample(pair, (step, name, at), (layer, layer), images, (weights[f"{layer.name}/weight"], bias))


def _data(pair: FilePair, step: int, weights: Parameters, failed: dict[str, tuple[int, ...]]) -> Iterator[Sample]:
    nodes = pair.model.graph.nodes
    for layer in reversed(nodes):
        earlier = layer.inputs[0]
        source, name = f"grads/{layer.name}/output", "grads/input" if earlier == INPUT else f"grads/{earlier}/output"
        turned = transposed(layer) if isinstance(layer, Conv2d) else None
        if turned is not None and isinstance(layer, Conv2d) and name in failed and _has(pair, step, source):
            others = sent_by_others(pair, step, name, layer)
            if others is None:
                continue
            at = failed[name]
            images = partial(_operand, pair, step, source)
            w = turned_kernels(weights[f"{layer.name}/weight"], layer.groups)
            bias = np.zeros(turned.out_channels, pair.dtype)
            sample = _sample(pair, (step, name, at), (turned, layer), images, (w, bias))
            yield sample if isinstance(others, float) else _without(sample, others, at)


def _without(sample: Sample, others: Predicted, at: tuple[int, ...]) -> Sample:
    """The sample without what others made of it."""
    assert others.error is not None
    value, error = (one[(at[0], slice(None), *sample.result)] for one in (others.value, others.error))
    return replace(sample, found=sample.found - value, spare=error)


def _has(pair: FilePair, step: int, source: str | None) -> bool:
    return source is None or pair.candidate.has(f"steps/{step}/{source}")


def _operand(pair: FilePair, step: int, source: str | None, image: int) -> Array:
    """An image of what a convolution takes, of the network's input where `source` is None."""
    if source is None:
        return pair.batch(step, "input", image).astype(pair.dtype)
    return pair.candidate.read(f"steps/{step}/{source}", pair.shapes[source], image).astype(pair.dtype)


def _sample(
    pair: FilePair,
    tensor: tuple[int, str, tuple[int, ...]],
    layers: tuple[Conv2d, Conv2d],
    images: Callable[[int], Array],
    parameters: tuple[Array, Array],
) -> Sample:
    """As much of the image around the worst element as is looked at."""
    (step, name, at), layer, (w, bias) = tensor, layers[0], parameters
    x = images(at[0])
    found = pair.candidate.read(f"steps/{step}/{name}", pair.shapes[name], at[0])
    side = int(math.sqrt(LOOKED_AT / max(len(x), len(found))))
    rows, columns = (_window(layer, axis, at[2 + axis], (x.shape[1 + axis], found.shape[1 + axis]), side)
                     for axis in (0, 1))
    part = (slice(None), rows.operand, columns.operand)
    return Sample(name, step, *layers, x[part], w, bias[:, None, None], found[:, rows.result, columns.result],
                  (rows.inside, columns.inside), (rows.result, columns.result), at[0],
                  lambda: np.stack([images(image)[part] for image in range(pair.batch_shape[0])]))


class Window(NamedTuple):
    """A stretch of an axis: of the operand, of the tensor that is made of it, and of what that stretch alone makes."""

    operand: slice
    result: slice
    inside: slice


def _window(layer: Conv2d, axis: int, at: int, sizes: tuple[int, int], side: int) -> Window:
    """The stretch around an element of the result; where it begins, tiles of 2, 4, 6 and 8 do."""
    (n, p), pad = sizes, max(0, layer.padding[axis])
    # Of strides only the beginning is looked at
    first = max(0, at - side // 2) // ALIGNED * ALIGNED if layer.stride[axis] == 1 and n > side else 0
    last = min(n, first + side)
    reach = layer.dilation[axis] * (layer.kernel_size[axis] - 1) + 1
    made = (last - first + 2 * layer.padding[axis] - reach) // layer.stride[axis] + 1
    # What lies at a cut sees zeros where the image goes on
    start, stop = pad if first > 0 else 0, made if last == n else made - pad
    return Window(slice(first, last), slice(first + start, min(p, first + stop)), slice(start, stop))
