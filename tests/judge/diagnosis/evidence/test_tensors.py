# SPDX-License-Identifier: MIT
"""Wrong tensors that no known fault predicts are described; what has no structure is not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bridge.common.threads import one_core
from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.clock import now
from bridge.judge.diagnosis.evidence.derivatives import derivatives
from bridge.judge.diagnosis.evidence.describe import chosen, known_tensors
from bridge.judge.diagnosis.evidence.orders import blocked, orders
from bridge.judge.diagnosis.evidence.places.extent import extent
from bridge.judge.diagnosis.evidence.places.masks import masks
from bridge.judge.diagnosis.evidence.places.neighbours import turned
from bridge.judge.diagnosis.evidence.places.planes import planes
from bridge.judge.diagnosis.evidence.slices import mixtures, moved
from bridge.judge.diagnosis.evidence.view import AXES, Seen, View
from bridge.judge.diagnosis.predictions.elementwise import ReluBackward
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.predictions.step_graph import StepGraph
from bridge.judge.diagnosis.records import MOSTLY, Finding
from bridge.judge.diagnosis.search import Search
from bridge.report.facts import finding_lines
from tests.helpers.judged.diagnosed import Lab, make
from tests.helpers.judged.evidence import DB, DW, DY, DZ, A, Array, Z, at, seen, with_operand, without


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
    assert found is not None and "after the first 65 of 108 in memory do not count" in found.said


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
    assert first.detail == "the mask of the first image for all"
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
