# SPDX-License-Identifier: MIT
"""The model of a file of version 2, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from bridge.common.errors import FileError
from bridge.exchange.file import ExchangeFile
from bridge.operations import Add, BatchNorm2d, Conv2d, LeakyRelu, MaxPool2d

LAYERS: dict[str, dict[str, Any]] = {
    "conv": {"index": 0, "type": "conv2d", "inputs": "input", "in_channels": 1, "out_channels": 2,
             "kernel_size": [3, 5], "padding": [1, 2], "bias": 0},
    "norm": {"index": 1, "type": "batch_norm2d", "num_features": 2, "eps": 1e-3},
    "leaky": {"index": 2, "type": "leaky_relu", "inputs": "norm", "negative_slope": 0.2},
    "pool": {"index": 3, "type": "max_pool2d", "kernel_size": [3, 3], "stride": [1, 1], "padding": [1, 1]},
    "add": {"index": 4, "type": "add", "inputs": "pool,conv"},
}


def write(path: Path, edit: Callable[[h5py.File], None] = lambda file: None) -> Path:
    with h5py.File(path, "w") as file:
        file.attrs["format"], file.attrs["format_version"] = "cnn-exchange", 2
        for name, attributes in LAYERS.items():
            file.create_group(f"model/layers/{name}").attrs.update(attributes)
        file.create_group("model/loss").attrs.update({"type": "mse", "reduction": "sum"})
        edit(file)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    with ExchangeFile(write(tmp_path / "a.h5")) as file:
        assert file.model is not None
        assert file.model.layers == (
            Conv2d("conv", 1, 2, (3, 5), padding=(1, 2), bias=False, inputs=("input",)),
            BatchNorm2d("norm", 2, 1e-3, inputs=("conv",)),
            LeakyRelu("leaky", 0.2, inputs=("norm",)),
            MaxPool2d("pool", (3, 3), (1, 1), (1, 1), inputs=("leaky",)),
            Add("add", inputs=("pool", "conv")),
        )
        assert not file.model.mean
        assert not file.model.graph.is_path


def attribute(layer: str, name: str, value: object) -> Callable[[h5py.File], None]:
    def edit(file: h5py.File) -> None:
        attributes = file[f"model/{layer}"].attrs
        if value is None:
            del attributes[name]
        else:
            attributes[name] = value

    return edit


@pytest.mark.parametrize(("edit", "message"), [
    (attribute("layers/conv", "type", "conv4d"), "model: layer conv has type 'conv4d', expected one of abs, "),
    (attribute("layers/conv", "type", None), "model: layer conv has type None, expected one of "),
    (attribute("layers/conv", "index", 7), "model: the layers' index are [1, 2, 3, 4, 7], expected 0, 1, 2, ..."),
    (attribute("layers/conv", "index", "x"), "model: layer conv has index 'x', expected a number from 0 on"),
    (attribute("layers/conv", "size", 3), "model: layer conv has the unknown attribute 'size'"),
    (attribute("layers/conv", "in_channels", None), "model: layer conv has no in_channels"),
    (attribute("layers/conv", "in_channels", 0),
     "model: layer conv has in_channels 0, expected an integer from 1 to 16777216"),
    (attribute("layers/conv", "in_channels", 1.0),
     "model: layer conv has in_channels 1.0, expected an integer from 1 to 16777216"),
    (attribute("layers/conv", "bias", 2), "model: layer conv has bias 2, expected 0 or 1"),
    (attribute("layers/conv", "padding", [1, -1]),
     "model: layer conv has padding (1, -1), expected (height, width), integers from 0 to 65536"),
    (attribute("layers/conv", "kernel_size", np.ones(1000, int)),
     "expected (height, width), integers from 1 to 65536"),
    (attribute("layers/norm", "eps", np.nan), "model: layer norm has eps nan, expected a number from 0 on"),
    (attribute("layers/add", "inputs", "pool,nothing"), "layer add: it takes nothing, and no layer has that name"),
    (attribute("layers/conv", "inputs", "add"), "layer conv: it takes add, which is computed from it or after it"),
    (attribute("layers/add", "inputs", 5), "model: layer add has inputs 5, expected names with commas between them"),
    (attribute("loss", "type", "hinge"),
     "model: loss is 'hinge' with the reduction 'sum', expected one of bce, bce_with_logits, cross_entropy, huber, l1, "
     "mse, smooth_l1 with mean or sum"),
    (attribute("loss", "delta", 1.0), "model: loss mse has the unknown attribute 'delta'"),
    (lambda file: file["model/loss"].create_group("a"),
     "model: the loss has the member 'a', expected attributes alone"),
    (lambda file: file.pop("model/loss"), "model: layers or loss is missing, "),
    (lambda file: file.pop("model/layers"), "model: layers or loss is missing, "),
    (lambda file: file["model/layers"].create_group("a b"), "model: layer 'a b' is not a group, or its name is not "),
])
def test_a_wrong_model_is_refused(tmp_path: Path, edit: Callable[[h5py.File], None], message: str) -> None:
    path = write(tmp_path / "a.h5", edit)
    with pytest.raises(FileError) as error, ExchangeFile(path):
        pass
    assert message in str(error.value)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize("group", ["model/layers/conv", "model/loss"])
def test_a_name_that_is_no_utf_8_is_told(tmp_path: Path, group: str) -> None:
    """Of a writer in Latin-1, or of damage."""
    def edit(file: h5py.File) -> None:
        h5py.h5a.create(file[group].id, b"gro\xffps", h5py.h5t.NATIVE_INT32, h5py.h5s.create(h5py.h5s.SCALAR))

    with pytest.raises(FileError, match=r"gro\\+xffps"):
        ExchangeFile(write(tmp_path / "latin1.h5", edit))


def test_names_in_a_list_of_datasets_are_printable(tmp_path: Path) -> None:
    def edit(file: h5py.File) -> None:
        h5py.h5d.create(file.id, b"gro\xffps", h5py.h5t.NATIVE_INT32, h5py.h5s.create(h5py.h5s.SCALAR))

    with ExchangeFile(write(tmp_path / "latin1.h5", edit)) as file:
        assert file.datasets() == ["gro\\xffps"]
