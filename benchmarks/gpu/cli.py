# SPDX-License-Identifier: MIT
"""``python -m benchmarks.gpu_bench``: a training step on a GPU, ours beside PyTorch's in every way, and the floor.

The bandwidth and the arithmetic of the GPU are measured first, and give the time that a step needs at least. Then
contestants in processes of their own do the same step in turns, float32, TF32 and bfloat16, the mission's size first.
The JSON is written after every cell. Without a usable GPU it says so in one line and ends with 0.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from benchmarks.frameworks.gpu import NAMES, PRECISIONS
from benchmarks.gpu.bench import Bench, Request
from benchmarks.gpu_check.__main__ import RESULTS, SOFTWARE, environment, output_file
from benchmarks.gpu_check.plan import Clock, Plan, StageError
from benchmarks.gpu_check.stages import Seen, doctor
from bridge.common.cli import Output, complain, new_parser, run
from bridge.common.errors import BridgeError
from bridge.engine.library.device_spec import DeviceSpec

EXAMPLES = """
examples:
  python -m benchmarks.gpu_bench                            eight minutes; benchmarks/results/gpu.json and pictures
  python -m benchmarks.gpu_bench --minutes 25               with what PyTorch compiles at every size
  python -m benchmarks.gpu_bench --quick --output F.json    does it work? two sizes, two minutes
  python -m benchmarks.gpu_bench --draw F.json              only the pictures, of a JSON that is there

exit codes: 0 measured, whatever was found, or there is no GPU; 1 no figure of ours at the mission's size or where
PyTorch has one, or we compute something else; 2 bad usage"""


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    p = new_parser("benchmarks.gpu_bench", description=__doc__, epilog=EXAMPLES)
    p.add_argument("--minutes", metavar="M", type=float, help="for everything (default 8, with --quick 2)")
    p.add_argument("--quick", action="store_true", help="two sizes, few turns, nothing that is compiled")
    p.add_argument("--precisions", metavar="P,P,...", type=_listed(PRECISIONS), default=list(PRECISIONS),
                   help=f"some of {', '.join(PRECISIONS)}")
    p.add_argument("--without", metavar="NAME,...", type=lambda text: tuple(filter(None, text.split(","))), default=(),
                   help="leave out the contestants whose names begin so")
    p.add_argument("--device", default="cuda", metavar="CUDA", help="cuda or cuda:N (default cuda)")
    p.add_argument("--output", "--json", metavar="FILE", help="where the JSON goes, pictures beside it (default "
                                                              "gpu.json in $OUT, else in benchmarks/results)")
    p.add_argument("--require", action="store_true", help="no usable GPU is a failure (exit code 1)")
    p.add_argument("--pretend", metavar="DIR", help="try it without a GPU: ours on the software device in DIR, PyTorch "
                                                    "on the CPU, tiny; needs --output outside of the results")
    p.add_argument("--draw", metavar="FILE", type=Path, help="only draw the pictures of a JSON")
    return p


def _listed(known: Sequence[str]) -> object:
    def parsed(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: unknown, expected {', '.join(known)}")
        return list(dict.fromkeys(names))
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; 0 done or no GPU, 1 failed."""
    a = parser().parse_args(arguments)
    return run("gpu-bench", lambda: _draw(a.draw) if a.draw else _main(a))


def _draw(path: Path) -> int:
    from benchmarks.gpu.pictures import draw

    for made in draw(json.loads(path.read_text(encoding="utf-8")), path):
        print(f"written: {made}")
    return 0


def _main(a: argparse.Namespace) -> int:
    minutes = a.minutes if a.minutes is not None else 2.0 if a.quick else 8.0
    spec = DeviceSpec.parse(a.device)
    if spec.text not in ("cuda", f"cuda:{spec.index}") or not minutes > 0:
        raise BridgeError(f"--device {a.device} --minutes {minutes:g}: expected cuda or cuda:N, and more than 0")
    names = [name for name in NAMES if not (a.without and name.startswith(a.without))]
    console = Output()
    path, clock = output_file(a, "gpu.json"), Clock(60 * minutes)
    if a.quick and path.resolve().is_relative_to(RESULTS):
        raise BridgeError("--quick: expected --output with a file outside of benchmarks/results")
    # Threads that wait for each other on few processors would take most of a pretended run
    variables = environment(a.pretend) | ({"OMP_NUM_THREADS": "1"} if a.pretend else {})
    try:
        seen = _seen(a.device, variables, min(clock.left, 120.0))
    except StageError as error:
        return complain("gpu-bench", f"failed: {error}", 1)
    if not seen.usable:
        console.print(f"gpu-bench: skipped: {seen.words}", highlight=False, markup=False, soft_wrap=True)
        return int(a.require)
    if SOFTWARE in seen.words and not a.pretend:
        raise BridgeError(f"found {seen.words}, expected a GPU: CNN_CUDA_PATH names a software device (--pretend)")
    console.print(Text(f"{'pretended' if a.pretend else 'GPU'}: {seen.words}"), soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="gpu-bench-") as folder:
        # What one of ours has measured the others need not measure again. It begins empty, and nobody else gets it
        variables |= {"CNN_PLAN_CACHE": str(Path(folder) / "plans.txt")}
        request = Request(path, clock, minutes, a.device, spec.index, tuple(a.precisions), tuple(names), a.quick,
                          bool(a.pretend), variables)
        return Bench(request, seen, console).run(require=a.require)


def _seen(device: str, variables: dict[str, str], limit: float) -> Seen:
    """What the doctor says of the GPU."""
    with tempfile.TemporaryDirectory(prefix="gpu-bench-") as folder:
        return doctor(Plan(Path(folder), Path(folder), "", device, "", "", (), variables), limit)
