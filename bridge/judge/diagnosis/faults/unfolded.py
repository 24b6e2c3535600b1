# SPDX-License-Identifier: MIT
"""Convolutions in 16 bits from unfolded images, as PyTorch's CPU computes them where oneDNN has no bfloat16 or float16.

Output and bias are rounded once, as elsewhere. Two passes have partial sums that are stored. A data gradient is made
as columns, the sums over the filters for each tap; they are rounded and added up in the image, tap by tap, and each of
these sums is rounded (``col2im``: the taps in their order, of channels_last tensors in the reverse order). The output
of a transposed convolution is such a gradient. A gradient of the filters is added up image by image, and rounded after
each; so is that of a bias, where the convolution is dilated.

Source: PyTorch 2.13, aten/src/ATen/native: ConvolutionMM2d.cpp, NaiveDilatedConvolution.cpp,
NaiveConvolutionTranspose2d.cpp, im2col.h; the tests compare with what they give.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bridge.judge.diagnosis.predictions.convolutions import Data, Filter
from bridge.judge.diagnosis.predictions.elementwise import BiasGradient
from bridge.judge.diagnosis.predictions.formulas import Formula, Joined
from bridge.judge.diagnosis.predictions.operations import Given, Predicted, Prediction
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.reduced_precision import ReducedPrecision
from bridge.operations.products import ConvTranspose2d

Array = np.ndarray


@dataclass(frozen=True)
class Stepwise(Prediction):
    """Parts that are added in their order, each sum rounded to 16 bits.

    Attributes
    ----------
    parts : in float32
    half : the type
    rounded : the parts are rounded, too, before they are added
    """

    parts: tuple[Prediction, ...]
    half: ReducedPrecision
    rounded: bool

    def at(self, indices: Array) -> Array:
        total = np.zeros(indices.size)
        for part in self.parts:
            total = self._sum(total, part.at(indices))
        return total

    def full(self, arithmetic: Arithmetic) -> Predicted:
        """Rounding is monotone: what may come out lies between the sums of the lowest and of the highest parts."""
        low = high = np.zeros(self.shape)
        for part in self.parts:
            found = part.full(arithmetic)
            error = np.zeros(1) if found.error is None else found.error
            low, high = self._sum(low, found.value - error), self._sum(high, found.value + error)
        return Predicted((low + high) / 2, (high - low) / 2)

    def slack(self, value: Array) -> Array | float:
        return len(self.parts) * self.half.step(value)

    def _sum(self, total: Array, part: Array) -> Array:
        return self.half.widened(total + (self.half.widened(part) if self.rounded else part))


def unfolded(operation: Prediction, half: ReducedPrecision) -> Iterator[tuple[str, Prediction]]:
    """Yield what a convolution's pass that has stored partial sums may give, and in words which these are.

    Parameters
    ----------
    operation : with operands as they are multiplied, and a result that is not stored
    half : the type, of `bridge.judge.oracle.reduced_precision.HALF`

    Examples
    --------
    >>> from bridge.exchange.model import Conv2d
    >>> from bridge.judge.oracle.reduced_precision import HALF
    >>> dz, w = Predicted(np.ones((1, 1, 1, 2))), np.full((1, 1, 1, 2), 1 + 2.0**-7)
    >>> data = Data((1, 1, 1, 3), Conv2d("", 1, 1, (1, 2)), dz, w)
    >>> [(words, one.values().ravel().tolist()) for words, one in unfolded(data, HALF["bf16 stored"])][0]
    ('the sum of each tap', [1.0078125, 2.015625, 1.0078125])
    """
    if isinstance(operation, Joined):
        ways = [list(unfolded(part, half)) for part in operation.parts]
        for i in range(max(map(len, ways))):
            parts = tuple(way[min(i, len(way) - 1)][1] if way else part
                          for way, part in zip(ways, operation.parts, strict=True))
            yield next(way[0][0] for way in ways if way), operation.replaced(parts=parts)
        return
    taps, bias = _taps(operation)
    for order in (taps, taps[::-1]) if taps else ():
        yield "the sum of each tap", Stepwise(operation.shape, order + bias, half, rounded=True)
    images = _images(operation)
    if images:
        rounded = isinstance(operation, BiasGradient)
        yield "the sum of each image", Stepwise(operation.shape, images, half, rounded)


def _taps(operation: Prediction) -> tuple[tuple[Prediction, ...], tuple[Prediction, ...]]:
    """The same through one tap of the kernel alone, in their order; and the bias, which is added last."""
    if isinstance(operation, Data):
        layer, w = replace(operation.layer, kernel_size=(1, 1)), operation.w
        return tuple(operation.replaced(layer=layer, w=w[:, :, r : r + 1, s : s + 1], shift=(
            r * layer.dilation[0], s * layer.dilation[1])) for r, s in np.ndindex(w.shape[2:])), ()
    if isinstance(operation, Formula) and isinstance(operation.node, ConvTranspose2d) and operation.dy is None:
        w, b = operation.parameters["weight"], operation.parameters.get("bias")
        alone = operation.replaced(node=replace(operation.node, bias=False))
        only = np.eye(w.shape[2] * w.shape[3]).reshape(-1, *w.shape[2:])
        bias = () if b is None else (Given(operation.shape, np.broadcast_to(b[:, None, None], operation.shape)),)
        return tuple(alone.replaced(parameters={"weight": w * tap}) for tap in only), bias
    return (), ()


def _images(operation: Prediction) -> tuple[Prediction, ...]:
    """The same of one image alone, in their order; not where images are read in another one."""
    if isinstance(operation, Filter) and (operation.read_x or operation.read_dz):
        return ()
    if isinstance(operation, Filter | BiasGradient):
        x = {"x": operation.x} if isinstance(operation, Filter) else {}
        given = {**x, "dz": operation.dz}
        chosen = range(len(operation.dz.value)) if operation.images is None else operation.images
        return tuple(operation.replaced(images=None, **{name: _image(one, i) for name, one in given.items()})
                     for i in chosen)
    if isinstance(operation, Formula) and isinstance(operation.node, ConvTranspose2d):
        dy = operation.dy if operation.gradient == "weight" else None
        return tuple(operation.replaced(inputs=(_image(operation.inputs[0], i),), dy=_image(dy, i))
                     for i in range(len(dy.value))) if dy is not None else ()
    return ()


def _image(one: Predicted, i: int) -> Predicted:
    error = None if one.error is None else np.broadcast_to(one.error, one.value.shape)[i : i + 1]
    return Predicted(one.value[i : i + 1], error)
