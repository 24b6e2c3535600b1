# SPDX-License-Identifier: MIT
"""Reading modules: what hides at the moment of reading is kept or refused by name, and nothing is changed."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, prune

from reference.errors import InputError
from reference.export import export
from reference.model import VariedCNN
from reference.network import pointwise
from reference.network.hyperparameters import hyperparameters
from reference.network.layers import Embedding, Layers, Reduce
from reference.network.proof import Shape, sizes
from reference.network.reading import read
from reference.settings import ExportSettings
from tests import ROOT
from tests.helpers.torch_graphs import Dropped, Evaluated, Resnet

SHAPES = [(2, 1, 8, 9), (3, 1, 10, 8)]


def shapes(_: Layers) -> list[Shape]:
    return SHAPES


class Net(nn.Module):
    """Two convolutions, with `what` between or around them, of which `extra` is a part."""

    def __init__(self, what: Callable[[Any, torch.Tensor], torch.Tensor], **extra: Any) -> None:
        super().__init__()
        self.a, self.r, self.b = nn.Conv2d(1, 1, 3, padding=1), nn.ReLU(), nn.Conv2d(1, 1, 3, padding=1)
        self.what = what
        for name, value in extra.items():
            if isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def chain(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.r(self.a(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.what(self, x)


class Called(Net):
    """What torch.fx does not see: it traces the forward."""

    def __init__(self, around: Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__(lambda m, x: m.n(m.chain(x)), n=nn.BatchNorm2d(1).eval())
        self.around = around
        nn.init.zeros_(self.a.bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.around(self, x, super().__call__(x))


def plain(net: Any, x: torch.Tensor) -> torch.Tensor:
    return net.chain(x)


def learned(value: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor([float(value)]))


def without_gradients(net: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = net.a(x)
    return net.b(net.r(y))


def dead(net: Any, x: torch.Tensor) -> torch.Tensor:
    net.b(x)
    return net.r(net.a(x))


class Reversed(torch.autograd.Function):
    """The same forward, and the gradient with another sign."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return -grad


def in_bfloat16(net: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        y = net.chain(x)
    return y


def clamped(net: Any, x: torch.Tensor) -> torch.Tensor:
    for one in net.parameters():
        one.data.clamp_(-1e6, 1e6)
    return net.chain(x)


def counted(net: Any, x: torch.Tensor) -> torch.Tensor:
    net.calls += 1
    return net.chain(x)


def replaced(net: nn.Module, path: str, name: str, value: Any) -> nn.Module:
    """The module with an attribute of a part set."""
    setattr(net.get_submodule(path), name, value)
    return net


def hooked(net: nn.Module, register: str, path: str = "a") -> nn.Module:
    getattr(net.get_submodule(path), register)(lambda *_: None)
    return net


def of_parameter(register: str) -> nn.Module:
    net = Net(plain)
    getattr(net.a.weight, register)(lambda gradient: None)
    return net


def shared(first: slice, second: slice) -> nn.Module:
    """Two layers whose weights lie in one tensor."""
    one, whole = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)), torch.randn(8, 4, 1, 1)
    one[0].weight, one[1].weight = nn.Parameter(whole[first]), nn.Parameter(whole[second])
    return one


def skipped(net: Any, x: torch.Tensor) -> torch.Tensor:
    x = net.a(x)
    y = net.b(net.r(x))
    y += x
    return y


def alias(net: Any, x: torch.Tensor) -> torch.Tensor:
    x = net.chain(x)
    z = x
    z += net.chain2(x)
    return z * x


def saved(net: Any, x: torch.Tensor) -> torch.Tensor:
    y = torch.sigmoid(net.chain(x))
    y += x
    return y


def viewed(net: Any, x: torch.Tensor) -> torch.Tensor:
    y = functional.relu(x.transpose(2, 3), True)
    return y.transpose(2, 3) + net.chain(x)


