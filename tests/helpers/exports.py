# SPDX-License-Identifier: MIT
"""The writer of fixtures, in this process."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import reference.cli
from bridge.common.errors import BridgeError


def export_here(fixture: Path, *options: str) -> str:
    """``reference.export`` in this process: importing torch takes longer than the rest."""
    with redirect_stdout(StringIO()) as out:
        if reference.cli.main([str(fixture), *options]):
            raise BridgeError("reference.export failed")
    return out.getvalue()
