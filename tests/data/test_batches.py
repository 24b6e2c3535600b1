# SPDX-License-Identifier: MIT
"""A batch depends on (seed, step) alone; what it holds is what its record says; every image comes equally often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.common.errors import ArgumentError, FileError
from bridge.data import Batch, Batches, Consecutive, EvenOdd, Images, Pairs
from bridge.data.normalization import ROWS, statistics
from bridge.data.order import epoch_order
from bridge.data.orientation import copy_oriented, oriented
from tests.helpers.files.image_files import numbers, write
from tests.helpers.loops import looped

Array = np.ndarray
#: What a batch has besides its step
FIELDS = ("input", "target", "images", "corners", "orientations", "swapped", "mean", "std")
#: The symmetries of a square, by other functions than those that are tested
SYMMETRIES: list[Callable[[Array], Array]] = [
    lambda x: x, lambda x: np.rot90(x), lambda x: np.rot90(x, 2), lambda x: np.rot90(x, 3),
    np.fliplr, lambda x: np.rot90(np.fliplr(x)), np.flipud, lambda x: np.rot90(np.fliplr(x), 3)]


def equal(one: Batch, other: Batch) -> None:
    """To the bit."""
    assert one.step == other.step
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field), field, strict=True)


@pytest.fixture
def stack(tmp_path: Path) -> Array:
    """Images of which each pixel says where it is: image, row and column."""
    images = np.arange(14)[:, None, None] * 10000 + np.arange(20)[:, None] * 100 + np.arange(24)
    return images.astype(np.float32)


@pytest.fixture
def data(tmp_path: Path, stack: Array) -> Pairs:
    """Targets are the inputs' negatives."""
    return Pairs(write(tmp_path / "inputs.npy", stack), write(tmp_path / "targets.h5", -stack))


def test_a_batch_is_what_its_record_says(data: Pairs, stack: Array) -> None:
    batches = Batches(data, batch=4, crop=(7, 7), seed=3)
    for step in range(20):
        batch = batches.at(step)
        assert batch.step == step
        for tensor in (batch.input, batch.target):
            assert tensor.shape == (4, 1, 7, 7) and tensor.dtype == np.float32 and tensor.flags.c_contiguous
        for k in range(4):
            (row, column), image = batch.corners[k], stack[batch.images[k]]
            crop = SYMMETRIES[batch.orientations[k]](image[row:row + 7, column:column + 7])
            np.testing.assert_array_equal(batch.input[k, 0], crop)
            np.testing.assert_array_equal(batch.target[k, 0], -crop)
        assert not batch.swapped.any() and (batch.mean == 0).all() and (batch.std == 1).all()


def test_a_batch_depends_on_seed_and_step_alone(data: Pairs, stack: Array, tmp_path: Path) -> None:
    """Not on what was asked before, by which thread, or from which object."""
    settings: dict[str, Any] = {"batch": 3, "crop": (8, 8), "seed": 11, "normalization": "image", "crops": 2}
    first = Batches(data, **settings)
    expected = {step: first.at(step) for step in range(30)}
    again = Batches(Pairs(tmp_path / "inputs.npy", tmp_path / "targets.h5", open_files=1), **settings)
    for step in (29, 3, 3, 17, 0):
        equal(again.at(step), expected[step])
    with ThreadPoolExecutor(4) as pool:
        for step, batch in enumerate(pool.map(again.at, range(30))):
            equal(batch, expected[step])
    for threads, depth in ((1, 1), (3, 2), (2, 5)):
        for step, batch in enumerate(again.stream(5, 15, threads=threads, depth=depth), 5):
            equal(batch, expected[step])
    others = [Batches(data, **settings | {"seed": 12}), Batches(data, **settings | {"seed": 2**64 - 1})]
    assert all((other.at(3).corners != expected[3].corners).any() for other in others)
    assert (expected[3].corners != expected[4].corners).any()


@looped("ranks", (1, 2, 3, 4))
@looped("step", (0, 9))
def test_ranks_have_parts_of_the_same_batch(data: Pairs, ranks: int, step: int) -> None:
    batches = Batches(data, batch=4, crop=(5, 5), seed=1, normalization="image")
    whole, parts = batches.at(step), [batches.at(step, rank, ranks) for rank in range(ranks)]
    for field in FIELDS:
        joined = np.concatenate([getattr(part, field) for part in parts])
        np.testing.assert_array_equal(joined, getattr(whole, field), field, strict=True)
    streams = [list(batches.stream(step, step + 2, rank=rank, ranks=ranks)) for rank in range(ranks)]
    equal(streams[-1][0], parts[-1])


