# SPDX-License-Identifier: MIT
"""Networks of several inputs, which lie in one array: beside torch, in files, and judged."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge.engine.arrays.transfer import to_device, to_host
from bridge.engine.library import extension
from bridge.exchange.model_groups import read_model
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from reference.cli import main
from reference.errors import InputError
from reference.export import export
from reference.inputs import Inputs
from reference.settings import ExportSettings

LR, CLOSE = 0.125, {"float32": 2e-6, "float64": 1e-14}


class Diffusion(nn.Module):
    """A denoiser that is told the time of each image, and perhaps what it is to look like."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.of_time = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(5, 1, 3, padding=1), nn.Linear(
            3, 4)

    def forward(self, noisy: torch.Tensor, t: torch.Tensor, wanted: torch.Tensor | None = None) -> torch.Tensor:
        waves = torch.tanh(t[:, None] * torch.arange(1, 4, dtype=t.dtype))
        y = self.first(noisy) + self.of_time(waves)[:, :, None, None]
        return self.last(torch.cat([y.relu(), noisy if wanted is None else wanted], 1))


class Score(nn.Module):
    """One number for a pair, without a dimension of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 2), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (self.one(x) * self.other(y)).sum(-1, keepdim=True).squeeze(-1)


class Guided(nn.Module):
    """A denoiser that is told words and a class for each image, which are integers."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.classes = nn.Embedding(7, 4), nn.Embedding(5, 4, padding_idx=0)
        self.first, self.last = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 1, 1)

    def forward(self, noisy: torch.Tensor, words: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        told = self.words(words).mean(1) + self.classes(kind)
        return self.last(torch.tanh(self.first(noisy) + told[:, :, None, None]))


WORDS = {"noisy": np.linspace(-1, 1, 60, dtype=np.float32).reshape(2, 1, 5, 6),
         "words": np.array([[3, 6, 3], [0, 1, 5]]), "kind": np.array([4, 0], np.uint8)}


SHAPES = {"noisy": (2, 1, 5, 6), "t": (2,), "wanted": (2, 1, 5, 6)}
GIVEN: dict[str, tuple[type[nn.Module], Any]] = {
    "by names": (Diffusion, {name: SHAPES[name] for name in ("t", "noisy")}),
    "in order": (Diffusion, list(SHAPES.values())),
    "rows": (Score, ((2, 3), (2, 4))),
}


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("name", GIVEN)
def test_outputs_gradients_and_a_step_are_torchs(name: str, device: str, dtype: str) -> None:
    torch.manual_seed(0)
    make, example = GIVEN[name]
    module: nn.Module = make().to(getattr(torch, dtype))
    net = bridge.Network.from_torch(copy.deepcopy(module), example=example, device=device)
    assert net.inputs is not None
    given = {name: torch.randn(3, *shape, dtype=getattr(torch, dtype), requires_grad=True)
             for name, shape in zip(net.inputs.names, net.inputs.shapes, strict=True)}
    y = module(**given)
    target = torch.randn_like(y)
    nn.functional.mse_loss(y, target).backward()
    arrays: Any = {name: one.detach().numpy() for name, one in given.items()}
    if not device.startswith("cpu"):
        arrays = to_device(net.inputs.packed(arrays), net.device)
    elif name != "by names":
        arrays = list(arrays.values())
    goal = to_device(target.numpy(), net.device)
    np.testing.assert_allclose(to_host(net.forward(arrays)), y.detach().numpy(), 0, CLOSE[dtype])
    net.loss(goal)
    for name, found in net.inputs.parts(to_host(net.backward())).items():
        of = given[name].grad
        assert of is not None
        np.testing.assert_allclose(found, of.numpy(), 0, CLOSE[dtype])
    torch.optim.SGD(module.parameters(), LR).step()
    net.step(arrays, goal, lr=LR)
    trained = net.to_torch()
    assert type(trained) is make
    for mine, its in zip(trained.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=CLOSE[dtype])
    assert trained(**given).shape == y.shape


@pytest.mark.parametrize("dtype", CLOSE)
def test_integers_lie_among_real_numbers(device: str, dtype: str) -> None:
    """Of which it is found out where the example has shapes alone."""
    torch.manual_seed(0)
    module = Guided().to(getattr(torch, dtype))
    given = {name: torch.from_numpy(one).to(getattr(torch, dtype) if name == "noisy" else torch.int64)
             for name, one in WORDS.items()}
    target = torch.randn(2, 1, 5, 6, dtype=getattr(torch, dtype))
    examples: list[Any] = [WORDS, list(given.values()), {name: one.shape for name, one in WORDS.items()}]
    for net in [bridge.Network.from_torch(copy.deepcopy(module), example=one, device=device) for one in examples]:
        assert net.inputs is not None and "aten" not in {layer.kind for layer in net.model.layers}
        arrays: Any = {**WORDS, "noisy": WORDS["noisy"].astype(dtype)}
        if not device.startswith("cpu"):
            arrays = to_device(net.inputs.packed({name: one.astype(dtype) for name, one in arrays.items()}), net.device)
        twin = copy.deepcopy(module)
        loss = nn.functional.mse_loss(twin(**given), target)
        loss.backward()
        torch.optim.SGD(twin.parameters(), LR).step()
        assert net.step(arrays, to_device(target.numpy(), net.device), lr=LR) == pytest.approx(loss.item(), rel=1e-5)
        trained = net.to_torch()
        for mine, its in zip(trained.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(mine, its, rtol=0, atol=CLOSE[dtype])
        assert trained(**given).shape == target.shape


def test_integers_that_no_real_number_is_are_refused() -> None:
    net = bridge.Network.from_torch(Guided(), example=WORDS)
    with pytest.raises(bridge.ArgumentError, match="input 'words': whole numbers from 1 to 16777217, expected at most"):
        net.forward({**WORDS, "words": np.array([[1, 2, 2**24 + 1]] * 2)})
    with pytest.raises(bridge.BridgeError, match=r"layer words .*: number 4 of its input is 7, expected a whole"):
        net.forward({**WORDS, "words": np.array([[1, 2, 3], [7, 0, 0]])})


@pytest.mark.parametrize(("example", "why"), [
    ([(2, 3)], "missing"), ({"x": (2, 3), "z": (2, 4)}, r"2 inputs \(x, z\), expected those that forward takes: x, y"),
    ([(2, 3), (2, 4), (2, 1)], "3 inputs"), ([(2, 3), (3, 4)], "the same n of each"), ([(2, 3), ()], "the same n"),
    ((2, 3), r"a second input, 'y'.*example=\[\.\.\.\]")])
def test_an_example_that_does_not_fit_is_refused(example: Any, why: str) -> None:
    with pytest.raises(bridge.ArgumentError, match=why):
        bridge.Network.from_torch(Score(), example=example)


@pytest.mark.parametrize(("given", "why"), [
    ([np.zeros((2, 3))], "y missing and none unknown"), ({"x": np.zeros((2, 3)), "z": 1}, "y missing and z unknown"),
    ([np.zeros((2, 3)), np.zeros((3, 4))], r"input 'y': shape \(3, 4\), expected \(2, 4\)"),
    ([np.zeros((2, 3)), 4.0], r"input 'y': shape \(\)"), ([np.zeros((2, 3))] * 3, "none missing and 2 unknown"),
    (np.zeros((2, 6), np.float32), r"input: shape \(2, 6\), expected \(n, 7\), or several: x, y")])
def test_arrays_that_do_not_fit_are_refused(given: Any, why: str) -> None:
    net = bridge.Network.from_torch(Score(), example=GIVEN["rows"][1])
    with pytest.raises(bridge.BridgeError, match=why):
        net.forward(given)


def batch(seed: int = 0, width: int = 6) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {"noisy": draw.standard_normal((2, 1, 5, width)), "t": draw.random(2)}


def test_a_fixture_has_them_and_a_step_is_right(tmp_path: Path, device: str) -> None:
    """From arrays in memory and from npz files, the same; a mistake in what one input gets back is seen."""
    wanted = np.random.default_rng(9).standard_normal((2, 1, 5, 6))
    fixture, other, result = (tmp_path / name for name in ("f.h5", "other.h5", "r.h5"))
    export(fixture, ExportSettings(model=Diffusion, input=[batch(0), batch(1)], target=wanted))
    folder = tmp_path / "batches"
    folder.mkdir()
    for k in range(2):
        np.savez(folder / f"{k}.npz", **batch(k))  # type: ignore[arg-type]
    np.save(tmp_path / "target.npy", wanted)
    assert main([str(other), "--input", str(folder), "--target", str(tmp_path / "target.npy"),
                 "--model", f"{__name__}:Diffusion"]) == 0
    with h5py.File(fixture) as one, h5py.File(other) as two:
        inputs = Inputs(("noisy", "t"), ((1, 5, 6), ()))
        assert one["model"].attrs["inputs"] == two["model"].attrs["inputs"] == inputs.text == "noisy=1,5,6 t="
        for k in range(2):
            packed = one[f"batches/{k}/input"][()]
            assert np.array_equal(packed, two[f"batches/{k}/input"][()])
            for name, array in inputs.parts(packed).items():
                assert np.array_equal(array, batch(k)[name].astype(np.float32))
    extension.run_file(fixture, result, device)
    assert judge(fixture, result, diagnosing=False).verdict.outcome is Outcome.ROUNDING
    with h5py.File(result, "r+") as file:
        assert read_model(file["model"]).inputs == inputs.text
        file["steps/0/grads/input"][:, -1] *= 1.001
    verdict = judge(fixture, result, diagnosing=False, adequacy=False).verdict
    assert verdict.outcome is Outcome.BUG and "grads/input" in verdict.words


def test_a_fixture_with_integers_is_judged(tmp_path: Path, device: str) -> None:
    """A table whose third row, which is not taken, gets the second one's gradient is a bug."""
    fixture, result = tmp_path / "f.h5", tmp_path / "r.h5"
    export(fixture, ExportSettings(model=Guided, input=[WORDS, {**WORDS, "kind": np.array([1, 2])}],
                                   target=np.zeros((2, 1, 5, 6))))
    extension.run_file(fixture, result, device)
    assert judge(fixture, result, diagnosing=False).verdict.outcome is Outcome.ROUNDING
    with h5py.File(result, "r+") as file:
        rows = file["steps/0/grads/words/weight"][()]
        file["steps/0/grads/words/weight"][...] = rows[[0, 1, 1, 3, 4, 5, 6]]
    verdict = judge(fixture, result, diagnosing=False, adequacy=False).verdict
    assert verdict.outcome is Outcome.BUG and "grads/words/weight" in verdict.words


@pytest.mark.parametrize(("given", "target", "why"), [
    ({"noisy": batch()["noisy"], "time": np.zeros(2)}, 0, r"2 inputs \(noisy, time\), expected those that forward"),
    ({}, 0, "no array found"), (batch(), batch(), "target: arrays by names"),
    ([batch(), batch(width=5)], 0, r"input 1: input 'noisy': shape \(2, 1, 5, 5\), expected \(2, 1, 5, 6\)"),
    ([batch(), np.zeros((2, 31))], 0, "input 1: one array, expected noisy, t, as in the first"),
    ({**batch(), "t": np.array([np.nan, 0])}, 0, "input, t: holds NaN")])
def test_batches_that_do_not_fit_are_refused(given: Any, target: Any, why: str, tmp_path: Path) -> None:
    goal = target if isinstance(target, Mapping) else np.zeros((2, 1, 5, 6))
    with pytest.raises(InputError, match=why):
        export(tmp_path / "f.h5", ExportSettings(model=Diffusion, input=given, target=goal))
    assert not list(tmp_path.iterdir())


def test_a_saved_network_takes_them_by_name(tmp_path: Path) -> None:
    """As the one that was read does; a file that names something else is refused."""
    net = bridge.Network.from_torch(Diffusion(), example=GIVEN["by names"][1])
    net.save(tmp_path / "net.h5")
    again = bridge.Network.from_file(tmp_path / "net.h5")
    given = {name: one.astype(np.float32) for name, one in batch().items()}
    assert again.inputs == net.inputs and np.array_equal(again.forward(given), net.forward(given))
    for text in ("noisy=1,5,6 t", "=3", "noisy=0", "t= t=", "noisy=1,,6", "1"):
        with h5py.File(tmp_path / "net.h5", "r+") as file:
            file["model"].attrs["inputs"] = text
        with pytest.raises(bridge.FileError, match=r"net\.h5: model: inputs: .*expected names"):
            bridge.Network.from_file(tmp_path / "net.h5")
    with h5py.File(tmp_path / "net.h5", "r+") as file:
        file["model"].attrs["inputs"] = 3.0
    with pytest.raises(bridge.FileError, match=r"model: inputs are 3\.0, expected a text"):
        bridge.Network.from_file(tmp_path / "net.h5")


def test_more_numbers_than_an_image_of_256_pixels_a_side_has() -> None:
    """65536 was once the largest integer of a hyperparameter."""
    net = bridge.Network.from_torch(Diffusion(), example={"noisy": (1, 1, 257, 256), "t": (1,)})
    packed = np.random.default_rng(0).standard_normal((1, 257 * 256 + 1)).astype(np.float32)
    later = packed.copy()
    later[0, -1] += 1
    assert net.forward(packed).shape == (1, 1, 257, 256)
    assert not np.array_equal(net.forward(packed), net.forward(later))


class Both(nn.Sequential):
    """Runs all modules that it has, on the sum of two inputs."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found = x + y
        for one in self.children():
            found = one(found)
        return found


def test_who_runs_all_its_modules_does_not_run_the_parts_of_its_inputs() -> None:
    """A narrower output than torch's was read of a Sequential of one input in a list."""
    x, y = torch.randn(2, 4, 3)
    for kind, given in ((nn.Sequential, [x]), (Both, [x, y])):
        module = kind(nn.Linear(3, 5), nn.Tanh())
        net = bridge.Network.from_torch(module, example=[tuple(one.shape) for one in given])
        found = net.forward([one.numpy() for one in given])
        assert found == pytest.approx(module(*given).detach().numpy(), rel=1e-6, abs=1e-6)
