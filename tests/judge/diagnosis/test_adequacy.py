# SPDX-License-Identifier: MIT
"""What data can show: blind data are called blind, good ones see everything that float32 can."""

from __future__ import annotations

import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from bridge.exchange.file import ExchangeFile
from bridge.judge.diagnosis import KINDS
from bridge.judge.diagnosis.catalogue import BEYOND_CHAINS
from bridge.judge.diagnosis.faults import crop
from bridge.judge.diagnosis.faults.crop import Crop
from bridge.judge.diagnosis.records import VISIBLE, Adequacy
from bridge.judge.measure.file_pair import FilePair
from bridge.validate.self_test.candidate import train
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.candidates import result_of
from tests.helpers.judged.diagnosed import make
from tests.helpers.judged.opened import computed
from tests.helpers.tiers import few
from tests.helpers.torch_graphs import Denoiser, Dropped, Resnet, Segmenter, Unet

Array = np.ndarray


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The default model on small images."""
    folder = tmp_path_factory.mktemp("default")
    export(folder / "fixture.h5", ExportSettings(height=64, width=72, batch=3))
    return folder / "fixture.h5", train(folder / "fixture.h5", folder / "result.h5")


def best(found: Adequacy, key: str, detail: str = "", tensor: str = "") -> float:
    """The best chance to see a fault."""
    ratios = [s.ratio for s in found.sights if s.kind.key == key and detail in s.detail and tensor in s.tensor]
    assert ratios, f"{key} {detail} {tensor} was not computed"
    return max(ratios)


def edited(fixture: Path, path: Path, **arrays: Array) -> tuple[Path, Path]:
    """A fixture with other tensors, and what a right program makes of it; what followed from them is left out."""
    with h5py.File(fixture) as source, h5py.File(path, "w") as file:
        for name, value in source.attrs.items():
            file.attrs[name] = value
        source.copy("model", file)
        source.copy("optimizer", file)
        for name in ("batches", "steps/0/weights"):
            source.copy(name, file.require_group("/".join(name.split("/")[:-1]) or "/"))
        for name, value in arrays.items():
            for batch in file["batches"].values() if name in ("input", "target") else ():
                batch[name][...] = value
    result = train(path, path.with_suffix(".result.h5"))
    with h5py.File(result) as source, h5py.File(path, "r+") as file:
        for step in source["steps"]:
            for name in source[f"steps/{step}"]:
                if name not in file.require_group(f"steps/{step}"):
                    source.copy(f"steps/{step}/{name}", file[f"steps/{step}"])
    return path, result


#: What the default data cannot show, and why that is no fault of theirs
INVISIBLE = {
    ("mask_other", "elements that are exactly 0 pass (>= in place of >)"): "no pre-activation is exactly 0",
    ("naive_sum", "a sequential float32 sum"): "of so few terms it is as good as any other",
    ("naive_sum", "a sequential float32 sum of scaled terms"): "the same",
    ("underflow", "below the smallest normal number of float32 (1.2e-38): 0"): "no number is that small",
}


def test_default_data_see_everything_that_float32_can(default: tuple[Path, Path]) -> None:
    found = computed(*default)
    assert {(one.kind.key, one.detail) for one in found.blind} == set(INVISIBLE)
    assert len(found.sights) > 1000
    kinds = {one.kind.number for one in found.sights}
    # Those that data cannot show are remarks
    assert {one.number for one in KINDS if one.key not in BEYOND_CHAINS} - kinds == {26, 27, 29, 41}
    assert any(remark.startswith("two runs differ: only a second run shows it") for remark in found.remarks)
    # Of an element that is 1 % off a hundredth is seen of what a missing tensor shows
    for name in ("forward/conv1", "grads/conv1/weight", "loss"):
        assert best(found, "corrupted", "one element 1 % off", name) == pytest.approx(
            0.01 * best(found, "stale", "all zero", name), rel=1e-9)


@pytest.mark.deep
def test_constant_images(default: tuple[Path, Path], tmp_path: Path) -> None:
    """The first layer cannot tell their pixels apart; only the border and what follows can."""
    found = computed(*edited(default[0], tmp_path / "f.h5", input=np.float32(0.5), target=np.float32(0.25)))
    good = computed(*default)
    for key, detail in (
        ("image_transposed", "the input: reversed along h"),
        ("image_transposed", "the input: memory in the order (n,c,w,h)"),
        ("channels_permuted", "the input: reversed along n"),
    ):
        for tensor in ("forward/conv1", "grads/conv1/weight"):
            assert best(found, key, detail, tensor) < VISIBLE
            assert best(good, key, detail, tensor) > 100


@pytest.mark.deep
def test_symmetric_images(default: tuple[Path, Path], tmp_path: Path) -> None:
    with h5py.File(default[0]) as file:
        x = file["batches/0/input"][()]
    found = computed(*edited(default[0], tmp_path / "f.h5", input=x + x[..., ::-1]))
    assert best(found, "image_transposed", "the input: reversed along w", "forward/conv1") < VISIBLE
    assert best(found, "image_transposed", "the input: reversed along h", "forward/conv1") > 100


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One convolution with one input and one output channel, of square images."""
    folder = tmp_path_factory.mktemp("single")
    settings = {"height": 16, "width": 16, "batch": 2, "steps": 1}
    return make(folder, model=lambda: nn.Sequential(nn.Conv2d(1, 1, 3, padding=1)), **settings)[0]


