# SPDX-License-Identifier: MIT
"""What is said of a file that is too large, cannot be read, or is not what it should be."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import h5py
import pytest

from bridge import compare
from bridge.common.errors import BridgeError, FileError
from bridge.engine.library import programs
from bridge.engine.library.programs import cnn_step
from bridge.exchange.file import ExchangeFile
from bridge.validate import __main__ as validate
from bridge.validate.options import Options
from bridge.validate.workspace import workspace
from reference import cli
from reference.errors import InputError
from reference.files.disk import check_place
from tests import ROOT

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def unreadable(small_fixture: Path) -> Iterator[Path]:
    """A fixture that only its owner may read, in a folder for everybody."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        path = Path(folder) / "f.h5"
        shutil.copyfile(small_fixture, path)
        path.chmod(0o000 if os.geteuid() else 0o600)
        yield path


def as_nobody(command: list[object]) -> subprocess.CompletedProcess[str]:
    """Run as a user without rights, where this one has all."""
    user = {} if os.geteuid() else {"user": 65534, "group": 65534, "extra_groups": []}
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, cwd=ROOT, **user)


def test_a_file_that_may_not_be_read(unreadable: Path) -> None:
    """Is not called damaged, nor another format."""
    step = cnn_step()
    try:
        works = as_nobody([step, "--version"]).returncode == 0
    except PermissionError:
        works = False
    if not works:
        pytest.skip("skipped, because a user without rights may not run the program")
    said = "permission denied, expected a file that this user may read"
    done = as_nobody([step, unreadable, unreadable.with_name("r.h5")])
    assert (done.returncode, done.stderr) == (2, f"cnn_step: {unreadable}: {said}\n")


def test_a_file_that_h5py_may_not_read(small_fixture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: object) -> None:
        raise PermissionError(13, "Unable to synchronously open file (errno = 13)")

    monkeypatch.setattr(h5py, "File", refused)
    with pytest.raises(FileError, match="h5: permission denied, expected a file that this user may read"):
        ExchangeFile(small_fixture)


@pytest.mark.parametrize(("version", "found"), [(3.0, "3"), (3, "3"), (1.5, "1.5"), (float("nan"), "NaN"), (-1.0, "-1"),
                                                (1e30, "1.00000E+30")])
def test_a_format_version_is_shown_as_it_is(version: float, found: str, small_fixture: Path, tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    shutil.copyfile(small_fixture, path)
    with h5py.File(path, "r+") as file:
        file.attrs["format_version"] = version
    done = subprocess.run([cnn_step(), path, tmp_path / "r.h5"], capture_output=True, text=True, check=False)
    assert done.stderr == f"cnn_step: {path}: format_version is {found}, this program reads versions 1 and 2\n"


def test_a_missing_weight_is_named(small_fixture: Path, small_result: Path, tmp_path: Path,
                                   capsys: pytest.CaptureFixture[str]) -> None:
    """As cnn_step names it."""
    path = tmp_path / "f.h5"
    shutil.copyfile(small_fixture, path)
    with h5py.File(path, "r+") as file:
        del file["steps/0/weights/conv2/bias"]
    assert compare.main([str(path), str(small_result)]) == 2
    said = "steps/0/weights/conv2/bias is missing, expected a dataset of shape (16,) (weights before the first step)"
    assert capsys.readouterr().err.splitlines()[-1] == f"bridge.compare: {path}: {said}"


@pytest.mark.parametrize(("image", "said"), [
    (".", "image .: a folder, expected a file: .mrc,"),
    ("stacks.mrc", "image stacks.mrc: a folder, expected a file: .mrc,"),
    ("stack", "image stack: a name without an ending, expected .mrc,"),
])
def test_an_image_that_is_none(image: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                               capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("stacks.mrc").mkdir()
    assert cli.main(["f.h5", "--image", image, "--size", "8"]) == 2
    assert capsys.readouterr().err.startswith(f"reference.export: {said}")


@pytest.mark.parametrize("wrong", ["abc", "0", "-8", "16x", "x16", "1.5", "16x16x16"])
def test_every_size_is_looked_at_before_the_first_runs(wrong: str, monkeypatch: pytest.MonkeyPatch,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(programs, "export_fixture", lambda *given: pytest.fail("the work has begun"))
    with pytest.raises(SystemExit, match="2"):
        validate.main([f"--sizes=64,{wrong}"])
    assert f"expected HxW or one number in each place, found '{wrong}'" in capsys.readouterr().err


def test_a_small_disk_is_shown_in_its_own_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as 0.0 GB needed, 0.0 GB free."""
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(1 << 20, 0, 40_000))
    said = r"40\.0 kB free, expected 1\.24 MB for the fixture and the result"
    with pytest.raises(BridgeError, match=said), workspace(str(tmp_path), 1_240_000):
        pass
    with pytest.raises(InputError, match=r"f\.h5: 1\.24 MB needed, 40\.0 kB free \(--size"):
        check_place(tmp_path / "f.h5", 1_240_000)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="skipped, because there is no /proc here")
def test_a_file_system_without_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc takes no files, which is another thing than a full disk; another one may well take them."""
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    with pytest.raises(BridgeError, match="/proc: takes no files"), workspace("/proc", 1000):
        pass
    with pytest.raises(InputError, match=r"cannot write /proc/f\.h5: /proc takes no files"):
        check_place("/proc/f.h5", 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(0, 0, 0))
    assert check_place(tmp_path / "f.h5", 1000).name == "f.h5"
    with workspace(str(tmp_path), 1000) as folder:
        assert folder == tmp_path


@pytest.mark.parametrize(("options", "expected"), [
    (["--size", "48x64", "--steps", "2"], 2 * 48 * 64 * (532 * 2 + 1048 * 2)),
    (["--size", "48x64", "--batch", "3", "--steps", "3", "--oracle-steps", "1"], 3 * 48 * 64 * (532 * 3 + 1048)),
])
def test_the_size_is_said_before_it_is_written(options: list[str], expected: int, tmp_path: Path,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    """By the formula of --help, which leaves out weights and what HDF5 needs for names."""
    path = tmp_path / "f.h5"
    assert cli.main([str(path), *options]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    value, unit, *rest = first.removeprefix("will write ").split()
    assert (unit, rest) == ("MB", ["to", str(path)]) and second.startswith("step 1 of ")
    assert float(value) * 1e6 == pytest.approx(path.stat().st_size, rel=0.04)
    assert expected == pytest.approx(path.stat().st_size, rel=0.04)


def test_what_a_killed_validation_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder may be memory; that of a living one is locked, and a new one will be."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("bridge.validate.workspace._fits_in_memory", lambda needed: False)
    old, new, other = (tmp_path / name for name in ("bridge-validate-old", "bridge-validate-new", "somebodys"))
    for folder in (old, new, other):
        folder.mkdir()
        (folder / "fixture.h5").touch()
    for folder in (old, other):
        os.utime(folder, (0, 0))
    with workspace(None, 1000) as living:
        os.utime(living, (0, 0))
        with workspace(None, 1000) as second:
            assert sorted(tmp_path.iterdir()) == sorted([new, other, living, second])
    assert sorted(tmp_path.iterdir()) == sorted([new, other])


def test_a_validation_says_how_much_it_will_keep() -> None:
    options = Options(size="256", batch=2, steps=3, keep="there")
    assert options.bytes_needed() == pytest.approx(621_538_288 + 2 * 256 * 256 * 524 * 3, rel=0.04)
