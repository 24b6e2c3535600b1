# SPDX-License-Identifier: MIT
"""Sequences of convolutions that the device cpu can take depth first: no strides, no groups."""

from __future__ import annotations

from bridge.exchange.model import Conv2d, Layer, Relu


def sequence(*convolutions: Conv2d) -> tuple[Layer, ...]:
    """With a ReLU after each but the last."""
    between = [layer for i, one in enumerate(convolutions) for layer in (one, Relu(f"r{i}"))]
    return tuple(between[:-1])


def conv(name: str, c: int, k: int, size: tuple[int, int] = (3, 3), **more: object) -> Conv2d:
    return Conv2d(name, c, k, size, **more)  # type: ignore[arg-type]


SEQUENCES: dict[str, tuple[Layer, ...]] = {
    "same": sequence(conv("a", 3, 16, padding=(1, 1)), conv("b", 16, 16, padding=(1, 1)),
                  conv("c", 16, 1, padding=(1, 1))),
    "valid": sequence(conv("a", 3, 5), conv("b", 5, 7), conv("c", 7, 2)),
    "two": sequence(conv("a", 3, 3, padding=(1, 1), bias=False), conv("b", 3, 2, padding=(1, 1), bias=False)),
    "one by one": sequence(conv("a", 3, 9, (1, 1)), conv("b", 9, 4, (1, 1)), conv("c", 4, 4, (1, 1))),
    "full": sequence(conv("a", 3, 4, padding=(2, 2)), conv("b", 4, 5, (5, 4), padding=(4, 3)),
                  conv("c", 5, 3, (2, 2), padding=(1, 1))),
    "four": sequence(conv("a", 3, 4, padding=(1, 1)), conv("b", 4, 6, padding=(1, 1)), conv("c", 6, 5, padding=(2, 1)),
                  conv("d", 5, 2, padding=(1, 1))),
    "dilated, four": sequence(conv("a", 3, 9, (2, 3), padding=(3, 4), dilation=(3, 2)), conv("b", 9, 4, (1, 1)),
                           conv("c", 4, 3, (3, 5), padding=(0, 2), dilation=(2, 1)),
                           conv("d", 3, 6, (4, 4), padding=(1, 2))),
}


WIDE = sequence(*(conv(name, 64, 64, padding=(1, 1)) for name in "abc"))