def test_one_channel(single: Path, tmp_path: Path) -> None:
    """There are no channels to be swapped, and one step shows no memory."""
    blind = {(one.kind.key, one.detail) for one in computed(*edited(single, tmp_path / "f.h5")).blind}
    assert ("in_out_swapped", "there is nothing to show it on") in blind
    assert {("accumulated", "from the second step on"), ("state", "from the second step on")} <= blind
    assert "kernel_flipped" not in {key for key, _ in blind}


@pytest.mark.deep
def test_images_that_are_their_own_transposes(single: Path, tmp_path: Path) -> None:
    with h5py.File(single) as file:
        x = file["batches/0/input"][()]
    order = "the input: memory in the order (n,c,h,w), read as (n,c,w,h)"
    for image, seen in ((x + x.swapaxes(2, 3), False), (x, True)):
        found = computed(*edited(single, tmp_path / "f.h5", input=image))
        assert (best(found, "image_transposed", order) > VISIBLE) == seen


@pytest.mark.deep
def test_symmetric_kernels(single: Path, tmp_path: Path) -> None:
    path, result = edited(single, tmp_path / "f.h5")
    for file_name in (path, result):
        with h5py.File(file_name, "r+") as file:
            w = file["steps/0/weights/0/weight"]
            w[...] = w[()] + w[()][..., ::-1, ::-1]
    found = computed(path, result)
    assert best(found, "kernel_flipped", "kernel reversed along r and s", "forward/0") < VISIBLE
    assert best(found, "dgrad_not_rotated", "", "grads/input") < VISIBLE
    # A gradient is as asymmetric as before
    assert best(found, "kernel_flipped", "reversed along r and s", "grads/0/weight") > VISIBLE


def test_a_fixture_of_weights_and_batches_alone(single: Path, tmp_path: Path) -> None:
    """Its updates are not computed, and it says so."""
    path, result = edited(single, tmp_path / "f.h5")
    with h5py.File(path, "r+") as file:
        del file["steps/0/grads"], file["steps/0/forward"], file["steps/0/loss"], file["steps/1"]
    remarks = computed(path, result).remarks
    assert "optimizer/0/weight is not computed: the fixture lacks its own gradients" in remarks


def test_upstream_gradients_of_ones(single: Path, tmp_path: Path) -> None:
    """A target at a constant distance: nothing shows in which order dz is read."""
    with ExchangeFile(single) as reference, h5py.File(single) as file:
        x, w, b = (torch.from_numpy(file[name][()]) for name in INPUTS)
        assert reference.model is not None
    y = torch.conv2d(x, w, b, padding=1).numpy()
    found = computed(*edited(single, tmp_path / "f.h5", target=y - np.float32(0.5)))
    for detail in ("dz: reversed along h", "dz: memory in the order (n,c,h,w), read as (n,c,w,h)"):
        # Up to the rounding of the target
        assert best(found, "image_transposed", detail, "grads/0/weight") < VISIBLE
        usual = computed(*edited(single, tmp_path / "g.h5"))
        assert best(usual, "image_transposed", detail, "grads/0/weight") > VISIBLE


