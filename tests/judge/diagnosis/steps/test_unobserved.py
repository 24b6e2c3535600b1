# SPDX-License-Identifier: MIT
"""Diagnoses of whole runs: what findings have in common, and operations that the file does not show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from bridge.judge.diagnosis import Explanation, Finding, kind
from bridge.judge.diagnosis.pattern import pattern
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.edits import plant
from bridge.validate.self_test.operations import Operations, fed, only, replace
from tests.helpers.candidates import keep
from tests.helpers.judged.diagnosed import keys, make
from tests.helpers.judged.runs import Array, given_by, said
from tests.helpers.tiers import few_rows


def test_windows_that_reach_beyond_the_image(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    fixture, right = fixtures["plain"]

    def edge(x: Array) -> Array:
        x = x.copy()
        x[:, :, 0] += np.random.default_rng(0).normal(size=x[:, :, 0].shape)
        return x

    def inside(x: Array) -> Array:
        return np.roll(edge(x), 1, 2)

    where = []
    for name, change in (("edge", edge), ("inside", inside)):
        wrong = plant(right, tmp_path / f"{name}.h5", {"steps/0/forward/two": change})
        where.append(said(fixture, wrong, 5.0).findings[0].where)
    assert where[0].endswith("row 0 of 9, where windows reach beyond the image") and "beyond" not in where[1]


def copies(right: Path, change: Callable[[Array], Array], *sorts: str) -> dict[str, Callable[[Array], Array]]:
    """The same damage of every tensor whose name begins so."""
    names: list[str] = []
    with h5py.File(right) as file:
        file["steps"].visititems(lambda name, one: names.append(f"steps/{name}") if hasattr(one, "shape") else None)
    return {name: change for name in names if name.split("/")[2] in sorts}


def test_a_text_dump_is_one_damage(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """Six decimals of every number: small gradients lose most of their digits, and nothing else is named."""
    fixture, right = fixtures["momentum"]
    printed = copies(right, lambda x: np.round(x.astype(np.float64), 6).astype(np.float32), "weights", "forward",
                     "grads", "loss")
    found = said(fixture, plant(right, tmp_path / "text.h5", printed))
    assert found.findings[0].name.startswith("weights/")
    assert {one.detail for finding in found.findings for one in finding.explanations} == {"printed as %.6f"}
    assert all(one.explanations for one in found.findings)


@pytest.mark.parametrize(("change", "detail"), [
    (lambda x: x[::-1], "reversed along n"), (lambda x: x.reshape(-1, order="F").reshape(x.shape), "column-major"),
    (lambda x: np.where(np.arange(x.size).reshape(x.shape) == 3, 1e4, x), "one element"),
])
def test_activations_that_are_written_wrongly_alike_are_one_damage(
        fixtures: dict[str, tuple[Path, Path]], tmp_path: Path, change: Callable[[Array], Array], detail: str) -> None:
    """Neither a target nor a mask is another one, and no gradient is wrong."""
    def written(x: Array) -> Array:
        return np.ascontiguousarray(change(x)).astype(np.float32)

    fixture, right = fixtures["plain"]
    first, *others = said(fixture, plant(right, tmp_path / "w.h5", copies(right, written, "forward"))).findings
    assert detail in first.explanations[0].detail
    assert all(one.name.startswith("forward/") for one in others), [one.name for one in others]
    assert all(one.explanations[0].kinds == first.explanations[0].kinds for one in others)


def test_a_tail_that_is_never_written_is_one_damage(
        fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """What follows from the file's zeros is no fault of its own."""
    def cut(x: Array) -> Array:
        y = x.copy()
        y.reshape(-1)[-70:] = 0
        return y

    fixture, right = fixtures["plain"]
    first, *others = said(fixture, plant(right, tmp_path / "tail.h5", copies(right, cut, "forward"))).findings
    assert first.seen is not None and "in the last 70 elements in memory it is 0" in first.seen.said
    assert others and all(one.seen is first.seen and not one.explanations for one in others)


