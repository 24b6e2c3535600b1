# SPDX-License-Identifier: MIT
"""Which images are a pair, and the name of the file that has no partner."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bridge.common.errors import ArgumentError, FileError
from bridge.data import Batches, Consecutive, EvenOdd, ImagePairs, Pairs
from tests.helpers.files.image_files import numbers, write

STACK = numbers((6, 8, 9))


def all_of(pairs: ImagePairs) -> list[np.ndarray]:
    """Input and target of each pair, whole."""
    return [np.stack([pairs.read(pair, half)[0] for half in range(2)]) for pair in range(len(pairs))]


def test_pairs_are_matched_in_order(tmp_path: Path) -> None:
    """However they are divided into files, and of different types."""
    (tmp_path / "targets").mkdir()
    for number in range(6):
        write(tmp_path / "targets" / f"{number}.mrc", (100 * STACK[number]).astype(np.int16))
    write(tmp_path / "a.npy", STACK[:4])
    write(tmp_path / "b.tif", STACK[4:])
    with Pairs([tmp_path / "a.npy", tmp_path / "b.tif"], tmp_path / "targets") as pairs:
        assert not pairs.symmetric and len(pairs) == 6
        for number, pair in enumerate(all_of(pairs)):
            np.testing.assert_array_equal(pair, [STACK[number], (100 * STACK[number]).astype(np.int16)])


@pytest.mark.parametrize(("inputs", "targets", "expected"), [
    ([6], [5], r"t0\.npy: 5 images found, its partner \S*i0\.npy has 6"),
    ([2, 3, 1], [2, 2, 2], r"t1\.npy: 2 images found, its partner \S*i1\.npy has 3"),
    ([2, 2], [3], r"i1\.npy, image 1: has no partner; there are 4 inputs and 3 targets"),
    ([3], [2, 2], r"t1\.npy, image 1: has no partner; there are 3 inputs and 4 targets"),
])
def test_counts_that_differ(tmp_path: Path, inputs: list[int], targets: list[int], expected: str) -> None:
    names = {side: [write(tmp_path / f"{side}{number}.npy", STACK[:count]) for number, count in enumerate(counts)]
             for side, counts in (("i", inputs), ("t", targets))}
    with pytest.raises(FileError, match=expected):
        Pairs(names["i"], names["t"])


def test_shapes_that_differ(tmp_path: Path) -> None:
    write(tmp_path / "inputs.npy", STACK)
    for number in range(6):
        write(tmp_path / f"t{number}.npy", STACK[number, :7] if number == 4 else STACK[number])
    with pytest.raises(FileError, match=r"t4\.npy: shape \(1, 7, 9\) found, its partner \S*inputs\.npy, image 4 has "):
        Pairs(tmp_path / "inputs.npy", tmp_path / "t*.npy")


def test_a_bad_file_is_left_out_with_its_partner(tmp_path: Path) -> None:
    for number in range(4):
        for side in "it":
            write(tmp_path / f"{side}{number}.npy", STACK[number])
    (tmp_path / "t1.npy").write_bytes(b"")
    (tmp_path / "i3.npy").write_bytes(b"")
    with pytest.raises(FileError, match=r"i3\.npy: empty"):
        Pairs(tmp_path / "i*.npy", tmp_path / "t*.npy")
    with Pairs(tmp_path / "i*.npy", tmp_path / "t*.npy", on_bad="skip") as pairs:
        for number, pair in zip((0, 2), all_of(pairs), strict=True):
            np.testing.assert_array_equal(pair, [STACK[number]] * 2)
        reasons = [one.reason.replace(f"{tmp_path}/", "") for one in (*pairs.images.bad, *pairs.targets.bad)]
    assert reasons == ["i1.npy: left out with its partner " + str(tmp_path / "t1.npy").replace(f"{tmp_path}/", ""),
                       "i3.npy: empty", "t1.npy: empty", "t3.npy: left out with its partner i3.npy"]
    for number, name in enumerate(("x", "y", "z")):
        write(tmp_path / f"other_{name}.npy", STACK[number])
    with pytest.raises(FileError, match=r"4 files of inputs and 3 of targets, .* \S*i3\.npy: empty"):
        Pairs(tmp_path / "i*.npy", tmp_path / "other_?.npy", on_bad="skip")


@pytest.mark.parametrize(("one", "other"), [
    ("{}", "{}"), ("noisy_{}", "{:03d}_clean"), ("r2_{}_a", "r3_{}_b"), ("mic{}", "clean mic{} of 2")])
def test_pairs_are_matched_by_name(tmp_path: Path, one: str, other: str) -> None:
    """Each folder lacks another: both are named, and no image is trained against the next one's target."""
    for side, name, missing in (("inputs", one, 3), ("targets", other, 12)):
        (tmp_path / side).mkdir()
        for number in (1, 2, 3, 4, 11, 12):
            if number != missing:
                write(tmp_path / side / f"{name.format(number)}.npy", STACK[0] + number)
    alone = one.format(12), other.format(3)
    with pytest.raises(FileError, match=rf"{alone[0]}\.npy: has no partner among the targets"):
        Pairs(tmp_path / "inputs", tmp_path / "targets")
    with Pairs(tmp_path / "inputs", tmp_path / "targets", on_bad="skip") as pairs:
        assert [round(float(pair[0, 0, 0] - STACK[0, 0, 0])) for pair in all_of(pairs)] == [1, 2, 4, 11]
        assert all(np.array_equal(*pair) for pair in all_of(pairs))
        assert [Path(bad.name).stem for bad in (*pairs.images.bad, *pairs.targets.bad)] == list(alone)


