# SPDX-License-Identifier: MIT
"""``python -m bridge.step FIXTURE RESULT``: what ``cnn_step`` does, through the extension."""

from __future__ import annotations

import argparse
import signal
import sys

from bridge.common.cli import new_parser, run
from bridge.engine.library import extension
from bridge.engine.library.device_spec import HELP, OPTIONS_HELP
from bridge.exchange.crash_guard import check_readable
from bridge.exchange.file import ExchangeFile

EXAMPLES = """exit codes:
  0    the result is written; nothing is said of whether it is right
  2    bad input or usage, or no such device; no result
  130  interrupted; no result

examples:
  python -m reference.export fixture.h5 --size 64
  python -m bridge.step fixture.h5 result.h5
  python -m bridge.step fixture.h5 result.h5 --device cuda,math=tf32
  python -m bridge.compare fixture.h5 result.h5       (is the result right?)"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, the same as that of ``cnn_step``."""
    p = new_parser(
        "bridge.step",
        "Read a network, its weights and K batches from FIXTURE, train K steps (forward, loss, backward, update) "
        "in Fortran, and write every tensor of every step to RESULT. The program cnn_step does the same without "
        "Python.", EXAMPLES + OPTIONS_HELP)
    p.add_argument("fixture", metavar="FIXTURE", help="exchange file to read (docs/exchange-file.md)")
    p.add_argument("result", metavar="RESULT", help="exchange file to write, replaced if it is there")
    p.add_argument("--device", default="cpu", help=HELP)
    p.add_argument("--precision", choices=("float32", "float64"), default="",
                   help="precision of the computation and of RESULT (default: the fixture's)")
    return p


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 0 when it is done, 2 for bad input, 130 when it was interrupted."""
    a = parser().parse_args(arguments)
    return run("bridge.step", lambda: _step(a), at_once=True)


def _step(a: argparse.Namespace) -> int:
    # The library of the extension would crash on what h5py says in one line
    check_readable(a.fixture)
    with ExchangeFile(a.fixture):
        pass
    extension.run_file(a.fixture, a.result, a.device, a.precision)
    return 0


if __name__ == "__main__":
    # Python would hear of Ctrl-C only when all steps are done; so the signal ends the process, as it ends cnn_step
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(main())
