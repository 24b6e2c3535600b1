# SPDX-License-Identifier: MIT
"""Faults of networks that are no chains are named; each is planted by PyTorch, not by the formulas of the search."""

from __future__ import annotations

import doctest
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bridge.common.errors import FileError
from bridge.gradcheck.cases import CASES
from bridge.judge.diagnosis.candidates import Case, base_of
from bridge.judge.diagnosis.faults.graph_faults import sum_faults
from bridge.judge.diagnosis.faults.output_faults import worked_in_place
from bridge.judge.diagnosis.predictions.formulas import Formula, Joined
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.predictions.step_graph import StepGraph
from bridge.judge.diagnosis.search import Search
from bridge.judge.diagnosis.wrong_operations import change, joins, wrong_operations
from bridge.judge.judge import judge, judge_pair
from bridge.judge.measure.file_pair import open_pair
from bridge.judge.measure.outcome import Outcome
from bridge.operations.operation import Operation
from bridge.operations.pointwise import Tanh
from bridge.validate.self_test.graph_candidate import GraphOperations, Parameters, train_graph
from reference.export import export
from reference.network import pointwise
from reference.settings import ExportSettings
from reference.spline import Spline
from tests.helpers.tiers import deep
from tests.helpers.torch_graphs import (
    Activations,
    Attention,
    Dropped,
    Evaluated,
    Everything,
    Gated,
    Kan,
    Normalised,
    Pooled,
    Reduced,
    Resized,
    Segmenter,
)


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "fixture.h5"
    export(path, ExportSettings(model=Everything, height=8, width=10, batch=3, steps=2, momentum=0.5))
    return path


Tensors = dict[str, Tensor]
STEP = "steps/0/"


def normalised(x: Tensor, unbiased: bool = False, inside: float = 0.01, outside: float = 0.0) -> Tensor:
    variance = x.var((0, 2, 3), unbiased=unbiased, keepdim=True)
    return (x - x.mean((0, 2, 3), keepdim=True)) / ((variance + inside).sqrt() + outside)


def by_weights(t: Tensors, normal: Tensor) -> Tensor:
    return normal * t["weights/norm/weight"][:, None, None] + t["weights/norm/bias"][:, None, None]


def of_one_image(dy: Tensor, normal: Tensor, t: Tensors) -> Tensor:
    """Back through a batch normalisation, with the means of one image in place of the batch's."""
    dy, normal = dy[None], normal[None]
    mean, along = (one.mean((2, 3), keepdim=True) for one in (dy, dy * normal))
    deviation = (t["forward/first"].var((0, 2, 3), unbiased=False, keepdim=True) + 0.01).sqrt()
    return (dy - mean - normal * along) * t["weights/norm/weight"][:, None, None] / deviation


