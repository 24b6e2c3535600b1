# SPDX-License-Identifier: MIT
"""Layers that learn in the frequencies of Fourier transforms, and complex numbers: read, trained in Fortran, judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import fft, nn

import bridge
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.operations import ComplexLinear, Operation
from bridge.validate.self_test.graph_candidate import GraphOperations, train_graph
from reference.errors import InputError
from reference.export import export
from reference.network.aten.complex import fourier
from reference.network.aten.writing import UnsupportedError
from reference.network.layers import to_type
from reference.settings import ExportSettings
from tests.helpers.networks.beside_torch import assert_caught, assert_right, train_beside

#: Of an input (n, 4, 6), behind a linear layer
SHAPE = (2, 4, 6)


class Frequencies(nn.Module):
    """What a function makes of a linear layer's output and of parameters, complex ones among them."""

    def __init__(self, function: Callable[..., torch.Tensor], *shapes: tuple[int, ...], real: bool = False) -> None:
        super().__init__()
        self.first, self.function = nn.Linear(6, 6), function
        self.weights = nn.ParameterList(torch.randn(shape, dtype=None if real else torch.complex64) for shape in shapes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.first(x), *self.weights)


def mixed(equation: str) -> Callable[..., torch.Tensor]:
    """What frequencies of 6 numbers become by an equation of torch.einsum."""
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        given = [fft.rfft(x), w]
        return fft.irfft(torch.einsum(equation, given[::-1] if equation[0] != "b" else given), n=6)

    return function


