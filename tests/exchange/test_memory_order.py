# SPDX-License-Identifier: MIT
"""Candidates that know nothing of us: tensors in layouts of their own, written by programs of their own."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from bridge.common.errors import FileError
from bridge.exchange.file import ExchangeFile
from bridge.exchange.memory_order import KeptTensors, axes_of
from tests.helpers.candidates import ask
from tests.helpers.tiers import few, few_rows

Array = np.ndarray
NAMES = {"NCHW": "steps/0/forward/conv1", "KCRS": "steps/0/grads/conv1/weight", "K": "steps/0/grads/conv1/bias"}
SHAPES = {"NCHW": (2, 3, 4, 5), "KCRS": (2, 3, 4, 5), "K": (7,)}
CONV2 = "steps/0/grads/conv2/weight"


def written(values: Array, axes: str, layout: str, order: str = "C", flip: str = "") -> Array:
    """What a writer of that layout hands to h5py: another road than the reader's, element by element."""
    place = [axes.index(axis) for axis in layout.upper()]
    found = np.empty([values.shape[i] for i in place], values.dtype)
    for at in np.ndindex(*found.shape):
        source = [0] * len(axes)
        for i, where in zip(place, at, strict=True):
            source[i] = values.shape[i] - 1 - where if axes[i] in flip.upper() else where
        found[at] = values[tuple(source)]
    return np.asfortranarray(found).ravel(order="K").reshape(found.shape) if order.upper() == "F" else found


def start(file: h5py.File, role: str | None = "candidate") -> None:
    file.attrs["format"], file.attrs["format_version"] = "cnn-exchange", 1
    if role:
        file.attrs["role"] = role


def keep(file: h5py.File, name: str, values: Array, **attributes: object) -> None:
    if name in file:
        del file[name]
    file[name] = values
    for key, value in attributes.items():
        file[name].attrs[key] = value


def changed(source: Path, target: Path, change: Callable[[h5py.File], object]) -> Path:
    shutil.copyfile(source, target)
    with h5py.File(target, "r+") as file:
        change(file)
    return target


@pytest.mark.parametrize("axes", ["NCHW", "KCRS", "K"])
def test_every_layout_comes_out_in_our_axes(axes: str, tmp_path: Path) -> None:
    values = np.random.default_rng(1).standard_normal(SHAPES[axes], dtype=np.float32)
    flips = ["", axes[0], axes[-1].lower(), axes]
    for i, (letters, order, flip) in enumerate(itertools.product(itertools.permutations(axes), "CF", flips)):
        layout = "".join(letters)
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            start(file)
            keep(file, NAMES[axes], written(values, axes, layout, order, flip), layout=layout, order=order, flip=flip)
        with ExchangeFile(tmp_path / f"{i}.h5") as file:
            documented = file.file[NAMES[axes]][()]
            documented = documented.reshape(-1).reshape(documented.shape, order=order)
            documented = documented.transpose([layout.index(axis) for axis in axes])
            assert np.array_equal(np.flip(documented, [axes.index(axis) for axis in flip.upper()]), values)
            found = file.read(NAMES[axes], values.shape)
            assert found.flags.c_contiguous and found.tobytes() == values.tobytes(), (layout, order, flip)
            for part, one in enumerate(values):
                assert np.array_equal(file.read(NAMES[axes], values.shape, part), one), (layout, order, flip, part)


def test_an_order_needs_no_layout(tmp_path: Path) -> None:
    """Declared (n, c, h, w), written by a program that fills its memory column-major."""
    values = np.arange(120.0).reshape(2, 3, 4, 5)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        start(file)
        keep(file, NAMES["NCHW"], values.ravel(order="F").reshape(values.shape), order="f")
    with ExchangeFile(tmp_path / "a.h5") as file:
        assert np.array_equal(file.read(NAMES["NCHW"], values.shape, 1), values[1])


def test_big_endian_float64_and_chunks(tmp_path: Path) -> None:
    values = np.random.default_rng(2).standard_normal((2, 3, 4, 5))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        start(file)
        file.create_dataset(NAMES["NCHW"], data=values.transpose(0, 2, 3, 1).astype(">f8"), chunks=(1, 2, 2, 3),
                            compression="gzip")
        file[NAMES["NCHW"]].attrs["layout"] = np.bytes_("nhwc ")
    with ExchangeFile(tmp_path / "a.h5") as file:
        found = file.read(NAMES["NCHW"], values.shape)
        assert found.dtype == np.dtype("f8") and np.array_equal(found, values)


def test_one_image_is_all_that_is_read(tmp_path: Path) -> None:
    """Of a batch of 8, whichever axis it lies on."""
    shape = (8, 4, 64, 32)
    for layout in ("NHWC", "CHWN"):
        with h5py.File(tmp_path / f"{layout}.h5", "w") as file:
            start(file)
            stored = np.ones([shape["NCHW".index(axis)] for axis in layout], np.float32)
            keep(file, NAMES["NCHW"], stored, layout=layout)
        with ExchangeFile(tmp_path / f"{layout}.h5") as file:
            tracemalloc.start()
            file.read(NAMES["NCHW"], shape, 3)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 3 * stored.nbytes // 8, layout


