# SPDX-License-Identifier: MIT
"""Networks that are no chains: beside PyTorch, saved and resumed, and back to PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge import Adam, AdamW, Model, Network, Sgd
from bridge.engine.network.torch_graph import _MAKERS
from bridge.operations import OPERATIONS
from reference.network import pointwise
from tests.helpers import torch_graphs as nets
from tests.helpers.cases import batch

#: Networks with the shape of an input
NETWORKS: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    one.__name__: (one, shape) for one, shape in (
        (nets.Unet, (2, 1, 12, 10)), (nets.Resnet, (3, 1, 12, 10)), (nets.Mlp, (4, 1, 12, 10)),
        (nets.Denoiser, (2, 1, 8, 9)), (nets.Everything, (2, 1, 8, 10)), (nets.Segmenter, (2, 1, 8, 10)),
        (nets.Resized, (2, 1, 8, 10)), (nets.Evaluated, (2, 1, 8, 10)), (nets.Dropped, (2, 1, 8, 10)),
        (nets.Activations, (2, 1, 8, 10)), (nets.Gated, (2, 1, 8, 10)),
        (nets.Normalised, (2, 1, 8, 10)), (nets.Attention, (2, 1, 8, 10)), (nets.Reduced, (2, 1, 8, 10)),
        (nets.Pooled, (2, 1, 8, 10)), (nets.Kan, (2, 1, 8, 10)))}
OPTIMIZERS: dict[str, tuple[Any, Any]] = {
    "sgd": (Sgd(0.05, momentum=0.9), lambda p: torch.optim.SGD(p, 0.05, momentum=0.9)),
    "adam": (Adam(0.01), lambda p: torch.optim.Adam(p, 0.01)),
    "adamw": (AdamW(0.01, weight_decay=0.1), lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1)),
}


def made(name: str, dtype: str = "float64") -> tuple[nn.Module, Network, np.ndarray]:
    """The module, the network, and an input."""
    torch.manual_seed(5)
    kind, shape = NETWORKS[name]
    module = kind().to(getattr(torch, dtype))
    return module, Network.from_torch(module, loss="l1", example=shape), batch(shape, dtype, 3)


def state(net: Network) -> dict[str, bytes]:
    """Every bit of parameters and buffers."""
    return {name: array.tobytes() for views in (net.parameters, net.buffers) for name, array in views.items()}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in ("Dropped", "Pooled")])
def test_three_steps_beside_torch(name: str, optimizer: str) -> None:
    """In float64, where only rounding differs: losses, then parameters and running statistics."""
    module, net, x = made(name)
    ours, theirs = OPTIMIZERS[optimizer]
    step = theirs(module.parameters())
    target = batch(net.forward(x).shape, "float64", 4)
    net = Network.from_torch(module, loss="l1", example=x.shape)
    for _ in range(3):
        loss = nn.functional.l1_loss(module(torch.from_numpy(x)), torch.from_numpy(target))
        step.zero_grad()
        loss.backward()
        step.step()
        assert net.step(x, target, ours) == pytest.approx(loss.item(), rel=1e-9)
    values = module.state_dict()
    for views in (net.parameters, net.buffers):
        for key, array in views.items():
            assert array == pytest.approx(values[key].numpy(), rel=1e-6, abs=1e-8), key


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["Resnet", "Dropped"])
def test_a_training_goes_on_to_the_bit(name: str, optimizer: str, tmp_path: Path) -> None:
    _, whole, x = made(name, "float32")
    target = batch(whole.forward(x).shape, "float32", 4)
    chosen = OPTIMIZERS[optimizer][0]
    for _ in range(2):
        whole.step(x, target, chosen)
    whole.save(tmp_path / "half.h5")
    second = Network.from_file(tmp_path / "half.h5")
    assert second.steps == whole.steps == 2 and state(second) == state(whole) and second.model == whole.model
    for net in (whole, second):
        net.masks.generator = np.random.default_rng(7)
    assert [whole.step(x, target, chosen) for _ in range(3)] == [second.step(x, target, chosen) for _ in range(3)]
    assert state(second) == state(whole)
    with h5py.File(tmp_path / "half.h5") as file:
        assert file["optimizer"].attrs["type"].decode() == optimizer and file["optimizer"].attrs["lr"] == chosen.lr


@pytest.mark.parametrize("name", NETWORKS)
def test_back_to_torch(name: str) -> None:
    """The same names, values, outputs; and once more the same network."""
    module, net, x = made(name)
    again = net.to_torch()
    assert again.state_dict().keys() == module.state_dict().keys()
    for part in (module, again):
        torch.manual_seed(1)
        part.output = part(torch.from_numpy(x)).detach()
    assert torch.equal(module.output, again.output)
    found = Network.from_torch(net.to_torch(), loss="l1", example=x.shape)
    assert [one.kind for one in found.model.layers] == [one.kind for one in net.model.layers]
    assert [array.tobytes() for array in found.parameters.values()] == [
        array.tobytes() for array in net.parameters.values()]


def test_every_operation_goes_back_to_torch() -> None:
    assert _MAKERS.keys() == OPERATIONS.keys()


def test_a_mask_is_drawn_or_given() -> None:
    _, net, x = made("Dropped", "float32")
    net.forward(x)
    (name,), (first,) = net.masks.keys(), net.masks.values()
    assert set(np.unique(first)) == {0, 1} and abs(first.mean() - 0.7) < 0.1
    net.forward(x)
    assert not np.array_equal(net.masks[name], first)
    net.masks.give({name: first})
    y = net.forward(x)
    assert np.array_equal(net.masks[name], first)
    net.masks.give({name: first})
    assert np.array_equal(net.forward(x), y)
    net.forward(x)
    assert not np.array_equal(net.masks[name], first)


@pytest.mark.parametrize(("masks", "message"), [
    ({"nothing": np.ones(3, np.float32)}, "masks: 'nothing', expected one of drop"),
    ({"drop": np.full((2, 4, 8, 10), 0.5, np.float32)}, "mask of drop: other numbers than 0 and 1"),
    ({"drop": np.ones((2, 4, 8, 9), np.float32)}, r"mask of drop: shape \(2, 4, 8, 9\), expected \(2, "),
    ({"drop": np.ones((2, 4, 8, 10))}, "mask of drop: float64, expected float32")])
def test_masks_that_are_refused(masks: dict[str, np.ndarray], message: str) -> None:
    _, net, x = made("Dropped", "float32")
    with pytest.raises((bridge.ArgumentError, bridge.ArgumentTypeError), match=message):
        net.masks.give(masks)
        net.forward(x)


def test_train_eval_and_requires_grad_are_honoured() -> None:
    """What is frozen stays, evaluation takes running statistics and no dropout."""
    module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Dropout(0.5), nn.Identity(), nn.Tanh()).eval()
    module[0].weight.requires_grad_(False)
    net = Network.from_torch(module)
    assert net.frozen == ("0.weight",) and [one.kind for one in net.model.layers] == ["conv2d", "batch_norm2d", "tanh"]
    x = batch((2, 1, 6, 7), "float32", 1)
    before = state(net)
    assert np.allclose(net.forward(x), module(torch.from_numpy(x)).detach().numpy(), rtol=1e-5, atol=1e-6)
    net.step(x, np.zeros((2, 3, 4, 5), np.float32), lr=0.1)
    changed = {name for name, bits in state(net).items() if bits != before[name]}
    assert changed == {"0.bias", "1.weight", "1.bias"}
    assert not net.to_torch().get_parameter("0.weight").requires_grad


class Branch(nn.Module):
    """Depends on a value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) if x.sum() > 0 else x


