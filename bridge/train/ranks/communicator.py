# SPDX-License-Identifier: MIT
"""What ranks need of each other, whatever carries it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NoReturn, TypeVar

import numpy as np

from bridge.common.errors import BridgeError, EngineError

Made = TypeVar("Made")


class RankError(EngineError):
    """Another rank is no longer there, has failed, or is not the same as the others."""


class Communicator(ABC):
    """All ranks of a training. Each method but `abort` and `end` is called by all of them, in the same order.

    Messages are bytes: uint8 arrays in C order, of the same shape on all ranks. Nothing is added up here, so that no
    library decides in which order that happens.

    Attributes
    ----------
    rank, size : this one's number, from 0, and how many there are
    settled : whether all ranks end alike; else one that ends with an error takes the others with it
    """

    rank: int
    size: int
    settled = False
    _speaker = 0

    @abstractmethod
    def gather(self, sent: np.ndarray) -> np.ndarray:
        """Return what every rank has sent, shape (size, n), in the order of ranks.

        Parameters
        ----------
        sent : uint8, shape (n,)
        """

    @abstractmethod
    def exchange(self, sent: np.ndarray) -> np.ndarray:
        """Return what every rank has sent to this one, shape (size, n).

        Parameters
        ----------
        sent : uint8, shape (size, n)
            Row r is for rank r.
        """

    @abstractmethod
    def broadcast(self, array: np.ndarray) -> None:
        """Give all ranks what rank 0 has, in place; uint8, shape (n,)."""

    @abstractmethod
    def abort(self, code: int) -> NoReturn:
        """End this process now and, with the launcher's help, the others; this exit code is the one to be seen."""

    def leave(self) -> None:  # noqa: B027  (most have nothing to do)
        """Say that no message will follow."""

    def settle(self, speaker: int = 0) -> None:
        """Note that all ranks are about to end alike, and that `speaker` tells why."""
        self.settled, self._speaker = True, speaker

    @property
    def silent(self) -> bool:
        """Return whether another rank tells why all end."""
        return self.settled and self.rank != self._speaker

    def wait(self) -> None:
        """Wait until all ranks have come to this point."""
        self.gather(np.zeros(1, np.uint8))

    def end(self, code: int) -> None:
        """Leave the ranks at the end of the process, which has this exit code.

        With an error that the others do not share they end, too. Else all wait for who is still writing: launchers end
        what is left, when a process ends with an error.
        """
        if code and not self.settled and self.size > 1:
            self.abort(code)
        self.wait()
        self.leave()


class Alone(Communicator):
    """The only rank.

    Examples
    --------
    >>> Alone().gather(np.array([7], np.uint8)).tolist()
    [[7]]
    """

    rank, size = 0, 1

    def gather(self, sent: np.ndarray) -> np.ndarray:
        """Return it."""
        return sent[None]

    def exchange(self, sent: np.ndarray) -> np.ndarray:
        """Return it."""
        return sent

    def broadcast(self, array: np.ndarray) -> None:
        """Leave it as it is."""

    def abort(self, code: int) -> NoReturn:
        """End this process."""
        raise SystemExit(code)


def together(ranks: Communicator, work: Callable[[], Made]) -> Made:
    """Return what `work` makes, if it fails on no rank; else all of them end, and the first on which it did tells why.

    Raises
    ------
    BridgeError
        That of `work`, or `RankError` where only others have failed.

    Examples
    --------
    >>> together(Alone(), lambda: 3)
    3
    """
    failure: BridgeError | OSError | None = None
    try:
        made = work()
    except (BridgeError, OSError) as error:
        failure = error
    failed = np.flatnonzero(ranks.gather(np.array([failure is not None], np.uint8)))
    if failed.size == 0:
        return made
    ranks.settle(int(failed[0]))
    raise failure or RankError(f"rank {failed[0]} has failed")