def written(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Frequencies into zeros, at both ends and twice at one place."""
    y = torch.zeros(x.shape[0], 4, 4, dtype=torch.cfloat if x.dtype == torch.float32 else torch.cdouble)
    y[:, :2, :2] = fft.rfft2(x)[:, :2, :2] * w
    y[:, -2:, :2] = fft.rfft2(x)[:, -2:, :2]
    y[:, 1:2] = fft.rfft(x)[:, 1:2].conj()
    y[:, :, 3] = 0.5 * fft.rfft(x)[:, :, 1]
    return fft.irfft2(y, s=(4, 6))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], set[str]]] = {
    "a filter": (lambda: Frequencies(lambda x, w: fft.irfft(fft.rfft(x) * w, n=6), (4,)), {"parameter", "multiply"}),
    "a filter of pairs": (lambda: Frequencies(lambda x, w: fft.irfft2(fft.rfft2(
        x, norm="ortho") * torch.view_as_complex(w), norm="ortho"), (4, 4, 2), real=True), {"parameter", "multiply"}),
    "of complex numbers": (lambda: Frequencies(lambda x, w: fft.ifft(fft.fft(x, norm="forward") * w).real, (6,)),
                           set()),
    "channels": (lambda: Frequencies(mixed("bix,iox->box"), (4, 5, 4)), {"complex_linear"}),
    "weights first": (lambda: Frequencies(mixed("iox,bix->box"), (4, 5, 4)), {"complex_linear"}),
    "outputs first": (lambda: Frequencies(mixed("bix,oix->box"), (5, 4, 4)), {"matmul"}),
    "each by itself": (lambda: Frequencies(mixed("bix,ix->bix"), (4, 4)), {"matmul"}),
    "few of them": (lambda: Frequencies(lambda x: fft.irfft(fft.rfft(x, dim=1)[:, 1:3], n=5, dim=1)), set()),
    "no weights": (lambda: Frequencies(lambda x: fft.fft(fft.fft(x, dim=-1), dim=-2).real), set()),
    "shifted": (lambda: Frequencies(lambda x: fft.ifftshift(fft.fftshift(fft.fft(x), dim=1), dim=(1, 2)).imag),
                {"roll"}),
    "of several": (lambda: Frequencies(lambda x: fft.irfftn(fft.rfftn(x, dim=(1, 2)), s=(3, 7), dim=(1, 2))), set()),
    "longer": (lambda: Frequencies(lambda x: fft.irfft(1j * fft.rfft(x, n=8) - fft.rfft(x, n=8), n=8)), set()),
    "shorter": (lambda: Frequencies(lambda x: fft.irfft(fft.rfft(x, n=4), n=4)), set()),
    "power": (lambda: Frequencies(lambda x: (fft.rfft(x) * fft.rfft(x).conj()).real), {"multiply"}),
    "parts": (lambda: Frequencies(lambda x: torch.cat([fft.rfft(x).real, fft.rfft(x).imag, torch.view_as_real(
        fft.rfft(x)).sum(-1)], 2)), {"concat"}),
    "made of parts": (lambda: Frequencies(lambda x: fft.irfft(torch.complex(x[..., :3], x[..., 3:]), n=4)), set()),
    "moved": (lambda: Frequencies(lambda x: torch.view_as_real(torch.stack([*fft.rfft(x).transpose(1, 2).flip(
        1).unsqueeze(1).chunk(2, 3)], 1).mean((1, 2)).reshape(x.shape[0], 8) / 3)), set()),
    "written": (lambda: Frequencies(written, (2, 2)), set()),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NETWORKS)
def test_three_steps_are_torchs(name: str, device: str, dtype: str) -> None:
    """And the module comes back with its complex numbers."""
    torch.manual_seed(0)
    make, expected = NETWORKS[name]
    module = to_type(make(), getattr(torch, dtype))
    kinds = {layer.kind for layer in bridge.Network.from_torch(module, example=SHAPE).model.layers}
    assert expected <= kinds and "aten" not in kinds
    trained = train_beside(module, SHAPE, device, dtype)
    assert [one.dtype for one in trained.parameters()] == [one.dtype for one in module.parameters()]
    assert trained(torch.randn(SHAPE, dtype=getattr(torch, dtype))).shape[0] == SHAPE[0]


class Spectral(nn.Module):
    """The layer of Fourier neural operators, as their authors' code has it: few frequencies of both signs."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        self.low, self.high = (nn.Parameter(torch.rand(width, width, modes, modes, dtype=torch.cfloat) / width**2)
                               for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        m, found = self.modes, fft.rfft2(x)
        y = torch.zeros(*x.shape[:2], x.shape[2], x.shape[3] // 2 + 1, dtype=found.dtype)
        y[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", found[:, :, :m, :m], self.low)
        y[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", found[:, :, -m:, :m], self.high)
        return fft.irfft2(y, s=x.shape[2:])


class Neural(nn.Module):
    """A Fourier neural operator of images (n, 1, 16, 12)."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Conv2d(1, 6, 1), nn.Conv2d(6, 1, 1)
        self.spectral = nn.ModuleList(Spectral(6, 3) for _ in range(2))
        self.local = nn.ModuleList(nn.Conv2d(6, 6, 1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.up(x)
        for spectral, local in zip(self.spectral, self.local, strict=True):
            x = nn.functional.gelu(spectral(x) + local(x))
        found: torch.Tensor = self.down(x)
        return found


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of it."""
    return export(tmp_path_factory.mktemp("fourier") / "fixture.h5", ExportSettings(
        model=Neural, shape=(1, 16, 12), batch=2, steps=2, lr=0.1, threads=1)).path


def test_only_the_frequencies_that_are_taken_are_computed() -> None:
    net = bridge.Network.from_torch(Neural(), example=(2, 1, 16, 12))
    assert max(np.prod(one) for one in net.model.output_shapes((2, 1, 16, 12))) == 2 * 6 * 16 * 12


def test_an_operator_is_judged_right(fixture: Path, tmp_path: Path, device: str) -> None:
    assert_right(fixture, tmp_path / "result.h5", device)


@pytest.mark.parametrize("name", ["grads/spectral.0.low/weight", "forward/gelu"])
def test_an_error_of_a_thousandth_is_caught(fixture: Path, tmp_path: Path, name: str) -> None:
    def wrong(array: np.ndarray) -> np.ndarray:
        found: np.ndarray = array.copy()
        found.flat[1::7] *= 1.001
        return found

    assert_caught(fixture, tmp_path / "result.h5", name, wrong)


def fast(node: Operation, inputs: list[torch.Tensor], parameters: dict[str, torch.Tensor]) -> torch.Tensor | None:
    """torch's fast transform in the place of a product with its matrix; None of other layers."""
    if not node.name.endswith(("rfft2_linear", "rfft2_1_linear")) or "irfft" in node.name:
        return None
    found = torch.view_as_real(fft.rfft(inputs[0])).transpose(-1, -2)
    return found[..., :parameters["weight"].shape[0] // 2].flatten(-2)


def test_a_fast_transform_is_right(fixture: Path, tmp_path: Path) -> None:
    """It rounds otherwise than the product with a matrix, whose numbers are rounded, too."""
    used = []

    class Fast(GraphOperations):
        def forward(self, node: Operation, inputs: list[torch.Tensor], parameters: dict[str, torch.Tensor]
                    ) -> torch.Tensor:
            found = fast(node, inputs, parameters)
            used.append(found is not None)
            return super().forward(node, inputs, parameters) if found is None else found

    result = train_graph(fixture, tmp_path / "result.h5", Fast)
    with h5py.File(result, "r+") as file:
        # Such a program has no matrices
        for step in [one for one in file["steps"].values() if "grads" in one]:
            for name in [one for one in step["grads"] if one.endswith(("_linear", "_linear_1"))]:
                del step[f"grads/{name}/weight"]
    _, verdict = judge(fixture, result, diagnosing=False)
    assert any(used) and verdict.outcome is Outcome.ROUNDING, verdict.words


MISTAKES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "the conjugate of the weight": lambda x, w: torch.einsum("nip,iop->nop", x, w.conj()),
    "the conjugate of the input": lambda x, w: torch.einsum("nip,iop->nop", x.conj(), w),
    "the weight transposed": lambda x, w: torch.einsum("nip,oip->nop", x, w),
    "its real part alone": lambda x, w: torch.einsum("nip,iop->nop", x, w.real + 0j),
    "places in another order": lambda x, w: torch.einsum("nip,iop->nop", x, w.flip(2)),
    "no gradient of the input": lambda x, w: torch.einsum("nip,iop->nop", x.detach(), w),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_product_is_caught(fixture: Path, tmp_path: Path, name: str) -> None:
    class Wrong(GraphOperations):
        def forward(self, node: Operation, inputs: list[torch.Tensor], parameters: dict[str, torch.Tensor]
                    ) -> torch.Tensor:
            if node.kind != "complex_linear":
                return super().forward(node, inputs, parameters)
            x, w = (torch.view_as_complex(one.contiguous()) for one in (inputs[0], parameters["weight"]))
            return torch.view_as_real(MISTAKES[name](x, w).resolve_conj())

    _, verdict = judge(fixture, train_graph(fixture, tmp_path / "result.h5", Wrong))
    assert verdict.outcome is Outcome.BUG, verdict.words
    assert ("grads/spectral.1." if name == "no gradient of the input" else "forward/spectral.0.low") in verdict.words


@pytest.mark.parametrize(("function", "why"), [
    (lambda x: fft.rfft(x).abs(), r"complex numbers: abs \(.*there is no such rule"),
    (lambda x: fft.rfft(x), "the model gives complex numbers"),
    (lambda x: fft.fft(x, dim=0).real, "a Fourier transform over the images"),
    (lambda x: torch.view_as_real(1 / (fft.rfft(x) + 2)), "complex numbers: ")])
def test_what_is_not_read_is_named(function: Any, why: str) -> None:
    with pytest.raises(bridge.ArgumentError, match=why):
        bridge.Network.from_torch(Frequencies(function), example=SHAPE)


def test_a_transform_of_many_numbers_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="a Fourier transform of 8192 numbers, whose matrix has more than"):
        fourier.matrix(8192, 8192, False, 0.0)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 12])
@pytest.mark.parametrize("given", [1, 3, 6, 7])
def test_matrices_are_torchs_transforms(given: int, n: int) -> None:
    x = torch.randn(given, dtype=torch.complex128)
    for norm in ("backward", "ortho", "forward"):
        for inverse, torchs in ((False, fft.fft), (True, fft.ifft)):
            found = fourier.matrix(given, n, inverse, fourier.power(norm, inverse)) @ x.numpy()
            np.testing.assert_allclose(found, torchs(x, n=n, norm=norm).numpy(), 0, 1e-14)
        real = fourier.to_real(given, n, fourier.power(norm, True))
        found = np.einsum("nkp,kp->n", real, torch.view_as_real(x).numpy())
        np.testing.assert_allclose(found, fft.irfft(x, n=n, norm=norm).numpy(), 0, 1e-14)


def test_a_layer_takes_pairs() -> None:
    node = ComplexLinear("it", 3, 2, 4)
    for shape in ((2, 3, 4), (2, 3, 4, 3), (2, 2, 4, 2), (2, 3, 5, 2)):
        with pytest.raises(bridge.FileError, match=r"it \(complex_linear\): input .* expected a shape \(n, 3, 4, 2\)"):
            node.output_shape(shape)


def test_an_export_of_complex_numbers_keeps_their_imaginary_parts(tmp_path: Path) -> None:
    """In float64, too; torch itself drops them when a module is made float64."""
    for precision in ("float32", "float64"):
        path = export(tmp_path / f"{precision}.h5", ExportSettings(
            model=Neural, shape=(1, 16, 12), batch=2, steps=1, precision=precision, threads=1)).path
        with h5py.File(path) as file:
            weight = file["steps/0/weights/spectral.0.low/weight"][()]
        assert weight.dtype == precision and weight[..., 1].std() > 0.1 * weight[..., 0].std()


def test_a_model_that_gives_complex_numbers_is_refused_by_the_export(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="complex"):
        export(tmp_path / "f.h5", ExportSettings(
            model=lambda: Frequencies(lambda x: fft.rfft(x)), shape=(4, 6), batch=2))
