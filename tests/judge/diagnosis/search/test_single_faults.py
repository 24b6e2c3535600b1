# SPDX-License-Identifier: MIT
"""The search: factors, and single faults of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from bridge.judge.diagnosis.faults.factors import factor_detail, fitted, is_count, is_named
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.search import Search
from bridge.judge.oracle.reduced_precision import to_bf16
from tests.helpers.judged.diagnosed import Lab, keys
from tests.helpers.judged.searched import DW, DX, Array, Z, changed, flipped, fortran, hwcn
from tests.helpers.tiers import few, few_rows


class TestFactors:
    dimensions: ClassVar[dict[str, int]] = {"N": 1536, "B": 3, "H*W": 437, "H": 19, "W": 23, "C": 16}

    @pytest.mark.parametrize(
        ("factor", "said"),
        [
            (2.0, "times 2 (2)"),
            (0.5, "times 0.5 (1/2)"),
            (-1.0, "times -1 (-1)"),
            (1 / 3, "times 0.333333 (1/B, B = 3)"),
            (1536.0, "times 1536 (N, N = 1536)"),
            (2 / 1536, "times 0.00130208 (2/N, N = 1536)"),
            (3 * 437.0, "times 1311 (B*H*W, B = 3, H*W = 437)"),
            (16 / 437, "times 0.0366133 (C/(H*W), H*W = 437, C = 16)"),
            (1536 / 1535, "times 1.00065 (N/1535, N = 1536)"),
            (0.7773, "times 0.7773 (no product of the dimensions)"),
        ],
    )
    def test_are_named(self, factor: float, said: str) -> None:
        predicted = np.random.default_rng(0).normal(size=200)
        rounded = factor * predicted * (1 + 1e-7 * np.random.default_rng(1).normal(size=200))
        found = fitted(predicted, rounded, self.dimensions)
        assert found is not None and found == pytest.approx(factor, rel=1e-6)
        assert factor_detail(found, self.dimensions) == said
        # Exactly, where it has a name
        assert is_named(found, self.dimensions) == (factor != 0.7773)
        assert (found == factor) == (factor != 0.7773)

    def test_padded_count(self) -> None:
        """The mean over images with their borders of 1 pixel, of a loss over 3 x 1 x 20 x 24 elements."""
        dimensions = {"N": 1440, "B": 3, "H": 20, "W": 24}
        factor = 1440 / (3 * 22 * 26)
        assert is_count(factor, dimensions)
        assert factor_detail(factor, dimensions) == "times 0.839161 (N/1716, N = 1440)"

    def test_rows_that_are_counted_with_their_padding(self) -> None:
        dimensions = {"N": 3 * 24 * 28, "H": 24, "W": 28}
        x = np.arange(1.0, 100)
        factor = fitted(x, 0.875 * x, dimensions)
        assert factor is not None and is_count(factor, dimensions)
        assert factor_detail(factor, dimensions) == "times 0.875 (N/2304, N = 2016: rows of W = 28 counted as 32)"

    def test_one_number_is_proportional_to_everything(self) -> None:
        right, dimensions = np.array([0.3]), {"N": 1536}
        assert fitted(right, 0.7773 * right, dimensions) is None
        assert fitted(right, 2 * right, dimensions) == 2.0
        assert fitted(right, right * 1536 / 1535, dimensions) == 1536 / 1535
        assert fitted(np.ones(4), 0.7773 * np.ones(4), dimensions) == pytest.approx(0.7773)

    @pytest.mark.parametrize("size", [1, 2, 4, 9, 500])
    def test_noise_has_no_factor(self, size: int) -> None:
        for seed in range(60):
            rng = np.random.default_rng(seed)
            a, b = rng.normal(size=(2, size))
            factor = fitted(a, b, self.dimensions)
            if size > 4:
                assert factor is None
            elif factor is not None:
                # Of few numbers some are nearly proportional; never more nearly than that
                assert np.linalg.norm(b - factor * a) <= 0.1 * np.linalg.norm(b)

    def test_nothing_and_nan(self) -> None:
        for a, b in (([0.0, 0.0], [1.0, 1.0]), ([1.0, 1.0], [0.0, 0.0]), ([1.0, 1.0], [np.nan, 1.0])):
            assert fitted(np.array(a), np.array(b), {}) is None

SINGLE: list[tuple[str, Callable[[Array], Array], str, str]] = [
    (DW, flipped, "kernel_flipped", "reversed along r and s"),
    (DW, lambda g: g[..., ::-1], "kernel_flipped", "reversed along s"),
    (DW, fortran, "column_major", "memory in C's order (k,c,r,s), read column-major"),
    (DW, lambda g: g.ravel(order="F").reshape(g.shape), "column_major", "memory that Fortran wrote"),
    (DW, hwcn, "nhwc", "memory in the order (r,s,c,k)"),
    (DW, lambda g: g.transpose(0, 1, 3, 2), "taps_transposed", "memory in the order (k,c,r,s), read as (k,c,s,r)"),
    (DW, lambda g: 0.5 * g, "scale", "times 0.5 (1/2)"),
    (DW, lambda g: g / 4, "scale", "times 0.25 (1/B, B = 4)"),
    (DW, lambda g: 0.7773 * g, "scale", "no product of the dimensions"),
    (DW, lambda g: g[[2, 0, 3, 1]], "channels_permuted", "channels in the order 2, 0, 3, 1"),
    (Z, lambda z: z.astype(np.float16), "storage", "rounded to fp16"),
    (DW, lambda g: np.round(g, 5), "storage", "printed as %.5f"),
    (DW, np.zeros_like, "stale", "all zero"),
    (DX, lambda g: np.roll(g, 1, 2), "shifted_gradient", "around the border"),
    (DX, lambda g: np.roll(g, -1, 3) * (np.arange(12) < 11), "shifted_gradient", "one pixel off (-1 in w), zeros"),
    (Z, lambda z: z[::-1], "channels_permuted", "reversed along n"),
    (Z, lambda z: z.transpose(0, 2, 3, 1).reshape(z.shape), "nhwc", "memory in the order (n,h,w,c)"),
    ("loss", lambda x: x * 864 / 863, "count", "N/863"),
    ("loss", lambda x: 2 * x, "scale", "times 2"),
    ("grads/three/output", lambda g: g / 2, "factor_two", "times 0.5"),
    ("grads/two/bias", lambda g: g[::-1], "channels_permuted", "reversed along k"),
]


@pytest.mark.parametrize(("name", "edit", "key", "detail"), few_rows(SINGLE, 10, name=lambda s: f"{s[0]} {s[3]}"))
def test_one_fault_of_what_came_out(lab: Lab, name: str, edit: Callable[[Array], Array], key: str, detail: str) -> None:
    explanations, runner_up = lab.search(name, edit(lab.right(name)))
    assert keys(explanations[0]) == [key] and detail in explanations[0].detail
    assert explanations[0].t <= 1
    assert all(len(one.kinds) == 1 for one in explanations)
    # Nothing else comes near
    assert runner_up is not None and runner_up.t > 10

INSIDE: list[tuple[str, dict[str, object], str, str]] = [
    (Z, {"bias_factor": 0.0}, "bias", "bias missing"),
    (Z, {"mode": "reflect"}, "padding_mode", "reflect padding"),
    (Z, {"shift": (1, 0)}, "padding_width", "the input one pixel off (+1 in h)"),
    (Z, {"bias_axis": 3}, "bias_axis", "bias along w"),
    (DX, {"shift": (0, 1)}, "shifted_gradient", "dz one pixel off (+1 in w)"),
    (DW, {"moved": (1, 1)}, "shifted_gradient", "dz one pixel off (+1 in h, +1 in w)"),
    (DW, {"mode": "circular"}, "padding_mode", "circular padding"),
    (DW, {"images": (0, 1, 2)}, "part_of_batch", "only images 0, 1, 2 of the batch"),
    ("grads/two/bias", {"images": (1,)}, "part_of_batch", "only image 1 of the batch"),
    ("grads/two/bias", {"part": (slice(1, None), slice(None))}, "part_of_batch", "without the first row"),
    ("forward/relu", {"slope": 0.2}, "leaky", "slope 0.2 for negative values"),
    ("grads/two/output", {"rule": "negative"}, "mask_other", "the mask inverted"),
    ("loss", {"images": (0, 1)}, "part_of_batch", "only images 0, 1 of the batch"),
]


@pytest.mark.parametrize(("name", "change", "key", "detail"), few_rows(INSIDE, 3, name=lambda i: f"{i[0]} {i[3]}"))
def test_one_fault_inside(lab: Lab, name: str, change: dict[str, object], key: str, detail: str) -> None:
    explanations, runner_up = lab.search(name, changed(lab, name, **change))
    assert keys(explanations[0]) == [key] and explanations[0].detail == detail
    assert runner_up is None or runner_up.t > 20


def counted(dz: Array, row: int, times: float) -> Array:
    dz = dz.copy()
    dz[:, :, row] *= times
    return dz


def dropped(x: Array) -> Array:
    return np.where(np.random.default_rng(3).random(x.shape) < 0.25, 0.0, x / 0.75)


def cropped(g: Array) -> Array:
    inner = np.zeros_like(g)
    inner[..., 2:-2, 2:-2] = g[..., 2:-2, 2:-2]
    return inner * g.size / inner[..., 2:-2, 2:-2].size

FURTHER: list[tuple[str, Callable[[Lab], Array], str, str]] = [
    (DW, lambda lab: changed(lab, DW, dz=Predicted(counted(lab.right("grads/two/output"), 4, 2))), "part_of_batch",
     "row 4 of dz is summed twice"),
    ("grads/two/bias", lambda lab: counted(lab.right("grads/two/output"), 4, 0).sum((0, 2, 3)), "part_of_batch",
     "row 4 of dz is left out"),
    (DW, lambda lab: np.roll(lab.right(DW), 1, 2), "taps_rolled", "taps rolled (+1 in r)"),
    (Z, lambda lab: changed(lab, Z, w=np.roll(lab.graph().operation(Z).w, -1, 3)), "taps_rolled",
     "taps rolled (-1 in s)"),
    (DW, lambda lab: changed(lab, DW, x=lab.graph().value("forward/one")), "relu",
     "the input as it was before its ReLU"),
    (DX, lambda lab: changed(lab, DX, dz=Predicted(counted(lab.right("grads/two/output"), -1, 0))), "part_of_batch",
     "without the last row of dz"),
    (DX, lambda lab: changed(lab, DX, dz=lab.graph().value("grads/then/output")), "mask_missing",
     "dz as it was before the mask"),
    ("forward/relu", lambda lab: np.minimum(lab.right("forward/relu"), 0.5), "clipped", "clipped above 0.5"),
    (DX, lambda lab: np.where(np.abs(lab.right(DX)) < 1e-4, 0, lab.right(DX)), "underflow", "is 0"),
    (Z, lambda lab: dropped(lab.right(Z)), "dropout", "p = 0.25"),
    ("grads/three/output", lambda lab: cropped(lab.right("grads/three/output")), "padding_width",
     "a border of 2 does not count in the loss, and the mean is over the rest"),
    ("grads/three/output", lambda lab: changed(lab, "grads/three/output", target=targets(lab)[[1, 3, 0, 2]]),
     "other_target", "targets of images in the order 1, 3, 0, 2"),
    (DW, lambda lab: changed(lab, DW, x=Predicted(to_bf16(lab.right("forward/relu")))), "precision",
     "the input alone, not the other operand, is in bfloat16"),
    ("loss", lambda lab: changed(lab, "loss", target=targets(lab)[::-1]), "other_target", "in the order 3, 2, 1, 0"),
    (DW, lambda lab: changed(lab, DW, x=Predicted(np.roll(lab.right("forward/relu"), 1, 0))), "channels_permuted",
     "images in the order 3, 0, 1, 2"),
    (Z, lambda lab: changed(lab, Z, x=Predicted(np.roll(lab.right("forward/relu"), -1, 3))), "padding_width",
     "the image one pixel off (-1 in w), around the border"),
]


def targets(lab: Lab) -> Array:
    return lab.graph().value("target").value


@pytest.mark.parametrize(("name", "wrong", "key", "detail"), few_rows(FURTHER, 5, name=lambda f: f"{f[0]} {f[3]}"))
def test_what_is_met_more_rarely(lab: Lab, name: str, wrong: Callable[[Lab], Array], key: str, detail: str) -> None:
    explanations, _ = lab.search(name, wrong(lab))
    assert keys(explanations[0]) == [key] and detail in explanations[0].detail

#: What is zero, and how it came to be
ZEROS: dict[str, Callable[[Array], Array]] = {
    "every second column": lambda g: np.where(np.arange(g.shape[3]) % 2 == 0, 0, g),
    "every second pixel": lambda g: np.where(
        (np.arange(g.shape[2]) % 2 == 0)[:, None] & (np.arange(g.shape[3]) % 2 == 0), g, 0),
    "a channel": lambda g: np.where((np.arange(g.shape[1]) == 2)[:, None, None], 0, g),
    "negative numbers": lambda g: np.maximum(g, 0),
}


@pytest.mark.parametrize("which", few(ZEROS, 2))
def test_zeros_in_a_pattern_are_no_dropout(lab: Lab, which: str) -> None:
    explanations, _ = lab.search(DX, ZEROS[which](lab.right(DX)), seconds=3.0)
    assert not {"dropout", "underflow"} & {key for one in explanations for key in keys(one)}


def test_a_border_of_zeros_is_no_dropout(lab: Lab) -> None:
    """Though the rest is divided by the share that is kept."""
    explanations, _ = lab.search(DX, cropped(lab.right(DX)), seconds=3.0)
    assert not any("dropout" in keys(one) for one in explanations)


@pytest.mark.deep
def test_what_no_fault_explains_is_nearly_one_of_them_or_none(lab: Lab) -> None:
    """A few percent that are left, or two faults that leave as little, name no cause."""
    right = lab.right(DX)
    noise = right.std() * np.random.default_rng(0).normal(size=right.shape)
    for wrong, key in ((0.3 * right + 0.002 * noise, "scale"), (0.3 * right + 0.03 * noise, None)):
        explanations, runner_up = lab.search(DX, wrong, seconds=3.0)
        assert not explanations and (keys(runner_up) if runner_up else [None]) == [key], runner_up


def test_few_numbers_prove_little(lab: Lab) -> None:
    """Equal ones are not clipped, and one of a thousand predictions is near a single number."""
    name = "grads/two/bias"
    explanations, _ = lab.search(name, np.full_like(lab.right(name), lab.right(name).mean()), seconds=3.0)
    assert "clipped" not in {key for one in explanations for key in keys(one)}
    rng = np.random.default_rng(0)
    for _ in range(8):
        explanations, runner_up = lab.search("loss", lab.right("loss") * rng.uniform(0.5, 0.9, 1), seconds=3.0)
        assert runner_up is None or explanations


@pytest.mark.parametrize("dead", [np.s_[:, 2], np.s_[:, :, 4, 5]], ids=["a channel", "a pixel"])
def test_what_is_dead_beside_a_dropout_hides_it_not(lab: Lab, dead: tuple) -> None:
    """Where a ReLU lets nothing through, nothing is dropped: that is no pattern."""
    case = lab.case("forward/relu", lab.right("forward/relu"))
    z = np.abs(case.right.z.value)
    z[dead] = -1
    right = case.right.replaced(z=Predicted(z))
    kept = np.random.default_rng(3).random(z.shape) > 0.3
    search = Search(replace(case, right=right, found=right.values() * kept))
    explanations, _ = search.run(search.place)
    assert explanations and keys(explanations[0]) == ["dropout"], explanations


def test_one_tap_that_is_lost_is_no_dropout(lab: Lab) -> None:
    """Every ninth number of a filter's memory has about as many runs as of a coin."""
    wrong = lab.right(DW).copy()
    wrong[..., -1, -1] = 0
    explanations, _ = lab.search(DW, wrong, seconds=3.0)
    assert "dropout" not in {key for one in explanations for key in keys(one)}
