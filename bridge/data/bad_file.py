# SPDX-License-Identifier: MIT
"""A file that is not used, and why."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.common.errors import FileError


class ValuesError(FileError):
    """An image has values that cannot be used: NaN, infinite, or too large."""


@dataclass(frozen=True)
class BadFile:
    """A file that is not used.

    Attributes
    ----------
    name : its path, with a dataset's where one was given
    reason : in one line, beginning with the name
    """

    name: str
    reason: str
