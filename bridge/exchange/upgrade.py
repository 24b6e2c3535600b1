# SPDX-License-Identifier: MIT
"""``python -m bridge.exchange.upgrade OLD NEW``: an exchange file of version 1 as one of version 2."""

from __future__ import annotations

import argparse
import sys

import h5py

from bridge.common.atomic_file import replacing
from bridge.common.cli import new_parser, run
from bridge.common.command_files import check_files
from bridge.common.errors import FileError
from bridge.exchange.file import ExchangeFile
from bridge.exchange.model_groups import write_model

EXAMPLES = """exit codes:
  0    NEW is written
  2    bad input or usage; NEW is as it was

examples:
  python -m bridge.exchange.upgrade old.h5 new.h5 && cnn_step new.h5 result.h5"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    p = new_parser(
        "bridge.exchange.upgrade",
        "Write the exchange file OLD of version 1, whose model is JSON, which only Python reads, as NEW of version 2, "
        "whose model is groups and attributes. Every tensor and attribute is copied.", EXAMPLES)
    p.add_argument("old", metavar="OLD", help="exchange file of version 1 (docs/exchange-file.md)")
    p.add_argument("new", metavar="NEW", help="exchange file to write, replaced if it is there")
    return p


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 0 when it is done, 2 for bad input."""
    a = parser().parse_args(arguments)
    return run("bridge.exchange.upgrade", lambda: _upgrade(a.old, a.new))


def _upgrade(old: str, new: str) -> int:
    check_files([("OLD", old)], [("NEW", new)])
    with ExchangeFile(old) as source:
        if source.attributes["format_version"] != 1 or source.model is None:
            raise FileError(f"{old}: no file of version 1 with a model, which alone can be upgraded")
        with replacing(new) as part, h5py.File(
                part, "w", libver=("earliest", "v110"), locking=False) as file:
            file.attrs.update(source.file.attrs.items())
            file.attrs["format_version"] = 2
            for name in source.file:
                if name != "model":
                    source.file.copy(name, file)
            write_model(file.create_group("model"), source.model)
            for step in file.get("steps", ()):
                _move_momenta(file[f"steps/{step}"])
    return 0


def _move_momenta(step: h5py.Group) -> None:
    """``momenta/<layer>/<parameter>`` is ``optimizer/<layer>/<parameter>/momentum`` in version 2."""
    for layer, parameters in step.get("momenta", {}).items():
        for name in parameters:
            step.move(f"momenta/{layer}/{name}", f"optimizer/{layer}/{name}/momentum")
            step[f"optimizer/{layer}/{name}"].attrs["updates"] = 1
    if "momenta" in step:
        del step["momenta"]


if __name__ == "__main__":
    sys.exit(main())