@pytest.mark.parametrize(("module", "message"), [
    (nn.Sequential(nn.Linear(3, 4), nn.Softsign()), "layer '1' is Softsign; supported are"),
    (nn.Sequential(nn.Linear(3, 4), Branch()), "cannot be traced by torch.fx"),
    (nn.Sequential(nn.Flatten(), nn.Linear(35, 4), nn.Conv2d(1, 1, 1)), "expected the shape of one: example="),
])
def test_what_cannot_be_the_same_network(module: nn.Module, message: str) -> None:
    with pytest.raises(bridge.ArgumentError, match=message):
        Network.from_torch(module)


def test_a_replaced_parameter_is_seen() -> None:
    """torch computes with a kernel of one pixel, whatever the layer says of itself."""
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh())
    module[0].weight = nn.Parameter(torch.ones(2, 1, 1, 1))
    with pytest.raises(bridge.ArgumentError, match=r"layer '0' has parameters of the shapes .*\(2, 1, 1, 1\)"):
        Network.from_torch(module)


def test_a_compiled_module_is_explained() -> None:
    module = nets.Denoiser()
    module._orig_mod = module.conv1
    with pytest.raises(bridge.ArgumentError, match=r"compiled by torch\.compile, expected the module itself"):
        Network.from_torch(module)


