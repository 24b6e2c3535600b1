# SPDX-License-Identifier: MIT
"""The PyTorch side: what a fixture holds, that it is right, and what is refused."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from reference import fixture as export_module
from reference.batches.images import load_image
from reference.batches.micrograph import PatchSource, SyntheticSource, patch_places
from reference.cli import main
from reference.errors import InputError
from reference.export import ExportSettings, export
from reference.files import writer
from reference.model import ThreeLayerCNN
from reference.network.hyperparameters import hyperparameters
from reference.network.layers import Layers
from reference.network.reading import read
from reference.optimizer import Optimizer
from tests import ROOT

REAL_MICROGRAPH = ROOT.parent / "shared" / "data" / "micrograph_4096.mrc"
LAYERS = ("conv1", "relu1", "conv2", "relu2", "conv3")
# Sizes all differ, so that no two axes can be mixed up unseen.
SMALL = ExportSettings(
    height=20, width=24, batch=3, momentum=0.9, dampening=0.25, weight_decay=0.01, lr=0.125
)


def tensors(path: Path) -> dict[str, np.ndarray]:
    """All datasets by name."""
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, node: found.update({name: node[()]} if hasattr(node, "dtype") else {}))
    return found


@pytest.fixture(scope="module")
def fixture_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("reference") / "small.h5", SMALL).path


@pytest.fixture(scope="module")
def fixture(fixture_path: Path) -> dict[str, np.ndarray]:
    return tensors(fixture_path)


def expected_shapes() -> dict[str, tuple[int, ...]]:
    """Every dataset that docs/exchange-file.md asks for, for SMALL."""
    one, many = (3, 1, 20, 24), (3, 16, 20, 24)
    weights = {"conv1": (16, 1, 3, 3), "conv2": (16, 16, 3, 3), "conv3": (1, 16, 3, 3)}
    parts = {f"{n}/weight": s for n, s in weights.items()} | {f"{n}/bias": s[:1] for n, s in weights.items()}
    outputs = {name: one if name == "conv3" else many for name in LAYERS}
    step = {"loss": (), "grads/input": one}
    step |= {f"forward/{name}": shape for name, shape in outputs.items()}
    step |= {f"grads/{name}/output": shape for name, shape in outputs.items()}
    step |= {f"grads/{name}": shape for name, shape in parts.items()}
    shapes: dict[str, tuple[int, ...]] = {}
    for k in range(4):
        shapes |= {f"steps/{k}/weights/{name}": shape for name, shape in parts.items()}
    for k in range(3):
        shapes |= {f"batches/{k}/input": one, f"batches/{k}/target": one}
        shapes |= {f"{top}steps/{k}/{name}": shape for name, shape in step.items() for top in ("", "oracle/")}
    return shapes


def test_names_shapes_and_types(fixture: dict[str, np.ndarray]) -> None:
    assert {name: np.shape(value) for name, value in fixture.items()} == expected_shapes()
    for name, value in fixture.items():
        if name != "model":
            assert value.dtype == (np.float64 if name.startswith("oracle") else np.float32), name
            assert np.isfinite(value).all() and np.any(value), name


def test_attributes_and_model(fixture_path: Path) -> None:
    with h5py.File(fixture_path) as file:
        root, optimizer = dict(file.attrs), dict(file["optimizer"].attrs)
        layers = {name: dict(layer.attrs) for name, layer in file["model/layers"].items()}
        loss = dict(file["model/loss"].attrs)
        contiguous = file["steps/0/forward/conv2"].chunks is None
    texts = {"format": "cnn-exchange", "role": "reference", "precision": "float32", "math_mode": "fp32"}
    texts |= {"device": "cpu", "data": "synthetic micrograph, seed 0", "torch_version": torch.__version__}
    texts |= {"target": "clean image of the synthetic micrograph", "numpy_version": np.__version__}
    texts |= {
        "h5py_version": h5py.__version__,
        "format_version": 2,
        "seed": 0,
        "threads": torch.get_num_threads(),
    }
    assert {name: root.get(name) for name in texts} == texts and root["producer"] and contiguous
    assert optimizer == {
        "type": "sgd",
        "lr": 0.125,
        "momentum": 0.9,
        "dampening": 0.25,
        "weight_decay": 0.01,
        "nesterov": 0,
    }
    assert sorted(layers, key=lambda name: layers[name]["index"]) == list(LAYERS)
    conv2 = {name: value.tolist() if np.ndim(value) else value for name, value in layers["conv2"].items()}
    assert conv2 == {
        "index": 2,
        "inputs": "relu1",
        "type": "conv2d",
        "in_channels": 16,
        "out_channels": 16,
        "kernel_size": [3, 3],
        "stride": [1, 1],
        "padding": [1, 1],
        "dilation": [1, 1],
        "groups": 1,
        "bias": 1,
    }
    assert loss == {"type": "mse", "reduction": "mean"}


def replay(fixture: dict[str, np.ndarray], k: int) -> tuple[ThreeLayerCNN, dict[str, torch.Tensor]]:
    """Step k in float64 by other means: functional calls and autograd.grad."""
    net = ThreeLayerCNN().double()
    net.load_state_dict(
        {
            name: torch.tensor(fixture[f"steps/{k}/weights/{name.replace('.', '/')}"], dtype=torch.float64)
            for name in net.state_dict()
        }
    )
    x = torch.tensor(fixture[f"batches/{k}/input"], dtype=torch.float64, requires_grad=True)
    z1 = torch.conv2d(x, net.conv1.weight, net.conv1.bias, padding=1)
    a1 = z1.clamp(min=0)
    z2 = torch.conv2d(a1, net.conv2.weight, net.conv2.bias, padding=1)
    a2 = z2.clamp(min=0)
    y = torch.conv2d(a2, net.conv3.weight, net.conv3.bias, padding=1)
    loss = ((y - torch.tensor(fixture[f"batches/{k}/target"])) ** 2).sum() / y.numel()
    outputs = dict(zip(LAYERS, (z1, a1, z2, a2, y), strict=True))
    wanted = {f"grads/{name}/output": value for name, value in outputs.items()} | {"grads/input": x}
    wanted |= {f"grads/{name.replace('.', '/')}": value for name, value in net.named_parameters()}
    found = dict(zip(wanted, torch.autograd.grad(loss, list(wanted.values())), strict=True))
    return net, found | {f"forward/{name}": value for name, value in outputs.items()} | {"loss": loss}


@pytest.mark.parametrize("k", range(3))
def test_tensors_equal_an_independent_autograd(fixture: dict[str, np.ndarray], k: int) -> None:
    for name, value in replay(fixture, k)[1].items():
        expected = value.detach().numpy()
        scale = np.abs(expected).max()
        np.testing.assert_allclose(fixture[f"oracle/steps/{k}/{name}"], expected, rtol=0, atol=1e-13 * scale)
        np.testing.assert_allclose(fixture[f"steps/{k}/{name}"], expected, rtol=0, atol=1e-5 * scale)


def test_weights_are_updated_as_written_down(fixture: dict[str, np.ndarray]) -> None:
    """SGD with momentum, dampening and weight decay by hand; the first velocity is not dampened."""
    for name in [name[len("steps/0/weights/") :] for name in fixture if name.startswith("steps/0/weights/")]:
        velocity = None
        for k in range(3):
            weight = fixture[f"steps/{k}/weights/{name}"].astype(np.float64)
            gradient = fixture[f"steps/{k}/grads/{name}"] + 0.01 * weight
            velocity = gradient if velocity is None else 0.9 * velocity + (1 - 0.25) * gradient
            updated = fixture[f"steps/{k + 1}/weights/{name}"]
            np.testing.assert_allclose(updated, weight - 0.125 * velocity, rtol=0, atol=2e-7)


def test_same_settings_same_bits_and_another_seed_other_values(
    fixture: dict[str, np.ndarray], tmp_path: Path
) -> None:
    torch.manual_seed(99)  # the caller's state must not matter
    again = tensors(export(tmp_path / "again.h5", SMALL).path)
    assert again.keys() == fixture.keys()
    assert all(np.asarray(again[name]).tobytes() == np.asarray(fixture[name]).tobytes() for name in fixture)
    other = tensors(export(tmp_path / "other.h5", ExportSettings(height=20, width=24, batch=3, seed=1)).path)
    for name in ("batches/0/input", "steps/0/weights/conv2/weight"):
        assert not np.any(other[name] == fixture[name])


def test_float64_is_its_own_twin_and_uses_its_digits(tmp_path: Path) -> None:
    path = tmp_path / "double.h5"
    export(
        path, ExportSettings(height=9, width=8, precision="float64", reduction="sum", steps=2, oracle_steps=1)
    )
    found = tensors(path)
    assert "oracle/steps/0/grads/input" in found and "oracle/steps/1/loss" not in found
    for name in ("batches/0/input", "steps/0/weights/conv1/weight"):
        assert found[name].dtype == np.float64 and np.any(found[name] != found[name].astype(np.float32))
    error = found["steps/1/forward/conv3"] - found["batches/1/target"]
    np.testing.assert_allclose(found["steps/1/loss"], (error**2).sum(), rtol=1e-13)
    with h5py.File(path) as file:
        assert file["oracle/steps/0/loss"] == file["steps/0/loss"] and file.attrs["math_mode"] == "fp64"


# --- models -------------------------------------------------------------------------------------------------


class Odd(ThreeLayerCNN):
    """The default network with one thing done differently."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        if kind == "unused":
            self.spare = nn.Conv2d(16, 16, 3)
        if kind == "norm":
            self.relu1 = nn.BatchNorm2d(16)
        if kind == "reflect":
            self.conv2 = nn.Conv2d(16, 16, 3, padding=1, padding_mode="reflect")
        if kind == "scale":
            self.scale = nn.Parameter(torch.ones(()))
        if kind == "shared":
            self.relu2 = nn.Conv2d(16, 16, 3, padding=1)
            self.relu2.weight = self.conv2.weight
        if kind == "hook":
            self.conv2.register_forward_hook(lambda module, args, output: output * 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.relu1(self.conv1(x))
        b = self.conv2(a)
        if self.kind == "in place":
            b.mul_(1.5)
        if self.kind == "functional":
            b = torch.tanh(b)
        b = self.relu1(b) if self.kind == "twice" else self.relu2(b)
        y = self.conv3(b + a if self.kind == "skip" else b)
        return y + x if self.kind == "residual" else y


def layers_of(module: nn.Module, *shape: int) -> Layers:
    return read(module, lambda _: [shape])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("in place", "the model calls mul_"),
        ("unused", "the parameter 'spare.weight' belongs to no layer"),
        ("reflect", "'conv2': padding_mode 'reflect'"),
        ("scale", "the parameter 'scale' belongs to no layer"),
        ("shared", "share their weight"),
        ("hook", "'conv2' has forward hooks"),
    ],
)
def test_what_cannot_be_read_is_refused(kind: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        layers_of(Odd(kind), 2, 1, 8, 9)


@pytest.mark.parametrize(("kind", "odd"), [
    ("skip", {"add": ("relu2", "relu1"), "conv3": ("add",)}), ("residual", {"add": ("conv3", "input")}),
    ("functional", {"tanh": ("conv2",), "relu2": ("tanh",)}), ("twice", {"relu1_1": ("conv2",), "conv3": ("relu1_1",)}),
    ("norm", {}),
])
def test_the_inputs_of_each_layer_are_found(kind: str, odd: dict[str, tuple[str, ...]]) -> None:
    chain = layers_of(ThreeLayerCNN(), 2, 1, 8, 9).inputs
    found = layers_of(Odd(kind), 2, 1, 8, 9).inputs
    assert {name: given for name, given in found.items() if chain.get(name) != given} == odd


def test_in_place_relu_names_and_paddings() -> None:
    net = nn.Sequential(
        nn.Sequential(nn.Conv2d(2, 4, (3, 5), padding="same", dilation=(1, 2)), nn.ReLU(inplace=True)),
        nn.Conv2d(4, 3, 2, stride=2, padding="valid", groups=1, bias=False),
    )
    layers = layers_of(net, 2, 2, 8, 10)
    assert [name for name, _ in layers] == ["0.0", "0.1", "1"]
    assert [hyperparameters(*layers[i])[1]["padding"] for i in (0, 2)] == [[1, 4], [0, 0]]
    assert net[0][1].inplace and not layers[1][1].inplace  # the caller's module is left alone
    with pytest.raises(InputError, match="not the same on both sides"):
        layers_of(nn.Sequential(nn.Conv2d(1, 1, 2, padding="same")), 2, 1, 8, 8)
    with pytest.raises(InputError, match="a name has"):
        layers_of(nn.Sequential(OrderedDict({"\u03c3": nn.Conv2d(1, 1, 1)})), 2, 1, 8, 8)
    with pytest.raises(InputError, match="and is not 'input'"):
        layers_of(nn.Sequential(OrderedDict(input=nn.Conv2d(1, 1, 1))), 2, 1, 8, 8)


def test_a_model_of_ones_own_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "return nn.Sequential(nn.Conv2d(2, 3, (3, 2), stride=2), nn.ReLU())"
    wrong = "def wrong():\n    raise ValueError('width must be odd')\n"
    (tmp_path / "own_nets.py").write_text(f"from torch import nn\ndef make():\n    {body}\n{wrong}")
    (tmp_path / "broken.py").write_text("\nsize = 1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert main([str(tmp_path / "own.h5"), "--size", "9x12", "--model", "own_nets:make"]) == 0
    found = tensors(tmp_path / "own.h5")
    assert found["batches/1/input"].shape == (2, 2, 9, 12)
    assert found["batches/1/target"].shape == found["steps/1/forward/1"].shape == (2, 3, 4, 6)
    with h5py.File(tmp_path / "own.h5") as file:
        assert "averaged to 4x6 pixels" in file.attrs["target"]
    assert capsys.readouterr().out.splitlines()[-1].startswith("wrote ")
    for spec, message in (
        ("own_nets", "expected package.module:factory"),
        ("own_nets:none", "no function or class"),
        ("own_nots:make", "cannot import own_nots"),
        ("own_nets:wrong", f"model's factory fails: ValueError: width must be odd ({tmp_path}/own_nets.py, line 5: "),
        ("broken:make", f"cannot import broken: ZeroDivisionError: division by zero ({tmp_path}/broken.py, line 2: "),
    ):
        assert main([str(tmp_path / "no.h5"), "--size", "9x12", "--model", spec]) == 2
        assert message in capsys.readouterr().err


# --- images -------------------------------------------------------------------------------------------------


def write_image(path: Path, image: np.ndarray) -> None:
    if path.suffix == ".npy":
        np.save(path, image)
    elif path.suffix in (".h5", ".hdf5"):
        with h5py.File(path, "w") as file:
            file["a/one_dimensional"], file["b/image"] = image[0], image
    elif path.suffix == ".mrc":
        mrcfile = pytest.importorskip("mrcfile", reason="the optional package mrcfile is not there")
        with mrcfile.new(path) as file:
            file.set_data(image)
    else:
        pytest.importorskip("PIL.Image", reason="the optional package pillow is not there").fromarray(
            image
        ).save(path)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("a.npy", "float64"),
        ("a.npy", ">i2"),
        ("a.h5", "float32"),
        ("a.hdf5", "int32"),
        ("a.mrc", "float32"),
        ("a.mrc", "uint16"),
        ("a.png", "uint8"),
        ("a.png", "uint16"),
        ("a.tif", "float32"),
        ("A.TIFF", "uint16"),
    ],
)
def test_every_image_format_comes_back(tmp_path: Path, name: str, dtype: str) -> None:
    image = np.random.default_rng(0).integers(0, 250, (30, 40)).astype(dtype)
    write_image(tmp_path / name, image)
    found = load_image(tmp_path / name)
    assert found.dtype == (np.float64 if dtype in ("float64", "int32") else np.float32)
    np.testing.assert_array_equal(found, image)


