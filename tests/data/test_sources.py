# SPDX-License-Identifier: MIT
"""Windows of images in every format, type and byte order, beside the file read whole by its own library."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import h5py
import mrcfile
import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.common.errors import ArgumentError, ArgumentTypeError, FileError
from bridge.data import Images
from bridge.data.find import find, natural
from bridge.data.sources.raw import GAP, RawLayout
from reference.batches.images import load_image
from tests.helpers.files.image_files import (
    DTYPES,
    EXTENTS,
    MRC_DTYPES,
    ORDERS,
    numbers,
    write,
    write_h5,
    write_tiff,
)
from tests.helpers.loops import looped

#: Rows and columns: all, one pixel in each corner, the last ones, inside
WINDOWS = [(slice(None), slice(None)), (slice(0, 1), slice(0, 1)), (slice(36, 37), slice(40, 41)),
           (slice(30, 37), slice(0, 41)), (slice(0, 37), slice(33, 41)), (slice(5, 20), slice(7, 9))]


def whole(path: Path) -> np.ndarray:
    """As (n, c, h, w), by the library of the format."""
    if path.suffix == ".mrc":
        with mrcfile.open(path) as file:
            array = np.array(file.data)
    elif path.suffix == ".npy":
        array = np.load(path)
    elif path.suffix == ".h5":
        with h5py.File(path) as file:
            array = file["images"][()]
    else:
        with tifffile.TiffFile(path) as file:
            array = np.stack([np.asarray(page.asarray()) for page in file.pages])
    return array.reshape(-1, *EXTENTS[1:]) if array.ndim == 4 else array.reshape(-1, 1, *array.shape[-2:])


def check_all(path: Path, expected: np.ndarray) -> None:
    """Every image, every window."""
    with Images(path) as images:
        assert len(images) == len(expected)
        wanted = np.float64 if expected.dtype.itemsize == 8 else np.float32
        for number, image in enumerate(expected):
            assert images.shape(number) == image.shape
            for rows, columns in WINDOWS:
                found = images.read(number, rows, columns)
                assert found.dtype == wanted and found.flags.c_contiguous
                np.testing.assert_array_equal(found, image[:, rows, columns].astype(wanted))


@looped("suffix", [".mrc", ".npy", ".h5", ".tif"])
@looped("dtype", DTYPES)
@looped("order", ORDERS)
def test_windows_are_those_of_the_library(tmp_path: Path, suffix: str, dtype: str, order: str) -> None:
    if suffix == ".mrc" and dtype not in MRC_DTYPES:
        return
    for shape in (EXTENTS[2:], (EXTENTS[0], *EXTENTS[2:])):
        path = write(tmp_path / f"{dtype}{ord(order)}{len(shape)}{suffix}", numbers(shape, dtype, order))
        with Images(path) as images:
            found = images.stacks[0].dtype
            assert found.name == dtype and (found.itemsize == 1 or (found.byteorder == ">") == (order == ">"))
        check_all(path, whole(path))


@looped("suffix", [".npy", ".h5"])
def test_channels_are_the_second_of_four_dimensions(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a{suffix}", numbers(EXTENTS, "int16", ">"))
    check_all(path, whole(path))


H5_LAYOUTS = {"contiguous": {}, "chunks": {"chunks": (2, 16, 7)},
              "gzip": {"chunks": (1, 37, 41), "compression": "gzip"},
              "filters": {"chunks": (3, 8, 8), "compression": "lzf", "shuffle": True, "fletcher32": True},
              "grows": {"maxshape": (None, 37, 41), "chunks": True}}


@looped("layout", H5_LAYOUTS)
def test_any_layout_of_hdf5(tmp_path: Path, layout: str) -> None:
    array = numbers((EXTENTS[0], *EXTENTS[2:]), "uint16")
    write_h5(tmp_path / f"{layout}.h5", array, **H5_LAYOUTS[layout])
    check_all(tmp_path / f"{layout}.h5", array[:, None])


def test_a_virtual_dataset(tmp_path: Path) -> None:
    parts = [numbers((2, 37, 41), seed=seed) for seed in range(3)]
    layout = h5py.VirtualLayout((6, 37, 41), np.float32)
    for number, part in enumerate(parts):
        write_h5(tmp_path / f"part{number}.h5", part)
        layout[2 * number:2 * number + 2] = h5py.VirtualSource(f"part{number}.h5", "images", (2, 37, 41))
    with h5py.File(tmp_path / "all.h5", "w") as file:
        file.create_virtual_dataset("images", layout)
    check_all(tmp_path / "all.h5", np.concatenate(parts)[:, None])
    (tmp_path / "part1.h5").unlink()
    with pytest.raises(FileError, match=r"all\.h5: a virtual dataset whose source .*part1\.h5:images is missing"):
        Images(tmp_path / "all.h5")


TIFF_LAYOUTS: dict[str, dict[str, Any]] = {
    "strips": {"rowsperstrip": 5}, "zlib": {"compression": "zlib", "rowsperstrip": 5},
    "predictor": {"compression": "zlib", "predictor": True}, "tiles": {"tile": (16, 32)},
    "zlib tiles": {"tile": (16, 16), "compression": "zlib"}, "big": {"bigtiff": True}}
TIFF_CHANNELS: dict[str, dict[str, Any]] = {
    "beside": {}, "beside, zlib": {"compression": "zlib", "rowsperstrip": 4}, "beside, tiles": {"tile": (16, 16)},
    "planes": {"planarconfig": "separate"}, "planes, tiles": {"planarconfig": "separate", "tile": (16, 16)},
    "planes, zlib": {"planarconfig": "separate", "compression": "zlib", "rowsperstrip": 9}}


@looped("layout", TIFF_LAYOUTS)
@looped("order", ORDERS)
def test_any_layout_of_tiff(tmp_path: Path, layout: str, order: str) -> None:
    array = numbers((EXTENTS[0], *EXTENTS[2:]), "uint16", order)
    path = tmp_path / f"{layout}{ord(order)}.tif"
    write_tiff(path, array, **TIFF_LAYOUTS[layout])
    check_all(path, array[:, None])


@looped("layout", TIFF_CHANNELS)
def test_channels_of_tiff(tmp_path: Path, layout: str) -> None:
    """Samples of a pixel lie beside each other in a file, or in planes."""
    array = numbers(EXTENTS, "uint8")
    made = TIFF_CHANNELS[layout]
    path = tmp_path / f"{layout}.tif"
    write_tiff(path, array if "planarconfig" in made else np.moveaxis(array, 1, -1), **{"photometric": "rgb"} | made)
    check_all(path, array)


def test_pages_that_do_not_follow_each_other(tmp_path: Path) -> None:
    """Without compression: each page is read from where it lies."""
    pages = [numbers((37, 41), seed=seed) for seed in range(4)]
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for page in pages:
            file.write(page, photometric="minisblack", metadata={"text": "x" * 1000})
    check_all(tmp_path / "a.tif", np.stack(pages)[:, None])


def test_a_volume_is_a_stack_of_sections(tmp_path: Path) -> None:
    volume = numbers((4, 37, 41))
    with mrcfile.new(tmp_path / "a.mrc") as file:
        file.set_data(volume)
        file.set_volume()
    check_all(tmp_path / "a.mrc", volume[:, None])
    with mrcfile.new(tmp_path / "b.mrc") as file:
        file.set_data(volume.reshape(2, 2, 37, 41))
    with pytest.raises(FileError, match=r"b\.mrc: a stack of volumes \(2, 2, 37, 41\) found, expected an image"):
        Images(tmp_path / "b.mrc")


def test_an_extended_header_is_passed_over(tmp_path: Path) -> None:
    array = numbers((37, 41))
    with mrcfile.new(tmp_path / "a.mrc") as file:
        file.set_data(array)
        file.set_extended_header(np.frombuffer(b"FEI1" * 100, "V1"))
    check_all(tmp_path / "a.mrc", array[None, None])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_window_of_a_wide_image(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Rows wide enough that they are read one by one where few columns are asked for."""
    width = GAP + 50
    path = tmp_path_factory.getbasetemp() / "wide.npy"
    if not path.exists():
        np.save(path, numbers((2, 2, 9, width), "int16", ">"))
    array = np.load(path, mmap_mode="r")
    first, last = sorted(data.draw(st.tuples(st.integers(0, 8), st.integers(0, 8))))
    left = data.draw(st.integers(0, width - 1))
    right = data.draw(st.one_of(st.integers(left + 1, width), st.integers(left + 1, min(left + 20, width))))
    with Images(path) as images:
        rows, columns = slice(first, last + 1), slice(left, right)
        np.testing.assert_array_equal(images.read(1, rows, columns), array[1, :, rows, columns])


