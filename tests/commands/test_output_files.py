# SPDX-License-Identifier: MIT
"""No command replaces what it reads, nor one of its results by another; what it replaces, it replaces whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from benchmarks.validator import fuzz, gallery, healthy
from bridge import compare
from bridge.common.atomic_file import replacing, write_text
from bridge.common.command_files import check_files
from bridge.common.errors import BridgeError
from bridge.doctor import __main__ as doctor
from bridge.gradcheck import __main__ as gradcheck_main
from bridge.report.outputs import OutputFiles
from bridge.testing import assert_step_matches
from bridge.validate import __main__ as validate
from bridge.validate.plots import plot_precisions
from bridge.validate.precision_study import Fall
from bridge.validate.self_test import run as self_test
from reference import cli
from reference.errors import InputError
from reference.files.disk import check_place
from reference.files.writer import new_file
from tests import ROOT

Main = Callable[[list[str]], int]


@pytest.fixture
def folder(small_fixture: Path, small_result: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands run; a fixture, two results of it, a micrograph and a GPU's description are there."""
    monkeypatch.chdir(tmp_path)
    for source, names in ((small_fixture, ("f.h5",)), (small_result, ("r.h5", "r2.h5"))):
        for name in names:
            shutil.copyfile(source, name)
    np.save("pic.npy", np.zeros((40, 40), np.float32))
    with h5py.File("stack.h5", "w") as file:
        file["one"] = np.zeros((40, 40), np.float32)
    Path("gpu.json").write_text("{}", encoding="utf-8")
    Path("keep").mkdir()
    shutil.copyfile("pic.npy", "keep/fixture.h5")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


COMPARE = ["f.h5", "r.h5", "--again", "r2.h5"]

#: A command with one name for two files, and both as the message calls them
CLASHES: list[tuple[Main, list[str], str, str]] = [
    *((compare.main, [*COMPARE, option, path], f"{option} {path}", f"{name} {path}")
      for option in ("--json", "--report", "--junit")
      for name, path in (("FIXTURE", "f.h5"), ("RESULT", "r.h5"), ("--again", "r2.h5"))),
    (compare.main, [*COMPARE, "--json", "x", "--report", "x"], "--report x", "--json x"),
    (compare.main, [*COMPARE, "--junit", "x", "--report", "./x"], "--junit x", "--report ./x"),
    (validate.main, ["--image", "pic.npy", "--json", "pic.npy"], "--json pic.npy", "--image pic.npy"),
    (validate.main, ["--image", "stack.h5:/one", "--junit", "stack.h5"], "--junit stack.h5", "--image stack.h5"),
    (validate.main, ["--sizes", "8,16", "--plot", "x.png", "--json", "x.png"], "--plot x.png", "--json x.png"),
    (validate.main, ["--keep", "keep", "--image", "keep/fixture.h5"], "--keep keep/fixture.h5",
     "--image keep/fixture.h5"),
    (validate.main, ["--keep", "keep", "--report", "keep/result.h5"], "--keep keep/result.h5",
     "--report keep/result.h5"),
    (validate.main, ["--sizes", "8,16", "--keep", "keep", "--json", "keep/result-16.h5"], "--keep keep/result-16.h5",
     "--json keep/result-16.h5"),
    (validate.main, ["--probe", "--keep", "keep", "--json", "keep/fixture-probe2.h5"], "--keep keep/fixture-probe2.h5",
     "--json keep/fixture-probe2.h5"),
    (gradcheck_main.main, ["--fixture", "f.h5", "--json", "f.h5"], "--json f.h5", "--fixture f.h5"),
    (doctor.main, ["--plans", "--gpu", "gpu.json", "--json", "gpu.json"], "--json gpu.json", "--gpu gpu.json"),
]


def named(value: object) -> str:
    """The name of a case: of a command its module, for its own text has an address in it."""
    return getattr(value, "__module__", str(value)[:60])


