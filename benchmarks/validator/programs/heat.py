# SPDX-License-Identifier: MIT
"""examples/13_heat in small, and mistakes in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fft, nn
from torch.nn import functional

from benchmarks.validator.programs.mistakes import Mistake, Program, every, of_weights, right, with_gradient
from bridge.validate.self_test.graph_candidate import GraphOperations, replaced
from reference.settings import ExportSettings

Tensor = torch.Tensor
SIDE, WIDTH, MODES, BATCH = 8, 3, 2, 3


class Spectral(nn.Module):
    """The lowest frequencies of both signs, mixed by complex matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = (nn.Parameter(torch.randn(WIDTH, WIDTH, MODES, MODES, dtype=torch.cfloat) / WIDTH)
                               for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        found = fft.rfft2(x)
        y = torch.zeros_like(found)
        y[:, :, :MODES, :MODES] = torch.einsum("bixy,ioxy->boxy", found[:, :, :MODES, :MODES], self.low)
        y[:, :, -MODES:, :MODES] = torch.einsum("bixy,ioxy->boxy", found[:, :, -MODES:, :MODES], self.high)
        return fft.irfft2(y, s=x.shape[2:])


class Operator(nn.Module):
    """Temperature and diffusivity to the temperature a time later."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Conv2d(2, WIDTH, 1), nn.Conv2d(WIDTH, 1, 1)
        self.spectral, self.local = Spectral(), nn.Conv2d(WIDTH, WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(x)
        found: Tensor = x[:, :1] + self.down(functional.gelu(self.spectral(y) + self.local(y)))
        return found


def settings() -> ExportSettings:
    """Two batches of random fields."""
    return ExportSettings(model=Operator, shape=(2, SIDE, SIDE), batch=BATCH, steps=2, optimizer="adam", lr=1e-2,
                          threads=1)


def mixed(formula: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """A product of complex tensors (n, in, places) and (in, out, places) by another formula."""
    def forward(_: GraphOperations, node: Any, inputs: list[Tensor], p: dict[str, Tensor]) -> Tensor:
        x, w = (torch.view_as_complex(one.contiguous()) for one in (inputs[0], p["weight"]))
        return torch.view_as_real(formula(x, w).resolve_conj())

    return every("complex_linear", forward)


def without_conjugate(_: GraphOperations, node: Any, inputs: list[Tensor], p: dict[str, Tensor]) -> Tensor:
    """A derivative by the formula of real numbers."""
    def formula(dy: Tensor, *of: Tensor) -> tuple[Tensor, Tensor]:
        dy, x, w = (torch.view_as_complex(one.contiguous()) for one in (dy, *of))
        return (torch.view_as_real(torch.einsum("nop,iop->nip", dy, w)),
                torch.view_as_real(torch.einsum("nip,nop->iop", x, dy)))

    return with_gradient(right(node, inputs, p), formula, inputs[0], p["weight"])


def scaled(factor: float) -> Any:
    """Transforms back that are multiplied."""
    return every("linear", lambda self, node, inputs, p: right(node, inputs, p) * (
        factor if node.name.endswith("irfft2_linear_1") else 1.0))


MISTAKES = (
    Mistake("The conjugate of the weight is taken", mixed(lambda x, w: torch.einsum("nip,iop->nop", x, w.conj())),
            "forward/spectral.low",
            said="the conjugate of the weight"),
    Mistake("The channels of the weight are exchanged", mixed(lambda x, w: torch.einsum("nip,oip->nop", x, w)),
            "forward/spectral.low",
            said="input and output channels exchanged"),
    Mistake("The imaginary part of the weight is left out", mixed(
        lambda x, w: torch.einsum("nip,iop->nop", x, w.real + 0j)), "forward/spectral.low",
            said="the weight without its imaginary part"),
    Mistake("Real and imaginary parts of the weight are exchanged", of_weights("complex_linear", lambda w: w.flip(3)),
            "forward/spectral.low",
            said="real and imaginary parts of the weight exchanged"),
    Mistake("The frequencies of the weight lie down the columns", of_weights("complex_linear", lambda w: w.unflatten(
        2, (MODES, MODES)).transpose(2, 3).flatten(2, 3)), "forward/spectral.low",
            said="the weight with its rows in reverse order"),
    Mistake("The gradient is that of real numbers, without conjugates", every("complex_linear", without_conjugate),
            "grads/spectral.high/weight",
            said="the conjugate of the input"),
    Mistake("The transform back is not divided by the width", scaled(SIDE), "forward/spectral.fft_irfft2_linear_1",
            said="times 8"),
    Mistake("The transform back is divided by its root alone", scaled(SIDE**0.5),
            "forward/spectral.fft_irfft2_linear_1",
            said="times 2.828"),
    Mistake("GELU is the one by the tangent, not the exact one", every(
        "gelu", lambda self, node, inputs, p: functional.gelu(inputs[0], approximate="tanh")), "forward/gelu",
            said="gelu_tanh in place of gelu"),
    Mistake("The weights of the negative frequencies are not learned", replaced(update=lambda self, name, w, g: (
        w if name == "spectral.high/weight" else GraphOperations.update(self, name, w, g))),
        "optimizer/spectral.high/weight",
            said="not updated"),
)


def program() -> Program:
    """Return the program."""
    return Program("heat", settings(), MISTAKES)
