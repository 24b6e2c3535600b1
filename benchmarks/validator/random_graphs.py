# SPDX-License-Identifier: MIT
"""Random networks that are no chains, in PyTorch: operations of exchange files, branches, losses and optimisers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from reference import pointwise

#: Operations of a network before those are left out whose outputs nobody takes; numbers of an output
MOST_LAYERS, MOST_NUMBERS = 12, 20000
#: Outputs that the next operation may take, the last ones
RECENT = 4
#: Functions of two outputs; all others are modules of torch.nn
JOINS: dict[str, Callable[..., torch.Tensor]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "matmul": operator.matmul,
    # By numbers from 1 on
    "divide": lambda one, other: one / other.sigmoid().exp(), "cat": lambda *given: torch.cat(given, 1)}


@dataclass(frozen=True)
class Layer:
    """One operation: its name in torch.nn, `JOINS` or `reference.pointwise`, arguments, and the outputs it takes; 0 is
    the network's input."""

    kind: str
    options: dict[str, Any]
    inputs: tuple[int, ...]

    def make(self) -> Callable[..., torch.Tensor]:
        """A new module, or the function; what is no activation takes numbers between 0 and 1."""
        if self.kind in JOINS:
            return JOINS[self.kind]
        if self.kind in pointwise.LAYERS:
            layer, _ = pointwise.LAYERS[self.kind]
            return nn.Sequential(nn.Sigmoid(), layer()) if self.kind in pointwise.ELEMENTARY else layer()
        made: nn.Module = getattr(nn, self.kind)(**self.options)
        return made