@pytest.mark.deep
def test_gradients_in_fixed_point_are_one_damage(
        fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """The weights moved by the gradients that were computed: no rule of the optimiser is wrong."""
    fixture, right = fixtures["momentum"]
    fixed = copies(right, lambda g: (np.rint(g / np.float32(2e-5)) * np.float32(2e-5)), "grads")
    first, *others = said(fixture, plant(right, tmp_path / "fixed.h5", fixed)).findings
    assert first.seen is not None and "rounded to multiples of 2e-05" in first.seen.said
    assert not [one.name for one in others if one.name.startswith(("optimizer/", "update/"))]


def test_tensors_of_the_next_step_are_known(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    fixture, right = fixtures["plain"]
    with h5py.File(right) as file:
        names = [f"forward/{name}" for name in file["steps/0/forward"]]
        late = {f"steps/{k}/{name}": given_by(file[f"steps/{k + 1}/{name}"][()]) for k in (0, 1) for name in names}
    findings = said(fixture, plant(right, tmp_path / "late.h5", late)).findings
    assert [one.name for one in findings] == ["forward/one", "forward/two", "forward/three"]
    assert all(one.explanations[0].detail.startswith("what belongs to the next step") for one in findings)


def test_state_names_the_step(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    fixture = fixtures["plain"][0]

    class Later(Operations):
        calls = 0

        def filter_gradient(self, layer: object, *operands: torch.Tensor) -> torch.Tensor:
            right = super().filter_gradient(layer, *operands)  # type: ignore[arg-type]
            self.calls += layer.name == "two"  # type: ignore[attr-defined]
            return right.flip(2, 3) if self.calls > 1 and layer.name == "two" else right  # type: ignore[attr-defined]

    (first,) = said(fixture, train(fixture, tmp_path / "r.h5", Later)).findings
    assert (first.name, first.step) == ("grads/two/weight", 1)
    assert keys(first.explanations[0]) == ["state", "kernel_flipped"]
    assert first.explanations[0].detail == "right at step 0, then: reversed along r and s"


def test_what_happens_once_at_a_later_step_is_no_matter_of_the_first_call(tmp_path: Path) -> None:
    fixture, right = make(tmp_path, steps=3)
    flipped = {"steps/1/grads/two/weight": lambda g: g[..., ::-1, ::-1]}
    (first,) = said(fixture, plant(right, tmp_path / "w.h5", flipped)).findings
    assert (first.step, keys(first.explanations[0])) == (1, ["kernel_flipped"])


def test_a_gradient_that_was_overwritten_in_place_is_no_dropout(
    fixtures: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    """What was written is masked already: in place of the gradient of the ReLU's output that of its input."""
    fixture, right = fixtures["plain"]
    with h5py.File(right) as file:
        later = file["steps/0/grads/one/output"][()]
    (first,) = said(fixture, plant(right, tmp_path / "w.h5", {"steps/0/grads/relu/output": lambda g: later})).findings
    assert keys(first.explanations[0]) == ["other_layer"] and len(first.explanations) == 1
    assert first.explanations[0].detail.startswith("it holds grads/one/output")


def test_an_accumulating_gradient_is_a_memory_of_its_own(
    fixtures: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    fixture = fixtures["plain"][0]

    class Adding(Operations):
        def filter_gradient(self, layer: object, *operands: torch.Tensor) -> torch.Tensor:
            name = layer.name  # type: ignore[attr-defined]
            self.buffers[name] = super().filter_gradient(layer, *operands) + self.buffers.get(name, 0)  # type: ignore[arg-type]
            return self.buffers[name]

    diagnosis = said(fixture, train(fixture, tmp_path / "r.h5", Adding))
    assert [keys(one.explanations[0]) for one in diagnosis.findings] == [["accumulated"]] * 3
    assert diagnosis.pattern == "added to old contents, in every one of the 3 wrong filter gradients"


def test_what_some_findings_have_in_common_is_counted() -> None:
    scaled = Explanation((kind("scale"),), "times 2", 0.5)
    found = [Finding(f"grads/{i}/bias", 0, f"the bias gradient of {i}", 9.0, (scaled,) if i else ()) for i in range(3)]
    assert pattern(found) == "a constant factor, in 2 of the 3 wrong bias gradients"
    assert pattern(found[1:]) == "a constant factor, in every one of the 2 wrong bias gradients"


def gradients(name: str) -> bool:
    return "grads" in name and name.endswith(("weight", "bias"))


def weights(name: str) -> bool:
    return "weights/" in name

def output(name: str) -> bool:
    return name.endswith("forward/three")


NO_ROTATION = fed("two", "data_gradient", w=lambda w: w.flip(2, 3))
NO_MASK = only("then", "relu_backward", lambda dz, da, z: da)

FLIPPED = fed("two", "conv", w=lambda w: w.flip(2, 3))
EVERYWHERE = replace(
    conv=lambda self, layer, x, w, b: Operations.conv(self, layer, x, w, None)  # no bias
)

UNOBSERVED: list[tuple[type[Operations], Callable[[str], bool], str, str]] = [
    (NO_ROTATION, gradients, "dgrad_not_rotated", "in the data gradient of two"),
    (NO_MASK, gradients, "mask_missing", "of the ReLU then: all gradients pass"),
    (FLIPPED, gradients, "kernel_flipped", "in the convolution two (forward)"),
    (NO_ROTATION, weights, "dgrad_not_rotated", "in the data gradient of two"),
    (FLIPPED, weights, "kernel_flipped", "in the convolution two (forward)"),
    (FLIPPED, output, "kernel_flipped", "in the convolution two (forward)"),
    (EVERYWHERE, output, "bias", "in every one of forward/one, forward/two, forward/three: bias missing"),
]


@pytest.mark.parametrize(("kind", "wanted", "key", "detail"),
                         few_rows(UNOBSERVED, lambda row: row[:2] == (FLIPPED, output),
                                  name=lambda h: f"{h[1].__name__}: {h[3]}"))
def test_unobserved_operations(
    fixtures: dict[str, tuple[Path, Path]],
    tmp_path: Path,
    kind: type[Operations],
    wanted: Callable[[str], bool],
    key: str,
    detail: str,
) -> None:
    fixture = fixtures["plain"][0]
    part = keep(train(fixture, tmp_path / "whole.h5", kind), tmp_path / "part.h5", wanted, head=False)
    first = said(fixture, part).findings[0]
    assert keys(first.explanations[0]) == [key] and detail in first.explanations[0].detail


def test_budget_is_kept(fixtures: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """Noise in the only gradient that the file has: everything could be tried. And nothing is, in no time."""
    fixture, right = fixtures["plain"]
    noise = np.random.default_rng(0)
    wrong = plant(
        right, tmp_path / "w.h5", {"steps/0/grads/one/weight": lambda g: noise.normal(size=g.shape).astype(g.dtype)}
    )
    part = keep(wrong, tmp_path / "part.h5", lambda name: name == "steps/0/grads/one/weight", head=False)
    for budget, limit in ((0.0, 2.0), (1.5, 6.0)):
        diagnosis = said(fixture, part, budget)
        assert not any(finding.explanations for finding in diagnosis.findings) and diagnosis.seconds < limit
        assert (len(diagnosis.findings), diagnosis.not_searched) == ((1, 0) if budget else (0, 1))
