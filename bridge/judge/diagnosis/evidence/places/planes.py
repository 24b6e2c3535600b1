# SPDX-License-Identifier: MIT
"""Bias gradients that sum a part of each plane: few numbers, joined over the layers and steps that are wrong alike."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.evidence.places.frames import WIDTH
from bridge.judge.diagnosis.evidence.view import Array, Seen
from bridge.judge.diagnosis.evidence.words import counting, indices
from bridge.judge.diagnosis.predictions.elementwise import BiasGradient
from bridge.judge.diagnosis.predictions.step_graph import StepGraph

#: Pixels of a plane and steps that are looked at, at most; numbers that must agree, at least, and how many parts may
#: agree with all of them by chance
PIXELS, STEPS, ENOUGH, CHANCE = 2**12, 4, 4, 1e-3


def planes(case: Case) -> Seen | None:
    """Return the part of each plane that counts more or less than once, where all wrong numbers say the same."""
    right = case.right
    if not isinstance(right, BiasGradient) or right.dz.value.ndim != 4:
        return None
    height, width = right.dz.value.shape[2:]
    if not 1 < height * width <= PIXELS or case.updating is not None:
        return None
    known = list(_wrong(case, (height, width)))
    own = [one for one in known if one[0] == case.name]
    for chosen in (known, own):
        said = _agreed(chosen, height, width)
        if said:
            return Seen(f"it is the sum in which {said}",
                        "the count of pixels of a plane, the bounds of the loops over rows and columns", 0.0, 1)
    return None


def _wrong(case: Case, plane: tuple[int, int]) -> Iterator[tuple[str, Array, Array, Array]]:
    """Names, planes summed over images (K, pixel), wrong numbers and bounds of bias gradients of such planes."""
    pair = case.graph.pair
    for step in range(min(pair.steps, case.graph.step + STEPS)):
        graph = case.graph if step == case.graph.step else StepGraph(pair, step, pair.start)
        for name in pair.shapes:
            this = graph is case.graph and name == case.name
            dz = f"{name.removesuffix('bias')}output"
            if not name.startswith("grads/") or not name.endswith("/bias") or not (this or graph.given(dz)):
                continue
            right = case.right if this else graph.operation(name)
            found = case.found if this else graph.own(name)
            if not isinstance(right, BiasGradient) or right.dz.value.shape[2:] != plane or found is None:
                continue
            truth = right.full(graph.arithmetic)
            error = np.zeros(1) if truth.error is None else truth.error
            if (np.abs(found - truth.value) > error).any():
                summed = right.dz.value.sum(0)
                yield name, summed.reshape(len(summed), -1), found, np.broadcast_to(error, found.shape)


def _agreed(known: list[tuple[str, Array, Array, Array]], height: int, width: int) -> str:
    """The one part by which all numbers are what was found."""
    if sum(one[2].size for one in known) < ENOUGH:
        return ""
    dz, found, error = (np.concatenate([one[i] for one in known]) for i in (1, 2, 3))
    said, parts = [], []
    for words, part in _parts(dz, height, width):
        for times, more in ((counting(0, many=True), -1), (counting(2, many=True), 1)):
            said += [f"{one} {times}" for one in words]
            parts.append(dz.sum(1)[:, None] + more * part)
    near = np.abs(np.concatenate(parts, 1) - found[:, None]) <= 2 * error[:, None]
    agreeing = np.flatnonzero(near.all(0))
    # As if the numbers agreed with each part independently
    chance = float(np.exp(np.log(np.maximum(near.mean(1), 1e-300)).sum())) * len(said)
    return said[agreeing[0]] if agreeing.size == 1 and chance <= CHANCE else ""


def _parts(dz: Array, height: int, width: int) -> Iterator[tuple[list[str], Array]]:
    """Parts of planes in words, and their sums (K, part)."""
    pixels = height * width
    # Whole rows are said as such
    ends = np.array([n for n in range(1, pixels) if n % width], dtype=int)
    upto = np.cumsum(dz, 1)[:, ends - 1]
    squares = {n * n: f" ({n}*{n})" for n in (width, height)}
    yield ([f"the pixels of each plane after the first {n} of {pixels} in memory{squares.get(n, '')}" for n in ends],
           dz.sum(1)[:, None] - upto)
    yield [f"the first {n} of the {pixels} pixels of each plane in memory" for n in ends], upto
    for axis, word, size in ((2, "row", height), (1, "column", width)):
        lines = dz.reshape(-1, height, width).sum(axis)
        sums = np.concatenate([np.zeros((len(dz), 1)), np.cumsum(lines, 1)], 1)
        spans = [(a, b) for a in range(size) for b in range(a + 1, size + 1) if b - a < size]
        if spans:
            first, last = np.array(spans).T
            yield ([f"{indices(np.arange(a, b), size, word)} of each plane" for a, b in spans],
                   sums[:, last] - sums[:, first])
    yield from _frames(dz.reshape(-1, height, width))


def _frames(dz: Array) -> Iterator[tuple[list[str], Array]]:
    """Outer rows together with outer columns."""
    height, width = dz.shape[1:]
    for top, bottom, left, right in itertools.product(range(WIDTH + 1), repeat=4):
        if top + bottom and left + right and top + bottom < height and left + right < width:
            rows, columns = (
                indices(np.concatenate([np.arange(first), np.arange(size - last, size)]), size, word)
                for first, last, size, word in ((top, bottom, height, "row"), (left, right, width, "column")))
            inner = dz[:, top : height - bottom, left : width - right]
            yield [f"{rows} and {columns} of each plane"], (dz.sum((1, 2)) - inner.sum((1, 2)))[:, None]