@pytest.mark.parametrize(("main", "arguments", "lost", "kept"), CLASHES, ids=named)
def test_one_name_for_two_files_is_refused(main: Main, arguments: list[str], lost: str, kept: str, folder: Path,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, before any work; every file is as it was, and none is new."""
    before = contents(folder)
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.err.partition(": ")[2] == f"{lost}: would replace {kept}, expected another file\n" and not said.out
    assert contents(folder) == before


def other_names(path: Path) -> list[str]:
    """Three more names of a file: a symbolic link to a symbolic link, a hard link, a detour."""
    links = [path.with_name(f"{kind}-{path.name}") for kind in ("soft", "softer", "hard")]
    links[0].symlink_to(path.name)
    links[1].symlink_to(links[0].name)
    os.link(path, links[2])
    return [str(links[1]), str(links[2]), f"{path.parent.name}/../{path.parent.name}/{path.name}"]


def test_all_names_of_a_file_are_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    for name in other_names(folder / "f.h5"):
        with pytest.raises(BridgeError, match=f"--json {name}: would replace FIXTURE"):
            check_files([("FIXTURE", folder / "f.h5")], [("--json", name)])
    # Of a file that is not there yet, too
    (folder / "new.link").symlink_to("new")
    with pytest.raises(BridgeError, match=r"--junit .*new\.link: would replace --json .*new, expected another file"):
        check_files([], [("--json", folder / "new"), ("--junit", folder / "new.link")])


def test_the_file_that_the_output_goes_to_is_not_replaced(folder: Path) -> None:
    """``compare ... --json x > x`` would lose what was printed."""
    x = folder / "x"
    with x.open("w", encoding="utf-8") as out:
        done = subprocess.run([sys.executable, "-m", "bridge.compare", folder / "f.h5", folder / "r.h5", "--json", x],
                              stdout=out, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr == f"bridge.compare: --json {x}: would replace the standard output, expected another file\n"


@pytest.mark.parametrize("image", ["pic.npy", "stack.h5:/one", "soft.h5:/one"])
def test_an_export_does_not_replace_its_image(image: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("soft.h5").symlink_to("stack.h5")
    before, file = contents(folder), image.partition(":")[0]
    for name in (file, *other_names(folder / file)[:2]):
        assert cli.main([name, "--image", image, "--size", "8"]) == 2
        expected = f"cannot write {name}: it would replace --image {file}, expected another file"
        assert capsys.readouterr().err == f"reference.export: {expected}\n"
    assert {name: data for name, data in contents(folder).items() if name in before} == before


def test_an_export_does_not_replace_its_model(folder: Path, monkeypatch: pytest.MonkeyPatch,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    text = "from reference.model import ThreeLayerCNN\n\ndef make():\n    return ThreeLayerCNN()\n"
    Path("mine_to_keep.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    assert cli.main(["mine_to_keep.py", "--model", "mine_to_keep:make", "--size", "8"]) == 2
    assert "it would replace --model" in capsys.readouterr().err
    assert Path("mine_to_keep.py").read_text(encoding="utf-8") == text


def test_a_report_of_a_test_suite_replaces_neither_file(folder: Path) -> None:
    before = contents(folder)
    for path in ("f.h5", "r.h5"):
        with pytest.raises(BridgeError, match=f"report {path}: would replace"):
            assert_step_matches("f.h5", "r.h5", report=path)
    assert contents(folder) == before


@pytest.mark.parametrize("main", [gallery.main, fuzz.main, healthy.main, doctor.main, gradcheck_main.main],
                         ids=named)
@pytest.mark.parametrize("path", ["keep", "none/v.json"])
def test_what_cannot_be_written_is_refused_before_the_work(main: Main, path: str, folder: Path,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", path]) == 2
    why = {"keep": "not the name of a file", "none/v.json": "no such folder"}[path]
    assert capsys.readouterr().err.endswith(f": --json {path}: {why}\n")


def test_a_self_test_refuses_it_too(folder: Path) -> None:
    with pytest.raises(BridgeError, match="--json keep: not the name of a file"):
        self_test.main(files=OutputFiles(json="keep"))


SPECIAL = [("pipe", "not a regular file"), ("loop", "not a regular file"), ("/dev/null", "not a regular file"),
           ("into-nowhere", "no such folder")]


@pytest.mark.parametrize(("path", "why"), SPECIAL)
def test_only_a_regular_file_is_replaced(path: str, why: str, folder: Path) -> None:
    """A device would be gone from the system, a pipe from its reader."""
    os.mkfifo("pipe")
    Path("loop").symlink_to("loop")
    Path("into-nowhere").symlink_to("none/v.json")
    with pytest.raises(BridgeError, match=f"--json {path}: {why}"):
        check_files([], [("--json", path)])
    with pytest.raises(InputError, match=r"regular file|does not exist"):
        check_place(path)
    assert os.path.lexists(path)


def test_a_write_protected_file_is_not_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The superuser may write to it, so the answer of the system is played."""
    os.chmod("r.h5", 0o444)
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("r.h5") and allowed(path, mode))
    with pytest.raises(BridgeError, match=r"--json r\.h5: write-protected"):
        check_files([], [("--json", "r.h5")])
    with pytest.raises(InputError, match=r"r\.h5: it is there and is write-protected"):
        check_place("r.h5")


def by_text(path: Path) -> None:
    write_text(path, "new")


def by_plot(path: Path) -> None:
    plot_precisions(str(path), [Fall("loss", 0, 1e-7, 1e-16, 0.1, 0.1)])


def by_export(path: Path) -> None:
    with new_file(path) as file:
        file["x"] = 1


WRITERS = [by_text, by_plot, by_export]


@pytest.mark.parametrize("write", WRITERS)
def test_a_link_stays_and_its_file_is_replaced(write: Callable[[Path], None], tmp_path: Path) -> None:
    """With the permissions that it had; nothing else is left."""
    (tmp_path / "there").mkdir()
    goal, link = tmp_path / "there" / "v.png", tmp_path / "v.png"
    goal.write_bytes(b"old")
    goal.chmod(0o640)
    link.symlink_to("there/v.png")
    write(link)
    assert link.is_symlink() and goal.read_bytes() != b"old" and goal.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["there", "v.png", "v.png"]


def test_a_new_file_has_the_permissions_that_are_asked_for(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        for number, write in enumerate(WRITERS):
            write(tmp_path / f"{number}.png")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}


def test_what_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    path.write_text("old", encoding="utf-8")
    for writer in (replacing, new_file):
        with pytest.raises(ZeroDivisionError), writer(path):
            raise ZeroDivisionError
        assert contents(tmp_path) == {"v.json": b"old"}


def test_one_thread_writes_a_file(tmp_path: Path) -> None:
    """A second one is told, and takes nothing from the first."""
    for writer, error in ((replacing, OSError), (new_file, InputError)):
        path = tmp_path / writer.__name__
        with writer(path) as first:
            with pytest.raises(error, match="another thread is writing it"), writer(path):
                pass
            assert first
        assert path.exists()
