# SPDX-License-Identifier: MIT
"""The convolutions of the sweep: each takes well under a second in every pass."""

from __future__ import annotations

from benchmarks.harness.workloads import Conv


def _conv(n: int, c: int, size: int, k: int, kernel: int | tuple[int, int], stride: int = 1, dilation: int = 1,
          groups: int = 1, pad: int | None = None, dtype: str = "float32") -> Conv:
    """A square image; the padding keeps its size at stride 1 unless another is given."""
    r, s = (kernel, kernel) if isinstance(kernel, int) else kernel
    padding = (dilation * (r - 1) // 2, dilation * (s - 1) // 2) if pad is None else (pad, pad)
    return Conv(n, c, size, size, k, r, s, (stride, stride), padding, (dilation, dilation), groups, dtype)


def name(conv: Conv) -> str:
    """In one line, without what is usual.

    Examples
    --------
    >>> name(Conv(2, 8, 32, 32, 16, 3, 3, stride=(2, 2), padding=(1, 1)))
    '2 x 8 x 32 x 32 -> 16, 3x3, stride 2'
    """
    parts = [f"{conv.n} x {conv.c} x {conv.h} x {conv.w} -> {conv.k}, {conv.r}x{conv.s}"]
    parts += [f"stride {conv.stride[0]}"] * (conv.stride != (1, 1))
    parts += [f"dilation {conv.dilation[0]}"] * (conv.dilation != (1, 1))
    parts += ["depthwise" if conv.groups == conv.c else f"groups {conv.groups}"] * (conv.groups > 1)
    usual = tuple(d * (kernel - 1) // 2 for d, kernel in zip(conv.dilation, (conv.r, conv.s), strict=True))
    parts += [f"padding {conv.padding[0]}"] * (conv.padding != usual)
    parts += [conv.dtype] * (conv.dtype != "float32")
    return ", ".join(parts)


#: Kernels and image sizes at the mission's channels
PLAIN = (
    *(_conv(2, 16, size, 16, 3) for size in (7, 14, 28, 56, 64, 128, 256)),
    *(_conv(2, 16, 100, 16, kernel) for kernel in (1, 3, 5, 7, (1, 7), (7, 1), 2)),
    _conv(2, 1, 256, 16, 3), _conv(2, 16, 256, 1, 3), _conv(2, 1, 256, 16, 5), _conv(2, 16, 256, 1, 7),
    _conv(2, 16, 64, 16, 3, pad=0), _conv(2, 16, 64, 16, 5, pad=0),
)
#: Channels that fill no vector
ODD = tuple(_conv(2, c, 64, k, 3) for c, k in ((1, 1), (2, 3), (3, 5), (5, 7), (7, 13), (13, 17), (17, 31), (33, 15),
                                               (24, 40), (48, 48), (65, 63)))
STRIDED = (
    *(_conv(2, 16, 128, 32, 3, stride=stride) for stride in (2, 3)),
    *(_conv(2, 32, 64, 64, 1, stride=stride) for stride in (2, 3)),
    _conv(2, 16, 128, 16, 5, stride=2), _conv(2, 16, 128, 16, 7, stride=3), _conv(2, 3, 224, 16, 7, stride=2),
    _conv(2, 16, 128, 16, 2, stride=2, pad=0),
    *(_conv(2, 16, 128, 16, 3, dilation=dilation) for dilation in (2, 3)),
    _conv(2, 16, 96, 16, 5, dilation=2), _conv(2, 16, 96, 16, 3, stride=2, dilation=2),
)
GROUPED = (
    *(_conv(2, 32, 64, 32, 3, groups=groups) for groups in (2, 4, 8, 32)),
    _conv(2, 64, 56, 64, 3, groups=64), _conv(2, 32, 112, 32, 5, groups=32), _conv(2, 64, 56, 64, 3, 2, groups=64),
    _conv(2, 16, 64, 32, 3, groups=16), _conv(2, 30, 50, 30, 3, groups=3), _conv(4, 64, 28, 64, 7, groups=64),
)
BATCHED = tuple(_conv(n, 16, 32, 16, 3) for n in (1, 3, 8, 16, 33, 64))
#: Of ResNet's stages, 1x1 bottlenecks among them
RESNET = (
    _conv(1, 3, 224, 64, 7, stride=2), _conv(1, 64, 56, 64, 3), _conv(1, 64, 56, 256, 1), _conv(1, 256, 56, 64, 1),
    _conv(1, 64, 56, 128, 3, stride=2), _conv(1, 128, 28, 128, 3), _conv(1, 256, 28, 512, 1, stride=2),
    _conv(1, 256, 14, 256, 3), _conv(1, 512, 7, 512, 3), _conv(1, 1024, 14, 256, 1), _conv(4, 512, 7, 2048, 1),
)
DOUBLE = (_conv(2, 16, 128, 16, 3, dtype="float64"), _conv(2, 5, 64, 7, 5, dtype="float64"),
          _conv(2, 32, 64, 32, 3, groups=32, dtype="float64"))

SHAPES: tuple[Conv, ...] = PLAIN + ODD + STRIDED + GROUPED + BATCHED + RESNET + DOUBLE
#: One of each kind, for a quick run
QUICK: tuple[Conv, ...] = (_conv(2, 3, 9, 5, 3), _conv(1, 4, 12, 4, 3, stride=2, groups=4))
