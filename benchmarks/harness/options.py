# SPDX-License-Identifier: MIT
"""Options that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection


def some_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """For argparse: names between commas, each of which must be known.

    >>> some_of(["a", "b"])("b,a,b")
    ['b', 'a']
    """
    def parsed(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: unknown, expected {', '.join(known)}")
        return list(dict.fromkeys(names))
    return parsed


def add_without(p: argparse.ArgumentParser) -> None:
    """The option --without."""
    p.add_argument("--without", type=lambda text: tuple(filter(None, text.split(","))), default=(), metavar="NAME,...",
                   help="leave out the frameworks whose names begin with one of these")