def test_images_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = np.arange(1200.0).reshape(30, 40)
    cases = {
        "stack.npy": (np.stack([image] * 2), r"shape \(2, 30, 40\)"),
        "flat.npy": (image[0], "shape"),
        "complex.npy": (image * 1j, "real numbers"),
        "nan.npy": (image * np.nan, "1200 values are not finite"),
    }
    for name, (content, message) in cases.items():
        np.save(tmp_path / name, content)
        with pytest.raises(InputError, match=message):
            load_image(tmp_path / name)
    np.save(tmp_path / "one.npy", image[None])
    assert load_image(tmp_path / "one.npy").shape == (30, 40)
    write_image(tmp_path / "a.h5", image)
    np.testing.assert_array_equal(load_image(f"{tmp_path}/a.h5:/b/image"), image)
    (tmp_path / "broken.mrc").write_bytes(b"no micrograph")
    for name, message in (
        ("none.npy", "no such file"),
        ("a.jpg", "cannot read '.jpg'"),
        ("a.h5:/b", "no dataset /b"),
        ("broken.mrc", "cannot be read"),
    ):
        with pytest.raises(InputError, match=message):
            load_image(tmp_path / name)
    monkeypatch.setitem(sys.modules, "mrcfile", None)
    with pytest.raises(InputError, match=r"needs the Python package mrcfile.*\[images\]"):
        load_image(tmp_path / "broken.mrc")


