# SPDX-License-Identifier: MIT
"""Errors that no known fault predicts are described as they were made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from bridge.judge.diagnosis.candidates import base_of
from bridge.judge.diagnosis.evidence.places.places import place
from bridge.judge.diagnosis.evidence.places.reach import reach
from bridge.judge.diagnosis.evidence.view import AXES, View
from bridge.judge.diagnosis.faults.value_faults import value_faults
from bridge.judge.diagnosis.predictions.hypothesis import with_layer
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.oracle.winograd import matrices
from tests.helpers.judged.diagnosed import Lab, make
from tests.helpers.judged.evidence import DB, DW, DX, DY, DZ, FIRST, A, Array, Z, at, seen, with_operand, without
from tests.helpers.tiers import few


def wrong_kernel(lab: Lab) -> Array:
    w = lab.graph().weights["two/weight"]
    return with_operand(lab, Z, w=at(w, np.s_[:, :, 0, 0], 2 * w[:, :, 0, 0]))


def framed(g: Array) -> Array:
    inner = np.zeros_like(g)
    inner[..., 2:-2, 2:-2] = g[..., 2:-2, 2:-2]
    return inner


def with_kernel(lab: Lab, change: Callable[[Array], Array]) -> Array:
    return with_operand(lab, Z, w=change(lab.graph().weights["two/weight"]))


def read(w: Array, strides: tuple[int, ...]) -> Array:
    """The memory of a tensor by other strides."""
    return w.reshape(-1)[sum(i * s for i, s in zip(np.indices(w.shape), strides, strict=True))]

#: Nothing around images and channels
EACH = [(0, 0), (0, 0)]


def around(x: Array, sides: tuple[int, int, int, int]) -> Array:
    """Zeros at the top, bottom, left and right."""
    return np.pad(x, [*EACH, sides[:2], sides[2:]])


def run_on(x: Array) -> Array:
    """No column is checked: row i ends with the first pixel of row i + 1."""
    padded = around(x, (1, 1, 1, 1))
    padded[:, :, 2:-1, 0], padded[:, :, 1:-2, -1] = x[:, :, :-1, -1], x[:, :, 1:, 0]
    padded[:, :, 0, -1], padded[:, :, -1, 0] = x[:, :, 0, 0], x[:, :, -1, -1]
    return padded


def beyond_one_side(lab: Lab) -> Array:
    """A filter gradient that reads on in memory beyond the last column, and zeros beyond the other sides."""
    x = lab.right(A)
    padded, memory = around(x, (1, 1, 1, 1)), np.append(x.reshape(-1), 0)
    padded[:, :, 1:-1, -1] = memory[np.arange(1, x.size // x.shape[3] + 1) * x.shape[3]].reshape(x.shape[:3])
    right = lab.graph().operation(DW)
    found: Array = with_layer(right, padding=(0, 0)).replaced(x=Predicted(padded)).values()
    return found


def by_winograd(lab: Lab, m: int, which: str, at: tuple[int, int], times: float) -> Array:
    """The convolution by Winograd's algorithm, with one entry of a matrix multiplied."""
    right = matrices(m, 3)
    matrix = getattr(right, which).copy()
    matrix[at] *= times
    out, g, bt = right._replace(**{which: matrix})
    x, w = around(lab.right(A), (1, 4, 1, 4)), lab.graph().weights["two/weight"]
    z = np.zeros((len(x), len(w), 12, 12))
    kernels = np.einsum("ir,js,kcrs->kcij", g, g, w)
    for i in range(0, 9, m):
        for j in range(0, 12, m):
            d = np.einsum("ia,jb,ncab->ncij", bt, bt, x[:, :, i : i + m + 2, j : j + m + 2])
            products = np.einsum("kcij,ncij->nkij", kernels, d)
            z[:, :, i : i + m, j : j + m] = np.einsum("pi,qj,nkij->nkpq", out, out, products)
    return z[:, :, :9] + lab.graph().weights["two/bias"][:, None, None]


def of_the_image_before(x: Array) -> Array:
    padded = np.pad(x, [*EACH, (1, 1), (1, 1)], mode="edge")
    padded[1:], padded[0] = padded[:-1].copy(), 0
    padded[:, :, 1:-1, 1:-1] = x
    return padded


