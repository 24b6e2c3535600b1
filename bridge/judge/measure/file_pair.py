# SPDX-License-Identifier: MIT
"""A fixture and a result side by side: what both must agree on, and the tensors that they share."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import astuple, replace
from typing import Any

import numpy as np

from bridge.common.errors import ArgumentError, FileError
from bridge.exchange.file import ExchangeFile
from bridge.exchange.model import Model, Shape
from bridge.exchange.optimizers import Optimizer, Sgd
from bridge.judge.oracle.algorithm import Algorithm
from bridge.judge.oracle.algorithms import families
from bridge.judge.oracle.error_model import OPERAND_ROUNDOFF, UNIT_ROUNDOFF, Arithmetic, total_roundoff
from bridge.judge.oracle.update import Remembered
from bridge.operations.aten.operation import Aten

Array = np.ndarray
Parameters = dict[str, Array]
StrPath = str | os.PathLike[str]
#: Most that a tensor has
DIMENSIONS = 8


class FilePair:
    """Two open files that belong together.

    Parameters
    ----------
    reference, candidate : open files
    lower : a precision lower than the declared one that the candidate is judged by
    algorithm : of convolutions that the candidate is judged by, where they are no sums of products
    flushes : the candidate flushes subnormal numbers to zero; also where its file declares it (``subnormals``)

    Attributes
    ----------
    model, optimizer : the fixture's
    lower, algorithm, flushes : as given, or declared
    precision, u, arithmetic : in which the candidate computes, its unit roundoff, and all of it; in an exact probe
        nothing is rounded
    steps : number of batches in the fixture
    batch_shape : (n, ...) of every batch's input, of images (n, c, h, w)
    shapes : shape of every tensor of a step by name, in data-flow order
    start : first weights, in the candidate's precision
    first_state : what the network keeps besides, before the first step, float64 (``norm1/running_mean``)
    frozen : names of the parameters that no step may change
    remembered : what the optimiser remembers of parameters before step 0, where the fixture is of a later step of a
        training

    Raises
    ------
    FileError
        If the fixture is not complete and finite, or the two do not belong together.
    """

    def __init__(
        self,
        reference: ExchangeFile,
        candidate: ExchangeFile,
        lower: str | None = None,
        algorithm: Algorithm | None = None,
        *,
        flushes: bool = False,
    ) -> None:
        self.reference, self.candidate, self.lower, self.algorithm = reference, candidate, lower, algorithm
        self.model, self.optimizer = _agreed(reference, candidate)
        self.precision = lower if lower in UNIT_ROUNDOFF else candidate.precision
        operand = OPERAND_ROUNDOFF.get(lower or "", 0.0) if algorithm is None else algorithm.operand
        exact = is_probe(reference)
        u, self.flushes = total_roundoff(self.precision), flushes or self._declares_flushing()
        self.arithmetic = Arithmetic(0.0) if exact else Arithmetic(u, operand, algorithm, self.flushes)
        self.u = self.arithmetic.u
        self.steps = reference.batches()
        if self.steps == 0:
            raise FileError(f"{reference.path}: batches/0/input is missing, a fixture has it")
        shape = reference.shape("batches/0/input")
        if not 2 <= len(shape) <= DIMENSIONS or 0 in shape:
            raise FileError(f"{reference.path}: batches/0/input has the shape {shape}, expected (n, ...) of 2 to "
                            f"{DIMENSIONS} dimensions")
        self.batch_shape: Shape = shape
        try:
            self.shapes = tensor_shapes(self.model, self.batch_shape)
        except FileError as error:
            raise FileError(f"{reference.path}: batches/0/input of shape {shape}: {error}") from None
        self._check_batches()
        start = self.parameters(reference, 0)
        if start is None:
            shapes = self.model.parameter_shapes()
            name = next(name for name in shapes if not reference.has(f"steps/0/weights/{name}"))
            expected = f"expected a dataset of shape {shapes[name]} (weights before the first step)"
            raise FileError(f"{reference.path}: steps/0/weights/{name} is missing, {expected}")
        self.start = {name: w.astype(self.dtype) for name, w in start.items()}
        #: learning rates of the steps, as far as they are known
        self._rates: list[float] = []
        self.first_state = {name: self._first_state(name, shape)
                            for name, shape in self.model.graph.state_shapes().items()}
        self.frozen = frozenset(name for name in start if reference.is_frozen(name))
        known = ((name, self.memory(reference, 0, name)) for name in start)
        self.remembered = {name: one for name, one in known if one is not None}

    def reduced_to(self, precision: str) -> FilePair:
        """Return the same files, judged by a lower precision than the declared one."""
        return FilePair(self.reference, self.candidate, precision, flushes=self.flushes)

    def computed_by(self, algorithm: Algorithm) -> FilePair:
        """Return the same files, judged by the bounds of an algorithm."""
        return FilePair(self.reference, self.candidate, algorithm=algorithm, flushes=self.flushes)

    def flushing(self) -> FilePair:
        """Return the same files, judged as arithmetic that flushes subnormal numbers to zero."""
        return FilePair(self.reference, self.candidate, self.lower, self.algorithm, flushes=True)

    def judged_with(self, **changes: Any) -> FilePair:
        """Return the same files, judged by another arithmetic: `changes` are attributes of `Arithmetic`."""
        other = copy(self)
        other.arithmetic = replace(self.arithmetic, **changes)
        other.u = other.arithmetic.u
        return other

    def _declares_flushing(self) -> bool:
        declared = self.candidate.attributes.get("subnormals", "kept")
        if declared not in ("kept", "flushed"):
            raise FileError(f"{self.candidate.path}: subnormals: '{declared}' found, expected kept or flushed")
        return bool(declared == "flushed")

    def declared_families(self) -> frozenset[str]:
        """Return the families of algorithms that the result's attribute ``conv_algorithm`` declares.

        Raises
        ------
        FileError
            If it names something else.
        """
        declared = self.candidate.attributes.get("conv_algorithm", "")
        try:
            return families(str(declared), "conv_algorithm")
        except ArgumentError as error:
            raise FileError(f"{self.candidate.path}: {error}") from None

    def optimizer_at(self, step: int) -> Optimizer:
        """Return the settings of a step: a schedule gives it a learning rate of its own."""
        found = self.reference.optimizer_at(step)
        assert found is not None
        return found

    def rate_error_at(self, step: int) -> float:
        """Return by how much of itself a right program's learning rate may be off: it computes its schedule, too.

        A factor of each step, itself rounded, is two roundings a step (``lr = lr*gamma``); a cosine has roundings of
        the size of the largest rate.
        """
        for k in range(len(self._rates), step + 1):
            self._rates.append(self.optimizer_at(k).lr)
        rates = self._rates[:step + 1]
        if rates[-1] == 0 or len({*rates, self.optimizer.lr}) == 1:
            return 0.0
        return self.arithmetic.u * (2 * step + 4 + 8 * max(*rates, self.optimizer.lr) / rates[-1])

    def optimizer_of(self, parameter: str, step: int) -> Optimizer:
        """Return the settings that a parameter is updated with: by those of a frozen one it stays as it is."""
        return Sgd(0.0) if parameter in self.frozen else self.optimizer_at(step)

    @property
    def dtype(self) -> np.dtype:
        """Return the element type in which the candidate computes, whatever it stores."""
        return np.dtype(self.precision)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Return the shape of the network's output."""
        return self.shapes[f"forward/{self.model.layers[-1].name}"]

    @property
    def loss_scale(self) -> float:
        """Return the factor of the sum of squares."""
        return 1.0 / math.prod(self.output_shape) if self.model.mean else 1.0

    def parameters(self, file: ExchangeFile, k: int) -> Parameters | None:
        """Return all parameters before step k, those frozen that a result lacks from the fixture; None: one lacks."""
        missing = {name for name in self.model.parameter_shapes() if not file.has(f"steps/{k}/weights/{name}")}
        if missing and (file is self.reference or not all(map(self.reference.is_frozen, missing))):
            return None
        found = {name: self.start[name] if name in missing else file.read(f"steps/{k}/weights/{name}", shape)
                 for name, shape in self.model.parameter_shapes().items()}
        if file is self.reference:
            for name, values in found.items():
                self._finite(f"steps/{k}/weights/{name}", values)
        return found

    def memory(self, file: ExchangeFile, k: int, parameter: str) -> Remembered | None:
        """Return what the optimiser remembers of a parameter before step k; None where it is not, or not all, in the
        file. The fixture's must be whole and finite.
        """
        shape = self.model.parameter_shapes()[parameter]
        paths = {kind: file.memory_path(k, parameter, kind) for kind in self.optimizer.memory}
        if missing := [path for path in paths.values() if not file.has(path)]:
            if file is self.reference and len(missing) < len(paths):
                raise FileError(f"{file.path}: {missing[0]} is missing, expected beside the rest that is remembered")
            return None
        tensors = {kind: file.read(path, shape).astype(self.dtype) for kind, path in paths.items()}
        if file is self.reference:
            for kind, values in tensors.items():
                self._finite(paths[kind], values)
        updates = file.updates(k, parameter)
        return Remembered({kind: values.astype(np.float64) for kind, values in tensors.items()}, updates or 1)

    def applied(self, k: int, parameter: str) -> str:
        """Return where the gradient is that the candidate's optimiser was given in step k: under ``applied`` where that
        is not the gradient of the step, but one that was clipped, or the mean of several batches.
        """
        path = f"steps/{k}/applied/{parameter}"
        return path if self.candidate.has(path) else f"steps/{k}/grads/{parameter}"

    def state(self, k: int) -> Parameters:
        """Return what the network keeps besides its parameters, before step k: by the candidate's own forward passes.

        What they change and the candidate's file lacks is missing.
        """
        found = {}
        for name, values in self.first_state.items():
            if k and f"state/{name}" in self.shapes:
                path = f"steps/{k - 1}/state/{name}"
                if not self.candidate.has(path):
                    continue
                values = self.candidate.read(path, values.shape).astype(np.float64)
                if not np.isfinite(values).all():
                    continue
            found[name] = values
        return found

    def masks(self, k: int) -> Parameters:
        """Return the masks of step k (``dropout1/mask``): the candidate's own where its file has them, else the
        fixture's.

        Raises
        ------
        FileError
            If one holds anything but 0 and 1.
        """
        found = {}
        for node in self.model.graph.nodes:
            if not node.has_mask:
                continue
            path = f"steps/{k}/masks/{node.name}"
            file = self.candidate if self.candidate.has(path) else self.reference
            mask = file.read(path, node.mask_shape(self.shapes[f"forward/{node.name}"])).astype(np.float64)
            if len(wrong := mask[(mask != 0) & (mask != 1)]):
                raise FileError(f"{file.path}: {path} holds {wrong[0]:g}, expected 0 and 1 alone")
            found[f"{node.name}/mask"] = mask
        return found

    def has_own_masks(self, k: int) -> bool:
        """Return whether the candidate has drawn masks of its own for step k, by which the fixture's tensors are not.
        """
        return any(self.candidate.has(f"steps/{k}/masks/{name}") for name in self.model.graph.masked())

    def _first_state(self, name: str, shape: Shape) -> Array:
        """As the candidate's precision holds it, in float64."""
        values = self.reference.read(f"state/{name}", shape)
        # A mask of attention may be infinite
        if not any(isinstance(one, Aten) for one in self.model.graph.nodes if one.name == name.rpartition("/")[0]):
            self._finite(f"state/{name}", values)
        return values.astype(self.dtype).astype(np.float64)

    def batch(self, k: int, name: str, image: int | None = None) -> Array:
        """Return an input or target, or one image of it, as the candidate's precision holds it, in float64."""
        shape = self.batch_shape if name == "input" else self.output_shape
        values = self.reference.read(f"batches/{k}/{name}", shape, image)
        self._finite(f"batches/{k}/{name}", values)
        return values.astype(self.dtype).astype(np.float64)

    def _check_batches(self) -> None:
        """Before minutes of work: every batch is there, has its shape, and holds data."""
        for k in range(self.steps):
            self.reference.tensor(f"batches/{k}/input", self.batch_shape)
            self.reference.tensor(f"batches/{k}/target", self.output_shape)

    def _finite(self, name: str, values: Array) -> None:
        if not np.isfinite(values).all():
            raise FileError(f"{self.reference.path}: {name} holds NaN or infinity, expected finite values")


