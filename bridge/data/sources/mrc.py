# SPDX-License-Identifier: MIT
"""MRC and MRCS, by the package mrcfile."""

from __future__ import annotations

import os

from bridge.common.optional_packages import require
from bridge.data.sources.raw import images_in_a_row
from bridge.data.sources.stack import Stack, check_dtype, extents

#: Bytes of the header, without the extended one
HEADER = 1024


def scan(path: str, _: str | None) -> Stack:
    """Return what the header says. A volume is a stack of its sections.

    Source: MRC2014, https://www.ccpem.ac.uk/mrc_format/mrc2014.php

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
