# SPDX-License-Identifier: MIT
"""Right programs whose convolutions are no sums of products: Winograd, FFT, Strassen, three bfloat16 products.

They share nothing with the algorithms that the judge knows (`bridge.judge.oracle.algorithms`).

Sources: A. Lavin and S. Gray, CVPR 2016 (the matrices of F(2,3), F(4,3)); V. Strassen, Numer. Math. 13 (1969) 354.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from bridge.exchange.model import Conv2d
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.healthy import Healthy
from bridge.validate.self_test.operations import Operations

Tensor = torch.Tensor

#: (B^T, G, A^T) by the number of outputs, as they are printed by Lavin and Gray, and by NNPACK for 6
MATRICES: dict[int, tuple[list[list[float]], ...]] = {
    2: ([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
        [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]],
        [[1, 1, 1, 0], [0, 1, -1, -1]]),
    4: ([[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0], [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0],
         [0, 4, 0, -5, 0, 1]],
        [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6], [1 / 24, 1 / 12, 1 / 6],
         [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]],
        [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]),
    6: ([[1, 0, -21 / 4, 0, 21 / 4, 0, -1, 0], [0, 1, 1, -17 / 4, -17 / 4, 1, 1, 0],
         [0, -1, 1, 17 / 4, -17 / 4, -1, 1, 0], [0, 1 / 2, 1 / 4, -5 / 2, -5 / 4, 2, 1, 0],
         [0, -1 / 2, 1 / 4, 5 / 2, -5 / 4, -2, 1, 0], [0, 2, 4, -5 / 2, -5, 1 / 2, 1, 0],
         [0, -2, 4, 5 / 2, -5, -1 / 2, 1, 0], [0, -1, 0, 21 / 4, 0, -21 / 4, 0, 1]],
        [[1, 0, 0], [-2 / 9, -2 / 9, -2 / 9], [-2 / 9, 2 / 9, -2 / 9], [1 / 90, 1 / 45, 2 / 45],
         [1 / 90, -1 / 45, 2 / 45], [32 / 45, 16 / 45, 8 / 45], [32 / 45, -16 / 45, 8 / 45], [0, 0, 1]],
        [[1, 1, 1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 1 / 2, -1 / 2, 0], [0, 1, 1, 4, 4, 1 / 4, 1 / 4, 0],
         [0, 1, -1, 8, -8, 1 / 8, -1 / 8, 0], [0, 1, 1, 16, 16, 1 / 16, 1 / 16, 0],
         [0, 1, -1, 32, -32, 1 / 32, -1 / 32, 1]]),
}


class Fast(Operations):
    """Convolutions and their data gradients by `correlate`, where a window is plain; everything else by torch."""

    def correlate(self, x: Tensor, w: Tensor) -> Tensor:
        """Return the correlation without padding, stride 1, one group."""
        raise NotImplementedError

    def applies(self, layer: Conv2d) -> bool:
        """Return whether a layer is computed so."""
        plain = layer.stride == (1, 1) and layer.dilation == (1, 1) and layer.groups == 1
        return plain and layer.kernel_size == (3, 3) and max(layer.padding) <= 2

    def conv(self, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        if not self.applies(layer):
            return super().conv(layer, x, w, b)
        (top, left) = layer.padding
        z = self.correlate(functional.pad(x, (left, left, top, top)), w)
        return z if b is None else z + b[:, None, None]

    def data_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        if not self.applies(layer):
            return super().data_gradient(layer, dz, x, w)
        top, left = (tap - 1 - pad for tap, pad in zip(layer.kernel_size, layer.padding, strict=True))
        return self.correlate(functional.pad(dz, (left, left, top, top)), w.flip(2, 3).transpose(0, 1).contiguous())


def winograd(m: int, *, rows: bool = True) -> type[Fast]:
    """Return F(m x m, 3 x 3), or F(m, 3) along the width alone."""

    class Winograd(Fast):
        def correlate(self, x: Tensor, w: Tensor) -> Tensor:
            if rows:
                return _tiles(x, w, m, m)
            # Three one-dimensional convolutions, of each row of the kernel, are one of more channels
            h = x.shape[2]
            shifted = torch.cat([x[:, :, r : h - 2 + r] for r in range(3)], 1)
            kernels = torch.cat([w[:, :, r] for r in range(3)], 1)
            return _line(shifted, kernels, m)

    return Winograd


def _tiles(x: Tensor, w: Tensor, m: int, n: int) -> Tensor:
    bt, g, at = (torch.tensor(one, dtype=x.dtype) for one in MATRICES[m])
    p, q = x.shape[2] - 2, x.shape[3] - 2
    x = functional.pad(x, (0, -q % n, 0, -p % m))
    d = x.unfold(2, m + 2, m).unfold(3, n + 2, n)
    v = bt @ d @ bt.T
    u = g @ w @ g.T
    y = at @ torch.einsum("kcij,nctuij->nktuij", u, v) @ at.T
    return y.permute(0, 1, 2, 4, 3, 5).reshape(*y.shape[:2], y.shape[2] * m, -1)[:, :, :p, :q].contiguous()


def _line(x: Tensor, w: Tensor, m: int) -> Tensor:
    bt, g, at = (torch.tensor(one, dtype=x.dtype) for one in MATRICES[m])
    q = x.shape[3] - 2
    d = functional.pad(x, (0, -q % m)).unfold(3, m + 2, m)
    y = torch.einsum("kci,nchui->nkhui", w @ g.T, d @ bt.T) @ at.T
    return y.flatten(3)[..., :q].contiguous()


class WholeFourier(Fast):
    """One transform of the whole image."""

    def correlate(self, x: Tensor, w: Tensor) -> Tensor:
        p, q = x.shape[2] - 2, x.shape[3] - 2
        size = [1 << (n - 1).bit_length() for n in x.shape[2:]]
        found = torch.einsum("kcij,ncij->nkij", torch.fft.rfft2(w, s=size).conj(), torch.fft.rfft2(x, s=size))
        return torch.fft.irfft2(found, s=size)[:, :, :p, :q].contiguous()


def tiled_fourier(tile: int) -> type[Fast]:
    """Return transforms of tiles of so many pixels, which overlap by two."""

    class Tiled(Fast):
        def correlate(self, x: Tensor, w: Tensor) -> Tensor:
            p, q, step = x.shape[2] - 2, x.shape[3] - 2, tile - 2
            x = functional.pad(x, (0, -q % step, 0, -p % step))
            d = torch.fft.rfft2(x.unfold(2, tile, step).unfold(3, tile, step))
            u = torch.fft.rfft2(w, s=[tile, tile]).conj()
            y = torch.fft.irfft2(torch.einsum("kcij,nctuij->nktuij", u, d), s=[tile, tile])[..., :step, :step]
            return y.permute(0, 1, 2, 4, 3, 5).reshape(*y.shape[:2], y.shape[2] * step, -1)[:, :, :p, :q].contiguous()

    return Tiled


def strassen(levels: int) -> type[Fast]:
    """Return Strassen's product of kernels and unfolded images."""

    class Strassen(Fast):
        def correlate(self, x: Tensor, w: Tensor) -> Tensor:
            seen = functional.unfold(x, (3, 3)).transpose(0, 1).flatten(1)
            y = _strassen(w.flatten(1), seen, levels)
            return y.reshape(len(w), len(x), x.shape[2] - 2, -1).transpose(0, 1).contiguous()

    return Strassen