#: A tensor, what a program with a mistake has there, and words of the finding
MISTAKES: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("forward/norm", lambda t: by_weights(t, normalised(t["forward/first"], unbiased=True)),
     "variance divided by n - 1"),
    ("forward/norm", lambda t: by_weights(t, normalised(t["forward/first"], inside=0, outside=0.01)),
     "eps outside the root"),
    ("forward/norm", lambda t: by_weights(t, torch.cat([normalised(x[None]) for x in t["forward/first"]])),
     "mean and variance of each image by itself"),
    ("grads/first/output", lambda t: t["grads/norm/output"] * t["weights/norm/weight"][:, None, None] / (
        t["forward/first"].var((0, 2, 3), unbiased=False, keepdim=True) + 0.01).sqrt(),
     "the gradient takes mean and variance for constant"),
    ("grads/first/output", lambda t: torch.cat([of_one_image(dy, z, t) for dy, z in zip(
        t["grads/norm/output"], normalised(t["forward/first"]), strict=True)]),
     "the gradient takes off both means of each image, not of the batch"),
    ("grads/norm/weight", lambda t: (t["grads/norm/output"] * t["forward/first"]).sum((0, 2, 3)),
     "the gradient of the weight is of the input, not the normalised one"),
    ("forward/leaky", lambda t: torch.minimum(t["forward/norm"], 0.2 * t["forward/norm"]),
     "the slope on the positive side"),
    ("forward/leaky", lambda t: functional.leaky_relu(t["forward/norm"]), "slope 0.01, the default"),
    ("forward/largest", lambda t: functional.max_pool2d(functional.pad(t["forward/leaky"], (1, 1, 1, 1)), 3, 1),
     "padded with zeros"),
    ("forward/largest", lambda t: functional.avg_pool2d(t["forward/leaky"], 3, 1, 1), "the mean of each window"),
    ("grads/leaky/output", lambda t: t["grads/cat/output"][:, 4:],
     "the gradient through largest is missing"),
    ("grads/leaky/output", lambda t: t["grads/cat/output"][:, 4:] + functional.avg_pool2d(
        t["grads/largest/output"], 3, 1, 1), "the mean of each window"),
    ("forward/cat", lambda t: torch.cat([t["forward/leaky"], t["forward/largest"]], 1), "inputs in the order 1, 0"),
    ("grads/largest/output", lambda t: t["grads/cat/output"][:, 4:], "inputs in the order 1, 0"),
    ("forward/mean", lambda t: functional.avg_pool2d(t["forward/cat"], 2, 2, 1, count_include_pad=False),
     "the mean of what is inside the image, without the padding"),
    ("grads/cat/output", lambda t: gradient(lambda x: functional.avg_pool2d(x, 2, 2, 1, count_include_pad=False),
                                            t["grads/mean/output"], t["forward/cat"]),
     "the mean of what is inside the image, without the padding"),
    ("forward/square", lambda t: t["forward/mean"] @ t["weights/square/weight"] + t["weights/square/bias"],
     "the weight transposed"),
    ("forward/square", lambda t: functional.linear(t["forward/mean"], t["weights/square/weight"]), "no bias"),
    ("grads/mean/output", lambda t: t["grads/square/output"] @ t["weights/square/weight"].T, "the weight transposed"),
    ("grads/square/output", lambda t: t["grads/add/output"] * (
        1 - t["forward/tanh"] ** 2 + t["forward/sigmoid"]), "the factor 1 - y is missing"),
    ("grads/square/output", lambda t: t["grads/add/output"] * (
        1 - t["forward/tanh"] + t["forward/sigmoid"] * (1 - t["forward/sigmoid"])), "1 - y, without the square"),
    ("forward/tanh", lambda t: 2 * t["forward/square"].sigmoid() - 1, "tanh of x/2, as 2*sigmoid(x) - 1 is"),
    ("grads/norm/output", lambda t: torch.where(t["forward/first"] > 0, 1.0, 0.2) * t["grads/leaky/output"],
     "forward/first in place of norm"),
    ("forward/add", lambda t: t["forward/tanh"] - t["forward/sigmoid"], "the difference of its inputs"),
    ("forward/add", lambda t: t["forward/tanh"], "the first input alone"),
    ("forward/flatten", lambda t: t["forward/add"].permute(0, 2, 3, 1).flatten(1),
     "flattened in the order (n, h, w, c)"),
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
        t["forward/smaller"], t["weights/classes/weight"].flip(2, 3), t["weights/classes/bias"], (2, 1), 1, (1, 0)),
     "the kernel reversed along r and s"),
    ("forward/classes", lambda t: functional.conv_transpose2d(
        t["forward/smaller"], t["weights/classes/weight"], None, (2, 1), 1, (1, 0)), "no bias"),
    # The rows that are cut off are those of the other side
    ("forward/classes", lambda t: functional.conv_transpose2d(
        t["forward/smaller"], t["weights/classes/weight"], t["weights/classes/bias"], (2, 1), (0, 1))[:, :, :-1],
     "the output padding before the rows"),
    ("forward/classes", lambda t: functional.pad(functional.conv_transpose2d(
        t["forward/smaller"], t["weights/classes/weight"], None, (2, 1), 1), (0, 0, 1, 0)) + t[
            "weights/classes/bias"][:, None, None],
     "the output padding before the rows, with nothing but the bias in it"),
    ("forward/larger", lambda t: t["forward/classes"].repeat(1, 1, 2, 3),
     "the image repeated as a whole, not each pixel"),
    ("grads/classes/output", lambda t: t["grads/larger/output"][:, :, ::2, ::3],
     "the gradient of the first copy alone"),
    ("forward/share", lambda t: t["forward/larger"].softmax(3), "over axis 3, not over the channels"),
    ("forward/share", lambda t: t["forward/larger"].log_softmax(1), "log_softmax in its place"),
    ("grads/larger/output", lambda t: t["forward/share"] * (1 - t["forward/share"]) * t["grads/share/output"]
     + gradient(lambda x: x.log_softmax(1), t["grads/log_softmax/output"], t["forward/larger"]),
     "through share: y * (1 - y), without the other channels"),
    ("grads/larger/output", lambda t: gradient(
        lambda x: x.log_softmax(1), t["grads/log_softmax/output"], t["forward/larger"]),
     "the gradient through share is missing"),
]


def between(x: Tensor, scale: int) -> Tensor:
    """Linear interpolation at i / scale, without the centres of the pixels."""
    for axis in (2, 3):
        length = x.shape[axis]
        place = torch.arange(scale * length) / scale
        low = place.long()
        high, share = (low + 1).clamp(max=length - 1), (place - low).reshape([-1 if a == axis else 1 for a in range(4)])
        x = x.index_select(axis, low) * (1 - share) + x.index_select(axis, high) * share
    return x


