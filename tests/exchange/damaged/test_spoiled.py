# SPDX-License-Identifier: MIT
"""Fixtures and results that are spoiled: exit code 2, one clear line, no traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.helpers.candidates import ask
from tests.helpers.files.damaged import INPUT, Spoil, check_line, cycle, refused_by_step, spoilt
from tests.helpers.loops import looped

WEIGHT = "steps/0/weights/conv2/weight"


def put(name: str, make: Callable[[h5py.File, str], object]) -> Spoil:
    """Replace an object."""

    def spoil(file: h5py.File) -> None:
        del file[name]
        make(file, name)

    return spoil


def data(name: str, change: Callable[[np.ndarray], object]) -> Spoil:
    """Replace the values of a dataset."""

    def spoil(file: h5py.File) -> None:
        changed = change(file[name][()])
        del file[name]
        file[name] = changed

    return spoil


def attribute(node: str, name: str, value: object) -> Spoil:
    """Replace or (None) delete an attribute."""

    def spoil(file: h5py.File) -> None:
        del file[node].attrs[name]
        if value is not None:
            file[node].attrs[name] = value

    return spoil


def layer(name: str, attribute: str, value: object) -> Spoil:
    """Replace or (None) delete an attribute of a layer, or add one."""

    def spoil(file: h5py.File) -> None:
        attributes = file[f"model/layers/{name}"].attrs
        if value is None:
            del attributes[attribute]
        else:
            attributes[attribute] = value

    return spoil


def renamed(new: bytes) -> Spoil:
    """Give relu1 another name."""
    return lambda file: file["model/layers"].move("relu1", new.decode())


def with_nan(values: np.ndarray) -> np.ndarray:
    values[(0,) * values.ndim] = np.nan
    return values


def through_external(file: h5py.File, name: str) -> None:
    file["elsewhere"] = h5py.ExternalLink("other.h5", "/x")
    file[name] = h5py.SoftLink("/elsewhere")


def virtual(file: h5py.File, name: str) -> None:
    layout = h5py.VirtualLayout((2, 1, 9, 12), "f4")
    layout[:] = h5py.VirtualSource("other.h5", "x", (2, 1, 9, 12))
    file.create_virtual_dataset(name, layout)

#: (what, how, words of the message)
FIXTURES: list[tuple[str, Spoil, tuple[str, ...]]] = [
    ("no format", attribute("/", "format", None), ("format",)),
    ("other format", attribute("/", "format", "onnx"), ("format", "onnx")),
    ("format is very long", attribute("/", "format", "x" * 60_000), ("format", "xxx...")),
    ("format acts on terminals", attribute("/", "format", "\x1b[2J\u2028"), ("format",)),
    ("format is a number", attribute("/", "format", 1), ("format",)),
    ("format is an array", attribute("/", "format", ["a", "b"]), ("format",)),
    ("version 3", attribute("/", "format_version", 3), ("format_version", "3")),
    ("version is text", attribute("/", "format_version", "one"), ("format_version",)),
    ("version missing", attribute("/", "format_version", None), ("format_version",)),
    ("precision unknown", attribute("/", "precision", "float16"), ("precision", "float16")),
    ("precision is an array", attribute("/", "precision", [1.0, 2.0]), ("precision",)),
    ("no model", lambda file: file.__delitem__("model"), ("model",)),
    ("model is empty", put("model", lambda file, name: file.create_group(name)), ("model",)),
    ("model is a number", put("model", lambda file, name: file.__setitem__(name, 3.0)), ("model",)),
    ("model is JSON, as in version 1", put("model", lambda file, name: file.__setitem__(name, '{"layers": []}')),
     ("model",)),
    ("model in a circle", put("model/layers", lambda file, name: file.__setitem__(name, file["model"])), ("model",)),
    ("model elsewhere", put("model/layers", lambda file, name: file.__setitem__(
        name, h5py.ExternalLink("other.h5", "/"))), ("model",)),
    ("no layers", put("model/layers", lambda file, name: file.create_group(name)), ("layers",)),
    ("layer is a number", put("model/layers/relu1", lambda file, name: file.__setitem__(name, 1.0)), ("relu1",)),
    ("layer has a member", lambda file: file.create_group("model/layers/relu1/x"), ()),
    ("layer unknown", layer("relu1", "type", "conv4d"), ("conv4d",)),
    ("layer without type", layer("relu1", "type", None), ("type",)),
    ("layer without index", layer("relu1", "index", None), ("index",)),
    ("index twice", layer("relu1", "index", 0), ("index",)),
    ("index is half", layer("relu1", "index", 1.5), ("index",)),
    ("unknown attribute", layer("relu1", "inplace", 1), ("inplace",)),
    ("unknown input", layer("relu1", "inputs", "conv9"), ("conv9",)),
    ("name with a blank", renamed(b"a b"), ("name",)),
    ("name too long", renamed(b"x" * 65), ("name",)),
    ("name is input", renamed(b"input"), ("name",)),
    ("kernel of 0", layer("conv1", "kernel_size", [0, 3]), ("kernel_size",)),
    ("kernel too large", layer("conv1", "kernel_size", [65536, 65536]), ()),
    ("kernel of a thousand numbers", layer("conv1", "kernel_size", [3] * 1000), ("kernel_size",)),
    ("stride is a text", layer("conv1", "stride", "1"), ("stride",)),
    ("padding negative", layer("conv1", "padding", [-1, 0]), ("padding",)),
    ("channels do not fit", layer("conv2", "in_channels", 5), ()),
    ("groups do not divide", layer("conv2", "groups", 3), ("groups",)),
    ("no loss", lambda file: file.__delitem__("model/loss"), ("loss",)),
    ("loss unknown", lambda file: file["model/loss"].attrs.__setitem__("type", "l9"), ("loss",)),
    ("reduction unknown", lambda file: file["model/loss"].attrs.__setitem__("reduction", "none"), ("reduction",)),
    ("no optimizer", lambda file: file.__delitem__("optimizer"), ("optimizer",)),
    ("optimizer is a dataset", put("optimizer", lambda file, name: file.__setitem__(name, 1.0)), ("optimizer",)),
    ("adam without betas", attribute("optimizer", "type", "adam"), ("beta1",)),
    ("another optimizer", attribute("optimizer", "type", "lion"), ("lion",)),
    ("lr missing", attribute("optimizer", "lr", None), ("lr",)),
    ("lr is text", attribute("optimizer", "lr", "fast"), ("lr",)),
    ("lr is NaN", attribute("optimizer", "lr", np.nan), ("lr",)),
    ("lr is negative", attribute("optimizer", "lr", -0.5), ("lr",)),
    ("momentum is infinite", attribute("optimizer", "momentum", np.inf), ("momentum",)),
    ("no batches", lambda file: file.__delitem__("batches"), ("batches/0/input",)),
    ("no target", lambda file: file.__delitem__("batches/1/target"), ("batches/1/target",)),
    ("no weights", lambda file: file.__delitem__("steps/0/weights"), ("steps/0/weights",)),
    ("a weight missing", lambda file: file.__delitem__(WEIGHT), ("steps/0/weights",)),
    ("weight is a group", put(WEIGHT, lambda file, name: file.create_group(name)), ("steps/0/weights",)),
    ("layer is a dataset", put("steps/0/weights/conv2", lambda file, name: file.__setitem__(name, 1.0)), ()),
    ("integers", data(WEIGHT, lambda w: w.astype(np.int32)), (WEIGHT, "int32")),
    ("float16", data(WEIGHT, lambda w: w.astype(np.float16)), (WEIGHT, "float16")),
    ("complex", data(WEIGHT, lambda w: w.astype(np.complex64)), (WEIGHT, "complex64")),
    (
        "texts",
        put(WEIGHT, lambda file, name: file.create_dataset(name, (16, 16, 3, 3), h5py.string_dtype())),
        (WEIGHT,),
    ),
    ("booleans", data(WEIGHT, lambda w: w > 0), (WEIGHT, "bool")),
    ("wrong shape", data(WEIGHT, lambda w: w[:, :, :, :2]), (WEIGHT, "shape", "(16, 16, 3, 3)")),
    ("axes swapped", data(WEIGHT, lambda w: w.reshape(3, 3, 16, 16)), (WEIGHT, "shape")),
    ("wrong rank", data(WEIGHT, lambda w: w.reshape(256, 9)), (WEIGHT, "shape")),
    ("rank 5", data(WEIGHT, lambda w: w[None]), (WEIGHT, "shape")),
    ("scalar", data(WEIGHT, lambda w: w[0, 0, 0, 0]), (WEIGHT, "shape")),
    ("no elements", data(WEIGHT, lambda w: w[:0]), (WEIGHT, "shape")),
    ("null space", put(WEIGHT, lambda file, name: file.__setitem__(name, h5py.Empty("f4"))), (WEIGHT,)),
    ("no data", put(WEIGHT, lambda file, name: file.create_dataset(name, (16, 16, 3, 3), "f4")), (WEIGHT, "data")),
    ("input of rank 3", data(INPUT, lambda x: x[0]), (INPUT, "shape")),
    ("input empty", data(INPUT, lambda x: x[:0]), (INPUT, "shape")),
    (
        "input is huge",
        put(INPUT, lambda file, name: file.create_dataset(name, (2, 1, 10**6, 10**6), "f4")),
        ("batches/0",),
    ),
    ("target too small", data("batches/0/target", lambda t: t[:, :, 1:]), ("batches/0/target", "shape")),
    ("batches differ", data("batches/1/input", lambda x: x[:1]), ("batches/1/",)),
    ("NaN in the input", data("batches/1/input", with_nan), ("batches/1/input", "NaN")),
    ("NaN in the target", data("batches/0/target", with_nan), ("batches/0/target", "NaN")),
    ("NaN in the weights", data(WEIGHT, with_nan), (WEIGHT, "NaN")),
    ("dangling link", put(INPUT, lambda file, name: file.__setitem__(name, h5py.SoftLink("/nowhere"))), (INPUT,)),
    ("cyclic link", put(INPUT, cycle), (INPUT,)),
    (
        "external link",
        put(INPUT, lambda file, name: file.__setitem__(name, h5py.ExternalLink("other.h5", "/x"))),
        (INPUT,),
    ),
    ("soft link to an external one", put(INPUT, through_external), (INPUT,)),
    ("virtual dataset", put(INPUT, virtual), (INPUT,)),
    (
        "external storage",
        put(INPUT, lambda file, name: file.create_dataset(name, (2, 1, 9, 12), "f4", external=[("other.raw", 0, 864)])),
        (INPUT,),
    ),
    (
        "group in a circle",
        put("steps/0/weights", lambda file, name: file.__setitem__(name, file["steps"])),
        ("steps/0",),
    ),
]


@looped("what, spoil, words", FIXTURES)
def test_a_bad_fixture_is_refused(
    pair: tuple[Path, Path], what: str, spoil: Spoil, words: tuple[str, ...], tmp_path: Path
) -> None:
    path = spoilt(pair[0], tmp_path, spoil)
    answer = ask(path, pair[1])
    assert answer.code == 2
    check_line(answer.errors, path, *words)


@pytest.mark.deep
@looped("what, spoil, words", FIXTURES)
def test_a_bad_fixture_is_refused_by_the_fortran_reader(
    pair: tuple[Path, Path], what: str, spoil: Spoil, words: tuple[str, ...], tmp_path: Path,
    capfd: pytest.CaptureFixture
) -> None:
    refused_by_step(spoilt(pair[0], tmp_path, spoil), tmp_path, capfd)


def half_written(file: h5py.File, name: str) -> None:
    file.create_dataset(name, (2, 16, 9, 12), "f4", chunks=(1, 16, 9, 12))
    file[name][0] = 1

RESULTS: list[tuple[str, Spoil, tuple[str, ...]]] = [
    ("half written", put("steps/0/forward/conv1", half_written), ("steps/0/forward/conv1", "holds only 6912")),
    ("another model", layer("conv2", "padding", [0, 0]), ("model",)),
    ("wrong shape", data("steps/1/forward/conv2", lambda z: z[:, :, 1:]), ("steps/1/forward/conv2", "shape")),
    ("axes swapped", data("steps/0/grads/input", lambda z: z.swapaxes(2, 3)), ("steps/0/grads/input", "shape")),
    ("integers", data("steps/0/grads/conv1/bias", lambda g: g.astype(int)), ("steps/0/grads/conv1/bias", "int64")),
    ("float16", data("steps/0/forward/conv1", lambda z: z.astype(np.float16)), ("steps/0/forward/conv1", "float16")),
    ("loss is an array", data("steps/0/loss", lambda loss: np.full(2, loss)), ("steps/0/loss", "shape")),
    (
        "no data",
        put("steps/0/forward/conv1", lambda file, name: file.create_dataset(name, (2, 16, 9, 12), "f4")),
        ("steps/0/forward/conv1", "no data"),
    ),
    (
        "huge",
        put(
            "steps/0/forward/conv1",
            lambda file, name: file.create_dataset(name, (2, 16, 2**30, 2**30), "f4", chunks=(1, 1, 64, 64)),
        ),
        ("steps/0/forward/conv1", "shape"),
    ),
    ("wrong version", attribute("/", "format_version", 7), ("format_version", "7")),
    ("model without a type", layer("conv2", "type", None), ("model",)),
    ("optimizer without lr", attribute("optimizer", "lr", None), ("lr", "optimizer")),
    (
        "virtual",
        put(
            "steps/0/forward/conv1",
            lambda file, name: file.create_virtual_dataset(name, h5py.VirtualLayout((2, 16, 9, 12), "f4")),
        ),
        ("steps/0/forward/conv1", "other files"),
    ),
]


@pytest.mark.parametrize("spoil, words", [row[1:] for row in RESULTS], ids=[row[0] for row in RESULTS])
def test_a_bad_result_is_refused(pair: tuple[Path, Path], spoil: Spoil, words: tuple[str, ...], tmp_path: Path) -> None:
    path = spoilt(pair[1], tmp_path, spoil)
    answer = ask(pair[0], path)
    assert answer.code == 2
    check_line(answer.errors, path, *words)
