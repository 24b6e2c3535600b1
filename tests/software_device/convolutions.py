# SPDX-License-Identifier: MIT
"""Convolutions on the strict software device, and what PyTorch makes of them in float64."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from tests.software_device.calls import BFLOAT16, BYTES, DOUBLE, FLOAT, HALF, NCHW, NHWC, Calls

TYPES = {FLOAT: torch.float32, DOUBLE: torch.float64, HALF: torch.float16, BFLOAT16: torch.bfloat16}
#: Half a unit in the last place, relative
HALF_ULP = {FLOAT: 2.0**-24, DOUBLE: 2.0**-46, HALF: 2.0**-11 * 1.01, BFLOAT16: 2.0**-8 * 1.01}


@dataclass(frozen=True)
class Case:
    """One convolution; all extents differ."""

    x: tuple[int, int, int, int]
    w: tuple[int, int, int, int]
    padding: tuple[int, int] = (0, 0)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1


CASES = (
    Case((2, 3, 9, 11), (4, 3, 3, 3), padding=(1, 1)),
    Case((3, 4, 7, 6), (6, 2, 2, 3), padding=(0, 2), groups=2),
    Case((2, 3, 10, 13), (5, 3, 3, 2), padding=(2, 1), stride=(2, 3), dilation=(2, 1)),
    Case((1, 6, 12, 8), (6, 1, 3, 5), padding=(3, 5), stride=(1, 2), dilation=(1, 2), groups=6),
    Case((4, 2, 5, 5), (3, 2, 5, 5)),
    Case((2, 5, 3, 4), (7, 5, 1, 1), stride=(2, 1)),
)


def put(cuda: Calls, values: torch.Tensor, layout: int = NCHW) -> object:
    """Device memory with a tensor, in this layout."""
    stored = values.permute(0, 2, 3, 1) if layout == NHWC else values
    return cuda.put(stored.reshape(-1).view(torch.uint8).numpy().tobytes())


def get(cuda: Calls, address: object, shape: tuple[int, ...], dtype: int, layout: int = NCHW) -> torch.Tensor:
    """What lies there, as a tensor in NCHW order."""
    stored = [shape[0], shape[2], shape[3], shape[1]] if layout == NHWC else list(shape)
    size = torch.Size(shape).numel() * BYTES[dtype]
    values = torch.frombuffer(bytearray(cuda.get(address, size)), dtype=TYPES[dtype]).reshape(stored)
    return values.permute(0, 3, 1, 2) if layout == NHWC else values


def truth(case: Case, x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor | None) -> list[torch.Tensor]:
    """y, and with dy also dx and dw, in float64."""
    x, w = (t.double().requires_grad_() for t in (x, w))
    y = torch.nn.functional.conv2d(x, w, None, case.stride, case.padding, case.dilation, case.groups)
    return [y.detach()] if dy is None else [y.detach(), *torch.autograd.grad(y, (x, w), dy.double())]


@functools.cache
def sample(case: Case, dtype: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x, w, dy, seeded."""
    torch.manual_seed(CASES.index(case))
    x, w = (torch.randn(shape, dtype=torch.float64).to(TYPES[dtype]) for shape in (case.x, case.w))
    return x, w, torch.randn_like(truth(case, x, w, None)[0]).to(TYPES[dtype])


def is_rounded(got: torch.Tensor, exact: torch.Tensor, dtype: int, units: float = 1.0) -> bool:
    """Whether every element is `exact`, rounded once (16-bit types through float32)."""
    bound = units * HALF_ULP[dtype] * exact.abs() + 2.0**-24 * (dtype == HALF) + 1e-13
    return bool((got.double() - exact).abs().le(bound).all())
