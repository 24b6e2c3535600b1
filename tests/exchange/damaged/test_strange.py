# SPDX-License-Identifier: MIT
"""Strange and hostile files: exit code 2, one clear line, no traceback, in bounded time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from bridge.common.errors import FileError
from bridge.exchange.file import ExchangeFile
from tests.helpers.candidates import ask
from tests.helpers.files.damaged import INPUT, check_line, cycle, refused_by_step, spoilt


@pytest.mark.parametrize("link", ["dangling", "cyclic", "external", "group"])
def test_strange_objects_in_a_result_are_missing_tensors(pair: tuple[Path, Path], link: str, tmp_path: Path) -> None:
    """What is not a dataset of this file is not in the file: listed, never followed."""
    name = "steps/0/forward/conv2"
    make = {
        "dangling": lambda file: file.__setitem__(name, h5py.SoftLink("/nowhere")),
        "cyclic": lambda file: cycle(file, name),
        "external": lambda file: file.__setitem__(name, h5py.ExternalLink(str(pair[0]), "/" + name)),
        "group": lambda file: file.create_group(name),
    }[link]
    path = tmp_path / "result.h5"
    shutil.copyfile(pair[1], path)
    with h5py.File(path, "r+") as file:
        del file[name]
        make(file)
    answer = ask(pair[0], path)
    assert answer.code == 0 and "not judged: forward/conv2 (step 0): not in the file" in answer.words


def test_a_soft_link_inside_the_file_is_followed(pair: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "result.h5"
    shutil.copyfile(pair[1], path)
    with h5py.File(path, "r+") as file:
        file.move("steps/0/forward", "outputs")
        file["steps/0/forward"] = h5py.SoftLink("/outputs")
    assert ask(pair[0], path).code == 0


def test_a_huge_fixture_that_is_not_there(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """Two images of 2**36 pixels: one chunk of each is written."""
    def spoil(file: h5py.File) -> None:
        for name in (INPUT, "batches/0/target"):
            del file[name]
            file.create_dataset(name, (2, 1, 2**18, 2**18), "f4", chunks=(1, 1, 64, 64), compression="gzip")
            file[name][:, 0, 0, 0] = 1

    path = spoilt(pair[0], tmp_path, spoil)
    answer = ask(path, pair[1])
    assert answer.code == 2
    check_line(answer.errors, path, "batches/0/", "declares 549755813888 bytes but holds only")


def test_names_that_no_terminal_should_see(pair: tuple[Path, Path], tmp_path: Path) -> None:
    def spoil(file: h5py.File) -> None:
        for name in (b"\x1b[2Jescape", b"two\nlines", b"\xff\xfe", b"[/bold]"):
            file.create_dataset(name, data=1.0)

    answer = ask(pair[0], spoilt(pair[1], tmp_path, spoil))
    assert answer.code == 0
    assert all(name in answer.words for name in ("\\x1b[2Jescape", "two\\nlines", "\\xff\\xfe", "[/bold]"))
    assert "\x1b" not in answer.words


@pytest.mark.parametrize("role", ["fixture", "result"])
def test_truncated_files(pair: tuple[Path, Path], role: str, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    source = pair[role == "result"]
    whole, path = source.read_bytes(), tmp_path / "cut.h5"
    for length in (0, 1, 8, 96, 512, 2048, len(whole) // 3, len(whole) // 2, len(whole) - 4096, len(whole) - 1):
        path.write_bytes(whole[:length])
        if role == "fixture":
            refused_by_step(path, tmp_path, capfd)
        answer = ask(*((path, pair[1]) if role == "fixture" else (pair[0], path)))
        assert answer.code == 2
        check_line(answer.errors, path, "not a readable HDF5 file")


def test_damaged_bytes_never_crash(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """In a process of its own, where a crash would show; any verdict but a traceback is an answer."""
    whole, rng = pair[1].read_bytes(), np.random.default_rng(1)
    script = (
        "import sys; from bridge import compare, step; a = sys.argv[1:]\n"
        "print([compare.main([a[0], f, '--no-diagnosis']) for f in a[1:]])"
    )
    paths = []
    for i in range(12):
        spoilt = bytearray(whole)
        for at in rng.integers(0, 4096 if i % 2 else len(whole), 20):
            spoilt[at] = rng.integers(256)
        paths.append(tmp_path / f"{i}.h5")
        paths[-1].write_bytes(spoilt)
    done = subprocess.run(
        [sys.executable, "-c", script, str(pair[0]), *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr[-2000:]


def test_what_is_not_a_file(pair: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    (tmp_path / "text.h5").write_text("not HDF5\n" * 100)
    (tmp_path / "loop.h5").symlink_to("loop.h5")
    os.mkfifo(tmp_path / "pipe.h5")
    for name in ("none.h5", "text.h5", "loop.h5", "pipe.h5", "."):
        path = tmp_path / name
        for arguments in ((path, pair[1]), (pair[0], path)):
            answer = ask(*arguments)
            assert answer.code == 2
            check_line(answer.errors, path)
        if name != "pipe.h5":
            refused_by_step(path, tmp_path, capfd)


def test_where_json_cannot_be_written(pair: tuple[Path, Path], tmp_path: Path) -> None:
    answer = ask(*pair, "--json", str(tmp_path / "none" / "out.json"))
    assert answer.code == 2 and "none" in answer.errors and "Traceback" not in answer.errors


def test_what_the_reader_hands_out(pair: tuple[Path, Path]) -> None:
    with ExchangeFile(pair[0]) as file:
        assert file.has(INPUT) and not file.has("batches/0") and not file.has("batches/9/input")
        assert file.batches() == 2 and file.shape(INPUT) == (2, 1, 9, 12)
        assert file.read(INPUT, (2, 1, 9, 12), 1).shape == (1, 9, 12)
        with pytest.raises(FileError, match=r"batches/0/input has the shape \(2, 1, 9, 12\), expected \(1, 1, 9, 12\)"):
            file.read(INPUT, (1, 1, 9, 12))
        with pytest.raises(FileError, match="batches/9/input is missing"):
            file.shape("batches/9/input")
