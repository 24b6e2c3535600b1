# SPDX-License-Identifier: MIT
"""``python -m bridge``: which commands there are, and what each is for."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bridge.common.cli import new_parser

#: Every module that is a command, with one sentence; those of `bridge` first
COMMANDS = {
    "bridge.validate": "Is our Fortran step right? Export a fixture, train it in Fortran, judge every tensor.",
    "bridge.compare": "Judge any program's result: rounding, lower precision, a bug, or nobody can tell.",
    "bridge.identities": "Do a result's own tensors agree with each other? No reference is asked.",
    "bridge.gradcheck": "Are the backward passes the gradients of the forward passes? Central differences.",
    "bridge.step": "Train the steps of a fixture in Fortran, from Python, and write every tensor.",
    "bridge.doctor": "What works on this machine, what does not, and what would help?",
    "reference.export": "Write a fixture: a few training steps in PyTorch, every tensor of every step.",
}
#: Programs without Python
PROGRAMS = {
    "cnn_step": "The same as bridge.step: train the steps of a fixture, write every tensor.",
    "cnn_time": "The seconds of training steps on a fixture's first batch.",
}


def commands() -> str:
    """Return one line for each command."""
    width = max(map(len, COMMANDS)) + 2
    lines = [f"  python -m {name:<{width}}{text}" for name, text in COMMANDS.items()]
    lines += [f"  {name:<{width + len('python -m ')}}{text}" for name, text in PROGRAMS.items()]
    return "\n".join(["commands, each with --help:", *lines])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the list."""
    p = new_parser("bridge", description="Convolutional networks in Fortran, beside PyTorch, and a validator that says "
                   "whether they are right.", epilog=commands())
    p.parse_args(arguments)
    p.print_help()
    return 0


if __name__ == "__main__":
    sys.exit(main())