def test_an_image_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That are smaller than it, and in pieces as a system may give them."""
    monkeypatch.setattr("bridge.data.sources.raw.BLOCK", 41 * 4 * 3)
    read = os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, buffers, start: read(file, [buffers[0][:100]], start))
    array = numbers((2, 37, 41))
    check_all(write(tmp_path / "a.npy", array), array[:, None])
    layout = RawLayout("a", range(1), (1, 37, 41), np.dtype(np.float32))
    assert layout.image_bytes == 37 * 41 * 4


def test_windows_that_are_none(tmp_path: Path) -> None:
    with Images(write(tmp_path / "a.npy", numbers((2, 5, 6)))) as images:
        for rows, columns, expected in [
                (slice(0, 6), slice(None), "rows: 0 to 6 found, expected a part of 0 to 5"),
                (slice(2, 2), slice(None), "rows: 2 to 2 found"), (slice(-2, 5), slice(None), "rows: -2 to 5 found"),
                (slice(None), slice(0, 6, 2), "columns: 0 to 6 by 2 found")]:
            with pytest.raises(ArgumentError, match=expected):
                images.read(0, rows, columns)
        for number in (-1, 2):
            with pytest.raises(ArgumentError, match=f"image: {number}, expected 0 to 1"):
                images.read(number)
        with pytest.raises(ArgumentError, match=r"out: float64 \(1, 5, 6\), expected float32 \(1, 5, 6\)"):
            images.read(0, out=np.empty((1, 5, 6)))
        out = np.empty((1, 5, 6), np.float32)
        assert images.read(0, out=out) is out
    with pytest.raises(ArgumentError, match="the images are closed already"):
        images.read(0)


def test_folders_and_patterns_are_in_natural_order(tmp_path: Path) -> None:
    for name in ("b10.npy", "b9.npy", "B1.NPY", "b09.npy", ".hidden.npy", "notes.txt"):
        np.save(tmp_path / "saved.npy", np.zeros((2, 2)))
        os.replace(tmp_path / "saved.npy", tmp_path / name)
    (tmp_path / "folder.npy").mkdir()
    names = ["B1.NPY", "b09.npy", "b9.npy", "b10.npy"]
    assert [os.path.basename(path) for path, _ in find(tmp_path)] == names
    assert [os.path.basename(path) for path, _ in find(str(tmp_path / "b*"))] == names[1:]
    assert find([tmp_path / "b9.npy", tmp_path / "b10.npy"])[0][0].endswith("b9.npy")
    (tmp_path / "[a].npy").touch()
    assert find(tmp_path / "[a].npy") == [(str(tmp_path / "[a].npy"), None)]
    assert find(f"{tmp_path}/x.h5:/a/b") == [(f"{tmp_path}/x.h5", "/a/b")]
    for nothing in (tmp_path / "folder.npy", tmp_path / "*.mrc"):
        with pytest.raises(FileError, match="nothing found, expected"):
            find(nothing)
    with pytest.raises(FileError, match="no files are named"):
        find([])
    with pytest.raises(ArgumentTypeError, match="sources: 3 found, expected paths"):
        find([3])  # type: ignore[list-item]


@given(st.lists(st.text("ab019.²٣", max_size=6), max_size=6))
def test_natural_order_is_an_order(names: list[str]) -> None:
    """One for all ways in which a folder may be listed; other digits than 0 to 9 are letters."""
    assert sorted(names, key=natural) == sorted(reversed(names), key=natural)


def test_a_dataset_of_each_file_of_a_pattern(tmp_path: Path) -> None:
    for number in (2, 10):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file["a/images"], file["other"] = np.full((3, 4, 5), number, np.int16), np.zeros((4, 4))
    with Images(f"{tmp_path}/*.h5:/a/images") as images:
        assert [images.read(k)[0, 0, 0] for k in (0, 3)] == [2, 10] and len(images) == 6
        assert images.name(4) == f"{tmp_path}/10.h5:/a/images, image 1"
    there = r"it has /a/images int16 \(3, 4, 5\), /other float64 \(4, 4\)"
    with pytest.raises(FileError, match=r"2\.h5: 2 datasets that may hold images \(of real numbers, with 2 to 4 "
                                        r"dimensions\), expected one, or FILE.h5:/dataset; " + there):
        Images(tmp_path / "2.h5")
    with pytest.raises(FileError, match=r"2\.h5: no dataset /b in it, " + there):
        Images(f"{tmp_path}/2.h5:/b")
    with pytest.raises(FileError, match=r"2\.h5:other: no such file, expected .*2\.h5:/other for a dataset of"):
        Images(f"{tmp_path}/2.h5:other")


def test_the_real_micrograph(micrograph: Path) -> None:
    with mrcfile.open(micrograph) as file, Images(micrograph) as images:
        assert images.shape(0) == (1, 4096, 4096)
        np.testing.assert_array_equal(images.read(0, slice(4000, 4096), slice(17, 900))[0], file.data[4000:, 17:900])


@pytest.mark.parametrize(("stamp", "flags", "unsigned"), [
    (1146047817, 0, True), (1146047817, 1, False), (1146047817, 6, True), (0, 0, False)])
@pytest.mark.parametrize("order", ORDERS)
def test_bytes_of_mrc_are_unsigned_where_imod_says_so(stamp: int, flags: int, unsigned: bool, order: str,
                                                      tmp_path: Path) -> None:
    """For who reads micrographs, and who cuts images out of them."""
    stored, header = np.arange(256, dtype=np.uint8).reshape(8, 32), bytearray(1024)
    struct.pack_into(f"{order}10i", header, 0, 32, 8, 1, 0, 0, 0, 0, 32, 8, 1)
    struct.pack_into(f"{order}6f", header, 40, 32, 8, 1, 90, 90, 90)
    struct.pack_into(f"{order}3i", header, 64, 1, 2, 3)
    struct.pack_into(f"{order}2i", header, 152, stamp, flags)
    header[208:216] = b"MAP " + (b"\x44\x44\0\0" if order == "<" else b"\x11\x11\0\0")
    (tmp_path / "a.mrc").write_bytes(bytes(header) + stored.tobytes())
    expected = stored if unsigned else stored.view(np.int8)
    np.testing.assert_array_equal(Images(tmp_path / "a.mrc").read(0)[0], expected)
    np.testing.assert_array_equal(load_image(tmp_path / "a.mrc"), expected)
