# SPDX-License-Identifier: MIT
"""``cnn_step`` on networks that are no chains: right results, and one clear line for what it cannot run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from bridge.common.errors import FileError
from bridge.engine.library.programs import cnn_step
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.operations import OPERATIONS
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.networks.moves import OF_OWN_TESTS
from tests.helpers.tiers import deep
from tests.helpers.torch_graphs import (
    Activations,
    Attention,
    Denoiser,
    Dropped,
    Evaluated,
    Everything,
    Gated,
    Kan,
    Mlp,
    Normalised,
    Pooled,
    Reduced,
    Resized,
    Resnet,
    Segmenter,
    Unet,
)

SETTINGS = {"height": 12, "width": 10, "batch": 3, "steps": 2, "momentum": 0.5}

class Branches(nn.Module):
    """Outputs that several layers take, one that a layer takes twice, and one channel that is added to each of four."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(1, 4, 3, padding=1)
        self.narrow = nn.Conv2d(4, 1, (1, 3), padding=(0, 1), bias=False)
        self.last = nn.Conv2d(4, 2, 3, stride=2, groups=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.wide(x)
        two = functional.relu(one) + one
        return self.last(two + two + self.narrow(two) + x)


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("graphs")
    return [export(folder / f"{network.__name__}.h5", ExportSettings(model=network, **SETTINGS)).path
            for network in (Denoiser, Branches)]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "everything.h5"
    export(path, ExportSettings(model=Everything, **SETTINGS | {"height": 8}))
    return path


#: Each once, by turns in either precision; or all in both
EACH_OR_ALL = pytest.mark.parametrize("every", [False, deep(True)])


def precisions(number: int, every: bool) -> tuple[str, ...]:
    both = ("float32", "float64")
    return both if every else both[number % 2:][:1]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([cnn_step(), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)


def tensors(path: Path) -> set[str]:
    found = set()
    with h5py.File(path) as file:
        file["steps"].visititems(lambda name, item: found.add(name) if isinstance(item, h5py.Dataset) else None)
    return found


def kinds(path: Path) -> set[str]:
    with h5py.File(path) as file:
        return {layer.attrs["type"] for layer in file["model/layers"].values()}


def test_results_are_right(fixtures: list[Path], tmp_path: Path) -> None:
    for fixture in fixtures:
        for options in (["--precision", "float32"], ["--precision", "float64"], ["--device", "naive"]):
            result = tmp_path / "r.h5"
            done = run(fixture, result, *options)
            assert (done.returncode, done.stderr) == (0, "")
            assert tensors(result) == tensors(fixture)
            comparison, verdict = judge(fixture, result, adequacy=False)
            assert verdict.outcome is Outcome.ROUNDING
            assert not comparison.not_judged
            print(fixture.stem, *options, max(one.t for one in comparison.judged))


@EACH_OR_ALL
def test_networks_of_all_operations_are_right(everything: Path, tmp_path: Path, every: bool) -> None:
    fixtures = [everything, *(export(tmp_path / f"{network.__name__}.h5", ExportSettings(
        model=network, **SETTINGS | {"steps": 1, "height": height})).path for network, height in (
            (Resnet, 12), (Unet, 12), (Mlp, 12), (Segmenter, 12), (Normalised, 8), (Resized, 8), (Attention, 8),
            (Reduced, 8)))]
    fixtures += [export(tmp_path / f"{network.__name__}.h5", ExportSettings(model=network, **SETTINGS)).path
                 for network in (Evaluated, Dropped, Pooled, Activations, Gated, Kan)]
    assert {kind for fixture in fixtures for kind in kinds(fixture)} == set(OPERATIONS) - OF_OWN_TESTS
    for number, fixture in enumerate(fixtures):
        for precision in precisions(number, every):
            result = tmp_path / "r.h5"
            done = run(fixture, result, "--precision", precision)
            assert (done.returncode, done.stderr) == (0, "")
            assert tensors(result) == {name for name in tensors(fixture) if "/masks/" not in name}
            comparison, verdict = judge(fixture, result, adequacy=False)
            assert verdict.outcome is Outcome.ROUNDING, (fixture.stem, verdict.words)
            # Behind many operations only the bound of a whole step is too wide, that of the weights' way
            assert all(one.name.startswith("update/") for one in comparison.not_judged)
            assert any(one.name.startswith("state/") for one in comparison.judged) is (
                fixture.stem in ("everything", "Resnet", "Evaluated"))
            print(fixture.stem, precision, max(one.t for one in comparison.judged))


def test_a_mask_of_another_shape_is_refused(tmp_path: Path) -> None:
    fixture = export(tmp_path / "f.h5", ExportSettings(model=Dropped, **SETTINGS)).path
    with h5py.File(fixture, "r+") as file:
        mask = file["steps/1/masks/drop"][()]
        del file["steps/1/masks/drop"]
        file["steps/1/masks/drop"] = mask[:, :2]
    done = run(fixture, tmp_path / "r.h5")
    assert done.returncode != 0 and done.stderr.count("\n") == 1
    assert "layer drop (dropout): mask (3, 2, 12, 10), expected the shape (3, 4, 12, 10)" in done.stderr
    with h5py.File(fixture, "r+") as file:
        del file["steps/1/masks/drop"]
    assert "steps/1/masks/drop" in run(fixture, tmp_path / "r.h5").stderr
    assert not (tmp_path / "r.h5").exists()


def probabilities() -> nn.Module:
    """Some are 0 and 1 but for rounding, where the logarithms are torch's -100."""
    return nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Sigmoid())


def test_binary_cross_entropies_are_right(tmp_path: Path) -> None:
    for reduction in ("mean", "sum"):
        settings = SETTINGS | {"model": probabilities, "loss": "bce", "reduction": reduction}
        fixture = export(tmp_path / "f.h5", ExportSettings(**settings)).path
        assert run(fixture, tmp_path / "r.h5").returncode == 0
        assert judge(fixture, tmp_path / "r.h5", adequacy=False).verdict.outcome is Outcome.ROUNDING
        fixture.unlink()


LOSSES = ("l1", "smooth_l1 beta=0.25", "huber delta=0.3", "bce_with_logits pos_weight=2.5", "cross_entropy",
          "cross_entropy label_smoothing=0.1",
          "cross_entropy class_indices=1 ignore_index=1 label_smoothing=0.1",
          "cross_entropy class_indices=1 ignore_index=99")


@pytest.mark.deep
@EACH_OR_ALL
def test_other_losses_are_right(tmp_path: Path, every: bool) -> None:
    for number, loss in enumerate(LOSSES):
        networks: list[tuple[type[nn.Module], str]] = [(Resnet, "mean"), (Segmenter, "sum")]
        for network, reduction in networks if every else networks[number % 2:][:1]:
            given = {"model": network, "loss": loss, "reduction": reduction}
            fixture = export(tmp_path / "f.h5", ExportSettings(**SETTINGS | given)).path
            for precision in precisions(number // 2, every):
                assert run(fixture, tmp_path / "r.h5", "--precision", precision).returncode == 0
                verdict = judge(fixture, tmp_path / "r.h5", adequacy=False).verdict
                assert verdict.outcome is Outcome.ROUNDING, (loss, network.__name__, precision, verdict.words)
            fixture.unlink()


def pooled() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten())


def test_the_first_of_equal_elements_gets_the_gradient_of_a_maximum(tmp_path: Path) -> None:
    """Many windows behind a ReLU hold zeros alone; any of them would be inside the bounds."""
    fixture = export(tmp_path / "f.h5", ExportSettings(model=pooled, **SETTINGS)).path
    assert run(fixture, tmp_path / "r.h5").returncode == 0
    with h5py.File(tmp_path / "r.h5") as file:
        x, dy, dx = (torch.from_numpy(file[f"steps/0/{name}"][()]) for name in (
            "forward/1", "grads/2/output", "grads/1/output"))
    x.requires_grad_()
    (expected,) = torch.autograd.grad(functional.max_pool2d(x, 2, 2), x, dy)
    assert (functional.max_pool2d(x, 2, 2) == 0).any()
    assert torch.equal(dx, expected)


def frozen() -> nn.Module:
    network = Denoiser()
    network.conv1.weight.requires_grad_(False)
    return network


def test_frozen_parameters_stay(tmp_path: Path) -> None:
    fixture = export(tmp_path / "f.h5", ExportSettings(model=frozen, **SETTINGS)).path
    assert run(fixture, tmp_path / "r.h5").returncode == 0
    with h5py.File(tmp_path / "r.h5") as file:
        first, last = (file[f"steps/{step}/weights/conv1"] for step in (0, 2))
        assert first["weight"].attrs["frozen"] == 1
        assert (first["weight"][()] == last["weight"][()]).all()
        assert (first["bias"][()] != last["bias"][()]).any()
    assert judge(fixture, tmp_path / "r.h5", adequacy=False).verdict.outcome is Outcome.ROUNDING


def test_threads_do_not_change_a_bit(
    fixtures: list[Path], everything: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for fixture in (fixtures[1], everything):
        written = []
        for threads in ("1", "3"):
            monkeypatch.setenv("OMP_NUM_THREADS", threads)
            assert run(fixture, tmp_path / "r.h5").returncode == 0
            with h5py.File(tmp_path / "r.h5") as file:
                written.append({name: file["steps"][name][()].tobytes() for name in tensors(tmp_path / "r.h5")})
        assert written[0] == written[1], fixture


def test_every_operation_of_the_registry_is_there(fixtures: list[Path], tmp_path: Path) -> None:
    for kind in OPERATIONS:
        path = changed(fixtures[0], tmp_path, attribute("layers/relu", "type", kind))
        assert "no operation that is known here" not in run(path, tmp_path / "r.h5").stderr, kind


def changed(fixture: Path, folder: Path, edit: Callable[[h5py.File], object]) -> Path:
    path = folder / "changed.h5"
    shutil.copyfile(fixture, path)
    with h5py.File(path, "r+") as file:
        edit(file)
    return path


def attribute(item: str, name: str, value: object) -> Callable[[h5py.File], None]:
    def edit(file: h5py.File) -> None:
        attributes = file[f"model/{item}"].attrs
        if value is None:
            del attributes[name]
        else:
            attributes[name] = value

    return edit


def removed(name: str) -> Callable[[h5py.File], None]:
    def edit(file: h5py.File) -> None:
        del file[name]

    return edit


def narrower(file: h5py.File) -> None:
    target = file["batches/0/target"][..., 1:]
    del file["batches/0/target"]
    file["batches/0/target"] = target


@pytest.mark.parametrize(("edit", "message"), [
    (attribute("layers/conv1", "type", "conv4d"), "layer conv1 has type conv4d, which is no operation"),
    (attribute("layers/conv1", "type", 3), "attribute type of /model/layers/conv1 is not one text"),
    (attribute("layers/conv1", "index", 7), "model: layer conv1 has index 7.0, expected 0, 1, 2, ..., each once"),
    (attribute("layers/conv1", "index", 1), ", expected 0, 1, 2, ..., each once"),
    (attribute("layers/conv1", "index", np.nan), "model: layer conv1 has index NaN, expected 0, 1, 2, ..., each once"),
    (attribute("layers/conv1", "size", 3), "model: layer conv1 has the unknown attribute 'size'"),
    (attribute("layers/relu", "size", 3), "model: layer relu has the unknown attribute 'size'"),
    (attribute("layers/conv1", "x" * 200, 3), "the attributes of /model/layers/conv1 cannot be read"),
    (attribute("layers/conv1", "in_channels", None), "model: layer conv1 has no in_channels"),
    (attribute("layers/conv1", "in_channels", 1.5), "has in_channels 1.5, expected an integer from 1 to 16777216"),
    (attribute("layers/conv1", "in_channels", 2), "/steps/0/weights/conv1/weight has the shape (4, 1, 3, 3), "),
    (attribute("layers/conv1", "bias", 2), "model: layer conv1 has bias 2.0, expected 0 or 1"),
    (attribute("layers/conv1", "kernel_size", np.ones(5000, int)), "is not one number or a few"),
    (attribute("layers/conv1", "padding", [1, -1]), "has padding 1.0, -1.0, expected (height, width), integers"),
    (attribute("layers/conv1", "out_channels", 65536),
     "layer conv2 has in_channels 4, but the layer before it gives 65536"),
    (attribute("layers/conv1", "groups", 3), "layer conv1 (conv2d): channels (1, 4) in 3 groups, expected multiples"),
    (attribute("layers/add", "inputs", "conv2,nothing"), "layer add: it takes nothing, and no layer has that name"),
    (attribute("layers/conv1", "inputs", "conv2"), "layer conv1: it takes conv2, which is computed from it or"),
    (attribute("layers/conv1", "inputs", "conv1"), "layer conv1: it takes conv1, which is computed from it or"),
    (attribute("layers/add", "inputs", "conv2"), "layer add (add): 1 inputs, expected 2"),
    (attribute("layers/relu", "inputs", "conv1,input"), "layer relu (relu): 2 inputs, expected 1"),
    (attribute("layers/conv2", "inputs", "conv1"), "layer relu: no layer takes its output, and it is not the last"),
    (attribute("layers/add", "inputs", "conv2,,"), "layer add: it takes , and no layer has that name"),
    (attribute("layers/conv2", "stride", [2, 2]),
     "/batches/0: layer add (add): the shapes (3, 1, 12, 10) of input and (3, 1, 6, 5) of conv2, expected shapes"),
    (attribute("layers/conv1", "dilation", [99, 99]), "/batches/0: layer conv1 (conv2d): conv2d: the kernel of weight"),
    (attribute("loss", "type", "hinge"), "model: loss is hinge with the reduction mean, expected one of bce, "),
    (removed("model/loss"), "/model/loss is missing"),
    (removed("model/layers"), "/model/layers is missing"),
    (removed("model"), "/model"),
    (removed("steps/0/weights/conv2/bias"), "/steps/0/weights/conv2/bias is missing"),
    (lambda file: file["model/layers/add"].create_group("more"), "layer add has the member 'more', expected"),
    (lambda file: file.create_dataset("model/layers/x", data=1), "/model/layers/x is"),
    (lambda file: file.create_group("model/layers/input"), "a layer is named input"),
    (narrower, "/batches/0: target: float32 (3, 1, 12, 9), expected the output's float32 (3, 1, 12, 10)"),
])
def test_what_is_damaged_is_one_line(edit: Callable[[h5py.File], object], message: str, fixtures: list[Path],
                                     tmp_path: Path) -> None:
    path = changed(fixtures[0], tmp_path, edit)
    done = run(path, tmp_path / "r.h5")
    assert done.returncode == 2
    assert done.stderr.startswith(f"cnn_step: {path}: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "r.h5").exists()


def test_what_an_enlarged_image_cannot_be_is_one_line(tmp_path: Path) -> None:
    fixture = export(tmp_path / "f.h5", ExportSettings(model=Segmenter, **SETTINGS)).path
    for edit, message in (
        (attribute("layers/larger", "scale_factor", [0, 1]), "has scale_factor 0.0, 1.0, expected (height, width), "),
        (attribute("layers/larger", "scale_factor", None), "model: layer larger has no scale_factor"),
        (attribute("layers/classes", "output_padding", [2, 0]),
         "layer classes (conv_transpose2d): output_padding (2, 0), expected less than stride or dilation"),
        (attribute("layers/classes", "padding", [9, 9]),
         "layer classes (conv_transpose2d): input (3, 4, 6, 10), expected an output of one pixel or more"),
        (attribute("layers/classes", "groups", 2), "layer classes (conv_transpose2d): channels (4, 3) in 2 groups, "),
        (attribute("layers/larger", "scale_factor", [1, 1]), "target: float32 (3, 6, 24, 30), expected the output's"),
    ):
        done = run(changed(fixture, tmp_path, edit), tmp_path / "r.h5")
        assert done.returncode == 2 and message in done.stderr, done.stderr


@pytest.mark.parametrize(("network", "edit", "message"), [
    (Resized, attribute("layers/framed", "padding", [1, 1]),
     "has padding 1.0, 1.0, expected (left, right, top, bottom), integers from 0 to 65536"),
    (Resized, attribute("layers/mirrored", "padding", [0, 10, 0, 0]), "layer mirrored (reflection_pad2d): padding "
     "(0, 10, 0, 0) of the input (3, 1, 8, 10), expected fewer pixels than the image has"),
    (Resized, attribute("layers/larger", "align_corners", 2), "has align_corners 2.0, expected 0 or 1"),
    (Resized, attribute("layers/framed", "padding", [0, 0, 3, 2]),
     "layer matmul (matmul): the shapes (3, 2, 22, 23) of last and (3, 2, 22, 23) of framed, expected shapes "
     "(..., m, k) and (..., k, n)"),
    (Dropped, attribute("layers/drop", "p", 1.0), "layer drop (dropout): p 1.0, expected a number from 0 on, below 1"),
    (Dropped, attribute("layers/drop", "p", None), "model: layer drop has no p"),
    (Evaluated, attribute("layers/fixed", "track_running_stats", 0),
     "layer fixed (batch_norm2d): training 0 without running statistics, expected track_running_stats 1"),
    (Evaluated, removed("state/fixed/running_var"), "/state/fixed/running_var is missing"),
])
def test_what_further_operations_cannot_take_is_one_line(
    network: type[nn.Module], edit: Callable[[h5py.File], object], message: str, tmp_path: Path
) -> None:
    fixture = export(tmp_path / "f.h5", ExportSettings(model=network, **SETTINGS | {"height": 8, "steps": 1})).path
    done = run(changed(fixture, tmp_path, edit), tmp_path / "r.h5")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert message in done.stderr, done.stderr
    with pytest.raises(FileError):
        judge(changed(fixture, tmp_path, edit), fixture, adequacy=False)


def test_what_an_operation_cannot_take_is_one_line(everything: Path, tmp_path: Path) -> None:
    for edit, message in (
        (attribute("layers/largest", "padding", [2, 2]),
         "layer largest (max_pool2d): padding (2, 2), expected at most half of the kernel (3, 3)"),
        (attribute("layers/mean", "kernel_size", [99, 3]),
         "layer mean (avg_pool2d): input (3, 8, 8, 10), expected an image of the kernel's size (99, 3) or more"),
        (attribute("layers/mean", "stride", None), "model: layer mean has no stride"),
        (attribute("layers/mean", "stride", [4, 2]),
         "layer last (linear): input (3, 144), expected 240 features in its last axis"),
        (attribute("layers/largest", "stride", [2, 2]),
         "layer cat (concat): the shape (3, 4, 8, 10) of leaky beside (3, 4, 4, 5) of largest, expected shapes that"),
        (attribute("layers/norm", "num_features", 5),
         "/steps/0/weights/norm/weight has the shape (1, 1, 1, 4), expected (1, 1, 1, 5)"),
        (attribute("layers/norm", "eps", -1.0), "model: layer norm has eps -1.0, expected a number from 0 on"),
        (attribute("layers/leaky", "negative_slope", np.nan), "has negative_slope NaN, expected a number from 0 on"),
        (attribute("layers/last", "bias", 2), "model: layer last has bias 2.0, expected 0 or 1"),
        (attribute("layers/flatten", "size", 1), "model: layer flatten has the unknown attribute 'size'"),
        (attribute("layers/largest", "inputs", "flatten"), "layer largest: it takes flatten, which is computed from"),
    ):
        path = changed(everything, tmp_path, edit)
        done = run(path, tmp_path / "r.h5")
        assert done.returncode == 2 and message in done.stderr, (message, done.stderr)
        assert done.stderr.count("\n") == 1 and not (tmp_path / "r.h5").exists()