HIDDEN: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "layer scale of 1": (lambda: Net(lambda m, x: m.b(m.r(m.a(x)) * m.g), g=learned(1)), "its tensor 'g' outside of a"),
    "bias of 0": (lambda: Net(lambda m, x: m.b(m.r(m.a(x)) + m.g), g=learned(0)), "its tensor 'g' outside of a layer"),
    "gate of 0": (lambda: Net(lambda m, x: m.chain(x) + m.g * x, g=learned(0)), "its tensor 'g' outside of a layer"),
    "buffer of 1": (lambda: Net(lambda m, x: m.chain(x * m.g), g=torch.ones(1)), "its tensor 'g' outside of a layer"),
    "where": (lambda: Net(lambda m, x: m.chain(torch.where(x.abs() < 1e3, x, x))), "the model calls "),
    "unused parameter": (lambda: Net(plain, g=learned(0)), "^the parameter 'g' belongs to no layer that the model's f"),
    "unused buffer": (lambda: Net(plain, g=torch.ones(1)), "^the buffer 'g' belongs to no layer that the model's forw"),
    "unused layer": (lambda: Net(plain, spare=nn.ModuleList([nn.Linear(1, 1)])), "^the parameter 'spare.0.weight' bel"),
    "unused norm": (lambda: Net(plain, n=nn.BatchNorm2d(1, affine=False)), "^the buffer 'n.running_mean' belongs to n"),
    "odd width": (lambda: Net(lambda m, x: m.chain(functional.pad(x, (0, 1)) if x.shape[-1] % 2 else x)), "cannot be"),
    "size": (lambda: Net(lambda m, x: m.chain(x)[..., 8:-8] if x.shape[-1] >= 64 else m.chain(x)), "cannot be traced"),
    "images": (lambda: Net(lambda m, x: m.chain(x) - m.chain(x).mean(0) if len(x) > 1 else m.chain(x)), "cannot be tr"),
    "value": (lambda: Net(lambda m, x: m.chain(x) if x.max() < 1e3 else x), "cannot be traced by torch.fx"),
    "buffer's value": (lambda: Net(lambda m, x: m.chain(x) if m.n.num_batches_tracked < 9 else m.n(x),
                                   n=nn.BatchNorm2d(1)), "computes with tensors beside its layers .aten.lt"),
    "grad mode": (lambda: Net(lambda m, x: m.chain(x) if torch.is_grad_enabled() else m.chain(x).relu()),
                  "output differs as it is without gradients, .*torch.is_grad_enabled"),
    "no gradients": (lambda: Net(without_gradients), r"the gradient of the input differs .*torch\.no_grad"),
    "training": (lambda: Net(lambda m, x: m.chain(x) if m.training else m.chain(x).relu()),
                 r"output differs in evaluation, .*self\.training"),
    "dropout for ever": (lambda: Net(lambda m, x: functional.dropout(m.chain(x), 0.5)), "dropout that never ends"),
    "bias of 0 around": (lambda: Called(lambda m, x, y: y + m.a.bias.sum() * x), "output differs as it is"),
    "buffer of 0 around": (lambda: Called(lambda m, x, y: y + m.n.running_mean.sum() * x), "output differs as it"),
    "second size": (lambda: Called(lambda m, x, y: y if x.shape[-1] == 9 else y + y), r"differs as it .*\(3, 1, 10, 8"),
    "many images": (lambda: Called(lambda m, x, y: y if len(x) < 3 else y + y), r"differs as it is.*\(3, 1, 10, 8"),
    "decorated": (lambda: Net(torch.no_grad()(plain)), "the gradient of the input differs as it is, "),
    "reversed gradients": (lambda: Net(lambda m, x: Reversed.apply(m.chain(x))), r"the gradient .*autograd\.Fu"),
    "dead layer": (lambda: Net(dead), "^layer 'b' is called, and nothing takes its output"),
    "autocast": (lambda: Net(in_bfloat16), r"output differs .*torch\.autocast"),
    "clamped parameters": (lambda: Net(clamped), "the model's forward computes with tensors beside its layers .aten"),
    "random branch": (lambda: Net(lambda m, x: m.chain(x) if random.random() < 2 else x), "draws random numbers of Py"),
    "random of numpy": (lambda: Net(lambda m, x: m.chain(x) if np.random.rand() < 2 else x), "draws random numbers of"),
    "random of torch": (lambda: Net(lambda m, x: m.chain(x) if torch.rand(()) < 2 else x), "beside its layers .aten.r"),
    "counter": (lambda: Net(counted, calls=3), "changes the attribute 'calls' from 3 to 4"),
    "hook of a container": (lambda: hooked(Net(plain), "register_forward_hook", ""), "^the model has forward hooks"),
    "pre-hook": (lambda: hooked(nn.Sequential(Net(plain)), "register_forward_pre_hook", "0"), "^layer '0' has forward"),
    "gradient hook": (lambda: of_parameter("register_hook"), "^the weight of layer 'a' has hooks"),
    "accumulate hook": (lambda: of_parameter("register_post_accumulate_grad_hook"), "^the weight of layer 'a' has hoo"),
    "spectral norm": (lambda: Net(plain, c=parametrizations.spectral_norm(nn.Conv2d(1, 1, 1))), "^layer 'c' has param"),
    "pruned": (lambda: Net(plain, c=prune.l1_unstructured(nn.Conv2d(1, 1, 1), "weight", 0.5)), "'c' has forward pre h"),
    "own forward": (lambda: replaced(Net(plain), "", "forward", lambda x: 2 * x), r"^the model has a forward\(\) of i"),
    "own method": (lambda: replaced(Net(plain), "a", "_conv_forward", lambda x, w, b: 2 * x), "'a' has a _conv_forwar"),
    "scripted": (lambda: torch.jit.script(nn.Sequential(nn.Conv2d(1, 4, 3))), r"^the model is compiled by torch\.jit,"),
    "scripted part": (lambda: nn.Sequential(torch.jit.trace(nn.Conv2d(1, 1, 1), torch.ones(1, 1, 2, 2))), "^layer '0'"),
    "compiled part": (lambda: replaced(Net(plain), "a", "_orig_mod", 1), r"^layer 'a' is compiled by torch\.compile"),
    "lazy": (lambda: nn.Sequential(nn.LazyConv2d(1, 1)), "^the weight of layer '0' has no shape yet"),
    "tied": (lambda: shared(slice(0, 4), slice(0, 4)), r"^the parameters '0.weight' and '1.weight' share their memory"),
    "overlapping": (lambda: shared(slice(0, 4), slice(2, 6)), r"^the parameters '0.weight' and '1.weight' share their"),
    "one parameter": (lambda: replaced(one := nn.Sequential(nn.Conv2d(1, 1, 1), nn.Conv2d(1, 1, 1)), "1", "weight",
                                       one[0].weight), "^layers '0' and '1' share their weight"),
    "used twice": (lambda: Net(lambda m, x: m.chain(m.chain(x))), "^layer 'a' is used twice"),
    "frozen statistics": (lambda: nn.Sequential(replaced(nn.BatchNorm2d(1), "", "track_running_stats", False)),
                          "track_running_stats False found, True is supported"),
    "in place": (lambda: Net(skipped, r=nn.ReLU(inplace=True)),
                 r"the model calls r \(.*test_reading.py, line \d+: y = net.b.*\), which changes a tensor in place th"),
    "in place, a function": (lambda: Net(lambda m, x: functional.relu(x, inplace=True) + m.a(x)), "calls relu .* in p"),
    "in place, an alias": (lambda: Net(alias, chain2=nn.Sequential(nn.Conv2d(1, 1, 1))), r"calls add .*z \+= net.chai"),
    "in place, what is saved": (lambda: Net(saved), "^the model fails in its backward pass on images of 8x9 pixels: "),
    "in place, a view": (lambda: Net(viewed),
                         "output differs as it is, .* changes a tensor in place that is used later"),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning", "ignore:Lazy modules:UserWarning")
