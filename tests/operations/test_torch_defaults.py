# SPDX-License-Identifier: MIT
"""What is left out of an optimiser, a loss, a layer or a schedule is what torch's signature says."""

from __future__ import annotations

import inspect
import math
from dataclasses import MISSING, fields
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler

from bridge.exchange.optimizers import OPTIMIZERS
from bridge.operations import OPERATIONS
from bridge.operations.losses import LOSSES
from bridge.train.schedules import SCHEDULES
from tests.helpers.loops import looped

#: By our names; None: torch has no class with such settings, or a default for none of them
OPTIMIZER = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
LOSS = {"bce": nn.BCELoss, "bce_with_logits": nn.BCEWithLogitsLoss, "cross_entropy": nn.CrossEntropyLoss,
        "huber": nn.HuberLoss, "l1": nn.L1Loss, "mse": nn.MSELoss, "smooth_l1": nn.SmoothL1Loss}
LAYER = {"avg_pool2d": nn.AvgPool2d, "avg_pool3d": nn.AvgPool3d, "conv3d": nn.Conv3d,
         "conv_transpose3d": nn.ConvTranspose3d, "max_pool3d": nn.MaxPool3d, "upsample_trilinear3d": nn.Upsample,
         "batch_norm2d": nn.BatchNorm2d, "conv2d": nn.Conv2d,
         "conv_transpose2d": nn.ConvTranspose2d, "elu": nn.ELU, "embedding": nn.Embedding,
         "group_norm": nn.GroupNorm, "layer_norm": nn.LayerNorm, **dict.fromkeys(("gru", "lstm", "rnn"), nn.RNNBase),
         "leaky_relu": nn.LeakyReLU, "linear": nn.Linear, "max_pool2d": nn.MaxPool2d, "prelu": nn.PReLU,
         "softplus": nn.Softplus, "upsample_bilinear2d": nn.Upsample}
SCHEDULE = {"step": lr_scheduler.StepLR, "cosine": lr_scheduler.CosineAnnealingLR, "one_cycle": lr_scheduler.OneCycleLR}
#: torch's names of ours
TORCHS = {"mean": "reduction", "least": "eta_min"}
#: How torch writes them: a mean, no weights, no matter whether corners are aligned
SAME = {"mean": True, None: 1.0}
#: Ours that are not torch's, and why
OTHER = {
    ("avg_pool2d", "divisor_override"): "files have 0 for None",
    ("embedding", "padding_idx"): "files have -1 for None",
    **{(kind, "reverse"): "torch has both directions in one layer" for kind in ("gru", "lstm", "rnn")},
    ("rnn", "relu"): "torch has a text, nonlinearity",
    ("batch_norm2d", "track_running_stats"): "a file without state; from_torch reads what the module has",
    ("batch_norm2d", "training"): "a mode of the module",
    ("cross_entropy", "class_indices"): "torch tells by the target's type",
    ("reshape", "fixed"): "a network that was read at one shape alone",
    ("constant", "warm_up"): "a schedule of its own (LinearLR)",
    ("step", "warm_up"): "a schedule of its own (LinearLR)",
    ("cosine", "warm_up"): "a schedule of its own (LinearLR)",
    ("one_cycle", "warm_up"): "a schedule of its own (LinearLR)",
}
#: Operations with defaults whose torch is a function or a method that has the same ones: none to be changed
FUNCTIONS = {"amax", "amin", "clip", "max", "mean", "min", "sum"}
#: Operations that torch has not, or without any default of ours
OURS = {"affine", "attention", "concat", "constant_pad", "gather_rows", "interpolate", "log_softmax", "reshape",
        "slice", "softmax", "spline"}


def defaults(made: Any) -> dict[str, Any]:
    """Of a class of ours, by names."""
    return {one.name: one.default for one in fields(made) if one.name not in ("name", "inputs")
            and one.default is not MISSING}


def plain(value: Any) -> Any:
    """As one number: pairs of equal ones, torch's texts and Nones."""
    if isinstance(value, tuple):
        return plain(value[0]) if value and len(set(value)) == 1 else value or 1.0
    return SAME.get(value, value) if isinstance(value, str) or value is None else float(value)


@looped(("kind", "ours", "torchs"), [
    *((name, made, OPTIMIZER[name]) for name, made in OPTIMIZERS.items()),
    *((name, made, LOSS[name]) for name, made in LOSSES.items()),
    *((name, made, LAYER.get(name)) for name, made in OPERATIONS.items() if defaults(made) and name not in OURS),
    *((name, made, SCHEDULE.get(name)) for name, made in SCHEDULES.items())])
def test_defaults_are_torchs(kind: str, ours: Any, torchs: Any) -> None:
    """Each of them; what torch has another name for, or none, is listed above."""
    if torchs is None:
        assert kind in FUNCTIONS or all((kind, name) in OTHER for name in defaults(ours))
        return
    signature = inspect.signature(torchs).parameters
    found = {name: one.default for name, one in signature.items()}
    if "betas" in found:
        found |= dict(zip(("beta1", "beta2"), found["betas"], strict=True))
    for name, value in defaults(ours).items():
        if (kind, name) not in OTHER:
            expected = plain(found[TORCHS.get(name, name)])
            # Upsample's default of align_corners, None, is False
            assert plain(value) == expected or (name == "align_corners" and not value), (name, value, expected)


def test_every_kind_is_compared() -> None:
    """A new one must be, too."""
    assert OPTIMIZERS.keys() == OPTIMIZER.keys() and LOSSES.keys() == LOSS.keys()
    assert {name for name, made in OPERATIONS.items() if defaults(made)} == LAYER.keys() | FUNCTIONS | OURS
    assert SCHEDULES.keys() == {*SCHEDULE, "constant"}
    assert all(getattr(OPERATIONS[name], "keepdim", False) is False for name in FUNCTIONS - {"clip"})
    assert (OPERATIONS["clip"].min, OPERATIONS["clip"].max) == (-math.inf, math.inf)
