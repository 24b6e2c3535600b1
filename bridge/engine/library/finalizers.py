# SPDX-License-Identifier: MIT
"""When memory of Fortran is given back: with its last owner, on a GPU at the end of the program at the latest."""

from __future__ import annotations

import atexit
import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any

from bridge.engine.library import extension

_numbers = itertools.count()
#: What is still to be released on GPUs
_on_gpu: dict[int, Callable[[], Any]] = {}


def release_with(owner: object, release: Callable[[], Any], *, on_gpu: bool) -> None:
    """Call `release` once, when `owner` is gone; memory on a GPU at the end of the program at the latest.

    In a forked process nothing is released: it belongs to the parent.
    """
    number = next(_numbers)
    finalizer = weakref.finalize(owner, _release, number, release)
    if on_gpu:
        _release_at_exit()
        _on_gpu[number] = finalizer


@functools.cache
def _release_at_exit() -> None:
    """The last to be registered is the first to be called."""
    extension.close_at_exit()
    atexit.register(release_all)


def _release(number: int, release: Callable[[], Any]) -> None:
    _on_gpu.pop(number, None)
    if not extension.forked():
        release()


def release_all() -> None:
    """Give back all arrays and networks on CUDA devices, those that are still in use too."""
    for finalizer in list(_on_gpu.values()):
        finalizer()
