# SPDX-License-Identifier: MIT
"""What torch.export reads: what each operation is written as, names, sizes, and all obstacles at once."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
from torch import nn
from torch.nn import functional

from bridge.train.configuration import Configuration
from reference.cli import main
from reference.errors import InputError
from reference.network.hyperparameters import hyperparameters
from reference.network.layers import Layers, run
from reference.network.reading import read
from tests.helpers.networks.exported_networks import NETWORKS, Attention, Written, conv

SHAPE = (2, 2, 8, 12)


def layers_of(module: nn.Module, shape: tuple[int, ...] = SHAPE) -> Layers:
    def shapes(_: Layers) -> list[tuple[int, ...]]:
        if len(shape) < 4:
            return [shape, (shape[0] + 1, *shape[1:])]
        return [shape, (shape[0] + 1, *shape[1:2], shape[2] + 2, shape[3] + 4)]

    return read(module, shapes, shape)


def between(what: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    """Something between two convolutions, of an image or a signal."""
    return Written(lambda m, x: m.b(what(m.a(x))), a=conv(2, 2), b=conv(2, 1))


#: What is called, and the kinds of the layers
WRITTEN: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], list[str] | None]] = {
    "instance norm": (functional.instance_norm, ["group_norm"]),
    "relu6": (functional.relu6, ["relu", "clip"]),
    "hardtanh": (lambda x: functional.hardtanh(x, -0.5, 2), ["clip"]),
    "softmax": (lambda x: x.softmax(-1), ["softmax"]),
    "log-softmax": (lambda x: x.log_softmax(2), ["log_softmax"]),
    "cat": (lambda x: torch.cat([x, x], 3), ["concat"]),
    "permute": (lambda x: x.permute(0, 2, 3, 1).permute(0, 3, 1, 2), ["permute"] * 2),
    "six dimensions": (lambda x: x.reshape(-1, 2, 4, 2, 6, 2).permute(0, 1, 3, 5, 2, 4).reshape(-1, 2, 8, 12),
                       ["reshape", "permute", "reshape"]),
    "part": (lambda x: x[:, :, 1::2], ["slice"]),
    "selected": (lambda x: x[:, 1].unsqueeze(1).expand(-1, 2, -1, -1), ["slice", "reshape", "reshape", "expand"]),
    "chunks": (lambda x: torch.cat(x.chunk(2, 2)[::-1], 2), ["slice", "slice", "concat"]),
    "flip": (lambda x: x.flip(2, -1), ["flip"]),
    "roll": (lambda x: x.roll((1, -2), (2, 3)), ["roll"]),
    "pixels": (lambda x: functional.pixel_shuffle(functional.pixel_unshuffle(x, 2), 2),
               ["pixel_unshuffle", "pixel_shuffle"]),
    "negative": (lambda x: -x, ["affine"]),
    "variance": (lambda x: x * x.var((2, 3), keepdim=True),
                 ["mean", "subtract", "square", "mean", "affine", "multiply"]),
    "population variance": (lambda x: x * x.var(1, correction=0, keepdim=True),
                            ["mean", "subtract", "square", "mean", "multiply"]),
    "repeated": (lambda x: x.repeat(1, 1, 2, 1)[:, :, 4:12], ["reshape", "expand", "reshape", "slice"]),
    "products of images": (lambda x: torch.einsum("nchw,nchv->ncwv", x, x) @ x.mT, None),
    "multiple": (lambda x: 0.1 * x, ["affine"]),
    "difference": (lambda x: 1 - x, ["affine"]),
    "sum with a multiple": (lambda x: torch.add(x, x, alpha=2), ["affine", "add"]),
    "nothing added": (lambda x: x + 0, ["affine"]),
    "half": (lambda x: x / 2, ["affine"]),
    "third": (lambda x: x / 3, ["affine"]),
    "quotient": (lambda x: 3 / (x.square() + 1), ["square", "affine", "reciprocal", "affine"]),
    "square": (lambda x: x ** 2, ["square"]),
    "cube": (lambda x: x.pow(3), ["square", "multiply"]),
    "roots": (lambda x: (x.exp() ** 0.5).exp() ** -0.5, ["exp", "sqrt", "exp", "rsqrt"]),
    "hardsigmoid": (functional.hardsigmoid, ["hardsigmoid"]),
    "hardswish in place": (lambda x: functional.hardswish(x, True), ["hardswish"]),
    "selu": (functional.selu, ["elu", "affine"]),
    "size as numbers": (lambda x: x.view(x.size(0), x.size(1), x.size(2) * x.size(3)).view_as(x), ["reshape"] * 2),
    "squeezed": (lambda x: x.unsqueeze(1).squeeze(1), []),
    "interpolated to a size": (lambda x: functional.interpolate(functional.max_pool2d(x, 2), x.shape[2:]),
                               ["max_pool2d", "upsample_nearest2d"]),
    "average of all": (lambda x: functional.avg_pool2d(x, x.shape[2:]) + x, ["global_avg_pool2d", "add"]),
    "identities": (lambda x: x.contiguous().clone().to(x.dtype)[:, :].expand_as(x) if x.size(0) else x, []),
}

#: What all images share, and images in other places than the first; some of the modules' own names
SHARED: dict[str, tuple[Callable[[Any, torch.Tensor], torch.Tensor], list[str] | None]] = {
    "factors of channels": (lambda m, x: x * m.g.view(-1, 1, 1), ["parameter", "multiply"]),
    "one number": (lambda m, x: x + m.one, ["parameter", "add"]),
    "twice": (lambda m, x: (x + m.g.view(1, 2, 1, 1)) * m.g[:, None, None],
              ["parameter", "add", "multiply"]),
    "a token": (lambda m, x: torch.cat([m.token.expand(x.size(0), -1, -1), x.flatten(2)], 2)[:, :, 1:].view_as(x),
                ["parameter", "reshape", "concat", "slice", "reshape"]),
    "a table": (lambda m, x: x + m.table[m.places].view(3, 8, 12)[:2],
                ["parameter", "index_select", "reshape", "slice", "add"]),
    "a table, turned": (lambda m, x: x @ (m.table.index_select(0, m.places).view(12, 24).T * m.table.T[0, :6].repeat(
        4)[:, None])[:12], None),
    "another type of what is made": (lambda m, x: x + torch.arange(12).float().double().sin().to(x.dtype),
                                     ["parameter", "add"]),
    "what a buffer says": (lambda m, x: x * (m.scale ** 2 + torch.arange(2.0).view(2, 1, 1)),
                           ["parameter", "multiply"]),
    "a matrix": (lambda m, x: x @ m.square, ["parameter", "reshape", "expand", "matmul"]),
    "added to attention": (lambda m, x: functional.scaled_dot_product_attention(x.mT, x.mT, x.mT, m.square).mT, None),
    "causal": (lambda m, x: functional.scaled_dot_product_attention(x.mT, x.mT, x.mT, is_causal=True).mT, None),
    "marks of attention": (lambda m, x: functional.scaled_dot_product_attention(x, x, x, m.marks[:8, :8]), None),
    "filled": (lambda m, x: (x @ x.mT).masked_fill(~m.marks[:8, :8], -math.inf).softmax(-1) @ x,
               ["transpose", "matmul", "parameter", "parameter", "multiply", "add", "softmax", "matmul"]),
    "infinity added": (lambda m, x: (x + torch.full((12, 12), -math.inf).triu(1)[:8]).softmax(-1),
                       ["parameter", "add", "softmax"]),
    "filled with zeros": (lambda m, x: x.masked_fill(m.marks[0], 0.0), ["parameter", "multiply"]),
    "chosen": (lambda m, x: torch.where(m.marks[3], x, x * x) + torch.where(m.marks[2], m.one, x), None),
    "length first": (lambda m, x: m.rows(x.flatten(2).permute(2, 0, 1)).permute(1, 2, 0).view_as(x),
                     ["reshape", "permute", "linear", "permute", "reshape"]),
    "rows of all images": (lambda m, x: m.rows(x.flatten(2).permute(2, 0, 1).reshape(-1, 2)).view(
        -1, x.size(0), 2).permute(1, 2, 0).reshape(x.shape), None),
    "behind two": (lambda m, x: x.view(-1, 2, 2, 4, 3, 4).permute(1, 2, 0, 3, 4, 5).reshape(2, 2, x.size(0), 4, 12)
                   .permute(2, 0, 1, 3, 4).reshape(x.shape), None),
    "three of each": (lambda m, x: torch.stack([x, 2 * x, x.exp()]).sum(0), None),
    "windows are images": (lambda m, x: m.inner(x.view(-1, 2, 2, 4, 12).transpose(1, 2).reshape(-1, 2, 4, 12)).view(
        -1, 2, 2, 4, 12).transpose(1, 2).reshape(x.shape), None),
    "heads are images": (lambda m, x: x.flatten(2).permute(2, 0, 1).reshape(96, -1, 1).transpose(0, 1).softmax(1)
                         .transpose(0, 1).reshape(96, -1, 2).permute(1, 2, 0).reshape(x.shape), None),
}


def shared(name: str) -> nn.Module:
    what, _ = SHARED[name]
    return Written(
        lambda m, x: m.b(what(m, m.a(x))), a=conv(2, 2), b=conv(2, 1), g=nn.Parameter(torch.randn(2)),
        one=nn.Parameter(torch.randn(())), token=nn.Parameter(torch.randn(1, 2, 1)), rows=nn.Linear(2, 2),
        table=nn.Parameter(torch.randn(9, 4)), places=nn.Buffer(torch.arange(72) * 5 % 9), inner=conv(2, 2),
        scale=nn.Buffer(torch.tensor(1.5)), marks=nn.Buffer(torch.ones(12, 12).tril() > 0),
        square=nn.Parameter(torch.randn(12, 12)))


@pytest.mark.parametrize("name", SHARED)
def test_what_all_images_share_and_images_elsewhere(name: str) -> None:
    """Proved in both modes and for two batches; parameters that it does not take are taken away."""
    module: Any = shared(name)
    used = {"a", "b", *SHARED[name][0].__code__.co_names}
    for one in {*module._parameters, *module._modules, *module._buffers} - used:
        delattr(module, one)
    layers = read(module, lambda _: [SHAPE, (3, *SHAPE[1:])], SHAPE)
    kinds = [hyperparameters(*one)[0] for one in layers]
    expected = SHARED[name][1]
    assert expected is None or kinds[kinds.index("conv2d") + 1:-1] == expected
    if name == "what a buffer says":
        constant = next(layer for _, layer in layers if type(layer).__name__ == "Parameter")
        assert not constant.weight.requires_grad and constant.weight.flatten().tolist() == [2.25, 3.25]


class Several(nn.Module):
    """Outputs in a dictionary and a list."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = conv(2, 2), conv(2, 1)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        y = self.a(x).relu()
        return {"y": self.b(y), "more": [y, None, 3]}


