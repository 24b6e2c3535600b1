# SPDX-License-Identifier: MIT
"""What is measured, and in which order: the most important first, because the time may be up at any moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.frameworks.gpu import CHEAP, COMPILES, TUNES
from benchmarks.harness.workloads import Net


@dataclass(frozen=True)
class Cell:
    """Images of size x size, how many, and a precision.

    Examples
    --------
    >>> Cell(1024, 2, "tf32").name
    '2 x 1 x 1024 x 1024, tf32'
    """

    size: int
    batch: int
    precision: str

    @property
    def net(self) -> Net:
        """The default net on such images. Its tensors are float32; `precision` says how they are multiplied."""
        return Net(size=self.size, batch=self.batch)

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.batch} x 1 x {self.size} x {self.size}, {self.precision}"


@dataclass(frozen=True)
class Job:
    """A cell with the frameworks that cost no more than `cost` to start, in some runs each."""

    cell: Cell
    cost: int
    rounds: int


@dataclass(frozen=True)
class Sizes:
    """Of images and batches.

    Attributes
    ----------
    mission : size and batch of the case that the goals are about
    sizes, batches : all of them, in the order of the tables
    order : size and batch of all others, the most important first
    """

    mission: tuple[int, int]
    sizes: tuple[int, ...]
    batches: tuple[int, ...]
    order: tuple[tuple[int, int], ...]


FULL = Sizes((1024, 2), (64, 256, 1024, 4096), (1, 2, 8, 64),
             ((256, 2), (64, 2), (4096, 2), (1024, 8), (256, 64), (64, 64), (1024, 1), (256, 8), (64, 1), (1024, 64),
              (64, 8), (256, 1), (4096, 1), (4096, 8), (4096, 64)))
QUICK = Sizes((1024, 2), (256, 1024), (2,), ((256, 2),))
PRETENDED = Sizes((12, 2), (6, 12), (1, 2), ((6, 2),))
#: Of a GPU's memory, what the tensors of one framework may take
SHARE = 0.7
ROUNDS, FEW_ROUNDS = 9, 5


def schedule(sizes: Sizes, precisions: Sequence[str], *, quick: bool = False) -> list[Job]:
    """All jobs. A later job on a cell has more frameworks, and takes the place of an earlier one.

    The mission's size comes twice before all others: at once with those that start at once, so that something is there
    whatever happens, and then with what PyTorch compiles.

    Examples
    --------
    >>> [(job.cell.name, job.cost) for job in schedule(PRETENDED, ["fp32"], quick=True)]
    [('2 x 1 x 12 x 12, fp32', 0), ('2 x 1 x 6 x 6, fp32', 0)]
    """
    mission = [Cell(*sizes.mission, precision) for precision in precisions]
    # Sizes first, precisions within them: a table with gaps below is better than one with gaps to the right
    others = [Cell(size, batch, precision) for size, batch in sizes.order for precision in precisions]
    if quick:
        return [Job(cell, CHEAP, 3) for cell in (*mission, *others)]
    return [*(Job(cell, CHEAP, FEW_ROUNDS) for cell in mission), *(Job(cell, COMPILES, ROUNDS) for cell in mission),
            *(Job(cell, CHEAP, FEW_ROUNDS) for cell in others), *(Job(cell, TUNES, ROUNDS) for cell in mission),
            *(Job(cell, COMPILES, FEW_ROUNDS) for cell in others)]


def too_large(cell: Cell, memory: int) -> str:
    """Why a cell is left out on a GPU of so many bytes, or nothing.

    Examples
    --------
    >>> too_large(Cell(1024, 2, "fp32"), 10**11)
    ''
    >>> too_large(Cell(4096, 64, "fp32"), 150 * 10**9)
    'tensors of about 584 GB, of 150 GB'
    """
    likely = cell.net.likely_bytes
    return f"tensors of about {likely / 1e9:.0f} GB, of {memory / 1e9:.0f} GB" if likely > SHARE * memory else ""


def crowded(cell: Cell, frameworks: int, memory: int) -> bool:
    """Whether frameworks have to go between their runs, because not all of them fit into the memory.

    >>> crowded(Cell(1024, 2, "fp32"), 12, 150 * 10**9), crowded(Cell(4096, 2, "fp32"), 12, 150 * 10**9)
    (False, True)
    """
    return cell.net.likely_bytes * frameworks > SHARE * memory
