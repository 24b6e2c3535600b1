# SPDX-License-Identifier: MIT
"""What an export is asked to do, checked once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reference.batches.own_batches import Given, count
from reference.errors import InputError
from reference.inputs import Inputs
from reference.losses import LossText

# Up to here a float64 step takes less than a second, so that every step gets its twin.
ORACLE_PIXELS = 2**17

#: Powers of two, so that an update shows its direction
DEFAULT_LR = {"sgd": 0.0625, "adam": 2.0**-10, "adamw": 2.0**-10}
#: torch's
DEFAULT_DECAY = {"sgd": 0.0, "adam": 0.0, "adamw": 0.01}

#: Where nothing is said
STEPS = 3
PRECISIONS = ("float32", "float64")
REDUCTIONS = ("mean", "sum")


@dataclass(frozen=True)
class ExportSettings:
    """Everything that decides the content of a fixture.

    Attributes
    ----------
    height, width : int >= 1, in pixels
        Size of the input images.
    batch : int >= 1
        Images in one batch.
    steps : int >= 1
        Training steps; each has a batch of its own. Where it is left out: 3, or as many as batches of `input`.
    seed : int, 0 .. 2**63 - 1
        Of the images and of the initial weights.
    optimizer : "sgd", "adam" or "adamw"
    lr, weight_decay, momentum, dampening, nesterov, betas, eps
        Of ``torch.optim.SGD``, or ``Adam`` and ``AdamW``. The learning rate None means 0.0625 of SGD, 2**-10 of the
        others, and in a probe the one that `reference.probe.settled` finds; the decay None means torch's.
    schedule : None, or a class of ``torch.optim.lr_scheduler`` as a call, "StepLR(step_size=2, gamma=0.5)"
        What changes the learning rate from step to step.
    loss : a loss of `reference.losses`, perhaps with settings, "huber delta=0.5"
        A cross entropy takes classes as targets, one for each image or pixel; a binary one numbers from 0 to 1.
    reduction : "mean" or "sum"
        Over all elements of the output; of the cross entropy over images and pixels.
    image : path or None
        Micrograph that patches are cut from; a synthetic one where None.
    input, target : None, an array, a list of arrays, or a path, see `reference.batches.own_batches`
        Batches of the caller's own, of any shape (n, ...), in place of images; they are rounded to `precision`, and
        height, width and batch say nothing. Several inputs are a mapping of arrays by the names of forward's arguments.
    shape : tuple, `reference.inputs.Inputs` or None
        (c, h, w) of one image, in place of `height` and `width`, with its channels, which are else those of the first
        convolution. Of anything else, or of several inputs, which are no images, normal numbers are drawn.
    model : "package.module:factory", a callable without arguments, or None
        What makes the module; :class:`reference.model.ThreeLayerCNN` where None.
    output : None, a number or a name
        Which output is trained, where the module gives several: see `reference.network.outputs`.
    precision : "float32" or "float64"
        What everything is computed in.
    oracle_steps : int or None
        Number of first steps that get a float64 twin; None: all of a small fixture, one of a large one.
    whole_steps : int or None
        Number of first steps that keep their tensors of the images' size; of later ones only weights, loss and
        parameter gradients are written. None: all steps.
    threads : int >= 1 or None
        Of torch; its own choice where None.
    probe : bool
        Write an exact probe, see `reference.probe`: plain SGD, no image, a twin for every step.

    Raises
    ------
    InputError
        If a value is out of its range.
    """

    height: int = 1024
    width: int = 1024
    batch: int = 2
    steps: int = None  # type: ignore[assignment]
    seed: int = 0
    lr: float | None = None
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float | None = None
    nesterov: bool = False
    optimizer: str = "sgd"
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    schedule: str | None = None
    loss: str = "mse"
    reduction: str = "mean"
    image: str | Path | None = None
    input: Given | None = None
    target: Given | None = None
    model: str | Callable[[], Any] | None = None
    precision: str = "float32"
    oracle_steps: int | None = None
    whole_steps: int | None = None
    threads: int | None = None
    probe: bool = False
    shape: tuple[int, ...] | Inputs | None = None
    output: int | str | None = None

    def __post_init__(self) -> None:
        self._check_own()
        self._check_shape()
        if self.steps is None:
            object.__setattr__(self, "steps", STEPS if self.input is None else count(self.input))
        for name in ("height", "width", "batch", "steps"):
            _whole(name, getattr(self, name), 1)
        _whole("seed", self.seed, 0, 2**63 - 1)
        if self.threads is not None:
            _whole("threads", self.threads, 1, 4096)
        if self.oracle_steps is not None:
            _whole("oracle-steps", self.oracle_steps, 0, self.steps)
        if self.whole_steps is not None:
            _whole("whole-steps", self.whole_steps, 0, self.steps)
        _one_of("optimizer", self.optimizer, tuple(DEFAULT_LR))
        if self.lr is None and not self.probe:
            object.__setattr__(self, "lr", DEFAULT_LR[self.optimizer])
        if self.weight_decay is None:
            object.__setattr__(self, "weight_decay", DEFAULT_DECAY[self.optimizer])
        if self.lr is not None:
            _number("lr", self.lr, lowest=0.0)
        for name in ("momentum", "weight_decay", "eps"):
            _number(name.replace("_", "-"), getattr(self, name), lowest=0.0)
        self._check_optimizer()
        _number("dampening", self.dampening)
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            raise InputError(
                "nesterov needs momentum > 0 and dampening 0, found "
                f"momentum {self.momentum} and dampening {self.dampening}"
            )
        LossText.read(self.loss)
        _one_of("reduction", self.reduction, REDUCTIONS)
        _one_of("precision", self.precision, PRECISIONS)
        if self.probe:
            self._check_probe()

    def _check_own(self) -> None:
        for name, other in (("input", "target"), ("target", "input")):
            if getattr(self, name) is not None and getattr(self, other) is None:
                raise InputError(f"{name} is given without {other}, expected both")
        if self.input is not None and (self.image is not None or self.probe):
            other = "image" if self.image is not None else "probe"
            raise InputError(f"input is given, and {other}, expected one of both")

    def _check_shape(self) -> None:
        if self.shape is None:
            return
        if self.input is not None:
            raise InputError("shape is given, and input, whose arrays have their own, expected one of both")
        if not isinstance(self.shape, Inputs):
            if not isinstance(self.shape, Sequence) or isinstance(self.shape, str):
                raise InputError(f"shape: {self.shape!r}, expected numbers, or reference.inputs.Inputs")
            object.__setattr__(self, "shape", tuple(self.shape))
        for sample in self.shape.shapes if isinstance(self.shape, Inputs) else (self.shape,):
            for value in sample:
                _whole("shape", value, 1)
        if self.image_shape is None:
            if self.image is not None or self.probe:
                other = "images are" if self.image is not None else "a probe's are"
                shape = self.shape.text if isinstance(self.shape, Inputs) else self.shape
                raise InputError(f"shape is {shape}, and {other} of (channels, height, width)")
        else:
            object.__setattr__(self, "height", self.image_shape[1])
            object.__setattr__(self, "width", self.image_shape[2])

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """Return the shape of one image with its channels, where inputs are images and it was given."""
        return self.shape if isinstance(self.shape, tuple) and len(self.shape) == 3 else None

    @property
    def drawn(self) -> tuple[int, ...] | Inputs | None:
        """Return the shape of one sample of what is no image."""
        return None if self.image_shape else self.shape

    def _check_optimizer(self) -> None:
        for beta in self.betas:
            _number("betas", beta, lowest=0.0)
            if beta >= 1:
                raise InputError(f"betas must be less than 1, found {beta}")
        if self.optimizer == "sgd":
            return
        for name in ("momentum", "dampening", "nesterov"):
            if getattr(self, name):
                raise InputError(f"{name} {getattr(self, name)} found, and {self.optimizer} has none")

    def with_lr(self, lr: float) -> ExportSettings:
        """Return the same with this learning rate."""
        return dataclasses.replace(self, lr=lr)

    def _check_probe(self) -> None:
        plain = (("image", None), ("loss", "mse"), ("optimizer", "sgd"), ("schedule", None), ("momentum", 0),
                 ("dampening", 0), ("weight_decay", 0))
        for name, expected in plain:
            if getattr(self, name) != expected:
                raise InputError(
                    f"a probe makes its own images and takes plain SGD: {name.replace('_', '-')} "
                    f"{getattr(self, name)} found, none expected"
                )
        if self.oracle_steps not in (None, self.steps):
            raise InputError(
                f"every step of a probe has its twin: oracle-steps {self.oracle_steps} found, none expected"
            )
        if self.whole_steps not in (None, self.steps):
            raise InputError(f"a probe keeps all of every step: whole-steps {self.whole_steps} found, none expected")

    def twins(self, pixels: int) -> int:
        """Return the number of steps that get a float64 twin; `pixels` are those of a batch."""
        if self.oracle_steps is not None:
            return self.oracle_steps
        return self.steps if self.probe or pixels <= ORACLE_PIXELS else 1

    @property
    def whole(self) -> int:
        """Return the number of steps of which every tensor is written."""
        return self.steps if self.whole_steps is None else self.whole_steps


def _whole(name: str, value: object, lowest: int, highest: int | None = None) -> None:
    wanted = f">= {lowest}" if highest is None else f"from {lowest} to {highest}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} must be a whole number {wanted}, found {value!r}")
    if value < lowest or (highest is not None and value > highest):
        raise InputError(f"{name} must be {wanted}, found {value}")


def _number(name: str, value: object, lowest: float | None = None) -> None:
    wanted = "finite" if lowest is None else f"finite and >= {lowest:g}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{name} must be a number, {wanted}, found {value!r}")
    if not math.isfinite(value) or (lowest is not None and value < lowest):
        raise InputError(f"{name} must be {wanted}, found {value}")


def _one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} must be {' or '.join(choices)}, found {value!r}")