def test_what_was_read_whole_is_kept_up_to_a_limit() -> None:
    kept, loaded = KeptTensors(limit=100), []

    def load(name: str) -> Array:
        return kept.get(name, lambda: (loaded.append(name), np.zeros(6))[1])

    for name in ("a", "b", "a", "c", "a", "b"):
        load(name)
    assert loaded == ["a", "b", "c", "b"]


def test_the_letters_of_every_tensor() -> None:
    assert [axes_of(f"/steps/3/{name}") for name in (
        "forward/weight", "grads/input", "grads/bias/output", "grads/c/weight", "weights/c/weight", "weights/c/bias",
        "loss")] == ["NCHW", "NCHW", "NCHW", "KCRS", "KCRS", "K", ""]
    assert axes_of("batches/0/input") == axes_of("oracle/steps/0/forward/conv1") == axes_of("steps/0") == ""


#: (attributes, role, words of the message)
REFUSED: list[tuple[dict[str, object], str | None, tuple[str, ...]]] = [
    ({"layout": "KCR"}, "candidate", ("'KCR'", "KCRS")),
    ({"layout": "NHWC"}, "candidate", ("'NHWC'", "KCRS")),
    ({"layout": "KKRS"}, "candidate", ("'KKRS'", "KCRS")),
    ({"layout": "KCRSS"}, "candidate", ("'KCRSS'", "KCRS in any order")),
    ({"layout": ""}, "candidate", ("''", "KCRS")),
    ({"layout": "x" * 5000}, "candidate", ("xxx...", "KCRS")),
    ({"layout": 4}, "candidate", ("layout", "4", "one text")),
    ({"layout": ["KCRS", "RSCK"]}, "candidate", ("layout", "None", "one text")),
    ({"layout": h5py.Empty("S4")}, "candidate", ("layout", "one text")),
    ({"order": "A"}, "candidate", ("'A'", "'C' or 'F'")),
    ({"order": 1}, "candidate", ("order", "one text")),
    ({"flip": "h"}, "candidate", ("'h'", "KCRS")),
    ({"flip": "rr"}, "candidate", ("'rr'", "once")),
    ({"flip": True}, "candidate", ("flip", "one text")),
    ({"layout": "RSCK"}, "candidate", ("shape (16, 16, 3, 3)", "(3, 3, 16, 16)", "layout RSCK")),
    ({"layout": "KCRS"}, None, ("role", "None", "'candidate'")),
]


@pytest.mark.parametrize("attributes, role, words", few_rows(REFUSED, 8))
def test_an_attribute_that_says_something_else_is_refused(
        small_fixture: Path, small_result: Path, attributes: dict[str, object], role: str | None,
        words: tuple[str, ...], tmp_path: Path) -> None:
    def change(file: h5py.File) -> None:
        for key, value in attributes.items():
            file[CONV2].attrs[key] = value
        if role is None:
            del file.attrs["role"]

    path = changed(small_result, tmp_path / "bad.h5", change)
    answer = ask(small_fixture, path)
    lines = [line for line in answer.errors.splitlines() if not line.startswith("compare with")]
    assert answer.code == 2 and len(lines) == 1 and len(lines[0]) < 400
    assert f"{path}: " in lines[0] and CONV2 in lines[0] and all(word in lines[0] for word in words), lines


@pytest.mark.parametrize("name", ["batches/0/input", "steps/0/weights/conv1/weight"])
def test_a_fixture_keeps_the_one_order(small_fixture: Path, small_result: Path, name: str, tmp_path: Path) -> None:
    for role in ("reference", None):
        def change(file: h5py.File, role: str | None = role) -> None:
            file[name].attrs["order"] = "C"
            if role is None:
                del file.attrs["role"]
        path = changed(small_fixture, tmp_path / "fixture.h5", change)
        answer = ask(path, small_result)
        assert answer.code == 2 and f"{name} has the attribute order" in answer.errors


def test_a_loss_has_no_axes(small_fixture: Path, small_result: Path, tmp_path: Path) -> None:
    path = changed(small_result, tmp_path / "bad.h5", lambda file: file["steps/0/loss"].attrs.update(layout="N"))
    answer = ask(small_fixture, path)
    assert answer.code == 2 and "steps/0/loss has the attribute layout" in answer.errors


def test_attributes_of_other_names_mean_nothing(small_fixture: Path, small_result: Path, tmp_path: Path) -> None:
    path = changed(small_result, tmp_path / "a.h5", lambda file: file[CONV2].attrs.update(units="1", scale=[1, 2]))
    assert ask(small_fixture, path).code == 0