def test_pairs_of_one_name_in_several_folders(tmp_path: Path) -> None:
    for run in "ab":
        for side in ("noisy", "clean"):
            (tmp_path / run / side).mkdir(parents=True)
            write(tmp_path / run / side / "1.npy", STACK[0] + ord(run))
    with Pairs(tmp_path / "*" / "noisy" / "1.npy", [tmp_path / run / "clean" / "1.npy" for run in "ba"]) as pairs:
        assert len(pairs) == 2 and all(np.array_equal(*pair) for pair in all_of(pairs))


@pytest.mark.parametrize("frames", [2, 5, 6])
def test_halves_of_a_movie(tmp_path: Path, frames: int) -> None:
    """Their means, so that both have one scale."""
    movie = numbers((frames, 8, 9), "uint8")
    with EvenOdd([write(tmp_path / f"{n}.npy", movie + np.uint8(n)) for n in range(2)]) as pairs:
        assert pairs.symmetric and len(pairs) == 2 and pairs.name(1) == str(tmp_path / "1.npy")
        for number, pair in enumerate(all_of(pairs)):
            shifted = (movie + np.uint8(number)).astype(np.float64)
            np.testing.assert_allclose(pair, [shifted[::2].mean(axis=0), shifted[1::2].mean(axis=0)], rtol=1e-14)
        window = pairs.read(1, 1, slice(2, 5), slice(3, 9))
        np.testing.assert_array_equal(window, pairs.read(1, 1)[:, 2:5, 3:9])
        out = np.empty((1, 3, 6))
        assert pairs.read(1, 1, slice(2, 5), slice(3, 9), out) is out
        np.testing.assert_array_equal(window, out)


def test_one_frame_is_no_movie(tmp_path: Path) -> None:
    write(tmp_path / "a.npy", STACK)
    write(tmp_path / "b.npy", STACK[:1])
    with pytest.raises(FileError, match=r"b\.npy: one image found, expected a movie of two frames or more"):
        EvenOdd(tmp_path)
    with EvenOdd(tmp_path, on_bad="skip") as pairs:
        assert len(pairs) == 1 and len(pairs.images.bad) == 1


def test_consecutive_images_of_a_stack(tmp_path: Path) -> None:
    write(tmp_path / "a.npy", STACK[:4])
    write(tmp_path / "b.npy", STACK[4:].astype(np.float64))
    with Consecutive(tmp_path) as pairs:
        assert pairs.symmetric
        np.testing.assert_array_equal(all_of(pairs), [STACK[0:2], STACK[2:4], STACK[4:6]])
        assert [pairs.dtype(pair, 1) for pair in range(3)] == [np.float32, np.float32, np.float64]
    write(tmp_path / "c.npy", STACK[:3])
    with pytest.raises(FileError, match=r"c\.npy: 3 images found, expected an even number"):
        Consecutive(tmp_path)


def test_consecutive_files_of_one_image(tmp_path: Path) -> None:
    for number in range(6):
        write(tmp_path / f"{number}.npy", STACK[number])
    with Consecutive(tmp_path) as pairs:
        np.testing.assert_array_equal(all_of(pairs), [STACK[0:2], STACK[2:4], STACK[4:6]])
    (tmp_path / "2.npy").write_bytes(b"")
    with Consecutive(tmp_path, on_bad="skip") as pairs:
        np.testing.assert_array_equal(all_of(pairs), [STACK[0:2], STACK[4:6]])
        assert [one.reason.partition(": ")[2] for one in pairs.images.bad] == [
            "empty", f"left out with its partner {tmp_path / '2.npy'}"]
    write(tmp_path / "2.npy", STACK[2, :5])
    with pytest.raises(FileError, match=r"3\.npy: shape \(1, 8, 9\) found, its partner \S*2\.npy has \(1, 5, 9\)"):
        Consecutive(tmp_path)
    write(tmp_path / "2.npy", STACK[2])
    write(tmp_path / "6.npy", STACK[0])
    with pytest.raises(FileError, match=r"6\.npy: the last of 7 files of one image each, expected pairs"):
        Consecutive(tmp_path)


def test_only_noisy_halves_are_swapped(tmp_path: Path) -> None:
    write(tmp_path / "a.npy", STACK)
    with Pairs(tmp_path / "a.npy", tmp_path / "a.npy") as pairs, pytest.raises(ArgumentError, match="swap: True, but"):
        Batches(pairs, 2, (4, 4), swap=True)
