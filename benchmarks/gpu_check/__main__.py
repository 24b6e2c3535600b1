# SPDX-License-Identifier: MIT
"""``python -m benchmarks.gpu_check``: tests, validation, TF32, CPU against GPU, double precision and memcheck on a GPU.

Without a usable GPU it says so in one line and ends with 0. It needs the installed package and this folder, no
compiler and no network. Every stage is run, whatever the one before gave; docs/gpu-check.md describes the JSON.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from benchmarks.gpu_check.plan import Found, Plan
from benchmarks.gpu_check.stages import STAGES, TESTS, attempt
from benchmarks.harness import gpu_device
from benchmarks.harness.children import Clock
from benchmarks.harness.options import some_of
from benchmarks.harness.processes import ROOT
from benchmarks.harness.tables import table
from bridge.common.atomic_file import write_json
from bridge.common.cli import Output, new_parser, run
from bridge.common.errors import BridgeError
from bridge.common.number_format import short
from bridge.engine.library.device_spec import DeviceSpec

JSON_VERSION, OUTPUT = 1, "gpu_check.json"
#: Of what was said by a stage that failed: so many lines are in the JSON
LAST_LINES, LONGEST_LINE = 60, 300
#: Room for the files of a run: a fixture of a step and three results at the default size
ROOM = 8 * 2**30
EXAMPLES = """exit codes:
  0    all stages passed, or there is no GPU
  1    a stage failed
  2    bad usage
  130  interrupted

examples:
  python -m benchmarks.gpu_check                     all stages, nine minutes
  python -m benchmarks.gpu_check --require           without a GPU: exit code 1
  python -m benchmarks.gpu_check --stages validate,tf32 --size 256"""


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    p = new_parser("benchmarks.gpu_check", str(__doc__), f"stages: {', '.join(STAGES)}\n\n{EXAMPLES}")
    p.add_argument("--stages", metavar="S,S,...", type=some_of(STAGES), default=list(STAGES),
                   help="only these, in this order")
    p.add_argument("--size", metavar="HxW", help="images of the validation, in pixels (default 1024)")
    p.add_argument("--small", metavar="HxW", help="images in the stages double and options, in pixels "
                   "(default 256)")
    p.add_argument("--budget", metavar="S", type=float, default=540.0, help="seconds for all stages (default 540)")
    p.add_argument("--device", default="cuda", metavar="CUDA", help="the GPU and its options (default cuda)")
    p.add_argument("--tests", nargs="+", default=list(TESTS), metavar="FILE", help="files of tests for the stage tests")
    gpu_device.add_options(p, OUTPUT)
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 passed or no GPU, 1 failed."""
    a = parser().parse_args(arguments)
    return run("gpu-check", lambda: _check(a))


def _check(a: argparse.Namespace) -> int:
    if not DeviceSpec.parse(a.device).on_gpu or not a.budget >= 0:
        raise BridgeError(f"--device {a.device} --budget {a.budget:g}: expected a CUDA device and a time of 0 or more")
    path, console, clock = gpu_device.output_file(a, OUTPUT), Output(), Clock(a.budget)
    kind, variables = "software device" if a.pretend else "GPU", gpu_device.environment(a.pretend)
    seen = gpu_device.look("gpu-check", kind, a, variables, clock.left, console)
    if isinstance(seen, int):
        return seen
    size, small = ("24x20", "23x18") if a.pretend else ("1024", "256")
    stages: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="gpu-check-", dir=_roomy()) as folder:
        plan = Plan(Path(folder), fresh_folder(path.with_suffix(".logs")), kind, a.device, a.size or size,
                    a.small or small, a.tests, variables)
        document = {"json_version": JSON_VERSION, **gpu_device.head(kind, a.device, seen),
                    "sizes": {"validate": plan.size, "small": plan.small}, "stages": stages,
                    "words": f"{kind}: not finished"}
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


def show(console: Output, stages: list[dict[str, Any]]) -> None:
    """All stages in one table."""
    made = table("", "stage", "outcome", "seconds", "largest T", texts=2)
    for one in stages:
        worst = [value for value in one.get("numbers", {}).get("largest_T", {}).values() if value is not None]
        made.add_row(one["name"], one["outcome"], f"{one['seconds']:.1f}", short(max(worst)) if worst else "")
    console.print(made)


if __name__ == "__main__":
    sys.exit(main())
