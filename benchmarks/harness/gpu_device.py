# SPDX-License-Identifier: MIT
"""The GPU that programs are for: what the doctor says of it, and a software device in its place.

Both programs have the same options for it, skip with one line where there is none, and write the same facts of it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from benchmarks.harness.children import ChildError, run_child
from benchmarks.harness.document import RESULTS, versions
from bridge.common.cli import Output, complain
from bridge.common.command_files import check_files
from bridge.common.errors import BridgeError
from bridge.engine.library import nvidia_wheels

PACKAGES = ("fortran-torch-bridge", "torch", "numpy", "h5py", "nvidia-cudnn-cu13", "nvidia-cuda-runtime",
            "nvidia-cublas", "nvidia-cudnn-cu12", "nvidia-cuda-runtime-cu12", "cupy-cuda13x")
#: What the software device says of itself in its name
SOFTWARE = "(no GPU)"
#: Seconds for the doctor, at most
LONGEST = 120.0


@dataclass(frozen=True)
class Seen:
    """What the doctor says: whether the device can be used, its name or why not, and versions."""

    usable: bool
    words: str
    facts: dict[str, str]
    environment: dict[str, Any]


def add_options(p: argparse.ArgumentParser, name: str) -> None:
    """The options --output, --require and --pretend; `name` is that of the JSON."""
    p.add_argument("--output", "--json", metavar="FILE", help="the JSON file; pictures and logs go beside it (default "
                                                              f"{name} in $OUT, else in benchmarks/results)")
    p.add_argument("--require", action="store_true", help="no usable GPU is a failure (exit code 1)")
    p.add_argument("--pretend", metavar="DIR", help="for tests: use the libraries in DIR, which simulate a GPU on "
                                                    "the CPU; needs --output outside of benchmarks/results")


def output_file(a: argparse.Namespace, name: str) -> Path:
    """Where the JSON goes: to --output, else a file of this name in $OUT, else among the results.

    Raises
    ------
    BridgeError
        If a software device's results would go among those of GPUs, or the file cannot be made.
    """
    if a.pretend and (a.output is None or Path(a.output).resolve().is_relative_to(RESULTS)):
        raise BridgeError("--pretend: expected --output with a file outside of benchmarks/results")
    path = Path(a.output or os.path.join(os.environ.get("OUT") or RESULTS, name))
    check_files([], [("--output", path)])
    return path


def environment(pretend: str | None) -> dict[str, str]:
    """Variables of the child processes: real libraries for the tests, or those of a software device."""
    # cnn_step has no Python to find NVIDIA's wheels with
    nvidia_wheels.name_wheels()
    found = {name: value for name, value in os.environ.items() if name != "CNN_TEST_CUDA"}
    return found | ({"CNN_CUDA_PATH": str(Path(pretend).resolve())} if pretend else {"CNN_TEST_CUDA": "real"})


def doctor(variables: Mapping[str, str], limit: float) -> Seen:
    """Is there a device, and does it compute right to the bit?"""
    with tempfile.TemporaryDirectory(prefix="gpu-doctor-") as logs:
        done = run_child([sys.executable, "-m", "bridge.doctor", "--device", "cuda", "--json", "-"], variables,
                         Path(logs), limit).expect(0, 1)
    document = json.loads(done.out)
    cuda = document["devices"]["cuda"]
    # Names of files, without the folders of this machine
    facts = {name: Path(value).name if name.endswith(" library") else value
             for name, value in document["cuda_facts"].items()}
    why = "; ".join(one["what"] for one in cuda["problems"])
    return Seen(cuda["usable"], cuda["names"] if cuda["usable"] else why, facts, document["environment"])


def look(program: str, kind: str, a: argparse.Namespace, variables: Mapping[str, str], limit: float,
         console: Output) -> Seen | int:
    """The device, named on the console as of this `kind`; where it cannot be used, the exit code of the program.

    Raises
    ------
    BridgeError
        If a software device is found that --pretend does not name.
    """
    try:
        seen = doctor(variables, min(limit, LONGEST))
    except ChildError as error:
        return complain(program, f"failed: {error}", 1)
    if not seen.usable:
        skip(program, seen.words, console)
        return int(a.require)
    if SOFTWARE in seen.words and not a.pretend:
        raise BridgeError(f"found {seen.words}, expected a GPU: CNN_CUDA_PATH names a software device (--pretend)")
    console.print(Text(f"{kind}: {seen.words}"), soft_wrap=True)
    return seen


def skip(program: str, why: str, console: Output) -> None:
    """The one line of a program that has nothing to do."""
    console.print(f"{program}: skipped: {why}", highlight=False, markup=False, soft_wrap=True)


def head(kind: str, device: str, seen: Seen) -> dict[str, Any]:
    """The begin of a JSON, of a run that is not finished."""
    return {"kind": kind, "device": device, "name": seen.words, "words": "not finished", "exit_code": 1, "seconds": 0.0,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "packages": versions(PACKAGES), "cuda": seen.facts, "environment": seen.environment}
