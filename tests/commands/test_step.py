# SPDX-License-Identifier: MIT
"""``cnn_step`` and ``python -m bridge.step``: the same job, the same messages, files in one piece."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from bridge import Network, step
from bridge.engine.library.programs import cnn_step, program_path


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([cnn_step(), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)


def contents(path: Path) -> dict[str, bytes]:
    """Every dataset by name, and every attribute."""
    found: dict[str, bytes] = {}
    with h5py.File(path) as file:
        found |= {f"@{key}": str(value).encode() for key, value in file.attrs.items()}
        found |= {f"optimizer@{key}": str(value).encode() for key, value in file["optimizer"].attrs.items()}
        file.visititems(lambda name, item: found.update({name: item[()].tobytes()})
                        if isinstance(item, h5py.Dataset) and item.dtype.kind == "f" else None)
    return found


def test_program_and_extension_write_the_same_file(small_fixture: Path, tmp_path: Path) -> None:
    for precision in ("float32", "float64"):
        assert run(small_fixture, tmp_path / "a.h5", "--precision", precision).returncode == 0
        assert step.main([str(small_fixture), str(tmp_path / "b.h5"), "--precision", precision]) == 0
        assert contents(tmp_path / "a.h5") == contents(tmp_path / "b.h5")


def test_every_tensor_of_every_step_is_written(small_fixture: Path, small_result: Path) -> None:
    names: dict[Path, set[str]] = {small_fixture: set(), small_result: set()}
    for path, found in names.items():
        with h5py.File(path) as file:
            file["steps"].visititems(lambda name, item, found=found: found.add(name)
                                     if isinstance(item, h5py.Dataset) else None)
    assert names[small_fixture] == names[small_result]
    assert len(names[small_result]) == 3 * (6 + 5 + 1 + 5 + 6 + 1) + 6


def test_no_python_takes_part() -> None:
    libraries = subprocess.run(["ldd", cnn_step()], capture_output=True, text=True, check=False).stdout
    assert "libgfortran" in libraries or "hdf5" in libraries
    assert "python" not in libraries


def test_threads_do_not_change_a_bit(small_fixture: Path, tmp_path: Path) -> None:
    for threads in ("1", "2", "5"):
        subprocess.run([cnn_step(), small_fixture, tmp_path / f"{threads}.h5"], check=True, capture_output=True,
                       env=os.environ | {"OMP_NUM_THREADS": threads})
    assert contents(tmp_path / "1.h5") == contents(tmp_path / "2.h5") == contents(tmp_path / "5.h5")


def test_a_saved_result_loads_bit_for_bit(small_result: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"the momenta before step 3 are not in the file"):
        network = Network.from_file(small_result, step=3)
    network.save(tmp_path / "saved.h5")
    # It goes on as this network does, which has none
    again = Network.from_file(tmp_path / "saved.h5")
    with h5py.File(small_result) as file:
        for name, array in again.parameters.items():
            stored = file[f"steps/3/weights/{name.replace('.', '/')}"][()]
            assert stored.tobytes() == array.tobytes() == network.parameters[name].tobytes()


@pytest.mark.parametrize(("arguments", "said"), [
    ([], "expected two files, FIXTURE and RESULT"),
    (["a", "b", "c"], "unexpected argument c"),
    (["a", "b", "--fast"], "unknown option --fast"),
    (["a", "b", "--device"], "--device needs a value"),
    (["none.h5", "b.h5"], "none.h5: no such file"),
])
def test_wrong_usage_is_one_line_and_2(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = subprocess.run([cnn_step(), *arguments], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("device", "precision", "said"), [
    ("cuda:63", "float32", "device cuda"),
    ("abacus", "float32", "device abacus: unknown, expected cpu or cuda"),
    ("cpu", "float16", "precision float16: unknown, expected float32 or float64"),
])
def test_unknown_device_or_precision(device: str, precision: str, said: str, small_fixture: Path,
                                     tmp_path: Path) -> None:
    done = run(small_fixture, tmp_path / "r.h5", "--device", device, "--precision", precision)
    assert (done.returncode, said in done.stderr) == (2, True)
    assert not list(tmp_path.iterdir())


def test_the_fixture_is_never_replaced(small_fixture: Path, tmp_path: Path) -> None:
    """By any of its names."""
    (tmp_path / "link.h5").symlink_to(small_fixture)
    os.link(small_fixture, tmp_path / "hard.h5")
    before = small_fixture.read_bytes()
    for target in (small_fixture, tmp_path / "link.h5", tmp_path / "hard.h5"):
        done = run(small_fixture, target)
        assert (done.returncode, "the result would replace the fixture" in done.stderr) == (2, True)
    assert small_fixture.read_bytes() == before


@pytest.mark.parametrize(("group", "name", "value"), [
    ("/", "format_version", float("nan")), ("/", "format_version", 1e300), ("/optimizer", "nesterov", float("nan")),
    ("/optimizer", "nesterov", 2), ("/optimizer", "lr", float("inf")),
])
def test_numbers_that_are_none(group: str, name: str, value: float, small_fixture: Path, tmp_path: Path) -> None:
    (tmp_path / "f.h5").write_bytes(small_fixture.read_bytes())
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        file[group].attrs[name] = value
    done = run(tmp_path / "f.h5", tmp_path / "r.h5")
    assert (done.returncode, name in done.stderr) == (2, True), done.stderr


def test_a_batch_of_a_wrong_rank_is_named(small_fixture: Path, tmp_path: Path) -> None:
    """Not taken for a batch of one image."""
    (tmp_path / "f.h5").write_bytes(small_fixture.read_bytes())
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        for name in ("input", "target"):
            values = file[f"batches/0/{name}"][0]
            del file[f"batches/0/{name}"]
            file[f"batches/0/{name}"] = values
    done = run(tmp_path / "f.h5", tmp_path / "r.h5")
    said = "/batches/0: layer conv1 (conv2d): input (1, 20, 24), expected a shape (n, c, h, w)"
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_help_and_version() -> None:
    assert "usage: cnn_step FIXTURE RESULT" in run("--help").stdout
    assert run("--version").stdout.startswith("cnn_step ")


def test_an_unwritable_result_is_named(small_fixture: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name, why in (("no/r.h5", "the file cannot be created, there is no such folder"),
                      ("folder", "a folder, expected the name of a file"),
                      ("pipe", "not a regular file, expected one, or a new name"),
                      ("loop", "a symbolic link that leads nowhere")):
        done = run(small_fixture, f"{tmp_path}/{name}")
        # Before all steps
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"cnn_step: {tmp_path}/{name}: {why}\n")
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("command", [[cnn_step()], [sys.executable, "-m", "bridge.step"]])
def test_a_link_stays_and_its_file_is_replaced(command: list[str], small_fixture: Path, small_result: Path,
                                               tmp_path: Path) -> None:
    """Through two links, the second of which leads to nothing yet; a file that is there keeps its permissions."""
    (tmp_path / "there").mkdir()
    goal = tmp_path / "there" / "r.h5"
    (tmp_path / "link").symlink_to("there/link")
    (tmp_path / "there" / "link").symlink_to("r.h5")
    for mode in (None, 0o640):
        if mode:
            goal.chmod(mode)
        subprocess.run([*command, small_fixture, tmp_path / "link"], check=True, stdout=subprocess.DEVNULL)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "there" / "link").is_symlink()
        assert contents(goal) == contents(small_result)
    assert goal.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["link", "link", "r.h5", "there"]


@pytest.mark.parametrize("command", [[cnn_step()], [sys.executable, "-m", "bridge.step"]])
def test_a_full_disk_leaves_the_old_file(command: list[str], small_fixture: Path, tmp_path: Path) -> None:
    """A limit on the file's size fails writes as a full disk does, and the signal that comes with it ends nothing."""
    target = tmp_path / "r.h5"
    target.write_bytes(b"the old one")
    done = subprocess.run(["bash", "-c", 'ulimit -f 200; exec "$@"', "bash", *command, small_fixture, target],
                          capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "no room" in done.stderr or "full" in done.stderr
    assert target.read_bytes() == b"the old one"
    assert [p.name for p in tmp_path.iterdir()] == ["r.h5"]


@pytest.mark.parametrize("command", [[cnn_step()], [sys.executable, "-m", "bridge.step"]])
def test_the_longest_name(command: list[str], small_fixture: Path, small_result: Path, tmp_path: Path) -> None:
    """A name of 255 bytes; what a dead process has left of it goes, and that of its neighbour stays."""
    goal = tmp_path / ("é" * 126 + ".h5")
    left, other = (tmp_path / f".{'é' * 114}~{zlib.crc32(name):08x}.4999999.part" for name in (
        os.fsencode(goal.name), b"another"))
    for part in (left, other):
        part.touch()
    subprocess.run([*command, small_fixture, goal], check=True, stdout=subprocess.DEVNULL)
    assert contents(goal) == contents(small_result)
    assert sorted(tmp_path.iterdir()) == sorted([other, goal])


def test_why_a_file_cannot_be_made(small_fixture: Path, tmp_path: Path) -> None:
    """In the words of the system."""
    for path, why in ((tmp_path / ("a" * 256), "File name too long"),
                      (Path("/proc/r.h5"), "No such file or directory")):
        done = run(small_fixture, str(path))
        assert (done.returncode, done.stderr) == (2, f"cnn_step: {path}: the file cannot be created ({why})\n")


@pytest.mark.parametrize("writer", ["program", "extension"])
def test_kill_at_any_point_leaves_the_old_file_or_the_new(writer: str, small_fixture: Path, small_result: Path,
                                                         tmp_path: Path) -> None:
    target = tmp_path / "r.h5"
    command = [cnn_step()] if writer == "program" else [sys.executable, "-m", "bridge.step"]
    old, new = b"the old one", contents(small_result)
    chance, seen = random.Random(0), {"old": 0, "new": 0}
    for turn in range(40 if writer == "program" else 6):
        target.write_bytes(old)
        process = subprocess.Popen([*command, small_fixture, target], stdout=subprocess.DEVNULL)
        while process.poll() is None and not list(tmp_path.glob(".r.h5.*.part")):
            time.sleep(0.0005)
        # at once in the first turns: then the new file cannot be finished
        time.sleep(chance.uniform(0, 0.05) if turn > 2 else 0)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if target.read_bytes() == old:
            seen["old"] += 1
        else:
            assert contents(target) == new
            seen["new"] += 1
        for part in tmp_path.glob(".r.h5.*.part"):
            part.unlink()
    assert seen["old"] > 0


def timed(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program_path("cnn_time"), *map(str, arguments)], capture_output=True, text=True, check=False,
                          timeout=60)


