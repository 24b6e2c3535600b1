# SPDX-License-Identifier: MIT
"""Mistakes of operations of graphs, made by PyTorch from the tensors of a right step, and how they are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from reference.network import pointwise
from reference.spline import Spline
from tests.helpers.torch_graphs import (
    Activations,
    Attention,
    Dropped,
    Evaluated,
    Gated,
    Kan,
    Normalised,
    Pooled,
    Reduced,
    Resized,
    Segmenter,
)

Tensors = dict[str, Tensor]


def normalised(x: Tensor) -> Tensor:
    variance = x.var((0, 2, 3), unbiased=False, keepdim=True)
    return (x - x.mean((0, 2, 3), keepdim=True)) / (variance + 0.01).sqrt()


def of_one_image(dy: Tensor, normal: Tensor, t: Tensors) -> Tensor:
    """Back through a batch normalisation, with the means of one image in place of the batch's."""
    dy, normal = dy[None], normal[None]
    mean, along = (one.mean((2, 3), keepdim=True) for one in (dy, dy * normal))
    deviation = (t["forward/first"].var((0, 2, 3), unbiased=False, keepdim=True) + 0.01).sqrt()
    return (dy - mean - normal * along) * t["weights/norm/weight"][:, None, None] / deviation


#: A tensor, what a program with a mistake has there, and words of the finding
MISTAKES: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("grads/first/output", lambda t: torch.cat([of_one_image(dy, z, t) for dy, z in zip(
        t["grads/norm/output"], normalised(t["forward/first"]), strict=True)]),
     "the gradient takes off both means of each image, not of the batch"),
    ("forward/largest", lambda t: functional.max_pool2d(functional.pad(t["forward/leaky"], (1, 1, 1, 1)), 3, 1),
     "beyond the image there is 0, not -inf"),
    ("forward/tanh", lambda t: 2 * t["forward/square"].sigmoid() - 1, "tanh of half its input"),
    ("grads/norm/output", lambda t: torch.where(t["forward/first"] > 0, 1.0, 0.2) * t["grads/leaky/output"],
     "forward/first in place of norm"),
    ("forward/flatten", lambda t: t["forward/add"].permute(0, 2, 3, 1).flatten(1),
     "the input in channels-last memory, read as channels first"),
    ("grads/last/weight", lambda t: t["grads/last/output"][:2].T @ t["forward/flatten"][:2],
     "only images 0, 1 of the batch"),
]


def gradient(of: Callable[[Tensor], Tensor], dy: Tensor, x: Tensor) -> Tensor:
    """What autograd sends back through a function."""
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(of(leaf), leaf, dy)[0]


#: The same of what makes probabilities of larger images
OF_CLASSES: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("forward/classes", lambda t: functional.conv_transpose2d(
        t["forward/smaller"], t["weights/classes/weight"], None, (2, 1), 1, (1, 0)),
     "without the bias, as if it were 0"),
    ("forward/share", lambda t: t["forward/larger"].log_softmax(1), "log_softmax in place of softmax"),
    ("grads/larger/output", lambda t: gradient(
        lambda x: x.log_softmax(1), t["grads/log_softmax/output"], t["forward/larger"]),
     "the gradient through share is missing"),
]


#: The same of images that are enlarged and padded, and of products of matrices
OF_SIZES: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("forward/pad", lambda t: functional.pad(t["forward/add"], (0, 1, 1, 2), mode="replicate"),
     "padding is (0, 1, 1, 2) in place of (1, 0, 2, 1)"),
    ("forward/pad", lambda t: functional.pad(t["forward/add"], (1, 0, 2, 1), mode="circular"),
     "the pixels of the opposite side"),
    ("grads/add/output", lambda t: t["grads/pad/output"][:, :, 2:-1, 1:],
     "the gradient does not come back from the border"),
    ("forward/framed", lambda t: functional.pad(t["forward/pad"], (0, 0, 3, 3), mode="reflect"),
     "reflection_pad2d in place of zero_pad2d"),
    ("forward/larger", lambda t: functional.interpolate(t["forward/first"], scale_factor=2, mode="bilinear",
                                                        align_corners=True), "align_corners is True in place of False"),
    ("grads/first/output", lambda t: gradient(lambda x: functional.interpolate(
        x, scale_factor=2, mode="bilinear", align_corners=True), 2 * t["grads/larger/output"], t["forward/first"]),
     "through larger: align_corners is True in place of False"),
    ("forward/matmul", lambda t: t["forward/framed"] @ t["forward/last"], "inputs in the order 1, 0"),
]


