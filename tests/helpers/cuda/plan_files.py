# SPDX-License-Identifier: MIT
"""The file of measured choices, as the tests write and read it."""

from __future__ import annotations

from pathlib import Path

HEADER = b"fortran-torch-bridge: plans of cuDNN that were measured, version 1\n"


def fnv(text: bytes) -> bytes:
    """The checksum, by its definition."""
    value = 0xCBF29CE484222325
    for byte in text:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return b"%016X" % value


def entry(choice: str, key: str) -> bytes:
    """A right line."""
    text = f"{choice} {key}".encode()
    return fnv(text) + b" " + text + b"\n"


def choices(path: Path) -> list[tuple[str, str]]:
    """Choice and key of every line; all are right."""
    header, *lines = path.read_bytes().splitlines(keepends=True)
    assert header == HEADER
    pairs = [line[17:-1].decode().partition(" ")[::2] for line in lines]
    assert [entry(*pair) for pair in pairs] == lines
    return pairs
