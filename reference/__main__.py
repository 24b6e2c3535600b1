# SPDX-License-Identifier: MIT
"""``python -m reference``: which command there is, and what it is for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from reference.version import add_version

COMMANDS = """\
commands, each with --help:
  python -m reference.export  Train in PyTorch; write every tensor.

python -m bridge lists all commands of the project."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the list."""
    parser = argparse.ArgumentParser(
        prog="python -m reference",
        description="The PyTorch side: it trains a network for a few steps and writes every tensor\n"
        "into a file, a fixture, with which another implementation is compared.",
        epilog=COMMANDS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_version(parser, "reference")
    parser.parse_args(argv)
    parser.print_help()
    return 0


if __name__ == "__main__":
    sys.exit(main())
