# SPDX-License-Identifier: MIT
"""What can go wrong in a benchmark."""

from __future__ import annotations


class BenchmarkError(Exception):
    """A benchmark cannot go on; the message says why, in one sentence."""


class NotHere(Exception):  # noqa: N818 (it is no error: the framework is skipped, and this says why)
    """A framework that this machine does not have."""
