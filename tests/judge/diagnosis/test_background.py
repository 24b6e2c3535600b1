# SPDX-License-Identifier: MIT
"""What the data can show, computed in a process of its own."""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bridge.common.errors import FileError
from bridge.engine.library import extension
from bridge.judge.diagnosis import background
from bridge.judge.diagnosis.background import adequacy_in_background
from bridge.judge.diagnosis.faults.crop import Crop
from bridge.judge.judge import judge
from bridge.judge.measure.file_pair import open_pair
from reference.export import ExportSettings, export
from tests.helpers.judged.opened import computed

Files = tuple[Path, Path]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("background")
    export(folder / "f.h5", ExportSettings(height=12, width=10, steps=2))
    extension.run_file(folder / "f.h5", folder / "r.h5")
    return folder / "f.h5", folder / "r.h5"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Children that were started; every file is large here."""
    found: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def start(*a: object, **k: object) -> subprocess.Popen[bytes]:
        found.append(real(*a, **k))  # type: ignore[call-overload]
        return found[-1]

    monkeypatch.setattr(background.subprocess, "Popen", start)
    monkeypatch.setattr(background, "LARGE", 0)
    return found


@pytest.mark.deep
def test_the_process_finds_the_same(files: Files, started: list[subprocess.Popen[bytes]]) -> None:
    with open_pair(*files) as pair, adequacy_in_background(pair) as adequacy:
        assert adequacy() == computed(*files)
    assert [child.returncode for child in started] == [0]
    assert judge(*files)[1].adequacy == computed(*files)
    assert judge(*files, adequacy=False)[1].adequacy is None


@pytest.mark.deep
def test_a_process_that_fails_or_cannot_start_is_done_without(
    files: Files, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    with open_pair(*files) as pair, adequacy_in_background(pair) as adequacy:
        assert adequacy() == computed(*files)
    assert started[0].returncode != 0
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with open_pair(*files) as pair, adequacy_in_background(pair) as adequacy:
        assert adequacy() == computed(*files)


def test_it_ends_with_the_comparison(files: Files, started: list[subprocess.Popen[bytes]],
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether somebody asked, or something else went wrong."""
    with open_pair(*files) as pair, adequacy_in_background(pair):
        pass

    def fail(*_: object) -> None:
        raise FileError("planted")

    monkeypatch.setattr("bridge.judge.judge.compare", fail)
    with pytest.raises(FileError, match="planted"):
        judge(*files)
    assert len(started) == 2 and all(child.returncode is not None for child in started)


def test_small_results_start_nothing(files: Files, started: list[subprocess.Popen[bytes]],
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "LARGE", 1 << 28)
    with open_pair(*files) as pair, adequacy_in_background(pair) as adequacy:
        assert adequacy() == computed(*files)
    assert not started


@pytest.mark.deep
def test_a_signal_does_not_cut_what_the_process_says(files: Files, tmp_path: Path) -> None:
    """It is stopped and goes on in the middle of a write, with a pipe that holds little and without a buffer."""
    fcntl = pytest.importorskip("fcntl")
    command = [sys.executable, "-m", "bridge.judge.diagnosis.background"]
    given = tmp_path / "given"
    with open_pair(*files) as pair:
        given.write_bytes(pickle.dumps((Crop(pair), [])))
    with given.open("rb") as stdin, subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE,
                                                     env=os.environ | {"PYTHONUNBUFFERED": "1"}) as child:
        assert child.stdout is not None
        if not hasattr(fcntl, "F_SETPIPE_SZ"):
            pytest.skip("pipes of a fixed size")
        fcntl.fcntl(child.stdout, fcntl.F_SETPIPE_SZ, 4096)
        select.select([child.stdout], [], [])
        for _ in range(3):
            time.sleep(0.1)
            child.send_signal(signal.SIGSTOP)
            time.sleep(0.1)
            child.send_signal(signal.SIGCONT)
        said = child.stdout.read()
    assert len(said) > 4096 and pickle.loads(said) == computed(*files)
