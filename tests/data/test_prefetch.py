# SPDX-License-Identifier: MIT
"""Reading ahead: in order, bounded, errors in their place, and no thread or open file that is left over."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from bridge.common.errors import FileError
from bridge.data import Batches, Images, Pairs
from bridge.data.open_files import OpenFiles
from bridge.data.prefetch import read_ahead
from bridge.data.sources.stack import Reader
from tests import ROOT
from tests.helpers.files.image_files import numbers, write

OPEN = "/proc/self/fd"


def ours() -> list[str]:
    """Threads that read ahead."""
    return [one.name for one in threading.enumerate() if one.name.startswith("bridge-data")]


def descriptors() -> int:
    """Open files of this process."""
    if not os.path.isdir(OPEN):
        pytest.skip(f"open files are counted in {OPEN}, which is Linux's")
    return len(os.listdir(OPEN))


@pytest.fixture(autouse=True)
def nothing_left_over() -> Iterator[None]:
    """After every test here."""
    assert not ours()
    yield
    gc.collect()
    assert not ours()


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    images = numbers((8, 16, 16))
    images[5, 3, 2] = np.nan
    path = write(tmp_path / "a.npy", images)
    return Batches(Pairs(path, path), 1, (16, 16), block=1, flips=False, rotations=False, seed=1)


def step_of(batches: Batches, image: int) -> int:
    """Where the first epoch has it."""
    return next(step for step in range(8) if batches._order.images([step])[0] == image)


def test_order_and_how_far_ahead() -> None:
    """However long each takes, and never more than asked for."""
    started: list[int] = []

    def make(step: int) -> int:
        started.append(step)
        time.sleep(0.003 * (step % 3))
        return step

    for depth, threads in ((1, 1), (3, 2), (2, 4)):
        started.clear()
        stream = read_ahead(make, count(10), depth, threads)
        assert not started and not ours()
        for expected in range(10, 30):
            assert next(stream) == expected
            time.sleep(0.002)
            assert len(started) <= expected - 10 + 1 + depth
        assert len(ours()) <= threads
        # It reads on while nobody asks, up to its limit
        end = time.monotonic() + 20
        while len(started) < 20 + depth and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(0.02)
        assert sorted(started) == list(range(10, 30 + depth))
        stream.close()
    assert list(read_ahead(make, range(0), 2, 2)) == [] and list(read_ahead(make, range(1), 5, 2)) == [0]


def test_threads_work_at_once() -> None:
    """Each waits for the other: one alone would never come to an end."""
    both = threading.Barrier(2, timeout=20)
    assert len(list(read_ahead(lambda _: both.wait(), range(6), 2, 2))) == 6


def test_an_error_comes_in_its_place_with_the_file(batches: Batches) -> None:
    bad = step_of(batches, 5)
    assert bad > 0
    seen = []
    with pytest.raises(FileError, match=r"a\.npy, image 5: nan at channel 0, row 3, column 2, expected finite"):
        for batch in batches.stream(depth=4, threads=3):
            seen.append(batch.step)
    assert seen == list(range(bad)) and not ours()


@pytest.mark.parametrize("ending", [RuntimeError, KeyboardInterrupt, GeneratorExit])
def test_threads_end_with_the_consumer(batches: Batches, ending: type[BaseException]) -> None:
    def consume() -> None:
        for _ in batches.stream(step_of(batches, 5) + 1, depth=3):
            raise ending

    with pytest.raises(ending):
        consume()
    gc.collect()
    assert not ours()


def test_threads_end_when_nobody_refers_to_them(batches: Batches) -> None:
    stream = batches.stream(step_of(batches, 5) + 1)
    next(stream)
    assert ours()
    del stream
    assert not ours()
    # What was never begun has none
    batches.stream().close()


def test_a_thread_that_collects_garbage_does_not_wait_for_itself() -> None:
    """A forgotten stream in a circle of references may be found by one of its own threads."""
    forgotten = threading.Event()

    def make(step: int) -> int:
        if step == 2:
            forgotten.wait(20)
            gc.collect()
        return step

    stream = read_ahead(make, count(), 2, 1)
    circle: list[object] = [stream]
    circle.append(circle)
    gc.disable()
    try:
        next(stream)
        del stream, circle
        forgotten.set()
        end = time.monotonic() + 20
        while ours() and time.monotonic() < end:
            time.sleep(0.01)
    finally:
        gc.enable()
    assert not ours()


def test_what_waits_is_not_made_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being made is waited for, and no more: it comes to its end once the others are cancelled."""
    started = []
    gate = threading.Event()

    class Watched(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            gate.set()
            super().shutdown(wait=wait)

    def make(step: int) -> int:
        started.append(step)
        if step:
            gate.wait(20)
        return step

    monkeypatch.setattr("bridge.data.prefetch.ThreadPoolExecutor", Watched)
    stream = read_ahead(make, count(), 6, 1)
    assert next(stream) == 0
    while len(started) < 2:
        time.sleep(0.001)
    stream.close()
    assert not ours() and started == [0, 1]


def test_a_program_ends_that_forgets_the_stream(tmp_path: Path) -> None:
    """Ctrl-C in its loop, too: at once, by KeyboardInterrupt."""
    write(tmp_path / "a.npy", numbers((8, 16, 16)))
    # Whoever runs tests in the background may have told their children to ignore Ctrl-C
    program = ("import signal, sys\nfrom bridge.data import Batches, Pairs\n"
               "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
               "stream = Batches(Pairs(sys.argv[1], sys.argv[1]), 1, (16, 16)).stream()\n"
               "next(stream)\n{end}")
    for end, code in (("print('done')", 0), ("signal.raise_signal(signal.SIGINT)", -2)):
        done = subprocess.run([sys.executable, "-c", program.format(end=end), str(tmp_path / "a.npy")], cwd=ROOT,
                              capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == code, done.stderr
        assert ("KeyboardInterrupt" in done.stderr) == (code != 0)


@pytest.mark.parametrize("suffix", [".npy", ".mrc", ".tif", ".h5"])
def test_few_of_many_files_are_open(tmp_path: Path, suffix: str) -> None:
    """Those that were used last, and one for each thread; none after the end."""
    before = descriptors()
    for number in range(40):
        write(tmp_path / f"{number}{suffix}", numbers((16, 16), "int16", seed=number))
    images = Images(tmp_path, open_files=4)
    assert descriptors() == before
    most = 0
    for number in list(range(40)) * 2:
        np.testing.assert_array_equal(images.read(number)[0], numbers((16, 16), "int16", seed=number))
        most = max(most, descriptors() - before)
    assert most == 4
    images.close()
    assert descriptors() == before
    forgotten = Images(tmp_path, open_files=4)
    forgotten.read(3)
    assert descriptors() == before + 1
    del forgotten
    gc.collect()
    assert descriptors() == before


def test_the_file_that_was_used_last_stays_open(tmp_path: Path) -> None:
    """The other one is opened again."""
    opened: list[int] = []
    files = OpenFiles(2)

    def use(number: int) -> None:
        def made() -> Reader:
            opened.append(number)
            return Images(tmp_path / "a.npy").stacks[0].open()

        with files.borrowed(number, made):
            pass

    write(tmp_path / "a.npy", numbers((2, 2)))
    for number in (0, 1, 0, 2, 0, 1):
        use(number)
    files.close()
    assert opened == [0, 1, 2, 1]


@pytest.mark.parametrize("suffix", [".npy", ".tif", ".h5"])
def test_threads_share_the_few_open_files(tmp_path: Path, suffix: str) -> None:
    """No file is closed, and its descriptor given to another, while a thread reads from it."""
    before = descriptors()
    for number in range(30):
        write(tmp_path / f"{number}{suffix}", np.full((64, 64), number, np.float32))
    data = Pairs(tmp_path, tmp_path, open_files=1)
    batches = Batches(data, 4, (64, 64), block=1)
    for batch in batches.stream(0, 60, depth=6, threads=6):
        assert (batch.input == batch.images[:, None, None, None]).all()
        np.testing.assert_array_equal(batch.input, batch.target)
        assert descriptors() - before <= 2 * (1 + 6)
    data.close()
    assert descriptors() == before


def test_closing_while_a_thread_reads(tmp_path: Path) -> None:
    """Its file stays open until it has read."""
    images = Images(write(tmp_path / "a.npy", numbers((2, 8, 8))))
    before = descriptors()
    with images._open.borrowed(0, images.stacks[0].open) as reader:
        images.close()
        out = np.empty((1, 8, 8), np.float32)
        reader.read(1, slice(0, 8), slice(0, 8), out)
    np.testing.assert_array_equal(out[0], np.load(tmp_path / "a.npy")[1])
    assert descriptors() == before