def running(old: Tensor, new: Tensor, momentum: float = 0.25) -> Tensor:
    return (1 - momentum) * old + momentum * new


def variance(t: Tensors, unbiased: bool = True) -> Tensor:
    return t["forward/first"].var((0, 2, 3), unbiased=unbiased)


#: The same of running statistics: at the first step the old mean is 0, the old variance 1
OF_STATE: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("state/moving/running_var", variance, "momentum is 1 in place of 0.25"),
    ("state/moving/running_var", lambda t: 1 / (variance(t, unbiased=False) + 1e-5).sqrt(),
     "mean and inverse deviation of this batch, as they are kept for the backward pass"),
    ("state/moving/running_var", lambda t: running(running(torch.ones(4), variance(t)), variance(t)),
     "what is kept takes in the batch twice"),
    ("state/moving/running_var", lambda t: torch.ones(4) + 0.25 * variance(t),
     "the running_var is not multiplied by 1 - momentum"),
    ("forward/fixed", lambda t: fixed(t, lambda v: v.sqrt() + 0.01),
     "eps is added to the root of the running_var, not before it is taken"),
    ("grads/relu/output", lambda t: gradient(lambda x: functional.batch_norm(
        x, None, None, t["weights/fixed/weight"], t["weights/fixed/bias"], True, eps=0.01), t["grads/fixed/output"],
        t["forward/relu"]), "training is True in place of False"),
]


def fixed(t: Tensors, root: Callable[[Tensor], Tensor]) -> Tensor:
    mean, found = torch.tensor([0.5, -0.25, 0.0, 0.125]), torch.tensor([2.0, 0.5, 1.0, 0.25])
    return (t["forward/relu"] - mean[:, None, None]) / root(found)[:, None, None]


#: The same of a dropout
OF_DROPOUT: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("forward/drop", lambda t: t["forward/first"] * t["masks/drop"] / 0.3, "p is 0.7 in place of 0.3"),
    ("forward/drop", lambda t: t["forward/first"], "no dropout"),
    ("grads/first/output", lambda t: t["grads/drop/output"] * t["masks/drop"], "p is 0 in place of 0.3"),
    ("grads/first/output", lambda t: t["grads/drop/output"] * t["after/drop"] / 0.7, "the mask of the step after"),
]


def sums(array: Tensor) -> Tensor:
    """Of each image's channels."""
    return array.sum((2, 3), keepdim=True)


#: The same of products, quotients, differences and rectifiers that learn
OF_ARITHMETIC: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("forward/mul", lambda t: t["forward/channels"], "no multiply, channels alone"),
    ("grads/channels/output", lambda t: t["grads/mul/output"], "the derivative of multiply is missing"),
    ("forward/sub", lambda t: t["forward/gate"] + t["forward/mul"], "add in place of subtract"),
    ("forward/truediv", lambda t: t["forward/second"] * t["forward/exp"], "multiply in place of divide"),
    ("forward/truediv", lambda t: t["forward/exp"] / t["forward/second"], "inputs in the order 1, 0"),
    ("grads/exp/output", lambda t: -sums(t["grads/truediv/output"] * t["forward/second"]) / t["forward/exp"],
     "the output of second is not divided by the output of exp"),
    ("grads/one/weight", lambda t: (t["grads/one/output"] * t["forward/sub_1"].relu()).sum()[None],
     "0 and the input * dy exchanged"),
]


