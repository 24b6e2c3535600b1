# SPDX-License-Identifier: MIT
"""The fixtures of the self-test: some are exported, others are made of those with other images or another loss.

The loss is scaled as mixed-precision training scales it: every gradient is 2^k times as large, and the learning rate
2^-k times, so that the weights take the same path. What is scaled is the distance to the target,
``t' = y - s*(y - t)``: a fixture knows no other factor, and the forward pass stays what it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from bridge.engine.library.programs import export_fixture
from bridge.exchange.file import ExchangeFile
from bridge.exchange.optimizers import Sgd
from bridge.validate.self_test.candidate import Run, first_weights, train
from bridge.validate.self_test.graph_candidate import train_graph
from bridge.validate.self_test.operations import Operations

Array = np.ndarray
Tensor = torch.Tensor

#: Settings of networks that are no chains: `bridge.validate.self_test.models` has them by these names, or says which
#: network of splines the losses are of
GRAPH = "graph"
SKIPPED, RESIDUAL, CLASSIFIER, KAN, SPLINE = "skipped", "residual", "classifier", "kan", "spline"
ABSOLUTE, SMOOTH = "absolute", "smooth"
GRAPHS = (GRAPH, SKIPPED, RESIDUAL, CLASSIFIER, KAN, SPLINE, ABSOLUTE, SMOOTH)
_MODELS = "bridge.validate.self_test.models"
#: Options of the exports that all others are made of
EXPORTS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "strided": ("--model", f"{_MODELS}:strided"),
    "wide": ("--model", f"{_MODELS}:wide"),
    "pointwise": ("--model", f"{_MODELS}:pointwise", "--steps", "1"),
    GRAPH: ("--model", f"{_MODELS}:Branched", "--optimizer", "adam", "--lr", "0.0078125", "--betas", "0.9", "0.99",
            "--eps", "1e-4"),
    SKIPPED: ("--model", f"{_MODELS}:Skipped"),
    RESIDUAL: ("--model", f"{_MODELS}:Residual", "--loss", "huber delta=0.5", "--momentum", "0.9", "--weight-decay",
               "0.01", "--schedule", "StepLR(step_size=1, gamma=0.5)"),
    CLASSIFIER: ("--model", f"{_MODELS}:Classifier", "--loss", "cross_entropy weight=1,2,0.5,1.5,3 class_indices=1 "
                 "ignore_index=2 label_smoothing=0.1", "--optimizer", "adamw", "--lr", "0.0078125", "--betas", "0.9",
                 "0.99", "--eps", "1e-4", "--weight-decay", "0.1"),
    KAN: ("--model", f"{_MODELS}:kan", "--loss", "bce"),
    SPLINE: ("--model", f"{_MODELS}:spline", "--loss", "bce_with_logits pos_weight=2.5", "--reduction", "sum", "--lr",
             "0.0009765625"),
    ABSOLUTE: ("--model", f"{_MODELS}:spline", "--loss", "l1"),
    SMOOTH: ("--model", f"{_MODELS}:spline", "--loss", "smooth_l1 beta=0.5"),
}
#: Settings that a plant may ask for: which export they are made of, and what of its optimiser is changed
SETTINGS: dict[str, tuple[str, dict[str, float]]] = {
    "plain": ("plain", {}),
    "momentum": ("plain", {"lr": 0.125, "momentum": 0.9, "dampening": 0.25, "weight_decay": 0.01}),
    "nesterov": ("plain", {"lr": 0.1, "momentum": 0.9, "nesterov": 1}),
    "strided": ("strided", {}),
    "wide": ("wide", {}),
    "bright": ("pointwise", {}),
    "brighter": ("pointwise", {}),
    **{name: (name, {}) for name in GRAPHS},
}
#: Settings that have images of their own: all pixels are 3 above the target, and those of the first row so far above
#: that a sequential float32 sum has no digits left for the rest; of squares, and of gradients
BRIGHT = {"bright": 768.0, "brighter": 2.0**18}
OFFSET = 3.0


@dataclass(frozen=True)
class FixtureData:
    """Images and loss of a fixture.

    Attributes
    ----------
    size : of the images, HxW
    batch : images
    scale : of the loss
    smooth : low-pass images in place of noisy micrographs
    bright : how far the first row of the output is above the target; see `BRIGHT`
    """

    size: str
    batch: int
    scale: float = 1.0
    smooth: bool = False
    bright: float = 0.0

    def __str__(self) -> str:
        """
        >>> str(FixtureData("20x24", 3, scale=2.0**-12))
        '20x24x3, noise, loss times 2^-12'
        """
        said = f"{self.size}x{self.batch}, {'smooth' if self.smooth else 'noise'}"
        return said if self.scale == 1 else f"{said}, loss times 2^{round(np.log2(self.scale))}"


class Fixtures:
    """Fixtures by data and setting, each made when it is first asked for.

    Parameters
    ----------
    folder : for the files
    export : writes a fixture from options of ``reference.export``
    """

    def __init__(self, folder: Path, export: Callable[..., object] = export_fixture) -> None:
        self.folder, self._export = folder, export

    def get(self, data: FixtureData, setting: str) -> Path:
        """Return the path of a fixture."""
        data, (base, sgd) = _of(data, setting), SETTINGS[setting]
        if data == FixtureData(data.size, data.batch) and not sgd:
            return self.exported(data, base)
        path = self._path(f"{setting}-{data}")
        if not path.exists():
            derive(self.exported(data, base), path.with_suffix(".part"), data, sgd)
            path.with_suffix(".part").replace(path)
        return path

    def exported(self, data: FixtureData, base: str) -> Path:
        """Return the path of an export."""
        path = self._path(f"{base}-{FixtureData(data.size, data.batch)}")
        if not path.exists():
            size = "--size", data.size, "--batch", str(data.batch), "--threads", "1", "--oracle-steps", "1"
            self._export(path, *size, *EXPORTS[base])
        return path

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.h5".replace(" ", "").replace(",", "-")

    def right(self, data: FixtureData, setting: str) -> Path:
        """Return the path of a right result, torch's."""
        fixture = self.get(data, setting)
        path = fixture.with_name(f"right-{fixture.name}")
        if not path.exists():
            (train_graph if setting in GRAPHS else train)(fixture, path.with_suffix(".part"))
            path.with_suffix(".part").replace(path)
        return path