def _strassen(a: Tensor, b: Tensor, levels: int) -> Tensor:
    if not levels or min(*a.shape, b.shape[1]) < 2:
        return a @ b
    k, n = a.shape[0], b.shape[1]
    a = functional.pad(a, (0, a.shape[1] % 2, 0, a.shape[0] % 2))
    b = functional.pad(b, (0, b.shape[1] % 2, 0, b.shape[0] % 2))
    (a11, a12), (a21, a22) = (half.chunk(2, 1) for half in a.chunk(2))
    (b11, b12), (b21, b22) = (half.chunk(2, 1) for half in b.chunk(2))
    one = _strassen(a11 + a22, b11 + b22, levels - 1)
    two, three = _strassen(a21 + a22, b11, levels - 1), _strassen(a11, b12 - b22, levels - 1)
    four, five = _strassen(a22, b21 - b11, levels - 1), _strassen(a11 + a12, b22, levels - 1)
    six, seven = _strassen(a21 - a11, b11 + b12, levels - 1), _strassen(a12 - a22, b21 + b22, levels - 1)
    upper = torch.cat([one + four - five + seven, three + five], 1)
    return torch.cat([upper, torch.cat([two + four, one - two + three + six], 1)])[:k, :n]


class ThreeProducts(Fast):
    """Operands in two bfloat16 parts; the product of both small ones is left out."""

    def correlate(self, x: Tensor, w: Tensor) -> Tensor:
        (x1, x2), (w1, w2) = _parts(x), _parts(w)
        return torch.conv2d(x1, w1) + (torch.conv2d(x1, w2) + torch.conv2d(x2, w1))


def _parts(x: Tensor) -> tuple[Tensor, Tensor]:
    high = x.bfloat16().to(x.dtype)
    return high, (x - high).bfloat16().to(x.dtype)


def _made(kind: type[Operations]) -> Callable[..., object]:
    return lambda fixture, result: train(fixture, result, kind)


#: Right where nothing is outside the bounds of direct sums, else another arithmetic, by name
CODES = (0, 3)

PROGRAMS: dict[str, type[Fast]] = {
    "Winograd F(2x2,3x3)": winograd(2),
    "Winograd F(4x4,3x3)": winograd(4),
    "Winograd F(6x6,3x3)": winograd(6),
    "Winograd F(4,3) along w": winograd(4, rows=False),
    "FFT": WholeFourier,
    "FFT tiles of 16x16": tiled_fourier(16),
    "FFT tiles of 32x32": tiled_fourier(32),
    "Strassen, one level": strassen(1),
    "Strassen, two levels": strassen(2),
    "three bf16 products": ThreeProducts,
}

FAST: tuple[Healthy, ...] = tuple(Healthy(name, _made(kind), CODES) for name, kind in PROGRAMS.items())
