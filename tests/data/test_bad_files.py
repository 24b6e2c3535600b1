# SPDX-License-Identifier: MIT
"""Files that are empty, cut, damaged or of something else are named with the reason, and refused or skipped."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import h5py
import mrcfile
import numpy as np
import pytest
import tifffile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.common.errors import ArgumentError, BridgeError, FileError
from bridge.data import Images
from tests import ROOT
from tests.helpers.files.image_files import numbers, write, write_h5, write_tiff

GOOD = numbers((3, 20, 30), "int16")


def cut(path: Path, bytes_left: int, images: np.ndarray = GOOD) -> None:
    """A file that ends in the middle."""
    write(path, images)
    assert 0 < bytes_left < path.stat().st_size
    os.truncate(path, bytes_left)


def mrc_with(path: Path, **fields: int) -> None:
    write(path, GOOD)
    with mrcfile.open(path, "r+") as file:
        for name, value in fields.items():
            file.header[name] = value


def bytes_at(path: Path, start: int, values: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(values)


def npy_of_objects(path: Path) -> None:
    np.save(path, np.array([[{}, []]], object), allow_pickle=True)


def strings(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["images"] = [["a", "b"]]


def second_page(path: Path, array: np.ndarray) -> None:
    """Unlike the first."""
    with tifffile.TiffWriter(path) as file:
        file.write(GOOD[0], photometric="minisblack", metadata=None)
        file.write(array, photometric="minisblack", metadata=None)


def broken_chain(path: Path) -> None:
    """The first page names a second one that lies behind the file's end."""
    write_tiff(path, GOOD)
    with tifffile.TiffFile(path) as file:
        first = file.pages[0].offset
    content = path.read_bytes()
    (tags,) = struct.unpack_from("<H", content, first)
    bytes_at(path, first + 2 + 12 * tags, struct.pack("<I", len(content) + 1000))


def hyperstack(path: Path) -> None:
    """Images of which only the first has a page."""
    tifffile.imwrite(path, GOOD, photometric="minisblack", metadata={"axes": "TYX"}, truncate=True)


