# SPDX-License-Identifier: MIT
"""The search: pairs of faults, faults of a part, and what data cannot tell apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.search import Search
from tests.helpers.judged.diagnosed import Lab, keys
from tests.helpers.judged.searched import DW, DX, Array, Z, changed, flipped, fortran, hwcn
from tests.helpers.tiers import few_rows

PAIRS: list[tuple[str, Callable[[Lab], Array], set[str], str]] = [
    (
        DW,
        lambda lab: fortran(flipped(lab.right(DW))),
        {"kernel_flipped", "column_major"},
        "reversed along r and s, then",
    ),
    (
        DW,
        lambda lab: 0.5 * flipped(lab.right(DW)),
        {"kernel_flipped", "scale"},
        "reversed along r and s; then times 0.5",
    ),
    (DW, lambda lab: hwcn(changed(lab, DW, moved=(1, 0))), {"shifted_gradient", "nhwc"}, "(+1 in h); then memory"),
    (
        Z,
        lambda lab: changed(lab, Z, bias_factor=0.0, w=flipped(lab.graph().operation(Z).w)),
        {"bias", "kernel_flipped"},
        "kernel reversed along r and s; then bias missing",
    ),
    (
        DX,
        lambda lab: changed(lab, DX, shift=(1, 0), w=fortran(lab.graph().operation(DX).w)),
        {"column_major", "shifted_gradient"},
        "; then dz one pixel off (+1 in h)",
    ),
]


@pytest.mark.parametrize(("name", "wrong", "kinds", "detail"), few_rows(PAIRS, 2, name=lambda p: p[3]))
def test_two_faults(lab: Lab, name: str, wrong: Callable[[Lab], Array], kinds: set[str], detail: str) -> None:
    explanations, _ = lab.search(name, wrong(lab))
    assert {one.key for one in explanations[0].kinds} == kinds and detail in explanations[0].detail


@pytest.mark.parametrize(("name", "place", "change", "key", "detail"), few_rows([
    (Z, np.s_[:, :, 1::2], {"bias_factor": 0.0}, "bias", "in every 2nd row (1, 3, 5 and 7) alone: bias missing"),
    (DX, np.s_[:, 3:], {"shift": (1, 0)}, "shifted_gradient",
     "in channels 3 to 4 of 5 alone: dz one pixel off (+1 in h)"),
    (DX, np.s_[2:], {"shift": (1, 0)}, "shifted_gradient",
     "in images 2 to 3 of 4 alone: dz one pixel off (+1 in h)"),
], 1))
def test_a_fault_of_a_part(
    lab: Lab, name: str, place: tuple[slice, ...], change: dict[str, object], key: str, detail: str
) -> None:
    """All that is outside of it is right."""
    found, wrong = lab.right(name).copy(), changed(lab, name, **change)
    found[place] = wrong[place]
    (first, *_), _ = lab.search(name, found)
    assert (keys(first), first.detail) == ([key], detail)
    # What is wrong elsewhere too is another fault
    found[0, 0, 0] *= 1.5
    explanations, _ = lab.search(name, found, seconds=3.0)
    assert not [one for one in explanations if not one.by_place]


def test_a_column_without_a_sum_is_no_other_stride(lab: Lab) -> None:
    """In a few columns a wrong geometry comes to anything."""
    found = lab.right(Z).copy()
    found[..., -1] = lab.graph().operation(Z).b[:, None]
    explanations, _ = lab.search(Z, found, seconds=6.0)
    assert all(one.by_place for one in explanations)


def test_a_part_leaves_out_no_channel_that_is_0(lab: Lab) -> None:
    some = Predicted(lab.right("forward/relu") * (np.arange(5) < 4)[:, None, None])
    right = lab.graph().operation(DW).replaced(x=some)
    twice = right.replaced(images=(0, 1, 2, 3, 1)).values()
    found = right.values()
    found[2:] = twice[2:]
    search = Search(replace(lab.case(DW, found), right=right), math.inf)
    (first, *_), _ = search.run(search.place)
    assert first.detail == "in output channels 2 to 3 of 4 alone: image 1 of the batch twice"


def test_weights_of_another_step_in_a_part(lab: Lab) -> None:
    right, old = lab.graph(2).operation(DX).values(), lab.graph(2).operation(DX).replaced(
        w=lab.graph(1).weights["two/weight"]).values()
    wrong = np.concatenate([right[:, :3], old[:, 3:]], 1)
    (first, *_), _ = lab.search(DX, wrong, 2)
    assert keys(first) == ["previous_step"] and not first.by_place
    assert first.detail == "in channels 3 to 4 of 5 alone: the weights of the step before"


def test_operands_of_other_batches(lab: Lab) -> None:
    graph, before = lab.graph(1), lab.graph(0)
    filters = graph.operation("grads/two/weight")
    half = filters.x.value.copy()
    half[2:] = before.value("forward/relu").value[2:]
    nearest = lab.graph(0).operation("grads/one/weight")
    for name, step, wrong, detail in (
        ("grads/two/weight", 1, filters.replaced(x=Predicted(half)), "the input of the last 2 images is that of the"),
        ("grads/one/weight", 0, nearest.replaced(x=lab.graph(1).value("input")), "the input of the next step"),
    ):
        (first, *_), _ = lab.search(name, wrong.values(), step)
        assert keys(first) == ["previous_step"] and first.detail.startswith(detail)


def test_relus_beside_their_bias_and_mask(lab: Lab) -> None:
    z, da = lab.right("forward/one"), lab.right("grads/relu/output")
    b = lab.pair.start["one/bias"].astype(np.float64)[:, None, None]
    mask = (z > 0).transpose(0, 2, 3, 1).reshape(z.shape)
    for name, wrong, key, detail in (
        ("forward/relu", np.maximum(z - b, 0) + b, "bias", "added after the ReLU"),
        ("grads/one/output", da * mask, "nhwc", "the mask: memory in the order (n,h,w,c)"),
    ):
        (first, *_), _ = lab.search(name, wrong)
        assert keys(first) == [key] and first.detail.startswith(detail), first.detail


@pytest.mark.deep
def test_old_contents(lab: Lab) -> None:
    """Of the step before: added, in place of the new ones, and both scrambled."""
    old = lab.right(DW)
    earlier, right = {"the step before": old}, lab.right(DW, 1)
    for wrong, key in ((right + old, "accumulated"), (old, "previous_step")):
        explanations, _ = lab.search(DW, wrong, 1, earlier)
        assert keys(explanations[0]) == [key]
    explanations, _ = lab.search(DW, fortran(right) + old, 1, earlier)
    assert set(keys(explanations[0])) == {"accumulated", "column_major"}
    explanations, _ = lab.search(DW, lab.right(DW, 0), 2, {"step 0": old})
    assert keys(explanations[0]) == ["stale"] and explanations[0].detail == "a copy of step 0"


def test_what_data_cannot_tell_apart_is_named_together(lab: Lab) -> None:
    """All kernels are symmetric: a data gradient without the rotation is a right one, and so is any flip."""
    right = lab.graph().operation(DX)
    symmetric = right.replaced(w=right.w + right.w[:, :, :, ::-1])
    case = lab.case(DX, symmetric.replaced(w=symmetric.w[:, :, ::-1]).values())
    case.right = symmetric
    search = Search(case)
    explanations, _ = search.run(search.place)
    details = {one.detail for one in explanations}
    assert details == {"kernel reversed along r", "kernel reversed along r and s"}
    assert {key for one in explanations for key in keys(one)} == {"kernel_flipped", "dgrad_not_rotated"}


def test_a_channel_that_is_always_zero(lab: Lab) -> None:
    """Its gradient is exactly 0 and has no bound; swapped, numbers with a bound stand in its place."""
    case = lab.case(DW, lab.right(DW))
    x = case.right.x.value.copy()
    x[:, 2] = 0
    case.right = case.right.replaced(x=Predicted(x))
    truth = case.right.full(lab.arithmetic)
    rounded = truth.value + 0.3 * truth.error * np.random.default_rng(0).uniform(-1, 1, truth.value.shape)
    case.found = np.swapaxes(rounded, 0, 1).reshape(rounded.shape)
    search = Search(case)
    explanations, _ = search.run(search.place)
    assert keys(explanations[0]) == ["in_out_swapped"]