def by_groups(x: Tensor, groups: int = 2, inside: float = 0.01) -> Tensor:
    """Without factors and shifts."""
    rows = x.reshape(len(x), groups, -1)
    variance = rows.var(2, unbiased=False, keepdim=True)
    return ((rows - rows.mean(2, keepdim=True)) / (variance + inside).sqrt()).reshape(x.shape)


def scaled(t: Tensors, normal: Tensor) -> Tensor:
    return normal * t["weights/groups/weight"][:, None, None] + t["weights/groups/bias"][:, None, None]


def through_amin(t: Tensors, function: Callable[[Tensor], Tensor]) -> Tensor:
    """The gradient of a sum, in one of whose parts another function stands for the smallest of the channels."""
    parts = [gradient(one, t["grads/amin/output"], t["forward/relu"])
             for one in (lambda x: x.amin(1, keepdim=True), function)]
    return t["grads/relu/output"] - parts[0] + parts[1]


def of_rows(t: Tensors, over: tuple[int, ...] = (3,), constant: bool = False) -> Callable[[Tensor], Tensor]:
    """What the layer "rows" is, over other axes, or with statistics that gradients do not go through."""

    def norm(x: Tensor) -> Tensor:
        mean, variance = x.mean(over, keepdim=True), x.var(over, unbiased=False, keepdim=True)
        if constant:
            mean, variance = mean.detach(), variance.detach()
        return (x - mean) / (variance + 0.1).sqrt() * t["weights/rows/weight"]
    return norm


#: The same of normalisations of each image by itself
OF_ROWS: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("forward/groups", lambda t: scaled(t, by_groups(t["forward/first"], inside=1e-5)),
     "eps is 1e-05 in place of 0.01"),
    ("forward/groups", lambda t: scaled(t, by_groups(t["forward/first"], 4)), "num_groups is 4 in place of 2"),
    ("forward/groups", lambda t: by_groups(t["forward/first"]) * t["weights/groups/weight"][:, None, None],
     "without the bias, as if it were 0"),
    ("grads/relu/output", lambda t: gradient(of_rows(t, constant=True), t["grads/rows/output"], t["forward/relu"]),
     "the mean of dy times the weight is not subtracted from dy times the weight and"),
    ("grads/relu/output", lambda t: gradient(of_rows(t, (2,)), t["grads/rows/output"], t["forward/relu"]),
     "over the axes 2 of 4"),
    ("grads/relu/output", lambda t: gradient(lambda x: functional.layer_norm(x, (10,), eps=0.1), t["grads/rows/output"],
                                             t["forward/relu"]), "without the weight, as if it were 1"),
    ("forward/layer_norm", lambda t: functional.layer_norm(t["forward/channels"], (4, 8, 10)),
     "over the axes 1, 2, 3 of 4"),
]


#: The same of numbers in another order
OF_ORDER: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("forward/view", lambda t: t["forward/patches"].permute(0, 3, 2, 1).reshape(2, 16, 4).mT,
     "the input with rows and columns exchanged in memory"),
    ("forward/transpose", lambda t: t["forward/view"].reshape(2, 16, 4),
     "memory in the order (n,c,l), read as (n,l,c)"),
    ("grads/view/output", lambda t: t["grads/transpose/output"].reshape(2, 4, 16),
     "memory in the order (n,c,l), read as (n,l,c)"),
    ("forward/transpose_5", lambda t: t["forward/back"].transpose(1, 2), "dim1 is 2 in place of 3"),
    ("grads/back/output", lambda t: t["grads/transpose_5/output"].mT, "dim0 is 2 in place of 1"),
]


#: The same of what makes one number of many
OF_SUMS: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("forward/sum_1", lambda t: t["forward/add_4"].sum((1, 3)), "dim is (1, 3) in place of (1, 2)"),
    ("forward/max_1", lambda t: t["forward/add_2"].mean(2, keepdim=True), "mean in place of max"),
    ("grads/relu/output", lambda t: through_amin(t, lambda x: x.min(1, keepdim=True).values),
     "through amin: min in place of amin"),
    ("grads/add_2/output", lambda t: t["grads/max_1/output"].expand(2, 4, 10, 10) / 10, "mean in place of max"),
]


