# SPDX-License-Identifier: MIT
"""Files that hypothesis spoils: a verdict or one line, soon, in little memory. `python -m benchmarks.fuzz` has more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import h5py
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.common.errors import FileError
from bridge.engine.library.programs import cnn_step
from bridge.exchange.crash_guard import check_readable
from tests.helpers.files.version_1 import as_version_1
from tests.helpers.hostile import Answer, Judge, run_program, small_pair
from tests.helpers.mutations import KINDS, VALUES_WRONG, mutate

# Many files, in processes of their own
pytestmark = pytest.mark.deep

#: The same files in every run; the benchmark looks for new ones
FUZZ = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
SEEDS = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A right fixture and its right result."""
    return small_pair(tmp_path_factory.mktemp("fuzz"))


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    """One child process for all files, until one kills it."""
    with Judge() as child:
        yield child


def test_right_files_are_judged_right(pair: tuple[Path, Path], judge: Judge) -> None:
    answer = judge.ask(*pair)
    assert answer.code == 0 and not answer.complaints((0,)) and 10 < answer.mib < 500


@settings(FUZZ, max_examples=30)
@given(kind=st.sampled_from(KINDS), seed=SEEDS)
def test_a_spoilt_result(pair: tuple[Path, Path], judge: Judge, kind: str, seed: int) -> None:
    path = pair[0].with_name("spoilt.h5")
    mutate(pair[1], path, kind, seed)
    assert not judge.ask(pair[0], path).complaints((0, 1, 2, 3, 4))


@settings(FUZZ, max_examples=8)
@given(kind=st.sampled_from(list(VALUES_WRONG)), seed=SEEDS)
def test_a_wrong_value_never_passes(pair: tuple[Path, Path], judge: Judge, kind: str, seed: int) -> None:
    path = pair[0].with_name("wrong.h5")
    mutate(pair[1], path, kind, seed)
    answer = judge.ask(pair[0], path)
    assert not answer.complaints((1, 3, 4))


@settings(FUZZ, max_examples=30)
@given(kind=st.sampled_from(KINDS), seed=SEEDS)
def test_a_spoilt_fixture(pair: tuple[Path, Path], judge: Judge, kind: str, seed: int) -> None:
    path = pair[0].with_name("fixture_spoilt.h5")
    mutate(pair[0], path, kind, seed)
    assert not judge.ask(path, pair[1]).complaints((0, 1, 2, 3, 4))


@settings(FUZZ, max_examples=35)
@given(kind=st.sampled_from(KINDS), seed=SEEDS)
def test_a_spoilt_fixture_for_the_fortran_reader(pair: tuple[Path, Path], kind: str, seed: int) -> None:
    folder = pair[0].with_name("fortran")
    folder.mkdir(exist_ok=True)
    path = pair[0].with_name("fortran_spoilt.h5")
    mutate(pair[0], path, kind, seed)
    answer = run_program(cnn_step(), path, folder / "out.h5")
    assert not answer.complaints((0, 2))
    left = [found.name for found in folder.iterdir()]
    assert left == (["out.h5"] if answer.code == 0 else [])
    (folder / "out.h5").unlink(missing_ok=True)


@pytest.mark.parametrize("how, words", [
    ("while True: pass", "was stuck in it for 1 s"),
    ("os.kill(os.getpid(), 11)", "crashed on it (SIGSEGV)"),
    ("os.abort()", "crashed on it (SIGABRT)"),
    # More than a process can have left over from what it has freed, which it gets without asking for memory
    ("bytearray(2**32)", "wants more than 512 MiB for its structure"),
])
def test_a_library_that_crashes_or_hangs(pair: tuple[Path, Path], how: str, words: str,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours did not in thousands of files, but for one circle; another build of it may."""
    monkeypatch.setattr("bridge.exchange.crash_guard._touch",
                        lambda path, alive: exec("import os\n" + how, {"alive": alive}))
    with pytest.raises(FileError, match=r"result\.h5: damaged, the HDF5 library") as caught:
        check_readable(pair[1], seconds=1)
    assert words in str(caught.value)


def test_what_is_merely_wrong_is_not_the_business_of_that_check(pair: tuple[Path, Path], tmp_path: Path,
                                                              capfd: pytest.CaptureFixture) -> None:
    (tmp_path / "text.h5").write_text("no HDF5")
    check_readable(*pair, tmp_path / "text.h5", tmp_path / "none.h5", tmp_path)
    assert capfd.readouterr() == ("", "")


def test_a_circle_ends(pair: tuple[Path, Path], judge: Judge, tmp_path: Path) -> None:
    """Zeros over the objects of a global heap: HDF5 2.0 looks for one of them for ever."""
    content = bytearray(pair[0].read_bytes())
    at = content.index(b"GCOL") + 16
    content[at:at + 64] = bytes(64)
    (tmp_path / "circle.h5").write_bytes(content)
    answer = judge.ask(tmp_path / "circle.h5", pair[1])
    assert not answer.complaints((2,)), answer


def test_a_text_of_two_gigabytes(pair: tuple[Path, Path], judge: Judge, tmp_path: Path) -> None:
    """Its length stands before its place in the heap, and the library makes room before it looks there."""
    old = as_version_1(pair[0], tmp_path / "version_1.h5")
    content = bytearray(old.read_bytes())
    with h5py.File(old) as file:
        at = file["model"].id.get_offset()
    content[at:at + 4] = (2**31).to_bytes(4, "little")
    content[at + 4] ^= 0xFF
    (tmp_path / "long.h5").write_bytes(content)
    answer = judge.ask(tmp_path / "long.h5", pair[1])
    assert not answer.complaints((2,)), answer


@pytest.mark.parametrize("answer, complaint", [
    (Answer(None, [], 20.0), "hung"), (Answer(-11, [], 0.1), "signal 11"), (Answer(120, [], 0.1), "exit code"),
    (Answer(2, [], 0.1), "0 lines"), (Answer(2, ["a", "b"], 0.1), "2 lines"),
    (Answer(2, ["a.h5: \x1b[2J"], 0.1), "no line"),
    (Answer(2, ["damaged"], 0.1), "no file"),
    (Answer(1, ["Traceback (most"], 0.1), "traceback"), (Answer(0, [], 0.1, 5000.0), "5000 MiB"),
])
def test_the_fuzzer_would_complain(answer: Answer, complaint: str) -> None:
    assert complaint in " ".join(answer.complaints((0, 1, 2, 3, 4)))
