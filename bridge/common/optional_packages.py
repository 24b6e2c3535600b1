# SPDX-License-Identifier: MIT
"""Packages that only some of the work needs, and the one error where such a package is missing."""

from __future__ import annotations

import importlib.util

from bridge.common.errors import BridgeError

#: What is installed where a package is missing, as in pyproject.toml
INSTALLED = {"torch": ("PyTorch", "torch>=2.5"), "matplotlib": ("matplotlib", "matplotlib>=3.7"),
             "mrcfile": ("mrcfile", "mrcfile>=1.4"), "tifffile": ("tifffile", "tifffile>=2024.5.22"),
             "tomli": ("tomli", "tomli>=2"), "mpi4py": ("mpi4py", "mpi4py>=4")}


def require(package: str, why: str) -> None:
    """Refuse work that needs a package which is not there; nothing is imported.

    Parameters
    ----------
    package : as Python imports it, one of `INSTALLED`
    why : who needs it, the end of a sentence

    Raises
    ------
    BridgeError
        With the command that installs it.
    """
    if importlib.util.find_spec(package) is None:
        name, requirement = INSTALLED[package]
        raise BridgeError(f"{name} is not installed, and {why}: pip install '{requirement}'")
