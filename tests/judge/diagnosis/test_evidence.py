# SPDX-License-Identifier: MIT
"""Errors that no known fault predicts are described as they were made; what has no structure is not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from bridge.common.threads import one_core
from bridge.judge.diagnosis.candidates import Case, base_of
from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.clock import now
from bridge.judge.diagnosis.diagnose import BUDGET, SHARE
from bridge.judge.diagnosis.evidence.derivatives import derivatives
from bridge.judge.diagnosis.evidence.describe import _through, chosen, describe, known_tensors
from bridge.judge.diagnosis.evidence.orders import blocked, orders
from bridge.judge.diagnosis.evidence.places.extent import extent
from bridge.judge.diagnosis.evidence.places.masks import masks
from bridge.judge.diagnosis.evidence.places.neighbours import neighbours, turned
from bridge.judge.diagnosis.evidence.places.places import place
from bridge.judge.diagnosis.evidence.places.planes import planes
from bridge.judge.diagnosis.evidence.places.reach import reach
from bridge.judge.diagnosis.evidence.slices import mixtures, moved
from bridge.judge.diagnosis.evidence.values import functions
from bridge.judge.diagnosis.evidence.view import AXES, Seen, View
from bridge.judge.diagnosis.faults.value_faults import value_faults
from bridge.judge.diagnosis.pattern import pattern
from bridge.judge.diagnosis.predictions.elementwise import ReluBackward
from bridge.judge.diagnosis.predictions.hypothesis import with_layer
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.predictions.step_graph import StepGraph
from bridge.judge.diagnosis.records import MOSTLY, Explanation, Finding
from bridge.judge.diagnosis.search import TRYING, TWO_FAULTS, Search
from bridge.judge.oracle.reduced_precision import round_fraction
from bridge.judge.oracle.winograd import matrices
from bridge.report.facts import finding_lines
from bridge.validate.self_test.edits import plant
from tests.helpers.judged.diagnosed import Lab, make
from tests.helpers.tiers import few

Array = np.ndarray
Z, DX, DW, DB, DY, A, DZ = (
    "forward/two", "grads/relu/output", "grads/two/weight", "grads/two/bias", "grads/three/output", "forward/relu",
    "grads/two/output")
FIRST = "grads/one/weight"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(*make(tmp_path_factory.mktemp("evidence")))
    yield lab
    lab.close()


def seen(lab: Lab, name: str, found: Array, step: int = 0) -> Seen | None:
    case = lab.case(name, found, step)
    return describe(case, case.right.full(lab.arithmetic), lambda: False)


def with_operand(lab: Lab, name: str, **operands: Array) -> Array:
    """What the operation makes of another operand."""
    return lab.graph().operation(name).replaced(**operands).values()


def at(x: Array, place: object, value: object) -> Array:
    x = x.copy()
    x[place] = value
    return x


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


def without(g: Array, dz: Array, lost: tuple[tuple[int, int], ...]) -> Array:
    """A bias gradient in which a channel lacks an image."""
    g = g.copy()
    for channel, image in lost:
        g[channel] -= dz[image, channel].sum()
    return g


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
     "it is the sum in which the last row counts not at all"),
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
     "it is the sum in which rows 2 to 4 of 9 of image 1 of 4 count not at all"),
    ("a block that is added twice", DW, lambda lab, g: with_operand(
        lab, DW, dz=Predicted(at(lab.right(DZ), np.s_[:2, :, 5:], 2 * lab.right(DZ)[:2, :, 5:]))),
     "it is the sum in which rows 5 to 8 of 9 of images 0 to 1 of 4 count 2 times"),
    ("the pixels of a square", DB, lambda lab, g: lab.right(DZ).reshape(4, 4, -1)[:, :, :81].sum((0, 2)),
     "it is the sum in which the pixels of each plane after the first 81 of 108 in memory (9*9) count not at all"),
    ("rows that two blocks sum", DB, lambda lab, g: g + lab.right(DZ)[:, :, 3:5].sum((0, 2, 3)),
     "it is the sum in which rows 3 to 4 of 9 of each plane count twice"),
    ("loops over the interior", DW, lambda lab, g: with_operand(lab, DW, dz=Predicted(
        around(lab.right(DZ)[..., 1:-1, 1:-1], (1, 1, 1, 1)))),
     "it is the sum in which the first and last row and the first and last column of dz count not at all"),
    ("two sides that are left out", DB, lambda lab, g: lab.right(DZ)[..., 2:, :-1].sum((0, 2, 3)),
     "it is the sum in which rows 0 to 1 of 9 and the last column (11 of 12) of each plane count not at all"),
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
        for end in (4, 8, 12)], 2), "kernel row 0 (dz 1 below) counts not at all in rows 3 and 7 of 9"),
    ("a guard that excludes too much", Z, lambda lab, z: with_operand(lab, Z, x=Predicted(
        at(at(lab.right(A), np.s_[:, :, 0], 0.0), np.s_[..., -1], 0.0))),
     "the first row (0 of 9) of the input counts not at all, and the last column (11 of 12) of the input counts not"),
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
     "in the first kernel row (0 of 3) it is the sum in which row 5 of 9 counts not at all"),
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
    assert one.said == "it is the sum in which the last output channel (3 of 4) counts not at all"


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


def test_losses_that_are_wrong_by_one_factor_at_every_step(lab: Lab) -> None:
    def cases(times: tuple[float, ...]) -> list[Case]:
        return [lab.case("loss", lab.right("loss", k) * one, k) for k, one in enumerate(times)]

    one = 1 / np.log(2)
    first, *later = cases((one, one, one))
    found = describe(first, first.right.full(lab.arithmetic), lambda: False, later)
    assert found is not None and "the right loss times 1.4427 (1/log(2): the binary logarithm) at each" in found.said
    first, *later = cases((one, one, 1.2))
    assert describe(first, first.right.full(lab.arithmetic), lambda: False, later) is None


def test_a_loss_that_is_a_running_mean(lab: Lab) -> None:
    found = seen(lab, "loss", 0.9 * lab.right("loss", 0) + 0.1 * lab.right("loss", 1), 1)
    assert found is not None
    assert found.said == "it is the running mean of the losses, 0.9 of the one before and 0.1 of this one"


def test_a_loss_that_follows_from_its_gradient(tmp_path: Path) -> None:
    """Some differences do not count, in both: one cause."""
    fixture, right = make(tmp_path)
    given = Lab(fixture, right)
    operation = given.graph().operation("loss")
    counts = operation.target > 0.2
    value = operation.scale * float((((operation.y.value - operation.target) * counts) ** 2).sum())
    given.close()
    wrong = plant(right, tmp_path / "wrong.h5", {
        "steps/0/grads/three/output": lambda g: (g * counts).astype(np.float32),
        "steps/0/loss": lambda loss: np.float32(value)})
    lab = Lab(fixture, wrong)
    found = seen(lab, "loss", lab.right("loss"))
    lab.close()
    assert found is not None and "one cause makes both wrong" in found.said, found


def classes() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.Conv2d(4, 5, 1))


def test_cross_entropies_of_another_kind(tmp_path: Path) -> None:
    lab = Lab(*make(tmp_path, model=classes, loss="cross_entropy"))
    right = lab.graph().operation("loss")
    y, t, scale = right.y.value, right.target, right.loss.scale(right.y.value.shape)
    e = np.exp(y)
    p, across = e / e.sum(1, keepdims=True), e / e.sum(3, keepdims=True)
    smoothed = 0.9 * t + 0.1 / t.shape[1]
    for said, value in (("without image 3, divided by", -(t * np.log(p))[:3].sum()),
                        ("smoothed by 0.1", -(smoothed * np.log(p)).sum()),
                        ("log(p + 0.001)", -(t * np.log(p + 1e-3)).sum()),
                        ("softmax over the columns", -(t * np.log(across)).sum())):
        found = seen(lab, "loss", np.full(1, scale * value))
        assert found is not None and said in found.said, found
    for said, gradient in (("targets that are smoothed by 0.1", p - smoothed),
                           ("the softmax over the columns", across - t),
                           ("the target: images are in reversed order", p - t[::-1])):
        found = seen(lab, "grads/1/output", scale * gradient)
        assert found is not None and found.exact and said in found.said, found
    lab.close()


def test_a_penalty_in_the_loss_is_described(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = lab.graph().pair
    monkeypatch.setattr(pair, "optimizer", replace(pair.optimizer, weight_decay=0.03))
    size = sum(float((w * w).sum()) for w in lab.graph().weights.values())
    found = seen(lab, "loss", lab.right("loss") + 0.5 * 0.03 * size)
    assert found is not None
    assert found.said == "it is the loss with the penalty of the weight decay, 1/2 * weight_decay * sum(w**2)"


def test_a_loss_is_what_it_is_said_to_be_at_every_step(lab: Lab) -> None:
    """A single number may agree with another by chance."""
    def root(step: int) -> Array:
        return np.sqrt(lab.right("loss", step))

    def described(found: Array) -> Seen | None:
        first, later = lab.case("loss", root(0)), lab.case("loss", found, 1)
        return describe(first, first.right.full(lab.arithmetic), lambda: False, [later])

    same = described(root(1))
    assert same is not None and same.said == "it is the root of the mean square (RMSE)"
    assert described(1.1 * root(1)) is None


def missing_run(d: Array, step: int) -> Array:
    squares = (d * d).ravel().copy()
    squares[32 * (step + 1): 32 * (step + 2)] = 0
    return squares.mean()


@pytest.mark.parametrize(("made", "said"), [
    (lambda y, t, k: ((y - t)[:, :, 1:-1] ** 2).sum() / y.size, "without the first and last row, over all elements"),
    (lambda y, t, k: ((y - t) ** 2)[[0, 0, 1, 2, 3]].mean(), "image 0 counts 2 times, divided by the sum"),
    (lambda y, t, k: ((np.clip(y, -0.1, 0.1) - t) ** 2).mean(), "of the output limited to -0.1 .. 0.1"),
    (lambda y, t, k: ((y - 0.98 * t) ** 2).mean(), "the target times 0.98"),
    (lambda y, t, k: (round_fraction((y - t).astype(np.float32), 7).astype(float) ** 2).mean(), "rounded to bf16"),
    (lambda y, t, k: missing_run(y - t, k), "without one run of 32 elements"),
])
def test_a_loss_of_many_is_said_where_it_holds_at_several_steps(
    lab: Lab, made: Callable[[Array, Array, int], Array], said: str
) -> None:
    def case(step: int) -> Case:
        right = lab.graph(step).operation("loss")
        return lab.case("loss", np.array([made(right.y.value, right.target, step)]), step)

    first, *later = (case(k) for k in range(3))
    truth = first.right.full(lab.arithmetic)
    found = describe(first, truth, lambda: False, later)
    assert found is not None and said in found.said, found
    later[1] = replace(later[1], found=1.001 * later[1].found)
    assert describe(first, truth, lambda: False, later) is None


def test_another_input_is_solved_for(tmp_path: Path) -> None:
    """By half of the filters; the others confirm it."""
    lab = Lab(*make(tmp_path, model=lambda: torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3, padding=1)), batch=2))

    def of_input(change: Callable[[Array], Array]) -> Seen | None:
        x = change(lab.graph().operation("forward/0").x.value)
        return seen(lab, "forward/0", with_operand(lab, "forward/0", x=Predicted(x)))

    flat, coarse = of_input(lambda x: x - x.mean(3, keepdims=True)), of_input(lambda x: np.rint(20 * x) % 7)
    noise = seen(lab, "forward/0", np.random.default_rng(0).standard_normal(lab.right("forward/0").shape))
    lab.close()
    assert flat is not None and "right but for the input: it is the right value plus a number for each" in flat.said
    assert coarse is not None and "it is what another input gives, whose pixels are" in coarse.said
    assert noise is None


def test_a_copy_that_has_not_arrived(lab: Lab, tmp_path: Path) -> None:
    """The lower half of the last image of step 1 is that of step 0, or a part of the first one another image's."""
    fixture, right = make(tmp_path)
    x, old = (lab.graph(step).value("input").value for step in (1, 0))
    late = Predicted(at(x, np.s_[3, :, 5:], old[3, :, 5:]))
    wrong = {name: lab.graph(1).operation(name).replaced(x=late).values() for name in ("forward/one", FIRST)}
    spoilt = Lab(fixture, plant(right, tmp_path / "wrong.h5", {
        f"steps/1/{name}": lambda _, new=new: new.astype(np.float32) for name, new in wrong.items()}))
    for name in wrong:
        found = seen(spoilt, name, spoilt.right(name, 1), 1)
        assert found is not None and found.exact, name
        assert "if in the last image (3 of 4), rows 5 to 8 of 9 it is that of the step before" in found.said, found
    spoilt.close()
    mixed = at(lab.right(A), np.s_[0, :, 2:6, 3:7], lab.right(A)[2, :, 2:6, 3:7])
    found = seen(lab, Z, with_operand(lab, Z, x=Predicted(mixed)))
    assert found is not None and found.exact
    assert "if in the first image (0 of 4), rows 2 to 5 of 9, columns 3 to 6 of 12 it is that of image 2" in found.said


