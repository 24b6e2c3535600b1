# SPDX-License-Identifier: MIT
"""The code blocks of a document, run in order in one folder.

Blocks of the shell are given to bash line by line as they stand, Python's share one namespace, a test of the reader's
own is given to pytest, Fortran is compiled against our library or HDF5. A line that cannot run here is named in
`LEFT_OUT`, with the reason; every other line runs, so that a new one is either right or decided on.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.engine.library.programs import program_path
from tests.helpers.library.cnn_library import compiled
from tests.helpers.ranks import ranks

#: Lines of the shell that do not run here, by how they begin, and why
LEFT_OUT = {
    "make ": "prepares a machine; these tests run in what it prepared",
    "source .venv": "these tests run in that environment",
    "pip install": "needs packages from elsewhere, and this environment is not to be changed",
    "python -m benchmarks ": "takes an hour; tests/benchmarks/cpu runs small ones",
    "python -m benchmarks.gpu_bench": "needs a GPU; tests/benchmarks/gpu runs it on the software device",
    "python -m benchmarks.gpu_check": "needs a GPU; tests/benchmarks/test_gpu_check.py runs it on the software device",
}
#: What stands in a document and what runs here: small images, a file and a device that are here
INSTEAD = {
    "--size 256 ": "--size 24x32 ",
    "bridge.validate --device cuda": "bridge.validate --size 12x16 --steps 1 --device cuda",
    "--device cuda:1": "--device cuda",
}
#: Shown, not run: what a program prints, drawings, files that a test writes itself
SHOWN = ("text", "toml", "")


@dataclass(frozen=True)
class Block:
    """What stands between two fences, its language, and its line in the document."""

    language: str
    text: str
    line: int


def blocks(document: str) -> list[Block]:
    """All of them, in order."""
    found = re.finditer(r"^```([^\n]*)\n(.*?)^```$", document, re.DOTALL | re.MULTILINE)
    return [Block(one[1], one[2], document[: one.start()].count("\n") + 1) for one in found]


def commands(block: Block) -> list[str]:
    """The lines behind the prompt, without their comments."""
    lines = block.text.splitlines()
    assert all(line.startswith("$ ") for line in lines), f"line {block.line}: a console block holds lines with $ only"
    return [re.sub(r"\s+# .*", "", line[2:]) for line in lines]


def left_out(command: str) -> str | None:
    """Which entry of `LEFT_OUT` names it."""
    return next((start for start in LEFT_OUT if f"{command} ".startswith(start)), None)


class Reader:
    """Somebody who types what a document shows, in a folder of their own.

    Parameters
    ----------
    folder : where everything runs
    names : what the document's text introduces in words, for its Python
    """

    def __init__(self, folder: Path, names: dict[str, Any]) -> None:
        self.folder, self.names = folder, names
        programs = folder / "programs"
        programs.mkdir()
        for name in ("cnn_step", "your_program"):
            (programs / name).symlink_to(program_path("cnn_step"))
        path = f"{programs}{os.pathsep}{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
        self.environment = os.environ | ranks.OPEN_MPI | {"PATH": path}

    def read(self, block: Block) -> None:
        """Run one block; an exception where it does not do what it says."""
        if block.language not in SHOWN:
            getattr(self, f"_{block.language}")(block)

    def _console(self, block: Block) -> None:
        for command in commands(block):
            if left_out(command):
                continue
            for shown, here in INSTEAD.items():
                command = command.replace(shown, here)
            self._start("bash", "-ec", command)

    def _python(self, block: Block) -> None:
        if "def test_" in block.text:
            (self.folder / "test_shown.py").write_text(block.text, encoding="utf-8")
            self._start(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shown.py")
        elif block.text.startswith(">>>"):
            raise NotImplementedError("doctests stand in docstrings")
        else:
            exec(compile(block.text, f"line {block.line}", "exec"), self.names)

    def _fortran(self, block: Block) -> None:
        source = self.folder / "shown.f90"
        source.write_text(block.text, encoding="utf-8")
        if "use cnn" in block.text:
            compiled(source, self.folder)
        else:
            self._start("h5fc", "shown.f90", "-o", "shown")
        self._start("./shown")

    def _c(self, block: Block) -> None:
        source = self.folder / "shown.c"
        source.write_text(block.text, encoding="utf-8")
        self._start(str(compiled(source, self.folder)))

    def _json(self, block: Block) -> None:
        self.names["shown"] = json.loads(block.text)

    def _start(self, *command: str) -> None:
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def here(program: str) -> bool:
    """It is on the search path."""
    return shutil.which(program) is not None
