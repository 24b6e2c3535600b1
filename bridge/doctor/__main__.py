# SPDX-License-Identifier: MIT
"""``python -m bridge.doctor``: what works here, and what would help where it does not."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from rich.text import Text

from bridge.common.atomic_file import write_json
from bridge.common.cli import Output, complain, new_parser, run
from bridge.common.command_files import check_files
from bridge.common.progress import stage
from bridge.doctor.examine import cuda_path, examine
from bridge.doctor.plans import KNOWN, LEGEND, Wanted, find_plans, table, title
from bridge.doctor.show import show, to_dict

ABOUT = """Say what works on this machine: Python and its packages, the Fortran library, compilers, the
CUDA libraries and where they were found, GPUs and the kernels for them. Each device that can be used computes
a tiny training step in integers, which must be right to the bit. What is missing comes with the one command
that would help.

Whatever may crash or hang in a broken installation is asked in a child process with a time limit.
Nothing is installed, changed or sent anywhere."""

EXAMPLES = """exit codes:
  0    the CPU can be used (with --device cuda: a GPU too)
  1    it cannot
  2    bad usage, or the JSON cannot be written
  130  interrupted

examples:
  python -m bridge.doctor                        look at everything
  python -m bridge.doctor --device cuda && ...   go on only if a GPU works
  python -m bridge.doctor --json -               for a bug report
  python -m bridge.doctor --time-limit 600       libraries on a slow disk
  python -m bridge.doctor --plans cuda,math=tf32 --gpu h200
                                                 what cuDNN would do on a GPU
                                                 that is not here

CUDA libraries of this Python for programs without Python (docs/cuda.md):
  export CNN_CUDA_PATH=$(python -m bridge.doctor --cuda-path)
  cnn_step fixture.h5 result.h5 --device cuda"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    p = new_parser("bridge.doctor", ABOUT, EXAMPLES)
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu",
                   help="the device that must be ready for the exit code 0 (default cpu)")
    p.add_argument("--json", metavar="FILE", help="write everything as JSON too (docs/json.md); - writes it to the "
                   "standard output, instead of the text")
    p.add_argument("--cuda-path", action="store_true", help="only print the folders of the CUDA libraries that this "
                   "Python uses, as a value for CNN_CUDA_PATH")
    p.add_argument("--plans", nargs="?", const="cuda", metavar="DEVICE", help="only say which plan (algorithm) of "
                   "cuDNN's graph API each operation of the default network has on this device (default cuda; options "
                   "as in cuda,math=tf32, see docs/cuda.md)")
    p.add_argument("--gpu", metavar="NAME", default="", help=f"with --plans: a GPU that need not be here, "
                   f"{', '.join(KNOWN)} or a file with its description in JSON (docs/cuda.md)")
    p.add_argument("--size", type=_count, metavar="N", default=1024,
                   help="with --plans: height and width of the images in pixels (default 1024)")
    p.add_argument("--batch", type=_count, metavar="N", default=2, help="with --plans: images in a batch (default 2)")
    p.add_argument("--dtype", choices=("float32", "float64", "float16", "bfloat16"), default="float32",
                   help="with --plans: type of the tensors (default float32)")
    p.add_argument("--time-limit", type=_seconds, metavar="S", default=120.0,
                   help="seconds that a child process may be silent (default 120)")
    return p


def _count(text: str) -> int:
    if not (text.isdecimal() and 0 < int(text) <= 1 << 16):
        raise argparse.ArgumentTypeError(f"expected 1 to {1 << 16}, found '{text}'")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"expected seconds from 0 to 3600, found '{text}'")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code says whether the device can be used."""
    p = parser()
    a = p.parse_args(arguments)
    for name in ("gpu", "size", "batch", "dtype"):
        if not a.plans and getattr(a, name) != p.get_default(name):
            p.error(f"--{name} goes with --plans")
    if a.plans:
        return run("bridge.doctor", lambda: _print_plans(a))
    return run("bridge.doctor", lambda: _print_path() if a.cuda_path else _examine(a))


def _print_path() -> int:
    path = cuda_path()
    if not path:
        return complain("bridge.doctor", "no folder with CUDA libraries: pip install nvidia-cudnn-cu13 "
                        "nvidia-cuda-runtime nvidia-cublas, or set CNN_CUDA_PATH", 1)
    Output().print(Text(path), soft_wrap=True)
    return 0


def _print_plans(a: argparse.Namespace) -> int:
    wanted = Wanted(a.plans, a.gpu, a.size, a.batch, a.dtype)
    if a.json != "-":
        check_files([("--gpu", KNOWN.get(a.gpu, a.gpu) or None)], [("--json", a.json)])
    plans = find_plans(wanted, a.time_limit)
    document = {"asked": asdict(wanted), "plans": [asdict(plan) for plan in plans]}
    if a.json == "-":
        Output().print(Text(json.dumps(document, indent=1)), soft_wrap=True)
        return 0
    console = Output()
    for part in (Text(title(wanted), style="bold"), table(plans), Text(LEGEND, style="dim")):
        console.print(part)
    if a.json is not None:
        write_json(a.json, document)
    return 0


def _examine(a: argparse.Namespace) -> int:
    if a.json != "-":
        check_files([], [("--json", a.json)])
    with stage(Output(stderr=True), "looking at this machine"):
        found = examine(a.time_limit)
    code = found.exit_code(a.device)
    document = to_dict(found, code)
    if a.json == "-":
        Output().print(Text(json.dumps(document, indent=1)), soft_wrap=True)
        return code
    show(Output(), found)
    if a.json is not None:
        write_json(a.json, document)
    return code


if __name__ == "__main__":
    sys.exit(main())