def of_image(lab: Lab, padded: Callable[[Array], Array], share: bool = False) -> Array:
    """PyTorch's convolution of an image that somebody padded; with `share` times 9 / the taps inside."""
    weights = {name: torch.from_numpy(w) for name, w in lab.graph().weights.items()}
    z = functional.conv2d(torch.from_numpy(padded(lab.right(A))), weights["two/weight"])
    if share:
        ones = torch.ones(1, 1, *z.shape[2:], dtype=z.dtype)
        z = z * 9 / functional.conv2d(ones, torch.ones(1, 1, 3, 3, dtype=z.dtype), padding=1)
    return (z + weights["two/bias"][:, None, None]).numpy()


def gathered(lab: Lab, mode: str) -> Array:
    """PyTorch's data gradient of a dz that goes on beyond its border."""
    dz = torch.from_numpy(np.pad(lab.right(DZ), [*EACH, (1, 1), (1, 1)], mode=mode))  # type: ignore[call-overload]
    w = torch.from_numpy(lab.graph().weights["two/weight"])
    return functional.conv_transpose2d(dz, w, padding=2).numpy()


def apart(x: Array, stride: int) -> Array:
    """Images that are read at another stride."""
    return np.stack([x.reshape(-1)[i * stride : i * stride + x[0].size].reshape(x[0].shape) for i in range(len(x))])


def strip(dz: Array, rows: int) -> Array:
    """dz without the rows below the first few."""
    return at(dz, np.s_[:, :, rows:], 0.0)


def row_on(x: Array) -> Array:
    """One column too many on the right: the first pixel of the next row in memory."""
    padded = around(x, (1, 1, 1, 1))
    padded[:, :, 1:-1, -1] = np.append(x.ravel()[x.shape[3] :: x.shape[3]], 0.0).reshape(x.shape[:3])
    return padded


def full_blocks(squares: Array) -> Array:
    block = 2 ** (squares.size.bit_length() - 1)
    assert squares.size % block
    return np.ravel(squares)[:block].sum()[None] / squares.size

