# SPDX-License-Identifier: MIT
"""Do the candidate's own tensors agree with each other? The adjoint identity of every convolution and linear layer.

A transposed convolution is one whose output and input have changed places, a linear layer one of a single tap.

A convolution ``z = conv(x, w) + b`` is linear in x and in w, so for right tensors

    <dz, z - b> = <w, dw> = <x, dx>          (the adjoint identity)

up to rounding, whatever the weights are. No oracle is asked, and no reference: if two of the three agree, the third
names the wrong operation. One projection of each tensor is seen, not the tensor: an error at right angles to it stays
unseen, and where the kernels are symmetric under a flip, so does a flipped gradient. Where others take x, too, dx is
what is left of its gradient without what they send back, computed from the candidate's own tensors.

Rounding. All three have the same sum of absolute values C. Each is a sum of the tensor's rounding errors, weighted;
with independent errors of mean 0 (the model of `bridge.judge.oracle.step`) it stays below 9 u sqrt(n) times the
Euclidean norm of the weighted sums of absolute values: T <= 1. A bug is certain beyond s(n) C, and beyond what bfloat16
operands would do; between, nobody can tell.

Source: the definition of an adjoint; N. J. Higham and T. Mary, SIAM J. Sci. Comput. 41 (2019) A2815.
"""

from __future__ import annotations

import os

import numpy as np

from bridge.common.errors import FileError
from bridge.common.number_format import short
from bridge.common.progress import Report
from bridge.exchange.file import ExchangeFile
from bridge.exchange.model import Conv2d
from bridge.identities.adjoint import DATA, FILTER, FORWARD, LAMBDA, Adjoint, Projection
from bridge.identities.other_readers import OtherReaders
from bridge.judge.measure.file_pair import FilePair, Parameters
from bridge.judge.measure.outcome import Outcome, worst
from bridge.judge.oracle import convolution
from bridge.judge.oracle.choices import JOINING
from bridge.judge.oracle.error_model import rounding_factor
from bridge.operations.graph import INPUT
from bridge.operations.products import ConvTranspose2d, Linear

Array = np.ndarray

#: Layers that are linear in their input and in their weights
Layer = Conv2d | ConvTranspose2d | Linear
#: Relative error of one of our own float64 sums: numpy adds pairwise
OWN_SUM = 32 * 2.0**-53


def adjoint_identities(
    fixture: str | os.PathLike[str], result: str | os.PathLike[str], progress: Report | None = None
) -> list[Adjoint]:
    """Return the identity of every such layer in every step for which the files hold enough.

    Parameters
    ----------
    fixture : gives the batches and the first weights
    result : the candidate's file
    progress : called as ``progress(done, total)`` after every layer

    Raises
    ------
    FileError
        If a file is unreadable, the two do not belong together, or there is no layer to check.
    """
    with ExchangeFile(fixture) as reference, ExchangeFile(result) as candidate, np.errstate(all="ignore"):
        pair = FilePair(reference, candidate)
        work = [(k, layer) for k in range(pair.steps) for layer in pair.model.graph.nodes if isinstance(layer, Layer)]
        found = []
        for done, (k, layer) in enumerate(work):
            weights = pair.start if k == 0 else pair.parameters(candidate, k)
            one = None if weights is None else _Layer(pair, k, layer, weights).identity()
            found += [one] if one else []
            if progress:
                progress(done + 1, len(work))
    if not found:
        raise FileError(
            f"{os.fspath(result)}: the adjoint identity needs a layer's dz (grads/<layer>/output), its input and two "
            "of its output, weight gradient and input gradient: no convolution or linear layer has them"
        )
    return found