#: What is written, and what is said of it
BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty.mrc": (lambda path: path.touch(), "empty"),
    "empty.tif": (lambda path: path.touch(), "empty"),
    "short.mrc": (lambda path: cut(path, 500), "Couldn't read enough bytes for MRC header"),
    "cut.mrc": (lambda path: cut(path, 4000), "truncated: 4000 bytes found, its header announces 4624"),
    "text.mrc": (lambda path: path.write_text("x" * 3000), "Map ID string not found"),
    "wide.mrc": (lambda path: mrc_with(path, nx=31), "truncated: 4624 bytes found, its header announces 4744"),
    "narrow.mrc": (lambda path: mrc_with(path, nx=29), "its header announces 4504: nx, ny, nz = 29, 20, 3"),
    "negative.mrc": (lambda path: mrc_with(path, ny=-20), "at least one pixel"),
    "huge.mrc": (lambda path: mrc_with(path, nx=2**31 - 1, ny=2**31 - 1, nz=2**31 - 1), "announces 19807040"),
    "complex.mrc": (lambda path: write(path, np.ones((4, 4), np.complex64)), "values of type complex64 found"),
    "mode.mrc": (lambda path: mrc_with(path, mode=77), "Unrecognised mode '77'"),
    "cut.npy": (lambda path: cut(path, 700), "mmap length is greater than file size"),
    "header.npy": (lambda path: cut(path, 50), "EOF|header"),
    "objects.npy": (npy_of_objects, "Array can't be memory-mapped: Python objects in dtype"),
    "line.npy": (lambda path: np.save(path, np.ones(5)), r"shape \(5,\) found, expected \(h, w\), \(n, h, w\)"),
    "five.npy": (lambda path: np.save(path, np.ones((1,) * 5)), r"shape \(1, 1, 1, 1, 1\) found"),
    "none.npy": (lambda path: np.save(path, np.ones((0, 4, 4))), "expected at least one pixel|empty"),
    "int64.npy": (lambda path: np.save(path, np.ones((4, 4), np.int64)), "values of type int64 found"),
    "fortran.npy": (lambda path: np.save(path, np.asfortranarray(GOOD)), "saved in Fortran's order, expected C order"),
    "cut.h5": (lambda path: cut(path, 3000), "truncated file"),
    "text.h5": (lambda path: path.write_text("x" * 3000), "file signature not found"),
    "strings.h5": (strings, r"0 datasets that may hold images .*, expected one, .* it has /images object"),
    "complex.h5": (lambda path: write_h5(path, np.ones((4, 4), np.complex64)),
                   r"0 datasets that may hold images \(of real numbers, .*; it has /images complex64 \(4, 4\)"),
    "cut.tif": (lambda path: cut(path, 2000), "truncated"),
    "data.tif": (lambda path: cut(path, 1000, GOOD[0]), r"truncated: page 0 lies at bytes up to \d+, "),
    "text.tif": (lambda path: path.write_text("x" * 3000), "not a TIFF file"),
    "chain.tif": (broken_chain, "truncated or damaged: the page after page 0 cannot be found"),
    "shape.tif": (lambda path: second_page(path, GOOD[1, :5]), r"page 1 is int16 \(5, 30\), page 0 is int16"),
    "type.tif": (lambda path: second_page(path, GOOD[1].astype("u2")), "page 1 is uint16 "),
    "hyper.tif": (hyperstack, "3 images behind 1 pages"),
    "int32.tif": (lambda path: write_tiff(path, np.ones((4, 4), np.int32)), "values of type int32 found"),
    "picture.png": (lambda path: path.write_text("x"), r"a name that ends in \.png, expected \.mrc"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_named_with_the_reason(tmp_path: Path, name: str) -> None:
    make, expected = BAD[name]
    make(tmp_path / name)
    with pytest.raises(FileError, match=re.escape(f"{tmp_path / name}: ") + f".*({expected})") as found:
        Images(tmp_path / name)
    assert "\n" not in str(found.value)
    write(tmp_path / "good.npy", GOOD)
    with Images([tmp_path / name, tmp_path / "good.npy"], on_bad="skip") as images:
        assert [(one.name, one.reason) for one in images.bad] == [(str(tmp_path / name), str(found.value))]
        np.testing.assert_array_equal(images.read(2)[0], GOOD[2])


def test_a_string_dataset_that_is_asked_for(tmp_path: Path) -> None:
    strings(tmp_path / "a.h5")
    with pytest.raises(FileError, match=r"a\.h5: values of type object found, expected one of uint8"):
        Images(f"{tmp_path}/a.h5:/images")


def test_a_filter_that_is_not_there(tmp_path: Path) -> None:
    """Number 32015 is zstd's, which HDF5 itself has not: the number of a filter that it has is changed in the file."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        created.set_chunk((4, 4))
        created.set_filter(32015, h5py.h5z.FLAG_OPTIONAL)
        kind, space = h5py.h5t.NATIVE_FLOAT, h5py.h5s.create_simple((4, 4))
        h5py.h5d.create(file.id, b"images", kind, space, created)
    if h5py.h5z.filter_avail(32015):
        pytest.skip("this HDF5 library has the filter that is used as a missing one")
    with pytest.raises(FileError, match=r"a\.h5: compressed with the filter .*32015.*, which this HDF5 library lacks"):
        Images(tmp_path / "a.h5")


def test_a_folder_with_one_bad_among_good(tmp_path: Path) -> None:
    for name in ("a.mrc", "b.tif", "c.npy", "d.h5"):
        write(tmp_path / name, GOOD)
    os.truncate(tmp_path / "b.tif", 100)
    with pytest.raises(FileError, match=r"^\S*b\.tif: "):
        Images(tmp_path)
    with Images(tmp_path, on_bad="skip") as images:
        assert [stack.name for stack in images.stacks] == [f"{tmp_path}/{name}"
                                                           for name in ("a.mrc", "c.npy", "d.h5:/images")]
        assert len(images) == 9 and [os.path.basename(one.name) for one in images.bad] == ["b.tif"]
    with pytest.raises(FileError, match=r"no images are left: \S*b\.tif: "):
        Images(tmp_path / "b.tif", on_bad="skip")
    with pytest.raises(ArgumentError, match="on_bad: 'ignore', expected 'refuse' or 'skip'"):
        Images(tmp_path, on_bad="ignore")  # type: ignore[arg-type]


def test_every_bad_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.npy").touch()
    with pytest.raises(FileError, match=r"a\.npy: empty; \S*none\.npy: no such file; \S*: not a file"):
        os.mkfifo(tmp_path / "pipe.npy")
        Images([tmp_path / "a.npy", tmp_path / "none.npy", tmp_path / "pipe.npy"])


def test_other_channels_are_bad(tmp_path: Path) -> None:
    write(tmp_path / "a.npy", GOOD)
    write(tmp_path / "b.npy", numbers((3, 2, 20, 30)))
    with pytest.raises(FileError, match=r"b\.npy: 2 channels found, \S*a\.npy has 1"):
        Images(tmp_path)


@pytest.mark.parametrize(("value", "place"), [(np.nan, (1, 13, 7)), (np.inf, (0, 19, 29)), (-np.inf, (2, 0, 0))])
def test_a_value_that_is_not_finite_is_named(tmp_path: Path, value: float, place: tuple[int, int, int]) -> None:
    """By its position in the image, whatever the window; others are read."""
    array = numbers((3, 20, 30))
    array[place] = value
    write(tmp_path / "a.npy", array)
    image, row, column = place
    with Images(tmp_path / "a.npy") as images:
        window = slice(max(row - 1, 0), min(row + 2, 20)), slice(max(column - 2, 0), min(column + 2, 30))
        expected = rf"a\.npy, image {image}: {value} at channel 0, row {row}, column {column}, expected finite values"
        with pytest.raises(FileError, match=expected):
            images.read(image, *window)
        images.read((image + 1) % 3)


def test_every_part_of_an_image_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that is read in several."""
    monkeypatch.setattr("bridge.data.sources.raw.BLOCK", 30 * 4 * 3)
    array = numbers((20, 30))
    array[17, 3] = np.nan
    with pytest.raises(FileError, match="nan at channel 0, row 17, column 3, "):
        Images(write(tmp_path / "a.npy", array)).read(0)


def test_large_values_are_finite(tmp_path: Path) -> None:
    """Their sum would not be."""
    write(tmp_path / "a.npy", np.full((20, 30), -3e38, np.float32))
    assert Images(tmp_path / "a.npy").read(0).min() == np.float32(-3e38)


@pytest.mark.parametrize("suffix", [".npy", ".mrc"])
def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path, suffix: str) -> None:
    """With a mapping of the file the process would die of SIGBUS."""
    path = write(tmp_path / f"a{suffix}", GOOD)
    images = Images(path)
    images.read(0)
    os.truncate(path, 3000 if suffix == ".mrc" else 2100)
    with pytest.raises(FileError, match=rf"a\{suffix}: ends at byte \d+, where more was when it was scanned"):
        images.read(2)
    path.unlink()
    with pytest.raises(FileError, match=rf"a\{suffix}, image 0: cannot be read: .*No such file"):
        Images.of_stacks(images.stacks).read(0)