@pytest.mark.parametrize("kind", HIDDEN)
def test_what_hides_is_refused_by_name(kind: str) -> None:
    make, message = HIDDEN[kind]
    with pytest.raises(InputError, match=message) as error:
        read(make(), shapes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("what", "kinds"), [
    (plain, ["conv2d", "relu", "conv2d"]),
    (lambda m, x: m.chain(x).clamp(-100, 100), ["conv2d", "relu", "conv2d", "clip"]),
    (lambda m, x: functional.dropout(m.chain(x), 0.5 if m.training else 0.0), ["conv2d", "relu", "conv2d", "dropout"]),
    (lambda m, x: functional.dropout(m.chain(x), 0.5, m.training, True), ["conv2d", "relu", "conv2d", "dropout"]),
    (skipped, ["conv2d", "relu", "conv2d", "add"]),
])
def test_what_shows_is_kept(what: Callable[[Any, torch.Tensor], torch.Tensor], kinds: list[str]) -> None:
    assert [hyperparameters(*one)[0] for one in read(Net(what), shapes)] == kinds


def test_a_sequential_with_a_forward_of_its_own_is_what_it_computes() -> None:
    class Doubled(nn.Sequential):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            y = super().forward(input)
            return y + y

    layers = read(nn.Sequential(Doubled(nn.Conv2d(1, 1, 1), nn.ReLU())), shapes)
    assert layers.inputs == {"0.0": ("input",), "0.1": ("0.0",), "add": ("0.1", "0.1")}


def test_each_layer_of_a_sequence_takes_the_one_before() -> None:
    layers = read(VariedCNN(), lambda _: [(2, 3, 16, 20), (3, 3, 18, 16)])
    assert layers.inputs == Layers(layers).inputs == {
        "wide": ("input",), "relu1": ("wide",), "grouped": ("relu1",), "relu2": ("grouped",), "tall": ("relu2",)}