@contextmanager
def open_pair(fixture: StrPath, result: StrPath) -> Iterator[FilePair]:
    """Open a fixture and a result, once for everything that is done with them.

    Parameters
    ----------
    fixture : exchange file of the reference
    result : exchange file of the candidate, complete or partial

    Raises
    ------
    FileError
        If a file is unreadable, the two are one file, or they do not belong together.
    """
    if os.path.exists(fixture) and os.path.exists(result) and os.path.samefile(fixture, result):
        raise FileError(f"{os.fspath(result)}: the result is the fixture itself, there is nothing to compare")
    with ExchangeFile(fixture) as reference, ExchangeFile(result) as candidate:
        yield FilePair(reference, candidate)


@contextmanager
def other_result(pair: FilePair, result: StrPath) -> Iterator[FilePair]:
    """Open a second result of the same fixture.

    Raises
    ------
    FileError
        As of `open_pair`.
    """
    with ExchangeFile(result) as candidate:
        yield FilePair(pair.reference, candidate)


def is_probe(reference: ExchangeFile) -> bool:
    """Return whether the fixture is an exact probe (``python -m reference.export --probe``)."""
    return reference.attributes.get("probe") == 1


def refuse_copy(pair: FilePair) -> None:
    """Refuse a copy of the fixture that calls itself a candidate: nothing was computed.

    Its producer is the fixture's, and so is every number; one that differs is enough. (A program may copy the fixture
    and write its own tensors into the copy.)

    Raises
    ------
    FileError
    """
    one, other = pair.reference, pair.candidate
    if one.attributes.get("producer") is None or one.attributes["producer"] != other.attributes.get("producer"):
        return
    for k in range(pair.steps):
        for name, shape in pair.shapes.items():
            path = f"steps/{k}/{name}"
            if not (one.has(path) and other.has(path)):
                continue
            for part in range(shape[0]) if shape else [None]:
                if not np.array_equal(one.read(path, shape, part), other.read(path, shape, part)):
                    return
    raise FileError(
        f"{other.path}: it was written by {one.attributes['producer']!r}, and every number is the fixture's: a copy of "
        f"{one.path}, which says nothing about a candidate"
    )