def test_patches_are_different_normalised_and_apart(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", np.random.default_rng(0).normal(7, 3, (50, 60)))
    settings = ExportSettings(height=12, width=20, batch=4, steps=3, image=tmp_path / "m.npy")
    source = PatchSource(settings, tmp_path / "m.npy")
    assert (source.data, source.target) == ("m.npy", "gaussian blur of the input, sigma 2 px")
    patches = np.concatenate([source.batch(k)[0] for k in range(3)])
    np.testing.assert_allclose(patches.mean((1, 2, 3)), 0, atol=1e-12)
    np.testing.assert_allclose(patches.std((1, 2, 3)), 1, rtol=1e-12)
    covered = np.zeros((50, 60), int)
    for top, left in patch_places(np.random.default_rng(3), (50, 60), (12, 20), 12):
        covered[top : top + 12, left : left + 20] += 1
    assert covered.max() == 1 and covered.sum() == 12 * 12 * 20  # there is room for exactly these 12
    places = patch_places(np.random.default_rng(3), (50, 60), (12, 20), 30)
    assert len(set(places)) == 30 and max(p[0] for p in places) <= 38 and max(p[1] for p in places) <= 40
    assert len(patch_places(np.random.default_rng(3), (6, 5), (5, 5), 9)) == 2


def test_synthetic_images_are_not_blind() -> None:
    source = SyntheticSource(ExportSettings(height=48, width=48, batch=2), 1)
    noisy, clean = source.batch(0)
    for image in (noisy, clean):
        assert image.min() < -0.5 and image.max() > 0.5
        for other in (
            image[..., ::-1],
            image[..., ::-1, :],
            image.swapaxes(2, 3),
            image[..., ::-1, ::-1],
            np.roll(image, 1, axis=3),
            source.batch(1)[image is clean],
            image[::-1],
        ):
            assert np.sqrt(np.mean((image - other) ** 2)) > 0.05 * image.std()
    np.testing.assert_allclose(noisy.mean((2, 3)), 0, atol=1e-12)
    np.testing.assert_allclose(noisy.std((2, 3)), 1, rtol=1e-12)
    assert 0.4 < np.corrcoef(noisy.ravel(), clean.ravel())[0, 1] < 0.95
    np.testing.assert_array_equal(source.batch(0)[0], noisy)


def test_the_real_micrograph(tmp_path: Path) -> None:
    if not REAL_MICROGRAPH.is_file():
        pytest.skip("the optional real micrograph is not there")
    pytest.importorskip("mrcfile", reason="the optional package mrcfile is not there")
    path = export(tmp_path / "real.h5", ExportSettings(height=64, width=64, image=REAL_MICROGRAPH)).path
    with h5py.File(path) as file:
        assert file.attrs["data"] == "micrograph_4096.mrc"
        assert file.attrs["target"] == "gaussian blur of the input, sigma 2 px"
        images = np.concatenate([file[f"batches/{k}/input"][()] for k in range(3)])
    assert len(np.unique(images.reshape(6, -1), axis=0)) == 6
    np.testing.assert_allclose(images.std((1, 2, 3)), 1, rtol=1e-6)


# --- command line and file ----------------------------------------------------------------------------------


def test_bad_input_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "reference.export",
        str(tmp_path / "x.h5"),
        "--size",
        "8x8",
        "--lr",
        "1e30",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and os.listdir(tmp_path) == []
    assert done.stderr.startswith("reference.export: /") and "not finite" in done.stderr
    assert done.stderr.count("\n") == 1
    said = done.stdout.splitlines()
    assert said[0] == f"will write 743 kB to {tmp_path / 'x.h5'}" and said[1] == "step 1 of 3"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--size", "0"], "height must be >= 1"),
        (["--size", "3by4"], "expected HxW or one number, found '3by4'"),
        (["--steps", "0"], "steps must be >= 1"),
        (["--batch", "-1"], "batch must be >= 1"),
        (["--seed", "-1"], "seed must be from 0"),
        (["--lr", "nan"], "lr must be finite"),
        (["--lr", "-1"], "lr must be finite and >= 0"),
        (["--nesterov"], "nesterov needs momentum"),
        (["--oracle-steps", "4"], "oracle-steps must be from 0 to 3"),
        (["--reduction", "none"], "invalid choice"),
        (["--speed", "9"], "unrecognized arguments"),
        (["--model", "torch.nn:Identity"], "the model has no layers"),
        (["--model", "tests.helpers.models:without_parameters"], "the model has no parameters, expected one or more"),
        (["--model", "torch.nn:Linear"], "factory fails: TypeError"),
        (["--model", "pathlib:Path"], "returns PosixPath"),
        (["--image", "none.mrc"], "no such file"),
        (["--image", "small.npy", "--size", "40"], "30x40 pixels found, at least 40x40 needed"),
        (
            ["--image", "small.npy", "--size", "30x39"],
            "6 different patches of 30x39 needed (batch times steps), it has 2",
        ),
        (["--image", "small.npy"], "is constant"),
    ],
)
def test_bad_options(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("small.npy", np.ones((30, 40)))
    arguments = ["x.h5", *options] if "--size" in options else ["x.h5", "--size", "8x9", *options]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("reference.export: ") and message in error and error.count("\n") == 1
    assert os.listdir(tmp_path) == ["small.npy"]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    small = ExportSettings(height=8, width=9)
    with pytest.raises(InputError, match="does not exist"):
        export(tmp_path / "none" / "x.h5", small)
    with pytest.raises(InputError, match="not a regular file"):
        export(tmp_path, small)
    with pytest.raises(InputError, match=r"TB needed, [0-9.]+ [GT]B free"):
        export(tmp_path / "x.h5", ExportSettings(height=8, width=9, steps=10**12, oracle_steps=0))
    with pytest.raises(InputError, match=r"the model fails on images of 2x9 pixels: .*[Kk]ernel size"):
        export(
            tmp_path / "x.h5",
            ExportSettings(height=2, width=9, model=lambda: nn.Sequential(nn.Conv2d(1, 1, 3))),
        )
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, OSError])
def test_a_failure_in_the_middle_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    path = tmp_path / "x.h5"
    path.write_bytes(b"the old file")
    seen = []
    write = export_module.write_tensor

    def fail_late(file: h5py.File, name: str, tensor: torch.Tensor) -> None:
        if name == "steps/1/grads/relu1/output":  # inside torch's backward
            seen.extend(os.listdir(tmp_path))
            raise failure("planned")
        write(file, name, tensor)

    monkeypatch.setattr(export_module, "write_tensor", fail_late)
    with pytest.raises(InputError if failure is OSError else failure, match="planned"):
        export(path, ExportSettings(height=8, width=9))
    assert sorted(seen) == [f".x.h5.{os.getpid()}.part", "x.h5"]
    assert os.listdir(tmp_path) == ["x.h5"] and path.read_bytes() == b"the old file"


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0 and "cnn_step FILE RESULT" in text and "bridge.compare FILE RESULT" in text


