# SPDX-License-Identifier: MIT
"""Convolutions by Winograd, FFT, Strassen or split operands: named, allowed, and no hiding place for a bug."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from bridge.common.errors import FileError
from bridge.exchange.model import Conv2d
from bridge.judge.arithmetic import algorithm as recognition
from bridge.judge.arithmetic import samples
from bridge.judge.judge import Judgement, judge
from bridge.judge.oracle.algorithm import Algorithm, transposed, turned_kernels
from bridge.judge.oracle.algorithms import known
from bridge.judge.oracle.error_model import total_roundoff
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.fast_algorithms import PROGRAMS
from bridge.validate.self_test.healthy import NoLibrary
from bridge.validate.self_test.operations import Operations
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.candidates import ask
from tests.helpers.tiers import few_rows

Tensor = torch.Tensor
NAMED = {one.name: one for one in known()}
F4, F6 = NAMED["Winograd F(4x4)"], NAMED["Winograd F(6x6)"]
undiagnosed = partial(judge, diagnosing=False)
Array = np.ndarray
UNIT = total_roundoff("float32")


def net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(8, 1, 3, padding=1))


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("algorithms") / "fixture.h5"
    export(path, ExportSettings(height=40, width=36, batch=2, steps=2, model=net, threads=1, oracle_steps=1))
    return path


def by(algorithm: Algorithm) -> type[Operations]:
    """Convolutions and data gradients by an algorithm in float32."""

    class Fast(Operations):
        def conv(self, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
            z = torch.from_numpy(np.stack([algorithm.forward(one.numpy(), w.numpy(), layer) for one in x]))
            return z if b is None else z + b[:, None, None]

        def data_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
            turned, kernels = transposed(layer), turned_kernels(w.numpy(), layer.groups)
            assert turned is not None
            return torch.from_numpy(np.stack([algorithm.forward(one.numpy(), kernels, turned) for one in dz]))

    return Fast


def but(kind: type[Operations], **methods: Callable[..., Any]) -> type[Operations]:
    return type("Wrong", (kind,), methods)


EXACTLY_NAMED = ["Winograd F(4x4)", *(pytest.param(name, marks=pytest.mark.deep) for name in (
    "Winograd F(6x6)", "Winograd F(4x1)", "FFT, tiles of 16 x 16", "FFT of the whole image", "Strassen, 2 levels",
    "three bf16 products"))]


@pytest.mark.parametrize("name", EXACTLY_NAMED)
def test_each_is_named_and_right_where_it_is_allowed(fixture: Path, tmp_path: Path, name: str) -> None:
    result, algorithm = tmp_path / f"{name}.h5", NAMED[name]
    train(fixture, result, by(algorithm))
    found = undiagnosed(fixture, result).verdict
    assert found.exit_code == 3, (name, found.words)
    assert found.words.startswith("OTHER ALGORITHM than direct sums: the errors of ")
    assert found.algorithms[0].algorithm == algorithm and found.algorithms[0].digits > 0.1
    allowed = undiagnosed(fixture, result, allow=(algorithm.family,))
    assert allowed.verdict.exit_code == 0 and found.algorithms[0].name in allowed.verdict.words, name
    assert max(one.t for one in allowed.comparison.judged) <= 1


@pytest.mark.deep
def test_what_the_wider_bounds_hide_is_said(fixture: Path, tmp_path: Path) -> None:
    blind = {}
    for kind in (Operations, by(F6)):
        verdict = judge(fixture, train(fixture, tmp_path / f"{kind.__name__}.h5", kind), allow=("winograd",)).verdict
        assert verdict.exit_code == 0 and verdict.adequacy is not None
        blind[kind] = {sight.detail for sight in verdict.adequacy.blind}
    assert "TF32 operands" in blind.popitem()[1] - blind[Operations]


def test_a_part_of_a_large_image_is_enough(fixture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut out around the worst element, and what it makes is right but for the rounding of the algorithm."""
    monkeypatch.setattr(samples, "ALIGNED", 4)
    monkeypatch.setattr(samples, "LOOKED_AT", 8 * 20**2)
    seen = []
    taken = recognition.Errors.of
    monkeypatch.setattr(recognition.Errors, "of", lambda sample: seen.append(taken(sample)) or seen[-1])
    for name in ("Winograd F(4x4)", "Winograd F(6x6)", "FFT, tiles of 16 x 16"):
        result = train(fixture, tmp_path / "result.h5", by(NAMED[name]))
        found = undiagnosed(fixture, result).verdict
        assert found.exit_code == 3 and NAMED[name].family in (
            found.algorithms[0].algorithm.family, *found.algorithms[0].others), (name, found.words)
    starts = {(one.sample.inside[0].start, one.sample.inside[1].start) for one in seen}
    assert len(seen) > 10 and {0, 1} <= {start for both in starts for start in both}
    for one in seen:
        assert one.sample.x.shape[1:] <= (20, 20) and (np.abs(one.error) < 1e-4 * np.abs(one.absolute).max()).all()


