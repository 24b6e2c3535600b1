# SPDX-License-Identifier: MIT
"""The version of the project, as it was installed."""

from __future__ import annotations

import argparse
from importlib import metadata


def version() -> str:
    """As ``0.6.0``; where the sources are used as they lie, that."""
    try:
        return metadata.version("fortran-torch-bridge")
    except metadata.PackageNotFoundError:
        return "(source tree, not installed)"


def add_version(parser: argparse.ArgumentParser, name: str) -> None:
    """Give a command the option ``--version``."""
    parser.add_argument("--version", action="version", version=f"{name} {version()}", help="print the version")