def test_an_optimizer_or_settings_of_sgd() -> None:
    _, net, x = made("Denoiser", "float32")
    with pytest.raises(bridge.ArgumentTypeError, match=r"^lr: None, expected a number"):
        net.step(x, x)
    with pytest.raises(bridge.ArgumentTypeError, match=r"^lr: 0\.1 and other settings of SGD beside an optimizer"):
        net.step(x, x, Adam(0.1), lr=0.1)
    with pytest.raises(bridge.EngineError, match=r"beta1"):
        net.step(x, x, Adam(0.1, beta1=1.0))


def test_another_optimizer_begins_anew() -> None:
    """What SGD remembers is no average of Adam's."""
    _, one, x = made("Denoiser", "float32")
    one.step(x, x, Sgd(0.0, momentum=0.9))
    _, other, _ = made("Denoiser", "float32")
    assert one.step(x, x, Adam(0.1)) == other.step(x, x, Adam(0.1)) and state(one) == state(other)


def test_shapes_that_do_not_fit_are_named() -> None:
    from bridge.operations import Add, Conv2d
    net = Network(Model((Conv2d("a", 1, 2, (3, 3)), Add("sum", inputs=("a", "input")))))
    with pytest.raises(bridge.EngineError, match=r"layer sum \(add\): .*\(1, 2, 3, 4\).*\(1, 1, 5, 6\)"):
        net.forward(np.ones((1, 1, 5, 6), np.float32))


def test_other_numbers_of_dimensions_are_named() -> None:
    net = Network.from_torch(nn.Sequential(nn.Dropout(0.5), nn.Tanh()))
    for shape in ((), (1,) * 9):
        with pytest.raises(bridge.ArgumentError, match=rf"input: {len(shape)} dimensions, shape .*, expected 1 to 8"):
            net.forward(np.ones(shape, np.float32))
    with pytest.raises(bridge.ArgumentError, match=r"example: empty, shape \(0, 3\)"):
        Network.from_torch(nn.Sequential(nn.Tanh()), example=(0, 3))


def test_a_module_may_have_no_parameters_and_be_undefined_where_it_is_tried() -> None:
    """On an example, numbers of both signs, logarithms are NaN."""
    net = Network.from_torch(nn.Sequential(pointwise.Log(), nn.Softmax(1)))
    x = np.array([[1, 2, 4]], np.float32)
    assert net.forward(x) == pytest.approx(x / 7)


def test_running_statistics_begin_as_torchs() -> None:
    from bridge.operations import BatchNorm2d
    net = Network(Model((BatchNorm2d("norm", 2, track_running_stats=True),)))
    assert {name: array.tolist() for name, array in net.buffers.items()} == {
        "norm.running_mean": [0, 0], "norm.running_var": [1, 1]}


def test_the_optimizer_of_an_update_is_saved(tmp_path: Path) -> None:
    _, net, x = made("Denoiser", "float32")
    net.forward(x)
    net.loss(x)
    net.backward()
    net.update(Adam(0.25))
    net.save(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["optimizer"].attrs["type"].decode() == "adam" and file["optimizer"].attrs["lr"] == 0.25