def test_a_damaged_chunk_is_named(tmp_path: Path) -> None:
    write_h5(tmp_path / "a.h5", GOOD, chunks=(1, 20, 30), compression="gzip")
    with h5py.File(tmp_path / "a.h5") as file:
        offset = file["images"].id.get_chunk_info(1).byte_offset
    bytes_at(tmp_path / "a.h5", offset, b"\xff" * 16)
    images = Images(tmp_path / "a.h5")
    images.read(0)
    with pytest.raises(FileError, match=r"a\.h5:/images, image 1: cannot be read: "):
        images.read(1)


@pytest.mark.parametrize(("package", "suffix"), [("mrcfile", ".mrc"), ("tifffile", ".tif")])
def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, suffix: str) -> None:
    """Not a bad file: nothing is skipped for it."""
    write(tmp_path / f"a{suffix}", GOOD)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BridgeError, match=f"^{package} is not installed, and .*: pip install '{package}>=") as found:
        Images(tmp_path, on_bad="skip")
    assert not isinstance(found.value, FileError)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(suffix=st.sampled_from([".mrc", ".npy", ".tif"]), start=st.integers(0, 2000),
       values=st.binary(min_size=1, max_size=8), left=st.integers(0, 6000))
def test_damaged_headers_end_in_one_line(tmp_path: Path, suffix: str, start: int, values: bytes, left: int) -> None:
    """Or in images; never in another exception, and never in more memory than the file has."""
    path = tmp_path / f"a{suffix}"
    path.unlink(missing_ok=True)
    write(path, GOOD)
    bytes_at(path, min(start, path.stat().st_size - 8), values)
    if left < path.stat().st_size:
        os.truncate(path, left)
    try:
        with Images(path) as images:
            for number in range(min(len(images), 3)):
                assert np.isfinite(images.read(number)).all()
    except FileError as error:
        assert str(path) in str(error) and "\n" not in str(error)


@pytest.mark.skipif(find_spec("imagecodecs") is not None, reason="imagecodecs is installed: nothing is missing")
@pytest.mark.parametrize(("compression", "bits"), [(5, 8), (7, 8), (1, 12)], ids=["LZW", "JPEG", "12 bits"])
def test_a_codec_that_is_missing_is_found_by_the_scan(compression: int, bits: int, tmp_path: Path) -> None:
    """Not by whoever reads the image, hours later; `imagecodecs` is named, which the extra ``images`` has."""
    strip = bytes(40 * 50 * bits // 8)
    data = bytearray(b"II*\0" + struct.pack("<I", 8 + len(strip)) + strip)
    tags = ((256, 4, 50), (257, 4, 40), (258, 3, bits), (259, 3, compression), (262, 3, 1), (273, 4, 8), (277, 3, 1),
            (278, 4, 40), (279, 4, len(strip)))
    data += struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", t, k, 1, v) for t, k, v in tags) + bytes(4)
    (tmp_path / "1.tif").write_bytes(data)
    write(tmp_path / "0.tif", numbers((40, 50), "uint8"))
    with pytest.raises(FileError, match=r"1\.tif: page 0 \(.*imagecodecs"):
        Images(tmp_path)
    assert len(Images(tmp_path, on_bad="skip")) == 1


def test_what_tifffile_logs_is_not_printed_beside_our_line(tmp_path: Path) -> None:
    """A process that has no logging of its own prints one line."""
    write(tmp_path / "0.tif", numbers((3, 40, 50), "uint8"))
    data = bytearray((tmp_path / "0.tif").read_bytes())
    # The first tag's type is none
    (first,) = struct.unpack_from("<I", data, 4)
    struct.pack_into("<H", data, first + 4, 250)
    (tmp_path / "0.tif").write_bytes(data)
    program = f"from bridge.data import Images\ntry: Images({str(tmp_path / '0.tif')!r})\nexcept Exception: pass"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.stderr == ""