CASES: list[tuple[str, str, Callable[[Lab, Array], Array], str]] = [
    ("an image is 0", Z, lambda lab, z: at(z, 1, 0.0), "in image 1 of 4 it is 0"),
    ("a tap counts twice", Z, lambda lab, z: wrong_kernel(lab),
     "the kernel: in the first kernel row (0 of 3), the first kernel column (0 of 3) it is the right value times 2"),
    ("an image is the mean of others", Z, lambda lab, z: at(z, 3, (z[0] + z[1]) / 2),
     "image 3 is 0.5 times image 0 + 0.5 times image 1"),
    ("a row holds another", Z, lambda lab, z: at(z, np.s_[:, :, 4], z[:, :, 2]),
     "row 4 holds what belongs to row 2"),
    ("a window along w", DX, lambda lab, g: g * np.linspace(1, 2.1, 12), "(each 0.1 more than the one before)"),
    ("a sum that goes on from tap to tap", DW,
     lambda lab, g: np.cumsum(g.reshape(*g.shape[:2], 9), 2).reshape(g.shape),
     "it is the running sum over the taps of each kernel"),
    ("a sum that goes on from channel to channel", DB, lambda lab, g: np.cumsum(g),
     "it is the running sum along the channels"),
    ("one number everywhere", DB, lambda lab, g: np.full_like(g, g.mean()),
     "everywhere, the mean of all right numbers"),
    ("a grid without its last threads", DX, lambda lab, g: at(g.ravel(), np.s_[-90:], 0.0).reshape(g.shape),
     "in the last 90 elements in memory it is 0"),
    ("a transposition in place", DW, lambda lab, g: np.triu(g) + np.triu(g, 1).swapaxes(2, 3),
     "in each kernel tap (1, 0) is tap (0, 1); tap (2, 0) is tap (0, 2); tap (2, 1) is tap (1, 2)"),
    ("a kernel read with another pitch", Z, lambda lab, z: with_kernel(lab, lambda w: read(w, (45, 9, 2, 1))),
     "it is the right memory, read with strides (45, 9, 2, 1) in place of (45, 9, 3, 1)"),
    ("kernels that are read too near", Z, lambda lab, z: with_kernel(lab, lambda w: read(w, (40, 8, 3, 1))),
     "read with strides (40, 8, 3, 1) in place of (45, 9, 3, 1): the input channels are 8 numbers apart, not 9"),
    ("a column for a row", Z, lambda lab, z: with_kernel(lab, lambda w: w.sum(3, keepdims=True) * np.eye(3)),
     "tap (0, 0) is tap (0, 0) + tap (0, 1) + tap (0, 2); tap (0, 1) is 0"),
    ("numbers of a kernel by chance", Z, lambda lab, z: with_kernel(
        lab, lambda w: np.random.default_rng(5).normal(size=w.shape)), "every tap is where it should be"),
    ("rows that run on into each other", Z, lambda lab, z: of_image(lab, run_on),
     "beyond its border with what memory holds there: the neighbouring row of the channel"),
    ("the last pixels copied on two sides", Z,
     lambda lab, z: of_image(lab, lambda x: around(np.pad(x, [*EACH, (0, 1), (0, 1)], mode="edge"), (1, 0, 1, 0))),
     "with copies of its last pixels at the bottom and right, in place of 0"),
    ("a halo of the image before", Z, lambda lab, z: of_image(lab, of_the_image_before),
     "with copies of the last pixels of the image before"),
    ("tiles without a halo", Z, lambda lab, z: np.concatenate([
        of_image(lab, lambda x, at=at: around(x[..., at, :], (1, 1, 1, 1))) for at in (slice(0, 8), slice(8, 9))], 2),
     "it is what tiles of 8 rows give with zeros around each tile"),
    ("a filter gradient that tests one side", DW, lambda lab, g: beyond_one_side(lab),
     "goes on beyond its border at the right with what memory holds there, of other channels and images too"),
    ("a sign in a filter transform", Z, lambda lab, z: by_winograd(lab, 2, "g", (2, 1), -1.0),
     "Winograd's F(2x2, 3x3) gives whose matrix of the filter transform has its entry (2, 1) of the other sign"),
    ("a number that is missing in an output transform", Z, lambda lab, z: by_winograd(lab, 4, "at", (1, 3), 0.0),
     "Winograd's F(4x4, 3x3) gives whose matrix of the output transform has its entry (1, 3) 0"),
    ("divided by the taps inside", Z, lambda lab, z: of_image(lab, lambda x: around(x, (1, 1, 1, 1)), share=True),
     "it is the sum times all taps / those inside of the image, the bias apart"),
    ("corners that count twice", DB, lambda lab, g: g + lab.right(DZ)[:, :, ::8, ::11].sum((0, 2, 3)),
     "it is the sum in which the corners count twice"),
    ("a last row that is left out", DB, lambda lab, g: g - lab.right(DZ)[:, :, -1].sum((0, 2)),
     "it is the sum in which the last row does not count"),
    ("the diagonal of channels", DW, lambda lab, g: g * (1 - 0.5 * np.eye(*g.shape[:2]))[..., None, None],
     "where output channel and input channel are equal it is the right value times 0.5"),
    ("gradients are limited", DY, lambda lab, g: np.clip(g, -0.002, 0.002), "limited to -0.002 .. 0.002"),
    ("an input is scaled, its bias is not", Z, lambda lab, z: with_operand(
        lab, Z, x=Predicted(0.9995 * lab.right(A))), "it is what the input gives, if it is multiplied by 0.9995"),
    ("a frame is left out of the loss", DY, lambda lab, g: framed(g), "in a border of 2 pixels it is 0"),
    ("a ReLU before the loss", DY, lambda lab, g: g * (lab.right("forward/three") > 0),
     "where the output y is not positive it is 0"),
    ("targets are exchanged", DY, lambda lab, g: with_operand(
        lab, DY, target=np.roll(lab.graph().operation(DY).target, 1, 0)),
     "right but for the target: each image holds what belongs to the image 1 before it"),
    ("another activation", A, lambda lab, a: np.tanh(lab.right("forward/one")), "the hyperbolic tangent of z"),
    ("another loss", "loss", lambda lab, x: np.abs(
        lab.right("forward/three") - lab.graph().operation("loss").target).mean()[None], "(L1)"),
    ("full blocks alone", "loss", lambda lab, x: full_blocks(
        (lab.right("forward/three") - lab.graph().operation("loss").target) ** 2),
     "elements in memory, which fill no block of "),
    ("a gather that is clamped to the image", DX, lambda lab, g: gathered(lab, "edge"),
     "it is what dz gives that goes on beyond its border with copies of its last pixels, in place of 0"),
    ("a gather that goes around", DX, lambda lab, g: gathered(lab, "wrap"),
     "with its other side, around the border"),
    ("a lost block", DW, lambda lab, g: with_operand(
        lab, DW, dz=Predicted(at(lab.right(DZ), np.s_[1, :, 2:5], 0.0))),
     "it is the sum in which rows 2 to 4 of 9 of image 1 of 4 do not count"),
    ("a block that is added twice", DW, lambda lab, g: with_operand(
        lab, DW, dz=Predicted(at(lab.right(DZ), np.s_[:2, :, 5:], 2 * lab.right(DZ)[:2, :, 5:]))),
     "it is the sum in which rows 5 to 8 of 9 of images 0 to 1 of 4 count 2 times"),
    ("the pixels of a square", DB, lambda lab, g: lab.right(DZ).reshape(4, 4, -1)[:, :, :81].sum((0, 2)),
     "it is the sum in which the pixels of each plane after the first 81 of 108 in memory (9*9) do not count"),
    ("rows that two blocks sum", DB, lambda lab, g: g + lab.right(DZ)[:, :, 3:5].sum((0, 2, 3)),
     "it is the sum in which rows 3 to 4 of 9 of each plane count twice"),
    ("loops over the interior", DW, lambda lab, g: with_operand(lab, DW, dz=Predicted(
        around(lab.right(DZ)[..., 1:-1, 1:-1], (1, 1, 1, 1)))),
     "it is the sum in which the first and last row and the first and last column of dz do not count"),
    ("two sides that are left out", DB, lambda lab, g: lab.right(DZ)[..., 2:, :-1].sum((0, 2, 3)),
     "it is the sum in which rows 0 to 1 of 9 and the last column (11 of 12) of each plane do not count"),
    ("a ring that is added twice", DW, lambda lab, g: 2 * g - with_operand(lab, DW, dz=Predicted(
        around(lab.right(DZ)[..., 2:, :-1], (2, 0, 0, 1)))),
     "it is the sum in which rows 0 to 1 of 9 and the last column (11 of 12) of dz count twice"),
    ("images that lie closer together", Z, lambda lab, z: with_operand(lab, Z, x=Predicted(
        apart(lab.right(A), 4 * 108))),
     "it is what the input gives, if its images are 432 numbers apart in memory, not 540"),
    ("a buffer that is filled again too early", FIRST, lambda lab, g: with_operand(lab, FIRST, x=Predicted(
        np.concatenate([lab.graph(1).value("input").value[:2], lab.graph().value("input").value[2:]]))),
     "it is the sum in which images 0 to 1 of 4 of the input are those of the next batch"),
    ("the offset of a group is missing", DB, lambda lab, g: np.array([g[0] + g[2], g[1] + g[3], 0, 0]),
     "each channel k holds the sum of the channels k, k + 2, ..., and channels 2 to 3 of 4 are 0"),
    ("blocks of channels that are written as one", DB, lambda lab, g: np.array([g[0] + g[1], g[2] + g[3], 0, 0]),
     "each channel k holds the sum of the channels 2*k to 2*k + 1, and channels 2 to 3 of 4 are 0"),
    ("a halo that is missing below", DX, lambda lab, g: np.concatenate([
        with_operand(lab, DX, dz=Predicted(strip(lab.right(DZ), end)))[:, :, max(end - 4, 0) : end]
        for end in (4, 8, 12)], 2), "kernel row 0 (dz 1 below) does not count in rows 3 and 7 of 9"),
    ("a guard that excludes too much", Z, lambda lab, z: with_operand(lab, Z, x=Predicted(
        at(at(lab.right(A), np.s_[:, :, 0], 0.0), np.s_[..., -1], 0.0))),
     "the first row (0 of 9) of the input does not count, and the last column (11 of 12) of the input does not count"),
    ("a guard that allows too much", Z, lambda lab, z: of_image(lab, row_on),
     "goes on beyond its border at the right with what memory holds there, of other channels and images too"),
    ("a corner of the border is 0", DX, lambda lab, g: at(at(g, np.s_[:, :, -1], 0.0), np.s_[..., -1], 0.0),
     "in the last row (8 of 9) and the last column (11 of 12), it is 0"),
    ("a ReLU that some images lack", A, lambda lab, a: at(a, np.s_[1:], lab.right("forward/one")[1:]),
     "in all images but 0 where the right value is 0 it is z"),
    ("a clamp at the bottom alone", DW, lambda lab, g: with_layer(lab.graph().operation(DW), padding=(0, 0)).replaced(
        x=Predicted(around(np.pad(lab.right(A), [*EACH, (0, 1), (0, 0)], mode="edge"), (1, 0, 1, 1)))).values(),
     "the last kernel row (2 of 3) it is what an image gives that goes on beyond its border with copies of its last "
     "pixels at the bottom, in place of 0"),
    ("a row that some taps lack", DW, lambda lab, g: at(g, np.s_[:, :, 0], with_operand(
        lab, DW, dz=Predicted(at(lab.right(DZ), np.s_[:, :, 5], 0.0)))[:, :, 0]),
     "in the first kernel row (0 of 3) it is the sum in which row 5 of 9 does not count"),
    ("a column that is not summed", Z, lambda lab, z: at(
        z, np.s_[..., -1], lab.graph().weights["two/bias"][:, None]),
     "in the last column (11 of 12) it is the bias alone"),
    ("a race of images", DB, lambda lab, g: without(g, lab.right(DZ), ((1, 3), (2, 0))),
     "it is the sum in which channel 1 lacks image 3 and channel 2 lacks image 0"),
]