#: The same of a dropout of channels, and of windows of any number
OF_WINDOWS: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("grads/first/output", lambda t: t["grads/drop/output"] * t["after/drop"] / 0.7, "the mask of the step after"),
    ("forward/pool", lambda t: torch.stack([torch.stack([
        t["forward/drop"][:, :, i * 8 // 3 : (i + 1) * 8 // 3, j * 10 // 4 : (j + 1) * 10 // 4].mean((2, 3))
        for j in range(4)], -1) for i in range(3)], -2), "windows that end before floor((i + 1)*L/n)"),
    ("forward/pool", lambda t: functional.avg_pool2d(t["forward/drop"], (4, 4), (2, 2)), "the last to the end"),
    ("forward/pool", lambda t: t["forward/drop"][:, :, [0, 2, 5]][..., [0, 2, 5, 7]], "the first pixel of each window"),
    # By sums: a mean times a number is rounded twice more, which only some processors' divisions hide
    ("grads/drop/output", lambda t: gradient(lambda x: torch.stack([torch.stack([
        x[:, :, i * 8 // 3 : -(-(i + 1) * 8 // 3), j * 10 // 4 : -(-(j + 1) * 10 // 4)].sum((2, 3))
        for j in range(4)], -1) for i in range(3)], -2), t["grads/pool/output"], t["forward/drop"]),
     "the sum of each window, not the mean"),
]


#: What a function of twice its input is called where its formula says it shorter
OF_TWICE = {
    "affine": "scale is -1.4 in place of -0.7", "exp": "the exp of 2 * (the input)",
    **dict.fromkeys(("log", "log2", "log10"), "the log of 2 * (the input)"), "reciprocal": "is 0.5 in place of 1",
    "rsqrt": "is 1/sqrt(2) = 0.707107 in place of 1", "sqrt": "times 1.41421 (sqrt(2))",
    "square": "the square of 2 * (the input)", "cos": "the cos of 2 * (the input)", "sin": "the sin of 2 * (the input)"}


def of_functions() -> list[tuple[str, Callable[[Tensors], Tensor], str]]:
    """The same of every function of each number, but ReLUs, whose mistakes are tests of their own."""
    found: list[tuple[str, Callable[[Tensors], Tensor], str]] = []
    at = 0
    for kind in pointwise.LAYERS:
        at += len(Activations.function(kind))
        before, name, layer = f"{at - 1}", f"{at}", Activations.function(kind)[-1]
        at += 1
        if kind.endswith("relu"):
            continue
        other = "tanh" if kind == "sigmoid" else "sigmoid"
        another = getattr(torch, other)
        found += [
            (f"forward/{name}", lambda t, at=before, f=another: f(t[f"forward/{at}"]),
             f"{other} in place of {kind}"),
            (f"forward/{name}", lambda t, at=before, f=layer: f(2 * t[f"forward/{at}"]),
             OF_TWICE.get(kind, f"{kind} of twice its input")),
            (f"grads/{before}/output", lambda t, at=name: t[f"grads/{at}/output"],
             f"the derivative of {kind} is missing"),
        ]
        if kind not in ("abs", "affine", "clip", "hardsigmoid"):  # whose derivative is a constant
            found.append((f"grads/{before}/output", lambda t, at=name, f=layer: gradient(
                f, t[f"grads/{at}/output"], t[f"forward/{at}"]),
                f"the derivative at the output, not at the input | forward/{name} in place of {before}"))
    return found


#: The layers of Kan
SPLINES: dict[str, dict[str, Any]] = {
    "first": {"in_features": 10, "out_features": 6, "grid": 4, "order": 2, "low": -2.0, "high": 2.0},
    "last": {"in_features": 6, "out_features": 6, "scale_spline": False}}


def spline(t: Tensors, name: str, b_splines: Callable[[Spline, Tensor], Tensor] = Spline.b_splines,
           other: Tensors | None = None, **settings: float) -> Callable[[Tensor], Tensor]:
    """What such a layer computes with other settings, other B-splines, or other parameters."""

    def computed(x: Tensor) -> Tensor:
        layer: Any = Spline(**SPLINES[name])
        for part, _ in [*layer.named_parameters()]:
            given = {**t, **(other or {})}[f"weights/{name}/{part}"]
            setattr(layer, part, nn.Parameter(given, requires_grad=False))
        for setting, value in settings.items():
            setattr(layer, setting, value)
        layer.b_splines = lambda x: b_splines(layer, x)
        return layer(x)

    return computed


def stopped(layer: Spline, x: Tensor) -> Tensor:
    """A recursion that ends one step too early has one B-spline more."""
    h = (layer.high - layer.low) / layer.grid
    other = Spline(1, 1, layer.grid + 2, layer.order - 1, layer.low - h, layer.high + h)
    return other.b_splines(x)[..., :-1]


def gone_on(layer: Spline, x: Tensor) -> Tensor:
    """One step too many, on one knot more on each side."""
    return Spline(1, 1, layer.grid, layer.order + 1, layer.low, layer.high).b_splines(x)[..., :-1]


def inside(layer: Spline, x: Tensor) -> Tensor:
    """Of numbers in the grid alone."""
    return Spline.b_splines(layer, x) * ((x >= layer.low) & (x <= layer.high))[..., None]


def edges(t: Tensors) -> Tensor:
    """The gradients of all coefficients, as if there were no scales."""
    values = Spline(**SPLINES["first"]).b_splines(t["input"])
    return torch.einsum("nchi,nchjk->ijk", t["grads/first/output"], values)


def bare(t: Tensors) -> Tensors:
    return {"weights/first/scale_spline": torch.ones_like(t["weights/first/scale_spline"])}


#: The same of KAN layers
OF_SPLINES: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("grads/first/output", lambda t: gradient(spline(t, "last", low=-0.6, high=1.4), t["grads/last/output"],
                                              t["forward/first"]), "the knots one interval higher"),
    ("forward/first", lambda t: spline(t, "first", order=3, grid=3)(t["input"]), "degree 3 on 3 intervals"),
    ("forward/last", lambda t: spline(t, "last", order=2, grid=6)(t["forward/first"]), "degree 2 on 6 intervals"),
    ("forward/last", lambda t: spline(t, "last", stopped)(t["forward/first"]),
     "degree 2 on these knots, without the last B-spline"),
    ("forward/first", lambda t: spline(t, "first", gone_on)(t["input"]),
     "degree 3 on these knots, without the last B-spline"),
    ("grads/first/output", lambda t: gradient(spline(t, "last", stopped), t["grads/last/output"], t["forward/first"]),
     "degree 2 on these knots, without the last B-spline"),
    ("forward/first", lambda t: spline(t, "first", inside)(t["input"]), "no splines of features beyond low and high"),
    ("grads/input", lambda t: gradient(spline(t, "first", inside), t["grads/first/output"], t["input"]),
     "no splines of features beyond low and high"),
    ("grads/input", lambda t: gradient(spline(t, "first", other=bare(t)), t["grads/first/output"], t["input"]),
     "scale_spline is ignored"),
    ("grads/first/coefficient", edges, "scale_spline is ignored"),
]


#: Networks, the height and width of their images, and mistakes
OF_NETWORKS: list[tuple[type[nn.Module], int, int, list[Any]]] = [
    (Segmenter, 4, 5, OF_CLASSES), (Resized, 8, 10, OF_SIZES), (Evaluated, 8, 10, OF_STATE),
    (Dropped, 8, 10, OF_DROPOUT), (Gated, 8, 10, OF_ARITHMETIC), (Normalised, 8, 10, OF_ROWS),
    (Attention, 8, 8, OF_ORDER), (Reduced, 10, 10, OF_SUMS), (Pooled, 8, 10, OF_WINDOWS), (Kan, 4, 10, OF_SPLINES),
    (Activations, 8, 10, of_functions())]
