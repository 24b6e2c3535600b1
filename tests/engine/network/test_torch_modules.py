# SPDX-License-Identifier: MIT
"""from_torch: only what computes the same function is taken, and a refusal names the layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, prune, weight_norm

import bridge
from tests.helpers.cases import batch

Module = nn.Module


class Scaled(nn.Conv2d):
    """Scales its weights."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


class Leaky(nn.ReLU):
    """Lets a tenth through."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.leaky_relu(x, 0.1)


class Around(Module):
    """A chain with something around it."""

    def __init__(self, change: Callable[[Module, torch.Tensor, torch.Tensor], torch.Tensor], **scale: float) -> None:
        super().__init__()
        self.a, self.b, self.change = nn.Conv2d(1, 1, 3, padding=1), nn.ReLU(), change
        for name, value in scale.items():
            setattr(self, name, nn.Parameter(torch.tensor([value])))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.change(self, x, self.b(self.a(x)))


def chain(change: Callable[[nn.Conv2d], object] = lambda conv: None) -> nn.Sequential:
    """Two layers, the first of them changed."""
    torch.manual_seed(3)
    module = nn.Sequential()
    module.add_module("first", nn.Conv2d(1, 2, 3))
    module.add_module("second", nn.ReLU())
    change(module.first)
    return module


def replaced(**parameters: torch.Tensor) -> nn.Sequential:
    """The chain with other parameters in the first layer."""
    return chain(lambda conv: [setattr(conv, name, nn.Parameter(value)) for name, value in parameters.items()])


def normed() -> nn.Sequential:
    """The old kind of weight norm, which torch warns about."""
    with pytest.warns(FutureWarning):
        return chain(weight_norm)


CHANGED: dict[str, tuple[Callable[[], Any], str]] = {
    "no module": (lambda: 3, "^module: int, expected torch.nn.Module"),
    "scaled": (lambda: nn.Sequential(Scaled(1, 1, 1)), "uses its tensor '0.weight' outside of a layer"),
    "hook": (lambda: chain(lambda c: c.register_forward_hook(lambda m, x, y: 2 * y)), "'first' has forward hooks"),
    "pre-hook": (lambda: chain(lambda c: c.register_forward_pre_hook(lambda m, x: None)), "'first' has forward pre h"),
    "backward hook": (lambda: chain(lambda c: c.register_full_backward_hook(lambda m, x, y: None)), "'first' has back"),
    "weight norm": (normed, "'first' has forward pre hooks"),
    "parametrized": (lambda: chain(parametrizations.weight_norm), "layer 'first' has parametrizations"),
    "pruned": (lambda: chain(lambda c: prune.l1_unstructured(c, "weight", 0.5)), "'first' has forward pre hooks"),
    "meta": (lambda: nn.Sequential(nn.Conv2d(1, 1, 1, device="meta")), "weight of layer '0' is on the meta device"),
    "complex": (lambda: chain().to(torch.complex64), "^module: the model fails .*: Input type"),
    "shape": (lambda: replaced(weight=torch.ones(2, 1, 1, 1)), "'first' has parameters of the shapes .*2, 1, 1, 1"),
    "nan": (lambda: replaced(bias=torch.tensor([1, torch.nan])), "bias of layer 'first' holds NaN"),
    "two types": (lambda: replaced(bias=torch.ones(2).double()), "float32 .layer 'first'. and float64 .layer 'first'"),
    "twice": (lambda: Around(lambda m, x, y: m.a(y)), "^module: layer 'a' is used twice"),
    "where": (lambda: Around(lambda m, x, y: torch.where(y > 50, 50.0, y)), "^module: the model calls gt "),
    "number": (lambda: Around(lambda m, x, y: functional.elu(y, "a")), "^module: layer 'elu' .ELU.: ValueError: could"),
    "rate": (lambda: Around(lambda m, x, y: functional.dropout(y, 2.0)), "^module: the model calls dropout with other"),
    "values": (lambda: Around(lambda m, x, y: y if x.sum() > 0 else x), "^module: the model cannot be traced by torc"),
    "patched": (lambda: chain(lambda c: setattr(c, "forward", lambda x: x[:, :, 1:-1, 1:-1])), "'first' has a for"),
    "layer scale": (lambda: Around(lambda m, x, y: y * m.g, g=1.0), "^module: the model uses its tensor 'g' outside o"),
    "unused": (lambda: Around(lambda m, x, y: y, g=0.0), "^module: the parameter 'g' belongs to no layer that the mod"),
    "grad mode": (lambda: Around(lambda m, x, y: y if torch.is_grad_enabled() else y + y), "^module: .*without gradie"),
    "script": (lambda: torch.jit.script(chain()), r"^module: the model is compiled by torch\.jit, expected the nn\.Mo"),
    "crash": (lambda: Around(lambda m, x, y: 1 / 0), "^module: the model cannot be traced by torch.fx: ZeroDivision"),
}


@pytest.mark.filterwarnings("ignore:Complex modules are a new feature:UserWarning",
                            "ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("kind", CHANGED)
def test_another_function_is_refused(kind: str) -> None:
    """Whatever computes something else than its layers' descriptions is refused, and the layer is named."""
    make, message = CHANGED[kind]
    with pytest.raises((bridge.ArgumentError, bridge.ArgumentTypeError), match=message):
        bridge.Network.from_torch(make())