#: The same of images that are enlarged and padded, and of products of matrices
OF_SIZES: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("forward/pad", lambda t: functional.pad(t["forward/add"], (0, 1, 1, 2), mode="replicate"),
     "left for right and top for bottom"),
    ("forward/pad", lambda t: functional.pad(t["forward/add"], (1, 0, 2, 1)), "zeros around the image"),
    ("forward/pad", lambda t: functional.pad(t["forward/add"], (1, 0, 2, 1), mode="circular"),
     "the pixels of the opposite side"),
    ("grads/add/output", lambda t: t["grads/pad/output"][:, :, 2:-1, 1:],
     "the gradient does not come back from the border"),
    ("forward/framed", lambda t: functional.pad(t["forward/pad"], (0, 0, 3, 3), mode="reflect"),
     "the mirrored image around the image"),
    ("forward/larger", lambda t: between(t["forward/first"], 2), "the pixels' centres left out"),
    ("forward/larger", lambda t: functional.interpolate(t["forward/first"], scale_factor=2),
     "copies of the nearest pixel in its place"),
    ("forward/larger", lambda t: functional.interpolate(t["forward/first"], scale_factor=2, mode="bilinear",
                                                        align_corners=True), "align_corners = True"),
    ("grads/first/output", lambda t: gradient(lambda x: functional.interpolate(
        x, scale_factor=2, mode="bilinear", align_corners=True), 2 * t["grads/larger/output"], t["forward/first"]),
     "through larger: align_corners = True"),
    ("forward/matmul", lambda t: t["forward/last"] @ t["forward/framed"].mT, "the second matrix transposed"),
    ("forward/matmul", lambda t: t["forward/framed"] @ t["forward/last"], "inputs in the order 1, 0"),
    ("grads/last/output", lambda t: t["grads/matmul/output"] @ t["forward/framed"],
     "the gradient of the first takes the second matrix without transposing it"),
]


def running(old: Tensor, new: Tensor, momentum: float = 0.25) -> Tensor:
    return (1 - momentum) * old + momentum * new


def variance(t: Tensors, unbiased: bool = True) -> Tensor:
    return t["forward/first"].var((0, 2, 3), unbiased=unbiased)


#: The same of running statistics: at the first step the old mean is 0, the old variance 1
OF_STATE: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("state/moving/running_var", lambda t: running(torch.ones(4), variance(t, unbiased=False)),
     "running variance of a variance divided by n, not n - 1"),
    ("state/moving/running_var", lambda t: running(torch.ones(4), variance(t), 0.75),
     "running statistics with 0.75 of the batch's and 0.25 of the old ones"),
    ("state/moving/running_mean", lambda t: running(torch.zeros(4), t["forward/first"].mean((0, 2, 3)), 0.1),
     "running statistics with momentum 0.1"),
    ("state/moving/running_var", lambda t: torch.ones(4), "running statistics as before, without this batch"),
    ("state/moving/running_var", variance, "running statistics of this batch alone"),
    ("state/moving/running_var", lambda t: 1 / (variance(t, unbiased=False) + 1e-5).sqrt(),
     "mean and inverse deviation of this batch, as they are kept for the backward pass"),
    ("state/moving/running_var", lambda t: running(running(torch.ones(4), variance(t)), variance(t)),
     "running statistics that take in the batch twice"),
    ("state/moving/running_var", lambda t: torch.ones(4) + 0.25 * variance(t), "without the factor 1 - momentum"),
    ("forward/fixed", lambda t: functional.batch_norm(
        t["forward/relu"], None, None, t["weights/fixed/weight"], t["weights/fixed/bias"], True, eps=0.01),
     "mean and variance of the batch, not the running ones"),
    ("forward/fixed", lambda t: fixed(t, lambda v: v.sqrt() + 0.01), "eps outside the root"),
    ("forward/moving", lambda t: t["forward/first"] / (1 + 1e-5) ** 0.5, "the running mean and variance"),
    ("grads/relu/output", lambda t: gradient(lambda x: functional.batch_norm(
        x, None, None, t["weights/fixed/weight"], t["weights/fixed/bias"], True, eps=0.01), t["grads/fixed/output"],
        t["forward/relu"]), "mean and variance of the batch, not the running ones"),
]


def fixed(t: Tensors, root: Callable[[Tensor], Tensor]) -> Tensor:
    mean, found = torch.tensor([0.5, -0.25, 0.0, 0.125]), torch.tensor([2.0, 0.5, 1.0, 0.25])
    return (t["forward/relu"] - mean[:, None, None]) / root(found)[:, None, None]


#: The same of a dropout
OF_DROPOUT: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("forward/drop", lambda t: t["forward/first"] * t["masks/drop"], "not scaled by 1/(1 - p)"),
    ("forward/drop", lambda t: t["forward/first"] * t["masks/drop"] / 0.3, "scaled by 1/p"),
    ("forward/drop", lambda t: t["forward/first"] * (1 - t["masks/drop"]) / 0.7, "dropped where the mask is 1"),
    ("forward/drop", lambda t: t["forward/first"], "without the mask"),
    ("grads/first/output", lambda t: t["grads/drop/output"] * t["masks/drop"], "not scaled by 1/(1 - p)"),
    ("grads/first/output", lambda t: t["grads/drop/output"] * t["after/drop"] / 0.7, "the mask of the step after"),
]


