# SPDX-License-Identifier: MIT
"""What a process that is ended leaves: nothing where a signal gives it time, and the next one removes the rest."""

from __future__ import annotations

import fcntl
import importlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.common.atomic_file import opened_part, replacing
from bridge.engine.library.programs import cnn_step
from reference.export import export
from reference.files.part_file import PartFile
from reference.files.writer import new_file
from reference.settings import ExportSettings
from tests import ROOT
from tests.helpers.tiers import few

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(scope="module", autouse=True)
def heard() -> Iterator[None]:
    """Under nohup, or in the background of a shell, a process ignores some signals, and its children do."""
    ignored = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="module")
def long_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fixture whose steps take so long that a signal meets the work."""
    path = tmp_path_factory.mktemp("long") / "f.h5"
    return export(path, ExportSettings(height=128, width=128, steps=6, oracle_steps=0, whole_steps=0)).path


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*.part"))


def begun(command: list[object], folder: Path) -> subprocess.Popen[str]:
    """A process that has begun to write a file into the folder."""
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               cwd=ROOT)
    end = time.monotonic() + 60
    while process.poll() is None and not parts(folder):
        assert time.monotonic() < end
        time.sleep(0.001)
    return process


def ended(process: subprocess.Popen[str], number: int) -> str:
    process.send_signal(number)
    return process.communicate(timeout=60)[1]


COMMANDS = {"program": [cnn_step()], "extension": [sys.executable, "-m", "bridge.step"]}


@pytest.mark.parametrize("number", few(SIGNALS, 1))
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("wait", [0, 0.03])
def test_a_signal_leaves_nothing(command: str, number: int, wait: float, long_fixture: Path, tmp_path: Path) -> None:
    """The old file stays, the part is gone, and the exit status says which signal it was."""
    target = tmp_path / "r.h5"
    target.write_bytes(b"the old one")
    process = begun([*COMMANDS[command], long_fixture, target], tmp_path)
    time.sleep(wait)
    errors = ended(process, number)
    assert (process.returncode, errors) == (-number, "")
    assert target.read_bytes() == b"the old one" and list(tmp_path.iterdir()) == [target]


def test_a_signal_that_is_ignored_is_ignored(long_fixture: Path, tmp_path: Path) -> None:
    """As under nohup."""
    process = begun(["nohup", cnn_step(), long_fixture, tmp_path / "r.h5"], tmp_path)
    ended(process, signal.SIGHUP)
    assert process.returncode == 0 and [path.name for path in tmp_path.iterdir()] == ["r.h5"]


def test_the_handler_is_there_while_a_part_is(tmp_path: Path) -> None:
    """It belongs to the process that writes, not to a forked child, and replaces the default action alone."""
    if shutil.which("cc") is None:
        pytest.skip("skipped, because there is no C compiler")
    source, library = ROOT / "fortran/core/part_file.c", tmp_path / "part.so"
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", source, "-o", library], check=True)
    (tmp_path / "part").touch()
    code = f"""
import ctypes, os, signal
part_file = ctypes.CDLL({str(library)!r})
def ends(number):
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), number)
        os._exit(0)
    return os.waitpid(child, 0)[1]
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, lambda *given: None)
watch = part_file.cnn_part_watch(b"{tmp_path / "part"}")
assert watch >= 0 and part_file.cnn_part_watch(b"{tmp_path / "part"}") == -2
assert ends(signal.SIGTERM) == signal.SIGTERM and ends(signal.SIGHUP) == 0
assert os.path.exists({str(tmp_path / "part")!r})
part_file.cnn_part_forget(watch)
other = part_file.cnn_part_watch(b"{tmp_path / "other"}")
part_file.cnn_part_forget(other)
os.kill(os.getpid(), signal.SIGTERM)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")
    assert (tmp_path / "part").exists()