@pytest.mark.deep
def test_a_declaration_allows_too(fixture: Path, tmp_path: Path) -> None:
    result = train(fixture, tmp_path / "result.h5", by(F4))
    for declared, code in (("fft, winograd", 0), ("fft", 3), ("direct", 3)):
        with h5py.File(result, "r+") as file:
            file.attrs["conv_algorithm"] = declared
        assert undiagnosed(fixture, result).verdict.exit_code == code, declared
    with h5py.File(result, "r+") as file:
        file.attrs["conv_algorithm"] = "quick"
    with pytest.raises(FileError, match="conv_algorithm: 'quick' found, expected some of winograd"):
        undiagnosed(fixture, result)


def test_pytorchs_own_fast_convolution_is_no_bug(tmp_path: Path) -> None:
    """NNPACK transforms batches of 16 and more."""
    if not torch._nnpack_available():
        pytest.skip("this PyTorch has no NNPACK")
    fixture, result = tmp_path / "fixture.h5", tmp_path / "result.h5"
    export(fixture, ExportSettings(height=40, width=36, batch=16, steps=1, model=net, threads=1, oracle_steps=1))
    train(fixture, result, NoLibrary)
    found = undiagnosed(fixture, result)
    assert found.comparison.failures and found.verdict.exit_code == 3, found.verdict.words
    assert found.verdict.algorithms[0].algorithm.family == "fft"