@pytest.mark.parametrize("case", few(CASES, len(CASES) // 3), ids=lambda case: case[0])
def test_a_mistake_is_described(lab: Lab, case: tuple[str, str, Callable[[Lab, Array], Array], str]) -> None:
    _, name, make_wrong, said = case
    found = seen(lab, name, make_wrong(lab, lab.right(name)))
    assert found is not None and found.exact and said in found.said, found


def test_channels_of_which_all_is_0_are_no_place() -> None:
    right = np.random.default_rng(0).normal(size=(2, 4, 8, 8))
    found = right + 1
    found[:, 3] = right[:, 3]
    assert place(View(found, right, np.full(1, 1e-6), AXES["nchw"])) == "in all channels but 3"
    found[:, 3] = right[:, 3] = 0
    assert place(View(found, right, np.full(1, 1e-6), AXES["nchw"])) == ""


def test_channels_that_are_not_summed_are_counted(lab: Lab) -> None:
    case = lab.case(DX, with_operand(lab, DX, dz=Predicted(at(lab.right(DZ), np.s_[:, 3], 0.0))))
    truth = case.right.full(lab.arithmetic)
    view = View(case.found, truth.value, np.asarray(truth.error), AXES["nchw"])
    one, = (one for one in reach(view, case) if one.exact)
    assert one.said == "it is the sum in which the last output channel (3 of 4) does not count"


def test_multiples_of_which_there_are_many_are_known_to_all_their_digits(lab: Lab) -> None:
    """A fixed point whose step is a difference of large numbers, and numbers that were integers of 8 bits."""
    z = lab.right(Z)
    for step, said in ((0.003, "rounded to multiples of 0.003"), (1 / 255, "rounded to multiples of 1/255")):
        found = seen(lab, Z, (np.rint(z / step) * step).astype(np.float32).astype(np.float64))
        assert found is not None and found.exact and said in found.said, found


def test_a_target_of_integers_is_described(lab: Lab) -> None:
    target = lab.graph().operation(DY).target
    found = seen(lab, DY, with_operand(lab, DY, target=np.rint(target * 255) / 255))
    assert found is not None and found.exact, found
    assert "the target: it is the right value, rounded to multiples of 1/255" in found.said


@pytest.mark.deep
def test_a_table_of_values_is_described(tmp_path: Path) -> None:
    lab = Lab(*make(tmp_path, height=48, width=64))
    z = lab.right(Z)
    found = seen(lab, Z, np.tanh(np.rint(z * 16) / 16 + 0.01))
    assert found is not None and found.exact and "different numbers only, each for a range of" in found.said, found
    lab.close()


def test_wrong_elements_that_are_equally_far_apart(lab: Lab) -> None:
    g = lab.right(DW).copy()
    g.reshape(-1)[2::7] *= 2
    found = seen(lab, DW, g)
    assert found is not None and found.exact, found
    assert "in every 7th element in memory, from element 2 on it is the right value times 2" in found.said


def test_a_limit_by_which_numbers_are_0_is_neither_chance_nor_underflow(lab: Lab) -> None:
    """What is 0 is decided by another number: the difference, or what the ReLU has got."""
    relu = lab.graph().operation("grads/one/output")
    wrong = relu.da.value * (relu.source.value > 0.1)
    found = seen(lab, "grads/one/output", wrong)
    assert found is not None and found.exact and "where z lies between" in found.said and "it is 0" in found.said
    case = lab.case(DY, lab.right(DY))
    d = case.right.y.value - case.right.target
    right = np.sign(d) * 1e-3
    for limit in (0.1, 0.3):
        faults = list(value_faults(base_of(case.right), right, np.where(np.abs(d) < limit, 0.0, right)))
        assert not faults, [one.detail for one in faults]
