# SPDX-License-Identifier: MIT
"""The file of measured choices: what is found again, and that nothing in it, or in its place, does any harm.

Asked through plan_cache_program, built with all of gfortran's checks; what a training step makes of the file is for
test_plan_cache.py.
"""

from __future__ import annotations

import os
import stat
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers import fortran_program
from tests.helpers.cuda.plan_files import HEADER, entry, fnv

MOST = 4096
#: Of the tests here; nothing they ask for takes long
LIMIT = 60
KEY, OTHER = "1,2,3 cuDNN 91900 NVIDIA H200", "1,2,4 cuDNN 91900 NVIDIA H200"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``plan_cache_program``."""
    return fortran_program.build(fortran_program.PROGRAMS / "plan_cache_program.f90", tmp_path_factory.mktemp("cache"))


def say(program: Path, path: Path | str, *lines: str) -> list[str]:
    """What it answers, with this CNN_PLAN_CACHE; it must end in order, and say nothing else."""
    done = subprocess.run([program], input="\n".join([*lines, ""]), env={"CNN_PLAN_CACHE": os.fspath(path)},
                          capture_output=True, text=True, check=False, timeout=LIMIT)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def leftovers(path: Path) -> list[str]:
    return [one.name for one in path.parent.iterdir() if one != path]


def test_the_digest(program: Path, tmp_path: Path) -> None:
    """FNV-1a, with its published values, and with bytes above 127."""
    texts = ["", "a", "foobar", "é" * 300, "x" * 1900]
    said = say(program, tmp_path / "f", *(f"digest {text}" for text in texts))
    assert said[:3] == ["CBF29CE484222325", "AF63DC4C8601EC8C", "85944171F73967E8"]
    assert said == [fnv(text.encode()).decode() for text in texts]


def test_what_is_kept_is_found(program: Path, tmp_path: Path) -> None:
    """By the next process, by its whole key alone; a second choice replaces the first. The file is as it says."""
    path = tmp_path / "new folder" / "choices.txt"
    kept = f"keep a {KEY}", f"keep b {OTHER}"
    assert say(program, path, f"find {KEY}", kept[0], f"find {KEY}", kept[1], "count") == ["", "a", "2"]
    assert path.read_bytes() == HEADER + entry("a", KEY) + entry("b", OTHER)
    asked = [f"find {one}" for one in (KEY, OTHER, KEY[1:], KEY[:-1], "H200", "2,4 " + KEY, f"a {KEY}")]
    assert say(program, path, *asked) == ["a", "b", "", "", "", "", ""]
    say(program, path, f"keep graph:1 {KEY}")
    assert path.read_bytes() == HEADER + entry("b", OTHER) + entry("graph:1", KEY)
    assert leftovers(path) == []


@pytest.mark.parametrize(("given", "path"), [
    ({"CNN_PLAN_CACHE": "x/y", "XDG_CACHE_HOME": "/c", "HOME": "/h"}, "x/y"),
    ({"CNN_PLAN_CACHE": "", "XDG_CACHE_HOME": "/c", "HOME": "/h"}, ""),
    ({"XDG_CACHE_HOME": "/c d", "HOME": "/h"}, "/c d/fortran-torch-bridge/cudnn-plans.txt"),
    ({"XDG_CACHE_HOME": "c", "HOME": "/h"}, "/h/.cache/fortran-torch-bridge/cudnn-plans.txt"),
    ({"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/fortran-torch-bridge/cudnn-plans.txt"),
    ({"HOME": "h"}, ""), ({"HOME": ""}, ""), ({}, "")])
def test_the_place(program: Path, given: dict[str, str], path: str) -> None:
    """The variable, else the user's cache folder; without either nothing is read and nothing is written."""
    lines = f"path\nwhy\nkeep a {KEY}\nfind {KEY}\ncount\n" if not path else "path\nwhy\n"
    done = subprocess.run([program], input=lines, env=given, capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    assert said[0] == path and bool(said[1]) == (path == "")
    assert said[2:] == ([] if path else ["", "0"])


def test_the_newest_stay(program: Path, tmp_path: Path) -> None:
    """Above the limit the oldest go."""
    path = tmp_path / "f"
    path.write_bytes(HEADER + b"".join(entry(f"choice:{i}", f"key {i}") for i in range(MOST + 5)))
    assert say(program, path, "count", "find key 4", "find key 5") == [str(MOST), "", "choice:5"]
    say(program, path, "many 1 3", "keep again key 7")
    assert say(program, path, "count", "find key 8", "find key 7", "find key 9", "find key 3") == [
        str(MOST), "", "again", "choice:9", "choice:3"]
    assert path.read_bytes().count(b"\n") == MOST + 1


WRONG = {
    "empty": b"", "no header": entry("a", KEY), "another version": HEADER.replace(b"1\n", b"2\n") + entry("a", KEY),
    "half a header": HEADER[:30], "header alone": HEADER, "no end of line in the header": HEADER[:-1],
    "a wrong checksum": HEADER + b"0" * 16 + entry("a", KEY)[16:], "a small checksum": HEADER + entry("a", KEY).lower(),
    "half a line": HEADER + entry("a", KEY)[:-5], "no blank": HEADER + entry("a", KEY).replace(b" ", b"_"),
    "no choice": HEADER + fnv(KEY.encode()) + b" " + KEY.encode() + b"\n",
    "another key": HEADER + entry("a", OTHER), "a long line": HEADER + entry("a" * 600, KEY),
    "a line of megabytes": HEADER + entry("a" * 10**6, KEY), "garbage": bytes(range(256)) * 50,
    "zeros": b"\0" * 5000, "ends of lines": HEADER + b"\n" * 10**6, "Windows": (HEADER + entry("a", KEY)).replace(
        b"\n", b"\r\n"), "too long": HEADER + b"x" * 10**7 + b"\n" + entry("a", KEY)}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_not_seen(name: str, program: Path, tmp_path: Path) -> None:
    """And replaced at the next measurement; nothing else is left in the folder."""
    path = tmp_path / "f"
    path.write_bytes(WRONG[name])
    assert say(program, path, f"find {KEY}") == [""]
    assert path.read_bytes() == WRONG[name]
    before = entry("a", OTHER) if name == "another key" else b""
    say(program, path, f"keep b {KEY}")
    assert path.read_bytes() == HEADER + before + entry("b", KEY)
    assert say(program, path, f"find {KEY}") == ["b"] and leftovers(path) == []


def test_right_lines_between_wrong_ones(program: Path, tmp_path: Path) -> None:
    """Are found and kept, the last one without its end of line as well; what is wrong goes."""
    path = tmp_path / "f"
    between = b"\n\xff\xfe\0\n" + b"x" * 3000 + b"\n"
    path.write_bytes(HEADER + b"#\n" + entry("a", KEY) + between + entry("b", OTHER)[:-1])
    assert say(program, path, f"find {KEY}", f"find {OTHER}", "count") == ["a", "b", "2"]
    say(program, path, "keep c third")
    assert path.read_bytes() == HEADER + entry("a", KEY) + entry("b", OTHER) + entry("c", "third")


def test_a_file_of_a_gigabyte(program: Path, tmp_path: Path) -> None:
    """Is not read."""
    path = tmp_path / "f"
    path.write_bytes(HEADER + entry("a", KEY))
    os.truncate(path, 2**30)
    start = time.monotonic()
    assert say(program, path, f"find {KEY}", f"keep b {KEY}") == [""]
    assert time.monotonic() - start < 20 and path.read_bytes() == HEADER + entry("b", KEY)


def test_what_is_no_file_stays(program: Path, tmp_path: Path) -> None:
    """A folder, a pipe that nobody writes to, a device, links to them: no file is made of them, and nobody waits."""
    folder, pipe = tmp_path / "folder", tmp_path / "pipe"
    folder.mkdir()
    os.mkfifo(pipe)
    links = [tmp_path / f"link{i}" for i in range(3)]
    for link, target in zip(links, (folder, pipe, "/dev/zero"), strict=True):
        link.symlink_to(target)
    for path in (folder, pipe, *links):
        mode = path.lstat().st_mode
        assert say(program, path, "count", f"keep a {KEY}", f"find {KEY}", "why") == ["0", "a", f"{path} is no file"]
        assert path.lstat().st_mode == mode
    assert sorted(one.name for one in tmp_path.iterdir()) == ["folder", "link0", "link1", "link2", "pipe"]
    assert list(folder.iterdir()) == []


def test_a_device_is_not_replaced(program: Path, tmp_path: Path) -> None:
    """CNN_PLAN_CACHE=/dev/null is a way to say: no file. As root, a rename would take the device away."""
    path = tmp_path / "null"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        if os.geteuid() == 0:
            pytest.skip("skipped, because this root may not make a device to lose")
        path = Path("/dev/null")
    assert say(program, path, "count", f"keep a {KEY}", "count", "why") == ["0", "0", f"{path} is no file"]
    assert stat.S_ISCHR(path.lstat().st_mode)


def test_links_to_files(program: Path, tmp_path: Path) -> None:
    """A link stays, and the file that it leads to is written, also where that is not there yet; a link to itself keeps
    nothing."""
    target, new = tmp_path / "target", tmp_path / "new"
    target.write_bytes(HEADER + entry("a", KEY))
    for name, to, before, after in (("relative", "target", "a", "b"), ("new-link", tmp_path / "new", "", "b"),
                                    ("loop", tmp_path / "loop", "", "")):
        path = tmp_path / name
        path.symlink_to(to)
        assert say(program, path, f"find {KEY}") == [before]
        say(program, path, f"keep b {OTHER}")
        assert say(program, path, f"find {OTHER}") == [after] and path.is_symlink()
    assert target.read_bytes() == HEADER + entry("a", KEY) + entry("b", OTHER)
    assert new.read_bytes() == HEADER + entry("b", OTHER)


@pytest.mark.parametrize("path", ["/proc/no/such/folder/f", "/proc/self/f", "f/", "/", ".", "a" * 300,
                                  "x/" * 3000 + "f"])
def test_places_that_cannot_be_written(path: str, program: Path, tmp_path: Path) -> None:
    """Within the process the choice is known nevertheless."""
    where = os.fspath(tmp_path / path) if path == "a" * 300 else path
    assert say(program, where, f"find {KEY}", f"keep a {KEY}", f"find {KEY}", "count") == ["", "a", "0"]


def test_a_folder_that_may_not_be_written(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(HEADER + entry("a", KEY))
    tmp_path.chmod(0o500)
    try:
        if os.access(tmp_path, os.W_OK):
            pytest.skip("skipped, because this user may write everywhere")
        assert say(program, path, f"keep b {OTHER}", f"find {KEY}") == ["a"]
        assert path.read_bytes() == HEADER + entry("a", KEY)
    finally:
        tmp_path.chmod(0o700)


def test_part_files_of_the_dead(program: Path, tmp_path: Path) -> None:
    """A process that was killed while it wrote leaves the old file; its part stands in nobody's way."""
    path = tmp_path / "f"
    say(program, path, f"keep a {KEY}")
    for pid in range(1, 5):
        (tmp_path / f".f.{pid}.part").write_bytes(b"half")
    say(program, path, f"keep b {OTHER}")
    assert path.read_bytes() == HEADER + entry("a", KEY) + entry("b", OTHER)


def test_two_processes(program: Path, tmp_path: Path) -> None:
    """Neither takes away what the other has written before; of two that write at once nobody damages the file."""
    path = tmp_path / "f"
    with subprocess.Popen([program], env={"CNN_PLAN_CACHE": str(path)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as first:
        assert first.stdin and first.stdout
        first.stdin.write(f"keep a {KEY}\ncount\n")
        first.stdin.flush()
        assert first.stdout.readline() == "1\n"
        say(program, path, f"keep b {OTHER}")
        first.stdin.write(f"keep c third\nfind {OTHER}\n")
        first.stdin.close()
        assert first.stdout.read() == "b\n"
    assert path.read_bytes() == HEADER + entry("a", KEY) + entry("b", OTHER) + entry("c", "third")
    writers = []
    for lines in ("many 1 150\n", "many 1001 1150\n"):
        writers.append(subprocess.Popen([program], env={"CNN_PLAN_CACHE": str(path)}, stdin=subprocess.PIPE, text=True))
        stdin = writers[-1].stdin
        assert stdin
        stdin.write(lines)
        stdin.close()
    seen = 0
    while any(one.poll() is None for one in writers):
        lines = path.read_bytes().splitlines(keepends=True)
        assert lines[0] == HEADER and all(fnv(line[17:-1]) == line[:16] for line in lines[1:])
        seen += 1
    assert [one.wait() for one in writers] == [0, 0] and seen > 1
    assert say(program, path, "find key 150", f"find {KEY}", "find key 1150").count("") <= 1
    assert leftovers(path) == []


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_edits(program: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Bytes changed, cut out, put in: each choice is found as it was kept, or not at all."""
    path = tmp_path / "f"
    choices = {f"{i},7 cuDNN": f"graph:{i}" for i in range(4)}
    text = HEADER + b"".join(entry(choice, key) for key, choice in choices.items())
    for _ in range(data.draw(st.integers(1, 4))):
        at, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 3))
        text = text[:at] + data.draw(st.binary(max_size=4)) + text[at + length:]
    path.write_bytes(text)
    said = say(program, path, *(f"find {key}" for key in choices), "count", "keep new new", "find new")
    for choice, found in zip(choices.values(), said, strict=False):
        assert found in ("", choice)
    assert int(said[4]) == sum(found != "" for found in said[:4]) and said[5] == "new"
    assert path.read_bytes() == HEADER + b"".join(entry(choice, key) for (key, choice), found in zip(
        choices.items(), said, strict=False) if found) + entry("new", "new")
