# SPDX-License-Identifier: MIT
"""Read reports back: HTML by a parser that is strict, and the images inside."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from html.parser import HTMLParser

import numpy as np

Array = np.ndarray


class Balanced(HTMLParser):
    """Every tag that opens is closed; nothing comes from elsewhere; no script."""

    EMPTY = ("meta", "br", "hr", "img")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.images: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._check(tag, attrs)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._check(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def _check(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "iframe", "object"), tag
        for name, value in attrs:
            assert not name.startswith("on")
            if name in ("href", "src"):
                assert value and value.startswith("data:image/png;base64,"), value
                self.images.append(value)
            assert tag != "svg" or dict(attrs).get("aria-label")

    @classmethod
    def read(cls, document: str) -> Balanced:
        assert document.startswith("<!DOCTYPE html>") and "http:" not in document and "https:" not in document
        parser = cls()
        parser.feed(document)
        parser.close()
        assert not parser.open
        return parser


def decoded(html: str, number: int = 0) -> Array:
    """An image of a page, the first if no other is wanted, back from PNG, with every checksum checked."""
    found = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    return unpacked(base64.b64decode(found[number]))


def unpacked(data: bytes) -> Array:
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, place = {}, 8
    while place < len(data):
        (length,) = struct.unpack_from(">I", data, place)
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        assert struct.unpack_from(">I", data, place + 8 + length) == (zlib.crc32(kind + body),)
        chunks[kind], place = body, place + 12 + length
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, colour, len(chunks[b"PLTE"]), list(chunks)[-1]) == (8, 3, 3 * 256, b"IEND")
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()
    return rows[:, 1:]


def strict(schema: object) -> object:
    """The schema without room for keys that it does not name."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(value) for name, value in schema.items()}
    return found | ({"additionalProperties": False} if isinstance(found.get("properties"), dict) else {})
