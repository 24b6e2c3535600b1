# SPDX-License-Identifier: MIT
"""Algorithms of convolution that are no sums of products: how far each may be from the right result.

The bound of `bridge.judge.oracle.step` is a theorem about sums of products in any order. Transforms mix neighbours
into an element, block algorithms other channels and pixels, and split operands leave products out: each has a bound of
its own, which joins that of the sums, and runs here in the candidate's precision, so that the size of its errors is
known too.

================  =====================================================================================================
Winograd          elementwise, from absolute values, see `bridge.judge.oracle.winograd`
FFT               normwise over a tile or the whole image: an error is spread evenly over its pixels,
                  ``s(n) * sum_c |x_c|_2 |w_kc|_2 / t`` with tiles of t x t pixels and n = 9 log2(t^2) + channels
Strassen          normwise, three times the bound of the largest element a level
split operands    a relative error of each operand, as of a lower precision: two parts of 8 bits (bfloat16). Two parts
                  of TF32 and three of bfloat16 are as exact as float32
================  =====================================================================================================

Sources: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., ch. 23 (Strassen: theorem 23.2) and 24
(FFT: theorem 24.2); G. Henry, P. T. P. Tang and A. Heinecke, ARITH 2019 (sums of bfloat16 products).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bridge.common.errors import ArgumentError
from bridge.exchange.model import Conv2d, Pair
from bridge.judge.oracle import convolution
from bridge.judge.oracle.algorithm import Algorithm
from bridge.judge.oracle.error_model import rounding_factor
from bridge.judge.oracle.reduced_precision import to_bf16
from bridge.judge.oracle.winograd import Filtering

Array = np.ndarray

#: What a declaration or an option may name
FAMILIES = ("winograd", "fft", "strassen", "split")
#: What declares sums of products
DIRECT = "direct"
#: Sides of the tiles that libraries transform; 0 is the whole image
FFT_TILES = (8, 16, 32, 0)
#: Outputs of a tile in one direction, by the taps of the kernel
OUTPUTS = {2: (2, 3), 3: (2, 4, 6), 5: (2, 4)}


@dataclass(frozen=True)
class Direct(Algorithm):
    """A sum of products."""

    def applies(self, layer: Conv2d) -> bool:
        return True

    def forward(self, x: Array, w: Array, layer: Conv2d) -> Array:
        return summed(x, w, layer).astype(x.dtype)

    def forward_bound(self, x: Array, w: Array, layer: Conv2d) -> Array:
        return np.zeros(1)

    def filter_bound(self, x: Array, dz: Array, layer: Conv2d) -> Array:
        return np.zeros(1)


@dataclass(frozen=True)
class Transform(Algorithm):
    """One that wants stride and dilation 1, and works on each group of channels of a padded image."""

    def applies(self, layer: Conv2d) -> bool:
        return layer.stride == layer.dilation == (1, 1)

    def forward(self, x: Array, w: Array, layer: Conv2d) -> Array:
        return _by_groups(self._correlate, x, w, layer)

    def forward_bound(self, x: Array, w: Array, layer: Conv2d) -> Array:
        return _by_groups(self._bound, x, w, layer) if self.applies(layer) else np.zeros(1)

    def filter_bound(self, x: Array, dz: Array, layer: Conv2d) -> Array:
        if not self.applies(layer):
            return np.zeros(1)
        parts = zip(np.split(_padded(x, layer.padding), layer.groups), np.split(dz, layer.groups), strict=True)
        return np.concatenate([self._filter_bound(part, upstream, layer) for part, upstream in parts])

    @abstractmethod
    def _correlate(self, x: Array, w: Array) -> Array: ...

    @abstractmethod
    def _bound(self, x: Array, w: Array) -> Array: ...

    @abstractmethod
    def _filter_bound(self, x: Array, dz: Array, layer: Conv2d) -> Array: ...


@dataclass(frozen=True)
class Winograd(Transform):
    """Tiles of ``m`` outputs; 1 is the plain sum along that axis."""

    m: Pair = (2, 2)

    def applies(self, layer: Conv2d) -> bool:
        fits = all(m == 1 or m in OUTPUTS.get(r, ()) for m, r in zip(self.m, layer.kernel_size, strict=True))
        return fits and super().applies(layer)

    def _correlate(self, x: Array, w: Array) -> Array:
        return Filtering(self.m, w.shape[2:]).correlate(x, w)

    def _bound(self, x: Array, w: Array) -> Array:
        return Filtering(self.m, w.shape[2:]).bound(x, w)

    def _filter_bound(self, x: Array, dz: Array, layer: Conv2d) -> Array:
        return Filtering(self.m, layer.kernel_size).filter_bound(x, dz)


@dataclass(frozen=True)
class Fft(Transform):
    """Overlapping tiles of ``side`` pixels, or the whole image, transformed, multiplied, transformed back."""

    side: int = 0

    def applies(self, layer: Conv2d) -> bool:
        fits = self.side == 0 or max(layer.kernel_size) < self.side
        return fits and max(layer.kernel_size) > 1 and super().applies(layer)

    def _tiled(self, x: Array, r: tuple[int, ...]) -> tuple[Pair, Array]:
        """Side of a tile, and the tiles (c, down, across, *side)."""
        side = (self.side, self.side) if self.side else (_power_of_two(x.shape[1]), _power_of_two(x.shape[2]))
        step = tuple(n - k + 1 for n, k in zip(side, r, strict=True))
        count = [-(-(n - k + 1) // m) for n, k, m in zip(x.shape[1:], r, step, strict=True)]
        whole = (n * m + k - 1 for n, m, k in zip(count, step, r, strict=True))
        padded = np.pad(x, ((0, 0), *((0, n - here) for n, here in zip(whole, x.shape[1:], strict=True))))
        tiles = np.lib.stride_tricks.sliding_window_view(padded, side, axis=(1, 2))[:, :: step[0], :: step[1]]
        return side, tiles

    def _correlate(self, x: Array, w: Array) -> Array:
        side, tiles = self._tiled(x, w.shape[2:])
        spectra = np.fft.rfft2(tiles, axes=(3, 4)).transpose(3, 4, 0, 1, 2)
        kernels = np.fft.rfft2(w, side, axes=(2, 3)).conj().transpose(2, 3, 0, 1)
        products = (kernels @ spectra.reshape(*spectra.shape[:3], -1)).transpose(2, 3, 0, 1)
        tiles = np.fft.irfft2(products.astype(np.result_type(x, 1j)), side, axes=(2, 3)).astype(x.dtype)
        return _joined(tiles.reshape(w.shape[0], *spectra.shape[3:], *side), x.shape[1:], w.shape[2:])

    def _bound(self, x: Array, w: Array) -> Array:
        side, tiles = self._tiled(x, w.shape[2:])
        norms = np.sqrt(np.einsum("ctuij,ctuij->ctu", tiles, tiles))
        each = np.einsum("kc,ctu->ktu", np.sqrt((w * w).sum((2, 3))), norms) / math.sqrt(math.prod(side))
        bound = np.broadcast_to(each[..., None, None], (*each.shape, *side))
        n = 9 * math.log2(math.prod(side)) + x.shape[0]
        return _joined(bound, x.shape[1:], w.shape[2:]) * rounding_factor(n, 1.0)

    def _filter_bound(self, x: Array, dz: Array, layer: Conv2d) -> Array:
        """By Cauchy and Schwarz over the tiles, whose inputs overlap."""
        side, tiles = self._tiled(x, layer.kernel_size)
        norms = np.sqrt(np.einsum("ctuij,ctuij->c", tiles, tiles))
        each = np.outer(np.sqrt((dz * dz).sum((1, 2))), norms) / math.sqrt(math.prod(side))
        n = 9 * math.log2(math.prod(side)) + tiles[0, :, :, 0, 0].size
        return np.broadcast_to((each * rounding_factor(n, 1.0))[..., None, None], (*each.shape, *layer.kernel_size))


@dataclass(frozen=True)
class Strassen(Algorithm):
    """A product of matrices, unfolded windows (im2col) and filters, by seven products of halves, in some levels.

    Attributes
    ----------
    levels : how often both matrices are halved
    joint : the windows of all images are one matrix; the halves mix them, and the largest image rounds the others
    """

    levels: int = 1
    joint: bool = False

    def applies(self, layer: Conv2d) -> bool:
        there, back = layer.out_channels // layer.groups, layer.in_channels // layer.groups
        taps = math.prod(layer.kernel_size)
        # Sides that cannot be halved are padded: three rows are as many as four. The data gradient exchanges the
        # channels: a layer with one output has many there
        fewest = max(min(there, back * taps), min(back, there * taps))
        return fewest > 2 ** (self.levels - 1)

    def forward(self, x: Array, w: Array, layer: Conv2d) -> Array:
        return self._product(x[None], w, layer)[:, 0]

    def forward_of(self, image: int, images: Callable[[], Array], w: Array, layer: Conv2d) -> Array | None:
        return self._product(images(), w, layer)[:, image] if self.joint else None

    def _product(self, images: Array, w: Array, layer: Conv2d) -> Array:
        """Of images (n, c, h, w); their results lie side by side, (k, n, p, q)."""
        n, k, *size = layer.output_shape(images.shape)
        found = []
        for part, kernels in zip(np.split(images, layer.groups, 1), np.split(w, layer.groups), strict=True):
            one = replace(layer, groups=1, in_channels=part.shape[1], out_channels=len(kernels))
            columns = np.concatenate([_columns(image, one) for image in part], 1)
            found.append(_strassen(kernels.reshape(len(kernels), -1), columns, self.levels))
        return np.concatenate(found).reshape(k, n, *size)

    def forward_bound(self, x: Array, w: Array, layer: Conv2d) -> Array:
        largest = float(summed(x, w, layer).max())
        return self._bound(largest, math.prod(layer.weight_shape[1:]))

    def filter_bound(self, x: Array, dz: Array, layer: Conv2d) -> Array:
        largest = convolution.backward_filter(x, [dz], layer)[0].max()
        return self._bound(largest, dz[0].size)

    def _bound(self, largest: float, n: int) -> Array:
        return np.array([3.0**self.levels * float(rounding_factor(n + 8 * self.levels, 1.0)) * largest])


@dataclass(frozen=True)
class Split(Direct):
    """Operands in two parts of bfloat16; three of the four products are summed, that of the small parts is not."""

    def forward(self, x: Array, w: Array, layer: Conv2d) -> Array:
        (x1, x2), (w1, w2) = self._parts(x), self._parts(w)
        small = super().forward(x1, w2, layer) + super().forward(x2, w1, layer)
        return small + super().forward(x1, w1, layer)

    def _parts(self, x: Array) -> tuple[Array, Array]:
        whole = x.astype(np.float32)
        first = to_bf16(whole)
        return first.astype(x.dtype), to_bf16(whole - first).astype(x.dtype)


def known() -> tuple[Algorithm, ...]:
    """Return all algorithms, the most exact first."""
    tiles = sorted({(a, b) for ms in OUTPUTS.values() for a in (1, *ms) for b in (1, *ms) if a in (1, b) or b == 1})
    winograd = [Winograd(f"Winograd F({a}x{b})", "winograd", m=(a, b)) for a, b in tiles if a * b > 1]
    fft = [Fft(f"FFT, tiles of {n} x {n}" if n else "FFT of the whole image", "fft", side=n) for n in FFT_TILES]
    strassen = [Strassen(f"Strassen, {n} level{'s' * (n > 1)}", "strassen", levels=n) for n in (1, 2)]
    of_batch = [replace(one, name=f"{one.name}, of the whole batch", joint=True) for one in strassen]
    return (*winograd, *fft, *strassen, *of_batch, Split("three bf16 products", "split", operand=2.0**-16))


def families(text: str, what: str) -> frozenset[str]:
    """Return the families that a text names, separated by commas.

    >>> sorted(families("winograd, fft", "--allow"))
    ['fft', 'winograd']

    Raises
    ------
    ArgumentError
        If one is unknown; the message begins with `what`.
    """
    names = frozenset(name.strip().lower() for name in text.split(",") if name.strip())
    if unknown := sorted(names - {*FAMILIES, DIRECT}):
        raise ArgumentError(f"{what}: '{unknown[0]}' found, expected some of {', '.join(FAMILIES)}")
    return names - {DIRECT}


def title(algorithm: Algorithm, layer: Conv2d) -> str:
    """Return the name with the size of the layer's kernel, "Winograd F(4x4,3x3)"."""
    if isinstance(algorithm, Winograd):
        return algorithm.name.replace(")", ",{}x{})".format(*layer.kernel_size))
    return algorithm.name


