# SPDX-License-Identifier: MIT
"""The exhibits of `benchmarks.gallery`: two published mistakes, planted in right programs, and one that is of no kind.

The first is a training step whose weight gradients were said to differ from PyTorch's by rounding. Our right float32
step is given its three faults, and then asked what its author asked:

A. the memory of the filter gradients, written by the library as (k,c,r,s) in C's order, is read through a column-major
   array (k,c,r,s);
B. the library convolves in place of correlating. The weights are flipped when they are handed over, and again when they
   come back, so that only the filter gradients show it;
C. the loss is the sum of all squares, one after the other in float32, on both sides.

The second is its next mistake: ``real :: beta = 0.0`` in a declaration is an implicit SAVE, so that from the second
call on gradients are added to the old ones. The third is nobody's: a filter gradient lacks a tile of the images, which
no hypothesis predicts. docs/gallery.md tells all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from bridge.engine.library import extension
from bridge.exchange.model import Conv2d
from bridge.judge.diagnosis import diagnose
from bridge.judge.diagnosis.background import adequacy_of
from bridge.judge.judge import judge, judge_pair
from bridge.judge.measure.file_pair import open_pair
from bridge.judge.measure.findings import Comparison
from bridge.judge.verdict import Verdict, named
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.fixed_tolerances import all_close, close, same_direction
from bridge.validate.self_test.operations import Operations
from reference.export import export
from reference.settings import ExportSettings

Array = np.ndarray

LAYERS = ("conv1", "conv2", "conv3")
#: Its learning rate
LR = 1e-3
#: Bytes of a fixture and a result of one step, for each pixel of the batch
BYTES_PER_PIXEL = 1100
#: Seconds for the search, so that a busy machine finds the same
PATIENCE = 600.0
#: How far they were found to agree, and it was taken for proof
AGREED = {"loss": 1e-6, "bias gradients": 1e-5, "weights after the step": 3e-4}


@dataclass(frozen=True)
class Evidence:
    """What was looked at, and took the mistake for rounding.

    Attributes
    ----------
    what : was compared
    found, agreed : the difference here, and the one that was called agreement
    truth : why it says nothing
    """

    what: str
    found: float
    agreed: float
    truth: str

    @property
    def content(self) -> bool:
        """Its author would have been; false for NaN."""
        return self.found <= self.agreed


@dataclass(frozen=True)
class Gradient:
    """A wrong weight gradient beside PyTorch's, and what fixed tolerances say.

    Attributes
    ----------
    name : of the layer
    difference : largest
    relative : Euclidean norm of the difference over that of the gradient
    t : largest difference / E
    rules : by name of the rule, does it pass?
    """

    name: str
    difference: float
    relative: float
    t: float
    rules: dict[str, bool]


@dataclass
class Exhibit:
    """A wrong program, what was said of it, and what is said of it here."""

    title: str
    comparison: Comparison
    verdict: Verdict
    repaired: Verdict | None
    evidence: list[Evidence] = field(default_factory=list)
    gradients: list[Gradient] = field(default_factory=list)

    @property
    def named(self) -> dict[str, list[int]]:
        """Numbers of the faults by tensor: first explanations."""
        found = self.verdict.diagnosis.findings if self.verdict.diagnosis else []
        return {one.name: [kind.number for kind in one.explanations[0].kinds] for one in found if one.explanations}

    def to_dict(self) -> dict[str, Any]:
        """For the JSON document."""
        return {
            "title": self.title,
            "evidence": [vars(one) | {"content": one.content} for one in self.evidence],
            "gradients": [vars(one) for one in self.gradients],
            "verdict": self.verdict.outcome.label,
            "words": self.verdict.words,
            "named": self.named,
            "repaired": self.repaired and self.repaired.words,
        }


def misread(g: Array) -> Array:
    """Faults A and B: a filter gradient (k, c, r, s) of flipped kernels, its memory read column-major.

    >>> misread(np.arange(8.0).reshape(2, 1, 2, 2))[:, 0].tolist()
    [[[3.0, 7.0], [1.0, 5.0]], [[2.0, 6.0], [0.0, 4.0]]]
    """
    return g[:, :, ::-1, ::-1].ravel().reshape(g.shape, order="F")


def sequential_mean(d: Array) -> np.float32:
    """Fault C: squares added up one by one in float32.

    >>> float(sequential_mean(np.full(3, 2.0, np.float32)))
    4.0
    """
    return np.add.accumulate(np.square(d, dtype=np.float32).ravel())[-1] / np.float32(d.size)


def spoil(fixture: Path, result: Path) -> None:
    """Put the three faults into a right result of one step, in place; the weights follow from the wrong gradients."""
    with h5py.File(fixture) as reference, h5py.File(result, "r+") as file:
        for name in LAYERS:
            gradient = file[f"steps/0/grads/{name}/weight"]
            gradient[...] = misread(gradient[()])
            _take_the_step(reference, file, name)
        file["steps/0/loss"][...] = sequential_mean(_errors(file, reference))


def _take_the_step(reference: h5py.File, file: h5py.File, name: str) -> None:
    """The new weights of a layer follow from its gradient."""
    before = reference[f"steps/0/weights/{name}/weight"][()]
    file[f"steps/1/weights/{name}/weight"][...] = before - np.float32(LR) * file[f"steps/0/grads/{name}/weight"][()]


def lose_a_tile(fixture: Path, result: Path) -> None:
    """Leave a tile, a quarter of the height and width, out of conv2's filter gradient in a right result of one step."""
    with h5py.File(fixture) as reference, h5py.File(result, "r+") as file:
        dz, x = file["steps/0/grads/conv2/output"], file["steps/0/forward/relu1"]
        (i, rows), (j, columns) = ((n // 2, n // 4) for n in dz.shape[2:])
        tile = dz[:, :, i : i + rows, j : j + columns].astype(np.float64)
        seen = x[:, :, i - 1 : i + rows + 1, j - 1 : j + columns + 1].astype(np.float64)
        lost = np.zeros(file["steps/0/grads/conv2/weight"].shape)
        for r, s in np.ndindex(*lost.shape[2:]):
            lost[:, :, r, s] = np.einsum("nkij,ncij->kc", tile, seen[:, :, r : r + rows, s : s + columns])
        file["steps/0/grads/conv2/weight"][...] = (file["steps/0/grads/conv2/weight"][()] - lost).astype(np.float32)
        _take_the_step(reference, file, "conv2")


def _errors(file: h5py.File, reference: h5py.File) -> Array:
    return file["steps/0/forward/conv3"][()] - reference["batches/0/target"][()]


class Saved(Operations):
    """``real :: beta = 0.0`` of the one routine that calls the library: 0 in its first call, 1 in all others."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.beta = 0.0
        self.memory: dict[str, torch.Tensor] = {}

    def filter_gradient(self, layer: Conv2d, dz: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """``dw = alpha*dw + beta*dw_old``; the buffers were zeroed once, when they were allocated."""
        old = self.memory.get(layer.name, torch.zeros_like(w))
        self.memory[layer.name] = super().filter_gradient(layer, dz, x, w) + self.beta * old
        self.beta = 1.0
        return self.memory[layer.name]


def published(folder: Path, size: int = 1024, *, whole: bool = True) -> Exhibit:
    """The first exhibit; without `whole` the repaired program is not judged, nor what the data can show."""
    fixture, result = folder / "published.h5", folder / "result.h5"
    export(fixture, ExportSettings(height=size, width=size, steps=1, lr=LR, oracle_steps=0))
    extension.run_file(fixture, result)
    repaired = judge(fixture, result, diagnosing=False)[1] if whole else None
    spoil(fixture, result)
    with open_pair(fixture, result) as pair:
        comparison, verdict = judge_pair(pair, diagnosing=False)
        verdict = named(verdict, comparison, diagnose(pair, comparison, PATIENCE))
        if whole:
            verdict = replace(verdict, adequacy=adequacy_of(pair))
    with h5py.File(fixture) as reference, h5py.File(result) as candidate:
        evidence = [_loss(candidate, reference), _biases(candidate, reference), _weights(candidate, reference)]
        gradients = [_gradient(name, comparison, candidate, reference) for name in LAYERS]
    title = f"Exhibit 1: the rounding that was not, 2 x {size} x {size}"
    return Exhibit(title, comparison, verdict, repaired, evidence, gradients)


def unknown(folder: Path, size: int = 1024, *, seconds: float = PATIENCE) -> Exhibit:
    """The third exhibit, on the fixture of the first, which is made where it is not there; `seconds` for the search."""
    fixture, result = folder / "published.h5", folder / "result.h5"
    if not fixture.exists():
        export(fixture, ExportSettings(height=size, width=size, steps=1, lr=LR, oracle_steps=0))
    extension.run_file(fixture, result)
    lose_a_tile(fixture, result)
    with open_pair(fixture, result) as pair:
        comparison, verdict = judge_pair(pair, diagnosing=False)
        verdict = named(verdict, comparison, diagnose(pair, comparison, seconds))
    with h5py.File(fixture) as reference, h5py.File(result) as candidate:
        gradients = [_gradient("conv2", comparison, candidate, reference)]
    return Exhibit(f"Exhibit 3: of no known kind, 2 x {size} x {size}", comparison, verdict, None, [], gradients)


def saved(folder: Path, size: tuple[int, int] = (40, 48)) -> Exhibit:
    """The second exhibit; its evidence is the one-step test."""
    fixture, result, one = folder / "saved.h5", folder / "saved-result.h5", folder / "one-step.h5"
    settings = {"height": size[0], "width": size[1], "batch": 3}
    export(one, ExportSettings(**settings, steps=1))
    first, says = judge(one, train(one, result, Saved))
    worst = max(judged.t for judged in first.computed)
    truth = f"the first call is right, and one step makes one call for each layer: {says.words.partition(':')[0]}"
    export(fixture, ExportSettings(**settings))
    repaired = judge(fixture, train(fixture, result))[1]
    comparison, verdict = judge(fixture, train(fixture, result, Saved))
    evidence = [Evidence("one step, largest T of all tensors", worst, 1.0, truth)]
    return Exhibit("Exhibit 2: right in the first step", comparison, verdict, repaired, evidence)


def _loss(candidate: h5py.File, reference: h5py.File) -> Evidence:
    """Both sides add up naively."""
    theirs = _errors(reference, reference)
    right = float(np.square(theirs, dtype=np.float64).mean())
    ours, others = float(candidate["steps/0/loss"][()].ravel()[0]), float(sequential_mean(theirs))
    truth = f"both sums make the same error, {abs(ours / right - 1):.2%} and {abs(others / right - 1):.2%}"
    return Evidence("loss, relative", abs(ours / others - 1), AGREED["loss"], truth)


def _biases(candidate: h5py.File, reference: h5py.File) -> Evidence:
    found = max(_difference(candidate, reference, f"steps/0/grads/{name}/bias") for name in LAYERS)
    truth = "right, and a sum over all pixels: it would be the same for flipped or transposed images"
    return Evidence("bias gradients", found, AGREED["bias gradients"], truth)


def _weights(candidate: h5py.File, reference: h5py.File) -> Evidence:
    """The step is as small as what was called agreement."""
    names = [f"{name}/weight" for name in LAYERS]
    found = max(_difference(candidate, reference, f"steps/1/weights/{name}") for name in names)
    step = max(float(np.abs(_of(reference, 1, name) - _of(reference, 0, name)).max()) for name in names)
    truth = f"no step at all would differ by {step:.1e}"
    return Evidence(f"weights after the step, lr = {LR:g}", found, AGREED["weights after the step"], truth)


def _of(file: h5py.File, step: int, name: str) -> Array:
    return file[f"steps/{step}/weights/{name}"][()].astype(np.float64)


def _difference(candidate: h5py.File, reference: h5py.File, name: str) -> float:
    return float(np.abs(candidate[name][()].astype(np.float64) - reference[name][()]).max())


#: What fixed tolerances would have said of one tensor
RULES: dict[str, Callable[[Array, Array], bool]] = {
    "assert_close": close, "allclose 1e-3, 1e-5": all_close, "cosine > 0.99": same_direction}


def _gradient(name: str, comparison: Comparison, candidate: h5py.File, reference: h5py.File) -> Gradient:
    tensor = f"grads/{name}/weight"
    found, expected = (file[f"steps/0/{tensor}"][()] for file in (candidate, reference))
    relative = float(np.linalg.norm(found.astype(np.float64) - expected) / np.linalg.norm(expected))
    t = next(judged.t for judged in comparison.judged if judged.name == tensor)
    rules = {rule: passes(found, expected) for rule, passes in RULES.items()}
    return Gradient(name, _difference(candidate, reference, f"steps/0/{tensor}"), relative, t, rules)
