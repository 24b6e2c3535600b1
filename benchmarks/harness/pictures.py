# SPDX-License-Identifier: MIT
"""What all pictures have in common. They need matplotlib, which is optional: ``pip install matplotlib``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Told apart by people who see colours differently (Okabe and Ito)
BLUE, SKY, GREEN, ORANGE, RED, PINK, WINE, BLACK = (
    "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#882255", "#000000")
GREY, GRID = "#666666", "#dddddd"


def new_figure(width: float, height: float) -> Figure:
    """An empty one, in inches."""
    # Without pyplot nothing opens a window, and no backend is chosen for the whole process
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def saved(drawn: Figure, path: Path) -> Path:
    """Write it."""
    drawn.savefig(path, dpi=110)
    return path
