# SPDX-License-Identifier: MIT
"""The exact probe: a training step in which nothing is rounded, so that any difference is a bug.

Images, weights and biases are -1, 0 or 1. The target is the output minus another image of -1, 0 and 1, so that
the gradient of the loss is that image times 2/N. Where N and the learning rate are powers of two, every number
of the step is an integer times a power of two, and small: `reference.network.exactness` proves it at every export.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from reference.errors import InputError
from reference.network.exactness import ExactSteps
from reference.network.layers import Layers
from reference.settings import ExportSettings
from reference.training import double_twin, parameters

# Share of values that are not zero. Denser filters make larger sums, sparser ones leave channels without any.
IMAGE_DENSITY = 0.5
FILTER_DENSITY = 0.25
# Filters with fewer taps than this would often be all zero.
FEW_TAPS = 32
DIFFERENCE_DENSITY = 0.25
# How far one unit of a gradient moves a weight: coarse enough for float32, fine enough for 2^23 units.
UNIT_STEP = 2.0**-16
# Keeps the weights' random numbers apart from those of the images, which have more parts.
_WEIGHTS = 2


class ProbeSource:
    """Batches of -1, 0 and 1; in place of a target, what the target differs by from the output.

    Parameters
    ----------
    settings : ExportSettings
        Uses seed.
    given, output : tuple of int
        Shapes (n, c, h, w) of the input and (n, k, p, q) of the output.
    """

    def __init__(
        self, settings: ExportSettings, given: tuple[int, ...], output: tuple[int, ...]
    ) -> None:
        self._seed, self._given, self._output = settings.seed, given, output
        self.data = f"exact probe: -1, 0 and 1, seed {settings.seed}"
        self.target = "output of the step minus an image of -1, 0 and 1"

    def batch(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Input of step k, and output minus target: float64."""
        rng = np.random.default_rng((self._seed, k, 0, 0))
        return sparse(rng, self._given, IMAGE_DENSITY), sparse(rng, self._output, DIFFERENCE_DENSITY)


class Probe:
    """Makes the targets of a probe, and proves its steps.

    Parameters
    ----------
    layers : list of (name, layer)
        Their weights are replaced by -1, 0 and 1.
    settings : ExportSettings
        Uses seed, reduction and lr.
    output : tuple of int
        Shape of the output.
    """

    def __init__(self, layers: Layers, settings: ExportSettings, output: tuple[int, ...]) -> None:
        assert settings.lr is not None
        fill_weights(layers, settings.seed)
        self._layers, self._lr, self._scale = layers, settings.lr, loss_scale(settings, output)
        self._steps = ExactSteps(layers)
        self._exact: dict[str, torch.Tensor] = {}

    def target(self, batch: torch.Tensor, difference: torch.Tensor) -> torch.Tensor:
        """Return the target of a step with the layers' present weights, and proof of the whole step.

        Raises
        ------
        InputError
            If the step may round something.
        """
        output = batch.double()
        with torch.no_grad():
            for _, layer in double_twin(self._layers):
                output = layer(output)
        target = output - difference.double()
        self._exact = self._steps.prove(self._layers, batch, target, self._scale, self._lr)
        return target.to(batch.dtype)

    @property
    def operand_bits(self) -> int:
        """Return the most bits that an operand of a product has had."""
        return self._steps.operand_bits

    def check(self, name: str, tensor: torch.Tensor) -> None:
        """Require that torch's own tensor of this step is exact, too.

        Raises
        ------
        InputError
            If it differs from the exact one, as with an algorithm that transforms its input (Winograd, FFT).
        """
        if not torch.equal(tensor.detach().double(), self._exact[name]):
            raise InputError(f"this torch does not compute {name} of the exact probe exactly")


def settled(settings: ExportSettings, output: tuple[int, ...]) -> ExportSettings:
    """Return the settings with a learning rate, for a probe with an output of this shape.

    A probe of several steps gets the learning rate 0: weights that have moved have too many digits for another
    exact step. What a program carries from one step to the next shows all the same.

    Raises
    ------
    InputError
        If the number of output elements or the learning rate is not a power of two.
    """
    count = math.prod(output)
    if settings.reduction == "mean" and not _power_of_two(count):
        raise InputError(
            f"a probe needs a power of two of output elements, found {'x'.join(map(str, output))} = {count} "
            "(--size and --batch in powers of two, or --reduction sum)"
        )
    if settings.lr is not None:
        if settings.lr and not _power_of_two(settings.lr):
            raise InputError(f"lr of a probe must be 0 or a power of two, found {settings.lr:g}")
        return settings
    lr = UNIT_STEP / (2 * loss_scale(settings, output)) if settings.steps == 1 else 0.0
    return settings.with_lr(lr)


def check_chain(layers: Layers) -> None:
    """Refuse layers of which no probe is made: only convolutions and ReLUs, one behind the other, are proved.

    Raises
    ------
    InputError
    """
    kinds = {type(layer) for _, layer in layers}
    if nn.Conv2d not in kinds or not kinds <= {nn.Conv2d, nn.ReLU} or layers.inputs != Layers(layers).inputs:
        raise InputError("a probe is made of a chain of convolutions and ReLUs, and this model is none")


def loss_scale(settings: ExportSettings, output: tuple[int, ...]) -> float:
    """Return the factor of the sum of squares."""
    return 1 / math.prod(output) if settings.reduction == "mean" else 1.0


def fill_weights(layers: Layers, seed: int) -> None:
    """Weights and biases of -1, 0 and 1, in place."""
    rng = np.random.default_rng((seed, _WEIGHTS))
    dense: Mapping[str, nn.Module] = dict(layers)
    with torch.no_grad():
        for name, part, parameter in parameters(layers):
            shape = dense[name].get_parameter("weight").shape
            few = part == "bias" or math.prod(shape[1:]) < FEW_TAPS
            values = sparse(rng, tuple(parameter.shape), IMAGE_DENSITY if few else FILTER_DENSITY)
            parameter.copy_(torch.from_numpy(values))


def sparse(rng: np.random.Generator, shape: tuple[int, ...], density: float) -> np.ndarray:
    """-1 and 1 with a probability of density/2 each, else 0; at least one is not 0.

    >>> sorted(set(sparse(np.random.default_rng(0), (100,), 0.5).tolist()))
    [-1.0, 0.0, 1.0]
    """
    values = rng.choice([-1.0, 0.0, 1.0], size=shape, p=[density / 2, 1 - density, density / 2])
    if not values.any():
        values.flat[rng.integers(values.size)] = 1.0
    return values


def _power_of_two(x: float) -> bool:
    return x > 0 and math.frexp(x)[0] == 0.5