class Network(nn.Module):
    """The operations one after the other."""

    def __init__(self, layers: tuple[Layer, ...]) -> None:
        super().__init__()
        self.calls = [one.make() for one in layers]
        self.inputs = [one.inputs for one in layers]
        self.layers = nn.ModuleList([one for one in self.calls if isinstance(one, nn.Module)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        known = [x]
        for call, inputs in zip(self.calls, self.inputs, strict=True):
            known.append(call(*(known[i] for i in inputs)))
        return known[-1]


def draw_layers(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Layer, ...]:
    """Operations for a batch of this shape, a convolution first; none where what is left takes no convolution."""
    layers = [Layer("Conv2d", _conv(rng, shape[1]) | {"padding": 1}, (0,))]
    known = [torch.zeros(shape)]
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        known.append(layers[0].make()(known[0]))
        for _ in range(int(rng.integers(2, MOST_LAYERS))):
            one = _layer(rng, known)
            given = [known[i] for i in one.inputs]
            if one.kind == "matmul" and given[0].shape[:-2] != given[1].shape[:-2]:
                continue  # one matrix for several is not in exchange files
            try:
                found = one.make()(*given)
            except (RuntimeError, ValueError):  # shapes that do not fit
                continue
            if found.ndim in (2, 4) and 0 < found.numel() <= MOST_NUMBERS:
                layers.append(one)
                known.append(found)
    return _used(layers)


def _used(layers: list[Layer]) -> tuple[Layer, ...]:
    """Without those that the last one does not follow from."""
    kept, wanted = list[int](), {len(layers)}
    for i in range(len(layers), 0, -1):
        if i in wanted:
            kept.insert(0, i)
            wanted |= set(layers[i - 1].inputs)
    if kept[0] != 1:
        return ()
    place = {0: 0} | {i: k for k, i in enumerate(kept, 1)}
    return tuple(Layer(layers[i - 1].kind, layers[i - 1].options, tuple(place[j] for j in layers[i - 1].inputs))
                 for i in kept)


def _conv(rng: np.random.Generator, channels: int) -> dict[str, Any]:
    groups = int(rng.choice([g for g in (1, 1, 2, 3) if channels % g == 0]))
    return {"in_channels": channels, "out_channels": groups * int(rng.integers(1, 1 + 8 // groups)),
            "kernel_size": _pair(rng, 1, 4), "groups": groups, "bias": bool(rng.random() < 0.7)}


def _pair(rng: np.random.Generator, low: int, high: int) -> tuple[int, int]:
    return int(rng.integers(low, high)), int(rng.integers(low, high))


def _layer(rng: np.random.Generator, known: list[torch.Tensor]) -> Layer:
    """Any operation, on outputs among the last ones."""
    places = range(max(0, len(known) - RECENT), len(known))
    i, j = (int(rng.choice(places)) for _ in range(2))
    x = known[i]
    if rng.random() < 0.3:
        return Layer(str(rng.choice(list(JOINS))), {}, (i, j))
    flat: list[tuple[str, dict[str, Any]]] = [
        *((kind, {}) for kind in pointwise.LAYERS),
        ("PReLU", {"num_parameters": int(rng.choice([1, x.shape[1]]))}), ("Softmax", {"dim": 1}),
        ("LogSoftmax", {"dim": 1}), ("Dropout", {"p": 0.4}),
        ("Linear", {"in_features": x.shape[-1], "out_features": int(rng.integers(1, 12))})]
    sides = {"padding": tuple(int(n) for n in rng.integers(0, 4, 4))}
    scale = {"scale_factor": _pair(rng, 1, 4)}
    image: list[tuple[str, dict[str, Any]]] = [
        ("Conv2d", _conv(rng, x.shape[1]) | {"stride": _pair(rng, 1, 3), "padding": _pair(rng, 0, 3),
                                             "dilation": _pair(rng, 1, 3)}),
        ("Conv2d", {"in_channels": x.shape[1], "out_channels": int(rng.integers(1, 9)), "kernel_size": 3,
                    "padding": 1}),
        ("ConvTranspose2d", {"in_channels": x.shape[1], "out_channels": int(rng.integers(1, 5)),
                             "kernel_size": _pair(rng, 1, 4), "stride": _pair(rng, 1, 3), "padding": _pair(rng, 0, 2)}),
        ("BatchNorm2d", {"num_features": x.shape[1], "eps": 1e-3, "momentum": 0.3}),
        ("BatchNorm2d", {"num_features": x.shape[1], "track_running_stats": bool(rng.integers(2))}),
        ("MaxPool2d", {"kernel_size": _pair(rng, 2, 4), "stride": _pair(rng, 1, 4)}),
        ("AvgPool2d", {"kernel_size": _pair(rng, 2, 4), "stride": _pair(rng, 1, 4), "padding": 1}),
        ("AdaptiveAvgPool2d", {"output_size": 1}), ("Flatten", {}), ("Upsample", scale),
        ("Upsample", scale | {"mode": "bilinear", "align_corners": bool(rng.integers(2))}),
        (str(rng.choice(["ZeroPad2d", "ReflectionPad2d", "ReplicationPad2d"])), sides)]
    every = flat + image if x.ndim == 4 else flat
    kind, options = every[int(rng.integers(len(every)))]
    return Layer(kind, options, (i,))


#: The squared differences more often than others; a binary cross entropy of logits, which any output may be
LOSSES = ("mse", "mse", "mse", "l1", "smooth_l1 beta=0.5", "huber delta=0.25", "bce_with_logits",
          "bce_with_logits pos_weight=2.5", "cross_entropy", "cross_entropy label_smoothing=0.1")


def draw_settings(rng: np.random.Generator) -> dict[str, Any]:
    """Sizes, loss and optimiser, of `reference.settings.ExportSettings`."""
    optimizer = str(rng.choice(["sgd", "adam", "adamw"]))
    momentum = {"momentum": float(rng.choice([0.0, 0.9]))} if optimizer == "sgd" else {}
    return {
        "height": int(rng.integers(4, 17)), "width": int(rng.integers(4, 17)), "batch": int(rng.integers(2, 5)),
        "steps": int(rng.integers(1, 4)), "seed": int(rng.integers(2**31)), "optimizer": optimizer, **momentum,
        "lr": float(2.0 ** -rng.integers(5, 10)), "weight_decay": float(rng.choice([0.0, 1e-2])),
        "loss": str(rng.choice(LOSSES)), "reduction": str(rng.choice(["mean", "sum"])),
        "schedule": None if rng.random() < 0.7 else "StepLR(step_size=1, gamma=0.5)"}