def relaid(file: h5py.File, order: str) -> None:
    """Every tensor of a result in some other layout."""
    names: list[str] = []
    file["steps"].visititems(lambda name, node: names.append(f"steps/{name}") if axes_of(f"steps/{name}") else None)
    for i, name in enumerate(name for name in names if isinstance(file[name], h5py.Dataset)):
        axes = axes_of(name)
        layouts = ["".join(p) for p in itertools.permutations(axes)]
        layout, values = layouts[(5 * i + 7) % len(layouts)], file[name][()]
        flipped = values[(slice(None, None, -1),) * values.ndim].transpose([axes.index(axis) for axis in layout])
        if order == "F":
            flipped = flipped.ravel(order="F").reshape(flipped.shape)
        keep(file, name, flipped, layout=layout, order=order, flip=axes.lower())


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_whole_result_in_other_layouts_gets_the_same_verdict(
        small_fixture: Path, small_result: Path, order: str, tmp_path: Path) -> None:
    path = changed(small_result, tmp_path / "foreign.h5", lambda file: relaid(file, order))
    said = [ask(small_fixture, result, "--json", str(tmp_path / f"{i}.json"))
            for i, result in enumerate((small_result, path))]
    assert [answer.code for answer in said] == [0, 0]
    one, other = (json.loads((tmp_path / f"{i}.json").read_text())["tensors"] for i in range(2))
    assert one == other


@pytest.mark.parametrize("attributes", few([{"layout": "CKRS"}, {"layout": "KCSR"}, {"order": "F"}, {"flip": "rs"}], 2))
def test_a_wrong_attribute_is_a_bug_of_the_candidate(
        small_fixture: Path, small_result: Path, attributes: dict[str, str], tmp_path: Path) -> None:
    path = changed(small_result, tmp_path / "a.h5", lambda file: file[CONV2].attrs.update(attributes))
    answer = ask(small_fixture, path)
    assert answer.code == 1 and "grads/conv2/weight of step 0 is wrong" in answer.words


def in_folder(fixture: Path, folder: Path, command: list[str]) -> Path:
    shutil.copyfile(fixture, folder / "fixture.h5")
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
    return folder / "result.h5"


#: (text of the program, what a bug makes of it, the wrong tensor); nothing is the right program
BUGS = [
    ("", "", ""),
    ("i = y + r - 2", "i = y + r - 1", "forward/conv2"),
    ('"NCWH"', '"NCHW"', None),
    ('"SRCK"', '"SRKC"', "grads/conv2/weight"),
    ('"flip", "rs"', '"flip", "r"', "grads/conv2/weight"),
    ("dz(x, y, k, n)*a(j, i, c, n)", "dz(x, y, c, n)*a(j, i, k, n)", "grads/conv2/weight"),
]


@pytest.mark.parametrize("text, bug, wrong", BUGS)
def test_a_program_of_somebody_else_in_fortran(root: Path, small_fixture: Path, text: str, bug: str, wrong: str | None,
                            tmp_path: Path) -> None:
    h5fc = shutil.which("h5fc")
    if h5fc is None:
        pytest.skip("h5fc, HDF5's compiler wrapper, is not on the search path")
    source = (root / "tests/exchange/independent/writer.f90").read_text(encoding="utf-8")
    assert text in source
    (tmp_path / "other.f90").write_text(source.replace(text, bug) if text else source, encoding="utf-8")
    subprocess.run([h5fc, "-O1", "other.f90", "-o", "other"], cwd=tmp_path, check=True, capture_output=True)
    result = in_folder(small_fixture, tmp_path, [os.fspath(tmp_path / "other")])
    answer = ask(small_fixture, result)
    if wrong is None:
        assert answer.code == 2 and "steps/0/forward/conv2 has the shape" in answer.errors
    elif wrong:
        assert answer.code == 1 and f"{wrong} of step 0 is wrong" in answer.words
    else:
        assert answer.code == 0, answer.words


@pytest.mark.parametrize("library", ["scipy", "numpy"])
def test_a_program_of_somebody_else_in_python(root: Path, small_fixture: Path, library: str, tmp_path: Path) -> None:
    if library == "scipy":
        pytest.importorskip("scipy", reason="scipy is not installed; numpy's Fourier transforms take its part")
    script = root / "tests/exchange/independent/writer.py"
    option = [] if library == "scipy" else ["--no-scipy"]
    result = in_folder(small_fixture, tmp_path, [sys.executable, os.fspath(script), *option])
    answer = ask(small_fixture, result)
    assert answer.code == 0, answer.words
    with h5py.File(result, "r+") as file:
        file["steps/0/grads/conv3/weight"].attrs["layout"] = "SRCK"
    answer = ask(small_fixture, result)
    assert answer.code == 1 and "grads/conv3/weight of step 0 is wrong" in answer.words


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        start(file)
    with ExchangeFile(tmp_path / "a.h5") as file, pytest.raises(FileError, match="steps/0/loss is missing"):
        file.read("steps/0/loss", ())