def summed(x: Array, w: Array, layer: Conv2d) -> Array:
    """Return the convolution of one image as a sum of products; unlike a model's, its padding may be negative."""
    return convolution.forward(_padded(x, layer.padding), [w], replace(layer, padding=(0, 0)))[0]


def _by_groups(one: Callable[[Array, Array], Array], x: Array, w: Array, layer: Conv2d) -> Array:
    parts = zip(np.split(_padded(x, layer.padding), layer.groups), np.split(w, layer.groups), strict=True)
    return np.concatenate([one(part, kernels) for part, kernels in parts])


def _padded(x: Array, padding: Pair) -> Array:
    """With zeros around; a negative padding cuts off."""
    (top, left), (h, w) = (max(0, -n) for n in padding), x.shape[1:]
    x = x[:, top : h - top, left : w - left]
    return np.pad(x, ((0, 0), *((max(0, n), max(0, n)) for n in padding)))


def _joined(tiles: Array, size: tuple[int, ...], r: tuple[int, ...]) -> Array:
    """Tiles (k, down, across, *side) as an image: of each its first outputs."""
    step = tuple(n - k + 1 for n, k in zip(tiles.shape[3:], r, strict=True))
    k, down, across = tiles.shape[:3]
    image = tiles[..., : step[0], : step[1]].transpose(0, 1, 3, 2, 4).reshape(k, down * step[0], across * step[1])
    return image[:, : size[0] - r[0] + 1, : size[1] - r[1] + 1]


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _columns(x: Array, layer: Conv2d) -> Array:
    """What each output sees, (c * r * s, outputs)."""
    padded, (r, s) = _padded(x, layer.padding), layer.kernel_size
    reach = tuple((n - 1) * d + 1 for n, d in zip((r, s), layer.dilation, strict=True))
    seen = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(1, 2))
    seen = seen[:, :: layer.stride[0], :: layer.stride[1], :: layer.dilation[0], :: layer.dilation[1]]
    return np.ascontiguousarray(seen.transpose(0, 3, 4, 1, 2)).reshape(x.shape[0] * r * s, -1)


def _strassen(a: Array, b: Array, levels: int) -> Array:
    """Seven products of halves; odd rows and columns are filled up with zeros."""
    if levels == 0:
        return a @ b
    (m, n), p = a.shape, b.shape[1]
    a = np.pad(a, ((0, m % 2), (0, n % 2)))
    b = np.pad(b, ((0, n % 2), (0, p % 2)))
    (a11, a12), (a21, a22) = (np.hsplit(row, 2) for row in np.vsplit(a, 2))
    (b11, b12), (b21, b22) = (np.hsplit(row, 2) for row in np.vsplit(b, 2))
    p1, p2, p3, p4, p5, p6, p7 = (
        _strassen(one, other, levels - 1)
        for one, other in (
            (a11 + a22, b11 + b22), (a21 + a22, b11), (a11, b12 - b22), (a22, b21 - b11), (a11 + a12, b22),
            (a21 - a11, b11 + b12), (a12 - a22, b21 + b22))
    )
    return np.block([[p1 + p4 - p5 + p7, p3 + p5], [p2 + p4, p1 - p2 + p3 + p6]])[:m, :p]
