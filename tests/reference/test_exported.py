# SPDX-License-Identifier: MIT
"""What torch.export reads: what each operation is written as, names, sizes, and all obstacles at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from reference.errors import InputError
from reference.network.hyperparameters import hyperparameters
from reference.network.layers import Layers
from reference.network.reading import read
from tests.helpers.exported_networks import NETWORKS, Attention, Written, conv

SHAPE = (2, 2, 8, 12)
NUMBER = ["amax", "abs", "clip"]


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
WRITTEN: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], list[str]]] = {
    "instance norm": (functional.instance_norm, ["group_norm"]),
    "relu6": (functional.relu6, ["relu", "clip"]),
    "hardtanh": (lambda x: functional.hardtanh(x, -0.5, 2), ["clip"]),
    "softmax": (lambda x: x.softmax(-1), ["transpose", "softmax", "transpose"]),
    "log-softmax": (lambda x: x.log_softmax(2), ["transpose", "log_softmax", "transpose"]),
    "cat": (lambda x: torch.cat([x, x], 3), ["transpose", "transpose", "concat", "transpose"]),
    "permute": (lambda x: x.permute(0, 2, 3, 1).permute(0, 3, 1, 2), ["transpose"] * 4),
    "negative": (lambda x: -x, [*NUMBER, "multiply"]),
    "multiple": (lambda x: 0.1 * x, [*NUMBER, "abs", "multiply"]),
    "difference": (lambda x: 1 - x, [*NUMBER, "abs", "subtract"]),
    "sum with a multiple": (lambda x: torch.add(x, x, alpha=2), [*NUMBER, "abs", "multiply", "add"]),
    "nothing added": (lambda x: x + 0, [*NUMBER, "relu", "add"]),
    "square": (lambda x: x ** 2, ["multiply"]),
    "cube": (lambda x: x.pow(3), ["multiply", "multiply"]),
    "hardsigmoid": (functional.hardsigmoid, [*NUMBER, "abs", "add", "clip", "clip", "clip", "abs", "divide"]),
    "selu": (functional.selu, ["elu", *NUMBER, "abs", "multiply"]),
    "size as numbers": (lambda x: x.view(x.size(0), x.size(1), x.size(2) * x.size(3)).view_as(x), ["reshape"] * 2),
    "squeezed": (lambda x: x.unsqueeze(1).squeeze(1), []),
    "interpolated to a size": (lambda x: functional.interpolate(functional.max_pool2d(x, 2), x.shape[2:]),
                               ["max_pool2d", "upsample_nearest2d"]),
    "average of all": (lambda x: functional.avg_pool2d(x, x.shape[2:]) + x, ["global_avg_pool2d", "add"]),
    "identities": (lambda x: x.contiguous().clone().to(x.dtype)[:, :].expand_as(x) if x.size(0) else x, []),
}


@pytest.mark.parametrize("name", [one for one in WRITTEN if one != "squeezed"])
def test_it_is_written_as(name: str) -> None:
    what, kinds = WRITTEN[name]
    layers = layers_of(between(what))
    found = [kind for kind, _ in (hyperparameters(*one) for one in layers)]
    inside = found[found.index("conv2d") + 1:-1]
    assert inside == kinds and found[-1] == "conv2d"
    assert (found[0] == "reshape") == (name == "size as numbers")


@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_proved(name: str) -> None:
    """In both modes, with gradients and without, for two batches; torch.fx refuses each of them."""
    make, shape = NETWORKS[name]
    module = make()
    with pytest.raises(InputError, match="torch.export may read it"):
        read(module, lambda _: [shape])
    layers = layers_of(module, shape)
    values = module.state_dict()
    for layer, part in ((one, part) for one, layer in layers for part in layer.state_dict()):
        assert layers.source(layer, part) in values


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
        y = torch.roll(m.a(x), 1, 2)
        z = m.a2(x).sin()
        y = (y + z) * m.g
        return m.b(y)[:, :, 1:]

    module = Written(forward, a=conv(2, 2), a2=conv(2, 2), b=conv(2, 1), g=nn.Parameter(torch.ones(1)))
    with pytest.raises(InputError) as error:
        layers_of(module)
    text = str(error.value)
    assert text.startswith("the model has 2 obstacles: roll: there is no such operation in exchange files")
    assert "sin" in text and text.count("test_exported.py, line ") == 2 and "\n" not in text


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a stored operand": (lambda: Written(lambda m, x: 2 * m.a(x) * m.g, a=conv(2, 2), g=nn.Parameter(torch.ones(1))),
                         "1 obstacle: mul: a stored tensor as an operand .*line"),
    "a part": (lambda: Written(lambda m, x: 2 * m.a(x)[:, :, 1:], a=conv(2, 2)), "slice: a part of a tensor"),
    "two outputs": (lambda: Written(lambda m, x: (m.a(x), x * 2), a=conv(2, 2)), "it gives 2 outputs, supported is one"),
    "used twice": (lambda: Written(lambda m, x: 2 * m.a(m.a(x)), a=conv(2, 2)), "conv2d: layer 'a' is used twice"),
    "over the images": (lambda: Written(lambda m, x: 2 * m.a(x).mean(0, keepdim=True), a=conv(2, 2)),
                        "mean: over the images, too"),
    "another type": (lambda: Written(lambda m, x: 2 * m.a(x).double(), a=conv(2, 2)),
                     "to: it computes in torch.float32 and torch.float64"),
    "a value": (lambda: Written(lambda m, x: m.a(x) if x.sum() > 0 else x, a=conv(2, 2)), "on the values of tensors"),
    "the mode": (lambda: Written(lambda m, x: m.a(x) * 2 if m.training else m.a(x), a=conv(2, 2)), "differs in evaluat"),
    "many images": (lambda: Written(lambda m, x: m.a(x) * len(x), a=conv(2, 2)), "output differs as it is"),
    "no gradients": (lambda: Written(lambda m, x: m.a(x.detach()) * 2, a=conv(2, 2)), "the gradient of the input differs"),
    "running statistics": (lambda: nn.Sequential(conv(2, 2), nn.InstanceNorm2d(2, track_running_stats=True)),
                           "instance_norm: track_running_stats True, supported is False .layer '1', InstanceNorm2d"),
    "an integer": (lambda: nn.Sequential(nn.Conv3d(2, 2, 1)), "conv3d: .*layer '0', Conv3d"),
    "counter": (lambda: Written(lambda m, x: m.a(x) * 2 if setattr(m, "calls", m.calls + 1) is None else x,
                                a=conv(2, 2), calls=3), "changes the attribute 'calls' from 3 to "),
    "parallel": (lambda: nn.DataParallel(nn.Sequential(conv(2, 2))), "is a DataParallel around a module, .* its .module"),
    "averaged": (lambda: torch.optim.swa_utils.AveragedModel(conv(2, 2)), "is a AveragedModel around .* its .module"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(InputError, match=message) as error:
        layers_of(make(), (2, 2, 4, 8, 12) if name == "an integer" else SHAPE)
    assert "\n" not in str(error.value)
