# SPDX-License-Identifier: MIT
"""Write a report in one piece: a reader never sees half of it."""

from __future__ import annotations

import json
import os
from typing import Any

from bridge.atomic_file import replacing


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a UTF-8 file; what UTF-8 cannot hold becomes a question mark.

    Raises
    ------
    OSError
        If it cannot be written. An older file of that name is then still there.
    """
    with replacing(path) as part, open(part, "w", encoding="utf-8", errors="replace") as stream:
        stream.write(text)


def write_json(path: str | os.PathLike[str], document: Any) -> None:
    """Write a JSON file; NaN and infinity are refused, JSON has none."""
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