def test_a_fixture_may_leave_out_large_tensors_of_later_steps(tmp_path: Path, fixture: dict[str, np.ndarray]) -> None:
    """What is written is the same; twins are not touched."""
    found = tensors(export(tmp_path / "small.h5", replace(SMALL, whole_steps=1)).path)
    missing = {name for name in fixture if name not in found}
    assert set(found) <= set(fixture) and all(np.array_equal(found[name], fixture[name]) for name in found)
    assert missing == {name for name in fixture if name.startswith(("steps/1/", "steps/2/"))
                       and (name.split("/")[2] == "forward" or name.endswith(("/output", "grads/input")))}
    with pytest.raises(InputError, match="whole-steps must be from 0 to 3, found 4"):
        replace(SMALL, whole_steps=4)
    with pytest.raises(InputError, match="a probe keeps all of every step"):
        ExportSettings(probe=True, steps=2, whole_steps=1)


@pytest.mark.parametrize("first", [nn.ReLU, lambda: nn.Conv2d(1, 2, 3)])
def test_whatever_takes_the_input_later_steps_are_the_same(tmp_path: Path, first: Callable[[], nn.Module]) -> None:
    """A step that keeps no gradient of the input computes none, but the first layer's own gradient is checked."""
    def model() -> nn.Module:
        torch.manual_seed(7)
        return nn.Sequential(first(), nn.Conv2d(1 if first is nn.ReLU else 2, 3, 3))

    whole, part = (tensors(export(tmp_path / f"{steps}.h5", replace(SMALL, model=model, whole_steps=steps)).path)
                   for steps in (3, 1))
    assert all(np.array_equal(part[name], whole[name]) for name in part)
    assert "steps/2/grads/1/weight" in part and "steps/2/grads/input" not in part


