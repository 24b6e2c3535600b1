# SPDX-License-Identifier: MIT
"""What a reader needs to repeat a comparison: versions, machine, and what the two files say of themselves."""

from __future__ import annotations

import os
import platform
from typing import Any

import h5py
import numpy as np

from bridge.common.version import version
from bridge.exchange.file import ExchangeFile
from bridge.judge.measure.file_pair import FilePair

#: Attributes of an exchange file that tell where it comes from (docs/exchange-file.md)
ORIGIN = ("producer", "role", "precision", "math_mode", "device", "torch_version", "numpy_version", "h5py_version",
          "seed", "threads", "data", "target")


def environment() -> dict[str, Any]:
    """Return versions of what judged."""
    return {
        "bridge": version(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "h5py": h5py.__version__,
        "hdf5": h5py.version.hdf5_version,
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpus": str(os.cpu_count()),
    }


def origins(pair: FilePair | None) -> dict[str, dict[str, str | int | float]]:
    """Return where the two files come from; nothing without them."""
    return {} if pair is None else {"fixture": origin(pair.reference), "result": origin(pair.candidate)}


def origin(file: ExchangeFile) -> dict[str, str | int | float]:
    """Return where an exchange file comes from: its name and those of its attributes that say so."""
    said = {name: file.attributes.get(name) for name in ORIGIN}
    return {"file": os.path.basename(file.path)} | {name: value for name, value in said.items() if value is not None}