def export_of(data: FixtureData, setting: str) -> tuple[FixtureData, str]:
    """Return images and name of the export that a fixture is made of.

    >>> export_of(FixtureData("20x24", 3, scale=2.0), "momentum")
    (FixtureData(size='20x24', batch=3, scale=1.0, smooth=False, bright=0.0), 'plain')
    """
    given = _of(data, setting)
    return FixtureData(given.size, given.batch), SETTINGS[setting][0]


def _of(data: FixtureData, setting: str) -> FixtureData:
    """Some settings have images of their own."""
    return FixtureData("256x256", 2, bright=BRIGHT[setting]) if setting in BRIGHT else data


def derive(base: Path, path: Path, data: FixtureData, changed: dict[str, Any]) -> None:
    """The same model and weights with other images, a scaled loss, another optimiser; PyTorch's steps of that."""
    with ExchangeFile(base) as source, h5py.File(base) as old, h5py.File(path, "w") as file:
        assert source.model is not None and isinstance(source.optimizer, Sgd)
        file.attrs.update(old.attrs)
        old.copy("model", file)
        old.copy("optimizer", file)
        sgd = replace(source.optimizer, **changed)
        sgd = replace(sgd, lr=sgd.lr / data.scale, weight_decay=sgd.weight_decay * data.scale)
        file["optimizer"].attrs.update({name: value for name, value in vars(sgd).items() if name != "nesterov"})
        file["optimizer"].attrs["nesterov"] = int(sgd.nesterov)
        run = Run(Operations(source.model, sgd), file, first_weights(source, "float32"))
        for k in range(source.batches()):
            run.write_weights(k)
            batch = _batch(source, k, data, run)
            for name, tensor in zip(("input", "target"), batch, strict=True):
                file[f"batches/{k}/{name}"] = tensor.numpy()
            if k == 0:
                _twin(run, *batch)
            run.step(f"steps/{k}", *batch)
        run.write_weights(source.batches())


def _batch(source: ExchangeFile, k: int, data: FixtureData, run: Run) -> tuple[Tensor, Tensor]:
    names = f"batches/{k}/input", f"batches/{k}/target"
    x, target = (source.read(name, source.shape(name)).astype(np.float32) for name in names)
    if data.smooth:
        rng = np.random.default_rng((17, k))
        x, target = (low_pass(rng, array.shape) for array in (x, target))
    given, wanted = torch.from_numpy(x), torch.from_numpy(target)
    y = run.output(given)
    if data.bright:
        wanted = y - OFFSET + 0.1 * wanted
        wanted[0, :, 0] -= data.bright
    if data.scale != 1:
        wanted = (y.double() - data.scale * (y.double() - wanted.double())).float()
    return given, wanted


def low_pass(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return images of few slow waves on a slope, deviation 1: neighbours are nearly equal, and nothing is symmetric.
    """
    n, c, height, width = shape
    i, j = np.arange(height)[:, None] / height, np.arange(width)[None, :] / width
    images = np.empty(shape)
    for at in np.ndindex(n, c):
        frequency, phase, size = rng.uniform(0.3, 1.7, (2, 3)), rng.uniform(0, 2 * np.pi, 3), rng.uniform(0.5, 1.0, 3)
        waves = [
            a * np.sin(2 * np.pi * (f * i + g * j) + p) for a, f, g, p in zip(size, *frequency, phase, strict=True)
        ]
        image = sum(waves) + rng.uniform(0.3, 0.9) * i - rng.uniform(0.3, 0.9) * j
        images[at] = (image - image.mean()) / image.std()
    return images.astype(np.float32)


def _twin(run: Run, x: Tensor, target: Tensor) -> None:
    """The float64 tensors of step 0."""
    weights = {name: w.double() for name, w in run.weights.items()}
    Run(Operations(run.operations.model, run.operations.sgd), run.file, weights).step(
        "oracle/steps/0", x.double(), target.double()
    )
