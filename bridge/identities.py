# SPDX-License-Identifier: MIT
"""``python -m bridge.identities FIXTURE RESULT``: do the candidate's own tensors agree with each other?

A convolution ``z = conv(x, w) + b`` is linear in x and in w, so for right tensors

    <dz, z - b> = <w, dw> = <x, dx>          (the adjoint identity)

up to rounding, whatever the weights are. No oracle is asked, and no reference: if two of the three agree, the third
names the wrong operation. One projection of each tensor is seen, not the tensor: an error at right angles to it stays
unseen, and where the kernels are symmetric under a flip, so does a flipped gradient.

Rounding. All three have the same sum of absolute values C. Each is a sum of the tensor's rounding errors, weighted;
with independent errors of mean 0 (the model of `bridge.bounds`) it stays below 9 u sqrt(n) times the Euclidean norm of
the weighted sums of absolute values: T <= 1. A bug is certain beyond s(n) C, and beyond what bfloat16 operands would
do; between, nobody can tell.

Source: the definition of an adjoint; N. J. Higham and T. Mary, SIAM J. Sci. Comput. 41 (2019) A2815.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table

from bridge import oracle
from bridge.adjoint import DATA, FILTER, FORWARD, LAMBDA, MADE_BY, Adjoint, Projection
from bridge.arithmetic import rounding_factor
from bridge.command import Output, new_parser, run
from bridge.errors import FileError
from bridge.exchange import ExchangeFile
from bridge.model import Conv2d
from bridge.outcome import Outcome, worst
from bridge.outputs import add_file_arguments, check_outputs, finish_series
from bridge.pair import Pair, Parameters
from bridge.progress import Report, stage
from bridge.report.json_report import number
from bridge.report.junit import Answer
from bridge.report.series import Series
from bridge.wording import short

Array = np.ndarray

#: Relative error of one of our own float64 sums: numpy adds pairwise
OWN_SUM = 32 * 2.0**-53


def adjoint_identities(
    fixture: str | os.PathLike[str], result: str | os.PathLike[str], progress: Report | None = None
) -> list[Adjoint]:
    """The identity of every convolution in every step for which the files hold enough.

    Parameters
    ----------
    fixture : gives the batches and the first weights
    result : the candidate's file
    progress : called as ``progress(done, total)`` after every convolution

    Raises
    ------
    FileError
        If a file is unreadable, the two do not belong together, or there is no convolution to check.
    """
    with ExchangeFile(fixture) as reference, ExchangeFile(result) as candidate, np.errstate(all="ignore"):
        pair = Pair(reference, candidate)
        work = [(k, layer) for k in range(pair.steps) for layer in pair.model.convolutions]
        found = []
        for done, (k, layer) in enumerate(work):
            weights = pair.start if k == 0 else pair.parameters(candidate, k)
            one = None if weights is None else _Layer(pair, k, layer, weights).identity()
            found += [one] if one else []
            if progress:
                progress(done + 1, len(work))
    if not found:
        raise FileError(
            f"{os.fspath(result)}: the adjoint identity needs a convolution's dz (grads/<layer>/output), its input and "
            "two of its output, weight gradient and input gradient: no layer has them"
        )
    return found


class _Layer:
    """One convolution of one step: its tensors, image by image."""

    def __init__(self, pair: Pair, step: int, layer: Conv2d, weights: Parameters) -> None:
        self.pair, self.layer, self.step = pair, layer, step
        self.w = weights[f"{layer.name}/weight"].astype(np.float64)
        self.b = weights[f"{layer.name}/bias"].astype(np.float64)[:, None, None] if layer.bias else np.zeros((1, 1, 1))
        names = [one.name for one in pair.model.layers]
        before = names.index(layer.name) - 1
        self.first = before < 0
        self.input = "input" if self.first else f"forward/{names[before]}"
        self.input_gradient = "grads/input" if self.first else f"grads/{names[before]}/output"

    def identity(self) -> Adjoint | None:
        """None where the file holds too little."""
        name = self.layer.name
        wanted = {FORWARD: f"forward/{name}", FILTER: f"grads/{name}/weight", DATA: self.input_gradient}
        sides = {side: Projection() for side, tensor in wanted.items() if self._has(tensor)}
        if len(sides) < 2 or not self._has(f"grads/{name}/output") or not (self.first or self._has(self.input)):
            return None
        absolute, scale = np.zeros_like(self.w), 0.0
        for image in range(self.pair.batch_shape[0]):
            x, dz = self._input(image), self._read(f"grads/{name}/output", image)
            c = oracle.backward_filter(np.abs(x), [np.abs(dz)], self.layer)[0]
            absolute, scale = absolute + c, scale + _sum(np.abs(self.w) * c)
            if FORWARD in sides:
                sides[FORWARD].add(self._forward(image, x, dz))
            if DATA in sides:
                sides[DATA].add(self._data(image, x, dz))
        if FILTER in sides:
            sides[FILTER] = self._filter(absolute, x.shape[1:], dz.shape[1:])
        return Adjoint(name, self.step, sides, scale)

    def _forward(self, image: int, x: Array, dz: Array) -> Projection:
        z = self._read(f"forward/{self.layer.name}", image)
        c = oracle.forward(np.abs(x), [np.abs(self.w)], self.layer)[0] + np.abs(self.b)
        n = oracle.products_forward(self.layer, x.shape[1:], z.shape[1:]) + self.layer.bias
        return self._projection(dz, z - self.b, c, n)

    def _data(self, image: int, x: Array, dz: Array) -> Projection:
        dx = self._read(self.input_gradient, image)
        size = (x.shape[1], x.shape[2])
        c = oracle.backward_data(np.abs(dz), np.abs(self.w), self.layer, size)
        return self._projection(x, dx, c, oracle.products_data(self.layer, size, dz.shape[1:]))

    def _filter(self, c: Array, size_in: tuple[int, ...], size_out: tuple[int, ...]) -> Projection:
        path = f"steps/{self.step}/grads/{self.layer.name}/weight"
        dw = self.pair.candidate.read(path, self.w.shape).astype(np.float64)
        n = oracle.products_filter(self.layer, size_in, size_out) * self.pair.batch_shape[0]
        return self._projection(self.w, dw, c, n)

    def _projection(self, a: Array, b: Array, c: Array, n: Array) -> Projection:
        """<a, b>, where b was rounded: n roundings for each element, sum of absolute values c."""
        u, products = self.pair.u, a * b
        own = OWN_SUM * _sum(np.abs(products))
        weighted = np.abs(a) * c
        return Projection(
            _sum(products),
            u**2 * _sum(n * np.square(weighted)) + (own / LAMBDA) ** 2,
            _sum(rounding_factor(n, u) * weighted) + own,
            _sum(np.square(weighted)),
        )

    def _has(self, name: str) -> bool:
        return self.pair.candidate.has(f"steps/{self.step}/{name}")

    def _read(self, name: str, image: int) -> Array:
        path = f"steps/{self.step}/{name}"
        return self.pair.candidate.read(path, self.pair.shapes[name], image).astype(np.float64)

    def _input(self, image: int) -> Array:
        return self.pair.batch(self.step, "input", image) if self.first else self._read(self.input, image)


def _sum(values: Array) -> float:
    return float(np.sum(np.ascontiguousarray(values)))


HEADINGS = ("layer", "step", FORWARD, FILTER, DATA, "gap / C", "T", "wrong")


def cells(one: Adjoint) -> list[str]:
    """A row of the table: a convolution of a step."""
    shown = [f"{one.sides[name].value:.7g}" if name in one.sides else "" for name in MADE_BY]
    return [one.layer, str(one.step), *shown, f"{one.gap:.1e}", short(one.largest), one.implicated]


def table(found: list[Adjoint]) -> Table:
    """One row for each convolution and step."""
    rows = Table(box=None, header_style="bold", pad_edge=False)
    for heading in HEADINGS:
        rows.add_column(heading, justify="left" if heading in ("layer", "wrong") else "right", overflow="fold")
    for one in found:
        rows.add_row(*cells(one), style="" if one.outcome is Outcome.ROUNDING else "red")
    return rows


def series(found: list[Adjoint]) -> Series:
    """For the reports."""
    answers = [Answer(f"{one.layer}, step {one.step}", one.outcome,
                      f"T = {short(one.largest)}{f': {one.implicated}' if one.implicated else ''}") for one in found]
    zone = worst(one.outcome for one in found)
    return Series("identities", "<dz, z - b> = <w, dw> = <x, dx>, for every convolution", zone, conclusion(found),
                  answers, HEADINGS, [cells(one) for one in found])


def to_dict(one: Adjoint) -> dict[str, Any]:
    """For JSON; infinite and undefined numbers are null."""
    return {"layer": one.layer, "step": one.step, "verdict": one.outcome.label, "T": number(one.largest),
            "gap": number(one.gap), "implicated": one.implicated,
            "products": {name: number(side.value) for name, side in one.sides.items()}}


def conclusion(found: list[Adjoint]) -> str:
    """One line."""
    zone = worst(one.outcome for one in found)
    if zone is Outcome.ROUNDING:
        largest = max(one.largest for one in found)
        return f"CONSISTENT: the adjoint identity holds in all {len(found)} convolutions; largest T = {short(largest)}."
    first = next(one for one in found if one.outcome is zone)
    word = "BUG" if zone is Outcome.BUG else "CANNOT TELL"
    lower = "" if zone is Outcome.BUG else " A lower precision than declared can do this, too."
    return f"{word}: the adjoint identity fails in step {first.step}; implicated is {first.implicated}.{lower}"


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    p = new_parser(
        "bridge.identities",
        description="Check a candidate's tensors against each other, without an oracle: for every convolution\n"
                    "<dz, z - b> = <w, dw> = <x, dx> up to rounding. If two agree, the third is wrong.",
        epilog="exit codes:\n  0  consistent\n  1  a bug\n  2  bad input or usage\n  4  cannot tell\n\n"
               "One projection of each tensor is seen: consistent is weaker than right (python -m bridge.compare).")
    p.add_argument("fixture", metavar="FIXTURE", help="exchange file with the batches and first weights")
    p.add_argument("result", metavar="RESULT", help="exchange file of the candidate")
    add_file_arguments(p, "conclusion and all products", "convolution of each step")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit code is the verdict."""
    a = parser().parse_args(arguments)
    return run("bridge.identities", lambda: _main(a))


def _main(a: argparse.Namespace) -> int:
    check_outputs(a, [("FIXTURE", a.fixture), ("RESULT", a.result)])
    with stage(Output(stderr=True), "adjoint identities") as progress:
        found = adjoint_identities(a.fixture, a.result, progress)
    console = Output()
    console.print(table(found))
    console.print(conclusion(found), highlight=False)
    return finish_series("bridge.identities", a, series(found), {"identities": [to_dict(one) for one in found]})


if __name__ == "__main__":
    sys.exit(main())
