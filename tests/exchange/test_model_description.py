# SPDX-License-Identifier: MIT
"""The model description of files of version 1, a JSON text: what is taken and what is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from bridge import FileError, Model
from tests.helpers.loops import looped

CONV = {"name": "a", "type": "conv2d", "in_channels": 2, "out_channels": 4, "kernel_size": [3, 1], "stride": [2, 1],
        "padding": [0, 1], "dilation": [1, 2], "groups": 2, "bias": False}
GOOD: dict[str, Any] = {"layers": [CONV, {"name": "r.1-x_", "type": "relu"}],
                        "loss": {"type": "mse", "reduction": "sum"}}


def test_a_good_one_is_taken() -> None:
    short = copy.deepcopy(GOOD)
    for key in ("stride", "padding", "dilation", "groups"):
        del short["layers"][0][key]
    for content in (GOOD, short):
        for text in (json.dumps(content), json.dumps(content, indent="\t")):
            assert Model.from_json(text).layers[1].name == "r.1-x_"


def change(*path: str | int, value: object) -> Callable[[dict], None]:
    """Set a value; None of it deletes."""

    def spoil(content: Any) -> None:
        for key in path[:-1]:
            content = content[key]
        if value is None:
            del content[path[-1]]
        else:
            content[path[-1]] = value

    return spoil


BAD: dict[str, Callable[[dict], None]] = {
    "no layers": change("layers", value=None),
    "empty layers": change("layers", value=[]),
    "layers is a text": change("layers", value="conv"),
    "unknown key at the top": change("optimizer", value="adam"),
    "unknown key of a convolution": change("layers", 0, "padding_mode", value="reflect"),
    "misspelt key": change("layers", 0, "strides", value=[2, 2]),
    "unknown key of a relu": change("layers", 1, "negative_slope", value=0.1),
    "unknown key of the loss": change("loss", "weight", value=2.0),
    "key with a dot": change("layers.0.name", value="b"),
    "key with a dot that leads nowhere": change("padding.mode", value="reflect"),
    "unknown type": change("layers", 0, "type", value="linear"),
    "no name": change("layers", 0, "name", value=None),
    "empty name": change("layers", 0, "name", value=""),
    "name with a slash": change("layers", 0, "name", value="a/b"),
    "name of the input": change("layers", 0, "name", value="input"),
    "name twice": change("layers", 1, "name", value="a"),
    "name too long": change("layers", 1, "name", value="x" * 65),
    "no channels": change("layers", 0, "in_channels", value=None),
    "zero channels": change("layers", 0, "out_channels", value=0),
    "half a channel": change("layers", 0, "out_channels", value=2.5),
    "channels as text": change("layers", 0, "out_channels", value="4"),
    "more channels than anybody has": change("layers", 0, "out_channels", value=10**9),
    "a number beyond 32 bits": change("layers", 0, "out_channels", value=2**40),
    "groups that do not divide": change("layers", 0, "groups", value=3),
    "one number for two": change("layers", 0, "stride", value=[1]),
    "three numbers for two": change("layers", 0, "kernel_size", value=[3, 3, 3]),
    "a number for a pair": change("layers", 0, "padding", value=1),
    "zero stride": change("layers", 0, "stride", value=[0, 1]),
    "negative padding": change("layers", 0, "padding", value=[-1, 0]),
    "no kernel": change("layers", 0, "kernel_size", value=None),
    "no bias": change("layers", 0, "bias", value=None),
    "bias as a number": change("layers", 0, "bias", value=1),
    "no loss": change("loss", value=None),
    "another loss": change("loss", "type", value="l1"),
    "another reduction": change("loss", "reduction", value="none"),
}


@looped(("name", "spoil"), BAD.items())
def test_a_bad_one_is_refused(name: str, spoil: Callable[[dict], None]) -> None:
    content = copy.deepcopy(GOOD)
    spoil(content)
    refused(json.dumps(content))


@pytest.mark.parametrize("text", [
    "", "{", "[]", "null", '"layers"', "{}", '{"layers": [}', json.dumps(GOOD) + "x", json.dumps(GOOD)[:-1],
    json.dumps(GOOD).replace("false", "null"), json.dumps(GOOD).replace('"groups": 2', '"groups": 2, "groups": 1'),
    "[" * 100_000, '{"layers": [' + "1," * 50_000 + "1]}",
])
def test_broken_text_is_refused(text: str) -> None:
    refused(text)


def refused(text: str) -> None:
    with pytest.raises(FileError, match=r"^model description: "):
        Model.from_json(text)
