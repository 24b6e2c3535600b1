# SPDX-License-Identifier: MIT
"""The clock of a search goes on while it computes, and hardly while it waits."""

from __future__ import annotations

import time

from bridge.judge.diagnosis.clock import now


def test_waiting_counts_for_a_quarter() -> None:
    start, begin = now(), time.monotonic()
    time.sleep(0.4)
    assert 0 < now() - start < 0.5 * (time.monotonic() - begin)


def test_computing_counts() -> None:
    start, begin = now(), time.thread_time()
    while time.thread_time() - begin < 0.2:
        pass
    assert now() - start > 0.19
