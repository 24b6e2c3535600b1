# SPDX-License-Identifier: MIT
"""What takes minutes to build is built by one of the processes that run tests, for all of them."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def built_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """The folder that `build` has filled, in this process or in another one of the same run.

    Parameters
    ----------
    factory : of this run's temporary folders
    name : of the folder
    build : is given the empty folder; where it fails the next process tries again
    """
    base = factory.getbasetemp()
    # Processes of pytest-xdist have folders of their own in a common one
    common = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "built"
    common.mkdir(exist_ok=True)
    folder, done = common / name, common / f"{name}.done"
    with (common / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            build(folder)
            done.touch()
    return folder