def forward(change: Callable[[Tensor], Tensor]) -> dict[str, Callable[..., Any]]:
    """The second convolution's output is changed."""
    def conv(self: Operations, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        z = by(F6).conv(self, layer, x, w, b)  # type: ignore[arg-type]
        return change(z) if layer.name == "2" else z

    return {"conv": conv}


def last(z: Tensor, factor: float) -> Tensor:
    z = z.clone()
    z[:, -1] *= factor
    return z


#: What is wrong, and a word of the explanation; empty where nothing is predicted
BUGS = (
    ("flipped", "grads/4/weight", "kernel_flipped", {
        "filter_gradient": lambda self, layer, dz, x, w: Operations.filter_gradient(self, layer, dz, x, w).flip(2, 3)}),
    ("no mask", "grads/2/output", "mask_missing", {"relu_backward": lambda self, name, da, z: da}),
    ("half", "grads/4/output", "factor_two", {
        "loss_gradient": lambda self, y, t: Operations.loss_gradient(self, y, t) / 2}),
    ("shift", "forward/2", "", forward(lambda z: z.roll(1, 3))),
    ("small", "forward/2", "", forward(lambda z: last(z, 1.0003))),
    ("one pixel", "forward/2", "", forward(lambda z: torch.cat([z[..., :-1], 1.001 * z[..., -1:]], 3))),
)


@pytest.mark.parametrize(("what", "name", "kind", "methods"), few_rows(BUGS, 3),
                         ids=lambda one: one if isinstance(one, str) else "")
def test_a_bug_under_a_fast_algorithm_is_a_bug(
    fixture: Path, tmp_path: Path, what: str, name: str, kind: str, methods: dict[str, Callable[..., Any]]
) -> None:
    """Although F(6x6,3x3) may lose three bits in four, and is allowed."""
    result = train(fixture, tmp_path / "result.h5", but(by(F6), **methods))
    found: Judgement = judge(fixture, result, diagnosing=bool(kind), adequacy=False, allow=("winograd",))
    assert found.verdict.exit_code == 1, (what, found.verdict.words)
    assert f"BUG: {name} of step 0" in found.verdict.words
    if kind:
        assert found.verdict.diagnosis is not None
        finding = next(one for one in found.verdict.diagnosis.findings if one.name == name)
        assert finding.explanations[0].kinds[0].key == kind


def test_a_factor_is_no_algorithm(fixture: Path, tmp_path: Path) -> None:
    """As large as errors of F(6x6,3x3), but a part of the right values."""
    wrong = but(Operations, conv=lambda self, layer, x, w, b: Operations.conv(self, layer, x, w, b) * (1 + 3e-6))
    found = undiagnosed(fixture, train(fixture, tmp_path / "result.h5", wrong)).verdict
    assert found.exit_code in (1, 4) and not found.algorithms, found.words


def test_a_layer_that_is_a_little_too_small_is_a_bug(fixture: Path, tmp_path: Path) -> None:
    """All its errors point toward zero, but those of the other layers do not: no program rounds like that."""
    wrong = but(Operations, conv=lambda self, layer, x, w, b: Operations.conv(self, layer, x, w, b) * (
        1 - 4e-7 * (layer.name == "0")))
    found = undiagnosed(fixture, train(fixture, tmp_path / "result.h5", wrong))
    assert max(one.t for one in found.comparison.judged) < 2 and found.verdict.exit_code == 1, found.verdict.words


def sampled(x: Array, w: Array, found: Array) -> recognition.Errors:
    """The errors of a convolution with a border of one pixel."""
    layer = Conv2d("one", len(x), len(w), (3, 3), padding=(1, 1))
    sample = recognition.Sample("forward/one", 0, layer, layer, x, w, np.zeros((len(w), 1, 1), np.float32), found,
                                *[(slice(None), slice(None))] * 2, 0, lambda: x[None])
    return recognition.Errors.of(sample)


def operands(seed: int, channels: int, size: int) -> tuple[Array, Array]:
    """An image of one channel, and filters that make so many of it."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((1, size, size)).astype(np.float32),
            rng.standard_normal((channels, 1, 3, 3)).astype(np.float32))


@pytest.mark.parametrize("seed", range(3))
def test_a_factor_is_no_algorithm_whatever_the_processor_rounds(seed: int) -> None:
    """Errors inside the bound of sums, of whichever size and order, and a factor that takes them outside."""
    x, w = operands(seed, 1, 24)
    right = sampled(x, w, np.zeros((1, 24, 24), np.float32))
    noise = np.random.default_rng(seed).uniform(-1, 1, right.right.shape) * 2.0**-24 * right.n * right.absolute
    for size in (0.1, 0.4):
        errors = sampled(x, w, (right.right * (1 - 6e-7) + size * noise).astype(np.float32))
        assert errors.alike(UNIT) == [] and errors._t(recognition.Direct("", ""), UNIT) > 1
    errors = sampled(x, w, F6.forward(x, w, right.sample.layer))
    assert errors._t(recognition.Direct("", ""), UNIT) > 1 and errors.alike(UNIT)[0].algorithm == F6


def by_fourier(x: Array, w: Array, side: int) -> Array:
    """By transforms of images of another size than the judge's."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    product = np.einsum("kcij,cij->kij", np.fft.rfft2(w, (side, side)).conj(), np.fft.rfft2(padded, (side, side)))
    return np.fft.irfft2(product.astype(np.complex64), (side, side))[:, : x.shape[1], : x.shape[2]].astype(np.float32)


@pytest.mark.parametrize(("channels", "size", "side"), [(2, 12, 15), (4, 12, 15), (8, 12, 15), (2, 20, 24)])
def test_fft_is_never_named_as_another_alone(channels: int, size: int, side: int) -> None:
    """Algorithms agree in part, since all round the same last digit: then their families are named together."""
    for seed in (2, 4):
        x, w = operands(seed, channels, size)
        alike = sampled(x, w, by_fourier(x, w, side)).alike(UNIT)
        assert "fft" in {one.algorithm.family for one in alike}
        assert alike[0].algorithm.family == "fft" or not alike[0].agrees, (seed, alike[0])


def test_what_only_follows_from_a_bug_is_no_algorithm(fixture: Path, tmp_path: Path) -> None:
    """The first convolution is wrong; the others are right by what they are given."""
    wrong = but(Operations, conv=lambda self, layer, x, w, b: Operations.conv(
        self, layer, x * (0.9997 if layer.name == "0" else 1), w, b))
    found = undiagnosed(fixture, train(fixture, tmp_path / "result.h5", wrong)).verdict
    assert found.exit_code == 1 and not found.algorithms, found.words


@pytest.mark.deep
def test_programs_that_share_nothing_with_the_judge(fixture: Path, tmp_path: Path) -> None:
    """Their errors are as those of the judge's algorithm, or of one that cannot be told from it at this size."""
    for name, kind in PROGRAMS.items():
        result = train(fixture, tmp_path / "result.h5", kind)
        found = undiagnosed(fixture, result).verdict
        assert found.exit_code == 3, (name, found.words)
        family = {"F": "fft", "W": "winograd", "S": "strassen", "t": "split"}[name[0]]
        (one,) = found.algorithms
        assert family in (one.algorithm.family, *one.others), (name, found.words)
        if name in ("Winograd F(4x4,3x3)", "Winograd F(6x6,3x3)", "three bf16 products"):
            assert one.name == name, found.words
        assert undiagnosed(fixture, result, allow=(family,)).verdict.exit_code == 0, name


def test_the_command(fixture: Path, tmp_path: Path) -> None:
    result = train(fixture, tmp_path / "result.h5", by(F4))
    named = ask(fixture, result, "--no-diagnosis", "--json", str(tmp_path / "out.json"))
    assert named.code == 3 and "--allow winograd" in " ".join(named.words.split())
    assert '"family": "winograd"' in (tmp_path / "out.json").read_text()
    assert ask(fixture, result, "--no-diagnosis", "--allow", "winograd").code == 0
    assert ask(fixture, result, "--no-diagnosis", "--allow", "fft").code == 3


class Compared:
    """A comparison in which the tensors with these names fail."""

    def __init__(self, *wrong: str) -> None:
        self.judged = [SimpleNamespace(name=name, step=0, passed=name not in wrong) for name in ("one", "two")]

    @property
    def failures(self) -> list[SimpleNamespace]:
        return [one for one in self.judged if not one.passed]


def test_the_algorithm_that_explains_most_convolutions_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the one that is most alike in the first: errors of few elements agree with some by chance."""
    likest, right = (recognition.Likeness(one, 0.1, ratio, 0.0) for one, ratio in ((F6, 1.0), (F4, 1.5)))
    seen: list[Any] = [SimpleNamespace(error=np.zeros(4), sample=SimpleNamespace(name=name, step=0),
                                       like=lambda one, u, name=name: name == "one" or one is F4)
                       for name in ("one", "two")]
    pair: Any = SimpleNamespace(u=2.0**-24, computed_by=lambda algorithm: algorithm)
    monkeypatch.setattr(recognition, "compare", lambda algorithm: Compared())
    for most in (1, 3):
        monkeypatch.setattr(recognition, "MOST_COMPARED", most)
        direct: Any = Compared("one", "two")
        found, compared = recognition._best(pair, direct, [likest, right], seen)
        assert found is right and not compared.failures


def test_images_that_are_computed_together_round_each_other(fixture: Path, tmp_path: Path) -> None:
    """A faint image beside a strong one has errors that by itself it would not have."""
    uneven = tmp_path / "uneven.h5"
    shutil.copy(fixture, uneven)
    with h5py.File(uneven, "r+") as file:
        for batch in file["batches"].values():
            batch["input"][0] *= np.float32(2.0**-6)
            batch["target"][0] *= np.float32(2.0**-6)
        del file["oracle"]
        for step in file["steps"].values():
            for name in set(step) - {"weights"}:
                del step[name]
    result = PROGRAMS["Strassen, two levels"]
    found = undiagnosed(uneven, train(uneven, tmp_path / "result.h5", result)).verdict
    assert found.exit_code == 3, found.words
    assert found.algorithms[0].algorithm.name == "Strassen, 2 levels, of the whole batch", found.words