def test_a_batch_is_the_same_on_every_machine(data: Pairs) -> None:
    """Numbers that were written down: a change of them would change every training that is resumed."""
    batch = Batches(data, batch=4, crop=(7, 7), seed=3, crops=2, block=4).at(2)
    assert batch.images.tolist() == [0, 0, 9, 11]
    assert batch.corners.tolist() == [[10, 10], [5, 13], [3, 17], [4, 10]]
    assert batch.orientations.tolist() == [3, 5, 3, 1]


@settings(max_examples=100, deadline=None)
@given(images=st.integers(1, 60), crops=st.integers(1, 4), block=st.integers(1, 70), seed=st.integers(0, 2**64 - 1),
       epoch=st.integers(0, 2**40))
def test_an_epoch_has_every_image_equally_often(images: int, crops: int, block: int, seed: int, epoch: int) -> None:
    """And each block of neighbours at once."""
    order = epoch_order(images, crops, block, seed, epoch)
    assert Counter(order.tolist()) == dict.fromkeys(range(images), crops)
    visits = [np.flatnonzero(order == image) for image in range(images)]
    assert all(np.ptp(one) < min(block, images) * crops for one in visits)
    changes = sum(abs(a - b) >= block for a, b in pairwise(order.tolist()))
    assert changes <= -(-images // block)


def test_batches_go_through_epochs_without_gaps(data: Pairs) -> None:
    """14 images, 2 crops of each, in batches of 5: 28 batches are 5 epochs."""
    batches = Batches(data, batch=5, crop=(3, 3), seed=4, crops=2, block=3)
    assert batches.samples == 28
    taken = np.concatenate([batches.at(step).images for step in range(28)])
    for epoch in taken.reshape(5, 28):
        assert Counter(epoch.tolist()) == dict.fromkeys(range(14), 2)
    assert len({tuple(epoch) for epoch in taken.reshape(5, 28)}) == 5


def test_every_place_of_an_order_is_equally_likely() -> None:
    """Image 0 at each place of 6000 epochs: chi-square of 11 degrees of freedom, 0.1 % of right ones above 31.3."""
    places = Counter(int(np.flatnonzero(epoch_order(12, 1, 1, 5, epoch) == 0)[0]) for epoch in range(6000))
    assert sum((places[place] - 500) ** 2 / 500 for place in range(12)) < 31.3


def test_corners_and_orientations_are_equally_likely(data: Pairs) -> None:
    """3 x 7 corners and 8 orientations, 40 expected of each: chi-square of 167 degrees of freedom."""
    batches = Batches(data, batch=480, crop=(18, 18), seed=0)
    parts = [batches.at(step) for step in range(14)]
    found = Counter((int(row), int(column), int(turn)) for part in parts
                    for (row, column), turn in zip(part.corners, part.orientations, strict=True))
    cells = list(product(range(3), range(7), range(8)))
    expected = 480 * 14 / len(cells)
    assert set(found) == set(cells)
    # 0.1 % of right ones are above 228
    assert sum((found[cell] - expected) ** 2 / expected for cell in cells) < 230


@looped("orientation", range(8))
@looped("shape", [(5, 5), (40, 40), (6, 33)])
def test_orientations_are_those_of_numpy(orientation: int, shape: tuple[int, int]) -> None:
    image = numbers((2, *shape))
    expected = np.stack([SYMMETRIES[orientation](channel) for channel in image])
    np.testing.assert_array_equal(oriented(image, orientation), expected)
    out = np.full(expected.shape, np.nan, np.float32)
    copy_oriented(image, orientation, out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(("flips", "rotations", "expected"), [
    (False, False, {0}), (True, False, {0, 2, 4, 6}), (False, True, {0, 1, 2, 3}), (True, True, set(range(8)))])
def test_which_orientations_occur(data: Pairs, flips: bool, rotations: bool, expected: set[int]) -> None:
    batches = Batches(data, batch=100, crop=(3, 3), flips=flips, rotations=rotations)
    assert set(batches.at(0).orientations.tolist()) == expected


def test_crops_that_are_not_square_are_not_turned(data: Pairs, stack: Array) -> None:
    with pytest.raises(ArgumentError, match="rotations: True with crops of 3 x 5, expected square ones or "):
        Batches(data, 2, (3, 5))
    batch = Batches(data, 30, (3, 5), rotations=False).at(0)
    assert batch.input.shape == (30, 1, 3, 5) and set(batch.orientations.tolist()) == {0, 2, 4, 6}
    (row, column), flip = batch.corners[0], SYMMETRIES[batch.orientations[0]]
    np.testing.assert_array_equal(batch.input[0, 0], flip(stack[batch.images[0]][row:row + 3, column:column + 5]))


def test_halves_are_swapped_at_random(tmp_path: Path, stack: Array) -> None:
    """Half of the time, and so that the other is the target."""
    data = Consecutive(write(tmp_path / "a.npy", stack))
    batches = Batches(data, 400, (20, 24), flips=False, rotations=False, swap=True)
    batch = batches.at(0)
    assert 150 < batch.swapped.sum() < 250
    first = 2 * batch.images + batch.swapped
    np.testing.assert_array_equal(batch.input[:, 0], stack[first])
    np.testing.assert_array_equal(batch.target[:, 0], stack[2 * batch.images + ~batch.swapped])


def test_normalisation_of_each_image(tmp_path: Path) -> None:
    """By rows of the first half, all where there are few; the same for both halves, whichever is the input."""
    images = numbers((4, 150, 20), seed=1) * 3 + np.arange(4, dtype=np.float32)[:, None, None] * 50
    data = Consecutive(write(tmp_path / "a.npy", images))
    batch = Batches(data, 6, (150, 20), flips=False, rotations=False, normalization="image", swap=True).at(0)
    for k, pair in enumerate(batch.images):
        rows = images[2 * pair].astype(np.float64)[[(2 * i + 1) * 150 // (2 * ROWS) for i in range(ROWS)]]
        np.testing.assert_allclose([batch.mean[k], batch.std[k]], [rows.mean(), rows.std()], rtol=1e-12)
        for tensor, half in ((batch.input, 0), (batch.target, 1)):
            image = images[2 * pair + (half ^ bool(batch.swapped[k]))]
            np.testing.assert_allclose(tensor[k, 0], (image - batch.mean[k]) / batch.std[k], rtol=1e-5, atol=1e-5)


def test_normalisation_of_the_whole_set(tmp_path: Path, data: Pairs, stack: Array) -> None:
    """From a sample, of all images where there are few; or given, as what was found before."""
    batches = Batches(data, 3, (4, 4), seed=2, normalization="set")
    assert batches.scale == pytest.approx((stack.mean(dtype=np.float64), stack.std(dtype=np.float64)))
    given = Batches(data, 3, (4, 4), seed=2, normalization=batches.scale)
    equal(given.at(1), batches.at(1))
    plain = Batches(data, 3, (4, 4), seed=2).at(1)
    np.testing.assert_allclose(batches.at(1).target, (plain.target - batches.scale[0]) / batches.scale[1], rtol=1e-5)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("value", [0.1, 1e30, -3.7, 0.0])
def test_constant_images_do_not_divide_by_zero(tmp_path: Path, value: float, kind: type[np.floating]) -> None:
    """In float64 the mean of many is not the number itself where it is summed up."""
    path = write(tmp_path / "a.npy", np.full((2, 30, 33), value, kind))
    for normalization in ("image", "set"):
        batch = Batches(Pairs(path, path), 2, (8, 8), normalization=normalization).at(0)  # type: ignore[arg-type]
        assert (batch.input == 0).all() and (batch.std == 1).all() and (batch.mean == kind(value)).all()


@given(st.lists(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=9), min_size=1, max_size=4))
def test_statistics_of_parts_are_those_of_all(parts: list[list[float]]) -> None:
    mean, std = statistics([np.array(part) for part in parts])
    joined = np.concatenate(parts)
    assert mean == pytest.approx(joined.mean(), abs=1e-6)
    assert std == (1.0 if np.ptp(joined) == 0 else pytest.approx(joined.std(), rel=1e-5, abs=1e-150))


def test_float64_is_rounded_once(tmp_path: Path) -> None:
    """After normalisation, which would lose all digits of such images in float32."""
    images = numbers((2, 9, 9), "float64") + 1e12
    batch = Batches(Consecutive(write(tmp_path / "a.npy", images)), 1, (9, 9), flips=False, rotations=False,
                    normalization="image").at(0)
    expected = ((images[0] - batch.mean[0]) / batch.std[0]).astype(np.float32)
    np.testing.assert_array_equal(batch.input[0, 0], expected)


@pytest.mark.parametrize("normalization", [None, (1.0, 1e-300), (1e300, 1.0)])
def test_numbers_that_float32_has_not(tmp_path: Path, normalization: Any) -> None:
    size = 1e200 if normalization is None else 1.0
    kind = np.float64 if normalization is None else np.float32
    path = write(tmp_path / "a.npy", (numbers((2, 9, 9), "float64") * size).astype(kind))
    with pytest.raises(FileError, match=r"a\.npy, image 0: values too large for float32 after normalisation by mean"):
        Batches(Consecutive(path), 1, (9, 9), normalization=normalization).at(0)


def test_channels_stay_together(tmp_path: Path) -> None:
    images = numbers((4, 3, 12, 12), "uint16")
    path = write(tmp_path / "a.npy", images)
    batch = Batches(Pairs(path, path), 4, (5, 5), seed=9).at(0)
    assert batch.input.shape == (4, 3, 5, 5)
    for k in range(4):
        row, column = batch.corners[k]
        crop = images[batch.images[k], :, row:row + 5, column:column + 5]
        np.testing.assert_array_equal(batch.input[k], [SYMMETRIES[batch.orientations[k]](one) for one in crop])


def test_images_of_different_sizes(tmp_path: Path) -> None:
    """Corners are drawn from all that each has; a crop that one has no room for is refused by its name."""
    for name, size in (("a", 8), ("b", 30)):
        write(tmp_path / f"{name}.npy", numbers((size, 40)))
    data = Pairs(tmp_path, tmp_path)
    batches = Batches(data, 200, (8, 8))
    rows = batches.at(0).corners[:, 0]
    assert set(rows[batches.at(0).images == 0].tolist()) == {0} and rows.max() == 22
    with pytest.raises(ArgumentError, match=r"crop: 9 x 8, but images of \S*a\.npy are 8 x 40"):
        Batches(data, 2, (9, 8), rotations=False)


def test_movies_make_batches(tmp_path: Path) -> None:
    movies = numbers((2, 5, 10, 11), "uint8")
    data = EvenOdd([write(tmp_path / f"{k}.npy", movie) for k, movie in enumerate(movies)])
    batch = Batches(data, 2, (10, 11), flips=False, rotations=False, normalization="image").at(0)
    for k, image in enumerate(batch.images):
        for tensor, half in ((batch.input, 0), (batch.target, 1)):
            mean = movies[image, half::2].mean(axis=0, dtype=np.float64)
            np.testing.assert_allclose(tensor[k, 0], (mean - batch.mean[k]) / batch.std[k], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("settings", "expected"), [
    ({"batch": 0}, "batch: 0, expected 1 to"), ({"crop": (0, 4)}, r"crop: \(0, 4\), expected \(height, width\) of"),
    ({"seed": -1}, "seed: -1, expected 0 to"), ({"seed": 2**64}, "seed: 18446744073709551616, expected 0 to"),
    ({"crops": 0}, "crops: 0, expected 1"), ({"block": 0}, "block: 0, expected 1"),
    ({"normalization": "all"}, "normalization: 'all', expected None, 'image', 'set', or"),
    ({"normalization": (1.0, 0.0)}, "normalization: "), ({"normalization": (1.0, float("nan"))}, "normalization: ")])
def test_arguments_that_are_none(data: Pairs, settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ArgumentError, match=expected):
        Batches(data, **{"batch": 2, "crop": (4, 4), "rotations": False} | settings)


def test_steps_and_ranks_that_are_none(data: Pairs) -> None:
    batches = Batches(data, 3, (4, 4))
    for arguments, expected in (((-1,), "step: -1, expected"), ((0, 2, 2), "rank: 2 of 2, expected 0 <= rank < ranks"),
                                ((0, 0, 4), "rank: 0 of 4, .* which is 3"), ((0, -1, 2), "rank: -1 of 2")):
        with pytest.raises(ArgumentError, match=expected):
            batches.at(*arguments)
    for name, value in (("first_step", -1), ("depth", 0), ("threads", 0)):
        with pytest.raises(ArgumentError, match=f"{name}: {value}, expected"):
            batches.stream(**{name: value})


def test_the_real_micrograph(micrograph: Path) -> None:
    batches = Batches(Pairs(micrograph, micrograph), 2, (256, 256), normalization="image")
    batch = batches.at(0)
    np.testing.assert_array_equal(batch.input, batch.target)
    assert abs(batch.input.mean()) < 1 and 0.3 < batch.input.std() < 3
    with Images(micrograph) as images:
        row, column = batch.corners[0]
        crop = images.read(0, slice(row, row + 256), slice(column, column + 256))[0]
    expected = (SYMMETRIES[batch.orientations[0]](crop) - batch.mean[0]) / batch.std[0]
    np.testing.assert_allclose(batch.input[0, 0], expected, rtol=1e-5, atol=1e-5)


def test_what_cannot_be_used_gives_its_place_to_the_next(tmp_path: Path) -> None:
    """Images with NaN and images smaller than a crop: a function of data and step, as all of a batch is."""
    rng = np.random.default_rng(0)
    for number in range(6):
        image = rng.standard_normal((2, 20, 20)).astype(np.float32)
        if number == 2:
            image[1, 10, 10] = np.inf
        np.save(tmp_path / f"{number}.npy", image[:, :, :9] if number == 4 else image)
    with pytest.raises(ArgumentError, match=r"crop: 16 x 16, but images of .*4\.npy are 20 x 9"):
        Batches(EvenOdd(tmp_path), batch=2, crop=(16, 16))
    (tmp_path / "4.npy").rename(tmp_path / "4.x")
    with pytest.raises(FileError, match=r"2\.npy, image 1: inf at channel 0, row 10, column 10"):
        for step in range(4):
            Batches(EvenOdd(tmp_path), batch=2, crop=(16, 16), normalization="set").at(step)
    (tmp_path / "4.x").rename(tmp_path / "4.npy")
    for normalization in (None, "image", "set"):
        batches = Batches(EvenOdd(tmp_path, on_bad="skip"), batch=5, crop=(16, 16), normalization=normalization)
        assert len(batches.data) == 5 and "4.npy" in batches.left_out[0] and batches.samples == 5
        found, again = batches.at(0), batches.at(0)
        assert np.isfinite(found.input).all() and np.array_equal(found.input, again.input)
        assert found.left_out == again.left_out and "2.npy, image 1: inf" in found.left_out[0]
        assert sorted(batches.data.name(int(one))[-5] for one in found.images) == ["0", "1", "3", "3", "5"]
        halves = [batches.at(0, rank, 2).input for rank in range(2)]
        assert np.array_equal(np.concatenate(halves), found.input)
    for number in (0, 1, 3, 5):
        np.save(tmp_path / f"{number}.npy", np.full((2, 20, 20), np.nan, np.float32))
    with pytest.raises(FileError, match="no pair is left whose values are finite"):
        Batches(EvenOdd(tmp_path, on_bad="skip"), batch=1, crop=(16, 16)).at(0)


def test_a_batch_that_does_not_fit_is_refused_before_it_is_filled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((4, 16, 16), np.float32))
    batches = Batches(EvenOdd(tmp_path), batch=10**12, crop=(16, 16))
    for read in (lambda: batches.at(0), lambda: batches.stream(0, 1)):
        with pytest.raises(ArgumentError, match="batch: 1000000000000 with crops of 16 x 16 needs"):
            read()


@pytest.mark.parametrize("wrong", [{"seed": "a"}, {"seed": None}, {"seed": 1.5}, {"batch": 2.0}, {"crops": True},
                                   {"flips": 7}, {"rotations": None}, {"swap": 2}], ids=str)
def test_numbers_and_flags_are_checked(tmp_path: Path, wrong: dict[str, Any]) -> None:
    np.save(tmp_path / "a.npy", np.zeros((4, 16, 16), np.float32))
    with pytest.raises(ArgumentError, match=f"^{next(iter(wrong))}: "):
        Batches(EvenOdd(tmp_path), **{"batch": 2, "crop": (16, 16)} | wrong)