def everything(module: nn.Module) -> dict[str, Any]:
    """Every bit of a module, and the state of all random numbers."""
    found: dict[str, Any] = {name: (id(one), one.detach().numpy().tobytes()) for name, one in
                             (*module.named_parameters(), *module.named_buffers())}
    found |= {f"mode of {name}": (one.training, getattr(one, "inplace", None)) for name, one in module.named_modules()}
    state: Any = np.random.get_state()
    drawn = random.getstate(), state[1].tobytes(), state[2], torch.get_rng_state().numpy().tobytes()
    return found | {"random": drawn}


@pytest.mark.parametrize("make", [
    Resnet, Dropped, Evaluated, lambda: Net(lambda m, x: m.chain(x) if random.random() < 2 else x),
    lambda: Net(lambda m, x: functional.dropout(m.n(m.chain(x)), 0.5), n=nn.BatchNorm2d(1)),
    lambda: Net(lambda m, x: m.chain(x) if torch.is_grad_enabled() else m.a(m.chain(x))),
    lambda: Net(clamped)])
def test_module_and_random_numbers_are_left_as_they_were(make: Callable[[], nn.Module]) -> None:
    """Where it is refused, too."""
    module = make()
    before = everything(module)
    try:
        layers = read(module, lambda _: [(2, 1, 16, 12), (3, 1, 20, 16)])
    except InputError:
        layers = Layers([])
    assert everything(module) == before
    values = module.state_dict()
    assert all(torch.equal(one, values[f"{name}.{part}"]) for name, layer in layers
               for part, one in layer.state_dict().items())
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_parameter_of_inference_mode_is_read(mode: Callable[[], Any]) -> None:
    module = nn.Sequential(nn.Linear(5, 5, bias=False))
    with torch.inference_mode():
        module[0].weight = nn.Parameter(2.0 * torch.eye(5))
    with mode():
        ((name, layer),) = read(module, lambda _: [(2, 5), (3, 5)])
    assert name == "0" and torch.equal(layer.weight, 2 * torch.eye(5)) and not layer.weight.is_inference()


def test_numbers_that_are_undefined_hide_nothing() -> None:
    """Roots of random numbers are NaN, and so are all that follows and all gradients: then positive numbers tell."""
    def what(net: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.sqrt(torch.sqrt(net.a(x)).mean((2, 3), keepdim=True))
        return net.b(y if net.training else y + y)

    with pytest.raises(InputError, match="differs in evaluation"):
        read(Net(what), shapes)


def test_sizes_are_small_and_fit() -> None:
    assert sizes(lambda h, w: h % 16 == w % 16 == 0, (1024, 1024)) == [(48, 32), (64, 80)]
    assert sizes(lambda h, w: (h, w) == (224, 224), (224, 224)) == [(224, 224)]
    assert sizes(lambda h, w: True, (12, 10)) == [(12, 10), (12, 20)]


def test_what_torch_compiles_with_is_not_imported(tmp_path: Path) -> None:
    """It takes longer than torch itself and the export of a small network; versions of torch may bring it anyway."""
    code = ("import sys, torch; brought = 'sympy' in sys.modules; from reference.cli import main; main(sys.argv[1:]); "
            "sys.exit('sympy' in sys.modules and not brought)")
    command = [sys.executable, "-c", code, str(tmp_path / "x.h5"), "--size", "8x8", "--steps", "1"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=False).returncode == 0
    assert (tmp_path / "x.h5").is_file()


def test_a_parameter_without_a_gradient_is_named(tmp_path: Path) -> None:
    """Whole numbers that follow from it choose rows, and nothing flows back through them."""
    chosen = nn.Sequential(nn.Linear(3, 3), pointwise.LAYERS["affine"][0](1e8, 0.0), pointwise.LAYERS["clip"][0](0, 1),
                           Reduce("sum", (1,), True), Embedding(4, 2))
    with pytest.raises(InputError, match=r"parameter '0\.weight' gets no gradient: whole numbers alone"):
        export(tmp_path / "f.h5", ExportSettings(model=lambda: chosen, shape=(3,), batch=2, steps=1))


def test_what_is_multiplied_by_1_has_a_gradient_of_its_own(tmp_path: Path) -> None:
    """And not the sum of all who take its input."""
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.same = nn.Linear(3, 3), pointwise.LAYERS["affine"][0](1.0, 0.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.before(x)
            found: torch.Tensor = self.same(y) + y
            return found

    export(tmp_path / "f.h5", ExportSettings(model=Twice, shape=(3,), batch=2, steps=1))
    with h5py.File(tmp_path / "f.h5") as file:
        own, whole = (file[f"steps/0/grads/{name}/output"][()] for name in ("same", "before"))
        assert own.any() and np.array_equal(2 * own, whole)
