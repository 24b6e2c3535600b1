# SPDX-License-Identifier: MIT
"""The JSON of a section: what was found, where, with which versions. No date and no name of a machine is in it."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.harness import processors
from benchmarks.harness.processes import ROOT
from bridge.common.errors import BridgeError
from bridge.engine.library import extension

JSON_VERSION = 1
RESULTS = ROOT / "benchmarks" / "results"
PACKAGES = ("fortran-torch-bridge", "torch", "jax", "jaxlib", "numpy", "h5py", "f90wrap")
#: They change what is measured
VARIABLES = ("CNN_CPU_LEVEL", "CNN_CPU_CAP", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "KMP_BLOCKTIME", "GOMP_SPINCOUNT",
             "XLA_FLAGS")


@dataclass(frozen=True)
class Options:
    """What the command line says.

    Attributes
    ----------
    quick : small sizes and few runs: everything works, the figures mean nothing
    runs : of each framework, where not None
    without : frameworks that are left out, or the beginnings of their names
    """

    quick: bool = False
    runs: int | None = None
    without: tuple[str, ...] = ()

    def rounds(self, usual: int) -> int:
        """How many runs each framework gets."""
        return self.runs or (2 if self.quick else usual)

    def left_out(self, names: tuple[str, ...], slow: tuple[str, ...] = ()) -> dict[str, dict[str, str]]:
        """Results of those that do not take part: by --without, or in a quick run because they are `slow` to start."""
        found = {name: {"skipped": "too slow to start for a quick run"} for name in slow if self.quick}
        return found | {name: {"skipped": "left out with --without"} for name in names if name.startswith(self.without)}


@dataclass(frozen=True)
class Goal:
    """A figure that was promised.

    Attributes
    ----------
    text : what it is
    found : the figure, or None when it could not be measured
    wanted : its limit
    at_least : the limit is a lower one
    unit : printed after the figures

    Examples
    --------
    >>> Goal("speed", 8.5, 8.0).met, Goal("time", 21.0, 20.0, at_least=False).met, Goal("speed", None, 8.0).met
    (True, False, None)
    """

    text: str
    found: float | None
    wanted: float
    at_least: bool = True
    unit: str = "x"

    @property
    def met(self) -> bool | None:
        """None where there is no figure."""
        if self.found is None:
            return None
        return self.found >= self.wanted if self.at_least else self.found <= self.wanted

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"met": self.met}


def make(section: str, options: Options, content: dict[str, Any], goals: list[Goal]) -> dict[str, Any]:
    """The whole document of a section."""
    return {"section": section, "json_version": JSON_VERSION, "quick": options.quick, "environment": environment(),
            "goals": [goal.as_dict() for goal in goals], **content}


def environment() -> dict[str, Any]:
    """Machine and versions."""
    found = {"gfortran": _gfortran(), "fortran library": _library()}
    found = versions(PACKAGES) | {name: value for name, value in found.items() if value}
    return {"cpu": processors.model_name(), "processors": len(processors.available()), "machine": platform.machine(),
            "system": platform.system(), "versions": found,
            "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ}}


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Of Python, and of those that are installed."""
    found = {"python": platform.python_version()}
    for name in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _library() -> str | None:
    try:
        return extension.fortran_version()
    except BridgeError:
        return None


def _gfortran() -> str | None:
    try:
        done = subprocess.run(["gfortran", "-dumpfullversion"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
