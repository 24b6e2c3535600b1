# SPDX-License-Identifier: MIT
"""Mistakes in a filter gradient that none of the known kinds is: a bug all the same, and found in the right tensor.

They are planted at sizes where a hypothesis about a filter gradient costs so much that few channels stand for all.
"""

from __future__ import annotations

import torch

from bridge.exchange.model import Conv2d
from bridge.validate.self_test.operations import Operations, fed, only
from bridge.validate.self_test.plants.geometry import padded
from bridge.validate.self_test.plants.layouts import column_major, filter_of
from bridge.validate.self_test.plants.record import Plant, wrong

Tensor = torch.Tensor

#: In place of the number of a kind
UNKNOWN_KIND = 0
#: The tensor in which they must be found
TENSOR = "grads/conv2/weight"


def without_a_tile(dz: Tensor) -> Tensor:
    """A tile of every image, a quarter of its height and width, is never summed."""
    dz = dz.clone()
    (i, rows), (j, columns) = ((n // 2, n // 4) for n in dz.shape[2:])
    dz[:, :, i : i + rows, j : j + columns] = 0
    return dz


def two_pixels_off(dz: Tensor) -> Tensor:
    """Moved in w; zeros come in."""
    return torch.nn.functional.pad(dz, (2, 0))[..., :-2]


def a_row_less(g: Tensor, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """The first tap lacks the row in the middle: a loop bound that depends on the tap."""
    g, i, width = g.clone(), dz.shape[2] // 2, dz.shape[3]
    rows = torch.nn.functional.pad(x, (1, 1, 1, 1))[:, :, i, :width]
    g[:, :, 0, 0] -= torch.einsum("nkw,ncw->kc", dz[:, :, i], rows)
    return g


class Wrapped(Operations):
    """The input's rows and columns are read modulo the size."""

    def filter_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        if layer.name != "conv2":
            return super().filter_gradient(layer, dz, x, w)
        around, (h, width) = padded(x, layer, "circular"), dz.shape[2:]
        taps = [torch.einsum("nkhw,nchw->kc", dz, around[:, :, r : r + h, s : s + width])
                for r in range(3) for s in range(3)]
        return torch.stack(taps, dim=-1).reshape(w.shape)


def three_layouts(g: Tensor) -> Tensor:
    """Flipped, in and out swapped, and read column-major."""
    return column_major(g.flip(2, 3).transpose(0, 1).reshape(g.shape))


PLANTS: list[Plant] = [
    wrong(UNKNOWN_KIND, "a tile of dz lost", fed("conv2", "filter_gradient", dz=without_a_tile), codes=(1,)),
    wrong(UNKNOWN_KIND, "dz two pixels off", fed("conv2", "filter_gradient", dz=two_pixels_off), codes=(1,)),
    wrong(UNKNOWN_KIND, "input read modulo its size", Wrapped, codes=(1,)),
    wrong(UNKNOWN_KIND, "one tap lacks a row", only("conv2", "filter_gradient", a_row_less), codes=(1,)),
    wrong(UNKNOWN_KIND, "three layouts at once", filter_of("conv2", three_layouts), codes=(1,)),
]