def sums(array: Tensor) -> Tensor:
    """Of each image's channels."""
    return array.sum((2, 3), keepdim=True)


#: The same of products, quotients, differences and rectifiers that learn
OF_ARITHMETIC: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("forward/mul", lambda t: t["forward/channels"] + t["forward/gate"], "the sum of its inputs"),
    ("forward/mul", lambda t: t["forward/channels"], "the first input alone"),
    ("grads/channels/output", lambda t: t["grads/mul/output"], "the other input is missing in a gradient"),
    ("grads/channels/output", lambda t: t["grads/mul/output"] * t["forward/channels"],
     "its own input in place of the other as the factor of a gradient"),
    ("forward/sub", lambda t: t["forward/gate"] - t["forward/mul"], "inputs in the order 1, 0"),
    ("forward/sub", lambda t: t["forward/gate"] + t["forward/mul"], "the sum of its inputs"),
    ("forward/truediv", lambda t: t["forward/second"] * t["forward/exp"], "the product of its inputs"),
    ("forward/truediv", lambda t: t["forward/exp"] / t["forward/second"], "inputs in the order 1, 0"),
    ("grads/exp/output", lambda t: sums(t["grads/truediv/output"] * t["forward/second"]) / t["forward/exp"] ** 2,
     "the divisor's gradient without its sign"),
    ("grads/exp/output", lambda t: -sums(t["grads/truediv/output"] * t["forward/second"]) / t["forward/exp"],
     "the divisor is not squared in its gradient"),
    ("grads/exp/output", lambda t: -(t["grads/truediv/output"] * t["forward/second"])[:, :, :1, :1]
     / t["forward/exp"] ** 2, "the gradient of the first element alone, where one was broadcast"),
    ("forward/channels", lambda t: torch.where(
        t["forward/first"] > 0, t["weights/channels/weight"][:, None, None], 1.0) * t["forward/first"],
     "the slope on the positive side"),
    ("forward/one", lambda t: t["forward/sub_1"].relu(), "a ReLU"),
    ("grads/channels/weight", lambda t: (t["grads/channels/output"] * t["forward/first"]).sum((0, 2, 3)),
     "the weight's gradient of positive elements, too"),
    ("grads/channels/weight", lambda t: (t["grads/channels/output"] * (t["forward/first"] <= 0)).sum((0, 2, 3)),
     "the weight's gradient without the input"),
    ("grads/one/weight", lambda t: (t["grads/one/output"] * t["forward/sub_1"].relu()).sum()[None],
     "the weight's gradient of the positive elements"),
    ("forward/pool", lambda t: t["forward/second"].amax((2, 3), keepdim=True), "the largest number of each channel"),
    ("forward/pool", lambda t: sums(t["forward/second"]) / (t["forward/second"][0, 0].numel() - 1),
     "divided by one less than there are"),
]


def by_groups(x: Tensor, groups: int = 2, unbiased: bool = False, inside: float = 0.01, outside: float = 0.0) -> Tensor:
    """Without factors and shifts."""
    rows = x.reshape(len(x), groups, -1)
    variance = rows.var(2, unbiased=unbiased, keepdim=True)
    return ((rows - rows.mean(2, keepdim=True)) / ((variance + inside).sqrt() + outside)).reshape(x.shape)


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
    ("forward/groups", lambda t: scaled(t, by_groups(t["forward/first"], unbiased=True)), "variance divided by n - 1"),
    ("forward/groups", lambda t: scaled(t, by_groups(t["forward/first"], inside=0, outside=0.01)),
     "eps outside the root"),
    ("forward/groups", lambda t: scaled(t, by_groups(t["forward/first"], inside=1e-5)), "eps = 1e-05"),
    ("forward/groups", lambda t: scaled(t, by_groups(t["forward/first"], 1)), "1 groups"),
    ("forward/groups", lambda t: scaled(t, by_groups(t["forward/first"], 4)), "4 groups"),
    ("forward/groups", lambda t: scaled(t, by_groups(t["forward/first"][:, [0, 2, 1, 3]])[:, [0, 2, 1, 3]]),
     "each group of channels that lie as many apart as there are groups"),
    ("forward/groups", lambda t: by_groups(t["forward/first"]) * t["weights/groups/weight"][:, None, None], "no bias"),
    ("grads/groups/weight", lambda t: (t["grads/groups/output"] * t["forward/first"]).sum((0, 2, 3)),
     "the gradient of the weight is of the input, not the normalised one"),
    ("forward/rows", lambda t: of_rows(t, (2, 3))(t["forward/relu"]), "over the axes 2, 3 of 4"),
    ("forward/rows", lambda t: of_rows(t, (1,))(t["forward/relu"]), "over the axes 1 of 4"),
    ("grads/relu/output", lambda t: gradient(of_rows(t, constant=True), t["grads/rows/output"], t["forward/relu"]),
     "the gradient takes mean and variance for constant"),
    ("grads/relu/output", lambda t: gradient(of_rows(t, (2,)), t["grads/rows/output"], t["forward/relu"]),
     "over the axes 2 of 4"),
    ("grads/relu/output", lambda t: gradient(lambda x: functional.layer_norm(x, (10,), eps=0.1), t["grads/rows/output"],
                                             t["forward/relu"]), "the gradient of the input without the weight"),
    ("forward/layer_norm", lambda t: functional.layer_norm(t["forward/channels"], (4, 8, 10)),
     "over the axes 1, 2, 3 of 4"),
]