@pytest.mark.parametrize("command", ["bridge.compare", "bridge", "reference.export"])
def test_ctrl_c_while_modules_are_imported(command: str, tmp_path: Path) -> None:
    """One line and 130, as later on; the programs of others, and who ignores the signal, see nothing of it."""
    (tmp_path / "h5py.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
                                      "for _ in range(9): pass\nprint('goes on')\nraise SystemExit(3)\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}

    def done(*words: str, **given: Any) -> tuple[int, str, str]:
        process = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=60,
                                 check=False, cwd=tmp_path, **given)
        return process.returncode, process.stdout, process.stderr

    assert done("-m", command, "--help") == (130, "", f"{command}: interrupted\n")
    ignored = done("-m", command, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert ignored == (3, "goes on\n", "")
    (tmp_path / "other.py").write_text(f"import {command}")
    assert "KeyboardInterrupt" in done("-m", "other")[2]


@pytest.mark.parametrize("name", ["a.h5", "a" * 235 + ".h5", "a" * 236 + ".h5", "a" * 252 + ".h5", "é" * 126 + ".h5"])
def test_three_writers_name_a_part_alike(name: str, tmp_path: Path, small_fixture: Path) -> None:
    """So that each finds what another one left: of long names a part has the first bytes and a checksum."""
    goal = tmp_path / name
    with replacing(goal) as part:
        assert Path(part) == PartFile(goal).path and len(os.fsencode(os.path.basename(part))) <= 255
    assert goal.exists()
    left = Path(part.replace(f".{os.getpid()}.", f".{dead_process()}."))
    left.touch()
    by_step(goal, small_fixture)
    assert list(tmp_path.iterdir()) == [goal]


def dead_process() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def by_step(path: Path, fixture: Path) -> None:
    subprocess.run([cnn_step(), fixture, path], check=True, stdout=subprocess.DEVNULL)


def by_text(path: Path, fixture: Path) -> None:
    with replacing(path):
        pass


def by_export(path: Path, fixture: Path) -> None:
    with new_file(path):
        pass


Writer = Callable[[Path, Path], None]
WRITERS = [by_step, by_text, by_export]


@pytest.mark.parametrize("write", WRITERS)
def test_the_next_run_removes_what_a_killed_one_left(write: Writer, long_fixture: Path, small_fixture: Path,
                                                     tmp_path: Path) -> None:
    """SIGKILL leaves the part; the next writer of this file removes it, whichever of our programs that is."""
    target = tmp_path / "r.h5"
    process = begun([cnn_step(), long_fixture, target], tmp_path)
    time.sleep(0.01)
    ended(process, signal.SIGKILL)
    assert len(parts(tmp_path)) == 1
    write(target, small_fixture)
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("write", WRITERS)
def test_only_parts_of_the_dead_are_removed(write: Writer, small_fixture: Path, tmp_path: Path) -> None:
    """Of this very file, of processes that are gone, and locked by nobody; names that only look so stay."""
    dead, folder = dead_process(), tmp_path / "there"
    folder.mkdir()
    target = folder / "r.h5"
    stay = [f".r.h5.{os.getppid()}.part", f".r.h5.0{dead}.part", f".r.h5.{dead}.part2", f"r.h5.{dead}.part",
            f".xr.h5.{dead}.part", f".r.h5.x.{dead}.part", ".r.h5..part", ".r.h5.-1.part", ".r.h5.0.part",
            f".rxh5.{dead}.part", ".r.h5.99999999999.part"]
    for name in stay:
        (folder / name).write_bytes(b"somebody's")
    (folder / f".r.h5.{dead}.part").write_bytes(b"abandoned")
    (tmp_path / f".r.h5.{dead}.part").write_bytes(b"of another folder")
    write(target, small_fixture)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*stay, "r.h5"])
    assert (tmp_path / f".r.h5.{dead}.part").exists()


@pytest.mark.parametrize("write", WRITERS)
def test_a_locked_part_is_not_removed(write: Writer, small_fixture: Path, tmp_path: Path) -> None:
    """Its writer may live where this process cannot see it: in another container, on another machine."""
    part = tmp_path / f".r.h5.{dead_process()}.part"
    with part.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        write(tmp_path / "r.h5", small_fixture)
        assert part.exists()
    write(tmp_path / "r.h5", small_fixture)
    assert not part.exists()


@pytest.mark.parametrize("write", WRITERS)
def test_a_folder_or_link_of_that_name_stays(write: Writer, small_fixture: Path, tmp_path: Path) -> None:
    dead, other = dead_process(), tmp_path / "precious"
    other.write_bytes(b"mine")
    (tmp_path / f".r.h5.{dead}.part").symlink_to(other)
    (tmp_path / f".r.h5.{dead_process()}.part").mkdir()
    write(tmp_path / "r.h5", small_fixture)
    assert len(parts(tmp_path)) == 2 and other.read_bytes() == b"mine"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_writer_locks_its_part(command: str, long_fixture: Path, tmp_path: Path) -> None:
    """From here it looks like a dead process's: only the lock says otherwise. HDF5 may be told to lock nothing."""
    for variables in ({}, {"HDF5_USE_FILE_LOCKING": "FALSE"}):
        process = subprocess.Popen([*map(str, COMMANDS[command]), str(long_fixture), str(tmp_path / "r.h5")],
                                   stdout=subprocess.DEVNULL, cwd=ROOT, env=os.environ | variables)
        locked = False
        while process.poll() is None and not locked:
            for part in parts(tmp_path):
                with part.open("rb") as file:
                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        locked = True
            time.sleep(0.01)
        process.kill()
        process.wait()
        assert locked


