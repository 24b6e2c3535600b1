# SPDX-License-Identifier: MIT
"""Modules that are no chains, traced and written."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest
import torch
from torch import nn
from torch.nn import functional

from reference.errors import InputError
from reference.export import export
from reference.network.hyperparameters import hyperparameters
from reference.network.layers import Layers, run
from reference.network.reading import read
from reference.settings import ExportSettings
from tests.helpers.torch_graphs import Denoiser, Dropped, Evaluated, Mlp, Resnet, Unet

EXAMPLE = torch.randn((2, 1, 12, 10), generator=torch.Generator().manual_seed(3))


def layers_of(module: nn.Module, *size: int) -> Layers:
    """As read of images of this size alone."""
    return read(module, lambda _: [(n, 1, *(size or (12, 10))) for n in (2, 3)])


@pytest.mark.parametrize("factory", [Unet, Resnet, Mlp, Denoiser])
def test_layers_give_what_the_module_gives(factory: type[nn.Module]) -> None:
    module = factory()
    layers = layers_of(module)
    assert torch.equal(dict(run(layers, EXAMPLE))[layers[-1][0]], module(EXAMPLE))
    assert {f"{name}.{part}" for name, layer in layers for part, _ in layer.named_parameters()} == \
        {name for name, _ in module.named_parameters()}


def test_names_and_inputs() -> None:
    layers = layers_of(Denoiser())
    assert layers.inputs == {"conv1": ("input",), "relu": ("conv1",), "conv2": ("relu",), "add": ("input", "conv2")}


def test_the_file_has_groups(tmp_path: Path) -> None:
    path = tmp_path / "fixture.h5"
    export(path, ExportSettings(height=12, width=10, steps=1, model=Unet))
    with h5py.File(path) as file:
        assert file.attrs["format_version"] == 2
        pool = file["model/layers/pool"].attrs
        assert (pool["index"], pool["type"], pool["inputs"], list(pool["kernel_size"]), list(pool["stride"])) == \
            (2, "max_pool2d", "leaky_relu", [3, 3], [1, 1])
        assert file["model/layers/cat"].attrs["inputs"] == "leaky_relu,leaky_relu_1"
        assert dict(file["model/loss"].attrs) == {"type": "mse", "reduction": "mean"}


def test_running_statistics_are_in_the_file(tmp_path: Path) -> None:
    """Before the first step, and what each step makes of them in training."""
    export(tmp_path / "f.h5", ExportSettings(height=12, width=10, steps=2, model=Evaluated))
    with h5py.File(tmp_path / "f.h5") as file:
        assert {name: file[f"model/layers/{name}"].attrs["training"] for name in ("moving", "fixed")} == {
            "moving": 1, "fixed": 0}
        assert list(file["state"]) == ["fixed", "moving"]
        assert list(file["steps/0/state"]) == list(file["steps/1/state"]) == ["moving"]
        x = torch.from_numpy(file["steps/1/forward/first"][()])
        old, new = (torch.from_numpy(file[f"steps/{k}/state/moving/running_var"][()]) for k in (0, 1))
        assert torch.allclose(new, 0.75 * old + 0.25 * x.var((0, 2, 3)), rtol=1e-6)
        fixed = [file[f"state/fixed/{name}"][()].tolist() for name in ("running_mean", "running_var")]
    assert fixed == [[0.5, -0.25, 0.0, 0.125], [2.0, 0.5, 1.0, 0.25]]


def test_masks_are_in_the_file(tmp_path: Path) -> None:
    """Others at every step, and PyTorch has taken them: also in the float64 twin, of another call than the first."""
    export(tmp_path / "f.h5", ExportSettings(height=12, width=10, steps=2, model=Dropped))
    with h5py.File(tmp_path / "f.h5") as file:
        masks = [file[f"steps/{k}/masks/drop"][()] for k in (0, 1)]
        for k, path in ((0, "steps/0"), (1, "steps/1"), (0, "oracle/steps/0")):
            x, y = (file[f"{path}/forward/{name}"][()] for name in ("first", "drop"))
            assert (y == pytest.approx(x * masks[k] / 0.7, rel=1e-6, abs=0)) and 0.6 < masks[k].mean() < 0.8
            assert set(masks[k].ravel()) == {0.0, 1.0}
    assert (masks[0] != masks[1]).any()


def test_identity_and_dropout_of_nothing_are_no_layers() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Identity(), nn.Dropout(0), nn.Tanh(), nn.Dropout(0.5).eval())
    assert [name for name, _ in layers_of(module)] == ["0", "3"]


class Calls(nn.Module):
    """One convolution, and `what` is done with its output and the input."""

    def __init__(self, what: object) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3, padding=1)
        self.what = what

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.what(self, x, self.conv(x))  # type: ignore[operator]


@pytest.mark.parametrize(("what", "kind", "found"), [
    (lambda _, x, y: functional.pad(y, (1, 2)), "zero_pad2d", {"padding": [1, 2, 0, 0]}),
    (lambda _, x, y: functional.pad(y, (1, 2, 3, 0), "reflect"), "reflection_pad2d", {"padding": [1, 2, 3, 0]}),
    (lambda _, x, y: functional.pad(y, (1, 2, 3, 0), mode="replicate"), "replication_pad2d", {"padding": [1, 2, 3, 0]}),
    (lambda _, x, y: functional.interpolate(y, scale_factor=2, mode="bilinear", align_corners=True),
     "upsample_bilinear2d", {"scale_factor": [2, 2], "align_corners": 1}),
    (lambda _, x, y: torch.matmul(y, y.relu()), "matmul", {}),
    (lambda _, x, y: torch.log(y), "log", {}),
    (lambda _, x, y: functional.layer_norm(y, (10,), eps=0.5), "layer_norm",
     {"normalized_shape": [10], "eps": 0.5, "elementwise_affine": 0, "bias": 0}),
    (lambda _, x, y: functional.layer_norm(y, (1, 10, 10)), "layer_norm",
     {"normalized_shape": [1, 10, 10], "eps": 1e-5, "elementwise_affine": 0, "bias": 0}),
    (lambda _, x, y: y.view(y.size(0), -1), "reshape", {"shape": [-1]}),
    (lambda _, x, y: torch.reshape(y, (y.shape[0], 5, -1)), "reshape", {"shape": [5, -1]}),
    (lambda _, x, y: y.reshape(-1, 4, 5, 5), "reshape", {"shape": [4, 5, 5]}),
    (lambda _, x, y: y.flatten(1).unflatten(1, (4, -1)), "reshape", {"shape": [4, -1]}),
    (lambda _, x, y: y.transpose(1, -1), "transpose", {"dim0": 1, "dim1": -1}),
    (lambda _, x, y: torch.swapaxes(y, 2, 3), "transpose", {"dim0": 2, "dim1": 3}),
    (lambda _, x, y: y.sum((2, 3)), "sum", {"dim": [2, 3], "keepdim": 0}),
    (lambda _, x, y: torch.mean(y, -1, keepdim=True), "mean", {"dim": [-1], "keepdim": 1}),
    (lambda _, x, y: torch.amax(y, dim=(1, 2)), "amax", {"dim": [1, 2], "keepdim": 0}),
    (lambda _, x, y: y.amin(1), "amin", {"dim": [1], "keepdim": 0}),
    (lambda _, x, y: y.max(dim=3, keepdim=True)[0], "max", {"dim": [3], "keepdim": 1}),
    (lambda _, x, y: torch.min(y, 2).values, "min", {"dim": [2], "keepdim": 0}),
    (lambda _, x, y: functional.adaptive_avg_pool2d(y, (3, 2)), "adaptive_avg_pool2d", {"output_size": [3, 2]}),
    (lambda _, x, y: functional.max_pool2d(y, 3, 2, 1, (2, 1), ceil_mode=True), "max_pool2d",
     {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1], "dilation": [2, 1], "ceil_mode": 1}),
    (lambda _, x, y: functional.avg_pool2d(y, 3, 2, 1, count_include_pad=False, divisor_override=4), "avg_pool2d",
     {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1], "count_include_pad": 0, "divisor_override": 4}),
    (lambda _, x, y: functional.adaptive_avg_pool2d(y, (1, 1)), "global_avg_pool2d", {}),
    (lambda self, x, y: functional.dropout2d(y, 0.25, self.training), "dropout2d", {"p": 0.25}),
    (lambda self, x, y: functional.dropout(y, 0.25, self.training), "dropout", {"p": 0.25}),
])
def test_functions_are_operations(what: object, kind: str, found: dict[str, object]) -> None:
    layers = layers_of(Calls(what), 10, 10)
    assert hyperparameters(*layers[-1]) == (kind, found)


def test_what_is_refused() -> None:
    for what, message in (
        (lambda _, x, y: torch.erf(y), "the model calls erf"),
        (lambda _, x, y: y / 3, "a division by 3"),
        (lambda _, x, y: y ** 3, "exponent=3, 2 is supported"),
        (lambda _, x, y: 3 / y, "supported are tensors that it has computed"),
        (lambda _, x, y: torch.cat([x, y]), "dim=0, another than the images' is supported"),
        (lambda self, x, y: self.conv(y), "layer 'conv' is used twice"),
        (lambda self, x, y: functional.linear(y, self.conv.weight[0, 0]), "uses its tensor 'conv.weight' outside"),
        (lambda _, x, y: y if y.sum() > 0 else x, "cannot be traced by torch.fx"),
        (lambda _, x, y: (y, x + y)[0], "the model's output is not what its last layer gives"),
        (lambda _, x, y: functional.avg_pool2d(y, 2, divisor_override=-3), "divisor_override -3 found, a positive one"),
        (lambda _, x, y: functional.adaptive_avg_pool2d(y, (None, 2)), "output_size (None, 2) found, two integers are"),
        (lambda self, x, y: functional.layer_norm(y, (3,), self.conv.weight[0, 0, 0]), "uses its tensor 'conv.weight'"),
        (lambda _, x, y: y.reshape(y.size(0), y.size(1), -1), "the model calls size"),
        (lambda _, x, y: y.view(4, -1), "(4, 60) for the input (2, 1, 12, 10), and its layers (2, 120): they keep"),
        (lambda _, x, y: y.view(()), "shape=(), one dimension or more is supported"),
        (lambda _, x, y: torch.add(x, y, alpha=2), "got an unexpected keyword argument 'alpha'"),
        (lambda _, x, y: torch.clip(y, x, None), "a second tensor, numbers are supported"),
        (lambda _, x, y: y.max(1), "the model's output is not what its last layer gives"),
        (lambda _, x, y: y.unflatten(2, (2, -1)), "2 to (2, -1) found, dimension 1 to one of up to seven is supported"),
        (lambda _, x, y: y.sum(), "dim=None, dtype=None; supported are numbers, and no other type"),
        (lambda _, x, y: torch.max(y, x)[0], "supported are numbers"),
        (lambda _, x, y: y.max(1)[1], "the model calls getitem"),
        (lambda _, x, y: functional.pad(y, (1, 1), "circular"), "mode=circular, value=None, pad=(1, 1); supported are"),
        (lambda _, x, y: functional.pad(y, (1, 1), value=2.0), "value=2.0"),
        (lambda _, x, y: functional.pad(y, (1, -1)), "padding (1, -1, 0, 0) found, four integers from 0 on are"),
        (lambda _, x, y: functional.interpolate(y, scale_factor=2, mode="area"), "mode area found, nearest or"),
        (lambda _, x, y: functional.interpolate(y, scale_factor=1.5, antialias=True), "antialias, or mode"),
        (lambda _, x, y: functional.dropout(y, 1.0), "p 1.0 found, less than 1 is supported"),
    ):
        with pytest.raises(InputError) as error:
            layers_of(Calls(what))
        assert message in str(error.value)


class _Smallest(nn.Module):
    def __init__(self, dim: int, keepdim: bool) -> None:
        super().__init__()
        self.conv, self.dim, self.keepdim = nn.Conv2d(1, 4, 3), dim, keepdim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).amin(self.dim, self.keepdim)


def test_outputs_that_no_target_fits_are_refused(tmp_path: Path) -> None:
    for given, shape in (((2, False), r"\(2, 4, 8\)"), ((0, True), r"\(1, 4, 10, 8\)")):
        settings = ExportSettings(height=12, width=10, steps=1, model=lambda given=given: _Smallest(*given))
        with pytest.raises(InputError, match=rf"output has the shape {shape}, expected \(2, k, p, q\) or \(2, k\)"):
            export(tmp_path / "fixture.h5", settings)
        assert not (tmp_path / "fixture.h5").exists()


def test_the_line_of_the_module_is_named() -> None:
    with pytest.raises(InputError, match=r"the model calls erf \(.*test_graph.py, line \d+: return torch.erf\(x\)\)"):
        layers_of(_Erf())


class _OfOne(nn.Module):
    """Blocks that join what was before them, of which the first has one, as DenseNets' do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.next, self.last = nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 2, 1), nn.Conv2d(4, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = [self.first(x)]
        before.append(self.next(torch.cat(before, 1)))
        return self.last(torch.cat(before, 1))


