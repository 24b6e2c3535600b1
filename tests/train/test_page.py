# SPDX-License-Identifier: MIT
"""The report of a training: what is drawn of a log, and that nothing it is given can break it."""

from __future__ import annotations

import base64
import re
import zlib
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from bridge.train.page import page
from bridge.train.quality import Quality
from bridge.train.ring_correlation import RingCorrelation

FREQUENCY = np.linspace(0.1, 0.5, 5)


def quality(shape: tuple[int, int] = (6, 9), psnr: tuple[float, float] | None = None) -> Quality:
    """A ramp, and half of it."""
    noisy = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    curves = (RingCorrelation(FREQUENCY, np.array([1.0, start, 0.0, 0.0, -0.5])) for start in (0.1, 0.8))
    return Quality(noisy, noisy / 2, *curves, psnr)


def lines(count: int, **more: Any) -> list[dict[str, Any]]:
    rest = {"lr": 0.1, "validation_loss": None, "resolution": None, "audit": None}
    return [{"step": k, "loss": 1 / (k + 1), **rest, **more} for k in range(count)]


class Reader(HTMLParser):
    """Every tag is closed by its own."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element of SVG without content."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def grey(address: str, width: int) -> np.ndarray:
    file = base64.b64decode(address.partition(",")[2])
    start = file.index(b"IDAT")
    size = int.from_bytes(file[start - 4:start], "big")
    rows = np.frombuffer(zlib.decompress(file[start + 4:start + 4 + size]), np.uint8).reshape(-1, width + 1)
    return rows[:, 1:]


def test_pictures_have_one_grey_scale_and_the_difference_its_own() -> None:
    read = Reader(page(lines(3), quality(), {}))
    noisy, denoised, difference = (grey(one, 9) for one in read.addresses)
    assert noisy[0, 0] == 0 and noisy[-1, -1] == 255 and noisy.shape == (6, 9)
    assert denoised[0, 0] == 0 and 124 <= denoised[-1, -1] <= 130
    assert difference[0, 0] == 127 and difference[-1, -1] == 255


def test_large_pictures_show_their_middle() -> None:
    read = Reader(page(lines(3), quality((600, 700)), {}))
    assert grey(read.addresses[0], 512).shape == (512, 512)


def test_curves_and_tables() -> None:
    told = lines(1200)
    told[99] |= {"validation_loss": 0.5, "resolution": 0.31}
    told[1199] |= {"validation_loss": 0.25, "resolution": 0.42}
    told[0]["audit"] = {"verdict": "rounding", "t": 0.123, "seconds": 1.5}
    told[600]["audit"] = {"verdict": "cannot_tell", "t": 2.5, "seconds": 1.5}
    text = page(told, quality(), {"model": "<b>&"})
    Reader(text)
    assert "<h1>1200 steps of training</h1>" in text
    assert "Loss 1 at first, 0.0008333 at last." in text
    assert "Best validation loss 0.25, after step 1199." in text
    assert "1 of 2 audited steps are right" in text and "cannot tell" in text
    assert "<td>99</td><td>0.5</td><td>0.310</td>" in text and "&lt;b&gt;&amp;" in text
    # A point for every third step, and two validations
    curve, dashed = re.findall(r'class="(?:curve|limit)" d="(M[^"]*)"', text)[:2]
    assert curve.count("L") == 399 and dashed.count("L") == 1
    # Between the halves as they are the correlation begins at 0.1, and between what is made of them at 0.8
    before, after = ([float(place.split()[1]) for place in one[1:].split("L")]
                     for one in re.findall(r'class="(?:curve|limit)" d="(M[^"]*)"', text)[2:])
    assert before[1] > after[1] and before[2] == after[2]
    assert "Below 0.143 from 0.282 cycles per pixel on, dashed from 0.195." in text


@pytest.mark.parametrize("told", [
    [], lines(1), lines(2), lines(3, loss=0.0), lines(3, loss=float("inf")), lines(3, loss=0.5), lines(3, loss=-1.0)],
    ids=["none", "one", "two", "zero", "infinite", "equal", "negative"])
def test_any_log_makes_a_page(told: list[dict[str, Any]]) -> None:
    Reader(page(told, None, {}))


def test_signal_to_noise_where_the_clean_image_is_known() -> None:
    assert "Peak signal to noise ratio: 20.00 dB before, 30.00 dB after." in page(lines(2), quality(psnr=(20, 30)), {})


def test_an_image_of_one_value() -> None:
    image, curve = np.zeros((4, 4), np.float32), RingCorrelation(FREQUENCY, FREQUENCY)
    Reader(page(lines(2), Quality(image, image, curve, curve), {}))
