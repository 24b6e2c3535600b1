# SPDX-License-Identifier: MIT
"""What must be installed, said before anything is imported: a clone's sources can be found by any Python."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

#: As Python imports them
NEEDED = ("numpy", "h5py", "rich", "threadpoolctl")


def check_requirements() -> None:
    """Refuse a Python without our packages.

    Raises
    ------
    SystemExit
        With 2, after one line, where a command is being started.
    ModuleNotFoundError
        With the same line, where somebody imports the package.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if not missing:
        return
    text = f"bridge: the package {missing[0]} is missing in {sys.executable}; {_help(Path(__file__).parents[2])}"
    # So Python calls itself while it looks for the module of -m
    if sys.argv[:1] == ["-m"]:
        print(text, file=sys.stderr)
        sys.exit(2)
    raise ModuleNotFoundError(text, name=missing[0])


def _help(root: Path) -> str:
    """The environment of the clone, where there is one."""
    activate = root / ".venv" / "bin" / "activate"
    if activate.is_file():
        return f"activate the environment: source {os.path.relpath(activate)} (or pip install .)"
    return "make setup prepares an environment (then: source .venv/bin/activate); by hand: pip install ."
