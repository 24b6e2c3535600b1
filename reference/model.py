# SPDX-License-Identifier: MIT
"""The default network, and how any other one is brought in."""

from __future__ import annotations

import copy
import importlib
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from reference.errors import InputError, one_line, own_line
from reference.inputs import Inputs, of_example
from reference.network.layers import Layers, run, to_type
from reference.network.outputs import Which
from reference.network.proof import Shape, sizes, volumes
from reference.network.reading import read

#: Numbers of an input, of which outputs take seconds to compute, or more memory than there is
MANY = 1 << 24


class ThreeLayerCNN(nn.Module):
    """Denoiser of micrographs: three 3x3 convolutions with ReLU between them, 1 -> 16 -> 16 -> 1 channels.

    Takes and returns shape (n, 1, h, w); zero padding keeps the size. Weights are torch's default.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(16, 16, 3, padding=1)
        self.relu2 = nn.ReLU()
        self.conv3 = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu1(self.conv1(x))
        x = self.relu2(self.conv2(x))
        return self.conv3(x)


class VariedCNN(nn.Module):
    """Every option of a convolution that :class:`ThreeLayerCNN` does not use, and no two sizes alike.

    Takes shape (n, 3, h, w), returns (n, 2, h/2, w/2) for even h and w. Made for exact probes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(3, 6, (3, 5), stride=(2, 1), padding=(1, 2))
        self.relu1 = nn.ReLU()
        self.grouped = nn.Conv2d(6, 9, (2, 3), stride=(1, 2), padding=(1, 1), dilation=(2, 1), groups=3, bias=False)
        self.relu2 = nn.ReLU()
        self.tall = nn.Conv2d(9, 2, (5, 1), padding=(2, 0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu1(self.wide(x))
        x = self.relu2(self.grouped(x))
        return self.tall(x)


def build_layers(
    model: str | Callable[[], Any] | None, seed: int, dtype: torch.dtype, size: tuple[int, int],
    sample: tuple[int, ...] | None = None, batch: int = 2, integers: int = 0,
    output: Which | None = None, inputs: Inputs | None = None,
) -> Layers:
    """Make the module and read it.

    Parameters
    ----------
    model : "package.module:factory", callable, or None for :class:`ThreeLayerCNN`
    seed : int >= 0
        Set for torch while the factory runs; torch's own state is put back afterwards.
    dtype : torch.float32 or torch.float64
        Of the weights: drawn in it, so that those of a float64 fixture use all their digits.
    size : (height, width) in pixels
        Of the images that the module will see.
    sample : of one of the inputs, where they are no images of the first convolution's channels, or of another shape
    batch : number of images
    integers : one more than the largest of the inputs, where these are integers
    output : which one, where the module gives several
    inputs : where it takes several

    Returns
    -------
    layers : as `reference.network.trace` finds them, on the CPU

    Raises
    ------
    InputError
        If the factory cannot be found or fails, or if the module is none that can be read, does not fit the images or
        has no parameters.
    """
    module = _call_factory(_find_factory(model), seed, dtype)
    if inputs is not None:
        of_example(module.forward, {name: (batch, *one) for name, one in zip(inputs.names, inputs.shapes, strict=True)})
    example = (batch, *(sample or (channels_of(module), *size)))
    layers = read(module, lambda found: _small_shapes(found, size, sample), example, foreign=True,
                  integers=integers, output=output, inputs=inputs)
    if not any(True for _, layer in layers for _ in layer.parameters()):
        raise InputError("the model has no parameters, expected one or more: the steps of a fixture train them")
    return layers


def first_channels(layers: Layers) -> int:
    """Return the channels of the images that the layers take: of the first convolution; 1 where there is none."""
    return next((layer.in_channels for _, layer in layers if isinstance(layer, nn.Conv2d)), 1)


def channels_of(module: nn.Module) -> int:
    """Return the channels of the images that a module takes, as far as its layers say it."""
    first = next((one for one in module.modules() if isinstance(one, (nn.Conv2d, nn.ConvTranspose2d))), None)
    return 1 if first is None else first.in_channels


def _small_shapes(layers: Layers, size: tuple[int, int], sample: tuple[int, ...] | None) -> list[Shape]:
    """Two numbers of small images, of two sizes if the layers take two; what is no image has its own shape."""
    if sample is not None and len(sample) not in (3, 4):
        return [(2, *sample), (3, *sample)]
    channels = first_channels(layers) if sample is None else sample[0]

    def fits(*sides: int) -> bool:
        try:
            output_shapes(layers, (2, channels, *sides))
        except InputError:
            return False
        return True

    if sample is not None and len(sample) == 4:
        of_volumes = volumes(fits, (sample[1], sample[2], sample[3]))
        return [(2, channels, *of_volumes[0]), (3, channels, *of_volumes[-1])]
    found = sizes(fits, size if sample is None else (sample[1], sample[2]))
    return [(2, channels, *found[0]), (3, channels, *found[-1])]


def model_file(model: str | Callable[[], Any] | None) -> Path | None:
    """Return the Python file of a model; None where it has none.

    Raises
    ------
    InputError
        If the factory cannot be found.
    """
    module = sys.modules.get(getattr(_find_factory(model), "__module__", ""))
    file = getattr(module, "__file__", None)
    return None if file is None else Path(file)


def output_shapes(layers: Layers, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every layer's output for an input.

    They are computed, for input of many numbers on torch's meta device, which takes two seconds of imports.

    Raises
    ------
    InputError
        If the layers do not fit such images.
    """
    dtype = next((one.dtype for _, layer in layers for one in layer.parameters()), torch.float32)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            device = "meta" if math.prod(shape) > MANY else "cpu"
            outputs = run(layers.changed(lambda _, layer: copy.deepcopy(layer).to(device)),
                          torch.zeros(shape, dtype=dtype, device=device))
            return {name: tuple(found.shape) for name, found in outputs}
    except Exception as error:  # whatever torch raises
        what = f"images of {shape[2]}x{shape[3]} pixels" if len(shape) == 4 else f"an input of shape {shape}"
        raise InputError(f"the model fails on {what}: {one_line(error)}") from error


def _find_factory(model: str | Callable[[], Any] | None) -> Callable[[], Any]:
    if model is None:
        return ThreeLayerCNN
    if callable(model):
        return model
    path, colon, name = model.partition(":")
    if not (path and colon and name):
        raise InputError(f"model '{model}': expected package.module:factory")
    try:
        found = importlib.import_module(path)
    except Exception as error:  # a foreign file may raise anything while it is imported
        raise InputError(f"model '{model}': cannot import {path}: {one_line(error)}{own_line(error)}") from error
    factory = getattr(found, name, None)
    if not callable(factory):
        raise InputError(f"model '{model}': {path} has no function or class '{name}'")
    return factory


def _call_factory(factory: Callable[[], Any], seed: int, dtype: torch.dtype) -> nn.Module:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = factory()
    except Exception as error:  # foreign code
        raise InputError(f"the model's factory fails: {one_line(error)}{own_line(error)}") from error
    finally:
        torch.set_default_dtype(before)
    if not isinstance(module, nn.Module):
        raise InputError(f"the model's factory returns {type(module).__name__}, expected torch.nn.Module")
    return to_type(module.cpu(), dtype)
