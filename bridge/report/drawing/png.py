# SPDX-License-Identifier: MIT
"""Small images of 256 colours, or levels of grey, as PNG, without a library.

Source: W3C, Portable Network Graphics (PNG) Specification, 2nd ed.: colour types 3 and 0, filter 0, chunks IHDR, PLTE,
tRNS, IDAT, IEND.
"""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from bridge.report.drawing.colours import NOTHING, PALETTE, Colour

Array = np.ndarray


def png(indices: Array, palette: list[Colour] = PALETTE) -> bytes:
    """Return a PNG file of places in a palette of `bridge.report.drawing.colours`.

    Parameters
    ----------
    indices : uint8, shape (height, width), neither 0

    >>> png(np.zeros((2, 3), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    colours = bytes(part for colour in palette for part in colour)
    clear = bytes(0 if i == NOTHING else 255 for i in range(len(palette)))
    return _file(indices, 3, [(b"PLTE", colours), (b"tRNS", clear)])


def grey_png(levels: Array) -> bytes:
    """Return a PNG file of levels of grey, 0 black and 255 white.

    Parameters
    ----------
    levels : uint8, shape (height, width), neither 0

    >>> grey_png(np.zeros((2, 3), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    return _file(levels, 0, [])


def _file(pixels: Array, colour_type: int, tables: list[tuple[bytes, bytes]]) -> bytes:
    height, width = pixels.shape
    # Each row starts with its filter, 0
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.astype(np.uint8)], axis=1).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)
    parts = [(b"IHDR", head), *tables, (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def inside_a_page(file: bytes) -> str:
    """Return a PNG file as an address that is its content."""
    return "data:image/png;base64," + base64.b64encode(file).decode("ascii")


def pooled(ratio: Array, most: int) -> tuple[Array, int]:
    """Return an image of at most `most` pixels a side, each the largest of a square; and the side of that square.

    A NaN stays a NaN: nothing that is wrong gets lost. Ratios are not negative, so zeros fill the last squares.

    >>> pooled(np.array([[1.0, 2.0, 3.0]]), 2)
    (array([[2., 3.]]), 2)
    """
    side = max(-(-n // most) for n in ratio.shape)
    return (ratio, 1) if side == 1 else (in_squares(ratio, side).max(axis=-1), side)


def in_squares(values: Array, side: int) -> Array:
    """Return an image in squares, (rows, columns, side * side); zeros fill the last ones.

    >>> in_squares(np.array([[1.0, 2.0, 3.0]]), 2)
    array([[[1., 2., 0., 0.],
            [3., 0., 0., 0.]]])
    """
    padded = np.pad(values, [(0, -n % side) for n in values.shape])
    height, width = (n // side for n in padded.shape)
    return padded.reshape(height, side, width, side).swapaxes(1, 2).reshape(height, width, side * side)