class _Layer:
    """One layer of one step: its tensors, image by image."""

    def __init__(self, pair: FilePair, step: int, layer: Layer, weights: Parameters) -> None:
        self.pair, self.layer, self.step = pair, layer, step
        self.turned = isinstance(layer, ConvTranspose2d)
        self.conv = _convolution(layer)
        self.w = weights[f"{layer.name}/weight"].astype(np.float64).reshape(self.conv.weight_shape)
        self.b = weights[f"{layer.name}/bias"].astype(np.float64)[:, None, None] if layer.bias else np.zeros((1, 1, 1))
        (before,) = layer.inputs
        self.first = before == INPUT
        self.input = INPUT if self.first else f"forward/{before}"
        self.input_gradient = "grads/input" if self.first else f"grads/{before}/output"
        #: What others take, too, has a gradient that is not of this layer alone
        self.others = OtherReaders(pair, step, layer, weights)

    def identity(self) -> Adjoint | None:
        """None where the file holds too little."""
        name = self.layer.name
        wanted = {FORWARD: f"forward/{name}", FILTER: f"grads/{name}/weight", DATA: self.input_gradient}
        sent = self.others.sent() if self.others.names and self._has(self.input_gradient) else None
        sides = {side: Projection() for side, tensor in wanted.items()
                 if self._has(tensor) and (side != DATA or sent is not None or not self.others.names)}
        if len(sides) < 2 or not self._has(f"grads/{name}/output") or not (self.first or self._has(self.input)):
            return None
        absolute, scale = np.zeros_like(self.w), 0.0
        for image in range(self.pair.batch_shape[0]):
            x, dz = self._input(image), self._read(f"grads/{name}/output", image)
            c = self._absolute_products(x, dz)
            absolute, scale = absolute + c, scale + _sum(np.abs(self.w) * c)
            if FORWARD in sides:
                z = self._read(wanted[FORWARD], image)
                c, n = (self._back if self.turned else self._through)(x, (z.shape[1], z.shape[2]))
                sides[FORWARD].add(self._projection(dz, z - self.b, c + np.abs(self.b), n + self.layer.bias))
            if DATA in sides:
                dx = self._read(self.input_gradient, image)
                c, n = (self._through if self.turned else self._back)(dz, (x.shape[1], x.shape[2]))
                size: Array | float = 0.0
                spare: Array | float = 0.0
                if sent is not None:
                    value, size, error = (self._image(one[image]) for one in (sent.value, sent.absolute, sent.error))
                    dx, spare = dx - value, error + JOINING * self.pair.u * (size + c)
                sides[DATA].add(self._projection(x, dx, c, n, size, spare))
        if FILTER in sides:
            sides[FILTER] = self._filter(absolute, *((dz, x) if self.turned else (x, dz)))
        return Adjoint(name, self.step, sides, scale, self.others.names)

    def _through(self, x: Array, size: tuple[int, int]) -> tuple[Array, Array]:
        """Sums of absolute products of the convolution of an image, and how many products each has."""
        c = convolution.forward(np.abs(x), [np.abs(self.w)], self.conv)[0]
        return c, convolution.products_forward(self.conv, x.shape[1:], size)

    def _back(self, dz: Array, size: tuple[int, int]) -> tuple[Array, Array]:
        """The same of its data gradient."""
        c = convolution.backward_data(np.abs(dz), np.abs(self.w), self.conv, size)
        return c, convolution.products_data(self.conv, size, dz.shape[1:])

    def _absolute_products(self, x: Array, dz: Array) -> Array:
        """The same of its filter gradient."""
        x, dz = (np.abs(one) for one in ((dz, x) if self.turned else (x, dz)))
        return convolution.backward_filter(x, [dz], self.conv)[0]

    def _filter(self, c: Array, x: Array, dz: Array) -> Projection:
        path, shape = f"steps/{self.step}/grads/{self.layer.name}/weight", self.layer.parameter_shapes()["weight"]
        dw = self.pair.candidate.read(path, shape).astype(np.float64).reshape(self.w.shape)
        n = convolution.products_filter(self.conv, x.shape[1:], dz.shape[1:]) * self.pair.batch_shape[0]
        return self._projection(self.w, dw, c, n)

    def _projection(self, a: Array, b: Array, c: Array, n: Array, size: Array | float = 0.0,
                    spare: Array | float = 0.0) -> Projection:
        """<a, b>, where b was rounded: n roundings for each element, sum of absolute values c. What was taken off
        it, of this size, may be off by `spare`.
        """
        u, products = self.pair.u, a * b
        # Products that are subnormal are rounded to whole multiples of the smallest number
        own = OWN_SUM * _sum(np.abs(products)) + self.pair.arithmetic.lost(1) * _sum(n * np.abs(a))
        own = own + _sum(np.abs(a) * spare)
        weighted = np.abs(a) * c
        return Projection(
            _sum(products),
            u**2 * _sum(n * np.square(weighted)) + (own / LAMBDA) ** 2,
            _sum(rounding_factor(n, u) * weighted) + own,
            _sum(np.square(weighted + np.abs(a) * size)),
        )

    def _has(self, name: str) -> bool:
        return self.pair.candidate.has(f"steps/{self.step}/{name}")

    def _read(self, name: str, image: int) -> Array:
        path = f"steps/{self.step}/{name}"
        return self._image(self.pair.candidate.read(path, self.pair.shapes[name], image).astype(np.float64))

    def _input(self, image: int) -> Array:
        if not self.first:
            return self._read(self.input, image)
        return self._image(self.pair.batch(self.step, "input", image).astype(np.float64))

    def _image(self, one: Array) -> Array:
        """Features, the last axis of what a linear layer takes, as channels of pixels."""
        return one.reshape(-1, one.shape[-1]).T[..., None] if isinstance(self.layer, Linear) else one


def _convolution(layer: Layer) -> Conv2d:
    """The convolution that a layer is; of a transposed one from its output to its input."""
    if isinstance(layer, Linear):
        return Conv2d(layer.name, layer.in_features, layer.out_features, (1, 1), bias=False)
    return layer.convolution if isinstance(layer, ConvTranspose2d) else layer


def _sum(values: Array) -> float:
    return float(np.sum(np.ascontiguousarray(values)))


def conclusion(found: list[Adjoint]) -> str:
    """Return the conclusion in one line."""
    outcome = worst(one.outcome for one in found)
    if outcome is Outcome.ROUNDING:
        largest = max(one.largest for one in found)
        return f"CONSISTENT: the adjoint identity holds in all {len(found)} layers; largest T = {short(largest)}."
    first = next(one for one in found if one.outcome is outcome)
    word = "BUG" if outcome is Outcome.BUG else "CANNOT TELL"
    lower = "" if outcome is Outcome.BUG else " A lower precision than declared can do this, too."
    return f"{word}: the adjoint identity fails in step {first.step}; implicated is {first.implicated}.{lower}"
