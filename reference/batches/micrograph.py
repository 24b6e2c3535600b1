# SPDX-License-Identifier: MIT
"""Where the batches come from: synthetic micrographs, or patches of a real one."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from reference.batches.images import load_image as load_image
from reference.batches.images import shown_name
from reference.errors import InputError
from reference.settings import ExportSettings
from reference.synthetic import gaussian_blur, synthetic_micrograph

TARGET_BLUR_PIXELS = 2.0
# Keeps the patches' random places apart from the seeds of synthetic images, which have more parts.
_PLACES = 1


class Source(Protocol):
    """Makes batch after batch; the same batch again for the same number."""

    #: Where the images come from, and what the targets are: root attributes of the fixture
    data: str
    target: str

    def batch(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Input and target of step k: float64, both of shape (n, c, h, w)."""
        ...


class SyntheticSource:
    """Noisy micrographs, and the same without noise as targets; one of its own for every channel.

    Parameters
    ----------
    settings : ExportSettings
        Uses batch, height, width and seed.
    channels : int >= 1
        Input channels c of the model.
    """

    def __init__(self, settings: ExportSettings, channels: int) -> None:
        self._settings = settings
        self._channels = channels
        self.data = f"synthetic micrograph, seed {settings.seed}"
        self.target = "clean image of the synthetic micrograph"

    def batch(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        s = self._settings
        shape = (s.batch, self._channels, s.height, s.width)
        noisy, clean = np.empty(shape), np.empty(shape)

        def make(place: tuple[int, ...]) -> None:
            rng = np.random.default_rng((s.seed, k, *place))
            noisy[place], clean[place] = synthetic_micrograph(rng, s.height, s.width)

        # Each image has its own random numbers, so their order does not matter
        with ThreadPoolExecutor(s.threads or os.cpu_count()) as pool:
            list(pool.map(make, np.ndindex(shape[:2])))
        return noisy, clean


class PatchSource:
    """Patches of one image at random places, each with mean 0 and deviation 1; blurred ones as targets.

    The patches do not overlap while there is room; then they do, but no two are the same.

    Parameters
    ----------
    settings : ExportSettings
        Uses batch, steps, height, width and seed.
    path : path
        Of the image, as :func:`reference.batches.images.load_image` takes it.

    Raises
    ------
    InputError
        If the image cannot be read, or is too small.
    """

    def __init__(self, settings: ExportSettings, path: str | Path) -> None:
        self._settings = settings
        self._name = shown_name(path)
        self._image = load_image(path)
        self.data = self._name
        self.target = f"gaussian blur of the input, sigma {TARGET_BLUR_PIXELS:g} px"
        found, wanted = self._image.shape, (settings.height, settings.width)
        if found[0] < wanted[0] or found[1] < wanted[1]:
            raise InputError(
                f"image {self._name}: {found[0]}x{found[1]} pixels found, at least {wanted[0]}x{wanted[1]} "
                "needed (--size makes the patches smaller)"
            )
        count = settings.batch * settings.steps
        rng = np.random.default_rng((settings.seed, _PLACES))
        self._places = patch_places(rng, found, wanted, count)
        if len(self._places) < count:
            raise InputError(
                f"image {self._name}: {count} different patches of {wanted[0]}x{wanted[1]} needed (batch "
                f"times steps), it has {len(self._places)} (--size makes the patches smaller)"
            )

    def batch(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        n = self._settings.batch
        patches = np.stack([self._patch(*place) for place in self._places[k * n : (k + 1) * n]])
        blurred = np.stack([gaussian_blur(patch, TARGET_BLUR_PIXELS) for patch in patches])
        return patches[:, None], blurred[:, None]

    def _patch(self, top: int, left: int) -> np.ndarray:
        height, width = self._settings.height, self._settings.width
        patch = self._image[top : top + height, left : left + width].astype(np.float64)
        mean, deviation = patch.mean(), patch.std()
        if not np.isfinite(deviation) or deviation <= 1e-12 * np.abs(patch).max():
            raise InputError(
                f"image {self._name}: the {height}x{width} patch at row {top}, column {left} is constant "
                "(another --seed or --size cuts elsewhere)"
            )
        return (patch - mean) / deviation


def patch_places(
    rng: np.random.Generator, image: tuple[int, int], patch: tuple[int, int], count: int
) -> list[tuple[int, int]]:
    """Return the top left corners (row, column) of `count` different patches; fewer where the image has no more."""
    rows, columns = (whole // part for whole, part in zip(image, patch, strict=True))
    spare = image[0] - rows * patch[0], image[1] - columns * patch[1]
    top, left = rng.integers(0, spare[0] + 1), rng.integers(0, spare[1] + 1)
    cells = rng.permutation(rows * columns)[:count]
    places = [
        (int(top + patch[0] * (cell // columns)), int(left + patch[1] * (cell % columns))) for cell in cells
    ]
    if len(places) < count:
        taken = set(places)
        across = image[1] - patch[1] + 1
        everywhere = (image[0] - patch[0] + 1) * across
        for place in rng.choice(everywhere, size=min(everywhere, count + len(taken)), replace=False):
            corner = int(place // across), int(place % across)
            if corner not in taken:
                places.append(corner)
    return places[:count]


def make_source(settings: ExportSettings, channels: int) -> Source:
    """Return the source that the settings ask for, for a model with `channels` input channels."""
    if settings.image is None:
        return SyntheticSource(settings, channels)
    if channels != 1:
        raise InputError(
            f"the model takes {channels} channels and a micrograph has one: leave out --image, synthetic "
            "images have as many as needed"
        )
    return PatchSource(settings, settings.image)


def fit_target(target: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the target of shape (n, c, h, w) made to fit an output of shape (n, k, p, q).

    Averaged over pixels where the size differs; channel j is the target's channel j mod c. An output (n, k) is one of a
    single pixel.
    """
    if len(shape) == 2:
        return fit_target(target, (*shape, 1, 1)).reshape(shape)
    if target.shape[2:] != shape[2:]:
        target = torch.nn.functional.adaptive_avg_pool2d(target, (shape[2], shape[3]))
    channels = torch.arange(shape[1]) % target.shape[1]
    return target if shape[1] == target.shape[1] else target[:, channels]


def target_text(source: Source, given: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """Return what the target is, for a source of shape `given` and an output of `shape`, both (n, c, h, w).

    Raises
    ------
    InputError
        If the output is neither images nor vectors, or of another number of them.
    """
    if len(shape) not in (2, 4) or shape[0] != given[0]:
        raise InputError(f"the model's output has the shape {shape}, expected ({given[0]}, k, p, q) or ({given[0]}, k)")
    text, shape = source.target, (*shape, 1, 1) if len(shape) == 2 else shape
    if given[2:] != shape[2:]:
        text += f", averaged to {shape[2]}x{shape[3]} pixels"
    if given[1] != shape[1]:
        text += f", channel j is channel j mod {given[1]} of {given[1]}"
    return text
