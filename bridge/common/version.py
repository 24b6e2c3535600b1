# SPDX-License-Identifier: MIT
"""The version of the project, as it was installed."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """Return our version, as ``0.6.0``; "not installed" where the sources are used as they lie."""
    try:
        return metadata.version("fortran-torch-bridge")
    except metadata.PackageNotFoundError:
        return "not installed"
