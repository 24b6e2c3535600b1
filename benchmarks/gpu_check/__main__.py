# SPDX-License-Identifier: MIT
"""``python -m benchmarks.gpu_check``: tests, validation, TF32, CPU against GPU, double precision and memcheck on a GPU.

Without a usable GPU it says so in one line and ends with 0. It needs the installed package and this folder, no
compiler and no network. Every stage is run, whatever the one before gave; docs/gpu-check.md describes the JSON.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from benchmarks.gpu_check.plan import ROOT, Clock, Found, Plan, StageError
from benchmarks.gpu_check.stages import STAGES, TESTS, attempt, doctor
from bridge.common.atomic_file import write_json
from bridge.common.cli import Output, complain, new_parser, run
from bridge.common.command_files import check_files
from bridge.common.errors import BridgeError
from bridge.common.number_format import short
from bridge.engine.library import nvidia_wheels
from bridge.engine.library.device_spec import DeviceSpec

JSON_VERSION = 1
PACKAGES = ("fortran-torch-bridge", "torch", "numpy", "h5py", "nvidia-cudnn-cu13", "nvidia-cuda-runtime",
            "nvidia-cublas", "nvidia-cudnn-cu12", "nvidia-cuda-runtime-cu12", "cupy-cuda13x")
RESULTS = ROOT / "benchmarks" / "results"
#: What the software device says of itself in its name
SOFTWARE = "(no GPU)"
#: Of what was said by a stage that failed: so many lines are in the JSON
LAST_LINES, LONGEST_LINE = 60, 300
#: Room for the files of a run: a fixture of a step and three results at the default size
ROOM = 8 * 2**30


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    p = new_parser("benchmarks.gpu_check", description=__doc__,
                   epilog=f"stages: {', '.join(STAGES)}\nexit codes: 0 all passed, or there is no GPU; "
                          "1 a stage failed; 2 bad usage")
    p.add_argument("--stages", metavar="S,S,...", type=_stages, default=list(STAGES), help="only these, in this order")
    p.add_argument("--size", metavar="HxW", help="of the images of the validation (default 1024)")
    p.add_argument("--small", metavar="HxW", help="of those in double precision and with other options (default 256)")
    p.add_argument("--budget", metavar="S", type=float, default=540.0, help="seconds for all stages (default 540)")
    p.add_argument("--device", default="cuda", metavar="CUDA", help="which, and its options (default cuda)")
    p.add_argument("--tests", nargs="+", default=list(TESTS), metavar="FILE", help="of the stage tests")
    p.add_argument("--output", metavar="FILE", help="where the JSON goes (default gpu_check.json in the folder $OUT, "
                                                    "else in benchmarks/results)")
    p.add_argument("--require", action="store_true", help="no usable GPU is a failure (exit code 1)")
    p.add_argument("--pretend", metavar="DIR", help="take the libraries in DIR, a software device, for a GPU's; needs "
                                                    "--output, because nothing of it belongs among results")
    return p


def _stages(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in STAGES]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: unknown, expected {', '.join(STAGES)}")
    return names


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 passed or no GPU, 1 failed."""
    a = parser().parse_args(arguments)
    return run("gpu-check", lambda: _check(a))


def output_file(a: argparse.Namespace, name: str = "gpu_check.json") -> Path:
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
    # Every check measures plans itself, and nobody else gets what was chosen on the way
    found = {name: value for name, value in os.environ.items() if name != "CNN_TEST_CUDA"} | {"CNN_PLAN_CACHE": ""}
    return found | ({"CNN_CUDA_PATH": str(Path(pretend).resolve())} if pretend else {"CNN_TEST_CUDA": "real"})