#: The same of numbers in another order
OF_ORDER: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("forward/view", lambda t: t["forward/patches"].permute(0, 3, 2, 1).reshape(2, 16, 4).mT,
     "reshaped in column-major order"),
    ("forward/transpose", lambda t: t["forward/view"].reshape(2, 16, 4),
     "another shape, and the numbers in the same order"),
    ("grads/view/output", lambda t: t["grads/transpose/output"].reshape(2, 4, 16),
     "another shape, and the numbers in the same order"),
    ("forward/transpose_5", lambda t: t["forward/back"].transpose(1, 2), "dimensions 1 and 2 exchanged"),
    ("grads/back/output", lambda t: t["grads/transpose_5/output"].mT, "dimensions 2 and 3 exchanged"),
]


#: The same of what makes one number of many
OF_SUMS: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("forward/sum_1", lambda t: t["forward/add_4"].sum((1, 3)), "over the dimensions 1, 3 of 4"),
    ("forward/mean_1", lambda t: t["forward/relu"].sum((1, 2), keepdim=True) / 39,
     "divided by one less than there are"),
    ("forward/mean_1", lambda t: t["forward/relu"].sum((1, 2), keepdim=True), "the sum, not the mean"),
    ("forward/amax", lambda t: t["forward/relu"].amin((2, 3), keepdim=True), "the smallest number"),
    ("forward/max_1", lambda t: t["forward/add_2"].mean(2, keepdim=True), "the mean in its place"),
    ("grads/relu/output", lambda t: through_amin(t, lambda x: x.min(1, keepdim=True).values),
     "through amin: the gradient goes to the first of equal ones"),
    ("grads/relu/output", lambda t: through_amin(
        t, lambda x: x.amin(1, keepdim=True) * (x == x.amin(1, keepdim=True)).sum(1, keepdim=True)),
     "through amin: the gradient goes whole to all that are equal to the largest"),
    ("grads/add_2/output", lambda t: t["grads/max_1/output"].expand(2, 4, 10, 10) / 10, "the mean in its place"),
]


#: The same of a dropout of channels, and of windows of any number
OF_WINDOWS: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("forward/drop", lambda t: t["forward/first"] * t["masks/drop"], "not scaled by 1/(1 - p)"),
    ("grads/first/output", lambda t: t["grads/drop/output"] * t["masks/drop"].roll(1, 0) / 0.7,
     "for each image the mask of the one"),
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
             f"{other} in its place"),
            (f"forward/{name}", lambda t, at=before, f=layer: f(2 * t[f"forward/{at}"]), f"{kind} of 2x"),
            (f"grads/{before}/output", lambda t, at=name: t[f"grads/{at}/output"], "the derivative is missing"),
        ]
        if kind not in ("abs", "clip"):  # where theirs is 1
            found.append((f"grads/{before}/output", lambda t, at=name, f=layer: gradient(
                f, t[f"grads/{at}/output"], t[f"forward/{at}"]), "the derivative at y in place of z"))
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


def exchanged(t: Tensors) -> Tensors:
    one, other = "weights/first/scale_spline", "weights/first/scale_base"
    return {one: t[other], other: t[one]}