def test_a_part_of_our_own_number_is_replaced(tmp_path: Path) -> None:
    """In a container every program may have the number 1."""
    part = tmp_path / f".v.json.{os.getpid()}.part"
    for write in (by_text, by_export):
        part.write_bytes(b"of a dead one")
        write(tmp_path / "v.json", tmp_path)
        assert not part.exists() and (tmp_path / "v.json").exists()
    with opened_part(str(tmp_path / "v.json")) as name:
        assert name == str(part)


#: Ends by a signal that comes while Python finalizes an object, and ignores what is raised
IN_A_FINALIZER = """
import os, signal, sys, threading, time
from {module} import Ended, end_by, signals_raise

start = threading.Thread.start
threading.Thread.start = lambda self: (start(self), time.sleep({wait}))

class Last:
    def __del__(self):
        {ends}
        time.sleep(0)

def slowly(ignored):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep({wait})

sys.unraisablehook = slowly
with signals_raise():
    try:
        Last()
        time.sleep(30)
    except Ended as ended:
        print("cleaned up")
        end_by(ended.number)
"""


@pytest.mark.parametrize("ends", ["os.kill(os.getpid(), signal.SIGTERM)", "raise ValueError"], ids=["signal", "error"])
@pytest.mark.parametrize("wait", [0, 0.1])
@pytest.mark.parametrize("module", ["bridge.common.signals", "reference.ending"])
def test_a_signal_in_a_finalizer_is_not_lost(module: str, wait: float, ends: str) -> None:
    """Nor while another error is reported that is ignored there, nor on a machine that takes its time for that."""
    found = subprocess.run([sys.executable, "-c", IN_A_FINALIZER.format(module=module, wait=wait, ends=ends)],
                           capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (found.returncode, found.stdout, found.stderr) == (-signal.SIGTERM, "cleaned up\n", "")


@pytest.mark.parametrize("module", ["bridge.common.signals", "reference.ending"])
def test_other_threads_change_nothing(module: str) -> None:
    """What ignored exceptions do belongs to the whole process."""
    signals, found = importlib.import_module(module), []

    def work() -> None:
        with signals.signals_raise():
            found.append((sys.unraisablehook, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(sys.unraisablehook, signal.getsignal(signal.SIGTERM))]


EXPORT = ["reference.export", "--size", "256", "--steps", "9"]
VALIDATE = ["bridge.validate", "--size", "256", "--steps", "3"]


@pytest.mark.deep
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_export_that_is_ended_leaves_nothing(number: int, tmp_path: Path) -> None:
    (tmp_path / "f.h5").write_bytes(b"the old one")
    process = begun([sys.executable, "-m", *EXPORT, tmp_path / "f.h5"], tmp_path)
    # In the steps, not in the call of HDF5 that makes the file
    time.sleep(0.3)
    errors = ended(process, number)
    assert process.returncode == -number
    assert errors == f"reference.export: ended by {signal.Signals(number).name}, nothing is written\n"
    assert (tmp_path / "f.h5").read_bytes() == b"the old one" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.deep
@pytest.mark.parametrize("wait", [0.0, 2.5])
@pytest.mark.parametrize("keep", [True, False])
def test_a_validation_that_is_ended_leaves_nothing(keep: bool, wait: float, tmp_path: Path) -> None:
    """Neither its folder, which may be in memory, nor a child at work."""
    folder = tmp_path / "keep"
    options = ["--keep", str(folder)] if keep else []
    process = subprocess.Popen([sys.executable, "-m", *VALIDATE, *options], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)})
    line = process.stderr.readline() if process.stderr else ""
    assert line.startswith("files in ")
    work = Path(line.removeprefix("files in ").partition(" (")[0])
    while process.poll() is None and not parts(work):
        time.sleep(0.005)
    time.sleep(wait)
    errors = ended(process, signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM and errors.splitlines()[-1] == "bridge.validate: ended by SIGTERM"
    if keep:
        assert not parts(folder)
    else:
        assert not work.exists()