def test_one_of_several_outputs_is_chosen() -> None:
    """By its number or its name; one alone in a list is the output."""
    for which in (0, "y"):
        layers = read(Several(), lambda _: [SHAPE, (3, *SHAPE[1:])], SHAPE, output=which)
        assert [hyperparameters(*one)[0] for one in layers][-3:] == ["conv2d", "relu", "conv2d"]
    for which, why in ((2, "^output 2: it gives 2, expected a number from 0 to 1$"),
                       ("z", r"^output 'z': it gives \['y', 'more'\]$"), (None, r"2 outputs, .* say which \(output\)")):
        with pytest.raises(InputError, match=why):
            read(Several(), lambda _: [SHAPE], SHAPE, output=which)
    module = Written(lambda m, x: [m.a(x) * 2], a=conv(2, 2))
    assert [name for name, _ in read(module, lambda _: [SHAPE], SHAPE)][-2:] == ["a", "mul"]


def counted(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.count.view(-1)[:1].add_(1)
    return m.a(x) * 1.5


def filled(m: Any, x: torch.Tensor) -> torch.Tensor:
    mask = x.new_zeros(8, 12)
    mask[:2, 3:].fill_(0.5)
    return m.a(x) * mask


def test_a_buffer_that_changes_is_refused_and_a_tensor_that_forward_fills_is_not() -> None:
    """Whether or not the output shows it: the module that was read would keep other numbers."""
    with pytest.raises(InputError, match="1 obstacle: add_: it changes 'count'"):
        layers_of(Written(counted, a=conv(2, 2), count=nn.Buffer(torch.zeros(1))))
    layers = layers_of(Written(filled, a=conv(2, 2)))
    weight = next(layer.weight for _, layer in layers if type(layer).__name__ == "Parameter")
    assert isinstance(weight, torch.Tensor) and weight.sum() == 0.5 * 2 * 9


def test_what_is_made_like_a_tensor_has_its_digits() -> None:
    module = Written(lambda m, x: m.a(x) + torch.full_like(x, 0.1), a=conv(2, 2)).double()
    weight = next(layer.weight for _, layer in layers_of(module) if type(layer).__name__ == "Parameter")
    assert isinstance(weight, torch.Tensor) and set(weight.flatten().tolist()) == {0.1}


def test_the_gradient_of_a_norm_of_nothing_is_nothing() -> None:
    module = Written(lambda m, x: m.a(x) / (m.a2(x).norm(dim=1, keepdim=True) + 1), a=conv(2, 2), a2=conv(2, 2))
    layers = layers_of(module)
    assert [hyperparameters(*one)[0] for one in layers if one[0].startswith("linalg")] == [
        "square", "sum", "clip", "sqrt"]
    x = torch.zeros(2, 2, 4, 4, requires_grad=True)
    for _, layer in layers:
        if isinstance(layer, nn.Conv2d):
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    *_, (_, y) = run(layers, x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert slope.isfinite().all() and y.abs().max() == 0


def test_infinite_numbers_are_none_that_a_softmax_does_not_see() -> None:
    module = Written(lambda m, x: m.a(x) + m.mask, a=conv(2, 2), mask=nn.Buffer(torch.tensor(-torch.inf)))
    with pytest.raises(InputError, match="output differs as it is"):
        layers_of(module)
    module.mask.fill_(torch.nan)
    with pytest.raises(InputError, match="a tensor with NaN as an operand"):
        layers_of(module)


#: Those whose layers have a size of the image as a number
OF_ONE_SIZE = {"size as numbers", "six dimensions", "selected", "chunks", "variance", "repeated"}


@pytest.mark.parametrize("name", [one for one in WRITTEN if one != "squeezed"])
def test_it_is_written_as(name: str) -> None:
    what, kinds = WRITTEN[name]
    layers = layers_of(between(what))
    found = [kind for kind, _ in (hyperparameters(*one) for one in layers)]
    inside = found[found.index("conv2d") + 1:-1]
    assert kinds is None or inside == kinds
    assert found[-1] == "conv2d" and (found[0] == "reshape") == (name in OF_ONE_SIZE)


@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_proved(name: str) -> None:
    """In both modes, with gradients and without, for two batches; torch.fx refuses each of them."""
    make, shape = NETWORKS[name]
    module = make()
    with pytest.raises(InputError, match=r"torch\.export may read it"):
        read(module, lambda _: [shape])
    layers = layers_of(module, shape)
    values = module.state_dict()
    found = {layers.source(name, part) for name, layer in layers for part in layer.state_dict()} - {""}
    assert found | layers.constants == set(values)


def test_names_are_those_of_modules_and_else_of_calls() -> None:
    module = nn.Sequential(conv(2, 4), Attention(4, 2))
    names = [name for name, _ in layers_of(module, (2, 2, 4, 6))]
    assert names[:4] == ["input_shape", "0", "1.flatten", "1.transpose"]
    assert {"1.norm", "1.q", "1.k", "1.v", "1.out", "1.scaled_dot_product_attention", "1.add"} < set(names)


def test_a_weight_without_a_layer_gets_a_name_and_a_source() -> None:
    module = Written(lambda m, x: functional.conv2d(x, m.w) * 2, w=nn.Parameter(torch.randn(3, 2, 3, 3)))
    layers = layers_of(module)
    assert layers[0][0] == "conv2d" and layers.sources == {"conv2d.weight": "w"} and layers[0][1].weight.shape[0] == 3


def test_all_obstacles_are_named_with_their_lines() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.cumprod(m.a(x), 2)
        z = m.a2(x).sinh()
        y = (y + z) * m.g
        return m.b(y)[1:]

    module = Written(forward, a=conv(2, 2), a2=conv(2, 2), b=conv(2, 1), g=nn.Parameter(torch.ones(1)))
    with pytest.raises(InputError) as error:
        layers_of(module)
    text = str(error.value)
    assert text.startswith("the model has 3 obstacles: cumprod: there is no such operation in exchange files")
    found = [one.partition(" (")[0] for one in text.split("; ")]
    assert found[1:] == ["sinh: there is no such operation in exchange files",
                         "slice: a part of the images, or one from the number 2**24 on"]
    assert text.count("test_exported.py, line ") == 3 and "\n" not in text


def in_one_type(x: torch.Tensor, wanted: bool = False) -> torch.Tensor:
    with torch.autocast("cpu", enabled=wanted):
        return 2 * (x @ x.mT).softmax(-1)


def test_a_part_without_autocast_is_read_and_one_with_it_refused() -> None:
    layers = layers_of(Written(lambda m, x: m.b(in_one_type(m.a(x)) @ x), a=conv(2, 2), b=conv(2, 1)))
    kinds = [hyperparameters(*one)[0] for one in layers]
    assert kinds[kinds.index("conv2d") + 1:-2] == ["transpose", "matmul", "softmax", "affine"]
    with pytest.raises(InputError, match="wrap_with_autocast: "):
        layers_of(Written(lambda m, x: in_one_type(m.a(x), True), a=conv(2, 2)))


def of_one(what: Callable[[Any, torch.Tensor], Any], **parts: Any) -> Callable[[], nn.Module]:
    """What makes a module of a convolution and other parts."""
    return lambda: Written(what, a=conv(2, 2), **parts)


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a stored operand": (of_one(lambda m, x: torch.atan2(2 * m.a(x), m.g), g=nn.Parameter(torch.ones(1))),
                         r"1 obstacle: atan2: .*line"),
    "a part": (of_one(lambda m, x: 2 * m.a(x)[1:]), "slice: a part of the images"),
    "two outputs": (of_one(lambda m, x: (m.a(x), x * 2)), "it gives 2 outputs, supported is one tensor"),
    "used twice": (of_one(lambda m, x: 2 * m.b(m.b(m.a(x))), b=nn.BatchNorm2d(2)),
                   "batch_norm: a batch normalisation with running statistics that several calls take"),
    "transposed, twice": (of_one(lambda m, x: 2 * m.b(m.b(m.a(x))), b=nn.ConvTranspose2d(2, 2, 1)),
                          "conv_transpose2d: a weight that several calls take, or that is computed"),
    "a weight of the input": (of_one(lambda m, x: functional.linear(m.a(x), x[0, 0])), "a part of the images"),
    "a choice": (of_one(lambda m, x: torch.where(m.a(x) > 0, m.a(x), x)), "a choice that depends on the input"),
    "over the images": (of_one(lambda m, x: m.a(x).clone().mean(0, keepdim=True)), "mean: over the images, too"),
    "another type": (of_one(lambda m, x: 2 * m.a(x).double()), r"it computes in torch\.float32 and torch\.float64"),
    "a value": (of_one(lambda m, x: m.a(x) if x.sum() > 0 else x), "on the values of tensors"),
    "the mode": (of_one(lambda m, x: m.a(x) * 2 if m.training else m.a(x)), "differs in evaluation"),
    "many images": (of_one(lambda m, x: m.a(x) * len(x)), "output differs as it is"),
    "no gradients": (of_one(lambda m, x: m.a(x.detach()) * 2), "the gradient of the input differs"),
    "running statistics": (lambda: nn.Sequential(conv(2, 2), nn.InstanceNorm2d(2, track_running_stats=True)),
                           r"instance_norm: track_running_stats True, supported is False \(layer '1', InstanceNorm2d"),
    "a chunk": (of_one(lambda m, x: 2 * m.a(x).chunk(2, 0)[1]), "a part of the images"),
    "a number for each image": (of_one(lambda m, x: m.a(x) * torch.arange(2.0).view(2, 1, 1, 1)),
                                r"mul: operands of the shapes \(2, 2, 8, 12\) and \(2, 1, 1, 1\)"),
    "three dimensions": (lambda: nn.Sequential(nn.LPPool3d(2, 2)), r"layer '0', LPPool3d"),
    "counter": (of_one(lambda m, x: m.a(x) * 2 if setattr(m, "calls", m.calls + 1) is None else x, calls=3),
                "changes the attribute 'calls' from 3 to "),
    "parallel": (lambda: nn.DataParallel(nn.Sequential(conv(2, 2))), r"a DataParallel around .*its \.module"),
    "averaged": (lambda: torch.optim.swa_utils.AveragedModel(conv(2, 2)), r"is a AveragedModel around .*its \.module"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(InputError, match=message) as error:
        layers_of(make(), (2, 2, 4, 8, 12) if name == "three dimensions" else SHAPE)
    assert "\n" not in str(error.value)


def test_a_name_that_files_cannot_have_is_another() -> None:
    module = nn.Sequential(OrderedDict({"\u03c3": conv(2, 2), "last": nn.ReLU6()}))
    layers = layers_of(module)
    assert [name for name, _ in layers] == ["_", "last.relu", "last"]
    assert layers.sources == {"_.weight": "\u03c3.weight", "_.bias": "\u03c3.bias"}


@pytest.fixture
def own_nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of a user's, which begins with a normalisation; and one that cannot be read."""
    (tmp_path / "exported_nets.py").write_text(
        "from torch import nn\n"
        "def make():\n"
        "    return nn.Sequential(nn.BatchNorm2d(3), nn.ReLU6(), nn.Conv2d(3, 1, 1))\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_the_shape_of_an_image_is_said(own_nets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where no convolution comes first, nothing else says how many channels there are."""
    path = str(own_nets / "own.h5")
    options = ["--model", "exported_nets:make", "--batch", "1", "--steps", "1", "--shape"]
    assert main([path, *options, "3,8,12"]) == 0
    with h5py.File(path) as file:
        assert file["batches/0/input"].shape == (1, 3, 8, 12)
    for wrong, message in ((["3,x"], "found '3,x'"), (["3,0,8"], "shape must be >= 1, found 0"),
                           (["x="], "1 inputs (x), expected those that forward takes: input"),
                           (["3,8,8", "--size", "8"], "--size is given, and --shape"),
                           (["1,8,8"], "torch.export cannot read the model for an input of the shape (2, 1, 8, 8): ")):
        assert main([path, *options, *wrong]) == 2
        assert message in capsys.readouterr().err


def test_a_training_gives_an_example_as_large_as_its_crops(own_nets: Path) -> None:
    text = """model = "exported_nets:make"
    [data]
    inputs = "none.npy"
    noise2noise = "consecutive"
    batch = 2
    crop = [16, 16]
    [training]
    steps = 1"""
    kinds = [one.kind for one in Configuration.of_text(text).network().model.layers]
    assert kinds == ["batch_norm2d", "relu", "clip", "conv2d"]


def test_what_has_no_parameters_is_proved_in_float64_too() -> None:
    """In float32 rounding would be taken for a difference."""
    layers = layers_of(Written(lambda m, x: x.softmax(1).softmax(-1) * x.softmax(2)), (3, 5, 7))
    assert [name for name, _ in layers]


def test_pixels_that_are_merged_leave_the_size_open() -> None:
    """Their number is what is left in images of other sizes."""
    module = Written(lambda m, x: m.b(x.reshape(x.shape[0], 2, x.shape[2] * x.shape[3]).amax(2)), b=nn.Linear(2, 3))
    layers = layers_of(module)
    assert "input_shape" not in [name for name, _ in layers]
    assert [layer.shape for _, layer in layers if hasattr(layer, "shape")] == [(2, -1)]