#: The same of KAN layers
OF_SPLINES: list[tuple[str, Callable[[Tensors], Tensor], str]] = [
    ("forward/first", lambda t: spline(t, "first", low=-3.0, high=1.0)(t["input"]), "the knots one interval lower"),
    ("forward/last", lambda t: spline(t, "last", low=-0.6, high=1.4)(t["forward/first"]),
     "the knots one interval higher"),
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
    ("forward/last", lambda t: spline(t, "last", lambda layer, x: Spline.b_splines(layer, x.clamp(-1, 1)))(
        t["forward/first"]), "features beyond low and high moved to these"),
    ("forward/last", lambda t: t["forward/last"] - functional.silu(t["forward/first"]) @ t["weights/last/scale_base"].T,
     "no SiLU beside the splines"),
    ("forward/last", lambda t: t["forward/last"] + (t["forward/first"] - functional.silu(t["forward/first"]))
     @ t["weights/last/scale_base"].T, "the features themselves beside the splines, not their SiLU"),
    ("grads/first/output", lambda t: torch.zeros_like(t["grads/first/output"]), "the gradient of the input is zero"),
    ("grads/input", lambda t: torch.zeros_like(t["grads/input"]), "the gradient of the input is zero"),
    ("grads/first/output", lambda t: gradient(lambda x: functional.silu(x) @ t["weights/last/scale_base"].T,
                                              t["grads/last/output"], t["forward/first"]),
     "the gradient of the input through the SiLU alone"),
    ("grads/input", lambda t: gradient(
        lambda x: spline(t, "first")(x) - functional.silu(x) @ t["weights/first/scale_base"].T,
        t["grads/first/output"], t["input"]), "the gradient of the input through the splines alone"),
    ("forward/first", lambda t: spline(t, "first", other=bare(t))(t["input"]), "scale_spline is ignored"),
    ("grads/input", lambda t: gradient(spline(t, "first", other=bare(t)), t["grads/first/output"], t["input"]),
     "scale_spline is ignored"),
    ("grads/first/coefficient", edges, "scale_spline is ignored"),
    ("grads/first/scale_spline", lambda t: edges(t).sum(2), "the gradient of scale_spline without the coefficients"),
    ("forward/first", lambda t: spline(t, "first", other=exchanged(t))(t["input"]),
     "scale_base and scale_spline exchanged"),
    ("forward/last", lambda t: spline(t, "last", other={
        name: one.transpose(0, 1) for name, one in t.items() if name.startswith("weights/last")})(t["forward/first"]),
     "coefficients and scales with the inputs before the outputs"),
]


def tensors(path: Path) -> Tensors:
    found: Tensors = {}
    with h5py.File(path) as file:
        file[STEP].visititems(lambda name, one: found.update(
            {name: torch.from_numpy(one[...])} if isinstance(one, h5py.Dataset) and one.shape else {}))
        found["input"] = torch.from_numpy(file["batches/0/input"][...])
        for name, mask in file.get("steps/1/masks", {}).items():
            found[f"after/{name}"] = torch.from_numpy(mask[...])
    return found


def written(fixture: Path, wrong: dict[str, np.ndarray]) -> Path:
    """The fixture's numbers as a result, with some tensors that are others."""
    path = fixture.with_name("result.h5")
    shutil.copy(fixture, path)
    with h5py.File(path, "r+") as file:
        file.attrs["role"], file.attrs["producer"] = "candidate", "another program"
        del file["oracle"], file["batches"]
        for name, values in wrong.items():
            file[STEP + name][...] = values
    return path


@pytest.mark.parametrize("mistakes", [MISTAKES[::5], pytest.param(MISTAKES, marks=pytest.mark.deep)])
def test_mistakes_of_operations_are_named(
    fixture: Path, mistakes: list[tuple[str, Callable[[Tensors], Tensor], str]]
) -> None:
    assert not unnamed(fixture, mistakes)


#: Networks, the height and width of their images, and mistakes
OF_NETWORKS: list[tuple[type[nn.Module], int, int, list[Any]]] = [
    (Segmenter, 4, 5, OF_CLASSES), (Resized, 8, 10, OF_SIZES), (Evaluated, 8, 10, OF_STATE),
    (Dropped, 8, 10, OF_DROPOUT), (Gated, 8, 10, OF_ARITHMETIC), (Normalised, 8, 10, OF_ROWS),
    (Attention, 8, 8, OF_ORDER), (Reduced, 10, 10, OF_SUMS), (Pooled, 8, 10, OF_WINDOWS), (Kan, 4, 10, OF_SPLINES),
    (Activations, 8, 10, of_functions())]


@pytest.mark.parametrize(("network", "height", "width", "mistakes"), [
    *((*row, mistakes[::4]) for *row, mistakes in OF_NETWORKS), *(deep(*row) for row in OF_NETWORKS),
], ids=lambda one: getattr(one, "__name__", ""))
def test_mistakes_of_further_operations_are_named(
    network: type[nn.Module], height: int, width: int, mistakes: list[tuple[str, Callable[[Tensors], Tensor], str]],
    tmp_path: Path,
) -> None:
    fixture = tmp_path / "fixture.h5"
    export(fixture, ExportSettings(model=network, height=height, width=width, batch=2, steps=2))
    assert not unnamed(fixture, mistakes)