@pytest.mark.parametrize(("padding", "numbers"), [("valid", (0, 0)), ("same", (2, 3))])
def test_paddings_in_words(padding: str, numbers: tuple[int, int]) -> None:
    """torch's words become numbers, and the outputs agree."""
    module = nn.Sequential(nn.Conv2d(2, 3, (5, 3), dilation=(1, 3), padding=padding))
    net = bridge.Network.from_torch(module)
    assert net.model.layers[0].padding == numbers
    x = batch((2, 2, 11, 12), "float32", 1)
    assert np.allclose(net.forward(x), module(torch.from_numpy(x)).detach().numpy(), rtol=1e-4, atol=1e-4)


def test_a_single_number_is_a_pair() -> None:
    module = chain(lambda conv: setattr(conv, "stride", 2))
    assert bridge.Network.from_torch(module).model.layers[0].stride == (2, 2)


def test_the_module_is_left_as_it_was() -> None:
    """Mode, type and values of the caller's module do not change."""
    module = chain().eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    bridge.Network.from_torch(module)
    assert not module.training and not module.first.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module.first.weight.dtype == torch.float32


def test_a_parameter_of_inference_mode_is_taken() -> None:
    module = nn.Sequential(nn.Linear(5, 5, bias=False))
    with torch.inference_mode():
        module[0].weight = nn.Parameter(2.0 * torch.eye(5))
    x = batch((2, 5), "float32", 1)
    assert np.array_equal(bridge.Network.from_torch(module).forward(x), 2 * x)


def test_a_limit_that_does_not_show_is_kept() -> None:
    torch.manual_seed(0)
    module = Around(lambda m, x, y: y.clamp(0, 100))
    net, x = bridge.Network.from_torch(module), 1e4 * batch((1, 1, 8, 8), "float32", 1)
    assert np.allclose(net.forward(x), module(torch.from_numpy(x)).detach().numpy()) and net.forward(x).max() == 100


class Spare(nn.Module):
    """Two outputs, of which each has layers of its own, and a parameter that nothing takes."""

    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.first, self.spare, self.last = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 2, 1), nn.Conv2d(4, 3, 1)
        self.nothing = nn.Parameter(torch.ones(3))
        self.norm = nn.BatchNorm2d(2) if norm else nn.Identity()

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        y = self.first(x).tanh()
        return [self.last(y), self.norm(self.spare(y))]


def test_what_the_output_does_not_need_stays_as_it_is() -> None:
    """As in torch, where it has no gradient; weights that decay are those of the network alone."""
    torch.manual_seed(0)
    module, x, target = Spare(), torch.randn(2, 1, 6, 7), torch.randn(2, 3, 4, 5)
    net = bridge.Network.from_torch(module, example=(2, 1, 6, 7), output=0)
    assert {name.partition(".")[0] for name in net.parameters} == {"first", "last"}
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.mse_loss(module(x)[0], target).backward()
        optimizer.step()
        net.step(x.numpy(), target.numpy(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for (name, mine), its in zip(net.to_torch().named_parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=1e-6 if name.startswith(("first", "last")) else 0)


def test_statistics_that_change_all_the_same_are_no_less_refused() -> None:
    with pytest.raises(bridge.ArgumentError, match="layer 'norm' is called, and nothing takes its output, but its"):
        bridge.Network.from_torch(Spare(norm=True), example=(2, 1, 6, 7), output=0)


def test_statistics_that_stay_may_be_unused() -> None:
    """A normalisation in evaluation changes nothing."""
    module = Spare(norm=True)
    module.norm.eval()
    net = bridge.Network.from_torch(module, example=(2, 1, 6, 7), output=0)
    assert {name.partition(".")[0] for name in net.parameters} == {"first", "last"}
    torch.testing.assert_close(net.to_torch().state_dict(), module.state_dict(), rtol=0, atol=0)
