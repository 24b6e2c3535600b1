# SPDX-License-Identifier: MIT
"""MRC headers are kept: pixel size, origin, labels, extended header, byte order; statistics are the outputs' own."""

from __future__ import annotations

import warnings
from pathlib import Path

import mrcfile
import numpy as np
import pytest
from mrcfile.dtypes import HEADER_DTYPE

from bridge.apply.__main__ import main
from bridge.operations import Operation, UpsampleNearest2d
from tests.helpers.networks.tiled_networks import conv, network

#: Of the pixels, in angstrom
VOXEL = (0.667, 0.75, 1.25)


def write_stack(path: Path, dtype: str = "uint16", *, volume: bool = False) -> np.ndarray:
    """Three images of 30 x 24 with everything in their header that a header may have."""
    numbers = np.random.default_rng(0).integers(0, 200, (3, 30, 24)).astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with mrcfile.new(path, overwrite=True) as file:
            file.set_data(numbers)
            if not volume:
                file.set_image_stack()
            file.voxel_size = VOXEL
            file.header.origin = (1.5, -2.5, 3.5)
            file.header.nxstart, file.header.nystart = 11, -7
            file.header.exttyp = b"FEI1"
            file.header.extra1 = np.frombuffer(b"extra 1!", "V8")[0]
            file.set_extended_header(np.frombuffer(bytes(range(256)) * 3, "V1"))
            file.add_label("taken by nobody")
            file.update_header_stats()
    return numbers


def swapped(path: Path) -> None:
    """The same file in the other byte order."""
    raw = path.read_bytes()
    header = np.frombuffer(raw[:1024], HEADER_DTYPE).astype(HEADER_DTYPE.newbyteorder(">"))
    header["machst"] = (0x11, 0x11, 0, 0)
    numbers = np.frombuffer(raw[1024 + 768:], "<u2").astype(">u2")
    path.write_bytes(header.tobytes() + raw[1024:1024 + 768] + numbers.tobytes())


def run(nodes: list[Operation], *options: str) -> None:
    network(nodes).save("net.h5")
    assert main(["net.h5", "in.mrcs", "--output", "out", "--normalization", "image", *options]) == 0


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("big_endian", [False, True])
@pytest.mark.parametrize("volume", [False, True])
def test_the_header_is_kept(big_endian: bool, volume: bool) -> None:
    """All but the mode and the statistics, byte for byte; the file is a valid one."""
    write_stack(Path("in.mrcs"), volume=volume)
    if big_endian:
        swapped(Path("in.mrcs"))
    run([conv("1", 1, 1)], "--tile", "7,9")
    with mrcfile.open("in.mrcs") as before, mrcfile.open("out/in.mrcs") as after:
        for name in before.header.dtype.names:
            if name not in ("mode", "dmin", "dmax", "dmean", "rms"):
                assert before.header[name].tobytes() == after.header[name].tobytes(), name
        assert after.header.mode == 2 and after.data.dtype == np.dtype(">f4" if big_endian else "<f4")
        assert after.extended_header.tobytes() == before.extended_header.tobytes() and after.header.nsymbt == 768
        assert np.allclose(after.voxel_size.tolist(), VOXEL)
        numbers = after.data.astype(np.float64)
        for name, value in (("dmin", numbers.min()), ("dmax", numbers.max()), ("dmean", numbers.mean()),
                            ("rms", numbers.std())):
            assert np.isclose(after.header[name], value, rtol=1e-6, atol=0), name
    assert mrcfile.validate("out/in.mrcs")


@pytest.mark.parametrize(("nodes", "size", "voxel"), [
    ([conv("1", 1, 1, 5, padding=(0, 0))], (26, 20), VOXEL),
    ([UpsampleNearest2d("1", (2, 3))], (60, 72), (VOXEL[0] / 3, VOXEL[1] / 2, VOXEL[2])),
    ([conv("1", 1, 1, 3, stride=(2, 2))], (15, 12), (VOXEL[0] * 2, VOXEL[1] * 2, VOXEL[2]))])
def test_pixels_of_other_sizes(nodes: list[Operation], size: tuple[int, int], voxel: tuple[float, ...]) -> None:
    """A convolution without padding has fewer pixels, each as large; upsampling makes them smaller."""
    write_stack(Path("in.mrcs"))
    for options in ((), ("--whole",)):
        Path("out/in.mrcs").unlink(missing_ok=True)
        run(nodes, *options)
        with mrcfile.open("out/in.mrcs") as after:
            assert after.data.shape == (3, *size) and (after.header.mx, after.header.my) == size[::-1]
            assert np.allclose(after.voxel_size.tolist(), voxel, rtol=1e-6)
            assert after.header.origin.tolist() == (1.5, -2.5, 3.5)
        assert mrcfile.validate("out/in.mrcs")


def test_a_cell_that_is_no_image() -> None:
    """Where the sampling is not the image's, the size of a pixel follows from both, and stays."""
    write_stack(Path("in.mrcs"))
    with mrcfile.open("in.mrcs", "r+") as file:
        file.header.mx, file.header.cella.x = 100, 66.7
        file.header.my, file.header.cella.y = 0, 3.0
    run([conv("1", 1, 1, 5, padding=(0, 0))])
    with mrcfile.open("out/in.mrcs", permissive=True) as after:
        assert (after.header.mx, after.header.my) == (100, 0)
        assert np.isclose(after.header.cella.x, 66.7) and after.header.cella.y == 3.0