def test_one_tensor_that_is_joined_is_itself() -> None:
    layers = layers_of(_OfOne())
    assert [name for name, _ in layers] == ["first", "next", "cat_1", "last"]
    assert layers.inputs["next"] == ("first",)


class _Erf(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.erf(x)


def test_modules_that_are_refused() -> None:
    shared = nn.Sequential(nn.Conv2d(1, 1, 3), nn.Tanh(), nn.Conv2d(1, 1, 3))
    shared[2].weight = shared[0].weight
    hooked = nn.Sequential(nn.Conv2d(1, 1, 3), nn.Tanh())
    hooked[1].register_forward_hook(lambda module, args, output: 2 * output)
    for module, message in (
        (shared, "share their weight"),
        (hooked, "layer '1' has forward hooks, expected none"),
        (nn.Sequential(nn.Conv2d(1, 1, 3), nn.Softsign()), "layer '1' is Softsign; supported are"),
        (nn.Sequential(nn.Conv2d(1, 1, 3), nn.BatchNorm2d(1, momentum=None)), "momentum None found, a number is"),
        (nn.Sequential(nn.Conv2d(1, 1, 3), nn.Dropout(1.0)), "layer '1' (Dropout): p 1.0 found, less than 1"),
        (nn.Tanh(), "the model is a single Tanh without a name: put it into nn.Sequential"),
        (nn.Sequential(nn.Conv2d(1, 1, 30), nn.Tanh()), "the model fails on images of 12x10 pixels"),
    ):
        with pytest.raises(InputError) as error:
            layers_of(module)
        assert message in str(error.value)
