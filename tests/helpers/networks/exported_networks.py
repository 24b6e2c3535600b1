# SPDX-License-Identifier: MIT
"""Networks as people write them, which torch.export reads and torch.fx does not: sizes as numbers, functions of one
dimension, numbers, optional arguments, attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Written(nn.Module):
    """Parts by their names, and a forward of them."""

    def __init__(self, forward: Callable[[Any, torch.Tensor], torch.Tensor], **parts: Any) -> None:
        super().__init__()
        self.what = forward
        for name, one in parts.items():
            setattr(self, name, one)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.what(self, x)


def conv(c: int, k: int, **given: Any) -> nn.Conv2d:
    return nn.Conv2d(c, k, 3, padding=1, **given)


class ConvNorm(nn.Module):
    """With an argument that most calls leave out."""

    def __init__(self, c: int, k: int, norm: nn.Module, act: nn.Module) -> None:
        super().__init__()
        self.conv, self.norm, self.act = conv(c, k, bias=False), norm, act

    def forward(self, x: torch.Tensor, skip: torch.Tensor | None = None) -> torch.Tensor:
        y = self.act(self.norm(self.conv(x)))
        return y if skip is None else torch.cat([y, skip], 1)


class Unet(nn.Module):
    """As in many repositories: up to the size of what was kept, whatever it is."""

    def __init__(self) -> None:
        super().__init__()
        self.down = ConvNorm(1, 4, nn.InstanceNorm2d(4, affine=True), nn.LeakyReLU(0.2, True))
        self.pool = nn.MaxPool2d(2)
        self.bottom = ConvNorm(4, 6, nn.InstanceNorm2d(6), nn.ReLU6(inplace=True))
        self.up = ConvNorm(6, 4, nn.BatchNorm2d(4), nn.Hardswish())
        self.last = nn.Conv2d(8, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = self.down(x)
        y = self.bottom(self.pool(kept))
        y = functional.interpolate(y, size=kept.shape[2:], mode="bilinear", align_corners=False)
        return self.last(self.up(y, skip=kept))


class Attention(nn.Module):
    """Of pixels, by torch's function."""

    def __init__(self, c: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(c)
        self.q, self.k, self.v, self.out = (nn.Linear(c, c) for _ in range(4))

    def split(self, x: torch.Tensor) -> torch.Tensor:
        n, length, c = x.shape
        return x.view(n, length, self.heads, c // self.heads).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        y = self.norm(x.flatten(2).transpose(1, 2))
        y = functional.scaled_dot_product_attention(*(self.split(one(y)) for one in (self.q, self.k, self.v)))
        y = self.out(y.transpose(1, 2).reshape(n, h * w, c))
        return x + y.transpose(1, 2).reshape(n, c, h, w)


class Windows(nn.Module):
    """Attention between the pixels of windows that are shifted, in six dimensions."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        y = torch.roll(x, (-1, 1), (2, 3)).reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 3, 5, 1)
        q, k, v = self.qkv(y.reshape(n, h * w // 4, 4, c)).chunk(3, dim=-1)
        y = self.out(torch.softmax(q @ k.transpose(-2, -1) / c**0.5, -1) @ v)
        y = y.reshape(n, h // 2, w // 2, 2, 2, c).permute(0, 5, 1, 3, 2, 4).reshape(n, c, h, w)
        return x + torch.roll(y, (1, -1), (2, 3))


class Excitation(nn.Module):
    """Squeeze and excitation with sizes as numbers."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(c, 2), nn.Linear(2, c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, c, _, _ = x.size()
        s = functional.adaptive_avg_pool2d(x, 1).view(n, c)
        return x * functional.hardsigmoid(self.two(functional.silu(self.one(s)))).view(n, c, 1, 1)


def by_hand(m: Any, x: torch.Tensor) -> torch.Tensor:
    """A normalisation over the channels, written out."""
    y = m.a(x)
    mean = y.clone().mean(1, keepdim=True)
    y = (y - mean) * torch.rsqrt(((y - mean) ** 2).mean(1, keepdim=True) + 1e-3)
    return m.b(y)


def rows_softmax(m: Any, x: torch.Tensor) -> torch.Tensor:
    n, _, h, w = x.shape
    return functional.softmax(m.a(x).view(n, 2, h * w), dim=-1).view(n, 2, h, w)


def gated(m: Any, x: torch.Tensor) -> torch.Tensor:
    gate = torch.sigmoid(m.g(x))
    return gate * m.a(x) + (1 - gate) * 0.5 * x - (-x) / 3


def in_place(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.a(x)
    y += 0.25
    y *= 2
    assert y.shape[1] == 2, "an assertion of sizes"
    return m.b(y)


def physical(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Between two physical limits."""
    return 0.1 + 2.5 * torch.sigmoid(m.b(functional.softplus(m.a(x)) ** 0.5))


def rows_and_columns(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.a(x)
    assert x.shape[1] == 2
    return torch.cat([y.mean(2, keepdim=True), y.amax(2, keepdim=True)], dim=2).permute(0, 2, 3, 1)


def sequence(m: Any, x: torch.Tensor) -> torch.Tensor:
    """A signal (n, c, length)."""
    y = functional.relu(m.n(m.a(functional.pad(x, (1, 1)))))
    return m.b(functional.interpolate(functional.max_pool1d(y, 2), scale_factor=2))


def average_and_largest(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.a(x)
    return m.l((functional.adaptive_avg_pool2d(y, 1) + functional.adaptive_max_pool2d(y, 1)).flatten(1))


def projected(m: Any, x: torch.Tensor) -> torch.Tensor:
    """What attention by hand is: products of tokens."""
    n, c = x.shape[:2]
    q, k, v = (one(x).reshape(n, c, -1) for one in (m.q, m.k, m.v))
    weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(x.shape[-1]), dim=-1)
    return m.o((weights @ v).reshape(x.shape))


def moved(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Parts, mirrored, one behind the other, and back to the pixels."""
    y = functional.pixel_unshuffle(m.a(x), 2)
    left, right = y.split(4, dim=1)
    y = torch.cat([left[..., 1:], right.flip(-1)[..., ::2]], dim=3)
    y = torch.stack([y, y[:, :, -1:].expand(-1, -1, y.shape[2], -1)], 2).sum(2)
    return functional.pixel_shuffle(y, 2) * m.b(x).unbind(1)[0].unsqueeze(1)[..., :1]


class Causal(nn.Module):
    """Attention to what was before, by torch's function and by marks."""

    def __init__(self, length: int, c: int) -> None:
        super().__init__()
        self.one, self.two, self.norm = nn.Linear(c, 3 * c), nn.Linear(c, 3 * c, bias=False), nn.LayerNorm(c)
        self.before = nn.Buffer(torch.ones(length, length).tril().view(1, length, length))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + functional.scaled_dot_product_attention(*self.one(self.norm(x)).chunk(3, -1), is_causal=True)
        q, k, v = self.two(x).chunk(3, -1)
        scores = (q @ k.mT / math.sqrt(x.shape[-1])).masked_fill(self.before == 0, -math.inf)
        return x + torch.where(torch.arange(x.shape[-1]) > 1, scores.softmax(-1) @ v, x)


IMAGES = (2, 2, 8, 12)
#: By name: what makes the module, and the shape of an input
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "unet": (Unet, (2, 1, 8, 12)),
    "attention": (lambda: nn.Sequential(conv(1, 4), Attention(4, 2), nn.Conv2d(4, 1, 1)), (2, 1, 4, 6)),
    "attention by hand": (lambda: Written(projected, **{n: nn.Conv2d(2, 2, 1) for n in "qkvo"}), (2, 2, 4, 6)),
    "causal": (lambda: Causal(5, 4), (3, 5, 4)),
    "torch's attention": (lambda: Written(lambda m, x: m.o(m.a(x, x, x)[0]), o=nn.Linear(8, 2),
                                          a=nn.MultiheadAttention(8, 2, batch_first=True)), (3, 5, 8)),
    "torch's attention, lengths first": (lambda: Written(
        lambda m, x: m.a(*(x.transpose(0, 1),) * 3)[0].transpose(0, 1), a=nn.MultiheadAttention(6, 3)), (2, 4, 6)),
    "excitation": (lambda: nn.Sequential(conv(2, 4), Excitation(4), conv(4, 1)), IMAGES),
    "normalisation by hand": (lambda: Written(by_hand, a=conv(2, 4), b=conv(4, 1)), IMAGES),
    "softmax of pixels": (lambda: Written(rows_softmax, a=conv(2, 2)), IMAGES),
    "gate": (lambda: Written(gated, a=conv(2, 2), g=conv(2, 2)), IMAGES),
    "in place": (lambda: Written(in_place, a=conv(2, 2), b=conv(2, 1)), IMAGES),
    "windows": (lambda: nn.Sequential(conv(1, 4), Windows(4), nn.Conv2d(4, 1, 1)), (2, 1, 4, 6)),
    "moved": (lambda: Written(moved, a=conv(2, 2), b=conv(2, 1)), IMAGES),
    "limits": (lambda: Written(physical, a=conv(2, 2), b=conv(2, 1)), IMAGES),
    "rows": (lambda: Written(rows_and_columns, a=conv(2, 3)), IMAGES),
    "average and largest": (lambda: Written(average_and_largest, a=conv(2, 3), l=nn.Linear(3, 2)), IMAGES),
    "signal": (lambda: Written(sequence, a=nn.Conv1d(2, 4, 3), n=nn.BatchNorm1d(4), b=nn.Conv1d(4, 1, 1)), (2, 2, 12)),
    "signal, up": (lambda: nn.Sequential(
        nn.Conv1d(2, 4, 3, stride=2, padding=1), nn.GELU(), nn.ConvTranspose1d(4, 2, 4, stride=2, padding=1),
        nn.AvgPool1d(3, 1, 1), nn.ReflectionPad1d(2), nn.InstanceNorm1d(2), nn.AdaptiveAvgPool1d(4)), (2, 2, 12)),
    "features": (lambda: nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.SELU(), nn.Linear(6, 3), nn.Softmax(-1)),
                 (4, 5)),
    "emulator": (lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanhshrink(), nn.Linear(8, 8), nn.Softsign(),
                                       nn.Linear(8, 2), nn.LogSigmoid()), (3, 5)),
    "mobile": (lambda: nn.Sequential(conv(2, 4), nn.BatchNorm2d(4), nn.ReLU6(), conv(4, 4, groups=4), nn.BatchNorm2d(4),
                                     nn.Hardswish(), nn.AvgPool2d((8, 12)), nn.Flatten(), nn.Linear(4, 3)), IMAGES),
    "generator": (lambda: nn.Sequential(nn.Unflatten(1, (2, 1, 1)), nn.ConvTranspose2d(2, 4, 4), nn.InstanceNorm2d(4),
                                        nn.ReLU(True), nn.ConvTranspose2d(4, 1, 4, 2, 1), nn.Hardtanh()), (3, 2)),
    "celu": (lambda: nn.Sequential(conv(2, 2), nn.CELU(0.5), conv(2, 1), nn.Hardsigmoid()), IMAGES),
    "evaluated": (lambda: nn.Sequential(conv(2, 3), nn.BatchNorm2d(3), nn.ReLU6(), nn.Dropout(0.5), conv(3, 1)).eval(),
                  IMAGES),
    "padding of an odd width": (lambda: Written(
        lambda m, x: m.b(functional.pad(m.a(x), (x.shape[-1] % 2, 0, 1, 0), mode="reflect")),
        a=conv(2, 2), b=conv(2, 1)), (2, 2, 8, 11)),
    "reversed subtraction": (lambda: Written(
        lambda m, x: 2 - torch.square(m.a(x)) - 3 / (m.b(x) ** 2 + 1), a=conv(2, 2), b=conv(2, 2)), IMAGES),
}


class Tokens(nn.Module):
    """Attention of heads over tokens of images (n, c, h, w): a token, an embedding of places, a table of biases by
    distance, factors of channels, windows that become images, in torch's usual ways of writing them.
    """

    def __init__(self, channels: int, side: int) -> None:
        super().__init__()
        places = torch.arange(side**2)
        self.token = nn.Parameter(torch.randn(1, 1, channels))
        self.places = nn.Parameter(torch.randn(1, side**2 + 1, channels))
        self.table = nn.Parameter(torch.randn(2 * side**2 - 1, 2))
        self.distance = nn.Buffer(places[:, None] - places[None, :] + side**2 - 1)
        self.norm, self.qkv = nn.LayerNorm(channels), nn.Linear(channels, 3 * channels)
        self.factors = nn.Parameter(torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        y = torch.cat([self.token.expand(n, -1, -1), x.flatten(2).mT], 1) + self.places
        first, rest = y[:, :1], y[:, 1:]
        q, k, v = self.qkv(self.norm(rest)).reshape(n, h * w, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        bias = self.table[self.distance.view(-1)].view(h * w, h * w, -1).permute(2, 0, 1)
        heads = (q @ k.mT + bias.unsqueeze(0)).softmax(-1) @ v
        rest = rest + self.factors * heads.transpose(1, 2).reshape(n, h * w, c)
        windows = rest.reshape(n * 2, -1, c)
        windows = windows - windows.mean(1, keepdim=True)
        return (windows.view(n, h * w, c) + first).mT.reshape(x.shape)