@pytest.mark.parametrize("device", ["cpu", "naive"])
def test_the_seconds_of_each_step(device: str, small_fixture: Path) -> None:
    before = small_fixture.read_bytes()
    done = timed(small_fixture, 4, device)
    seconds = [float(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr, len(seconds)) == (0, "", 4)
    assert all(0 < one < 30 for one in seconds)
    assert small_fixture.read_bytes() == before


@pytest.mark.parametrize("arguments", [(), ("f.h5",), ("f.h5", "0"), ("f.h5", "-1"), ("f.h5", "two"),
                                       ("f.h5", "2", "cpu", "x")])
def test_times_of_nothing(arguments: tuple[str, ...]) -> None:
    done = timed(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "cnn_time: expected FIXTURE STEPS [DEVICE], with 1 step or more (cnn_time --help)\n"


def test_times_of_what_is_not_there(small_fixture: Path, tmp_path: Path) -> None:
    for arguments, said in (((tmp_path / "none.h5", 2), "none.h5"), ((small_fixture, 2, "tpu"), "tpu")):
        done = timed(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("cnn_time: ") and said in done.stderr and done.stderr.count("\n") == 1


def test_float64_is_closer_by_the_ratio_of_the_precisions(small_fixture: Path, tmp_path: Path) -> None:
    """The error of a right implementation falls by about 2**29 when the precision does."""
    errors = {}
    for precision in ("float32", "float64"):
        run(small_fixture, tmp_path / f"{precision}.h5", "--precision", precision)
        with h5py.File(tmp_path / f"{precision}.h5") as mine, h5py.File(small_fixture) as reference:
            name = "steps/0/grads/conv2/weight"
            errors[precision] = float(np.abs(mine[name][()] - reference[f"oracle/{name}"][()]).max())
    assert errors["float64"] < errors["float32"] * 2.0**-25


def test_a_dataset_of_32_dimensions(small_fixture: Path, tmp_path: Path) -> None:
    """More than there is room for where the library would put their lengths."""
    shutil.copy(small_fixture, tmp_path / "f.h5")
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        del file["batches/0/input"]
        file["batches/0/input"] = np.ones((1,) * 32, np.float32)
    done = run(tmp_path / "f.h5", str(tmp_path / "r.h5"))
    assert (done.returncode, done.stderr) == (
        2, f"cnn_step: {tmp_path / 'f.h5'}: /batches/0/input has 32 dimensions, expected at most 8\n")


@pytest.mark.parametrize("command", [[cnn_step()], [sys.executable, "-m", "bridge.step"]])
def test_a_file_that_crashes_the_library_at_its_end(command: list[str], small_fixture: Path, tmp_path: Path) -> None:
    """The size of an attribute's numbers: HDF5 1.10.8 frees what it could not decode. It is one line, and no result."""
    data = bytearray(small_fixture.read_bytes())
    at = data.index(b"padding\0") + 12
    assert data[at:at + 4] == b"\x08\0\0\0"
    data[at + 3] = 32
    (tmp_path / "f.h5").write_bytes(data)
    done = subprocess.run([*command, tmp_path / "f.h5", tmp_path / "r.h5"], capture_output=True, text=True, check=False,
                          timeout=60)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert str(tmp_path / "f.h5") in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["f.h5"]