def _check(a: argparse.Namespace) -> int:
    if not DeviceSpec.parse(a.device).on_gpu or not a.budget >= 0:
        raise BridgeError(f"--device {a.device} --budget {a.budget:g}: expected a CUDA device and a time of 0 or more")
    path, console, clock = output_file(a), Output(), Clock(a.budget)
    kind = "software device" if a.pretend else "GPU"
    with tempfile.TemporaryDirectory(prefix="gpu-check-", dir=_roomy()) as folder:
        size, small = ("24x20", "23x18") if a.pretend else ("1024", "256")
        plan = Plan(Path(folder), Path(folder), kind, a.device, a.size or size, a.small or small, a.tests,
                    environment(a.pretend))
        try:
            seen = doctor(plan, min(clock.left, 120.0))
        except StageError as error:
            return complain("gpu-check", f"failed: {error}", 1)
        if not seen.usable:
            console.print(f"gpu-check: skipped: {seen.words}", highlight=False, markup=False, soft_wrap=True)
            return int(a.require)
        if SOFTWARE in seen.words and not a.pretend:
            raise BridgeError(f"found {seen.words}, expected a GPU: CNN_CUDA_PATH names a software device (--pretend)")
        console.print(Text(f"{kind}: {seen.words}"), soft_wrap=True)
        document = {"json_version": JSON_VERSION, "kind": kind, "device": a.device, "name": seen.words,
                    "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                    "packages": versions(), "cuda": seen.facts, "environment": seen.environment,
                    "sizes": {"validate": plan.size, "small": plan.small}}
        plan = replace(plan, logs=fresh_folder(path.with_suffix(".logs")))
        stages: list[dict[str, Any]] = []
        document |= {"words": f"{kind}: not finished", "exit_code": 1, "seconds": 0.0, "stages": stages}
        for name in a.stages:
            stages.append(_stage(name, plan, clock, console))
            document["seconds"] = round(a.budget - clock.left, 1)
            # Whoever ends us leaves what was found until then
            write_json(path, document)
    failed = [one["name"] for one in stages if one["outcome"] == "failed"]
    words = f"{kind}: " + (f"failed: {', '.join(failed)}" if failed else "no stage failed")
    document |= {"words": words, "exit_code": int(bool(failed))}
    write_json(path, document)
    show(console, stages)
    console.print(Text(f"gpu-check: {words}; {path}, what was said in {plan.logs}"), soft_wrap=True)
    return int(bool(failed))


def fresh_folder(path: Path) -> Path:
    """A folder for what child processes say, without what those of an older run have said."""
    path.mkdir(exist_ok=True)
    for old in [*path.glob("[0-9][0-9]-*.out"), *path.glob("[0-9][0-9]-*.err")]:
        old.unlink()
    return path


def _roomy() -> str | None:
    """Memory, where there is plenty; None for the usual place."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        return None
    space = os.statvfs(shared)
    return str(shared) if space.f_bavail * space.f_frsize > 3 * ROOM else None


def _stage(name: str, plan: Plan, clock: Clock, console: Output) -> dict[str, Any]:
    start, limit = time.monotonic(), clock.left
    found = attempt(name, plan, limit) if limit > 0 else Found("failed", "not run: the time was up")
    seconds = round(time.monotonic() - start, 1)
    console.print(Text(f"{name:<10}{found.outcome:<8}{seconds:7.1f} s  {found.words}"), soft_wrap=True)
    said = tail(found.said, {str(plan.folder): "FOLDER", f"{ROOT}/": "", sys.prefix: "PREFIX"})
    return {"name": name, "outcome": found.outcome, "seconds": seconds, "words": found.words,
            "numbers": found.numbers} | ({"said": said} if said else {})


def tail(text: str, names: dict[str, str]) -> list[str]:
    """The last lines of what was said, with other names for folders of this machine.

    >>> tail("first\\n\\nin /a/b/c.py\\n", {"/a/b/": ""})
    ['first', 'in c.py']
    """
    for old, new in names.items():
        text = text.replace(old, new)
    lines = [line.rstrip()[:LONGEST_LINE] for line in text.splitlines()]
    return [line for line in lines if line][-LAST_LINES:]


def versions() -> dict[str, str]:
    """Of the packages that matter, where they are installed."""
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def show(console: Output, stages: list[dict[str, Any]]) -> None:
    """All stages in one table."""
    table = Table(box=None, pad_edge=False)
    for name in ("stage", "outcome", "seconds", "largest T"):
        table.add_column(name, justify="left" if name in ("stage", "outcome") else "right")
    for one in stages:
        worst = [value for value in one.get("numbers", {}).get("largest_T", {}).values() if value is not None]
        table.add_row(one["name"], one["outcome"], f"{one['seconds']:.1f}", short(max(worst)) if worst else "")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