INPUTS = ("batches/0/input", "steps/0/weights/0/weight", "steps/0/weights/0/bias")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of 256 x 256 pixels, of which an crop is a quarter."""
    return make(tmp_path_factory.mktemp("large"), height=256, width=256, batch=2, steps=1)


def test_a_crop_is_the_upper_left_part(large: tuple[Path, Path]) -> None:
    with ExchangeFile(large[0]) as reference, ExchangeFile(large[1]) as candidate:
        pair = FilePair(reference, candidate)
        part = Crop(pair)
        assert part.batch_shape == (2, 3, 128, 128) and part.share == 0.25
        assert part.output_shape == (2, 2, 128, 129) and part.loss_scale == 1 / (2 * 2 * 128 * 129)
        np.testing.assert_array_equal(part.batch(0, "input", 1), pair.batch(0, "input", 1)[:, :128, :128])
        np.testing.assert_array_equal(part.batch(0, "target", 1), pair.batch(0, "target", 1)[:, :128, :129])


@pytest.mark.deep
def test_a_crop_says_no_more_than_the_whole(large: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    start = time.process_time()
    part = computed(*large)
    assert time.process_time() - start < 6
    assert "computed on 2 x 128 x 128 pixels of the batch" in part.remarks
    monkeypatch.setattr(crop, "SIDE", 256)
    whole = computed(*large)
    assert not any("computed on" in remark for remark in whole.remarks)
    ratios = {(one.kind.key, one.detail, one.tensor): one.ratio for one in whole.sights}
    assert set(ratios) == {(one.kind.key, one.detail, one.tensor) for one in part.sights}
    visible = [one for one in part.sights if one.kind.key not in THRESHOLDS and one.ratio >= VISIBLE]
    assert len(visible) > 500
    for one in visible:
        assert ratios[one.kind.key, one.detail, one.tensor] >= 1, one
    sums = [one for one in visible if one.tensor.startswith("grads/") and one.tensor.endswith("/weight")]
    scaled = [one.ratio / ratios[one.kind.key, one.detail, one.tensor] for one in sums]
    assert 0.3 < np.median(scaled) <= 1


#: Faults that depend on single numbers near a threshold, which an crop may have and the whole not
THRESHOLDS = ("underflow", "storage")


@pytest.mark.parametrize("network", few([Unet, Resnet, Dropped, Denoiser, Segmenter], lambda one: one is Denoiser))
def test_graphs_say_what_their_data_cannot_show(tmp_path: Path, network: type[nn.Module]) -> None:
    """Weights 1 of a normalisation hide that they are left out; other weights show it."""
    fixture = export(tmp_path / "f.h5", ExportSettings(model=network, height=16, width=12, steps=2, threads=1)).path
    found = computed(fixture, result_of(fixture))
    assert found.sights and not any("not looked at" in remark for remark in found.remarks)
    blind = {(one.kind.key, one.detail) for one in found.blind}
    assert blind >= {(key, detail) for key, detail in INVISIBLE if key == "underflow"}
    no_weight = "factor", "batch_norm2d without the weight, as if it were 1"
    assert no_weight in blind or network is not Resnet
    assert not {"kernel_flipped", "padding_width", "scale", "activation", "branch"} & {key for key, _ in blind}
    if network is Resnet:
        with h5py.File(result := result_of(fixture), "r+") as file:
            del file["steps/0/grads/add/output"]
        with h5py.File(fixture, "r+") as file:
            file["steps/0/weights/blocks.0.bn1/weight"][...] *= 1.5
        seen = computed(fixture, result)
        assert no_weight not in {(one.kind.key, one.detail) for one in seen.blind}
        assert "grads/add/output is not in the file: faults of it show only in what follows" in seen.remarks
