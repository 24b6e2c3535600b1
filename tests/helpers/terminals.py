# SPDX-License-Identifier: MIT
"""Programs whose output goes to a terminal of some width, or into a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Said:
    """Exit code, the lines of the standard output without colours, and the standard error."""

    code: int
    lines: list[str]
    errors: str


def environment(**variables: str) -> dict[str, str]:
    """This process's, without what it says of its own terminal."""
    own = ("COLUMNS", "LINES", "TERM", "FORCE_COLOR", "NO_COLOR")
    return {name: value for name, value in os.environ.items() if name not in own} | variables


def piped(*arguments: object, folder: Path | None = None, **variables: str) -> Said:
    """``python -m`` with these arguments, read through a pipe."""
    done = subprocess.run([sys.executable, "-m", *map(str, arguments)], capture_output=True, text=True, check=False,
                          env=environment(**variables), cwd=folder)
    return Said(done.returncode, done.stdout.splitlines(), done.stderr)


def on_terminal(columns: int, *arguments: object, folder: Path | None = None) -> Said:
    """``python -m`` with these arguments, on a terminal of this width."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    with subprocess.Popen([sys.executable, "-m", *map(str, arguments)], stdin=its, stdout=its, stderr=subprocess.PIPE,
                          env=environment(TERM="xterm"), cwd=folder) as started:
        os.close(its)
        said = b""
        try:
            while part := os.read(ours, 1 << 16):
                said += part
        except OSError:
            pass  # So says Linux at the end
        os.close(ours)
        assert started.stderr is not None
        errors = started.stderr.read().decode()
    return Said(started.returncode, re.sub(r"\x1b\[[\d;]*m", "", said.decode()).splitlines(), errors)