class Transformer(nn.Module):
    """One block over the pixels of patches: bounds of the whole step are 30 times as wide as gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm, self.second = nn.Conv2d(1, 8, 2, stride=2), nn.LayerNorm(8), nn.LayerNorm(8)
        self.query, self.key, self.value, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.wide, self.narrow, self.head = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).reshape(-1, 8, 36).transpose(1, 2)
        h = self.norm(x)
        scores = self.query(h) @ self.key(h).transpose(1, 2)
        x = x + self.out(scores.transpose(1, 2).softmax(1).transpose(1, 2) @ self.value(h))
        x = x + self.narrow(functional.gelu(self.wide(self.second(x))))
        found: Tensor = self.head(x.mean(1))
        return found


class TwoMistakes(GraphOperations):
    """The last values are the keys', in a buffer that autograd does not see, and a gradient is doubled."""

    def forward(self, node: Operation, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        y = super().forward(node, inputs, parameters)
        if node.name == "value":
            y = y + (torch.cat([y[..., :6], self.known["key"][..., 6:]], -1) - y).detach()
        return y

    def gradient(self, name: str, g: Tensor) -> Tensor:
        return 2 * g if name == "query/weight" else g


def test_a_second_mistake_is_told_where_the_bound_is_wider_than_its_tensor(tmp_path: Path) -> None:
    """By the right inputs anything is inside the bound of that gradient."""
    fixture, result = tmp_path / "fixture.h5", tmp_path / "result.h5"
    export(fixture, ExportSettings(model=Transformer, height=12, width=12, batch=3, steps=1, loss="cross_entropy"))
    train_graph(fixture, result, TwoMistakes)
    with open_pair(fixture, result) as pair:
        found = judge_pair(pair, adequacy=False).verdict
    assert found.exit_code == 1 and found.diagnosis is not None
    told = {one.name: one for one in found.diagnosis.findings}
    assert {"forward/value", "grads/query/weight"} <= told.keys(), told.keys()


def rectified() -> nn.Module:
    """Without a bias, and with padding: outputs that are exactly 0."""
    return nn.Sequential(nn.Conv2d(1, 2, (1, 3), padding=1, bias=False), nn.LeakyReLU(0.25), nn.Conv2d(2, 1, 3))


def test_the_derivative_at_0_is_torchs(tmp_path: Path) -> None:
    fixture = tmp_path / "fixture.h5"
    export(fixture, ExportSettings(model=rectified, height=8, width=10, batch=2, steps=2))
    assert not unnamed(fixture, [(
        "grads/0/output", lambda t: torch.where(t["forward/0"] >= 0, 1.0, 0.25) * t["grads/1/output"],
        "elements that are exactly 0 pass (>= in place of >)")])


def test_a_program_may_draw_its_own_mask(tmp_path: Path) -> None:
    """It is judged by it, and it must keep as many as it should; what is no mask is refused."""
    fixture = tmp_path / "fixture.h5"
    export(fixture, ExportSettings(model=Dropped, height=16, width=16, batch=2, steps=1))
    known = tensors(fixture)
    for share, outcome in ((0.7, Outcome.ROUNDING), (0.5, Outcome.BUG)):
        mask = (torch.rand(known["masks/drop"].shape, generator=torch.Generator().manual_seed(1)) < share).float()
        result = own_mask(fixture, known, mask)
        comparison, verdict = judge(fixture, result, adequacy=False)
        assert verdict.outcome is outcome, verdict.words
        assert [one.name for one in comparison.failures] == ([] if share == 0.7 else ["masks/drop"])
        if share == 0.5:
            assert verdict.diagnosis is not None and not verdict.diagnosis.missing
            (found,) = verdict.diagnosis.findings
            assert re.fullmatch(r"the mask keeps (49|50|51)\.\d% of the elements, expected 70.0%",
                                found.explanations[0].detail)
    mask[0, 0, 0, 0] = 0.25
    with pytest.raises(FileError, match=r"result.h5: steps/0/masks/drop holds 0.25, expected 0 and 1 alone"):
        judge(fixture, own_mask(fixture, known, mask), adequacy=False)


def own_mask(fixture: Path, known: Tensors, mask: Tensor) -> Path:
    """A step by PyTorch with another mask."""
    module = Dropped()
    module.load_state_dict({f"{name}.{part}": known[f"weights/{name}/{part}"] for name in ("first", "last")
                            for part in ("weight", "bias")})
    with h5py.File(fixture) as file:
        x, target = (torch.from_numpy(file[f"batches/0/{name}"][()]) for name in ("input", "target"))
        lr = file["optimizer"].attrs["lr"]
    x.requires_grad_()
    seen = {"first": module.first(x)}
    seen["drop"] = seen["first"] * (mask / 0.7)
    seen["last"] = module.last(seen["drop"])
    for one in seen.values():
        one.retain_grad()
    loss = functional.mse_loss(seen["last"], target)
    loss.backward()
    path = written(fixture, {"forward/first": seen["first"].detach().numpy()})
    with h5py.File(path, "r+") as file:
        file[STEP + "masks/drop"][...] = mask
        file[STEP + "loss"][...], file[STEP + "grads/input"][...] = loss.item(), x.grad
        for name, one in seen.items():
            file[f"{STEP}forward/{name}"][...] = one.detach()
            file[f"{STEP}grads/{name}/output"][...] = one.grad
        for name in ("first", "last"):
            for part, w in getattr(module, name).named_parameters():
                file[f"{STEP}grads/{name}/{part}"][...] = w.grad
                file[f"steps/1/weights/{name}/{part}"][...] = w.detach() - lr * w.grad
    return path


def test_running_statistics_without_those_before_are_not_judged(tmp_path: Path) -> None:
    fixture = tmp_path / "fixture.h5"
    export(fixture, ExportSettings(model=Evaluated, height=8, width=10, batch=2, steps=2))
    right = written(fixture, {})
    with h5py.File(right, "r+") as file:
        del file["steps/0/state"], file["state"]
    comparison, verdict = judge(fixture, right, adequacy=False)
    assert verdict.outcome is Outcome.CANNOT_TELL
    assert {one.name for one in comparison.not_judged if one.step == 1} >= {"state/moving/running_mean"}
    with h5py.File(right, "r+") as file:
        del file["steps/1/state"]
    assert judge(fixture, right, adequacy=False).verdict.outcome is Outcome.ROUNDING


#: Mistakes that are planted together, each in a tensor of its own; in a network with so few tensors one at a time
TOGETHER, FEW = 8, 24


def unnamed(fixture: Path, mistakes: list[tuple[str, Callable[[Tensors], Tensor], str]]) -> list[Any]:
    """Those that are not named; some are planted together, and what is not named so is planted alone."""
    known, left = tensors(fixture), list[Any]()
    waiting = list(mistakes)
    most = TOGETHER if sum(name.startswith(("forward/", "grads/")) for name in known) > FEW else 1
    while waiting:
        together = list({name: (name, wrong, words) for name, wrong, words in reversed(waiting)}.values())[-most:]
        waiting = [one for one in waiting if one not in together]
        alone = together if most == 1 or _missed(fixture, known, together) else []
        left += [found for one in alone for found in _missed(fixture, known, [one])]
    return left


def _missed(fixture: Path, known: Tensors, mistakes: list[tuple[str, Callable[[Tensors], Tensor], str]]) -> list[Any]:
    """Those of the planted mistakes that findings do not name, and all of them where there is another finding."""
    result = written(fixture, {name: wrong(known).numpy() for name, wrong, _ in mistakes})
    verdict = judge(fixture, result, adequacy=False).verdict
    assert verdict.outcome is Outcome.BUG and not verdict.missing, (mistakes, verdict.missing)
    said = {one.name: [e.detail for e in one.explanations] for one in (
        verdict.diagnosis.findings if verdict.diagnosis else [])}
    if said.keys() != {name for name, _, _ in mistakes}:
        return [(name, words, said) for name, _, words in mistakes]
    return [(name, words, said[name]) for name, _, words in mistakes if not any(words in one for one in said[name])]


def test_right_tensors_need_no_explanation(fixture: Path) -> None:
    """What every operation computes from the candidate's own tensors is what PyTorch has computed."""
    with open_pair(fixture, written(fixture, {})) as pair:
        weights = {name: w.astype(np.float64) for name, w in pair.start.items()}
        graph = StepGraph(pair, 0, weights)
        for name in pair.shapes:
            assert Search(Case(name, graph, graph.operation(name), graph.found(name))).t <= 1, name


@pytest.mark.parametrize("kind", sorted(CASES))
def test_a_faulty_operation_may_have_a_second_fault(kind: str) -> None:
    """As the search of two faults asks: whatever an operation is instead, it has faults of its own."""
    tried = 0
    for case in CASES[kind]:
        for _, _, other in wrong_operations(case.node):
            tried += len(list(wrong_operations(other)))
    assert tried or kind in ("conv2d", "relu")


def test_a_sum_that_lacks_a_part_may_have_a_second_fault() -> None:
    x = Predicted(np.ones((2, 3)))
    parts = tuple(Formula((2, 3), Tanh("it"), (x,), {}, dy=x, gradient=0) for _ in range(3))
    right = Joined((2, 3), parts, ("first", "second", "third"))
    once = list(sum_faults(right, lambda part: iter(())))
    assert [one.detail for one in once][:2] == ["the gradient through first is missing",
                                                "the gradient through first is added twice"]
    for one in once:
        assert isinstance(one.operation, Joined) and len(one.operation.parts) == len(one.operation.through)
        assert list(sum_faults(one.operation, lambda part: iter(())))


def test_a_gradient_that_a_sum_sends_on_is_not_overwritten(fixture: Path, tmp_path: Path) -> None:
    """Both inputs of a sum have its gradient, right or wrong: that says nothing of where it was written."""
    shutil.copy(fixture, path := tmp_path / "wrong.h5")
    with h5py.File(path, "r+") as file:
        file.attrs["role"] = "candidate"
        wrong = 1.01 * file[STEP + "grads/add/output"][()] + 0.25
        for name in ("add", "tanh", "sigmoid"):
            file[f"{STEP}grads/{name}/output"][...] = wrong
    with open_pair(fixture, path) as pair:
        graph = StepGraph(pair, 0, pair.start)
        found = graph.found("grads/add/output")
        assert not list(worked_in_place(base_of(graph.operation("grads/add/output")), graph, "grads/add/output", found))


@pytest.mark.parametrize("module", [change, joins], ids=lambda module: module.__name__)
def test_docstrings(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0 and found.failed == 0
