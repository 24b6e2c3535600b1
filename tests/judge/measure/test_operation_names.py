# SPDX-License-Identifier: MIT
"""Where an element stands: the axes of every kind of tensor."""

from __future__ import annotations

import pytest

from bridge.exchange.model import Conv2d, Model
from bridge.judge.measure.operation_names import place
from bridge.operations import BatchNorm2d, ConvTranspose2d, Linear

MODEL = Model((Conv2d("a", 4, 3, (3, 3)), ConvTranspose2d("up", 4, 3, (2, 2)), Linear("full", 5, 2),
               BatchNorm2d("norm", 3)))


@pytest.mark.parametrize(("name", "at", "said"), [
    ("forward/a", (0, 2, 5, 7), "(n=0, c=2, h=5, w=7)"), ("grads/a/output", (0, 2, 5, 7), "(n=0, c=2, h=5, w=7)"),
    ("grads/input", (1, 0, 3, 2), "(n=1, c=0, h=3, w=2)"), ("forward/full", (1, 4), "(n=1, c=4)"),
    ("forward/full", (1, 4, 2), "(1, 4, 2)"), ("grads/a/weight", (2, 3, 1, 0), "(k=2, c=3, r=1, s=0)"),
    ("weights/a/weight", (2, 3, 1, 0), "(k=2, c=3, r=1, s=0)"),
    ("memory/a/weight/momentum", (2, 3, 1, 0), "(k=2, c=3, r=1, s=0)"),
    # torch keeps it as (in, out, r, s)
    ("update/up/weight", (3, 2, 1, 0), "(c=3, k=2, r=1, s=0)"), ("grads/up/bias", (2,), "(k=2)"),
    ("optimizer/full/weight", (1, 4), "(k=1, c=4)"), ("grads/norm/weight", (2,), "(2)"), ("loss", (0,), "(0)"),
    ("loss", (), "()"), ("forward/unknown", (0,), "(0)"), ("strange", (1, 2, 3, 4), "(1, 2, 3, 4)"),
])
def test_a_place(name: str, at: tuple[int, ...], said: str) -> None:
    assert place(MODEL, name, at) == said
