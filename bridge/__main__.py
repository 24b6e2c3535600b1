# SPDX-License-Identifier: MIT
"""``python -m bridge``: which commands there are, and what each is for; started by their last names, too.

``python -m bridge compare a.h5 b.h5``, and where a wheel is installed ``cnn-bridge compare a.h5 b.h5``, are
``python -m bridge.compare a.h5 b.h5``.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence

from bridge.common.cli import new_parser

#: Every module that is a command, with one sentence; those of `bridge` first
COMMANDS = {
    "bridge.validate": "Is the Fortran training step right?",
    "bridge.compare": "Is the result of any other program right?",
    "bridge.identities": "Do a result's own tensors fit together?",
    "bridge.gradcheck": "Do differences confirm the gradients?",
    "bridge.step": "Train in Fortran; write every tensor.",
    "bridge.train": "Train on image files of any size.",
    "bridge.apply": "Apply a trained network to image files.",
    "bridge.exchange.upgrade": "Rewrite a file of version 1 as 2.",
    "bridge.doctor": "What works here, and what is missing?",
    "reference.export": "Train in PyTorch; write every tensor.",
}
#: By their last names
SHORT = {name.rpartition(".")[2]: name for name in COMMANDS}
#: Programs without Python
PROGRAMS = {
    "cnn_step": "Train in Fortran, as bridge.step does.",
    "cnn_time": "How long does a training step take?",
}
ABOUT = """Convolutional networks in Fortran beside PyTorch, and a validator that decides for any implementation of a
training step (forward, loss, backward, update): is every difference rounding, or is there a bug, and which?"""
EXAMPLES = """

how they work together:
  python -m bridge.doctor                        is everything installed?
  python -m bridge.validate --size 128           the three below in one command
  python -m reference.export fixture.h5 --size 128
                                                 the task: weights, images and
                                                 what PyTorch makes of them
  cnn_step fixture.h5 result.h5                  the answer; or your program's
  python -m bridge.compare fixture.h5 result.h5  the verdict, also as exit code"""


def commands() -> str:
    """Return one line for each command."""
    width = max(map(len, COMMANDS)) + 2
    lines = [f"  python -m {name:<{width}}{text}" for name, text in COMMANDS.items()]
    lines += [f"  {name:<{width + len('python -m ')}}{text}" for name, text in PROGRAMS.items()]
    return "\n".join(["commands, each with --help, also as cnn-bridge and the last name:", *lines])


def main(arguments: Sequence[str] | None = None) -> int:
    """Start a command, or print the list."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given and given[0] in SHORT:
        sys.argv = [SHORT[given[0]], *given[1:]]
        runpy.run_module(SHORT[given[0]], run_name="__main__", alter_sys=True)
        return 0
    p = new_parser("bridge", ABOUT, commands() + EXAMPLES)
    p.add_argument("command", nargs="?", metavar="COMMAND", help=f"{', '.join(SHORT)}, and its arguments")
    a = p.parse_args(given)
    if a.command:
        p.error(f"COMMAND: {a.command!r:.60}, expected one of {', '.join(SHORT)}")
    p.print_help()
    return 0


if __name__ == "__main__":
    sys.exit(main())
