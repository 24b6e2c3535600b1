# SPDX-License-Identifier: MIT
"""Random networks that are no chains, in PyTorch: operations of exchange files, branches, losses and optimisers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.validator.composed import COMPOSED
from reference import losses
from reference.network import layers as own_layers
from reference.network import pointwise
from reference.spline import Spline

#: Operations of a network before those are left out whose outputs nobody takes; numbers of an output
MOST_LAYERS, MOST_NUMBERS = 12, 20000
#: Of an output, between images and vectors
MOST_DIMENSIONS = 6
#: Outputs that the next operation may take, the last ones
RECENT = 4
Kind = tuple[str, dict[str, Any]]
#: Functions of two outputs
JOINS: dict[str, Callable[..., torch.Tensor]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "matmul": operator.matmul,
    # By numbers from 1 on
    "divide": lambda one, other: one / other.sigmoid().exp(), "cat": lambda *given: torch.cat(given, 1)}


def _reduced(x: torch.Tensor, kind: str, dim: Any, keepdim: bool) -> torch.Tensor:
    found: torch.Tensor = getattr(x, kind)(dim, keepdim=keepdim)
    return found


#: Functions of one output and settings; all others are modules of torch.nn
FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    **{kind: partial(_reduced, kind=kind) for kind in ("amax", "amin", "mean", "sum")},
    **{kind: lambda x, kind=kind, **given: _reduced(x, kind, **given).values  # type: ignore[attr-defined,misc]
       for kind in ("max", "min")},
    "reshape": lambda x, shape: x.reshape(x.shape[0], *shape),
    "transpose": lambda x, dim0, dim1: x.transpose(dim0, dim1)}


@dataclass(frozen=True)
class Layer:
    """One operation: its name in torch.nn, `JOINS`, `FUNCTIONS`, `reference.network.layers` or
    `reference.network.pointwise`, arguments, and the outputs it takes; 0 is the network's input. With ``fixed`` its
    weights are frozen, or its statistics the running ones."""

    kind: str
    options: dict[str, Any]
    inputs: tuple[int, ...]
    fixed: bool = False

    def make(self) -> Callable[..., torch.Tensor]:
        """A new module, or the function; what is no activation takes numbers between 0 and 1."""
        if self.kind in JOINS:
            return JOINS[self.kind]
        if self.kind in FUNCTIONS:
            return partial(FUNCTIONS[self.kind], **self.options)
        if self.kind in pointwise.LAYERS:
            layer = pointwise.LAYERS[self.kind][0](**self.options)
            return nn.Sequential(nn.Sigmoid(), layer) if self.kind in pointwise.ELEMENTARY else layer
        if self.kind in COMPOSED:
            return COMPOSED[self.kind](**self.options).requires_grad_(not self.fixed)
        found: Any = Spline if self.kind == "Spline" else getattr(own_layers, self.kind, None) or getattr(nn, self.kind)
        made: nn.Module = found(**self.options)
        if self.kind == "Parameter":
            nn.init.normal_(made.weight)  # type: ignore[arg-type]
        if self.fixed and self.kind == "BatchNorm2d":
            return made.eval()
        return made.requires_grad_(not self.fixed)


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
            if one.kind == "matmul" and (given[0].ndim == 2 or given[0].shape[:-2] != given[1].shape[:-2]):
                continue  # one matrix for several is not in exchange files, and images are not summed over
            if len({x.ndim for x in given}) > 1:
                continue  # images would be joined with channels
            try:
                found = one.make()(*given)
            except (RuntimeError, ValueError):  # shapes that do not fit
                continue
            if 2 <= found.ndim <= MOST_DIMENSIONS and len(found) == shape[0] and 0 < found.numel() <= MOST_NUMBERS:
                layers.append(one)
                known.append(found)
    while known[-1].ndim not in (2, 4):  # no target is of other dimensions
        known.pop()
        layers.pop()
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
    return tuple(replace(layers[i - 1], inputs=tuple(place[j] for j in layers[i - 1].inputs)) for i in kept)


def _conv(rng: np.random.Generator, channels: int) -> dict[str, Any]:
    groups = int(rng.choice([g for g in (1, 1, 2, 3) if channels % g == 0]))
    return {"in_channels": channels, "out_channels": groups * int(rng.integers(1, 1 + 8 // groups)),
            "kernel_size": _pair(rng, 1, 4), "groups": groups, "bias": bool(rng.random() < 0.7)}


def _pair(rng: np.random.Generator, low: int, high: int) -> tuple[int, int]:
    return int(rng.integers(low, high)), int(rng.integers(low, high))


def _layer(rng: np.random.Generator, known: list[torch.Tensor]) -> Layer:
    """Any operation, mostly on the last output, else on one before; a second input is any of the last ones."""
    places = range(max(0, len(known) - RECENT), len(known))
    i, j = (int(rng.choice(places)) for _ in range(2))
    i = len(known) - 1 if rng.random() < 0.6 else i
    x = known[i]
    if rng.random() < 0.3:
        return Layer(str(rng.choice(list(JOINS))), {}, (i, j))
    turn = rng.random()
    if x.ndim == 4 and turn < 0.08 and x.shape[2] > 1:
        return Layer("reshape", {"shape": (x.shape[1], *_factors(rng, x.shape[2]), x.shape[3])}, (i,))
    if x.ndim not in (2, 4) and turn < 0.3:
        return Layer("reshape", {"shape": (x.shape[1], math.prod(x.shape[2:-1]), x.shape[-1])}, (i,))
    if x.ndim == 5 and turn < 0.9:
        every = _of_volumes(rng, x)
        return Layer(*every[int(rng.integers(len(every)))], (i,), bool(rng.random() < 0.1))
    flat: list[Kind] = [
        *((kind, _settings_of(rng, kind)) for kind in pointwise.LAYERS), *_reductions(rng, x), *_orders(rng, x),
        *_moves(rng, x),
        ("PReLU", {"num_parameters": int(rng.choice([1, x.shape[1]]))}), ("Softmax", {"dim": 1}),
        ("LogSoftmax", {"dim": 1}), ("Dropout", {"p": 0.4}), ("LayerNorm", _rows(rng, x.shape)), _spline(rng, x),
        ("Linear", {"in_features": x.shape[-1], "out_features": int(rng.integers(1, 12)),
                    "bias": bool(rng.integers(2))})]
    sides = {"padding": tuple(int(n) for n in rng.integers(0, 4, 4))}
    scale = {"scale_factor": _pair(rng, 1, 4)}
    image: list[Kind] = [
        ("Conv2d", _conv(rng, x.shape[1]) | {"stride": _pair(rng, 1, 3), "padding": _pair(rng, 0, 3),
                                             "dilation": _pair(rng, 1, 3)}),
        ("Conv2d", {"in_channels": x.shape[1], "out_channels": int(rng.integers(1, 9)), "kernel_size": 3,
                    "padding": 1}),
        ("ConvTranspose2d", {"in_channels": x.shape[1], "out_channels": int(rng.integers(1, 5)),
                             "kernel_size": _pair(rng, 1, 4), "stride": _pair(rng, 1, 3), "padding": _pair(rng, 0, 2)}),
        ("ConvTranspose2d", {"in_channels": x.shape[1], "out_channels": 2, "kernel_size": 3, "stride": 2, "padding": 1,
                             "output_padding": _pair(rng, 0, 2), "bias": bool(rng.integers(2))}),
        ("BatchNorm2d", {"num_features": x.shape[1], "eps": 1e-3, "momentum": 0.3}),
        ("BatchNorm2d", {"num_features": x.shape[1], "track_running_stats": bool(rng.integers(2))}),
        ("MaxPool2d", {"kernel_size": _pair(rng, 2, 4), "stride": _pair(rng, 1, 4)}),
        ("AvgPool2d", {"kernel_size": _pair(rng, 2, 4), "stride": _pair(rng, 1, 4), "padding": 1}),
        ("MaxPool2d", {"kernel_size": 3, "stride": _pair(rng, 1, 3), "padding": 1}),
        ("MaxPool2d", {"kernel_size": _pair(rng, 1, 4), "stride": _pair(rng, 1, 4), "dilation": _pair(rng, 1, 3),
                       "ceil_mode": bool(rng.integers(2))}),
        ("AvgPool2d", {"kernel_size": _pair(rng, 2, 5), "stride": _pair(rng, 1, 4), "padding": _pair(rng, 0, 2),
                       "ceil_mode": bool(rng.integers(2)), "count_include_pad": bool(rng.integers(2)),
                       "divisor_override": [None, 5][int(rng.random() < 0.2)]}),
        ("AdaptiveMaxPool2d", {"output_size": _pair(rng, 2, 6)}),
        ("AvgPool2d", {"kernel_size": _pair(rng, 1, 4)}), ("Dropout2d", {"p": 0.3}), ("GroupNorm", _groups(rng, x)),
        ("AdaptiveAvgPool2d", {"output_size": 1}), ("AdaptiveAvgPool2d", {"output_size": _pair(rng, 1, 5)}),
        ("Flatten", {}), ("Upsample", scale),
        ("Upsample", scale | {"mode": "bilinear", "align_corners": bool(rng.integers(2))}),
        ("Upsample", {"size": _pair(rng, 1, 12), "mode": str(rng.choice(["nearest", "bilinear", "bicubic"]))}),
        ("ConstantPad", {"pad": _cut_or_wider(rng, x), "value": float(rng.choice([0.0, 0.5]))}),
        ("CircularPad", {"pad": _cut_or_wider(rng, x)}),
        (str(rng.choice(["ZeroPad2d", "ReflectionPad2d", "ReplicationPad2d"])), sides)]
    every = flat + image if x.ndim == 4 else flat
    kind, options = every[int(rng.integers(len(every)))]
    # What nothing is computed of takes the network's input, which says how many images there are
    return Layer(kind, options, (0 if kind == "Parameter" else i,), bool(rng.random() < 0.1))


def _cut_or_wider(rng: np.random.Generator, x: torch.Tensor) -> tuple[int, ...]:
    """How much longer the four sides become; a pixel shorter where some remain."""
    return tuple(int(n) for n in rng.integers(-int(min(x.shape[2:], default=0) > 2), 3, 4))


def _factors(rng: np.random.Generator, n: int) -> tuple[int, int]:
    """Two numbers whose product this is."""
    one = int(rng.choice([i for i in range(1, n + 1) if n % i == 0]))
    return one, n // one


def _of_volumes(rng: np.random.Generator, x: torch.Tensor) -> list[Kind]:
    """What images (n, c, d, h, w) have of their own."""
    channels = x.shape[1]
    sides = {"kernel_size": _triple(rng, 1, 4), "stride": _triple(rng, 1, 3), "padding": _triple(rng, 0, 2)}
    few = {"in_channels": channels, "out_channels": int(rng.integers(1, 5)), "bias": bool(rng.integers(2))}
    scale = {"scale_factor": _triple(rng, 1, 3)}
    return [
        ("Conv3d", few | sides | {"dilation": _triple(rng, 1, 3)}), ("ConvTranspose3d", few | sides),
        ("MaxPool3d", {"kernel_size": _triple(rng, 1, 3), "stride": _triple(rng, 1, 3)}),
        ("AvgPool3d", {"kernel_size": _triple(rng, 1, 3), "stride": _triple(rng, 1, 3)}),
        ("AdaptiveAvgPool3d", {"output_size": _triple(rng, 1, 4)}), ("Upsample", scale),
        ("Upsample", scale | {"mode": "trilinear", "align_corners": bool(rng.integers(2))}),
        ("BatchNorm3d", {"num_features": channels, "eps": 1e-3, "momentum": 0.3}), ("GroupNorm", _groups(rng, x))]


def _triple(rng: np.random.Generator, low: int, high: int) -> tuple[int, int, int]:
    return (*_pair(rng, low, high), int(rng.integers(low, high)))


def _settings_of(rng: np.random.Generator, kind: str) -> dict[str, Any]:
    """Of a function of each number; without bounds clip would do nothing."""
    low, high = sorted(float(one) for one in rng.normal(0, 0.5, 2))
    given: dict[str, dict[str, Any]] = {
        "affine": {"scale": float(rng.choice([-1.0, 0.1, 1.0, 3.0])), "shift": float(rng.choice([0.0, 0.3, 1.0]))},
        "clip": {"min": low, "max": high}, "elu": {"alpha": float(rng.choice([1.0, 0.3]))},
        "leaky_relu": {"negative_slope": float(rng.choice([0.01, 0.2]))},
        "softplus": {"beta": float(rng.choice([1.0, 2.5]))}}
    return given.get(kind, {})


def _reductions(rng: np.random.Generator, x: torch.Tensor) -> Iterator[Kind]:
    """Along one or several dimensions, not along all and not along the batch."""
    behind = np.arange(1, x.ndim)
    several = rng.choice(behind, int(rng.integers(1, x.ndim)), replace=False)
    keepdim = bool(rng.random() < 0.7)
    for kind in ("amax", "amin", "mean", "sum"):
        yield kind, {"dim": tuple(int(i) for i in several), "keepdim": keepdim}
    for kind in ("max", "min"):
        yield kind, {"dim": int(rng.choice(behind)), "keepdim": keepdim}


def _orders(rng: np.random.Generator, x: torch.Tensor) -> Iterator[Kind]:
    """The same numbers in another shape or order."""
    one, other = (int(i) for i in rng.integers(1, x.ndim, 2))
    yield "transpose", {"dim0": one, "dim1": other}
    count = math.prod(x.shape[1:])
    first = int(rng.choice([n for n in range(1, 9) if count % n == 0]))
    second = int(rng.choice([n for n in range(1, 9) if count // first % n == 0]))
    rest = count // first // second
    yield "reshape", {"shape": (first, second, rest) if rng.integers(2) else (first, second * rest)}
    third = int(rng.choice([n for n in range(1, 9) if rest % n == 0]))
    yield "reshape", {"shape": (first, 1, second, third, rest // third)}


def _moves(rng: np.random.Generator, x: torch.Tensor) -> Iterator[Kind]:
    """Numbers at other places, some of them several times, in other images, and such that all images share."""
    behind = [int(i) for i in rng.permutation(np.arange(1, x.ndim))]
    axis, some = behind[0], tuple(behind[:int(rng.integers(1, x.ndim))])
    n = x.shape[axis]
    yield "Permute", {"dims": (0, *behind)}
    start = int(rng.integers(n))
    yield "Slice", {"dim": axis, "start": start, "stop": int(rng.integers(start + 1, n + 1)),
                    "step": int(rng.integers(1, 3))}
    yield "Flip", {"dims": some}
    yield "Roll", {"dims": some, "shifts": tuple(int(i) for i in rng.integers(-9, 10, len(some)))}
    yield "Expand", {"shape": tuple(int(rng.integers(1, 4)) if m == 1 else -1 for m in x.shape[1:])}
    yield "IndexSelect", {"dim": axis, "indices": tuple(int(i) for i in rng.integers(0, n, rng.integers(1, 2 * n + 1)))}
    yield "Parameter", {"shape": tuple(x.shape[1:])}
    # Of one number a normalisation leaves its rounding alone
    dim = int(rng.integers(1, x.ndim))
    yield "windows", {"shape": tuple(x.shape[1:]), "dim": dim if math.prod(x.shape[1 + dim:]) > 1 else 1}
    yield from _of_times_and_words(rng, x)
    if x.ndim == 4:
        yield "PixelShuffle", {"upscale_factor": 2}
        yield "PixelUnshuffle", {"downscale_factor": 2}


def _of_times_and_words(rng: np.random.Generator, x: torch.Tensor) -> Iterator[Kind]:
    """A recurrent layer of channels as times, and rows that the signs of numbers choose."""
    kind = str(rng.choice(list(own_layers.GATES)))
    yield "recurrent", {"shape": tuple(x.shape[1:]), "kind": kind, "hidden_size": int(rng.integers(1, 6)),
                        "bias": bool(rng.integers(2)), "reverse": bool(rng.integers(2)),
                        "relu": kind == "rnn" and bool(rng.integers(2))}
    rows = x.shape[1] + 1
    padding_idx = int(rng.integers(-1, rows))
    yield "words", {"channels": x.shape[1], "width": int(rng.integers(1, 6)), "padding_idx": padding_idx,
                    "shape": tuple(x.shape[2:])}
    inner = math.prod(x.shape[2:])
    yield "attending", {"shape": (x.shape[1], inner), "is_causal": bool(rng.integers(2)),
                        "scale": float(rng.choice([0.0, 0.5]))}
    if inner % 2 == 0:
        yield "complex", {"channels": x.shape[1], "places": inner // 2, "out_channels": int(rng.integers(1, 6))}
    count = math.prod(x.shape[1:])
    if count % rows == 0:
        yield "chosen", {"shape": (rows, count // rows), "channels": x.shape[1], "padding_idx": padding_idx}


def _rows(rng: np.random.Generator, shape: torch.Size) -> dict[str, Any]:
    last = int(rng.integers(1, len(shape)))
    affine = bool(rng.random() < 0.8)
    return {"normalized_shape": tuple(shape[-last:]), "elementwise_affine": affine, "eps": 1e-3,
            "bias": affine and bool(rng.integers(2))}


def _groups(rng: np.random.Generator, x: torch.Tensor) -> dict[str, Any]:
    groups = [n for n in range(1, x.shape[1] + 1) if x.shape[1] % n == 0]
    return {"num_groups": int(rng.choice(groups)), "num_channels": x.shape[1], "eps": 1e-3,
            "affine": bool(rng.random() < 0.8)}


def _spline(rng: np.random.Generator, x: torch.Tensor) -> Kind:
    """A layer of few features: of many it would be a large one."""
    end = float(rng.choice([1.0, 2.0]))
    return "Spline", {"in_features": x.shape[-1], "out_features": int(rng.integers(1, 6)),
                      "grid": int(rng.integers(2, 6)), "order": int(rng.integers(2, 6)), "low": -end, "high": end,
                      "scale_spline": bool(rng.integers(2))}


#: With settings
_LOSSES = ("mse", "mse", "mse", "mse", "l1", "smooth_l1 beta=0.5", "huber delta=0.25", "bce", "bce_with_logits",
           "bce_with_logits pos_weight=2.5", "cross_entropy", "cross_entropy label_smoothing=0.1",
           "cross_entropy class_indices=1", "cross_entropy class_indices=1 ignore_index=0 label_smoothing=0.2")
#: The squared differences more often than others; of every loss one
LOSSES = (*_LOSSES, *sorted(set(losses.LOSSES) - {text.split()[0] for text in _LOSSES}))
SCHEDULES = ("StepLR(step_size=1, gamma=0.5)", "ExponentialLR(gamma=0.75)", "CosineAnnealingLR(T_max=4)")


def draw_network(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[tuple[Layer, ...], str]:
    """Operations as of `draw_layers`, and a loss that their output fits."""
    layers, loss = draw_layers(rng, shape), str(rng.choice(LOSSES))
    if not layers:
        return layers, loss
    if loss == "bce":  # which takes probabilities
        return (*layers, Layer("sigmoid", {}, (len(layers),))), loss
    if loss.startswith("cross_entropy") and rng.random() < 0.4:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            classes = Network(layers)(torch.zeros(shape)).shape[1]
        loss += " weight=" + ",".join(f"{one:.2f}" for one in rng.uniform(0.2, 3, classes))
    return layers, loss


def draw_settings(rng: np.random.Generator) -> dict[str, Any]:
    """Sizes and optimiser, of `reference.settings.ExportSettings`."""
    optimizer = str(rng.choice(["sgd", "adam", "adamw"]))
    own: dict[str, Any] = {"betas": (0.9, float(rng.choice([0.99, 0.999]))), "eps": float(rng.choice([1e-8, 1e-4]))}
    if optimizer == "sgd":
        own = {"momentum": float(rng.choice([0.0, 0.9]))}
        own["nesterov"] = bool(own["momentum"] and rng.random() < 0.3)
        own["dampening"] = 0.25 if own["momentum"] and not own["nesterov"] and rng.random() < 0.3 else 0.0
    return {
        "height": int(rng.integers(4, 17)), "width": int(rng.integers(4, 17)), "batch": int(rng.integers(2, 5)),
        "steps": int(rng.integers(1, 4)), "seed": int(rng.integers(2**31)), "optimizer": optimizer, **own,
        "lr": float(2.0 ** -rng.integers(5, 10)), "weight_decay": float(rng.choice([0.0, 1e-2])),
        "reduction": str(rng.choice(["mean", "sum"])),
        "schedule": None if rng.random() < 0.7 else str(rng.choice(SCHEDULES))}
