# SPDX-License-Identifier: MIT
"""What a training has left in its folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from bridge import Network


def lines(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def weights(path: Path) -> dict[str, np.ndarray]:
    return {name: np.array(one) for name, one in Network.from_file(path).parameters.items()}
