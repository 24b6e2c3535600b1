# SPDX-License-Identifier: MIT
"""A few open files of many: the one that was not used for longest is closed, never one that a thread reads from."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bridge.common.errors import ArgumentError
from bridge.data.sources.stack import Reader


class _Entry:
    def __init__(self, reader: Reader) -> None:
        self.reader, self.users = reader, 0


class OpenFiles:
    """Readers by number. As many as `capacity`, and one for each thread that is reading, are open at most.

    >>> OpenFiles(0)
    Traceback (most recent call last):
    bridge.common.errors.ArgumentError: open_files: 0, expected 1 or more
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ArgumentError(f"open_files: {capacity}, expected 1 or more")
        self._capacity = capacity
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def borrowed(self, number: int, opened: Callable[[], Reader]) -> Iterator[Reader]:
        """Yield the reader of this number, opened where it is not open; it stays so until the end of the block."""
        with self._lock:
            if self._closed:
                raise ArgumentError("the images are closed already, expected open ones")
            entry = self._entries.get(number)
            if entry is None:
                self._make_room()
                entry = self._entries[number] = _Entry(opened())
            self._entries.move_to_end(number)
            entry.users += 1
        try:
            yield entry.reader
        finally:
            with self._lock:
                entry.users -= 1
                if self._closed and not entry.users:
                    entry.reader.close()

    def _make_room(self) -> None:
        """For one more."""
        idle = (number for number, entry in self._entries.items() if not entry.users)
        for number in list(idle)[:max(0, len(self._entries) - self._capacity + 1)]:
            self._entries.pop(number).reader.close()

    def close(self) -> None:
        """Close all files, one that a thread reads from as soon as it has read."""
        with self._lock:
            self._closed = True
            for entry in self._entries.values():
                if not entry.users:
                    entry.reader.close()
            self._entries.clear()