def test_an_input_that_the_output_betrays(tmp_path: Path) -> None:
    """An input of 8 bits makes the output, which shows its pixels, and the filter gradient, which does not."""
    fixture, right = make(tmp_path, model=lambda: torch.nn.Sequential(torch.nn.Conv2d(1, 6, 3, padding=1)))
    lab = Lab(fixture, right)
    x = lab.graph().value("input").value
    coarse = Predicted(x.min() + np.rint((x - x.min()) * 255 / np.ptp(x)) * np.ptp(x) / 255)
    names = ("forward/0", "grads/0/weight")
    wrong = {name: lab.graph().operation(name).replaced(x=coarse).values() for name in names}
    lab.close()
    spoilt = Lab(fixture, plant(right, tmp_path / "wrong.h5", {
        f"steps/0/{name}": lambda _, new=new: new.astype(np.float32) for name, new in wrong.items()}))
    found = seen(spoilt, names[1], spoilt.right(names[1]))
    spoilt.close()
    assert found is not None and found.exact
    assert "from the input that forward/0 shows to be in use" in found.said


def test_padded_memory_that_is_copied_as_dense(lab: Lab) -> None:
    for block, pitch, said in ((12, 16, "rows of 12 numbers begin 16"), (540, 544, "images of 540 numbers begin 544")):
        a = lab.right(A)
        padded = np.zeros((a.size // block, pitch))
        padded[:, :block] = a.reshape(-1, block)
        found = seen(lab, A, padded.reshape(-1)[: a.size].reshape(a.shape))
        assert found is not None and found.exact and said in found.said, found
        assert f"the last {pitch - block} of each {pitch} are 0" in found.said


def test_old_contents_are_seen_with_their_factor(lab: Lab) -> None:
    found = seen(lab, DW, 0.25 * lab.right(DW, 1) + 0.75 * lab.right(DW), 1)
    assert found is not None and "0.25*(the right value) + 0.75*(grads/two/weight of the step before)" in found.said


def test_zeros_that_a_sign_decides_are_no_dropout(lab: Lab) -> None:
    y = lab.right("forward/three")
    y = y - np.quantile(y, 0.94)
    right = lab.graph().operation(DY).replaced(y=Predicted(y))
    case = replace(lab.case(DY, right.values() * (y > 0)), right=right)
    search = Search(case, now() + 20)
    assert all(kind("dropout") not in one.kinds for one in search.run(search.place)[0])


def test_axes_of_another_sort_are_no_rule(lab: Lab) -> None:
    """No image has the number of a column from 6 on."""
    found = seen(lab, DZ, at(lab.right(DZ), np.s_[..., 6:], 0.0))
    assert found is not None and "in columns 6 to 11 of 12" in found.said and "image" not in found.said


def test_noise_is_not_described(lab: Lab) -> None:
    """As many errors as elements, of any size: nothing is said of what has no structure."""
    rng = np.random.default_rng(0)
    for name in (Z, DW, DY, DZ, "grads/two/bias", "loss"):
        right = lab.right(name)
        for size in (3.0, 1e4) if name in (DW, DY) else (1e3,):
            noise = size * lab.bound(name).max() * rng.normal(size=right.shape)
            found = seen(lab, name, right + noise)
            assert found is None, (name, size, found)


def test_what_follows_from_a_tensor_explains_nothing_of_it(lab: Lab) -> None:
    """Else the output is the target plus N/2 times the gradient of the loss, whatever it is."""
    case = lab.case(Z, lab.right(Z), 1)
    given = known_tensors(case)
    assert "forward/two" not in given and "grads/two/output" not in given
    assert {"forward/one", "forward/two of the step before", "grads/two/output of the step before"} <= set(given)


def test_a_mixture_that_leaves_some_is_not_described() -> None:
    """Images that are zero where something else is negative are nearly a combination of each other."""
    rng = np.random.default_rng(0)
    right = rng.normal(size=(3, 1, 24, 20))
    mixed = np.stack([0.9 * right[0] + 0.1 * right[1], right[2], 0.5 * right[1]])
    for noise, described in ((0.0, True), (0.05, False)):
        found = mixed + noise * rng.normal(size=right.shape)
        said = [one for one in mixtures(View(found, right, np.full(right.shape, 1e-6), AXES["nchw"]))]
        assert bool(said) is described, (noise, said)


def test_numbers_of_the_other_end_are_no_shift() -> None:
    """A table of 16 entries that is read at k % 16: nothing but the end is what it would be around the end."""
    right = np.random.default_rng(0).normal(size=20)
    view = View(right[np.arange(20) % 16], right, np.full(20, 1e-6), AXES["k"])
    assert [one.said for one in moved(view) if one.exact] == ["channels 16 to 19 hold what belongs to channels 0 to 3"]
    assert not any(one.exact and "by 4 numbers" in one.said for one in turned(view))
    back = View(np.roll(right, 4), right, np.full(20, 1e-6), AXES["k"])
    assert [one.said for one in turned(back) if one.exact] == ["the memory is moved forward by 4 numbers"]
    equal = np.where(np.arange(20) < 4, right[0], right)
    assert not list(moved(View(equal[np.arange(20) % 16], equal, np.full(20, 1e-6), AXES["k"])))


def test_a_description_is_judged_by_elements_that_nothing_was_fitted_to() -> None:
    """As many numbers as elements fit anything."""
    rng = np.random.default_rng(1)
    view = View(rng.normal(size=16), rng.normal(size=16), np.full(1, 1e-9), AXES["k"])
    assert view.solve(rng.normal(size=(16, 8)))[1] > MOSTLY
    assert chosen([Seen("half of it", "", 0.5)]) is None
    assert chosen([Seen("by many", "", 1e-5, 9), Seen("by one", "", 1e-5, 1)]).said == "by one"


def test_an_unknown_error_says_how_large_it_is_and_where_most_of_it_is() -> None:
    rng = np.random.default_rng(2)
    right = rng.normal(size=(3, 4, 16, 20))
    found = right + 1e-3 * rng.normal(size=right.shape)
    found[:, :, 5:7] += rng.normal(size=(3, 4, 2, 20))
    everywhere, axes = np.ones(right.shape, dtype=bool), AXES["nchw"]
    said = extent(found, right, everywhere, axes)
    assert said.startswith("The error is 3") and said.endswith(" of its square is in rows 5 to 6 of 16."), said
    found = 0.7 * right + 0.01 * rng.normal(size=right.shape)
    assert "; nearly, they are multiplied by 0.7, which leaves 3.4 % of it." in extent(found, right, everywhere, axes)
    one = np.ones(1, dtype=bool)
    assert extent(np.full(1, 0.5), one * 2.0, one, AXES["k"]) == "Found / right: 0.25."
    finding = Finding("grads/two/bias", 0, "the bias gradient of two", 9.0, extent=said)
    assert said in finding_lines(1, finding)


def test_a_single_bias_says_what_those_of_other_layers_say(monkeypatch: pytest.MonkeyPatch, lab: Lab) -> None:
    """Two numbers agree with some part of a plane by chance; those of all layers do not."""
    dz = {name: lab.right(f"grads/{name}/output") for name in ("one", "two", "three")}
    wrong = {f"grads/{name}/bias": x.reshape(*x.shape[:2], -1)[:, :, :65].sum((0, 2)) for name, x in dz.items()
             if x.shape[2:] == dz["three"].shape[2:]}
    case = lab.case("grads/three/bias", wrong["grads/three/bias"])
    assert planes(case) is None
    own = StepGraph.own
    monkeypatch.setattr(StepGraph, "own", lambda graph, name: wrong.get(name, own(graph, name))
                        if graph.step == 0 else own(graph, name))
    found = planes(case)
    assert found is not None and "after the first 65 of 108 in memory count not at all" in found.said


def test_sums_of_some_images_that_are_left_from_the_step_before(lab: Lab) -> None:
    before = lab.graph(0).operation(DW).replaced(images=(0, 1)).values()
    found = seen(lab, DW, lab.right(DW, 1) + before, 1)
    assert found is not None and found.exact
    assert found.said == "it is the right value plus the sum of images 0 to 1 of 4 of the step before"


def test_what_a_kernel_that_was_solved_for_leaves_is_measured(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rule makes the kernel, but it gives the result."""
    monkeypatch.setattr("bridge.judge.diagnosis.evidence.describe.wider", lambda view, case: ())
    w = lab.graph().weights["two/weight"]
    noise = np.random.default_rng(4).normal(size=w.shape) * np.abs(w).max()
    noise[:, :, 1:, 1:] = 0
    noise[0, 2] = 0
    found = seen(lab, Z, with_operand(lab, Z, w=w + noise))
    assert found is not None and "right but for the kernel, which is wrong in" in found.said
    assert found.exact and found.rest < 1e-6 and "%" not in found.said, found


def test_what_leaves_more_than_rounding_says_roughly_and_how_much(lab: Lab) -> None:
    """A factor with a few percent of noise on top of it is no explanation."""
    right = lab.right(Z)
    noise = np.random.default_rng(3).normal(size=right.shape)
    found = seen(lab, Z, 0.5 * right + 0.02 * right.std() * noise)
    assert found is not None and not found.exact
    assert found.said.startswith(f"roughly ({100 * found.rest:.2g} % of the error is left): "), found


def test_a_wrong_mask_is_not_described_by_what_any_wrong_mask_is(lab: Lab) -> None:
    """Wrong elements of a mask are always 1 - right: chosen because they are wrong, they say nothing of the cause."""
    relu = lab.graph().operation("grads/one/output")
    da = relu.da.value
    mask = relu.source.value > 0
    turned = mask ^ (np.random.default_rng(4).random(mask.shape) < 0.3)
    found = seen(lab, "grads/one/output", da * turned)
    assert found is None or not any(word in found.said for word in ("-1", "1 -", "plus", "+ 1")), found


def reversed_bits(mask: Array, block: int) -> Array:
    whole = mask.size // block * block
    flat = mask.ravel().copy()
    flat[:whole] = flat[:whole].reshape(-1, block)[:, ::-1].ravel()
    return flat.reshape(mask.shape)


def test_another_mask_is_told_from_wrong_numbers(lab: Lab) -> None:
    """Each element is one of two numbers; in which order the bits were read is said where it is known."""
    name = "grads/one/output"
    relu = lab.graph().operation(name)
    da, mask = relu.da.value, relu.source.value > 0
    other = np.random.default_rng(5).random(mask.shape) < 0.5
    for used, said in ((other, "each element is dy or 0, but not by the sign of x"),
                       (reversed_bits(mask, 8), "by the right mask with each 8 elements that follow each other in "
                                                "reversed order")):
        found = seen(lab, name, da * used)
        assert found is not None and found.exact and said in found.said, found
    found = seen(lab, name, 1.01 * da * other)
    assert found is None or "each element" not in found.said


@pytest.mark.deep
def test_another_mask_of_dropout_is_described(tmp_path: Path) -> None:
    def model() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.Dropout(0.25), torch.nn.Conv2d(4, 2, 1))

    lab = Lab(*make(tmp_path, model=model))
    name = "grads/0/output"
    other = np.random.default_rng(5).random(lab.right(name).shape) < 0.75
    found = seen(lab, name, lab.right("grads/1/output") / 0.75 * other)
    assert found is not None and found.exact, found
    assert "each element is dy/(1 - p) or 0, by another mask than that of the forward pass" in found.said
    found = seen(lab, "forward/1", lab.right("forward/0") / 0.75 * other)
    assert found is not None and "each element is x/(1 - p) or 0, by another mask than that of the file" in found.said
    mask = lab.graph().operation("forward/1").parameters["mask"]
    search = Search(lab.case("forward/1", lab.right("forward/0") / 0.75 * mask[:1]))
    (first, *_), _ = search.run(search.place)
    assert first.detail == "the mask of image 0 for every image"
    lab.close()


@pytest.mark.deep
def test_another_derivative_is_described(tmp_path: Path) -> None:
    """Which function it is, or at least of what; what depends on more than the input is none."""
    def model() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Conv2d(2, 6, 3), torch.nn.Sigmoid(), torch.nn.Conv2d(6, 2, 1))

    lab = Lab(*make(tmp_path, model=model, height=16, width=18))
    name = "grads/0/output"
    dy, z = lab.right("grads/1/output"), lab.right("forward/0")
    y = 1 / (1 + np.exp(-z))
    for factor, said in ((z * (1 - z), "it is dy times z*(1 - z), z the input"),
                         ((1 - y) ** 2, "it is dy times (1 - y)**2, y the output"),
                         (0.3 * np.sin(4 * z) + z, "it is dy times another function of the input z")):
        found = seen(lab, name, dy * factor)
        assert found is not None and found.exact and said in found.said, found
    other = np.random.default_rng(6).permutation(z.ravel()).reshape(z.shape)
    found = seen(lab, name, dy * other * (1 - other))
    assert found is None or "dy times" not in found.said, found
    lab.close()


@pytest.mark.parametrize(("said", "derivative"), [
    ("the Charbonnier loss sqrt(d**2 + 0.01)", lambda d: d / np.sqrt(d * d + 0.01)),
    ("the smooth L1 loss with beta = 0.4", lambda d: np.clip(2.5 * d, -1, 1)),
    ("the Huber loss with delta = 0.3", lambda d: np.clip(d, -0.3, 0.3)),
    ("log(cosh(1.5*d))/1.5", lambda d: np.tanh(1.5 * d)),
])
def test_the_gradient_of_another_loss_is_described(
    lab: Lab, said: str, derivative: Callable[[Array], Array]
) -> None:
    right = lab.graph().operation(DY)
    d = right.y.value - right.target
    found = seen(lab, DY, right.scale * derivative(d))
    assert found is not None and found.exact and f"it is the derivative of {said}" in found.said, found


def test_blocked_layouts_are_named() -> None:
    """As oneDNN has them, of images and of filters."""
    x = np.random.default_rng(7).normal(size=(16, 16, 3, 5))
    images = x.reshape(16, 2, 8, 3, 5).transpose(0, 1, 3, 4, 2)
    filters = x.reshape(2, 8, 2, 8, 3, 5).transpose(0, 2, 4, 5, 3, 1)
    for found, axes, name in ((images, "nchw", "nChw8c"), (filters, "kcrs", "OIhw8i8o")):
        view = View(found.reshape(x.shape), x, np.full(1, 1e-9), AXES[axes])
        assert [name in one.said for one in blocked(view) if one.exact] == [True]


def test_right_numbers_in_another_order_are_known_when_sorted(lab: Lab) -> None:
    """Wrong numbers are not, even where noise hardly changes the sorted ones."""
    rng = np.random.default_rng(8)
    right = lab.right(Z)
    found = seen(lab, Z, rng.permutation(right.ravel()).reshape(right.shape))
    assert found is not None and found.exact and "the right numbers in another order: sorted" in found.said, found
    z = np.linspace(-1, 1, 100000)
    for noise in (1e-5, 1e-3, 1.0):
        assert not list(orders(View(z + noise * rng.normal(size=z.shape), z, np.full(1, 1e-6), AXES["k"])))
    assert not list(orders(View(rng.uniform(-1, 1, z.shape), z, np.full(1, 1e-6), AXES["k"])))


@pytest.mark.deep
def test_large_tensors_take_no_time_to_speak_of(lab: Lab) -> None:
    """What is tried of each tensor by all of its elements, at the largest size at which that is done."""
    rng = np.random.default_rng(9)
    shape = (4, 64, 64, 128)
    z, da = rng.normal(size=shape), rng.normal(size=shape)
    case = replace(lab.case("grads/one/output", lab.right("grads/one/output")),
                   right=ReluBackward(shape, Predicted(da), Predicted(z)))
    view = View(da * (rng.random(shape) < 0.5), da * (z > 0), np.full(1, 1e-9), AXES["nchw"])
    # Threads of numpy's BLAS that wait for each other take processor time, too, now more and now less
    with one_core():
        start = time.process_time()
        assert [one.exact for one in masks(view, case)] == [True]
        assert not [one for one in (*blocked(view), *orders(view), *derivatives(view, case)) if one.exact]
        assert time.process_time() - start < 5


def test_an_image_that_all_channels_lack_is_no_race(lab: Lab) -> None:
    found = seen(lab, DB, without(lab.right(DB), lab.right(DZ), tuple((k, 2) for k in range(4))))
    assert found is None or "lacks" not in found.said, found


def test_places_are_no_pattern_of_findings_that_are_described() -> None:
    """"Single elements corrupted" does not stand above what is seen to rounding."""
    place = Explanation((kind("corrupted"),), "20 single elements", 0.0, by_place=True)
    for exact, said in ((None, True), (Seen("it is 0", "", 0.0), False)):
        findings = [Finding(f"grads/{name}/weight", 0, f"the filter gradient of {name}", 9.0, (place,), seen=exact)
                    for name in ("one", "two")]
        assert bool(pattern(findings)) is said, (exact, pattern(findings))


def test_what_leaves_more_than_rounding_is_reported_as_unknown() -> None:
    """A rough description never stands first, as if it were the cause."""
    for rest, unknown in ((0.005, True), (0.0, False)):
        lines = finding_lines(1, Finding(Z, 0, "conv two", 9.0, seen=Seen("a description", "the code", rest)))
        assert ("Unknown structure" in lines[0], "a description" in lines[0].lower()) == (unknown, not unknown), lines


def view_of(found: Array, right: Array, name: str) -> View:
    return View(found, right, np.full(right.shape, 1e-9), AXES[name])


def test_a_place_is_true_of_every_element_in_it() -> None:
    """Eight of nine taps of a channel are right."""
    right = np.random.default_rng(3).normal(size=(1, 16, 3, 3))
    tail = at(right.ravel(), np.s_[80:], 0.0).reshape(right.shape)
    said = [one.said for one in _through("the step", view_of(tail, right, "kcrs"), lambda: False)]
    assert said == ["right but for the step: in the last 64 elements in memory it is 0"]
    some = right * np.where(np.arange(16) < 8, 1.0, 0.0)[None, :, None, None]
    some[0, 9, 1, :2], some[0, 12, 0] = right[0, 9, 1, :2], right[0, 12, 0]
    some[0, 15, 1:] = right[0, 15, 1:]
    said = [one.said for one in _through("the step", view_of(some, right, "kcrs"), lambda: False)]
    assert said == ["right but for the step: in 61 of 144 elements, in input channels 8 to 15 of 16, it is 0"]


def test_channels_are_before_or_after_by_their_numbers() -> None:
    right = np.random.default_rng(4).normal(size=16)
    found = [at(right, np.s_[8:], right[:8]), np.roll(right, 3)]
    said = [next(iter(moved(view_of(one, right, "k")))).said for one in found]
    assert said == ["each channel holds what belongs to the channel 8 before it",
                    "each channel holds what belongs to the channel 3 before it, around the end"]


def test_a_power_is_told_of_numbers_that_differ() -> None:
    """Of numbers around 1 every smooth function is a power."""
    rng = np.random.default_rng(5)
    for spread, known in ((0.01, False), (2.0, True)):
        right = np.exp(spread * rng.normal(size=(1, 64, 3, 3)))
        seen_so = [one.said for one in functions(view_of(0.5 * right**1.8, right, "kcrs"))]
        assert any("to the power 1.8" in one for one in seen_so) is known


def test_what_is_only_a_fit_is_no_cause() -> None:
    """The square of small numbers leaves little of an error that is their loss; where they are wrong is certain."""
    lines = finding_lines(1, Finding(Z, 0, "conv two", 9.0, where="3 of 9 elements: row 2 of 3",
                                     seen=Seen("it is the square", "the code", 0.06)))
    assert "square" not in " ".join(lines) and lines[-1] == "Wrong: 3 of 9 elements: row 2 of 3."


def test_a_search_that_was_stopped_says_so() -> None:
    """It has not tried all that it knows."""
    for given in ({}, {"seen": Seen("a description", "the code", 0.0)}):
        whole, stopped = (" ".join(finding_lines(1, Finding(Z, 0, "conv two", 9.0, cut=cut, **given)))
                          for cut in (False, True))
        assert "no known fault" in whole.lower() and "--diagnosis-time" not in whole
        assert "none of the known faults that were tried" in stopped.lower() and "--diagnosis-time" in stopped


def test_an_unknown_bias_gradient_refers_to_its_filter_gradient() -> None:
    """It has too few numbers to say what the filter gradient of the same dz says."""
    known = Finding(DW, 0, "the filter gradient of two", 9.0, seen=Seen("a description", "the code", 0.0))
    for name, refers in ((DB, True), ("grads/one/bias", False)):
        lines = " ".join(finding_lines(2, Finding(name, 0, "the bias gradient", 9.0), [known]))
        assert (f"the same gradient as {DW}" in lines) == refers, lines


def test_a_search_of_pairs_that_ends_by_itself_was_not_stopped(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own limit is none that somebody gave."""
    monkeypatch.setattr("bridge.judge.diagnosis.search.TWO_FAULTS", 0.0)
    noise = np.random.default_rng(0).normal(size=lab.right(DW).shape)
    for seconds, cut in ((600.0, False), (0.0, True)):
        search = Search(lab.case(DW, lab.right(DW) + noise), now() + seconds)
        assert not search.run(search.place)[0] and search.cut is cut


def test_the_usual_time_does_not_stop_a_search_of_pairs() -> None:
    """Else the report says that time was up of a search that more time would not help."""
    assert SHARE * BUDGET * TRYING >= 1.2 * TWO_FAULTS


def test_losses_of_other_times_are_recognised(lab: Lab) -> None:
    """Each agrees at the first wrong step, and at the next one, too."""
    steps = range(1, lab.pair.steps)
    rights = [float(lab.right("loss", step)[0]) for step in range(lab.pair.steps)]
    after = []
    for step in steps:
        weights = lab.graph(step + 1).weights
        again = StepGraph(lab.pair, step, weights, ignored=frozenset(lab.pair.shapes))
        after.append(float(again.operation("loss").values()[0]))
    for said, values in (
        ("the mean of the losses so far", [np.mean(rights[: step + 1]) for step in steps]),
        ("the loss of this batch after the update", after),
        ("-10*log10 of the mean square (decibels)", [-10 * np.log10(rights[step]) for step in steps]),
    ):
        cases = [lab.case("loss", np.array([value]), step) for step, value in zip(steps, values, strict=True)]
        found = describe(cases[0], cases[0].right.full(lab.arithmetic), lambda: False, cases[1:])
        assert found is not None and found.said == f"it is {said}"


@pytest.fixture(scope="module")
def strided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A layer of two groups, and one whose stride leaves pixels that no output reaches."""
    def model() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Conv2d(2, 6, 1), torch.nn.Conv2d(6, 4, 3, padding=1, groups=2),
                                   torch.nn.Conv2d(4, 3, 1, stride=2))

    lab = Lab(*make(tmp_path_factory.mktemp("strided"), model=model, height=16, width=18))
    yield lab
    lab.close()


def test_groups_that_are_written_at_the_offsets_of_the_other_side(strided: Lab) -> None:
    """Groups of 3 inputs and 2 outputs: the data gradient is written 2 channels apart, over what is there."""
    right = strided.right("grads/0/output")
    found = np.zeros_like(right)
    found[:, :3], found[:, 2:5] = right[:, :3], right[:, 3:]
    seen_there = seen(strided, "grads/0/output", found)
    assert seen_there is not None and seen_there.exact
    assert "each group is written over what is there, 2 channels after the group before it, not 3" in seen_there.said


@pytest.mark.parametrize("name", ["forward/1", "grads/0/output"])
def test_groups_with_the_filters_of_another_are_described(strided: Lab, name: str) -> None:
    right = strided.graph().operation(name)
    of_first = right.replaced(w=np.concatenate([right.w[:2]] * 2)).values()
    found = seen(strided, name, of_first)
    assert found is not None and found.exact and "all groups use the filters of group 0" in found.said, found


@pytest.mark.parametrize(("operand", "said"), [("x", "input channels"), ("dz", "channels of dz")])
def test_filter_gradients_by_the_channels_of_another_group_are_described(
    strided: Lab, operand: str, said: str
) -> None:
    right = strided.graph().operation("grads/1/weight")
    x = getattr(right, operand).value
    of_first = np.concatenate([x[:, : x.shape[1] // 2]] * 2, 1)
    found = seen(strided, "grads/1/weight", right.replaced(**{operand: Predicted(of_first)}).values())
    assert found is not None and found.exact and f"all groups use the {said} of group 0" in found.said, found


def test_copies_where_nothing_belongs_are_no_sum(strided: Lab) -> None:
    """A pixel of a stride of 2 that is divided without the test whether it is even."""
    right = strided.right("grads/1/output")
    assert not right[:, :, 1::2].any()
    found = seen(strided, "grads/1/output", right[:, :, np.arange(16) // 2 * 2][..., np.arange(18) // 2 * 2])
    assert found is not None and found.exact and "without the test whether a pixel lies on the stride" in found.said
    odd = at(right, np.s_[:, :, 1::2], right[:, :, ::2])
    view = View(odd, right, np.full(1, 1e-12), AXES["nchw"])
    assert ["1 above" in one.said and "should be exactly 0" in one.said for one in neighbours(view)] == [True]
    mixed = right + at(np.zeros_like(right), np.s_[..., 1::2], 0.5 * right[..., ::2]) + 0.5 * odd * (right == 0)
    assert not any("sum" in one.said for one in neighbours(View(mixed, right, np.full(1, 1e-12), AXES["nchw"])))
