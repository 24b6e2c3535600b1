# SPDX-License-Identifier: MIT
"""MRC and MRCS, by the package mrcfile."""

from __future__ import annotations

import os
import struct

import numpy as np

from bridge.common.optional_packages import require
from bridge.data.sources.raw import images_in_a_row
from bridge.data.sources.stack import Stack, check_dtype, extents

#: Bytes of the header, without the extended one
HEADER = 1024
#: Where IMOD's stamp and flags are, what the stamp is, and the flag of signed bytes
IMOD, STAMP, SIGNED = 152, 1146047817, 1


def scan(path: str, _: str | None) -> Stack:
    """Return what the header says. A volume is a stack of its sections.

    Source: MRC2014, https://www.ccpem.ac.uk/mrc_format/mrc2014.php; IMOD's stamp and flags, of unsigned bytes,
    https://bio3d.colorado.edu/imod/doc/mrc_format.txt

    Raises
    ------
    ValueError
        If the header is none, or does not fit the size of the file: then its rows are not where it says.
    """
    require("mrcfile", "MRC files are read by it")
    import mrcfile
    from mrcfile.utils import data_dtype_from_header, data_shape_from_header

    with mrcfile.open(path, mode="r", header_only=True) as file:
        dtype, shape = data_dtype_from_header(file.header), data_shape_from_header(file.header)
        offset = HEADER + int(file.header.nsymbt)
        if dtype == np.int8 and _is_unsigned(bytes(file.header.tobytes()), file.header.nx.dtype.byteorder):
            dtype = np.dtype(np.uint8)
    check_dtype(dtype)
    if len(shape) == 4:
        raise ValueError(f"a stack of volumes {shape} found, expected an image or a stack of images")
    found = extents(shape)
    layout = images_in_a_row(path, offset, found, dtype)
    announced = offset + found[0] * layout.image_bytes
    if os.stat(path).st_size > announced:
        raise ValueError(f"{os.stat(path).st_size} bytes found, its header announces {announced}: nx, ny, nz = "
                         f"{shape[-1]}, {shape[-2]}, {found[0]}, or the mode, is wrong")
    return Stack(path, *found, dtype, layout.open)


def _is_unsigned(header: bytes, order: str) -> bool:
    """Whether IMOD says so of bytes, which MRC2014 has signed."""
    stamp, flags = struct.unpack_from(f"{'>' if order == '>' else '<'}2i", header, IMOD)
    return stamp == STAMP and not flags & SIGNED