def tensor_shapes(model: Model, batch_shape: Shape) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor of a step by its name under /steps/<k>, in data-flow order."""
    layers = list(zip(model.layers, model.output_shapes(batch_shape), strict=True))
    parameters = model.parameter_shapes()
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, shape in layers:
        shapes[f"forward/{layer.name}"] = shape
        shapes |= {f"state/{layer.name}/{name}": kept for name, kept in layer.new_state_shapes().items()}
    shapes["loss"] = ()
    for layer, shape in reversed(layers):
        shapes[f"grads/{layer.name}/output"] = shape
        for kind in layer.parameter_shapes():
            shapes[f"grads/{layer.name}/{kind}"] = parameters[f"{layer.name}/{kind}"]
    shapes["grads/input"] = batch_shape
    return shapes


def _agreed(reference: ExchangeFile, candidate: ExchangeFile) -> tuple[Model, Optimizer]:
    if reference.attributes.get("role") == "candidate":
        raise FileError(
            f"{reference.path}: its role is 'candidate', expected a fixture (role 'reference'); "
            "the fixture comes first, then the result"
        )
    if candidate.attributes.get("role") == "reference":
        raise FileError(
            f"{candidate.path}: its role is 'reference', expected a result (role 'candidate'): "
            "a fixture compared with a fixture says nothing about a candidate"
        )
    if reference.model is None or reference.optimizer is None:
        missing = "model" if reference.model is None else "optimizer"
        raise FileError(f"{reference.path}: /{missing} is missing, a fixture has it")
    if candidate.model not in (None, reference.model):
        raise FileError(f"{candidate.path}: its /model is not that of {reference.path}")
    if candidate.optimizer is not None and not _same_settings(reference.optimizer, candidate.optimizer):
        raise FileError(
            f"{candidate.path}: its /optimizer ({candidate.optimizer}) is not that of {reference.path} "
            f"({reference.optimizer})"
        )
    return reference.model, reference.optimizer


def _same_settings(one: Optimizer, other: Optimizer) -> bool:
    """Equal up to the float32 that a program may have kept its settings in."""
    pairs = zip(astuple(one), astuple(other), strict=True) if type(one) is type(other) else [(0.0, 1.0)]
    return all(abs(a - b) <= 2.0**-23 * abs(a) for a, b in pairs)
