# SPDX-License-Identifier: MIT
"""``python -m benchmarks.gpu_bench``: a training step on a GPU, ours beside PyTorch's, and the roofline bound.

The bandwidth and the arithmetic of the GPU are measured first, and give the time that a step needs at least. Then
frameworks in processes of their own do the same step in interleaved runs, in float32, TF32 and bfloat16, first for
images of 1024 x 1024 pixels, which the goals are about.
The JSON is written after every measurement. Without a usable GPU it says so in one line and ends with 0.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.frameworks.gpu import NAMES, PRECISIONS
from benchmarks.gpu.bench import Bench, Request
from benchmarks.harness import gpu_device
from benchmarks.harness.children import Clock
from benchmarks.harness.document import RESULTS
from benchmarks.harness.options import add_without, some_of
from bridge.common.cli import Output, new_parser, run
from bridge.common.errors import BridgeError
from bridge.engine.library.device_spec import DeviceSpec

OUTPUT = "gpu.json"
EXAMPLES = """
examples:
  python -m benchmarks.gpu_bench                          eight minutes; writes
                                      benchmarks/results/gpu.json and pictures
  python -m benchmarks.gpu_bench --minutes 25             torch.compile too, at
                                                          every size
  python -m benchmarks.gpu_bench --quick --output F.json  does it work? two
                                                          sizes, two minutes
  python -m benchmarks.gpu_bench --draw F.json            only the pictures

exit codes:
  0    measured, whatever was found, or there is no GPU
  1    no figure of ours at 1024 x 1024 or where PyTorch has one, or we compute
       something else than PyTorch
  2    bad usage
  130  interrupted"""


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    p = new_parser("benchmarks.gpu_bench", str(__doc__), EXAMPLES)
    p.add_argument("--minutes", metavar="M", type=float, help="minutes for everything (default 8, with --quick 2)")
    p.add_argument("--quick", action="store_true", help="two sizes, few runs, nothing that is compiled")
    p.add_argument("--precisions", metavar="P,P,...", type=some_of(PRECISIONS), default=list(PRECISIONS),
                   help=f"some of {', '.join(PRECISIONS)} (default: all)")
    add_without(p)
    p.add_argument("--device", default="cuda", metavar="CUDA", help="the GPU, cuda or cuda:N (default cuda)")
    gpu_device.add_options(p, OUTPUT)
    p.add_argument("--draw", metavar="FILE", type=Path, help="only draw the pictures of this JSON")
    return p


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
    names = tuple(name for name in NAMES if not name.startswith(a.without))
    path, console, clock = gpu_device.output_file(a, OUTPUT), Output(), Clock(60 * minutes)
    if a.quick and path.resolve().is_relative_to(RESULTS):
        raise BridgeError("--quick: expected --output with a file outside of benchmarks/results")
    # Threads that wait for each other on few processors would take most of a pretended run
    variables = gpu_device.environment(a.pretend) | ({"OMP_NUM_THREADS": "1"} if a.pretend else {})
    seen = gpu_device.look("gpu-bench", "pretended" if a.pretend else "GPU", a, variables, clock.left, console)
    if isinstance(seen, int):
        return seen
    request = Request(path, clock, minutes, a.device, spec.index, tuple(a.precisions), names, a.quick,
                      bool(a.pretend), variables)
    return Bench(request, seen, console).run(require=a.require)