@pytest.mark.parametrize("settings", [
    {}, {"momentum": 0.9}, {"momentum": 0.9, "dampening": 0.25, "weight_decay": 0.1},
    {"momentum": 0.9, "nesterov": True},
])
def test_the_optimiser_is_torch_s(settings: dict[str, float]) -> None:
    """To the bit, over steps enough for a memory to show."""
    ours, theirs = (nn.Conv2d(3, 5, 3) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    plain = {"momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0}
    step = Optimizer([("conv1", ours)], replace(SMALL, steps=4, **plain | settings))
    reference = torch.optim.SGD(theirs.parameters(), lr=0.125, **settings)
    for seed in range(4):
        for layer in (ours, theirs):
            torch.manual_seed(seed)
            for parameter in layer.parameters():
                parameter.grad = torch.randn_like(parameter)
        step.step()
        reference.step()
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert not torch.equal(ours.weight, torch.zeros_like(ours.weight))


@pytest.mark.parametrize("place", [0, 12345, 2**16 - 1])
def test_large_tensors_are_checked_while_they_are_written(tmp_path: Path, place: int,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN and infinity are refused wherever they are; a sum that overflows is no reason."""
    monkeypatch.setattr(writer, "LARGE", 2**17)
    monkeypatch.setattr(writer, "PIECE", 1000)
    good = torch.arange(2.0**16).reshape(2, 16, 16, 128)
    large = torch.full_like(good, 3e38)
    with writer.new_file(tmp_path / "f.h5") as file:
        writer.write_tensor(file, "a/good", good)
        writer.write_tensor(file, "a/large", large)
    found = tensors(tmp_path / "f.h5")
    assert np.array_equal(found["a/good"], good) and np.array_equal(found["a/large"], large)
    for bad in (np.nan, np.inf, -np.inf):
        wrong = good.clone()
        wrong.view(-1)[place] = bad
        refused = pytest.raises(InputError, match="/b has values that are not finite")
        with refused, writer.new_file(tmp_path / "g.h5") as file:
            writer.write_tensor(file, "b", wrong)
    assert not (tmp_path / "g.h5").exists()


def test_the_first_tensor_that_is_not_finite_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although a large one is still on its way when the next one is there."""
    write = writer._write_large

    def late(*place: Any) -> bool:
        time.sleep(0.1)
        return write(*place)

    monkeypatch.setattr(writer, "LARGE", 100)
    monkeypatch.setattr(writer, "_write_large", late)
    for size in (1, 100):
        refused = pytest.raises(InputError, match="/a has values that are not finite")
        with refused, writer.new_file(tmp_path / "f.h5") as file:
            writer.write_tensor(file, "a", torch.full((100,), np.nan))
            writer.write_tensor(file, "b", torch.full((size,), np.nan))
            file.settle()
    assert os.listdir(tmp_path) == []


def test_a_large_tensor_is_whole_when_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file waits for what is on its way; what the disk refuses there is an error of the file."""
    write, given = os.pwrite, torch.arange(1000.0)

    def slow(handle: int, data: memoryview, place: int) -> int:
        time.sleep(0.001)
        return write(handle, data[:100], place)

    monkeypatch.setattr(writer, "LARGE", 100)
    monkeypatch.setattr(os, "pwrite", slow)
    with writer.new_file(tmp_path / "f.h5") as file:
        writer.write_tensor(file, "a", given)
    assert np.array_equal(tensors(tmp_path / "f.h5")["a"], given)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(InputError, match="No space left on device"), writer.new_file(tmp_path / "g.h5") as file:
        writer.write_tensor(file, "a", given)
    assert os.listdir(tmp_path) == ["f.h5"]
