# SPDX-License-Identifier: MIT
"""PyTorch's float64 convolution of large images, a few rows at a time.

PyTorch unfolds a whole image before it multiplies (im2col), which in float64 is a gigabyte for 16 channels of
1024 x 1024: most of the time goes into that memory. The same operation on strips whose unfolded rows fit the cache
gives the same sums, up to the order of those over rows in filter gradients, several times faster.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional

from reference.network.hyperparameters import padding_of
from reference.network.layers import Layers

Made = TypeVar("Made")

#: Numbers of one unfolded strip of an image: what a core's own cache holds, and less than what malloc gives back to the
#: kernel after every strip
STRIP = 1 << 17


def in_strips(layers: Layers) -> Layers:
    """Return the same layers, with the same parameters; convolutions go through images in strips."""
    return layers.changed(lambda name, one: StripConv2d(name, one) if isinstance(one, nn.Conv2d) else one)


class StripConv2d(nn.Module):
    """A `nn.Conv2d` with zero padding, computed in strips; it shares the parameters.

    Takes and returns what the layer does, shapes (n, c, h, w) and (n, k, p, q).
    """

    def __init__(self, name: str, conv: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = conv.weight, conv.bias
        self.conv, self.padding = [conv], padding_of(name, conv)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """As the layer's."""
        conv = self.conv[0]
        settings = list(conv.stride), self.padding, list(conv.dilation), conv.groups
        found: torch.Tensor = _Strips.apply(value, self.weight, *settings)  # type: ignore[no-untyped-call]
        # In place: fresh memory for another tensor of this size takes longer than the sum
        return found if self.bias is None else found.add_(self.bias[:, None, None])


class _Strips(torch.autograd.Function):
    """Without bias; strips at the upper and lower border are padded by themselves, so that the others are parts of the
    image, and each is a plain convolution."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, weight: torch.Tensor, stride: list[int], padding: list[int],
                dilation: list[int], groups: int) -> torch.Tensor:
        ctx.save_for_backward(value, weight)
        ctx.settings = stride, padding, dilation, groups
        height, width = (
            (value.shape[2 + a] + 2 * padding[a] - dilation[a] * (weight.shape[2 + a] - 1) - 1) // stride[a] + 1
            for a in (0, 1)
        )
        found = value.new_empty((value.shape[0], weight.shape[0], height, width))

        def one(n: int) -> None:
            for rows, taken in _strips(found.shape, weight, stride, dilation):
                strip = _Strip(taken, padding[0], value.shape[2])
                found[n : n + 1, :, rows] = functional.conv2d(
                    strip.of(value[n : n + 1]), weight, None, stride, (0, padding[1]), dilation, groups
                )

        _each_image(one, value.shape[0])
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,), (image, weight) = gradients, ctx.saved_tensors
        stride, padding, dilation, groups = ctx.settings
        of_value = torch.zeros_like(image)

        def one(n: int) -> torch.Tensor:
            total = torch.zeros_like(weight)
            for rows, taken in _strips(gradient.shape, weight, stride, dilation):
                strip = _Strip(taken, padding[0], image.shape[2])
                value, filters, _ = torch.ops.aten.convolution_backward(
                    gradient[n : n + 1, :, rows], strip.of(image[n : n + 1]), weight, None, stride, (0, padding[1]),
                    dilation, False, (0, 0), groups, (True, True, False),
                )
                of_value[n : n + 1, :, strip.inside] += value[:, :, strip.above : value.shape[2] - strip.below]
                total += filters
            return total

        of_weight = sum(_each_image(one, image.shape[0]), torch.zeros_like(weight))
        return of_value, of_weight, None, None, None, None


class _Strip:
    """Rows of a padded image.

    Attributes
    ----------
    above, below : how many of them are padding
    inside : the others, in the image
    """

    def __init__(self, taken: slice, padding: int, height: int) -> None:
        first, last = taken.start - padding, taken.stop - padding
        self.inside = slice(min(max(first, 0), height), max(min(last, height), 0))
        self.above = min(max(-first, 0), last - first)
        self.below = last - first - self.above - max(0, self.inside.stop - self.inside.start)

    def of(self, image: torch.Tensor) -> torch.Tensor:
        """Return the rows, of an image (1, c, h, w)."""
        rows = image[:, :, self.inside]
        return functional.pad(rows, (0, 0, self.above, self.below)) if self.above or self.below else rows


def _each_image(work: Callable[[int], Made], images: int) -> list[Made]:
    """One thread for an image: strips are too short to be divided again. PyTorch's setting is that of a thread."""
    with ThreadPoolExecutor(torch.get_num_threads(), initializer=lambda: torch.set_num_threads(1)) as pool:
        return list(pool.map(torch.no_grad()(work), range(images)))


def _strips(
    shape: torch.Size, weight: torch.Tensor, stride: list[int], dilation: list[int]
) -> list[tuple[slice, slice]]:
    """Rows of the output, and those of the padded input that they are computed from."""
    height = max(1, STRIP // (weight[0].numel() * shape[3]))
    found = []
    for first in range(0, shape[2], height):
        last = min(shape[2], first + height)
        taken = slice(first * stride[0], (last - 1) * stride[0] + dilation[0] * (weight.shape[2] - 1) + 1)
        found.append((slice(first, last), taken))
    return found
